"""EVVE: retrieval of videos of the same event.

evve.pickle: {"annotation": {event: ({query ids}, {positive ids}, {null ids})}, "database": [ids], "queries": [ids]}.
A null video is a negative; the published file has none.
"""

from __future__ import annotations

import os

from hapvr.evaluation.benchmarks.annotation_file import AnnotationFile
from hapvr.evaluation.benchmarks.benchmark import Benchmark, Task
from hapvr.evaluation.safe_pickle import load_plain


def read_evve(path: str | os.PathLike[str]) -> Benchmark:
    """The trapezoidal mAP of EVVE's own evaluation and uAP, overall and by event.

    The database holds videos of no event too. A query of which no positive is left counts in mAP, with 0.
    """
    source = AnnotationFile(path, "EVVE's evve.pickle")
    content = source.table(load_plain(path), "the file", ("annotation", "database", "queries"))
    queries = source.ids(content["queries"], "'queries'")
    database = tuple(sorted(source.ids(content["database"], "'database'")))
    known = set(database)
    events: dict[str, str] = {}
    labels: dict[str, dict[str, str]] = {}
    for event, sets in source.table(content["annotation"], "'annotation'").items():
        if not isinstance(event, str) or not isinstance(sets, (tuple, list)) or len(sets) != 3:
            raise source.error(f"event {event!r} must have three sets: queries, positives, null videos")
        of_event, positives, null = (source.ids(ids, f"a set of event '{event}'") for ids in sets)
        row = {target: "null" for target in null if target in known}
        row |= {target: "positive" for target in positives if target in known}
        for query in of_event:
            if query in events:
                raise source.error(f"query '{query}' is of two events, '{events[query]}' and '{event}'")
            events[query], labels[query] = event, row
    if lost := [query for query in queries if query not in events]:
        raise source.error(f"query '{lost[0]}' is of no event")
    tasks = (Task("mAP", ("positive",), "EVVE mAP"), Task("uAP", ("positive",), "uAP"))
    return Benchmark(
        "EVVE",
        queries,
        database,
        {query: labels[query] for query in queries},
        tasks,
        groups={query: events[query] for query in queries},
    )
