"""The published benchmarks (FIVR, EVVE, SVD, CC_WEB_VIDEO, VCDB), from the files that their authors publish."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from hapvr.errors import ConfigError, DataError
from hapvr.evaluation.benchmarks.annotation_file import AnnotationFile, read_ids, read_lines
from hapvr.evaluation.benchmarks.benchmark import Benchmark, FigureName, LeftOut, Task, TrueSegment
from hapvr.evaluation.safe_pickle import load_plain
from hapvr.storage import StrPath

_FIVR_STRENGTH = ("ND", "DS", "CS", "IS", "DA")
_FIVR_POSITIVES = {"DSV": ("ND", "DS"), "CSV": ("ND", "DS", "CS"), "ISV": ("ND", "DS", "CS", "IS")}
_FIVR_FIGURES: dict[str, FigureName] = {"R": "mAP", "D": "uAP"}  # retrieval, detection
_EASY, _EXCLUDED = "easy duplicates", "excluded"
_CC_WEB_POSITIVES = ("E", "S", "L", "M", "V")
_CC_WEB_NOTE = (
    "Published figures divide by all labelled positives, with a score or without, as --missing miss does; --missing "
    "drop divides by those that have one, which gives a higher figure."
)
_VCDB_TASKS = (Task("mAP", ("copy",), "mAP"), Task("uAP", ("copy",), "uAP"))
_VCDB_TIME = re.compile(r"(?:(\d{1,3}):)?(\d{1,2}):(\d{1,2}(?:\.\d+)?)")


def read_fivr(path: StrPath, *, version: Literal["5k", "200k"], easy_duplicates: StrPath | None = None) -> Benchmark:
    """FIVR-5K and FIVR-200K, fine-grained incident video retrieval.

    fivr.pickle: {"5k": {"queries": [ids], "database": {ids}}, "200k": {the same}, "annotation": {query: {label:
    [ids]}}} with the labels ND (near duplicate), DS (duplicate scene), CS (complementary scene), IS (same incident) and
    DA (duplicate audio, which no task here counts). A target that has two labels keeps the stronger: the tasks are
    nested, so no figure depends on the weaker. A label of a video that the version's database does not hold is dropped.

    There are two such files: fivr.pickle, and fivr_audio.pickle, which the authors' public code reads. They differ in
    one positive, which is up to 0.0014 of uAP; the benchmark's notes say which was read.

    DSVR, CSVR and ISVR are mAP, DSVD, CSVD and ISVD uAP. With the list of easy duplicates there are also "DSVR hard"
    etc., which take these out of database and ground truth, as their authors do.
    """
    if version not in ("5k", "200k"):
        raise ConfigError(f"version must be '5k' or '200k', got {version!r}.")
    source = AnnotationFile(path, "FIVR's fivr.pickle or fivr_audio.pickle")
    content = source.check_table(load_plain(path), "the file", ("5k", "200k", "annotation"))
    part = source.check_table(content[version], f"'{version}'", ("queries", "database"))
    queries = source.check_ids(part["queries"], f"the queries of '{version}'")
    database = tuple(sorted(source.check_ids(part["database"], f"the database of '{version}'")))
    annotation = source.check_table(content["annotation"], "'annotation'", queries)
    known = set(database)
    labels: dict[str, dict[str, str]] = {}
    for query in queries:
        table = source.check_table(annotation[query], f"the annotation of '{query}'")
        if strange := sorted(set(map(str, table)) - set(_FIVR_STRENGTH)):
            expected = ", ".join(_FIVR_STRENGTH)
            raise source.error(f"the annotation of '{query}' has the label '{strange[0]}', none of {expected}")
        labels[query] = {}
        for label in _FIVR_STRENGTH:
            for target in source.check_ids(table.get(label, []), f"label {label} of '{query}'"):
                if target in known:
                    labels[query].setdefault(target, label)
    tasks = [
        Task(f"{name}{kind}", positives, figure)
        for kind, figure in _FIVR_FIGURES.items()
        for name, positives in _FIVR_POSITIVES.items()
    ]
    left_out = {}
    if easy_duplicates is not None:
        easy = [id for id in read_ids(easy_duplicates) if id in known]
        if not easy:
            found = f"none of its ids is in the database of FIVR-{version.upper()}"
            raise AnnotationFile(easy_duplicates, "FIVR's list of easy duplicates").error(found)
        left_out[_EASY] = LeftOut(tuple(easy))
        tasks += [Task(f"{task.name} hard", task.labels, task.figure, without=(_EASY,)) for task in tasks]
    note = (
        f"Labels are those of {Path(path).name}. Published figures of HAP-VR and S2VS rest on fivr_audio.pickle, which "
        "differs from fivr.pickle in one positive: up to 0.14% of uAP."
    )
    return Benchmark(
        f"FIVR-{version.upper()}", queries, database, labels, tuple(tasks), left_out=left_out, notes=(note,)
    )


def read_evve(path: StrPath) -> Benchmark:
    """EVVE, retrieval of videos of the same event: the trapezoidal mAP of its authors and uAP, also by event.

    evve.pickle: {"annotation": {event: ({query ids}, {positive ids}, {null ids})}, "database": [ids], "queries":
    [ids]}. A null video is a negative; the published file has none. The database holds videos of no event too. A query
    of which no positive is left counts in mAP, with 0.
    """
    source = AnnotationFile(path, "EVVE's evve.pickle")
    content = source.check_table(load_plain(path), "the file", ("annotation", "database", "queries"))
    queries = source.check_ids(content["queries"], "'queries'")
    database = tuple(sorted(source.check_ids(content["database"], "'database'")))
    known = set(database)
    events: dict[str, str] = {}
    labels: dict[str, dict[str, str]] = {}
    for event, sets in source.check_table(content["annotation"], "'annotation'").items():
        if not isinstance(event, str) or not isinstance(sets, (tuple, list)) or len(sets) != 3:
            raise source.error(f"event {event!r} must have three sets: queries, positives, null videos")
        of_event, positives, null = (source.check_ids(ids, f"a set of event '{event}'") for ids in sets)
        row = {target: "null" for target in null if target in known}
        row |= {target: "positive" for target in positives if target in known}
        for query in of_event:
            if query in events:
                raise source.error(f"query '{query}' is of two events, '{events[query]}' and '{event}'")
            events[query], labels[query] = event, row
    if lost := [query for query in queries if query not in events]:
        raise source.error(f"query '{lost[0]}' is of no event")
    tasks = (Task("mAP", ("positive",), "EVVE mAP"), Task("uAP", ("positive",), "uAP"))
    labels, events = {query: labels[query] for query in queries}, {query: events[query] for query in queries}
    return Benchmark("EVVE", queries, database, labels, tasks, groups=events)


def read_svd(path: StrPath, *, unlabelled: StrPath | None = None) -> Benchmark:
    """SVD, near-duplicates among short videos, the test set: mAP and uAP, and both with labelled candidates alone.

    svd_test_groundtruth: lines `query candidate label`, label 1 (near-duplicate) or 0 (checked: it is none). A query's
    ranking holds its own labelled candidates and the unlabelled videos; it does not hold other queries' candidates,
    whose relation to it nobody has checked. The unlabelled videos are a separate list, one id a line. Without it, every
    scored video that the file does not name counts as unlabelled. Equal scores in mAP are one threshold, as in the
    public evaluation.
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


