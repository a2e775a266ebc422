"""From a video file to frames: sampled, resized, upright, without bars, with their times in seconds.

A file is read in one pass, and again only if the pass showed that it was planned wrongly: the declared duration was
missing or false and too few frames were taken, there are bars to cut, or skipping frames cost too much precision.
No frame is held at full size but the one at hand and the one before it. `decode_chunks` reads a video of any length in
bounded memory: it is planned by its beginning and then decoded once, straight on.
"""

from __future__ import annotations

import copy
import math
import os
from array import array
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hapvr.errors import ConfigError, NoVideoError
from hapvr.records import Box, Frames, Size, VideoInfo
from hapvr.video.ffmpeg import FFmpegSource, rotation_of
from hapvr.video.limits import CHUNK_FRAMES, MAX_FRAMES, Deadline, DecodeLimits
from hapvr.video.quality import BarFinder, LowInformation, luma_of
from hapvr.video.sampling import Instants, SamplingConfig, Times, rate_for
from hapvr.video.sources import OpenFile, Source
from hapvr.video.webp import WebPSource, is_webp

_MOST_PASSES = 4
_LEAST_PLANNED = 64  # frames by which a long video is planned: fewer may be all dark, and show no bars
_WIDEST = 8  # a frame wider than this, relative to its short side, is squeezed: it would be all memory and no picture
# Frames that no other frame needs are skipped where the video has at least this many for each one that is taken, and
# taken back if a frame then lies further than this part of a step from the one that was wanted.
_SKIP_FROM, _SKIP_ERROR = 8, 1 / 4
_NEAR_S = 0.001  # frames closer than this are one instant to `decode_at`
_MISSING_S = 0.25  # less than this missing at the end of a video is a matter of rounding
_MISSING_BESIDE_SOUND_S = 1.0  # and this, where the declared duration may be that of the sound


def decode(
    path: str | os.PathLike[str],
    *,
    fps: float = 1.0,
    short_side: int = 256,
    at_least: int = 28,
    crop_bars: bool | Box = True,
    start_s: float | None = None,
    end_s: float | None = None,
    threads: int = 0,
    limits: DecodeLimits = DecodeLimits(),  # noqa: B008 - frozen
) -> Frames:
    """Read the frames of a video, an animated GIF or WebP, or a picture.

    For each instant k / fps the frame nearest in presentation time is taken, each frame once; `timestamps` are the
    frames' own, exact times. A video too short to give `at_least` frames at this rate is sampled faster until it
    does, or until all its frames are taken. Frames are turned upright, brought to square pixels and resized with
    FFmpeg's bilinear filter, which averages over the source pixels that fall on one pixel.

    A file that is cut off or damaged gives the frames that can be read, and `warnings` that say how much is missing.

    Decoding happens in this process and gives up between packets when time is up. A decoder that hangs within one
    packet, or crashes, takes this process with it: read files from strangers with `decode_isolated`.

    Args:
        path: a file. Which kind it is, is told from its content.
        fps: frames to take for each second.
        short_side: pixels of the shorter side of the result. Frames wider than 8:1 are squeezed to that.
        at_least: frames to take of a short video, where it has them; 0 to keep to `fps`.
        crop_bars: whether to cut off black bars, the same box in every frame; see `hapvr.video.quality.BarFinder`. Or
            the box to cut out, as `Frames.crop` gives it: for the later parts of a video that is read in parts.
        start_s, end_s: take the instants in [start_s, end_s) only; seconds since the first frame.
        threads: of the decoder; 0 means one a core. In worker processes, 1 costs least.
        limits: what it may cost.

    Raises:
        DecodeError: no frame can be read; `NoVideoError`, `DecodeLimitError`, `DecodeTimeoutError` say why.
        ConfigError: a setting is out of range.
    """
    wish = _Wish(fps, short_side, at_least, crop_bars, start_s or 0.0, math.inf if end_s is None else end_s, threads)
    with (
        OpenFile(path, Deadline(limits, os.fspath(path))) as file,
        closing(_planned(file, wish, most=limits.frames + 1)) as reading,
    ):
        return _record(reading, len(reading.taken.images))


