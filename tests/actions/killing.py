"""A process that applies plans and takes them back in children of its own, and kills them: at a call, or after a time.

It imports nothing large, so that a child begins within milliseconds. Requests are lines of JSON on stdin; for each, it
answers with a line: whether the child was killed, and how many calls to the system it made.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from hapvr.actions import ApplyOptions, apply_plan, read_plan, undo_journal

# Every call that changes something on disk, or that makes it last.
CALLS = (
    "open", "write", "fsync", "ftruncate", "link", "rename", "replace", "unlink", "symlink", "mkdir", "rmdir", "utime",
    "chmod",
)  # fmt: skip


def _deny_links(system: str) -> None:
    """Let hard links fail as on another file system ("across"), or as where there are none ("without")."""
    real = os.link

    def link(source: str, target: str, **options: Any) -> None:
        if system == "without":
            raise OSError(errno.EPERM, "Operation not permitted")
        if os.path.dirname(source) != os.path.dirname(target):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        real(source, target, **options)

    os.link = link  # type: ignore[assignment]
    os.supports_follow_symlinks.add(link)


def _kill_at(number: int) -> list[int]:
    """End this process before a call, counted from 1; of what a call writes, half is written by then."""
    count = [0]

    def watch(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if name == "open" and not arguments[1] & os.O_CREAT:
                return real(*arguments, **options)
            count[0] += 1
            if count[0] == number:
                if name == "write":
                    real(arguments[0], arguments[1][: len(arguments[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)

        return call

    for name in CALLS:
        real = getattr(os, name)
        watched = watch(name, real)
        setattr(os, name, watched)
        if real in os.supports_follow_symlinks:
            os.supports_follow_symlinks.add(watched)
    return count


def _work(request: dict[str, Any], answer: int) -> None:
    if request.get("system"):
        _deny_links(request["system"])
    answer_with = os.write
    count = _kill_at(request.get("call", 0))
    left: list[str] = []
    if request["do"] == "apply":
        options = ApplyOptions(request["way"], request["folder"])
        left += [one.reason for one in apply_plan(read_plan(request["plan"]), options, request["journal"]).left]
    elif os.path.exists(request["journal"]):
        left += [one.reason for one in undo_journal(request["journal"]).left]
    answer_with(answer, json.dumps({"killed": False, "calls": count[0], "left": left}).encode())


def _run(request: dict[str, Any]) -> dict[str, Any]:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            _work(request, writer)
        except BaseException as error:
            os.write(writer, json.dumps({"killed": False, "calls": 0, "left": [repr(error)]}).encode())
        finally:
            os._exit(0)
    os.close(writer)
    if "seconds" in request:
        time.sleep(request["seconds"])
        os.kill(child, signal.SIGKILL)  # it is there until it is waited for
    _, status = os.waitpid(child, 0)
    with os.fdopen(reader, "rb") as file:
        said = file.read()
    if os.WIFSIGNALED(status):
        return {"killed": True, "calls": 0, "left": []}
    answer: dict[str, Any] = json.loads(said)
    return answer


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(_run(json.loads(line))), flush=True)
