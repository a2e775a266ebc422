"""Scores of one query with stored contents: many by `pairwise`, quickly, and the best of them in full precision.

`RegionCache` keeps stored videos in memory from one search to the next.
"""

from __future__ import annotations

import bisect
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import chain, islice
from typing import TypeAlias, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hapvr.errors import ShapeError
from hapvr.features import Features, select_frames
from hapvr.library.codecs import Chosen
from hapvr.library.results import VideoRecord
from hapvr.library.store import Store
from hapvr.library.tables import NO_KEY, Catalog, StoredContent
from hapvr.matching import Match, VideoDescription, describe_features
from hapvr.model import Model
from hapvr.similarity import pairwise
from hapvr.similarity.int8 import Int8Descriptors, Int8Scorer, fast_score_dtype, quantize
from hapvr.similarity.network import Descriptors, VideoSimilarity
from hapvr.storage import StrPath, file_signature
from hapvr.workers.threads import map_threads, share_work

# --- in memory from one search to the next ---------------------------------------------------------------------------

_SHARE = 4  # one value takes a fourth of the bytes at most
_BYTES = 0  # in place of `every`: the content as it lies in the tables
Vectors: TypeAlias = "Tensor | Int8Descriptors"
Made = TypeVar("Made", bound=Vectors)


class RegionCache:
    """Contents by key; the least recently used are dropped when they take too many bytes. Safe to share.

    A key is never given to another content of the same tables, so nothing in the cache can be out of date; when other
    tables are asked for, all of it is dropped, and `drop_removed` drops what no record names any more. With `max_bytes`
    of 0 nothing is cached; with `only_stored`, what lies in the tables, but not the vectors made of it.
    """

    def __init__(self, max_bytes: int, *, only_stored: bool = False) -> None:
        self.max_bytes, self.bytes = max_bytes, 0
        self._only_stored = only_stored
        self._values: OrderedDict[tuple[int, int], StoredContent | Vectors] = OrderedDict()  # by key and `every`
        self._parts: set[int] = set()  # each `every` above 1
        self._folder: object = None
        self._catalog: Callable[[], Catalog | None] = lambda: None  # the last one of `drop_removed`, if it still lives
        self._lock = threading.Lock()

    def read_contents(self, store: Store, keys: Sequence[int], *, batch: int = 64) -> Iterator[StoredContent]:
        """`Store.read_contents`, of which only what is not cached is read."""
        if not self.max_bytes:
            yield from store.read_contents(keys, batch=batch)
            return
        for first in range(0, len(keys), batch):
            wanted = [int(key) for key in keys[first : first + batch]]
            cached = zip(wanted, self._get(store, [(key, _BYTES) for key in wanted]), strict=True)
            found = {key: one for key, one in cached if isinstance(one, StoredContent)}
            for one in store.read_contents([key for key in wanted if key not in found], batch=batch):
                self._set(store, (one.key, _BYTES), one, one.nbytes)
                found[one.key] = one
            yield from (found[key] for key in wanted if key in found)

    def read_features(self, store: Store, key: int) -> Features:
        """`Store.features`, read if they are not cached."""
        for stored in self.read_contents(store, [key]):
            return stored.features(store.codec)
        return store.features(key)  # which says what is wrong

    def vectors(
        self, store: Store, keys: Sequence[int], every: int, make: Callable[[list[int]], list[Made]]
    ) -> list[Made]:
        """Every `every`-th of the frames of contents that are compared, [T, ...] each: from the cache, or made.

        `make` gets the places of those among `keys` that are not cached. What it gives must depend on nothing else than
        the store, the key and `every`.
        """
        found = {place: one for place, one in enumerate(self._find(store, keys, every)) if one is not None}
        lacking = [place for place in range(len(keys)) if place not in found]
        for place, made in zip(lacking, make(lacking) if lacking else [], strict=True):
            self._set(store, (keys[place], every), made, made.nbytes)
            found[place] = made
        return [cast(Made, found[place]) for place in range(len(keys))]

    def drop_removed(self, catalog: Catalog) -> None:
        """Drop contents that are not in the catalog: nobody will ask for them, and they would stay until it is full."""
        with self._lock:
            if self._catalog() is not catalog:
                self._catalog = weakref.ref(catalog)
                for place in [place for place in self._values if not catalog.with_key(place[0])]:
                    self._drop(place)

    @property
    def keeps_vectors(self) -> bool:
        """Whether vectors are cached, and not only what lies in the tables."""
        return self.max_bytes > 0 and not self._only_stored

    def _find(self, store: Store, keys: Sequence[int], every: int) -> list[Vectors | None]:
        """The vectors of contents, or None for those that are not cached."""
        if not self.keeps_vectors:
            return [None] * len(keys)
        found: list[Vectors | None] = []
        for whole, some in zip(*(self._get(store, [(key, step) for key in keys]) for step in (1, every)), strict=True):
            if isinstance(whole, (Tensor, Int8Descriptors)):
                found.append(whole if every == 1 else whole[::every])
            else:
                found.append(some if isinstance(some, (Tensor, Int8Descriptors)) else None)
        return found

    def _get(self, store: Store, places: Sequence[tuple[int, int]]) -> list[StoredContent | Vectors | None]:
        with self._lock:
            self._clear_if_other(store)
            for place in places:
                if place in self._values:
                    self._values.move_to_end(place)
            return [self._values.get(place) for place in places]

    def _set(self, store: Store, place: tuple[int, int], value: StoredContent | Vectors, size: int) -> None:
        key, every = place
        if every != _BYTES and not self.keeps_vectors:
            return
        with self._lock:
            self._clear_if_other(store)
            if place in self._values or size > self.max_bytes // _SHARE:
                return
            if every > 1:
                self._parts.add(every)
            elif every == 1:  # then its parts are not needed any more
                for part in self._parts:
                    self._drop((key, part))
            self._values[place] = value
            self.bytes += size
            while self.bytes > self.max_bytes:
                self._drop(next(iter(self._values)))

    def _drop(self, place: tuple[int, int]) -> None:
        gone = self._values.pop(place, None)
        if gone is not None:
            self.bytes -= gone.nbytes

    def _clear_if_other(self, store: Store) -> None:
        if store.folder != self._folder:
            self._values.clear()
            self._folder, self.bytes = store.folder, 0


