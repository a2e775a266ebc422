"""RandAugment's fourteen operations on clips, each with a strength that is the same for all frames of a clip.

Pictures are uint8 [N, T, 3, H, W]. Values are truncated to whole numbers where an operation mixes pictures, as is
customary for 8-bit pictures; `tests/training/check_randaugment.py` compares with torchvision where it is installed.

    ShearX, ShearY           sideways (downwards) by a share of the distance from the upper (left) border
    TranslateX, TranslateY   by whole pixels to the right (down)
    Rotate                   counter-clockwise about the middle, in degrees
    Brightness               mixed with black
    Color, Contrast          mixed with its grey picture; with the mean of each frame's grey picture
    Sharpness                mixed with its 3 x 3 mean, in which the pixel itself counts 5 of 13
    Posterize                only the upper bits of each value kept
    Solarize                 values from a threshold on inverted
    AutoContrast             each channel stretched to the full range
    Equalize                 each channel's values spread so that all are about as frequent

What comes from outside the picture is black; geometry takes the nearest pixel. "Mixed" with strength m means
(1 + m) picture - m other, cut to 0..255.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hapvr.training.augment.resample import change_some, upload

OPERATIONS = (
    "Identity", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast",
    "Sharpness", "Posterize", "Solarize", "AutoContrast", "Equalize",
)  # fmt: skip
SIGNED = frozenset(OPERATIONS[1:10])  # applied in either direction, as likely
GEOMETRIC = frozenset(OPERATIONS[1:6])
_Tone = Callable[[Tensor, Tensor], Tensor]  # pictures and strengths [N, 1, 1, 1, 1] in, pictures out
_GREY = (0.2989, 0.587, 0.114)


def strength(operation: str, *, magnitude: int, bins: int, size: int) -> float:
    """What bin `magnitude` of 0 to `bins` - 1 means to an operation on pictures of `size` pixels, sign apart.

    >>> [round(strength(name, magnitude=9, bins=31, size=224), 3) for name in ("ShearX", "TranslateX", "Rotate")]
    [0.09, 30.0, 9.0]
    >>> [strength(name, magnitude=9, bins=31, size=224) for name in ("Posterize", "Solarize")]  # bits, threshold
    [7.0, 178.5]
    """
    part = magnitude / (bins - 1)
    if operation in ("ShearX", "ShearY"):
        return 0.3 * part
    if operation in ("TranslateX", "TranslateY"):
        return float(int(150 / 331 * size * part))
    if operation == "Rotate":
        return 30 * part
    if operation in ("Brightness", "Color", "Contrast", "Sharpness"):
        return 0.9 * part
    if operation == "Posterize":
        return 8.0 - round(4 * part)
    if operation == "Solarize":
        return 255 * (1 - part)
    return 0.0


def randaugment(
    pictures: Tensor, operations: Sequence[str], strengths: Sequence[float] | NDArray[np.float64]
) -> Tensor:
    """One operation on each clip of uint8 [N, T, 3, H, W], in place: `operations` and `strengths` (signed) of each."""
    names, values = np.array(operations), np.array(strengths, np.float64)
    geometric = np.isin(names, list(GEOMETRIC))
    change_some(pictures, geometric, lambda part, rows: move(part, names[rows].tolist(), values[rows].tolist()))
    for name, operation in _TONES.items():

        def change_tone(part: Tensor, rows: NDArray[np.int64], operation: _Tone = operation) -> Tensor:
            return operation(part, upload(values[rows], part.device)[:, None, None, None, None])

        change_some(pictures, names == name, change_tone)
    return pictures


def move(pictures: Tensor, operations: Sequence[str], strengths: Sequence[float]) -> Tensor:
    """The geometric operations, a matrix for each clip: where in the source the pixel (x, y) of the result lies."""
    N, T, C, H, W = pictures.shape
    device = pictures.device
    pairs = zip(operations, strengths, strict=True)
    matrices = upload(np.array([_make_matrix(*pair) for pair in pairs], np.float64), device)
    middles = [(W / 2, H / 2) if name == "Rotate" else (0.0, 0.0) for name in operations]
    middle = upload(np.array(middles), device)[:, None]
    rows, columns = torch.meshgrid(
        torch.arange(H, device=device) + 0.5, torch.arange(W, device=device) + 0.5, indexing="ij"
    )
    points = torch.stack([columns.flatten(), rows.flatten()], -1)  # [H W, 2]
    source = (points - middle) @ matrices[:, :, :2].mT + matrices[:, None, :, 2] + middle - 0.5
    x, y = source.round().long().unbind(-1)  # [N, H W]
    outside = (x < 0) | (x >= W) | (y < 0) | (y >= H)
    index = (y * W + x).masked_fill_(outside, 0)
    taken = pictures.reshape(N, T * C, H * W).gather(2, index[:, None].expand(-1, T * C, -1))
    return taken.masked_fill_(outside[:, None], 0).view(N, T, C, H, W)


def _make_matrix(operation: str, value: float) -> list[list[float]]:
    if operation == "ShearX":
        return [[1, value, 0], [0, 1, 0]]
    if operation == "ShearY":
        return [[1, 0, 0], [value, 1, 0]]
    if operation == "TranslateX":
        return [[1, 0, -value], [0, 1, 0]]
    if operation == "TranslateY":
        return [[1, 0, 0], [0, 1, -value]]
    cos, sin = float(np.cos(np.radians(value))), float(np.sin(np.radians(value)))
    return [[cos, -sin, 0], [sin, cos, 0]]


def grey(pictures: Tensor) -> Tensor:
    """The weighted mean of red, green and blue, truncated: float [..., 1, H, W] of whole numbers."""
    red, green, blue = pictures.float().unbind(-3)
    return (_GREY[0] * red + _GREY[1] * green + _GREY[2] * blue).floor_().unsqueeze(-3)


def _mix(pictures: Tensor, other: Tensor | float, value: Tensor) -> Tensor:
    return ((1 + value) * pictures.float() - value * other).clamp_(0, 255).to(torch.uint8)


def sharpness(pictures: Tensor, value: Tensor) -> Tensor:
    """The outermost pixels, which lack neighbours, stay as they are."""
    if min(pictures.shape[-2:]) < 3:
        return pictures
    whole = pictures.short()
    smooth = whole.clone()
    tall = whole[..., :-2, :] + whole[..., 1:-1, :] + whole[..., 2:, :]
    total = tall[..., :-2] + tall[..., 1:-1] + tall[..., 2:] + 4 * whole[..., 1:-1, 1:-1]
    smooth[..., 1:-1, 1:-1] = (2 * total + 13) // 26  # the nearest whole number to total / 13
    return _mix(pictures, smooth, value)


def autocontrast(pictures: Tensor, _: Tensor | None = None) -> Tensor:
    """Each channel of each frame stretched so that its values reach from 0 to 255; one of a single value stays."""
    low = pictures.amin((-2, -1), keepdim=True).float()
    high = pictures.amax((-2, -1), keepdim=True).float()
    flat = low == high
    scale = 255 / torch.where(flat, 255, high - low)
    return ((pictures.float() - low.masked_fill(flat, 0)) * scale).clamp_(0, 255).to(torch.uint8)


def equalize(pictures: Tensor, _: Tensor | None = None) -> Tensor:
    """Each channel of each frame: a value becomes the number of pixels below it, in steps that give 255 in all.

    The step is the pixels without those of the highest value that occurs, divided by 255 and rounded down. A picture
    with a step of 0 (too small, or nearly of one value) stays.
    """
    planes = pictures.reshape(-1, pictures.shape[-2] * pictures.shape[-1])  # [P, H W]
    counts = _histogram(planes)
    highest = planes.amax(1).long()[:, None]
    step = (planes.shape[1] - counts.gather(1, highest)) // 255  # [P, 1]
    before = counts.cumsum(1) - counts  # pixels of lower values
    table = ((before + step // 2) // step.clamp_min(1)).clamp_(max=255).to(torch.uint8)
    table = torch.where(step > 0, table, torch.arange(256, device=planes.device, dtype=torch.uint8))
    return table.gather(1, planes.long()).view(pictures.shape)


def _histogram(planes: Tensor) -> Tensor:
    """How often each value occurs in each row of uint8 [P, M]: int64 [P, 256].

    Rows are counted in several parts that are summed: a GPU adds one after the other to the same count, and pictures
    are full of equal neighbours.
    """
    P, M = planes.shape
    parts = 8
    number = torch.arange(P, device=planes.device)[:, None] * parts + torch.arange(M, device=planes.device) % parts
    counts = torch.zeros(P * parts * 256, dtype=torch.int32, device=planes.device)
    places = (number * 256 + planes).flatten()
    counts.index_add_(0, places, torch.ones((), dtype=torch.int32, device=planes.device).expand(len(places)))
    return counts.view(P, parts, 256).sum(1)


_TONES: dict[str, _Tone] = {
    "Brightness": lambda pictures, value: _mix(pictures, 0.0, value),
    "Color": lambda pictures, value: _mix(pictures, grey(pictures), value),
    "Contrast": lambda pictures, value: _mix(pictures, grey(pictures).mean((-3, -2, -1), keepdim=True), value),
    "Sharpness": sharpness,
    "Posterize": lambda pictures, bits: pictures // (step := (2 ** (8 - bits)).to(torch.uint8)) * step,
    "Solarize": lambda pictures, threshold: torch.where(pictures >= threshold, 255 - pictures, pictures),
    "AutoContrast": autocontrast,
    "Equalize": equalize,
}
