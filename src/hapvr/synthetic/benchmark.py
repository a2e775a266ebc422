"""A benchmark made from a handful of videos: edited copies as queries, the videos themselves as the database.

    OUTPUT/ground_truth.json   {"queries": {id: {"file", "kind", "positives": [ids], "segments": [...]}},
                                "database": {id: file}}
    OUTPUT/queries/            edited copies, mp4
    OUTPUT/database/           the videos and the distractors, linked or copied; those that are cut or get a card, mp4
    OUTPUT/.made/              one small file a finished query: what it was made from, for resuming

Files are named relative to OUTPUT; a segment is [q_start, q_end, target_id, t_start, t_end] in seconds, t_start < t_end
also where the copy plays backwards. ground_truth.json is written last: a folder that has one is complete.

Where look-alikes or origins are asked for, ground_truth.json has "origins" too: for each query and database id the
"videos" and the "sources" that it comes from. A query and a target that have a video in common and are no match are
parts of one video without a common frame; those with a source in common may show the same place or person; others are
unrelated. Where cards are asked for, it has "shared": {card: {id: [start, end]}}: footage that many videos have, in
seconds of queries and of database videos. It makes no match.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hapvr.errors import ConfigError, DataError, StorageError
from hapvr.storage import write_json
from hapvr.synthetic.benchmark_folder import (
    BenchmarkFailure,
    name_once,
    prepare_folder,
    probe_videos,
    require_apart,
    require_benchmark,
)
from hapvr.synthetic.benchmark_jobs import MadeQuery, MadeTarget, link_file, run_jobs
from hapvr.synthetic.benchmark_plan import (
    DEFAULT_KINDS,
    SAME_EVENT,
    Job,
    check_kinds,
    choose_ids,
    group_positives,
    plan_queries,
)


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
    lookalikes: bool = False,
    origins: Mapping[Path, str] | None = None,
    shared_cards: float = 0.0,
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
        lookalikes: cut half of the videos of at least 12 s in two with a gap between: copies are made of one part, and
            the other is in the database as a look-alike. Videos that repeat themselves stay whole.
        origins: where files come from (a channel, a camera, a folder), for the label "same source".
        shared_cards: the share of database videos, and of queries, that get one of three drawn title or end cards.
        workers: processes. Above 1, a script that calls this needs its `if __name__ == "__main__":`.
        progress: called with the number of queries finished so far, and of all.
    """
    chosen = check_kinds(DEFAULT_KINDS if kinds is None else tuple(kinds))
    for name, value, low in (("queries_per_video", queries_per_video, 1), ("workers", workers, 1), ("seed", seed, 0)):
        if value < low:
            raise ConfigError(f"{name} must be at least {low}, got {value}.")
    if not 0 <= shared_cards <= 1:
        raise ConfigError(f"shared_cards is a share from 0 to 1, got {shared_cards}.")
    require_apart(out, files=[*videos, *distractors, *hosts])
    require_benchmark(out)
    failed: list[BenchmarkFailure] = []
    names: dict[Path, Path] = {}
    originals = name_once(videos, names)
    sources = dict(probe_videos(originals, failed))
    fillers = dict(probe_videos((path for path in name_once(distractors, names) if path not in originals), failed))
    guests = [path for path, _ in probe_videos(name_once(hosts, names), failed)]
    for path in guests:
        if path in sources or path in fillers:
            raise ConfigError(f"'{path}' is a host and in the database: its queries would have matches no one notes.")
    if not sources:
        raise DataError(f"none of the {len(videos)} videos can be read" + (f": {failed[0].reason}" if failed else "."))
    ids = choose_ids([*sources, *fillers])
    groups = group_positives([name_once(group, names) for group in duplicates], ids)
    jobs = plan_queries(
        sources,
        ids,
        kinds=chosen,
        queries_per_video=queries_per_video,
        hosts=guests,
        grouped=groups,
        seed=seed,
        lookalikes=lookalikes,
        shared_cards=shared_cards,
    )

    prepare_folder(out)
    # Made by the jobs: targets of "same-event", and those that are cut or get a card.
    apart = {job.source for job in jobs if job.lookalike_id or job.card or job.is_same_event}
    database = dict(_fill_database((path for path in ids if path not in apart), out, ids, failed))
    jobs = [job for job in jobs if job.source in apart or job.target_id in database]
    truth = _Truth(ids, groups, database)
    finished, total = 0, sum(len(job.queries) for job in jobs)
    for job, result in run_jobs(jobs, out, workers):
        truth.add(job, result.queries, result.target)
        if result.reason:
            failed.append(BenchmarkFailure(str(job.source), result.reason))
        finished += len(job.queries)
        if progress is not None and job.queries:
            progress(finished, total)
    resolved = {Path(path).resolve(): name for path, name in (origins or {}).items()}
    named = {names[path]: name for path, name in resolved.items() if path in names}
    content = truth.collect(labelled=lookalikes or origins is not None, sources=named)
    if not truth.queries:
        raise DataError(
            f"no query could be made of {len(sources)} videos" + (f": {failed[0].reason}" if failed else ".")
        )
    write_json(out / "ground_truth.json", content)
    done = truth.queries
    return BenchmarkSummary(
        folder=out,
        queries=len(done),
        made=sum(query.made for query in done),
        database=len(truth.database),
        kinds=dict(sorted(Counter(query.kind for query in done).items())),
        failed=tuple(failed),
    )


