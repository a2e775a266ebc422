"""Frames on their way into a packed matrix: the weight of each region, then one pass that weighs, places and rounds."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from hapvr.similarity import kernels
from hapvr.similarity.weighting import RegionAttention


@triton.jit
def _attend(
    values, transform, bias, context, weights, count,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The weights of BLOCK_M region vectors. What tanh gives never leaves the chip; products are TF32 on a GPU."""
    row = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    at = tl.minimum(row, count - 1)
    STEPS: tl.constexpr = D // BLOCK_K
    total = tl.zeros((BLOCK_M,), tl.float32)
    product = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(D // BLOCK_N * STEPS):
        depth = step % STEPS * BLOCK_K + tl.arange(0, BLOCK_K)
        unit = step // STEPS * BLOCK_N + tl.arange(0, BLOCK_N)
        a = tl.load(values + at[:, None] * D + depth[None, :]).to(tl.float32)
        b = tl.load(transform + unit[:, None] * D + depth[None, :])
        product = tl.dot(a, b.T, product)
        if step % STEPS == STEPS - 1:
            raw = product + tl.load(bias + unit)[None, :]
            tanh = 2.0 * tl.sigmoid(2.0 * raw) - 1.0
            total += tl.sum(tanh * tl.load(context + unit)[None, :], 1)
            product = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    tl.store(weights + row, tl.sigmoid(total), mask=row < count)


def attend(attention: RegionAttention, values: Tensor) -> Tensor:
    """`attention.weights` of frames [F, R, D], D a multiple of 16: [F, R] float32."""
    frames, regions, dims = values.shape
    values = values.contiguous()
    weights = values.new_empty(frames, regions, dtype=torch.float32)
    parameters = (attention.transform.weight, attention.transform.bias, attention.context.weight)
    prepared = [parameter.detach().float().contiguous() for parameter in parameters]
    block_n = next(block for block in (128, 64, 32, 16) if dims % block == 0)
    _attend[(triton.cdiv(frames * regions, 128),)](
        values, *prepared, weights, frames * regions,
        D=dims, BLOCK_M=128, BLOCK_N=block_n, BLOCK_K=min(32, block_n), num_warps=8,
        num_stages=4 if kernels.use_tma() else 2,  # 128 KiB of shared memory, or 64 on GPUs that have less
    )  # fmt: skip
    return weights


@triton.jit
def _pack(
    values, weights, places, out, scales,
    R: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
    WEIGHTED: tl.constexpr, PLACED: tl.constexpr, CODES: tl.constexpr,
):  # fmt: skip
    """One frame [R D] of the packed matrix, from the frame that `places` names; zeros where it is negative."""
    row = tl.program_id(0).to(tl.int64)
    place = tl.load(places + row).to(tl.int64) if PLACED else row
    at = tl.arange(0, BLOCK)
    inside = at < R * D
    real = inside & (place >= 0)
    value = tl.load(values + place * (R * D) + at, mask=real, other=0.0).to(tl.float32)
    if WEIGHTED:
        value *= tl.load(weights + place * R + at // D, mask=real, other=0.0)
    if CODES:
        largest = tl.max(tl.abs(value))
        tl.store(scales + row, largest / 127.0)
        value *= tl.where(largest > 0.0, 127.0 / largest, 0.0)
        value = tl.minimum(tl.maximum(value, -127.0), 127.0)
        value = (value + 12582912.0) - 12582912.0  # 1.5 * 2^23: float32 holds no fractions there, so this rounds
    tl.store(out + row * (R * D) + at, value.to(out.dtype.element_ty), mask=inside)


def pack_frames(
    values: Tensor, *, dtype: torch.dtype, weights: Tensor | None = None, places: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """Frames [F, R, D] times their regions' weights [F, R], in the order of `places` [H], in `dtype`: [H, R, D].

    A place is the number of a frame, or negative for a frame of zeros. For int8 these are the nearest codes, and the
    scale of each frame [H] comes with them: code times scale is the number. The largest magnitude of a frame becomes
    the largest code, 127.
    """
    values = values.contiguous()
    frames, regions, dims = values.shape
    height = frames if places is None else len(places)
    out = values.new_empty(height, regions, dims, dtype=dtype)
    scales = values.new_empty(height, dtype=torch.float32) if dtype == torch.int8 else None
    unused = values  # a pointer that is not read
    _pack[(height,)](
        values, unused if weights is None else weights, unused if places is None else places, out,
        unused if scales is None else scales, R=regions, D=dims, BLOCK=triton.next_power_of_2(regions * dims),
        WEIGHTED=weights is not None, PLACED=places is not None, CODES=scales is not None, num_warps=8,
    )  # fmt: skip
    return out, scales
