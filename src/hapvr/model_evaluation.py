"""`evaluate`: measure a model on a benchmark, from features, from videos, or from saved scores.

`hapvr.evaluation.predictions` measures files of predicted pairs and segments of any system instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import torch

from hapvr.config import suggest
from hapvr.devices import find_device
from hapvr.errors import ConfigError, WeightsError
from hapvr.evaluation.benchmarks import Benchmark, open_benchmark
from hapvr.evaluation.extraction import extract_insets, extract_videos, find_video_files
from hapvr.evaluation.predictions import (
    evaluate_predictions,
    measure_predicted_tracks,
    require_prediction_files,
    save_best_candidates,
)
from hapvr.evaluation.protocol import Missing, require_policy
from hapvr.evaluation.protocol import evaluate as measure
from hapvr.evaluation.report import EvaluationReport, require_report_files, write_report
from hapvr.evaluation.score_files import read_scores, write_scores
from hapvr.evaluation.scoring import Scoring, score_benchmark, take_best_scores
from hapvr.evaluation.segment_metrics import measure_localisation
from hapvr.evaluation.tracks import TrackResult, find_matches, measure_candidates
from hapvr.features import FeatureFile
from hapvr.features.cluster_extraction import extract_on_cluster
from hapvr.features.extractor import RegionExtractor
from hapvr.features.video_extraction import ExtractionFailure
from hapvr.model import DEFAULT, load, load_network, load_segments
from hapvr.similarity import SegmentConfig
from hapvr.storage import StrPath

__all__ = ["EvaluationReport", "choose_feature_file", "evaluate", "evaluate_predictions"]

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with the step ("extracting", "scoring", "segments"), how much of it is done, and how much there is."""

KEPT = ".features"  # the folder in a made benchmark that keeps the features of its videos
_PRECISIONS = {
    "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "int8": torch.int8
}  # fmt: skip


