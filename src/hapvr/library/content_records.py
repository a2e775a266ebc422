"""What is kept of contents beside their features (sound, what a text model said): written in batches, copied."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Generic, TypeVar

from hapvr.library.store import Store
from hapvr.library.tables import NO_KEY
from hapvr.storage import hold_interrupts

BATCH = 256  # contents that are written at once
_MAX_WAIT_S = 15.0

T = TypeVar("T")


class BatchWriter(Generic[T]):
    """Collects what is to be stored of contents by key, and writes it when there is enough, or after a while.

    >>> written: list[dict[int, str]] = []
    >>> writer = BatchWriter(written.append)
    >>> writer.put(1, "a sound")
    >>> writer.flush()
    >>> written
    [{1: 'a sound'}]
    """

    def __init__(self, write: Callable[[dict[int, T]], object]) -> None:
        self._write = write
        self._pending: dict[int, T] = {}
        self._written_s = time.monotonic()

    def put(self, key: int, value: T) -> None:
        """Store this; by the end of `flush` at the latest."""
        self._pending[key] = value
        if len(self._pending) >= BATCH or time.monotonic() - self._written_s > _MAX_WAIT_S:
            self.flush()

    def flush(self) -> None:
        """Write what is left. An interrupt waits until it is written."""
        with hold_interrupts():
            self._write(self._pending)
        self._pending, self._written_s = {}, time.monotonic()


def find_common_contents(old: Store, new: Store, *, done: Collection[int]) -> dict[int, int]:
    """The keys of contents in `old`, each with its key in `new`, but for keys of `new` that are `done`."""
    before, after = old.catalog(), new.catalog()
    keys = dict(zip(before.column("content_hash"), before.keys.tolist(), strict=True))
    common: dict[int, int] = {}
    for hash, key in zip(after.column("content_hash"), after.keys.tolist(), strict=True):
        if key != NO_KEY and key not in done and keys.get(hash, NO_KEY) != NO_KEY:
            common[keys[hash]] = key
    return common
