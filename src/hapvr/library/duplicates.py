"""Duplicates in a library: near-duplicates, clips that are part of others, and parts that two videos share.

Files of the same bytes are known by their hashes. Of all other contents, each asks for those whose frame vectors are
nearest, as a search does; only such pairs are compared, so that the work grows with the number of videos and not with
that of pairs. A pair is a link if the judge (`hapvr.judge`) calls it a copy, as in `hapvr compare`. What the matching
stretches cover of both videos says what kind of link it is.

Duplicates form groups. Clips do not: two different clips of one compilation would end in one group with it. Their links
stand beside the groups. Nothing is ever deleted; the copy to keep is a suggestion.
"""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hapvr.decision import find_prior
from hapvr.errors import ConfigError
from hapvr.library.candidates import count_votes, find_runs
from hapvr.library.cluster_work import Run, run_here
from hapvr.library.copy_groups import group_links
from hapvr.library.derivation import find_derivation
from hapvr.library.duplicate_report import DuplicateProgress, DuplicateReport, Link, SoundPair, Stage
from hapvr.library.marks import Pair, make_pair, read_marks
from hapvr.library.pair_links import IN_ONE_READ, LinkOptions, link_block, split_pairs
from hapvr.library.results import VideoRecord
from hapvr.library.shared_file import read_shared_footage
from hapvr.library.sound_duplicates import add_link_sounds, find_sound_pairs
from hapvr.library.store import Store
from hapvr.library.tables import Catalog, StoredContent
from hapvr.model import Model
from hapvr.workers.threads import map_threads

Progress = Callable[[DuplicateProgress], None]
Matrix = NDArray[np.float32]

MIN_PROBABILITY = 0.5
"""Probability of a copy from which on a pair is a link."""
_MAX_CANDIDATES = 20  # contents that each one is compared with
_MAX_RUNS = 64  # of a video that ask for neighbours; of a longer one as many, spread over it
_MIN_ALIKE = 0.25  # of run vectors; copies that only their pixels tell may have little more
_LOOKED_AT = 2  # links of a group whose files are looked at to tell edits from originals, for each of its videos


def find_duplicates(
    store: Store,
    load_model: Callable[[], Model],
    *,
    min_probability: float = MIN_PROBABILITY,
    second_look: bool = True,
    ignore_shared: bool = True,
    since: datetime | None = None,
    progress: Progress | None = None,
    sound: bool = True,
    cluster: Run | None = None,
) -> DuplicateReport:
    """Find the duplicates in a library; see `Library.find_duplicates`.

    `load_model` gives the model that the library was made with; it is called if there is anything to compare.
    """
    limit = min_probability
    if not isinstance(limit, int | float) or isinstance(limit, bool) or not 0 < limit <= 1:
        raise ConfigError(f"min_probability must be a number above 0 and at most 1, got {min_probability!r}.")
    started = time.monotonic()
    catalog = store.catalog()
    marks = read_marks(store.library)
    new = _find_new_keys(catalog, since)
    keys = catalog.contents.tolist()
    run = cluster or run_here(store, load_model)
    pairs = sorted(_find_pairs(run, [key for key in keys if key in new], set(keys), progress))
    found = list(_link_identical(catalog, new))
    marked = 0
    hashes = {int(key): hash for key, hash in zip(catalog.keys, catalog.column("content_hash"), strict=True)}
    if progress is not None:
        progress(DuplicateProgress("pairs", 0, len(pairs), 0.0))  # the model is loaded first, which takes a while
    model = load_model() if pairs else None
    if model is not None:
        options = LinkOptions(float(limit), second_look, read_shared_footage(store), ignore_shared)
        for one, other, link in _link_pairs(run, catalog, pairs, options, progress):
            if make_pair(hashes[one], hashes[other]) in marks:
                marked += 1
            elif link.a in catalog and link.b in catalog:  # a node may know newer records
                found.append(link)
    records = {id: catalog.record(catalog.row(id)) for link in found for id in (link.a, link.b)}
    links = sorted(found, key=lambda link: (-link.certainty, -link.score, records[link.a].path, records[link.b].path))
    if second_look:
        links = _find_derivations(links, records, marks)
    sound_pairs: list[SoundPair] = []
    if sound and store.sounds.exists:
        links = add_link_sounds(store, links)
        known = marks | {make_pair(records[link.a].content_hash, records[link.b].content_hash) for link in links}
        sound_pairs = find_sound_pairs(store, new, known, _Clock("sounds", len(new), progress).advance)
        records |= {id: catalog.record(catalog.row(id)) for pair in sound_pairs for id in (pair.a, pair.b)}
    groups = group_links(links, records, marks)
    together = {video.id: number for number, group in enumerate(groups) for video in group.videos}
    sound_pairs = [pair for pair in sound_pairs if together.get(pair.a, pair.a) != together.get(pair.b, pair.b)]
    return DuplicateReport(
        groups=groups,
        links=tuple(links),
        records=records,
        videos=int(catalog.described.sum()),
        scored=len(pairs),
        pairs=math.comb(len(keys), 2) - math.comb(len(keys) - len(new), 2),
        marked=marked,
        min_probability=float(limit),
        prior=None if model is None else find_prior(model),
        seconds=time.monotonic() - started,
        sound_pairs=tuple(sound_pairs),
    )


