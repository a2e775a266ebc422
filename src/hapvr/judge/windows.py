"""One video's miniatures found within another's: as a crop, a picture in a picture, or mirrored.

For each window, a part of the height and width of one picture, the whole of the other is shrunk to its size and the two
are correlated, over all frames of a stretch together. So is what changes from one frame to the next. Two takes of one
scene agree in what stands still; only the same footage agrees in what moves.

A correlation with a window is linear in both pictures, so that it needs no more than their products summed over frames,
C = sum_p large_p small_p' [S S, S S]: with a matrix A_k for window k it is the sum of A_k times C. All windows together
cost little more than one.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Pictures = NDArray[np.float32]

SIDE = 16  # pixels of a miniature
# Height and width of the windows, in pixels of the picture that they are part of.
_SHAPES = (
    (16, 16), (14, 14), (12, 12), (10, 10), (8, 8), (7, 7), (6, 6), (5, 5),
    (16, 13), (16, 10), (16, 7), (16, 5), (13, 16), (10, 16), (12, 14), (14, 12),
)  # fmt: skip
_MAX_CHANGE = 48.0  # grey levels of a change that count: a cut is not worth more than a movement
_CHANGE_NOISE = 1.5  # grey levels of a change that coding makes
_PICTURE_NOISE = 4.0  # grey levels of a picture that are as good as flat


@dataclass(frozen=True)
class Window:
    """Where one picture lies within the other."""

    top: int
    left: int
    height: int
    width: int
    b_in_a: bool = False  # B's whole picture lies in this part of A's; else the other way round
    mirrored: bool = False
    turns: int = 0  # quarters that the smaller picture was turned by, against the clock; then it fills the whole


@dataclass(frozen=True)
class WindowMatch:
    """Where two videos' pictures agree best in what changes."""

    changes: float  # correlation of what changes from frame to frame there, in [-1, 1]: the median over the steps
    pixels: float  # correlation of the pictures there, in [-1, 1]
    moves: float  # grey levels that change there, root mean square; of the picture with less
    window: Window
    pooled: float  # correlation of what changes, over all steps together, which the window is the best by


def find_window(a: NDArray[np.uint8], b: NDArray[np.uint8]) -> WindowMatch:
    """Find the window in which the pictures [P, 16, 16] of A and B, frame by frame, agree best in what changes.

    Of a single frame, the window in which the pictures themselves agree best. The median over the steps counts: a cut
    or a fade changes everything at once, and does so alike in two takes of one scene.
    """
    x, y = a.astype(np.float32), b.astype(np.float32)
    if len(x) > 1:
        noise = _CHANGE_NOISE
        one, other = (np.clip(np.diff(pictures, axis=0), -_MAX_CHANGE, _MAX_CHANGE) for pictures in (x, y))
    else:
        noise, one, other = _PICTURE_NOISE, x, y
    best, window, energy = -np.inf, Window(0, 0, SIDE, SIDE), 0.0
    for b_in_a in (False, True):
        small, large = (pictures.reshape(len(one), -1) for pictures in ((other, one) if b_in_a else (one, other)))
        cross = large.T @ small  # [S S, S S]
        energies = _measure_energies(small, large)
        for mirrored in (False, True):
            turned = cross.reshape(-1, SIDE, SIDE)[:, :, ::-1].reshape(cross.shape) if mirrored else cross
            values = _correlate(turned, energies, noise * noise * len(one))
            place = int(values.argmax())
            if values[place] > best:
                best, energy = float(values[place]), float(energies[:, place].min())
                window = dataclasses.replace(_windows().windows[place], b_in_a=b_in_a, mirrored=mirrored)
    for turns in (1, 2, 3):
        whole = Window(0, 0, SIDE, SIDE, turns=turns)
        if (value := correlate_in(one, other, whole, noise=noise)) > best:
            best, window = value, whole
            energy = min(float(np.square(_centre(pictures)).sum()) / SIDE**2 for pictures in (one, other))
    if len(x) == 1:
        return WindowMatch(0.0, best, 0.0, window, best)
    product, *sizes = _sum_products(one, other, window, noise)
    changes = float(np.median(product / np.sqrt(sizes[0] * sizes[1])))
    return WindowMatch(changes, correlate_in(x, y, window), float(np.sqrt(energy / len(one))), window, best)


def correlate_in(a: Pictures, b: Pictures, window: Window, *, noise: float = _PICTURE_NOISE) -> float:
    """The correlation of pictures [P, 16, 16], over all frames together, in a window.

    Each picture counts less its mean; `noise` grey levels are added to the deviation of both.
    """
    product, one, other = (values.sum() for values in _sum_products(a, b, window, noise))
    return float(product / np.sqrt(one * other))


