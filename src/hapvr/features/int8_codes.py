"""Region vectors of one byte a number, as feature files hold them: whole numbers from -127 to 127, a scale a vector."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

LARGEST = 127  # of a code: -128 is not used, so that codes are symmetric


def encode_regions(values: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """The nearest codes int8 [T, R, D] of region vectors [T, R, D], and scales [T, R]: code times scale is the number.

    The scale is 1/127 of a vector's largest magnitude, so no number is off by more than half of that.

    >>> codes, scales = encode_regions(np.array([[[1.27, -0.64], [0.0, 0.0]]], np.float32))
    >>> codes.tolist(), scales.round(4).tolist()
    ([[[127, -64], [0, 0]]], [[0.009999999776482582, 0.0]])
    """
    scales = np.abs(values).max(-1) / np.float32(LARGEST)  # [T, R]
    steps = values / np.where(scales > 0, scales, np.float32(1))[..., None]
    return np.rint(steps).clip(-LARGEST, LARGEST).astype(np.int8), scales


def decode_regions(codes: Tensor, scales: Tensor) -> Tensor:
    """The vectors that codes [T, R, D] with scales [T, R] stand for: float32 [T, R, D]."""
    return codes.to(torch.float32).mul_(scales[..., None])
