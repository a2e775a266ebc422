"""Comparing pairs of videos of a library: which are links between duplicates, and of what kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hapvr.library.duplicate_report import Kind, Link
from hapvr.library.shared_footage import SharedFootage
from hapvr.library.shared_matching import match_beyond_shared, may_be_copies
from hapvr.library.store import Store
from hapvr.library.stored_scores import describe_stored
from hapvr.library.tables import Catalog, StoredContent
from hapvr.matching import Match, VideoDescription
from hapvr.model import Model
from hapvr.similarity.segments import frame_edges
from hapvr.workers.threads import map_threads, one_torch_thread

Interval = tuple[float, float]
IN_ONE_READ = 64  # contents
_MIN_WHOLE = 0.75  # the share of a video that must be covered for it to be all of it
_SAME_PICTURE = 0.9  # of the best similarity: frames beside the best instant that show the same picture
_MAX_FRAMES = 8_192  # in memory, described: some 250 MB


@dataclass(frozen=True, eq=False)
class LinkOptions:
    """What makes a pair a link."""

    min_probability: float
    second_look: bool
    footage: SharedFootage
    ignore_shared: bool


def split_pairs(pairs: Sequence[tuple[int, int]], frames: Mapping[int, int]) -> Iterator[list[tuple[int, int]]]:
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


def link_block(
    store: Store, load_model: Callable[[], Model], task: tuple[list[tuple[int, int]], LinkOptions]
) -> tuple[int, list[tuple[int, int, Link]]]:
    """How many pairs a block has, and the links among them."""
    (block, options), model, catalog = task, load_model(), store.catalog()
    contents = store.read_contents(sorted({key for pair in block for key in pair}), batch=IN_ONE_READ)
    # A content may have been added, or all its records removed, since the pairs were found.
    named = (one for one in contents if len(catalog.with_key(one.key)))

    def link(pair: tuple[int, int]) -> Link | None:
        if not all(key in videos for key in pair):
            return None
        return _link_videos(videos[pair[0]], videos[pair[1]], model, options)

    # Two videos are too little for torch to divide: its threads would wait for each other, on busy cores for long. Each
    # core compares a pair, or looks at two files.
    with one_torch_thread() as threads:
        videos = {one.key: _describe(one, store, model, catalog, options.footage) for one in named}
        found = zip(block, map_threads(link, block, threads), strict=True)
        return len(block), [(one, other, link) for (one, other), link in found if link is not None]


@dataclass(frozen=True, eq=False)
class _Video:
    id: str
    description: VideoDescription
    shared: NDArray[np.int64]  # which shared clip each of its frames belongs to


def _describe(stored: StoredContent, store: Store, model: Model, catalog: Catalog, footage: SharedFootage) -> _Video:
    records = catalog.records(catalog.with_key(stored.key))
    description = describe_stored(stored, store, model, records)
    return _Video(records[0].id, description, footage.find_frames(description.features))


def _link_videos(a: _Video, b: _Video, model: Model, options: LinkOptions) -> Link | None:
    """The link of two videos, if they are copies: of the one with fewer frames in the other."""
    if (len(a.description.times), a.id) > (len(b.description.times), b.id):
        a, b = b, a
    videos, frames = (a.description, b.description), (a.shared, b.shared)
    if not may_be_copies(
        *videos,
        model=model,
        frames=frames,
        ignore_shared=options.ignore_shared,
        min_probability=options.min_probability,
    ):
        return None
    match = match_beyond_shared(
        *videos,
        model=model,
        footage=options.footage,
        frames=frames,
        ignore_shared=options.ignore_shared,
        second_look=options.second_look,
    )
    verdict = match.verdict
    if not verdict.match if verdict.probability is None else verdict.probability < options.min_probability:
        return None
    return _make_link(match, (a.id, b.id))


def _make_link(match: Match, ids: tuple[str, str]) -> Link:
    coverage, intervals = _measure_run(match) if match.too_short else _measure_coverage(match)
    kind: Kind = "shared"
    if min(coverage) >= _MIN_WHOLE:
        kind = "duplicate"
    elif max(coverage) >= _MIN_WHOLE:
        kind = "contained"
    segments, speed = match.segments, 1.0
    if segments:
        (start, end), (first, last) = segments[0].query, segments[0].target
        speed = (last - first) / (end - start) * (-1 if segments[0].backwards else 1)
    return Link(*ids, kind, match.score, match.verdict, coverage, intervals, speed, segments)


def _measure_coverage(match: Match) -> tuple[tuple[float, float], tuple[Interval, Interval]]:
    """The share of both videos' frames that lie in a matching stretch, and the seconds from the first to the last."""
    shares, parts = [], []
    for axis, times in (("query", match.query.times), ("target", match.target.times)):
        stretches = [getattr(segment, axis) for segment in match.segments]
        inside = np.zeros(len(times), bool)
        for start, end in stretches:
            inside |= (times >= start - 1e-9) & (times <= end + 1e-9)
        shares.append(float(inside.mean()))
        parts.append((min((one[0] for one in stretches), default=0.0), max((one[1] for one in stretches), default=0.0)))
    return (shares[0], shares[1]), (parts[0], parts[1])


def _measure_run(match: Match) -> tuple[tuple[float, float], tuple[Interval, Interval]]:
    """The same of a picture, or of a video too short for a stretch: the run of alike frames around the best instant."""
    shares, parts = [], []
    for axis, times in enumerate((match.query.times, match.target.times)):
        alike = match.matrix.max(1 - axis) >= _SAME_PICTURE * match.matrix.max()
        first = last = match.best_pair[axis]
        while first > 0 and alike[first - 1]:
            first -= 1
        while last + 1 < len(alike) and alike[last + 1]:
            last += 1
        shares.append((last + 1 - first) / len(times))
        edges = frame_edges(times)
        parts.append((float(edges[first]), float(edges[last + 1])))
    return (shares[0], shares[1]), (parts[0], parts[1])
