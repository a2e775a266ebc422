"""Several worker processes of one kind, so that as many tasks are worked on at a time.

Processes and not threads: a search is many small steps in Python, of which only one thread of a process does one at a
time. Tasks wait in one line and are begun in the order in which they came, so that none waits much longer than others.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from typing import Any

from hapvr.server.problems import Problem
from hapvr.server.workers import Worker, WorkerState

_RETRY_S = 30.0  # after which another process is tried again, if it could not be started
_MAX_PLACES = 256  # of tasks, that are remembered


class WorkerGroup:
    """One process at first; another one is started each time that a task has to wait, until there are `count`.

    It is used as a `Worker` is. Its state is that of its first process as long as none is ready; then it is ready, or
    "ended" while one of its processes has to be started again.

    Args:
        kind: what the workers are called.
        module: the program they run.
        settings: the first line they are sent.
        count: processes at most.
        cancel_s: see `Worker`.
        keep_running: see `Worker`.
    """

    def __init__(
        self,
        kind: str,
        module: str,
        settings: Mapping[str, Any],
        *,
        count: int,
        cancel_s: float = 5.0,
        keep_running: bool = False,
    ) -> None:
        self.kind, self.keep_running = kind, keep_running
        self._free = asyncio.Semaphore(1)  # how many of those in use are free
        self._spare = [
            Worker(kind, module, settings, cancel_s=cancel_s, keep_running=keep_running, free=self._free)
            for _ in range(count)
        ]
        self.workers = [self._spare.pop(0)]
        """Those that are used."""
        self._growing: asyncio.Task[None] | None = None
        self._next_try_s = 0.0
        self._places: OrderedDict[Hashable, Worker] = OrderedDict()  # which worker did a task last, by `near`

    @property
    def state(self) -> WorkerState:
        """See the class."""
        states = [worker.state for worker in self.workers]
        if "ready" not in states:
            return states[0]
        return "ended" if {"ended", "failed"} & set(states) else "ready"

    @property
    def last_error(self) -> str | None:
        """Why a process last ended or did not start, of one that is not ready."""
        errors = (worker.last_error for worker in self.workers if worker.state != "ready")
        return next((error for error in errors if error is not None), None)

    @property
    def pids(self) -> list[int]:
        """The processes that run."""
        return [worker.pid for worker in (*self.workers, *self._spare) if worker.pid is not None]

    @property
    def started(self) -> int:
        """How often a process was started."""
        return sum(worker.started for worker in (*self.workers, *self._spare))

    @property
    def busy(self) -> bool:
        """Whether a new task would have to wait."""
        return self._free.locked()

    async def run(
        self,
        task: str,
        arguments: Mapping[str, Any],
        *,
        near: Hashable = None,
        started: Callable[[], None] | None = None,
        progress: Callable[[dict[str, Any]], None] | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """`Worker.run`, by the process that did the last task with the same `near`, if it is free; else by any."""
        if self.busy:
            self._grow()
        await self._free.acquire()
        worker = self._choose(near)
        return await worker.run_now(task, arguments, started=started, progress=progress, timeout_s=timeout_s)

    def tell(self, task: str, arguments: Mapping[str, Any]) -> None:
        """`Worker.tell`, to each process."""
        for worker in self.workers:
            worker.tell(task, arguments)

    async def start(self) -> None:
        """Start the first process; `Problem` if it cannot be started."""
        await self.workers[0].start()

    async def stop(self, grace_s: float) -> None:
        """End all of them, see `Worker.stop`."""
        if self._growing is not None:
            self._growing.cancel()
            await asyncio.gather(self._growing, return_exceptions=True)
        await asyncio.gather(*(worker.stop(grace_s) for worker in (*self.workers, *self._spare)))

    def _choose(self, near: Hashable) -> Worker:
        """A worker that is free: there is one, for one was counted."""
        chosen = None if near is None else self._places.get(near)
        if chosen is None or chosen.taken or chosen.state != "ready":
            free = [worker for worker in self.workers if not worker.taken]
            chosen = next((worker for worker in free if worker.state == "ready"), free[0])
        chosen.taken = True
        if near is not None:
            self._places[near] = chosen
            self._places.move_to_end(near)
            while len(self._places) > _MAX_PLACES:
                self._places.popitem(last=False)
        return chosen

    def _grow(self) -> None:
        """Start one more process, which is used from when it is ready; not while another one is being started."""
        idle = self._growing is None or self._growing.done()
        if self._spare and idle and self.workers[0].state == "ready" and time.monotonic() >= self._next_try_s:
            self._next_try_s = time.monotonic() + _RETRY_S
            self._growing = asyncio.create_task(self._add_worker())

    async def _add_worker(self) -> None:
        with suppress(Problem):  # it was logged, and the others go on
            await self._spare[0].start()
            self.workers.append(self._spare.pop(0))
            self._next_try_s = 0.0
            self._free.release()