def read_cc_web_video(path: StrPath, *, query_itself: bool = True) -> Benchmark:
    """CC_WEB_VIDEO, near-duplicates of 24 queries, as four mAP.

    "CC_WEB" ranks the query's own set, the videos labelled for it, "CC_WEB*" all videos; a "c" is without the excluded
    (the clean labels). Published figures leave the query in its own ranking, as a positive; `query_itself=False` takes
    it out.

    cc_web_video.pickle: {"index": {video id: number}, "queries": [ids], "ground_truth": [{number: label}], "excluded":
    [{numbers}]}, the last two with one entry per query. Labels E (exact), S (similar), V (different version), M (major
    change) and L (long version) are positives; X is not. Numbers run from 1; for a few the published index has no
    video, though some have labels. They are in the database as "#number", so that they are seen as missing.

    Published figures divide by all labelled positives of a query, also those without a score: `missing="miss"` does so
    too, where all queries have scores (a query without scores counts 0 there, and not at all in published figures). The
    default "drop" divides by the positives that have scores.
    """
    source = AnnotationFile(path, "CC_WEB_VIDEO's cc_web_video.pickle")
    content = source.check_table(load_plain(path), "the file", ("index", "queries", "ground_truth", "excluded"))
    queries = source.check_ids(content["queries"], "'queries'")
    names: dict[int, str] = {}
    for video, number in source.check_table(content["index"], "'index'").items():
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
        table = source.check_table(row, f"the ground truth of '{query}'")
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
            _CC_WEB_POSITIVES,
            labelled_only=not every,
            query_itself=query_itself,
            without=(_EXCLUDED,) if clean else (),
        )
        for clean in (False, True)
        for every in (False, True)
    )
    database = tuple(names[number] for number in sorted(names))
    left_out = {_EXCLUDED: LeftOut(of_query=excluded)}
    return Benchmark("CC_WEB_VIDEO", queries, database, labels, tasks, left_out=left_out, notes=(_CC_WEB_NOTE,))


