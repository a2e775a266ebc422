"""A map of a library: videos that look alike lie close together, and groups of them are marked.

One vector stands for a video: the mean of its region vectors. t-SNE lays the vectors out in the plane, HDBSCAN finds
the groups, both of scikit-learn (the extra `map`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hapvr.errors import ConfigError
from hapvr.library.results import VideoRecord

if TYPE_CHECKING:
    from hapvr.library.opening import OpenLibrary

MAX_VIDEOS = 3000  # of a map, if nothing else is said: some 30 s of work
_NEIGHBOURS = 6
_PERPLEXITY = 30.0  # t-SNE's usual number of neighbours
_MIN_GROUP = 3  # videos


@dataclass(frozen=True)
class MapPoint:
    """Where a video lies."""

    video: VideoRecord
    x: float  # 0 to 1, to the right
    y: float  # 0 to 1, downwards
    group: int | None  # from 0 on, the largest first; None: it belongs to none
    neighbours: tuple[tuple[int, float], ...]  # numbers of the points most like it, and their cosines, best first

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        near = [{"point": number, "similarity": round(value, 4)} for number, value in self.neighbours]
        return {"video": self.video.to_json(), "x": self.x, "y": self.y, "group": self.group, "neighbours": near}


@dataclass(frozen=True)
class LibraryMap:
    """The points of a map, and how many videos were left out because there were too many."""

    points: tuple[MapPoint, ...]
    groups: int
    left_out: int = 0

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "groups": self.groups,
            "left_out": self.left_out,
            "points": [point.to_json() for point in self.points],
        }


def make_map(
    library: OpenLibrary,
    *,
    max_videos: int = MAX_VIDEOS,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> LibraryMap:
    """Lay out the videos of a library, identical files once; of more than `max_videos` a random part.

    The same library and seed give the same map.
    """
    if max_videos < 1:
        raise ConfigError(f"max_videos must be at least 1, got {max_videos}.")
    report = progress or (lambda *_: None)
    store = library.store
    catalog = store.catalog()
    first_rows = {int(key): row for row, key in reversed(list(enumerate(catalog.keys))) if catalog.described[row]}
    rows = np.array(sorted(first_rows.values()), np.int64)
    kept = rows
    if len(rows) > max_videos:
        kept = np.sort(np.random.default_rng(seed).choice(rows, max_videos, replace=False))
    vectors: dict[int, NDArray[np.float32]] = {}
    keys = [int(key) for key in catalog.keys[kept]]
    for done, stored in enumerate(store.read_contents(keys, pixels=False)):
        regions = stored.features(store.codec).drop_flat().regions.float()
        vectors[stored.key] = regions.mean(dim=(0, 1)).numpy()
        report(done + 1, len(keys))
    read = [(int(row), vectors[key]) for row, key in zip(kept, keys, strict=True) if key in vectors]
    records = catalog.records([row for row, _ in read])
    if not records:
        return LibraryMap((), 0)
    points, groups = _place(records, np.stack([vector for _, vector in read]), seed)
    return LibraryMap(points, groups, left_out=len(rows) - len(records))


def _place(records: Sequence[VideoRecord], vectors: NDArray[np.float32], seed: int) -> tuple[tuple[MapPoint, ...], int]:
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    places = lay_out(unit, seed=seed)
    groups = find_groups(unit)
    near = find_neighbours(unit, _NEIGHBOURS)
    points = tuple(
        MapPoint(record, float(x), float(y), None if group < 0 else int(group), neighbours)
        for record, (x, y), group, neighbours in zip(records, places, groups, near, strict=True)
    )
    return points, int(groups.max()) + 1


def lay_out(vectors: NDArray[np.float32], *, seed: int = 0) -> NDArray[np.float64]:
    """Places [N, 2] in the unit square of unit vectors [N, D]; fewer than four lie as their two main axes say."""
    centred = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    left, values, _ = np.linalg.svd(centred, full_matrices=False)
    axes = np.zeros((len(vectors), 2))
    count = min(2, len(values))
    axes[:, :count] = left[:, :count] * values[:count]
    # The sign of an axis is arbitrary: its largest number is positive, so that equal libraries have equal maps.
    axes *= np.sign(axes[np.abs(axes).argmax(axis=0), [0, 1]] + 1e-300)
    if len(vectors) >= 4 and float(np.abs(axes).max()) > 1e-6:
        manifold = _import_sklearn("sklearn.manifold")
        start = axes / axes[:, 0].std() * 1e-4  # as t-SNE wants it: small
        method = manifold.TSNE(perplexity=min(_PERPLEXITY, (len(vectors) - 1) / 3), init=start, random_state=seed)
        axes = method.fit_transform(vectors).astype(np.float64)
    low, high = axes.min(axis=0), axes.max(axis=0)
    span = float((high - low).max())
    if span <= 0:
        return np.full((len(vectors), 2), 0.5)
    places: NDArray[np.float64] = (axes - (low + high) / 2) / span + 0.5
    return places


def find_groups(vectors: NDArray[np.float32]) -> NDArray[np.int64]:
    """The group of each unit vector [N, D], from 0 on, the largest first; -1: none. A group has at least three."""
    if len(vectors) < _MIN_GROUP:
        return np.full(len(vectors), -1, np.int64)
    cluster = _import_sklearn("sklearn.cluster")
    labels = cluster.HDBSCAN(min_cluster_size=_MIN_GROUP, copy=True).fit_predict(vectors.astype(np.float64))
    counts = np.bincount(labels[labels >= 0], minlength=1)
    rank = np.empty(len(counts), np.int64)
    rank[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
    return np.where(labels >= 0, rank[np.maximum(labels, 0)], -1)


def find_neighbours(vectors: NDArray[np.float32], count: int) -> list[tuple[tuple[int, float], ...]]:
    """The `count` others most like each of the unit vectors [N, D]: their rows and cosines, best first.

    >>> find_neighbours(np.array([[1, 0], [0.8, 0.6], [0, 1]], np.float32), 1)
    [((1, 0.800000011920929),), ((0, 0.800000011920929),), ((1, 0.6000000238418579),)]
    """
    found = []
    for row, vector in enumerate(vectors):
        cosines = vectors @ vector
        cosines[row] = -np.inf
        best = np.argsort(-cosines, kind="stable")[: min(count, len(vectors) - 1)]
        found.append(tuple((int(place), float(cosines[place])) for place in best))
    return found


def _import_sklearn(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError("A map needs scikit-learn: pip install 'hapvr[map]'.") from error
