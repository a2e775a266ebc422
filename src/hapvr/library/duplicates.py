"""What a library holds twice: near-duplicates, clips that are part of others, and parts that two videos share.

Files of the same bytes are known by their hashes. Of all other contents, each asks for those whose frame vectors are
nearest, as a search does; only such pairs are compared, so that the work grows with the number of videos and not with
that of pairs. A pair is a link if its strength, how similar its frames are times how many of them are in step (see
`hapvr.library.aligning`), reaches the threshold. What of both videos it covers then says what kind of link it is.

Duplicates form groups. Clips do not: two different clips of one compilation would end in one group with it. Their links
stand beside the groups. Nothing is ever deleted; the copy to keep is a suggestion.
"""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hapvr.errors import ConfigError
from hapvr.features.extractor import half_pays
from hapvr.features.files import Features
from hapvr.library.aligning import Alignment, Line, align
from hapvr.library.candidates import NEIGHBOURS, runs, votes
from hapvr.library.marks import Pair, pair_of, read_marks
from hapvr.library.records import VideoRecord, shown
from hapvr.library.tables import NO_KEY, Catalogue
from hapvr.similarity import Segment, find_segments, pairwise
from hapvr.similarity.network import Descriptors
from hapvr.similarity.segments import frame_edges

if TYPE_CHECKING:
    from hapvr.library.library import Library
    from hapvr.library.store import Store
    from hapvr.model import Model

Kind = Literal["identical", "duplicate", "contained", "shared"]
KINDS: tuple[Kind, ...] = ("identical", "duplicate", "contained", "shared")

THRESHOLD = 0.25
"""Strength from which on a pair is a link. Of some 6,000 candidate pairs in two libraries of the same real videos and
different edited copies of them (the same road driven twice, exercises on one mat before one camera) the strongest that
shows different footage has 0.193; of a few drawn films, whose shots are few and alike, 0.242."""
WHOLE = 0.75
"""The share of a video that must be covered for it to be all of it."""
CANDIDATES = 20
"""Contents that each one is compared with at most."""
_RUNS = 64  # of a video that ask for neighbours; of a longer one so many, spread over it
_LEAST_ALIKE = 0.35  # of run vectors: of 214 links among real videos and edited copies the lowest had 0.43
_CLEARLY = 0.7  # of the threshold: what falls below with one frame matrix is not compared with two
_STILL, _STILL_SPAN = 0.8, 0.3  # a score above the first makes up for order, which a still picture has not
_FRAMES = 8_192  # held described at a time: some 150 MB
_IN_ONE_READ = 64  # contents


