"""Predicted pairs and segments, measured by the protocols of VSC2022 and VCSL.

`evaluate_predictions` reads those of some system from its files; `measure_predicted_tracks` takes a model's scores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hapvr.errors import ConfigError
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
from hapvr.evaluation.pair_records import Candidate, SegmentMatch
from hapvr.evaluation.report import EvaluationReport, require_report_files, write_report
from hapvr.evaluation.score_files import Scores
from hapvr.evaluation.tracks import TrackResult, measure_boxes, measure_candidates, measure_matches, select_candidates
from hapvr.storage import StrPath


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
    require_prediction_files(save_candidates, None)
    require_report_files((None, save_candidates), output, inputs=(candidates, matches, descriptors, query_descriptors))
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
    return write_report(report, output)


def save_best_candidates(scores: Scores, path: StrPath | None) -> list[Candidate]:
    """The best pairs, see `select_candidates`, written into a file if one is given."""
    found = select_candidates(scores)
    if path is not None:
        write_candidates(found, path)
    return found


def measure_predicted_tracks(
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
        candidates = save_best_candidates(scores, save_candidates)
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


def require_prediction_files(save_candidates: StrPath | None, save_matches: StrPath | None) -> None:
    """Raise `ConfigError` unless the suffixes are those of files of pairs and of segments."""
    if save_candidates is not None and Path(save_candidates).suffix.lower() != ".csv":
        raise ConfigError(f"Candidates are written as .csv, in VSC2022's layout; got '{Path(save_candidates).name}'.")
    if save_matches is not None and Path(save_matches).suffix.lower() not in (".csv", ".json"):
        raise ConfigError(f"Matches are written as .csv (VSC2022) or .json (VCSL); got '{Path(save_matches).name}'.")
