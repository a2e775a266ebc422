"""From a score to what it means: how likely the two videos match, and how many pairs without a match score as high.

A calibration is fitted on scores of pairs that are known to match (edited copies and their originals) and of pairs that
are known not to, from videos that nothing is measured on, and is kept with the model whose scores they are.

False matches. P(score >= s | no match) is what a threshold is chosen by, and it is wanted far beyond what was counted:
one in a million from some ten thousand pairs. Up to the last few hundred pairs it is their share, interpolated. Beyond,
the excess x over the tail's start follows a generalised Pareto law, P(X >= x) = (1 + shape x / scale)^(-1 / shape),
which the excesses of nearly every distribution approach (Pickands, 1975); shape and scale are those of the greatest
likelihood among the laws that reach a score of 1. The estimate ends where it is `_BEYOND` times rarer than one pair of
those counted: there it stays, for nothing in the data speaks of what is rarer still.

Probability. By Bayes, log odds(match | s) = log odds(prior) + log f(s | match) / f(s | no match). The last term, how
much the score speaks for a match, is a rising function fitted by isotonic regression (pool adjacent violators) on both
kinds of pairs, each of which weighs 1 in all; between the blocks it is interpolated, at both ends it stays. A block is
given half a pair of each kind besides its own, so that a block without a negative promises no more than the count of
negatives can bear: a probability is never 0 or 1. The prior is the caller's: 0.5 for two videos that somebody has a
reason to compare, 1 / N for each of the N videos of a database of which one is wanted.

What both mean depends on the pairs. Pairs that look alike without being copies (the same stage, the same studio) count
as "no match" here: many of them make the tail heavy and thresholds high, and a collection that has more of them than
the pairs of the fit gives more false matches than promised. Fit on your own videos where that matters.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hapvr.checks import shape_of
from hapvr.errors import ConfigError, DataError, ShapeError, WeightsError
from hapvr.weights import Part

Array: TypeAlias = "npt.ArrayLike | Tensor"
Floats: TypeAlias = npt.NDArray[np.float64]

LOWEST, HIGHEST = -1.0, 1.0  # scores
_BEYOND = 100  # how much rarer than one pair of those counted the tail may say
_KNOTS = 128  # of the counted part, spread evenly over shares, and as many over their logarithms
_TAIL = 300  # pairs that the tail is fitted on, but never more than a tenth of all
_LEAST_NEGATIVES, _LEAST_POSITIVES, _LEAST_DISTINCT = 200, 20, 10
_HALF = 0.5  # pairs of each kind that a block is given


# --- the tail --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tail:
    """A generalised Pareto law of the scores above `start`, which `share` of all exceed.

    Example: of the scores above 0.5, which are a hundredth, e^-1 are 0.1 higher.
        >>> tail = Tail(start=0.5, share=0.01, shape=0.0, scale=0.1)
        >>> round(float(np.exp(tail.log_share(0.6))), 6)
        0.003679
    """

    start: float
    share: float
    shape: float  # 0: exponential; below 0 it ends at start - scale / shape
    scale: float

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            if not isinstance(value, int | float) or not math.isfinite(value):
                raise ConfigError(f"Tail.{name} must be a finite number, got {value!r}.")
        if not 0 < self.share <= 1 or self.scale <= 0 or not LOWEST <= self.start < HIGHEST:
            raise ConfigError(f"Tail takes 0 < share <= 1, scale > 0 and -1 <= start < 1, got {self}.")
        if self.shape < 0 and self.start - self.scale / self.shape <= HIGHEST:
            raise ConfigError(f"Tail must reach beyond a score of 1, got {self}.")

    def log_share(self, scores: npt.ArrayLike) -> Floats:
        """log P(score >= s) for scores from `start` to 1, any shape."""
        excess = np.maximum(np.asarray(scores, np.float64) - self.start, 0)
        if self.shape == 0:
            return math.log(self.share) - excess / self.scale
        return math.log(self.share) - np.log1p(self.shape * excess / self.scale) / self.shape


def fit_tail(scores: Array, *, count: int = _TAIL) -> Tail:
    """The law of the `count` highest of `scores` (or of a tenth of them, if that is fewer), by greatest likelihood.

    Laws of shape -1 to 1 that reach a score of 1 are considered: with 1 + shape / scale (1 - start) = e^v the best shape
    for a given v is the mean of log(1 + shape / scale x) over the excesses x, which leaves one number to search.
    """
    ordered = np.sort(_checked(scores, "scores"))
    start, exceeding = _tail_start(ordered, min(count, len(ordered) // 10))
    excess = ordered[len(ordered) - exceeding :] - start
    shape, scale = _likeliest(excess, HIGHEST - start)
    return Tail(start, exceeding / len(ordered), shape, scale)


def _tail_start(ordered: Floats, count: int) -> tuple[float, int]:
    """Half way between two scores next to each other of which about `count` are above, and how many are."""
    steps = np.flatnonzero(np.diff(ordered) > 0) + 1  # places of the first of a score that is not the lowest
    distinct_above = np.arange(len(steps), 0, -1)
    steps = steps[distinct_above >= _LEAST_DISTINCT]
    if not len(steps):
        raise DataError(
            f"{len(ordered)} scores of pairs without a match have fewer than {_LEAST_DISTINCT + 1} different values: "
            "a tail cannot be fitted. Give the scores of more videos, unrounded."
        )
    place = int(steps[np.argmin(np.abs(len(ordered) - steps - count))])
    return float((ordered[place - 1] + ordered[place]) / 2), len(ordered) - place


def _likeliest(excess: Floats, reach: float) -> tuple[float, float]:
    """Shape and scale; `reach` is the largest excess there can be."""
    low, high = -12.0, 12.0
    best = 0.0
    for _ in range(5):
        trial = np.unique(np.concatenate([np.linspace(low, high, 65), [best]]))
        best = float(trial[np.argmax(_log_likelihood(trial, excess, reach))])
        step = (high - low) / 64
        low, high = best - step, best + step
    ratio, shape = _ratio_shape(np.array([best]), excess, reach)
    return (0.0, float(excess.mean())) if ratio[0] == 0 else (float(shape[0]), float(shape[0] / ratio[0]))


def _ratio_shape(trial: Floats, excess: Floats, reach: float) -> tuple[Floats, Floats]:
    """Shape / scale and the best shape with it, for each v of `trial` [V]."""
    ratio = np.where(np.abs(trial) < 1e-9, 0.0, np.expm1(trial) / reach)
    return ratio, np.log1p(ratio[:, None] * np.minimum(excess, reach)).mean(axis=1)


def _log_likelihood(trial: Floats, excess: Floats, reach: float) -> Floats:
    """Mean log likelihood of the excesses for each v [V]; minus infinity for shapes that are not considered."""
    ratio, shape = _ratio_shape(trial, excess, reach)
    flat = ratio == 0
    scale = np.where(flat, excess.mean(), shape / np.where(flat, 1.0, ratio))
    found = -np.log(scale) - 1 - shape
    return np.where((shape > -1) & (shape <= 1), found, -np.inf)


# --- isotonic regression -----------------------------------------------------------------------------------------


def isotonic(values: npt.ArrayLike, weights: npt.ArrayLike) -> Floats:
    """The rising sequence nearest to `values` [n] in weighted squares, by pooling adjacent violators.

    >>> isotonic([1, 3, 2, 4], [1, 1, 1, 1]).tolist()
    [1.0, 2.5, 2.5, 4.0]
    """
    values, weights = np.asarray(values, np.float64), np.asarray(weights, np.float64)
    if values.ndim != 1 or values.shape != weights.shape:
        raise ShapeError(f"values and weights must be [n], got {list(values.shape)} and {list(weights.shape)}.")
    if not np.isfinite(values).all() or not np.isfinite(weights).all() or (weights <= 0).any():
        raise DataError("isotonic takes finite values and weights above 0.")
    means: list[float] = []
    masses: list[float] = []
    lengths: list[int] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        length = 1
        while means and means[-1] >= value:
            mass = masses.pop()
            value = (means.pop() * mass + value * weight) / (mass + weight)
            weight += mass
            length += lengths.pop()
        means.append(value)
        masses.append(weight)
        lengths.append(length)
    return np.repeat(means, lengths)
