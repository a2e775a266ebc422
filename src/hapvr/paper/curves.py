"""The numbers behind the plots: precision and recall, distributions of similarities, surrogates of the step."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hapvr.config import suggest
from hapvr.errors import ConfigError, DataError
from hapvr.evaluation import protocol
from hapvr.evaluation.benchmarks.benchmark import Benchmark, Task
from hapvr.evaluation.metrics import Array, check_ranking, check_scores
from hapvr.evaluation.score_files import Scores
from hapvr.losses import QuadLinearAP, SmoothAP, quad_linear

Floats: TypeAlias = npt.NDArray[np.float64]
Scale: TypeAlias = Literal["range", "half", "none"]
SCALES = ("range", "half", "none")


@dataclass(frozen=True, eq=False)
class PrecisionRecall:
    """Precision and recall at each retrieved positive of a ranking, in falling order of score."""

    recall: Floats  # [P] k / positives in the database for the k-th
    precision: Floats  # [P]
    thresholds: Floats  # [P] scores
    positives: int  # in the database

    @property
    def area(self) -> float:
        """The area under the steps of the curve: the average precision."""
        return float(self.precision.sum() / self.positives)


@dataclass(frozen=True, eq=False)
class Distribution:
    """How similarities spread over equal bins: the share of the relevant pairs, and of the irrelevant, in each."""

    edges: Floats  # [B + 1]
    relevant: Floats  # [B] sums to 1
    irrelevant: Floats  # [B] sums to 1
    relevant_pairs: int
    irrelevant_pairs: int

    @property
    def overlap(self) -> float:
        """The share that the two have in common: 0 if no bin holds both, 1 if they are alike."""
        return float(np.minimum(self.relevant, self.irrelevant).sum())


@dataclass(frozen=True, eq=False)
class Surrogate:
    """A function in place of the step H(x) = [x > 0], and its slope."""

    name: str
    setting: str  # such as "δ = 0.05", or empty
    x: Floats  # [P]
    value: Floats  # [P]
    slope: Floats  # [P]


@dataclass(frozen=True, eq=False)
class Pool:
    """The scored pairs of all rankings of a task, by ascending query id and then target id."""

    scores: npt.NDArray[np.float32]  # [P]
    relevant: npt.NDArray[np.bool_]  # [P]
    positives: int  # relevant pairs of the ground truth, also those without a score


def pool_pairs(benchmark: Benchmark, scores: Scores, task: Task, *, missing: protocol.Missing = "drop") -> Pool:
    """The pairs that `evaluate` ranks for a task, pooled: what precision-recall curves and distributions are drawn of.

    >>> benchmark = Benchmark("mine", ("q",), ("a", "b"), {"q": {"a": "1"}}, (Task("uAP", ("1",), "uAP"),))
    >>> pool = pool_pairs(benchmark, Scores(("q",), ("b", "a"), np.array([[.25, .5]])), benchmark.tasks[0])
    >>> pool.scores.tolist(), pool.relevant.tolist(), pool.positives
    ([0.5, 0.25], [True, False], 1)
    """
    found = protocol.rank_queries(benchmark, scores, task, missing=missing)
    pooled = np.concatenate([ranking.scores for ranking in found])
    if not len(pooled):
        raise DataError(f"{benchmark.name}, task '{task.name}': no query has scores.")
    relevant = np.concatenate([ranking.relevant for ranking in found])
    return Pool(pooled, relevant, sum(ranking.positives for ranking in found))


def precision_recall(
    scores: Array, relevant: Array, *, positives: int | None = None, ties: Literal["id", "group"] = "id"
) -> PrecisionRecall:
    """The precision-recall curve of a ranking, or of the pooled pairs of all queries; its area is the (u)AP.

    Arguments [P] are as in `hapvr.evaluation.metrics`. Only the points at positives are kept, so that the curve of a
    whole benchmark is small; between two of them the precision falls from the left one's and rises again.

    Example: positives at ranks 1 and 3.
        >>> curve = precision_recall([.9, .8, .7], [True, False, True])
        >>> curve.recall.tolist(), curve.precision.round(4).tolist(), round(curve.area, 4)
        ([0.5, 1.0], [1.0, 0.6667], 0.8333)
    """
    if ties not in ("id", "group"):
        raise ConfigError(f"ties has no value '{ties}'; {suggest(str(ties), ['id', 'group'])}")
    numbers, labels = check_ranking(scores, relevant)
    found = int(np.count_nonzero(labels))
    total = found if positives is None else int(positives)
    if total < found:
        raise DataError(f"{found} pairs are relevant, but positives says there are {positives} in the database.")
    if total == 0:
        raise DataError(f"none of the {len(numbers)} pairs is relevant, so there is no precision to draw.")
    order = np.argsort(-numbers, kind="stable")
    places = np.flatnonzero(labels[order])  # [P] ranks from 0
    count = np.arange(1, found + 1)
    thresholds = numbers[order[places]].astype(np.float64)
    if ties == "group":
        # Every positive of a group stands where the group ends.
        places = np.searchsorted(-numbers[order], -numbers[order[places]], side="right") - 1
        count = np.searchsorted(-thresholds, -thresholds, side="right")
    return PrecisionRecall(count / total, count / (places + 1), thresholds, total)


def similarity_distribution(scores: Array, relevant: Array, *, bins: int = 50, scale: Scale = "range") -> Distribution:
    """How the similarities of relevant and of irrelevant pairs spread over [0, 1] (the paper's Figure 5).

    Args:
        scores: [P] of the pairs.
        relevant: [P] True where the pair is relevant.
        bins: of equal width; the last one holds its upper edge too.
        scale: how scores become [0, 1]. "range": the smallest of all pairs becomes 0 and the largest 1, so that models
            of different ranges can be compared. "half": s / 2 + 1 / 2, for scores in [-1, 1]. "none": they are so
            already.

    >>> spread = similarity_distribution([-1., 0., 1., 1.], [False, False, False, True], bins=2)
    >>> spread.relevant.tolist(), spread.irrelevant.round(3).tolist(), round(spread.overlap, 3)
    ([0.0, 1.0], [0.333, 0.667], 0.667)
    """
    if not isinstance(bins, int) or bins < 1:
        raise ConfigError(f"bins must be a whole number of at least 1, got {bins!r}.")
    numbers, labels = check_ranking(scores, relevant)
    placed = rescale(numbers, scale=scale)
    counts = {label: int(np.count_nonzero(labels == label)) for label in (True, False)}
    for label, kind in ((True, "relevant"), (False, "irrelevant")):
        if not counts[label]:
            raise DataError(f"none of the {len(numbers)} pairs is {kind}: there are no two distributions to compare.")
    relevant_share, irrelevant_share = (
        np.histogram(placed[labels == label], bins, range=(0.0, 1.0))[0] / counts[label] for label in (True, False)
    )
    edges = np.histogram_bin_edges(placed, bins, range=(0.0, 1.0))
    return Distribution(edges, relevant_share, irrelevant_share, counts[True], counts[False])


def choose_bins(pairs: int) -> int:
    """How many bins a distribution of `pairs` pairs can fill: twice the cube root of their number, from 10 to 50.

    >>> choose_bins(58), choose_bins(1000), choose_bins(10**6)
    (10, 20, 50)
    """
    root: float = max(pairs, 0) ** (1 / 3)
    return min(50, max(10, 2 * round(root)))


def rescale(scores: Array, *, scale: Scale = "range") -> Floats:
    """Scores mapped to [0, 1]; see `similarity_distribution`. `DataError` if they do not fit there.

    >>> rescale([1., 2., 5.]).tolist(), rescale([-1., 0., 1.], scale="half").tolist()
    ([0.0, 0.25, 1.0], [0.0, 0.5, 1.0])
    """
    if scale not in SCALES:
        raise ConfigError(f"scale has no value '{scale}'; {suggest(str(scale), list(SCALES))}")
    numbers = check_scores(scores).astype(np.float64)
    if not np.isfinite(numbers).all():
        bad = int(np.count_nonzero(~np.isfinite(numbers)))
        raise DataError(f"{bad} of {len(numbers)} scores are infinite: they have no place in [0, 1].")
    low, high = float(numbers.min()), float(numbers.max())
    if scale == "range":
        if low == high:
            raise DataError(f"all {len(numbers)} scores are {low:g}: there is no range to map to [0, 1].")
        # Divided first: the range of very large scores would overflow.
        return (numbers / 2 - low / 2) / (high / 2 - low / 2)
    bottom = -1.0 if scale == "half" else 0.0
    # Sums of float32 products leave the range by a rounding; what leaves it by more is another scale.
    if low < bottom - 1e-4 or high > 1 + 1e-4:
        raise DataError(
            f"scores lie in [{low:g}, {high:g}], but scale='{scale}' takes [{bottom:g}, 1]. Use scale='range'."
        )
    return ((numbers - bottom) / (1 - bottom)).clip(0, 1)


@dataclass(frozen=True, eq=False)
class QueryOrder:
    """Queries in the order in which they are drawn."""

    queries: tuple[str, ...]
    values: Floats  # [models, queries] average precisions
    groups: tuple[tuple[str, int, int], ...]  # name, first query, first query after it; one of name "" without groups
    left_out: int  # queries for which some model has no value


def order_queries(models: Mapping[str, Mapping[str, float]], *, groups: Mapping[str, str] | None = None) -> QueryOrder:
    """Order queries by group, and within a group from the best to the worst, by their mean over models.

    Args:
        models: for each model the average precision of each query; NaN where it has none.
        groups: the group of each query; queries without one are in the group "other".

    >>> order = order_queries({"m": {"a": .2, "b": .9, "c": 1.}}, groups={"a": "crop 2", "b": "crop 2", "c": "crop 10"})
    >>> order.queries, order.groups
    (('b', 'a', 'c'), (('crop 2', 0, 2), ('crop 10', 2, 3)))
    """
    if not models:
        raise DataError("there is no model whose queries could be ordered.")
    first, *others = models
    queries = list(models[first])
    for name in others:
        if models[name].keys() != models[first].keys():
            differing = sorted(models[name].keys() ^ models[first].keys())
            raise DataError(
                f"'{first}' and '{name}' have different queries: {len(differing)} are of one alone, the first is "
                f"'{differing[0]}'. Measure both with missing='miss'."
            )
    table = np.array([[models[name][query] for query in queries] for name in models], dtype=np.float64)
    real = ~np.isnan(table).any(0)
    if not real.any():
        raise DataError(f"none of the {len(queries)} queries has an average precision.")
    kinds = [groups.get(query, "other") if groups else "" for query in queries]
    middle = table.mean(0)
    keys = [(_make_natural_key(kind), -mean, query) for kind, mean, query in zip(kinds, middle, queries, strict=True)]
    places = sorted(np.flatnonzero(real).tolist(), key=keys.__getitem__)
    spans: list[tuple[str, int, int]] = []
    for kind, members in groupby(kinds[place] for place in places):
        start = spans[-1][2] if spans else 0
        spans.append((kind, start, start + len(list(members))))
    ordered = tuple(queries[place] for place in places)
    return QueryOrder(ordered, table[:, places], tuple(spans), len(queries) - len(places))


def _make_natural_key(name: str) -> tuple[list[tuple[int, str]], str]:
    """A key that orders "event 2" before "event 10"."""
    parts = re.split(r"(\d+)", name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts], name


def surrogate_curves(
    *, delta: float | None = None, temperature: float | None = None, reach: float = 0.2, points: int = 1001
) -> tuple[Surrogate, Surrogate, Surrogate]:
    """The step of AP and its surrogates: Smooth-AP's sigmoid and QuadLinear-AP's R- (the paper's Figure 4).

    x is by how much a negative leads a positive: right of 0 the pair is wrongly ranked. Slopes come from autograd, as
    in training.

    Args:
        delta: of R-; QuadLinear-AP's default if None.
        temperature: of the sigmoid; Smooth-AP's default if None.
        reach: x runs from -reach to reach.
        points: how many; an odd number has 0 among them.

    >>> step, sigmoid, quad = surrogate_curves(reach=.1, points=3)
    >>> step.value.tolist(), quad.value.tolist(), quad.slope.tolist()
    ([0.0, 0.0, 1.0], [0.0, 1.0, 5.0], [0.0, 40.0, 40.0])
    """
    if not (np.isfinite(reach) and reach > 0):
        raise ConfigError(f"reach must be a number above 0, got {reach!r}.")
    if not isinstance(points, int) or points < 2:
        raise ConfigError(f"points must be a whole number of at least 2, got {points!r}.")
    smooth = SmoothAP() if temperature is None else SmoothAP(temperature)
    quad = QuadLinearAP() if delta is None else QuadLinearAP(delta)
    x = np.linspace(-reach, reach, points)
    return (
        Surrogate("step, [x > 0]", "", x, (x > 0).astype(np.float64), np.zeros(points)),
        _differentiate(
            "Smooth-AP", f"τ = {smooth.temperature:g}", x, lambda lead: torch.sigmoid(lead / smooth.temperature)
        ),
        _differentiate("QuadLinear-AP", f"δ = {quad.delta:g}", x, lambda lead: quad_linear(lead, quad.delta)),
    )


def _differentiate(name: str, setting: str, x: Floats, function: Callable[[Tensor], Tensor]) -> Surrogate:
    lead = torch.from_numpy(x).requires_grad_()
    with torch.enable_grad():
        value = function(lead)
        (slope,) = torch.autograd.grad(value.sum(), lead)
    return Surrogate(name, setting, x, value.detach().numpy(), slope.numpy())
