"""A short video in memory: what scenes are drawn into and edits are made on."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hapvr.errors import DataError, ShapeError

Images = NDArray[np.uint8]


@dataclass(frozen=True)
class Clip:
    """Frames at a constant rate. Frame i is shown from i / fps up to (i + 1) / fps seconds.

    >>> Clip(np.zeros((25, 4, 6, 3), np.uint8), fps=12.5).seconds
    2.0
    """

    images: Images  # uint8 [T, H, W, 3], RGB
    fps: float

    def __post_init__(self) -> None:
        shape = list(np.shape(self.images))
        if getattr(self.images, "dtype", None) != np.uint8 or len(shape) != 4 or shape[3] != 3:
            kind = getattr(self.images, "dtype", type(self.images).__name__)
            raise ShapeError(f"images must be uint8 [T, H, W, 3], got {kind} {shape}.")
        if 0 in shape:
            raise DataError(f"a clip needs a frame of at least one pixel, got images {shape}.")
        if not (math.isfinite(self.fps) and self.fps > 0):
            raise DataError(f"fps must be above 0, got {self.fps}.")

    def __len__(self) -> int:
        return len(self.images)

    @property
    def seconds(self) -> float:
        """How long the clip is shown: frames / fps."""
        return len(self.images) / self.fps

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) in pixels."""
        return self.images.shape[1], self.images.shape[2]
