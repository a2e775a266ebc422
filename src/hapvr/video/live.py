"""Frames of a stream that goes on: a live address (HLS, RTSP, ...), or a file that is still being written.

The stream is decoded by another process, which may hang or crash without taking this one with it. It is in a sandbox:
for an address it has the network, and no files of yours; for a file or playlist it has no network. Frames come a few at
a time, as soon as they are there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from hapvr.errors import ConfigError, DecodeError, DecodeTimeoutError
from hapvr.records import Box, Frames, Size
from hapvr.video.ffmpeg import FFmpegSource
from hapvr.video.isolated import iterate_isolated
from hapvr.video.limits import Deadline, DecodeLimits
from hapvr.video.quality import BarFinder, LowInformation, Luma, luma_of, thin
from hapvr.video.reading import render_frame
from hapvr.video.sampling import Instants, SamplingConfig
from hapvr.workers.sandbox import Sandbox

_SCHEMES = ("http", "https", "rtsp", "rtsps", "rtmp", "rtmps", "rtp", "udp", "srt", "tcp")
# What the address of a stream may lead to: never to a file of this machine.
_NETWORK = "http,https,httpproxy,tcp,tls,udp,rtp,srtp,rtsp,rtsps,rtmp,rtmps,srt,crypto,data"
_PLAYLISTS = (".m3u8", ".m3u")
_POLL_S = 0.05  # between looks whether a file has grown
_GRACE_S = 2.0  # for the process to say by itself that nothing comes any more
_CHUNK_S = 1.0  # of frames that are handed over at a time
_MAX_IDLE_S = 86_400.0
_BAR_FRAMES = 40  # after which bars are looked for again: programmes of one channel differ


@dataclass(frozen=True)
class StreamConfig:
    """How a stream is read.

    Attributes:
        follow: a file is still being written: at its end more is waited for.
        idle_s: seconds without a frame after which a stream, or a file that was followed, has ended.
        max_pixels: of one frame.
    """

    follow: bool = False
    idle_s: float = 30.0
    max_pixels: int = DecodeLimits.max_pixels

    def __post_init__(self) -> None:
        if not 0 < self.idle_s <= _MAX_IDLE_S:
            raise ConfigError(f"idle_s must be above 0 and at most {_MAX_IDLE_S:,.0f}, got {self.idle_s}.")


def is_address(source: str) -> bool:
    """Whether this is the address of a stream, and not a file.

    >>> is_address("rtsp://camera/1"), is_address("film.ts"), is_address("file:///film.ts")
    (True, False, False)
    """
    scheme, sign, _ = source.partition("://")
    return bool(sign) and scheme.lower() in _SCHEMES


def require_source(source: str) -> None:
    """Raise `DecodeError` for what is neither an address nor a file."""
    if not is_address(source) and not os.path.isfile(source):
        what = "is a folder" if os.path.isdir(source) else "does not exist"
        raise DecodeError(
            f"'{source}' {what}. Give a file, or an address that begins with one of {', '.join(_SCHEMES)}."
        )


def read_stream(
    source: str, sampling: SamplingConfig, config: StreamConfig, *, check: Callable[[], None] = lambda: None
) -> Generator[Frames, None, None]:
    """The frames of a stream, about a second of them at a time, in order, until it ends.

    Args:
        source: an address, or the path of a file or of an HLS playlist.
        sampling: how many frames a second, and their size.
        config: when it ends.
        check: called before each part; may raise.

    Raises:
        DecodeError: it cannot be read, or not any more; `DecodeTimeoutError` if no frame has come for `idle_s`.
    """
    require_source(source)
    limits = DecodeLimits(max_pixels=config.max_pixels, max_seconds=config.idle_s + _GRACE_S)
    call = partial(sample_stream, source, config, fps=sampling.fps, short_side=sampling.short_side)
    try:
        yield from iterate_isolated(call, Frames, name=source, limits=limits, sandbox=make_sandbox(source), check=check)
    except DecodeTimeoutError as error:
        raise DecodeTimeoutError(f"'{source}': no frame has come for {config.idle_s:g} s.") from error


def make_sandbox(source: str) -> Sandbox:
    """What the process that decodes a stream may do: read the file, or the folder of a playlist, or use the network."""
    if is_address(source):
        return Sandbox(network=True)
    path = os.path.abspath(source)
    return Sandbox(readable=(os.path.dirname(path) if path.lower().endswith(_PLAYLISTS) else path,))


# --- in the other process --------------------------------------------------------------------------------------------


class GrowingFile:
    """A file to read from, whose end is reached when it has not grown for some time. It cannot be sought in."""

    def __init__(self, path: str, idle_s: float) -> None:
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115 - lives as long as the process
        self._idle_s = idle_s

    def read(self, size: int) -> bytes:
        """Some of the next `size` bytes; waits for them. Nothing, if none have come for too long."""
        end = time.monotonic() + self._idle_s
        while not (data := self._file.read(size)) and time.monotonic() < end:
            time.sleep(_POLL_S)
        return data or b""

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class _StreamInput:
    """An `Input` without an end."""

    endless = True

    def __init__(self, source: str, config: StreamConfig) -> None:
        self.path, self._config = source, config
        limits = DecodeLimits(max_pixels=config.max_pixels, max_seconds=config.idle_s)
        self.deadline = Deadline(limits, source)

    def address(self) -> tuple[Any, dict[str, str]]:
        if is_address(self.path):
            return self.path, {"protocol_whitelist": _NETWORK}
        if self.path.lower().endswith(_PLAYLISTS):
            return os.path.abspath(self.path), {"protocol_whitelist": "file,crypto,data"}
        if self._config.follow:
            return GrowingFile(self.path, self._config.idle_s), {"protocol_whitelist": "fd"}
        return os.path.abspath(self.path), {"protocol_whitelist": "file"}

    def tail(self) -> bytes:
        return b""


class _RollingBars:
    """The black bars around the picture of a stream, looked for in one run of frames after the other."""

    def __init__(self) -> None:
        self.box: Box | None = None
        self._finder, self._count = BarFinder(), 0

    def add(self, luma: Luma, size: Size) -> None:
        """Take the next frame, with its bars."""
        self._finder.add(luma)
        self._count += 1
        if self._count == _BAR_FRAMES:
            self.box = self._finder.box(size)
            self._finder, self._count = BarFinder(), 0


def sample_stream(source: str, config: StreamConfig, *, fps: float, short_side: int) -> Iterator[Frames]:
    """The frames of a stream, decoded in this process."""
    given = _StreamInput(source, config)
    with closing(FFmpegSource(given, threads=1)) as stream:
        seen, bars = LowInformation(), _RollingBars()
        parts: list[tuple[float, Any, bool]] = []
        size: Size | None = None
        shape: tuple[int, ...] | None = None

        def join() -> Frames:
            times, images, flags = zip(*parts, strict=True)
            parts.clear()
            assert size is not None
            return Frames(
                np.stack(images), np.array(times), np.array(flags), duration_s=None, fps=fps, source_size=size
            )

        for time_s, frame in Instants(fps).nearest(stream.frames(0.0)):
            given.deadline.restart()
            size = stream.size(frame)
            whole = render_frame(stream, frame, size, None, short_side)
            luma = luma_of(whole)
            if shape != luma.shape:  # the resolution has changed
                shape, bars = luma.shape, _RollingBars()
            says_little = seen.classify(thin(luma)) is not None
            image = whole if bars.box is None else render_frame(stream, frame, size, bars.box, short_side)
            if not says_little:
                bars.add(luma, size)
            if parts and parts[-1][1].shape != image.shape:
                yield join()
            parts.append((time_s, image, says_little))
            if len(parts) >= _CHUNK_S * fps:
                yield join()
        if parts:
            yield join()
