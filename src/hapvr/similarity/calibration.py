"""From a score to what it means: how likely the two videos match, and how many pairs without a match score as high.

A calibration is fitted on scores of pairs that are known to match (edited copies and their originals) and of pairs that
are known not to, from videos that nothing is measured on. It is kept with the model whose scores they are.

False matches. P(score >= s | no match) is wanted far beyond what was counted: one in a million from some ten thousand
pairs. Up to the last few hundred pairs it is their share, interpolated. Beyond, the excess x over the tail's start
follows a generalised Pareto law, P(X >= x) = (1 + shape x / scale)^(-1 / shape), which the excesses of nearly every
distribution approach (Pickands, 1975); shape and scale have the greatest likelihood among the laws that reach a score
of 1. The estimate stops at `_BEYOND` times rarer than one pair of those counted: the data says nothing about less.

Probability. By Bayes, log odds(match | s) = log odds(prior) + log f(s | match) / f(s | no match). The last term, the
evidence, is a line over -log P(score >= s | no match): logistic regression on both kinds of pairs, each of which weighs
1 in all. On held-out pairs (two disjoint sets of edited copies, each fitted and measured on the other; mean log loss at
a prior of 0.5) it lost 0.139, isotonic regression 0.140 and a line over the score itself 0.146. The slope is never
negative, so that a probability never falls as the score rises.

Bounds. N pairs without a match are of n videos, n (n - 1) >= N, and what a video looks like is seen once. If none of n
videos has a look-alike that scores as copies do, still up to a share e = 3 / n of others may have one (the rule of
three: with 95% confidence, (1 - e)^n = 0.05). So a share e of what does not match counts as scoring like copies,

    f(s | no match) = (1 - e) f_fit(s) + e f(s | match),    odds(s) = 1 / ((1 - e) / odds_fit(s) + e) < n / 3,

which never passes n / 3, however high the score is: 230 videos give 77 to 1, a probability of 0.987 at even odds.
Evidence against a match is bounded by what P pairs that match could show, 1 to 2 P, so that a probability is never 0.

The prior. P(match) before a comparison is one number everywhere, the calibration's (0.5 unless it was fitted with
another), so that a pair has the same probability in `compare`, in a search and on the page, whatever else a library
holds. For the probability that one of N videos is the wanted one, give a prior of 1 / N.

Limits. Pairs that look alike without being copies (the same stage, the same camera in the same place) count as "no
match". A few of them make the tail: they decide the thresholds for a hundred in a million and fewer. A collection that
has more of them than the pairs of the fit gives more false matches than promised, ten times as many if the fit saw
none. Fit on videos like those to be searched where that matters.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hapvr.checks import shape_of
from hapvr.config import CheckedConfig, Within, from_mapping
from hapvr.errors import ConfigError, DataError, ShapeError, WeightsError
from hapvr.weights import Part

Array: TypeAlias = "npt.ArrayLike | Tensor"
Floats: TypeAlias = npt.NDArray[np.float64]

LOWEST, HIGHEST = -1.0, 1.0  # scores
_RULE_OF_THREE = 3.0  # -log 0.05, about: what was not seen in n trials has a share of up to 3 / n, 95% sure
_BEYOND = 100  # how much rarer than one pair of those counted the tail may say
_KNOTS = 128  # of the counted part, spread evenly over shares, and as many over their logarithms
_TAIL = 300  # pairs that the tail is fitted on, but never more than a tenth of all
_MIN_NEGATIVES, _MIN_POSITIVES, _MIN_DISTINCT = 200, 20, 10
_ARRAYS = ("scores", "log_shares")  # of a calibration: tensors of its part
_NUMBERS = ("slope", "intercept", "positives", "negatives", "prior")  # settings of its part


# --- the tail --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tail(CheckedConfig):
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
        super().__post_init__()
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

    Laws of shape -1 to 1 that reach a score of 1 are considered: with 1 + shape / scale (1 - start) = e^v the best
    shape for a given v is the mean of log(1 + shape / scale x) over the excesses x, which leaves one number to search.
    Scores that end long before 1 get a tail too heavy by that, never one too light.
    """
    ordered = np.sort(_read_scores(scores, "scores"))
    start, exceeding = _find_tail_start(ordered, min(count, len(ordered) // 10))
    excess = ordered[len(ordered) - exceeding :] - start
    shape, scale = _fit_shape_scale(excess, HIGHEST - start)
    return Tail(start, exceeding / len(ordered), shape, scale)


def _find_tail_start(ordered: Floats, count: int) -> tuple[float, int]:
    """Half way between two scores next to each other of which about `count` are above, and how many are."""
    steps = np.flatnonzero(np.diff(ordered) > 0) + 1  # places of the first of a score that is not the lowest
    distinct_above = np.arange(len(steps), 0, -1)
    steps = steps[distinct_above >= _MIN_DISTINCT]
    if not len(steps):
        raise DataError(
            f"{len(ordered)} scores of pairs without a match have fewer than {_MIN_DISTINCT + 1} different values: "
            "a tail cannot be fitted. Give the scores of more videos, unrounded."
        )
    place = int(steps[np.argmin(np.abs(len(ordered) - steps - count))])
    return float((ordered[place - 1] + ordered[place]) / 2), len(ordered) - place


def _fit_shape_scale(excess: Floats, reach: float) -> tuple[float, float]:
    """Shape and scale; `reach` is the largest excess there can be."""
    low, high = -12.0, 12.0
    best = 0.0
    for _ in range(5):
        trial = np.unique(np.concatenate([np.linspace(low, high, 65), [best]]))
        best = float(trial[np.argmax(_compute_likelihood(trial, excess, reach))])
        step = (high - low) / 64
        low, high = best - step, best + step
    ratio, shape = _compute_ratio_shape(np.array([best]), excess, reach)
    return (0.0, float(excess.mean())) if ratio[0] == 0 else (float(shape[0]), float(shape[0] / ratio[0]))


def _compute_ratio_shape(trial: Floats, excess: Floats, reach: float) -> tuple[Floats, Floats]:
    """Shape / scale and the best shape with it, for each v of `trial` [V]."""
    ratio = np.where(np.abs(trial) < 1e-9, 0.0, np.expm1(trial) / reach)
    return ratio, np.log1p(ratio[:, None] * np.minimum(excess, reach)).mean(axis=1)


def _compute_likelihood(trial: Floats, excess: Floats, reach: float) -> Floats:
    """Mean log likelihood of the excesses for each v [V]; minus infinity for shapes that are not considered."""
    ratio, shape = _compute_ratio_shape(trial, excess, reach)
    flat = ratio == 0
    scale = np.where(flat, excess.mean(), shape / np.where(flat, 1.0, ratio))
    found = -np.log(scale) - 1 - shape
    return np.where((shape > -1) & (shape <= 1), found, -np.inf)


# --- the calibration -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Calibration(CheckedConfig):
    """What the scores of one model mean. Get one with `fit_calibration`."""

    scores: Floats  # [K], rising; the last is where the tail starts
    log_shares: Floats  # [K], from 0 downwards: log P(score >= s | no match) at those
    tail: Tail  # the law beyond
    slope: Annotated[float, Within(0)]  # of the evidence over -log P(score >= s | no match)
    intercept: float  # of the same line
    positives: Annotated[int, Within(1)]  # pairs of the fit that match
    negatives: Annotated[int, Within(1)]  # pairs of the fit that do not
    prior: float = 0.5  # P(match) where a call gives none

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in _ARRAYS:
            values = np.array(getattr(self, name), np.float64)  # a copy: what is frozen is ours
            if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
                raise DataError(f"Calibration.{name} must be finite numbers [n], n >= 1, got {list(values.shape)}.")
            values.flags.writeable = False
            object.__setattr__(self, name, values)
        if self.scores.shape != self.log_shares.shape:
            raise DataError(f"Calibration has {len(self.scores)} scores, but {len(self.log_shares)} shares of them.")
        if (np.diff(self.scores) <= 0).any() or (np.diff(self.log_shares) > 0).any() or self.log_shares[0] > 0:
            raise DataError("Calibration takes scores that rise and shares that fall from 1.")
        if self.scores[-1] != self.tail.start or abs(self.log_shares[-1] - math.log(self.tail.share)) > 1e-9:
            raise DataError("The last score and share of a Calibration are those where its tail begins.")
        check_prior(self.prior)

    @property
    def videos(self) -> int:
        """The fewest videos that the pairs without a match can be of."""
        return _count_videos(self.negatives)

    @property
    def unseen_share(self) -> float:
        """The share of pairs without a match that may score as copies do though none of the fit did."""
        return min(1.0, _RULE_OF_THREE / self.videos)

    def probability(self, score: float, *, prior: float | None = None) -> float:
        """The probability that a pair of this score, in [-1, 1], matches: never 0 or 1. A higher score never lowers it.

        `prior` is the probability of a match before the comparison, about the share of matches among the pairs that
        are compared; by default the calibration's.
        """
        odds = float(self.log_odds([score])[0])
        prior = check_prior(self.prior if prior is None else prior)
        odds += math.log(prior) - math.log1p(-prior)
        found = 1 / (1 + math.exp(-odds)) if odds >= 0 else math.exp(odds) / (1 + math.exp(odds))
        return min(max(found, 5e-324), 1 - 2**-53)  # the numbers next to 0 and 1

    def false_per_million(self, score: float) -> float:
        """How many of a million pairs without a match score this high or higher, on average."""
        return 1e6 * math.exp(float(self.log_share([score])[0]))

    @property
    def min_false_per_million(self) -> float:
        """The lowest rate that the pairs of the fit can show: none of N was seen, so there may be 3 / N of all.

        `false_per_million` may estimate a lower one, by the tail's law: good enough for a threshold, not for a promise.
        """
        return min(1e6, 1e6 * _RULE_OF_THREE / self.negatives)

    def threshold(self, *, false_per_million: float) -> float:
        """The lowest score that this many of a million pairs without a match reach, on average.

        Infinity where even a score of 1 is reached by more: the tail is too heavy, or the fit saw too few pairs.
        """
        if not isinstance(false_per_million, int | float) or not 0 < false_per_million <= 1e6:
            raise ConfigError(f"false_per_million must be above 0 and at most 1,000,000, got {false_per_million!r}.")
        if self.false_per_million(HIGHEST) > false_per_million:
            return math.inf
        low, high = LOWEST, HIGHEST  # high meets what is asked, always
        if self.false_per_million(low) <= false_per_million:
            return low
        while (middle := (low + high) / 2) not in (low, high):
            if self.false_per_million(middle) <= false_per_million:
                high = middle
            else:
                low = middle
        return high

    def log_share(self, scores: Array) -> Floats:
        """log P(score >= s | no match) for scores [n]."""
        values = _read_scores(scores, "scores")
        counted = np.interp(values, self.scores, self.log_shares)  # constant before the first
        counted = np.where(values < self.scores[0], 0.0, counted)
        beyond = np.maximum(self.tail.log_share(values), -math.log(_BEYOND * self.negatives))
        return np.where(values > self.tail.start, np.minimum(beyond, self.log_shares[-1]), counted)

    def log_odds(self, scores: Array) -> Floats:
        """How much scores [n] speak for a match: log odds at a prior of one half."""
        found = np.clip(self.fitted_log_odds(scores), -math.log(2 * self.positives), math.log(2 * self.negatives))
        unseen = self.unseen_share
        return -np.log((1 - unseen) * np.exp(-found) + unseen)

    def fitted_log_odds(self, scores: Array) -> Floats:
        """`log_odds` by the pairs of the fit alone, without the bounds for what they could not show."""
        return self.intercept - self.slope * self.log_share(scores)

    def to_part(self) -> Part:
        """This calibration as the part "calibration" of a model folder (see `hapvr.weights`)."""
        tensors = {name: torch.from_numpy(getattr(self, name).copy()) for name in _ARRAYS}
        return Part({name: getattr(self, name) for name in _NUMBERS} | {"tail": dataclasses.asdict(self.tail)}, tensors)

    @classmethod
    def from_part(cls, part: Part) -> Calibration:
        """Read what `to_part` made; `WeightsError` where it cannot be that."""
        found, expected = {*part.config, *part.tensors}, {*_ARRAYS, *_NUMBERS, "tail"}
        if found != expected or not {*_ARRAYS} <= part.tensors.keys() or not isinstance(part.config["tail"], Mapping):
            raise WeightsError(
                f"The part 'calibration' lacks {', '.join(sorted(expected - found)) or 'nothing'} and has "
                f"{', '.join(sorted(found - expected)) or 'nothing'} in surplus, or keeps it otherwise. Fit it again."
            )
        try:
            fields: dict[str, Any] = {name: part.tensors[name].double().numpy() for name in _ARRAYS}
            fields |= {name: part.config[name] for name in _NUMBERS}
            return cls(tail=from_mapping(Tail, part.config["tail"]), **fields)
        except (TypeError, ConfigError, DataError) as error:
            raise WeightsError(f"The part 'calibration' is damaged: {error} Fit it again.") from error


def fit_calibration(positive: Array, negative: Array, *, prior: float = 0.5, tail: int = _TAIL) -> Calibration:
    """Fit a calibration to the scores of pairs that match [P >= 20] and of pairs that do not [N >= 200].

    The pairs that match should be of every kind that is to be found; for one false match in a million, give some ten
    thousand that do not. `prior` is kept as the default of `Calibration.probability`. The tail is fitted on the `tail`
    highest negatives, but never on more than a tenth of all.
    """
    matching, other = _read_scores(positive, "positive"), _read_scores(negative, "negative")
    for values, name, minimum in ((matching, "positive", _MIN_POSITIVES), (other, "negative", _MIN_NEGATIVES)):
        if len(values) < minimum:
            raise DataError(f"A calibration needs at least {minimum} {name} scores, got {len(values)}.")
    law = fit_tail(other, count=tail)
    knots, log_shares = _count_shares(np.sort(other), law)
    flat = Calibration(knots, log_shares, law, 0.0, 0.0, len(matching), len(other), prior)
    slope, intercept = fit_line(-flat.log_share(matching), -flat.log_share(other))
    return dataclasses.replace(flat, slope=slope, intercept=intercept)


def _count_shares(ordered: Floats, tail: Tail) -> tuple[Floats, Floats]:
    """Scores and the logarithm of the share that is as high or higher, up to the tail; a few hundred of them."""
    values, first = np.unique(ordered, return_index=True)
    below = values < tail.start
    values, shares = values[below], 1 - first[below] / len(ordered)
    chosen = [0]
    for scale in (shares, np.log(shares)):  # both fall
        wanted = np.linspace(scale[0], scale[-1], _KNOTS)
        chosen += np.searchsorted(-scale, -wanted).clip(0, len(values) - 1).tolist()
    kept = np.unique(chosen)
    return np.append(values[kept], tail.start), np.append(np.log(shares[kept]), math.log(tail.share))


def fit_line(positive: Floats, negative: Floats) -> tuple[float, float]:
    """Slope and intercept of the log odds over what `positive` [P] and `negative` [N] hold; both weigh the same.

    Logistic regression, towards (P + 1) / (P + 2) and 1 / (N + 2) instead of 1 and 0 as Platt (1999) has it, so that
    the line stays finite where the two do not overlap. A line that would fall is level instead.
    """
    values = np.concatenate([positive, negative])
    matching = np.arange(len(values)) < len(positive)
    wanted = np.where(matching, (len(positive) + 1) / (len(positive) + 2), 1 / (len(negative) + 2))
    weights = np.where(matching, 0.5 / len(positive), 0.5 / len(negative))
    inputs = np.stack([values, np.ones_like(values)])  # [2, P + N]

    def loss(line: Floats) -> float:
        odds = line @ inputs
        return float(weights @ (np.logaddexp(0, odds) - wanted * odds))

    line = np.zeros(2)
    for _ in range(100):  # Newton's method with steps halved until they help: the loss is convex
        found = 1 / (1 + np.exp(-np.clip(line @ inputs, -500, 500)))
        gradient = inputs @ (weights * (found - wanted))
        curvature = (inputs * (weights * found * (1 - found))) @ inputs.T
        step = np.linalg.lstsq(curvature, gradient, rcond=None)[0]
        before = loss(line)
        while loss(line - step) > before and np.abs(step).max() > 1e-12:
            step = step / 2
        line = line - step
        if np.abs(step).max() <= 1e-10:
            break
    if line[0] >= 0:
        return float(line[0]), float(line[1])
    level = float(weights @ wanted)
    return 0.0, math.log(level / (1 - level))


def _count_videos(pairs: int) -> int:
    """The smallest n, at least 2, with that many ordered pairs: n (n - 1).

    >>> [_count_videos(pairs) for pairs in (1, 2, 3, 240, 241)]
    [2, 2, 3, 16, 17]
    """
    root = math.isqrt(pairs)
    return max(2, root + 1 if root * (root + 1) >= pairs else root + 2)


def _read_scores(scores: Array, name: str) -> Floats:
    """Scores [n] as float64; a little beyond -1 and 1, as low precision gives, they count as these."""
    values: npt.NDArray[Any] = (
        scores.detach().cpu().double().numpy() if isinstance(scores, Tensor) else np.asarray(scores)
    )
    if values.ndim != 1 or not (np.issubdtype(values.dtype, np.number) and np.isrealobj(values)):
        raise ShapeError(f"{name} must be numbers [n], got {shape_of(scores)} of shape {list(values.shape)}.")
    values = values.astype(np.float64)
    if not (np.abs(values) <= 1.01).all():
        bad = values[~(np.abs(values) <= 1.01)]
        raise DataError(f"{name} must lie in [-1, 1]; {len(bad)} of {len(values)} do not, such as {bad[0]}.")
    return values.clip(LOWEST, HIGHEST)


def check_prior(prior: float) -> float:
    """A prior as it is, or `ConfigError`."""
    if not isinstance(prior, int | float) or not 0 < prior < 1:
        raise ConfigError(f"prior must be a probability above 0 and below 1, got {prior!r}.")
    return prior
