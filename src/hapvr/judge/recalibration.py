"""What a judge's log odds mean among the videos of one library.

The judge was fitted on other videos. A library may hold more look-alikes than those, or copies that are harder to see.
From the log odds x of edited copies and of the nearest strangers of the library a line is fitted,

    log odds' = offset + slope * x,    slope > 0,

so that the order of pairs never changes. It is a logistic regression in which both kinds of pairs weigh the same in
all. It begins from the judge as it is: `_HELD` further pairs say that log odds mean what they say, so that a few copies
change little. Pairs below `_LOWEST` are left out, for the judge calls none of them a copy; a copy that was not found
must not make those less certain that were. Log odds above `_HIGHEST` count as that.

A pair that the judge calls a copy, and whose log odds are above those of every stranger by `_MARGIN` or more, stays a
copy: where the regression would not let it, it is fitted again with a line that does.

The tail (how many of a million pairs of strangers have greater log odds) is that of the library's own strangers. It
ends at what the number of these pairs can show: of N pairs of which none was seen, up to 3 / N may be there (the rule
of three).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hapvr.config import CheckedConfig, Within
from hapvr.errors import ConfigError, DataError

Array = NDArray[np.float64]
Tail = tuple[tuple[float, float], ...]

_HELD = 30  # pairs that hold the line where the judge is
_HELD_WITHIN = 6.0  # log odds, to either side of 0, that these are spread over
_LOWEST, _HIGHEST = -2.0, 8.0  # log odds of the pairs that a line is fitted on
_MARGIN = 3.0  # log odds
_MIN_SLOPE = 0.1
_COUNTS = (1_000, 300, 100, 30, 10, 3)  # pairs with the greatest log odds, at which a tail is measured
_RULE_OF_THREE = 3.0  # -log 0.05, about


@dataclass(frozen=True)
class JudgeCalibration(CheckedConfig):
    """What the log odds of one judge mean among the videos of a library. `Judge.recalibrate` applies it."""

    judge: str  # the digest of the judge
    offset: float
    slope: Annotated[float, Within(_MIN_SLOPE)]
    tail: Sequence[
        tuple[float, float]
    ]  # log odds of the judge, and how many of a million pairs of strangers have more; ascending
    copies: Annotated[int, Within(1)]  # that it was fitted on
    strangers: Annotated[int, Within(1)]  # pairs
    videos: Annotated[int, Within(1)]  # different ones that these pairs are of

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            tail = tuple((float(place), float(rate)) for place, rate in self.tail)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"JudgeCalibration.tail must be pairs of numbers, got {self.tail!r}.") from error
        places, rates = np.array(tail).reshape(-1, 2).T
        if not len(tail) or not np.isfinite(places).all() or (np.diff(places) <= 0).any() or (np.diff(rates) > 0).any():
            raise ConfigError("JudgeCalibration.tail must be of log odds that ascend and rates that do not.")
        if not ((rates > 0) & (rates <= 1e6)).all() or not all(map(math.isfinite, (self.offset, self.slope))):
            raise ConfigError("JudgeCalibration takes finite numbers, and rates above 0 and up to a million.")
        object.__setattr__(self, "tail", tail)

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {**vars(self), "tail": [list(pair) for pair in self.tail]}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> JudgeCalibration:
        """What `to_json` made; `ConfigError` where it cannot be that."""
        try:
            return cls(**plain)
        except TypeError as error:
            raise ConfigError(f"A calibration of a judge cannot be read: {error}.") from error


def fit_odds_line(copies: ArrayLike, strangers: ArrayLike, *, even: float) -> tuple[float, float]:
    """Offset and slope of the line over log odds that pairs of a library fit best; see the module.

    Args:
        copies: log odds [P] of copies; minus infinity for those of which nothing was found.
        strangers: log odds [S] of pairs without a match.
        even: the log odds from which on the judge calls a pair a copy; may be infinity.

    Raises:
        DataError: copies do not have greater log odds than strangers.

    Of as many copies as strangers at 0, odds of 1 to 1 are right:
        >>> offset, slope = fit_odds_line([0.0] * 9, [0.0] * 9, even=4.0)
        >>> round(abs(offset), 6), round(slope, 6)
        (0.0, 1.0)
    """
    copy, stranger = np.asarray(copies, np.float64), np.asarray(strangers, np.float64)
    held = np.linspace(-_HELD_WITHIN, _HELD_WITHIN, _HELD)
    kept = copy[copy > _LOWEST], stranger[stranger > _LOWEST]
    values = np.minimum(np.concatenate([*kept, held]), _HIGHEST)
    wanted = np.concatenate([np.ones(len(kept[0])), np.zeros(len(kept[1])), _sigmoid(held)])
    # Those that are left out count too: the strangers weigh as much as the copies, all of either.
    weights = np.concatenate(
        [np.ones(len(kept[0])), np.full(len(kept[1]), len(copy) / max(1, len(stranger))), np.ones(_HELD)]
    )
    offset, slope = _regress(np.stack([np.ones_like(values), values]), np.zeros_like(values), wanted, weights)
    sure = max(even, float(stranger.max(initial=-math.inf)) + _MARGIN)
    if math.isfinite(sure) and offset + slope * sure < even:
        # The best of the lines through that point.
        (slope,) = _regress((values - sure)[None], np.full_like(values, even), wanted, weights)
        offset = even - slope * sure
    if slope < _MIN_SLOPE:
        raise DataError(
            f"The judge does not tell copies from other videos here: half of {len(copy)} copies have log odds of "
            f"{np.median(copy):.1f} or more, and so do {(stranger >= np.median(copy)).mean():.0%} of "
            f"{len(stranger):,} pairs without a match. Nothing was changed. Add videos that are unlike each other, "
            "and calibrate again."
        )
    return float(offset), float(slope)


def measure_tail(odds: ArrayLike, population: int, *, rarest: float) -> Tail:
    """Log odds, and how many of a million pairs of strangers have more; beyond those counted an exponential law.

    Args:
        odds: of the nearest strangers of each query: the others of the population have less.
        population: pairs.
        rarest: of a million pairs, what the tail ends at.

    Of a thousand pairs ten have 0 or more, and three 1 or more:
        >>> measure_tail([3.0, 2.0, 1.0] + [0.0] * 7, 1_000, rarest=3_000.0)
        ((0.0, 10000.0), (1.0, 3000.0))
    """
    values = np.asarray(odds, np.float64)
    ordered = np.sort(values[np.isfinite(values)])[::-1]
    places: list[tuple[float, float]] = []
    for count in _COUNTS:
        if count <= len(ordered) and (not places or ordered[count - 1] > places[-1][0] + 1e-9):
            places.append((float(ordered[count - 1]), count / population * 1e6))
    if len(places) < 2:
        return ((0.0, 1e6),)
    (low, many), (high, few) = places[0], places[-1]
    slope = math.log(many / few) / (high - low)
    return (*places, (high + math.log(few / rarest) / slope, rarest)) if rarest < few else tuple(places)


def measure_own_tail(odds: ArrayLike, population: int, otherwise: Tail) -> Tail:
    """The tail of a library's strangers, which ends at what their number can show.

    Of strangers that are too few for a tail, it is `otherwise`, ended in the same way.
    """
    rarest = min(1e6, _RULE_OF_THREE / population * 1e6)
    tail = measure_tail(odds, population, rarest=rarest)
    return tail if len(tail) > 1 else tuple((place, max(rate, rarest)) for place, rate in otherwise)


def _regress(inputs: Array, fixed: Array, wanted: Array, weights: Array) -> Array:
    """Weights [K] of inputs [K, N] in log odds fixed + w inputs [N], of the greatest likelihood, towards shares [N]."""

    def loss(now: Array) -> float:
        odds = fixed + now @ inputs
        return float(weights @ (np.logaddexp(0, odds) - wanted * odds))

    now = np.zeros(len(inputs))
    for _ in range(100):  # Newton's method with steps halved until they help: the loss is convex
        found = _sigmoid(fixed + now @ inputs)
        gradient = inputs @ (weights * (found - wanted))
        curvature = (inputs * (weights * found * (1 - found))) @ inputs.T
        step = np.linalg.lstsq(curvature, gradient, rcond=None)[0]
        before = loss(now)
        while loss(now - step) > before and np.abs(step).max() > 1e-12:
            step = step / 2
        now = now - step
        if np.abs(step).max() <= 1e-10:
            break
    return now


def _sigmoid(values: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-np.clip(values, -500, 500))))
