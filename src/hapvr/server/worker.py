"""The loop of a worker process: tasks come in as lines of JSON, answers go out.

The first line of its input holds its settings; then follow tasks, and cancellations of tasks. It ends when its input
does: if the server is killed, so are its workers.
"""

from __future__ import annotations

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
from hapvr.server.problems import Problem, status_of


class Cancelled(BaseException):
    """Nobody wants the answer any more. Not an `Exception`: nobody on the way is to take it for a failure."""


class Call:
    """What a task is given: whether it is still wanted, and a way to say how far it is."""

    def __init__(self, number: int, tell: Callable[[dict[str, Any]], None]) -> None:
        self.number = number
        self._tell = tell
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        """Give it up."""
        self._cancelled.set()

    def stopped(self) -> bool:
        """Whether it has been given up."""
        return self._cancelled.is_set()

    def check(self) -> None:
        """Raise `Cancelled` if it has been."""
        if self._cancelled.is_set():
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
        """Say how far it is."""
        self.check()
        self._tell({"done": done, "total": total, "message": message, "rate": rate, "eta_s": eta_s})


Task = Callable[[dict[str, Any], Call], Any]


class TaskSet(Protocol):
    """What a kind of worker can do."""

    def ready(self) -> dict[str, Any]:
        """Prepare; what the server is told."""

    def tasks(self) -> dict[str, Task]:
        """The tasks by name."""


class _TaskRunner:
    """Tasks that come in, done by so many threads, and answers that go out."""

    def __init__(self, tasks: TaskSet, out: IO[bytes], slots: int) -> None:
        self._tasks, self._out = tasks.tasks(), out
        self._lock = threading.Lock()
        self._calls: dict[int, Call] = {}
        self._waiting: queue.SimpleQueue[tuple[Call, dict[str, Any]] | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(slots)]
        for thread in self._threads:
            thread.start()

    def take(self, message: dict[str, Any]) -> None:
        if "cancel" in message:
            if (call := self._calls.get(message["cancel"])) is not None:
                call.cancel()
            return
        number = message["number"]
        call = Call(number, lambda progress: self.send({"number": number, "progress": progress}))
        self._calls[number] = call
        self._waiting.put((call, message))

    def close(self, grace_s: float) -> None:
        """Give up what is being done, and wait for it to end."""
        for call in list(self._calls.values()):
            call.cancel()
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join(grace_s)

    def send(self, message: dict[str, Any]) -> None:
        data = json.dumps(message).encode() + b"\n"
        with self._lock, suppress(OSError, ValueError):
            self._out.write(data)
            self._out.flush()

    def _work(self) -> None:
        while (item := self._waiting.get()) is not None:
            call, message = item
            try:
                call.check()
                answer: dict[str, Any] = {"result": self._tasks[message["task"]](message["arguments"], call)}
            except Cancelled:
                answer = {"error": {"status": 409, "message": "It was cancelled."}}
            except Problem as error:
                answer = {"error": {"status": error.status, "message": error.message, "hint": error.hint}}
            except HapvrError as error:
                answer = {"error": {"status": status_of(error), "message": str(error)}}
            except MemoryError:
                answer = {"error": {"status": 413, "message": "It takes more memory than is allowed."}}
            except Exception as error:  # of a library, on input that nobody thought of: this task's, not the worker's
                traceback.print_exc()
                answer = {"error": {"status": 500, "message": f"{type(error).__name__}: {error}"[:1000]}}
            self._calls.pop(call.number, None)
            self.send({"number": call.number} | answer)


def serve(make: Callable[[dict[str, Any]], TaskSet]) -> None:
    """The life of a worker; `make` is given its settings."""
    # Answers go where standard output was; whatever a library prints goes to stderr.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    source = sys.stdin.buffer
    settings = json.loads(source.readline())
    tasks = make(settings)
    ready = tasks.ready()
    runner = _TaskRunner(tasks, out, int(settings.get("slots", 1)))
    runner.send({"ready": ready})
    for line in source:
        runner.take(json.loads(line))
    runner.close(float(settings.get("stop_s", 10.0)))
    os._exit(0)  # threads of libraries are not waited for
