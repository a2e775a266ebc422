"""Files of predicted pairs and segments in the layouts of VSC2022 and VCSL.

candidates.csv  query_id,ref_id,score
matches.csv     query_id,ref_id,query_start,query_end,ref_start,ref_end,score; a ground truth has no score
boxes.json      VCSL: {"QUERY-REFERENCE": [[query start, reference start, query end, reference end], ...]}

Times are seconds. Columns may be in any order; further ones are ignored, as the challenge's script does. VSC2022's ids
are Q and R with six digits; where `complete_numbers` is set, a plain number stands for such an id, as there.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hapvr.errors import DataError
from hapvr.evaluation.benchmarks.annotation_file import read_json, read_text
from hapvr.evaluation.pair_records import Box, Candidate, PairOfVideos, SegmentMatch
from hapvr.storage import StrPath, write_json, write_text

CANDIDATE_COLUMNS = ("query_id", "ref_id", "score")
TIME_COLUMNS = ("query_start", "query_end", "ref_start", "ref_end")
MATCH_COLUMNS = ("query_id", "ref_id", *TIME_COLUMNS, "score")


def read_candidates(path: StrPath, *, complete_numbers: bool = False) -> list[Candidate]:
    """The pairs of a candidates.csv, in its order. `DataError` names the line that cannot be used."""
    found: list[Candidate] = []
    lines: dict[PairOfVideos, int] = {}
    for number, row in _read_rows(path, CANDIDATE_COLUMNS):
        candidate = Candidate(*_parse_ids(row, complete_numbers), _parse_number(path, number, row, "score"))
        if candidate.pair in lines:
            raise DataError(
                f"'{path}' line {number}: query '{candidate.query}' and reference '{candidate.target}' stand on line "
                f"{lines[candidate.pair]} already. Give each pair once, with its best score."
            )
        lines[candidate.pair] = number
        found.append(candidate)
    return found


def write_candidates(candidates: Iterable[Candidate], path: StrPath) -> None:
    """Write a candidates.csv: the best pair first, equal scores by id."""
    ordered = sorted(candidates, key=lambda one: (-one.score, one.query, one.target))
    _write_rows(path, CANDIDATE_COLUMNS, ([*one.pair, repr(float(one.score))] for one in ordered))


def read_matches(path: StrPath, *, ground_truth: bool = False, complete_numbers: bool = False) -> list[SegmentMatch]:
    """The segments of a matches.csv, in its order; those of a ground truth need no score, and get 1."""
    columns = MATCH_COLUMNS[:-1] if ground_truth else MATCH_COLUMNS
    found = []
    for number, row in _read_rows(path, columns):
        start, end, other_start, other_end = (_parse_number(path, number, row, name) for name in TIME_COLUMNS)
        for first, last in ((start, end), (other_start, other_end)):
            if last < first or (ground_truth and last == first):
                raise DataError(f"'{path}' line {number}: a segment runs from {first} s to {last} s. Give an end after "
                                "its start.")  # fmt: skip
        score = 1.0 if ground_truth else _parse_number(path, number, row, "score")
        found.append(SegmentMatch(*_parse_ids(row, complete_numbers), ((start, end), (other_start, other_end)), score))
    return found


def write_matches(matches: Iterable[SegmentMatch], path: StrPath) -> None:
    """Write a matches.csv: the best segment first, equal scores by id and time."""
    ordered = sorted(matches, key=lambda one: (-one.score, one.query, one.target, one.box))
    rows = ([*one.pair, *(repr(float(time)) for side in one.box for time in side), repr(float(one.score))]
            for one in ordered)  # fmt: skip
    _write_rows(path, MATCH_COLUMNS, rows)


def read_boxes(path: StrPath) -> dict[str, list[Box]]:
    """VCSL's layout, by "QUERY-REFERENCE"; a pair without a segment has an empty list.

    A fifth number, the confidence that some systems write, is ignored. `DataError` names the pair that cannot be used.
    """
    content = read_json(path)
    if not isinstance(content, dict):
        raise DataError(f"'{path}' holds a {type(content).__name__}: a table of pairs QUERY-REFERENCE was expected.")
    return {key: [_parse_box(path, key, box) for box in _require_list(path, key, boxes)]
            for key, boxes in content.items()}  # fmt: skip


def write_boxes(boxes: Mapping[PairOfVideos, Sequence[Box]], path: StrPath) -> None:
    """Write VCSL's layout, also for the pairs without a segment."""
    content = {f"{query}-{target}": [[one[0][0], one[1][0], one[0][1], one[1][1]] for one in found]
               for (query, target), found in boxes.items()}  # fmt: skip
    write_json(path, content, indent=None)