# --- what is told ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Link:
    """Two videos that show the same, and how that is known.

    Attributes:
        a: id; of a link of the kind "contained" the part.
        b: id; the whole.
        kind: "identical" (the same bytes), "duplicate" (both are covered), "contained" (only A is), or "shared": a
            stretch of both that is neither of them.
        strength: what the threshold is held against, from 0 to 1; 1 for identical files.
        score: the higher of both directions, from -1 to 1; likewise.
        scores: of A in B, and of B in A.
        probability: that they match, if the model is calibrated.
        agreement: how many frames are in step, from 0 to 1.
        coverage: the share of A, and of B, that the other shows.
        intervals: the seconds of A, and of B, that they share.
        speed: of B against A; below 0 it runs backwards.
        segments: stretches that are alike frame by frame (query: A, target: B); there may be none in a poor copy.
    """

    a: str
    b: str
    kind: Kind
    strength: float
    score: float
    scores: tuple[float, float]
    probability: float | None
    agreement: float
    coverage: tuple[float, float]
    intervals: tuple[tuple[float, float], tuple[float, float]]
    speed: float = 1.0
    segments: tuple[Segment, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        plain |= {"scores": list(self.scores), "coverage": list(self.coverage)}
        plain["intervals"] = [list(one) for one in self.intervals]
        plain["segments"] = [
            {"a": list(one.query), "b": list(one.target), "score": one.score, "backwards": one.backwards}
            for one in self.segments
        ]
        return plain


@dataclass(frozen=True)
class Group:
    """Copies of one video, the one to keep first."""

    videos: tuple[VideoRecord, ...]
    reason: str  # why that one
    links: tuple[Link, ...]  # between them, strongest first

    @property
    def keep(self) -> VideoRecord:
        """The copy that is suggested to be kept."""
        return self.videos[0]


@dataclass(frozen=True)
class DuplicateReport:
    """What `duplicates` found.

    Attributes:
        groups: copies of the same, largest first.
        links: all links, strongest first: those within groups, and of clips and shared parts.
        records: the videos that links name, by id.
        videos: how many were looked at.
        scored: pairs of contents that were compared exactly.
        pairs: of so many pairs of contents there are; with `since`, those with a new one.
        marked: links left out because somebody said that the two are distinct.
        threshold: of strength.
        seconds: that it took.
    """

    groups: tuple[Group, ...]
    links: tuple[Link, ...]
    records: Mapping[str, VideoRecord]
    videos: int
    scored: int
    pairs: int
    marked: int
    threshold: float
    seconds: float

    @property
    def beside(self) -> tuple[Link, ...]:
        """Links that are not within a group: parts of others, shared stretches."""
        within = {link for group in self.groups for link in group.links}
        return tuple(link for link in self.links if link not in within)

    def to_json(self) -> dict[str, Any]:
        """What `hapvr duplicates --json` prints."""
        groups = [
            {
                "keep": group.keep.id,
                "reason": group.reason,
                "videos": [video.to_json() for video in group.videos],
                "links": [link.to_json() for link in group.links],
            }
            for group in self.groups
        ]
        beside = self.beside
        named = {id for link in beside for id in (link.a, link.b)}
        return {
            "groups": groups,
            "links": [link.to_json() for link in beside],
            "videos": {id: record.to_json() for id, record in self.records.items() if id in named},
            "looked_at": self.videos,
            "scored": self.scored,
            "pairs": self.pairs,
            "marked": self.marked,
            "threshold": self.threshold,
            "seconds": self.seconds,
        }


@dataclass(frozen=True)
class DuplicateProgress:
    """How far it has come."""

    stage: Literal["candidates", "pairs"]
    done: int
    total: int
    seconds: float  # of this stage

    @property
    def left_s(self) -> float | None:
        """Seconds that are left of this stage, if all goes on as before; None before the first is done."""
        return self.seconds * (self.total - self.done) / self.done if self.done else None


# --- finding ---------------------------------------------------------------------------------------------------------


def duplicates(
    library: Library,
    *,
    threshold: float | None = None,
    since: datetime | None = None,
    most: int = CANDIDATES,
    progress: Callable[[DuplicateProgress], None] | None = None,
) -> DuplicateReport:
    """Find what a library holds twice.

    Args:
        library: an open one.
        threshold: strength of a link, above 0 and at most 1; `THRESHOLD` if None. Higher is stricter.
        since: only what was added at or after this time, against everything; a time without a zone is local.
        most: contents that each one is compared with at most.
        progress: called now and then.
    """
    limit = THRESHOLD if threshold is None else threshold
    if not isinstance(limit, int | float) or isinstance(limit, bool) or not 0 < limit <= 1:
        raise ConfigError(f"threshold must be a number above 0 and at most 1, got {threshold!r}.")
    if not isinstance(most, int) or isinstance(most, bool) or most < 1:
        raise ConfigError(f"most must be a whole number of at least 1, got {most!r}.")
    begun = time.monotonic()
    store, catalogue = library.store, library.store.catalogue()
    marks = read_marks(library.path)
    new = _new_keys(catalogue, since)
    keys = np.unique(catalogue.keys[catalogue.keys != NO_KEY]).tolist()
    pairs = sorted(_candidate_pairs(store, [key for key in keys if key in new], set(keys), most, progress))
    found = list(_identical(catalogue, new))
    marked = 0
    hashes = _hashes(catalogue)
    # Without pairs there is no need of the model, which takes its time to load.
    model = library.model if pairs else None
    for one, other, link in _compared(store, model, catalogue, pairs, len(keys), float(limit), progress):
        if pair_of(hashes[one], hashes[other]) in marks:
            marked += 1
        else:
            found.append(link)
    records = {id: catalogue.record(catalogue.row(id)) for link in found for id in (link.a, link.b)}
    links = sorted(found, key=lambda link: (-link.strength, records[link.a].path, records[link.b].path))
    old = len(keys) - len(new)
    return DuplicateReport(
        groups=grouped(links, records, marks),
        links=tuple(links),
        records=records,
        videos=int((catalogue.keys != NO_KEY).sum()),
        scored=len(pairs),
        pairs=math.comb(len(keys), 2) - math.comb(old, 2),
        marked=marked,
        threshold=float(limit),
        seconds=time.monotonic() - begun,
    )


def _new_keys(catalogue: Catalogue, since: datetime | None) -> set[int]:
    """The keys of contents that were added since, or of all."""
    if since is None:
        return set(catalogue.keys[catalogue.keys != NO_KEY].tolist())
    if not isinstance(since, datetime):
        raise ConfigError(f"since must be a datetime, got {since!r}.")
    moment = since.astimezone(timezone.utc).timestamp() * 1e6
    added = catalogue.column("added_us")
    return {int(key) for key, when in zip(catalogue.keys, added, strict=True) if key != NO_KEY and when >= moment}


def _hashes(catalogue: Catalogue) -> dict[int, str]:
    return {int(key): hash for key, hash in zip(catalogue.keys, catalogue.column("content_hash"), strict=True)}


def _identical(catalogue: Catalogue, new: Iterable[int]) -> Iterator[Link]:
    """Files of the same bytes: each with the first of them."""
    for key in sorted(new):
        rows = catalogue.with_key(key)
        if len(rows) < 2:
            continue
        first, *others = _apart_on_disk(catalogue.records(rows))
        whole = ((0.0, first.duration), (0.0, first.duration))
        for other in others:
            yield Link(first.id, other.id, "identical", 1.0, 1.0, (1.0, 1.0), None, 1.0, (1.0, 1.0), whole)


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


class _Clock:
    """Tells the caller how far a stage is."""

    def __init__(
        self,
        stage: Literal["candidates", "pairs"],
        total: int,
        progress: Callable[[DuplicateProgress], None] | None,
    ) -> None:
        self._stage, self._total, self._progress = stage, total, progress
        self._begun, self._done = time.monotonic(), 0

    def advance(self, count: int) -> None:
        self._done += count
        if self._progress is not None:
            self._progress(DuplicateProgress(self._stage, self._done, self._total, time.monotonic() - self._begun))


def _candidate_pairs(
    store: Store,
    asking: Sequence[int],
    known: set[int],
    most: int,
    progress: Callable[[DuplicateProgress], None] | None,
) -> set[tuple[int, int]]:
    """Pairs of keys, the smaller first, that are worth a comparison."""
    pairs: set[tuple[int, int]] = set()
    clock = _Clock("candidates", len(asking), progress)
    nearest = _Nearest(store)
    for stored in store.stored(asking, batch=_IN_ONE_READ):
        features = stored.features(store.codec)
        vectors, weights = runs(features.regions, features.low_information)
        if len(vectors) > _RUNS:
            chosen = torch.linspace(0, len(vectors) - 1, _RUNS).round().long()
            vectors, weights = vectors[chosen], weights[chosen]
        if len(vectors):
            keys = _worthwhile(*nearest(vectors), weights.numpy())
            others = [key for key in keys if key != stored.key and key in known][:most]
            pairs |= {(min(stored.key, key), max(stored.key, key)) for key in others}
        clock.advance(1)
    return pairs


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
    found, counted = votes(which, keys, similarities, weights)
    last = np.full(len(weights), np.inf)
    np.minimum.at(last, which, similarities)
    bounds = (counted + float(last @ weights)) / float(weights.sum())
    return [int(key) for key in found[bounds >= _LEAST_ALIKE]]


class _Nearest:
    """The stored vectors nearest to others: all of them looked at if they are few, else by the index."""

    def __init__(self, store: Store) -> None:
        from hapvr.library.store import INDEX_FROM

        self._store = store
        self._all: tuple[NDArray[np.int64], Tensor] | None = None
        if store.count_vectors() < INDEX_FROM:
            keys, vectors = store.vectors()
            self._all = keys, torch.from_numpy(vectors.astype(np.float32))

    def __call__(self, vectors: Tensor) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
        if self._all is None:
            return self._store.nearest(vectors.numpy(), k=NEIGHBOURS, nprobes=20, refine=2)
        keys, stored = self._all
        best = (vectors @ stored.T).topk(min(NEIGHBOURS, len(keys)), dim=1)
        which = np.repeat(np.arange(len(vectors)), best.values.shape[1])
        return which, keys[best.indices.numpy().ravel()], best.values.numpy().ravel()


# --- comparing -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Video:
    """A content, ready to be compared."""

    frames: Descriptors  # [T, R, D] of those that say something
    times: NDArray[np.float64]  # [T]


def _compared(
    store: Store,
    model: Model | None,
    catalogue: Catalogue,
    pairs: Sequence[tuple[int, int]],
    database: int,
    threshold: float,
    progress: Callable[[DuplicateProgress], None] | None,
) -> Iterator[tuple[int, int, Link]]:
    """The links among pairs of keys; of copies of one file, the first stands for all."""
    if model is None:
        return
    frames = {int(key): int(count) for key, count in zip(catalogue.keys, catalogue.frames, strict=True)}
    clock = _Clock("pairs", len(pairs), progress)
    for block in _blocks(pairs, frames):
        videos = _read(store, model, sorted({key for pair in block for key in pair}))
        partners: dict[int, list[int]] = {}
        for one, other in block:
            if one in videos and other in videos:  # not removed meanwhile
                partners.setdefault(one, []).append(other)
        for one, others in partners.items():
            a, matrices = videos[one], _matrices(videos[one], [videos[key] for key in others], model)
            for other, forth in zip(others, matrices, strict=True):
                b = videos[other]
                if _promise(forth, a, b, model) < _CLEARLY * threshold:
                    continue
                ids = [catalogue.ids[catalogue.with_key(key)[0]] for key in (one, other)]
                link = judged(a, b, forth, model, (ids[0], ids[1]), threshold, database)
                if link is not None:
                    yield one, other, link
        clock.advance(len(block))


def _matrices(video: _Video, others: Sequence[_Video], model: Model) -> list[NDArray[np.float32]]:
    """The frame matrix of one video with each of others, [T, Tt] each."""
    with torch.no_grad():
        together = Descriptors.of(torch.cat([other.frames.as_subclass(Tensor) for other in others]))
        matrix = model.similarity.frame_matrix_unchecked(video.frames, together).float().cpu().numpy()
    return np.split(matrix, np.cumsum([len(other.times) for other in others])[:-1], axis=1)


def _promise(forth: NDArray[np.float32], a: _Video, b: _Video, model: Model) -> float:
    """About the strength of a pair, from one frame matrix instead of two and two scores.

    What psi makes of a matrix is not to be foreseen: a model with psi is taken to give a score of 1.
    """
    alike = float(max(forth.max(1).mean(), forth.max(0).mean()))
    agreement = align(forth, forth.T, a.times, b.times).agreement
    score = alike if model.similarity.comparator is None else 1.0
    return max(strength_of(alike, 0.0), score * agreement)


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
    videos = {}
    for stored in store.stored(keys, batch=_IN_ONE_READ):
        features = stored.features(store.codec)
        if features.timestamps is None:
            features = dataclasses.replace(features, timestamps=np.arange(len(features)) / store.settings.rate)
        videos[stored.key] = _described(features.informative(), model)
    return videos


def _described(features: Features, model: Model) -> _Video:
    assert features.timestamps is not None
    with torch.no_grad():
        frames = model.similarity.describe_unchecked(features.regions.to(model.extractor.device))
    return _Video(Descriptors.of(frames.as_subclass(Tensor).to(_dtype(model))), features.timestamps)


def _dtype(model: Model) -> torch.dtype:
    """Of the region products: half precision where it is faster. Scores are then within 5e-3."""
    return torch.bfloat16 if model.extractor.device.type == "cuda" or half_pays() else torch.float32


def strength_of(score: float, agreement: float) -> float:
    """How strongly a pair is linked: its score times the share of frames in step, or how nearly it is the same picture.

    A video in which nothing moves has no order to be in step with; there a score above 0.8 counts instead.

    >>> round(strength_of(0.6, 0.5), 3), round(strength_of(0.95, 0.0), 3), strength_of(0.8, 0.0)
    (0.3, 0.475, 0.0)
    """
    still = min(1.0, max(0.0, (score - _STILL) / _STILL_SPAN))
    return max(0.0, score) * max(agreement, still)


def judged(
    a: _Video,
    b: _Video,
    forth: NDArray[np.float32],
    model: Model,
    ids: tuple[str, str],
    threshold: float,
    database: int,
) -> Link | None:
    """The link of two videos whose frame matrix [Ta, Tb] is known; None if it is too weak to be one."""
    (back,) = _matrices(b, [a], model)  # [Tb, Ta]
    found = align(forth, back, a.times, b.times)
    both = [
        pairwise(model.similarity, [one.frames], [other.frames], dtype=_dtype(model)).clamp(-1, 1).item()
        for one, other in ((a, b), (b, a))
    ]
    scores = (both[0], both[1])
    score = max(scores)
    strength = strength_of(score, found.agreement)
    if strength < threshold:
        return None
    still = found.line is None or strength > score * found.agreement
    segments = tuple(find_segments(forth, a.times, b.times, config=model.segments))
    coverage, intervals = _alike(forth, back, a.times, b.times) if still else _covered(found, a.times, b.times)
    line: Line | None = None if still else found.line
    kind: Kind = "shared"
    if min(coverage) >= WHOLE:
        kind = "duplicate"
    elif max(coverage) >= WHOLE:
        kind = "contained"
    calibration = model.calibration
    link = Link(
        *ids,
        kind,
        strength,
        score,
        scores,
        None if calibration is None else calibration.probability(score, prior=1 / max(2, database)),
        found.agreement,
        coverage,
        intervals,
        1.0 if line is None else line.speed,
        segments,
    )
    return turned(link) if kind == "contained" and coverage[0] < coverage[1] else link


def turned(link: Link) -> Link:
    """The same link with A and B changed over."""
    segments = [
        Segment(one.target, one.query, one.score, one.backwards, tuple(sorted((j, i) for i, j in one.path)))
        for one in link.segments
    ]
    return dataclasses.replace(
        link,
        a=link.b,
        b=link.a,
        scores=link.scores[::-1],
        coverage=link.coverage[::-1],
        intervals=link.intervals[::-1],
        speed=1 / link.speed,
        segments=tuple(segments),
    )


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
    forth: NDArray[np.float32], back: NDArray[np.float32], a_times: NDArray[np.float64], b_times: NDArray[np.float64]
) -> tuple[tuple[float, float], tuple[tuple[float, float], tuple[float, float]]]:
    """Likewise of a pair without order: the frames that have one nearly the same, from the first to the last."""
    shares, parts = [], []
    for best, times in ((forth.max(1), a_times), (back.max(1), b_times)):
        same = best >= _STILL
        shares.append(float(same.mean()))
        edges, places = frame_edges(times), np.flatnonzero(same)
        parts.append((float(edges[places[0]]), float(edges[places[-1] + 1])) if len(places) else (0.0, 0.0))
    return (shares[0], shares[1]), (parts[0], parts[1])