NO_CACHE = RegionCache(0)

# --- scores ----------------------------------------------------------------------------------------------------------

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
    cache: RegionCache = NO_CACHE,
    threads: int = 1,
) -> dict[int, float]:
    """The score of each content that is there, in memory that does not grow with their number.

    `query` has only the frames that are compared. With `every` of 3 it is a rough score of every third frame of both,
    without psi, for a ninth of the work. In the precision that is fastest, scores are within 5e-3 of those of
    `match_contents`, in int8 within 2e-3.
    """
    require_dims(query, store)
    workers: list[Callable[[list[StoredContent]], Tensor]] = []
    for network in model.networks:  # one a device: each takes the next group when it is free
        similarity = network if every == 1 else network.without_comparator()
        dtype = fast_score_dtype(similarity, query.regions.shape[1])
        with torch.no_grad():
            described = similarity.make_descriptors_unchecked(query.regions[::every].to(similarity.device))
        workers.append(
            _score_in_int8(store, similarity, described, every, cache)
            if dtype == torch.int8
            else _score_in_float(store, similarity, described, every, cache, dtype)
        )
    workers *= _limit_threads(threads, model.extractor.device)
    groups = _group(cache.read_contents(store, keys, batch=_IN_ONE_READ), len(workers))
    scores: dict[int, float] = {}
    while some := list(islice(groups, _GROUPS)):
        for group, found in zip(some, share_work(workers, some), strict=True):
            scores |= zip((stored.key for stored in group), found.tolist(), strict=True)
    return scores


def _score_in_int8(
    store: Store, similarity: VideoSimilarity, query: Descriptors, every: int, cache: RegionCache
) -> Callable[[list[StoredContent]], Tensor]:
    """What scores a group of contents on a CPU that multiplies bytes. They are decoded together, in one piece."""
    scorer = Int8Scorer(similarity)
    asked = scorer.prepare(query, "query")

    def prepare(group: list[StoredContent]) -> tuple[Int8Descriptors, list[int]]:
        """The codes of contents laid end to end, and how many frames each has."""
        _, regions, dims = query.shape
        videos: list[Chosen] = [(stored.data, stored.frames, _choose_frames(stored, every)) for stored in group]
        lengths = [frames if chosen is None else len(chosen) for _, frames, chosen in videos]
        if not similarity.changes_regions:
            return store.codec.decode_all_to_int8(videos, regions, dims), lengths
        vectors = torch.cat([store.codec.decode(*_take_compared(stored, store, every)) for stored in group])
        return quantize(similarity.make_descriptors_unchecked(vectors)), lengths

    def make(group: list[StoredContent]) -> list[Int8Descriptors]:
        """The same one by one, each in memory that is its own: it may be cached for longer than the others."""
        joined, lengths = prepare(group)
        return [Int8Descriptors(part.codes.clone(), part.scales.clone()) for part in joined.split(lengths)]

    def score(group: list[StoredContent]) -> Tensor:
        with torch.no_grad(), torch.autocast("cpu", enabled=False):  # which a thread does not inherit
            if not cache.keeps_vectors:
                joined, lengths = prepare(group)
                return scorer.score(asked, joined.split(lengths))
            keys = [stored.key for stored in group]
            videos = cache.vectors(store, keys, every, lambda places: make([group[place] for place in places]))
            return scorer.score(asked, videos)

    return score


