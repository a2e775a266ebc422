"""What a benchmark is: one frozen record that every reader makes and `evaluate` measures against.

    Benchmark   queries, database, the label of each (query, target) that has one, and what is measured
    Task        one figure: which labels are positives, and which targets a ranking holds
    LeftOut     targets that some tasks take out of the rankings
    TrueSegment which seconds of a query are which seconds of a target
    Origin      which videos and sources a query or a target comes from

A ranking of a query holds the targets of the database. Four rules change that, each a field below: the query itself is
taken out (`Task.query_itself`); only labelled targets stay (`Task.labelled_only`); a named set is taken out
(`Task.without`); candidates of other queries are taken out (`Benchmark.candidates`).
"""

from __future__ import annotations

import itertools
import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from hapvr.config import from_mapping, suggest
from hapvr.errors import ConfigError, DataError
from hapvr.evaluation.benchmarks.annotation_file import read_json, require_ids
from hapvr.evaluation.metrics import Ties
from hapvr.evaluation.pair_records import Box, PairOfVideos
from hapvr.storage import StrPath, write_json

FigureName: TypeAlias = Literal["mAP", "uAP", "EVVE mAP", "recall@1"]
Relation: TypeAlias = Literal["match", "same video", "same source", "unrelated"]
SegmentProtocol: TypeAlias = Literal["VSC2022", "VCSL"]
FORMAT = "hapvr benchmark 1"


@dataclass(frozen=True)
class Task:
    """One figure of a benchmark.

    Attributes:
        name: unique within the benchmark.
        labels: a target with one of these labels is a positive of the query; every other target is a negative.
        figure: how rankings become a number. "mAP" and "recall@1" (is the best target a positive?) are means over the
            queries with a positive, "EVVE mAP" is the trapezoidal mean over all queries, "uAP" pools all pairs.
        ties: as in `metrics`; "group" exists for mAP and uAP.
        labelled_only: a ranking holds only the targets that have a label for its query.
        query_itself: the query stays in its own ranking if the database holds it. Else it is taken out.
        without: names of `Benchmark.left_out` that are taken out of the rankings.
    """

    name: str
    labels: tuple[str, ...]
    figure: FigureName = "mAP"
    ties: Ties = "id"
    labelled_only: bool = False
    query_itself: bool = False
    without: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", tuple(self.labels))
        object.__setattr__(self, "without", tuple(self.without))
        for name, known in (("figure", list(get_args(FigureName))), ("ties", list(get_args(Ties)))):
            if getattr(self, name) not in known:
                raise ConfigError(f"task '{self.name}': {name} has no value '{getattr(self, name)}'; "
                                  f"{suggest(str(getattr(self, name)), known)}")  # fmt: skip
        if self.ties == "group" and self.figure not in ("mAP", "uAP"):
            raise ConfigError(f"task '{self.name}': {self.figure} orders equal scores by id; ties must be 'id'.")
        if not self.labels:
            raise ConfigError(f"task '{self.name}' names no label, so it would have no positive.")


@dataclass(frozen=True)
class LeftOut:
    """Targets taken out of the rankings of all queries, and further ones of single queries."""

    targets: tuple[str, ...] = ()
    of_query: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "targets", tuple(self.targets))
        object.__setattr__(self, "of_query", {query: tuple(ids) for query, ids in self.of_query.items()})


class TrueSegment(NamedTuple):
    """`start_s` to `end_s` of a query show the same as `target_start_s` to `target_end_s` of a target."""

    start_s: float
    end_s: float
    target: str
    target_start_s: float
    target_end_s: float

    @property
    def box(self) -> Box:
        """The seconds of the query, and those of the target."""
        return (self.start_s, self.end_s), (self.target_start_s, self.target_end_s)


@dataclass(frozen=True)
class Origin:
    """Which videos (before they were cut) a query or a target shows, and from which sources they come."""

    videos: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("videos", "sources"):
            values = getattr(self, name)
            if not isinstance(values, (list, tuple)) or not all(isinstance(value, str) for value in values):
                raise DataError(f"the {name} of an origin are a list of names, got {values!r}.")
            object.__setattr__(self, name, tuple(values))


