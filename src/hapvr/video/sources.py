"""What all decoders have in common: a file that is open, and a stream of frames with times.

A file is opened once and handed to the decoders as a descriptor: its name is never taken for an address or a pattern,
and a file that is deleted while it is read is read to the end.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import Any, Protocol

import av
import numpy as np
from av.container import InputContainer
from numpy.typing import NDArray
from PIL import Image

from hapvr.errors import DecodeError, DecodeLimitError
from hapvr.records import Size, VideoInfo
from hapvr.video.limits import Deadline, DecodeLimits
from hapvr.video.sampling import Times
from hapvr.workers.sandbox import open_given

Picture = NDArray[np.uint8]

# What PyAV and Pillow raise on damaged files, beside their own errors.
LIBRARY_ERRORS = (
    av.FFmpegError, OSError, ValueError, TypeError, LookupError, ArithmeticError, RuntimeError, MemoryError, EOFError,
    SyntaxError, Image.DecompressionBombError,
)  # fmt: skip


# PyAV before 19 refuses a file with metadata that is no UTF-8, unless told otherwise; 19 no longer has the option.
_METADATA: dict[str, Any] = {"metadata_errors": "ignore"} if int(av.__version__.split(".")[0]) < 19 else {}


def open_container(place: str, **options: Any) -> InputContainer:
    """Open a file to read it, whatever its metadata holds: `av.open` with these options."""
    return av.open(place, **_METADATA, **options)  # type: ignore[no-any-return]


class Source(Protocol):
    """One reading of a file, from the beginning to the end."""

    info: VideoInfo
    warnings: list[str]
    still: bool  # one picture that has no duration
    declares_video: bool  # whether the declared duration is that of the video itself, not of the longest stream

    def seek_distance(self, time_s: float) -> float | None:
        """Seconds of video that are decoded before a time is reached, by the file's index; None if it has none."""

    def skip_unneeded(self) -> None:
        """Decode no frames that no other frame needs: about half of the time, and of the frames, of many videos."""

    def skip_smoothing(self) -> None:
        """Do not smooth the borders of blocks in frames between others: nothing that a reduced picture shows."""

    def keep_keyframes(self) -> None:
        """Decode key frames alone: of many videos one in a hundred frames."""

    def coded_times(self) -> Times:
        """Times in seconds of all coded frames met so far, decoded or not, sorted; empty if the file holds no times."""

    def frames(self, start_s: float) -> Iterator[tuple[float, float, Any]]:
        """Time, time on display and frame, in order of presentation; from a key frame before `start_s`, if it can."""

    def size(self, frame: Any) -> Size:
        """Width and height of a frame as a player shows it."""

    def render(self, frame: Any, size: Size) -> Picture:
        """A frame as a player shows it, scaled to this size (bilinear over the area of a pixel): RGB [H, W, 3]."""

    def close(self) -> None:
        """Let go of the decoder; the file itself stays open."""


class Input(Protocol):
    """What FFmpeg decodes: a file, or a stream without an end."""

    path: str  # its name in messages
    deadline: Deadline
    endless: bool  # the times of its frames are not kept

    def address(self) -> tuple[Any, dict[str, str]]:
        """What to open, and the options that say what else may be opened."""

    def tail(self) -> bytes:
        """The last bytes of a file."""


class OpenFile:
    """A regular file held open, from which any number of sources can be made, one at a time."""

    endless = False

    def __init__(self, path: str | os.PathLike[str], deadline: Deadline) -> None:
        self.path = os.fspath(path)
        self.deadline = deadline
        try:
            self.descriptor = open_given(self.path)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise DecodeError(f"'{self.path}' cannot be opened: {reason}. Check its name and permissions.") from error
        try:
            self._require_regular()
        except BaseException:
            os.close(self.descriptor)
            raise

    def _require_regular(self) -> None:
        state = os.fstat(self.descriptor)
        if not stat.S_ISREG(state.st_mode):
            kind = next((name for test, name in _KINDS if test(state.st_mode)), "a special file")
            raise DecodeError(f"'{self.path}' is {kind}, not a file. Give the path of a video file.")
        if state.st_size == 0:
            raise DecodeError(f"'{self.path}' is empty. Copy or download it again.")

    def __enter__(self) -> OpenFile:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)

    def address(self) -> tuple[Any, dict[str, str]]:
        """See `Input.address`; nothing but the descriptor may be opened."""
        return "fd:", {"fd": str(self.descriptor), "protocol_whitelist": "fd"}

    def head(self) -> bytes:
        """The first bytes of the file, enough to tell its kind."""
        try:
            os.lseek(self.descriptor, 0, os.SEEK_SET)
            return os.read(self.descriptor, 32)
        except OSError as error:
            raise DecodeError(f"'{self.path}' cannot be read: {error.strerror}.") from error
        finally:
            os.lseek(self.descriptor, 0, os.SEEK_SET)

    def tail(self) -> bytes:
        """The last bytes of the file; a few more than an end mark, as some writers fill up with zeros."""
        here = os.lseek(self.descriptor, 0, os.SEEK_CUR)
        try:
            os.lseek(self.descriptor, max(os.fstat(self.descriptor).st_size - 8, 0), os.SEEK_SET)
            return os.read(self.descriptor, 8)
        except OSError:
            return b""
        finally:
            os.lseek(self.descriptor, here, os.SEEK_SET)


def require_pixels(file: Input, width: int, height: int) -> None:
    """Raise `DecodeLimitError` if a frame of this size is over the limit."""
    most = file.deadline.limits.max_pixels
    if width * height > most:
        raise DecodeLimitError(
            f"'{file.path}' has frames of {width}x{height} = {width * height:,} pixels, the limit is {most:,}. "
            "Raise DecodeLimits.max_pixels if you trust the file."
        )


_KINDS = [
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
]


def require_file(path: str | os.PathLike[str]) -> None:
    """Raise `DecodeError` unless there is a file that can be opened and is not empty; its content is not read."""
    with OpenFile(path, Deadline(DecodeLimits(), os.fspath(path))):
        pass
