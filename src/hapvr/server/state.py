"""What all requests share: the library as the server reads it, the jobs, the uploads, the pictures and their folder."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

from hapvr.errors import HapvrError, StorageError
from hapvr.library import Library, LibraryInfo, VideoRecord
from hapvr.library.indexed_folders import read_text_model
from hapvr.library.opening import is_of_judge, read_calibration
from hapvr.library.writer_lock import LOCK, WriterLock, find_holder
from hapvr.model import is_calibrated, read_judge
from hapvr.places import ObjectPath, Place
from hapvr.server.access import hide_path, is_reachable, translate_library_error
from hapvr.server.jobs import Jobs
from hapvr.server.media import Media, Source
from hapvr.server.metrics import Metrics
from hapvr.server.problems import Problem, busy, not_found
from hapvr.server.settings import ServerSettings
from hapvr.server.uploads import Uploads
from hapvr.server.worker_group import WorkerGroup
from hapvr.server.workers import Worker

log = logging.getLogger("hapvr.server.state")
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
_EXPIRE_S = 30.0  # how often old uploads are looked for
_INFO_S = 2.0  # how old counts may be: they take a look at every file of the library
_PREFIX = "hapvr-serve-"


class State:
    """What a server that runs consists of."""

    def __init__(self, library: Place, settings: ServerSettings, metrics: Metrics) -> None:
        self.settings, self.metrics = settings, metrics
        self.library = LibraryReader(library)
        self._folder = PrivateFolder(settings.folder)
        self.folder = self._folder.path
        self.jobs = Jobs(self.library.path, settings, metrics)
        self.media = Media(self._folder.make_part("cache"), settings)
        self.uploads = Uploads(
            self._folder.make_part("uploads"),
            settings,
            linked=None if isinstance(self.library.path, ObjectPath) else self.library.path / "linked uploads",
            forgotten=self._forget,
        )
        self.workers = (self.jobs.searching, self.jobs.adding, self.media.pictures, self.media.previews)
        self._tasks: set[asyncio.Task[Any]] = set()

    def begin(self) -> None:
        """Start what runs all the time."""
        self.follow(self._expire_uploads())
        if self.settings.eager:  # an upload and a search need these two; the others are started when they are needed
            for worker in (self.jobs.searching, self.media.pictures):
                self.follow(worker.start())

    def follow(self, work: Any) -> None:
        """Let something run until it ends or the server stops; a `Problem` it ends in is ignored."""

        def end(task: asyncio.Task[Any]) -> None:
            self._tasks.discard(task)
            error = None if task.cancelled() else task.exception()
            if error is not None and not isinstance(error, Problem):
                log.error("task failed", exc_info=error)

        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(end)

    async def _expire_uploads(self) -> None:
        while True:
            await asyncio.sleep(min(_EXPIRE_S, self.settings.keep_uploads_s / 2))
            self.uploads.expire()

    def _forget(self, id: str) -> None:
        """An upload is gone: the workers need not remember it."""
        self.jobs.searching.tell("forget", {"id": id})

    async def close(self) -> None:
        """End everything; nothing is left of uploads and pictures."""
        try:
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(self.jobs.close(), self.media.close())
        finally:
            self.library.close()
            self._folder.close()

    async def require_ready(self) -> None:
        """Raise `Problem` if a search that comes now would be refused, or would wait for a worker that starts."""
        await self.library.info()
        if self.jobs.stopping.is_set():
            raise busy("The server is stopping.", after_s=10)
        found = check_health(self.workers, library=self.library.path)
        if found.status in ("starting", "failed"):
            raise busy(found.cause or "", after_s=10 if found.status == "failed" else 2)
        if self.jobs.waiting() >= self.settings.max_queued_jobs:
            raise busy(f"{self.settings.max_queued_jobs} jobs are waiting already.")

    async def video_source(self, id: str) -> Source:
        """The file of a video; `Problem` if there is nothing to see."""
        return Source.of_video(await self._readable(id, "show"))

    async def side(self, id: str) -> dict[str, Any]:
        """A video or an upload as an argument of a task, see `LibraryTasks`."""
        if id in self.uploads or id.startswith("q"):  # no video has such an id
            query = self.uploads.get(id)
            start_s, end_s = query.part
            return {"id": id, "upload": str(query.path), "name": query.name, "start_s": start_s, "end_s": end_s}
        return {"id": (await self._readable(id, "compare")).id}

    async def _readable(self, id: str, purpose: str) -> VideoRecord:
        record = await self.library.get(id)
        if record.state == "failed":
            raise Problem(409, f"This video could not be read when it was indexed: there is nothing to {purpose}.")
        return record


def _in_thread(
    read: Callable[Concatenate[LibraryReader, Arguments], Result],
) -> Callable[Concatenate[LibraryReader, Arguments], Coroutine[Any, Any, Result]]:
    """A method that runs in a thread; if the library's folder is gone, any error says so."""

    async def run(self: LibraryReader, /, *args: Arguments.args, **options: Arguments.kwargs) -> Result:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self.pool, partial(read, self, *args, **options))
        except Exception as error:
            if is_reachable(self.path):
                raise
            raise translate_library_error(error, self.path) from error

    return run


