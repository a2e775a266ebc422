"""The task of a worker process that reads a video for a library: hash the file, and decode it if that is new.

The file is looked at before and after, so that it is certain which content the frames are of. Neither torch nor a
decoder is imported at the top.
"""

from __future__ import annotations

from dataclasses import dataclass

from hapvr.errors import HapvrError
from hapvr.storage import blake2b_file, file_signature, is_regular_file
from hapvr.video.frame_tasks import VideoEnd, VideoTask, read_video
from hapvr.workers.pool import TaskContext

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
    mtime_ns: int  # before it was read; -1 where it is to be read again whatever it says
    content_hash: str | None  # None if it could not be read at all
    known: bool = False  # nothing was decoded: the hash is one of those that are known
    video: VideoEnd | None = None
    error: str | None = None


def read_file(context: TaskContext, task: FileTask) -> FileEnd:
    """Hash a file and read its frames into blocks; what is wrong with it is in the result."""
    path = task.video.path
    size, changed = file_signature(path)
    digest, video, wrong = None, None, None
    try:
        if is_regular_file(path):  # a pipe would be waited for
            digest = blake2b_file(path)
            if digest in task.known and file_signature(path) == (size, changed):
                return FileEnd(size, changed, digest, known=True)
        video = read_video(context, task.video)
    except (HapvrError, OSError) as error:
        wrong = str(error) or type(error).__name__
    if file_signature(path) != (size, changed):
        return FileEnd(size, -1, digest, error=_CHANGED)
    return FileEnd(size, changed, digest, video=video, error=wrong)
