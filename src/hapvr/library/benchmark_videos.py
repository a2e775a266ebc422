"""The videos of a made benchmark in a library, as the judge compares them: with miniatures and files at hand.

Feature files hold no miniatures, so a benchmark whose pairs are to be decided gets a library in its folder.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch

from hapvr.errors import ConfigError, DataError
from hapvr.evaluation.benchmarks import Benchmark
from hapvr.library.library import Library
from hapvr.library.opening import is_model_of, model_digest
from hapvr.library.versions import is_library, read_current_settings
from hapvr.matching import VideoDescription, describe_features
from hapvr.model import Model
from hapvr.storage import StrPath

Groups: TypeAlias = Mapping[str, frozenset[int]]
"""The groups of each database id whose videos may share footage."""
LIBRARY = ".library"  # in the folder of a benchmark


@dataclass(frozen=True, eq=False)
class BenchmarkVideos:
    """The videos of a benchmark by id, and those that could not be read."""

    videos: dict[str, VideoDescription]
    failed: dict[str, str]  # id -> why


def require_benchmark_files(benchmark: Benchmark) -> Path:
    """The folder of a benchmark that comes with its videos; `ConfigError` for another."""
    if benchmark.folder is None or not benchmark.files:
        raise ConfigError(
            f"{benchmark.name} comes without videos, and verdicts need them: give a folder that `hapvr make-benchmark` "
            "made."
        )
    return Path(benchmark.folder)


def read_benchmark_videos(
    benchmark: Benchmark,
    model: Model,
    name_or_folder: StrPath,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> BenchmarkVideos:
    """Add a benchmark's videos to its library, and describe them by what the library stores of them.

    The library is the folder `.library` of the benchmark, or another beside it if that one is of another model. It is
    kept, so a second call decodes nothing.

    Args:
        benchmark: one that comes with its videos.
        model: that describes them.
        name_or_folder: what it was loaded from.
        progress: called with how many files are added, and of how many.
    """
    place = choose_library(require_benchmark_files(benchmark), model)
    files = {id: Path(path) for id, path in (benchmark.files or {}).items()}
    update = progress or (lambda *_: None)
    videos: dict[str, VideoDescription] = {}
    failed: dict[str, str] = {}
    with Library.open(place, create=True, model=str(name_or_folder)) as library:
        library.add(list(files.values()), progress=lambda now: update(now.done, now.total))
        fps = library.info().fps
        records = {Path(record.path).resolve(): record for record in library.videos()}
        for id, path in files.items():
            record = records.get(path.resolve())
            if record is None or record.state != "ready":
                failed[id] = "it could not be read" if record is None else record.error or record.state
                continue
            features = library.features(record.id).with_timestamps(fps)
            videos[id] = describe_features(model, features, path=path, sampling=model.sampling)
    return BenchmarkVideos(videos, failed)


def choose_library(folder: Path, model: Model) -> Path:
    """Where the library of a benchmark is for a model: `.library`, unless that one is of another model."""
    shared = folder / LIBRARY
    if is_library(shared):
        settings = read_current_settings(shared)
        if not is_model_of(settings, model) or settings.fps != model.sampling.fps:
            return folder / f"{LIBRARY}-{model.name}-{model_digest(model)[:8]}"
    return shared


class LikenessOrder:
    """Orders many videos by their likeness to a query: of frames, by the mean of their regions. Quick and rough."""

    def __init__(self, videos: Sequence[VideoDescription]) -> None:
        self._vectors = torch.cat([_average_regions(video) for video in videos])  # [sum of T, D]
        self._lengths = [len(video.times) for video in videos]

    def find_order(self, query: VideoDescription) -> list[int]:
        """Places of the videos, the most alike first."""
        matrices = torch.split(_average_regions(query) @ self._vectors.T, self._lengths, 1)
        alike = [max(float(one.amax(1).mean()), float(one.amax(0).mean())) for one in matrices]
        return [int(place) for place in np.argsort(-np.array(alike), kind="stable")]


def _average_regions(video: VideoDescription) -> torch.Tensor:
    return video.descriptors.as_subclass(torch.Tensor).float().mean(1)  # [T, D]


def read_groups(path: StrPath | None) -> Groups:
    """The groups of a JSON file, a list of lists of ids; an id may be in several."""
    if path is None:
        return {}
    try:
        groups = json.loads(Path(path).read_text(encoding="utf-8"))
        if not isinstance(groups, list) or not all(isinstance(group, list) for group in groups):
            raise TypeError("a list of lists was expected")
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"'{path}' is no list of groups of ids: {error}.") from error
    return {
        str(name): frozenset(number for number, group in enumerate(groups) if name in group)
        for names in groups
        for name in names
    }
