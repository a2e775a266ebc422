"""How footage that many videos of a library share is found.

It is found by the vectors of runs that a library keeps of each content (see `hapvr.library.candidates`):

1. A run that is nearly the same in at least `MIN_VIDEOS` contents is an exemplar. Exemplars that follow each other in
   the same contents are one clip.
2. Copies of one film share all of it, and that is no shared footage. So a content speaks for a clip only if a good part
   of it shows something else; contents whose other parts are alike count as one.
3. A clip is shared if enough contents that have nothing else in common show it, and most of them at their beginning or
   at their end. Elsewhere it takes twice as many: a scene that several films quote is footage like any other.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from hapvr.library.shared_footage import Occurrence, SharedClip, SharedFootage
from hapvr.library.store import Store
from hapvr.library.tables import Catalog

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

MIN_VIDEOS = 4
"""Contents with nothing else in common that must show a clip at their beginning or end."""
# On 49 videos, 30 of which begin with one countdown, run vectors of the countdown have similarities of 0.9 and more,
# those of other frames 0.31 at most.
_SAME = 0.9  # similarity of two runs that show the same
_ALIKE = 0.7  # of runs of videos that may be copies of each other
_MAX_COVER = 0.6  # of a content's runs that a clip may be: else that content is the clip, or a copy
_MAX_COMMON = 0.4  # of the other runs of a content that another may show too: else they are copies
_TOGETHER = 0.75  # of the contents that show one of two exemplars: in these they follow each other
_MAX_COMPARED = 48  # contents of a clip that are compared with each other
_MAX_VECTORS = 500_000  # of a library; shared footage is not looked for in larger ones
_ONE_BY_ONE = 4_096  # vectors up to which all are compared with each other
_BLOCK = 1_024  # rows of a product
_EXAMPLES = 8  # occurrences that are listed with their times


def find_shared_footage(store: Store) -> SharedFootage:
    """Find the footage that many contents of a library share."""
    catalog = store.catalog()
    if len(catalog.contents) < MIN_VIDEOS:
        return SharedFootage()
    if store.candidates.count() > _MAX_VECTORS:
        return SharedFootage(complete=False)
    keys, vectors = store.candidates.read_all()
    order = _sort_rows(catalog, keys)
    keys, vectors = keys[order], vectors[order]
    labels, leaders = find_exemplars(vectors, keys)
    clips = sorted(
        _make_clip(store, catalog, vectors[[leaders[label] for label in sorted(chosen)]], shown)
        for chosen, shown in _choose_clips(keys, vectors, labels, len(leaders))
    )
    return SharedFootage(tuple(clip for _, clip in clips))


def _sort_rows(catalog: Catalog, keys: Ints) -> Ints:
    """The rows of contents that count, by the hashes of these, so that the order of adding does not matter."""
    hashes = dict(zip(catalog.keys.tolist(), catalog.column("content_hash"), strict=True))
    ranks = {key: rank for rank, key in enumerate(sorted(catalog.contents.tolist(), key=lambda key: hashes[key]))}
    rank = np.array([ranks.get(key, -1) for key in keys.tolist()], np.int64)
    rows = np.flatnonzero(rank >= 0)
    return rows[np.argsort(rank[rows], kind="stable")]


def find_exemplars(vectors: Floats, keys: Ints) -> tuple[Ints, list[int]]:
    """Runs that are nearly the same in many contents: which exemplar each run shows, [N], or -1; and the exemplars.

    Args:
        vectors: [N, C], of unit length; the runs of a content follow each other.
        keys: [N], of their contents.

    >>> vectors = np.eye(3, dtype=np.float32)[[0, 1, 0, 2, 0, 0]]
    >>> labels, leaders = find_exemplars(vectors, np.array([1, 1, 2, 2, 3, 4]))
    >>> labels.tolist(), leaders
    ([0, -1, 0, -1, 0, 0], [0])
    """
    labels = np.full(len(keys), -1, np.int64)
    leaders: list[int] = []
    counts = _count_contents(vectors, keys)
    for row in np.lexsort((np.arange(len(keys)), -counts)).tolist():
        if counts[row] < MIN_VIDEOS:
            break
        if labels[row] >= 0:
            continue
        alike = (labels < 0) & (vectors @ vectors[row] >= _SAME)
        if len(np.unique(keys[alike])) >= MIN_VIDEOS:
            labels[alike] = len(leaders)
            leaders.append(row)
    return labels, leaders


def _count_contents(vectors: Floats, keys: Ints) -> Ints:
    """In how many contents each run is found, its own included; of many runs, nearly so, [N].

    Many runs are compared in groups: each belongs to the two of some runs that it is nearest to.
    """
    number = np.unique(keys, return_inverse=True)[1]
    if len(vectors) <= _ONE_BY_ONE:
        return _count_within(vectors, number, np.arange(len(vectors)))
    pivots = vectors[np.linspace(0, len(vectors) - 1, math.isqrt(len(vectors))).round().astype(int)]
    nearest = np.concatenate(
        [
            np.argpartition(-(vectors[first : first + _BLOCK] @ pivots.T), 1, axis=1)[:, :2]
            for first in range(0, len(vectors), _BLOCK)
        ]
    )
    counts = np.ones(len(vectors), np.int64)
    for pivot in range(len(pivots)):
        members = np.flatnonzero((nearest == pivot).any(1))
        counts[members] = np.maximum(counts[members], _count_within(vectors, number, members))
    return counts


def _count_within(vectors: Floats, number: Ints, members: Ints) -> Ints:
    """In how many contents, numbered [N], each of some runs is found among these runs."""
    own, columns = np.unique(number[members], return_inverse=True)
    chosen = vectors[members]
    counts = np.zeros(len(members), np.int64)
    starts = np.flatnonzero(np.diff(columns, prepend=-1))  # the runs of a content follow each other
    for first in range(0, len(members), _BLOCK):
        found = chosen[first : first + _BLOCK] @ chosen.T >= _SAME  # [B, M]
        counts[first : first + _BLOCK] = np.logical_or.reduceat(found, starts, axis=1).sum(1)
    assert len(starts) == len(own)
    return counts


def _choose_clips(
    keys: Ints, vectors: Floats, labels: Ints, count: int
) -> Iterator[tuple[set[int], dict[int, NDArray[np.intp]]]]:
    """The exemplars of each shared clip, and the rows of the runs that show it, by content.

    A clip that was found is taken from the rest of all contents, and the others are tried again: of videos with one
    title screen and one end card, the end card is not what makes them copies.
    """
    rows = {int(key): np.flatnonzero(keys == key) for key in np.unique(keys[labels >= 0])}
    left = _join_exemplars(rows, labels, count)
    ignored: set[int] = set()
    while True:
        found = [clip for clip in left if _is_shared(rows, vectors, labels, clip, ignored)]
        if not found:
            return
        for clip in found:
            ignored |= clip
            shown = {key: own[np.isin(labels[own], list(clip))] for key, own in rows.items()}
            yield clip, {key: own for key, own in shown.items() if len(own)}
        left = [clip for clip in left if clip not in found]


def _join_exemplars(rows: Mapping[int, NDArray[np.intp]], labels: Ints, count: int) -> list[set[int]]:
    """Exemplars that follow each other in most contents that show one of them: parts of one clip."""
    shown = np.zeros(count, np.int64)
    follow: dict[tuple[int, int], int] = {}
    for own in rows.values():
        sequence = labels[own]
        shown[np.unique(sequence[sequence >= 0])] += 1
        pairs = {
            (min(one, other), max(one, other))
            for step in (1, 2)
            for one, other in zip(sequence.tolist(), sequence[step:].tolist(), strict=False)
            if min(one, other) >= 0 and one != other
        }
        for pair in pairs:
            follow[pair] = follow.get(pair, 0) + 1
    clips = {number: {number} for number in range(count)}
    for (one, other), times in sorted(follow.items()):
        if times >= _TOGETHER * max(shown[one], shown[other]) and clips[one] is not clips[other]:
            clips[one] |= clips[other]
            clips |= dict.fromkeys(clips[other], clips[one])
    return [clip for number, clip in clips.items() if number == min(clip)]


def _is_shared(
    rows: Mapping[int, NDArray[np.intp]], vectors: Floats, labels: Ints, clip: set[int], ignored: set[int]
) -> bool:
    """Whether enough contents show a clip that have nothing else in common."""
    rest: list[Floats] = []
    at_border = showing = 0
    for own in rows.values():
        inside = np.isin(labels[own], list(clip))
        if not inside.any():
            continue
        showing += 1
        at_border += bool(inside[:2].any() or inside[-2:].any())
        others = own[~inside & ~np.isin(labels[own], list(ignored))]
        if inside.mean() <= _MAX_COVER and len(others):
            rest.append(vectors[others])
    needed = MIN_VIDEOS if 2 * at_border >= showing else 2 * MIN_VIDEOS
    if len(rest) < needed:
        return False
    if len(rest) > _MAX_COMPARED:
        rest = [rest[place] for place in np.linspace(0, len(rest) - 1, _MAX_COMPARED).round().astype(int).tolist()]
    group = list(range(len(rest)))
    for one, other in combinations(range(len(rest)), 2):
        if group[one] != group[other] and _may_be_copies(rest[one], rest[other]):
            group = [group[one] if place == group[other] else place for place in group]
    return len(set(group)) >= needed


def _may_be_copies(one: Floats, other: Floats) -> bool:
    """Whether much of a content [F, C] is shown by another too, or the other way round."""
    alike = one @ other.T >= _ALIKE
    return bool(max(alike.any(1).mean(), alike.any(0).mean()) > _MAX_COMMON)


def _make_clip(
    store: Store, catalog: Catalog, exemplars: Floats, shown: Mapping[int, NDArray[np.intp]]
) -> tuple[tuple[int, str], SharedClip]:
    """A clip, and what to sort it by; some occurrences are looked up frame by frame."""
    id = hashlib.sha256(exemplars.astype("<f2").tobytes()).hexdigest()[:8]
    clip = SharedClip(id, 0.0, len(shown), (), exemplars)
    paths = {key: catalog.with_key(key)[0] for key in shown}  # rows are sorted by path
    places = []
    chosen = sorted(shown, key=lambda key: paths[key])[:_EXAMPLES]
    for stored in store.read_contents(chosen, pixels=False):
        features = stored.features(store.codec).with_timestamps(store.settings.fps)
        if (part := _find_longest(SharedFootage((clip,)).find_frames(features) >= 0)) is not None:
            times = features.times
            step = float(np.median(np.diff(times))) if len(times) > 1 else 0.0
            places.append((paths[stored.key], float(times[part[0]]), float(times[part[1] - 1]) + step))
    occurrences = tuple(Occurrence(catalog.ids[row], start, end) for row, start, end in sorted(places))
    seconds = float(np.median([one.end_s - one.start_s for one in occurrences])) if occurrences else 0.0
    found = replace(clip, seconds=seconds, occurrences=occurrences)
    return (-len(shown), id), found


def _find_longest(flags: NDArray[np.bool_]) -> tuple[int, int] | None:
    """From which frame to before which one the longest run of True reaches.

    >>> _find_longest(np.array([True, False, True, True, False]))
    (2, 4)
    """
    edges = np.flatnonzero(np.diff(flags.astype(np.int8), prepend=0, append=0))
    if not len(edges):
        return None
    longest = int(np.diff(edges)[::2].argmax())
    return int(edges[2 * longest]), int(edges[2 * longest + 1])
