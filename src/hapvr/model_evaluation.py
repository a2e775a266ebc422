"""`evaluate`: measure a model on a benchmark, from features, from videos, or from saved scores.

`evaluate_predictions` measures files of predicted pairs and segments instead, of whatever system.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import torch

from hapvr.config import suggest
from hapvr.devices import find_device
from hapvr.errors import ConfigError, WeightsError
from hapvr.evaluation.benchmarks import Benchmark, open_benchmark
from hapvr.evaluation.benchmarks.pair_files import (
    read_boxes,
    read_candidates,
    read_durations,
    read_matches,
    write_boxes,
    write_candidates,
    write_matches,
)
from hapvr.evaluation.descriptor_track import find_limit_breaches, read_descriptors, search_descriptors
from hapvr.evaluation.extraction import extract_videos, find_video_files
from hapvr.evaluation.pair_records import Candidate, SegmentMatch
from hapvr.evaluation.protocol import Evaluation, Missing, format_rows, require_policy
from hapvr.evaluation.protocol import evaluate as measure
from hapvr.evaluation.score_files import Scores, read_scores, require_kind, write_scores
from hapvr.evaluation.scoring import Scoring, score_benchmark
from hapvr.evaluation.segment_metrics import SegmentMetrics, measure_localisation
from hapvr.evaluation.tracks import (
    TrackResult,
    find_matches,
    measure_boxes,
    measure_candidates,
    measure_matches,
    select_candidates,
)
from hapvr.features import FeatureFile
from hapvr.features.cluster_extraction import extract_on_cluster
from hapvr.features.extractor import RegionExtractor
from hapvr.features.video_extraction import ExtractionFailure
from hapvr.model import DEFAULT, load, load_network, load_segments
from hapvr.similarity import SegmentConfig
from hapvr.storage import StrPath, require_outputs, write_json, write_text

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with the step ("extracting", "scoring", "segments"), how much of it is done, and how much there is."""

