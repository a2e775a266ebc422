"""What `hapvr evaluate` prints: tables of figures, by task, by group and for segments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from hapvr.evaluating import EvaluationReport
    from hapvr.evaluation import Evaluation

_POLICIES = {"drop": "left out of the figures", "miss": "counted as a miss", "error": "refused"}


def print_report(report: EvaluationReport) -> None:
    """Print the figures, what was covered, and how long it took."""
    evaluation, scoring, console = report.evaluation, report.scoring, Console(highlight=False, soft_wrap=True)
    if evaluation is None:
        assert scoring is not None
        words = f"{scoring.finished} of {scoring.chunks} chunks are finished"
        console.print(f"{words}. When all are, run it without --shard for the figures.")
        return
    console.print(_task_table(evaluation), soft_wrap=False)
    if any(result.by_group for result in evaluation.results):
        console.print(_group_table(evaluation), soft_wrap=False)
    if report.segments is not None:
        console.print(_segment_table(report), soft_wrap=False)
    console.print(f"{evaluation.coverage}; what has none is {_POLICIES[evaluation.missing]}.")
    if ignored := evaluation.coverage.ignored_targets:
        console.print(f"{ignored:,} scored videos are not of this benchmark.")
    if warned := len(report.warnings):
        console.print(f"{warned:,} {'videos were' if warned > 1 else 'video was'} read with warnings.")
    if scoring is not None:
        rate = scoring.pairs / report.wall_s if report.wall_s else 0.0
        console.print(f"{scoring.pairs:,} pairs in {report.wall_s:.1f} s ({rate:,.0f} a second).")


def _task_table(evaluation: Evaluation) -> Table:
    table = _table("task", "figure", "queries", "positives", title=f"{evaluation.benchmark}, %")
    for result in evaluation.results:
        over = result.overall
        positives = f"{over.positives_found:,} / {over.positives_expected:,}"
        table.add_row(result.task.name, _percent(over.value), f"{over.queries:,}", positives)
    return table


def _group_table(evaluation: Evaluation) -> Table:
    results = evaluation.results
    table = _table("group", *(result.task.name for result in results), "queries", title="by group, %")
    for group in dict.fromkeys(group for result in results for group in result.by_group):
        measured = [result.by_group.get(group) for result in results]
        cells = ("" if one is None else _percent(one.value) for one in measured)
        table.add_row(group, *cells, str(max(one.queries for one in measured if one is not None)))
    return table


def _segment_table(report: EvaluationReport) -> Table:
    columns = ("precision", "recall", "F1", "borders off by", "false pairs")
    table = _table("segments", *columns, title="where videos match, %")
    for group, found in (report.segments or {}).items():
        rates = (found.precision, found.recall, found.f1)
        cells = ["-" if not found.true else _percent(rate) for rate in rates]
        error = found.boundary_error_s
        cells.append("-" if error != error else f"{error:.2f} s")
        table.add_row(group or "all", *cells, f"{found.false_pairs} of {found.negative_pairs} pairs")
    return table


def _table(first: str, *others: str, title: str) -> Table:
    table = Table(first, title=title)
    for name in others:
        table.add_column(name, justify="right")
    return table


def _percent(value: float) -> str:
    return "-" if value != value else f"{100 * value:.2f}"
