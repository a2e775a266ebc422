"""Footage that many videos of a library share: title screens, end cards, countdowns, logos on black.

Two videos that show the same end card are no copies of each other. Such footage is found by the vectors of runs that a
library keeps of each content (see `hapvr.library.candidates`), without decoding anything:

1. A run that is nearly the same in at least `MIN_VIDEOS` contents is an exemplar. Exemplars that follow each other in
   the same contents are one clip.
2. Copies of one film share all of it, and that is no shared footage. So a content speaks for a clip only if a good part
   of it shows something else; contents whose other parts are alike count as one.
3. A clip is shared if enough contents that have nothing else in common show it, and most of them at their beginning or
   at their end. Elsewhere it takes twice as many: a scene that several films quote is footage like any other.

What is found is kept with the version of the library (`shared.json`) and is made again by a writer when the contents
have changed. It holds the exemplars, with which the frames of any video are compared (`SharedFootage.find_frames`).
`match_beyond_shared` is the one rule of search, comparison and duplicates: what is left of two videos without shared
footage is compared, and stretches of shared footage are marked.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from hapvr.errors import StorageError
from hapvr.features import Features
from hapvr.judge.judge import Verdict
from hapvr.library.store import Store
from hapvr.library.tables import Catalog
from hapvr.library.versions import translate_write_errors
from hapvr.matching import Match, VideoDescription, match_videos
from hapvr.model import Model
from hapvr.similarity import Segment
from hapvr.similarity.network import Descriptors
from hapvr.similarity.segments import frame_edges
from hapvr.storage import read_document, write_document

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

SHARED = "shared.json"
MIN_VIDEOS = 4
"""Contents with nothing else in common that must show a clip at their beginning or end."""
# On 49 videos, 30 of which begin with one countdown, run vectors of the countdown have similarities of 0.9 and more,
# those of other frames 0.31 at most.
_SAME = 0.9  # similarity of two runs that show the same
_SAME_FRAME = 0.8  # of a frame and an exemplar: a run's frames differ by as much
_ALIKE = 0.7  # of runs of videos that may be copies of each other
_MAX_COVER = 0.6  # of a content's runs that a clip may be: else that content is the clip, or a copy
_MAX_COMMON = 0.4  # of the other runs of a content that another may show too: else they are copies
_TOGETHER = 0.75  # of the contents that show one of two exemplars: in these they follow each other
_GREATER_PART = 0.5  # of a stretch, from which on it is shared
_MOSTLY = 0.8  # of a video's frames: then it is the shared footage itself
_MAX_COMPARED = 48  # contents of a clip that are compared with each other
_MAX_VECTORS = 500_000  # of a library; shared footage is not looked for in larger ones
_ONE_BY_ONE = 4_096  # vectors up to which all are compared with each other
_BLOCK = 1_024  # rows of a product
_EXAMPLES = 8  # occurrences that are listed with their times
_RECOMPUTE_SHARE = 0.05  # of the contents of a large library that must have changed
_LARGE = 2_000  # contents
_FORMAT = 1


@dataclass(frozen=True)
class Occurrence:
    """Where a video shows a shared clip."""

    video: str  # id
    start_s: float
    end_s: float


@dataclass(frozen=True, eq=False)
class SharedClip:
    """Footage that occurs in many videos of a library."""

    id: str  # of its exemplars: the same footage has the same id
    seconds: float  # the median of its occurrences'
    videos: int  # different contents that show it
    occurrences: tuple[Occurrence, ...]  # some of them
    exemplars: Floats  # [E, C] unit vectors

    def to_json(self) -> dict[str, Any]:
        """What `hapvr status --json` lists."""
        places = [dataclasses.asdict(one) for one in self.occurrences]
        return {"id": self.id, "seconds": self.seconds, "videos": self.videos, "occurrences": places}


@dataclass(frozen=True, eq=False)
class SharedFootage:
    """All shared clips of a library, those in the most videos first."""

    clips: tuple[SharedClip, ...] = ()
    complete: bool = True  # False for a library that is too large

    def find_frames(self, features: Features) -> NDArray[np.int64]:
        """Which clip each frame belongs to, [T]; -1 for none."""
        if not self.clips:
            return np.full(len(features), -1, np.int64)
        vectors = torch.from_numpy(np.concatenate([clip.exemplars for clip in self.clips]))
        owners = np.repeat(np.arange(len(self.clips)), [len(clip.exemplars) for clip in self.clips])
        similarities = (_make_vectors(features, vectors.shape[1]) @ vectors.T).numpy()  # [T, E]
        best = similarities.argmax(1)
        return np.where(similarities[np.arange(len(best)), best] >= _SAME_FRAME, owners[best], -1)

    def without_removed(self, catalog: Catalog) -> SharedFootage:
        """The same without occurrences in videos that were removed since."""
        clips = (
            replace(clip, occurrences=tuple(one for one in clip.occurrences if one.video in catalog))
            for clip in self.clips
        )
        return replace(self, clips=tuple(clips))


NONE = SharedFootage()


def _make_vectors(features: Features, dims: int) -> torch.Tensor:
    """A unit vector for each frame, [T, C], as those of runs are made; zero where there is none."""
    return F.normalize(features.regions.detach().cpu().float().mean(1)[:, :dims], dim=-1)


# --- the rule for matches --------------------------------------------------------------------------------------------


def match_beyond_shared(
    query: VideoDescription,
    target: VideoDescription,
    *,
    model: Model,
    footage: SharedFootage,
    ignore_shared: bool = True,
    prior: float | None = None,
    second_look: bool = True,
) -> Match:
    """`match_videos`, of what is left of two videos without shared footage; score and matrix are those of all of it.

    Stretches that lie in shared footage are marked, and listed after the others. If one of the two videos is shared
    footage for the most part, that is what is looked for: then all of it counts, as with `ignore_shared` of False.
    """
    frames = [footage.find_frames(one.features) for one in (query, target)]
    kept = _choose_frames(frames) if ignore_shared else None
    if kept is None:
        match = match_videos(query, target, model=model, prior=prior, second_look=second_look)
        marked = (replace(one, shared=_is_in_clip(frames, one.path)) for one in match.segments)
        return replace(match, segments=tuple(marked))
    whole = match_videos(query, target, model=model, prior=prior, second_look=False)
    left = _take_frames(query, kept[0]), _take_frames(target, kept[1])
    rest = match_videos(*left, model=model, prior=prior, second_look=second_look)
    verdict: Verdict = rest.verdict
    parts: list[Segment] = []
    if whole.verdict.match:
        for one in whole.segments:
            part = _cut_shared(whole, one, frames)
            if part is not None and not any(_overlap(part, other) for other in parts):
                parts.append(part)
        if not verdict.match:
            verdict = replace(verdict, reason=_explain(footage, whole, frames, parts))
    segments = [
        _place_segment(whole, one, [(int(kept[0][row]), int(kept[1][column])) for row, column in one.path])
        for one in rest.segments
    ]
    return replace(whole, verdict=verdict, segments=(*segments, *parts))


def drop_shared(
    query: VideoDescription, target: VideoDescription, footage: SharedFootage
) -> tuple[VideoDescription, VideoDescription]:
    """What `match_beyond_shared` compares of two videos: what is not shared, or all if one of them is little else."""
    kept = _choose_frames([footage.find_frames(one.features) for one in (query, target)])
    return (query, target) if kept is None else (_take_frames(query, kept[0]), _take_frames(target, kept[1]))


def _choose_frames(frames: Sequence[Ints]) -> list[NDArray[np.intp]] | None:
    """The frames of two videos that are not shared; None if all of both count."""
    shares = [float((one >= 0).mean()) for one in frames]
    return [np.flatnonzero(one < 0) for one in frames] if 0 < max(shares) < _MOSTLY else None


def _take_frames(video: VideoDescription, frames: NDArray[np.intp]) -> VideoDescription:
    if len(frames) == len(video.times):
        return video
    descriptors = Descriptors.of(video.descriptors[torch.from_numpy(frames)])
    return replace(video, features=video.features.take(frames), descriptors=descriptors)


def _is_in_clip(frames: Sequence[Ints], path: Sequence[tuple[int, int]]) -> bool:
    """Whether the greater part of a path is shared footage, on either side: both show the same."""
    inside = [frames[0][row] >= 0 or frames[1][column] >= 0 for row, column in path]
    return bool(sum(inside) > _GREATER_PART * len(inside))


def _overlap(one: Segment, other: Segment) -> bool:
    """Whether two stretches overlap in both videos."""
    pairs = (one.query, other.query), (one.target, other.target)
    return all(max(a[0], b[0]) < min(a[1], b[1]) for a, b in pairs)


def _cut_shared(match: Match, segment: Segment, frames: Sequence[Ints]) -> Segment | None:
    """The part of a stretch from its first to its last shared frames; None if it has none."""
    inside = [frames[0][row] >= 0 or frames[1][column] >= 0 for row, column in segment.path]
    if not any(inside):
        return None
    first, last = inside.index(True), len(inside) - inside[::-1].index(True)
    path = segment.path[first:last]
    score = float(np.mean([match.matrix[row, column] for row, column in path]))
    return replace(_place_segment(match, segment, path), score=score, shared=True)


def _place_segment(match: Match, segment: Segment, path: Sequence[tuple[int, int]]) -> Segment:
    """A stretch along a path through all frames of both videos, with its seconds."""
    if not path:
        return segment
    parts = []
    for axis, times in enumerate((match.query.times, match.target.times)):
        edges, own = frame_edges(times), [pair[axis] for pair in path]
        parts.append((float(edges[min(own)]), float(edges[max(own) + 1])))
    return replace(segment, query=parts[0], target=parts[1], path=tuple(path))


def _explain(footage: SharedFootage, match: Match, frames: Sequence[Ints], parts: Sequence[Segment]) -> str:
    """That nothing but shared footage matches, and where that is in the query."""
    paths = [one.path for one in parts] or [(match.best_pair,)]
    clips = {int(max(frames[0][row], frames[1][column])) for path in paths for row, column in path}
    videos = max((footage.clips[clip].videos for clip in clips if clip >= 0), default=0)
    if not videos:  # the instant of a picture that is not the shared one
        return match.verdict.reason
    where = ", ".join(f"{_format_time(one.query[0])}-{_format_time(one.query[1])}" for one in parts)
    return f"Only a part that occurs in {videos} videos of the library matches{f': {where}' if where else ''}."


def _format_time(seconds: float) -> str:
    """Minutes and seconds.

    >>> _format_time(63.6)
    '1:04'
    """
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02d}"


# --- finding it ------------------------------------------------------------------------------------------------------


def find_shared_footage(store: Store) -> SharedFootage:
    """Find the footage that many contents of a library share."""
    catalog = store.catalog()
    if len(catalog.contents) < MIN_VIDEOS:
        return NONE
    if store.count_vectors() > _MAX_VECTORS:
        return SharedFootage(complete=False)
    keys, vectors = store.vectors()
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


# --- kept with the library -------------------------------------------------------------------------------------------


def read_shared_footage(store: Store) -> SharedFootage:
    """The shared footage of a version: as it was kept, or found now where nothing was kept that can be read."""
    path = store.folder / SHARED
    try:
        state = os.stat(path)
        return _read(path, state.st_mtime_ns, state.st_size).footage
    except (OSError, StorageError):
        return _find_once(store)


def update_shared_footage(store: Store) -> None:
    """Find the shared footage of a version again if its contents have changed enough; with the writer's lock held."""
    keys = store.catalog().contents
    path = store.folder / SHARED
    with suppress(OSError, StorageError):
        state = os.stat(path)
        if not _read(path, state.st_mtime_ns, state.st_size).is_outdated(keys):
            return
    if len(keys) < MIN_VIDEOS and not path.exists():
        return
    content = _to_document(find_shared_footage(store), keys)
    with translate_write_errors(store.folder):
        write_document(path, content, indent=None)


