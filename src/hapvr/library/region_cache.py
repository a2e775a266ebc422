"""Stored videos kept in memory from one search to the next: as they lie in the tables, and ready to compare."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence

from torch import Tensor

from hapvr.library.store import Store
from hapvr.library.tables import Stored

_SHARE = 4  # one value takes a fourth of the bytes at most
_BYTES = 0  # in place of `every`: the content as it lies in the tables


class RegionCache:
    """Contents by key; the least recently used are dropped when they take too many bytes. Safe to share.

    A key is never given to another content of the same tables, so nothing in the cache can be out of date; when other
    tables are asked for, all of it is dropped.

    Args:
        max_bytes: 0 caches nothing.
        only_stored: cache what lies in the tables, but not the vectors made of it.
    """

    def __init__(self, max_bytes: int, *, only_stored: bool = False) -> None:
        self.max_bytes, self.bytes = max_bytes, 0
        self._only_stored = only_stored
        self._values: OrderedDict[tuple[int, int], Stored | Tensor] = OrderedDict()  # by key and `every`
        self._parts: set[int] = set()  # each `every` above 1
        self._folder: object = None
        self._lock = threading.Lock()

    def stored(self, store: Store, keys: Sequence[int], *, batch: int = 64) -> Iterator[Stored]:
        """`Store.stored`, of which only what is not cached is read."""
        if not self.max_bytes:
            yield from store.stored(keys, batch=batch, pixels=False)
            return
        for first in range(0, len(keys), batch):
            wanted = [int(key) for key in keys[first : first + batch]]
            found = {key: one for key in wanted if isinstance(one := self._get(store, (key, _BYTES)), Stored)}
            for one in store.stored([key for key in wanted if key not in found], batch=batch, pixels=False):
                self._set(store, (one.key, _BYTES), one, len(one.data))
                found[one.key] = one
            yield from (found[key] for key in wanted if key in found)

    def vectors(self, store: Store, key: int, every: int, make: Callable[[], Tensor]) -> Tensor:
        """Every `every`-th of the frames of a content that are compared, [T, ...]: from the cache, or made.

        What `make` gives must depend on nothing else than the store, the key and `every`.
        """
        if not self.max_bytes or self._only_stored:
            return make()
        if isinstance(whole := self._get(store, (key, 1)), Tensor):
            return whole[::every]
        if every > 1 and isinstance(some := self._get(store, (key, every)), Tensor):
            return some
        made = make()
        self._set(store, (key, every), made, made.nbytes)
        return made

    def _get(self, store: Store, place: tuple[int, int]) -> Stored | Tensor | None:
        with self._lock:
            self._use(store)
            if place in self._values:
                self._values.move_to_end(place)
            return self._values.get(place)

    def _set(self, store: Store, place: tuple[int, int], value: Stored | Tensor, size: int) -> None:
        with self._lock:
            self._use(store)
            if place in self._values or size > self.max_bytes // _SHARE:
                return
            key, every = place
            if every > 1:
                self._parts.add(every)
            elif every == 1:  # then its parts are not needed any more
                for part in self._parts:
                    self._drop((key, part))
            self._values[place] = value
            self.bytes += size
            while self.bytes > self.max_bytes:
                self._drop(next(iter(self._values)))

    def _drop(self, place: tuple[int, int]) -> None:
        gone = self._values.pop(place, None)
        if gone is not None:
            self.bytes -= len(gone.data) if isinstance(gone, Stored) else gone.nbytes

    def _use(self, store: Store) -> None:
        if store.folder != self._folder:
            self._values.clear()
            self._folder, self.bytes = store.folder, 0
