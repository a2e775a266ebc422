"""A search: candidates by votes, exact scores on stored regions, and where the best of them match."""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hapvr.errors import ConfigError
from hapvr.features import Features
from hapvr.library.candidates import find_candidates, max_candidates
from hapvr.library.library_calibration import require_calibration
from hapvr.library.queries import Query, is_unchanged, read_query
from hapvr.library.region_cache import RegionCache
from hapvr.library.results import Hit, SearchResult, display_path
from hapvr.library.run_vectors import find_runs
from hapvr.library.store import Store
from hapvr.library.stored_scores import match_contents, require_dims, score_contents
from hapvr.library.tables import NO_KEY
from hapvr.matching import Match, Verdict, match_videos, require_prior
from hapvr.model import Model

LIMIT = 200
# On the benchmark that the settings of `candidates` were chosen on, with the best 4 of 301 videos compared exactly, a
# rough score of four times as many raises mAP from 91.1 to 92.5; comparing with everything gives 92.7.
WIDER = 4  # times as many videos as are compared exactly have a rough score
EVERY = 3  # frames, of which one counts in it
_CACHE_BYTES = 64 * 2**20  # of stored videos that are kept from the rough score to the exact one
NOTHING_TO_LOOK_FOR = (
    "The query has no informative frames: all of them are flat (black, or of one colour). There is nothing to look for."
)


@dataclass(frozen=True)
class SearchOptions:
    """The arguments of `Library.search`, which has their defaults; `ConfigError` where they contradict each other."""

    start: float | None
    end: float | None
    k: int
    min_probability: float | None
    exact: bool
    limit: int
    prior: float | None

    def __post_init__(self) -> None:
        for name in ("k", "limit"):
            number = getattr(self, name)
            if not isinstance(number, int) or isinstance(number, bool) or number < 1:
                raise ConfigError(f"{name} must be a whole number of at least 1, got {number!r}.")
        if self.k > self.limit and not self.exact:
            raise ConfigError(
                f"{self.k} hits are more than the {self.limit} videos that are compared exactly: use exact=True."
            )
        for name in ("start", "end"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise ConfigError(f"{name} must be seconds of at least 0, got {value!r}.")
        if self.end is not None and self.end <= (self.start or 0.0):
            raise ConfigError(f"end must come after start; got {self.start or 0.0:g} to {self.end:g} s.")
        if self.min_probability is not None and not 0 <= self.min_probability <= 1:
            raise ConfigError(f"min_probability must lie in 0..1, got {self.min_probability!r}.")


def search(
    store: Store,
    model: Model,
    query: str | os.PathLike[str] | Features,
    options: SearchOptions,
    cache: RegionCache | None = None,
) -> SearchResult:
    """The videos of a library that show what the query shows, best first; see `Library.search`."""
    clock = _Clock()
    if options.min_probability is not None:
        require_calibration(model, store.library)
    require_prior(options.prior, model)
    prior = options.prior
    if model.calibration is not None and prior is None:
        prior = model.calibration.prior
    cache = cache or RegionCache(_CACHE_BYTES, only_stored=True)
    read = read_query(store, model, query, start=options.start, end=options.end, cache=cache)
    clock.lap("decode")
    catalog = store.catalog()
    database = int((catalog.keys != NO_KEY).sum()) - (read.id is not None)
    if read.features.all_flat:
        for name in ("candidates", "score", "segments"):
            clock.lap(name)
        return SearchResult((), database, 0, clock.seconds, NOTHING_TO_LOOK_FOR, prior, read.all_warnings)
    keys = _choose_contents(store, model, read, database, options, cache)
    clock.lap("candidates")
    scores = score_contents(store, model, read.features, keys.tolist(), cache=cache)
    clock.lap("score")
    rows = [row for key in scores for row in catalog.with_key(key) if catalog.ids[row] != read.id]
    rows.sort(key=lambda row: (-scores[int(catalog.keys[row])], catalog.paths[row]))
    rows = rows[: options.k]
    best = list(dict.fromkeys(int(catalog.keys[row]) for row in rows))
    matches = match_contents(store, model, read.side(model), best, prior=prior, cache=cache)
    hits = []
    for record, row in zip(catalog.records(rows), rows, strict=True):
        found = matches.get(int(catalog.keys[row]))  # None if it was removed meanwhile
        if found is not None and _is_likely(found.verdict, options.min_probability):
            hits.append(
                Hit(record.id, record.path, found.score, found.verdict, found.segments, found.best, record.warnings)
            )
    hits.sort(key=lambda hit: -hit.score)
    clock.lap("segments")
    note = None if hits else _explain_no_hit(model, options.min_probability, prior)
    return SearchResult(tuple(hits), database, len(scores), clock.seconds, note, prior, read.all_warnings)


def _choose_contents(
    store: Store, model: Model, query: Query, database: int, options: SearchOptions, cache: RegionCache
) -> NDArray[np.int64]:
    """The keys of the contents that are compared exactly."""
    require_dims(query.features, store)
    catalog = store.catalog()
    keys: NDArray[np.int64] = np.unique(catalog.keys[catalog.keys != NO_KEY])
    count = max_candidates(database, k=options.k, limit=options.limit)
    if not options.exact and len(keys) > count:
        votes = find_runs(query.features.regions, query.features.low_information)
        found = find_candidates(store, *votes, max_keys=min(WIDER * count, count + LIMIT))
        keys = found[np.isin(found, keys)]
    if query.id is not None:
        own = int(catalog.keys[catalog.row(query.id)])
        keys = keys if len(catalog.with_key(own)) > 1 else keys[keys != own]
    if not options.exact and len(keys) > count:
        rough = score_contents(store, model, query.features, keys.tolist(), every=EVERY, cache=cache)
        keys = np.array(sorted(rough, key=lambda key: (-rough[key], key))[:count], np.int64)
    return keys


def _is_likely(verdict: Verdict, min_probability: float | None) -> bool:
    if min_probability is None:
        return True
    return verdict.aligned and verdict.probability is not None and verdict.probability >= min_probability


def _explain_no_hit(model: Model, min_probability: float | None, prior: float | None) -> str | None:
    """That no hit could be as likely as that, if so."""
    if min_probability is None or model.calibration is None:
        return None
    highest = model.calibration.probability(1.0, prior=prior)
    if highest >= min_probability:
        return None
    return (
        f"No hit can have a probability of {min_probability:g}: the videos that the calibration was fitted on "
        f"speak for no more than {highest:.3f}. Ask for less."
    )


class _Clock:
    """Seconds since the lap before."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name] = now - self._last
        self._last = now


def explain_hits(
    store: Store,
    model: Model,
    query: str | os.PathLike[str],
    result: SearchResult,
    *,
    start: float | None,
    end: float | None,
) -> tuple[list[Match], list[str]]:
    """The hits of a search as matches that can be shown, and which cannot; see `Library.explain_hits`."""
    side = read_query(store, model, query, start=start, end=end).side(model)
    catalog = store.catalog()
    matches, missing = [], []
    for hit in result.hits:
        if is_unchanged(catalog.record(catalog.row(hit.id))):
            target = read_query(store, model, hit.id).side(model)
            matches.append(match_videos(side, target, model=model, prior=result.prior))
        else:
            missing.append(
                f"'{display_path(hit.path)}' (score {hit.score:.3f}) cannot be shown: it is gone, or has changed."
            )
    return matches, missing
