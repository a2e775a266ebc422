"""One video's miniatures found within another's: as a crop, a picture in a picture, or mirrored.

For each window, a part of the height and width of one picture, the whole of the other is shrunk to its size and the two
are correlated, over all frames of a stretch together. So is what changes from one frame to the next. Two takes of one
scene agree in what stands still; only the same footage agrees in what moves.

A correlation with a window is linear in both pictures, so that it needs no more than their products summed over frames,
C = sum_p large_p small_p' [S S, S S]: with a matrix A_k for window k it is the sum of A_k times C.
A window is a span of rows and one of columns, and A_k the product of a form of the one and a form of the other: two
small matrix products give the sums for all pairs of the 62 spans that there are.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hapvr.judge.alignment import find_median, multiply

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
    if len(x) == 1:
        found = _search_windows(x, y, _PICTURE_NOISE)
        return WindowMatch(0.0, found.correlation, 0.0, found.window, found.correlation)
    one, other = (np.clip(np.diff(pictures, axis=0), -_MAX_CHANGE, _MAX_CHANGE) for pictures in (x, y))
    found = _search_windows(one, other, _CHANGE_NOISE)
    # Changes and pictures in one go: all that is summed is of a single frame.
    sums = _sum_products(np.concatenate([one, x]), np.concatenate([other, y]), found.window)  # [3, 2 P - 1]
    product, *sizes = sums[:, : len(one)]
    floor = _CHANGE_NOISE**2 * found.window.height * found.window.width
    changes = find_median(product / np.sqrt((sizes[0] + floor) * (sizes[1] + floor)))
    pixels = _pool(sums[:, len(one) :], found.window, _PICTURE_NOISE)
    return WindowMatch(changes, pixels, math.sqrt(found.energy / len(one)), found.window, found.correlation)


class _Found(NamedTuple):
    window: Window
    correlation: float
    energy: float  # sum of squares a pixel over all frames; of the picture with less


def _search_windows(one: Pictures, other: Pictures, noise: float) -> _Found:
    """The window in which two sequences of pictures [P, 16, 16] correlate best, over all frames together."""
    flat = np.stack([_centre(pictures).reshape(len(one), -1) for pictures in (one, other)])  # [2, P, S S]: A's, B's
    cross = multiply(flat[1].T, flat[0])  # [S S, S S] of B and A
    floor = noise * noise * len(one)
    shrunk, cut = _measure_energies(flat)  # [2, K]
    cut = cut[::-1]  # of the other picture, in which the small one lies
    values = _correlate(_pair_axes(cross), shrunk, cut, floor)
    b_in_a, mirrored, place = (int(number) for number in np.unravel_index(int(values.argmax()), values.shape))
    window = dataclasses.replace(_windows().windows[place], b_in_a=bool(b_in_a), mirrored=bool(mirrored))
    energy = min(float(shrunk[b_in_a, place]), float(cut[b_in_a, place]))
    found = _Found(window, float(values[b_in_a, mirrored, place]), energy)
    whole = [float(np.square(pictures).sum()) / SIDE**2 for pictures in flat]
    for turns in (1, 2, 3):
        value = float(cross[np.arange(SIDE**2), _turn_pixels(turns)].sum()) / SIDE**2
        value /= math.sqrt((whole[0] + floor) * (whole[1] + floor))
        if value > found.correlation:
            found = _Found(Window(0, 0, SIDE, SIDE, turns=turns), value, min(whole))
    return found


def correlate_in(a: Pictures, b: Pictures, window: Window, *, noise: float = _PICTURE_NOISE) -> float:
    """The correlation of pictures [P, 16, 16], over all frames together, in a window.

    Each picture counts less its mean; `noise` grey levels are added to the deviation of both.
    """
    return _pool(_sum_products(a, b, window), window, noise)


def _pool(sums: Pictures, window: Window, noise: float) -> float:
    """The correlation over all frames together, of what `_sum_products` gives."""
    floor = noise * noise * window.height * window.width
    product, one, other = sums[0].sum(), (sums[1] + floor).sum(), (sums[2] + floor).sum()
    return float(product / np.sqrt(one * other))


def _sum_products(a: Pictures, b: Pictures, window: Window) -> Pictures:
    """Of each frame: the sum of products in a window, and the sums of squares of both pictures, [3, P]."""
    large, small = (a, b) if window.b_in_a else (b, a)
    small = np.rot90(small[:, :, ::-1] if window.mirrored else small, window.turns, (1, 2))
    part = _centre(_shrink(window.height) @ small @ _shrink(window.width).T)  # [P, h, w]
    cut = _centre(large[:, window.top : window.top + window.height, window.left : window.left + window.width])
    return np.stack([(part * cut).sum((1, 2)), np.square(part).sum((1, 2)), np.square(cut).sum((1, 2))])


def _centre(pictures: NDArray[Any]) -> Pictures:
    centred: Pictures = pictures - pictures.mean((1, 2), keepdims=True)
    return centred


def _pair_axes(products: Pictures) -> Pictures:
    """Sums of products, [..., S S, S S] by pixels (row, column) of two pictures, by (row, row) and (column, column)."""
    by_axis = products.reshape(-1, SIDE, SIDE, SIDE, SIDE).swapaxes(2, 3)
    return np.ascontiguousarray(by_axis).reshape(products.shape)


@lru_cache
def _turn_pixels(turns: int) -> NDArray[np.int64]:
    """The pixel of a picture that lies at each place after so many quarter turns, [S S]."""
    return np.rot90(np.arange(SIDE**2).reshape(SIDE, SIDE), turns).reshape(-1)


def _measure_energies(pictures: Pictures) -> tuple[Pictures, Pictures]:
    """Sums of squares over all frames, less means, a pixel, in each window: [N, K] each.

    Of the whole picture, shrunk to the window's size; and of the part of the picture that lies in the window.
    `pictures` are N sequences [N, P, S S] whose means are 0; so are those of a whole picture that was shrunk.
    """
    known, forms = _windows(), _windows().shrunk_squares
    count, frames = pictures.shape[:2]
    own = _pair_axes(multiply(pictures.swapaxes(1, 2), pictures))
    shrunk = multiply(multiply(forms, own), forms.T)[:, known.sizes[0], known.sizes[1]]
    rows = np.concatenate([pictures.reshape(count * frames, -1), np.square(pictures).sum(1)])
    summed = multiply(rows, known.inside)  # [N P + N, K]
    sums, squares = summed[: count * frames].reshape(count, frames, -1), summed[count * frames :]
    cut = squares - np.einsum("npk,npk->nk", sums, sums) / known.counts
    return shrunk / known.counts, np.maximum(cut, 0) / known.counts


def _correlate(cross: Pictures, shrunk: Pictures, cut: Pictures, floor: float) -> Pictures:
    """The correlation in each window: [A in B, B in A; the small picture as it is, its mirror image; K].

    Args:
        cross: sums of products of B's and A's pictures over all frames, as `_pair_axes` gives them.
        shrunk, cut: energies [2, K] of the small picture and of the large one, see `_measure_energies`.
        floor: is added to each energy.
    """
    known = _windows()
    rows, columns = known.spans
    count = len(known.row_forms) // 2
    by_rows = multiply(known.row_forms, cross).reshape(2, count, -1)
    sums = multiply(by_rows, known.column_forms)  # [2, N, 2 N]
    both = np.stack([sums[:, rows, columns], sums[:, rows, columns + count]], 1)
    return np.asarray(both / (known.counts * np.sqrt((shrunk + floor) * (cut + floor)))[:, None], np.float32)


@dataclass(frozen=True, eq=False)
class _Windows:
    """All windows: each is a span of rows and a span of columns, and what is summed is a product of forms of the two.

    A form [S S] says how much each pair of a row of the one picture and a row of the other counts, or of columns.
    """

    windows: tuple[Window, ...]
    counts: Pictures  # [K] pixels
    spans: tuple[NDArray[np.int64], NDArray[np.int64]]  # [K] each: of rows and of columns, of N
    sizes: tuple[NDArray[np.int64], NDArray[np.int64]]  # [K] each: the sizes of these, of M
    inside: Pictures  # [S S, K] 1 within
    row_forms: Pictures  # [2 N, S S] of B's picture and A's: where A's is shrunk, then where B's is
    column_forms: Pictures  # [2, S S, 2 N] the same, and the mirror image of what is shrunk
    shrunk_squares: Pictures  # [M, S S] of the shrunk picture with itself


@lru_cache(maxsize=1)
def _windows() -> _Windows:
    sizes = sorted({size for shape in _SHAPES for size in shape})
    spans = [(size, start) for size in sizes for start in range(SIDE - size + 1)]
    windows = tuple(
        Window(top, left, height, width)
        for height, width in _SHAPES
        for top in range(SIDE - height + 1)
        for left in range(SIDE - width + 1)
    )
    rows = np.array([spans.index((one.height, one.top)) for one in windows])
    columns = np.array([spans.index((one.width, one.left)) for one in windows])
    size_of = np.array([sizes.index(size) for size, _ in spans])
    # [N, large, small] how much the pixels of the small picture give to a pixel of the large one; [N, large] 1 within
    shrunk = np.stack([np.pad(_shrink(size), ((start, SIDE - size - start), (0, 0))) for size, start in spans])
    within = np.stack([np.pad(np.ones(size), (start, SIDE - size - start)) for size, start in spans])
    inside = within[rows][:, :, None] * within[columns][:, None]  # [K, S, S]
    both = np.concatenate([shrunk, shrunk[:, :, ::-1]])  # and of the mirror image
    row_forms = np.concatenate([shrunk, shrunk.swapaxes(1, 2)])
    column_forms = np.stack([both, both.swapaxes(1, 2)]).reshape(2, len(both), -1).swapaxes(1, 2)
    squares = np.stack([_shrink(size).T @ _shrink(size) for size in sizes])
    return _Windows(
        windows,
        np.array([window.height * window.width for window in windows], np.float32),
        (rows, columns),
        (size_of[rows], size_of[columns]),
        np.ascontiguousarray(inside.reshape(len(windows), -1).T, np.float32),
        np.ascontiguousarray(row_forms.reshape(len(row_forms), -1), np.float32),
        np.ascontiguousarray(column_forms, np.float32),
        np.ascontiguousarray(squares.reshape(len(sizes), -1), np.float32),
    )


@lru_cache
def _shrink(size: int) -> Pictures:
    """The matrix [size, 16] that shrinks 16 values to `size` by averaging over areas."""
    edges = np.linspace(0, SIDE, size + 1)
    low, high = edges[:-1, None], edges[1:, None]
    cells = np.arange(SIDE)
    overlap = np.clip(np.minimum(high, cells + 1) - np.maximum(low, cells), 0, None)
    return np.asarray(overlap / overlap.sum(1, keepdims=True), np.float32)
