"""Which queries a benchmark has, before any is made."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from hapvr.config import suggest
from hapvr.errors import ConfigError, DataError
from hapvr.synthetic.cards import Card, draw_cards
from hapvr.synthetic.edit_sprites import pick
from hapvr.synthetic.edits import DEFAULT_EDITS, EDITS, find_edit

SAME_EVENT = "same-event"
"""Query and target are disjoint parts of one video: relevant, without a segment in common."""
COMPILATION = "compilation"
"""Clips of several videos one after the other: all of them are relevant."""
KINDS = (*EDITS, SAME_EVENT, COMPILATION)
"""All kinds of query."""
DEFAULT_KINDS = (*DEFAULT_EDITS, SAME_EVENT)
"""The kinds that `make_benchmark` makes if none is named; those that came later are made by name only."""
_LISTS = {"all": KINDS, "default": DEFAULT_KINDS}

_SAME_EVENT_S = 8.0  # the shortest video whose two ends are different footage
_LOOKALIKE_S = 12.0  # the shortest video of which both ends are used
_COMPILED = (4, 8)  # the fewest and the most videos of a compilation
_CARDS = 3  # how many different cards videos share


@dataclass(frozen=True)
class Source:
    """A video that a compilation takes a part of. The card shifts its times, if it comes first."""

    path: Path
    id: str
    card: Card | None


@dataclass(frozen=True)
class Query:
    """One query to make."""

    id: str
    kind: str
    others: tuple[Source, ...] = ()  # of a compilation: the videos after the job's
    card: Card | None = None  # put to the finished query


@dataclass(frozen=True)
class Job:
    """What one process makes of one video: its queries and, where the database does not hold it as it is, its files."""

    source: Path
    target_id: str
    queries: tuple[Query, ...]
    host: Path | None
    seed: int
    lookalike_id: str = ""  # if not empty, the database holds two parts of it: the target, and this one
    card: Card | None = None  # put to the database file

    @property
    def is_same_event(self) -> bool:
        """Whether the query and the target are cut out of the video."""
        return any(query.kind == SAME_EVENT for query in self.queries)


def plan_queries(
    sources: dict[Path, float],
    ids: dict[Path, str],
    *,
    kinds: Sequence[str],
    queries_per_video: int,
    hosts: Sequence[Path],
    grouped: Container[Path],
    seed: int,
    lookalikes: bool = False,
    shared_cards: float = 0.0,
) -> list[Job]:
    """Which queries each video gives: of the kinds that have the fewest so far, drawn at random among equals.

    Videos of `ids` that are no sources (distractors) have jobs only if they get a card.

    Args:
        sources: the videos with their length in seconds. One chosen for "same-event" gives only that.
        ids: of the database.
        kinds, queries_per_video, hosts, seed: see `make_benchmark`.
        grouped: those that have duplicates among them.
        lookalikes: half of the videos of at least 12 s are cut in two.
        shared_cards: the share of database videos, and of queries, that get a card.
    """
    rng = np.random.default_rng([seed, 1])
    edits = [kind for kind in kinds if kind != SAME_EVENT]
    apart: set[Path] = set()
    if SAME_EVENT in kinds:
        long = [path for path, seconds in sources.items() if seconds >= _SAME_EVENT_S and path not in grouped]
        wanted = max(1, round(len(sources) * queries_per_video / len(kinds)))
        count = min(wanted, len(long) // 2) if edits else len(long)
        apart = {long[place] for place in rng.permutation(len(long))[:count].tolist()}
    given = Counter[str]()
    jobs = []
    for path in sources:
        draws = dict(zip(edits, rng.random(len(edits)).tolist(), strict=True))
        order = sorted(edits, key=lambda kind: (given[kind], draws[kind]))
        host = hosts[int(rng.integers(len(hosts)))] if hosts else None
        if path in apart:
            names = [SAME_EVENT]
        elif edits:
            names = [order[number % len(order)] for number in range(queries_per_video)]
        else:
            continue
        given.update(names)
        queries = []
        for number, kind in enumerate(names):
            turn = number // max(1, len(order)) + 1
            queries.append(Query(f"{ids[path]}--{kind}" + (f"-{turn}" if turn > 1 else ""), kind))
        jobs.append(Job(path, ids[path], tuple(queries), host, seed))
    # Each of these has another generator: what was planned before does not depend on it.
    if lookalikes:
        long = [path for path, seconds in sources.items() if seconds >= _LOOKALIKE_S and path not in grouped]
        jobs = _cut_half([path for path in long if path not in apart], jobs, set(ids.values()), seed)
    if shared_cards > 0:
        jobs = _give_cards(jobs, [path for path in ids if path not in sources], ids, shared_cards, seed)
    return _choose_others(jobs, seed)


def _cut_half(paths: list[Path], jobs: list[Job], taken: set[str], seed: int) -> list[Job]:
    order = np.random.default_rng([seed, 2]).permutation(len(paths)).tolist()
    cut = {paths[place] for place in order[: (len(paths) + 1) // 2]}
    return [
        replace(job, lookalike_id=_choose_free(f"{job.target_id}--other-part", taken)) if job.source in cut else job
        for job in jobs
    ]


def _give_cards(jobs: list[Job], fillers: list[Path], ids: dict[Path, str], share: float, seed: int) -> list[Job]:
    """Cards for a share of the database videos and of the queries; no query has a card that its target has.

    A copy of a video with a card has its own, as those have who upload it again.
    """
    rng, cards = np.random.default_rng([seed, 3]), list(draw_cards(seed, _CARDS))
    jobs = [*jobs, *(Job(path, ids[path], (), None, seed) for path in fillers)]
    given = []
    for job in jobs:
        # A target of "same-event" is a part of its query's video, which has been cut already.
        card = pick(rng, cards) if rng.random() < share and not job.is_same_event else None
        rest = [other for other in cards if other != card]
        queries = [replace(one, card=pick(rng, rest) if rng.random() < share else None) for one in job.queries]
        given.append(replace(job, card=card, queries=tuple(queries)))
    return [job for job in given if job.queries or job.card]


def _choose_others(jobs: list[Job], seed: int) -> list[Job]:
    """The videos of each compilation beside its first one: of those that the database holds whole."""
    whole = [
        Source(job.source, job.target_id, job.card)
        for job in jobs
        if job.queries and not job.lookalike_id and not job.is_same_event
    ]
    chosen = []
    for job in jobs:
        queries = []
        for query in job.queries:
            if query.kind == COMPILATION:
                rng = np.random.default_rng([seed, 5, zlib.crc32(query.id.encode())])
                rest = [source for source in whole if source.path != job.source]
                if not rest:
                    raise DataError(
                        f"there is no second video for the compilation '{query.id}'. Give more videos, or leave out "
                        f"the kind '{COMPILATION}'."
                    )
                count = min(int(rng.integers(_COMPILED[0], _COMPILED[1] + 1)) - 1, len(rest))
                places = rng.permutation(len(rest))[:count].tolist()
                others = tuple(rest[place] for place in places)
                card = None if query.card in [other.card for other in others] else query.card
                query = replace(query, others=others, card=card)
            queries.append(query)
        chosen.append(replace(job, queries=tuple(queries)))
    return chosen


def check_kinds(kinds: Sequence[str]) -> tuple[str, ...]:
    """Each kind once, "all" and "default" replaced by theirs; `ConfigError` with a suggestion if one is unknown."""
    if not kinds:
        raise ConfigError(f"kinds is empty; {suggest('', list(KINDS))}")
    kinds = [name for kind in kinds for name in _LISTS.get(kind, (kind,))]
    for kind in kinds:
        if "+" in kind:
            find_edit(kind)
        elif kind not in KINDS:
            raise ConfigError(f"there is no kind of query '{kind}'; {suggest(kind, list(KINDS))}")
    return tuple(dict.fromkeys(kinds))


def choose_ids(paths: Sequence[Path]) -> dict[Path, str]:
    """The stem of each file; from the second of a stem on with a number.

    >>> list(choose_ids([Path("a/x.mp4"), Path("b/x.mp4"), Path("y.gif")]).values())
    ['x', 'x-2', 'y']
    """
    taken: set[str] = set()
    return {path: _choose_free(path.stem, taken) for path in paths}


def _choose_free(name: str, taken: set[str]) -> str:
    """The name, with a number if it is taken; then it is taken too."""
    free, number = name, 1
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    taken.add(free)
    return free


def group_positives(duplicates: Sequence[Sequence[Path]], ids: dict[Path, str]) -> dict[Path, tuple[str, ...]]:
    """The ids of the group of each file that has duplicates. Files without an id are left out."""
    groups: dict[Path, tuple[str, ...]] = {}
    for group in duplicates:
        members = [path for path in group if path in ids]
        for path in members:
            if path in groups:
                raise ConfigError(f"'{path}' is in two groups of duplicates; join them.")
            groups[path] = tuple(sorted(ids[member] for member in members))
    return groups
