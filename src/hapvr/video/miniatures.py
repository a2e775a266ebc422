"""Frames as tiny grey pictures: what is left of a frame when all detail is gone, and with it noise, blur and coding."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SIDE = 16  # cells of a side
_READ = 128  # about so many rows or columns of a frame are read: more change nothing
_LUMA = np.array([0.299, 0.587, 0.114], np.float32)


def miniatures(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The mean brightness of 16 x 16 cells of each frame: uint8 [T, H, W, 3] -> uint8 [T, 16, 16].

    Whatever its proportions, a frame is squeezed into a square. Frames of fewer than 16 rows or columns repeat some.

    >>> frame = np.zeros((1, 32, 64, 3), np.uint8)
    >>> frame[:, :16] = 255                                        # the upper half white
    >>> found = miniatures(frame)
    >>> found.shape, found[0, 7].tolist() == [255] * 16, found[0, 8].tolist() == [0] * 16
    ((1, 16, 16), True, True)
    """
    height, width = images.shape[1:3]
    step = max(1, min(height, width) // _READ)
    cells: NDArray[np.float32] = images[:, ::step, ::step].astype(np.float32) @ _LUMA
    for axis in (1, 2):
        edges = np.linspace(0, cells.shape[axis], SIDE + 1)[:-1].astype(np.intp)
        counts = np.maximum(1, np.diff(edges, append=cells.shape[axis])).astype(np.float32)
        cells = (np.add.reduceat(cells, edges, axis) / counts.reshape(-1, *[1] * (2 - axis))).astype(np.float32)
    return np.clip(np.rint(cells), 0, 255).astype(np.uint8)
