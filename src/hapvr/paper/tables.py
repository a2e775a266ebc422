"""The result tables of the paper, cell by cell, and what was measured here beside them.

    table = find_paper_table("methods")      # or 1; read_paper_tables() has them all
    result = read_result("eval.json")   # what `hapvr evaluate -o` wrote
    to_json(table, [result])            # the two side by side; `hapvr.paper.table_text.render` as text

Figures of tables are percentages, as printed; differences are percentage points.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from hapvr.config import parse_toml, suggest
from hapvr.errors import ConfigError, DataError
from hapvr.evaluation.benchmarks.annotation_file import read_json
from hapvr.storage import StrPath

MISSING = "/"  # as the paper writes a figure it does not have
# The measures of evaluations, as the paper calls them.
_MEASURES = {"mAP": "mAP", "EVVE mAP": "mAP", "uAP": "uAP"}


@dataclass(frozen=True)
class Column:
    """What a column measures: a benchmark, one of its tasks ("" if it has but one), and the measure, mAP or uAP."""

    benchmark: str
    task: str
    measure: str

    def __str__(self) -> str:
        return " ".join(filter(None, (self.benchmark, self.task, self.measure)))


@dataclass(frozen=True)
class Line:
    """A line of a table: what it is of, and a percentage for each column; None where the paper has none."""

    keys: tuple[str, ...]
    figures: tuple[float | None, ...]


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper."""

    name: str
    number: int  # in the paper
    caption: str
    keys: tuple[str, ...]  # headings of the keys of a line
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    own: int | None  # which line is the paper's method or the setting it chose; None where that is not in the table
    baseline: int | None  # which line gains are counted from
    marks: bool  # whether the paper marks the best and the second-best figure of a column
    note: str = ""

    def line(self, *keys: str) -> Line:
        """The only line whose keys begin with these, or the one of a number, from 1.

        >>> find_paper_table("methods").line("HAP-VR").figures[0], find_paper_table("modules").line("line 4").figures[0]
        (69.15, 69.58)
        """
        numbered = [line for number, line in enumerate(self.lines, 1) if keys == (f"line {number}",)]
        found = numbered or [line for line in self.lines if line.keys[: len(keys)] == keys]
        if len(found) != 1:
            known = [" ".join(line.keys) for line in self.lines]
            raise ConfigError(
                f"Table {self.number} has {len(found)} lines that begin with '{' '.join(keys)}'; "
                f"{suggest(' '.join(keys), known)}"
            )
        return found[0]

    def name_line(self, line: Line) -> str:
        """The name of a line in sentences:  its first key, or by its number where several have that."""
        alone = sum(other.keys[0] == line.keys[0] for other in self.lines) == 1
        return line.keys[0] if alone else f"line {self.lines.index(line) + 1}"

    def find_opponent(self, against: str | None = None) -> Line | None:
        """The line that results are compared with: that of a key, or the paper's own if it is here."""
        if against is not None:
            return self.line(against)
        return None if self.own is None else self.lines[self.own]

    def rank_figures(self) -> list[list[int | None]]:
        """For each line and column 1 if it is the best figure of the column, 2 if the second best, else None.

        Equal figures share a place. All None where the paper does not mark any.
        """
        ranks: list[dict[float, int]] = []
        for column in range(len(self.columns)):
            values = {line.figures[column] for line in self.lines} - {None} if self.marks else set()
            best = sorted((value for value in values if value is not None), reverse=True)[:2]
            ranks.append({value: place for place, value in enumerate(best, 1)})
        return [
            [None if figure is None else rank.get(figure) for figure, rank in zip(line.figures, ranks, strict=True)]
            for line in self.lines
        ]

    def to_json(self) -> dict[str, Any]:
        """What `hapvr table --json` prints of it."""
        return {
            "name": self.name,
            "number": self.number,
            "caption": self.caption,
            "unit": "percent",
            "keys": list(self.keys),
            "columns": [
                {"benchmark": column.benchmark, "task": column.task or None, "measure": column.measure}
                for column in self.columns
            ],
            "lines": [
                {"keys": list(line.keys), "figures": list(line.figures), "own": number == self.own}
                for number, line in enumerate(self.lines)
            ],
            "note": self.note,
        }


@dataclass(frozen=True)
class Result:
    """What was measured here: a percentage for each column that it has a figure for."""

    label: str
    figures: Mapping[Column, float]
    coverage: tuple[str, ...] = ()  # how much of each benchmark it was measured on

    def to_line(self, table: PaperTable) -> Line:
        """These figures as a line of a table; None where there is none. `DataError` if there is none at all."""
        if not self.figures.keys() & set(table.columns):
            mine = ", ".join(map(str, self.figures)) or "none that the paper has"
            raise DataError(
                f"'{self.label}' has no figure of Table {table.number} ({', '.join(map(str, table.columns))}). "
                f"Its figures: {mine}."
            )
        keys = (self.label, *[""] * (len(table.keys) - 1))
        return Line(keys, tuple(self.figures.get(column) for column in table.columns))


