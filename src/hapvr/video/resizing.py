"""Sizes of pictures: the centre square, and how far a picture is reduced or enlarged first."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

Pictures = TypeVar("Pictures", NDArray[np.uint8], "Tensor")


def crop_centre(pictures: Pictures, side: int) -> Pictures:
    """The centre square of [..., H, W, 3], as a view; all of it along a side that is smaller.

    >>> crop_centre(np.arange(12, dtype=np.uint8).reshape(1, 2, 2, 3), 1).tolist()
    [[[[0, 1, 2]]]]
    """
    height, width = pictures.shape[-3:-1]
    top, left = max(height - side, 0) // 2, max(width - side, 0) // 2
    return pictures[..., top : top + side, left : left + side, :]


def reduced_size(height: int, width: int, short_side: int | None) -> tuple[int, int]:
    """The size of a picture whose short side is at most this, with the same proportions.

    >>> reduced_size(1080, 1920, 256), reduced_size(100, 200, 256)
    ((256, 455), (100, 200))
    """
    if short_side is None or min(height, width) <= short_side:
        return height, width
    scale = short_side / min(height, width)
    return max(1, round(height * scale)), max(1, round(width * scale))


def enlarged_size(height: int, width: int, short_side: int) -> tuple[int, int]:
    """The size of a picture whose short side is at least this, with the same proportions.

    >>> enlarged_size(100, 150, 224), enlarged_size(300, 400, 224)
    ((224, 336), (300, 400))
    """
    if min(height, width) >= short_side:
        return height, width
    scale = short_side / min(height, width)
    return max(short_side, round(height * scale)), max(short_side, round(width * scale))
