"""How far verdicts on pairs of videos can be trusted: precision and recall, false verdicts in a million, reliability.

A pair is a query and a database video. By the ground truth it is one of five (`find_truth`):

    copy             the query shows footage of the video: a positive of it
    shared footage   they share a card, or are known to share something that makes no match; neither right nor wrong
    same video       parts of one video without a common frame
    same source      of one channel, camera or folder
    unrelated        all others, also those whose origin is not known

Not every pair is compared: of the strangers of a query (the last three) the nearest by likeness, and some at random.
The rate of false verdicts is false verdicts / all pairs, compared or not: those that were not compared are less alike
than those that were, and are taken for no matches. What was drawn at random gives a rate that takes nothing for
granted, but is of fewer pairs.

The bounds take pairs for independent of each other. Edits of one video are not: the true bounds are wider.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from hapvr.evaluation.benchmarks.benchmark import Benchmark
from hapvr.evaluation.metrics import micro_average_precision, replace_nan
from hapvr.evaluation.pair_records import Box
from hapvr.evaluation.segment_metrics import SegmentMetrics, measure_segments

Truth: TypeAlias = Literal["copy", "shared footage", "same video", "same source", "unrelated"]
STRANGERS: tuple[Truth, ...] = ("same video", "same source", "unrelated")
PROMISES = (1.0, 10.0, 100.0, 1000.0)  # false of a million, at which promises are compared with what is measured
EDGES = (0.0, 0.001, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.999, 1.0)  # of the bins of probability
_COPY: Truth = "copy"
_SAME_EVENT = "same-event"  # the kind of query that shares no frame with its positives
_MILLION = 1_000_000
_CONFIDENCE = 0.95
_Z = 1.959964  # of a two-sided interval of 95%


@dataclass(frozen=True)
class PairVerdict:
    """A pair that was compared: what is true of it, and what was said."""

    query: str
    target: str
    truth: Truth
    verdict: str  # "copy", "same scene" or "no match"
    probability: float | None = None  # of a copy; None where a model gives none
    false_per_million: float | None = None  # that the verdict promises
    second_look: bool = False
    segments: tuple[Box, ...] = ()  # where they match, by the verdict
    near: bool = True  # a copy, or one of the nearest strangers of its query
    drawn: bool = False  # at random from all strangers of its query
    score: float | None = None  # of the network

    @property
    def called_copy(self) -> bool:
        """Whether the verdict is copy."""
        return self.verdict == _COPY

    @property
    def false(self) -> bool:
        """Whether it is called a copy and shares no footage."""
        return self.called_copy and self.truth in STRANGERS


@dataclass(frozen=True)
class CopyFigures:
    """How right the verdict copy is."""

    copies: int
    found: int  # of them, called copies
    false: int  # strangers called copies

    @property
    def precision(self) -> float:
        """Copies among what is called a copy; NaN if nothing is."""
        return self.found / (self.found + self.false) if self.found + self.false else math.nan

    @property
    def recall(self) -> float:
        """What is called a copy among copies; NaN if there are none."""
        return self.found / self.copies if self.copies else math.nan

    def to_json(self) -> dict[str, Any]:
        """The same as a mapping; what is not defined is None."""
        return replace_nan(dataclasses.asdict(self) | {"precision": self.precision, "recall": self.recall})


@dataclass(frozen=True)
class Rate:
    """A count of pairs.

    >>> rate = Rate(0, 150_000)
    >>> rate.per_million, round(rate.upper_per_million)
    (0.0, 20)
    """

    count: int
    pairs: int  # of which

    @property
    def per_million(self) -> float:
        """NaN if there are no pairs."""
        return _MILLION * self.count / self.pairs if self.pairs else math.nan

    @property
    def upper_per_million(self) -> float:
        """The upper bound of 95%. If none was counted it is 3 / pairs (the rule of three)."""
        return _MILLION * min(1.0, bound_count(self.count) / self.pairs) if self.pairs else math.nan

    def to_json(self) -> dict[str, Any]:
        """The same as a mapping; what is not defined is None."""
        values = {"per_million": self.per_million, "upper_per_million": self.upper_per_million}
        return replace_nan(dataclasses.asdict(self) | values)


@dataclass(frozen=True)
class FalseRate:
    """How often strangers of one kind are called copies."""

    rate: Rate  # of all pairs
    compared: int  # of those; the others are less alike, and taken for no matches
    videos: int  # pairs of a video and a database video behind the false ones; several queries may be of one video
    drawn: Rate  # of those drawn at random, compared or not by their likeness

    def to_json(self) -> dict[str, Any]:
        """What the report says."""
        return self.rate.to_json() | {
            "compared": self.compared, "false_pairs_of_videos": self.videos, "drawn": self.drawn.to_json()
        }  # fmt: skip


@dataclass(frozen=True)
class Promise:
    """A rate of false verdicts that is promised, and what is measured at it."""

    promised: float  # of a million: pairs whose verdict promises at most this many
    copies: Rate  # copies among them
    measured: Mapping[Truth, Rate]  # strangers among them, of all pairs

    def to_json(self) -> dict[str, Any]:
        """What the report says."""
        rates = {truth: rate.to_json() for truth, rate in self.measured.items()}
        return {"promised_per_million": self.promised, "copies": self.copies.count, "of_copies": self.copies.pairs,
                "measured": rates}  # fmt: skip


@dataclass(frozen=True)
class Ranking:
    """How well copies are separated from strangers: one average precision over all pairs that were compared (uAP).

    Unlike precision and recall it does not depend on where the verdict draws its line.
    """

    by_score: float  # of the network
    by_probability: float  # of the verdict, all evidence together; equal ones by score

    def to_json(self) -> dict[str, Any]:
        """The same as a mapping."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class ReliabilityBin:
    """Pairs whose probability is at least `low` and below `high`; in the last bin also `high`."""

    low: float
    high: float
    copies: int
    strangers: int
    predicted: float  # mean probability; NaN if there are no pairs, as the next three
    observed: float  # share of copies
    observed_low: float  # of an interval of 95%
    observed_high: float

    def to_json(self) -> dict[str, Any]:
        """The same as a mapping; what is not defined is None."""
        return replace_nan(dataclasses.asdict(self))


