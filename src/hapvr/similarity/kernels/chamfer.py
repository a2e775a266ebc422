"""Chamfer over regions in one kernel: the region similarities never leave the chip.

Vectors are in half precision, or int8 codes with a scale a frame, which the tensor cores multiply twice as fast.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from hapvr.similarity import kernels


class Tile(NamedTuple):
    """How the frame matrix is cut: `rows` x `columns` a program, `depth` bytes of a vector at a time.

    `branch`: where frames have no scales, multiply them by ones. A load makes the compiler add up maxima in a branch,
    once for R products, where it would else compute a sum after each of them and drop it.
    """

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int
    branch: bool = False


def choose_tile(dtype: torch.dtype, *, tma: bool) -> Tile:
    """The tile for vectors of a dtype."""
    if not tma:
        # The largest of those compiled for compute capability 8.0, 8.6 and 9.0 that keeps its sums in registers, with
        # and without winners, in 57 KiB of shared memory. Not measured on such a GPU.
        return Tile(rows=128, columns=64, depth=128, warps=8, stages=3)
    # The fastest of those measured on an H200. int8 is read twice as deep, because its products are waited for after
    # each step.
    if dtype == torch.int8:
        return Tile(rows=128, columns=128, depth=256, warps=8, stages=3)
    return Tile(rows=128, columns=128, depth=128, warps=8, stages=4, branch=True)


@triton.jit
def _load(source, rows, row, column, TMA: tl.constexpr, WIDTH: tl.constexpr, BLOCK_K: tl.constexpr):
    """A tile of a [frames, WIDTH] matrix from `row` and `column` on: through TMA, or by a pointer.

    `rows` are those of the tile, none past the end.
    """
    if TMA:
        tile = source.load([row, column])
    else:
        tile = tl.load(source + rows[:, None] * WIDTH + column + tl.arange(0, BLOCK_K)[None, :])
    return tile


@triton.jit(do_not_specialize=["height"])
def _chamfer(
    query, target, matrix, winners, query_scales, target_scales, height, width,
    D: tl.constexpr, R: tl.constexpr, REMEMBER: tl.constexpr, BOTH: tl.constexpr,
    TMA: tl.constexpr, SCALED: tl.constexpr, CODES: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """One tile of the frame matrix. The R x R products run in one loop, so that loads stay ahead of the arithmetic.

    CODES: int8, multiplied and compared as int32. SCALED: frames have scales, applied at the end:
    as all regions of a frame share one, no maximum depends on them. BOTH: once more with the roles of i and j changed,
    and the mean of the two; keeping the R maxima of the other direction meanwhile would take nine times the registers.
    """
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
    # Where tiles are read by pointers, those past the end read the last frame; nothing of it is stored.
    query_rows = tl.minimum(rows, height - 1)
    target_rows = tl.minimum(columns, width - 1).to(tl.int64)
    STEPS: tl.constexpr = D // BLOCK_K
    SUM: tl.constexpr = tl.int32 if CODES else tl.float32
    LOWEST: tl.constexpr = -2147483648 if CODES else -float("inf")
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    best = tl.full((BLOCK_M, BLOCK_N), LOWEST, SUM)
    which = tl.zeros((BLOCK_M, BLOCK_N), tl.int32)
    product = tl.zeros((BLOCK_M, BLOCK_N), SUM)
    WAYS: tl.constexpr = 2 if BOTH else 1
    for step in range(WAYS * R * R * STEPS):
        k = step % STEPS
        inner = (step // STEPS) % R
        outer = step // (STEPS * R)
        i = tl.where(outer < R, outer, inner) if BOTH else outer
        j = tl.where(outer < R, inner, outer - R) if BOTH else inner
        a = _load(query, query_rows, row, i * D + k * BLOCK_K, TMA, R * D, BLOCK_K)
        b = _load(target, target_rows, column, j * D + k * BLOCK_K, TMA, R * D, BLOCK_K)
        product = tl.dot(a, b.T, product, out_dtype=SUM)
        if k == STEPS - 1:
            if REMEMBER:
                which = tl.where(product > best, j, which)
            best = tl.maximum(best, product)
            product = tl.zeros((BLOCK_M, BLOCK_N), SUM)
            if inner == R - 1:
                if SCALED:
                    total += best.to(tl.float32) * tl.load(query_scales + query_rows)[:, None]
                else:
                    total += best
                best = tl.full((BLOCK_M, BLOCK_N), LOWEST, SUM)
                if REMEMBER:
                    at = winners + (rows * R + i)[:, None] * width + columns[None, :]
                    tl.store(at, which.to(tl.uint8), mask=inside)
                    which = tl.zeros((BLOCK_M, BLOCK_N), tl.int32)
    if SCALED:
        total *= tl.load(target_scales + target_rows)[None, :]
    tl.store(matrix + rows[:, None] * width + columns[None, :], total / (WAYS * R), mask=inside)


def chamfer(query: Tensor, target: Tensor, *, remember: bool) -> tuple[Tensor, Tensor | None]:
    """Frame matrix by Chamfer over regions: [H, R, D] x [W, R, D] -> [H, W] float32, and the winners [1, H, R, W].

    The winner of a query region and a target frame is the target region most like it (uint8), for the gradient.
    D must be a multiple of 16.
    """
    height, regions, _ = query.shape
    winners = query.new_empty(1, height, regions, len(target), dtype=torch.uint8) if remember else None
    return _launch(query, target, winners, None), winners


def chamfer_both_ways(query: Tensor, target: Tensor) -> Tensor:
    """The mean of `chamfer` of the two and of `chamfer` the other way round: [H, R, D] x [W, R, D] -> [H, W]."""
    return _launch(query, target, None, None, both_ways=True)


def chamfer_of_codes(
    query: Tensor, query_scales: Tensor, target: Tensor, target_scales: Tensor, *, both_ways: bool = False
) -> Tensor:
    """`chamfer`, or `chamfer_both_ways`, of codes [H, R, D] x [W, R, D] with scales [H] and [W]: [H, W].

    `pack_frames` makes them.
    """
    return _launch(query, target, None, (query_scales, target_scales), both_ways=both_ways)


def _launch(
    query: Tensor,
    target: Tensor,
    winners: Tensor | None,
    scales: tuple[Tensor, Tensor] | None,
    *,
    both_ways: bool = False,
) -> Tensor:
    query, target = query.contiguous(), target.contiguous()
    (height, regions, dims), width = query.shape, len(target)
    matrix = query.new_empty(height, width, dtype=torch.float32)
    tma = kernels.use_tma()
    tile = choose_tile(query.dtype, tma=tma)
    if tile.branch and scales is None and winners is None:
        scales = (matrix.new_ones(height), matrix.new_ones(width))
    # A product takes at least 16 numbers of two bytes, or 32 of one.
    depths = [tile.depth // parts // query.element_size() for parts in (1, 2, 4, 8)]
    block_k = next(depth for depth in depths if dims % depth == 0)
    flat = [query.view(height, regions * dims), target.view(width, regions * dims)]
    sources = flat
    if tma:
        blocks = ([tile.rows, block_k], [tile.columns, block_k])
        sources = [TensorDescriptor.from_tensor(*pair) for pair in zip(flat, blocks, strict=True)]
    _chamfer[(triton.cdiv(height, tile.rows) * triton.cdiv(width, tile.columns),)](
        *sources, matrix, matrix if winners is None else winners, *(scales or (matrix, matrix)), height, width,
        D=dims, R=regions, REMEMBER=winners is not None, BOTH=both_ways, TMA=tma, SCALED=scales is not None,
        CODES=query.dtype == torch.int8, BLOCK_M=tile.rows, BLOCK_N=tile.columns, BLOCK_K=block_k, GROUP=8,
        num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return matrix


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