def decode_chunks(
    path: str | os.PathLike[str],
    *,
    chunk: int = CHUNK_FRAMES,
    fps: float = 1.0,
    short_side: int = 256,
    at_least: int = 28,
    crop_bars: bool | Box = True,
    start_s: float | None = None,
    end_s: float | None = None,
    threads: int = 0,
    limits: DecodeLimits = DecodeLimits(),  # noqa: B008 - frozen
) -> Iterator[Frames]:
    """The frames that `decode` gives, `chunk` at a time (the last may be shorter), in memory that does not grow.

    The first chunk is read as `decode` reads a video, again if it was planned wrongly; from there the video is decoded
    straight on, once, whatever duration it declares, so that chunks join without a gap. Bars are found in the first
    chunk (64 frames at least) and cut alike in all.

    What is known at the end only, is said by the last chunk: the warnings, and `duration_s` of a file that declares
    none (before that, it is as much as has been read). `limits.frames` counts all chunks, `limits.seconds` is the time
    for each; while the caller has a chunk, the clock stands still.
    """
    if chunk < 1:
        raise ConfigError(f"chunk must be at least 1 frame, got {chunk}.")
    wish = _Wish(fps, short_side, at_least, crop_bars, start_s or 0.0, math.inf if end_s is None else end_s, threads)
    deadline = Deadline(limits, os.fspath(path))
    with OpenFile(path, deadline) as file:
        # One frame more than is given out: whether a chunk is the last must be known when it goes.
        reading = _planned(file, wish, most=max(chunk, 2 * at_least, _LEAST_PLANNED) + 1)
        try:
            while True:
                ready = reading.taken.images
                while len(ready) > chunk:
                    yield _record(reading, chunk)
                if reading.over:
                    yield _record(reading, len(ready))
                    return
                deadline.restart()
                reading = _continued(file, wish, reading, most=chunk + 1)
        finally:
            reading.close()


def decode_sampled(
    path: str | os.PathLike[str],
    sampling: SamplingConfig,
    *,
    start_s: float | None = None,
    end_s: float | None = None,
    threads: int = 0,
) -> Iterator[Frames]:
    """The frames that describe a video, or the part of it in [start_s, end_s), as `decode_chunks` gives them."""
    return decode_chunks(path, **_options(sampling), start_s=start_s, end_s=end_s, threads=threads)


def decode_at(
    path: str | os.PathLike[str], times: Sequence[float], sampling: SamplingConfig, *, crop: Box | None = None
) -> list[NDArray[np.uint8]]:
    """The pictures [H, W, 3] that `decode_sampled` gave at these times, read again by seeking in the file.

    A file whose times depend on what was read before (it holds none, or they go backwards) is read from the start.

    Args:
        path: the file.
        times: as in `Frames.timestamps`; in any order.
        sampling: as it was then.
        crop: as `Frames.crop` gave it.

    Raises:
        DecodeError: as `decode`; `NoVideoError` too where there is no frame at one of the times.
    """
    options = _options(sampling) | {"crop_bars": False if crop is None else crop}
    found: dict[float, NDArray[np.uint8]] = {}

    def take(frames: Frames) -> None:
        for time_s in times:
            place = int(np.abs(frames.timestamps - time_s).argmin())
            if abs(frames.timestamps[place] - time_s) < _NEAR_S / 2:
                found.setdefault(time_s, frames.images[place].copy())  # not all of them stay

    for time_s in dict.fromkeys(times):
        span = {"fps": 1 / _NEAR_S, "at_least": 0, "start_s": max(0.0, time_s - _NEAR_S), "end_s": time_s + _NEAR_S}
        with suppress(NoVideoError):
            take(decode(path, **options | span))
    if not found.keys() >= set(times):
        for frames in decode_chunks(path, **options):
            take(frames)
    if absent := [time_s for time_s in times if time_s not in found]:
        raise NoVideoError(f"'{os.fspath(path)}' has no frame at {absent[0]:g} s. Was it changed since it was read?")
    return [found[time_s] for time_s in times]


