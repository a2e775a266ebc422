"""How well a model finds where videos match: precision, recall and F1 by overlap in time, and the boundary error.

The protocol follows VCSL (He et al., CVPR 2022, arXiv:2203.02654). A segment is a box in the plane of query time and
target time. Where a found box and a true box share an area, the found one is right on the stretch of query time and on
the stretch of target time that they share:

    precision = (found query seconds that are right / found query seconds) x (the same of target seconds)
    recall    = (true query seconds that are found / true query seconds) x (the same of target seconds)

What two boxes both cover is counted once. Seconds are pooled over the pairs of videos that are measured, so a long
match weighs more than a short one, and a pair with nothing found needs no special rule.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from hapvr.errors import DataError
from hapvr.evaluation.benchmarks.benchmark import Benchmark
from hapvr.evaluation.metrics import Figures
from hapvr.evaluation.pair_records import Box, Interval
from hapvr.evaluation.scoring import match_names
from hapvr.features import FeatureFile, Features
from hapvr.similarity import SegmentConfig, VideoSimilarity, find_segments
from hapvr.storage import StrPath

Pair = TypeVar("Pair", bound=Hashable)  # what names a pair of videos
_SEED = 0


@dataclass(frozen=True)
class SegmentMetrics(Figures):
    """What `measure_segments` measures, over all pairs."""

    precision: float  # NaN if nothing was found
    recall: float  # NaN if there is nothing to find
    f1: float
    boundary_error_s: float  # mean over the four borders of each true segment that was found; NaN if none was
    true: int  # segments
    found: int
    pairs: int  # pairs of videos with a true segment
    false_pairs: int  # pairs of videos without one, for which one was found
    negative_pairs: int  # pairs of videos without one


def measure_segments(found: Mapping[Pair, Sequence[Box]], true: Mapping[Pair, Sequence[Box]]) -> SegmentMetrics:
    """Compare found segments with true ones, pair of videos by pair of videos.

    Precision, recall and border error are over the pairs that match in truth; found segments of the others are counted
    in `false_pairs`.

    Args:
        found: pair of videos -> its found segments; every pair that was compared, also those with none.
        true: pair of videos -> its true segments; a pair that is missing or has none does not match.

    Example: of 10 true seconds the last 8 were found, and 2 more; so on both axes.
        >>> figures = measure_segments({"pair": [((2, 12), (102, 112))]}, {"pair": [((0, 10), (100, 110))]})
        >>> round(figures.precision, 3), round(figures.recall, 3), figures.boundary_error_s
        (0.64, 0.64, 2.0)
    """
    positive = {pair: [_check_box(box, pair) for box in boxes] for pair, boxes in true.items() if boxes}
    looked = {pair: [_check_box(box, pair) for box in boxes] for pair, boxes in found.items()}
    if missing := [pair for pair in positive if pair not in looked]:
        raise DataError(f"{len(missing)} pairs with true segments were not compared, such as {missing[0]!r}.")
    precision, recall = _measure_overlap((looked[pair], boxes) for pair, boxes in positive.items())
    borders = (_border_error(box, looked[pair]) for pair, boxes in positive.items() for box in boxes)
    errors = [error for error in borders if error is not None]
    negative = [pair for pair in looked if pair not in positive]
    return SegmentMetrics(
        precision=precision,
        recall=recall,
        f1=2 * precision * recall / (precision + recall) if precision + recall > 0 else 0.0,
        boundary_error_s=sum(errors) / len(errors) if errors else math.nan,
        true=sum(map(len, positive.values())),
        found=sum(len(looked[pair]) for pair in positive),
        pairs=len(positive),
        false_pairs=sum(bool(looked[pair]) for pair in negative),
        negative_pairs=len(negative),
    )


def measure_pair(found: Sequence[Box], true: Sequence[Box]) -> tuple[float, float]:
    """Precision and recall of one pair of videos; NaN where nothing was found, or is to be found.

    >>> precision, recall = measure_pair([((2, 12), (102, 112))], [((0, 10), (100, 110))])
    >>> round(precision, 3), round(recall, 3)
    (0.64, 0.64)
    """
    return _measure_overlap([(found, true)])


def measure_localisation(
    model: VideoSimilarity,
    benchmark: Benchmark,
    features: StrPath,
    *,
    query_insets: StrPath | None = None,
    config: SegmentConfig | None = None,
    negatives: int = 2,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, SegmentMetrics]:
    """How well a model finds where videos match: figures overall ("") and by group.

    Each query is compared with the targets of its true segments, and with `negatives` others that are no positives of
    it, drawn from a fixed seed: segments found there are false. Flat and repeated frames are left out, as `hapvr
    compare` does; so are pairs without features.

    Args:
        model: the matrices that it scores are searched (`VideoSimilarity.scored_matrix`).
        benchmark: one with segments, such as a made folder.
        features: an HDF5 file of features with timestamps.
        query_insets: the same of what some queries show in windows; of a pair, the view with the higher score counts.
        config: what counts as a match.
        negatives: targets of each query that do not match.
        progress: called with the queries finished so far, and of all.
    """
    with ExitStack() as opened:
        file = opened.enter_context(FeatureFile.open(features))
        insets = None if query_insets is None else opened.enter_context(FeatureFile.open(query_insets))
        names = match_names([*benchmark.queries, *benchmark.database], file)

        @functools.lru_cache(maxsize=1)  # a query is asked for several times in a row
        def read(query: str) -> list[Features]:
            return [file[names[query]], *([insets[query]] if insets is not None and query in insets else [])]

        def find(query: str, target: str) -> list[Box]:
            views, shown = read(query), file[names[target]]
            best = views[0] if len(views) == 1 else max(views, key=lambda view: _score(model, view, shown))
            return find_boxes(model, best, shown, config)

        return measure_found_boxes(find, benchmark, names, negatives=negatives, progress=progress)


@torch.no_grad()
def measure_found_boxes(
    find: Callable[[str, str], list[Box]],
    benchmark: Benchmark,
    known: Container[str],
    *,
    negatives: int = 2,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, SegmentMetrics]:
    """`measure_localisation` of anything that finds the boxes of a query and a target, given by their ids.

    `known` says which videos can be compared.
    """
    if benchmark.segments is None:
        raise DataError(f"{benchmark.name} does not say where its videos match.")
    found: dict[tuple[str, str], list[Box]] = {}
    true = {pair: boxes for pair, boxes in benchmark.list_boxes().items() if pair[0] in known and pair[1] in known}
    queries = [query for query in benchmark.queries if query in known]
    targets = [target for target in benchmark.database if target in known]
    for done, query in enumerate(queries):
        matching = [target for asked, target in true if asked == query]
        others = [target for target in targets if target not in benchmark.labels.get(query, {})]
        drawn = np.random.default_rng([_SEED, done]).permutation(len(others))[:negatives]
        for target in [*matching, *(others[place] for place in drawn)]:
            found[query, target] = find(query, target)
        if progress is not None:
            progress(done + 1, len(queries))
    groups: dict[str, set[str]] = {"": set(queries)}
    for query in queries:
        if benchmark.groups and query in benchmark.groups:
            groups.setdefault(benchmark.groups[query], set()).add(query)
    return {
        name: measure_segments(*({pair: own[pair] for pair in own if pair[0] in members} for own in (found, true)))
        for name, members in sorted(groups.items())
    }


def _score(model: VideoSimilarity, query: Features, target: Features) -> float:
    sides = (model.make_descriptors(side.drop_flat().regions.to(model.device)) for side in (query, target))
    return float(model.score(*sides))


def find_boxes(model: VideoSimilarity, query: Features, target: Features, config: SegmentConfig | None) -> list[Box]:
    """The matching stretches of two videos; flat and repeated frames are left out."""
    query, target = query.drop_flat(), target.drop_flat()
    if query.timestamps is None or target.timestamps is None:
        raise DataError(
            "Segments are in seconds, and these features come without timestamps: extract the videos again."
        )
    matrix = model.scored_matrix(*(side.regions.to(model.device) for side in (query, target))).float().cpu().numpy()
    segments = find_segments(matrix, query.timestamps, target.timestamps, config=config)
    return [(segment.query, segment.target) for segment in segments]


# --- boxes -----------------------------------------------------------------------------------------------------------


def _measure_overlap(pairs: Iterable[tuple[Sequence[Box], Sequence[Box]]]) -> tuple[float, float]:
    """Precision and recall over pairs of videos, each with its found and its true boxes; NaN where there are none."""
    said, right, wanted, hit = np.zeros((4, 2))  # seconds of query and of target time
    for found, true in pairs:
        for boxes, others, whole, shared in ((found, true, said, right), (true, found, wanted, hit)):
            for box in boxes:
                whole += [end - start for start, end in box]
                shared += [union_length(part) for part in _intersect(box, others)]
    return _multiply_shares(right, said), _multiply_shares(hit, wanted)


def _multiply_shares(part: NDArray[np.float64], whole: NDArray[np.float64]) -> float:
    return float(np.prod(part / whole)) if whole.all() else math.nan


def _intersect(box: Box, others: Sequence[Box]) -> tuple[list[Interval], list[Interval]]:
    """The stretches of `box` on either axis that lie in the areas it shares with the others."""
    areas = []
    for other in others:
        query, target = _common(box[0], other[0]), _common(box[1], other[1])
        if query is not None and target is not None:
            areas.append((query, target))
    return [area[0] for area in areas], [area[1] for area in areas]


def _common(a: Interval, b: Interval) -> Interval | None:
    start, end = max(a[0], b[0]), min(a[1], b[1])
    return (start, end) if start < end else None


def union_length(intervals: Iterable[Interval]) -> float:
    """The length of the union of intervals: overlaps count once.

    >>> union_length([(0, 2), (1, 3), (5, 6)])
    4.0
    """
    total, reached = 0.0, -math.inf
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def _border_error(box: Box, found: Sequence[Box]) -> float | None:
    """Mean distance of the four borders to those of the found box that overlaps it best; None if none does."""
    best = max(found, key=lambda other: _overlap(box, other), default=None)
    if best is None or _overlap(box, best) == 0:
        return None
    return sum(abs(box[axis][end] - best[axis][end]) for axis in (0, 1) for end in (0, 1)) / 4


def _overlap(a: Box, b: Box) -> float:
    """The area that two boxes share over the area they cover together."""
    query, target = _common(a[0], b[0]), _common(a[1], b[1])
    if query is None or target is None:
        return 0.0
    shared = _area((query, target))
    return shared / (_area(a) + _area(b) - shared)


def _area(box: Box) -> float:
    return (box[0][1] - box[0][0]) * (box[1][1] - box[1][0])


def _check_box(box: Box, pair: Hashable) -> Box:
    (a, b), (c, d) = box
    if not (a < b and c < d and all(map(math.isfinite, (a, b, c, d)))):
        raise DataError(f"A segment of {pair!r} is {box}: an interval must be (start, end) with start < end.")
    return (a, b), (c, d)