def evaluate(
    benchmark: Benchmark | StrPath,
    *,
    model: StrPath | None = None,
    features: StrPath | None = None,
    query_features: StrPath | None = None,
    videos: StrPath | None = None,
    feature_cache: StrPath | None = None,
    scores: StrPath | None = None,
    missing: Missing = "drop",
    device: str | None = None,
    precision: str | None = None,
    insets: bool = True,
    work_folder: StrPath | None = None,
    shard: tuple[int, int] = (0, 1),
    reader_processes: int | None = None,
    cluster: str | None = None,
    save_scores: StrPath | None = None,
    save_candidates: StrPath | None = None,
    save_matches: StrPath | None = None,
    output: Sequence[StrPath] = (),
    progress: Progress | None = None,
) -> EvaluationReport:
    """Measure a model by a benchmark's protocol; `hapvr evaluate` does this and prints it.

    What is measured is `features`, or the videos in `videos`, or those that a made benchmark comes with, or `scores`.
    Of videos the features are extracted first and kept, so that a second call does not decode them again.

    Args:
        benchmark: a `Benchmark` (`open_benchmark` reads the published ones), or a made folder, a CSV or JSON file.
        model: a model's name or folder; the shipped one if None.
        features: an HDF5 file of features that is read.
        query_features: the file of the queries' features, if they are in another one.
        videos: a folder of the benchmark's videos, named by their ids.
        feature_cache: the HDF5 file that extracted features are written or added to. By default a file in
            `work_folder`, or in the folder `.features` of a made benchmark.
        scores: a .json or .npz file of saved scores, measured without a model.
        missing: what becomes of videos without a score: "drop", "miss" or "error".
        device: "cpu", "cuda" or "cuda:1"; the GPU if there is one.
        precision: "float32", "bfloat16", "float16" or, on a CPU, "int8": of region products, see `pairwise`. By default
            bfloat16 on a GPU, else float32, so that figures can be compared.
        insets: also score what queries show in windows, as `hapvr search` does, and take the higher score. Of videos
            alone: features say nothing about windows. Segments are those of the view with the higher score; matches
            for `save_matches` are those of whole pictures.
        work_folder: a folder that keeps finished chunks of scores; the same call goes on with them.
        shard: (i, n), i from 0: score only the i-th of n parts, into `work_folder`.
        reader_processes: processes that read features, 0 for threads; the default suits the device and the size.
        cluster: a Ray cluster whose nodes extract features and score: "local", "auto" or HOST:PORT; files must be at
            the same paths there. Where videos match is found here.
        save_scores: a .json or .npz file for the scores; written before they are measured.
        save_candidates: a .csv file for the best pairs, 25 times the number of queries, in VSC2022's layout.
        save_matches: a file for where videos match: .csv in VSC2022's layout, of the best pairs; .json in VCSL's, of
            the labelled pairs. Both are also measured; of VSC2022 and VCSL they are, with this or without.
        output: files for the report, .json for all of it, .csv for the figures.
        progress: called while it works.

    Raises:
        ConfigError: arguments contradict each other, or a file could not be written.
        DataError, ShapeError, StorageError, WeightsError: what is given cannot be used; see `score_benchmark`.
    """
    require_policy(missing)
    require_prediction_files(save_candidates, save_matches)
    saved = (save_scores, save_candidates, save_matches)
    require_report_files(saved, output, inputs=(features, query_features, scores))
    truth = benchmark if isinstance(benchmark, Benchmark) else open_benchmark(benchmark)
    if scores is not None:
        given = {"features": features, "query_features": query_features, "videos": videos, "model": model,
                 "work_folder": work_folder, "feature_cache": feature_cache, "save_matches": save_matches,
                 "shard": None if shard == (0, 1) else shard}  # fmt: skip
        _refuse_together("scores", given)
        return write_report(_evaluate_scores(truth, Path(scores), missing, save_scores, save_candidates), output)
    start = time.perf_counter()
    place = find_device(device)
    dtype = _dtype(precision, place)
    report_progress = progress or (lambda *_: None)
    failed: tuple[ExtractionFailure, ...] = ()
    warnings: dict[str, list[str]] = {}
    inner: Path | None = None  # features of what queries show in windows
    files = _files(truth, features, videos)
    if files is None:
        assert features is not None
        _refuse_together("features", {"feature_cache": feature_cache})
        network, source = load_network(model or DEFAULT, device=place), Path(features)
    else:
        extract_first = "First `hapvr extract` the videos into a file, then give that as features."
        sharded = None if shard == (0, 1) else shard
        _refuse_together("videos", {"query_features": query_features, "shard": sharded}, extract_first)
        whole = load(model or DEFAULT, device=place)
        source = choose_feature_file(truth, whole.name, whole.extractor, feature_cache, work_folder)
        options: dict[str, Any] = {"model": whole.name}
        options["stream"] = None if cluster is None else partial(extract_on_cluster, cluster)
        found = extract_videos(
            whole.extractor, files, source, progress=partial(report_progress, "extracting"), **options
        )
        if insets:
            asked = {id: files[id] for id in truth.queries if id in files and Path(files[id]).is_file()}
            inner = extract_insets(
                whole.extractor, asked, source, progress=partial(report_progress, "extracting windows"), **options
            )
        failed, warnings = tuple(found.failed), found.warnings
        network = whole.similarity
    localise = _check_times(truth, source, query_features, save_matches)
    scoring = score_benchmark(
        network,
        truth,
        source,
        query_features=query_features,
        work_folder=work_folder,
        shard=shard,
        dtype=dtype,
        reader_processes=reader_processes,
        cluster=cluster,
        progress=partial(report_progress, "scoring"),
    )
    shown: Scoring | None = None  # of what queries show in windows
    if inner is not None and scoring.scores is not None:
        shown = score_benchmark(
            network,
            truth,
            source,
            query_features=inner,
            dtype=dtype,
            reader_processes=reader_processes,
            cluster=cluster,
        )
        scoring = replace(scoring, scores=take_best_scores(scoring.scores, shown.scores))
    report = EvaluationReport(
        None, None, source, scoring, failed=failed, warnings=warnings, wall_s=time.perf_counter() - start
    )
    if shown is not None and shown.scores is not None:
        report = replace(report, insets=len(shown.scores.queries))
    if scoring.scores is None:
        return write_report(report, output)
    if save_scores is not None:
        write_scores(scoring.scores, save_scores)
    segments = None
    config = _load_segments(model)
    if truth.segments is not None and files is not None and truth.segment_protocol is None:
        segments = measure_localisation(
            network, truth, source, query_insets=inner, config=config, progress=partial(report_progress, "segments")
        )
    find = partial(find_matches, network, features=source, query_features=query_features, config=config,
                   progress=partial(report_progress, "segments")) if localise else None  # fmt: skip
    if truth.segment_protocol is not None and not localise:
        words = "these features come without times, so segments are not measured: extract the videos by hapvr"
        report = replace(report, warnings={**warnings, str(source): [words]})
    tracks = measure_predicted_tracks(truth, scoring.scores, find, save_candidates, save_matches)
    evaluation = measure(truth, scoring.scores, missing=missing)
    report = replace(report, evaluation=evaluation, scores=scoring.scores, segments=segments)
    return write_report(replace(report, tracks=tracks, benchmark=truth.name), output)


