"""Whether two videos show the same by their pixels: how their miniatures correlate.

Region vectors see a copy through crops, frames and turns, but damage changes them. Miniatures are the other way round:
a picture that was moved is another one, yet noise, blur, coding and colours are averaged away or scaled out. So each
finds copies that the other does not. What is usual is tried: one video may be the mirror image of the other, be turned
by quarters, or show its middle (a crop; or the other way round, the other has bars).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Floats = NDArray[np.float32]

_FLAT = 2.0  # of 255: a standard deviation as small as that is noise
_MIDDLES = ((0.75, 1.0), (1.0, 0.75), (0.85, 0.85), (0.7, 0.7), (0.6, 1.0), (1.0, 0.6), (0.75, 0.9))
"""The parts of a frame, as shares of its height and width, that another may show."""


def make_views(miniatures: NDArray[np.uint8]) -> Floats:
    """A video's miniatures uint8 [T, S, S] as they may be found in another: float32 [L, T, S S], standardise.

    The first is the video as it is; then its middles, each enlarged to the whole; its mirror image; quarter turns.
    """
    pictures = miniatures.astype(np.float32)
    side = pictures.shape[1]
    ways = [pictures]
    for high, wide in _MIDDLES:
        ways.append((middle(side, high) @ pictures @ middle(side, wide).T).astype(np.float32))
    turns = [np.rot90(pictures, quarters, (1, 2)) for quarters in (1, 2, 3)]
    return np.stack([standardise(way) for way in (*ways, pictures[:, :, ::-1], *turns)])


def middle(side: int, share: float) -> Floats:
    """The matrix [S, S] that enlarges the middle `share` of S values to all of them, by linear interpolation.

    >>> middle(3, 0.5).tolist()                                    # at -.5, 0 and .5 of a step from the middle
    [[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.5, 0.5]]
    """
    centre = (side - 1) / 2
    places = centre + (np.arange(side) - centre) * share
    weights = np.maximum(0, 1 - np.abs(places[:, None] - np.arange(side)))
    return np.asarray(weights, np.float32)


def standardise(pictures: NDArray[Any]) -> Floats:
    """Each picture less its mean, by its deviation: [T, S, S] -> float32 [T, S S]; flat ones stay near 0.

    >>> standardise(np.array([[[0.0, 200.0], [200.0, 0.0]]])).round(2).tolist()
    [[-1.0, 1.0, 1.0, -1.0]]
    """
    values = pictures.reshape(len(pictures), -1).astype(np.float32)
    values -= values.mean(1, keepdims=True)
    return np.asarray(values / np.sqrt(np.square(values).mean(1, keepdims=True) + _FLAT**2), np.float32)


def correlate(a: Floats, b: Floats) -> Floats:
    """How the frames of two videos correlate, `looks` [L, Ta, S S] and [L, Tb, S S] -> [Ta, Tb].

    A as it is with any look of B, or B as it is with a middle of A; of all, the matrix with the greatest `likeness`.
    """
    middles = a[1 : 1 + len(_MIDDLES)]
    forth = np.split(_products(a[0], b.reshape(-1, b.shape[2])), len(b), axis=1)
    back = np.split(_products(middles.reshape(-1, a.shape[2]), b[0]), len(middles), axis=0)
    return max([*forth, *back], key=measure_likeness)


def _products(rows: Floats, others: Floats) -> Floats:
    """The means of products, [N, P] and [M, P] -> [N, M]; by torch, which can be told to take one thread."""
    product: Floats = (torch.from_numpy(rows) @ torch.from_numpy(others).T).numpy()
    return product / np.float32(rows.shape[1])


def measure_likeness(matrix: NDArray[np.floating]) -> float:
    """The mean over one video's frames of the best match in the other, [Ta, Tb]; of the side that has more of it.

    >>> measure_likeness(np.array([[1.0, 0.0, 0.5]])), measure_likeness(np.array([[0.5], [0.0]]))
    (1.0, 0.5)
    """
    return float(max(matrix.max(1).mean(), matrix.max(0).mean()))
