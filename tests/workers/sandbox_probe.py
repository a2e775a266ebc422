"""What a process in a sandbox tries: each attempt is a function that says what became of it."""

from __future__ import annotations

import ctypes
import os
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hapvr.video.frame_tasks import VideoTask
from hapvr.workers.pool import TaskContext
from hapvr.workers.sandbox import Protections, Sandbox, enter_sandbox, find_given


def attempt(action: Callable[[], Any]) -> str:
    """ "done", or the error."""
    try:
        action()
    except (OSError, MemoryError) as error:
        return type(error).__name__
    return "done"


def try_everything(folder: str, secret: str) -> dict[str, str]:
    """All that a decoder has no business to do, in turn; `folder` is one that it was not given."""
    old = Path(secret)
    actions: dict[str, Callable[[], Any]] = {
        "write a file": lambda: Path(folder, "written").write_text("x"),
        "append to a file": lambda: old.open("ab"),
        "make a folder": lambda: Path(folder, "made").mkdir(),
        "make a link": lambda: os.symlink(secret, os.path.join(folder, "link")),
        "change permissions": lambda: os.chmod(secret, 0o777),
        "change times": lambda: os.utime(secret),
        "read a file that it was not given": old.read_bytes,
        "list a folder": lambda: os.listdir(folder),
        "cut a file": lambda: os.truncate(secret, 0),
        "rename a file": lambda: old.rename(old.with_suffix(".moved")).rename(old),
        "remove a file": old.unlink,
        "open a socket": socket.socket,
        "send by UDP": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
        "open a local socket": lambda: socket.socket(socket.AF_UNIX),
        "open a pair of sockets": lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM),
        "share memory with other programs": _share_memory,
        "ask about a file system": lambda: _ask_about(__file__),
        "limit another process": _limit_parent,
        "set the priority of another process": _set_priority,
        "run a program": lambda: subprocess.run(["/bin/true"], check=True),
        "become a program": lambda: os.execv("/no/such/program", ["x"]),  # without a sandbox it is looked for
        "fork": _fork,
        "end the process that started it": lambda: os.kill(os.getppid(), 0),
        "take memory": lambda: bytearray(64 * 2**30),
        "open many files": _open_many,
    }
    return {name: attempt(action) for name, action in actions.items()}


def _share_memory() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    segment = libc.shmget(0, 4096, 0o600)
    if segment < 0:
        raise OSError(ctypes.get_errno(), "shmget")
    libc.shmctl(segment, 0, None)  # removes it


def _limit_parent() -> None:
    import resource  # which Windows lacks, as fcntl below

    as_it_is = resource.prlimit(os.getppid(), resource.RLIMIT_CORE)
    resource.prlimit(os.getppid(), resource.RLIMIT_CORE, as_it_is)


def _ask_about(path: str) -> None:
    import fcntl

    with open(path, "rb") as file:
        fcntl.ioctl(file, 2, bytes(4))  # FIGETBSZ, which is harmless and of no use to a decoder


def _set_priority() -> None:
    parent = os.getppid()
    os.setpriority(os.PRIO_PROCESS, parent, os.getpriority(os.PRIO_PROCESS, parent))


def _open_many() -> None:
    opened: list[int] = []
    try:
        while len(opened) < 5000:
            opened.append(os.dup(1))
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _fork() -> None:
    if (child := os.fork()) == 0:
        os._exit(0)
    os.waitpid(child, 0)


def misbehave(context: TaskContext, task: tuple[str, str, str]) -> Any:
    """The work of a pool: `task` says what to do, with which folder and file."""
    what, folder, path = task
    if what == "try":
        return try_everything(folder, path)
    if what == "spin":
        while True:
            pass
    if what == "lie":
        context._pipe.send((None, _Hostile(folder), None))
    if what == "read":
        given = find_given(path)
        assert given is not None
        return os.read(given, 100)
    if what == "thread":
        done: list[int] = []
        thread = threading.Thread(target=done.append, args=(1,))
        thread.start()
        thread.join()
        return done
    return "fine"


class _Hostile:
    """Unpickled, it makes a folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (os.path.join(self._folder, "made"),)


def file_of(task: tuple[str, str, str]) -> str:
    return task[2]


def decode_and_try(context: TaskContext, task: VideoTask) -> Any:
    """Reads a video in the way of a library, then tries to do more."""
    from hapvr.video.frame_tasks import read_video

    read_video(context, task)
    return attempt(socket.socket), attempt(lambda: open(task.path, "rb"))


def enter_without(missing: str) -> Protections:
    """What there is on a system that lacks something."""
    from hapvr.workers import sandbox

    if missing == "landlock":
        sandbox._landlock_version = lambda: 0
    else:
        sandbox._machine = lambda: "riscv64"
    return enter_sandbox(Sandbox())


if __name__ == "__main__":
    if sys.argv[1] == "without":
        held = enter_without(sys.argv[2])
        print(held, attempt(Path("/etc/hostname").read_bytes), attempt(socket.socket))
    else:
        print(pickle.dumps(try_everything(*sys.argv[1:])).hex())
