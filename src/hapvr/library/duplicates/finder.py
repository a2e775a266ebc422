"""What a library holds twice: near-duplicates, clips that are part of others, and parts that two videos share.

Files of the same bytes are known by their hashes. Of all other contents, each asks for those whose frame vectors are
nearest, as a search does; only such pairs are compared, so that the work grows with the number of videos and not with
that of pairs. A pair is a link if its strength, how similar its frames are times how many of them are in step (see
`alignment`), reaches the threshold: by region vectors, or by pixels (see `pixels`). What of both videos it covers then
says what kind of link it is.

Duplicates form groups. Clips do not: two different clips of one compilation would end in one group with it. Their links
stand beside the groups. Nothing is ever deleted; the copy to keep is a suggestion.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timezone
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hapvr.errors import ConfigError
from hapvr.library.candidates import count_votes, find_nearest
from hapvr.library.duplicates.links import compared
from hapvr.library.duplicates.marks import make_pair, read_marks
from hapvr.library.duplicates.report import Clock, DuplicateProgress, DuplicateReport, Link, group_links
from hapvr.library.results import VideoRecord
from hapvr.library.run_vectors import find_runs
from hapvr.library.store import Store
from hapvr.library.tables import NO_KEY, Catalog, Stored
from hapvr.model import Model
from hapvr.workers.threads import map_threads

THRESHOLD = 0.28
"""Strength from which on a pair is a link. Of 5,700 candidate pairs among real videos that settings are chosen on (the
same road driven twice, exercises on one mat before one camera) the strongest that shows different footage has 0.258; of
drawn films, whose shots are few and alike, 0.212."""
CANDIDATES = 20
"""Contents that each one is compared with at most."""


def find_duplicates(
    store: Store,
    load_model: Callable[[], Model],
    *,
    threshold: float | None = None,
    since: datetime | None = None,
    max_candidates: int = CANDIDATES,
    progress: Callable[[DuplicateProgress], None] | None = None,
) -> DuplicateReport:
    """Find what a library holds twice.

    Args:
        store: the tables of the library.
        load_model: gives the model it was made with; called if there is anything to compare.
        threshold: strength of a link, above 0 and at most 1; `THRESHOLD` if None. Higher is stricter.
        since: only what was added at or after this time, against everything; a time without a zone is local.
        max_candidates: contents that each one is compared with at most.
        progress: called now and then.
    """
    limit = THRESHOLD if threshold is None else threshold
    if not isinstance(limit, int | float) or isinstance(limit, bool) or not 0 < limit <= 1:
        raise ConfigError(f"threshold must be a number above 0 and at most 1, got {threshold!r}.")
    if not isinstance(max_candidates, int) or isinstance(max_candidates, bool) or max_candidates < 1:
        raise ConfigError(f"max_candidates must be a whole number of at least 1, got {max_candidates!r}.")
    begun = time.monotonic()
    catalog = store.catalog()
    marks = read_marks(store.library)
    new = new_keys(catalog, since)
    keys = np.unique(catalog.keys[catalog.keys != NO_KEY]).tolist()
    pairs = sorted(find_pairs(store, [key for key in keys if key in new], set(keys), max_candidates, progress))
    found = list(identical(catalog, new))
    marked = 0
    hashes = _hashes(catalog)
    if progress is not None:
        progress(DuplicateProgress("pairs", 0, len(pairs), 0.0))  # the model is loaded first, which takes a while
    model = load_model() if pairs else None
    for one, other, link in compared(store, model, catalog, pairs, float(limit), progress):
        if make_pair(hashes[one], hashes[other]) in marks:
            marked += 1
        else:
            found.append(link)
    records = {id: catalog.record(catalog.row(id)) for link in found for id in (link.a, link.b)}
    links = sorted(found, key=lambda link: (-link.strength, records[link.a].path, records[link.b].path))
    old = len(keys) - len(new)
    return DuplicateReport(
        groups=group_links(links, records, marks),
        links=tuple(links),
        records=records,
        videos=int((catalog.keys != NO_KEY).sum()),
        scored=len(pairs),
        pairs=math.comb(len(keys), 2) - math.comb(old, 2),
        marked=marked,
        threshold=float(limit),
        prior=None if model is None or model.calibration is None else model.calibration.prior,
        seconds=time.monotonic() - begun,
    )


def _hashes(catalog: Catalog) -> dict[int, str]:
    return {int(key): hash for key, hash in zip(catalog.keys, catalog.column("content_hash"), strict=True)}


_RUNS = 64  # of a video that ask for neighbours; of a longer one so many, spread over it
_LEAST_ALIKE = 0.25  # of run vectors; copies that only their pixels tell may have little more
_IN_ONE_READ = 64  # contents


def new_keys(catalog: Catalog, since: datetime | None) -> set[int]:
    """The keys of contents that were added since, or of all."""
    if since is None:
        return set(catalog.keys[catalog.keys != NO_KEY].tolist())
    if not isinstance(since, datetime):
        raise ConfigError(f"since must be a datetime, got {since!r}.")
    moment = since.astimezone(timezone.utc).timestamp() * 1e6
    added = catalog.column("added_us")
    return {int(key) for key, when in zip(catalog.keys, added, strict=True) if key != NO_KEY and when >= moment}


def find_pairs(
    store: Store,
    asking: Sequence[int],
    known: set[int],
    most: int,
    progress: Callable[[DuplicateProgress], None] | None,
) -> set[tuple[int, int]]:
    """Pairs of keys, the smaller first, that are worth a comparison."""
    pairs: set[tuple[int, int]] = set()
    clock = Clock("candidates", len(asking), progress)

    def neighbours(stored: Stored) -> list[int]:
        vectors, weights = _asking(stored, store)
        return _worthwhile(*find_nearest(store, vectors, exact=True), weights.numpy()) if len(vectors) else []

    found = store.stored(asking, batch=_IN_ONE_READ, pixels=False)
    while some := list(islice(found, _IN_ONE_READ)):
        # A video is too little for torch to divide: one a thread.
        for stored, near in zip(some, map_threads(neighbours, some, torch.get_num_threads()), strict=True):
            others = [key for key in near if key != stored.key and key in known][:most]
            pairs |= {(min(stored.key, key), max(stored.key, key)) for key in others}
        clock.advance(len(some))
    return pairs


def _asking(stored: Stored, store: Store) -> tuple[Tensor, Tensor]:
    """The runs of a content that ask for neighbours: their vectors [F, C], and the frames of each, [F]."""
    features = stored.features(store.codec)
    vectors, weights = find_runs(features.regions, features.low_information)
    if len(vectors) <= _RUNS:
        return vectors, weights
    chosen = torch.linspace(0, len(vectors) - 1, _RUNS).round().long()
    return vectors[chosen], weights[chosen]


def _worthwhile(
    which: NDArray[np.int64],
    keys: NDArray[np.int64],
    similarities: NDArray[np.float32],
    weights: NDArray[np.float32],
) -> list[int]:
    """The keys with the most votes, best first, without those that cannot be alike.

    A vote counts how much more alike a run is than the last on its list; with that last one added back, and all divided
    by the number of frames, it is a bound of the score that these vectors alone would give.

    >>> _worthwhile(np.array([0, 0, 1, 1]), np.array([7, 8, 7, 9]), np.array([.9, .3, .5, .1], np.float32),
    ...             np.array([1., 1.], np.float32))                # 7: (.9 + .5) / 2; 8: (.3 + .1) / 2 at most
    [7]
    """
    found, counted = count_votes(which, keys, similarities, weights)
    last = np.full(len(weights), np.inf)
    np.minimum.at(last, which, similarities)
    bounds = (counted + float(last @ weights)) / float(weights.sum())
    return [int(key) for key in found[bounds >= _LEAST_ALIKE]]


# --- the same bytes ---------------------------------------------------------------------------------------------------


def identical(catalog: Catalog, new: Iterable[int]) -> Iterator[Link]:
    """Files of the same bytes: each with the first of them."""
    for key in sorted(new):
        rows = catalog.with_key(key)
        if len(rows) < 2:
            continue
        first, *others = _apart_on_disk(catalog.records(rows))
        whole = ((0.0, first.duration), (0.0, first.duration))
        for other in others:
            yield Link(
                first.id, other.id, "identical", 1.0, 1.0, (1.0, 1.0), None, 1.0, (1.0, 1.0), whole, evidence="bytes"
            )


def _apart_on_disk(records: Sequence[VideoRecord]) -> list[VideoRecord]:
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