def read_pairs(path: StrPath) -> list[PairOfVideos]:
    """VCSL's list of pairs: a CSV file with the columns query_id and reference_id; each pair once."""
    found: dict[PairOfVideos, int] = {}
    for number, row in _read_rows(path, ("query_id", "reference_id")):
        pair = row["query_id"], row["reference_id"]
        if pair in found:
            raise DataError(f"'{path}' line {number}: the pair {pair[0]}, {pair[1]} stands on line {found[pair]} too.")
        found[pair] = number
    if not found:
        raise DataError(f"'{path}' holds no pair.")
    return list(found)


def read_video_list(path: StrPath, *, prefix: str) -> tuple[str, ...]:
    """Ids of videos: VSC2022's metadata, a CSV file with a column video_id, or one id a line."""
    lines = [line.strip() for line in read_text(path).splitlines() if line.strip()]
    if lines and "video_id" in [cell.strip() for cell in lines[0].split(",")]:
        ids = [complete_id(row["video_id"], prefix) for _, row in _read_rows(path, ("video_id",))]
    else:
        ids = [complete_id(line, prefix) for line in lines]
    known: dict[str, int] = {}
    for number, id in enumerate(ids, start=1):
        if "," in id or " " in id:
            raise DataError(f"'{path}' entry {number}: one id a line, or a column video_id, was expected, got {id!r}.")
        if id in known:
            raise DataError(f"'{path}' entry {number}: '{id}' is entry {known[id]} already. Give each video once.")
        known[id] = number
    if not known:
        raise DataError(f"'{path}' holds no id.")
    return tuple(known)


def read_durations(path: StrPath, *, prefix: str) -> dict[str, float] | None:
    """Seconds of each video of a metadata file with the columns video_id and duration_sec; None if it has no such."""
    header = next(iter(read_text(path).splitlines()), "")
    if not {"video_id", "duration_sec"} <= {cell.strip() for cell in header.split(",")}:
        return None
    rows = _read_rows(path, ("video_id", "duration_sec"))
    return {complete_id(row["video_id"], prefix): _parse_number(path, n, row, "duration_sec") for n, row in rows}


def _read_rows(path: StrPath, columns: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows of a CSV file with their line numbers; `columns` must be there, and filled."""
    lines = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    header: list[str] | None = None
    try:
        for cells in lines:
            cells = [cell.strip() for cell in cells]
            if not any(cells):
                continue
            if header is None:
                header = cells
                if lacking := [name for name in columns if name not in header]:
                    raise DataError(
                        f"'{path}' line {lines.line_num}: the header must name {','.join(columns)}; "
                        f"{' and '.join(lacking)} is not among {','.join(header)[:200]!r}."
                    )
                continue
            if len(cells) != len(header):
                raise DataError(
                    f"'{path}' line {lines.line_num}: {len(header)} cells were expected, as in the header, got "
                    f"{len(cells)}."
                )
            row = dict(zip(header, cells, strict=True))
            if empty := [name for name in columns if not row[name]]:
                raise DataError(f"'{path}' line {lines.line_num}: {empty[0]} is empty. Fill it, or leave the line out.")
            yield lines.line_num, row
    except csv.Error as error:
        raise DataError(f"'{path}' line {lines.line_num} is no CSV: {error}.") from error
    if header is None:
        raise DataError(f"'{path}' is empty: a header {','.join(columns)} and a line for each entry were expected.")


def _write_rows(path: StrPath, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    write_text(path, text.getvalue())


def _parse_ids(row: Mapping[str, str], complete_numbers: bool) -> PairOfVideos:
    if not complete_numbers:
        return row["query_id"], row["ref_id"]
    return complete_id(row["query_id"], "Q"), complete_id(row["ref_id"], "R")


def complete_id(id: str, prefix: str) -> str:
    """The id of a video of VSC2022 that is given as a plain number; others are taken as they are.

    >>> complete_id("12", "Q"), complete_id("Q000012", "Q")
    ('Q000012', 'Q000012')
    """
    return f"{prefix}{int(id):06d}" if id.isascii() and id.isdigit() and len(id) <= 9 else id


def _parse_number(path: StrPath, number: int, row: Mapping[str, str], name: str) -> float:
    try:
        value = float(row[name])
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise DataError(f"'{path}' line {number}: {name} must be a finite number, got {row[name][:40]!r}.")
    return value


def _require_list(path: StrPath, key: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise DataError(f"'{path}': the pair '{key}' has {str(value)[:60]!r}, a list of segments was expected.")
    return value


def _parse_box(path: StrPath, key: str, value: Any) -> Box:
    fits = isinstance(value, list) and len(value) in (4, 5)
    if not fits or not all(isinstance(one, (int, float)) and math.isfinite(one) for one in value):
        raise DataError(
            f"'{path}': a segment of '{key}' is {str(value)[:80]}; four numbers were expected: query start, reference "
            "start, query end, reference end."
        )
    a, c, b, d = (float(one) for one in value[:4])
    if b < a or d < c:
        raise DataError(f"'{path}': a segment of '{key}' ends before it starts: {str(value)[:80]}.")
    return (a, b), (c, d)