def read_vcdb(path: StrPath, *, distractors: bool = False) -> Benchmark:
    """VCDB, partial copies: mAP and uAP of finding the videos that share a segment with each video of the core.

    The core of 528 videos is both queries and database; 100,000 distractors may join. It is read from vcdb.pickle, or
    from VCDB's own annotation, a folder of text files, which has segments and classes but no list of distractors.

    vcdb.pickle (video level): {"video_pairs": [{"videos": [a, b], "overlap": [fraction of a, of b]}], "index": [all
    ids], "negs": [distractors]}. Every video of a pair is of the core; every other one of "index" is a distractor.
    """
    path = Path(path)
    if path.is_dir():
        if distractors:
            raise DataError(f"'{path}' lists no distractors: give vcdb.pickle instead.")
        return _read_vcdb_segments(path)
    source = AnnotationFile(path, "VCDB's vcdb.pickle, or a folder of its annotation text files")
    content = source.check_table(load_plain(path), "the file", ("video_pairs", "index", "negs"))
    labels: dict[str, dict[str, str]] = {}
    if not isinstance(content["video_pairs"], list) or not content["video_pairs"]:
        raise source.error("'video_pairs' is no list of pairs")
    for number, entry in enumerate(content["video_pairs"]):
        videos = source.check_ids(source.check_table(entry, f"pair {number}", ("videos",))["videos"], f"pair {number}")
        if len(videos) != 2:
            raise source.error(f"pair {number} has {len(videos)} videos")
        if videos[1] in labels.get(videos[0], {}):
            raise source.error(f"pair {number}, {videos[0]} and {videos[1]}, stands there before")
        _label_copies(labels, *videos)
    core = sorted(labels)
    database = core
    if distractors:
        index = content["index"]
        if not isinstance(index, list) or not all(isinstance(id, str) and id for id in index):
            raise source.error("'index' is no list of ids")
        # The published list names four distractors twice.
        database = core + sorted(set(index) - labels.keys())
    return Benchmark("VCDB", tuple(core), tuple(database), labels, _VCDB_TASKS)


def _read_vcdb_segments(folder: Path) -> Benchmark:
    """The core with its segments, in both directions, and the query class of each video as its group.

    One text file for each query class, with lines `videoA,videoB,startA,endA,startB,endB`: from start to end the two
    show the same, times as hours:minutes:seconds. Ids are the names without what follows their last dot. A copy within
    one video is a segment, and no pair of videos.
    """
    files = sorted(folder.glob("*.txt"))
    if not files:
        raise DataError(f"'{folder}' holds no .txt file: VCDB's annotation has one for each query class.")
    labels: dict[str, dict[str, str]] = {}
    classes: dict[str, str] = {}
    segments: dict[str, list[TrueSegment]] = {}
    for file in files:
        for number, line in read_lines(file):
            first, second, *times = _parse_vcdb_line(file, number, line)
            for video in (first, second):
                if classes.setdefault(video, file.stem) != file.stem:
                    raise DataError(
                        f"'{file}' line {number}: '{video}' is of class '{classes[video]}' too. Each video is of one."
                    )
                segments.setdefault(video, [])
                labels.setdefault(video, {})
            a, b, c, d = times
            segments[first].append(TrueSegment(a, b, second, c, d))
            if first != second:
                segments[second].append(TrueSegment(c, d, first, a, b))
                _label_copies(labels, first, second)
    if not labels:
        raise DataError(f"the files of '{folder}' hold no line.")
    core = tuple(sorted(labels))
    parts = {video: tuple(own) for video, own in segments.items()}
    return Benchmark("VCDB", core, core, labels, _VCDB_TASKS, groups=classes, segments=parts)


def _label_copies(labels: dict[str, dict[str, str]], first: str, second: str) -> None:
    labels.setdefault(first, {})[second] = "copy"
    labels.setdefault(second, {})[first] = "copy"


def _parse_vcdb_line(file: Path, number: int, line: str) -> tuple[str, str, float, float, float, float]:
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) != 6:
        raise DataError(
            f"'{file}' line {number}: videoA,videoB,startA,endA,startB,endB was expected, got {line[:120]!r}."
        )
    first, second = (re.sub(r"\.[^.]*$", "", name) for name in cells[:2])
    times = [_VCDB_TIME.fullmatch(text) for text in cells[2:]]
    if not first or not second or None in times:
        raise DataError(
            f"'{file}' line {number}: two names and four times hours:minutes:seconds were expected, got {line[:120]!r}."
        )
    parts = (time.groups(default="0") for time in times if time is not None)
    a, b, c, d = (3600.0 * int(hours) + 60.0 * int(minutes) + float(seconds) for hours, minutes, seconds in parts)
    if a >= b or c >= d:
        raise DataError(f"'{file}' line {number}: a segment ends before it starts: {line[:120]!r}.")
    return first, second, a, b, c, d
