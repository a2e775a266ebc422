"""Passes over a video file: which frames are read, decoded and taken, and how the next pass is planned.

A file is read in one pass, and again only if the pass showed that it was planned wrongly: the declared duration was
missing or false and too few frames were taken, there are bars to cut, skipping frames cost too much precision, or key
frames were asked for and are too few. No frame is held at full size but the one at hand and the one before it.
"""

from __future__ import annotations

import copy
import itertools
import math
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hapvr.errors import ConfigError, NoVideoError
from hapvr.records import Box, Frames, Size, VideoInfo
from hapvr.video.ffmpeg import FFmpegSource
from hapvr.video.quality import BarFinder, LowInformation, luma_of, thin
from hapvr.video.sampling import MIN_DISTINCT, Instants, Times, compute_rate
from hapvr.video.sources import OpenFile, Source
from hapvr.video.webp import WebPSource, is_webp

_MAX_PASSES = 4
# A frame wider than this, relative to its short side, is squeezed: it would be all memory and no picture.
_MAX_RATIO = 8
# Frames that no other frame needs are skipped where the video has at least this many for each one that is taken, and
# taken back if a frame then lies further than this part of a step from the one that was wanted.
_SKIP_FROM, _SKIP_ERROR = 8, 1 / 4
_UNSMOOTHED_FROM = 4  # times the wanted short side: frames that are reduced this much are smooth without a filter
# Key frames say too little of a video if there are fewer of them, or if the next one comes later than this. (Encoders
# make one at every cut and in 250 frames by default: in 25 s of ten frames a second.)
_MIN_KEYFRAMES, _MAX_KEYFRAME_S = MIN_DISTINCT, 30.0
_MISSING_S = 0.25  # less than this missing at the end of a video is a matter of rounding
_MISSING_BESIDE_SOUND_S = 1.0  # and this, where the declared duration may be that of the sound


@dataclass(frozen=True)
class ReadRequest:
    """What the caller asked for."""

    fps: float
    short_side: int
    min_frames: int
    crop_bars: bool | Box
    start_s: float
    end_s: float
    keyframes: bool
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
class ReadPlan:
    """How one pass reads the file."""

    rate: float
    skip: bool  # frames that no other frame needs
    seek: bool
    box: Box | None = None
    keyframes: bool = False  # no other frames are read


def open_source(file: OpenFile, threads: int) -> Source:
    """A new reading of the file, by the decoder that its first bytes ask for, whatever its name is."""
    file.deadline.check()
    return WebPSource(file) if is_webp(file.head()) else FFmpegSource(file, threads)


def _make_first_plan(request: ReadRequest, info: VideoInfo) -> ReadPlan:
    """Trusts the declared duration; without one, takes the video to be long."""
    rate = request.fps
    if info.duration_s is not None and (asked := request.within(info.duration_s)) > 0:
        rate = max(rate, request.min_frames / asked)
    box = None if isinstance(request.crop_bars, bool) else request.crop_bars
    skip = not request.keyframes and info.fps is not None and info.fps >= _SKIP_FROM * rate
    return ReadPlan(rate, skip=skip, seek=request.start_s > 0, box=box, keyframes=request.keyframes)


