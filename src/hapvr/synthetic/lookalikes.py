"""Hard negatives: two parts of one video, and whether they truly share no footage."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hapvr.synthetic import edit_pixels as pixels
from hapvr.synthetic.clip import Clip

Small = NDArray[np.uint8]  # [T, S * S]

_SHARE = 0.42  # of the video, each part; the rest is the gap between them
_RATE, _SIDE = 4.0, 24  # frames a second of a run that is compared, and its pixels a side
_BLOCK = 16  # pixels whose means are compared first
_RUN_S = 2.0  # how long a repeated stretch is
_CHANGED = 0.03  # the share of the picture where two frames differ most
_SAME = 10.0  # its mean difference over a run, of 255: less is noise of the coding, motion is 20 and more


def cut_apart(clip: Clip) -> tuple[Clip, Clip]:
    """The first and the last 42% of a clip, one frame at least.

    >>> [len(part) for part in cut_apart(Clip(np.zeros((100, 2, 2, 3), np.uint8), fps=10))]
    [42, 42]
    """
    kept = max(1, int(_SHARE * len(clip)))
    return Clip(clip.images[:kept], clip.fps), Clip(clip.images[-kept:], clip.fps)


def share_footage(a: Clip, b: Clip) -> bool:
    """Whether a stretch of 2 s of one is in the other, forwards or backwards; stills that are alike count too.

    Meant for clips of one file, which differ in nothing but time: loops, slides, repeated intros, cameras before which
    nothing moves. Frames are the same if they differ nowhere, so two takes before one wall are not. A copy that was
    edited is not found.
    """
    return share_small(make_small(a), make_small(b), fps=a.fps)


def share_small(a: Small, b: Small, *, fps: float) -> bool:
    """The same for small frames of `make_small`, both of `fps`."""
    step = max(1, round(fps / _RATE))
    run = round(_RUN_S * min(fps, _RATE))
    a = a[::step]
    # Means over blocks never differ more than the pixels where frames differ most: most pairs are settled by them.
    rough = [small.reshape(len(small), -1, _BLOCK).mean(-1, dtype=np.float32) for small in (a, b)]
    if all(_find_min_mean(one, step, run) >= _SAME for one in _both_ways(_compare(*rough, count=rough[0].shape[1]))):
        return False
    far = _compare(a.astype(np.float32), b.astype(np.float32), count=max(1, round(_CHANGED * a.shape[1])))
    return any(_find_min_mean(matrix, step, run) < _SAME for matrix in _both_ways(far))


def _both_ways(matrix: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    return matrix, matrix[:, ::-1]


def make_small(clip: Clip) -> Small:
    """Each frame in grey, of a few pixels."""
    small: Small = pixels.resize(clip.images, (_SIDE, _SIDE)).mean(-1).reshape(len(clip), -1).astype(np.uint8)
    return small


def _compare(a: NDArray[np.float32], b: NDArray[np.float32], *, count: int) -> NDArray[np.float32]:
    """The mean of the `count` greatest differences of all pairs of frames: [Ta, Tb]."""
    if count == a.shape[1]:
        return np.stack([np.abs(b - image).mean(1) for image in a])
    return np.stack([np.partition(np.abs(b - image), -count, axis=1)[:, -count:].mean(1) for image in a])


def _find_min_mean(matrix: NDArray[np.float32], step: int, run: int) -> float:
    """The smallest mean over `run` entries [i + k, j + k * step] for k = 0, 1, ...; of fewer in a smaller matrix."""
    run = max(1, min(run, matrix.shape[0], (matrix.shape[1] - 1) // step + 1))
    total = np.zeros((matrix.shape[0] - run + 1, matrix.shape[1] - (run - 1) * step), np.float32)
    for k in range(run):
        total += matrix[k : k + total.shape[0], k * step : k * step + total.shape[1]]
    return float(total.min() / run)
