"""From a video file to frames: sampled, resized, upright, without bars, with their times in seconds.

`decode_chunks` reads a video of any length in bounded memory: it is planned by its beginning and then decoded once,
straight on (see `hapvr.video.reading`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hapvr.errors import ConfigError, NoVideoError
from hapvr.records import Box, Frames, VideoInfo
from hapvr.storage import StrPath
from hapvr.video.ffmpeg import rotation_of
from hapvr.video.limits import CHUNK_FRAMES, MAX_FRAMES, Deadline, DecodeLimits
from hapvr.video.reading import ReadRequest, explain_no_frame, open_source, read_by_plan, read_on
from hapvr.video.sampling import SamplingConfig
from hapvr.video.sources import OpenFile

_MIN_PLANNED = 64  # frames by which a long video is planned: fewer may be all dark, and show no bars
_NEAR_S = 0.001  # frames closer than this are one instant to `decode_at`


def decode(
    path: StrPath,
    *,
    fps: float = 1.0,
    short_side: int = 256,
    min_frames: int = 28,
    crop_bars: bool | Box = True,
    start_s: float | None = None,
    end_s: float | None = None,
    keyframes: bool = False,
    threads: int = 0,
    limits: DecodeLimits = DecodeLimits(),  # noqa: B008 - frozen
) -> Frames:
    """Read the frames of a video, an animated GIF or WebP, or a picture.

    For each instant k / fps the frame nearest in presentation time is taken, each frame once; `timestamps` are the
    frames' own, exact times. A video too short to give `min_frames` frames at this rate is sampled faster until it
    does, or until all its frames are taken. Frames are turned upright, brought to square pixels and resized with
    FFmpeg's bilinear filter, which averages over the source pixels that fall on one pixel.

    A file that is cut off or damaged gives the frames that can be read, and `warnings` that say how much is missing.

    Decoding happens in this process and gives up between packets when time is up. A decoder that hangs within one
    packet, or crashes, takes this process with it: read files from strangers by `hapvr.video.sandboxed`.

    Args:
        path: a file of any kind; its content says which.
        fps: frames to take for each second.
        short_side: pixels of the shorter side of the result. Frames wider than 8:1 are squeezed to that.
        min_frames: frames to take of a short video, where it has them; 0 to keep to `fps`.
        crop_bars: whether to cut off black bars, the same box in every frame; see `hapvr.video.quality.BarFinder`. Or
            the box to cut out, as `Frames.crop` gives it: for the later parts of a video that is read in parts.
        start_s, end_s: take the instants in [start_s, end_s) only; seconds since the first frame.
        keyframes: take key frames alone, where the video has at least 8 and one in 30 s: many times as fast, and coarse
            in time.
        threads: of the decoder; 0 means one a core. In worker processes, 1 costs least.
        limits: what it may cost.

    Raises:
        DecodeError: no frame can be read; `NoVideoError`, `DecodeLimitError`, `DecodeTimeoutError` say why.
        ConfigError: a setting is out of range.
    """
    (frames,) = decode_chunks(
        path, chunk=limits.max_frames, fps=fps, short_side=short_side, min_frames=min_frames, crop_bars=crop_bars,
        start_s=start_s, end_s=end_s, keyframes=keyframes, threads=threads, limits=limits,
    )  # fmt: skip
    return frames


def decode_chunks(
    path: StrPath,
    *,
    chunk: int = CHUNK_FRAMES,
    fps: float = 1.0,
    short_side: int = 256,
    min_frames: int = 28,
    crop_bars: bool | Box = True,
    start_s: float | None = None,
    end_s: float | None = None,
    keyframes: bool = False,
    threads: int = 0,
    limits: DecodeLimits = DecodeLimits(),  # noqa: B008 - frozen
) -> Iterator[Frames]:
    """The frames that `decode` gives, `chunk` at a time (the last may be shorter), in memory that does not grow.

    The first chunk is read as `decode` reads a video, again if it was planned wrongly; from there the video is decoded
    straight on, once, whatever duration it declares, so that chunks join without a gap. Bars are found in the first
    chunk (64 frames at least) and cut alike in all.

    What is known at the end only, is said by the last chunk: the warnings, and `duration_s` of a file that declares
    none (before that, it is as much as has been read). `limits.max_frames` counts all chunks, `limits.max_seconds` is
    the time for each; while the caller has a chunk, the clock stands still.
    """
    if chunk < 1:
        raise ConfigError(f"chunk must be at least 1 frame, got {chunk}.")
    until_s = math.inf if end_s is None else end_s
    request = ReadRequest(fps, short_side, min_frames, crop_bars, start_s or 0.0, until_s, keyframes, threads)
    deadline = Deadline(limits, os.fspath(path))
    with OpenFile(path, deadline) as file:
        # One frame more than is given out: whether a chunk is the last must be known when it goes.
        reading = read_by_plan(file, request, most=max(chunk, 2 * min_frames, _MIN_PLANNED) + 1)
        try:
            while True:
                while len(reading.images) > chunk:
                    yield reading.give(chunk)
                if reading.over:
                    yield reading.give(len(reading.images))
                    return
                deadline.restart()
                reading = read_on(reading, most=chunk + 1)
        finally:
            reading.source.close()


def decode_sampled(
    path: StrPath,
    sampling: SamplingConfig,
    *,
    start_s: float | None = None,
    end_s: float | None = None,
    crop: Box | None = None,
    keyframes: bool = False,
    threads: int = 0,
) -> Iterator[Frames]:
    """The frames that describe a video, or the part of it in [start_s, end_s), as `decode_chunks` gives them.

    `crop` is the part of each frame that is read; None: all of it but black bars.
    """
    options = _options(sampling) | {"keyframes": keyframes, "threads": threads, "crop_bars": crop or True}
    return decode_chunks(path, **options, start_s=start_s, end_s=end_s)


def find_seek_distances(
    path: StrPath,
    times: Sequence[float],
    *,
    limits: DecodeLimits = DecodeLimits(),  # noqa: B008 - frozen
) -> list[float | None]:
    """Seconds of video that must be decoded before each time is reached: from the key frame before it.

    Nothing is decoded: the file's index says where key frames are; None where it does not.
    """
    with OpenFile(path, Deadline(limits, os.fspath(path))) as file, closing(open_source(file, threads=1)) as source:
        return [source.seek_distance(time_s) for time_s in times]


def decode_at(
    path: StrPath, times: Sequence[float], sampling: SamplingConfig, *, crop: Box | None = None
) -> list[NDArray[np.uint8]]:
    """The pictures [H, W, 3] that `decode_sampled` gave at these times, read again by seeking in the file.

    `sampling` is as it was then, `crop` as `Frames.crop` gave it. A file whose times depend on what was read before (it
    holds none, or they go backwards) is read from the start. `NoVideoError` where there is no frame at a time.
    """
    options = _options(sampling) | {"crop_bars": False if crop is None else crop}
    found: dict[float, NDArray[np.uint8]] = {}

    def take(frames: Frames) -> None:
        for time_s in times:
            place = int(np.abs(frames.timestamps - time_s).argmin())
            if abs(frames.timestamps[place] - time_s) < _NEAR_S / 2:
                found.setdefault(time_s, frames.images[place].copy())  # not all of them stay

    for time_s in dict.fromkeys(times):
        span = {"fps": 1 / _NEAR_S, "min_frames": 0, "start_s": max(0.0, time_s - _NEAR_S), "end_s": time_s + _NEAR_S}
        with suppress(NoVideoError):
            take(decode(path, **options | span))
    if not found.keys() >= set(times):
        for frames in decode_chunks(path, **options):
            take(frames)
    if absent := [time_s for time_s in times if time_s not in found]:
        raise NoVideoError(f"'{os.fspath(path)}' has no frame at {absent[0]:g} s. Was it changed since it was read?")
    return [found[time_s] for time_s in times]


def _options(sampling: SamplingConfig) -> dict[str, Any]:
    chosen = {"fps": sampling.fps, "short_side": sampling.short_side, "min_frames": sampling.at_least}
    return {**chosen, "limits": DecodeLimits(max_frames=MAX_FRAMES)}


def probe(path: StrPath, *, limits: DecodeLimits = DecodeLimits()) -> VideoInfo:  # noqa: B008 - frozen
    """What a file declares about its video; decodes one frame, to find its rotation."""
    with OpenFile(path, Deadline(limits, os.fspath(path))) as file, closing(open_source(file, threads=1)) as source:
        for _, _, frame in source.frames(0.0):
            return replace(source.info, size=source.size(frame), rotation=rotation_of(frame))
        raise explain_no_frame(file, source)
