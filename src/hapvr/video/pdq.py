"""PDQ, the perceptual hash of pictures that platforms exchange: 256 bits, and a quality from 0 to 100.

From its description (Facebook, "The TMK+PDQF Video-Hashing Algorithm and the PDQ Image-Hashing Algorithm", 2019): the
luma is blurred by two passes of a box filter and reduced to 64 x 64; of its discrete cosine transform the 16 x 16
coarsest frequencies but the constant one are compared with their median. Quality says how much the picture has to be
told by: the sum of the gradients of the 64 x 64 picture.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

SIDE = 64  # of the small picture
BITS = 256
_KEPT = 16  # frequencies of a side
_LUMA = np.array([0.299, 0.587, 0.114], np.float32)
_PASSES = 2  # of the box filter
_FULL_QUALITY = 90  # sum of gradients, in hundredths of the range of a pixel, for each point of quality

# [16, 64]: frequency 1 to 16 at each pixel
_WAVES = (
    math.sqrt(2 / SIDE) * np.cos(math.pi / 2 / SIDE * np.outer(np.arange(1, _KEPT + 1), 2 * np.arange(SIDE) + 1))
).astype(np.float32)


def hash_picture(image: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], int]:
    """The PDQ hash of a picture [H, W, 3], 32 bytes, most significant first, and its quality, from 0 to 100."""
    small = _shrink(image.astype(np.float32) @ _LUMA)
    found = _WAVES @ small @ _WAVES.T  # [16, 16]
    median = np.partition(found.ravel(), BITS // 2 - 1)[BITS // 2 - 1]  # the lower of the two in the middle
    return np.packbits((found > median).ravel()[::-1]), _measure_quality(small)


def _shrink(luma: NDArray[np.float32]) -> NDArray[np.float32]:
    """A blurred picture of 64 x 64, from [H, W]."""
    for _ in range(_PASSES):
        for axis in (1, 0):
            luma = _blur(luma, axis)
    rows, columns = (((np.arange(SIDE) + 0.5) * size / SIDE).astype(int) for size in luma.shape)
    return luma[np.ix_(rows, columns)]


def _blur(luma: NDArray[np.float32], axis: int) -> NDArray[np.float32]:
    """The mean of the pixels in a window along an axis; at the ends, of those that there are."""
    size = luma.shape[axis]
    window = -(-size // (2 * SIDE))
    after = (window + 2) // 2  # pixels from the one at hand on
    place = np.arange(size)
    first, last = np.maximum(place + after - window, 0), np.minimum(place + after, size)
    sums = np.insert(np.cumsum(luma, axis=axis, dtype=np.float64), 0, 0.0, axis=axis)
    counts = (last - first).reshape((-1, 1) if axis == 0 else (1, -1))
    means: NDArray[np.float32] = ((sums.take(last, axis) - sums.take(first, axis)) / counts).astype(np.float32)
    return means


def _measure_quality(small: NDArray[np.float32]) -> int:
    steps = sum(int(np.abs(np.trunc(np.diff(small, axis=axis) * 100 / 255)).sum()) for axis in (0, 1))
    return min(100, steps // _FULL_QUALITY)
