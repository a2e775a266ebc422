"""`evaluate_verdicts`: how far the verdicts of a model can be trusted, measured on a made benchmark.

`hapvr evaluate BENCHMARK --verdicts` does this. Each query is compared with its positives, with the negatives that are
nearest to it, with all other parts of its own video, and with some negatives at random. What is measured is in
`evaluation.verdict_metrics`. Videos are described by what a library stores of them, which is what searches compare.
"""

from __future__ import annotations

import dataclasses
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, TypeAlias

import numpy as np
import torch

from hapvr.config import CheckedConfig, Within
from hapvr.decision import find_prior
from hapvr.errors import DataError
from hapvr.evaluation.benchmarks import Benchmark, open_benchmark
from hapvr.evaluation.verdict_figures import NEGATIVES, PairVerdict, Truth, VerdictFigures
from hapvr.evaluation.verdict_metrics import find_truth, measure_verdicts
from hapvr.features.video_extraction import find_insets
from hapvr.library.benchmark_videos import (
    Groups,
    LikenessOrder,
    read_benchmark_videos,
    read_groups,
    require_benchmark_files,
)
from hapvr.matching import VideoDescription, choose_best, describe_views, match_videos
from hapvr.model import DEFAULT, Model, load
from hapvr.storage import StrPath, require_outputs, write_json
from hapvr.workers.threads import map_threads

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with the step ("adding", "comparing"), how much of it is done, and how much there is."""


@dataclass(frozen=True)
class VerdictEvaluationConfig(CheckedConfig):
    """Which pairs are compared, and how."""

    neighbours: Annotated[int, Within(1)] = 20  # negatives nearest to each query
    others: Annotated[int, Within(0)] = 10  # and at random
    second_look: bool = True  # at the files of undecided pairs
    seed: int = 0


@dataclass(frozen=True, eq=False)
class VerdictReport:
    """What `evaluate_verdicts` measured."""

    benchmark: str
    model: str
    queries: int
    database: int
    figures: VerdictFigures
    pairs: tuple[PairVerdict, ...]  # all that were compared
    origins_known: bool  # else all negatives count as unrelated
    failed: Mapping[str, str]  # videos that could not be read, by id, and why; their pairs are left out
    config: VerdictEvaluationConfig
    wall_s: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """The figures, and the pairs with a wrong verdict."""
        wrong = [pair for pair in self.pairs if pair.false or (pair.truth == "copy" and not pair.called_copy)]
        return {
            "benchmark": self.benchmark,
            "model": self.model,
            "queries": self.queries,
            "database": self.database,
            "origins_known": self.origins_known,
            "config": dataclasses.asdict(self.config),
            **self.figures.to_json(),
            "wrong": [
                {"query": pair.query, "target": pair.target, "truth": pair.truth, "verdict": pair.verdict,
                 "probability": pair.probability, "false_per_million": pair.false_per_million,
                 "second_look": pair.second_look}
                for pair in wrong
            ],
            "failed": dict(self.failed),
            "wall_s": self.wall_s,
        }  # fmt: skip


def evaluate_verdicts(
    benchmark: Benchmark | StrPath,
    *,
    model: StrPath | None = None,
    groups: StrPath | None = None,
    config: VerdictEvaluationConfig | None = None,
    device: str | torch.device = "cpu",
    output: StrPath | None = None,
    progress: Progress | None = None,
) -> VerdictReport:
    """Measure the verdicts of a model on a made benchmark.

    Args:
        benchmark: a folder that `hapvr make-benchmark` made. Its videos are added to the library `.library` in it.
        model: a model's name or folder; the shipped one if None.
        groups: a JSON file, a list of groups of database ids that may share footage though the benchmark does not say
            it. A target in a group of a positive of a query is neither right nor wrong for that query.
        config: which pairs are compared.
        device: "cpu" or "cuda".
        output: a JSON file for the report, as `hapvr plot calibration` reads it.
        progress: called while it works.

    Raises:
        ConfigError: the benchmark comes without videos, or the output cannot be written.
        DataError: `groups` is no list of groups, or no query and database video could be read.
    """
    start = time.perf_counter()
    config = config or VerdictEvaluationConfig()
    truth = benchmark if isinstance(benchmark, Benchmark) else open_benchmark(benchmark)
    require_benchmark_files(truth)
    require_outputs([] if output is None else [output])
    together = read_groups(groups)
    loaded = load(model or DEFAULT, device=device)
    update = progress or (lambda *_: None)
    read = read_benchmark_videos(truth, loaded, model or DEFAULT, progress=lambda *now: update("adding", *now))
    insets = describe_insets({id: path for id, path in (truth.files or {}).items() if id in truth.queries}, loaded)
    pairs, population = compare_pairs(
        truth, read.videos, loaded, insets=insets, groups=together, config=config, progress=update
    )
    report = VerdictReport(
        benchmark=truth.name,
        model=loaded.name,
        queries=sum(query in read.videos for query in truth.queries),
        database=sum(target in read.videos for target in truth.database),
        figures=measure_verdicts(pairs, truth, population=population, prior=find_prior(loaded)),
        pairs=tuple(pairs),
        origins_known=truth.origins is not None,
        failed=read.failed,
        config=config,
        wall_s=time.perf_counter() - start,
    )
    if output is not None:
        write_json(output, {"verdicts": report.to_json()})
    return report


def describe_insets(files: Mapping[str, StrPath], model: Model) -> dict[str, VideoDescription]:
    """What those of many videos that show another one in a window show there, by id."""
    found = find_insets(files, model.sampling)
    views = {id: describe_views(files[id], model) for id in found}
    return {id: inner[0] for id, (_, *inner) in views.items() if inner}


def compare_pairs(
    truth: Benchmark,
    videos: Mapping[str, VideoDescription],
    model: Model,
    *,
    insets: Mapping[str, VideoDescription] = MappingProxyType({}),
    groups: Groups,
    config: VerdictEvaluationConfig,
    progress: Progress | None = None,
) -> tuple[list[PairVerdict], Counter[Truth]]:
    """The verdicts on the pairs that are compared, and how many pairs of each truth there are in all.

    Of a query that shows another video in a window (`insets`), the better match of the two counts. The pairs of a query
    do not depend on the other queries, nor on the order of the database.
    """
    database = sorted(target for target in truth.database if target in videos)
    queries = [query for query in truth.queries if query in videos]
    if not database or not queries:
        raise DataError(f"{len(queries)} queries and {len(database)} database videos of {truth.name} could be read.")
    likeness = LikenessOrder([videos[target] for target in database])
    lock, done, population = threading.Lock(), 0, Counter[Truth]()

    def compare_query(query: str) -> list[PairVerdict]:
        nonlocal done
        truths = {target: find_truth(truth, query, target, groups=groups) for target in database if target != query}
        order = [database[place] for place in likeness.find_order(videos[query]) if database[place] != query]
        pairs = []
        views = [videos[query], *([insets[query]] if query in insets else [])]
        for target, (near, drawn) in choose_pairs(query, order, truths, config).items():
            match = choose_best(
                match_videos(view, videos[target], model=model, second_look=config.second_look) for view in views
            )
            verdict = match.verdict
            segments = tuple((segment.query, segment.target) for segment in match.segments)
            pairs.append(
                PairVerdict(
                    query, target, truths[target], verdict.kind, verdict.probability, verdict.false_per_million,
                    verdict.second_look, segments if verdict.match else (), near, drawn, match.score,
                )
            )  # fmt: skip
        with lock:
            done += 1
            population.update(truths.values())
            if progress is not None:
                progress("comparing", done, len(queries))
        return pairs

    found = map_threads(compare_query, queries, torch.get_num_threads())
    return [pair for pairs in found for pair in pairs], population


def choose_pairs(
    query: str, order: list[str], truths: Mapping[str, Truth], config: VerdictEvaluationConfig
) -> dict[str, tuple[bool, bool]]:
    """The targets that a query is compared with: whether each is near (or a copy), and whether it was drawn.

    All copies, all pairs that share footage or are parts of one video, the nearest negatives, some negatives at random.

    Args:
        query: its id; the draw depends on it and on the seed.
        order: all targets, the most alike first.
        truths: what each is to the query.
        config: how many.
    """
    negatives = [target for target in order if truths[target] in NEGATIVES]
    near = {target for target in order if truths[target] == "copy"} | set(negatives[: config.neighbours])
    rng = np.random.default_rng([config.seed, zlib.crc32(query.encode())])
    places = rng.permutation(len(negatives))[: config.others]
    by_id = sorted(negatives)
    drawn = {by_id[place] for place in places}
    always = {target for target in order if truths[target] in ("shared footage", "same video")}
    return {target: (target in near, target in drawn) for target in order if target in near | drawn | always}
