"""A camera that moves over a photograph: how photographs become clips."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hapvr.config import CheckedConfig, Range, Share, Within
from hapvr.training.augment.resample import choose_dtype, resample, resize_matrices, to_pixels, upload

_MAX_FILMED = 2**29  # values of photographs that are filmed at a time


@dataclass(frozen=True)
class Camera(CheckedConfig):
    """How a photograph becomes a clip: a square window that glides and zooms over it, with a slight shake.

    The window's side, as a share of the photograph's short side, goes from one value of `zoom` to another, its middle
    from any place to any other at which it lies within the photograph.
    """

    frames: Annotated[int, Within(1)] = 56  # of the clip
    size: Annotated[int, Within(1)] = 256  # pixels of a side of its frames
    zoom: Annotated[Range, Within(1e-6, 1)] = (0.5, 1.0)
    shake: Share = 0.01  # standard deviation, share of the window's side


def draw_camera_boxes(camera: Camera, size: tuple[int, int], seed: Sequence[int]) -> NDArray[np.float64]:
    """The window of each frame, [frames, 3]: top, left, side in pixels of a photograph of this (height, width)."""
    rng = np.random.default_rng(list(seed))
    short = min(size)
    progress = np.linspace(0, 1, camera.frames)[:, None]
    sides = np.maximum(1, short * rng.uniform(*camera.zoom, 2))
    side = sides[:1] * (sides[1] / sides[0]) ** progress  # an even zoom changes by the same factor in each frame
    ways = rng.random((2, 2))
    room = np.array(size) - side
    corner = (ways[0] * (1 - progress) + ways[1] * progress) * room
    # A hand sways slowly: white noise, smoothed over a few frames and brought back to its strength.
    sway = rng.standard_normal((camera.frames + 4, 2))
    sway = sum(sway[first : first + camera.frames] for first in range(5)) / np.sqrt(5)
    corner = np.clip(corner + camera.shake * side * sway, 0, room)
    return np.concatenate([corner, side], 1)


def film(photographs: Sequence[Tensor], boxes: Sequence[NDArray[np.float64]], size: int) -> list[Tensor]:
    """What windows [t, 3] (top, left, side) show of each photograph uint8 [H, W, 3]: uint8 [t, size, size, 3] each.

    >>> photograph = torch.arange(12, dtype=torch.uint8).view(2, 2, 3)
    >>> (frames,) = film([photograph], [np.array([[0.0, 0.0, 2.0]])], 2)
    >>> torch.equal(frames[0], photograph)
    True
    """
    filmed: list[Tensor] = []
    for some in _split_by_pixels(photographs, boxes, size):
        filmed += _film_together(photographs[some], boxes[some], size)
    return filmed


def _split_by_pixels(photographs: Sequence[Tensor], boxes: Sequence[NDArray[np.float64]], size: int) -> Iterator[slice]:
    """Photographs that together take no more memory than `_MAX_FILMED`, one after another."""
    first, values = 0, 0
    for number, (photograph, windows) in enumerate(zip(photographs, boxes, strict=True)):
        height, width = photograph.shape[:2]
        own = 3 * len(windows) * (height + size) * (width + size)
        if values and values + own > _MAX_FILMED:
            yield slice(first, number)
            first, values = number, 0
        values += own
    if photographs:
        yield slice(first, len(photographs))


def _film_together(photographs: Sequence[Tensor], boxes: Sequence[NDArray[np.float64]], size: int) -> Sequence[Tensor]:
    """`film` at once: photographs are filled up to a common size. No window reaches beyond its photograph."""
    device = photographs[0].device
    dtype = choose_dtype(device)
    height, width = (max(photograph.shape[side] for photograph in photographs) for side in (0, 1))
    pixels = torch.zeros(len(photographs), 3, height, width, dtype=dtype, device=device)
    for place, photograph in zip(pixels, photographs, strict=True):
        place[:, : photograph.shape[0], : photograph.shape[1]] = photograph.permute(2, 0, 1)
    counts = [len(windows) for windows in boxes]
    shown = upload(np.repeat(np.arange(len(photographs)), counts), device)  # the photograph of each frame
    top, left, side = upload(np.concatenate(boxes), device).unbind(1)
    zero = torch.zeros_like(top)
    rows = resize_matrices(height, size, top, side, zero, zero + size)  # [sum t, S, H]
    columns = resize_matrices(width, size, left, side, zero, zero + size)
    frames = to_pixels(resample(pixels[shown], rows, columns), clamp=False).permute(0, 2, 3, 1)
    return torch.split(frames, counts)
