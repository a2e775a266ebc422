"""What all requests share."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, Request

from hapvr.server.jobs import Jobs
from hapvr.server.media import Media, Source, source_of_query, source_of_video
from hapvr.server.metrics import Metrics
from hapvr.server.models import Error
from hapvr.server.problems import Problem
from hapvr.server.settings import ServerSettings
from hapvr.server.shelf import Shelf
from hapvr.server.uploads import Uploads
from hapvr.server.workers import Worker
from hapvr.server.workplace import Workplace

_SWEEP_S = 30.0


class State:
    """The library, the jobs, the uploads and the pictures of a server that runs."""

    def __init__(self, library: Path, settings: ServerSettings, metrics: Metrics) -> None:
        self.settings, self.metrics = settings, metrics
        self.shelf = Shelf(library)
        self._workplace = Workplace(settings.folder)
        self.jobs = Jobs(self.shelf.path, settings, metrics)
        self.media = Media(self._workplace.part("cache"), settings)
        self.uploads = Uploads(self._workplace.part("uploads"), settings, forgotten=self._forget)
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def folder(self) -> Path:
        """Where uploads and pictures are kept."""
        return self._workplace.folder

    def begin(self) -> None:
        """Start what runs all the time."""
        self.follow(self._sweep())
        if self.settings.eager:
            # What looks at uploads is ready in no time; the other two take more, and wait until they are needed.
            for worker in (self.jobs.searching, self.media.pictures):
                self.follow(self._warm_up(worker))

    def follow(self, work: Any) -> None:
        """Let something run until it ends or the server stops."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(min(_SWEEP_S, self.settings.keep_uploads_s / 2))
            self.uploads.expire()

    @property
    def workers(self) -> tuple[Worker, ...]:
        """The processes that decode and compute."""
        return self.jobs.searching, self.jobs.adding, self.media.pictures, self.media.previews

    @staticmethod
    async def _warm_up(worker: Worker) -> None:
        with suppress(Problem):  # the worker remembers it
            await worker.start()

    def _forget(self, id: str) -> None:
        """An upload is gone: the worker need not remember it."""
        if self.jobs.searching.pid is None or self.jobs.stopping.is_set():
            return

        async def tell() -> None:
            with suppress(Problem):
                await self.jobs.ask("forget", {"id": id}, timeout_s=600)

        self.follow(tell())

    async def close(self) -> None:
        """End everything; nothing is left of uploads and pictures."""
        try:
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(self.jobs.close(), self.media.close())
        finally:
            self.shelf.close()
            self._workplace.close()

    async def source(self, id: str) -> Source:
        """The file of a video or of an upload."""
        return source_of_query(self.uploads.get(id)) if id in self.uploads else await self.video_source(id)

    async def video_source(self, id: str) -> Source:
        """The file of a video; `Problem` if there is nothing to see."""
        record = await self.shelf.get(id)
        if record.state == "failed":
            raise Problem(409, "This video could not be read when it was indexed: there is nothing to show.")
        return source_of_video(record)

    async def side(self, id: str) -> dict[str, Any]:
        """What a worker is told about a video or an upload."""
        if id in self.uploads:
            query = self.uploads.get(id)
            start, end = query.part
            return {"id": id, "upload": str(query.path), "name": query.name, "from": start, "to": end}
        record = await self.shelf.get(id)
        if record.state == "failed":
            raise Problem(409, "This video could not be read when it was indexed: there is nothing to compare.")
        return {"id": record.id}


async def _state(request: Request) -> State:
    state: State = request.app.state.server
    return state


Server = Annotated[State, Depends(_state)]


_REASONS = {
    400: "It cannot be done as asked.",
    401: "A token is needed.",
    403: "It is not allowed.",
    404: "There is no such thing.",
    408: "It took too long to send.",
    409: "It does not go with what is there.",
    413: "It is too large.",
    415: "It is not of a kind that can be read.",
    416: "There is no such part.",
    421: "This server does not answer to that name.",
    422: "A value is missing, or out of range.",
    500: "A fault of the server.",
    503: "The server is busy, or stopping.",
    507: "The server has no room.",
}
_ALWAYS = (401, 403, 408, 413, 421, 422, 500, 503)


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The errors that an operation declares, beside those that any may have."""
    return {status: {"model": Error, "description": _REASONS[status]} for status in sorted({*_ALWAYS, *statuses})}


def picture(*kinds: str, description: str) -> Mapping[int | str, dict[str, Any]]:
    """The answer of an operation that gives a file."""
    content = {kind: {"schema": {"type": "string", "format": "binary"}} for kind in kinds}
    return {200: {"description": description, "content": content}}