@dataclass(frozen=True)
class VerdictFigures:
    """All that `measure_verdicts` measures."""

    overall: CopyFigures
    by_kind: Mapping[str, CopyFigures]  # kind of query
    false: Mapping[Truth, FalseRate]
    segments: Mapping[str, SegmentMetrics]  # over all queries ("") and by kind
    verdicts: Mapping[str, Mapping[str, int]]  # by the truth of a pair, how many pairs have each verdict
    reliability: tuple[ReliabilityBin, ...]  # empty for a model without probabilities
    promises: tuple[Promise, ...]  # the same
    ranking: Ranking | None  # None for a model without probabilities, or where nothing is a copy
    prior: float | None  # share of copies that probabilities and `reliability` are for
    compared: int
    second_looks: int

    def to_json(self) -> dict[str, Any]:
        """What the report says."""
        return {
            "compared": self.compared,
            "second_looks": self.second_looks,
            "copy": self.overall.to_json(),
            "by_kind": {kind: figures.to_json() for kind, figures in self.by_kind.items()},
            "false": {truth: rate.to_json() for truth, rate in self.false.items()},
            "segments": {kind: figures.to_json() for kind, figures in self.segments.items()},
            "verdicts": {truth: dict(counts) for truth, counts in self.verdicts.items()},
            "prior": self.prior,
            "ranking": None if self.ranking is None else self.ranking.to_json(),
            "reliability": [one.to_json() for one in self.reliability],
            "promises": [promise.to_json() for promise in self.promises],
        }


# --- what is true ----------------------------------------------------------------------------------------------------


def find_truth(
    benchmark: Benchmark, query: str, target: str, *, groups: Mapping[str, frozenset[int]] | None = None
) -> Truth:
    """What a pair of a benchmark is, see above.

    Queries of the kind "same-event" share no frame with their positives: they are parts of the same video. With other
    versions of that video they may.

    Args:
        benchmark: its positives, origins and shared cards.
        query: of it.
        target: of its database.
        groups: the groups of each target that may share footage: one in a group of a positive is "shared footage".
    """
    relation = benchmark.relate(query, target)
    scene = (benchmark.groups or {}).get(query) == _SAME_EVENT
    if relation == "match" and not scene:
        return "copy"
    if any(query in spans and target in spans for spans in (benchmark.shared or {}).values()):
        return "shared footage"
    groups = groups or {}
    known = groups.get(target, frozenset())
    if relation == "match":
        return "same video"
    if any(known & groups.get(positive, frozenset()) for positive in benchmark.labels.get(query, {})):
        return "shared footage"
    return relation


# --- figures ---------------------------------------------------------------------------------------------------------


