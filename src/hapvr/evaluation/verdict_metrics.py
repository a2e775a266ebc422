"""How far verdicts on pairs of videos can be trusted: precision and recall, false verdicts in a million, reliability.

A pair is a query and a database video. By the ground truth it is one of five (`find_truth`):

    copy             the query shows footage of the video: a positive of it
    shared footage   they share a card, or are known to share something that makes no match; neither right nor wrong
    same video       parts of one video without a common frame
    same source      of one channel, camera or folder
    unrelated        all others, also those whose origin is not known

Not every pair is compared: of the negatives of a query (the last three) the nearest by likeness, and some at random.
The rate of false verdicts is false verdicts / all pairs, compared or not: those that were not compared are less alike
than those that were, and are taken for no matches. What was drawn at random gives a rate that takes nothing for
granted, but is of fewer pairs.

The bounds take pairs for independent of each other. Edits of one video are not: the true bounds are wider.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from hapvr.evaluation.benchmarks.benchmark import Benchmark
from hapvr.evaluation.intervals import wilson_interval
from hapvr.evaluation.metrics import micro_average_precision
from hapvr.evaluation.segment_metrics import SegmentMetrics, measure_segments
from hapvr.evaluation.verdict_figures import (
    COPY,
    NEGATIVES,
    CopyFigures,
    FalseRate,
    PairVerdict,
    Promise,
    Ranking,
    Rate,
    ReliabilityBin,
    Truth,
    VerdictFigures,
)

PROMISES = (1.0, 10.0, 100.0, 1000.0)  # false of a million, at which promises are compared with what is measured
EDGES = (0.0, 0.001, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.999, 1.0)  # of the bins of probability
_SAME_EVENT = "same-event"  # the kind of query that shares no frame with its positives


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
    pairs: Sequence[PairVerdict], benchmark: Benchmark, *, population: Mapping[Truth, int], prior: float | None = None
) -> VerdictFigures:
    """Measure verdicts against the truth.

    Args:
        pairs: those that were compared, each once; all copies, and some of the negatives.
        benchmark: that they are of.
        population: how many pairs of each truth there are, compared or not.
        prior: the probability of a copy before the comparison that probabilities were computed with.
    """
    kinds = benchmark.groups or {}
    names = sorted({kinds[pair.query] for pair in pairs if pair.query in kinds})
    of_kind = {name: [pair for pair in pairs if kinds.get(pair.query) == name] for name in names}
    known = [pair for pair in pairs if pair.near and pair.probability is not None]
    known = [pair for pair in known if pair.truth == COPY or pair.truth in NEGATIVES]
    reliability: tuple[ReliabilityBin, ...] = ()
    if prior is not None and known:
        reliability = measure_reliability(
            [pair.probability or 0.0 for pair in known], [pair.truth == COPY for pair in known], prior=prior
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
    """How copies rank among all copies and negatives that were compared; None where there is nothing to rank by.

    Example: the network prefers a negative, the verdict does not.
        >>> pairs = [PairVerdict("q", "a", "copy", "copy", 0.9, score=0.1),
        ...          PairVerdict("q", "b", "unrelated", "no match", 0.2, score=0.5)]
        >>> measure_ranking(pairs)
        Ranking(by_score=0.5, by_probability=1.0)
    """
    known = [pair for pair in pairs if pair.truth == COPY or pair.truth in NEGATIVES]
    scores = [pair.score for pair in known if pair.score is not None]
    probabilities = [pair.probability for pair in known if pair.probability is not None]
    copies = np.array([pair.truth == COPY for pair in known])
    if not copies.any() or len(scores) < len(known) or len(probabilities) < len(known):
        return None
    _, places = np.unique(np.array([probabilities, scores]), axis=1, return_inverse=True)  # by probability, then score
    by_score, by_probability = (
        micro_average_precision(values, copies, ties="group") for values in (np.array(scores), places.ravel())
    )
    return Ranking(by_score, by_probability)


def count_copies(pairs: Iterable[PairVerdict]) -> CopyFigures:
    """How many copies are called copies, and how many negatives."""
    pairs = list(pairs)
    copies = [pair for pair in pairs if pair.truth == COPY]
    return CopyFigures(len(copies), sum(pair.called_copy for pair in copies), sum(pair.false for pair in pairs))


def measure_false(
    pairs: Sequence[PairVerdict], benchmark: Benchmark, population: Mapping[Truth, int]
) -> dict[Truth, FalseRate]:
    """How often negatives are called copies, by how near they are, for those that the population has."""
    rates: dict[Truth, FalseRate] = {}
    for truth in NEGATIVES:
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
        copies = Rate(counts[COPY], sum(pair.truth == COPY for pair in pairs))
        measured = {truth: Rate(counts[truth], population[truth]) for truth in NEGATIVES if population.get(truth, 0)}
        promises.append(Promise(promised, copies, measured))
    return promises


def measure_stretches(pairs: Sequence[PairVerdict], benchmark: Benchmark) -> SegmentMetrics:
    """Precision and recall of the stretches that verdicts report. Copies without a known true stretch are left out."""
    true = benchmark.list_boxes()
    found = {(pair.query, pair.target): pair.segments for pair in pairs if pair.truth in NEGATIVES}
    copies = {(pair.query, pair.target): pair.segments for pair in pairs if pair.truth == COPY}
    known = {pair: segments for pair, segments in copies.items() if pair in true}
    return measure_segments(found | known, {pair: true[pair] for pair in known})


def measure_reliability(
    probabilities: ArrayLike, copies: ArrayLike, *, prior: float, edges: Sequence[float] = EDGES
) -> tuple[ReliabilityBin, ...]:
    """Predicted probabilities of a copy against the share of copies, in bins.

    Probabilities are for a population with the share `prior` of copies, and these pairs may have another. So copies and
    negatives are weighed to that share: a bin with k copies and n negatives, of K and N in all, has the odds of a copy

        k / n * (N / K) * prior / (1 - prior)

    The interval is Wilson's of k / (k + n), carried over to those odds.

    Args:
        probabilities: of each pair, [N].
        copies: whether it is a copy, [N].
        prior: the share of copies for which the probabilities were computed.
        edges: of the bins, ascending.

    Example: with as many copies as negatives and a prior of 1/2 nothing is weighed.
        >>> low, high = measure_reliability([0.2, 0.4, 0.9, 0.9], [0, 1, 1, 0], prior=0.5, edges=(0, 0.5, 1))
        >>> round(low.predicted, 3), low.observed, high.predicted, high.observed
        (0.3, 0.5, 0.9, 0.5)
    """
    said, true = np.asarray(probabilities, float), np.asarray(copies, bool)
    all_copies, all_negatives = int(true.sum()), int((~true).sum())
    ratio = math.nan
    if all_copies and all_negatives and 0 < prior < 1:
        ratio = all_negatives / all_copies * prior / (1 - prior)  # weight of a copy, that of a negative being 1
    bins = []
    for low, high in itertools.pairwise(edges):
        inside = (said >= low) & ((said < high) if high < edges[-1] else (said <= high))
        hits, others = int((inside & true).sum()), int((inside & ~true).sum())
        weights = np.where(true[inside], ratio, 1.0)
        count = hits + others
        predicted = float((weights * said[inside]).sum() / weights.sum()) if count else math.nan
        shares = wilson_interval(hits, count) if count else (math.nan, math.nan)
        observed, least, most = (_weigh(share, ratio) for share in (hits / count if count else math.nan, *shares))
        bins.append(ReliabilityBin(low, high, hits, others, predicted, observed, least, most))
    return tuple(bins)


def _weigh(share: float, ratio: float) -> float:
    """A share of copies, after each copy has the weight `ratio`."""
    return ratio * share / (ratio * share + 1 - share)


def _name_video(benchmark: Benchmark, query: str) -> tuple[str, ...]:
    """What a query was made of, as far as it is known."""
    origin = (benchmark.origins or {}).get(query)
    return (origin.videos if origin is not None else ()) or tuple(benchmark.labels.get(query, ())) or (query,)
