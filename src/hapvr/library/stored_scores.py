"""Scores of one query with stored contents: many by `pairwise`, quickly, and the best of them in full precision."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, islice
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from hapvr.errors import ShapeError
from hapvr.features import Features, select_frames
from hapvr.features.extractor import fast_dtype
from hapvr.library.region_cache import RegionCache
from hapvr.library.store import Store
from hapvr.library.tables import Stored
from hapvr.matching import Match, VideoDescription, describe_features, match_videos
from hapvr.model import Model
from hapvr.similarity import pairwise
from hapvr.similarity.network import Descriptors
from hapvr.workers.threads import map_threads

_GROUP_FRAMES = 1_024  # of stored videos decoded together, by each thread: some 10 MB
_GROUPS = 32  # that are waiting to be decoded
_IN_ONE_READ = 256  # contents


def score_contents(
    store: Store,
    model: Model,
    query: Features,
    keys: Sequence[int],
    *,
    every: int = 1,
    cache: RegionCache | None = None,
) -> dict[int, float]:
    """The score of each content that is there, in memory that does not grow with their number.

    In half precision, where that is faster, scores are within 5e-3 of those of `match_contents`.

    Args:
        store: the tables of the library.
        model: the one it was made with.
        query: the frames that are compared.
        keys: of the contents.
        every: with 3, a rough score of every third frame of both, without psi, for a ninth of the work.
        cache: stored videos that are in memory.
    """
    require_dims(query, store)
    similarity = model.similarity if every == 1 else model.similarity.without_comparator()
    device, dtype, kept = model.extractor.device, fast_dtype(model.extractor.device), cache or RegionCache(0)
    # On a CPU vectors are described before they are cached; on a GPU `pairwise` does it there.
    describes = device.type == "cpu" and similarity.changes_regions
    with torch.no_grad():
        described = similarity.describe_unchecked(query.regions[::every].to(device))

    @torch.no_grad()
    def prepare(stored: Stored) -> Tensor:
        regions = _decode_compared(stored, store, dtype, every)
        return similarity.describe_unchecked(regions).as_subclass(Tensor).to(dtype) if describes else regions

    def score(group: list[Stored]) -> list[tuple[int, float]]:
        targets = [kept.vectors(store, stored.key, every, partial(prepare, stored)) for stored in group]
        if describes or not similarity.changes_regions:
            targets = [Descriptors.of(target) for target in targets]
        values = pairwise(similarity, [described], targets, dtype=dtype)[0]
        return [(stored.key, value) for stored, value in zip(group, values.tolist(), strict=True)]

    groups = _group(kept.stored(store, keys, batch=_IN_ONE_READ), _threads(device))
    scores: dict[int, float] = {}
    while some := list(islice(groups, _GROUPS)):
        for found in map_threads(score, some, _threads(device)):
            scores |= dict(found)
    return scores


def match_contents(
    store: Store,
    model: Model,
    query: VideoDescription,
    keys: Sequence[int],
    *,
    prior: float | None = None,
    cache: RegionCache | None = None,
) -> dict[int, Match]:
    """The query with each content that is there, as `Library.compare` compares them."""

    def compare(stored: Stored) -> Match:
        features = stored.features(store.codec).with_timestamps(store.settings.rate)
        return match_videos(query, describe_features(model, features, path=""), model=model, prior=prior)

    answers: dict[int, Match] = {}
    contents = (cache or RegionCache(0)).stored(store, keys)
    while some := list(islice(contents, _GROUPS)):
        found = map_threads(compare, some, _threads(model.extractor.device))
        answers |= {stored.key: answer for stored, answer in zip(some, found, strict=True)}
    return answers


def _threads(device: torch.device) -> int:
    return torch.get_num_threads() if device.type == "cpu" else 1


def _group(contents: Iterator[Stored], threads: int) -> Iterator[list[Stored]]:
    """Stored contents, so many at a time that they can be decoded together; of few, a group for each thread."""
    first = list(islice(contents, _IN_ONE_READ))
    max_frames = min(_GROUP_FRAMES, -(-sum(stored.frames for stored in first) // threads))
    group: list[Stored] = []
    frames = 0
    for stored in chain(first, contents):
        if group and frames + stored.frames > max_frames:
            yield group
            group, frames = [], 0
        group.append(stored)
        frames += stored.frames
    if group:
        yield group


def _decode_compared(stored: Stored, store: Store, dtype: torch.dtype, every: int) -> Tensor:
    """Every `every`-th of the frames of a content that are compared, decoded: [T, R, D]."""
    data, frames = stored.data, stored.frames
    chosen = select_frames(stored.low_information, frames)[::every]
    if len(chosen) < frames:
        data = store.codec.take(data, frames, stored.regions, stored.dims, chosen)
    return store.codec.decode(data, len(chosen), stored.regions, stored.dims, dtype=dtype)


_DIMS: WeakKeyDictionary[Store, tuple[int, int]] = WeakKeyDictionary()  # which the contents of a store share


def require_dims(query: Features, store: Store) -> None:
    """Raise `ShapeError` for features of another shape than those of the library."""
    dims = _DIMS.get(store) or store.dims()
    if dims is not None:
        _DIMS[store] = dims
    if dims is not None and tuple(query.regions.shape[1:]) != dims:
        given = " x ".join(str(number) for number in query.regions.shape[1:])
        raise ShapeError(
            f"The query has {given} numbers a frame, the library {dims[0]} x {dims[1]}: they are of different models. "
            f"Describe it with '{store.settings.model}'."
        )