def measure_verdicts(
    pairs: Sequence[PairVerdict],
    benchmark: Benchmark,
    *,
    population: Mapping[Truth, int],
    prior: float | None = None,
) -> VerdictFigures:
    """Measure verdicts against the truth.

    Args:
        pairs: those that were compared, each once; all copies, and some of the strangers.
        benchmark: that they are of.
        population: how many pairs of each truth there are, compared or not.
        prior: the probability of a copy before the comparison that probabilities were computed with.
    """
    kinds = benchmark.groups or {}
    names = sorted({kinds[pair.query] for pair in pairs if pair.query in kinds})
    of_kind = {name: [pair for pair in pairs if kinds.get(pair.query) == name] for name in names}
    known = [pair for pair in pairs if pair.near and pair.probability is not None]
    known = [pair for pair in known if pair.truth == _COPY or pair.truth in STRANGERS]
    reliability: tuple[ReliabilityBin, ...] = ()
    if prior is not None and known:
        reliability = measure_reliability(
            [pair.probability or 0.0 for pair in known], [pair.truth == _COPY for pair in known], prior=prior
        )
    verdicts: dict[str, Counter[str]] = {}
    for pair in pairs:
        verdicts.setdefault(pair.truth, Counter())[pair.verdict] += 1
    return VerdictFigures(
        overall=count_copies(pairs),
        by_kind={name: count_copies(own) for name, own in of_kind.items()},
        false=measure_false(pairs, benchmark, population),
        segments={name: measure_stretches(own, benchmark) for name, own in {"": list(pairs), **of_kind}.items()},
        verdicts={truth: dict(sorted(counts.items())) for truth, counts in sorted(verdicts.items())},
        reliability=reliability,
        promises=tuple(measure_promises(pairs, population)),
        ranking=measure_ranking(pairs),
        prior=prior,
        compared=len(pairs),
        second_looks=sum(pair.second_look for pair in pairs),
    )


def measure_ranking(pairs: Iterable[PairVerdict]) -> Ranking | None:
    """How copies rank among all copies and strangers that were compared; None where there is nothing to rank by.

    Example: the network prefers a stranger, the verdict does not.
        >>> pairs = [PairVerdict("q", "a", "copy", "copy", 0.9, score=0.1),
        ...          PairVerdict("q", "b", "unrelated", "no match", 0.2, score=0.5)]
        >>> measure_ranking(pairs)
        Ranking(by_score=0.5, by_probability=1.0)
    """
    known = [pair for pair in pairs if pair.truth == _COPY or pair.truth in STRANGERS]
    scores = [pair.score for pair in known if pair.score is not None]
    probabilities = [pair.probability for pair in known if pair.probability is not None]
    copies = np.array([pair.truth == _COPY for pair in known])
    if not copies.any() or len(scores) < len(known) or len(probabilities) < len(known):
        return None
    _, places = np.unique(np.array([probabilities, scores]), axis=1, return_inverse=True)  # by probability, then score
    by_score, by_probability = (
        micro_average_precision(values, copies, ties="group") for values in (np.array(scores), places.ravel())
    )
    return Ranking(by_score, by_probability)


def count_copies(pairs: Iterable[PairVerdict]) -> CopyFigures:
    """How many copies are called copies, and how many strangers."""
    pairs = list(pairs)
    copies = [pair for pair in pairs if pair.truth == _COPY]
    return CopyFigures(len(copies), sum(pair.called_copy for pair in copies), sum(pair.false for pair in pairs))


def measure_false(
    pairs: Sequence[PairVerdict], benchmark: Benchmark, population: Mapping[Truth, int]
) -> dict[Truth, FalseRate]:
    """How often strangers are called copies, by how near they are, for those that the population has."""
    rates: dict[Truth, FalseRate] = {}
    for truth in STRANGERS:
        own = [pair for pair in pairs if pair.truth == truth]
        if not population.get(truth, 0):
            continue
        false = [pair for pair in own if pair.called_copy]
        drawn = [pair for pair in own if pair.drawn]
        rates[truth] = FalseRate(
            Rate(len(false), population[truth]),
            len(own),
            len({(_name_video(benchmark, pair.query), pair.target) for pair in false}),
            Rate(sum(pair.called_copy for pair in drawn), len(drawn)),
        )
    return rates


def measure_promises(pairs: Sequence[PairVerdict], population: Mapping[Truth, int]) -> list[Promise]:
    """Promised rates of false verdicts against those measured; empty where no verdict promises one."""
    if all(pair.false_per_million is None for pair in pairs):
        return []
    promises = []
    for promised in PROMISES:
        within = [pair for pair in pairs if pair.false_per_million is not None and pair.false_per_million <= promised]
        counts = Counter(pair.truth for pair in within)
        copies = Rate(counts[_COPY], sum(pair.truth == _COPY for pair in pairs))
        measured = {truth: Rate(counts[truth], population[truth]) for truth in STRANGERS if population.get(truth, 0)}
        promises.append(Promise(promised, copies, measured))
    return promises


