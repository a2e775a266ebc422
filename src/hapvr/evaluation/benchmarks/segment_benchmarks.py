"""The published benchmarks of segments (VSC2022, VCSL), from the files that their authors publish."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hapvr.config import suggest
from hapvr.errors import ConfigError, DataError
from hapvr.evaluation.benchmarks.annotation_file import AnnotationFile, read_json
from hapvr.evaluation.benchmarks.benchmark import Benchmark, Task, TrueSegment
from hapvr.evaluation.benchmarks.pair_files import read_boxes, read_matches, read_pairs, read_video_list
from hapvr.evaluation.pair_records import PairOfVideos
from hapvr.storage import StrPath

_SPLITS = ("train", "val", "test", "all")
_COPY, _OTHER = "copy", "no copy"


def read_vsc2022(
    path: StrPath, *, query_list: StrPath | None = None, database_list: StrPath | None = None
) -> Benchmark:
    """VSC2022, the Meta Video Similarity Challenge: edited clips of references inside queries.

    The ground truth is a CSV file query_id,ref_id,query_start,query_end,ref_start,ref_end in any order. It names only
    queries that hold a copy and references that are copied. The others, which make the task hard, are in the metadata
    that the challenge publishes; `query_list` and `database_list` take these, or lists of ids. Without them a model is
    measured on the named ones alone, and a note says so. Files of predictions need no lists.
    """
    source = AnnotationFile(path, "VSC2022's ground truth")
    true = read_matches(path, ground_truth=True, complete_numbers=True)
    if not true:
        raise source.error("it names no segment")
    queries = list(dict.fromkeys(match.query for match in true))
    database = list(dict.fromkeys(match.target for match in true))
    notes = ["The challenge divides by all true pairs, as --missing miss does."]
    for name, ids, given, prefix in (
        ("queries", queries, query_list, "Q"),
        ("references", database, database_list, "R"),
    ):
        if given is None:
            notes.append(f"No list of {name} was given: only the {len(ids):,} that the ground truth names are there, "
                         "which makes figures of a model higher than the challenge's.")  # fmt: skip
            continue
        listed = read_video_list(given, prefix=prefix)
        if lost := sorted(set(ids) - set(listed)):
            raise AnnotationFile(given, f"the list of VSC2022's {name}").error(
                f"{len(lost)} {name} of the ground truth are not in it, such as '{lost[0]}'"
            )
        ids[:] = listed
    labels: dict[str, dict[str, str]] = {}
    segments: dict[str, list[TrueSegment]] = {}
    for match in true:
        labels.setdefault(match.query, {})[match.target] = _COPY
        segments.setdefault(match.query, []).append(TrueSegment(*match.box[0], match.target, *match.box[1]))
    return Benchmark(
        "VSC2022",
        tuple(queries),
        tuple(database),
        labels,
        (Task("uAP", (_COPY,), "uAP", ties="group"),),
        segments={query: tuple(own) for query, own in segments.items()},
        segment_protocol="VSC2022",
        notes=tuple(notes),
    )


def read_vcsl(path: StrPath, *, split: str | None = None) -> Benchmark:
    """VCSL, segments of copies: which seconds of two videos show the same.

    label_file_uuid_total.json: {"QUERY-REFERENCE": [[query start, reference start, query end, reference end], ...]} in
    seconds. Beside it lie pair_file_SPLIT.csv (query_id,reference_id), the pairs that are measured, half of them
    without a copy, and split_meta_pairs.json, {split: {set: ["QUERY-REFERENCE", ...]}}, the pairs of one film. Without
    the list of pairs, all labelled ones are measured, and a note says that none is without a copy.
    """
    path = Path(path)
    if split is not None and split not in _SPLITS:
        raise ConfigError(f"VCSL has no split '{split}'; {suggest(split, list(_SPLITS))}")
    source = AnnotationFile(path, "VCSL's label_file_uuid_total.json")
    boxes = read_boxes(path)
    pair_file = path.parent / f"pair_file_{split or 'test'}.csv"
    notes = []
    if split == "all" or (split is None and not pair_file.is_file()):
        pairs = [_split_key(source, key) for key in boxes]
        notes.append(
            f"All {len(pairs):,} labelled pairs are measured. None is without a copy: there are no false alarms."
        )
    elif not pair_file.is_file():
        raise DataError(f"'{path.parent}' has no {pair_file.name}, the pairs of VCSL's split '{split}'. Put it there.")
    else:
        pairs = read_pairs(pair_file)
    labels: dict[str, dict[str, str]] = {}
    segments: dict[str, list[TrueSegment]] = {}
    empty = 0
    for query, target in pairs:
        own = boxes.get(f"{query}-{target}", [])
        parts = [
            TrueSegment(*one[0], target, *one[1]) for one in own if one[0][0] < one[0][1] and one[1][0] < one[1][1]
        ]
        empty += len(own) - len(parts)
        labels.setdefault(query, {})[target] = _COPY if parts else _OTHER
        segments.setdefault(query, []).extend(parts)
    if not any(segments.values()):
        raise source.error(f"it has a segment for none of the {len(pairs)} pairs")
    if empty:
        notes.append(f"{empty} true segments without a duration are left out.")
    return Benchmark(
        "VCSL",
        tuple(labels),
        tuple(dict.fromkeys(target for _, target in pairs)),
        labels,
        (Task("pair uAP", (_COPY,), "uAP", labelled_only=True, query_itself=True),),
        segments={query: tuple(own) for query, own in segments.items()},
        segment_protocol="VCSL",
        pair_sets=_read_sets(path.parent / "split_meta_pairs.json", split or "test", pairs),
        notes=tuple(notes),
    )


def _split_key(source: AnnotationFile, key: str) -> PairOfVideos:
    parts = key.split("-")
    if len(parts) != 2 or not all(parts):
        raise source.error(f"'{key}' is no QUERY-REFERENCE. Where ids hold a '-', a list of pairs is needed")
    return parts[0], parts[1]


def _read_sets(path: Path, split: str, pairs: list[PairOfVideos]) -> dict[str, tuple[PairOfVideos, ...]] | None:
    if not path.is_file():
        return None
    source = AnnotationFile(path, "VCSL's split_meta_pairs.json")
    content = source.check_table(read_json(path), "the file")
    tables: list[Any] = [content[split]] if split in content else list(content.values())
    known = {f"{query}-{target}": (query, target) for query, target in pairs}
    found: dict[str, tuple[PairOfVideos, ...]] = {}
    for table in tables:
        for name, keys in source.check_table(table, f"split '{split}'").items():
            own = tuple(known[key] for key in source.check_ids(keys, f"set '{name}'") if key in known)
            if own:
                found[str(name)] = own
    return found or None
