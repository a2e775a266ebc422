"""A benchmark made from a handful of videos: edited copies as queries, the videos themselves as the database.

    OUTPUT/ground_truth.json   {"queries": {id: {"file", "kind", "positives": [ids], "segments": [...]}},
                                "database": {id: file}}
    OUTPUT/queries/            edited copies, mp4
    OUTPUT/database/           the videos and the distractors, linked or copied
    OUTPUT/.made/              one small file a finished query: what it was made from, for resuming

Files are named relative to OUTPUT; a segment is [q_start, q_end, target_id, t_start, t_end] in seconds, t_start < t_end
also where the copy plays backwards. ground_truth.json is written last: a folder that has one is complete.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hapvr.errors import ConfigError, DataError, DecodeError, HapvrError, StorageError
from hapvr.storage import replace_file, write_json
from hapvr.synthetic.benchmark_plan import (
    DEFAULT_KINDS,
    SAME_EVENT,
    Job,
    Query,
    check_kinds,
    choose_ids,
    group_positives,
    plan_queries,
)
from hapvr.synthetic.clip import Clip
from hapvr.synthetic.clip_files import read_clip, write_clip
from hapvr.synthetic.edits import find_edit
from hapvr.video.decode import probe
from hapvr.workers.processes import spawn_context

# Longer, faster and larger videos are cut, thinned and scaled to this before they are edited.
_MAX_SECONDS, _MAX_FPS, _MAX_SHORT_SIDE = 60.0, 15.0, 360
_RECIPE = 1  # counts changes of the edits that make finished queries out of date
_interrupted = threading.Event()  # in a process of the pool: by Ctrl-C


@dataclass(frozen=True)
class BenchmarkFailure:
    """A file that could not be used, and why."""

    file: str
    reason: str


@dataclass(frozen=True)
class BenchmarkSummary:
    """What `make_benchmark` did."""

    folder: Path
    queries: int  # in ground_truth.json
    made: int  # of them, made by this call; the rest was there
    database: int
    kinds: dict[str, int]  # queries of each kind
    failed: tuple[BenchmarkFailure, ...]
    other_files: int = 0  # files beside the videos that are none by their names

    def to_json(self) -> dict[str, Any]:
        """What `hapvr make-benchmark --json` prints."""
        failed = [{"path": failure.file, "error": failure.reason} for failure in self.failed]
        return {"folder": str(self.folder), "queries": self.queries, "database": self.database, "failed": failed,
                "other_files": self.other_files}  # fmt: skip

    def __str__(self) -> str:
        text = f"{self.folder}: {self.queries} queries ({self.made} made now), {self.database} database videos"
        return f"{text}; {len(self.failed)} files could not be used" if self.failed else text


def make_benchmark(
    videos: Sequence[Path],
    out: Path,
    *,
    seed: int = 0,
    kinds: Sequence[str] | None = None,
    queries_per_video: int = 4,
    distractors: Sequence[Path] = (),
    hosts: Sequence[Path] = (),
    duplicates: Sequence[Sequence[Path]] = (),
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> BenchmarkSummary:
    """Build a benchmark folder; the same arguments give the same ground truth and the same frames.

    Calling it again completes an interrupted folder: a finished query is not made again. A file that cannot be read is
    reported in the summary and left out; it never stops the rest. `DataError` if no query could be made; `ConfigError`
    for a folder that holds a file given here, or that holds something and is no benchmark of this function's.

    Videos chosen for the kind "same-event" (those of at least 8 s, as many as other kinds have queries) give only that:
    one part of it is the query, another is in the database instead of the whole.

    Args:
        videos: the originals. Each file counts once.
        out: the folder, made if it is not there.
        seed: of everything that is drawn.
        kinds: kinds of query, spread evenly; names of `EDITS`, several joined by "+", "same-event", or a list of them:
            "default" (if None) or "all".
        queries_per_video: edited copies of each video.
        distractors: more database files, relevant to nothing.
        hosts: videos for edits that mix two (insert, picture-in-picture, reactions). They must show nothing that the
            database holds; drawn films if there are none.
        duplicates: groups of `videos` known to show the same footage; a query of one has all as positives.
        workers: processes. Above 1, a script that calls this needs its `if __name__ == "__main__":`.
        progress: called with the number of queries finished so far, and of all.
    """
    chosen = check_kinds(DEFAULT_KINDS if kinds is None else tuple(kinds))
    for name, value, low in (("queries_per_video", queries_per_video, 1), ("workers", workers, 1), ("seed", seed, 0)):
        if value < low:
            raise ConfigError(f"{name} must be at least {low}, got {value}.")
    require_apart(out, files=[*videos, *distractors, *hosts])
    _require_benchmark(out)
    failed: list[BenchmarkFailure] = []
    names: dict[Path, Path] = {}
    originals = _name_once(videos, names)
    sources = dict(_probe_videos(originals, failed))
    fillers = dict(_probe_videos((path for path in _name_once(distractors, names) if path not in originals), failed))
    guests = [path for path, _ in _probe_videos(_name_once(hosts, names), failed)]
    for path in guests:
        if path in sources or path in fillers:
            raise ConfigError(f"'{path}' is a host and in the database: its queries would have matches no one notes.")
    if not sources:
        raise DataError(f"none of the {len(videos)} videos can be read" + (f": {failed[0].reason}" if failed else "."))
    ids = choose_ids([*sources, *fillers])
    groups = group_positives([_name_once(group, names) for group in duplicates], ids)
    jobs = plan_queries(
        sources, ids, kinds=chosen, queries_per_video=queries_per_video, hosts=guests, grouped=groups, seed=seed
    )

    for folder in (".made", "queries", "database"):  # the first one marks the folder as a benchmark
        (out / folder).mkdir(parents=True, exist_ok=True)
    (out / "ground_truth.json").unlink(missing_ok=True)
    apart = {job.source for job in jobs if job.queries[0].kind == SAME_EVENT}
    database = dict(_fill_database((path for path in ids if path not in apart), out, ids, failed))
    jobs = [job for job in jobs if job.source in apart or job.target_id in database]
    done: list[_Done] = []
    finished, total = 0, sum(len(job.queries) for job in jobs)
    for job, (queries, reason) in _run_jobs(jobs, out, workers):
        done += queries
        if reason:
            failed.append(BenchmarkFailure(str(job.source), reason))
        finished += len(job.queries)
        if progress is not None:
            progress(finished, total)
    if not done:
        raise DataError(
            f"no query could be made of {len(sources)} videos" + (f": {failed[0].reason}" if failed else ".")
        )
    database |= {ids[query.source]: query.rest for query in done if query.kind == SAME_EVENT}
    truth = {
        "queries": {query.id: query.truth(ids, groups) for query in sorted(done, key=lambda query: query.id)},
        "database": dict(sorted(database.items())),
    }
    write_json(out / "ground_truth.json", truth)
    return BenchmarkSummary(
        folder=out,
        queries=len(done),
        made=sum(query.made for query in done),
        database=len(database),
        kinds=dict(sorted(Counter(query.kind for query in done).items())),
        failed=tuple(failed),
    )


def require_apart(out: Path, *, folders: Iterable[Path] = (), files: Iterable[Path] = ()) -> None:
    """Refuse a benchmark folder that would mix with its sources: `ConfigError`.

    It may lie in none of the folders, hold none of them and be none of them, and it may hold none of the files. Links
    count as where they lie and as where they lead.
    """
    own = _find_places(out)
    for folder in folders:
        if any(a.is_relative_to(b) or b.is_relative_to(a) for a in own for b in _find_places(folder)):
            raise ConfigError(
                f"the benchmark folder '{out}' and the folder of videos '{folder}' overlap: copies would lie among the "
                "originals. Give a benchmark folder outside it."
            )
    for file in files:
        if any(a.is_relative_to(b) for a in _find_places(file) for b in own):
            raise ConfigError(
                f"'{file}' lies in the benchmark folder '{out}', which is for what is made. Give another folder."
            )


def _find_places(path: Path) -> set[Path]:
    path = Path(path)
    try:
        return {Path(os.path.abspath(path)), path.resolve()}
    except (OSError, RuntimeError):  # links in a circle, before Python 3.13
        return {Path(os.path.abspath(path))}


def _require_benchmark(out: Path) -> None:
    """Refuse a folder that holds something else: its files could not be distinguished from those that are made."""
    if not os.path.lexists(out):
        return
    try:
        filled = any(not path.name.startswith(".") for path in out.iterdir())
    except OSError as error:
        raise ConfigError(f"'{out}' cannot be used as a folder: {error.strerror or error}.") from error
    truth = out / "ground_truth.json"
    if os.path.lexists(truth):
        if not _is_ground_truth(truth):
            raise ConfigError(f"'{truth}' was not written by make-benchmark and would be lost. Give another folder.")
    elif filled and not (out / ".made").is_dir():
        raise ConfigError(f"'{out}' holds files and is no benchmark. Give a new or an empty folder.")


def _is_ground_truth(truth: Path) -> bool:
    try:
        content = json.loads(truth.read_text(encoding="utf-8"))
        return content.keys() == {"queries", "database"} and all(
            {"file", "kind", "positives", "segments"} <= query.keys() for query in content["queries"].values()
        )
    except (OSError, ValueError, AttributeError, RecursionError):
        return False


# --- making it ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Done:
    """A finished query."""

    id: str
    kind: str
    source: Path
    segments: list[list[float]]  # [q_start, q_end, t_start, t_end]
    rest: str  # of same-event: the database file with the other part
    made: bool

    def truth(self, ids: dict[Path, str], groups: dict[Path, tuple[str, ...]]) -> dict[str, Any]:
        """The query as ground_truth.json has it."""
        target = ids[self.source]
        segments = [[q_start, q_end, target, t_start, t_end] for q_start, q_end, t_start, t_end in self.segments]
        positives = list(groups.get(self.source, (target,)))
        return {"file": _name_file(self.id), "kind": self.kind, "positives": positives, "segments": segments}


def _name_file(query: str) -> str:
    """The file of a query, relative to the folder."""
    return f"queries/{query}.mp4"


def _run_jobs(jobs: list[Job], out: Path, workers: int) -> Iterator[tuple[Job, tuple[list[_Done], str]]]:
    if workers == 1 or len(jobs) < 2:
        for job in jobs:
            yield job, _make_queries(job, out)
        return
    count = min(workers, len(jobs))
    with ProcessPoolExecutor(count, mp_context=spawn_context(), initializer=_note_interrupts) as pool:
        running = {pool.submit(_make_queries, job, out): job for job in jobs}
        try:
            for future in as_completed(running):
                try:
                    yield running[future], future.result()
                except BrokenProcessPool as error:
                    yield running[future], ([], f"a process ended before it was done: {error}")
        finally:  # an interrupted call does not wait for jobs that have not begun
            pool.shutdown(wait=False, cancel_futures=True)


def _note_interrupts() -> None:
    signal.signal(signal.SIGINT, _interrupt)


def _interrupt(*_: object) -> None:
    _interrupted.set()
    raise KeyboardInterrupt


def _make_queries(job: Job, out: Path) -> tuple[list[_Done], str]:
    """Make those queries of a video that are not there yet; also the reason if not all could be made."""
    if _interrupted.is_set():  # a process of the pool would continue with the next video
        raise KeyboardInterrupt
    done: list[_Done] = []
    clip = host = None
    try:
        for query in job.queries:
            finished = _find_finished(job, query, out)
            if finished is None:
                clip = _read(job.source) if clip is None else clip
                host = _read(job.host) if host is None and job.host is not None else host
                finished = _make_query(job, query, clip, host, out)
            done.append(finished)
    except (HapvrError, OSError) as error:
        return done, str(error)
    return done, ""


def _read(path: Path) -> Clip:
    return read_clip(path, max_seconds=_MAX_SECONDS, max_fps=_MAX_FPS, max_short_side=_MAX_SHORT_SIDE)


def _make_query(job: Job, query: Query, clip: Clip, host: Clip | None, out: Path) -> _Done:
    rng = np.random.default_rng([job.seed, zlib.crc32(query.id.encode())])
    file, segments, rest = _name_file(query.id), [], ""
    if query.kind == SAME_EVENT:
        ends = [clip.images[: max(1, int(0.42 * len(clip)))], clip.images[-max(1, int(0.42 * len(clip))) :]]
        if rng.random() < 0.5:
            ends.reverse()
        rest = f"database/{job.target_id}.mp4"
        write_clip(Clip(ends[0], clip.fps), out / file)
        write_clip(Clip(ends[1], clip.fps), out / rest)
    else:
        edited = find_edit(query.kind).apply(clip, rng, host=host)
        segments = [[round(second, 4) for second in part.interval()] for part in edited.segments]
        write_clip(edited.clip, out / file)
    sizes = {file: (out / file).stat().st_size for file in (file, rest) if file}
    note = {"recipe": _collect_recipe(job, query), "sizes": sizes, "segments": segments, "rest": rest}
    write_json(out / ".made" / f"{query.id}.json", note)
    return _Done(query.id, query.kind, job.source, segments, rest, made=True)


def _find_finished(job: Job, query: Query, out: Path) -> _Done | None:
    """The query if an earlier call made it from the same things, whole."""
    try:
        note = json.loads((out / ".made" / f"{query.id}.json").read_text())
        same = note["recipe"] == _collect_recipe(job, query)
        whole = all((out / file).stat().st_size == size for file, size in note["sizes"].items())
        done = _Done(query.id, query.kind, job.source, note["segments"], note["rest"], made=False)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return done if same and whole else None


def _collect_recipe(job: Job, query: Query) -> dict[str, Any]:
    """What decides how a query looks."""
    files = {}
    for name, path in (("source", job.source), ("host", job.host)):
        files[name] = [path.name, path.stat().st_size, path.stat().st_mtime_ns] if path is not None else None
    return {"version": _RECIPE, "seed": job.seed, **asdict(query), **files}


def _name_once(paths: Iterable[Path], names: dict[Path, Path]) -> list[Path]:
    """Each file once, by the name it was first given; `names` remembers them from call to call."""
    return list(dict.fromkeys(names.setdefault(Path(path).resolve(), Path(path).absolute()) for path in paths))


def _probe_videos(paths: Iterable[Path], failed: list[BenchmarkFailure]) -> Iterator[tuple[Path, float]]:
    for path in paths:
        try:
            yield path, probe(path).duration_s or 0.0
        except DecodeError as error:
            failed.append(BenchmarkFailure(str(path), str(error)))


def _fill_database(
    paths: Iterable[Path], out: Path, ids: dict[Path, str], failed: list[BenchmarkFailure]
) -> Iterator[tuple[str, str]]:
    """Put files into the database; yields their ids and their names there."""
    for path in paths:
        file = f"database/{ids[path]}{path.suffix}"
        try:
            _link(path, out / file)
        except (OSError, StorageError) as error:
            failed.append(BenchmarkFailure(str(path), str(error)))
        else:
            yield ids[path], file


def _link(source: Path, target: Path) -> None:
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
