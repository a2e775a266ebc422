"""Matching stretches of a benchmark whose true ones are known: found with a model, measured by `measure_segments`."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import torch

from hapvr.errors import DataError
from hapvr.evaluation.benchmarks.benchmark import Benchmark
from hapvr.evaluation.scoring import match_names
from hapvr.evaluation.segment_metrics import Box, SegmentMetrics, measure_segments
from hapvr.features import FeatureFile, Features
from hapvr.similarity import SegmentConfig, VideoSimilarity, find_segments

_SEED = 0

Pair = tuple[str, str]


@torch.no_grad()
def localise(
    model: VideoSimilarity,
    benchmark: Benchmark,
    features: str | os.PathLike[str],
    *,
    config: SegmentConfig | None = None,
    negatives: int = 2,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, SegmentMetrics]:
    """How well a model finds where videos match: figures overall ("") and by group.

    Each query is compared with the targets of its true segments, and with a few that are no positives of it, drawn
    from a fixed seed: segments found there are false. Flat and repeated frames are left out, as `hapvr compare` does.
    Pairs without features are left out.

    Args:
        model: its frame matrices are searched.
        benchmark: one with segments, such as a made folder.
        features: the HDF5 file of the features, with timestamps.
        config: what counts as a match.
        negatives: targets of each query that do not match.
        progress: called with the queries finished so far, and of all.
    """
    if benchmark.segments is None:
        raise DataError(f"{benchmark.name} does not say where its videos match.")
    found: dict[Pair, list[Box]] = {}
    true: dict[Pair, list[Box]] = {}
    with FeatureFile.open(features) as file:
        names = match_names([*benchmark.queries, *benchmark.database], file)
        queries = [query for query in benchmark.queries if query in names]
        targets = [target for target in benchmark.database if target in names]
        for done, query in enumerate(queries):
            own = file[names[query]]
            for segment in benchmark.segments.get(query, ()):
                if segment.target in names:
                    box = ((segment.start, segment.end), (segment.target_start, segment.target_end))
                    true.setdefault((query, segment.target), []).append(box)
            matching = [target for asked, target in true if asked == query]
            others = [target for target in targets if target not in benchmark.labels.get(query, {})]
            drawn = np.random.default_rng([_SEED, done]).permutation(len(others))[:negatives]
            for target in [*matching, *(others[place] for place in drawn)]:
                found[query, target] = _find_boxes(model, own, file[names[target]], config)
            if progress is not None:
                progress(done + 1, len(queries))
    groups: dict[str, set[str]] = {"": set(queries)}
    for query in queries:
        if benchmark.groups and query in benchmark.groups:
            groups.setdefault(benchmark.groups[query], set()).add(query)
    return {
        name: measure_segments(
            {pair: boxes for pair, boxes in found.items() if pair[0] in members},
            {pair: boxes for pair, boxes in true.items() if pair[0] in members},
        )
        for name, members in sorted(groups.items())
    }


def _find_boxes(model: VideoSimilarity, query: Features, target: Features, config: SegmentConfig | None) -> list[Box]:
    sides = [features.drop_flat() for features in (query, target)]
    if any(side.timestamps is None for side in sides):
        raise DataError(
            "Segments are in seconds, and these features come without timestamps: extract the videos again."
        )
    described = [model.describe(side.regions.to(model.device)) for side in sides]
    matrix = model.frame_matrix(*described).float().cpu().numpy()
    times = [side.timestamps for side in sides]
    return [(one.query, one.target) for one in find_segments(matrix, *times, config=config)]  # type: ignore[arg-type]