class Reading:
    """One pass over the file, which may be paused and continued, and what it found. Frames after `after_s` only."""

    def __init__(
        self, file: OpenFile, request: ReadRequest, plan: ReadPlan | None, *, after_s: float = -math.inf, given: int = 0
    ) -> None:
        self.file, self.request, self.given, self._after_s = file, request, given, after_s
        self.source = source = open_source(file, request.threads)
        self.plan = plan = plan or _make_first_plan(request, source.info)
        if min(source.info.size) >= _UNSMOOTHED_FROM * request.short_side:
            source.skip_smoothing()
        if plan.skip:
            source.skip_unneeded()
        if plan.keyframes:
            source.keep_keyframes()
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
        shown = self._watch(source.frames(request.start_s if plan.seek else 0.0))
        self._chosen = Instants(plan.rate, request.start_s, request.end_s).nearest(shown)

    def _watch(self, frames: Iterator[tuple[float, float, object]]) -> Iterator[tuple[float, float, object]]:
        """The same frames until one lies past what was asked for; notes their times on the way."""
        for time_s, shown_s, frame in frames:
            self.decoded.append(time_s)
            self.end_s = time_s + shown_s
            yield time_s, shown_s, frame
            if time_s >= self.request.end_s:
                return
        self.to_the_end = True

    def fill(self, most: int) -> None:
        """Take frames until there are `most` of them, or no more."""
        request = self.request
        self.over, self.paused_s = True, math.inf
        for time_s, frame in self._chosen:
            if time_s <= self._after_s:
                continue
            count = self.given + len(self.images)
            self.full = count == self.file.deadline.limits.max_frames
            self.outgrown = not self.full and self.plan.rate > request.fps and count >= max(2 * request.min_frames, 64)
            if self.full or self.outgrown:
                break
            self._take(time_s, frame)
            if len(self.images) >= most:
                self.over, self.paused_s = False, time_s
                break
        if not self.decoded:
            raise explain_no_frame(self.file, self.source)
        if self.over or self.plan.skip or self.plan.keyframes:
            self.coded = self.source.coded_times()
        if self.to_the_end and self.plan.keyframes and len(self.coded):  # what follows the last key frame counts too
            self.end_s = max(self.end_s, float(self.coded[-1]) + (self.end_s - self.decoded[-1]))
        if not self.images and not self.given:
            until = "its end" if math.isinf(request.end_s) else f"{request.end_s:g} s"
            raise NoVideoError(
                f"'{self.file.path}' has no frame between {request.start_s:g} s and {until}; it ends at "
                f"{self.end_s:g} s."
            )

    def _take(self, time_s: float, frame: object) -> None:
        box = self.plan.box
        if self.source_size == (0, 0):
            self.source_size = width, height = self.source.size(frame)
            left, top, right, bottom = box or (0, 0, width, height)
            if not (0 <= left < right <= width and 0 <= top < bottom <= height):
                raise ConfigError(f"crop_bars={box} does not lie within frames of {width}x{height} pixels.")
        image = render_frame(self.source, frame, self.source_size, box, self.request.short_side)
        finds_bars = self.request.crop_bars and box is None and not self.given and not self._bars.has_none
        luma = luma_of(image) if finds_bars else None
        says_little = self.seen.classify(luma_of(thin(image)) if luma is None else thin(luma)) is not None
        self.images.append(image)
        self.times.append(time_s)
        self.low_information.append(says_little)
        self.flat = self.flat and says_little
        if luma is not None and not says_little:
            self._bars.add(luma)

    def better_plan(self) -> ReadPlan:
        """The plan for the next pass, now that the file is known better; the same plan if this pass was right."""
        plan, request = self.plan, self.request
        if self.outgrown:
            return replace(plan, rate=request.fps, skip=False)
        if plan.seek and self.decoded[0] > request.start_s:
            return replace(plan, seek=False)
        if plan.skip and len(self.coded) < len(self.decoded):
            return replace(plan, skip=False)  # frames without times are counted, so none may be skipped
        times = self._source_times()
        times = times[(times >= request.start_s) & (times < request.end_s) & (times <= self.paused_s)]
        rate, skip = plan.rate, plan.skip
        if not self.full and len(self.images) < min(request.min_frames, len(times)) and not math.isinf(rate):
            asked = request.within(self.end_s if self.to_the_end else request.end_s)
            rate = max(rate, compute_rate(times, duration_s=asked, fps=request.fps, min_frames=request.min_frames))
        if skip and (rate != plan.rate or self._skipped_too_much(Instants(plan.rate), times)):
            skip = False
        return replace(plan, rate=rate, skip=skip, box=self.find_box())

    def find_box(self) -> Box | None:
        """The part of each frame that is not bars; None for all of it."""
        return self.plan.box or self._bars.box(self.source_size)

    def has_strayed(self, since_s: float) -> bool:
        """Whether frames taken from this time on lie too far from those that were wanted, or are too few."""
        if len(self.coded) < len(self.decoded):
            return True  # frames without times are counted, so none may be skipped
        if self.plan.keyframes:
            times = np.append(self.decoded, min(self.end_s, self.paused_s))
            return bool(np.diff(times[times >= since_s]).max(initial=0.0) > _MAX_KEYFRAME_S)
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
        native_fps = (len(times) - 1) / max(times[-1] - times[0], 1e-3) if len(times) > 1 else self.request.fps
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


def read_by_plan(file: OpenFile, request: ReadRequest, *, most: int) -> Reading:
    """A reading that has taken up to `most` frames by a plan that fits them."""
    if request.keyframes:
        if (found := _read_keyframes(file, request, most=most)) is not None:
            return found
        request = replace(request, keyframes=False)
    plan: ReadPlan | None = None
    for passes in itertools.count(1):
        reading = Reading(file, request, plan)
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


def _read_keyframes(file: OpenFile, request: ReadRequest, *, most: int) -> Reading | None:
    """A reading of key frames alone; None if they say too little of the video."""
    plan: ReadPlan | None = None
    while True:
        reading = Reading(file, request, plan)
        found = False
        try:
            reading.fill(most)
            few = len(reading.decoded) < _MIN_KEYFRAMES and not reading.source.still
            late = reading.plan.seek and reading.decoded[0] > request.start_s
            if few or late or reading.outgrown or reading.has_strayed(request.start_s):
                return None
            box = reading.find_box()
            if box == reading.plan.box:
                found = True
                return reading
            plan = replace(reading.plan, box=box)  # bars are cut in another pass
        except NoVideoError:
            return None
        finally:
            if not found:
                reading.source.close()


def read_on(reading: Reading, *, most: int) -> Reading:
    """The reading with more frames; begun again from here if skipping frames, right so far, now costs too much."""
    there, seen, last_s = len(reading.images), copy.copy(reading.seen), reading.times[-1]
    reading.fill(most)
    if not (reading.plan.skip or reading.plan.keyframes) or not reading.has_strayed(last_s):
        return reading
    reading.source.close()
    next_s = (math.floor(last_s * reading.plan.rate + 0.5) + 1) / reading.plan.rate
    for seek in (True, False):
        plan = replace(reading.plan, skip=False, keyframes=False, seek=seek)
        request = replace(reading.request, start_s=next_s)
        again = Reading(reading.file, request, plan, after_s=last_s, given=reading.given + there)
        try:
            again.seen, again.flat, again.source_size = copy.copy(seen), reading.flat, reading.source_size
            again.fill(most - there)
        except BaseException:
            again.source.close()
            raise
        if not seek or again.decoded[0] <= next_s:
            break
        again.source.close()
    again.request, again.given = reading.request, reading.given
    for name in ("images", "times", "low_information"):
        setattr(again, name, getattr(reading, name)[:there] + getattr(again, name))
    return again


def render_frame(source: Source, frame: object, size: Size, box: Box | None, short_side: int) -> NDArray[np.uint8]:
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


def explain_no_frame(file: OpenFile, source: Source) -> NoVideoError:
    """The error for a file of which nothing can be decoded."""
    reasons = f" {' '.join(source.warnings)}" if source.warnings else ""
    return NoVideoError(
        f"'{file.path}' ({source.info.container}, {source.info.codec}) has no frame that can be decoded.{reasons} It "
        "is damaged or cut off: copy or download it again."
    )
