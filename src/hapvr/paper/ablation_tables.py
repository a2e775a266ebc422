"""Ablations for people: what was measured here and, beside it, what the paper has."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from hapvr.paper.studies import Row
from hapvr.paper.table_text import format_percent, require_format
from hapvr.paper.tables import PaperTable

MEASURES = ("mAP", "uAP")
FORMATS = ("text", "markdown")
_PAPER = "paper"
_GAP = "  "

_Heading = tuple[str, str, str]  # whose figure, of what, which


@dataclass(frozen=True)
class Figure:
    """One measure of a line on one benchmark: a percentage for each seed that came to its end."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float | None:
        """Over seeds; None without any."""
        return statistics.fmean(self.values) if self.values else None

    @property
    def spread(self) -> float | None:
        """The standard deviation over seeds (n - 1); None with fewer than two."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    def __str__(self) -> str:
        if self.mean is None:
            return "failed"
        return f"{self.mean:.2f}" + ("" if self.spread is None else f" ±{self.spread:.2f}")

    def to_json(self) -> dict[str, Any]:
        """The figure as `AblationTable.to_json` has it."""
        return {"mean": self.mean, "spread": self.spread, "values": list(self.values)}


@dataclass(frozen=True)
class AblationLine:
    """A line of a table, as measured here."""

    row: Row
    figures: Mapping[tuple[str, str], Figure]  # benchmark, measure
    kept_in_training: int  # K' of a training clip
    kept: Mapping[str, tuple[int, int]]  # benchmark -> K' of its target of median length, and of its longest
    failed: tuple[str, ...] = ()  # why seeds did not come to their end
    trained_as: str | None = None  # the line whose networks these are, where they were shared


@dataclass(frozen=True)
class AblationTable:
    """A table of the paper, and what was measured here for each of its lines."""

    paper: PaperTable
    lines: tuple[AblationLine, ...]
    benchmarks: Mapping[str, str]  # in words
    notes: tuple[str, ...]

    @property
    def shows_kept(self) -> bool:
        """Whether TopK is what the table is about."""
        return self.paper.name in ("modules", "topk")

    def to_json(self) -> dict[str, Any]:
        """What `hapvr ablate --json` prints of it: the paper's table with `ours` in each line."""
        record = self.paper.to_json()
        printed = record["lines"]
        record["lines"] = [
            {
                **printed[line.row.number - 1],
                "ours": {
                    name: {measure: line.figures[name, measure].to_json() for measure in MEASURES}
                    for name in self.benchmarks
                },
                "kept_in_training": line.kept_in_training,
                "kept": {name: {"median": pair[0], "longest": pair[1]} for name, pair in line.kept.items()},
                "failed": list(line.failed),
                "trained_as": line.trained_as,
            }
            for line in self.lines
        ]
        return record | {"benchmarks": dict(self.benchmarks), "notes": list(self.notes)}


def render(table: AblationTable, *, format: str = "text") -> str:
    """A table as text or Markdown: a line's keys, our figures on each benchmark, the paper's on its own.

    Percentages; ours are means over seeds with the standard deviation after ±. Where the table is about TopK, K' is
    given in training, and for a target of median length and for the longest of each benchmark.
    """
    require_format(format, FORMATS)
    headings = _make_headings(table)
    body = [_make_cells(table, line) for line in table.lines]
    notes = [*(f"{name}: {words}" for name, words in table.benchmarks.items()), *table.notes]
    notes += [f"{line.row.name}, {failure}" for line in table.lines for failure in line.failed]
    shared = [f"{line.row.number} from {line.trained_as}" for line in table.lines if line.trained_as]
    if shared:
        notes.append(f"Training was shared where K' is the same: line {', '.join(shared)}.")
    title = f"Table {table.paper.number}, {table.paper.name}: {table.paper.caption}"
    writer = _write_text if format == "text" else _write_markdown
    return "\n".join([title, "", *writer(headings, body), "", *notes])


def _make_headings(table: AblationTable) -> list[_Heading]:
    headings: list[_Heading] = [("", "", key) for key in table.paper.keys]
    if table.shows_kept:
        headings += [("K'", "training", "")]
        headings += [("K'", name, "median, longest") for name in table.benchmarks]
    headings += [("ours", name, measure) for name in table.benchmarks for measure in MEASURES]
    headings += [
        (_PAPER, column.benchmark, " ".join(filter(None, (column.task, column.measure))))
        for column in table.paper.columns
    ]
    return headings


def _make_cells(table: AblationTable, line: AblationLine) -> list[str]:
    cells = list(line.row.keys)
    if table.shows_kept:
        cells += [str(line.kept_in_training), *(", ".join(map(str, line.kept[name])) for name in table.benchmarks)]
    cells += [str(line.figures[name, measure]) for name in table.benchmarks for measure in MEASURES]
    printed = table.paper.lines[line.row.number - 1].figures
    return cells + [format_percent(figure) for figure in printed]


def _write_text(headings: Sequence[_Heading], body: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(heading[2]), *(len(row[number]) for row in body)) for number, heading in enumerate(headings)]

    def measure(columns: list[int]) -> int:
        return sum(widths[number] for number in columns) + len(_GAP) * (len(columns) - 1)

    spans = [
        [list(span) for _, span in groupby(range(len(headings)), key=lambda number: headings[number][: depth + 1])]
        for depth in (0, 1)
    ]
    for depth, groups in enumerate(spans):
        for columns in groups:  # a heading that is wider than its columns widens the last of them
            widths[columns[-1]] += max(0, len(headings[columns[0]][depth]) - measure(columns))
    output = [
        "".join(f"{headings[columns[0]][depth]:<{measure(columns)}}{_GAP}" for columns in groups).rstrip()
        for depth, groups in enumerate(spans)
    ]
    rows = [[heading[2] for heading in headings], *body]
    lines = [_GAP.join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return [*output, lines[0], "-" * measure(list(range(len(widths)))), *lines[1:]]


def _write_markdown(headings: Sequence[_Heading], body: Sequence[Sequence[str]]) -> list[str]:
    names = [" ".join(filter(None, heading)) for heading in headings]
    rows = [names, ["---"] * len(names), *body]
    return [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
