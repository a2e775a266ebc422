"""A worker whose tasks wait, crash, or never end: python -m tests.server.slow_worker KIND."""

from __future__ import annotations

import os
import time
from typing import Any

from hapvr.errors import DecodeLimitError
from hapvr.server.problems import Problem
from hapvr.server.worker_process import Call, Task, serve


class SlowTasks:
    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings

    def prepare(self) -> None:
        if "die" in self._settings or os.path.exists(self._settings.get("die_by", "")):
            raise SystemExit("there is nothing to work with")
        print("libraries print things")  # must not be taken for an answer

    def hide_paths(self, text: str, _: dict[str, Any]) -> str:
        return text.replace("/secret/", "")

    def tasks(self) -> dict[str, Task]:
        return {
            name: getattr(self, name)
            for name in ("echo", "wait", "hang", "crash", "refuse", "fail", "limit", "steps", "find")
        }

    def find(self, arguments: dict[str, Any], call: Call) -> int:
        """Which process does it, after some seconds."""
        self.wait(arguments, call)
        return os.getpid()

    def echo(self, arguments: dict[str, Any], _: Call) -> Any:
        return arguments["text"]

    def wait(self, arguments: dict[str, Any], call: Call) -> str:
        end = time.monotonic() + arguments["seconds"]
        while time.monotonic() < end:
            call.check()
            time.sleep(0.01)
        return "waited"

    def hang(self, _: dict[str, Any], __: Call) -> None:
        time.sleep(600)

    def crash(self, _: dict[str, Any], __: Call) -> None:
        os._exit(3)

    def refuse(self, _: dict[str, Any], __: Call) -> None:
        raise Problem(409, "Not now.", hint="Later.")

    def fail(self, _: dict[str, Any], __: Call) -> None:
        raise ZeroDivisionError("oh /secret/a.mp4")

    def limit(self, _: dict[str, Any], __: Call) -> None:
        raise DecodeLimitError("too many pixels")

    def steps(self, _: dict[str, Any], call: Call) -> str:
        for step in range(3):
            call.progress(step, 3, f"step {step}")
        return "done"


if __name__ == "__main__":
    serve(SlowTasks)