def measure_stretches(pairs: Sequence[PairVerdict], benchmark: Benchmark) -> SegmentMetrics:
    """Precision and recall of the stretches that verdicts report. Copies without a known true stretch are left out."""
    true: dict[tuple[str, str], list[Box]] = {}
    for query in {pair.query for pair in pairs}:
        for part in (benchmark.segments or {}).get(query, ()):
            box = ((part.start_s, part.end_s), (part.target_start_s, part.target_end_s))
            true.setdefault((query, part.target), []).append(box)
    found = {(pair.query, pair.target): pair.segments for pair in pairs if pair.truth in STRANGERS}
    copies = {(pair.query, pair.target): pair.segments for pair in pairs if pair.truth == _COPY}
    known = {pair: segments for pair, segments in copies.items() if pair in true}
    return measure_segments(found | known, {pair: true[pair] for pair in known})


def measure_reliability(
    probabilities: ArrayLike, copies: ArrayLike, *, prior: float, edges: Sequence[float] = EDGES
) -> tuple[ReliabilityBin, ...]:
    """Predicted probabilities of a copy against the share of copies, in bins.

    Probabilities are for a population with the share `prior` of copies, and these pairs may have another. So copies and
    strangers are weighed to that share: a bin with k copies and n strangers, of K and N in all, has the odds of a copy

        k / n * (N / K) * prior / (1 - prior)

    The interval is Wilson's of k / (k + n), carried over to those odds.

    Args:
        probabilities: of each pair, [N].
        copies: whether it is a copy, [N].
        prior: the share of copies for which the probabilities were computed.
        edges: of the bins, ascending.

    Example: with as many copies as strangers and a prior of 1/2 nothing is weighed.
        >>> low, high = measure_reliability([0.2, 0.4, 0.9, 0.9], [0, 1, 1, 0], prior=0.5, edges=(0, 0.5, 1))
        >>> round(low.predicted, 3), low.observed, high.predicted, high.observed
        (0.3, 0.5, 0.9, 0.5)
    """
    said, true = np.asarray(probabilities, float), np.asarray(copies, bool)
    all_copies, all_strangers = int(true.sum()), int((~true).sum())
    ratio = math.nan
    if all_copies and all_strangers and 0 < prior < 1:
        ratio = all_strangers / all_copies * prior / (1 - prior)  # weight of a copy, that of a stranger being 1
    bins = []
    for low, high in itertools.pairwise(edges):
        inside = (said >= low) & ((said < high) if high < edges[-1] else (said <= high))
        hits, others = int((inside & true).sum()), int((inside & ~true).sum())
        weights = np.where(true[inside], ratio, 1.0)
        count = hits + others
        predicted = float((weights * said[inside]).sum() / weights.sum()) if count else math.nan
        shares = _wilson(hits, count) if count else (math.nan, math.nan)
        observed, least, most = (_weigh(share, ratio) for share in (hits / count if count else math.nan, *shares))
        bins.append(ReliabilityBin(low, high, hits, others, predicted, observed, least, most))
    return tuple(bins)


def bound_count(count: int) -> float:
    """The greatest mean of a Poisson count of which `count` or less is seen with a probability of at least 5%.

    >>> [round(bound_count(count), 3) for count in (0, 1, 10)]
    [2.996, 4.744, 16.962]
    """
    numbers = np.arange(count + 1)
    logs = np.array([math.lgamma(number + 1) for number in numbers])

    def chance(mean: float) -> float:
        return float(np.exp(numbers * math.log(mean) - mean - logs).sum())

    return _bisect(chance, 1 - _CONFIDENCE, count + 1e-9, count + 10 + 5 * math.sqrt(count))


def _bisect(falling: Callable[[float], float], wanted: float, low: float, high: float) -> float:
    """Where a falling function has a value."""
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > wanted else (low, middle)
    return (low + high) / 2


def _wilson(hits: int, count: int) -> tuple[float, float]:
    share, square = hits / count, _Z * _Z
    middle = share + square / (2 * count)
    reach = _Z * math.sqrt(share * (1 - share) / count + square / (4 * count * count))
    low, high = ((middle + sign * reach) / (1 + square / count) for sign in (-1, 1))
    return (0.0 if hits == 0 else low), (1.0 if hits == count else high)


def _weigh(share: float, ratio: float) -> float:
    """A share of copies, after each copy has the weight `ratio`."""
    return ratio * share / (ratio * share + 1 - share)


def _name_video(benchmark: Benchmark, query: str) -> tuple[str, ...]:
    """What a query was made of, as far as it is known."""
    origin = (benchmark.origins or {}).get(query)
    return (origin.videos if origin is not None else ()) or tuple(benchmark.labels.get(query, ())) or (query,)