def _options(sampling: SamplingConfig) -> dict[str, Any]:
    limits = DecodeLimits(frames=MAX_FRAMES)
    chosen = {"fps": sampling.fps, "short_side": sampling.short_side, "at_least": sampling.at_least}
    return {**chosen, "limits": limits}


def probe(path: str | os.PathLike[str], *, limits: DecodeLimits = DecodeLimits()) -> VideoInfo:  # noqa: B008 - frozen
    """What a file declares about its video; decodes one frame, which tells how it is turned.

    Raises `DecodeError` as `decode` does.
    """
    with OpenFile(path, Deadline(limits, os.fspath(path))) as file, closing(_source(file, threads=1)) as source:
        for _, _, frame in source.frames(0.0):
            return replace(source.info, size=source.size(frame), rotation=rotation_of(frame))
        raise _nothing(file, source)


@dataclass(frozen=True)
class _Wish:
    """What the caller asked for."""

    fps: float
    short_side: int
    at_least: int
    crop_bars: bool | Box
    start_s: float
    end_s: float
    threads: int

    def __post_init__(self) -> None:
        if not 0 < self.fps < math.inf:
            raise ConfigError(f"fps must be a positive number of frames per second, got {self.fps}.")
        if self.short_side < 16:
            raise ConfigError(f"short_side must be at least 16 pixels, got {self.short_side}.")
        if self.at_least < 0 or self.threads < 0:
            raise ConfigError(f"at_least and threads must not be negative, got {self.at_least} and {self.threads}.")
        if not 0 <= self.start_s < self.end_s:
            raise ConfigError(f"start_s must be at least 0 and before end_s, got {self.start_s} and {self.end_s}.")

    def within(self, duration_s: float) -> float:
        """How many seconds of a video of this duration were asked for."""
        return max(min(self.end_s, duration_s) - self.start_s, 0.0)


@dataclass(frozen=True)
class _Plan:
    """How one pass reads the file."""

    rate: float
    skip: bool
    seek: bool
    box: Box | None = None