def _find_derivations(links: Sequence[Link], records: Mapping[str, VideoRecord], marks: frozenset[Pair]) -> list[Link]:
    """The links, those within groups with which of the two is an edit of the other, by what the files show.

    Of a large group the most certain links are looked at, as many as make the work grow with its videos only.
    """
    chosen: list[Link] = []
    for group in group_links(links, records, marks):
        ready = {video.id for video in group.videos if video.state == "ready"}
        within = [link for link in group.links if link.kind == "duplicate" and {link.a, link.b} <= ready]
        chosen += within[: _LOOKED_AT * len(group.videos)]

    if not chosen:
        return list(links)

    def look(link: Link) -> Link:
        paths = records[link.a].path, records[link.b].path
        found = find_derivation(*paths, link.segments, speed=link.speed)
        return dataclasses.replace(link, derivation=found)

    found = map_threads(look, chosen, torch.get_num_threads())
    looked_at = {(link.a, link.b): link for link in found}
    return [looked_at.get((link.a, link.b), link) for link in links]


class _Clock:
    """Tells the caller how far a stage is."""

    def __init__(self, stage: Stage, total: int, progress: Progress | None) -> None:
        self._stage, self._total, self._progress = stage, total, progress
        self._started, self._done = time.monotonic(), 0

    def advance(self, count: int) -> None:
        self._done += count
        if self._progress is not None:
            self._progress(DuplicateProgress(self._stage, self._done, self._total, time.monotonic() - self._started))


# --- files of the same bytes -----------------------------------------------------------------------------------------


def _find_new_keys(catalog: Catalog, since: datetime | None) -> set[int]:
    """The keys of contents that were added since, or of all."""
    if since is None:
        return set(catalog.contents.tolist())
    if not isinstance(since, datetime):
        raise ConfigError(f"since must be a datetime, got {since!r}.")
    moment = since.astimezone(timezone.utc).timestamp() * 1e6
    is_new = np.array(catalog.column("added_us"), np.int64) >= moment
    return set(catalog.keys[catalog.described & is_new].tolist())


def _link_identical(catalog: Catalog, new: Iterable[int]) -> Iterator[Link]:
    """Files of the same bytes: each with the first of them."""
    for key in sorted(new):
        rows = catalog.with_key(key)
        if len(rows) < 2:
            continue
        first, *others = _drop_links(catalog.records(rows))
        whole = ((0.0, first.duration), (0.0, first.duration))
        for other in others:
            yield Link(first.id, other.id, "identical", 1.0, None, (1.0, 1.0), whole)