# --- groups ----------------------------------------------------------------------------------------------------------


def grouped(
    links: Sequence[Link], records: Mapping[str, VideoRecord], marks: frozenset[Pair] = frozenset()
) -> tuple[Group, ...]:
    """Videos that are duplicates of each other, directly or by others between them; largest group first.

    Links join in the order of their strength. Two groups stay apart if any two of their videos are marked as distinct.
    """
    group_of = {id: [id] for link in links for id in (link.a, link.b)}
    for link in links:
        one, other = group_of[link.a], group_of[link.b]
        if link.kind not in ("identical", "duplicate") or one is other or _apart(one, other, records, marks):
            continue
        one += other
        group_of |= dict.fromkeys(other, one)
    groups = []
    for first, members in group_of.items():
        if len(members) < 2 or first != members[0]:  # each group once
            continue
        within = tuple(link for link in links if group_of[link.a] is members and group_of[link.b] is members)
        ordered, reason = best_first([records[id] for id in members])
        groups.append(Group(tuple(ordered), reason, within))
    return tuple(sorted(groups, key=lambda group: (-len(group.videos), group.keep.path)))


def _apart(
    one: Sequence[str], other: Sequence[str], records: Mapping[str, VideoRecord], marks: frozenset[Pair]
) -> bool:
    if not marks:
        return False
    return any(pair_of(records[a].content_hash, records[b].content_hash) in marks for a in one for b in other)


