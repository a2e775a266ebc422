"""Your own benchmarks: a folder that `hapvr make-benchmark` made, or a CSV file of labelled pairs."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hapvr.config import suggest
from hapvr.errors import ConfigError, DataError
from hapvr.evaluation.benchmarks.annotation_file import AnnotationFile, read_json, read_text
from hapvr.evaluation.benchmarks.benchmark import Benchmark, Task, TrueSegment
from hapvr.storage import StrPath

GROUND_TRUTH = "ground_truth.json"
_POSITIVE = "positive"
_COLUMNS = ("query", "target", "label")
_NEGATIVE = "0"


def read_ground_truth(path: StrPath) -> Benchmark:
    """The benchmark of the ground_truth.json of a made folder, whatever it is called; videos lie beside it."""
    return parse_ground_truth(read_json(path), Path(path))


def parse_ground_truth(content: Any, path: Path) -> Benchmark:
    """The same from the content of the file at `path`: mAP, uAP and recall@1, overall and by kind of edit.

    ground_truth.json: {"queries": {id: {"file", "kind", "positives": [ids], "segments": [[start, end, target,
    target_start, target_end]]}}, "database": {id: file}}; files are named relative to the folder. It may
    have "origins": {id: {"videos", "sources"}} and "shared": {name: {id: [start, end]}}.
    """
    source = AnnotationFile(path, "the ground_truth.json of a folder that `hapvr make-benchmark` made")
    content = source.check_table(content, "the file", ("queries", "database"))
    files: dict[str, str] = {}
    labels: dict[str, dict[str, str]] = {}
    kinds: dict[str, str] = {}
    segments: dict[str, tuple[TrueSegment, ...]] = {}
    queries = source.check_table(content["queries"], "'queries'")
    database = source.check_table(content["database"], "'database'")
    if both := sorted(queries.keys() & database.keys()):
        raise source.error(f"'{both[0]}' is a query and a database video")
    for query, entry in queries.items():
        source.check_table(entry, f"query '{query}'", ("file", "kind", "positives", "segments"))
    for id, file in [*((id, entry["file"]) for id, entry in queries.items()), *database.items()]:
        if not isinstance(file, str) or not file:
            raise source.error(f"'{id}' has no file")
        files[id] = str(path.parent / file)
    for query, entry in queries.items():
        if not isinstance(entry["kind"], str) or not entry["kind"]:
            raise source.error(f"query '{query}' has no kind")
        kinds[query] = entry["kind"]
        labels[query] = dict.fromkeys(source.check_ids(entry["positives"], f"the positives of '{query}'"), _POSITIVE)
        parts = entry["segments"]
        if not isinstance(parts, list) or not all(isinstance(part, list) and len(part) == 5 for part in parts):
            raise source.error(f"the segments of '{query}' are not lists of five")
        segments[query] = tuple(TrueSegment(*part) for part in parts)
    return Benchmark(
        path.parent.resolve().name,
        tuple(queries),
        tuple(database),
        labels,
        tuple(Task(name, (_POSITIVE,), name) for name in ("mAP", "uAP", "recall@1")),
        groups=kinds,
        segments=segments,
        files=files,
        origins=None if content.get("origins") is None else source.check_table(content["origins"], "'origins'"),
        shared=None if content.get("shared") is None else source.check_table(content["shared"], "'shared'"),
        folder=str(path.parent),
    )


def read_csv(path: StrPath, *, positives: Sequence[str] | None = None) -> Benchmark:
    """The benchmark of a CSV file with a header `query,target,label` and one labelled pair a line: mAP and uAP.

    Labels are any words; all but "0" are positives, or those of `positives`. Pairs without a line are negatives: also
    those with targets that the file does not name, which join the rankings if they have scores. Columns may be in any
    order; others are refused, since they would change nothing.
    """
    path = Path(path)
    lines = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    labels: dict[str, dict[str, str]] = {}
    order: list[int] | None = None  # where query, target and label are in a line
    try:
        for cells in lines:
            cells = [cell.strip() for cell in cells]
            if not any(cells):
                continue
            if order is None:
                names = [name.lower() for name in cells]
                if sorted(names) != sorted(_COLUMNS):
                    raise DataError(
                        f"'{path}' line 1: the header must be {','.join(_COLUMNS)}, got {','.join(cells)!r}."
                    )
                order = [names.index(name) for name in _COLUMNS]
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