@dataclass(frozen=True)
class Benchmark:
    """Queries, a database, and the labels of their pairs. `DataError` where the fields contradict each other.

    Treat the mappings as frozen too. Ids are non-empty strings; a query may also be in the database.

    Attributes:
        name: of the benchmark, for reports.
        queries: ids, each once.
        database: ids, each once.
        labels: per query, the published label of each target that has one. Targets are of the database.
        tasks: what is measured.
        candidates: per query, targets that are in its rankings only, not in those of other queries. None: no such.
        groups: the group of each query (an event, a kind of edit), measured apart as well.
        segments: per query, its true segments.
        files: the file of each id, where the benchmark comes with files.
        left_out: named sets of targets that tasks may take out.
        origins: where queries and targets come from, for those of which it is known.
        shared: footage that many videos have and that makes no match (a title, an end card): per piece, when it is
            shown in each query and target that has it, (start_s, end_s).
        segment_protocol: how its segments are measured, where its authors say how. None: by `measure_localisation`.
        pair_sets: VCSL: named sets of (query, target), over which its figures are averaged too.
        notes: what a reader of its figures should know, such as which of two published files the labels are of.
        folder: where it lies, if it comes with files; not part of what is stored or compared.
        open_database: a scored target that the benchmark does not name, neither as target nor as query, joins the
            rankings as a negative. Else it is ignored, and counted.
    """

    name: str
    queries: tuple[str, ...]
    database: tuple[str, ...]
    labels: Mapping[str, Mapping[str, str]]
    tasks: tuple[Task, ...]
    candidates: Mapping[str, tuple[str, ...]] | None = None
    groups: Mapping[str, str] | None = None
    segments: Mapping[str, tuple[TrueSegment, ...]] | None = None
    files: Mapping[str, str] | None = None
    left_out: Mapping[str, LeftOut] = field(default_factory=dict)
    open_database: bool = False
    origins: Mapping[str, Origin] | None = None
    shared: Mapping[str, Mapping[str, tuple[float, float]]] | None = None
    segment_protocol: SegmentProtocol | None = None
    pair_sets: Mapping[str, tuple[tuple[str, str], ...]] | None = None
    notes: tuple[str, ...] = field(default=(), compare=False)
    folder: str | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "queries", tuple(self.queries))
        put(self, "database", tuple(self.database))
        put(self, "tasks", tuple(self.tasks))
        if isinstance(self.notes, str) or not all(isinstance(note, str) for note in self.notes):
            raise DataError(f"benchmark '{self.name}': notes are a list of sentences, got {self.notes!r}.")
        put(self, "notes", tuple(self.notes))
        put(self, "labels", {query: dict(row) for query, row in self.labels.items()})
        put(self, "left_out", dict(self.left_out))
        if self.candidates is not None:
            put(self, "candidates", {query: tuple(ids) for query, ids in self.candidates.items()})
        if self.groups is not None:
            put(self, "groups", dict(self.groups))
        if self.files is not None:
            put(self, "files", dict(self.files))
        if self.segments is not None:
            put(self, "segments", {query: tuple(map(_parse_segment, parts)) for query, parts in self.segments.items()})
        if self.origins is not None:
            put(self, "origins", {id: _parse_origin(id, origin) for id, origin in self.origins.items()})
        if self.pair_sets is not None:
            put(self, "pair_sets", {name: _parse_pairs(name, pairs) for name, pairs in self.pair_sets.items()})
        if self.shared is not None:
            put(self, "shared", {name: _parse_spans(name, spans) for name, spans in self.shared.items()})
        self._check()

    def relate(self, query: str, target: str) -> Relation:
        """How near a target is to a query by where it comes from; a positive of any task is a match.

        Targets of unknown origin count as unrelated.

        >>> origins = {"q": Origin(("a",), ("tv",)), "b": Origin(("b",), ("tv",)), "a-2": Origin(("a",), ("tv",))}
        >>> tasks, labels = (Task("mAP", ("1",)),), {"q": {"a": "1"}}
        >>> benchmark = Benchmark("b", ("q",), ("a", "a-2", "b", "c"), labels, tasks, origins=origins)
        >>> [benchmark.relate("q", target) for target in benchmark.database]
        ['match', 'same video', 'same source', 'unrelated']
        """
        label = self.labels.get(query, {}).get(target)
        if label is not None and any(label in task.labels for task in self.tasks):
            return "match"
        known = self.origins or {}
        one, other = known.get(query, Origin()), known.get(target, Origin())
        if not set(one.videos).isdisjoint(other.videos):
            return "same video"
        return "unrelated" if set(one.sources).isdisjoint(other.sources) else "same source"

    def targets_among(self, ids: Iterable[str]) -> tuple[str, ...]:
        """Those of `ids` that can be in a ranking, in their order: of the database, and others if it is open.

        >>> tasks = (Task("mAP", ("1",)),)
        >>> benchmark = Benchmark("b", ("q",), ("a",), {"q": {"a": "1"}}, tasks, open_database=True)
        >>> benchmark.targets_among(["new", "a", "q"])
        ('new', 'a')
        """
        database, queries = set(self.database), set(self.queries)
        return tuple(id for id in ids if id in database or (self.open_database and id not in queries))

    def list_boxes(self) -> dict[PairOfVideos, list[Box]]:
        """The true segments of each pair that has any, as boxes in seconds."""
        found: dict[PairOfVideos, list[Box]] = {}
        for query, parts in (self.segments or {}).items():
            for part in parts:
                found.setdefault((query, part.target), []).append(part.box)
        return found

    def _check(self) -> None:
        queries = require_ids(self.queries, f"queries of benchmark '{self.name}'")
        database = require_ids(self.database, f"database of benchmark '{self.name}'")
        if not queries or not (database or self.open_database):
            raise DataError(f"benchmark '{self.name}' has {len(queries)} queries and {len(database)} database videos.")
        for name in ("labels", "candidates", "groups", "segments"):
            for query in getattr(self, name) or ():
                if query not in queries:
                    raise DataError(f"benchmark '{self.name}': {name} names '{query}', which is not a query.")
        for query, row in self.labels.items():
            for target, label in row.items():
                if target not in database:
                    raise DataError(
                        f"benchmark '{self.name}': '{target}' has label '{label}' for query '{query}', but is not in "
                        "the database."
                    )
        for name, ids in (("origins", self.origins or ()), ("shared", itertools.chain(*(self.shared or {}).values()))):
            for id in ids:
                if id not in queries and id not in database:
                    raise DataError(f"benchmark '{self.name}': {name} names '{id}', which is no query and no target.")
        if self.candidates is not None:
            self._check_candidates(self.candidates, database)
        for name, count in Counter(task.name for task in self.tasks).items():
            if count > 1:
                raise ConfigError(f"benchmark '{self.name}' has {count} tasks of the name '{name}'.")
        if self.segment_protocol is not None and self.segment_protocol not in get_args(SegmentProtocol):
            known = suggest(str(self.segment_protocol), list(get_args(SegmentProtocol)))
            raise ConfigError(
                f"benchmark '{self.name}': there is no segment protocol '{self.segment_protocol}'; {known}"
            )
        for task in self.tasks:
            for name in task.without:
                if name not in self.left_out:
                    raise ConfigError(f"task '{task.name}' is without '{name}', which left_out does not hold.")
        if not self.tasks:
            raise ConfigError(f"benchmark '{self.name}' has no task: there is nothing to measure.")

    def _check_candidates(self, candidates: Mapping[str, tuple[str, ...]], database: set[str]) -> None:
        apart = {target for ids in candidates.values() for target in ids}
        if strange := sorted(apart - database):
            raise DataError(f"benchmark '{self.name}': candidate '{strange[0]}' is not in the database.")
        for query, row in self.labels.items():
            if lost := sorted((row.keys() & apart) - set(candidates.get(query, ()))):
                raise DataError(
                    f"benchmark '{self.name}': '{lost[0]}' has a label for query '{query}', but is a candidate of "
                    "other queries alone."
                )


