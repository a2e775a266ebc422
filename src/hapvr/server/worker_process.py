"""A worker process's side of the protocol of `hapvr.server.workers`: `serve` does tasks and sends their answers."""

from __future__ import annotations

import ctypes
import json
import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any, Protocol

from hapvr.errors import HapvrError
from hapvr.server.problems import Problem, translate_error

PRIORITY_FILE = "/proc/self/autogroup"
"""What `lower_priority` writes into, on Linux."""


class Cancelled(BaseException):
    """Nobody waits for the answer any more. No `Exception`, so that nothing on the way handles it as a failure."""


class Call:
    """What a task is given: whether it was cancelled, and a way to report progress."""

    def __init__(self, number: int, send: Callable[[dict[str, Any]], None]) -> None:
        self.number, self._send = number, send
        self._cancelled = threading.Event()
        self.cancel, self.is_cancelled = self._cancelled.set, self._cancelled.is_set

    def check(self) -> None:
        """Raise `Cancelled` if it was cancelled."""
        if self.is_cancelled():
            raise Cancelled

    def progress(
        self,
        done: float = 0,
        total: float | None = None,
        message: str | None = None,
        *,
        rate: float | None = None,
        eta_s: float | None = None,
    ) -> None:
        """Report how far it is."""
        self.check()
        values = {"done": done, "total": total, "message": message, "rate": rate, "eta_s": eta_s}
        self._send({"number": self.number, "progress": values})


Task = Callable[[dict[str, Any], Call], Any]


class TaskSet(Protocol):
    """What a kind of worker can do."""

    def prepare(self) -> None:
        """Load what tasks need, before the first one comes."""

    def tasks(self) -> dict[str, Task]:
        """The tasks by name."""

    def hide_paths(self, text: str, arguments: dict[str, Any]) -> str:
        """An error message of a task without the paths that clients must not see."""


class _TaskRunner:
    """Does tasks one after the other, in a thread, and sends their answers."""

    def __init__(self, tasks: TaskSet, out: IO[bytes]) -> None:
        self._tasks, self._hide_paths, self._out = tasks.tasks(), tasks.hide_paths, out
        self._lock = threading.Lock()
        self._calls: dict[int, Call] = {}
        self._waiting: queue.SimpleQueue[tuple[Call, dict[str, Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def take(self, message: dict[str, Any]) -> None:
        if "cancel" in message:
            if (call := self._calls.get(message["cancel"])) is not None:
                call.cancel()
            return
        call = self._calls[message["number"]] = Call(message["number"], self.send)
        self._waiting.put((call, message))

    def close(self, grace_s: float) -> None:
        """Cancel all tasks, and wait for them to end."""
        for call in list(self._calls.values()):
            call.cancel()
        self._waiting.put(None)
        self._thread.join(grace_s)

    def send(self, message: dict[str, Any]) -> None:
        data = json.dumps(message).encode() + b"\n"
        with self._lock, suppress(OSError, ValueError):
            self._out.write(data)
            self._out.flush()

    def _work(self) -> None:
        while (item := self._waiting.get()) is not None:
            call, message = item
            arguments = message["arguments"]
            try:
                call.check()
                answer = {"result": self._tasks[message["task"]](arguments, call)}
            except Cancelled:
                answer = {"error": {"status": 409, "message": "It was cancelled."}}
            except Exception as error:
                problem = translate_error(error)
                if not isinstance(error, Problem | HapvrError | MemoryError):  # a fault of this program
                    traceback.print_exc()
                text = self._hide_paths(problem.message, arguments)
                answer = {"error": {"status": problem.status, "message": text, "hint": problem.hint}}
            self._calls.pop(call.number, None)
            self.send({"number": call.number} | answer)


def serve(make: Callable[[dict[str, Any]], TaskSet]) -> None:
    """Run a worker process to its end; `make` is given the settings."""
    # Answers go where standard output was; whatever a library prints goes to stderr.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    source = sys.stdin.buffer
    settings = json.loads(source.readline())
    tasks = make(settings)
    tasks.prepare()
    runner = _TaskRunner(tasks, out)
    runner.send({"ready": True})
    for line in source:
        runner.take(json.loads(line))
    runner.close(float(settings.get("max_stop_s", 10.0)))
    os._exit(0)  # threads of libraries are not waited for


def lower_priority(by: int) -> None:
    """Let other processes go first, where the system can."""
    if sys.platform != "win32":
        with suppress(OSError):
            os.nice(by)
        # Linux may divide processor time among sessions first, and each worker has its own session.
        with suppress(OSError), open(PRIORITY_FILE, "w", encoding="ascii") as group:
            group.write(str(by))


def release_memory() -> None:
    """Give free memory back to the system, where the C library keeps it for its threads: glibc's does."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
