"""Duplicates in a library: near-duplicates, clips that are part of others, and parts that two videos share.

Files of the same bytes are known by their hashes. Of all other contents, each asks for those whose frame vectors are
nearest, as a search does; only such pairs are compared, so that the work grows with the number of videos and not with
that of pairs. Each pair is compared by region vectors and by pixels. It is a link if its strength by either, how
similar its frames are times how many of them are in step (see `judge.alignment`), reaches `min_strength`. What it
covers of both videos says what kind of link it is.

Duplicates form groups. Clips do not: two different clips of one compilation would end in one group with it. Their links
stand beside the groups. Nothing is ever deleted; the copy to keep is a suggestion.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hapvr.errors import ConfigError
from hapvr.features.extractor import fast_dtype
from hapvr.judge.alignment import Alignment, Interval, align, correlate, make_pixel_views, measure_likeness
from hapvr.library.candidates import count_votes, find_runs
from hapvr.library.duplicate_report import (
    DuplicateProgress,
    DuplicateReport,
    Evidence,
    Kind,
    Link,
    Stage,
    group_links,
    make_pair,
    read_marks,
)
from hapvr.library.results import VideoRecord
from hapvr.library.store import Store
from hapvr.library.tables import Catalog, StoredContent
from hapvr.matching import VideoDescription, describe_features, match_videos
from hapvr.model import Model
from hapvr.similarity.network import Descriptors
from hapvr.similarity.segments import frame_edges
from hapvr.workers.threads import map_threads, torch_thread_pool

Progress = Callable[[DuplicateProgress], None]
Matrix = NDArray[np.float32]

MIN_STRENGTH = 0.28
"""Strength from which on a pair is a link. Of 5,700 candidate pairs among real videos that settings are chosen on (the
same road driven twice, exercises on one mat before one camera) the strongest that shows different footage has 0.258; of
drawn films, whose shots are few and alike, 0.212."""
_MAX_CANDIDATES = 20  # contents that each one is compared with
_MAX_RUNS = 64  # of a video that ask for neighbours; of a longer one as many, spread over it
_MIN_ALIKE = 0.25  # of run vectors; copies that only their pixels tell may have little more
_IN_ONE_READ = 64  # contents


def find_duplicates(
    store: Store,
    load_model: Callable[[], Model],
    *,
    min_strength: float | None = None,
    since: datetime | None = None,
    progress: Progress | None = None,
) -> DuplicateReport:
    """Find the duplicates in a library; see `Library.find_duplicates`.

    `load_model` gives the model that the library was made with; it is called if there is anything to compare.
    """
    limit = MIN_STRENGTH if min_strength is None else min_strength
    if not isinstance(limit, int | float) or isinstance(limit, bool) or not 0 < limit <= 1:
        raise ConfigError(f"min_strength must be a number above 0 and at most 1, got {min_strength!r}.")
    started = time.monotonic()
    catalog = store.catalog()
    marks = read_marks(store.library)
    new = _find_new_keys(catalog, since)
    keys = catalog.contents.tolist()
    pairs = sorted(_find_pairs(store, [key for key in keys if key in new], set(keys), progress))
    found = list(_link_identical(catalog, new))
    marked = 0
    hashes = {int(key): hash for key, hash in zip(catalog.keys, catalog.column("content_hash"), strict=True)}
    if progress is not None:
        progress(DuplicateProgress("pairs", 0, len(pairs), 0.0))  # the model is loaded first, which takes a while
    model = load_model() if pairs else None
    if model is not None:
        for one, other, link in _link_pairs(store, model, catalog, pairs, float(limit), progress):
            if make_pair(hashes[one], hashes[other]) in marks:
                marked += 1
            else:
                found.append(link)
    records = {id: catalog.record(catalog.row(id)) for link in found for id in (link.a, link.b)}
    links = sorted(found, key=lambda link: (-link.strength, records[link.a].path, records[link.b].path))
    return DuplicateReport(
        groups=group_links(links, records, marks),
        links=tuple(links),
        records=records,
        videos=int(catalog.described.sum()),
        scored=len(pairs),
        pairs=math.comb(len(keys), 2) - math.comb(len(keys) - len(new), 2),
        marked=marked,
        min_strength=float(limit),
        prior=None if model is None or model.calibration is None else model.calibration.prior,
        seconds=time.monotonic() - started,
    )


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
            yield Link(
                first.id, other.id, "identical", 1.0, 1.0, (1.0, 1.0), None, 1.0, (1.0, 1.0), whole, evidence="bytes"
            )


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


def _find_pairs(
    store: Store, asking: Sequence[int], known: set[int], progress: Progress | None
) -> set[tuple[int, int]]:
    """Pairs of keys, the smaller first: each of the contents that ask, with its nearest of the known ones."""
    pairs: set[tuple[int, int]] = set()
    clock = _Clock("candidates", len(asking), progress)

    def find_neighbours(stored: StoredContent) -> list[int]:
        features = stored.features(store.codec)
        vectors, weights = find_runs(features.regions, features.low_information)
        if len(vectors) > _MAX_RUNS:
            chosen = torch.linspace(0, len(vectors) - 1, _MAX_RUNS).round().long()
            vectors, weights = vectors[chosen], weights[chosen]
        return _choose_alike(*store.find_nearest(vectors, exact=True), weights.numpy()) if len(vectors) else []

    contents = store.read_contents(asking, batch=_IN_ONE_READ, pixels=False)
    while some := list(islice(contents, _IN_ONE_READ)):
        # A video is too little for torch to divide: one a thread.
        for stored, near in zip(some, map_threads(find_neighbours, some, torch.get_num_threads()), strict=True):
            others = [key for key in near if key != stored.key and key in known][:_MAX_CANDIDATES]
            pairs |= {(min(stored.key, key), max(stored.key, key)) for key in others}
        clock.advance(len(some))
    return pairs


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

_MIN_WHOLE = 0.75  # the share of a video that must be covered for it to be all of it
_CLEARLY = 0.7  # of `min_strength`: what falls below with one frame matrix is not compared with two
_STILL, _STILL_SPAN = 0.8, 0.3  # a likeness above the first makes up for order, which a still picture has not
_SAME_PIXELS, _SAME_SPAN = 0.98, 0.02  # the same of correlated pixels; two takes before one camera had up to 0.978
_SAME_SCENE = 0.5  # if regions are as alike as that
_MAX_FRAMES = 8_192  # in memory, described: some 150 MB


@dataclass(frozen=True, eq=False)
class _Video:
    """A content, ready to be compared."""

    frames: Descriptors  # [T, R, D] without flat and repeated ones
    times: NDArray[np.float64]  # [T]
    pixels: Matrix | None  # [V, T, S S], see `make_pixel_views`; None where they are not known
    describe: Callable[[], VideoDescription]  # its frames again, in full precision


@dataclass(frozen=True, eq=False)
class _Look:
    """What one kind of evidence says of two videos."""

    evidence: Evidence
    strength: float
    alignment: Alignment
    still: bool  # the likeness counts, and not the order
    forth: Matrix  # [Ta, Tb]
    back: Matrix  # [Tb, Ta]


def _link_pairs(
    store: Store,
    model: Model,
    catalog: Catalog,
    pairs: Sequence[tuple[int, int]],
    min_strength: float,
    progress: Progress | None,
) -> Iterator[tuple[int, int, Link]]:
    """The links among pairs of keys; of copies of one file, the first stands for all."""
    frames = {int(key): int(count) for key, count in zip(catalog.keys, catalog.frames, strict=True)}
    clock = _Clock("pairs", len(pairs), progress)
    # Pixels are too few for torch to divide: its threads would wait for each other, on busy cores for long.
    with torch_thread_pool(1) as pool:
        for block in _split_pairs(pairs, frames):
            yield from _link_block(block, store, model, catalog, min_strength, pool)
            clock.advance(len(block))


def _split_pairs(pairs: Sequence[tuple[int, int]], frames: Mapping[int, int]) -> Iterator[list[tuple[int, int]]]:
    """Pairs in blocks, the videos of each of which fit into memory together."""
    block: list[tuple[int, int]] = []
    keys: set[int] = set()
    count = 0
    for pair in pairs:
        more = sum(frames.get(key, 0) for key in pair if key not in keys)
        if block and count + more > _MAX_FRAMES:
            yield block
            block, keys, count = [], set(), 0
            more = sum(frames.get(key, 0) for key in pair)
        block.append(pair)
        keys.update(pair)
        count += more
    if block:
        yield block


def _link_block(
    block: Sequence[tuple[int, int]],
    store: Store,
    model: Model,
    catalog: Catalog,
    min_strength: float,
    pool: ThreadPoolExecutor,
) -> Iterator[tuple[int, int, Link]]:
    contents = store.read_contents(sorted({key for pair in block for key in pair}), batch=_IN_ONE_READ)
    videos = {stored.key: _prepare(stored, store, model) for stored in contents}
    partners: dict[int, list[int]] = {}
    for one, other in block:
        if one in videos and other in videos:  # not removed meanwhile
            partners.setdefault(one, []).append(other)
    for one, others in partners.items():
        a, matrices = videos[one], _frame_matrices(videos[one], [videos[key] for key in others], model)

        def look(pair: tuple[int, Matrix], a: _Video = a) -> _Look | None:
            return compare_pixels(a, videos[pair[0]], alike=measure_likeness(pair[1]), min_strength=min_strength)

        pixels = pool.map(look, zip(others, matrices, strict=True))
        for other, forth, by_pixels in zip(others, matrices, pixels, strict=True):
            b = videos[other]
            if by_pixels is None:  # about the strength, from one frame matrix instead of two
                agreement = align(forth, forth.T, a.times, b.times).agreement
                if compute_strength(measure_likeness(forth), agreement) < _CLEARLY * min_strength:
                    continue
            look_taken = _compare_regions(a, b, forth, model)
            if by_pixels is not None and by_pixels.strength > look_taken.strength:
                look_taken = by_pixels
            if look_taken.strength >= min_strength:
                a_id, b_id = (catalog.ids[catalog.with_key(key)[0]] for key in (one, other))
                yield one, other, _make_link(a, b, look_taken, model, (a_id, b_id))


def _prepare(stored: StoredContent, store: Store, model: Model) -> _Video:
    def describe() -> VideoDescription:
        return describe_features(model, stored.features(store.codec).with_timestamps(store.settings.fps), path="")

    video = describe()
    small = video.features.miniatures
    frames = Descriptors.of(video.descriptors.as_subclass(Tensor).to(fast_dtype(model.extractor.device)))
    return _Video(frames, video.times, None if small is None else make_pixel_views(small), describe)


def _frame_matrices(video: _Video, others: Sequence[_Video], model: Model) -> list[Matrix]:
    """The frame matrix of one video with each of others, [T, Tt] each."""
    with torch.no_grad():
        together = Descriptors.of(torch.cat([other.frames.as_subclass(Tensor) for other in others]))
        matrix = model.similarity.frame_matrix_unchecked(video.frames, together).float().cpu().numpy()
    return np.split(matrix, np.cumsum([len(other.times) for other in others])[:-1], axis=1)


def compute_strength(alike: float, agreement: float) -> float:
    """How strongly a pair is linked: how alike its frames are, times the share of them that are in step.

    A video in which nothing moves has no order to be in step with; there a likeness above 0.8 counts instead.

    >>> round(compute_strength(0.6, 0.5), 3), round(compute_strength(0.95, 0.0), 3), compute_strength(0.8, 0.0)
    (0.3, 0.475, 0.0)
    """
    still = min(1.0, max(0.0, (alike - _STILL) / _STILL_SPAN))
    return max(0.0, alike) * max(agreement, still)


def compare_pixels(a: _Video, b: _Video, *, alike: float, min_strength: float) -> _Look | None:
    """Compare the pixels of two videos whose regions are this much `alike`; None if that is no link, or not known."""
    if a.pixels is None or b.pixels is None:
        return None
    forth = correlate(a.pixels, b.pixels)
    same = measure_likeness(forth)
    if same < min_strength:  # before any order is looked for
        return None
    found = align(forth, forth.T, a.times, b.times)
    still = min(1.0, max(0.0, (same - _SAME_PIXELS) / _SAME_SPAN)) if alike >= _SAME_SCENE else 0.0
    strength = same * max(found.agreement, still)
    if strength < min_strength:
        return None
    return _Look("pixels", strength, found, found.line is None or still > found.agreement, forth, forth.T)


def _compare_regions(a: _Video, b: _Video, forth: Matrix, model: Model) -> _Look:
    """What the regions of two videos say whose frame matrix [Ta, Tb] is known."""
    (back,) = _frame_matrices(b, [a], model)  # [Tb, Ta]
    found = align(forth, back, a.times, b.times)
    alike = float(max(forth.max(1).mean(), back.max(1).mean()))
    strength = compute_strength(alike, found.agreement)
    return _Look("regions", strength, found, found.line is None or strength > alike * found.agreement, forth, back)


def _make_link(a: _Video, b: _Video, look: _Look, model: Model, ids: tuple[str, str]) -> Link:
    """The link of two videos.

    Score, probability and segments are those that `Library.compare` has of the first in the second: of a part in the
    whole, else of the two in the direction that scores higher.
    """
    coverage, intervals = _measure_coverage(look, a.times, b.times)
    speed = 1.0 if look.still or look.alignment.line is None else look.alignment.line.speed
    kind: Kind = "shared"
    if min(coverage) >= _MIN_WHOLE:
        kind = "duplicate"
    elif max(coverage) >= _MIN_WHOLE:
        kind = "contained"
    one, other = a.describe(), b.describe()
    there, back = match_videos(one, other, model=model), match_videos(other, one, model=model)
    if coverage[0] < coverage[1] if kind == "contained" else there.score < back.score:
        ids, coverage, intervals, speed = ids[::-1], coverage[::-1], intervals[::-1], 1 / speed
        there, back = back, there
    return Link(
        *ids,
        kind,
        look.strength,
        there.score,
        (there.score, back.score),
        there.verdict.probability if there.verdict.aligned else None,
        look.alignment.agreement,
        coverage,
        intervals,
        speed,
        there.segments,
        look.evidence,
    )


def _measure_coverage(
    look: _Look, a_times: NDArray[np.float64], b_times: NDArray[np.float64]
) -> tuple[tuple[float, float], tuple[Interval, Interval]]:
    """The share of both videos that they have in common, and where; flat and repeated frames do not count.

    That is what the line spans; of a pair without order, the frames that have one nearly the same, from first to last.
    """
    line = look.alignment.line
    shares: list[float] = []
    parts: list[Interval] = []
    if line is not None and not look.still:
        for times, part in ((a_times, line.query), (b_times, line.target)):
            shares.append(float(((times >= part[0] - 1e-9) & (times <= part[1] + 1e-9)).mean()))
            parts.append(part)
    else:
        enough = _STILL if look.evidence == "regions" else _SAME_PIXELS
        for best, times in ((look.forth.max(1), a_times), (look.back.max(1), b_times)):
            same = best >= enough
            shares.append(float(same.mean()))
            edges, places = frame_edges(times), np.flatnonzero(same)
            parts.append((float(edges[places[0]]), float(edges[places[-1] + 1])) if len(places) else (0.0, 0.0))
    return (shares[0], shares[1]), (parts[0], parts[1])
