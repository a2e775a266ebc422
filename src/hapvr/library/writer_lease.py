"""One writer at a time in an object store: a lease, which its holder renews and which lapses when it does not.

The lease is the object `writer.lock` below the library. It is taken and renewed by conditional writes: "if there is no
such object", or "if it is still the one that I have read". Of two writers that try at once, one therefore gets it. As
in a folder (see `hapvr.library.writer_lock`), a writer that ends well leaves it empty; one that does not, not empty.

    who                 does                                          after
    the holder          renews the lease                              RENEW_S, in a thread
    the holder          stops writing, if it could not renew it       GIVE_UP_S
    another writer      takes a lease that has not changed            LAPSE_S, by its own clock

No two clocks are compared: another writer watches the object for the whole time. A holder that is paused for longer
just before it writes to a table may still do so. Such a commit is atomic: the table stays whole, but videos that both
add may then be there twice, or have to be added again.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from contextlib import suppress
from typing import Any

from hapvr.errors import StorageError
from hapvr.library.writer_lock import (
    LOCK,
    WriterLock,
    describe_writer,
    explain_busy,
    find_holder,
    format_holder,
    require_wait,
)
from hapvr.places import ObjectPath, Place, Tag

RENEW_S = 5.0
GIVE_UP_S = 20.0
LAPSE_S = 30.0
_LOOK_S = 0.5  # between two looks at a lease that another writer holds


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
        self._content = {**describe_writer(command), "token": uuid.uuid4().hex}
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
                raise explain_busy(self.folder, format_holder(data), wait_s)
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
    return format_holder(data) if _is_held(data) and not _seems_abandoned(data) else None
