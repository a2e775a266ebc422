"""A question to a library: candidates by votes, exact scores on stored regions, and where the best of them match."""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hapvr.comparing import Match, Side, match, read_side
from hapvr.config import suggest
from hapvr.errors import ConfigError, DataError, DecodeError, ShapeError
from hapvr.features._threads import side_by_side
from hapvr.features.extractor import decode_parts, half_pays
from hapvr.features.files import Features, joined
from hapvr.library.candidates import candidates, most_candidates, runs
from hapvr.library.records import Hit, SearchResult, printable, shown
from hapvr.library.tables import NO_KEY, Stored
from hapvr.similarity import Segment, VideoSimilarity, find_segments, pairwise
from hapvr.similarity.network import Descriptors

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
) -> SearchResult:
    """The videos of a library that show what the query shows, best first.

    Candidates are found by their frames' vectors; those with the best rough scores are compared exactly with the stored
    regions, at most 5% of the library (10 at least) and `limit` videos; only what was compared can be a hit. Frames of
    low information neither vote nor count. The probability of a hit takes it for one of the N videos of the library of
    which one is wanted: its prior is 1 / N.

    Args:
        library: an open one.
        query: the path of a video or picture, the id of an indexed one (which is then no hit itself), or features.
        start: seconds; what lies before is left out.
        end: seconds, likewise what lies from there on.
        k: hits at most.
        min_probability: hits that match less likely are left out.
        exact: compare with everything. The work then grows with the library, the memory it takes does not.
        limit: videos that are compared exactly at most, unless `exact`.

    Raises:
        DecodeError: the query's file cannot be read.
        DataError: there is no such id, or no frame in that part of the query.
    """
    _check(start, end, k=k, min_probability=min_probability, limit=limit, exact=exact)
    clock = _Clock()
    store, model = library.store, library.model
    if min_probability is not None and model.calibration is None:
        raise ConfigError(f"The model '{model.name}' is not calibrated: its hits have no probability to choose by.")
    asked = read_query(library, query, start=start, end=end)
    clock.lap("decode")
    catalogue = store.catalogue()
    everything: NDArray[np.int64] = np.unique(catalogue.keys[catalogue.keys != NO_KEY])
    database = int((catalogue.keys != NO_KEY).sum()) - (asked.id is not None)
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
        rough = score(store, model, asked.features, keys.tolist(), every=EVERY)
        keys = np.array(sorted(rough, key=lambda key: (-rough[key], key))[:most], np.int64)
    clock.lap("candidates")
    scores = score(store, model, asked.features, keys.tolist())
    clock.lap("score")
    rows = [row for key in scores for row in catalogue.with_key(key) if catalogue.ids[row] != asked.id]
    rows.sort(key=lambda row: (-scores[int(catalogue.keys[row])], catalogue.paths[row]))
    found = compared(store, model, asked.features, list(dict.fromkeys(int(catalogue.keys[row]) for row in rows[:k])))
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
    path = library.get(str(query)).path if is_id else query
    side = _cut(read_side(path, model), start, end)
    prior = None if model.calibration is None else 1 / max(2, result.database)
    matches = []
    for hit in result.hits:
        try:
            matches.append(match(side, read_side(hit.path, model), model=model, prior=prior))
        except DecodeError as error:
            missing.append(f"'{shown(hit.path)}' (score {hit.score:.3f}) cannot be shown: {printable(str(error))}")
    return matches, missing


def _cut(side: Side, start: float | None, end: float | None) -> Side:
    """The part of a side in [start, end)."""
    kept = (side.times >= (start or 0.0)) & (side.times < (math.inf if end is None else end))
    if kept.all():
        return side
    if not kept.any():
        raise DataError(f"'{shown(side.path)}' has no frame from {start or 0.0:g} s to {end} s that could be shown.")
    descriptors = Descriptors.of(side.descriptors[torch.from_numpy(kept)])
    return dataclasses.replace(side, used=side.used[kept], descriptors=descriptors)


# --- the query -------------------------------------------------------------------------------------------------------


