"""Tables of what `hapvr evaluate` measured, of a model or of a method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from hapvr.cli.terminal import format_percent, make_table
from hapvr.cli.verdict_tables import print_verdicts

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from hapvr.evaluation import Evaluation
    from hapvr.evaluation.segment_metrics import SegmentMetrics
    from hapvr.methods import MethodResult
    from hapvr.model_evaluation import EvaluationReport
    from hapvr.verdict_evaluation import VerdictReport


_POLICIES = {"drop": "left out of the figures", "miss": "counted as a miss", "error": "refused"}


def print_report(report: EvaluationReport, verdicts: VerdictReport | None = None) -> None:
    """Print what was measured of a model, or of predictions; with `verdicts`, their tables too."""
    from rich.console import Console

    evaluation, scoring, console = report.evaluation, report.scoring, Console(highlight=False, soft_wrap=True)
    if evaluation is None and scoring is None:
        _print_tracks(report, console)
        return
    if evaluation is None:
        assert scoring is not None
        words = f"{scoring.finished} of {scoring.chunks} chunks are finished"
        console.print(f"{words}. When all are, run it without --shard for the figures.")
        return
    _print_figures(evaluation, report.segments, console)
    _print_tracks(report, console)
    console.print(f"{evaluation.coverage}; what has none is {_POLICIES[evaluation.missing]}.")
    for note in evaluation.notes:
        console.print(note)
    if ignored := evaluation.coverage.ignored_targets:
        console.print(f"{ignored:,} scored videos are not of this benchmark.")
    if warned := len(report.warnings):
        console.print(f"{warned:,} {'videos were' if warned > 1 else 'video was'} read with warnings.")
    if report.insets:
        shows = "queries show" if report.insets > 1 else "query shows"
        console.print(f"{report.insets:,} {shows} another video in a window, which was looked for too.")
    if scoring is not None:
        rate = scoring.pairs / report.wall_s if report.wall_s else 0.0
        console.print(f"{scoring.pairs:,} pairs in {report.wall_s:.1f} s ({rate:,.0f} a second).")
    if verdicts is not None:
        print_verdicts(verdicts, console)


def print_method(result: MethodResult) -> None:
    """Print what was measured of a method of `hapvr method list`."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    _print_figures(result.evaluation, result.segments, console)
    console.print(f"{result.evaluation.coverage}; what has none is {_POLICIES[result.evaluation.missing]}.")
    speeds = ", ".join(f"{one.pairs_per_s:,.0f} pairs a second ({one.device})" for one in result.speeds)
    console.print(f"{result.title}: {result.bytes_per_minute:,.0f} bytes a minute of video, {speeds}.")


def _print_figures(evaluation: Evaluation, segments: Mapping[str, SegmentMetrics] | None, console: Console) -> None:
    console.print(_task_table(evaluation), soft_wrap=False)
    if any(result.by_group for result in evaluation.results):
        console.print(_group_table(evaluation), soft_wrap=False)
    if segments is not None:
        console.print(_segment_table(segments), soft_wrap=False)


def _print_tracks(report: EvaluationReport, console: Console) -> None:
    for track in report.tracks:
        table = make_table(track.name, "figure", title=f"{report.benchmark}, %")
        for name, value in track.figures.items():
            table.add_row(name, format_percent(value))
        console.print(table, soft_wrap=False)
        console.print("; ".join(f"{count:,} {name}" for name, count in track.counts.items()) + ".")


def _task_table(evaluation: Evaluation) -> Table:
    table = make_table("task", "figure", "queries", "positives", title=f"{evaluation.benchmark}, %")
    for result in evaluation.results:
        over = result.overall
        positives = f"{over.positives_found:,} / {over.positives_expected:,}"
        table.add_row(result.task.name, format_percent(over.value), f"{over.queries:,}", positives)
    return table


def _group_table(evaluation: Evaluation) -> Table:
    results = evaluation.results
    table = make_table("group", *(result.task.name for result in results), "queries", title="by group, %")
    for group in dict.fromkeys(group for result in results for group in result.by_group):
        measured = [result.by_group.get(group) for result in results]
        cells = ("" if one is None else format_percent(one.value) for one in measured)
        table.add_row(group, *cells, str(max(one.queries for one in measured if one is not None)))
    return table


def _segment_table(segments: Mapping[str, SegmentMetrics]) -> Table:
    columns = ("precision", "recall", "F1", "boundary error", "false pairs")
    table = make_table("segments", *columns, title="where videos match, %")
    for group, found in segments.items():
        rates = (found.precision, found.recall, found.f1)
        cells = ["-" if not found.true else format_percent(rate) for rate in rates]
        error = found.boundary_error_s
        cells.append("-" if error != error else f"{error:.2f} s")
        table.add_row(group or "all", *cells, f"{found.false_pairs} of {found.negative_pairs} pairs")
    return table
