"""Measuring a method: figures of a benchmark, where videos match, and what it costs.

Descriptions of all videos are held in memory, on the method's device: this is for benchmarks of thousands of videos.
`hapvr evaluate` without a method reads a network's database in chunks.
"""

from __future__ import annotations

import copy
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from hapvr.errors import DataError
from hapvr.evaluation.benchmarks import Benchmark, open_benchmark
from hapvr.evaluation.pair_records import Box
from hapvr.evaluation.protocol import Evaluation, Missing
from hapvr.evaluation.protocol import evaluate as measure
from hapvr.evaluation.score_files import Scores
from hapvr.evaluation.scoring import match_names
from hapvr.evaluation.segment_metrics import SegmentMetrics, measure_found_boxes
from hapvr.features import FeatureFile
from hapvr.methods.base import Description, Method
from hapvr.methods.fitting import FitRecord, describe_device
from hapvr.similarity.segments import frame_edges
from hapvr.storage import StrPath, write_json

_CPU_QUERIES, _CPU_TARGETS = 4, 64  # pairs that are timed on a CPU where the method computes on a GPU


@dataclass(frozen=True)
class Speed:
    """Pairs that a device compares in a second, of videos that are described already."""

    kind: str  # "cpu" or "cuda"
    device: str
    pairs: int
    pairs_per_s: float


@dataclass(frozen=True, eq=False)
class MethodResult:
    """What `evaluate_method` measured."""

    name: str
    title: str
    settings: Mapping[str, Any]
    features: str  # the model that made the features, as their file says
    fit: FitRecord | None
    evaluation: Evaluation
    scores: Scores
    segments: Mapping[str, SegmentMetrics] | None  # overall ("") and by group; None if the method does not localise
    bytes_per_minute: float  # of the database's descriptions at rest
    describe_s: float  # of all videos, from region vectors
    speeds: tuple[Speed, ...]

    def to_json(self) -> dict[str, Any]:
        """Everything but the scores: a report like that of `hapvr evaluate`, and "method"."""
        record = self.evaluation.to_json()
        if self.segments is not None:
            record["segments"] = {name: one.to_json() for name, one in self.segments.items()}
        record["method"] = {
            "name": self.name,
            "title": self.title,
            "settings": dict(self.settings),
            "features": self.features,
            "fit": None if self.fit is None else asdict(self.fit),
            "bytes_per_minute": self.bytes_per_minute,
            "describe_s": self.describe_s,
            "speeds": [asdict(one) for one in self.speeds],
        }
        return record

    def write(self, path: StrPath) -> None:
        """Write `to_json` into a file."""
        write_json(path, self.to_json())


@torch.no_grad()
def evaluate_method(
    method: Method[Any],
    benchmark: Benchmark | StrPath,
    features: StrPath,
    *,
    fit: FitRecord | None = None,
    missing: Missing = "drop",
    segments: bool = True,
    speed: bool = True,
    progress: Callable[[str, int, int], None] | None = None,
) -> MethodResult:
    """Measure a method by a benchmark's protocol, from an HDF5 file of features.

    Flat and repeated frames are left out, as everywhere.

    Args:
        method: fitted, on its device.
        benchmark: a `Benchmark`, or a made folder, a CSV or JSON file.
        features: region vectors of its videos; for methods that read pictures, a file of `hapvr.methods.pictures`.
        fit: how the method was fitted, for the report.
        missing: what becomes of videos without features: "drop", "miss" or "error".
        segments: whether to measure where videos match, if the method says it and the benchmark knows it.
        speed: whether to time comparisons on a CPU too, where the method computes on a GPU.
        progress: called with the step, how much of it is done, and how much there is.
    """
    truth = benchmark if isinstance(benchmark, Benchmark) else open_benchmark(benchmark)
    say = progress or (lambda *_: None)
    made = _describe_videos(method, truth, features, say)
    names, queries, targets, described = made.names, made.queries, made.targets, made.described
    sides = [[described[names[id]] for id in side] for side in (queries, targets)]
    method.score(sides[0][:1], sides[1][:2])  # warms up
    began = time.perf_counter()
    values = method.score(*sides).float().cpu().numpy()
    seconds = time.perf_counter() - began
    say("scoring", 1, 1)
    speeds = [_make_speed(method.device, values.size, seconds)]
    if speed and method.device.type != "cpu":
        speeds.append(_time_on_cpu(method, *sides))
    scores = Scores(tuple(queries), tuple(targets), values.astype(np.float32))
    found: dict[str, SegmentMetrics] | None = None
    if segments and method.localises and truth.segments is not None and sides[0][0].times.size:

        def find(query: str, target: str) -> list[Box]:
            return method.locate(described[names[query]], described[names[target]])

        def advance(done: int, total: int) -> None:
            say("segments", done, total)

        found = measure_found_boxes(find, truth, names, progress=advance)
    minutes = sum(_measure_duration(one) for one in sides[1]) / 60
    return MethodResult(
        name=method.name,
        title=method.title,
        settings=dataclasses.asdict(method.settings),
        features=made.model,
        fit=fit,
        evaluation=measure(truth, scores, missing=missing),
        scores=scores,
        segments=found,
        bytes_per_minute=sum(one.bytes for one in sides[1]) / minutes,
        describe_s=made.seconds,
        speeds=tuple(speeds),
    )