def _drop_links(records: Sequence[VideoRecord]) -> list[VideoRecord]:
    """The records without those that are another name of a file that is there already: a link is no copy."""
    kept: dict[Any, VideoRecord] = {}
    for record in sorted(records, key=lambda record: os.path.islink(record.path)):  # a file before links to it
        try:
            status = os.stat(record.path)
            file: Any = (status.st_dev, status.st_ino) if status.st_ino else os.path.realpath(record.path)
        except (OSError, ValueError):
            file = record.path
        kept.setdefault(file, record)
    return list(kept.values())


# --- pairs that are worth a comparison -------------------------------------------------------------------------------


def _find_pairs(run: Run, asking: Sequence[int], known: set[int], progress: Progress | None) -> set[tuple[int, int]]:
    """Pairs of keys, the smaller first: each of the contents that ask, with its nearest of the known ones."""
    pairs: set[tuple[int, int]] = set()
    clock = _Clock("candidates", len(asking), progress)
    for near in run(_find_neighbours, (asking[at : at + IN_ONE_READ] for at in range(0, len(asking), IN_ONE_READ))):
        for key, found in near.items():
            others = [other for other in found if other != key and other in known][:_MAX_CANDIDATES]
            pairs |= {(min(key, other), max(key, other)) for other in others}
        clock.advance(len(near))
    return pairs


def _find_neighbours(store: Store, _: Callable[[], Model], keys: Sequence[int]) -> dict[int, list[int]]:
    """The keys of contents that are near each of some contents, best first."""

    def find(stored: StoredContent) -> list[int]:
        features = stored.features(store.codec)
        vectors, weights = find_runs(features.regions, features.low_information)
        if len(vectors) > _MAX_RUNS:
            chosen = torch.linspace(0, len(vectors) - 1, _MAX_RUNS).round().long()
            vectors, weights = vectors[chosen], weights[chosen]
        return _choose_alike(*store.find_nearest(vectors, exact=True), weights.numpy()) if len(vectors) else []

    some = list(store.read_contents(keys, batch=IN_ONE_READ, pixels=False))
    # A video is too little for torch to divide: one a thread.
    found = map_threads(find, some, torch.get_num_threads()) if some else []
    return {stored.key: near for stored, near in zip(some, found, strict=True)}


def _choose_alike(
    which: NDArray[np.int64], keys: NDArray[np.int64], similarities: Matrix, weights: Matrix
) -> list[int]:
    """The keys with the most votes, best first, without those that cannot be alike; see `count_votes`.

    A vote counts how much more alike a run is than the last on its list; with that last one added back, and all divided
    by the number of frames, it is a bound of the score that these vectors alone would give.

    >>> _choose_alike(np.array([0, 0, 1, 1]), np.array([7, 8, 7, 9]), np.array([.9, .3, .5, .1], np.float32),
    ...               np.array([1., 1.], np.float32))              # 7: (.9 + .5) / 2; 8: (.3 + .1) / 2 at most
    [7]
    """
    found, counted = count_votes(which, keys, similarities, weights)
    last = np.full(len(weights), np.inf)
    np.minimum.at(last, which, similarities)
    bounds = (counted + float(last @ weights)) / float(weights.sum())
    return [int(key) for key in found[bounds >= _MIN_ALIKE]]


# --- comparing pairs -------------------------------------------------------------------------------------------------


def _link_pairs(
    run: Run, catalog: Catalog, pairs: Sequence[tuple[int, int]], options: LinkOptions, progress: Progress | None
) -> Iterator[tuple[int, int, Link]]:
    """The links among pairs of keys; of copies of one file, the first stands for all."""
    frames = {int(key): int(count) for key, count in zip(catalog.keys, catalog.frames, strict=True)}
    clock = _Clock("pairs", len(pairs), progress)
    for count, links in run(link_block, ((block, options) for block in split_pairs(pairs, frames))):
        yield from links
        clock.advance(count)
