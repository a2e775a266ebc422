"""How closely a second look looks, and what it reads: a few neighbouring frames of a file around an instant."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hapvr.errors import ConfigError, HapvrError
from hapvr.judge.registration import Grey, LocalFeatures, blur, find_features
from hapvr.records import Box
from hapvr.storage import StrPath
from hapvr.video.limits import DecodeLimits
from hapvr.video.quality import BarFinder, luma_of

SMALL = 0.5  # size at which registered pictures are compared, relative to the decoded ones
_MARGIN_S = 0.1
_SLOW_S = 0.3  # between frames of a video that has few


@dataclass(frozen=True)
class SecondLookConfig:
    """How closely to look.

    Attributes:
        max_instants: of those given, spread over the match.
        max_seconds: of a pair: the instants not reached by then are left out.
        short_side: pixels of the shorter side of the decoded frames.
        fps: frames decoded for each second around an instant.
        refine_s: how far from its given time the target's frame may lie, in seconds.
        max_features: local features of a picture.
        min_area: share of the query's picture that the target's must cover.
        min_moves: RMS grey levels below which nothing moves.
        threads: of the decoder and of OpenCV.
        isolate: do all of it in another process, which is killed if it hangs: for files from strangers. It takes about
            half a second to start.
        max_pixels: of a frame of a file, as in `DecodeLimits`.
        memory_bytes: that the other process may take; None for no limit.
    """

    max_instants: int = 4
    max_seconds: float = 8.0
    short_side: int = 240
    fps: float = 10.0
    refine_s: float = 0.8
    max_features: int = 800
    min_area: float = 0.02
    min_moves: float = 0.5
    threads: int = 1
    isolate: bool = False
    max_pixels: int = DecodeLimits.max_pixels
    memory_bytes: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_instants", "max_seconds", "short_side", "fps", "max_features", "min_area", "threads"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"SecondLookConfig: {name} must be positive, got {getattr(self, name)}.")
        for name in ("refine_s", "min_moves"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"SecondLookConfig: {name} must not be negative, got {getattr(self, name)}.")


class Strip:
    """Neighbouring frames of one video around an instant."""

    def __init__(
        self, images: NDArray[np.uint8], times: NDArray[np.float64], time_s: float, reach: float, max_features: int
    ) -> None:
        import cv2

        self.reach = reach  # seconds before and after
        greys = [luma_of(image) for image in images]
        self.times, self.place = times, int(np.abs(times - time_s).argmin())
        self.grey: Grey = greys[self.place]
        height, width = self.grey.shape
        size = max(round(width * SMALL), 1), max(round(height * SMALL), 1)
        self.planes = [blur(cv2.resize(grey, size, interpolation=cv2.INTER_AREA)) for grey in greys]
        bars = BarFinder()
        for grey in greys:
            bars.add(grey)
        self.box: Box = bars.box((width, height)) or (0, 0, width, height)
        self._max_features = max_features

    @cached_property
    def features(self) -> LocalFeatures:
        """Of the frame at the instant."""
        return find_features(self.grey, self._max_features)

    @property
    def interval_s(self) -> float:
        """Between neighbouring frames; infinite if there is one only."""
        return float(np.diff(self.times).mean()) if len(self.times) > 1 else math.inf

    @property
    def is_slow(self) -> bool:
        """Whether there are so few frames that a neighbour about a step away may be missing."""
        return self.interval_s > _SLOW_S

    def near(self, seconds: float) -> list[int]:
        """The frames at most so far from the instant."""
        return [int(place) for place in np.flatnonzero(np.abs(self.times - self.times[self.place]) <= seconds + 1e-6)]


def find_costs(path: StrPath, times: Sequence[float], config: SecondLookConfig) -> list[float]:
    """Seconds of video to decode before each time; 0 where that is not known."""
    from hapvr.video.decode import find_seek_distances
    from hapvr.video.sandboxed import call_sandboxed

    if len(times) <= config.max_instants:
        return [0.0] * len(times)
    limits = DecodeLimits(max_pixels=config.max_pixels, max_seconds=config.max_seconds)
    try:
        return [cost or 0.0 for cost in call_sandboxed(find_seek_distances, path, times, limits=limits)]
    except (HapvrError, OSError):
        return [0.0] * len(times)


def read_strip(
    path: StrPath, time_s: float, reach: float, max_seconds: float, config: SecondLookConfig
) -> Strip | None:
    """The frames up to `reach` seconds before and after a time; None if they cannot be read, or not so soon."""
    from hapvr.video.decode import decode
    from hapvr.video.sandboxed import call_sandboxed

    if max_seconds <= 0:
        return None
    try:
        frames = call_sandboxed(
            decode,
            path,
            fps=config.fps,
            short_side=config.short_side,
            min_frames=0,
            crop_bars=False,
            start_s=max(0.0, time_s - reach - _MARGIN_S),
            end_s=time_s + reach + _MARGIN_S,
            threads=config.threads,
            limits=DecodeLimits(max_pixels=config.max_pixels, max_seconds=max_seconds),
        )
    except (HapvrError, OSError):
        return None
    return Strip(frames.images, frames.timestamps, time_s, reach, config.max_features)
