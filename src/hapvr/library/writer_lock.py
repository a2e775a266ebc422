"""One writer at a time: a lock that the kernel releases when its holder dies, with the holder's name in it.

The lock file is never removed. While somebody writes, it says who; a writer that ends well empties it. A lock that is
free but not empty therefore says that its last holder did not end well, and that there may be something to clean up.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from hapvr.errors import BusyError, ConfigError, StorageError
from hapvr.library.results import display_path
from hapvr.places import Place

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

LOCK = "writer.lock"
_BUSY = {errno.EAGAIN, errno.EACCES, errno.EDEADLK}
_OFFSET = 1 << 30  # Windows locks bytes for reading too: one far behind the holder's name


class WriterLock:
    """The right to write into a folder; `acquire` waits for it.

    On POSIX systems it is `flock`, on Windows a locked byte of the file; both end with the process.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / LOCK
        self._descriptor: int | None = None
        self.left_behind = False  # whether the last holder did not end well

    def acquire(self, command: str, *, wait_s: float) -> None:
        """Take the lock within `wait_s` seconds; `BusyError` names who has it instead."""
        require_wait(wait_s)
        place = display_path(self.path.parent)
        descriptor = None
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            end = time.monotonic() + wait_s
            while not _try_lock(descriptor):
                if time.monotonic() >= end:
                    raise explain_busy(self.path.parent, _read_holder(self.path), wait_s)
                time.sleep(0.05)
            self.left_behind = os.fstat(descriptor).st_size > 0
            data = json.dumps(describe_writer(command)).encode()
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, data)  # over what was there: killed in between, it must not look as if all was well
            os.ftruncate(descriptor, len(data))
        except BaseException as error:
            if descriptor is not None:
                os.close(descriptor)
            if isinstance(error, OSError):
                raise StorageError(f"'{place}' cannot be written: {error.strerror}.") from error
            raise
        self._descriptor = descriptor

    def require_held(self) -> None:
        """Nothing to do: the system takes it from nobody who lives."""

    def release(self, *, clean: bool) -> None:
        """Give it back. If not `clean`, the next writer will look for what was left."""
        if self._descriptor is None:
            return
        if clean:
            os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)
        self._descriptor = None


def find_holder(folder: Path) -> str | None:
    """Who is writing into a folder at this moment, in words; None if nobody is."""
    path = folder / LOCK
    try:
        if path.stat().st_size == 0:
            return None
        descriptor = os.open(path, os.O_RDWR)
    except OSError:  # no lock file, or one that cannot be written: nobody here can be writing
        return None
    try:
        return None if _try_lock(descriptor) else _read_holder(path)  # if it is free, closing gives it back
    finally:
        os.close(descriptor)


def _read_holder(path: Path) -> str:
    try:
        return format_holder(path.read_bytes())
    except OSError:
        return format_holder(b"")


def format_holder(data: bytes) -> str:
    """Who wrote `describe_writer` into a lock, in words."""
    try:
        found = json.loads(data)
        return f"`{found['command']}` (process {found['pid']} on {found['host']}, since {found['since']})"
    except (ValueError, KeyError, TypeError):
        return "another process"


def describe_writer(command: str) -> dict[str, Any]:
    """Who is about to write."""
    since = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return {"pid": os.getpid(), "host": socket.gethostname(), "command": command, "since": since}


def require_wait(wait_s: float) -> None:
    """Raise `ConfigError` unless one can wait for so long."""
    if not wait_s >= 0:
        raise ConfigError(f"wait_s must be 0 or more, the seconds to wait for another writer; got {wait_s!r}.")


def explain_busy(folder: Place, holder: str, wait_s: float) -> BusyError:
    """What to say when another writer did not end in time."""
    waited = f" for {wait_s:g} s" if wait_s else ""
    return BusyError(
        f"'{display_path(folder)}' is being written by {holder}, and stayed so{waited}. "
        "Try again when that is done; reading is possible meanwhile."
    )


def _try_lock(descriptor: int) -> bool:
    try:
        if sys.platform == "win32":
            os.lseek(descriptor, _OFFSET, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _BUSY:
            return False
        raise StorageError(f"The writer's lock cannot be taken on this file system: {error.strerror}.") from error
    return True
