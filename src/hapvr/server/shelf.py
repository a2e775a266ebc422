"""What the server itself reads of a library: records and counts, in threads, never on the event loop."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, TypeVar

from hapvr.errors import HapvrError
from hapvr.library import Library, LibraryInfo, VideoRecord, library_calibration
from hapvr.model import is_calibrated
from hapvr.server.problems import not_found
from hapvr.server.wording import problem_of

Result = TypeVar("Result")
_INFO_S = 2.0  # how old the counts may be: they look at every file of the library


class Shelf:
    """A library, opened for reading."""

    def __init__(self, path: Path) -> None:
        self._library = Library.open(path)
        self.path = self._library.path
        self._pool = ThreadPoolExecutor(2, "shelf")
        self._info: tuple[float, LibraryInfo] | None = None
        self._lock = threading.Lock()

    async def _read(self, read: Callable[[], Result]) -> Result:
        def told() -> Result:
            try:
                return read()
            except Exception as error:
                if (problem := problem_of(error, self.path)) is None:
                    raise
                raise problem from error

        return await asyncio.get_running_loop().run_in_executor(self._pool, told)

    async def info(self) -> LibraryInfo:
        """Counts, no older than a few seconds."""

        def read() -> LibraryInfo:
            with self._lock:
                if self._info is None or time.monotonic() - self._info[0] > _INFO_S:
                    self._info = (time.monotonic(), self._library.info())
                return self._info[1]

        return await self._read(read)

    async def calibration(self) -> Literal["library", "model"] | None:
        """What probabilities rest on; of a model told from its description, for it takes long to load."""

        def read() -> Literal["library", "model"] | None:
            store = self._library.store
            if (store.folder / library_calibration.CALIBRATION).is_file():  # fitted on its own videos
                return "library"
            try:
                return "model" if is_calibrated(store.settings.model) else None
            except (HapvrError, OSError, ValueError, KeyError):  # what is wrong with it, the first search will say
                return None

        return await self._read(read)

    async def get(self, id: str) -> VideoRecord:
        """A record; `Problem` if there is none."""

        def read() -> VideoRecord | None:
            catalog = self._library.store.catalog()
            return catalog.record(catalog.row(id)) if id in catalog else None

        record = await self._read(read)
        if record is None:
            raise not_found("video", id)
        return record

    async def page(
        self, *, state: str | None, text: str, offset: int, limit: int, warned: bool = False
    ) -> tuple[int, list[VideoRecord]]:
        """Records whose file names hold a text, some of them, and how many there are."""

        def read() -> tuple[int, list[VideoRecord]]:
            catalog = self._library.store.catalog()
            rows = [row for row in catalog.rows(state) if not warned or catalog.warned[row]]
            if text:
                wanted = text.casefold()
                names = catalog.paths
                rows = [row for row in rows if wanted in os.path.basename(os.fsdecode(names[row])).casefold()]
            return len(rows), catalog.records(rows[offset : offset + limit])

        return await self._read(read)

    async def refresh(self) -> None:
        """See what has just been written."""

        def read() -> None:
            with self._lock:
                self._library.refresh()
                self._info = None

        await self._read(read)

    def close(self) -> None:
        """Let go of it."""
        self._pool.shutdown()
        self._library.close()