def best_first(records: Sequence[VideoRecord]) -> tuple[list[VideoRecord], str]:
    """Copies in the order in which they are worth keeping, and why the first is.

    One that is there comes before one that is missing, a file before a link; then the longest (half a second, or a
    hundredth, is no difference), the largest picture, the highest bitrate, the oldest file, and the first path.
    """
    longest = max(record.duration for record in records)
    enough = longest - max(0.5, longest / 100)

    def worth(record: VideoRecord) -> tuple[Any, ...]:
        length = min(record.duration, enough)
        return (
            *((record.state != "ready", os.path.islink(record.path)), -length, -record.width * record.height),
            -record.bitrate,
            *(record.mtime_ns, record.path),
        )

    ordered = sorted(records, key=worth)
    first, second = ordered[0], ordered[1]
    if first.state == "ready" != second.state:
        return ordered, "the only one whose file is there"
    if worth(first)[0] != worth(second)[0]:
        return ordered, "a file, and the next is a link"
    if worth(first)[1] != worth(second)[1]:
        return ordered, f"the longest: {first.duration:.1f} s, the next {second.duration:.1f} s"
    if first.width * first.height != second.width * second.height:
        sizes = f"{first.width} x {first.height}, the next {second.width} x {second.height}"
        return ordered, f"as long as any, the largest picture: {sizes}"
    if first.bitrate != second.bitrate:
        rates = f"{first.bitrate / 1000:,.0f} kbit/s, the next {second.bitrate / 1000:,.0f}"
        return ordered, f"as long and as large as any, the highest bitrate: {rates}"
    if first.mtime_ns != second.mtime_ns:
        return ordered, "they are equally good; it is the oldest file"
    return ordered, "they are equally good; it is the first by name"


