"""Which frames of a video are taken: those nearest to instants a step apart, each at most once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from hapvr.errors import ConfigError

Item = TypeVar("Item")
Times = NDArray[np.float64]

MIN_DISTINCT = 8
"""Different frames that a short video gives at the very least, where it has them (SPEC: `min_frames`)."""
KEYFRAMES = "keyframes"
"""The name of the rate at which key frames alone are taken."""
MAX_FPS = 1000
"""Frames a second that may be asked for."""
_EPSILON = 1e-9
_IN_A_ROW = 8  # frames with impossible times after which they are taken to be possible
_LEAP_S = 60.0


@dataclass(frozen=True)
class SamplingConfig:
    """How a video becomes pictures for a backbone: one home for training, comparing and indexing."""

    fps: float = 2.0  # frames a second; short videos are sampled faster
    at_least: int = 28  # frames of a short video, where it has them: what psi was trained on
    short_side: int = 256  # pixels, after decoding
    crop: int = 224  # pixels, the centre of that

    def __post_init__(self) -> None:
        if not self.fps > 0 or self.at_least < 0 or not 0 < self.crop <= self.short_side:
            raise ConfigError(f"fps > 0, at_least >= 0 and 0 < crop <= short_side must hold; got {self}.")


class Instants:
    """The instants 0, 1/rate, 2/rate, ... that lie in [start_s, end_s). An infinite rate means every frame.

    The grid begins at 0, not at `start_s`: a video read in parts gives the frames of the video read at once.
    """

    def __init__(self, rate: float, start_s: float = 0.0, end_s: float = math.inf) -> None:
        self.rate, self.start_s, self.end_s = rate, start_s, end_s

    def between(self, low: float, high: float) -> bool:
        """Whether one of the instants lies in [low, high).

        >>> Instants(rate=1.).between(.4, .6), Instants(rate=1.).between(.9, 1.1)
        (False, True)
        """
        low, high = max(low, self.start_s), min(high, self.end_s)
        if math.isinf(self.rate) or low >= high:
            return low < high
        return math.ceil(low * self.rate - _EPSILON) < high * self.rate - _EPSILON

    def nearest(self, frames: Iterable[tuple[float, float, Item]]) -> Iterator[tuple[float, Item]]:
        """Of frames in order, each with its time and how long it is shown, those nearest to an instant.

        Holds one frame back: whether it is the nearest is known when the next one comes.

        >>> shown = [(0., .4, "a"), (.4, .4, "b"), (.9, .4, "c"), (1.3, .4, "d")]
        >>> list(Instants(rate=1.).nearest(shown))
        [(0.0, 'a'), (0.9, 'c')]
        """
        held: tuple[float, float, Item] | None = None
        low = -math.inf
        for frame in frames:
            if held is not None:
                # Every frame: the one on display at start_s counts, not only the one nearest to it.
                middle = frame[0] if math.isinf(self.rate) else (held[0] + frame[0]) / 2
                if self.between(low, middle):
                    yield held[0], held[2]
                low = middle
            held = frame
        if held is not None and self.between(low, max(held[0] + held[1], held[0] + 2 * _EPSILON)):
            yield held[0], held[2]

    def count(self, times: Times) -> int:
        """How many of the frames at these sorted times are taken."""
        gaps = zip(times.tolist(), [*np.diff(times).tolist(), 0.0], [None] * len(times), strict=True)
        return sum(1 for _ in self.nearest(gaps))


def compute_rate(times: Times, *, duration_s: float, fps: float, min_frames: int) -> float:
    """The rate at which a video with frames at these sorted times gives about `min_frames` frames, and `fps` or more.

    All frames (an infinite rate) if there are no more than that. Where frames bunch together, so fast that at least
    `MIN_DISTINCT` different ones are taken.

    >>> compute_rate(np.arange(100) / 10, duration_s=10., fps=1., min_frames=28)
    2.8
    >>> compute_rate(np.arange(20) / 10, duration_s=2., fps=1., min_frames=28)
    inf
    >>> bunched = np.append(np.arange(40) / 100, 10.)                 # 40 frames in .4 s, then one is held
    >>> compute_rate(bunched, duration_s=11., fps=1., min_frames=28)
    20.363636363636363
    """
    if duration_s * fps >= min_frames:
        return fps
    if len(times) <= min_frames:
        return math.inf
    rate = max(fps, min_frames / duration_s) if duration_s > 0 else math.inf
    while not math.isinf(rate) and Instants(rate).count(times) < min(MIN_DISTINCT, min_frames):
        rate = rate * 2 if rate < 1e6 else math.inf
    return rate


class Clock:
    """Times in order, whatever a file says: refuses frames that lie in the past, fills in times that are missing.

    A lone frame out of order is refused, and so is one that leaps far beyond the declared end. When frame after frame
    lies in the past, the clock was set back (joined recordings): it goes on from the last time. When frame after frame
    lies beyond the declared end, the declaration was false.

    >>> clock = Clock(interval_s=.1, declared_s=None)
    >>> [clock.read(time) for time in (0., .1, None, .05, .3)]
    [0.0, 0.1, 0.2, None, 0.3]
    """

    def __init__(self, interval_s: float, declared_s: float | None) -> None:
        self.interval_s = interval_s
        self.refused = 0
        self.set_back = 0
        self._declared_s = math.inf if declared_s is None else declared_s
        self._last = -math.inf
        self._shift = 0.0
        self._in_a_row = 0

    def read(self, time_s: float | None) -> float | None:
        """The time of the next frame in seconds, never negative; None if the frame is to be left out."""
        if time_s is None:
            time_s = 0.0 if math.isinf(self._last) else self._last + self.interval_s
        else:
            time_s = max(time_s + self._shift, 0.0) if math.isinf(self._last) else time_s + self._shift
            past = time_s <= self._last
            if past or time_s > max(self._declared_s, self._last) + _LEAP_S:
                self._in_a_row += 1
                if self._in_a_row < _IN_A_ROW:
                    self.refused += 1
                    return None
            if past:
                self._shift += self._last + self.interval_s - time_s
                self.set_back += 1
                time_s = self._last + self.interval_s
        self._in_a_row = 0
        self._last = time_s
        return time_s
