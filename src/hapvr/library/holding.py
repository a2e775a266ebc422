"""What a process that searches again and again keeps in memory: stored videos, and their vectors, ready to compare."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from hapvr.library.tables import Stored

if TYPE_CHECKING:
    from hapvr.library.store import Store

_SHARE = 4  # one value takes no more than a fourth of all
_BYTES = 0  # in place of `every`: as it lies in the tables


class Held:
    """Contents by key, the least recently used of them forgotten when they take too many bytes. Safe to share.

    A key is never given to another content of the same tables, so nothing that is held can be out of date; when other
    tables are asked for, all of it is forgotten.

    Args:
        most: bytes; 0 holds nothing.
        only_stored: hold what lies in the tables, but not the vectors made of it.
    """

    def __init__(self, most: int, *, only_stored: bool = False) -> None:
        self.most, self.bytes = most, 0
        self._only_stored = only_stored
        self._values: OrderedDict[tuple[int, int], Stored | Tensor] = OrderedDict()  # by key and `every`
        self._parts: set[int] = set()  # each `every` above 1
        self._folder: object = None
        self._lock = threading.Lock()

    def stored(self, store: Store, keys: Sequence[int], *, batch: int = 64) -> Iterator[Stored]:
        """`Store.stored`, of which only what is not held is read."""
        if not self.most:
            yield from store.stored(keys, batch=batch, pixels=False)
            return
        for first in range(0, len(keys), batch):
            wanted = [int(key) for key in keys[first : first + batch]]
            found = {key: one for key in wanted if isinstance(one := self._get(store, (key, _BYTES)), Stored)}
            for one in store.stored([key for key in wanted if key not in found], batch=batch, pixels=False):
                self._put(store, (one.key, _BYTES), one, len(one.data))
                found[one.key] = one
            yield from (found[key] for key in wanted if key in found)

    def vectors(self, store: Store, key: int, every: int, make: Callable[[], Tensor]) -> Tensor:
        """Every so many of the frames of a content that are compared, [T, ...]: those that are held, else made.

        What `make` gives must depend on nothing else than the store, the key and `every`.
        """
        if not self.most or self._only_stored:
            return make()
        if isinstance(whole := self._get(store, (key, 1)), Tensor):
            return whole[::every]
        if every > 1 and isinstance(some := self._get(store, (key, every)), Tensor):
            return some
        made = make()
        self._put(store, (key, every), made, made.nbytes)
        return made

    def _get(self, store: Store, place: tuple[int, int]) -> Stored | Tensor | None:
        with self._lock:
            self._turn_to(store)
            if place in self._values:
                self._values.move_to_end(place)
            return self._values.get(place)

    def _put(self, store: Store, place: tuple[int, int], value: Stored | Tensor, size: int) -> None:
        with self._lock:
            self._turn_to(store)
            if place in self._values or size > self.most // _SHARE:
                return
            key, every = place
            if every > 1:
                self._parts.add(every)
            elif every == 1:  # then its parts are not needed any more
                for part in self._parts:
                    self._forget((key, part))
            self._values[place] = value
            self.bytes += size
            while self.bytes > self.most:
                self._forget(next(iter(self._values)))

    def _forget(self, place: tuple[int, int]) -> None:
        gone = self._values.pop(place, None)
        if gone is not None:
            self.bytes -= len(gone.data) if isinstance(gone, Stored) else gone.nbytes

    def _turn_to(self, store: Store) -> None:
        if store.folder != self._folder:
            self._values.clear()
            self._folder, self.bytes = store.folder, 0