def _evaluate_scores(
    truth: Benchmark, path: Path, missing: Missing, save_scores: StrPath | None, save_candidates: StrPath | None
) -> EvaluationReport:
    """Measure saved scores."""
    scores = read_scores(path)
    if save_scores is not None:
        write_scores(scores, save_scores)
    tracks: tuple[TrackResult, ...] = ()
    if save_candidates is not None:
        tracks = (measure_candidates(truth, save_best_candidates(scores, save_candidates)),)
    evaluation = measure(truth, scores, missing=missing)
    return EvaluationReport(evaluation, scores, path, tracks=tracks, benchmark=truth.name)


def _load_segments(model: StrPath | None) -> SegmentConfig:
    """How the model finds stretches; a folder with a network alone, whose features were given, does not say."""
    try:
        return load_segments(model or DEFAULT)
    except WeightsError:
        return SegmentConfig()


def _check_times(
    truth: Benchmark, features: StrPath, query_features: StrPath | None, save_matches: StrPath | None
) -> bool:
    """Whether segments are wanted and can be found; `ConfigError`, before hours of work, if they cannot be saved."""
    if truth.segment_protocol is None and save_matches is None:
        return False
    for path in (features, query_features):
        if path is None:
            continue
        with FeatureFile.open(path) as file:
            if file.ids and file[file.ids[0]].timestamps is None:
                if save_matches is None:
                    return False
                raise ConfigError(
                    f"save_matches needs times, and the features of '{path}' come without: extract the videos by hapvr."
                )
    return True


def _files(truth: Benchmark, features: StrPath | None, videos: StrPath | None) -> dict[str, Path] | None:
    """The videos to extract; None if it is features that are measured."""
    if features is not None:
        _refuse_together("features", {"videos": videos})
        return None
    if videos is not None:
        return find_video_files(truth, videos)
    if truth.files is None:
        raise ConfigError(f"{truth.name} needs something to measure: give features, videos or scores.")
    return {id: Path(path) for id, path in truth.files.items()}


def choose_feature_file(
    truth: Benchmark,
    model: str,
    extractor: RegionExtractor,
    feature_cache: StrPath | None = None,
    work_folder: StrPath | None = None,
) -> Path:
    """The file that keeps extracted features. Where it was not named, it has the extractor's digest in its name."""
    name = f"{model}-{extractor.digest()[:8]}.h5"
    if feature_cache is not None:
        return Path(feature_cache)
    if work_folder is not None:
        return Path(work_folder) / f"features-{name}"
    if truth.folder is None:
        raise ConfigError(
            "Videos are extracted once: say where to keep their features, by feature_cache or work_folder."
        )
    return Path(truth.folder) / KEPT / name


def _dtype(precision: str | None, device: torch.device) -> torch.dtype | None:
    if precision is not None and precision not in _PRECISIONS:
        raise ConfigError(f"There is no precision '{precision}'; {suggest(precision, list(_PRECISIONS))}")
    if precision == "int8" and device.type != "cpu":
        raise ConfigError(f"Scores in int8 are computed on a CPU, not on '{device}'. Give cpu as the device.")
    return None if precision is None else _PRECISIONS[precision]


def _refuse_together(one: str, others: Mapping[str, object], advice: str = "Leave one of them out.") -> None:
    for name, value in others.items():
        if value is not None:
            raise ConfigError(f"{one} and {name} do not go together. {advice}")
