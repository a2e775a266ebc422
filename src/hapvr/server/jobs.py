"""Long work as jobs: each waits for a worker, runs, can be watched and cancelled, and is remembered for a while."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any, Literal

from hapvr.places import Place
from hapvr.server.access import translate_library_error
from hapvr.server.clients import current_client, require_share
from hapvr.server.metrics import Metrics
from hapvr.server.problems import Problem, busy, not_found
from hapvr.server.settings import ServerSettings
from hapvr.server.worker_group import WorkerGroup
from hapvr.server.workers import Worker

log = logging.getLogger("hapvr.server.jobs")
State = Literal["queued", "running", "done", "failed", "cancelled"]
MODULE = "hapvr.server.library_tasks"
_HEARTBEAT_S = 15.0
_READING = ("search", "search_text", "compare", "matrix", "shared")  # what the search workers do
_SIDES = ("query", "a", "b")  # arguments that may be uploads


class Job:
    """One piece of long work."""

    def __init__(self, kind: str) -> None:
        self.id = f"j{secrets.token_hex(8)}"
        self.kind = kind
        self.client = current_client.get()  # who asked for it
        self.state: State = "queued"
        self.progress: dict[str, Any] = {"done": 0, "total": None, "message": None, "rate": None, "eta_s": None}
        self.result: Any = None
        self.error: dict[str, Any] | None = None
        self.created = _now()
        self.clock_s = dict.fromkeys(("created", "started"), time.monotonic())  # for what may not jump with the clock
        self.started: datetime | None = None
        self.finished: datetime | None = None
        self.weight = 0  # characters of the result
        self.task: asyncio.Task[None] | None = None
        self.changed = asyncio.Event()  # set at the next change; then there is another

    @property
    def over(self) -> bool:
        """Whether it is done, failed or cancelled."""
        return self.finished is not None

    def change(self, **values: Any) -> None:
        """Set fields, and wake those who watch it."""
        for name, value in values.items():
            setattr(self, name, value)
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    def to_json(self, *, result: bool = True) -> dict[str, Any]:
        """What clients see; without its result where there are many."""
        plain = {name: getattr(self, name) for name in ("id", "kind", "state", "progress", "error")}
        times = {"created": self.created, "started": self.started, "finished": self.finished}
        plain |= {name: None if moment is None else moment.isoformat() for name, moment in times.items()}
        return plain | {"result": self.result if result else None}


class Jobs:
    """All jobs, and the workers that do them: some search and compare, another one adds."""

    def __init__(self, library: Place, settings: ServerSettings, metrics: Metrics) -> None:
        self._library, self._settings, self._metrics = library, settings, metrics
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        names = (
            "max_decode_s",
            "max_decode_pixels",
            "max_decode_frames",
            "max_decode_bytes",
            "max_stop_s",
            "device",
        )
        common = {name: getattr(settings, name) for name in names}
        common |= {"library": str(library), "roots": settings.root_paths, "allow_actions": settings.allow_actions}
        common |= {"move_to": None if settings.move_to is None else os.path.abspath(settings.move_to)}
        searches = settings.max_searches_at_once
        sharing = {"searches_at_once": searches, "max_held_bytes": settings.max_held_bytes // searches}
        self.searching = WorkerGroup("search", MODULE, common | sharing, count=searches, keep_running=settings.eager)
        # When cancelled, it needs time to write what it has described.
        self.adding = Worker("add", MODULE, common, cancel_s=60.0, keep_running=settings.eager)
        self.stopping = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.last_duplicates: dict[str, str] | None = None  # the report as "json" and as "csv"
        self._asking: list[str | None] = []  # the clients of small questions

    def waiting(self) -> int:
        """Jobs that have not begun."""
        return len(self._waiting_clients())

    def _waiting_clients(self) -> list[str | None]:
        return [job.client for job in self._jobs.values() if job.state == "queued"]

    def _require_room(self, asking: Sequence[str | None] = ()) -> None:
        waiting = [*self._waiting_clients(), *asking]
        require_share(waiting, self._settings.max_queued_jobs_per_client, "jobs are waiting")
        if len(waiting) >= self._settings.max_queued_jobs:
            raise busy(f"{self._settings.max_queued_jobs} jobs are waiting already.")

    def submit(self, kind: str, arguments: Mapping[str, Any], *, over: Callable[[Job], None] | None = None) -> Job:
        """Begin a job; `Problem` if too many wait. `over` is called when it is over."""
        if self.stopping.is_set():
            raise busy("The server is stopping.", after_s=10)
        self._require_room()
        job = Job(kind)
        self._jobs[job.id] = job
        job.task = asyncio.create_task(self._run(job, arguments))

        def ended(_: asyncio.Task[None]) -> None:
            if not job.over:  # cancelled before it had even begun to wait
                self._end(job, state="cancelled")
            if over is not None:
                over(job)

        job.task.add_done_callback(ended)
        return job

    async def ask(self, kind: str, arguments: Mapping[str, Any], *, timeout_s: float) -> Any:
        """The answer to a small question, for which no job is kept."""
        self._require_room(self._asking)
        client = current_client.get()
        self._asking.append(client)
        try:
            return await self._run_task(kind, arguments, timeout_s=timeout_s)
        finally:
            self._asking.remove(client)

    def get(self, id: str) -> Job:
        """A job by its id."""
        if id not in self._jobs:
            raise not_found("job", id)
        return self._jobs[id]

    def forget_duplicates(self) -> None:
        """Forget what was found: files have changed since."""
        self.last_duplicates = None
        for job in [job for job in self._jobs.values() if job.kind == "duplicates" and job.over]:
            del self._jobs[job.id]

    def all(self) -> list[Job]:
        """All jobs that are remembered, the newest first."""
        return list(reversed(self._jobs.values()))

    async def cancel(self, job: Job) -> None:
        """Cancel a job; what it has done is kept."""
        if job.task is not None and not job.over:
            job.task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait([job.task], timeout=5.0)

    async def wait(self, job: Job, seconds: float) -> None:
        """Wait for the end of a job, but no longer than that."""

        async def over() -> None:
            while not job.over and not self.stopping.is_set():
                await job.changed.wait()

        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(over(), seconds)

    async def watch(self, job: Job) -> AsyncIterator[str]:
        """A job as server-sent events: now, and after each change, until it is over."""
        while True:
            changed = job.changed  # of this moment: a change while the client reads is not missed
            yield f"event: job\ndata: {json.dumps(job.to_json())}\n\n"
            while not changed.is_set():
                if job.over or self.stopping.is_set():
                    return
                try:
                    await asyncio.wait_for(changed.wait(), _HEARTBEAT_S)
                except asyncio.TimeoutError:
                    yield ": still here\n\n"

    def announce_stop(self) -> None:
        """The server is about to stop: end the streams of those who watch a job. Safe within a signal handler."""
        self._loop.call_soon_threadsafe(self._end_watching)

    def _end_watching(self) -> None:
        self.stopping.set()
        for job in self._jobs.values():
            job.change()

    async def close(self) -> None:
        """Cancel all jobs and end the workers."""
        self._end_watching()
        tasks = [job.task for job in self._jobs.values() if job.task is not None and not job.over]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=5.0)
        await asyncio.gather(*(worker.stop(self._settings.max_stop_s + 2) for worker in (self.searching, self.adding)))

    # --- inside ------------------------------------------------------------------------------------------------------

    async def _run_task(self, kind: str, arguments: Mapping[str, Any], **options: Any) -> Any:
        if kind not in _READING:
            return await self.adding.run(kind, arguments, **options)
        # A process remembers the uploads that it has described, and has the text model once it has searched by text.
        uploads = [side["id"] for side in (arguments.get(name, {}) for name in _SIDES) if "upload" in side]
        near = kind if kind == "search_text" else next(iter(uploads), None)
        return await self.searching.run(kind, arguments, near=near, **options)

    async def _run(self, job: Job, arguments: Mapping[str, Any]) -> None:
        def begin() -> None:
            if job.started is None:
                job.clock_s["started"] = time.monotonic()
                job.change(state="running", started=_now())

        try:
            result = await self._run_task(
                job.kind,
                arguments,
                started=begin,
                progress=lambda progress: job.change(progress=progress),
                timeout_s=self._settings.max_job_s if job.kind in _READING else None,
            )
        except asyncio.CancelledError:
            self._end(job, state="cancelled")
        except Exception as error:
            if not isinstance(error, Problem):  # a fault of this program: the job must not stay "running" for ever
                log.exception("job failed", extra={"job": job.id})
            self._end(job, state="failed", error=translate_library_error(error, self._library).to_json())
        else:
            if job.kind == "duplicates":
                self.last_duplicates = result.pop("export")  # for downloads; the page has the rest
            job.weight = len(json.dumps(result)) if job.kind != "search" else 1000 + 500 * len(result["hits"])
            self._end(job, state="done", result=result)

    def _end(self, job: Job, **values: Any) -> None:
        job.change(finished=_now(), **values)
        took_s = {name: time.monotonic() - since_s for name, since_s in job.clock_s.items()}
        self._metrics.job(job.kind, job.state, took_s["created"])
        seconds = None if job.started is None else took_s["started"]
        about = {"job": job.id, "kind": job.kind, "state": job.state, "seconds": seconds, "error": job.error}
        log.info("job", extra=about)
        self._forget_old()

    def _forget_old(self) -> None:
        ended = [job for job in self._jobs.values() if job.over]
        weight = sum(job.weight for job in ended)
        for job in ended[:-1]:
            if len(ended) <= self._settings.max_kept_jobs and weight <= self._settings.max_result_chars:
                return
            del self._jobs[job.id]
            ended.remove(job)
            weight -= job.weight


def _now() -> datetime:
    return datetime.now(timezone.utc)
