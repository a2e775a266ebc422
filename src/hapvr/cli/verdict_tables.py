"""Tables of what `hapvr evaluate --verdicts` measured."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hapvr.cli.terminal import format_percent, make_table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from hapvr.evaluation.verdict_figures import Rate
    from hapvr.verdict_evaluation import VerdictReport

_ORIGINS = {"same video": "same video, another part", "same source": "same source", "unrelated": "unrelated"}


def print_verdicts(report: VerdictReport, console: Console) -> None:
    """Print the figures, and in sentences what they are of."""
    figures = report.figures
    console.print(_copy_table(report), soft_wrap=False)
    console.print(_false_table(report), soft_wrap=False)
    if figures.reliability:
        console.print(_reliability_table(report), soft_wrap=False)
    if figures.promises:
        console.print(_promise_table(report), soft_wrap=False)
    for line in describe(report):
        console.print(line)


def describe(report: VerdictReport) -> list[str]:
    """What was compared, and what the figures take for granted, in sentences."""
    figures, config = report.figures, report.config
    text = (
        f"{figures.compared:,} pairs of {report.queries:,} queries and {report.database:,} videos were compared, with "
        f"{figures.second_looks:,} second looks: all copies, the {config.neighbours} nearest negatives of each query "
        f"and {config.others} at random."
    )
    if any(found.compared < found.rate.pairs for found in figures.false.values()):
        text += " Negatives that were not compared are less alike, and taken for no matches."
    lines = [text]
    if figures.ranking is not None:
        by_probability, by_score = map(format_percent, (figures.ranking.by_probability, figures.ranking.by_score))
        lines.append(
            f"Ranked by probability, copies have a uAP of {by_probability} among the pairs compared; ranked by the "
            f"network's score alone, {by_score}."
        )
    if figures.reliability:
        lines.append(
            "Reliability is of copies and nearest negatives, weighed so that "
            f"{figures.prior or 0:.3g} of them are copies, as probabilities assume."
        )
    if shared := sum(figures.verdicts.get("shared footage", {}).values()):
        called = figures.verdicts["shared footage"].get("copy", 0)
        lines.append(
            f"{called:,} of {shared:,} pairs that share a card or the like are called copies; not counted above."
        )
    if not report.origins_known:
        lines.append("The benchmark does not say where its videos come from: all negatives count as unrelated.")
    if report.failed:
        lines.append(f"{len(report.failed):,} videos could not be read; their pairs are left out.")
    return lines


def _copy_table(report: VerdictReport) -> Table:
    columns = ("found", "recall", "false", "precision", "stretches: precision", "recall", "border error")
    table = make_table("kind", *columns, title="verdict copy, %")
    for kind, copies in {"": report.figures.overall, **report.figures.by_kind}.items():
        stretches = report.figures.segments[kind]
        error = stretches.boundary_error_s
        table.add_row(
            kind or "all",
            f"{copies.found:,} of {copies.copies:,}",
            format_percent(copies.recall),
            f"{copies.false:,}",
            format_percent(copies.precision),
            format_percent(stretches.precision),
            format_percent(stretches.recall),
            "-" if math.isnan(error) else f"{error:.2f} s",
        )
    return table


def _false_table(report: VerdictReport) -> Table:
    columns = ("false", "of pairs", "compared", "in a million", "of those drawn")
    table = make_table("negatives", *columns, title="false verdicts copy")
    for truth, found in report.figures.false.items():
        false = f"{found.rate.count:,}"
        if found.videos != found.rate.count:
            false += f" ({found.videos:,} pairs of videos)"
        drawn = f"{found.drawn.count:,} of {found.drawn.pairs:,}"
        cells = (false, f"{found.rate.pairs:,}", f"{found.compared:,}", _per_million(found.rate), drawn)
        table.add_row(_ORIGINS[truth], *cells)
    return table


def _reliability_table(report: VerdictReport) -> Table:
    columns = ("copies", "negatives", "mean probability", "share of copies", "95% interval")
    table = make_table("probability", *columns, title="reliability")
    for one in report.figures.reliability:
        cells = ("-", "-", "-")
        if one.copies + one.strangers:
            interval = f"{one.observed_low:.4f} to {one.observed_high:.4f}"
            cells = (f"{one.predicted:.4f}", f"{one.observed:.4f}", interval)
        table.add_row(f"{one.low:g} to {one.high:g}", f"{one.copies:,}", f"{one.strangers:,}", *cells)
    return table


def _promise_table(report: VerdictReport) -> Table:
    known = list(report.figures.false)
    table = make_table("promised", "copies", *(_ORIGINS[truth] for truth in known), title="false of a million pairs")
    for promise in report.figures.promises:
        copies = f"{promise.copies.count:,} of {promise.copies.pairs:,}"
        cells = (f"{_per_million(rate)} ({rate.count:,})" for rate in (promise.measured[truth] for truth in known))
        table.add_row(f"{promise.promised:g}", copies, *cells)
    return table


def _per_million(rate: Rate) -> str:
    """A rate and its bound of 95%.

    >>> from hapvr.evaluation.verdict_metrics import Rate
    >>> _per_million(Rate(0, 86_000)), _per_million(Rate(2, 86_000))
    ('0, at most 35', '23, at most 73')
    """
    if not rate.pairs:
        return "-"
    return f"{rate.per_million:,.0f}, at most {rate.upper_per_million:,.0f}"
