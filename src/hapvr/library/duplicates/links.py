"""Comparing pairs of contents: how strongly they are linked, what they share, and which kind of link that is.

Two looks are taken at each pair, by region vectors and by pixels (see `pixels`); the one that makes the stronger
link counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hapvr.features.extractor import fast_dtype
from hapvr.library.duplicates.alignment import Alignment, Line, align
from hapvr.library.duplicates.pixels import correlate, make_views, measure_likeness
from hapvr.library.duplicates.report import Clock, DuplicateProgress, Evidence, Kind, Link
from hapvr.library.store import Store
from hapvr.library.tables import Catalog, Stored
from hapvr.matching import Match, VideoDescription, describe_features, match_videos
from hapvr.model import Model
from hapvr.similarity.network import Descriptors
from hapvr.similarity.segments import frame_edges
from hapvr.workers.threads import torch_thread_pool

WHOLE = 0.75
"""The share of a video that must be covered for it to be all of it."""
_CLEARLY = 0.7  # of the threshold: what falls below with one frame matrix is not compared with two
_STILL, _STILL_SPAN = 0.8, 0.3  # a likeness above the first makes up for order, which a still picture has not
_SAME_PIXELS, _SAME_SPAN = 0.98, 0.02  # likewise a correlation of pixels; two takes before one camera had up to 0.978
_SAME_SCENE = 0.5  # if regions are as alike as that
_FRAMES = 8_192  # held described at a time: some 150 MB
_IN_ONE_READ = 64  # contents


@dataclass(frozen=True, eq=False)
class _Video:
    """A content, ready to be compared."""

    frames: Descriptors  # [T, R, D] of those that say something
    times: NDArray[np.float64]  # [T]
    pixels: NDArray[np.float32] | None = None  # [L, T, S S], see `looks`; None where they are not known
    read: Callable[[], VideoDescription] | None = None  # its frames again, in full precision


@dataclass(frozen=True, eq=False)
class _Look:
    """What one way of looking at two videos says."""

    evidence: Evidence
    strength: float
    found: Alignment
    still: bool  # the likeness counts, and not the order
    forth: NDArray[np.float32]  # [Ta, Tb]
    back: NDArray[np.float32]  # [Tb, Ta]


def compared(
    store: Store,
    model: Model | None,
    catalog: Catalog,
    pairs: Sequence[tuple[int, int]],
    threshold: float,
    progress: Callable[[DuplicateProgress], None] | None,
) -> Iterator[tuple[int, int, Link]]:
    """The links among pairs of keys; of copies of one file, the first stands for all."""
    if model is None:
        return
    frames = {int(key): int(count) for key, count in zip(catalog.keys, catalog.frames, strict=True)}
    clock = Clock("pairs", len(pairs), progress)
    # Pixels are too few for torch to divide: its threads would wait for each other, on busy cores for long.
    with torch_thread_pool(1) as pool:
        for block in _blocks(pairs, frames):
            yield from _compared(block, store, model, catalog, threshold, pool)
            clock.advance(len(block))


def _compared(
    block: Sequence[tuple[int, int]],
    store: Store,
    model: Model,
    catalog: Catalog,
    threshold: float,
    pool: ThreadPoolExecutor,
) -> Iterator[tuple[int, int, Link]]:
    videos = _read(store, model, sorted({key for pair in block for key in pair}))
    partners: dict[int, list[int]] = {}
    for one, other in block:
        if one in videos and other in videos:  # not removed meanwhile
            partners.setdefault(one, []).append(other)
    for one, others in partners.items():
        a, matrices = videos[one], _matrices(videos[one], [videos[key] for key in others], model)

        def look(pair: tuple[int, NDArray[np.float32]], a: _Video = a) -> _Look | None:
            return compare_pixels(a, videos[pair[0]], alike=measure_likeness(pair[1]), threshold=threshold)

        pixels = pool.map(look, zip(others, matrices, strict=True))
        for other, forth, seen in zip(others, matrices, pixels, strict=True):
            b = videos[other]
            if seen is None and _promise(forth, a, b) < _CLEARLY * threshold:
                continue
            ids = [catalog.ids[catalog.with_key(key)[0]] for key in (one, other)]
            link = make_link(a, b, forth, model, (ids[0], ids[1]), threshold, seen)
            if link is not None:
                yield one, other, link


def _matrices(video: _Video, others: Sequence[_Video], model: Model) -> list[NDArray[np.float32]]:
    """The frame matrix of one video with each of others, [T, Tt] each."""
    with torch.no_grad():
        together = Descriptors.of(torch.cat([other.frames.as_subclass(Tensor) for other in others]))
        matrix = model.similarity.frame_matrix_unchecked(video.frames, together).float().cpu().numpy()
    return np.split(matrix, np.cumsum([len(other.times) for other in others])[:-1], axis=1)


def _promise(forth: NDArray[np.float32], a: _Video, b: _Video) -> float:
    """About the strength of a pair, from one frame matrix instead of two."""
    return compute_strength(measure_likeness(forth), align(forth, forth.T, a.times, b.times).agreement)


def _blocks(pairs: Sequence[tuple[int, int]], frames: Mapping[int, int]) -> Iterator[list[tuple[int, int]]]:
    """Pairs in turn, so many at a time that all their videos can be held together."""
    block: list[tuple[int, int]] = []
    keys: set[int] = set()
    held = 0
    for pair in pairs:
        more = sum(frames.get(key, 0) for key in pair if key not in keys)
        if block and held + more > _FRAMES:
            yield block
            block, keys, held = [], set(), 0
            more = sum(frames.get(key, 0) for key in pair)
        block.append(pair)
        keys |= set(pair)
        held += more
    if block:
        yield block


def _read(store: Store, model: Model, keys: Sequence[int]) -> dict[int, _Video]:
    return {stored.key: _described(stored, store, model) for stored in store.stored(keys, batch=_IN_ONE_READ)}


def _described(stored: Stored, store: Store, model: Model) -> _Video:
    def read() -> VideoDescription:
        return describe_features(model, stored.features(store.codec).with_timestamps(store.settings.rate), path="")

    side = read()
    small = side.features.miniatures
    frames = Descriptors.of(side.descriptors.as_subclass(Tensor).to(fast_dtype(model.extractor.device)))
    return _Video(frames, side.times, None if small is None else make_views(small), read)


def compute_strength(alike: float, agreement: float) -> float:
    """How strongly a pair is linked: how alike its frames are, times the share of them that are in step.

    A video in which nothing moves has no order to be in step with; there a likeness above 0.8 counts instead.

    >>> round(compute_strength(0.6, 0.5), 3), round(compute_strength(0.95, 0.0), 3), compute_strength(0.8, 0.0)
    (0.3, 0.475, 0.0)
    """
    still = min(1.0, max(0.0, (alike - _STILL) / _STILL_SPAN))
    return max(0.0, alike) * max(agreement, still)


def compare_pixels(a: _Video, b: _Video, *, alike: float, threshold: float) -> _Look | None:
    """What the pixels of two videos say whose regions are so much `alike`; None if that is no link, or not known."""
    if a.pixels is None or b.pixels is None:
        return None
    forth = correlate(a.pixels, b.pixels)
    same = measure_likeness(forth)
    if same < threshold:  # before any order is looked for
        return None
    found = align(forth, forth.T, a.times, b.times)
    still = min(1.0, max(0.0, (same - _SAME_PIXELS) / _SAME_SPAN)) if alike >= _SAME_SCENE else 0.0
    strength = same * max(found.agreement, still)
    if strength < threshold:
        return None
    return _Look("pixels", strength, found, found.line is None or still > found.agreement, forth, forth.T)


def compare_regions(a: _Video, b: _Video, forth: NDArray[np.float32], model: Model) -> _Look:
    """What the regions of two videos say whose frame matrix [Ta, Tb] is known."""
    (back,) = _matrices(b, [a], model)  # [Tb, Ta]
    found = align(forth, back, a.times, b.times)
    alike = float(max(forth.max(1).mean(), back.max(1).mean()))
    strength = compute_strength(alike, found.agreement)
    return _Look("regions", strength, found, found.line is None or strength > alike * found.agreement, forth, back)


def make_link(
    a: _Video,
    b: _Video,
    forth: NDArray[np.float32],
    model: Model,
    ids: tuple[str, str],
    threshold: float,
    pixels: _Look | None = None,
) -> Link | None:
    """The link of two videos whose frame matrix [Ta, Tb] is known; None if it is too weak to be one.

    Score, probability and segments are those that `Library.compare` has of the first in the second: of a part in the
    whole, else of the two in the direction that scores higher.
    """
    look = compare_regions(a, b, forth, model)
    if pixels is not None and pixels.strength > look.strength:
        look = pixels
    if look.strength < threshold:
        return None
    if look.still:
        least = _STILL if look.evidence == "regions" else _SAME_PIXELS
        coverage, intervals = _alike(look.forth, look.back, a.times, b.times, least)
    else:
        coverage, intervals = _covered(look.found, a.times, b.times)
    line: Line | None = None if look.still else look.found.line
    speed = 1.0 if line is None else line.speed
    kind: Kind = "shared"
    if min(coverage) >= WHOLE:
        kind = "duplicate"
    elif max(coverage) >= WHOLE:
        kind = "contained"
    there, back = _match_both_ways(a, b, model)
    turned = coverage[0] < coverage[1] if kind == "contained" else there.score < back.score
    if turned:
        ids, coverage, intervals, speed = ids[::-1], coverage[::-1], intervals[::-1], 1 / speed
        there, back = back, there
    return Link(
        *ids,
        kind,
        look.strength,
        there.score,
        (there.score, back.score),
        there.verdict.probability if there.verdict.aligned else None,
        look.found.agreement,
        coverage,
        intervals,
        speed,
        there.segments,
        look.evidence,
    )


def _match_both_ways(a: _Video, b: _Video, model: Model) -> tuple[Match, Match]:
    """A in B and B in A, as `Library.compare` compares them."""
    assert a.read is not None
    assert b.read is not None
    one, other = a.read(), b.read()
    return match_videos(one, other, model=model), match_videos(other, one, model=model)


def _covered(
    found: Alignment, a_times: NDArray[np.float64], b_times: NDArray[np.float64]
) -> tuple[tuple[float, float], tuple[tuple[float, float], tuple[float, float]]]:
    """The share of both videos that the line spans, and where; frames that say nothing do not count."""
    line = found.line
    assert line is not None
    shares = [_share(times, part) for times, part in ((a_times, line.query), (b_times, line.target))]
    return (shares[0], shares[1]), (line.query, line.target)


def _share(times: NDArray[np.float64], part: tuple[float, float]) -> float:
    return float(((times >= part[0] - 1e-9) & (times <= part[1] + 1e-9)).mean())


def _alike(
    forth: NDArray[np.float32],
    back: NDArray[np.float32],
    a_times: NDArray[np.float64],
    b_times: NDArray[np.float64],
    least: float,
) -> tuple[tuple[float, float], tuple[tuple[float, float], tuple[float, float]]]:
    """Likewise of a pair without order: the frames that have one nearly the same, from the first to the last."""
    shares, parts = [], []
    for best, times in ((forth.max(1), a_times), (back.max(1), b_times)):
        same = best >= least
        shares.append(float(same.mean()))
        edges, places = frame_edges(times), np.flatnonzero(same)
        parts.append((float(edges[places[0]]), float(edges[places[-1] + 1])) if len(places) else (0.0, 0.0))
    return (shares[0], shares[1]), (parts[0], parts[1])
