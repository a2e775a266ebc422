"""VSC2022's descriptor track: files of frame descriptors, the challenge's limits, and its search.

queries.npz, references.npz
    video_ids   [n] the id of each descriptor's video; all of a video stand together, ids ascending
    timestamps  [n] seconds, or [n, 2] start and end
    features    [n, d] float32, d at most 512; at most one for each second of video, over the whole file
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from hapvr.errors import DataError, ShapeError
from hapvr.evaluation.benchmarks.pair_files import complete_id
from hapvr.evaluation.pair_records import Candidate
from hapvr.evaluation.score_files import NPZ_ERRORS
from hapvr.storage import StrPath

MAX_DIMS = 512
SEARCHED_PER_QUERY = 1200  # descriptor pairs that the search keeps, times the number of queries: 20 for each of 60 s
CANDIDATES_PER_QUERY = 25  # pairs of videos that are measured, times the number of queries
_BLOCK = 4096  # descriptors of the references scored at a time


@dataclass(frozen=True, eq=False)
class VideoDescriptors:
    """The descriptors of many videos, one after the other.

    Attributes:
        ids: [n] the id of each row's video.
        timestamps: [n] or [n, 2] seconds.
        features: [n, d] float32.
    """

    ids: NDArray[np.str_]
    timestamps: NDArray[np.float64]
    features: NDArray[np.float32]

    def __post_init__(self) -> None:
        if self.features.ndim != 2 or len(self.features) == 0:
            raise ShapeError(f"features must be [n, d] with n > 0, got {list(self.features.shape)}.")
        if len(self.ids) != len(self.features) or len(self.timestamps) != len(self.features):
            raise ShapeError(
                f"every descriptor needs an id and a time: got {len(self.features)} features, {len(self.ids)} "
                f"video_ids and {len(self.timestamps)} timestamps."
            )
        if self.timestamps.ndim != 1 and self.timestamps.shape[1:] != (2,):
            raise ShapeError(f"timestamps must be [n] or [n, 2] seconds, got {list(self.timestamps.shape)}.")
        if not np.isfinite(self.features).all():
            row = int(np.argwhere(~np.isfinite(self.features))[0][0])
            raise DataError(f"the descriptor of '{self.ids[row]}' in row {row} is not finite. Find what made it.")

    @property
    def videos(self) -> tuple[str, ...]:
        """The ids, each once, in their order."""
        return tuple(dict.fromkeys(self.ids.tolist()))

    def __iter__(self) -> Iterator[tuple[str, slice]]:
        """Each video with its rows."""
        starts = [0, *(np.flatnonzero(self.ids[1:] != self.ids[:-1]) + 1).tolist(), len(self.ids)]
        for start, end in itertools.pairwise(starts):
            yield str(self.ids[start]), slice(start, end)


def read_descriptors(path: StrPath, *, prefix: str = "") -> VideoDescriptors:
    """Read a .npz file of descriptors; a plain number as id gets `prefix`, "Q" or "R", as in VSC2022."""
    try:
        with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as stored:
            parts = {name: stored[name] for name in ("video_ids", "timestamps", "features")}
    except OSError as error:
        raise DataError(f"'{path}' cannot be read: {error.strerror or error}.") from error
    except NPZ_ERRORS as error:
        raise DataError(
            f"'{path}' holds no descriptors, or is damaged: {error}. A .npz file with video_ids, timestamps and "
            "features was expected."
        ) from error
    ids = parts["video_ids"]
    if ids.ndim != 1 or ids.dtype.kind not in "Uiu":
        raise DataError(f"'{path}': video_ids must be strings or numbers [n], got {ids.dtype} {list(ids.shape)}.")
    for name in ("timestamps", "features"):
        if parts[name].dtype.kind != "f":
            raise DataError(f"'{path}': {name} must be floating point, got {parts[name].dtype}.")
    names = np.array([complete_id(str(id), prefix) if prefix else str(id) for id in ids.tolist()], dtype=np.str_)
    features = parts["features"].astype(np.float32, copy=False)
    try:
        return VideoDescriptors(names, parts["timestamps"].astype(np.float64), features)
    except (ShapeError, DataError) as error:
        raise DataError(f"'{path}': {error}") from error


def find_limit_breaches(descriptors: VideoDescriptors, durations_s: Mapping[str, float] | None = None) -> list[str]:
    """What the challenge would refuse, in words; empty if nothing.

    Args:
        descriptors: those to look at.
        durations_s: seconds of every video of the set, where known: together they may have one descriptor for each
            second, each video's seconds rounded up.
    """
    found = []
    if descriptors.features.shape[1] > MAX_DIMS:
        found.append(f"descriptors have {descriptors.features.shape[1]} dims, at most {MAX_DIMS} are allowed")
    ids = descriptors.ids
    if len(ids) > 1 and bool((ids[1:] < ids[:-1]).any()):
        row = int(np.flatnonzero(ids[1:] < ids[:-1])[0]) + 1
        found.append(f"video_ids must ascend: row {row} is '{ids[row]}', after '{ids[row - 1]}'")
    if durations_s is not None:
        allowed = sum(math.ceil(seconds) for seconds in durations_s.values())
        if len(ids) > allowed:
            found.append(f"{len(ids):,} descriptors for {allowed:,} s of video, at most one a second is allowed")
        if unknown := [id for id in descriptors.videos if id not in durations_s]:
            found.append(f"{len(unknown):,} videos are not of the set, such as '{unknown[0]}'")
    return found


def search_descriptors(
    queries: VideoDescriptors,
    references: VideoDescriptors,
    *,
    per_query: int = SEARCHED_PER_QUERY,
    candidates_per_query: int = CANDIDATES_PER_QUERY,
) -> list[Candidate]:
    """The challenge's search: which pairs of videos have the largest inner products of descriptors.

    Of all products of all queries with all references the `per_query` times number of queries largest are kept; a pair
    of videos has its largest; of the pairs the `candidates_per_query` times number of queries best are
    returned, best first. Equal products are ordered by the rows of query and reference.
    """
    if queries.features.shape[1] != references.features.shape[1]:
        raise ShapeError(
            f"queries have descriptors of {queries.features.shape[1]} dims and references of "
            f"{references.features.shape[1]}. Give files of the same model."
        )
    count = len(queries.videos)
    query_rows = torch.from_numpy(np.ascontiguousarray(queries.features))
    kept_values, kept_places = torch.zeros(0), torch.zeros(0, dtype=torch.int64)
    total = len(references.ids)
    for start in range(0, total, _BLOCK):
        block = torch.from_numpy(np.ascontiguousarray(references.features[start : start + _BLOCK]))
        products = query_rows @ block.T  # [query rows, block]
        columns = torch.arange(start, start + len(block))
        places = torch.arange(len(query_rows))[:, None] * total + columns
        values = torch.cat([kept_values, products.flatten()])
        kept_places = torch.cat([kept_places, places.flatten()])
        kept_values, kept_places = _keep_largest(values, kept_places, per_query * count)
    best: dict[tuple[str, str], float] = {}
    for value, place in zip(kept_values.tolist(), kept_places.tolist(), strict=True):
        pair = str(queries.ids[place // total]), str(references.ids[place % total])
        best.setdefault(pair, value)  # the largest comes first
    return [Candidate(*pair, score) for pair, score in best.items()][: candidates_per_query * count]


def _keep_largest(values: torch.Tensor, places: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The `count` largest values, descending; of equal ones those of the smallest place."""
    if len(values) > count:
        least = values.topk(count).values[-1]
        above, equal = values > least, (values == least).nonzero()[:, 0]
        equal = equal[places[equal].argsort()][: count - int(above.sum())]
        chosen = torch.cat([above.nonzero()[:, 0], equal])
        values, places = values[chosen], places[chosen]
    order = places.argsort()
    values, places = values[order], places[order]
    order = values.argsort(descending=True, stable=True)
    return values[order], places[order]