# --- as JSON -----------------------------------------------------------------------------------------------------


def write_benchmark(benchmark: Benchmark, path: StrPath) -> None:
    """Store a benchmark as JSON; `read_benchmark` gives back an equal one."""
    content: dict[str, Any] = {item.name: getattr(benchmark, item.name) for item in fields(benchmark) if item.compare}
    content["tasks"] = [asdict(task) for task in benchmark.tasks]
    content["left_out"] = {name: asdict(left) for name, left in benchmark.left_out.items()}
    if benchmark.origins is not None:
        content["origins"] = {id: asdict(origin) for id, origin in benchmark.origins.items()}
    # Versions that do not know these still read what has none.
    for name in ("origins", "shared", "segment_protocol", "pair_sets"):
        if content[name] is None:
            del content[name]
    if benchmark.notes:
        content["notes"] = list(benchmark.notes)
    write_json(path, {"format": FORMAT} | content, indent=None)


def read_benchmark(path: StrPath) -> Benchmark:
    """Read what `write_benchmark` stored."""
    return parse_benchmark(read_json(path), path)


def parse_benchmark(content: Any, path: StrPath) -> Benchmark:
    """A benchmark from the JSON of `write_benchmark`; `path` names it in errors."""
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise DataError(f'\'{path}\' is no stored benchmark: it lacks "format": "{FORMAT}".')
    content = {name: value for name, value in content.items() if name != "format"}
    content["folder"] = os.path.dirname(os.path.abspath(path)) if content.get("files") else None
    try:
        content["tasks"] = tuple(from_mapping(Task, task) for task in content.get("tasks", ()))
        content["left_out"] = {
            name: from_mapping(LeftOut, left) for name, left in (content.get("left_out") or {}).items()
        }
        return from_mapping(Benchmark, content)
    except (DataError, ConfigError) as error:
        raise DataError(f"'{path}': {error}") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise DataError(f"'{path}' is no stored benchmark: {error}. Write it again with write_benchmark.") from error


