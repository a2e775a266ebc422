"""How much one file may cost: the defaults of every limit on decoding, and the clock that enforces the last."""

from __future__ import annotations

import errno
import sys
import time
from dataclasses import dataclass

from hapvr import errors
from hapvr.errors import ConfigError, DecodeError, DecodeLimitError, DecodeTimeoutError, HapvrError

CHUNK_FRAMES = 256
"""Frames of a long video that are decoded at a time: about 90 MB at 256 x 455 pixels."""
MAX_FRAMES = 172_800
"""Frames of a video that is read in chunks: a day at two a second."""


@dataclass(frozen=True)
class DecodeLimits:
    """What decoding one file may cost.

    Attributes:
        max_pixels: of one source frame (default 2^26: 8K video fits twice). A larger frame is refused with
            `DecodeLimitError` before memory is set aside for it.
        max_frames: kept of one video (default four hours at 1 fps). The rest is left out, with a warning: the same
            every time, so what was read can be used.
        max_seconds: of wall time (default 15 minutes). Then `DecodeTimeoutError`, never a part of the video: how much
            was read by then depends on what else the machine was doing.
    """

    max_pixels: int = 2**26
    max_frames: int = 14_400
    max_seconds: float = 900.0

    def __post_init__(self) -> None:
        for name in ("max_pixels", "max_frames", "max_seconds"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"DecodeLimits: {name} must be positive, got {getattr(self, name)}.")


class Deadline:
    """A moment after which `check` raises."""

    def __init__(self, limits: DecodeLimits, path: str) -> None:
        self.limits, self.path = limits, path
        self.restart()

    def restart(self) -> None:
        """Give the whole time again, from now on."""
        self._end = time.monotonic() + self.limits.max_seconds

    def left(self) -> float:
        """Seconds left; at least a millisecond, as a time-out of 0 means none to some libraries."""
        return max(self._end - time.monotonic(), 1e-3)

    def check(self) -> None:
        """Raise `DecodeTimeoutError` if the moment has passed."""
        if time.monotonic() >= self._end:
            raise self.error()

    def error(self) -> DecodeTimeoutError:
        """The error to raise when time is up."""
        return DecodeTimeoutError(
            f"'{self.path}': gave up after {self.limits.max_seconds:g} s of decoding. Raise DecodeLimits.max_seconds "
            "if the file is only long; a file on which the decoder hangs will hang again."
        )


GRACE_S = 1.0
"""For a decoding process to give up by itself, which it says better than its death does."""
NO_SENSE = "the decoding process gave an answer that makes no sense."
_ERRORS: dict[str, type[HapvrError]] = {kind.__name__: kind for kind in vars(errors).values() if isinstance(kind, type)}


def make_error(name: str, text: str) -> HapvrError:
    """The error that a decoding process reports by the name of its class; a `DecodeError` if there is no such class."""
    return _ERRORS.get(name, DecodeError)(text)


_LACK_OF_MEMORY = (errno.ENOMEM, errno.EAGAIN)  # EAGAIN: no memory for the stack of another thread


def find_memory_limit() -> int | None:
    """Bytes of address space that this process may take; None: as many as there are."""
    if sys.platform == "win32":
        return None
    import resource

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def require_memory(error: BaseException, path: str) -> None:
    """Raise `DecodeLimitError` if `error` says that the memory limit of this process is reached.

    Otherwise a lack of memory would look like damage: which frames are lost would depend on the limit. Without a limit
    the error is left to the caller, because FFmpeg reports "out of memory" for some damaged packets too.
    """
    lacks_memory = isinstance(error, MemoryError) or getattr(error, "errno", None) in _LACK_OF_MEMORY
    if lacks_memory and find_memory_limit() is not None:
        raise memory_error(path) from error


def memory_error(path: str) -> DecodeLimitError:
    """The error to raise when memory is used up."""
    limit = find_memory_limit()
    available = "there is" if limit is None else f"{limit / 2**20:,.0f} MB"
    return DecodeLimitError(f"'{path}': decoding it takes more memory than {available}.")
