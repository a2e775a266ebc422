"""The temporal aggregation of many pairs, read off one packed matrix in one kernel."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

MAX_KEPT = 8  # cells of a row: they are found one after another, which is slow for many
MAX_COLUMNS = 1024  # cells of a row, which a program holds at once
_CELLS = 2048  # held by a program


# One build serves packs of all sizes: knowing that one of these divides by 16 would not make the kernel faster.
_ANY = ["row_starts", "row_counts", "column_starts", "column_counts", "keeps", "across"]


@triton.jit(do_not_specialize=["down", "columns"], do_not_specialize_on_alignment=_ANY)
def _average_best(
    matrix, row_starts, row_counts, column_starts, column_counts, keeps, out, across, down, columns, slope,
    BOUNDED: tl.constexpr, BLOCK_Y: tl.constexpr, BLOCK_X: tl.constexpr,
):  # fmt: skip
    """One pair: the mean over its rows of the mean of each row's largest cells. A cell is `down` from the one above."""
    n = tl.program_id(0) // columns
    m = tl.program_id(0) % columns
    height = tl.load(row_counts + n)
    width = tl.load(column_counts + m)
    keep = tl.load(keeps + m)
    corner = matrix + tl.load(row_starts + n).to(tl.int64) * down + tl.load(column_starts + m).to(tl.int64) * across
    x = tl.arange(0, BLOCK_X)
    total = tl.zeros((BLOCK_Y,), tl.float32)
    for top in range(0, height, BLOCK_Y):
        y = top + tl.arange(0, BLOCK_Y)
        inside = (y[:, None] < height) & (x[None, :] < width)
        at = y.to(tl.int64)[:, None] * down + x.to(tl.int64)[None, :] * across
        value = tl.load(corner + at, mask=inside, other=0.0)
        if BOUNDED:
            value = tl.minimum(tl.maximum(value, -1.0), 1.0)
            value = tl.where(value < 0.0, value * slope, value)
        value = tl.where(inside, value, -float("inf"))
        best = tl.zeros((BLOCK_Y,), tl.float32)
        for _ in range(keep):
            largest, which = tl.max(value, 1, return_indices=True)
            best += largest
            value = tl.where(x[None, :] == which[:, None], -float("inf"), value)
        total += tl.where(y < height, best / keep, 0.0)
    tl.store(out + n * columns + m, tl.sum(total) / height)


def average_best(
    matrix: Tensor,
    rows: tuple[Tensor, Tensor],
    columns: tuple[Tensor, Tensor],
    keeps: Tensor,
    *,
    longest: int,
    slope: float | None,
) -> Tensor:
    """`topk_chamfer` of each of N x M parts of a matrix [H, W], float32: [N, M].

    Args:
        matrix: of videos laid end to end; a transposed view is as good.
        rows: the first row of each of N parts and how many, int32 [N] each.
        columns: the same of M parts.
        keeps: int32 [M], how many of the largest cells of a row count, up to `MAX_KEPT`.
        longest: the largest number of columns, up to `MAX_COLUMNS`.
        slope: cells are cut to [-1, 1], and those below 0 multiplied by it; None takes them as they are.
    """
    (starts, counts), (column_starts, column_counts) = rows, columns
    out = matrix.new_empty(len(starts), len(column_starts), dtype=torch.float32)
    block_x = max(64, triton.next_power_of_2(longest))
    down, across = matrix.stride()
    _average_best[(out.numel(),)](
        matrix, starts, counts, column_starts, column_counts, keeps, out, across, down, len(column_starts),
        1.0 if slope is None else slope, BOUNDED=slope is not None, BLOCK_Y=max(1, _CELLS // block_x), BLOCK_X=block_x,
        num_warps=4,
    )  # fmt: skip
    return out
