"""Worker processes do what the event loop must not: decode and compute. `worker_process` is their side of the protocol.

A worker takes tasks and gives answers as lines of JSON on its standard input and output: nothing that could run code is
read from it. The first line holds its settings; tasks, and cancellations of tasks, follow. It ends when its input ends,
so that workers do not outlive a server that was killed. A worker that dies fails the tasks it was working on, with a
sentence that says how it died, and is started again: for the next task, or at once.
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
from hapvr.workers.processes import child_environment, format_exit, python_command
from hapvr.workers.sandbox import Sandbox

log = logging.getLogger("hapvr.server.workers")
_MAX_LINE = 256 * 2**20  # bytes of one answer
_START_S = 120.0
_LOG_S = 1.0  # that the last lines of a process that has ended may take to be read
_LOG_LINES = 20  # lines of stderr that are remembered
_MAX_PAUSE_S = 30.0  # between attempts to start a process that keeps ending
# Free memory of one heap is of no use in another: with the usual eight a core, that of a worker grew for an hour.
_HEAPS = 2
WorkerState = Literal["idle", "starting", "ready", "ended", "failed"]


class WorkerDied(Problem):
    """The process ended while it was working on a task; `cause` says how."""

    def __init__(self, cause: str) -> None:
        super().__init__(500, f"It could not be done: {cause}.", hint="Try again; the worker is started again.")
        self.cause = cause


@dataclass(eq=False)
class _Assignment:
    answer: asyncio.Future[Any]
    progress: Callable[[dict[str, Any]], None] | None
    abandoned: bool = False


class Worker:
    """One process that does one task at a time, started when it is first needed and again when it has died.

    `state` is idle (not started yet), starting, ready, ended (it died; it is started again), or failed (it could not be
    started the last time). Until it is ready, `last_error` says why it last ended or did not start.

    Args:
        kind: what it is called.
        module: the program it runs, which calls `serve`.
        settings: the first line it is sent.
        cancel_s: seconds after which it is killed if it does not stop working on a cancelled task.
        keep_running: restart it when it has ended, at once and then at growing intervals; else for the next task.
        sandbox: what it may do; None for all that the server may.
        free: how many of the workers that share it are free, see `hapvr.server.worker_group`; its own if None.
    """

    def __init__(
        self,
        kind: str,
        module: str,
        settings: Mapping[str, Any],
        *,
        cancel_s: float = 5.0,
        keep_running: bool = False,
        sandbox: Sandbox | None = None,
        free: asyncio.Semaphore | None = None,
    ) -> None:
        self.kind, self.module, self.keep_running = kind, module, keep_running
        self._sandbox = sandbox
        self._settings, self._cancel_s = dict(settings), cancel_s
        self._process: asyncio.subprocess.Process | None = None
        self._ready: asyncio.Future[None] | None = None
        self._free = free or asyncio.Semaphore(1)  # tasks wait here, and are done in the order in which they came
        self.taken = False  # by a task, from its turn on
        self._starting = asyncio.Lock()
        self._assignments: dict[int, _Assignment] = {}
        self._numbers = itertools.count(1)
        self._gave_up = False  # on a task that did not end, so that it was killed
        self._log_lines: deque[str] = deque(maxlen=_LOG_LINES)
        self._readers: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._restarting: asyncio.Task[None] | None = None
        self._ends = 0  # how often it has ended since it last finished a task
        self._failed = False  # the last attempt to start it
        self._reason: str | None = None  # why it is being killed, where its exit code will not tell
        self.last_error: str | None = None
        self.started = 0  # how often

    @property
    def pid(self) -> int | None:
        """The process, while it runs."""
        return None if self._process is None else self._process.pid

    @property
    def state(self) -> WorkerState:
        """See the class."""
        if self._ready is not None and self._ready.done():
            return "ready"
        if self._failed:  # also during the next attempt, which may fail as the last one did
            return "failed"
        if self._process is not None:
            return "starting"
        return "idle" if self.last_error is None else "ended"

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
        """The answer to a task, when its turn has come; cancelling this cancels the task.

        Raises:
            Problem: the task was refused or failed, or took too long.
            WorkerDied: the process ended while it was working on it.
        """
        await self._free.acquire()
        return await self.run_now(task, arguments, started=started, progress=progress, timeout_s=timeout_s)

    async def run_now(
        self,
        task: str,
        arguments: Mapping[str, Any],
        *,
        started: Callable[[], None] | None = None,
        progress: Callable[[dict[str, Any]], None] | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """`run`, of a task whose turn has come: it was counted by `free`, and this worker is free."""
        self.taken = True
        number = next(self._numbers)
        assignment = _Assignment(asyncio.get_running_loop().create_future(), progress)
        try:
            process = await self.start()
            if self._process is not process:
                raise WorkerDied("the process ended as soon as it was ready")
            self._assignments[number] = assignment
        except BaseException:
            self._release()
            raise
        if started is not None:
            started()
        try:
            self._send(process, {"number": number, "task": task, "arguments": dict(arguments)})
            return await asyncio.wait_for(asyncio.shield(assignment.answer), timeout_s)
        except asyncio.TimeoutError:
            self._abandon(number, after_s=0.0)
            raise Problem(503, f"It was given up after {timeout_s:g} s.", hint="Try a shorter part.") from None
        except asyncio.CancelledError:
            self._abandon(number, after_s=self._cancel_s)
            raise

    def tell(self, task: str, arguments: Mapping[str, Any]) -> None:
        """Have a small task done by the process, if it runs, after that it is working on; nobody waits for it."""
        if self._process is not None:
            self._send(self._process, {"number": next(self._numbers), "task": task, "arguments": dict(arguments)})

    def _release(self) -> None:
        self.taken = False
        self._free.release()

    async def start(self) -> asyncio.subprocess.Process:
        """The process, ready to work; `Problem` if it cannot be started."""
        async with self._starting:
            if self._stopping:
                raise Problem(503, "The server is stopping.")
            try:
                if self._process is None:
                    await self._spawn()
                process, ready = self._process, self._ready
                assert process is not None
                assert ready is not None
                await asyncio.wait_for(asyncio.shield(ready), _START_S)
                return process
            except OSError as error:  # the system has no room for another process
                cause = error.strerror or str(error)
                self._note_end(cause, failed=True)
            except asyncio.TimeoutError:
                cause = self._reason = f"it was not ready after {_START_S:g} s"
                assert process is not None
                self._kill(process)
            except WorkerDied as error:
                cause = error.cause
            raise Problem(500, f"The {self.kind} worker could not be started: {cause}")

    async def stop(self, grace_s: float) -> None:
        """End it; a task that it is working on is cancelled, and what it has done so far is kept."""
        self._stopping = True
        if self._restarting is not None:
            self._restarting.cancel()
            await asyncio.gather(self._restarting, return_exceptions=True)
        process = self._process
        if process is None:
            return
        if not self._assignments:  # nothing would be lost
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
        await asyncio.gather(*self._readers, return_exceptions=True)

    async def _spawn(self) -> None:
        process = await asyncio.create_subprocess_exec(
            *python_command(self.module, self.kind, sandbox=self._sandbox),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=child_environment(sandboxed=self._sandbox is not None, heaps=_HEAPS),
            limit=_MAX_LINE,
            start_new_session=os.name == "posix",  # Ctrl-C is for the server to handle; workers end with it
        )
        self._process = process
        self._ready = asyncio.get_running_loop().create_future()
        self._ready.add_done_callback(lambda future: future.cancelled() or future.exception())
        self._gave_up, self._reason = False, None
        self._log_lines.clear()
        self.started += 1
        self._send(process, self._settings)
        log_task = asyncio.create_task(self._read_log(process))
        for task in (log_task, asyncio.create_task(self._read_answers(process, self._ready, log_task))):
            self._readers.add(task)
            task.add_done_callback(self._readers.discard)
        log.info("worker started", extra={"worker": self.kind, "pid": process.pid})

    @staticmethod
    def _send(process: asyncio.subprocess.Process, message: Mapping[str, Any]) -> None:
        assert process.stdin is not None
        with suppress(OSError, RuntimeError):  # it has just died, which the reader of its answers will see
            process.stdin.write(json.dumps(message).encode() + b"\n")

    async def _read_answers(
        self, process: asyncio.subprocess.Process, ready: asyncio.Future[None], log_task: asyncio.Task[None]
    ) -> None:
        assert process.stdout is not None
        with suppress(ValueError, OSError):  # a line that is too long, or no JSON
            while line := await process.stdout.readline():
                self._handle(json.loads(line), ready)
        if process.returncode is None and not self._stopping:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(process.wait(), 1.0)
            self._kill(process)
        await process.wait()
        _kill_group(process.pid)  # decoders that it had started
        await asyncio.wait({log_task}, timeout=_LOG_S)  # its last line says why it ended
        self._reap(process, ready)

    def _handle(self, message: dict[str, Any], ready: asyncio.Future[None]) -> None:
        if "ready" in message:
            if not ready.done():
                ready.set_result(None)
                self._failed, self.last_error = False, None
            return
        assignment = self._assignments.get(message["number"])
        if assignment is None:
            return
        if "progress" in message:
            if assignment.progress is not None and not assignment.abandoned:
                assignment.progress(message["progress"])
            return
        del self._assignments[message["number"]]
        self._ends = 0
        self._release()
        if assignment.answer.done():
            return
        if "error" in message:
            self._fail(assignment, Problem(**message["error"]))
        else:
            assignment.answer.set_result(message["result"])

    @staticmethod
    def _fail(assignment: _Assignment, error: Exception) -> None:
        assignment.answer.set_exception(error)
        if assignment.abandoned:
            assignment.answer.exception()  # nobody else will ask for it, and asyncio would complain

    async def _read_log(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        while True:
            try:
                line = await process.stderr.readline()
            except ValueError:  # too long
                continue
            if not line:
                return
            text = line.decode(errors="replace").rstrip()
            self._log_lines.append(text)
            log.warning("worker said", extra={"worker": self.kind, "pid": process.pid, "text": text[:2000]})

    def _reap(self, process: asyncio.subprocess.Process, ready: asyncio.Future[None]) -> None:
        code = process.returncode or 0
        last = f": {self._log_lines[-1]}" if self._log_lines and code > 0 else ""
        cause = self._reason or f"the process {format_exit(code)}{last}"
        log.info("worker ended", extra={"worker": self.kind, "pid": process.pid, "code": code})
        was_ready = ready.done()
        if not was_ready:
            ready.set_exception(WorkerDied(cause))
        if self._process is process:
            self._process = self._ready = None
            # Killed because of a task, it has done nothing wrong itself.
            self._note_end(None if self._gave_up else cause, failed=not was_ready)
        assignments, self._assignments = self._assignments, {}
        for one in assignments.values():
            self._release()
            if not one.answer.done():
                self._fail(one, WorkerDied(cause))

    def _note_end(self, error: str | None, *, failed: bool) -> None:
        """It has ended or could not be started: remember why, and start it again if it is to keep running."""
        if self._stopping:
            return
        if error is not None:
            self.last_error, self._failed = error, failed
            self._ends += 1
        if self.keep_running and (self._restarting is None or self._restarting.done()):
            self._restarting = asyncio.create_task(self._restart())

    async def _restart(self) -> None:
        while self._process is None and not self._stopping:
            await asyncio.sleep(0.0 if self._ends < 2 else min(_MAX_PAUSE_S, 2.0 ** min(self._ends - 1, 10)))
            with suppress(Problem):  # remembered
                await self.start()

    def _abandon(self, number: int, *, after_s: float) -> None:
        """Cancel a task, and kill the process if it still works on it after `after_s` seconds."""
        assignment, process = self._assignments.get(number), self._process
        if assignment is None or process is None:
            return

        def kill() -> None:
            if number in self._assignments and self._process is process:
                self._gave_up = True
                self._kill(process)

        assignment.abandoned = True
        self._send(process, {"cancel": number})
        asyncio.get_running_loop().call_later(after_s, kill)

    @staticmethod
    def _kill(process: asyncio.subprocess.Process) -> None:
        _kill_group(process.pid)
        with suppress(ProcessLookupError):
            process.kill()


def _kill_group(pid: int) -> None:
    if os.name == "posix":
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
