"""psi: the small CNN of ViSiL (arXiv:1908.07410) that looks for diagonals in a frame matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

DOWNSAMPLING = 4  # two 2x2 poolings


def slot(length: int) -> int:
    """The rows a video takes in a packed matrix: up to the next multiple of 4, with a gap of at least one.

    Poolings stay aligned with the video, and at every level a gap of zeros keeps convolutions off its neighbour.

    >>> [slot(length) for length in (4, 7, 8)]
    [8, 8, 12]
    """
    return (length // DOWNSAMPLING + 1) * DOWNSAMPLING


def pool_mask(mask: Tensor) -> Tensor:
    """The mask after one 2x2 pooling: [..., T] -> [..., floor(T / 2)]; a window is real if both its frames are.

    Pooling floors a lone video's length, so an odd last frame is dropped from a padded one too. Real frames must
    begin at an even position.

    >>> import torch
    >>> pool_mask(torch.tensor([True, True, True, False, False])).tolist()
    [True, False]
    """
    length = mask.shape[-1] // 2 * 2
    return mask[..., 0:length:2] & mask[..., 1:length:2]


def coarse(matrix: Tensor) -> Tensor:
    """What a frame matrix says by itself at psi's resolution: [B, H, W] -> [B, floor(H / 4), floor(W / 4)].

    In each block of 4 x 4, the mean over its rows of their largest cell: Chamfer over it is close to Chamfer over the
    matrix.

    >>> import torch
    >>> coarse(torch.eye(4)[None]).item(), coarse(torch.eye(4)[None] * torch.tensor([1.0, 1.0, 0.0, 0.0])).item()
    (1.0, 0.5)
    """
    return F.avg_pool2d(F.max_pool2d(matrix, (1, DOWNSAMPLING)), (DOWNSAMPLING, 1))


class Comparator(nn.Module):
    """Three 3x3 convolutions (32, 64, 128 channels, zero padding), two 2x2 max-poolings, and a 1x1 convolution.

    With `residual`, which the paper does not have, `coarse` of the matrix is added and the last convolution starts at
    zero: training begins with the untrained similarity and learns what to change about it.

    Positions outside either video are zero before and after every convolution, so neither padding nor a neighbour
    in a packed matrix changes a value (`pool_mask` keeps the bookkeeping).

    Shape: [B, H, W] -> [B, floor(H / 4), floor(W / 4)], before the hardtanh.
    """

    def __init__(self, *, residual: bool = False) -> None:
        super().__init__()
        self.residual = residual
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.conv3 = nn.Conv2d(64, 128, 3, padding=1)
        self.final = nn.Conv2d(128, 1, 1)
        for conv in (self.conv1, self.conv2, self.conv3, self.final):
            nn.init.xavier_uniform_(conv.weight)
            nn.init.zeros_(conv.bias)  # type: ignore[arg-type]
        if residual:
            nn.init.zeros_(self.final.weight)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # twice as fast, on a CPU too

    def largest_activation(self) -> float:
        """A bound on the activations behind either pooling, if all similarities lie in [-1, 1]."""
        bound = 1.0
        for conv in (self.conv1, self.conv2):
            weight, bias = conv.weight.detach(), cast(Tensor, conv.bias).detach()
            bound = float((weight.abs().sum((1, 2, 3)) * bound + bias.abs()).max())
        return bound

    def forward(self, matrix: Tensor, row_mask: Tensor | None = None, column_mask: Tensor | None = None) -> Tensor:
        """Compare frame matrices.

        Args:
            matrix: [B, H, W] frame similarities.
            row_mask: bool [B, H], True = real; each run of real rows begins at a multiple of 4.
            column_mask: bool [B, W], the same for columns.
        """
        x = _zero_outside(matrix[:, None], row_mask, column_mask)
        for conv in (self.conv1, self.conv2):
            # ReLU after the pooling gives the same values on a quarter of the cells.
            x = F.relu(F.max_pool2d(conv(x), 2))  # [B, C, H / 2, W / 2]
            row_mask = None if row_mask is None else pool_mask(row_mask)
            column_mask = None if column_mask is None else pool_mask(column_mask)
            x = _zero_outside(x, row_mask, column_mask)
        x = self.final(F.relu(self.conv3(x)))  # [B, 1, H / 4, W / 4]
        if self.residual:
            x = x + coarse(matrix)[:, None].to(x.dtype)  # real cells of it are blocks of real cells alone
        return _zero_outside(x, row_mask, column_mask)[:, 0]


def _zero_outside(x: Tensor, row_mask: Tensor | None, column_mask: Tensor | None) -> Tensor:
    """Zero the cells of [B, C, H, W] outside the rows [B, H] or columns [B, W]."""
    if row_mask is not None:
        x = x.masked_fill(~row_mask[:, None, :, None], 0.0)
    if column_mask is not None:
        x = x.masked_fill(~column_mask[:, None, None, :], 0.0)
    return x


def compare_in_bands(
    comparator: Callable[[Tensor, Tensor | None, Tensor | None], Tensor],
    matrix: Tensor,
    row_mask: Tensor | None,
    column_mask: Tensor | None,
    *,
    cells: int,
) -> Tensor:
    """What `comparator` gives, in bounded memory: a matrix of more than `cells` cells is compared band by band.

    The arguments are those of `Comparator.forward`; matrices [B, H, W] are cut along the longer of their sides.
    """
    batch, height, width = matrix.shape
    axis = 1 if height > width else 2
    bands = _plan_bands(max(height, width), cells // (batch * min(height, width)))
    if len(bands) == 1:
        return comparator(matrix, row_mask, column_mask)
    parts = []
    for start, stop, first, count in bands:
        masks = [row_mask, column_mask]
        if (mask := masks[axis - 1]) is not None:
            masks[axis - 1] = mask[:, start:stop]
        band = comparator(matrix.narrow(axis, start, stop - start), *masks)
        parts.append(band.narrow(axis, first, count))
    return torch.cat(parts, dim=axis)


def _plan_bands(length: int, size: int) -> list[tuple[int, int, int, int]]:
    """Overlapping bands of a side of `length` cells, each of about `size` cells.

    Each is (first cell, end, first output of the band that counts, how many count). An output depends on the cells
    within 7 of its own four: 4 through the last convolution, 2 through the one before, 1 through the first.

    >>> _plan_bands(40, 32)
    [(0, 24, 0, 4), (8, 40, 2, 4), (24, 40, 2, 2)]
    """
    outputs, margin = length // DOWNSAMPLING, 2  # the margin in outputs, on either side
    step = max(4, size // DOWNSAMPLING - 2 * margin)
    if length <= size or outputs <= step:
        return [(0, length, 0, outputs)]
    bands = []
    for begin in range(0, outputs, step):
        end = min(begin + step, outputs)
        before, after = max(0, begin - margin), min(outputs, end + margin)
        stop = length if after == outputs else after * DOWNSAMPLING
        bands.append((before * DOWNSAMPLING, stop, begin - before, end - begin))
    return bands
