"""Chamfer over regions in one kernel: the region similarities never leave the chip."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def _chamfer(
    query, target, matrix, winners, height, width,
    D: tl.constexpr, R: tl.constexpr, REMEMBER: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """One tile of the frame matrix. The R x R products run in one loop, so that loads stay ahead of the arithmetic."""
    # Tiles are visited in groups of rows, so that neighbours find their frames in the L2 cache.
    tiles_m = tl.cdiv(height, BLOCK_M)
    tiles_n = tl.cdiv(width, BLOCK_N)
    program = tl.program_id(0)
    first = program // (GROUP * tiles_n) * GROUP
    rows_in_group = min(tiles_m - first, GROUP)
    row = (first + (program % (GROUP * tiles_n)) % rows_in_group) * BLOCK_M
    column = (program % (GROUP * tiles_n)) // rows_in_group * BLOCK_N

    rows = (row + tl.arange(0, BLOCK_M)).to(tl.int64)
    columns = column + tl.arange(0, BLOCK_N)
    inside = (rows[:, None] < height) & (columns[None, :] < width)
    STEPS: tl.constexpr = D // BLOCK_K
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    best = tl.full((BLOCK_M, BLOCK_N), -float("inf"), tl.float32)
    which = tl.zeros((BLOCK_M, BLOCK_N), tl.int32)
    product = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(R * R * STEPS):
        k = step % STEPS
        j = (step // STEPS) % R
        i = step // (STEPS * R)
        a = query.load([row, i * D + k * BLOCK_K])
        b = target.load([column, j * D + k * BLOCK_K])
        product = tl.dot(a, b.T, product)
        if k == STEPS - 1:
            if REMEMBER:
                which = tl.where(product > best, j, which)
            best = tl.maximum(best, product)
            product = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
            if j == R - 1:
                total += best
                best = tl.full((BLOCK_M, BLOCK_N), -float("inf"), tl.float32)
                if REMEMBER:
                    at = winners + (rows * R + i)[:, None] * width + columns[None, :]
                    tl.store(at, which.to(tl.uint8), mask=inside)
                    which = tl.zeros((BLOCK_M, BLOCK_N), tl.int32)
    tl.store(matrix + rows[:, None] * width + columns[None, :], total / R, mask=inside)


def chamfer(query: Tensor, target: Tensor, *, remember: bool) -> tuple[Tensor, Tensor | None]:
    """Frame matrix by Chamfer over regions: [H, R, D] x [W, R, D] -> [H, W] float32, and the winners [1, H, R, W].

    The winner of a query region and a target frame is the target region most like it (uint8), for the gradient.
    D must be a multiple of 16.
    """
    query, target = query.contiguous(), target.contiguous()
    height, regions, dims = query.shape
    width = target.shape[0]
    matrix = query.new_empty(height, width, dtype=torch.float32)
    winners = query.new_empty(1, height, regions, width, dtype=torch.uint8) if remember else None
    block = 128  # with BLOCK_K = 64, 8 warps and 4 stages the fastest of those measured on an H200
    block_k = next(size for size in (64, 32, 16) if dims % size == 0)
    _chamfer[(triton.cdiv(height, block) * triton.cdiv(width, block),)](
        TensorDescriptor.from_tensor(query.view(height, regions * dims), [block, block_k]),
        TensorDescriptor.from_tensor(target.view(width, regions * dims), [block, block_k]),
        matrix, matrix if winners is None else winners, height, width,
        D=dims, R=regions, REMEMBER=remember,
        BLOCK_M=block, BLOCK_N=block, BLOCK_K=block_k, GROUP=8, num_warps=8, num_stages=4,
    )  # fmt: skip
    return matrix, winners


@triton.jit
def _marks(gradient, winners, out, width, R: tl.constexpr, BLOCK: tl.constexpr):
    """One stretch of a row of [h R, W R]: the gradient of its frame pair where the target region won, else 0."""
    row = tl.program_id(0).to(tl.int64)  # of h R
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)  # of W R
    inside = column < width * R
    frame = column // R
    won = tl.load(winners + row * width + frame, mask=inside, other=0) == column % R
    value = tl.load(gradient + row // R * width + frame, mask=inside & won, other=0.0) / R
    tl.store(out + row * (width * R) + column, value.to(out.dtype.element_ty), mask=inside)


def mark_winners(gradient: Tensor, winners: Tensor, dtype: torch.dtype) -> Tensor:
    """What each dot product received of the gradient [h, W] of `chamfer`: [h R, W R], winners [h, R, W]."""
    gradient, winners = gradient.contiguous(), winners.contiguous()
    height, regions, width = winners.shape
    out = gradient.new_empty(height * regions, width * regions, dtype=dtype)
    block = 2048
    _marks[(height * regions, triton.cdiv(width * regions, block))](
        gradient, winners, out, width, R=regions, BLOCK=block, num_warps=4
    )
    return out
