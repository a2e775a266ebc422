"""A search: candidates by votes, exact scores on stored regions, and where the best of them match.

The functions with a `library` first are methods of `Library`, whose arguments and defaults are defined here alone.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from hapvr.audio.description import SoundDescription
from hapvr.decision import KINDS, find_max_probability, find_prior, has_probability, require_prior
from hapvr.errors import ConfigError, DataError, DecodeError
from hapvr.features import Features
from hapvr.judge.judge import Verdict
from hapvr.library.candidates import MAX_COMPARED, count_rough, count_votes, find_runs, max_candidates
from hapvr.library.close_reading import MAX_READ, read_closely
from hapvr.library.cluster_work import Run, score_shards
from hapvr.library.filters import VideoFilter, find_allowed
from hapvr.library.opening import OpenLibrary
from hapvr.library.queries import Query, read_query
from hapvr.library.results import Hit, SearchResult, display_path
from hapvr.library.shared_file import read_shared_footage
from hapvr.library.shared_matching import match_beyond_shared
from hapvr.library.sound import match_sounds, read_sound_query
from hapvr.library.store import Store
from hapvr.library.stored_scores import (
    RegionCache,
    is_unchanged,
    match_contents,
    require_dims,
    score_contents,
)
from hapvr.library.tables import Catalog
from hapvr.matching import Match, VideoDescription, add_sound, choose_best, match_videos
from hapvr.model import Model
from hapvr.storage import StrPath
from hapvr.workers.threads import one_torch_thread

_EVERY = 3  # frames, of which one counts in a rough score
_STAGES = ("decode", "candidates", "score", "segments")
_CACHE_BYTES = 64 * 2**20  # of stored videos that are kept from the rough score to the exact one
_MAX_ROUGH = 2_000  # videos that a filter leaves, all of which have a rough score
_ALL_FLAT = (
    "The query has no informative frames: all of them are flat (black, or of one colour). There is nothing to look for."
)


def search_library(
    library: OpenLibrary,
    query: StrPath | Features | Query,
    *,
    start_s: float | None = None,
    end_s: float | None = None,
    k: int = 10,
    min_probability: float | None = None,
    exact: bool = False,
    max_compared: int = MAX_COMPARED,
    prior: float | None = None,
    second_look: bool = True,
    ignore_shared: bool = True,
    filter: VideoFilter | None = None,
    cache: RegionCache | None = None,
    cluster: Run | None = None,
) -> SearchResult:
    """Find the videos that show what the query shows: matches first, the most probable first, then the nearest others.

    `SearchResult.matches` are the matches alone.

    Candidates are found by their frames' vectors; those with the best rough scores are compared exactly with the
    stored regions, at most 5% of the library (10 at least) and `max_compared` videos; nothing else can be a hit.
    Flat and repeated frames neither vote nor count; a query of nothing else has no hits, and a note that says so.
    Score and probability of a hit are those of `compare`, whatever else the library holds; but footage that many of
    its videos share, such as an end card, makes no match. If the file of a query shows another video in a window, that
    is looked for too (`Hit.inset`); windows in the library's own videos are not.

    Args:
        library: an open one.
        query: the path of a video or picture, the id of an indexed one (which is then no hit itself), features, or a
            `Query` of a file that was read already.
        start_s: seconds; what lies before is left out.
        end_s: seconds; what lies from there on is left out.
        k: hits at most.
        min_probability: hits with a lower probability of a copy are left out.
        exact: compare with everything. The work then grows with the library, the memory it takes does not.
        max_compared: videos that are compared exactly at most, unless `exact`; as many again for a video in a window.
        prior: probability of a copy before the comparison; the judge's own if None.
        second_look: compare a few instants of undecided hits at full size, if the files are at hand.
        ignore_shared: footage that many videos of the library share makes no match (see
            `hapvr.library.shared_footage`); False keeps such matches. Their stretches are marked in any case.
        filter: only videos that it allows are searched: by folder, size, length and date.
        cache: stored videos that are kept in memory from one search to the next; the hits are the same without it.
        cluster: of `hapvr.library.cluster_work.use_cluster`: its nodes compute the exact scores; with `exact` alone.

    Raises:
        DecodeError: the query's file cannot be read.
        DataError: there is no such id, or no frame in that part of the query.
    """
    require_search_options(k, max_compared, exact, start_s, end_s, min_probability)
    if cluster is not None and not exact:
        raise ConfigError("A cluster compares with every video: use exact=True with it.")
    store, model = library.store, library.model
    laps = [time.perf_counter()]
    if min_probability is not None and not has_probability(model):
        raise ConfigError(
            f"The model '{display_path(model.name)}' has no judge and no calibration: its hits have no probability. "
            f"Fit one on the library's own videos: hapvr calibrate {display_path(store.library)}"
        )
    require_prior(prior, model)
    prior = find_prior(model) if prior is None else prior
    cache = cache or RegionCache(_CACHE_BYTES, only_stored=True)
    if not exact:
        store.candidates.connect()  # before time is spent on the query
    asked = read_query(store, model, query, start_s=start_s, end_s=end_s, cache=cache)
    laps.append(time.perf_counter())
    catalog = store.catalog()
    cache.drop_removed(catalog)
    allowed = find_allowed(catalog, filter)
    own = {catalog.row(asked.id)} if asked.id is not None else set()
    database = int(catalog.described.sum()) - len(own) if allowed is None else len(allowed - own)
    if asked.features.all_flat:
        nothing = SearchResult((), database, 0, _measure_stages(laps), _ALL_FLAT, prior, asked.all_warnings)
        return _add_sound(store, nothing, query, asked, allowed, k=k, start_s=start_s, end_s=end_s)
    with one_torch_thread() as threads:
        count = None if exact else max_candidates(database, k=k, max_compared=max_compared)
        choose = partial(_choose_contents, store, model, count=count, cache=cache, threads=threads, allowed=allowed)
        keys = np.unique(np.concatenate([choose(view) for view in asked.views])).tolist()
        laps.append(time.perf_counter())
        scores: dict[int, float] = {}
        compared = 0
        for view in asked.views:
            if cluster is not None:  # one more, since the query's own video may be among the best
                found, compared = score_shards(cluster, view.features, keys, count=k + 1)
            else:
                found = score_contents(store, model, view.features, keys, cache=cache, threads=threads)
                compared = len(found)
            scores |= {key: max(score, scores.get(key, score)) for key, score in found.items()}
        laps.append(time.perf_counter())
        rows = [row for key in scores for row in catalog.with_key(key) if catalog.ids[row] != asked.id]
        if allowed is not None:
            rows = [row for row in rows if row in allowed]
        rows = sorted(rows, key=lambda row: (-scores[int(catalog.keys[row])], catalog.paths[row]))[:k]
        match = partial(match_beyond_shared, ignore_shared=ignore_shared, prior=prior, second_look=second_look)
        matches = _match_rows(store, model, asked, catalog, rows, match, cache, threads)
    hits = []
    for record, row in zip(catalog.records(rows), rows, strict=True):
        best = matches.get(int(catalog.keys[row]))  # None if it was removed meanwhile
        if best is not None and _is_likely(best.verdict, min_probability):
            facts = best.score, best.verdict, best.segments, best.best, record.warnings
            hits.append(Hit(record.id, record.path, *facts, inset=best.query.inset))
    hits.sort(key=_rank)
    laps.append(time.perf_counter())
    note = None if hits else _explain_no_hit(model, min_probability, prior)
    result = SearchResult(tuple(hits), database, compared, _measure_stages(laps), note, prior, asked.all_warnings)
    return _add_sound(store, result, query, asked, allowed, k=k, start_s=start_s, end_s=end_s)


def _match_rows(
    store: Store,
    model: Model,
    asked: Query,
    catalog: Catalog,
    rows: Sequence[int],
    match: Callable[..., Match],
    cache: RegionCache,
    threads: int,
) -> dict[int, Match]:
    """Where the contents of some rows match the query or what it shows in a window, by key.

    `match` is `match_beyond_shared` with its options. Of a library of key frames, the best are read closely before.
    """
    footage = read_shared_footage(store)
    views = [(view.describe(model), footage.find_frames(view.features)) for view in asked.views]
    near = {catalog.record(row).path for row in rows[:MAX_READ]} if store.settings.keyframes else ()

    def compare(target: VideoDescription) -> Match:
        found = []
        for view, own_frames in views:
            seen = read_closely(view, target, model) if target.path in near else target
            frames = own_frames, footage.find_frames(seen.features)
            found.append(match(view, seen, model=model, footage=footage, frames=frames))
        return choose_best(found)

    keys = list(dict.fromkeys(int(catalog.keys[row]) for row in rows))
    return match_contents(store, model, keys, compare, cache=cache, threads=threads)


def _add_sound(
    store: Store,
    result: SearchResult,
    given: StrPath | Features | Query,
    asked: Query,
    allowed: Collection[int] | None,
    *,
    k: int,
    start_s: float | None,
    end_s: float | None,
) -> SearchResult:
    """The result with what the sound says of its hits, and with videos of the same sound and other pictures.

    Verdicts and probabilities are those of the pictures, as they were. Nothing changes in a library without sound, nor
    for a query whose sound cannot be had here.
    """
    if not store.sounds.exists or not _can_read_sound(given):
        return result
    sound = _read_sound(store, given, start_s=start_s, end_s=end_s)
    matches, catalog = match_sounds(store, sound), store.catalog()
    hits = tuple(
        dataclasses.replace(hit, sound=matches.find(int(catalog.keys[catalog.row(hit.id)])))
        for hit in result.hits
        if hit.id in catalog
    )
    seen = {hit.id for hit in hits if hit.verdict.match} | {asked.id}
    others = matches.list_hits(catalog, allowed, without=seen, picture="other")
    warnings = result.warnings if matches.warning is None else (*result.warnings, f"The sound: {matches.warning}")
    return dataclasses.replace(result, hits=hits, sound_hits=tuple(others[:k]), warnings=warnings)


def explain_hits(
    library: OpenLibrary,
    query: StrPath,
    result: SearchResult,
    *,
    start_s: float | None = None,
    end_s: float | None = None,
) -> tuple[list[Match], list[str]]:
    """The hits of a search with frame matrices and pictures, and a sentence about each hit that cannot be shown.

    Scores, verdicts and segments are those of the hits; only pictures come from files. Query, start_s and end_s must be
    those of the search.
    """
    store, model = library.store, library.model
    asked = read_query(store, model, query, start_s=start_s, end_s=end_s)
    videos = {view.inset: view.describe(model) for view in asked.views}
    catalog = store.catalog()
    matches, missing = [], []
    for hit in result.hits:
        if is_unchanged(catalog.record(catalog.row(hit.id))):
            target = read_query(store, model, hit.id).describe(model)
            match = match_videos(
                videos.get(hit.inset, videos[None]), target, model=model, prior=result.prior, second_look=False
            )
            matches.append(dataclasses.replace(match, score=hit.score, verdict=hit.verdict, segments=hit.segments))
        else:
            missing.append(
                f"'{display_path(hit.path)}' (score {hit.score:.3f}) cannot be shown: it is gone, or has changed."
            )
    return matches, missing


def compare_videos(
    library: OpenLibrary,
    a: StrPath | Features | Query,
    b: StrPath | Features | Query,
    *,
    prior: float | None = None,
    second_look: bool = True,
    ignore_shared: bool = True,
    sound: bool = False,
) -> Match:
    """Compare two videos as a search does: how much of `a` is found in `b`, and where.

    The answer is that of `hapvr.compare` but for two things: of a video that is in the library what is stored counts,
    and footage that many videos of the library share makes no match. Pictures of the answer are read from the files;
    features have none, and give black pixels.

    Args:
        library: an open one.
        a: the id of an indexed video, the path of a video or picture, features, or a `Query` that was read already.
        b: the same.
        prior: probability of a copy before the comparison; the judge's own if None.
        second_look: compare a few instants at full size if the verdict is undecided and the files are at hand.
        ignore_shared: as in `search`.
        sound: compare their sound too, for `Match.sound`: as it is stored, or read from the files.

    Raises:
        DataError: there is no such id or file, or it failed when it was added; or features have no frames.
        DecodeError: a file cannot be read.
    """
    model = library.model
    require_prior(prior, model)
    read = [read_query(library.store, model, one) for one in (a, b)]
    views = [[view.describe(model) for view in one.views] for one in read]
    footage = read_shared_footage(library.store)
    match = choose_best(
        match_beyond_shared(
            query,
            target,
            model=model,
            footage=footage,
            ignore_shared=ignore_shared,
            prior=prior,
            second_look=second_look,
        )
        for query, target in itertools.product(*views)
    )
    if not sound:
        return match
    return add_sound(match, *(_read_sound(library.store, one) for one in (a, b)))


def _can_read_sound(given: StrPath | Features | Query) -> bool:
    """Whether the sound of a query was read, or may be read here: the file of a stranger is opened elsewhere."""
    if isinstance(given, Query):
        return given.sound is not None or (given.at_hand and given.look is None)
    return not isinstance(given, Features)


def _read_sound(store: Store, given: StrPath | Features | Query, **part: float | None) -> SoundDescription:
    """The sound of one side of a comparison; "failed" if it cannot be read."""
    if isinstance(given, Features) or not _can_read_sound(given):
        return SoundDescription("failed")
    if isinstance(given, Query) and given.sound is not None:
        return given.sound
    try:
        return read_sound_query(store, given.path if isinstance(given, Query) else given, **part)
    except (DataError, DecodeError) as error:
        return SoundDescription("failed", warning=str(error))


def require_search_options(
    k: int,
    max_compared: int = MAX_COMPARED,
    exact: bool = False,
    start_s: float | None = None,
    end_s: float | None = None,
    min_probability: float | None = None,
) -> None:
    """Raise `ConfigError` for options that are out of range or contradict each other."""
    for name, number in (("k", k), ("max_compared", max_compared)):
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise ConfigError(f"{name} must be a whole number of at least 1, got {number!r}.")
    if k > max_compared and not exact:
        raise ConfigError(
            f"{k} hits are more than the {max_compared} videos that are compared exactly: use exact=True."
        )
    for name, value in (("start_s", start_s), ("end_s", end_s)):
        if value is not None and not 0 <= value < math.inf:
            raise ConfigError(f"{name} must be seconds of at least 0, got {value!r}.")
    if end_s is not None and end_s <= (start_s or 0.0):
        raise ConfigError(f"end_s must come after start_s; got {start_s or 0.0:g} to {end_s:g} s.")
    if min_probability is not None and not 0 <= min_probability <= 1:
        raise ConfigError(f"min_probability must lie in 0..1, got {min_probability!r}.")


def _choose_contents(
    store: Store,
    model: Model,
    query: Query,
    count: int | None,
    cache: RegionCache,
    threads: int,
    allowed: Collection[int] | None,
) -> NDArray[np.int64]:
    """The keys of at most `count` contents of the allowed rows that are compared exactly; all if None."""
    require_dims(query.features, store)
    catalog = store.catalog()
    keys = catalog.contents if allowed is None else np.unique(catalog.keys[sorted(allowed)])
    # Frames vote for all videos. Where a filter leaves few of them, most votes would go to others.
    voting = allowed is None or len(keys) > min(_MAX_ROUGH, len(catalog.contents) // 2)
    if count is not None and len(keys) > count and voting:
        vectors, weights = find_runs(query.features.regions, query.features.low_information)
        if len(vectors) == 0:
            raise DataError(
                "The query has no frame that can be looked for: every region vector is zero. Use exact=True."
            )
        found, _ = count_votes(*store.find_nearest(vectors), weights.numpy())
        found = found[: count_rough(count)]
        keys = found[np.isin(found, keys)]
    if query.id is not None:
        own = int(catalog.keys[catalog.row(query.id)])
        keys = keys if len(catalog.with_key(own)) > 1 else keys[keys != own]
    if count is not None and len(keys) > count:
        rough = score_contents(store, model, query.features, keys.tolist(), every=_EVERY, cache=cache, threads=threads)
        keys = np.array(sorted(rough, key=lambda key: (-rough[key], key))[:count], np.int64)
    return keys


def _rank(hit: Hit) -> tuple[float, ...]:
    """Copies come first, the most probable first, by the score where probabilities are the same to a percent."""
    sure = hit.probability if hit.verdict.match and hit.probability is not None else 0.0
    return -KINDS.index(hit.verdict.kind), -round(sure, 2), -hit.score


def _is_likely(verdict: Verdict, min_probability: float | None) -> bool:
    return min_probability is None or (verdict.probability is not None and verdict.probability >= min_probability)


def _explain_no_hit(model: Model, min_probability: float | None, prior: float | None) -> str | None:
    """That no hit could be as likely as that, if that is so."""
    if min_probability is None or (highest := find_max_probability(model, prior)) >= min_probability:
        return None
    return (
        f"No hit can have a probability of {min_probability:g}: the videos that the judge was fitted on speak for no "
        f"more than {highest:.3f}. Ask for less."
    )


def _measure_stages(laps: list[float]) -> dict[str, float]:
    """Seconds of each stage between these times; 0 of those that were not reached."""
    laps = laps + laps[-1:] * (len(_STAGES) + 1 - len(laps))
    return {name: end - start for name, start, end in zip(_STAGES, laps, laps[1:], strict=False)}
