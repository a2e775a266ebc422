"""SVD: near-duplicates among short videos, the test set.

svd_test_groundtruth: lines `query candidate label`, label 1 (near-duplicate) or 0 (looked at, and not). A query's
ranking holds its own labelled candidates and the unlabelled videos; it does not meet other queries' candidates, whose
relation to it nobody has looked at. The unlabelled videos are a list of their own, one id a line.
"""

from __future__ import annotations

import os

from hapvr.evaluation.benchmarks.annotation_file import AnnotationFile, read_ids, read_lines
from hapvr.evaluation.benchmarks.benchmark import Benchmark, Task


def read_svd(path: str | os.PathLike[str], *, unlabelled: str | os.PathLike[str] | None = None) -> Benchmark:
    """mAP and uAP with the unlabelled videos as distractors, and "labelled" ones with labelled candidates alone.

    Without the list, every scored video that the file does not name is taken for unlabelled. Equal scores in mAP are
    one threshold, as in the public evaluation.
    """
    source = AnnotationFile(path, "SVD's svd_test_groundtruth, lines `query candidate label`")
    labels: dict[str, dict[str, str]] = {}
    for number, line in read_lines(path):
        words = line.split()
        if len(words) != 3 or words[2] not in ("0", "1"):
            raise source.error(f"line {number} is {line[:80]!r}")
        query, candidate, label = words
        if candidate in labels.setdefault(query, {}):
            raise source.error(f"line {number} labels '{candidate}' for query '{query}' a second time")
        labels[query][candidate] = label
    if not labels:
        raise source.error("it is empty")
    candidates = {target for row in labels.values() for target in row}
    # A video that someone labelled is a candidate, wherever else it is listed.
    further = () if unlabelled is None else [id for id in read_ids(unlabelled) if id not in candidates]
    tasks = (
        Task("mAP", ("1",), "mAP", ties="group"),
        Task("uAP", ("1",), "uAP"),
        Task("mAP labelled", ("1",), "mAP", ties="group", labelled_only=True),
        Task("uAP labelled", ("1",), "uAP", labelled_only=True),
    )
    return Benchmark(
        "SVD",
        tuple(labels),
        (*sorted(candidates), *sorted(further)),
        labels,
        tasks,
        candidates={query: tuple(row) for query, row in labels.items()},
        open_database=unlabelled is None,
    )
