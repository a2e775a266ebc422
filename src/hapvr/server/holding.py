"""A library that keeps what it has read: a worker that searches reads the same stored videos again and again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence

from hapvr.library import Library
from hapvr.library.store import Store
from hapvr.library.tables import Stored

Read = Callable[..., Iterator[Stored]]


class Held:
    """Stored contents by key, the least recently used of them forgotten when they are too many bytes.

    A key is never given to another content, so nothing that is held can be out of date.
    """

    def __init__(self, most: int) -> None:
        self._most, self._bytes = most, 0
        self._held: OrderedDict[int, Stored] = OrderedDict()
        self._lock = threading.Lock()

    def reading(self, read: Read) -> Read:
        """`Store.stored`, which then reads only what is not held."""

        def stored(keys: Sequence[int], *, batch: int = 64) -> Iterator[Stored]:
            for first in range(0, len(keys), batch):
                wanted = [int(key) for key in keys[first : first + batch]]
                found = {key: one for key in wanted if (one := self._get(key)) is not None}
                for one in read([key for key in wanted if key not in found], batch=batch):
                    self._put(one)
                    found[one.key] = one
                yield from (found[key] for key in wanted if key in found)

        return stored

    def _get(self, key: int) -> Stored | None:
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
            return self._held.get(key)

    def _put(self, one: Stored) -> None:
        with self._lock:
            if one.key in self._held or len(one.data) > self._most // 4:
                return
            self._held[one.key] = one
            self._bytes += len(one.data)
            while self._bytes > self._most:
                _, gone = self._held.popitem(last=False)
                self._bytes -= len(gone.data)


class HoldingLibrary(Library):
    """A library whose stored contents are held in memory, up to `held` bytes."""

    held: Held | None = None

    @property
    def store(self) -> Store:
        """The tables in use."""
        store = super().store
        if self.held is not None and "stored" not in vars(store):
            store.stored = self.held.reading(store.stored)  # type: ignore[method-assign]
        return store
