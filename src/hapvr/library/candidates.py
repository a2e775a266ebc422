"""Which videos are worth an exact comparison: the nearest neighbours of their runs (see `run_vectors`), and votes.

A vote is what the exact score would be if it were made of these vectors alone and looked no further than the lists of
neighbours: for each run of the query, how much more alike a video's best run is than the last one on the list, times
the number of frames in the run, summed over the query.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hapvr.errors import DataError
from hapvr.library import store as stores
from hapvr.library.store import Store

NEIGHBOURS = 300  # runs of the database that each run of the query votes for
SHARE = 0.05  # of the database, that is compared exactly at most
MIN_CANDIDATES = 10  # videos that are compared exactly, even if they are more than that
# Partitions of the index looked through: with 50 of them 95% of the needles among 100,000 videos were found, with 150
# 99%. To compute the similarities of the finds as well takes three times as long, for the same needles.
_PROBES = 150
_REFINE = 2  # times as many finds as are asked for have their similarities computed, where that is done


def count_votes(
    which: NDArray[np.int64],
    keys: NDArray[np.int64],
    similarities: NDArray[np.float32],
    weights: NDArray[np.float32],
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The keys that were found, best first, and their votes.

    Args:
        which: [N] the run of the query that found it.
        keys: [N] the video it belongs to.
        similarities: [N] how alike they are.
        weights: [Q] frames of each run of the query.

    Example: the first run finds video 7 twice and 8, the second, of three frames, 8 and 9. Of the first list 0.5 is the
    last, so that 7 gets 0.9 - 0.5; of the second 0.6, so that 8 gets 3 * (0.7 - 0.6).
        >>> found, counted = count_votes(np.array([0, 0, 0, 1, 1]), np.array([7, 7, 8, 8, 9]),
        ...                              np.array([.9, .6, .5, .7, .6], np.float32), np.array([1., 3.], np.float32))
        >>> found.tolist(), counted.round(3).tolist()
        ([7, 8, 9], [0.4, 0.3, 0.0])
    """
    found, number = np.unique(keys, return_inverse=True)
    last = np.full(len(weights), np.inf)
    np.minimum.at(last, which, similarities)
    gains = similarities - last[which]
    pairs, pair = np.unique(which * len(found) + number, return_inverse=True)
    best = np.zeros(len(pairs))
    np.maximum.at(best, pair, gains)  # a video's best run only
    run, video = np.divmod(pairs, max(1, len(found)))
    counted = np.bincount(video, best * weights[run], minlength=len(found)).astype(np.float64)
    order = np.lexsort((found, -counted))
    return found[order], counted[order]


def max_candidates(database: int, *, k: int, limit: int) -> int:
    """How many videos are compared exactly: a share of the database, as many as are asked for at least.

    >>> [max_candidates(database, k=10, limit=200) for database in (5, 300, 1_000, 100_000)]
    [10, 15, 50, 200]
    """
    return min(limit, max(k, MIN_CANDIDATES, math.floor(database * SHARE)))


def find_candidates(store: Store, vectors: Tensor, weights: Tensor, *, max_keys: int) -> NDArray[np.int64]:
    """The keys of the contents with the most votes, best first; keys that no video names may be among them.

    `vectors` [Q, C] are those of the query's runs, `weights` [Q] the frames of each.
    """
    if len(vectors) == 0:
        raise DataError("The query has no frame that can be looked for: every region vector is zero. Use exact=True.")
    return count_votes(*find_nearest(store, vectors), weights.numpy())[0][:max_keys]


def find_nearest(
    store: Store, vectors: Tensor, *, exact: bool = False
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
    """The `NEIGHBOURS` stored runs that are nearest to each of some vectors [Q, C]; see `Store.nearest`.

    Few stored vectors are all compared, many are looked up in the index, which estimates their similarities: enough to
    sort by. With `exact` they are computed, for a caller that compares them with a threshold.
    """
    if store.count_vectors() < stores.INDEX_FROM:
        return _compare_with_all(*store.vectors(), vectors)
    return store.nearest(vectors.numpy(), k=NEIGHBOURS, nprobes=_PROBES, refine=_REFINE if exact else None)


def _compare_with_all(
    keys: NDArray[np.int64], vectors: NDArray[np.float32], queries: Tensor
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
    """`Store.nearest` without an index, over all stored vectors [N, C]."""
    if len(keys) == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32)
    similarities = queries @ torch.from_numpy(vectors).T  # [Q, N]
    best = similarities.topk(min(NEIGHBOURS, len(keys)), dim=1)
    which = np.repeat(np.arange(len(queries)), best.values.shape[1])
    return which, keys[best.indices.numpy().ravel()], best.values.numpy().ravel()