@functools.cache
def read_paper_tables() -> Mapping[str, PaperTable]:
    """The result tables of the paper by name, in the paper's order."""
    file = resources.files("hapvr.paper") / "tables.toml"
    tables = [
        _parse_table(name, entries) for name, entries in parse_toml(file.read_text(encoding="utf-8"), file.name).items()
    ]
    return {table.name: table for table in sorted(tables, key=lambda table: table.number)}


def find_paper_table(name: str | int) -> PaperTable:
    """A table by its name or by its number in the paper.

    >>> find_paper_table(2).name, find_paper_table("losses").line("QuadLinear-AP").figures[:3]
    ('losses', (90.8, 89.68, 81.31))
    >>> find_paper_table("loses")
    Traceback (most recent call last):
    hapvr.errors.ConfigError: The paper has no result table 'loses'; did you mean 'losses'?
    """
    tables = read_paper_tables()
    for table in tables.values():
        if str(name) in (table.name, str(table.number)):
            return table
    raise ConfigError(f"The paper has no result table '{name}'; {suggest(str(name), list(tables))}")


def compute_differences(line: Line, against: Line) -> tuple[float | None, ...]:
    """By how many percentage points each figure is above that of another line; None where either is missing.

    >>> ours, theirs = Line(("a",), (70.0, 60.5, None)), Line(("b",), (69.15, None, 1.0))
    >>> compute_differences(ours, theirs)
    (0.85, None, None)
    """
    return tuple(
        None if mine is None or other is None else round(mine - other, 6)
        for mine, other in zip(line.figures, against.figures, strict=True)
    )


def to_json(table: PaperTable, results: Sequence[Result] = (), *, against: str | None = None) -> dict[str, Any]:
    """The table and the results beside it, for programs."""
    record, other = table.to_json(), table.find_opponent(against)
    record["against"] = None if other is None else list(other.keys)
    record["results"] = [
        {
            "label": result.label,
            "figures": list((line := result.to_line(table)).figures),
            "differences": None if other is None else list(compute_differences(line, other)),
            "coverage": list(result.coverage),
        }
        for result in results
    ]
    return record


def read_result(path: StrPath, *, label: str | None = None) -> Result:
    """What `hapvr evaluate -o` wrote, as percentages; `label` names it in tables, by default the file's name."""
    record = read_json(path)
    try:
        benchmark, coverage, tasks = record["benchmark"], record["coverage"], record["results"]
        measured = [(task["task"]["name"], task["task"]["figure"], task["overall"]["value"]) for task in tasks]
        found = [coverage[f"{kind}_{what}"] for kind in ("queries", "targets") for what in ("found", "expected")]
        words = "{:,} of {:,} queries and {:,} of {:,} targets".format(*found)
        covered = f"{benchmark}: {words} have scores, missing={record['missing']}"
    except (KeyError, TypeError, IndexError, ValueError) as error:
        raise DataError(
            f"'{os.fspath(path)}' is no evaluation ({type(error).__name__}: {error}). "
            "`hapvr evaluate -o FILE.json` writes one."
        ) from error
    figures: dict[Column, float] = {}
    for name, figure, value in measured:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise DataError(f"'{os.fspath(path)}': task '{name}' has the figure {value!r}, not a fraction of 1.")
        measure = _MEASURES.get(figure)
        if measure is None:
            continue  # the paper has no such figure
        # Where a benchmark has but one task of a measure, it is called as the measure is.
        figures[Column(str(benchmark), "" if name in (figure, measure) else str(name), measure)] = 100 * value
    return Result(Path(path).stem if label is None else label, figures, (covered,))


def join_results(results: Iterable[Result]) -> list[Result]:
    """Results of the same label as one: those of a model on several benchmarks.

    `DataError` if two of them have the same figure.
    """
    joined: dict[str, Result] = {}
    for result in results:
        before = joined.get(result.label, Result(result.label, {}))
        if both := sorted(map(str, before.figures.keys() & result.figures.keys())):
            raise DataError(f"'{result.label}' has two figures for {both[0]}. Give them different labels.")
        joined[result.label] = Result(
            result.label, {**before.figures, **result.figures}, (*before.coverage, *result.coverage)
        )
    return list(joined.values())


def _parse_table(name: str, entries: Mapping[str, Any]) -> PaperTable:
    width = len(entries["keys"])
    lines = tuple(
        Line(tuple(row[:width]), tuple(None if cell == MISSING else float(cell) for cell in row[width:]))
        for row in entries["rows"]
    )
    return PaperTable(
        name=name,
        number=entries["number"],
        caption=entries["caption"],
        keys=tuple(entries["keys"]),
        columns=tuple(_parse_column(words) for words in entries["columns"]),
        lines=lines,
        own=entries["own_line"] - 1 if "own_line" in entries else None,
        baseline=entries["baseline_line"] - 1 if "baseline_line" in entries else None,
        marks=entries["marks"],
        note=entries.get("note", ""),
    )


def _parse_column(words: str) -> Column:
    benchmark, *task, measure = words.split()
    return Column(benchmark, " ".join(task), measure)