def _parse_origin(id: str, origin: Any) -> Origin:
    if isinstance(origin, Origin):
        return origin
    try:
        return from_mapping(Origin, origin)
    except (ConfigError, DataError) as error:
        raise DataError(f"the origin of '{id}': {error}") from error


def _parse_pairs(name: str, pairs: Any) -> tuple[tuple[str, str], ...]:
    try:
        parsed = tuple((query, target) for query, target in pairs)
    except (TypeError, ValueError) as error:
        raise DataError(f"the set '{name}' is no list of pairs [query, target].") from error
    if not all(isinstance(id, str) for pair in parsed for id in pair):
        raise DataError(f"the set '{name}' holds a pair whose ids are no strings.")
    return parsed


def _parse_spans(name: str, spans: Any) -> dict[str, tuple[float, float]]:
    try:
        parsed = {id: (float(start), float(end)) for id, (start, end) in spans.items()}
    except (TypeError, ValueError, AttributeError) as error:
        raise DataError(f"shared footage '{name}' is no table of id: [start, end].") from error
    for id, (start, end) in parsed.items():
        if not 0 <= start < end < math.inf:
            raise DataError(f"shared footage '{name}' in '{id}': {start} to {end} s is no stretch of time.")
    return parsed


def _parse_segment(part: Any) -> TrueSegment:
    try:
        start, end, target, target_start, target_end = part
        times = [float(second) for second in (start, end, target_start, target_end)]
    except (TypeError, ValueError) as error:
        raise DataError(f"{part!r} is no segment [start, end, target, target_start, target_end].") from error
    if not all(map(math.isfinite, times)) or min(times) < 0 or times[0] >= times[1] or times[2] >= times[3]:
        raise DataError(f"{part!r} is no segment: times are seconds from 0 on, and each end is after its start.")
    if not isinstance(target, str):
        raise DataError(f"{part!r} is no segment: its third entry is the id of the target.")
    return TrueSegment(times[0], times[1], target, times[2], times[3])
