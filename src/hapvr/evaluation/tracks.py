"""Predictions of pairs and segments: make them with a model, and measure them, or those of another system.

Another system is measured by its files alone: `measure_candidates`, `measure_matches`, `measure_boxes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from hapvr.errors import DataError
from hapvr.evaluation.benchmarks.benchmark import Benchmark
from hapvr.evaluation.descriptor_track import CANDIDATES_PER_QUERY
from hapvr.evaluation.metrics import replace_nan
from hapvr.evaluation.pair_records import Box, Candidate, PairOfVideos, SegmentMatch
from hapvr.evaluation.score_files import Scores
from hapvr.evaluation.scoring import match_names
from hapvr.evaluation.segment_metrics import find_boxes
from hapvr.evaluation.track_metrics import (
    keep_best_scores,
    measure_vcsl,
    pair_average_precision,
    segment_average_precision,
)
from hapvr.features import FeatureFile
from hapvr.similarity import SegmentConfig, VideoSimilarity
from hapvr.storage import StrPath


@dataclass(frozen=True)
class TrackResult:
    """Figures of one set of predictions, fractions of 1, and the counts behind them."""

    name: str
    figures: Mapping[str, float]  # NaN where one is not defined
    counts: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        """The same as JSON holds it; what is not defined is None."""
        return {"name": self.name, "figures": replace_nan(self.figures), "counts": dict(self.counts)}


def list_true_pairs(benchmark: Benchmark) -> set[PairOfVideos]:
    """The pairs whose label is a positive of the first task."""
    labels = set(benchmark.tasks[0].labels)
    return {(query, target) for query, row in benchmark.labels.items() for target in row if row[target] in labels}


def list_true_boxes(benchmark: Benchmark) -> dict[PairOfVideos, list[Box]]:
    """The true segments of each pair. `DataError` if the benchmark has none."""
    if benchmark.segments is None:
        raise DataError(f"{benchmark.name} does not say where its videos match, so segments cannot be measured.")
    return benchmark.list_boxes()


def measure_candidates(benchmark: Benchmark, candidates: Sequence[Candidate]) -> TrackResult:
    """Predicted pairs by VSC2022's descriptor track: one average precision over all of them.

    Every predicted pair that is not true counts as false, also of videos that the benchmark does not name: a ground
    truth may name only videos that match something. How many name such is counted.
    """
    true = list_true_pairs(benchmark)
    figure = pair_average_precision(true, candidates)
    found = sum(candidate.pair in true for candidate in candidates)
    counts = {"predicted pairs": len(candidates), "true pairs": len(true), "true pairs predicted": found}
    return TrackResult("descriptor track", {"uAP": figure}, counts | _count_unknown_videos(benchmark, candidates))


def measure_matches(benchmark: Benchmark, matches: Sequence[SegmentMatch]) -> TrackResult:
    """Predicted segments by VSC2022's matching track, and their pairs by the descriptor track."""
    true = list_true_boxes(benchmark)
    pairs = keep_best_scores(matches)
    figures = {
        "segment uAP": segment_average_precision(true, matches),
        "pair uAP": pair_average_precision(list_true_pairs(benchmark), pairs),
    }
    found = sum(candidate.pair in true for candidate in pairs)
    counts = {"predicted segments": len(matches), "true segments": sum(map(len, true.values())),
              "true pairs": len(true), "true pairs predicted": found}  # fmt: skip
    return TrackResult("matching track", figures, counts | _count_unknown_videos(benchmark, pairs))


def measure_boxes(benchmark: Benchmark, found: Mapping[str, Sequence[Box]]) -> TrackResult:
    """Segments in VCSL's layout by VCSL's protocol, over the labelled pairs of a benchmark.

    A labelled pair that the file does not hold counts as one for which nothing was found; a pair of the file that is
    not labelled is not measured. Both are counted.
    """
    true = list_true_boxes(benchmark)
    pairs = {f"{query}-{target}": (query, target) for query, row in benchmark.labels.items() for target in row}
    own = {pair: found[key] for key, pair in pairs.items() if key in found}
    result = measure_vcsl(own, true, pairs.values(), sets=benchmark.pair_sets)
    table = result.to_json()
    whole = ("pairs", "matching_pairs", "sets")
    figures = {name.replace("_", " "): getattr(result, name) for name in table if name not in whole}
    if not result.sets:
        figures = {name: value for name, value in figures.items() if not name.startswith("set ")}
    counts = {name.replace("_", " "): getattr(result, name) for name in whole}
    counts |= {"pairs not in the file": len(pairs) - len(own), "other pairs": len(found.keys() - pairs.keys())}
    return TrackResult("VCSL", figures, counts)


def _count_unknown_videos(benchmark: Benchmark, candidates: Iterable[Candidate]) -> dict[str, int]:
    queries, database = set(benchmark.queries), set(benchmark.database)
    strange = sum(one.query not in queries or one.target not in database for one in candidates)
    return {"pairs of videos that the benchmark does not name": strange}


# --- with a model ------------------------------------------------------------------------------------------------


def select_candidates(scores: Scores, *, per_query: int = CANDIDATES_PER_QUERY) -> list[Candidate]:
    """The pairs with the best scores of all, `per_query` times the number of queries; best first, equal ones by id.

    >>> scores = Scores(("q",), ("a", "b", "c"), np.array([[0.2, 0.9, -np.inf]], dtype=np.float32))
    >>> [candidate.target for candidate in select_candidates(scores, per_query=2)]
    ['b', 'a']
    """
    values = scores.values.ravel()
    count = min(per_query * len(scores.queries), int((values != -np.inf).sum()))
    if count == 0:
        return []
    least = np.partition(values, len(values) - count)[len(values) - count]
    places = np.flatnonzero(values >= least)
    width = len(scores.targets)
    found = [Candidate(scores.queries[place // width], scores.targets[place % width], float(values[place]))
             for place in places.tolist()]  # fmt: skip
    return sorted(found, key=lambda one: (-one.score, one.query, one.target))[:count]


@torch.no_grad()
def find_matches(
    model: VideoSimilarity,
    candidates: Sequence[Candidate],
    features: StrPath,
    *,
    query_features: StrPath | None = None,
    config: SegmentConfig | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[PairOfVideos, list[SegmentMatch]]:
    """Where the videos of each pair match; a segment has the score of its pair.

    Flat and repeated frames are left out, as `hapvr compare` does. Pairs without features are not in the answer.

    Args:
        model: the matrices that it scores are searched (`VideoSimilarity.scored_matrix`).
        candidates: the pairs to search.
        features: an HDF5 file of features with timestamps.
        query_features: the file of the queries' features, if they are in another one.
        config: what counts as a match.
        progress: called with the pairs finished so far, and of all.
    """
    found: dict[PairOfVideos, list[SegmentMatch]] = {}
    ordered = sorted(candidates, key=lambda one: one.query)  # so that each query is read once
    with FeatureFile.open(features) as file, FeatureFile.open(query_features or features) as query_file:
        names = match_names([one.target for one in candidates], file)
        query_names = match_names([one.query for one in candidates], query_file)
        own = None
        for done, one in enumerate(ordered, start=1):
            if one.query in query_names and one.target in names:
                if own is None or own[0] != one.query:
                    own = one.query, query_file[query_names[one.query]]
                boxes = find_boxes(model, own[1], file[names[one.target]], config)
                found[one.pair] = [SegmentMatch(*one.pair, box, one.score) for box in boxes]
            if progress is not None:
                progress(done, len(ordered))
    return found
