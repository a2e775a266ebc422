"""From a video file to frames: sampled, resized, upright, without bars, with their times in seconds.

A file is read in one pass, and again only if the pass showed that it was planned wrongly: the declared duration was
missing or false and too few frames were taken, there are bars to cut, or skipping frames cost too much precision.
No frame is held at full size but the one at hand and the one before it. `decode_chunks` reads a video of any length in
bounded memory: it is planned by its beginning and then decoded once, straight on.
"""

from __future__ import annotations

import copy
import itertools
import math
import os
from array import array
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hapvr.errors import ConfigError, NoVideoError
from hapvr.records import Box, Frames, Size, VideoInfo
from hapvr.storage import StrPath
from hapvr.video.ffmpeg import FFmpegSource, rotation_of
from hapvr.video.limits import CHUNK_FRAMES, MAX_FRAMES, Deadline, DecodeLimits
from hapvr.video.quality import BarFinder, LowInformation, luma_of
from hapvr.video.sampling import Instants, SamplingConfig, Times, compute_rate
from hapvr.video.sources import OpenFile, Source
from hapvr.video.webp import WebPSource, is_webp

_MAX_PASSES = 4
_MIN_PLANNED = 64  # frames by which a long video is planned: fewer may be all dark, and show no bars
_MAX_RATIO = (
    8  # a frame wider than this, relative to its short side, is squeezed: it would be all memory and no picture
)
# Frames that no other frame needs are skipped where the video has at least this many for each one that is taken, and
# taken back if a frame then lies further than this part of a step from the one that was wanted.
_SKIP_FROM, _SKIP_ERROR = 8, 1 / 4
_NEAR_S = 0.001  # frames closer than this are one instant to `decode_at`
_MISSING_S = 0.25  # less than this missing at the end of a video is a matter of rounding
_MISSING_BESIDE_SOUND_S = 1.0  # and this, where the declared duration may be that of the sound


