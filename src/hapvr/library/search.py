"""A question to a library: candidates by votes, exact scores on stored regions, and where the best of them match."""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from hapvr.comparing import Match, Side, match, read_side
from hapvr.config import suggest
from hapvr.errors import ConfigError, DataError, DecodeError, ShapeError
from hapvr.features import Features, select_frames
from hapvr.features.extractor import fast_dtype
from hapvr.library.calibrating import require_calibration
from hapvr.library.candidates import candidates, most_candidates, runs
from hapvr.library.holding import Held
from hapvr.library.records import Hit, SearchResult, printable, shown
from hapvr.library.tables import NO_KEY, Stored
from hapvr.similarity import Segment, SimilarityConfig, VideoSimilarity, find_segments, pairwise
from hapvr.similarity.comparator import pool_mask
from hapvr.similarity.network import Descriptors
from hapvr.workers.threads import map_threads

if TYPE_CHECKING:
    from hapvr.library.library import Library
    from hapvr.library.store import Store
    from hapvr.model import Model

LIMIT = 200
# On the benchmark that the settings of `candidates` were chosen on, with the best 4 of 301 videos compared exactly, a
# rough score of four times as many raises mAP from 91.1 to 92.5; comparing with everything gives 92.7.
WIDER = 4  # times as many videos as are compared exactly have a rough score
EVERY = 3  # frames, of which one counts in it
_FRAMES = 1_024  # of stored videos decoded together, by each thread: some 10 MB
_AT_ONCE = 32  # groups of so many frames, not yet decoded
_IN_ONE_READ = 256  # contents
_IN_ONE_SEARCH = 64 * 2**20  # bytes of stored videos that are kept from the rough score to the exact one
_PSI_CELLS = 1 << 18  # of frame matrices that psi sees at a time: some 50 MB
_PSI = "comparator"  # the part of a network that does not look at single frames
NOTHING_TO_LOOK_FOR = (
    "The query has no informative frames: all of them are flat (black, or of one colour). There is nothing to look for."
)


@dataclass(frozen=True, eq=False)
class Query:
    """What is looked for: the frames that are compared, and the record it came from, if it is one of the library's."""

    features: Features
    id: str | None = None


def search(
    library: Library,
    query: str | os.PathLike[str] | Features,
    *,
    start: float | None = None,
    end: float | None = None,
    k: int = 10,
    min_probability: float | None = None,
    exact: bool = False,
    limit: int = LIMIT,
    held: Held | None = None,
) -> SearchResult:
    """The videos of a library that show what the query shows, best first.

    Candidates are found by their frames' vectors; those with the best rough scores are compared exactly with the stored
    regions, at most 5% of the library (10 at least) and `limit` videos; only what was compared can be a hit. Frames of
    low information neither vote nor count; a query of nothing else has no hits, and a note that says so. The
    probability of a hit takes it for one of the N videos of the library of which one is wanted: its prior is 1 / N.

    Args:
        library: an open one.
        query: the path of a video or picture, the id of an indexed one (which is then no hit itself), or features.
        start: seconds; what lies before is left out.
        end: seconds, likewise what lies from there on.
        k: hits at most.
        min_probability: hits that match less likely are left out.
        exact: compare with everything. The work then grows with the library, the memory it takes does not.
        limit: videos that are compared exactly at most, unless `exact`.
        held: what is kept in memory from one search to the next; the hits are the same without it.

    Raises:
        DecodeError: the query's file cannot be read.
        DataError: there is no such id, or no frame in that part of the query.
    """
    _check(start, end, k=k, min_probability=min_probability, limit=limit, exact=exact)
    clock = _Clock()
    store, model = library.store, library.model
    if min_probability is not None:
        require_calibration(model, library.path)
    held = held or Held(_IN_ONE_SEARCH, only_stored=True)
    asked = read_query(library, query, start=start, end=end, held=held)
    clock.lap("decode")
    catalogue = store.catalogue()
    everything: NDArray[np.int64] = np.unique(catalogue.keys[catalogue.keys != NO_KEY])
    database = int((catalogue.keys != NO_KEY).sum()) - (asked.id is not None)
    if asked.features.all_flat:
        for name in ("candidates", "score", "segments"):
            clock.lap(name)
        return SearchResult((), database, 0, clock.seconds, NOTHING_TO_LOOK_FOR)
    _require_dims(asked.features, store)
    most = most_candidates(database, k=k, limit=limit)
    if exact or len(everything) <= most:
        keys = everything
    else:
        votes = runs(asked.features.regions, asked.features.low_information)
        keys = candidates(store, *votes, most=min(WIDER * most, most + LIMIT))
        keys = keys[np.isin(keys, everything)]
    if asked.id is not None:
        own = int(catalogue.keys[catalogue.row(asked.id)])
        keys = keys if len(catalogue.with_key(own)) > 1 else keys[keys != own]
    if not exact and len(keys) > most:
        rough = score(store, model, asked.features, keys.tolist(), every=EVERY, held=held)
        keys = np.array(sorted(rough, key=lambda key: (-rough[key], key))[:most], np.int64)
    clock.lap("candidates")
    scores = score(store, model, asked.features, keys.tolist(), held=held)
    clock.lap("score")
    rows = [row for key in scores for row in catalogue.with_key(key) if catalogue.ids[row] != asked.id]
    rows.sort(key=lambda row: (-scores[int(catalogue.keys[row])], catalogue.paths[row]))
    best = list(dict.fromkeys(int(catalogue.keys[row]) for row in rows[:k]))
    found = compared(store, model, asked.features, best, held=held)
    hits = []
    for record, row in zip(catalogue.records(rows[:k]), rows[:k], strict=True):
        key = int(catalogue.keys[row])
        if key not in found:  # removed meanwhile
            continue
        value, segments = found[key]
        probability = None
        if model.calibration is not None:
            probability = model.calibration.probability(value, prior=1 / max(2, database))
        if min_probability is None or (probability is not None and probability >= min_probability):
            hits.append(Hit(record.id, record.path, value, probability, segments))
    hits.sort(key=lambda hit: -hit.score)
    clock.lap("segments")
    return SearchResult(tuple(hits), database, len(scores), clock.seconds)