class LibraryReader:
    """A library that the server itself reads: records and counts, in threads, never on the event loop."""

    def __init__(self, path: Place) -> None:
        self._library = Library.open(path)
        self.path = self._library.path
        self.pool = ThreadPoolExecutor(2, "library")
        self._info: tuple[float, LibraryInfo] | None = None
        self._lock = threading.Lock()

    @_in_thread
    def info(self) -> LibraryInfo:
        """Counts, no older than a few seconds."""
        with self._lock:
            if self._info is None or time.monotonic() - self._info[0] > _INFO_S:
                self._info = (time.monotonic(), self._library.info())
            return self._info[1]

    @_in_thread
    def has_text_model(self) -> bool:
        """Whether it can be searched by text, as of now."""
        return read_text_model(self.path) is not None

    @_in_thread
    def calibration(self) -> Literal["judge", "library", "model"] | None:
        """What probabilities are based on; a model's description tells, for a model takes long to load."""
        store = self._library.store
        try:
            own, judge = read_calibration(store), read_judge(store.settings.model)
            if judge is not None:
                return "library" if is_of_judge(own, judge) else "judge"
            if own is not None:
                return "library"
            return "model" if is_calibrated(store.settings.model) else None
        except (HapvrError, OSError, ValueError, KeyError):  # the first search will say what is wrong with it
            return None

    @_in_thread
    def get(self, id: str) -> VideoRecord:
        """A record; `Problem` if there is none."""
        catalog = self._library.store.catalog()
        if id not in catalog:
            raise not_found("video", id)
        return catalog.record(catalog.row(id))

    @_in_thread
    def page(
        self, *, state: str | None, text: str = "", offset: int = 0, limit: int, warned: bool = False
    ) -> tuple[int, list[VideoRecord]]:
        """How many records have a text in their file names, and some of them."""
        catalog = self._library.store.catalog()
        rows = [row for row in catalog.rows(state) if not warned or catalog.warned[row]]
        if text:
            wanted, paths = text.casefold(), catalog.paths
            rows = [row for row in rows if wanted in os.path.basename(os.fsdecode(paths[row])).casefold()]
        return len(rows), catalog.records(rows[offset : offset + limit])

    @_in_thread
    def refresh(self) -> None:
        """Read what has just been written."""
        with self._lock:
            self._library.refresh()
            self._info = None

    def close(self) -> None:
        """Close it."""
        self.pool.shutdown()
        self._library.close()


class PrivateFolder:
    """A new folder that only this user can read, in `parent` or where temporary files go, locked while it is used.

    A server that was killed leaves its folder; the next one removes it.
    """

    def __init__(self, parent: Path | None) -> None:
        inside = Path(tempfile.gettempdir()) if parent is None else parent
        _remove_left(inside)
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=inside))
        self._lock = WriterLock(self.path)
        with suppress(StorageError):  # a file system without locks: then no other server removes it either
            self._lock.acquire("hapvr serve", wait_s=5.0)

    def make_part(self, name: str) -> Path:
        """A new folder in it."""
        part = self.path / name
        part.mkdir()
        return part

    def close(self) -> None:
        """Remove it and all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.release(clean=True)
        shutil.rmtree(self.path, ignore_errors=True)  # Windows cannot remove a lock that is held


def _remove_left(parent: Path) -> None:
    """Remove the folders of this user's servers that were killed."""
    with suppress(OSError):
        for entry in list(os.scandir(parent)):
            with suppress(OSError, StorageError):
                # No link to a folder, nor another user's: anybody may put things where temporary files go.
                own = os.name != "posix" or entry.stat(follow_symlinks=False).st_uid == os.geteuid()
                if entry.name.startswith(_PREFIX) and own and entry.is_dir(follow_symlinks=False):
                    folder = Path(entry.path)
                    # A lock that is free but not empty: its holder was killed.
                    if (folder / LOCK).stat().st_size > 0 and find_holder(folder) is None:
                        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class HealthReport:
    """What a health check says; see `hapvr.server.schemas.library.Health`."""

    status: Literal["ok", "starting", "degraded", "failed"]
    cause: str | None
    workers: dict[str, dict[str, Any]]


def check_health(workers: Sequence[Worker | WorkerGroup], *, library: Place) -> HealthReport:
    """Whether a server works, from the states of its workers, the search worker first."""
    states: dict[str, dict[str, Any]] = {}
    sentences: list[str] = []
    for worker in workers:
        state, error = worker.state, worker.last_error
        cause = None if error is None or state == "ready" else hide_path(error, str(library))
        states[worker.kind] = {"state": state, "cause": cause}
        if cause is not None:
            how = "could not be started" if state == "failed" else "has ended and is started again"
            sentences.append(f"The {worker.kind} worker {how}: {cause.rstrip('.')}.")
    searching = workers[0]
    status: Literal["ok", "starting", "degraded", "failed"] = "degraded" if sentences else "ok"
    if searching.state == "failed":
        status = "failed"
    elif searching.state == "starting" or (searching.state == "idle" and searching.keep_running):
        status = "starting"
        sentences = sentences or [f"The {searching.kind} worker is being started."]
    return HealthReport(status, " ".join(sentences) or None, states)