class _Truth:
    """The ground truth, as it comes from the jobs."""

    def __init__(self, ids: dict[Path, str], groups: dict[Path, tuple[str, ...]], database: dict[str, str]) -> None:
        self.ids, self.groups = ids, groups
        self.queries: list[MadeQuery] = []
        self.database = dict(database)
        self._videos = {ids[path]: path for path in ids}  # which file each database id shows, parts included
        self._cards: dict[str, list[Any]] = {}

    def add(self, job: Job, queries: list[MadeQuery], target: MadeTarget | None) -> None:
        """What a job has made."""
        self.queries += queries
        for query in queries:
            if query.kind == SAME_EVENT:
                self.database[job.target_id] = query.rest
        self._cards |= {query.id: query.card for query in queries if query.card is not None}
        if target is not None:
            self.database |= target.files
            self._videos |= dict.fromkeys(target.files, job.source)
            if target.card is not None:
                self._cards[job.target_id] = target.card

    def collect(self, *, labelled: bool, sources: Mapping[Path, str]) -> dict[str, Any]:
        """The content of ground_truth.json; a query one of whose videos could not be put into the database is left out.

        labelled: with origins; sources: where files come from.
        """
        self.queries = [
            query
            for query in sorted(self.queries, key=lambda query: query.id)
            if all(self.ids[path] in self.database for path in (query.source, *query.others))
        ]
        content: dict[str, Any] = {
            "queries": {query.id: self._describe(query) for query in self.queries},
            "database": dict(sorted(self.database.items())),
        }
        if labelled:
            shown = {query.id: (query.source, *query.others) for query in self.queries}
            shown |= {id: (self._videos[id],) for id in content["database"]}
            content["origins"] = {
                id: {
                    "videos": [self.ids[path] for path in paths],
                    "sources": sorted({sources[path] for path in paths if path in sources}),
                }
                for id, paths in shown.items()
            }
        if self._cards:
            shared: dict[str, dict[str, list[float]]] = {}
            for id, (card, start, end) in sorted(self._cards.items()):
                if id in content["queries"] or id in content["database"]:
                    shared.setdefault(card, {})[id] = [start, end]
            content["shared"] = dict(sorted(shared.items()))
        return content

    def _describe(self, query: MadeQuery) -> dict[str, Any]:
        shown = [self.groups.get(path, (self.ids[path],)) for path in (query.source, *query.others)]
        positives = shown[0] if len(shown) == 1 else sorted({id for group in shown for id in group})
        return {"file": query.file, "kind": query.kind, "positives": list(positives), "segments": query.segments}


def _fill_database(
    paths: Iterable[Path], out: Path, ids: dict[Path, str], failed: list[BenchmarkFailure]
) -> Iterator[tuple[str, str]]:
    """Put files into the database; yields their ids and their names there."""
    for path in paths:
        file = f"database/{ids[path]}{path.suffix}"
        try:
            link_file(path, out / file)
        except (OSError, StorageError) as error:
            failed.append(BenchmarkFailure(str(path), str(error)))
        else:
            yield ids[path], file