def _score_in_float(
    store: Store, similarity: VideoSimilarity, query: Descriptors, every: int, cache: RegionCache, dtype: torch.dtype
) -> Callable[[list[StoredContent]], Tensor]:
    """What scores a group of contents by `pairwise`."""
    # On a CPU vectors are described before they are cached; on a GPU `pairwise` does it there.
    describes = similarity.device.type == "cpu" and similarity.changes_regions

    @torch.no_grad()
    def prepare(stored: StoredContent) -> Tensor:
        regions = store.codec.decode(*_take_compared(stored, store, every), dtype=dtype)
        return similarity.make_descriptors_unchecked(regions).as_subclass(Tensor).to(dtype) if describes else regions

    def score(group: list[StoredContent]) -> Tensor:
        keys = [stored.key for stored in group]
        targets = cache.vectors(store, keys, every, lambda places: [prepare(group[place]) for place in places])
        if describes or not similarity.changes_regions:
            targets = [Descriptors.of(target) for target in targets]
        return pairwise(similarity, [query], targets, dtype=dtype)[0]

    return score


def match_contents(
    store: Store,
    model: Model,
    keys: Sequence[int],
    match: Callable[[VideoDescription], Match],
    *,
    cache: RegionCache = NO_CACHE,
    threads: int = 1,
) -> dict[int, Match]:
    """What `match` says of each content that is there, by key."""
    catalog = store.catalog()
    rows = {key: catalog.with_key(key) for key in keys}
    records = dict(zip(chain(*rows.values()), catalog.records(list(chain(*rows.values()))), strict=True))

    def compare(stored: StoredContent) -> Match:
        target = describe_stored(stored, store, model, [records[row] for row in rows[stored.key]])
        return match(target)

    answers: dict[int, Match] = {}
    contents = cache.read_contents(store, keys)
    while some := list(islice(contents, _GROUPS)):
        found = map_threads(compare, some, _limit_threads(threads, model.extractor.device))
        answers |= {stored.key: answer for stored, answer in zip(some, found, strict=True)}
    return answers


def describe_stored(
    stored: StoredContent, store: Store, model: Model, records: Sequence[VideoRecord]
) -> VideoDescription:
    """A content ready to be compared, with the first of its files that is as it was when it was added, if any is."""
    features = stored.features(store.codec).with_timestamps(store.settings.fps)
    file = next((record for record in records if is_unchanged(record)), None)
    if file is None:
        return describe_features(model, features, path="")
    return describe_features(model, features, path=file.path, duration_s=file.duration, sampling=model.sampling)


def is_unchanged(record: VideoRecord) -> bool:
    """Whether a file is there and, by its size and time, the one that was added."""
    return (record.size, record.mtime_ns) == file_signature(os.fsencode(record.path))


def find_unchanged(catalog: Catalog, known: Collection[int] = ()) -> dict[int, str]:
    """The files of contents by key, but of those that are `known`; of copies, the first that is as it was added."""
    found: dict[int, str] = {}
    for key in catalog.contents.tolist():
        if key not in known:
            records = (catalog.record(row) for row in catalog.with_key(key))
            path = next((record.path for record in records if is_unchanged(record)), None)
            if path is not None:
                found[key] = path
    return found


def find_row(catalog: Catalog, path: StrPath) -> int | None:
    """The row of a file that is as it was when it was added; None for any other."""
    name = os.fsencode(os.path.abspath(path))
    row = bisect.bisect_left(catalog.paths, name)
    if row == len(catalog) or catalog.paths[row] != name or catalog.keys[row] == NO_KEY:
        return None
    return row if is_unchanged(catalog.record(row)) else None


def _limit_threads(threads: int, device: torch.device) -> int:
    return threads if device.type == "cpu" else 1


def _group(contents: Iterator[StoredContent], threads: int) -> Iterator[list[StoredContent]]:
    """StoredContent contents in groups that can be decoded together; of few, a group for each thread."""
    first = list(islice(contents, _IN_ONE_READ))
    max_frames = min(_GROUP_FRAMES, -(-sum(stored.frames for stored in first) // threads))
    group: list[StoredContent] = []
    frames = 0
    for stored in chain(first, contents):
        if group and frames + stored.frames > max_frames:
            yield group
            group, frames = [], 0
        group.append(stored)
        frames += stored.frames
    if group:
        yield group


def _take_compared(stored: StoredContent, store: Store, every: int) -> tuple[bytes | memoryview, int, int, int]:
    """Every `every`-th of the frames of a content that are compared, as a codec decodes them: bytes and [T, R, D]."""
    data, frames, chosen = stored.data, stored.frames, _choose_frames(stored, every)
    if chosen is not None:
        data, frames = store.codec.take(data, frames, stored.regions, stored.dims, chosen), len(chosen)
    return data, frames, stored.regions, stored.dims


def _choose_frames(stored: StoredContent, every: int) -> NDArray[np.intp] | None:
    """Every `every`-th of the frames of a content that are compared; None for all frames."""
    if stored.low_information is not None and stored.low_information.any():
        return select_frames(stored.low_information, stored.frames)[::every]
    return None if every == 1 else np.arange(0, stored.frames, every)


def require_dims(query: Features, store: Store) -> None:
    """Raise `ShapeError` for features of another shape than those of the library."""
    dims = store.dims()
    if dims is not None and tuple(query.regions.shape[1:]) != dims:
        given = " x ".join(str(number) for number in query.regions.shape[1:])
        raise ShapeError(
            f"The query has {given} numbers a frame, the library {dims[0]} x {dims[1]}: they are of different models. "
            f"Describe it with '{store.settings.model}'."
        )
