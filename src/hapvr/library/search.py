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

from hapvr.comparing import Instant, Match, Verdict, best_instant, decide, match, require_prior
from hapvr.errors import ConfigError, ShapeError
from hapvr.features import Features, select_frames
from hapvr.features.extractor import fast_dtype
from hapvr.library.calibrating import require_calibration
from hapvr.library.candidates import find_candidates, max_candidates, runs
from hapvr.library.holding import Held
from hapvr.library.queries import is_unchanged, read_query
from hapvr.library.records import Hit, SearchResult, shown
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
class Compared:
    """A query and one content, compared in full precision."""

    score: float  # in [-1, 1]
    segments: tuple[Segment, ...]
    best: Instant  # the most similar frames
    verdict: Verdict


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
    prior: float | None = None,
    held: Held | None = None,
) -> SearchResult:
    """The videos of a library that show what the query shows, best first.

    Candidates are found by their frames' vectors; those with the best rough scores are compared exactly with the stored
    regions, at most 5% of the library (10 at least) and `limit` videos; only what was compared can be a hit. Frames of
    low information neither vote nor count; a query of nothing else has no hits, and a note that says so. Score and
    probability of a hit are those that `Library.compare` has for the pair, whatever else the library holds.

    Args:
        library: an open one.
        query: the path of a video or picture, the id of an indexed one (which is then no hit itself), or features.
        start: seconds; what lies before is left out.
        end: seconds, likewise what lies from there on.
        k: hits at most.
        min_probability: hits that match less likely are left out, and those without a stretch that matches.
        exact: compare with everything. The work then grows with the library, the memory it takes does not.
        limit: videos that are compared exactly at most, unless `exact`.
        prior: how likely a match is before looking, for the probabilities; the calibration's own if None.
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
    require_prior(prior, model)
    if model.calibration is not None and prior is None:
        prior = model.calibration.prior
    held = held or Held(_IN_ONE_SEARCH, only_stored=True)
    asked = read_query(library, query, start=start, end=end, held=held)
    clock.lap("decode")
    catalogue = store.catalogue()
    everything: NDArray[np.int64] = np.unique(catalogue.keys[catalogue.keys != NO_KEY])
    database = int((catalogue.keys != NO_KEY).sum()) - (asked.id is not None)
    if asked.features.all_flat:
        for name in ("candidates", "score", "segments"):
            clock.lap(name)
        return SearchResult((), database, 0, clock.seconds, NOTHING_TO_LOOK_FOR, prior, asked.all_warnings)
    _require_dims(asked.features, store)
    most = max_candidates(database, k=k, limit=limit)
    if exact or len(everything) <= most:
        keys = everything
    else:
        votes = runs(asked.features.regions, asked.features.low_information)
        keys = find_candidates(store, *votes, max_keys=min(WIDER * most, most + LIMIT))
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
    found = compared(store, model, asked.features, best, prior=prior, held=held)
    hits = []
    for record, row in zip(catalogue.records(rows[:k]), rows[:k], strict=True):
        one = found.get(int(catalogue.keys[row]))
        if one is None:  # removed meanwhile
            continue
        if min_probability is None or _is_likely(one.verdict, min_probability):
            hits.append(Hit(record.id, record.path, one.score, one.verdict, one.segments, one.best, record.warnings))
    hits.sort(key=lambda hit: -hit.score)
    clock.lap("segments")
    note = None if hits or min_probability is None else _too_much(model, min_probability, prior)
    return SearchResult(tuple(hits), database, len(scores), clock.seconds, note, prior, asked.all_warnings)


def _is_likely(verdict: Verdict, least: float) -> bool:
    return verdict.aligned and verdict.probability is not None and verdict.probability >= least


def _too_much(model: Model, least: float, prior: float | None) -> str | None:
    """That no hit could be as likely as that, if so."""
    assert model.calibration is not None
    most = model.calibration.probability(1.0, prior=prior)
    if most >= least:
        return None
    return (
        f"No hit can have a probability of {least:g}: the videos that the calibration was fitted on speak for no more "
        f"than {most:.3f}. Ask for less."
    )


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
    """The hits of a search with the matrix and the pictures of each, and which cannot be read any more.

    Scores, probabilities and segments are those of the hits: what is stored is compared; only pictures come from files.

    Args:
        library: that was searched.
        query: what it was asked: a path or an id.
        result: what it answered.
        start: as it was asked.
        end: likewise.
    """
    model = library.model
    side = read_query(library, query, start=start, end=end).side(model)
    matches, missing = [], []
    for hit in result.hits:
        if is_unchanged(library.get(hit.id)):
            matches.append(match(side, read_query(library, hit.id).side(model), model=model, prior=result.prior))
        else:
            missing.append(f"'{shown(hit.path)}' (score {hit.score:.3f}) cannot be shown: it is gone, or has changed.")
    return matches, missing


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
    store: Store,
    model: Model,
    query: Features,
    keys: Sequence[int],
    *,
    prior: float | None = None,
    held: Held | None = None,
) -> dict[int, Compared]:
    """The score in full precision, the segments and the verdict, of each content that is there."""
    device = model.extractor.device
    with torch.no_grad():
        described = model.similarity.describe_unchecked(query.regions.to(device))

    def compare(stored: Stored) -> Compared:
        target = stored.features(store.codec).with_timestamps(store.settings.rate).drop_flat()
        return compare_described(model, described, query.times, target, prior=prior)

    answers: dict[int, Compared] = {}
    hits = (held or Held(0)).stored(store, keys)
    while some := list(islice(hits, _AT_ONCE)):
        found = map_threads(compare, some, _threads(device))
        answers |= {stored.key: answer for stored, answer in zip(some, found, strict=True)}
    return answers


@torch.no_grad()
def compare_described(
    model: Model,
    described: Descriptors,
    query_times: NDArray[np.float64],
    target: Features,
    *,
    prior: float | None = None,
) -> Compared:
    """Compare a query whose frames [Tq, R, D] are described with the frames of a target that are compared."""
    similarity = model.similarity
    regions = similarity.describe_unchecked(target.regions.to(model.extractor.device))
    value, matrix = _both(similarity, described, regions)
    segments: Sequence[Segment] = ()
    if most_gain(matrix, model.segments.threshold) >= model.segments.least_gain:
        segments = find_segments(matrix, query_times, target.times, config=model.segments)
    verdict = decide(value, segments, matrix, model=model, prior=prior)
    return Compared(value, tuple(segments), best_instant(matrix, query_times, target.times), verdict)


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
