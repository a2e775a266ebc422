"""Films and edited copies of them as real files, and which is a copy of which: `hapvr demo`. No network, no GPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import torch

from hapvr.errors import StorageError
from hapvr.evaluation import mean_average_precision, micro_average_precision
from hapvr.evaluation.segment_metrics import union_length
from hapvr.matching import (
    Match,
    VideoDescription,
    choose_best,
    describe_video,
    describe_views,
    match_videos,
    rank_match,
)
from hapvr.model import Model, load
from hapvr.reports.match_page import Entry, save_report
from hapvr.storage import StrPath
from hapvr.synthetic.clip_files import write_clip
from hapvr.synthetic.edits import find_edit
from hapvr.synthetic.footage import draw_footage

Item = TypeVar("Item")
Progress = Callable[[str, int, int], None]

FILMS, SECONDS, FPS = 12, 12.0, 10.0
_KEY_S = 1.0  # between key frames: pictures of a few instants are read without decoding all before them
# What is made of which film; None: a video that is made of none of them and should not be found.
COPIES: tuple[tuple[int | None, str], ...] = (
    (1, "flip+crop"), (2, "trim+speed"), (3, "insert"), (4, "picture-in-picture"), (5, "camcorder"),
    (6, "letterbox+caption"), (7, "speed+emoji"), (8, "reverse"), (9, "greyscale+recompress"),
    (10, "trim+rotate+logo"), (11, "insert+flip+colour"), (12, "frame-rate+blur+noise"), (2, "perspective+caption"),
    (5, "trim+letterbox"), (None, "crop+caption"), (None, "trim+colour"),
)  # fmt: skip
_AGREED = 0.5  # time in both by time in either from which on a place counts as found
_UNRELATED = 900  # the first seed of the videos that are copies of nothing
_LOOKED_AT = 3  # films for each copy whose files may be looked at a second time


@dataclass(frozen=True)
class _Copy:
    """An edited copy on disk and what it shows: (copy from, to, film from, to) in seconds."""

    path: Path
    film: str | None
    edit: str
    summary: str
    truth: tuple[tuple[float, float, float, float], ...]


def run_demo(folder: StrPath, *, progress: Progress = lambda *_: None) -> dict[str, Any]:
    """Draw films, edit copies of them, find each copy's original, and write report.html, all below `folder`.

    Returns what `hapvr demo --json` prints: a row for each copy, mAP, uAP, the path of the report. `progress` is called
    with the step, how much of it is done, and how much there is.
    """
    start, folder = time.perf_counter(), Path(folder)
    films, copies = _make(folder, progress)
    model = load(int8=True)
    targets = [describe_video(path, model) for path in _track(films, "reading films", progress)]
    queries = [describe_views(copy.path, model) for copy in _track(copies, "reading copies", progress)]
    rows, entries, scores = [], [], np.empty((len(queries), len(targets)))
    for number, copy in enumerate(_track(copies, "comparing", progress)):
        best, scores[number] = _find_best(queries[number], targets, model)
        rows.append(_row(copy, best))
        origin = f"{copy.film or 'none of the films'}: {copy.summary}"
        truth = copy.truth if copy.film == rows[-1]["best"] else ()
        entries.append(Entry(copy.path.stem, origin, best, *judge(rows[-1]), truth))
    wall_s = time.perf_counter() - start
    report = save_report(
        entries,
        folder / "report.html",
        title="Who is it a copy of?",
        summary=f"{summarise(rows)} {len(films)} films were drawn, {len(rows)} edited videos were made and each was "
        f"compared with every film by the model '{model.name}': {wall_s:.0f} s in all.",
        targets=targets,
        scores=scores,
    )
    right = sum(bool(row["right"]) for row in rows)
    record: dict[str, Any] = {
        "model": model.name,
        "films": len(films),
        "copies": rows,
        "right": right,
        "wall_s": wall_s,
    }
    relevant = torch.tensor([[copy.film == film.stem for film in films] for copy in copies])
    asked = relevant.any(1)  # a query without an original has no average precision, but its scores count in uAP
    table = torch.from_numpy(scores)
    record |= {"mAP": mean_average_precision(table[asked], relevant[asked])}
    record |= {"uAP": micro_average_precision(table, relevant)}
    return record | {"folder": str(folder), "report": str(report)}


def _find_best(
    views: Sequence[VideoDescription], targets: Sequence[VideoDescription], model: Model
) -> tuple[Match, list[float]]:
    """The film that a video, or a window of it, matches best, by verdict, probability and score; the scores of all.

    The files of the nearest films are looked at one after the other, until one is a copy.
    """

    def match(target: VideoDescription, *, second_look: bool) -> Match:
        return choose_best(match_videos(view, target, model=model, second_look=second_look) for view in views)

    matches = [match(target, second_look=False) for target in targets]
    again: list[Match] = []
    for one in sorted(matches, key=rank_match, reverse=True)[:_LOOKED_AT]:
        again.append(match(one.target, second_look=True))
        if again[-1].verdict.match:
            break
    return max(again, key=rank_match), [one.score for one in matches]


def judge(row: dict[str, Any]) -> tuple[str, Literal["good", "fair", "bad"]]:
    """The verdict on a row, in a word or two, and its colour."""
    if row["film"] is None:
        return ("false match", "bad") if row["match"] else ("right, none", "good")
    if row["best"] != row["film"]:
        return "wrong", "bad"
    if not row["match"]:
        return "no match", "bad"
    return ("right", "good") if _is_placed(row) else ("film only", "fair")


def _is_placed(row: dict[str, Any]) -> bool:
    """Whether the stretches found are the true ones, for the greater part."""
    return row["agreement"] is not None and row["agreement"] >= _AGREED


def summarise(rows: list[dict[str, Any]]) -> str:
    """How many rows are right, in a sentence."""
    copies, others = ([row for row in rows if (row["film"] is None) is unrelated] for unrelated in (False, True))
    right = [row for row in copies if row["right"]]
    placed, false = sum(_is_placed(row) for row in right), sum(bool(row["match"]) for row in others)
    return (
        f"{len(right)} of {len(copies)} copies led to their film, {placed} also to the place; "
        f"{false} of {len(others)} unrelated videos matched a film by mistake."
    )


def _track(items: Sequence[Item], step: str, progress: Progress) -> Iterator[Item]:
    for number, item in enumerate(items):
        progress(step, number, len(items))
        yield item
    progress(step, len(items), len(items))


def _make(folder: Path, progress: Progress) -> tuple[list[Path], list[_Copy]]:
    """Draw the films and make the copies, as MP4 files below `folder`."""
    try:
        for name in ("films", "copies"):
            (folder / name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"'{folder}' cannot be written: {error.strerror or error}.") from error
    clips = {}
    for number in _track(range(1, FILMS + 1), "drawing films", progress):
        clips[number] = draw_footage(number, seconds=SECONDS, fps=FPS)
        write_clip(clips[number], folder / "films" / f"film-{number:02}.mp4", key_s=_KEY_S)
    copies = []
    for number, (film, name) in enumerate(_track(COPIES, "editing copies", progress), start=1):
        edit = find_edit(name)
        clip = draw_footage(_UNRELATED + number, seconds=SECONDS, fps=FPS) if film is None else clips[film]
        edited = edit.apply(clip, np.random.default_rng(number))
        path = folder / "copies" / f"{number:02}-{name.replace('+', '-')}.mp4"
        write_clip(edited.clip, path, crf=26, key_s=_KEY_S)
        truth = tuple((part.q_start, part.q_end, part.t_start, part.t_end) for part in edited.segments)
        original = None if film is None else f"film-{film:02}"
        copies.append(_Copy(path, original, name, edit.summary, truth if original else ()))
    return [folder / "films" / f"film-{number:02}.mp4" for number in clips], copies


def _row(copy: _Copy, best: Match) -> dict[str, Any]:
    """Right is the original as the best match, or no match where there is no original."""
    name = Path(best.target.path).stem
    found = best.to_json()["segments"]
    right = best.verdict.match and name == copy.film if copy.film else not best.verdict.match
    both = [
        _agreement([one[axis] for one in found], [tuple(sorted(one[2 * place : 2 * place + 2])) for one in copy.truth])
        for place, axis in enumerate(("query", "target"))
    ]
    return {
        "copy": copy.path.stem,
        "edit": copy.edit,
        "film": copy.film,
        "best": name,
        "score": best.score,
        "match": best.verdict.match,
        "probability": best.probability,
        "segments": found,
        "truth": [list(one) for one in copy.truth],
        "agreement": min(both) if right and copy.film else None,
        "right": right,
    }


def _agreement(found: Iterable[Sequence[float]], true: Iterable[Sequence[float]]) -> float:
    """How well two sets of stretches agree: the time in both divided by the time in either.

    >>> _agreement([(0, 2), (1, 3)], [(2, 5)])
    0.2
    """
    first, second = ([(start, end) for start, end in stretches] for stretches in (found, true))
    either = union_length([*first, *second])
    return (union_length(first) + union_length(second) - either) / either if either else 0.0
