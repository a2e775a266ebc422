"""Small frozen records that pass between layers; each checks itself when it is made."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hapvr.errors import DataError, ShapeError

Size = tuple[int, int]
"""Width and height in pixels."""
Box = tuple[int, int, int, int]
"""Left, top, right and bottom in pixels; right and bottom are the first column and row outside."""


@dataclass(frozen=True, eq=False)
class Frames:
    """Frames of one video, sampled, resized and with their times.

    `ShapeError` or `DataError` where the fields contradict each other.

    >>> import numpy as np
    >>> frames = Frames(np.zeros((2, 4, 6, 3), np.uint8), np.array([0., 1.]), np.array([True, True]),
    ...                 duration_s=2., fps=1., source_size=(6, 4))
    >>> len(frames), frames.timestamps.tolist(), frames.crop
    (2, [0.0, 1.0], None)
    """

    images: NDArray[np.uint8]  # [T, H, W, 3], RGB, upright as a player shows them; at least one
    timestamps: NDArray[np.float64]  # [T], seconds since the first frame of the file; increasing, not always evenly
    low_information: NDArray[np.bool_]  # [T], True where a frame is flat (of one colour) or repeated
    duration_s: float | None  # of the whole video; None for a still picture
    fps: float  # that it was sampled at; more than was asked for if the video is short
    source_size: Size  # of the source as a player shows it: rotated, with square pixels
    crop: Box | None = None  # the part of the source that `images` show; None if all of it
    warnings: tuple[str, ...] = ()  # what was wrong with the file, in sentences

    def __post_init__(self) -> None:
        images = self.images
        if not isinstance(images, np.ndarray) or images.ndim != 4 or images.shape[3] != 3 or images.dtype != np.uint8:
            raise ShapeError(f"images must be uint8 [T, H, W, 3], got {format_array(images)}.")
        if 0 in images.shape:
            raise DataError(f"Frames hold at least one picture, got images of shape {list(images.shape)}.")
        require_vector(self.timestamps, "timestamps", np.float64, len(images))
        require_vector(self.low_information, "low_information", np.bool_, len(images))
        require_times(self.timestamps)
        if self.timestamps[0] < 0:
            raise DataError(f"timestamps must not be negative, got {self.timestamps[0]:g}.")
        if self.duration_s is not None and not 0 <= self.duration_s < math.inf:
            raise DataError(f"duration_s must be None or seconds, got {self.duration_s}.")
        if not 0 < self.fps < math.inf:
            raise DataError(f"fps must be positive, got {self.fps}.")
        width, height = self.source_size
        if width < 1 or height < 1:
            raise DataError(f"source_size must be positive, got {self.source_size}.")
        if self.crop is not None:
            left, top, right, bottom = self.crop
            if not (0 <= left < right <= width and 0 <= top < bottom <= height):
                raise DataError(f"crop {self.crop} does not lie within a source of {width}x{height}.")

    def __len__(self) -> int:
        return len(self.images)


@dataclass(frozen=True)
class VideoInfo:
    """What a file declares about its video; nothing of it has been checked by decoding."""

    duration_s: float | None  # None if the file declares none, as the next two that can be None
    size: Size  # as a player shows it: rotated, with square pixels
    fps: float | None  # on average
    frame_count: int | None
    container: str  # as FFmpeg calls it
    codec: str  # as FFmpeg calls it
    rotation: int  # degrees counter-clockwise that a player turns the coded picture: 0, 90, 180 or 270


def require_vector(value: Any, name: str, dtype: type, length: int) -> None:
    """Raise `ShapeError` unless `value` is a numpy array [length] of this type: one value per frame."""
    if not isinstance(value, np.ndarray) or value.dtype != dtype or value.shape != (length,):
        kind = f"a {np.dtype(dtype).name} array [{length}], one per frame"
        raise ShapeError(f"{name} must be {kind}; got {format_array(value)}.")


def require_times(times: NDArray[np.float64], name: str = "timestamps") -> None:
    """Raise `DataError` unless times are finite and strictly increasing."""
    if not np.isfinite(times).all() or (np.diff(times) <= 0).any():
        raise DataError(f"{name} must be finite and strictly increasing.")


def format_array(value: Any) -> str:
    """How an error names an argument: its type and shape if it is an array, else the class it is of."""
    return f"{value.dtype} {list(value.shape)}" if hasattr(value, "shape") else f"a {type(value).__name__}"