def read_query(
    library: Library,
    query: str | os.PathLike[str] | Features,
    *,
    start: float | None = None,
    end: float | None = None,
) -> Query:
    """The frames of a query that are compared, with the times they have in the whole of it."""
    if isinstance(query, Features):
        return Query(_part(_timed(query, library.settings.rate), start, end, name="The query").informative())
    if not isinstance(query, str | os.PathLike):
        raise DataError(f"A query is a path, an id or Features, got a {type(query).__name__}.")
    catalogue = library.store.catalogue()
    if isinstance(query, str) and query in catalogue:
        record = catalogue.record(catalogue.row(query))
        if record.state == "failed":
            raise DataError(
                f"'{shown(record.path)}' could not be described, so nothing can be looked for: {record.error}"
            )
        stored = _timed(library.features(query), library.settings.rate)
        return Query(_part(stored, start, end, name=f"'{query}'").informative(), query)
    if not os.path.lexists(query):
        near = suggest(os.fspath(query), catalogue.ids[:20_000]) if isinstance(query, str) else ""
        raise DataError(f"'{shown(query)}' is neither a file nor the id of a video in the library; {near}".rstrip("; "))
    return Query(_read(query, library.model, start, end).informative())


def _read(path: str | os.PathLike[str], model: Model, start: float | None, end: float | None) -> Features:
    if start is None and end is None:
        return joined([model.extractor.features(part) for part in decode_parts(path, model.sampling)])
    from hapvr.video.decode import decode

    sampling = model.sampling
    frames = decode(
        path,
        fps=sampling.fps,
        short_side=sampling.short_side,
        at_least=sampling.at_least,
        start_s=start,
        end_s=end,
    )
    return _part(model.extractor.features(frames), start, end, name=f"'{shown(path)}'")


def _timed(features: Features, rate: float) -> Features:
    if features.timestamps is not None:
        return features
    return dataclasses.replace(features, timestamps=np.arange(len(features)) / rate)


def _times(features: Features) -> NDArray[np.float64]:
    assert features.timestamps is not None, "timed before"
    return features.timestamps


def _part(features: Features, start: float | None, end: float | None, *, name: str) -> Features:
    """The frames in [start, end)."""
    if start is None and end is None:
        return features
    times = _times(features)
    kept = (times >= (start or 0.0)) & (times < (math.inf if end is None else end))
    if not kept.any():
        until = "its end" if end is None else f"{end:g} s"
        raise DataError(f"{name} has no frame from {start or 0.0:g} s to {until}: its frames are of {times[0]:g} to "
                        f"{times[-1]:g} s.")  # fmt: skip
    low = None if features.low_information is None else features.low_information[kept]
    return Features(features.regions[torch.from_numpy(kept)], times[kept], low)


# --- scores ----------------------------------------------------------------------------------------------------------


def score(store: Store, model: Model, query: Features, keys: Sequence[int], *, every: int = 1) -> dict[int, float]:
    """The score of each content that is there, in memory that does not grow with their number.

    On CPUs that multiply bfloat16 and on GPUs it is used: scores are within 5e-3 of those of `compared`.

    Args:
        store: the tables of the library.
        model: the one it was made with.
        query: the frames that are compared.
        keys: of the contents.
        every: with 3, a rough score of every third frame of both, without psi, for a ninth of the work.
    """
    similarity = model.similarity if every == 1 else _without_psi(model.similarity)
    device = model.extractor.device
    dtype = torch.bfloat16 if device.type == "cuda" or half_pays() else torch.float32
    _require_dims(query, store)
    with torch.no_grad():
        described = similarity.describe_unchecked(query.regions[::every].to(device))
    plain = similarity.attention is None and similarity.binarization is None

    def scored(group: list[Stored]) -> list[tuple[int, float]]:
        targets = [_informative(stored, store, dtype, every) for stored in group]
        if plain:  # there is nothing to be done to them, nor to be done in float32
            targets = [Descriptors.of(target) for target in targets]
        values = pairwise(similarity, [described], targets, dtype=dtype)[0].tolist()
        return [(stored.key, value) for stored, value in zip(group, values, strict=True)]

    groups = _groups(store, keys)
    scores: dict[int, float] = {}
    while some := list(islice(groups, _AT_ONCE)):
        for found in side_by_side(scored, some, _threads(device)):
            scores |= dict(found)
    return scores


