"""Folders that `hapvr make-benchmark` made: edited copies as queries, with the kind of edit as group.

ground_truth.json: {"queries": {id: {"file", "kind", "positives": [ids], "segments": [[start, end, target, target_start,
target_end]]}}, "database": {id: file}}; files are named relative to the folder.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hapvr.evaluation.benchmarks.annotation_file import AnnotationFile
from hapvr.evaluation.benchmarks.benchmark import Benchmark, Task, TrueSegment, read_json

GROUND_TRUTH = "ground_truth.json"
_POSITIVE = "positive"


def read_made(folder: str | os.PathLike[str]) -> Benchmark:
    """mAP, uAP and recall@1, overall and by kind of edit."""
    return read_ground_truth(Path(folder) / GROUND_TRUTH)


def read_ground_truth(path: str | os.PathLike[str]) -> Benchmark:
    """The same from the file, whatever it is called; videos lie beside it."""
    return parse_made(read_json(path), Path(path))


def parse_made(content: Any, path: Path) -> Benchmark:
    """A benchmark from the content of the ground_truth.json at `path`."""
    source = AnnotationFile(path, "the ground_truth.json of a folder that `hapvr make-benchmark` made")
    content = source.table(content, "the file", ("queries", "database"))
    files: dict[str, str] = {}
    labels: dict[str, dict[str, str]] = {}
    kinds: dict[str, str] = {}
    segments: dict[str, tuple[TrueSegment, ...]] = {}
    queries = source.table(content["queries"], "'queries'")
    database = source.table(content["database"], "'database'")
    if both := sorted(queries.keys() & database.keys()):
        raise source.error(f"'{both[0]}' is a query and a database video")
    for id, file in [*((id, _field(source, id, entry, "file")) for id, entry in queries.items()), *database.items()]:
        if not isinstance(file, str) or not file:
            raise source.error(f"'{id}' has no file")
        files[id] = str(path.parent / file)
    for query, entry in queries.items():
        kind = _field(source, query, entry, "kind")
        if not isinstance(kind, str) or not kind:
            raise source.error(f"query '{query}' has no kind")
        kinds[query] = kind
        labels[query] = dict.fromkeys(
            source.ids(_field(source, query, entry, "positives"), f"the positives of '{query}'"), _POSITIVE
        )
        parts = _field(source, query, entry, "segments")
        if not isinstance(parts, list) or not all(isinstance(part, list) and len(part) == 5 for part in parts):
            raise source.error(f"the segments of '{query}' are not lists of five")
        segments[query] = tuple(TrueSegment(*part) for part in parts)
    tasks = tuple(Task(name, (_POSITIVE,), name) for name in ("mAP", "uAP", "recall@1"))
    return Benchmark(
        path.parent.resolve().name,
        tuple(queries),
        tuple(database),
        labels,
        tasks,
        groups=kinds,
        segments=segments,
        files=files,
        folder=str(path.parent),
    )


def _field(source: AnnotationFile, query: str, entry: Any, name: str) -> Any:
    return source.table(entry, f"query '{query}'", (name,))[name]
