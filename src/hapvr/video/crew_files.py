"""What the processes of a `Crew` do for a library: read a video, and be sure which file it was.

The file is hashed first, so that one whose content is known need not be decoded. Like `crew_work`, this imports neither
torch nor a decoder at the top.
"""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass

from hapvr.errors import HapvrError
from hapvr.video.crew import Desk
from hapvr.video.frame_tasks import VideoEnd, VideoTask, read_video

HASH_BYTES = 20
_PIECE = 1 << 20
_CHANGED = "it was changed while it was being read. It is read again next time."


@dataclass(frozen=True)
class FileTask:
    """Read a video, unless its content is one of those that are known."""

    video: VideoTask
    known: frozenset[str] = frozenset()  # content hashes


@dataclass(frozen=True)
class FileEnd:
    """What is known of a file when it has been read."""

    size: int  # bytes, before it was read
    mtime_ns: int  # likewise; -1 where it is to be read again whatever it says
    content_hash: str | None  # None if it could not be read at all
    known: bool = False  # nothing was decoded: the hash is one of those that are known
    video: VideoEnd | None = None
    error: str | None = None


def read_file(desk: Desk, task: FileTask) -> FileEnd:
    """Hash a file and read its frames into blocks; what is wrong with it is told in the answer."""
    path = task.video.path
    size, changed = signature(path)
    digest = None
    try:
        if is_regular(path):  # a pipe would be waited for
            digest = content_hash(path)
            if digest in task.known and signature(path) == (size, changed):
                return FileEnd(size, changed, digest, known=True)
        video = read_video(desk, task.video)
    except (HapvrError, OSError) as error:
        if signature(path) != (size, changed):
            return FileEnd(size, -1, digest, error=_CHANGED)
        return FileEnd(size, changed, digest, error=str(error) or type(error).__name__)
    if signature(path) != (size, changed):
        return FileEnd(size, -1, digest, error=_CHANGED)
    return FileEnd(size, changed, digest, video=video)


def signature(path: str | bytes) -> tuple[int, int]:
    """Size in bytes and time of the last change in nanoseconds; zeros where the file cannot be looked at."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return 0, 0
    return found.st_size, found.st_mtime_ns


def is_regular(path: str) -> bool:
    """Whether this is a file, or a link to one."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


def content_hash(path: str) -> str:
    """The hash of a file's bytes."""
    total = hashlib.blake2b(digest_size=HASH_BYTES)
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(_PIECE):
            total.update(piece)
    return total.hexdigest()
