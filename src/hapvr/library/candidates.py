"""Which videos are worth an exact comparison: the nearest neighbours of a few small vectors a video, and votes.

A frame's vector is the mean of its regions, cut to the leading dimensions of the whitening (which sorts them by how
much they varied where it was fitted) and scaled to unit length. Frames that follow each other and look alike are one
run, with one vector, their mean: a still scene neither fills the index nor the lists of neighbours. The store keeps
these vectors and finds the nearest (`Store.find_nearest`).

A vote is what the exact score would be if it were made of these vectors alone and looked no further than the lists of
neighbours: for each run of the query, how much more alike a video's best run is than the last one on the list, times
the number of frames in the run, summed over the query.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from hapvr.checks import require_tensor
from hapvr.features import select_frames

# Chosen on a benchmark of 175 queries and 301 videos, of which the best 15 were compared exactly. With 128 dimensions
# mAP was lower by a point, with 512 no higher; without runs there are 2.3 times as many vectors and mAP is the same.
DIMS = 256  # of a vector
ALIKE = 0.8  # similarity to a run's first frame at which a frame still belongs to it
NEIGHBOURS = 300  # runs of the database that each run of the query votes for
SHARE = 0.05  # of the database, that is compared exactly at most
MIN_CANDIDATES = 10  # videos that are compared exactly, even if they are more than that
MAX_COMPARED = 200  # and no more than this many, unless a search asks for more
# On the same benchmark, with the best 4 of 301 videos compared exactly, a rough score of four times as many raises mAP
# from 91.1 to 92.5; comparing with everything gives 92.7.
_WIDER = 4  # times as many videos as are compared exactly have a rough score,
_MAX_MORE = 200  # but no more than this many more
_BLOCK = 512  # frames compared with a run's first at a time

Finds = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]
"""Of each find [N]: which of the vectors asked for it, the key of its content, and their similarity."""


def find_runs(
    regions: Tensor, low_information: NDArray[np.bool_] | None = None, *, dims: int = DIMS
) -> tuple[Tensor, Tensor]:
    """One unit vector for each run of frames that look alike, [F, C], and how many frames each has, [F].

    Flat and repeated frames are left out, unless there are no others; so are frames whose vector would be zero.

    >>> regions = torch.tensor([[[3.0, 0.0], [0.0, 4.0]], [[6.0, 0.0], [0.0, 8.0]], [[1.0, -1.0], [1.0, -1.0]]])
    >>> find_runs(regions)                                         # (.6, .8) twice, then (.7, -.7)
    (tensor([[ 0.6000,  0.8000],
            [ 0.7071, -0.7071]]), tensor([2., 1.]))
    """
    require_tensor(regions, "regions", dims=3, axes="[T, R, D]")
    means = regions.detach().cpu().float().mean(1)[:, :dims]  # [T, C]
    means = means[torch.from_numpy(select_frames(low_information, len(means)))]
    means = F.normalize(means[means.norm(dim=-1) > 0], dim=-1)
    if len(means) == 0:
        return means, torch.zeros(0)
    starts = _find_starts(means.numpy())
    sizes = np.diff(starts, append=len(means))
    sums = torch.from_numpy(np.add.reduceat(means.numpy(), starts))
    return F.normalize(sums, dim=-1), torch.from_numpy(sizes).float()


def _find_starts(vectors: NDArray[np.float32]) -> NDArray[np.intp]:
    """The first frame of each run: one that is less than `ALIKE` to the first of the run before it."""
    starts, start, place = [0], 0, 1
    while place < len(vectors):
        unlike = np.flatnonzero(vectors[place : place + _BLOCK] @ vectors[start] < ALIKE)
        if len(unlike):
            start = place + int(unlike[0])
            starts.append(start)
            place = start + 1
        else:
            place += _BLOCK
    return np.array(starts, np.intp)


def find_nearest_vectors(keys: NDArray[np.int64], vectors: NDArray[np.float32], queries: Tensor, *, k: int) -> Finds:
    """The `k` of all vectors [N, C], of contents [N], that are nearest to each of some queries [Q, C]."""
    if len(keys) == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32)
    best = (queries @ torch.from_numpy(vectors).T).topk(min(k, len(keys)), dim=1)  # [Q, k]
    which = np.repeat(np.arange(len(queries)), best.values.shape[1])
    return which, keys[best.indices.numpy().ravel()], best.values.numpy().ravel()


def count_votes(
    which: NDArray[np.int64], keys: NDArray[np.int64], similarities: NDArray[np.float32], weights: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The keys that were found, best first, and their votes.

    Of each find [N]: which run of the query found it, the key of its video, and how alike they are; `weights` [Q] are
    the frames of each run of the query.

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


def max_candidates(database: int, *, k: int, max_compared: int) -> int:
    """How many videos are compared exactly: a share of the database, as many as are asked for at least.

    >>> [max_candidates(database, k=10, max_compared=200) for database in (5, 300, 1_000, 100_000)]
    [10, 15, 50, 200]
    """
    return min(max_compared, max(k, MIN_CANDIDATES, math.floor(database * SHARE)))


def count_rough(exact: int) -> int:
    """How many videos have a rough score, at most, of which the best `exact` are compared exactly.

    >>> count_rough(50), count_rough(200)
    (200, 400)
    """
    return min(_WIDER * exact, exact + _MAX_MORE)
