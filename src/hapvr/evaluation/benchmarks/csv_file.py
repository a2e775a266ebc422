"""Benchmarks as plain CSV: a header `query,target,label` and one labelled pair a line."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path

from hapvr.config import suggest
from hapvr.errors import ConfigError, DataError
from hapvr.evaluation.benchmarks.benchmark import Benchmark, Task

_COLUMNS = ("query", "target", "label")
_NEGATIVE = "0"


def read_csv(path: str | os.PathLike[str], *, positives: Sequence[str] | None = None) -> Benchmark:
    """mAP and uAP. Labels are words of your own; all but "0" are positives, or those of `positives`.

    Pairs without a line are negatives: also those with targets that the file does not name, which join the rankings
    if they have scores. Columns may stand in any order; others are refused, since they would change nothing.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DataError(f"'{path}' cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise DataError(f"'{path}' is no UTF-8 text: {error}.") from error
    lines = csv.reader(io.StringIO(text, newline=""), strict=True)
    labels: dict[str, dict[str, str]] = {}
    order: list[int] | None = None
    try:
        for cells in lines:
            cells = [cell.strip() for cell in cells]
            if not any(cells):
                continue
            if order is None:
                order = _order(path, cells)
                continue
            if len(cells) != len(_COLUMNS) or not all(cells):
                raise DataError(
                    f"'{path}' line {lines.line_num}: a query, a target and a label were expected, got {cells!r}."
                )
            query, target, label = (cells[place] for place in order)
            row = labels.setdefault(query, {})
            if target in row:
                raise DataError(
                    f"'{path}' line {lines.line_num}: query '{query}' and target '{target}' have the label "
                    f"'{row[target]}' already. Give each pair once."
                )
            row[target] = label
    except csv.Error as error:
        raise DataError(f"'{path}' line {lines.line_num} is no CSV: {error}.") from error
    if not labels:
        raise DataError(f"'{path}' holds no pair: it needs a header {','.join(_COLUMNS)} and a line for each pair.")
    seen = sorted({label for row in labels.values() for label in row.values()})
    chosen = tuple(label for label in seen if label != _NEGATIVE) if positives is None else tuple(positives)
    for label in chosen:
        if label not in seen:
            raise ConfigError(f"'{path}' has no label '{label}'; {suggest(label, seen)}")
    if not chosen:
        raise DataError(f"'{path}' has no positive: every label is '{_NEGATIVE}'.")
    database = tuple(sorted({target for row in labels.values() for target in row}))
    tasks = (Task("mAP", chosen, "mAP"), Task("uAP", chosen, "uAP"))
    return Benchmark(path.stem, tuple(labels), database, labels, tasks, open_database=True)


def _order(path: Path, header: list[str]) -> list[int]:
    """Where query, target and label stand."""
    names = [name.lower() for name in header]
    if sorted(names) != sorted(_COLUMNS):
        raise DataError(f"'{path}' line 1: the header must be {','.join(_COLUMNS)}, got {','.join(header)!r}.")
    return [names.index(name) for name in _COLUMNS]
