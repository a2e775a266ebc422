"""VCDB: partial copies. Its core of 528 videos is both queries and database; 100,000 distractors may join.

vcdb.pickle (video level): {"video_pairs": [{"videos": [a, b], "overlap": [fraction of a, of b]}], "index": [all ids],
"negs": [distractors]}. Every video of a pair is of the core; every other one of "index" is a distractor.

VCDB's own annotation (video and segment level): a folder of text files, one for each query class, with lines
`videoA,videoB,startA,endA,startB,endB`: from start to end the two show the same, times as hours:minutes:seconds. Ids
are the names without what follows their last dot.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from hapvr.errors import DataError
from hapvr.evaluation.benchmarks.annotation_file import AnnotationFile, read_lines
from hapvr.evaluation.benchmarks.benchmark import Benchmark, Task, TrueSegment
from hapvr.evaluation.safe_pickle import load_plain

_COPY = "copy"
_TASKS = (Task("mAP", (_COPY,), "mAP"), Task("uAP", (_COPY,), "uAP"))
_TIME = re.compile(r"(?:(\d{1,3}):)?(\d{1,2}):(\d{1,2}(?:\.\d+)?)")


def read_vcdb(path: str | os.PathLike[str], *, distractors: bool = False) -> Benchmark:
    """mAP and uAP of finding the videos that share a segment with each video of the core.

    From vcdb.pickle, or from the folder of text files, which has segments and classes but no list of distractors.
    """
    path = Path(path)
    if path.is_dir():
        if distractors:
            raise DataError(f"'{path}' lists no distractors: give vcdb.pickle instead.")
        return read_vcdb_segments(path)
    source = AnnotationFile(path, "VCDB's vcdb.pickle, or a folder of its annotation text files")
    content = source.table(load_plain(path), "the file", ("video_pairs", "index", "negs"))
    labels: dict[str, dict[str, str]] = {}
    if not isinstance(content["video_pairs"], list) or not content["video_pairs"]:
        raise source.error("'video_pairs' is no list of pairs")
    for number, entry in enumerate(content["video_pairs"]):
        videos = source.ids(source.table(entry, f"pair {number}", ("videos",))["videos"], f"pair {number}")
        if len(videos) != 2:
            raise source.error(f"pair {number} has {len(videos)} videos")
        if videos[1] in labels.get(videos[0], {}):
            raise source.error(f"pair {number}, {videos[0]} and {videos[1]}, stands there before")
        _join(labels, *videos)
    core = sorted(labels)
    database = core
    if distractors:
        index = content["index"]
        if not isinstance(index, list) or not all(isinstance(id, str) and id for id in index):
            raise source.error("'index' is no list of ids")
        # The published list names four distractors twice.
        database = core + sorted(set(index) - labels.keys())
    return Benchmark("VCDB", tuple(core), tuple(database), labels, _TASKS)


def read_vcdb_segments(folder: str | os.PathLike[str]) -> Benchmark:
    """The core with its segments, both ways round, and the query class of each video as its group.

    A copy within one video is a segment, and no pair of videos.
    """
    folder = Path(folder)
    files = sorted(folder.glob("*.txt"))
    if not files:
        raise DataError(f"'{folder}' holds no .txt file: VCDB's annotation has one for each query class.")
    labels: dict[str, dict[str, str]] = {}
    classes: dict[str, str] = {}
    segments: dict[str, list[TrueSegment]] = {}
    for file in files:
        for number, line in read_lines(file):
            first, second, *times = _line(file, number, line)
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
                _join(labels, first, second)
    if not labels:
        raise DataError(f"the files of '{folder}' hold no line.")
    core = tuple(sorted(labels))
    return Benchmark(
        "VCDB",
        core,
        core,
        labels,
        _TASKS,
        groups=classes,
        segments={video: tuple(parts) for video, parts in segments.items()},
    )


def _join(labels: dict[str, dict[str, str]], first: str, second: str) -> None:
    labels.setdefault(first, {})[second] = _COPY
    labels.setdefault(second, {})[first] = _COPY


def _line(file: Path, number: int, line: str) -> tuple[str, str, float, float, float, float]:
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) != 6:
        raise DataError(
            f"'{file}' line {number}: videoA,videoB,startA,endA,startB,endB was expected, got {line[:120]!r}."
        )
    first, second = (re.sub(r"\.[^.]*$", "", name) for name in cells[:2])
    times = [_seconds(text) for text in cells[2:]]
    if not first or not second or None in times:
        raise DataError(
            f"'{file}' line {number}: two names and four times hours:minutes:seconds were expected, got {line[:120]!r}."
        )
    a, b, c, d = (second for second in times if second is not None)
    if a >= b or c >= d:
        raise DataError(f"'{file}' line {number}: a segment ends before it starts: {line[:120]!r}.")
    return first, second, a, b, c, d


def _seconds(text: str) -> float | None:
    """Seconds of "hh:mm:ss" or "mm:ss"; None if it is neither."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    hours, minutes, seconds = match.groups()
    return 3600.0 * int(hours or 0) + 60.0 * int(minutes) + float(seconds)
