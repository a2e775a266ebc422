"""One writer at a time: a lock in a folder, a lease in an object store; both say who holds them.

While somebody writes, `writer.lock` says who; a writer that ends well empties it. What is free but not empty says that
its last holder did not end well, and that there may be something to clean up.

In a folder it is a lock that the kernel releases when its holder dies. In an object store it is a lease, which its
holder renews and which lapses when it does not, by conditional writes: "if there is no such object", or "if it is still
the one that I have read". Of two writers that try at once, one therefore gets it.

    who                 does                                          after
    the holder          renews the lease                              RENEW_S, in a thread
    the holder          stops writing, if it could not renew it       GIVE_UP_S
    another writer      takes a lease that has not changed            LAPSE_S, by its own clock

No two clocks are compared: another writer watches the object for the whole time. A holder that is paused for longer
just before it writes to a table may still do so. Such a commit is atomic: the table stays whole, but videos that both
add may then be there twice, or have to be added again.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from hapvr.errors import BusyError, ConfigError, StorageError
from hapvr.library.results import display_path
from hapvr.places import ObjectPath, Place, Tag

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

LOCK = "writer.lock"
RENEW_S = 5.0
GIVE_UP_S = 20.0
LAPSE_S = 30.0
_LOOK_S = 0.5  # between two looks at a lease that another writer holds
_BUSY = {errno.EAGAIN, errno.EACCES, errno.EDEADLK}
_OFFSET = 1 << 30  # Windows locks bytes for reading too: one far behind the holder's name


@contextmanager
def hold_lock(place: Place, command: str, *, wait_s: float, recovers: bool) -> Iterator[WriterLock | WriterLease]:
    """The right to write into a library, until the block ends.

    If that does not end well, the next writer looks for what was left. It also looks for what a writer before this one
    left, unless this one `recovers` that.
    """
    lock = open_lock(place)
    lock.acquire(command, wait_s=wait_s)
    clean = False
    try:
        yield lock
        clean = recovers or not lock.left_behind
    finally:
        lock.release(clean=clean)


def open_lock(place: Place) -> WriterLock | WriterLease:
    """The lock of a library."""
    return WriterLease(place) if isinstance(place, ObjectPath) else WriterLock(place)


def find_writer(place: Place) -> str | None:
    """Who is writing into a library at this moment, in words; None if nobody is."""
    if not isinstance(place, ObjectPath):
        return find_holder(place)
    try:
        data = (place / LOCK).read_bytes()
    except FileNotFoundError:
        return None
    return _format_holder(data) if _is_held(data) and not _seems_abandoned(data) else None


# --- in a folder -----------------------------------------------------------------------------------------------------


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
                    raise _explain_busy(self.path.parent, _read_holder(self.path), wait_s)
                time.sleep(0.05)
            self.left_behind = os.fstat(descriptor).st_size > 0
            data = json.dumps(_describe_writer(command)).encode()
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
        return _format_holder(path.read_bytes())
    except OSError:
        return _format_holder(b"")


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


# --- in an object store -----------------------------------------------------------------------------------------------


class WriterLease:
    """The right to write below a prefix; `acquire` waits for it."""

    def __init__(self, folder: ObjectPath) -> None:
        self.folder, self.path = folder, folder / LOCK
        self.left_behind = False  # whether the last holder did not end well
        self._content: dict[str, Any] = {}
        self._tag: Tag | None = None  # of the object, as this process wrote it; None while it does not hold the lease
        self._renewed = (0.0, 0.0)  # when, by two clocks
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def acquire(self, command: str, *, wait_s: float) -> None:
        """Take the lease within `wait_s` seconds, or, if its holder seems to be gone, when it has lapsed.

        `BusyError` names who has it instead.
        """
        require_wait(wait_s)
        self._content = {**_describe_writer(command), "token": uuid.uuid4().hex}
        end = time.monotonic() + wait_s
        seen: Tag | None = None  # of the lease of another writer,
        since = 0.0  # and since when it has not changed
        renewed = False  # while it was watched
        while True:
            data, tag = self._read()
            if tag is not None and tag != seen:
                renewed = renewed or seen is not None
                seen, since = tag, time.monotonic()
            if not _is_held(data) or time.monotonic() - since > LAPSE_S:
                if self._put(tag):
                    self.left_behind = bool(data)
                    break
                continue  # another writer was quicker
            if time.monotonic() >= end and (renewed or not _seems_abandoned(data)):
                raise _explain_busy(self.folder, _format_holder(data), wait_s)
            time.sleep(min(_LOOK_S, LAPSE_S / 4))
        self._ending.clear()
        self._thread = threading.Thread(target=self._keep, name="writer lease", daemon=True)
        self._thread.start()

    def require_held(self) -> None:
        """Raise `StorageError` unless nobody else can have the lease."""
        # One of the clocks stands still while the machine sleeps; the other may be set.
        if self._tag is None or max(now - then for now, then in zip(_clocks(), self._renewed, strict=True)) > GIVE_UP_S:
            raise StorageError(
                f"The right to write into '{self.folder}' was lost: it could not be renewed for {GIVE_UP_S:g} s, or "
                "another writer has taken it. What was acknowledged before is kept. Run the same again."
            )

    def release(self, *, clean: bool) -> None:
        """Give it back. If not `clean`, the next writer will look for what was left."""
        if self._thread is None:
            return
        self._ending.set()
        self._thread.join()
        self._thread = None
        if self._tag is not None:
            with suppress(StorageError):  # then it lapses
                self.path.replace_bytes(b"" if clean else json.dumps({"released": True}).encode(), tag=self._tag)
        self._tag = None

    def _keep(self) -> None:
        while not self._ending.wait(RENEW_S) and self._tag is not None:
            with suppress(StorageError):  # the store may answer next time; `require_held` sees to it
                if not self._put(self._tag):
                    data, tag = self._read()  # written, though the answer was lost?
                    self._tag = tag if data and json.loads(data).get("token") == self._content["token"] else None

    def _put(self, tag: Tag | None) -> bool:
        """Write the lease over the one with this tag; False if that is another one by now."""
        asked = _clocks()
        data = json.dumps({**self._content, "renewed": time.time_ns()}).encode()  # other bytes, so that its tag differs
        if (written := self.path.replace_bytes(data, tag=tag)) is None:
            return False
        self._tag, self._renewed = written, asked
        return True

    def _read(self) -> tuple[bytes, Tag | None]:
        try:
            return self.path.read_with_tag()
        except FileNotFoundError:
            return b"", None


def _clocks() -> tuple[float, float]:
    return time.monotonic(), time.time()


def _parse(data: bytes) -> dict[str, Any]:
    """What a lease says; nothing where it is none."""
    try:
        content = json.loads(data)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _is_held(data: bytes) -> bool:
    return bool(data) and not _parse(data).get("released")


def _seems_abandoned(data: bytes) -> bool:
    """Whether it has lapsed if the clocks of both machines are right: a reason to watch it, not to take it."""
    renewed = _parse(data).get("renewed", 0)
    return not isinstance(renewed, int) or time.time() - renewed / 1e9 > LAPSE_S


# --- who writes ------------------------------------------------------------------------------------------------------


def _format_holder(data: bytes) -> str:
    """Who wrote `_describe_writer` into a lock, in words."""
    try:
        found = json.loads(data)
        return f"`{found['command']}` (process {found['pid']} on {found['host']}, since {found['since']})"
    except (ValueError, KeyError, TypeError):
        return "another process"


def _describe_writer(command: str) -> dict[str, Any]:
    """Who is about to write."""
    since = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return {"pid": os.getpid(), "host": socket.gethostname(), "command": command, "since": since}


def require_wait(wait_s: float) -> None:
    """Raise `ConfigError` unless one can wait for so long."""
    if not wait_s >= 0:
        raise ConfigError(f"wait_s must be 0 or more, the seconds to wait for another writer; got {wait_s!r}.")


def _explain_busy(folder: Place, holder: str, wait_s: float) -> BusyError:
    """What to say when another writer did not end in time."""
    waited = f" for {wait_s:g} s" if wait_s else ""
    return BusyError(
        f"'{display_path(folder)}' is being written by {holder}, and stayed so{waited}. "
        "Try again when that is done; reading is possible meanwhile."
    )
