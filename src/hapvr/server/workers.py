"""Processes that do what the event loop must not: decode and compute.

A worker is a process of its own (`hapvr.server.worker_process`) that takes tasks and gives answers as lines of JSON on
its standard input and output: nothing that could run code is read back. It does a fixed number of tasks at a time. A
worker that dies fails the tasks it was at, with a sentence that says how it died, and is started again: for the next
task, or at once.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import signal
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from hapvr.server.problems import Problem
from hapvr.workers.processes import child_environment, how_ended, python_command

log = logging.getLogger("hapvr.server.workers")
_LINE = 256 * 2**20  # bytes of one answer
_START_S = 120.0
_SAID = 20  # lines of stderr that are remembered
_MAX_PAUSE_S = 30.0  # between attempts to start a process that keeps ending
WorkerState = Literal["idle", "starting", "ready", "ended", "failed"]


class WorkerDied(Exception):  # noqa: N818 - as it reads
    """The process ended while it was at a task."""


class _Again(Exception):  # noqa: N818 - no error
    """The process was ended because of another task: this one is to be done by the next."""


@dataclass(eq=False)
class _Doing:
    answer: asyncio.Future[Any]
    progress: Callable[[dict[str, Any]], None] | None
    abandoned: bool = False


class Worker:
    """One process, started when it is first needed and again when it has died.

    `state` says how it is: idle (not started yet), starting, ready, ended (it died; it is started again), or failed
    (it could not be started the last time). Until it is ready, `trouble` says why it last ended or did not start.

    Args:
        kind: what it does, see `hapvr.server.worker_process`.
        settings: what it is told first.
        slots: tasks that it does at a time.
        cancel_s: seconds after which it is killed if it does not give up a task.
        keep: start it again by itself when it has ended, at once and then at growing intervals; else for the next task.
    """

    module = "hapvr.server.worker_process"

    def __init__(
        self,
        kind: str,
        settings: Mapping[str, Any],
        *,
        slots: int = 1,
        cancel_s: float = 5.0,
        keep: bool = False,
    ) -> None:
        self.kind, self.slots, self.keep, self._cancel_s = kind, slots, keep, cancel_s
        self._settings = dict(settings)
        self._process: asyncio.subprocess.Process | None = None
        self._ready: asyncio.Future[dict[str, Any]] | None = None
        self._free = asyncio.Semaphore(slots)
        self._starting = asyncio.Lock()
        self._doing: dict[int, _Doing] = {}
        self._numbers = itertools.count(1)
        self._cause: int | None = None  # the task for which it was killed
        self._said: deque[str] = deque(maxlen=_SAID)
        self._followers: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._restarting: asyncio.Task[None] | None = None
        self._ends = 0  # how often it has ended since it last did a task
        self._failed = False  # the last attempt to start it
        self._reason: str | None = None  # why it is being killed, where its end will not tell
        self.trouble: str | None = None
        self.started = 0  # how often
        self.info: dict[str, Any] = {}  # what it said when it was ready

    @property
    def pid(self) -> int | None:
        """The process, while it runs."""
        return None if self._process is None else self._process.pid

    @property
    def state(self) -> WorkerState:
        """How it is."""
        if self._ready is not None and self._ready.done():
            return "ready"
        if self._failed:  # also while the next attempt is made, which may end as the last one did
            return "failed"
        if self._process is not None:
            return "starting"
        return "idle" if self.trouble is None else "ended"

    @property
    def busy(self) -> bool:
        """Whether a new task would have to wait."""
        return self._free.locked()

    async def run(
        self,
        task: str,
        arguments: Mapping[str, Any],
        *,
        started: Callable[[], None] | None = None,
        progress: Callable[[dict[str, Any]], None] | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """Have a task done, after those before it; cancelling this gives the task up.

        Raises:
            Problem: the task was refused or failed, or took too long.
            WorkerDied: the process ended while it was at it.
        """
        while True:
            await self._free.acquire()
            number = next(self._numbers)
            doing = _Doing(asyncio.get_running_loop().create_future(), progress)
            try:
                process = await self.start()
                if self._process is not process:
                    raise WorkerDied("the process ended as soon as it was ready")
                self._doing[number] = doing
            except BaseException:
                self._free.release()
                raise
            if started is not None:
                started()
            try:
                self._send(process, {"number": number, "task": task, "arguments": dict(arguments)})
                return await asyncio.wait_for(asyncio.shield(doing.answer), timeout_s)
            except _Again:
                continue
            except asyncio.TimeoutError:
                self._abandon(number, at_once=True)
                raise Problem(503, f"It was given up after {timeout_s:g} s.", hint="Try a shorter part.") from None
            except asyncio.CancelledError:
                self._abandon(number)
                raise

    async def start(self) -> asyncio.subprocess.Process:
        """The process, ready to work."""
        async with self._starting:
            if self._stopping:
                raise Problem(503, "The server is stopping.")
            if self._process is None:
                try:
                    await self._spawn()
                except OSError as error:  # the system has no room for another process
                    self._note_end(f"{error.strerror or error}", failed=True)
                    raise Problem(500, f"The {self.kind} worker could not be started: {self.trouble}") from None
            process, ready = self._process, self._ready
            assert process is not None
            assert ready is not None
            try:
                self.info = await asyncio.wait_for(asyncio.shield(ready), _START_S)
            except asyncio.TimeoutError:
                self._reason = f"it was not ready after {_START_S:g} s"
                self._kill(process)
                raise Problem(500, f"The {self.kind} worker could not be started: {self._reason}") from None
            except WorkerDied as error:
                raise Problem(500, f"The {self.kind} worker could not be started: {error}") from None
            return process

    async def stop(self, grace_s: float) -> None:
        """End it: what it is at is given up, kept as far as it is done."""
        self._stopping = True
        if self._restarting is not None:
            self._restarting.cancel()
            await asyncio.gather(self._restarting, return_exceptions=True)
        process = self._process
        if process is None:
            return
        if not self._doing:  # it has nothing to keep
            self._kill(process)
        with suppress(OSError, RuntimeError):
            assert process.stdin is not None
            process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), grace_s)
        except asyncio.TimeoutError:
            log.warning("worker killed", extra={"worker": self.kind, "pid": process.pid})
            self._kill(process)
            await process.wait()
        await asyncio.gather(*self._followers, return_exceptions=True)

    # --- inside ------------------------------------------------------------------------------------------------------

    async def _spawn(self) -> None:
        process = await asyncio.create_subprocess_exec(
            *python_command(self.module, self.kind),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=child_environment(),
            limit=_LINE,
            start_new_session=os.name == "posix",  # Ctrl-C is for the server to decide; its children end with it
        )
        self._process = process
        self._ready = asyncio.get_running_loop().create_future()
        self._ready.add_done_callback(lambda future: future.cancelled() or future.exception())
        self._cause = self._reason = None
        self._said.clear()
        self.started += 1
        self._send(process, self._settings)
        for follower in (self._listen(process, self._ready), self._overhear(process)):
            task = asyncio.create_task(follower)
            self._followers.add(task)
            task.add_done_callback(self._followers.discard)
        log.info("worker started", extra={"worker": self.kind, "pid": process.pid})

    @staticmethod
    def _send(process: asyncio.subprocess.Process, message: Mapping[str, Any]) -> None:
        assert process.stdin is not None
        with suppress(OSError, RuntimeError):  # it has just died: whoever listens to it will say so
            process.stdin.write(json.dumps(message).encode() + b"\n")

    async def _listen(self, process: asyncio.subprocess.Process, ready: asyncio.Future[dict[str, Any]]) -> None:
        assert process.stdout is not None
        with suppress(ValueError, OSError):  # a line that is too long, or no JSON
            while line := await process.stdout.readline():
                self._hear(json.loads(line), ready)
        if process.returncode is None and not self._stopping:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(process.wait(), 1.0)
            self._kill(process)
        await process.wait()
        self._bury(process, ready)

    def _hear(self, message: dict[str, Any], ready: asyncio.Future[dict[str, Any]]) -> None:
        if "ready" in message:
            if not ready.done():
                ready.set_result(message["ready"])
                self._failed, self.trouble = False, None
            return
        doing = self._doing.get(message["number"])
        if doing is None:
            return
        if "progress" in message:
            if doing.progress is not None and not doing.abandoned:
                doing.progress(message["progress"])
            return
        del self._doing[message["number"]]
        self._ends = 0
        self._free.release()
        if doing.answer.done():
            return
        if "error" in message:
            error = message["error"]
            doing.answer.set_exception(Problem(error["status"], error["message"], hint=error.get("hint")))
            if doing.abandoned:
                doing.answer.exception()
        else:
            doing.answer.set_result(message["result"])

    async def _overhear(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        while True:
            try:
                line = await process.stderr.readline()
            except ValueError:
                continue
            if not line:
                return
            text = line.decode(errors="replace").rstrip()
            self._said.append(text)
            log.warning("worker said", extra={"worker": self.kind, "pid": process.pid, "text": text[:2000]})

    def _bury(self, process: asyncio.subprocess.Process, ready: asyncio.Future[dict[str, Any]]) -> None:
        _kill_group(process.pid)  # decoders that it had started
        code = process.returncode or 0
        last = f": {self._said[-1]}" if self._said and code > 0 else ""
        error = self._reason or f"the process {how_ended(code)}{last}"
        log.info("worker ended", extra={"worker": self.kind, "pid": process.pid, "code": code})
        was_ready = ready.done()
        if not was_ready:
            ready.set_exception(WorkerDied(error))
        if self._process is process:
            self._process = self._ready = None
            # Killed for a task that did not give up, it has done nothing wrong.
            self._note_end(None if self._cause is not None else error, failed=not was_ready)
        cause, doing = self._cause, self._doing
        self._doing = {}
        for number, one in doing.items():
            self._free.release()
            if not one.answer.done():
                again = cause is not None and number != cause and not self._stopping
                one.answer.set_exception(_Again() if again else WorkerDied(error))
                if one.abandoned:
                    one.answer.exception()

    def _note_end(self, trouble: str | None, *, failed: bool) -> None:
        """It has ended or could not be started: remember why, and see to it that it is started again."""
        if self._stopping:
            return
        if trouble is not None:
            self.trouble, self._failed = trouble, failed
            self._ends += 1
        if self.keep and (self._restarting is None or self._restarting.done()):
            self._restarting = asyncio.create_task(self._restart())

    async def _restart(self) -> None:
        while self._process is None and not self._stopping:
            await asyncio.sleep(0.0 if self._ends < 2 else min(_MAX_PAUSE_S, 2.0 ** min(self._ends - 1, 10)))
            with suppress(Problem):  # remembered
                await self.start()

    def _abandon(self, number: int, *, at_once: bool = False) -> None:
        doing, process = self._doing.get(number), self._process
        if doing is None or process is None:
            return
        doing.abandoned = True
        self._send(process, {"cancel": number})
        asyncio.get_running_loop().call_later(0.0 if at_once else self._cancel_s, self._end_for, process, number)

    def _end_for(self, process: asyncio.subprocess.Process, number: int) -> None:
        if number in self._doing and self._process is process:
            self._cause = number
            self._kill(process)

    def _kill(self, process: asyncio.subprocess.Process) -> None:
        _kill_group(process.pid)
        with suppress(ProcessLookupError):
            process.kill()


def _kill_group(pid: int) -> None:
    if os.name == "posix":
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