def _check(
    start: float | None, end: float | None, *, k: int, min_probability: float | None, limit: int, exact: bool
) -> None:
    for name, number in (("k", k), ("limit", limit)):
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise ConfigError(f"{name} must be a whole number of at least 1, got {number!r}.")
    if k > limit and not exact:
        raise ConfigError(f"{k} hits are more than the {limit} videos that are compared exactly: use exact=True.")
    for name, value in (("start", start), ("end", end)):
        if value is not None and not 0 <= value < math.inf:
            raise ConfigError(f"{name} must be seconds of at least 0, got {value!r}.")
    if end is not None and end <= (start or 0.0):
        raise ConfigError(f"end must come after start; got {start or 0.0:g} to {end:g} s.")
    if min_probability is not None and not 0 <= min_probability <= 1:
        raise ConfigError(f"min_probability must lie in 0..1, got {min_probability!r}.")


class _Clock:
    """Seconds since the lap before."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name] = now - self._last
        self._last = now


def explained(
    library: Library,
    query: str | os.PathLike[str],
    result: SearchResult,
    *,
    start: float | None = None,
    end: float | None = None,
) -> tuple[list[Match], list[str]]:
    """The hits of a search as `hapvr.compare` compares them, from the files; and which cannot be read any more.

    Args:
        library: that was searched.
        query: what it was asked: a path or an id.
        result: what it answered.
        start: as it was asked.
        end: likewise.
    """
    model, missing = library.model, []
    is_id = isinstance(query, str) and query in library.store.catalogue()
    if is_id:  # as it is stored: all of it was read, and then a part taken
        side = _cut(read_side(library.get(str(query)).path, model), start, end, model)
    else:
        side = read_side(query, model, start_s=start, end_s=end)
    prior = None if model.calibration is None else 1 / max(2, result.database)
    matches = []
    for hit in result.hits:
        try:
            matches.append(match(side, read_side(hit.path, model), model=model, prior=prior))
        except DecodeError as error:
            missing.append(f"'{shown(hit.path)}' (score {hit.score:.3f}) cannot be shown: {printable(str(error))}")
    return matches, missing


def _cut(side: Side, start: float | None, end: float | None, model: Model) -> Side:
    """The part of a side in [start, end)."""
    features = side.features.between(start, end, name=f"'{shown(side.path)}'")
    if features is side.features:
        return side
    with torch.no_grad():
        descriptors = model.similarity.describe(features.regions.to(model.extractor.device))
    return dataclasses.replace(side, features=features, descriptors=descriptors)


# --- the query -------------------------------------------------------------------------------------------------------


def read_query(
    library: Library,
    query: str | os.PathLike[str] | Features,
    *,
    start: float | None = None,
    end: float | None = None,
    held: Held | None = None,
) -> Query:
    """The frames of a query that are compared, with the times they have in the whole of it."""
    if isinstance(query, Features):
        timed = query.with_timestamps(library.settings.rate)
        return Query(timed.between(start, end, name="The query").drop_flat())
    if not isinstance(query, str | os.PathLike):
        raise DataError(f"A query is a path, an id or Features, got a {type(query).__name__}.")
    store = library.store
    catalogue = store.catalogue()
    if isinstance(query, str) and query in catalogue:
        row = catalogue.row(query)
        record = catalogue.record(row)
        if record.state == "failed":
            raise DataError(
                f"'{shown(record.path)}' could not be described, so nothing can be looked for: {record.error}"
            )
        key = int(catalogue.keys[row])
        found = next((held or Held(0)).stored(store, [key]), None)
        features = store.features(key) if found is None else found.features(store.codec)
        stored = features.with_timestamps(store.settings.rate)
        return Query(stored.between(start, end, name=f"'{query}'").drop_flat(), query)
    if not os.path.lexists(query):
        near = suggest(os.fspath(query), catalogue.ids[:20_000]) if isinstance(query, str) else ""
        raise DataError(f"'{shown(query)}' is neither a file nor the id of a video in the library; {near}".rstrip("; "))
    return Query(library.model.features(query, start_s=start, end_s=end).drop_flat())


# --- scores ----------------------------------------------------------------------------------------------------------


def score(
    store: Store, model: Model, query: Features, keys: Sequence[int], *, every: int = 1, held: Held | None = None
) -> dict[int, float]:
    """The score of each content that is there, in memory that does not grow with their number.

    On CPUs that multiply bfloat16 and on GPUs it is used: scores are within 5e-3 of those of `compared`.

    Args:
        store: the tables of the library.
        model: the one it was made with.
        query: the frames that are compared.
        keys: of the contents.
        every: with 3, a rough score of every third frame of both, without psi, for a ninth of the work.
        held: what is kept in memory.
    """
    similarity = model.similarity if every == 1 else _without_psi(model.similarity)
    device = model.extractor.device
    dtype = fast_dtype(device)
    keeping, here = held or Held(0), device.type == "cpu"
    weighed = any(name != _PSI for name, _ in similarity.named_children())  # else regions are compared as they are
    _require_dims(query, store)
    with torch.no_grad():
        described = similarity.describe_unchecked(query.regions[::every].to(device))

    @torch.no_grad()
    def prepared(stored: Stored) -> Tensor:
        regions = _informative(stored, store, dtype, every)
        return similarity.describe_unchecked(regions).as_subclass(Tensor).to(dtype) if here and weighed else regions

    @torch.no_grad()
    def scored(group: list[Stored]) -> list[tuple[int, float]]:
        targets = [keeping.vectors(store, stored.key, every, partial(prepared, stored)) for stored in group]
        if here and _in_one_matrix(similarity, described, targets):
            matrix = similarity.frame_matrix_unchecked(described.to(dtype), torch.cat(targets))
            values = _scores_of_matrix(similarity, matrix, [len(target) for target in targets])
        else:
            marked = [Descriptors.of(target) if here or not weighed else target for target in targets]
            values = pairwise(similarity, [described], marked, dtype=dtype)[0]
        return [(stored.key, value) for stored, value in zip(group, values.tolist(), strict=True)]

    groups = _groups(keeping.stored(store, keys, batch=_IN_ONE_READ), _threads(device))
    scores: dict[int, float] = {}
    while some := list(islice(groups, _AT_ONCE)):
        for found in map_threads(scored, some, _threads(device)):
            scores |= dict(found)
    return scores


def _in_one_matrix(similarity: VideoSimilarity, query: Tensor, targets: Sequence[Tensor]) -> bool:
    """Whether scores can be read off the frame matrix of these videos as it is: one way, nothing doubled, and none so
    long that psi should not see it whole.
    """
    least = similarity.config.min_frames
    lengths = [len(target) for target in targets]
    small = similarity.comparator is None or len(query) * max(lengths) <= _PSI_CELLS
    return similarity.config.symmetry != "average" and min(len(query), *lengths) >= least and small


def _scores_of_matrix(similarity: VideoSimilarity, matrix: Tensor, lengths: Sequence[int]) -> Tensor:
    """The scores [N] of one video with N videos, from their frame matrices side by side, [Tq, sum of lengths]: as
    `pairwise`, but without its packing, which takes as long as the products where videos are short.
    """
    parts = torch.split_with_sizes(matrix, list(lengths), 1)
    if similarity.comparator is None:
        return torch.stack([similarity.aggregate_time(part) for part in parts])
    scores = matrix.new_empty(len(parts))
    for group in _alike(lengths, _PSI_CELLS // len(matrix)):
        longest = lengths[group[-1]]
        batch = torch.stack([F.pad(parts[place], (0, longest - lengths[place])) for place in group])  # [n, Tq, longest]
        real = torch.arange(longest) < torch.tensor([lengths[place] for place in group])[:, None]  # [n, longest]
        values = similarity.bounded(similarity.comparator(batch, None, real))
        scores[group] = similarity.aggregate_time(values, target_mask=pool_mask(pool_mask(real)))
    return scores


def _alike(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Places of similar lengths, ascending: none over a half longer than the first, nor over `most` if made as long.

    >>> list(_alike([9, 4, 12, 4, 10], 24))
    [[1, 3], [0, 4], [2]]
    """
    group: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda place: lengths[place]):
        length = lengths[place]
        if group and (2 * length > 3 * lengths[group[0]] or (len(group) + 1) * length > most):
            yield group
            group = []
        group.append(place)
    if group:
        yield group