@dataclass(frozen=True, eq=False)
class _Kept:
    """What `shared.json` holds: shared footage, and the contents that it was found in."""

    footage: SharedFootage
    contents: int
    newest: int  # the greatest key of them
    digest: str

    def is_outdated(self, keys: Ints) -> bool:
        if _digest(keys) == self.digest:
            return False
        added = int((keys > self.newest).sum())
        changed = added + abs(self.contents + added - len(keys))
        return len(keys) < _LARGE or changed >= _RECOMPUTE_SHARE * self.contents


def _digest(keys: Ints) -> str:
    return hashlib.sha256(np.sort(keys).astype("<i8").tobytes()).hexdigest()[:16]


def _to_document(footage: SharedFootage, keys: Ints) -> dict[str, Any]:
    clips = [
        clip.to_json()
        | {
            "dims": clip.exemplars.shape[1],
            "exemplars": base64.b64encode(clip.exemplars.astype("<f2").tobytes()).decode(),
        }
        for clip in footage.clips
    ]
    return {
        "format": _FORMAT,
        "contents": len(keys),
        "newest": int(keys.max(initial=0)),
        "digest": _digest(keys),
        "complete": footage.complete,
        "clips": clips,
    }


@lru_cache(maxsize=8)
def _read(path: Path, _mtime_ns: int, _size: int) -> _Kept:
    """What a file holds; `StorageError` if it is damaged, or of another format."""
    try:
        content = read_document(path, ())
        if content["format"] != _FORMAT:
            raise ValueError(f"it is of format {content['format']}, this hapvr reads {_FORMAT}.")
        clips = []
        for one in content["clips"]:
            packed = np.frombuffer(base64.b64decode(one["exemplars"]), "<f2").reshape(-1, one["dims"])
            places = tuple(Occurrence(**place) for place in one["occurrences"])
            clips.append(SharedClip(one["id"], one["seconds"], one["videos"], places, packed.astype(np.float32)))
        footage = SharedFootage(tuple(clips), content["complete"])
        return _Kept(footage, content["contents"], content["newest"], content["digest"])
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(f"'{path}' cannot be read: {error} The next `hapvr add` makes it again.") from error


_found: dict[Path, tuple[str, SharedFootage]] = {}


def _find_once(store: Store) -> SharedFootage:
    """`find_shared_footage`, once for the same contents: for libraries where nothing is kept."""
    digest = _digest(store.catalog().contents)
    known = _found.get(store.folder)
    if known is None or known[0] != digest:
        _found.clear()
        known = _found[store.folder] = (digest, find_shared_footage(store))
    return known[1]