def _sum_products(a: Pictures, b: Pictures, window: Window, noise: float) -> tuple[Pictures, Pictures, Pictures]:
    """Of each frame [P]: the sum of products in a window, and the sums of squares of both pictures with the noise."""
    large, small = (a, b) if window.b_in_a else (b, a)
    small = np.rot90(small[:, :, ::-1] if window.mirrored else small, window.turns, (1, 2))
    part = _centre(_shrink(window.height) @ small @ _shrink(window.width).T)  # [P, h, w]
    cut = _centre(large[:, window.top : window.top + window.height, window.left : window.left + window.width])
    floor = noise * noise * window.height * window.width
    return (part * cut).sum((1, 2)), np.square(part).sum((1, 2)) + floor, np.square(cut).sum((1, 2)) + floor


def _centre(pictures: NDArray[Any]) -> Pictures:
    centred: Pictures = pictures - pictures.mean((1, 2), keepdims=True)
    return centred


def _measure_energies(small: Pictures, large: Pictures) -> Pictures:
    """The sums of squares over all frames, less means, a pixel: of the shrunk and of the large picture in each window.

    Pictures [P, S S] each -> [2, K].
    """
    known = _windows()
    own = known.centred.reshape(len(_SHAPES), -1) @ (small.T @ small).reshape(-1)  # [shapes]
    inside = known.masks @ np.square(large).sum(0) - np.square(known.masks @ large.T).sum(1) / known.counts  # [K]
    return np.asarray(np.maximum(np.stack([own[known.shapes], inside]), 0) / known.counts, np.float32)


def _correlate(cross: Pictures, energies: Pictures, floor: float) -> Pictures:
    """The correlation in each window [K].

    Args:
        cross: [large pixels, small pixels], sums of products over all frames.
        energies: [2, K], see `_measure_energies`.
        floor: is added to each energy.
    """
    known = _windows()
    sums = np.add.reduceat(cross.reshape(-1)[known.cells] * known.weights, known.starts)  # [K]
    means = (known.masks @ (cross @ known.totals.T))[np.arange(len(known.shapes)), known.shapes] / known.counts
    products = (sums - means) / known.counts
    return np.asarray(products / np.sqrt((energies[0] + floor) * (energies[1] + floor)), np.float32)


@dataclass(frozen=True, eq=False)
class _Windows:
    """All windows, as arrays."""

    windows: tuple[Window, ...]
    shapes: NDArray[np.int64]  # [K] the shape of each
    counts: Pictures  # [K] pixels
    masks: Pictures  # [K, S S] 1 within
    cells: NDArray[np.int64]  # places in C that count, window after window,
    weights: Pictures  # by how much
    starts: NDArray[np.int64]  # [K] the first of each window
    totals: Pictures  # [shapes, S S] how much each pixel of the small picture counts in the shrunk one's sum
    centred: Pictures  # [shapes, S S, S S] M' M, where M shrinks and takes off the mean


@lru_cache(maxsize=1)
def _windows() -> _Windows:
    windows, shapes, masks, cells, values, starts, totals, centred = [], [], [], [], [], [], [], []
    count = 0
    for shape, (height, width) in enumerate(_SHAPES):
        shrink = np.kron(_shrink(height), _shrink(width))  # [h w, S S]
        total = shrink.sum(0)
        totals.append(total)
        less = shrink - shrink.mean(0)
        centred.append(less.T @ less)
        rows, columns = np.nonzero(shrink)
        for top in range(SIDE - height + 1):
            for left in range(SIDE - width + 1):
                windows.append(Window(top, left, height, width))
                shapes.append(shape)
                mask = np.zeros((SIDE, SIDE), np.float32)
                mask[top : top + height, left : left + width] = 1
                masks.append(mask.reshape(-1))
                places = (top + rows // width) * SIDE + left + rows % width  # in the large picture
                cells.append(places * SIDE * SIDE + columns)
                values.append(shrink[rows, columns])
                starts.append(count)
                count += len(rows)
    counts = np.array([window.height * window.width for window in windows], np.float32)
    return _Windows(
        tuple(windows), np.array(shapes), counts, np.stack(masks),
        np.concatenate(cells), np.concatenate(values).astype(np.float32), np.array(starts),
        np.stack(totals).astype(np.float32), np.stack(centred).astype(np.float32),
    )  # fmt: skip


@lru_cache
def _shrink(size: int) -> Pictures:
    """The matrix [size, 16] that shrinks 16 values to `size` by averaging over areas."""
    edges = np.linspace(0, SIDE, size + 1)
    low, high = edges[:-1, None], edges[1:, None]
    cells = np.arange(SIDE)
    overlap = np.clip(np.minimum(high, cells + 1) - np.maximum(low, cells), 0, None)
    return np.asarray(overlap / overlap.sum(1, keepdims=True), np.float32)