def rows(report: DuplicateReport) -> Iterator[dict[str, Any]]:
    """One flat row for each link, as `hapvr duplicates --csv` writes them; groups are numbered from 1."""
    number = {video.id: place for place, group in enumerate(report.groups, 1) for video in group.videos}
    kept = {group.keep.id for group in report.groups}
    for link in report.links:
        a, b = report.records[link.a], report.records[link.b]
        within = number.get(a.id) is not None and number.get(a.id) == number.get(b.id)
        yield {
            "group": number[a.id] if within else "",
            "kind": link.kind,
            "a": shown(a.path),
            "b": shown(b.path),
            "a_id": a.id,
            "b_id": b.id,
            "keep": next((name for name, id in (("a", a.id), ("b", b.id)) if within and id in kept), ""),
            "strength": round(link.strength, 4),
            "score": round(link.score, 4),
            "probability": "" if link.probability is None else f"{link.probability:.6g}",
            "agreement": round(link.agreement, 4),
            "a_coverage": round(link.coverage[0], 4),
            "b_coverage": round(link.coverage[1], 4),
            "a_from": round(link.intervals[0][0], 2),
            "a_to": round(link.intervals[0][1], 2),
            "b_from": round(link.intervals[1][0], 2),
            "b_to": round(link.intervals[1][1], 2),
            "speed": round(link.speed, 3),
        }


CSV_FIELDS = (
    "group", "kind", "a", "b", "a_id", "b_id", "keep", "strength", "score", "probability", "agreement", "a_coverage",
    "b_coverage", "a_from", "a_to", "b_from", "b_to", "speed",
)  # fmt: skip