KEPT = ".features"  # the folder in a made benchmark that keeps the features of its videos
_PRECISIONS = {
    "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "int8": torch.int8
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class EvaluationReport:
    """What `evaluate` measured, and on which features or scores."""

    evaluation: Evaluation | None  # None while chunks of other shards are missing, and where predictions were measured
    scores: Scores | None  # None while chunks are missing
    source: Path  # the features, saved scores or predictions that were measured
    scoring: Scoring | None = None  # None where scores were read
    segments: Mapping[str, SegmentMetrics] | None = None  # over all queries ("") and by group; None if not measured
    tracks: tuple[TrackResult, ...] = ()  # predicted pairs and segments, by the protocols of VSC2022 and VCSL
    benchmark: str = ""  # its name
    verdicts: Mapping[str, Any] | None = None  # the report of `hapvr.verdict_evaluation`; None if not measured
    failed: tuple[ExtractionFailure, ...] = ()  # videos that have no features
    warnings: Mapping[str, list[str]] = field(default_factory=dict)  # of videos that are damaged, by id
    wall_s: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Everything but the scores, as JSON holds it."""
        record = {} if self.evaluation is None else self.evaluation.to_json()
        if self.tracks:
            record |= {"benchmark": self.benchmark, "tracks": [track.to_json() for track in self.tracks]}
        if self.verdicts is not None:
            record["verdicts"] = dict(self.verdicts)
        if self.scoring is None:
            if self.evaluation is None:
                return record | {"predictions": str(self.source), "warnings": dict(self.warnings)}
            return record | {"scores": str(self.source)}
        scoring = self.scoring
        record |= {"features": str(self.source), "warnings": dict(self.warnings)}
        record["failed"] = [asdict(one) for one in self.failed]
        record["scoring"] = {"pairs": scoring.pairs, "chunks": scoring.chunks, "finished": scoring.finished,
                             "wall_s": self.wall_s, "waited_s": scoring.waited_s,
                             "scored_s": scoring.scored_s}  # fmt: skip
        if self.segments is not None:
            record["segments"] = {name: one.to_json() for name, one in self.segments.items()}
        return record

    def rows(self) -> list[dict[str, Any]]:
        """One row for each figure, as `Evaluation.rows` has them; those of tracks have no counts."""
        rows = [] if self.evaluation is None else self.evaluation.rows()
        return rows + [
            {"benchmark": self.benchmark, "task": track.name, "figure": name, "group": "", "value": value}
            for track in self.tracks
            for name, value in track.figures.items()
        ]

    def write(self, path: StrPath) -> None:
        """Write the report as JSON, or the figures alone as CSV, as the suffix says."""
        if Path(path).suffix.lower() == ".csv":
            write_text(path, format_rows(self.rows()) if self.tracks or self.evaluation is not None else "")
        else:
            write_json(path, self.to_json())


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
    _require_predictions(save_candidates, save_matches)
    saved = (save_scores, save_candidates, save_matches)
    _require_files(saved, output, inputs=(features, query_features, scores))
    truth = benchmark if isinstance(benchmark, Benchmark) else open_benchmark(benchmark)
    if scores is not None:
        given = {"features": features, "query_features": query_features, "videos": videos, "model": model,
                 "work_folder": work_folder, "feature_cache": feature_cache, "save_matches": save_matches,
                 "shard": None if shard == (0, 1) else shard}  # fmt: skip
        _refuse_together("scores", given)
        read = read_scores(scores)
        if save_scores is not None:
            write_scores(read, save_scores)
        tracks: tuple[TrackResult, ...] = ()
        if save_candidates is not None:
            tracks = (measure_candidates(truth, _write_candidates(read, save_candidates)),)
        report = EvaluationReport(measure(truth, read, missing=missing), read, Path(scores))
        return _write(replace(report, tracks=tracks, benchmark=truth.name), output)
    start = time.perf_counter()
    place = find_device(device)
    dtype = _dtype(precision, place)
    report_progress = progress or (lambda *_: None)
    failed: tuple[ExtractionFailure, ...] = ()
    warnings: dict[str, list[str]] = {}
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
        found = extract_videos(
            whole.extractor,
            files,
            source,
            model=whole.name,
            progress=partial(report_progress, "extracting"),
            stream=None if cluster is None else partial(extract_on_cluster, cluster),
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
    report = EvaluationReport(
        None, None, source, scoring, failed=failed, warnings=warnings, wall_s=time.perf_counter() - start
    )
    if scoring.scores is None:
        return _write(report, output)
    if save_scores is not None:
        write_scores(scoring.scores, save_scores)
    segments = None
    config = _load_segments(model)
    if truth.segments is not None and files is not None and truth.segment_protocol is None:
        segments = measure_localisation(
            network, truth, source, config=config, progress=partial(report_progress, "segments")
        )
    find = partial(find_matches, network, features=source, query_features=query_features, config=config,
                   progress=partial(report_progress, "segments")) if localise else None  # fmt: skip
    if truth.segment_protocol is not None and not localise:
        words = "these features come without times, so segments are not measured: extract the videos by hapvr"
        report = replace(report, warnings={**warnings, str(source): [words]})
    tracks = _measure_tracks(truth, scoring.scores, find, save_candidates, save_matches)
    evaluation = measure(truth, scoring.scores, missing=missing)
    report = replace(report, evaluation=evaluation, scores=scoring.scores, segments=segments)
    return _write(replace(report, tracks=tracks, benchmark=truth.name), output)


def evaluate_predictions(
    benchmark: Benchmark | StrPath,
    *,
    candidates: StrPath | None = None,
    matches: StrPath | None = None,
    descriptors: StrPath | None = None,
    query_descriptors: StrPath | None = None,
    query_list: StrPath | None = None,
    database_list: StrPath | None = None,
    save_candidates: StrPath | None = None,
    output: Sequence[StrPath] = (),
) -> EvaluationReport:
    """Measure what some system predicted, by its files; no model is needed.

    Args:
        benchmark: as for `evaluate`; one with segments if `matches` are measured.
        candidates: a .csv file of pairs in VSC2022's layout: its descriptor track.
        matches: a .csv file of segments in VSC2022's layout: its matching track; a .json file in VCSL's: its figures.
        descriptors: a .npz file of the references' descriptors in VSC2022's layout; they are searched as the challenge
            does, and what it would refuse is a warning.
        query_descriptors: the same of the queries; goes with `descriptors`.
        query_list: VSC2022's query metadata. If it has durations, the number of descriptors is checked too.
        database_list: the same of the references.
        save_candidates: a .csv file for the pairs that the search of descriptors found.
        output: files for the report, .json for all of it, .csv for the figures.
    """
    if (descriptors is None) != (query_descriptors is None):
        raise ConfigError("descriptors and query_descriptors go together: one file of references, one of queries.")
    if candidates is None and matches is None and descriptors is None:
        raise ConfigError("there is nothing to measure: give candidates, matches or descriptors.")
    if save_candidates is not None and descriptors is None:
        raise ConfigError("save_candidates writes what a search of descriptors found: give descriptors.")
    _require_predictions(save_candidates, None)
    _require_files((None, save_candidates), output, inputs=(candidates, matches, descriptors, query_descriptors))
    truth = benchmark if isinstance(benchmark, Benchmark) else open_benchmark(benchmark)
    complete = truth.segment_protocol == "VSC2022"
    tracks: list[TrackResult] = []
    warnings: dict[str, list[str]] = {}
    if descriptors is not None and query_descriptors is not None:
        sides = []
        for path, listed, prefix in ((query_descriptors, query_list, "Q"), (descriptors, database_list, "R")):
            sides.append(read_descriptors(path, prefix=prefix if complete else ""))
            durations = None if listed is None else read_durations(listed, prefix=prefix)
            if breaches := find_limit_breaches(sides[-1], durations):
                warnings[str(path)] = [f"the challenge would refuse it: {breach}" for breach in breaches]
        found = search_descriptors(*sides)
        tracks.append(measure_candidates(truth, found))
        if save_candidates is not None:
            write_candidates(found, save_candidates)
    if candidates is not None:
        tracks.append(measure_candidates(truth, read_candidates(candidates, complete_numbers=complete)))
    if matches is not None and Path(matches).suffix.lower() == ".json":
        tracks.append(measure_boxes(truth, read_boxes(matches)))
    elif matches is not None:
        tracks.append(measure_matches(truth, read_matches(matches, complete_numbers=complete)))
    source = next(Path(path) for path in (matches, candidates, descriptors) if path is not None)
    report = EvaluationReport(None, None, source, tracks=tuple(tracks), benchmark=truth.name, warnings=warnings)
    return _write(report, output)


def _load_segments(model: StrPath | None) -> SegmentConfig:
    """How the model finds stretches; a folder with a network alone, whose features were given, does not say."""
    try:
        return load_segments(model or DEFAULT)
    except WeightsError:
        return SegmentConfig()


def _write_candidates(scores: Scores, path: StrPath | None) -> list[Candidate]:
    found = select_candidates(scores)
    if path is not None:
        write_candidates(found, path)
    return found


def _measure_tracks(
    truth: Benchmark,
    scores: Scores,
    find: Callable[[Sequence[Candidate]], Mapping[tuple[str, str], list[SegmentMatch]]] | None,
    save_candidates: StrPath | None,
    save_matches: StrPath | None,
) -> tuple[TrackResult, ...]:
    """Predict pairs and segments where the benchmark measures them or a file was asked for; write and measure them.

    Without `find`, pairs alone.
    """
    kind = "" if save_matches is None else Path(save_matches).suffix.lower()
    tracks = []
    if save_candidates is not None or truth.segment_protocol == "VSC2022" or kind == ".csv":
        candidates = _write_candidates(scores, save_candidates)
        tracks.append(measure_candidates(truth, candidates))
        if find is not None and (truth.segment_protocol == "VSC2022" or kind == ".csv"):
            matches = [match for own in find(candidates).values() for match in own]
            if kind == ".csv" and save_matches is not None:
                write_matches(matches, save_matches)
            if truth.segments is not None:
                tracks.append(measure_matches(truth, matches))
    if find is not None and (truth.segment_protocol == "VCSL" or kind == ".json"):
        labelled = [Candidate(query, target, 0.0) for query, row in truth.labels.items() for target in row]
        boxes = {pair: [match.box for match in own] for pair, own in find(labelled).items()}
        if kind == ".json" and save_matches is not None:
            write_boxes(boxes, save_matches)
        if truth.segments is not None:
            tracks.append(measure_boxes(truth, {f"{query}-{target}": own for (query, target), own in boxes.items()}))
    return tuple(tracks)


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


def _require_predictions(save_candidates: StrPath | None, save_matches: StrPath | None) -> None:
    if save_candidates is not None and Path(save_candidates).suffix.lower() != ".csv":
        raise ConfigError(f"Candidates are written as .csv, in VSC2022's layout; got '{Path(save_candidates).name}'.")
    if save_matches is not None and Path(save_matches).suffix.lower() not in (".csv", ".json"):
        raise ConfigError(f"Matches are written as .csv (VSC2022) or .json (VCSL); got '{Path(save_matches).name}'.")


def _require_files(
    saved: Sequence[StrPath | None], output: Sequence[StrPath], *, inputs: Iterable[StrPath | None]
) -> None:
    """Scoring may take hours: what cannot be written at the end is said at once. The first of `saved` are scores."""
    if saved[0] is not None:
        require_kind(saved[0])
    for path in output:
        if Path(path).suffix.lower() not in (".json", ".csv"):
            raise ConfigError(f"A report is written as .json, or its figures as .csv; got '{Path(path).name}'.")
    written = [*output, *(path for path in saved if path is not None)]
    require_outputs(written, inputs=[path for path in inputs if path is not None])


def _write(report: EvaluationReport, output: Sequence[StrPath]) -> EvaluationReport:
    for path in output:
        report.write(path)
    return report


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
