"""CC_WEB_VIDEO: near-duplicates of 24 queries.

cc_web_video.pickle: {"index": {video id: number}, "queries": [ids], "ground_truth": [{number: label}],
"excluded": [{numbers}]}, the last two with one entry per query. Labels E (exact), S (similar), V (different version),
M (major change) and L (long version) are positives; X is not. A query's labelled videos are those of its own set.

Numbers run from 1; for a few the published index has no video, though some have labels. They stand in the database as
"#number", so that they are seen as missing.
"""

from __future__ import annotations

import os

from hapvr.evaluation.benchmarks.annotation_file import AnnotationFile
from hapvr.evaluation.benchmarks.benchmark import Benchmark, LeftOut, Task
from hapvr.evaluation.safe_pickle import load_plain

_POSITIVES = ("E", "S", "L", "M", "V")
_EXCLUDED = "excluded"


def read_cc_web_video(path: str | os.PathLike[str], *, query_itself: bool = True) -> Benchmark:
    """Four mAP: "CC_WEB" ranks the query's own set, "CC_WEB*" all videos; "c" without the excluded (the clean labels).

    Published figures leave the query in its own ranking, as a positive; `query_itself=False` takes it out.
    """
    source = AnnotationFile(path, "CC_WEB_VIDEO's cc_web_video.pickle")
    content = source.table(load_plain(path), "the file", ("index", "queries", "ground_truth", "excluded"))
    queries = source.ids(content["queries"], "'queries'")
    names: dict[int, str] = {}
    for video, number in source.table(content["index"], "'index'").items():
        if not isinstance(video, str) or type(number) is not int or number < 1 or number in names:
            raise source.error(f"'index' gives {video!r} the number {number!r}; each id needs its own, from 1 on")
        names[number] = video
    last = max(names, default=0)
    if last > 10 * len(names):
        raise source.error(f"'index' numbers {len(names)} videos up to {last}")
    names |= {number: f"#{number}" for number in range(1, last + 1) if number not in names}
    for part in ("ground_truth", "excluded"):
        if not isinstance(content[part], (list, tuple)) or len(content[part]) != len(queries):
            raise source.error(f"'{part}' must have one entry for each of the {len(queries)} queries")
    labels: dict[str, dict[str, str]] = {}
    excluded: dict[str, tuple[str, ...]] = {}
    for query, row, out in zip(queries, content["ground_truth"], content["excluded"], strict=True):
        table = source.table(row, f"the ground truth of '{query}'")
        if not isinstance(out, (set, frozenset, list, tuple)):
            raise source.error(f"the excluded of '{query}' are a {type(out).__name__}, not a set")
        for number in (*table, *out):
            if type(number) is not int or number not in names:
                raise source.error(f"'{query}' names the video {number!r}, which 'index' does not number")
        if not all(isinstance(label, str) for label in table.values()):
            raise source.error(f"the ground truth of '{query}' has a label that is no string")
        labels[query] = {names[number]: label for number, label in table.items()}
        excluded[query] = tuple(sorted(names[number] for number in out))
    tasks = tuple(
        Task(
            f"CC_WEB{'*' if every else ''}{'c' if clean else ''}",
            _POSITIVES,
            labelled_only=not every,
            query_itself=query_itself,
            without=(_EXCLUDED,) if clean else (),
        )
        for clean in (False, True)
        for every in (False, True)
    )
    database = tuple(names[number] for number in sorted(names))
    return Benchmark("CC_WEB_VIDEO", queries, database, labels, tasks, left_out={_EXCLUDED: LeftOut(of_query=excluded)})
