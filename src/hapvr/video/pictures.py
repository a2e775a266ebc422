"""Pictures: their sizes, their centre squares, JPEG, and tiny grey versions of them."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from hapvr.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor

Picture = NDArray[np.uint8]
Pictures = TypeVar("Pictures", NDArray[np.uint8], "Tensor")

MINIATURE_SIDE = 16  # cells
_READ = 128  # rows or columns of a frame that are read for a miniature, about: more change nothing
_LUMA = np.array([0.299, 0.587, 0.114], np.float32)


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


def encode_jpeg(image: Picture, quality: int, size: tuple[int, int]) -> bytes:
    """A picture as JPEG of this (width, height)."""
    picture = Image.fromarray(image)
    if picture.size != size:
        picture = picture.resize(size, Image.Resampling.BICUBIC)
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


def open_jpeg(data: memoryview, size: tuple[int, int]) -> Image.Image:
    """A picture that is not decoded yet; `DataError` unless it is of this (width, height), in colour."""
    picture = Image.open(io.BytesIO(data), formats=["JPEG"])
    if picture.size != size or picture.mode != "RGB":
        raise DataError(f"it is {picture.size} {picture.mode}, not {size} RGB.")
    return picture


def make_miniatures(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The mean brightness of 16 x 16 cells of each frame: uint8 [T, H, W, 3] -> uint8 [T, 16, 16].

    It is what is left of a frame when all detail is gone, and with it noise, blur and coding. Whatever its proportions,
    a frame is squeezed into a square. Frames of fewer than 16 rows or columns repeat some.

    >>> frame = np.zeros((1, 32, 64, 3), np.uint8)
    >>> frame[:, :16] = 255                                        # the upper half white
    >>> found = make_miniatures(frame)
    >>> found.shape, found[0, 7].tolist() == [255] * 16, found[0, 8].tolist() == [0] * 16
    ((1, 16, 16), True, True)
    """
    height, width = images.shape[1:3]
    step = max(1, min(height, width) // _READ)
    cells: NDArray[np.float32] = images[:, ::step, ::step].astype(np.float32) @ _LUMA
    for axis in (1, 2):
        edges = np.linspace(0, cells.shape[axis], MINIATURE_SIDE + 1)[:-1].astype(np.intp)
        counts = np.maximum(1, np.diff(edges, append=cells.shape[axis])).astype(np.float32)
        cells = (np.add.reduceat(cells, edges, axis) / counts.reshape(-1, *[1] * (2 - axis))).astype(np.float32)
    return np.clip(np.rint(cells), 0, 255).astype(np.uint8)
