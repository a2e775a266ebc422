"""Whole clips from video files and back, for edits. To sample frames for matching, use `hapvr.video.decode`."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import BinaryIO

import av
import numpy as np
from av.container import InputContainer
from av.video.stream import VideoStream

from hapvr.errors import DataError, DecodeError, NoVideoError
from hapvr.storage import replace_file
from hapvr.synthetic.clip import Clip, Images
from hapvr.video.sources import open_container

_DEFAULT_RATE = Fraction(25)  # where a file does not say how fast its frames follow each other
_MAX_FPS = 120.0  # frames a second; files with wrong time stamps give rates in the thousands


def read_clip(
    path: str | Path,
    *,
    max_fps: float | None = None,
    max_short_side: int | None = None,
    max_seconds: float | None = None,
) -> Clip:
    """All frames of a video file at its own rate, upright, of square pixels; times count from the first frame.

    A file of varying rate is brought to its mean rate: each frame is the one shown in the middle of its time. A damaged
    file gives what can be read of it. `DecodeError` if nothing can.

    Args:
        path: anything that PyAV opens; a still picture is a clip of one frame.
        max_fps: the highest rate; faster files are thinned out.
        max_short_side: larger frames are scaled down to it while reading.
        max_seconds: where to stop reading.
    """
    try:
        with open_container(os.fspath(path)) as container:
            return _read(container, str(path), max_fps, max_short_side, max_seconds)
    except (av.FFmpegError, OSError) as error:
        raise DecodeError(f"cannot read '{path}' as a video: {error}.") from error


def write_clip(clip: Clip, path: str | Path, *, crf: int = 20, key_s: float | None = None) -> None:
    """Write an mp4 file (H.264, crf 0 to 51: the higher, the smaller and the worse).

    The file appears whole or not at all. Frames of odd height or width gain a row or a column. At least every `key_s`
    seconds there is a key frame, from which a player can start; if None, as seldom as the coder likes.
    """
    with replace_file(path, sync=False) as temporary, open(temporary, "wb") as file:
        _write(clip, file, crf, key_s)


def join_clips(parts: Sequence[str | Path], path: str | Path) -> list[int]:
    """Write files of `write_clip` one after the other into one mp4 file, without coding them again.

    They must be of one size and rate, and written with one crf: `DataError`. The file appears whole or not at all.

    Returns the frame at which each part begins.
    """
    starts: list[int] = []
    frames = 0
    with replace_file(path, sync=False) as temporary, av.open(os.fspath(temporary), "w", format="mp4") as joined:
        stream = None
        for part in parts:
            starts.append(frames)
            with av.open(os.fspath(part)) as container:
                source = container.streams.video[0]
                if stream is None:
                    stream, first = joined.add_stream_from_template(source), _describe_coding(source)
                if _describe_coding(source) != first:
                    raise DataError(f"'{part}' and '{parts[0]}' differ in size, rate or coding and cannot be joined.")
                rate, base = source.average_rate or _DEFAULT_RATE, source.time_base or 1 / _DEFAULT_RATE
                tick = round(1 / (rate * base))  # of one frame
                for packet in container.demux(source):
                    if packet.size:
                        packet.pts = packet.dts = frames * tick
                        packet.stream, packet.duration = stream, tick
                        joined.mux(packet)
                        frames += 1
    return starts


def _describe_coding(stream: VideoStream) -> tuple[object, ...]:
    coder = stream.codec_context
    return coder.name, coder.width, coder.height, stream.average_rate, stream.time_base, coder.extradata


def recompress(clip: Clip, *, crf: int) -> Clip:
    """What is left of a clip after it was encoded and decoded: as many frames, of the same size."""
    file = io.BytesIO()
    _write(clip, file, crf)
    file.seek(0)
    with av.open(file, "r") as container:
        frames = [np.asarray(frame.to_ndarray(format="rgb24"), np.uint8) for frame in container.decode(video=0)]
    height, width = clip.size
    return Clip(np.ascontiguousarray(np.stack(frames)[:, :height, :width]), clip.fps)


def _read(
    container: InputContainer, name: str, max_fps: float | None, max_short_side: int | None, max_seconds: float | None
) -> Clip:
    if not container.streams.video:
        raise NoVideoError(f"'{name}' has no video stream.")
    stream = container.streams.video[0]
    stream.thread_type = "AUTO"
    rate = float(stream.average_rate or stream.guessed_rate or _DEFAULT_RATE)
    fps = min(rate, _MAX_FPS if max_fps is None else max_fps)
    longest = float("inf") if max_seconds is None else max(1, round(max_seconds * fps))
    images: list[Images] = []
    size = None  # some files change theirs on the way: the first one holds
    for frame, end_s in _time_frames(container, stream, rate):
        size = size or _choose_size(frame, stream.sample_aspect_ratio, max_short_side)
        image = None
        # A frame is taken for every tick of the clip whose middle it is shown at; most often that is one.
        while (len(images) + 0.5) / fps < end_s and len(images) < longest:
            image = _turn_upright(frame, size) if image is None else image
            images.append(image)
        if len(images) >= longest:
            break
    if size is not None and not images:
        images.append(_turn_upright(frame, size))  # shorter than half a tick, as a still picture may be
    if not images:
        raise NoVideoError(f"no frame of '{name}' can be decoded.")
    return Clip(np.stack(images), fps)


def _time_frames(container: InputContainer, stream: VideoStream, rate: float) -> Iterator[tuple[av.VideoFrame, float]]:
    """Each frame with the time until which it is shown, in seconds since the first one."""
    last, start, begin_s = None, 0.0, 0.0
    try:
        for frame in container.decode(stream):
            if last is None:
                start = frame.time or 0.0
            else:
                now = begin_s + 1 / rate if frame.time is None else max(frame.time - start, begin_s)
                yield last, now
                begin_s = now
            last = frame
    except av.FFmpegError:
        if last is None:
            raise
    if last is not None:
        yield last, begin_s + 1 / rate


def _choose_size(frame: av.VideoFrame, aspect: Fraction | None, max_short_side: int | None) -> tuple[int, int]:
    """Width and height of the pictures, whose pixels are square as those that a decoder shows."""
    width = frame.width * float(aspect) if aspect and 0.1 <= aspect <= 10 else float(frame.width)
    scale = 1.0 if max_short_side is None else min(1.0, max_short_side / min(width, frame.height))
    return max(1, round(width * scale)), max(1, round(frame.height * scale))


def _turn_upright(frame: av.VideoFrame, size: tuple[int, int]) -> Images:
    image = np.asarray(frame.to_ndarray(format="rgb24", width=size[0], height=size[1]), np.uint8)
    return np.ascontiguousarray(np.rot90(image, round(frame.rotation / 90)))


def _write(clip: Clip, file: BinaryIO, crf: int, key_s: float | None = None) -> None:
    rate = Fraction(clip.fps).limit_denominator(10_000)
    height, width = clip.size
    images = np.pad(clip.images, ((0, 0), (0, height % 2), (0, width % 2), (0, 0)), mode="edge")
    with av.open(file, "w", format="mp4") as container:
        if "libx264" in av.codecs_available:
            # With B-frames and macroblock trees x264 gives other bytes from run to run, whatever it is asked for.
            options = {"crf": str(crf), "preset": "veryfast", "x264-params": "bframes=0:mbtree=0"}
            stream = container.add_stream("libx264", rate=rate, options=options)
        else:
            stream = container.add_stream("mpeg4", rate=rate)
            stream.bit_rate = round(0.2 * height * width * clip.fps * 2 ** ((23 - crf) / 6))
        stream.height, stream.width, stream.pix_fmt = images.shape[1], images.shape[2], "yuv420p"
        if key_s is not None:
            stream.codec_context.gop_size = max(1, round(key_s * clip.fps))
        stream.thread_count = 1  # the number of threads would change the bytes
        stream.codec_context.time_base = 1 / rate
        for index, image in enumerate(images):
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts, frame.time_base = index, 1 / rate
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