def compared(
    store: Store, model: Model, query: Features, keys: Sequence[int]
) -> dict[int, tuple[float, tuple[Segment, ...]]]:
    """The score in full precision, and the segments, of each content that is there."""
    similarity = model.similarity
    device = model.extractor.device
    with torch.no_grad():
        described = similarity.describe_unchecked(query.regions.to(device))

    @torch.no_grad()
    def explained(stored: Stored) -> tuple[float, tuple[Segment, ...]]:
        target = _timed(stored.features(store.codec), store.settings.rate).informative()
        regions = similarity.describe_unchecked(target.regions.to(device))
        value = pairwise(similarity, [described], [regions], dtype=torch.float32).clamp(-1, 1).item()
        matrix = similarity.frame_matrix_unchecked(described, regions).float().cpu().numpy()
        if most_gain(matrix, model.segments.threshold) < model.segments.least_gain:
            return value, ()
        return value, tuple(find_segments(matrix, _times(query), _times(target), config=model.segments))

    found: dict[int, tuple[float, tuple[Segment, ...]]] = {}
    hits = store.stored(keys)
    while some := list(islice(hits, _AT_ONCE)):
        answers = side_by_side(explained, some, _threads(device))
        found |= {stored.key: answer for stored, answer in zip(some, answers, strict=True)}
    return found


def _threads(device: torch.device) -> int:
    return torch.get_num_threads() if device.type == "cpu" else 1


def most_gain(matrix: NDArray[np.float32], threshold: float) -> float:
    """No path of a frame matrix [Tq, Tt] gains more: it passes each row once at most, and takes its best cell.

    >>> round(most_gain(np.array([[0.2, 0.7], [0.1, 0.2], [0.5, 0.4]], np.float32), 0.3), 4)
    0.6
    """
    return float(np.maximum(matrix.max(1) - threshold, 0.0).sum())


def _groups(store: Store, keys: Sequence[int]) -> Iterator[list[Stored]]:
    """Stored contents, so many at a time that they can be decoded together."""
    group: list[Stored] = []
    frames = 0
    for stored in store.stored(keys, batch=_IN_ONE_READ):
        if group and frames + stored.frames > _FRAMES:
            yield group
            group, frames = [], 0
        group.append(stored)
        frames += stored.frames
    if group:
        yield group


def _informative(stored: Stored, store: Store, dtype: torch.dtype, every: int) -> Tensor:
    """The regions of a content that are compared, decoded."""
    low, data, frames = stored.low_information, stored.data, stored.frames
    chosen = np.arange(frames) if low is None or low.all() else np.flatnonzero(~low)
    if len(chosen[::every]) < frames:
        data = store.codec.taken(data, frames, stored.regions, stored.dims, chosen[::every])
        frames = len(chosen[::every])
    return store.codec.decode(data, frames, stored.regions, stored.dims, dtype=dtype)


def _without_psi(similarity: VideoSimilarity) -> VideoSimilarity:
    """The same network, as far as single frames go: psi was not trained on every third of them."""
    if similarity.comparator is None:
        return similarity
    config = dataclasses.replace(similarity.config, comparator=False, residual=False, min_frames=1)
    plain = VideoSimilarity(config).to(similarity.device).eval()
    plain.attention, plain.binarization = similarity.attention, similarity.binarization
    return plain


def _require_dims(query: Features, store: Store) -> None:
    dims = store.dims()
    if dims is not None and tuple(query.regions.shape[1:]) != dims:
        given = " x ".join(str(number) for number in query.regions.shape[1:])
        raise ShapeError(
            f"The query has {given} numbers a frame, the library {dims[0]} x {dims[1]}: they are of different models. "
            f"Describe it with '{store.settings.model}'."
        )
