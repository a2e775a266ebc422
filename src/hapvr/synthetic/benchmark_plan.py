"""Which queries a benchmark has, before any is made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hapvr.config import suggest
from hapvr.errors import ConfigError
from hapvr.synthetic.edits import DEFAULT_EDITS, EDITS, find_edit

SAME_EVENT = "same-event"
"""Query and target are disjoint parts of one video: relevant, without a segment in common."""
KINDS = (*EDITS, SAME_EVENT)
"""All kinds of query."""
DEFAULT_KINDS = (*DEFAULT_EDITS, SAME_EVENT)
"""The kinds that `make_benchmark` makes if none is named; edits that came later are made by name only."""
_LISTS = {"all": KINDS, "default": DEFAULT_KINDS}

_SAME_EVENT_S = 8.0  # the shortest video whose two ends are different footage


@dataclass(frozen=True)
class Query:
    """One query to make."""

    id: str
    kind: str


@dataclass(frozen=True)
class Job:
    """All queries of one video, made by one process."""

    source: Path
    target_id: str
    queries: tuple[Query, ...]
    host: Path | None
    seed: int


def plan_queries(
    sources: dict[Path, float],
    ids: dict[Path, str],
    *,
    kinds: Sequence[str],
    queries_per_video: int,
    hosts: Sequence[Path],
    grouped: Container[Path],
    seed: int,
) -> list[Job]:
    """Which queries each video gives: of the kinds that have the fewest so far, drawn at random among equals.

    sources: the videos with their length in seconds; grouped: those that have duplicates among them. A video chosen for
    "same-event" gives only that.
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
    return jobs


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
    ids: dict[Path, str] = {}
    taken: set[str] = set()
    for path in paths:
        name, number = path.stem, 1
        while name in taken:
            number += 1
            name = f"{path.stem}-{number}"
        taken.add(name)
        ids[path] = name
    return ids


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
