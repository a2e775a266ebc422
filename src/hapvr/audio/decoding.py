"""From a file to its sound: mono, at one rate, in parts with their times in seconds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from hapvr.errors import DecodeError
from hapvr.storage import StrPath
from hapvr.video.limits import Deadline, DecodeLimits, require_memory
from hapvr.video.sources import LIBRARY_ERRORS, OpenFile, open_container

RATE = 8_000
"""Samples a second: all that coders for the web keep of a sound lies below half of it."""
_GAP_S = 0.1  # between two frames: a longer one begins another part
_FAR_S = 1e7  # a time beyond this is a mistake of the file
_MAX_DAMAGED = 10_000  # packets that cannot be decoded, until the rest is given up


@dataclass(frozen=True, eq=False)
class SoundPart:
    """Samples that follow each other without a gap; `start_s` is where they begin, since the first picture."""

    start_s: float
    samples: NDArray[np.float32]  # [S] in [-1, 1], mono
    joined: bool  # whether the part before ends where this one begins


@dataclass
class SoundReading:
    """What is known of a file's sound while it is read; complete when the parts are."""

    has_track: bool = False  # whether the file has a sound track at all
    has_picture: bool = False  # whether it has a video track; the cover of a song is none
    seconds: float = 0.0  # of sound that were decoded
    warnings: list[str] = field(default_factory=list)


def read_sound(
    path: StrPath,
    reading: SoundReading,
    *,
    start_s: float | None = None,
    end_s: float | None = None,
    limits: DecodeLimits = DecodeLimits(),  # noqa: B008 - frozen
) -> Iterator[SoundPart]:
    """The sound of a file, or of its part in [start_s, end_s), a fraction of a second at a time.

    Of several tracks the one that a player would choose is read. A file without a sound track gives nothing. Packets
    that cannot be decoded are left out, with one warning; times go on where the file says so.

    Args:
        path: a video, or a file of sound alone.
        reading: is filled while parts are taken.
        start_s, end_s: seconds since the first picture, or since the first sound of a file without pictures.
        limits: what it may cost; `max_seconds` of wall time in all.

    Raises:
        DecodeError: the file cannot be opened; `DecodeTimeoutError` if it takes too long.
    """
    deadline = Deadline(limits, os.fspath(path))
    with OpenFile(path, deadline) as file:
        place, options = file.address()
        try:
            container = open_container(place, options=options, timeout=deadline.left())
        except LIBRARY_ERRORS as error:
            deadline.check()
            require_memory(error, file.path)
            reason = getattr(error, "strerror", None) or str(error)
            raise DecodeError(f"'{file.path}' cannot be decoded: {reason}. It is damaged, or no sound.") from error
        with container:
            yield from _cut(_read_parts(container, reading, deadline), start_s or 0.0, end_s)


def has_only_sound(path: StrPath) -> bool:
    """Whether a file has a sound track and no pictures but a cover; False for what cannot be opened."""
    reading = SoundReading()
    try:
        for _ in read_sound(path, reading, end_s=0.5):
            break
    except DecodeError:
        return False
    return reading.has_track and not reading.has_picture


def _read_parts(container: Any, reading: SoundReading, deadline: Deadline) -> Iterator[SoundPart]:
    pictures = [one for one in container.streams.video if not _is_cover(one)]
    reading.has_picture = bool(pictures)
    stream = container.streams.best("audio")
    if stream is None:
        return
    reading.has_track = True
    zero_s = _find_start(pictures[0]) if pictures else None
    next_s: float | None = None  # where the next frame is expected
    damaged = 0
    resampler = _Resampler()
    for frames in _decode(container, stream, deadline):
        if frames is None:
            damaged += 1
            if damaged > _MAX_DAMAGED:
                break
            continue
        for frame in frames:
            time_s = frame.time
            if time_s is None or not abs(time_s) < _FAR_S or not frame.sample_rate:
                time_s = next_s if next_s is not None else 0.0
            zero_s = time_s if zero_s is None else zero_s
            joined = next_s is not None and abs(time_s - next_s) < _GAP_S
            begin_s = next_s if joined and next_s is not None else time_s
            next_s = begin_s + (frame.samples / frame.sample_rate if frame.sample_rate else 0.0)
            try:
                samples = resampler.resample(frame, joined)
            except LIBRARY_ERRORS as error:
                require_memory(error, deadline.path)
                damaged += 1
                continue
            reading.seconds += len(samples) / RATE
            if len(samples):
                yield SoundPart(begin_s - zero_s, samples, joined)
    if damaged:
        reading.warnings.append(f"{damaged:,} parts of the sound cannot be decoded: left out.")


def _decode(container: Any, stream: Any, deadline: Deadline) -> Iterator[list[Any] | None]:
    """The frames of each packet; None for a packet that cannot be decoded."""
    packets = container.demux(stream)
    while True:
        deadline.check()
        try:
            packet = next(packets)
        except StopIteration:
            return
        except LIBRARY_ERRORS as error:
            deadline.check()
            require_memory(error, deadline.path)
            yield None
            return  # the rest of the file cannot be reached
        try:
            yield packet.decode()
        except LIBRARY_ERRORS as error:
            require_memory(error, deadline.path)
            yield None


class _Resampler:
    """Frames of any format to mono at `RATE`."""

    def __init__(self) -> None:
        self._resampler: av.AudioResampler | None = None
        self._kind: tuple[object, ...] | None = None

    def resample(self, frame: Any, joined: bool) -> NDArray[np.float32]:
        """The samples that are ready; a few may come with the next frame."""
        kind = frame.format.name, frame.layout.name, frame.sample_rate
        if self._resampler is None or kind != self._kind or not joined:
            self._resampler, self._kind = av.AudioResampler(format="flt", layout="mono", rate=RATE), kind
        frame.pts = None  # gaps are seen to by the caller
        made = [np.asarray(one.to_ndarray(), np.float32).reshape(-1) for one in self._resampler.resample(frame)]
        samples = np.concatenate(made) if made else np.zeros(0, np.float32)
        return np.nan_to_num(samples, copy=False, nan=0.0, posinf=0.0, neginf=0.0)


def _cut(parts: Iterator[SoundPart], start_s: float, end_s: float | None) -> Iterator[SoundPart]:
    """What lies in [start_s, end_s); the times stay those of the whole file."""
    for part in parts:
        first = max(0, round((start_s - part.start_s) * RATE)) if start_s > 0 else 0
        last = len(part.samples) if end_s is None else max(0, round((end_s - part.start_s) * RATE))
        if end_s is not None and part.start_s >= end_s:
            return
        if (samples := part.samples[first:last]).size:
            yield SoundPart(part.start_s + first / RATE, samples, part.joined and first == 0)


def _is_cover(stream: Any) -> bool:
    """Whether a video track is the picture of a song's cover."""
    return bool(stream.disposition & av.stream.Disposition.attached_pic)


def _find_start(stream: Any) -> float | None:
    """Where the pictures begin in the times of the file; None where it does not say."""
    if stream.start_time is None or stream.time_base is None:
        return None
    return float(stream.start_time * stream.time_base)