def decode(
    path: StrPath,
    *,
    fps: float = 1.0,
    short_side: int = 256,
    min_frames: int = 28,
    crop_bars: bool | Box = True,
    start_s: float | None = None,
    end_s: float | None = None,
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
    packet, or crashes, takes this process with it: read files from strangers with `decode_isolated`.

    Args:
        path: a file of any kind; its content says which.
        fps: frames to take for each second.
        short_side: pixels of the shorter side of the result. Frames wider than 8:1 are squeezed to that.
        min_frames: frames to take of a short video, where it has them; 0 to keep to `fps`.
        crop_bars: whether to cut off black bars, the same box in every frame; see `hapvr.video.quality.BarFinder`. Or
            the box to cut out, as `Frames.crop` gives it: for the later parts of a video that is read in parts.
        start_s, end_s: take the instants in [start_s, end_s) only; seconds since the first frame.
        threads: of the decoder; 0 means one a core. In worker processes, 1 costs least.
        limits: what it may cost.

    Raises:
        DecodeError: no frame can be read; `NoVideoError`, `DecodeLimitError`, `DecodeTimeoutError` say why.
        ConfigError: a setting is out of range.
    """
    (frames,) = decode_chunks(
        path, chunk=limits.max_frames, fps=fps, short_side=short_side, min_frames=min_frames, crop_bars=crop_bars,
        start_s=start_s, end_s=end_s, threads=threads, limits=limits,
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
    wish = _Wish(fps, short_side, min_frames, crop_bars, start_s or 0.0, math.inf if end_s is None else end_s, threads)
    deadline = Deadline(limits, os.fspath(path))
    with OpenFile(path, deadline) as file:
        # One frame more than is given out: whether a chunk is the last must be known when it goes.
        reading = _read_by_plan(file, wish, most=max(chunk, 2 * min_frames, _MIN_PLANNED) + 1)
        try:
            while True:
                while len(reading.images) > chunk:
                    yield reading.give(chunk)
                if reading.over:
                    yield reading.give(len(reading.images))
                    return
                deadline.restart()
                reading = _read_on(reading, most=chunk + 1)
        finally:
            reading.source.close()


def decode_sampled(
    path: StrPath,
    sampling: SamplingConfig,
    *,
    start_s: float | None = None,
    end_s: float | None = None,
    threads: int = 0,
) -> Iterator[Frames]:
    """The frames that describe a video, or the part of it in [start_s, end_s), as `decode_chunks` gives them."""
    return decode_chunks(path, **_options(sampling), start_s=start_s, end_s=end_s, threads=threads)


def find_seek_distances(
    path: StrPath,
    times: Sequence[float],
    *,
    limits: DecodeLimits = DecodeLimits(),  # noqa: B008 - frozen
) -> list[float | None]:
    """Seconds of video that must be decoded before each time is reached: from the key frame before it.

    Nothing is decoded: the file's index says where key frames are; None where it does not.
    """
    with OpenFile(path, Deadline(limits, os.fspath(path))) as file, closing(_open_source(file, threads=1)) as source:
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
    with OpenFile(path, Deadline(limits, os.fspath(path))) as file, closing(_open_source(file, threads=1)) as source:
        for _, _, frame in source.frames(0.0):
            return replace(source.info, size=source.size(frame), rotation=rotation_of(frame))
        raise _no_frame(file, source)


@dataclass(frozen=True)
class _Wish:
    """What the caller asked for."""

    fps: float
    short_side: int
    min_frames: int
    crop_bars: bool | Box
    start_s: float
    end_s: float
    threads: int

    def __post_init__(self) -> None:
        if not 0 < self.fps < math.inf:
            raise ConfigError(f"fps must be a positive number of frames per second, got {self.fps}.")
        if self.short_side < 16:
            raise ConfigError(f"short_side must be at least 16 pixels, got {self.short_side}.")
        if self.min_frames < 0 or self.threads < 0:
            raise ConfigError(f"min_frames and threads must not be negative, got {self.min_frames} and {self.threads}.")
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


def _open_source(file: OpenFile, threads: int) -> Source:
    """A new reading of the file, by the decoder that its first bytes ask for, whatever its name is."""
    file.deadline.check()
    return WebPSource(file) if is_webp(file.head()) else FFmpegSource(file, threads)


def _first_plan(wish: _Wish, info: VideoInfo) -> _Plan:
    """Trusts the declared duration; without one, takes the video to be long."""
    rate = wish.fps
    if info.duration_s is not None and (asked := wish.within(info.duration_s)) > 0:
        rate = max(rate, wish.min_frames / asked)
    box = None if isinstance(wish.crop_bars, bool) else wish.crop_bars
    return _Plan(rate, skip=info.fps is not None and info.fps >= _SKIP_FROM * rate, seek=wish.start_s > 0, box=box)


class _Reading:
    """One pass over the file, which may be paused and continued, and what it found. Frames after `after_s` only."""

    def __init__(
        self, file: OpenFile, wish: _Wish, plan: _Plan | None, *, after_s: float = -math.inf, given: int = 0
    ) -> None:
        self.file, self.wish, self.given, self._after_s = file, wish, given, after_s
        self.source = source = _open_source(file, wish.threads)
        self.plan = plan = plan or _first_plan(wish, source.info)
        if plan.skip:
            source.skip_unneeded()
        self.images: list[NDArray[np.uint8]] = []  # of frames taken and not given out yet, as the next two
        self.times: list[float] = []
        self.low_information: list[bool] = []
        self.decoded: array[float] = array("d")  # times of all frames decoded
        self.coded: Times = np.zeros(0)  # times of all frames, decoded or not
        self.source_size: Size = (0, 0)  # until the first frame
        self.end_s = 0.0  # when the last frame ends
        self.paused_s = math.inf  # paused: enough frames for now, the last of them at this time
        self.over = False  # nothing will follow
        self.to_the_end = False
        self.full = False  # stopped: as many frames as the limits allow
        self.outgrown = False  # stopped: far more frames than a short video can give
        self.flat = True  # every frame so far
        self.seen, self._bars = LowInformation(), BarFinder()
        shown = self._watch(source.frames(wish.start_s if plan.seek else 0.0))
        self._chosen = Instants(plan.rate, wish.start_s, wish.end_s).nearest(shown)

    def _watch(self, frames: Iterator[tuple[float, float, object]]) -> Iterator[tuple[float, float, object]]:
        """The same frames until one lies past what was asked for; notes their times on the way."""
        for time_s, shown_s, frame in frames:
            self.decoded.append(time_s)
            self.end_s = time_s + shown_s
            yield time_s, shown_s, frame
            if time_s >= self.wish.end_s:
                return
        self.to_the_end = True

    def fill(self, most: int) -> None:
        """Take frames until there are `most` of them, or no more."""
        wish = self.wish
        self.over, self.paused_s = True, math.inf
        for time_s, frame in self._chosen:
            if time_s <= self._after_s:
                continue
            count = self.given + len(self.images)
            self.full = count == self.file.deadline.limits.max_frames
            self.outgrown = not self.full and self.plan.rate > wish.fps and count >= max(2 * wish.min_frames, 64)
            if self.full or self.outgrown:
                break
            self._take(time_s, frame)
            if len(self.images) >= most:
                self.over, self.paused_s = False, time_s
                break
        if not self.decoded:
            raise _no_frame(self.file, self.source)
        if self.over or self.plan.skip:
            self.coded = self.source.coded_times()
        if not self.images and not self.given:
            until = "its end" if math.isinf(wish.end_s) else f"{wish.end_s:g} s"
            raise NoVideoError(
                f"'{self.file.path}' has no frame between {wish.start_s:g} s and {until}; it ends at {self.end_s:g} s."
            )

    def _take(self, time_s: float, frame: object) -> None:
        box = self.plan.box
        if self.source_size == (0, 0):
            self.source_size = width, height = self.source.size(frame)
            left, top, right, bottom = box or (0, 0, width, height)
            if not (0 <= left < right <= width and 0 <= top < bottom <= height):
                raise ConfigError(f"crop_bars={box} does not lie within frames of {width}x{height} pixels.")
        image = _render(self.source, frame, self.source_size, box, self.wish.short_side)
        luma = luma_of(image)
        says_little = self.seen.classify(luma) is not None
        self.images.append(image)
        self.times.append(time_s)
        self.low_information.append(says_little)
        self.flat = self.flat and says_little
        if self.wish.crop_bars and box is None and not says_little and not self.given:
            self._bars.add(luma)

    def better_plan(self) -> _Plan:
        """The plan for the next pass, now that the file is known better; the same plan if this pass was right."""
        plan, wish = self.plan, self.wish
        if self.outgrown:
            return replace(plan, rate=wish.fps, skip=False)
        if plan.seek and self.decoded[0] > wish.start_s:
            return replace(plan, seek=False)
        if plan.skip and len(self.coded) < len(self.decoded):
            return replace(plan, skip=False)  # frames without times are counted, so none may be skipped
        times = self._source_times()
        times = times[(times >= wish.start_s) & (times < wish.end_s) & (times <= self.paused_s)]
        rate, skip = plan.rate, plan.skip
        if not self.full and len(self.images) < min(wish.min_frames, len(times)) and not math.isinf(rate):
            asked = wish.within(self.end_s if self.to_the_end else wish.end_s)
            rate = max(rate, compute_rate(times, duration_s=asked, fps=wish.fps, min_frames=wish.min_frames))
        if skip and (rate != plan.rate or self._skipped_too_much(Instants(plan.rate), times)):
            skip = False
        return replace(plan, rate=rate, skip=skip, box=plan.box or self._bars.box(self.source_size))

    def has_strayed(self, since_s: float) -> bool:
        """Whether frames taken after this time lie too far from those that were wanted."""
        if len(self.coded) < len(self.decoded):
            return True
        until_s = self.times[-1]
        times = self.coded[(self.coded >= since_s) & (self.coded <= until_s)]
        return self._skipped_too_much(Instants(self.plan.rate, since_s, until_s), times)

    def _skipped_too_much(self, instants: Instants, times: Times) -> bool:
        """Whether a frame that was wanted lies too far from every frame that was decoded."""
        gaps = zip(times.tolist(), np.append(np.diff(times), 0.0).tolist(), times.tolist(), strict=True)
        wanted = np.array([time_s for time_s, _ in instants.nearest(gaps)])
        decoded = np.array(self.decoded)
        after = np.searchsorted(decoded, wanted).clip(1, max(len(decoded) - 1, 1))
        near = np.abs(wanted - decoded[after - 1])
        if len(decoded) > 1:
            near = np.minimum(near, np.abs(wanted - decoded[after]))
        return bool(len(near) and near.max() > _SKIP_ERROR / instants.rate)

    def _source_times(self) -> Times:
        """Times of all frames of the source as far as it was read, sorted."""
        return self.coded if len(self.coded) >= len(self.decoded) else np.array(self.decoded)

    def give(self, count: int) -> Frames:
        """The first `count` frames, which are not kept here; what was wrong with the file, with the last."""
        source, times = self.source, self._source_times()
        declared = source.info.duration_s
        duration = self.end_s if self.to_the_end or declared is None else declared
        native_fps = (len(times) - 1) / max(times[-1] - times[0], 1e-3) if len(times) > 1 else self.wish.fps
        images = np.empty((count, *self.images[0].shape), np.uint8)
        for index in range(count):
            images[index] = self.images[index]
            self.images[index] = self.images[index][:0].copy()  # not kept: two copies of a long video are too many
        frames = Frames(
            images,
            np.array(self.times[:count]),
            np.array(self.low_information[:count]),
            duration_s=None if source.still and len(self.decoded) == 1 else duration,
            fps=float(min(self.plan.rate, native_fps)),
            source_size=self.source_size,
            crop=self.plan.box,
            warnings=tuple(self._warnings()) if self.over and count == len(self.images) else (),
        )
        self.given += count
        del self.images[:count], self.times[:count], self.low_information[:count]
        return frames

    def _warnings(self) -> Iterator[str]:
        yield from self.source.warnings
        info = self.source.info
        declared, frame_s = info.duration_s, 1 / info.fps if info.fps else 0.0
        missing = 0.0 if declared is None else declared - self.end_s
        tolerance = max(_MISSING_S if self.source.declares_video else _MISSING_BESIDE_SOUND_S, 1.5 * frame_s)
        if self.full:
            left_out = "." if declared is None else f"; {missing:.2f} s of {declared:.2f} s are left out."
            count = self.given + len(self.images)
            yield f"Stopped at {count} frames, {self.times[-1]:.2f} s, as DecodeLimits.max_frames says{left_out}"
        elif declared is not None and self.to_the_end and missing > tolerance:
            yield (
                f"The file holds {self.end_s:.2f} s of the {declared:.2f} s it declares: {missing:.2f} s "
                f"({missing / declared:.0%}) are missing at the end."
            )
        if self.flat:
            yield "Every frame is flat (black or of one colour)."
        width, height = self.source_size
        if max(width, height) > _MAX_RATIO * min(width, height):
            yield f"Frames of {width}x{height} were squeezed to {_MAX_RATIO}:1."


def _read_by_plan(file: OpenFile, wish: _Wish, *, most: int) -> _Reading:
    """A reading that has taken up to `most` frames by a plan that fits them."""
    plan: _Plan | None = None
    for passes in itertools.count(1):
        reading = _Reading(file, wish, plan)
        try:
            reading.fill(most)
            plan = reading.better_plan()
        except BaseException:
            reading.source.close()
            raise
        # A video that has outgrown its plan is always read again, at the rate that was asked for.
        if plan == reading.plan or (passes >= _MAX_PASSES and not reading.outgrown):
            break
        reading.source.close()
    return reading


def _read_on(reading: _Reading, *, most: int) -> _Reading:
    """The reading with more frames; begun again from here if skipping frames, right so far, now costs too much."""
    there, seen, last_s = len(reading.images), copy.copy(reading.seen), reading.times[-1]
    reading.fill(most)
    if not reading.plan.skip or not reading.has_strayed(last_s):
        return reading
    reading.source.close()
    next_s = (math.floor(last_s * reading.plan.rate + 0.5) + 1) / reading.plan.rate
    for seek in (True, False):
        plan = replace(reading.plan, skip=False, seek=seek)
        wish = replace(reading.wish, start_s=next_s)
        again = _Reading(reading.file, wish, plan, after_s=last_s, given=reading.given + there)
        try:
            again.seen, again.flat, again.source_size = copy.copy(seen), reading.flat, reading.source_size
            again.fill(most - there)
        except BaseException:
            again.source.close()
            raise
        if not seek or again.decoded[0] <= next_s:
            break
        again.source.close()
    again.wish, again.given = reading.wish, reading.given
    for name in ("images", "times", "low_information"):
        setattr(again, name, getattr(reading, name)[:there] + getattr(again, name))
    return again


def _render(source: Source, frame: object, size: Size, box: Box | None, short_side: int) -> NDArray[np.uint8]:
    """The part of a frame within the box, its short side resized to `short_side`."""
    left, top, right, bottom = box or (0, 0, *size)
    sides = (right - left, bottom - top)
    width, height = (min(round(side * short_side / min(sides)), _MAX_RATIO * short_side) for side in sides)
    across, down = width / sides[0], height / sides[1]
    # Cutting after resizing needs no copy of the frame at full size.
    whole = max(round(size[0] * across), width), max(round(size[1] * down), height)
    x, y = min(round(left * across), whole[0] - width), min(round(top * down), whole[1] - height)
    image = source.render(frame, whole)[y : y + height, x : x + width]
    return image if box is None else image.copy()


def _no_frame(file: OpenFile, source: Source) -> NoVideoError:
    reasons = f" {' '.join(source.warnings)}" if source.warnings else ""
    return NoVideoError(
        f"'{file.path}' ({source.info.container}, {source.info.codec}) has no frame that can be decoded.{reasons} It "
        "is damaged or cut off: copy or download it again."
    )
