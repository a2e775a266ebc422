"""Crop, flip, resize, paste and blur as products with matrices, a pair for each picture.

All of these work on rows and columns apart: out = rows @ picture @ columns^T. So one routine does them all, for whole
batches in which every picture has its own parameters, and on a GPU the work is matrix products.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def resize_matrices(
    inside: int, outside: int, start: Tensor, extent: Tensor, at: Tensor, length: Tensor, *, flip: Tensor | None = None
) -> Tensor:
    """Matrices [N, outside, inside] that bring pixels [start, start + extent) to [at, at + length) of the result.

    The filter is a triangle, as wide as a source pixel or as a result pixel, whichever is larger: linear interpolation
    where pictures grow, a weighted mean of all pixels where they shrink. Pixels beyond the interval have no weight
    (it is cut out first), and each row's weights sum to 1; rows outside the result's interval are zero.

    `inside` and `outside` are the pixels of source and result, `start` to `length` float [N]; where `flip` (bool [N])
    is True the interval is mirrored.

    Example: two pixels from one half to the other, mirrored.
        >>> whole = torch.tensor([4.0])
        >>> half, middle = whole / 2, torch.tensor([True])
        >>> resize_matrices(4, 4, 0 * whole, half, half, half, flip=middle)[0].tolist()
        [[0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]]
    """
    start, extent, at, length = (value[:, None].float() for value in (start, extent, at, length))
    device = start.device
    result = torch.arange(outside, device=device) + 0.5  # pixel centres
    source = torch.arange(inside, device=device) + 0.5
    part = (result - at) / length  # [N, outside]
    if flip is not None:
        part = torch.where(flip[:, None], 1 - part, part)
    reach = (extent / length).clamp_min(1)[..., None]
    weights = 1 - (source - (start + part * extent)[..., None]).abs() / reach  # [N, outside, inside]
    within = (source >= start) & (source < start + extent)  # [N, inside]
    weights = weights.clamp_min(0) * within[:, None]
    weights = weights / weights.sum(-1, keepdim=True).clamp_min(1e-6)
    return weights * ((result > at) & (result < at + length))[..., None]


def blur_matrices(size: int, radius: Tensor) -> Tensor:
    """Matrices [N, size, size] of a Gaussian of standard deviation `radius` [N]; weights sum to 1 at the border too."""
    place = torch.arange(size, device=radius.device)
    distance = (place[:, None] - place).float()
    weights = torch.exp(-0.5 * (distance / radius[:, None, None].float()).square())
    return weights / weights.sum(-1, keepdim=True)


def resample(pictures: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """rows @ pictures @ columns^T for pictures [N, C, H, W], rows [N, H', H], columns [N, W', W]: [N, C, H', W'].

    The type is that of the pictures: floating point. In float16, values up to 255 stay within 0.2 of exact.
    """
    N, C, H, W = pictures.shape
    rows, columns = rows.to(pictures.dtype), columns.to(pictures.dtype)
    wide = pictures.reshape(N, C * H, W) @ columns.mT  # [N, C H, W']
    return rows[:, None] @ wide.view(N, C, H, -1)


def choose_dtype(device: torch.device) -> torch.dtype:
    """float16 on a GPU, where it is fast and exact enough for pixels of 8 bits; float32 elsewhere."""
    return torch.float16 if device.type == "cuda" else torch.float32


def to_pixels(values: Tensor, *, clamp: bool = True) -> Tensor:
    """The nearest whole numbers from 0 to 255 as uint8; `values` is used up.

    clamp: whether values may lie beyond. Weighted means of pixels do not, rounding apart.
    """
    values = values.add_(0.5)
    return (values.clamp_(0, 255) if clamp else values).to(torch.uint8)


def take(pictures: Tensor, numbers: Tensor) -> Tensor:
    """`pictures[numbers]` for uint8 [N, ...], moved eight bytes at a time."""
    return _words(pictures).index_select(0, numbers).view(torch.uint8).view(-1, *pictures.shape[1:])


def put(pictures: Tensor, numbers: Tensor, changed: Tensor) -> None:
    """`pictures[numbers] = changed` for uint8 [N, ...], moved eight bytes at a time."""
    _words(pictures).index_copy_(0, numbers, _words(changed.contiguous()))


def change_some(
    pictures: Tensor, chosen: NDArray[Any], operation: Callable[[Tensor, NDArray[np.int64]], Tensor]
) -> None:
    """Replace those of uint8 [N, ...] whose entries in `chosen` [N, ...] are not all 0 by what the operation makes of
    them: `pictures[rows] = operation(pictures[rows], rows)`.
    """
    rows = np.flatnonzero(chosen.any(tuple(range(1, chosen.ndim))))
    if len(rows):
        numbers = upload(rows, pictures.device)
        part = take(pictures, numbers)
        put(pictures, numbers, operation(part, rows).view_as(part))


def upload(values: NDArray[Any], device: torch.device) -> Tensor:
    """An array on a device, without waiting for what the device still works on; floats become float32."""
    tensor = torch.from_numpy(values)
    return (tensor.float() if tensor.is_floating_point() else tensor).to(device, non_blocking=True)


def _words(pictures: Tensor) -> Tensor:
    flat = pictures.view(len(pictures), math.prod(pictures.shape[1:]))
    return flat.view(torch.int64) if flat.shape[1] % 8 == 0 and flat.data_ptr() % 8 == 0 else flat