@dataclass
class _Taken:
    """What one pass found."""

    images: list[NDArray[np.uint8]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    low_information: list[bool] = field(default_factory=list)
    decoded: array[float] = field(default_factory=lambda: array("d"))  # times of all frames decoded
    source_size: Size = (0, 0)  # until the first frame
    box: Box | None = None  # the picture without its bars
    coded: Times = field(default_factory=lambda: np.zeros(0))  # times of all frames, decoded or not
    end_s: float = 0.0  # when the last frame ends
    full: bool = False  # stopped: as many frames as the limits allow
    outgrown: bool = False  # stopped: far more frames than a short video can give
    to_the_end: bool = False
    paused_s: float = math.inf  # paused: enough frames for now, the last of them at this time
    info: VideoInfo | None = None
    declares_video: bool = True
    still: bool = False
    warnings: list[str] = field(default_factory=list)

    def source_times(self) -> Times:
        """Times of all frames of the source as far as it was read, sorted."""
        return self.coded if len(self.coded) >= len(self.decoded) else np.array(self.decoded)


def _source(file: OpenFile, threads: int) -> Source:
    """A new reading of the file; which decoder reads it is told by its first bytes, not by its name."""
    file.deadline.check()
    return WebPSource(file) if is_webp(file.head()) else FFmpegSource(file, threads)


def _first_plan(wish: _Wish, info: VideoInfo) -> _Plan:
    """Trusts the declared duration; without one, takes the video to be long."""
    rate = wish.fps
    if info.duration_s is not None and (asked := wish.within(info.duration_s)) > 0:
        rate = max(rate, wish.at_least / asked)
    box = None if isinstance(wish.crop_bars, bool) else wish.crop_bars
    return _Plan(rate, skip=_may_skip(info, rate), seek=wish.start_s > 0, box=box)


def _may_skip(info: VideoInfo, rate: float) -> bool:
    return info.fps is not None and info.fps >= _SKIP_FROM * rate


class _Reading:
    """One pass over the file, which may be paused and gone on with. Frames after `after_s` only."""

    def __init__(
        self, file: OpenFile, wish: _Wish, plan: _Plan | None, *, after_s: float = -math.inf, given: int = 0
    ) -> None:
        self.file, self.wish, self.given = file, wish, given
        self.source = source = _source(file, wish.threads)
        self.plan = plan = plan or _first_plan(wish, source.info)
        if plan.skip:
            source.skip_unneeded()
        self.taken = taken = _Taken(info=source.info, declares_video=source.declares_video, still=source.still)
        self.over = False  # nothing will follow
        self.flat = True  # so far
        self.seen, self._bars = LowInformation(), BarFinder()
        self._after_s = after_s
        shown = _watched(source.frames(wish.start_s if plan.seek else 0.0), taken, wish)
        self._chosen = Instants(plan.rate, wish.start_s, wish.end_s).nearest(shown)

    def fill(self, most: int) -> None:
        """Take frames until there are so many, or no more; then say what is known."""
        taken, wish = self.taken, self.wish
        self.over = True
        taken.paused_s = math.inf
        for time_s, frame in self._chosen:
            if time_s <= self._after_s:
                continue
            if self.given + len(taken.images) == self.file.deadline.limits.frames:
                taken.full = True
                break
            if self.plan.rate > wish.fps and self.given + len(taken.images) >= max(2 * wish.at_least, 64):
                taken.outgrown = True
                break
            self._take(time_s, frame)
            if len(taken.images) >= most and not taken.full:
                self.over = False
                taken.paused_s = time_s
                break
        if not taken.decoded:
            raise _nothing(self.file, self.source)
        if self.over or self.plan.skip:
            taken.coded = self.source.coded_times()
        taken.warnings = self.source.warnings
        if not taken.images and not self.given:
            until = "its end" if math.isinf(wish.end_s) else f"{wish.end_s:g} s"
            raise NoVideoError(
                f"'{self.file.path}' has no frame between {wish.start_s:g} s and {until}; it ends at {taken.end_s:g} s."
            )
        taken.box = self._bars.box(taken.source_size)

    def _take(self, time_s: float, frame: object) -> None:
        taken, box = self.taken, self.plan.box
        if taken.source_size == (0, 0):
            taken.source_size = self.source.size(frame)
            _require_inside(box, taken.source_size)
        image = _picture(self.source, frame, taken.source_size, box, self.wish.short_side)
        taken.images.append(image)
        taken.times.append(time_s)
        luma = luma_of(image)
        lacking = self.seen.lacking(luma)
        taken.low_information.append(lacking is not None)
        self.flat = self.flat and lacking is not None
        if self.wish.crop_bars and box is None and lacking is None and not self.given:
            self._bars.add(luma)

    def close(self) -> None:
        """Let go of the decoder."""
        self.source.close()


def _planned(file: OpenFile, wish: _Wish, *, most: int) -> _Reading:
    """A reading that has taken up to `most` frames by a plan that fits them."""
    plan: _Plan | None = None
    passes = 0
    while True:
        reading = _Reading(file, wish, plan)
        try:
            reading.fill(most)
            plan = _better(reading.plan, reading.taken, wish)
        except BaseException:
            reading.close()
            raise
        passes += 1
        # A video that has outgrown its plan is always read again, at the rate that was asked for.
        if plan == reading.plan or (passes >= _MOST_PASSES and not reading.taken.outgrown):
            return reading
        reading.close()


def _continued(file: OpenFile, wish: _Wish, reading: _Reading, *, most: int) -> _Reading:
    """The reading with more frames; begun anew from here if skipping frames, right so far, now costs too much."""
    taken, there = reading.taken, len(reading.taken.images)
    seen, last_s = copy.copy(reading.seen), taken.times[-1]
    reading.fill(most)
    if not reading.plan.skip or not _strayed(reading, last_s):
        return reading
    reading.close()
    next_s = (math.floor(last_s * reading.plan.rate + 0.5) + 1) / reading.plan.rate
    for seek in (True, False):
        anew = _Reading(
            file,
            replace(wish, start_s=next_s),
            replace(reading.plan, skip=False, seek=seek),
            after_s=last_s,
            given=reading.given + there,
        )
        try:
            anew.seen, anew.flat = copy.copy(seen), reading.flat
            anew.taken.source_size = taken.source_size
            anew.fill(most - there)
        except BaseException:
            anew.close()
            raise
        if not seek or anew.taken.decoded[0] <= next_s:
            break
        anew.close()
    anew.given = reading.given
    for name in ("images", "times", "low_information"):
        setattr(anew.taken, name, getattr(taken, name)[:there] + getattr(anew.taken, name))
    return anew


def _strayed(reading: _Reading, since_s: float) -> bool:
    """Whether frames taken after this time lie too far from those that were wanted."""
    taken = reading.taken
    if len(taken.coded) < len(taken.decoded):
        return True
    until_s = taken.times[-1]
    times = taken.coded[(taken.coded >= since_s) & (taken.coded <= until_s)]
    return _skipped_too_much(Instants(reading.plan.rate, since_s, until_s), taken, times)


def _watched(
    frames: Iterator[tuple[float, float, object]], taken: _Taken, wish: _Wish
) -> Iterator[tuple[float, float, object]]:
    """The same frames until one lies past what was asked for; notes their times on the way."""
    for time_s, shown_s, frame in frames:
        taken.decoded.append(time_s)
        taken.end_s = time_s + shown_s
        yield time_s, shown_s, frame
        if time_s >= wish.end_s:
            return
    taken.to_the_end = True


def _require_inside(box: Box | None, size: Size) -> None:
    left, top, right, bottom = box or (0, 0, *size)
    if not (0 <= left < right <= size[0] and 0 <= top < bottom <= size[1]):
        raise ConfigError(f"crop_bars={box} does not lie within frames of {size[0]}x{size[1]} pixels.")


def _picture(source: Source, frame: object, size: Size, box: Box | None, short_side: int) -> NDArray[np.uint8]:
    """The part of a frame within the box, its short side resized to `short_side`."""
    left, top, right, bottom = box or (0, 0, *size)
    sides = (right - left, bottom - top)
    width, height = (min(round(side * short_side / min(sides)), _WIDEST * short_side) for side in sides)
    across, down = width / sides[0], height / sides[1]
    # Cutting after resizing needs no copy of the frame at full size.
    whole = max(round(size[0] * across), width), max(round(size[1] * down), height)
    x, y = min(round(left * across), whole[0] - width), min(round(top * down), whole[1] - height)
    image = source.render(frame, whole)[y : y + height, x : x + width]
    return image if box is None else image.copy()


def _better(plan: _Plan, taken: _Taken, wish: _Wish) -> _Plan:
    """The plan for the next pass, now that the file is known better; the same plan if this pass was right."""
    if taken.outgrown:
        return replace(plan, rate=wish.fps, skip=False)
    if plan.seek and taken.decoded[0] > wish.start_s:
        return replace(plan, seek=False)
    if plan.skip and len(taken.coded) < len(taken.decoded):
        return replace(plan, skip=False)  # frames without times are counted, so none may be skipped
    times = taken.source_times()
    times = times[(times >= wish.start_s) & (times < wish.end_s) & (times <= taken.paused_s)]
    rate, skip = plan.rate, plan.skip
    if not taken.full and len(taken.images) < min(wish.at_least, len(times)) and not math.isinf(rate):
        asked = wish.within(taken.end_s if taken.to_the_end else wish.end_s)
        rate = max(rate, rate_for(times, duration_s=asked, fps=wish.fps, at_least=wish.at_least))
    if skip and (rate != plan.rate or _skipped_too_much(Instants(plan.rate), taken, times)):
        skip = False
    return replace(plan, rate=rate, skip=skip, box=plan.box or taken.box)


def _skipped_too_much(instants: Instants, taken: _Taken, times: Times) -> bool:
    """Whether a frame that was wanted lies too far from every frame that was decoded."""
    gaps = zip(times.tolist(), np.append(np.diff(times), 0.0).tolist(), times.tolist(), strict=True)
    wanted = np.array([time_s for time_s, _ in instants.nearest(gaps)])
    decoded = np.array(taken.decoded)
    after = np.searchsorted(decoded, wanted).clip(1, max(len(decoded) - 1, 1))
    near = np.abs(wanted - decoded[after - 1])
    if len(decoded) > 1:
        near = np.minimum(near, np.abs(wanted - decoded[after]))
    return bool(len(near) and near.max() > _SKIP_ERROR / instants.rate)


def _record(reading: _Reading, count: int) -> Frames:
    """The first `count` frames of a reading, which lets go of them; what was wrong with the file, with the last."""
    taken, wish, info = reading.taken, reading.wish, reading.taken.info
    last = reading.over and count == len(taken.images)
    declared = None if info is None else info.duration_s
    duration = taken.end_s if taken.to_the_end or declared is None else declared
    images = np.empty((count, *taken.images[0].shape), np.uint8)
    for index in range(count):
        images[index] = taken.images[index]
        taken.images[index] = taken.images[index][:0].copy()  # let go of it: two copies of a long video are too many
    frames = Frames(
        images,
        np.array(taken.times[:count]),
        np.array(taken.low_information[:count]),
        duration_s=None if taken.still and len(taken.decoded) == 1 else duration,
        fps=min(reading.plan.rate, _native_fps(taken, wish)),
        source_size=taken.source_size,
        crop=reading.plan.box,
        warnings=tuple(_warnings(reading)) if last else (),
    )
    reading.given += count
    del taken.images[:count], taken.times[:count], taken.low_information[:count]
    return frames


def _warnings(reading: _Reading) -> list[str]:
    taken = reading.taken
    warnings = list(taken.warnings)
    declared = None if taken.info is None else taken.info.duration_s
    missing = 0.0 if declared is None else declared - taken.end_s
    if taken.full:
        warnings.append(
            f"Stopped at {reading.given + len(taken.images)} frames, {taken.times[-1]:.2f} s, as DecodeLimits.frames "
            "says" + (f"; {missing:.2f} s of {declared:.2f} s are left out." if declared is not None else ".")
        )
    elif declared is not None and taken.to_the_end and missing > _tolerance(taken):
        warnings.append(
            f"The file holds {taken.end_s:.2f} s of the {declared:.2f} s it declares: {missing:.2f} s "
            f"({missing / declared:.0%}) are missing at the end."
        )
    if reading.flat:
        warnings.append("Every frame is flat (black or of one colour).")
    width, height = taken.source_size
    if max(width, height) > _WIDEST * min(width, height):
        warnings.append(f"Frames of {width}x{height} were squeezed to {_WIDEST}:1.")
    return warnings


def _native_fps(taken: _Taken, wish: _Wish) -> float:
    """Frames per second of the source, as met; of a single frame, the rate asked for."""
    times = taken.source_times()
    return float((len(times) - 1) / max(times[-1] - times[0], 1e-3)) if len(times) > 1 else wish.fps


def _tolerance(taken: _Taken) -> float:
    """Seconds at the end that may be missing without a warning."""
    frame_s = 1 / taken.info.fps if taken.info is not None and taken.info.fps else 0.0
    return max(_MISSING_S if taken.declares_video else _MISSING_BESIDE_SOUND_S, 1.5 * frame_s)


def _nothing(file: OpenFile, source: Source) -> NoVideoError:
    reasons = f" {' '.join(source.warnings)}" if source.warnings else ""
    return NoVideoError(
        f"'{file.path}' ({source.info.container}, {source.info.codec}) has no frame that can be decoded.{reasons} It "
        "is damaged or cut off: copy or download it again."
    )