def compared(
    store: Store, model: Model, query: Features, keys: Sequence[int], *, held: Held | None = None
) -> dict[int, tuple[float, tuple[Segment, ...]]]:
    """The score in full precision, and the segments, of each content that is there."""
    similarity = model.similarity
    device = model.extractor.device
    with torch.no_grad():
        described = similarity.describe_unchecked(query.regions.to(device))

    @torch.no_grad()
    def explained(stored: Stored) -> tuple[float, tuple[Segment, ...]]:
        target = stored.features(store.codec).with_timestamps(store.settings.rate).drop_flat()
        value, matrix = _both(similarity, described, similarity.describe_unchecked(target.regions.to(device)))
        if most_gain(matrix, model.segments.threshold) < model.segments.least_gain:
            return value, ()
        return value, tuple(find_segments(matrix, query.times, target.times, config=model.segments))

    answers: dict[int, tuple[float, tuple[Segment, ...]]] = {}
    hits = (held or Held(0)).stored(store, keys)
    while some := list(islice(hits, _AT_ONCE)):
        found = map_threads(explained, some, _threads(device))
        answers |= {stored.key: answer for stored, answer in zip(some, found, strict=True)}
    return answers


def _both(similarity: VideoSimilarity, query: Descriptors, target: Descriptors) -> tuple[float, NDArray[np.float32]]:
    """The score of two videos and their frame matrix [Tq, Tt]."""
    matrix = similarity.frame_matrix_unchecked(query, target)
    if query.device.type == "cpu" and _in_one_matrix(similarity, query, [target]):
        score = _scores_of_matrix(similarity, matrix, [len(target)])
    else:
        score = pairwise(similarity, [query], [target], dtype=torch.float32)
    return score.clamp(-1, 1).item(), matrix.float().cpu().numpy()


