"""What one process of `make_benchmark` does: the queries of one video, and its database files where they are made.

Of each finished piece a small note is kept below `.made`: what it was made from and how large its files are. A piece
with a note that still holds is not made again.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.random import Generator

from hapvr.errors import HapvrError
from hapvr.storage import replace_file, write_json
from hapvr.synthetic.benchmark_plan import COMPILATION, SAME_EVENT, Job, Query
from hapvr.synthetic.cards import Card, add_card
from hapvr.synthetic.clip import Clip
from hapvr.synthetic.clip_files import read_clip, write_clip
from hapvr.synthetic.compilation import compile_clips
from hapvr.synthetic.edits import find_edit
from hapvr.synthetic.lookalikes import cut_apart, share_footage
from hapvr.synthetic.time_map import TimeMap
from hapvr.workers.processes import spawn_context

# Longer, faster and larger videos are cut, thinned and scaled to this before they are edited.
_MAX_SECONDS, _MAX_FPS, _MAX_SHORT_SIDE = 60.0, 15.0, 360
Task = TypeVar("Task")
Result = TypeVar("Result")
_RECIPE = 2  # counts changes that make finished pieces out of date
_interrupted = threading.Event()  # in a process of the pool: by Ctrl-C


@dataclass(frozen=True)
class MadeQuery:
    """A finished query."""

    id: str
    kind: str
    source: Path
    others: tuple[Path, ...]  # of a compilation
    segments: list[list[Any]]  # [q_start, q_end, target id, t_start, t_end]
    rest: str  # of same-event: the database file with the other part
    card: list[Any] | None  # [card id, start, end]
    made: bool  # by this call

    @property
    def file(self) -> str:
        """Relative to the folder."""
        return _name_file(self.id)


@dataclass(frozen=True)
class MadeTarget:
    """What the database holds of a video that is not there as it was given."""

    files: dict[str, str]  # by id: the target, then the look-alike
    part: str  # of the video in the target: "whole", "first" or "last"
    shift_s: float  # when the part begins in the target
    card: list[Any] | None  # [card id, start, end] in the target


@dataclass
class JobResult:
    """What became of a job; with a reason where not all could be made."""

    queries: list[MadeQuery] = field(default_factory=list)
    target: MadeTarget | None = None
    reason: str = ""


def run_jobs(jobs: list[Job], out: Path, workers: int) -> Iterator[tuple[Job, JobResult]]:
    """Make all jobs, in this process or in several; results come as they are finished."""
    for job, result, reason in run_each(_run_job, jobs, out, workers):
        yield job, JobResult(reason=reason) if result is None else result


def run_each(
    work: Callable[[Task, Path], Result], tasks: Sequence[Task], out: Path, workers: int
) -> Iterator[tuple[Task, Result | None, str]]:
    """`work(task, out)` of each task as it is finished, in this process or in several: (task, result, "").

    Where a process died: (task, None, reason). What `work` raises ends it all.
    """
    if workers == 1 or len(tasks) < 2:
        for task in tasks:
            yield task, work(task, out), ""
        return
    count = min(workers, len(tasks))
    with ProcessPoolExecutor(
        count, mp_context=spawn_context(), initializer=signal.signal, initargs=(signal.SIGINT, _interrupt)
    ) as pool:
        running = {pool.submit(_unless_interrupted, work, task, out): task for task in tasks}
        try:
            for future in as_completed(running):
                try:
                    yield running[future], future.result(), ""
                except BrokenProcessPool as error:
                    yield running[future], None, f"a process ended before it was done: {error}"
        finally:  # an interrupted call does not wait for tasks that have not begun
            pool.shutdown(wait=False, cancel_futures=True)


def _unless_interrupted(work: Callable[[Task, Path], Result], task: Task, out: Path) -> Result:
    if _interrupted.is_set():  # a process of the pool would continue with the next task
        raise KeyboardInterrupt
    return work(task, out)


def _interrupt(*_: object) -> None:
    _interrupted.set()
    raise KeyboardInterrupt


def _run_job(job: Job, out: Path) -> JobResult:
    """Make what is not there yet."""
    result = JobResult()
    clips = _Clips(job)
    try:
        if job.lookalike_id or job.card:
            result.target = _find_target(job, out) or _make_target(job, clips.source, out)
        for query in job.queries:
            made = _find_query(job, query, out) or _make_query(job, query, clips, result.target, out)
            result.queries.append(made)
    except (HapvrError, OSError) as error:
        result.reason = str(error)
    return result


class _Clips:
    """The clips of a job, read when they are needed first."""

    def __init__(self, job: Job) -> None:
        self._job = job

    @cached_property
    def source(self) -> Clip:
        return read_source(self._job.source)

    @cached_property
    def host(self) -> Clip | None:
        return None if self._job.host is None else read_source(self._job.host)


def read_source(path: Path) -> Clip:
    """A video as edits are made on it: of limited length, rate and size."""
    return read_clip(path, max_seconds=_MAX_SECONDS, max_fps=_MAX_FPS, max_short_side=_MAX_SHORT_SIDE)


# --- the database ------------------------------------------------------------------------------------------------


def _make_target(job: Job, clip: Clip, out: Path) -> MadeTarget:
    """The file of a target that is cut or has a card. A video whose two ends share footage is not cut."""
    files, part, target = {job.target_id: f"database/{job.target_id}.mp4"}, "whole", clip
    if job.lookalike_id and not share_footage(*(ends := cut_apart(clip))):
        last = bool(np.random.default_rng([job.seed, zlib.crc32(job.lookalike_id.encode())]).random() < 0.5)
        part, target, other = ("last", ends[1], ends[0]) if last else ("first", *ends)
        files[job.lookalike_id] = f"database/{job.lookalike_id}.mp4"
        write_clip(other, out / files[job.lookalike_id])
    shown = None
    if part == "whole" and job.card is None:
        files[job.target_id] = f"database/{job.target_id}{job.source.suffix}"
        link_file(job.source, out / files[job.target_id])
    else:
        shown = _write_with_card(target, job.card, out / files[job.target_id])
    shift_s = 0.0 if job.card is None else job.card.find_shift_s(clip.fps)
    made = MadeTarget(files, part, shift_s, shown)
    write_note(_name_target_note(job), _collect_target_recipe(job), files.values(), asdict(made), out)
    return made


def _find_target(job: Job, out: Path) -> MadeTarget | None:
    note = read_note(_name_target_note(job), _collect_target_recipe(job), out)
    try:
        return None if note is None else MadeTarget(**note)
    except TypeError:
        return None


def _name_target_note(job: Job) -> str:
    return f"{job.target_id}.database"  # the names of queries end with their kind


def _collect_target_recipe(job: Job) -> dict[str, Any]:
    card = None if job.card is None else asdict(job.card)
    return {"version": _RECIPE, "seed": job.seed, "id": job.target_id, "lookalike": job.lookalike_id, "card": card,
            "source": describe_file(job.source)}  # fmt: skip


def link_file(source: Path, target: Path) -> None:
    """Make a hard link, or a copy where links are not possible. A file that is the same stays."""
    if target.exists():
        old, new = target.stat(), source.stat()
        if (old.st_size, old.st_mtime_ns) == (new.st_size, new.st_mtime_ns):
            return
    with replace_file(target, sync=False) as temporary:
        try:
            os.link(source.resolve(), temporary)
        except OSError:
            shutil.copy2(source, temporary)


# --- queries -----------------------------------------------------------------------------------------------------


def _make_query(job: Job, query: Query, clips: _Clips, target: MadeTarget | None, out: Path) -> MadeQuery:
    rng = np.random.default_rng([job.seed, zlib.crc32(query.id.encode())])
    file, rest = _name_file(query.id), ""
    clip = clips.source if target is None else _take_part(clips.source, target.part)
    segments: list[list[Any]] = []
    if query.kind == SAME_EVENT:
        ends = list(cut_apart(clip))
        if rng.random() < 0.5:
            ends.reverse()
        rest = f"database/{job.target_id}.mp4"
        copy = ends[0]
        write_clip(ends[1], out / rest)
    elif query.kind == COMPILATION:
        copy, segments = _compile(job, query, clip, 0.0 if target is None else target.shift_s, rng)
    else:
        edited = find_edit(query.kind).apply(clip, rng, host=clips.host)
        copy = edited.clip
        segments = list_segments(edited.time, job.target_id, 0.0 if target is None else target.shift_s)
    shift_s = 0.0 if query.card is None else query.card.find_shift_s(copy.fps)
    segments = [[round(a + shift_s, 4), round(b + shift_s, 4), *times] for a, b, *times in segments]
    card = _write_with_card(copy, query.card, out / file)
    content = {"segments": segments, "rest": rest, "card": card}
    write_note(query.id, _collect_recipe(job, query), [file, *([rest] if rest else [])], content, out)
    return _collect_query(job, query, content, made=True)


def _take_part(clip: Clip, part: str) -> Clip:
    return clip if part == "whole" else cut_apart(clip)[part == "last"]


def _compile(job: Job, query: Query, clip: Clip, shift_s: float, rng: Generator) -> tuple[Clip, list[list[Any]]]:
    fps: list[float] = [clip.fps]

    def read(path: Path) -> Clip:
        other = read_source(path)
        fps.append(other.fps)
        return other

    readers: list[Callable[[], Clip]] = [lambda: clip, *(partial(read, other.path) for other in query.others)]
    copy, times = compile_clips(readers, rng, size=clip.size, fps=clip.fps)
    segments = list_segments(times[0], job.target_id, shift_s)
    for other, time, rate in zip(query.others, times[1:], fps[1:], strict=True):
        segments += list_segments(time, other.id, 0.0 if other.card is None else other.card.find_shift_s(rate))
    return copy, segments


def list_segments(time: TimeMap, target_id: str, shift_s: float) -> list[list[Any]]:
    """As ground_truth.json has them; the target shows what the map says `shift_s` later."""
    found: list[list[Any]] = []
    for part in time.segments:
        q_start, q_end, t_start, t_end = part.interval()
        found.append([q_start, q_end, target_id, round(t_start + shift_s, 4), round(t_end + shift_s, 4)])
    return found


def _write_with_card(clip: Clip, card: Card | None, path: Path) -> list[Any] | None:
    """Write the clip, with the card if there is one; then [card id, start, end]."""
    if card is None:
        write_clip(clip, path)
        return None
    whole, (start, end) = add_card(clip, card)
    write_clip(whole, path)
    return [card.id, round(start, 4), round(end, 4)]


def _find_query(job: Job, query: Query, out: Path) -> MadeQuery | None:
    note = read_note(query.id, _collect_recipe(job, query), out)
    try:
        return None if note is None else _collect_query(job, query, note, made=False)
    except KeyError:
        return None


def _collect_query(job: Job, query: Query, content: Mapping[str, Any], *, made: bool) -> MadeQuery:
    others = tuple(other.path for other in query.others)
    return MadeQuery(
        query.id, query.kind, job.source, others, content["segments"], content["rest"], content["card"], made
    )


def _collect_recipe(job: Job, query: Query) -> dict[str, Any]:
    """What decides how a query looks, and what is noted of it."""
    host = None if job.host is None else describe_file(job.host)
    others = [
        [other.id, describe_file(other.path), None if other.card is None else asdict(other.card)]
        for other in query.others
    ]
    card = None if query.card is None else asdict(query.card)
    return {"id": query.id, "kind": query.kind, "card": card, "others": others, "host": host,
            "target": _collect_target_recipe(job)}  # fmt: skip


def _name_file(query: str) -> str:
    """The file of a query, relative to the folder."""
    return f"queries/{query}.mp4"


# --- notes -------------------------------------------------------------------------------------------------------


def describe_file(path: Path) -> list[Any]:
    """What tells whether a file is still the one that was used."""
    return [path.name, path.stat().st_size, path.stat().st_mtime_ns]


def write_note(name: str, recipe: dict[str, Any], files: Iterable[str], content: dict[str, Any], out: Path) -> None:
    """Note how `files` (relative to the folder) were made, and what is known of them."""
    sizes = {file: (out / file).stat().st_size for file in files}
    write_json(out / ".made" / f"{name}.json", {"recipe": recipe, "sizes": sizes, "content": content})


def read_note(name: str, recipe: dict[str, Any], out: Path) -> dict[str, Any] | None:
    """The content of a note, if the same recipe made it and its files are whole."""
    try:
        note = json.loads((out / ".made" / f"{name}.json").read_text("utf-8"))
        same = note["recipe"] == recipe
        whole = all((out / file).stat().st_size == size for file, size in note["sizes"].items())
        content: dict[str, Any] = dict(note["content"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return content if same and whole else None
