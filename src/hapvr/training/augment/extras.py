"""Pixel operations beyond the paper's: what cameras, players and uploads do to videos."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from hapvr.training.augment.resample import (
    blur_matrices,
    choose_dtype,
    resample,
    resize_matrices,
    to_pixels,
    upload,
)

# The example tables of the JPEG standard (ITU-T T.81, annex K): luma and chroma steps, which quality scales.
_LUMA = (
    (16, 11, 10, 16, 24, 40, 51, 61), (12, 12, 14, 19, 26, 58, 60, 55), (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62), (18, 22, 37, 56, 68, 109, 103, 77), (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101), (72, 92, 95, 98, 112, 100, 103, 99),
)  # fmt: skip
_CHROMA = (
    (17, 18, 24, 47, 99, 99, 99, 99), (18, 21, 26, 66, 99, 99, 99, 99), (24, 26, 56, 99, 99, 99, 99, 99),
    (47, 66, 99, 99, 99, 99, 99, 99), *(((99,) * 8,) * 4),
)  # fmt: skip
_TO_YCC = ((0.299, 0.587, 0.114), (-0.168736, -0.331264, 0.5), (0.5, -0.418688, -0.081312))


def make_cosines(device: torch.device) -> Tensor:
    """The orthonormal cosine transform of 8 values, [8, 8]: its rows are the frequencies."""
    frequency = torch.arange(8, device=device, dtype=torch.float32)[:, None]
    place = torch.arange(8, device=device, dtype=torch.float32) + 0.5
    matrix = torch.cos(math.pi / 8 * frequency * place) / 2
    return torch.cat([matrix[:1] / math.sqrt(2), matrix[1:]])


def compress_jpeg(pictures: Tensor, quality: Tensor) -> Tensor:
    """uint8 [N, 3, H, W] as JPEG files of `quality` [N] (1 to 100) would show them, colour at half resolution.

    Blocks of 8 x 8 are transformed to frequencies, rounded to multiples of a step that grows as quality falls, and
    transformed back. Pictures whose sides are not multiples of 16 are padded with their last pixels meanwhile.
    """
    height, width = pictures.shape[-2:]
    real = F.pad(pictures.float(), (0, -width % 16, 0, -height % 16), mode="replicate")
    to_ycc = upload(np.array(_TO_YCC), pictures.device)
    ycc = torch.einsum("dc,nchw->ndhw", to_ycc, real)
    quality = quality.float()
    scale = torch.where(quality < 50, 5000 / quality, 200 - 2 * quality)
    luma = _quantise(ycc[:, :1] - 128, _LUMA, scale) + 128
    chroma = _quantise(F.avg_pool2d(ycc[:, 1:], 2), _CHROMA, scale)
    chroma = F.interpolate(chroma, scale_factor=2, mode="nearest")
    back = torch.einsum("dc,nchw->ndhw", upload(np.linalg.inv(_TO_YCC), pictures.device), torch.cat([luma, chroma], 1))
    return to_pixels(back[..., :height, :width])


def _quantise(planes: Tensor, table: tuple[tuple[int, ...], ...], scale: Tensor) -> Tensor:
    N, C, H, W = planes.shape
    transform = make_cosines(planes.device)
    steps = upload(np.array(table, np.float64), planes.device)
    steps = ((steps * scale[:, None, None] + 50) / 100).floor().clamp(1, 255)[:, None, None, None]  # [N, 1, 1, 1, 8, 8]
    blocks = planes.view(N, C, H // 8, 8, W // 8, 8).transpose(3, 4)  # [N, C, rows, columns, 8, 8]
    spectrum = transform @ blocks @ transform.T
    spectrum = (spectrum / steps).round_() * steps
    return (transform.T @ spectrum @ transform).transpose(3, 4).reshape(N, C, H, W)


def add_noise(pictures: Tensor, strength: Tensor, generator: torch.Generator) -> Tensor:
    """Gaussian noise of standard deviation `strength` [N] (of 255) on uint8 [N, ...]."""
    noise = torch.randn(
        pictures.shape, device=pictures.device, dtype=choose_dtype(pictures.device), generator=generator
    )
    return to_pixels(pictures + noise * strength.to(noise.dtype).view(-1, *[1] * (pictures.ndim - 1)))


def letterbox(pictures: Tensor, bars: Tensor, backdrop: Tensor | None = None) -> Tensor:
    """uint8 [N, C, S, S] squeezed between bars: `bars` [N, 2] pixels above and below, and left and right.

    They are black; where `backdrop` [N] is True they show the picture, twice as large, blurred and darker.
    """
    S = pictures.shape[-1]
    dtype = choose_dtype(pictures.device)
    zero, whole = torch.zeros(len(bars), device=bars.device), torch.full((len(bars),), float(S), device=bars.device)
    rows, columns = (resize_matrices(S, S, zero, whole, bar.float(), S - 2.0 * bar) for bar in bars.unbind(1))
    squeezed = resample(pictures.to(dtype), rows, columns)
    if backdrop is None or not bool(backdrop.any()):
        return to_pixels(squeezed, clamp=False)
    soft = (
        blur_matrices(S, torch.full((1,), 0.06 * S, device=bars.device))[0]
        @ resize_matrices(S, S, whole[:1] / 4, whole[:1] / 2, zero[:1], whole[:1])[0]
    )
    behind = resample(pictures.to(dtype), soft.expand(len(bars), S, S), soft.expand(len(bars), S, S)) * 0.6
    place = torch.arange(S, device=bars.device) + 0.5
    inside = [(place > bar[:, None]) & (place < (S - bar)[:, None]) for bar in bars.unbind(1)]
    bare = ~(inside[0][:, None, :, None] & inside[1][:, None, None, :]) & backdrop[:, None, None, None]
    return to_pixels(torch.where(bare, behind, squeezed), clamp=False)


def turn(pictures: Tensor, quarters: Sequence[int]) -> Tensor:
    """Squares [N, ..., S, S] turned counter-clockwise by a number of quarters each."""
    return torch.stack([square.rot90(count, (-2, -1)) for square, count in zip(pictures, quarters, strict=True)])


def shrink(pictures: Tensor, sides: Tensor, quality: Tensor) -> Tensor:
    """uint8 [N, T, 3, S, S] made as small as `sides` [N] pixels, kept as JPEG of `quality` [N], and enlarged again."""
    N, T, C, S, _ = pictures.shape
    zero, whole = torch.zeros(N, device=sides.device), torch.full((N,), float(S), device=sides.device)
    small = sides.float()
    down = resize_matrices(S, S, zero, whole, zero, small)  # into the corner of a square of the old size
    up = resize_matrices(S, S, zero, small, zero, whole)
    dtype = choose_dtype(pictures.device)
    tiny = to_pixels(resample(pictures.flatten(1, 2).to(dtype), down, down), clamp=False).view(N * T, C, S, S)
    packed = compress_jpeg(tiny, quality.repeat_interleave(T)).reshape(N, T * C, S, S)
    return to_pixels(resample(packed.to(dtype), up, up), clamp=False).view(N, T, C, S, S)


def film_screen(pictures: Tensor, looks: Tensor) -> Tensor:
    """uint8 [N, T, C, S, S] as a camera sees a screen: `looks` [N, 4] as in `Plan.screen`.

    Stripes of a width and tilt drift from frame to frame, and the brightness of each frame flickers.
    """
    N, T, _, S, _ = pictures.shape
    strength, width, tilt, flicker = (value.view(N, 1, 1, 1, 1) for value in looks.unbind(1))
    place = torch.arange(S, device=pictures.device, dtype=torch.float32)
    time = torch.arange(T, device=pictures.device, dtype=torch.float32).view(1, T, 1, 1, 1)
    phase = (place[:, None] + tilt * place) / width + 0.13 * time
    light = 1 + flicker * torch.sin(2.4 * time + 40 * tilt)
    return to_pixels(pictures * (1 + strength * torch.sin(2 * math.pi * phase)) * light)


def tilt(pictures: Tensor, corners: NDArray[np.float64]) -> Tensor:
    """uint8 [N, C, S, S] seen from aside, black outside; corners [N, 4, 2] (upper left, then clockwise): how far each
    moves in, horizontally and vertically, as a share of the side.
    """
    S = pictures.shape[-1]
    matrices = upload(solve_homographies(corners), pictures.device)
    place = (torch.arange(S, device=pictures.device) + 0.5) / S
    y, x = torch.meshgrid(place, place, indexing="ij")
    points = torch.stack([x, y, torch.ones_like(x)], -1).view(-1, 3) @ matrices.mT  # [N, S S, 3]
    grid = (2 * points[..., :2] / points[..., 2:] - 1).view(-1, S, S, 2)
    return to_pixels(F.grid_sample(pictures.float(), grid, align_corners=False), clamp=False)


def solve_homographies(corners: NDArray[np.float64]) -> NDArray[np.float64]:
    """Matrices [N, 3, 3] from points of the result to points of the source, the unit square moved in at its corners."""
    square = np.array([(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)])
    seen = square + corners * (1 - 2 * square)  # [N, 4, 2]: where the corners come to lie
    x, y = seen[..., 0], seen[..., 1]
    u, v = np.broadcast_to(square, seen.shape)[..., 0], np.broadcast_to(square, seen.shape)[..., 1]
    one, zero = np.ones_like(x), np.zeros_like(x)
    system = np.concatenate([
        np.stack([x, y, one, zero, zero, zero, -u * x, -u * y], -1),
        np.stack([zero, zero, zero, x, y, one, -v * x, -v * y], -1),
    ], 1)  # fmt: skip
    solution = np.linalg.solve(system, np.concatenate([u, v], 1)[..., None])[..., 0]  # [N, 8]
    return np.concatenate([solution, np.ones((len(solution), 1))], 1).reshape(-1, 3, 3)
