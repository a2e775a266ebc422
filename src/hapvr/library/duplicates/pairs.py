"""Which pairs of contents are worth a comparison: those whose frame vectors are near; and files of the same bytes."""

from __future__ import annotations

import os
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
from hapvr.library.duplicates.reports import Clock, DuplicateProgress, Link
from hapvr.library.records import VideoRecord
from hapvr.library.run_vectors import find_runs
from hapvr.library.store import Store
from hapvr.library.tables import NO_KEY, Catalogue, Stored
from hapvr.workers.threads import map_threads

_RUNS = 64  # of a video that ask for neighbours; of a longer one so many, spread over it
_LEAST_ALIKE = 0.25  # of run vectors; copies that only their pixels tell may have little more
_IN_ONE_READ = 64  # contents


def new_keys(catalogue: Catalogue, since: datetime | None) -> set[int]:
    """The keys of contents that were added since, or of all."""
    if since is None:
        return set(catalogue.keys[catalogue.keys != NO_KEY].tolist())
    if not isinstance(since, datetime):
        raise ConfigError(f"since must be a datetime, got {since!r}.")
    moment = since.astimezone(timezone.utc).timestamp() * 1e6
    added = catalogue.column("added_us")
    return {int(key) for key, when in zip(catalogue.keys, added, strict=True) if key != NO_KEY and when >= moment}


def candidate_pairs(
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


def identical(catalogue: Catalogue, new: Iterable[int]) -> Iterator[Link]:
    """Files of the same bytes: each with the first of them."""
    for key in sorted(new):
        rows = catalogue.with_key(key)
        if len(rows) < 2:
            continue
        first, *others = _apart_on_disk(catalogue.records(rows))
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