def _threads(device: torch.device) -> int:
    return torch.get_num_threads() if device.type == "cpu" else 1


def most_gain(matrix: NDArray[np.float32], threshold: float) -> float:
    """No path of a frame matrix [Tq, Tt] gains more: it passes each row once at most, and takes its best cell.

    >>> round(most_gain(np.array([[0.2, 0.7], [0.1, 0.2], [0.5, 0.4]], np.float32), 0.3), 4)
    0.6
    """
    return float(np.maximum(matrix.max(1) - threshold, 0.0).sum())


def _groups(contents: Iterator[Stored], threads: int) -> Iterator[list[Stored]]:
    """Stored contents, so many at a time that they can be decoded together; of few, a group for each thread."""
    first = list(islice(contents, _IN_ONE_READ))
    most = min(_FRAMES, -(-sum(stored.frames for stored in first) // threads))
    group: list[Stored] = []
    frames = 0
    for stored in chain(first, contents):
        if group and frames + stored.frames > most:
            yield group
            group, frames = [], 0
        group.append(stored)
        frames += stored.frames
    if group:
        yield group


def _informative(stored: Stored, store: Store, dtype: torch.dtype, every: int) -> Tensor:
    """The regions of a content that are compared, decoded."""
    data, frames = stored.data, stored.frames
    chosen = select_frames(stored.low_information, frames)[::every]
    if len(chosen) < frames:
        data = store.codec.taken(data, frames, stored.regions, stored.dims, chosen)
        frames = len(chosen)
    return store.codec.decode(data, frames, stored.regions, stored.dims, dtype=dtype)


def _without_psi(similarity: VideoSimilarity) -> VideoSimilarity:
    """The same network, as far as single frames go: psi was not trained on every third of them."""
    if similarity.comparator is None:
        return similarity
    plain = SimilarityConfig(comparator=False, min_frames=1)
    of_psi = {name: getattr(plain, name) for name in ("comparator", "residual", "negative_slope", "min_frames")}
    rough = VideoSimilarity(dataclasses.replace(similarity.config, **of_psi)).to(similarity.device).eval()
    for name, child in similarity.named_children():
        if name != _PSI:
            setattr(rough, name, child)
    return rough


_DIMS: WeakKeyDictionary[Store, tuple[int, int]] = WeakKeyDictionary()  # which the contents of a store share


def _require_dims(query: Features, store: Store) -> None:
    dims = _DIMS.get(store) or store.dims()
    if dims is not None:
        _DIMS[store] = dims
    if dims is not None and tuple(query.regions.shape[1:]) != dims:
        given = " x ".join(str(number) for number in query.regions.shape[1:])
        raise ShapeError(
            f"The query has {given} numbers a frame, the library {dims[0]} x {dims[1]}: they are of different models. "
            f"Describe it with '{store.settings.model}'."
        )