@torch.no_grad()
def time_method(method: Method[Any], benchmark: StrPath, features: StrPath) -> tuple[float, tuple[Speed, ...]]:
    """Seconds to describe all videos of a benchmark, and the method's speeds; for a machine that does nothing else.

    The second of two passes counts: the first compiles kernels.
    """
    made = _describe_videos(method, open_benchmark(benchmark), features, lambda *_: None)
    sides = [[made.described[made.names[id]] for id in side] for side in (made.queries, made.targets)]
    for _ in range(2):
        began = time.perf_counter()
        pairs = method.score(*sides).float().cpu().numel()
        seconds = time.perf_counter() - began
    speeds = [_make_speed(method.device, pairs, seconds)]
    if method.device.type != "cpu":
        speeds.append(_time_on_cpu(method, *sides))
    return made.seconds, tuple(speeds)


@dataclass(frozen=True, eq=False)
class _Described:
    names: Mapping[str, str]  # a video's name in the file of features
    queries: list[str]
    targets: list[str]
    described: Mapping[str, Description]  # by name in the file
    model: str
    seconds: float


def _describe_videos(
    method: Method[Any], truth: Benchmark, features: StrPath, say: Callable[[str, int, int], None]
) -> _Described:
    """Descriptions of those videos of a benchmark that have features."""
    with FeatureFile.open(features) as file:
        names = match_names([*truth.queries, *truth.database], file)
        queries = [id for id in truth.queries if id in names]
        targets = [id for id in truth.targets_among(names) if id in names]
        if not queries or not targets:
            raise DataError(f"'{file.path}' has {len(queries)} queries and {len(targets)} targets of {truth.name}.")
        ids = list(dict.fromkeys([*queries, *targets]))
        began = time.perf_counter()
        described = {}
        for done, (name, read) in enumerate(file.stream(names[id] for id in ids)):
            described[name] = method.describe(read.drop_flat())
            say("describing", done + 1, len(ids))
        _wait(method.device)
        model = str(file.attributes.get("model", ""))
    return _Described(names, queries, targets, described, model, time.perf_counter() - began)


def _measure_duration(description: Description) -> float:
    edges = frame_edges(description.times)
    return float(edges[-1] - edges[0])


def _make_speed(device: torch.device, pairs: int, seconds: float) -> Speed:
    return Speed(device.type, describe_device(device), pairs, pairs / max(seconds, 1e-9))


def _time_on_cpu(method: Method[Any], queries: Sequence[Description], targets: Sequence[Description]) -> Speed:
    """The speed of a copy of the method on the CPU, by a few queries."""
    cpu = torch.device("cpu")
    own = copy.deepcopy(method).to(cpu)
    some = [one.to(cpu) for one in queries[:_CPU_QUERIES]]
    others = [one.to(cpu) for one in targets[:_CPU_TARGETS]]
    own.score(some[:1], others[:1])
    began = time.perf_counter()
    own.score(some, others)
    return _make_speed(cpu, len(some) * len(others), time.perf_counter() - began)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
