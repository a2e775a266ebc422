"""FIVR-5K and FIVR-200K: fine-grained incident video retrieval.

fivr.pickle: {"5k": {"queries": [ids], "database": {ids}}, "200k": {the same},
"annotation": {query: {label: [ids]}}} with the labels ND (near duplicate), DS (duplicate scene), CS (complementary
scene), IS (same incident) and DA (duplicate audio, which no task here counts).

A target that has two labels keeps the stronger: the tasks are nested, so no figure depends on the weaker. A label of a
video that the version's database does not hold is no part of that version.
"""

from __future__ import annotations

import os
from typing import Literal

from hapvr.errors import ConfigError
from hapvr.evaluation.benchmarks.annotation_file import AnnotationFile, read_ids
from hapvr.evaluation.benchmarks.benchmark import Benchmark, FigureName, LeftOut, Task
from hapvr.evaluation.safe_pickle import load_plain

_STRENGTH = ("ND", "DS", "CS", "IS", "DA")
_POSITIVES = {"DSV": ("ND", "DS"), "CSV": ("ND", "DS", "CS"), "ISV": ("ND", "DS", "CS", "IS")}
_FIGURES: dict[str, FigureName] = {"R": "mAP", "D": "uAP"}  # retrieval, detection
_EASY = "easy duplicates"


def read_fivr(
    path: str | os.PathLike[str],
    *,
    version: Literal["5k", "200k"],
    easy_duplicates: str | os.PathLike[str] | None = None,
) -> Benchmark:
    """DSVR, CSVR and ISVR as mAP, DSVD, CSVD and ISVD as uAP; with the list of easy duplicates also "DSVR hard" etc.

    The hard tasks take the easy duplicates out of database and ground truth alike, as their authors do.
    """
    if version not in ("5k", "200k"):
        raise ConfigError(f"version must be '5k' or '200k', got {version!r}.")
    source = AnnotationFile(path, "FIVR's fivr.pickle")
    content = source.table(load_plain(path), "the file", ("5k", "200k", "annotation"))
    part = source.table(content[version], f"'{version}'", ("queries", "database"))
    queries = source.ids(part["queries"], f"the queries of '{version}'")
    database = tuple(sorted(source.ids(part["database"], f"the database of '{version}'")))
    annotation = source.table(content["annotation"], "'annotation'", queries)
    known = set(database)
    labels = {query: _labels(source, query, annotation[query], known) for query in queries}
    tasks = [
        Task(f"{name}{kind}", positives, figure)
        for kind, figure in _FIGURES.items()
        for name, positives in _POSITIVES.items()
    ]
    left_out = {}
    if easy_duplicates is not None:
        easy = [id for id in read_ids(easy_duplicates) if id in known]
        if not easy:
            raise AnnotationFile(easy_duplicates, "FIVR's list of easy duplicates").error(
                f"none of its ids is in the database of FIVR-{version.upper()}"
            )
        left_out[_EASY] = LeftOut(tuple(easy))
        tasks += [Task(f"{task.name} hard", task.labels, task.figure, without=(_EASY,)) for task in tasks]
    return Benchmark(f"FIVR-{version.upper()}", queries, database, labels, tuple(tasks), left_out=left_out)


def _labels(source: AnnotationFile, query: str, annotation: object, database: set[str]) -> dict[str, str]:
    table = source.table(annotation, f"the annotation of '{query}'")
    if strange := sorted(set(map(str, table)) - set(_STRENGTH)):
        raise source.error(f"the annotation of '{query}' has the label '{strange[0]}', none of {', '.join(_STRENGTH)}")
    labels: dict[str, str] = {}
    for label in _STRENGTH:
        for target in source.ids(table.get(label, []), f"label {label} of '{query}'"):
            if target in database:
                labels.setdefault(target, label)
    return labels
