"""From region vectors to a frame matrix: every region against every region, reduced without ever holding them all.

The region similarities of H query and W target frames are [H, R, W, R]: 81 times the frame matrix. They are made
for a few query frames at a time and reduced at once; for the backward pass only the winners are remembered (one byte
each), and the gradient is a product with the matrix that marks them. On a CPU without gradients the pieces are so small
that a product never leaves the core's cache before its maxima are taken.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from hapvr.similarity import kernels
from hapvr.similarity.chamfer import Aggregation, compute_keep_count

# Region similarities computed at a time, R of them for each one held: enough for a matrix product to be efficient.
_CPU_CELLS, _GPU_CELLS = 1 << 23, 1 << 27
# Where nothing is remembered on a CPU: bytes of a piece's region similarities, and the most query regions in one.
_CACHED_BYTES, _CACHED_ROWS = 1 << 20, 1536


def compute_frame_similarities(query: Tensor, target: Tensor, *, kind: Aggregation, keep_rate: float = 0.0) -> Tensor:
    """Similarity of every query frame to every target frame: TopK-Chamfer over their regions.

    For each query region the mean of its K largest dot products with the target frame's regions, then the mean over
    the query's regions, K = max(1, round(keep_rate * R)). Differentiable once. Computed in the precision of the
    inputs (bfloat16 under autocast), accumulated in float32.

    Args:
        query: [H, R, D] region vectors.
        target: [W, R, D] region vectors.
        kind: "topk"; "chamfer" (K = 1), "average" (K = R), or "max" over all pairs of regions.
        keep_rate: for "topk".

    Returns [H, W], float32 (float64 for float64 inputs).

    >>> query = torch.tensor([[[1., 0.], [0., 1.]]])                # one frame of two regions
    >>> target = torch.tensor([[[1., 0.], [.6, .8]]])
    >>> round(compute_frame_similarities(query, target, kind="chamfer").item(), 4)      # (max(1, .6) + max(0, .8)) / 2
    0.9
    """
    device = query.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        query, target = query.to(dtype), target.to(dtype)
    if kind == "average":  # the mean of all dot products is the dot product of the means
        with torch.autocast(device, enabled=False):
            return query.mean(1, dtype=widen(query.dtype)) @ target.mean(1, dtype=widen(target.dtype)).T
    k = compute_keep_count(target.shape[1], keep_rate) if kind == "topk" else 1
    learning = torch.is_grad_enabled() and (query.requires_grad or target.requires_grad)
    result: Tensor = _FrameSimilarities.apply(query, target, k, kind == "max", learning)  # type: ignore[no-untyped-call]
    return result


def compute_both_ways(
    query: Tensor, target: Tensor, *, kind: Aggregation, keep_rate: float = 0.0
) -> tuple[Tensor, Tensor]:
    """`compute_frame_similarities` of two videos, and of the same two the other way round: [H, W] and [W, H].

    On a CPU, where K = 1 and no gradient is asked for, one product of all regions gives both.

    >>> query = torch.tensor([[[1., 0.], [0., 1.]]])                # one frame of two regions
    >>> target = torch.tensor([[[1., 0.], [.6, .8]]])
    >>> forth, back = compute_both_ways(query, target, kind="chamfer")
    >>> round(forth.item(), 4), round(back.item(), 4)               # (max(1, .6) + max(0, .8)) / 2 and (1 + .8) / 2
    (0.9, 0.9)
    """
    learning = torch.is_grad_enabled() and (query.requires_grad or target.requires_grad)
    one_each = all(compute_keep_count(video.shape[1], keep_rate) == 1 for video in (query, target))
    if (
        (kind == "chamfer" or (kind == "topk" and one_each))
        and not (learning or query.is_cuda or target.is_cuda)
        and not torch.is_autocast_enabled(query.device.type)
    ):
        return _compute_in_cache_both_ways(query, target)
    forth = compute_frame_similarities(query, target, kind=kind, keep_rate=keep_rate)
    return forth, compute_frame_similarities(target, query, kind=kind, keep_rate=keep_rate)


def compute_mean_of_both_ways(query: Tensor, target: Tensor, *, kind: Aggregation, keep_rate: float = 0.0) -> Tensor:
    """The mean of `compute_both_ways`' two matrices, the second transposed: [H, W]. One kernel where there is one."""
    learning = torch.is_grad_enabled() and (query.requires_grad or target.requires_grad)
    one = kind == "chamfer" or (kind == "topk" and compute_keep_count(target.shape[1], keep_rate) == 1)
    if one and not learning and _can_fuse(query, target) and not torch.is_autocast_enabled(query.device.type):
        from hapvr.similarity.kernels.chamfer import chamfer_both_ways

        return chamfer_both_ways(query, target)
    forth, back = compute_both_ways(query, target, kind=kind, keep_rate=keep_rate)
    return (forth + back.T) / 2


class _FrameSimilarities(torch.autograd.Function):
    """The reduction and its gradient, both in blocks of query frames."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, target: Tensor, k: int, best_region_only: bool, remember: bool) -> Tensor:
        if k == 1 and not best_region_only and _can_fuse(query, target):
            from hapvr.similarity.kernels.chamfer import chamfer

            matrix, chosen = chamfer(query, target, remember=remember)
            best = None
        elif k == 1 and not remember and not query.is_cuda:
            return _compute_in_cache(query, target, best_region_only)
        else:
            matrix, chosen, best = _forward(query, target, k, best_region_only, remember)
        if remember:
            ctx.k = k
            ctx.save_for_backward(query, target, chosen, best)
        return matrix

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        query, target, chosen, best = ctx.saved_tensors
        regions, dims = query.shape[1:]
        targets = target.reshape(-1, dims)  # [W R, D]
        query_gradient = torch.empty_like(query)
        target_gradient = torch.zeros_like(targets, dtype=widen(query.dtype))
        fused = ctx.k == 1 and best is None and _can_fuse(query, target)
        if fused:
            from hapvr.similarity.kernels.chamfer import mark_winners
        for rows in _blocks(query, target):
            if fused:
                marks = mark_winners(gradient[rows], chosen[0, rows], query.dtype)
            else:
                winners = None if best is None else best[rows]
                marks = _mark_winners(gradient[rows], chosen[:, rows], winners, target.shape[1], query.dtype)
            query_gradient[rows] = (marks @ targets).view(-1, regions, dims)
            target_gradient += marks.T @ query[rows].reshape(-1, dims)
        return query_gradient, target_gradient.to(target.dtype).view_as(target), None, None, None


def _forward(
    query: Tensor, target: Tensor, k: int, best_region_only: bool, remember: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The frame matrix [H, W], the chosen target regions [K, H, R, W] and, for "max", the query region [H, W]."""
    frames, regions, dims = query.shape
    width = target.shape[0]
    by_region = target.permute(1, 2, 0).contiguous()  # [R, D, W]
    matrix = query.new_empty(frames, width, dtype=widen(query.dtype))
    byte = torch.uint8 if max(regions, len(by_region)) <= 256 else torch.int32
    chosen = query.new_empty(k, frames, regions, width, dtype=byte) if remember else None
    best = query.new_empty(frames, width, dtype=byte) if remember and best_region_only else None
    for rows in _blocks(query, target):
        block = query[rows].reshape(-1, dims)  # [h R, D]
        if k == 1:
            values, winners = _running_max(block, by_region, remember)
        else:
            similarities = torch.stack([block @ region for region in by_region])  # [R, h R, W]
            top = similarities.topk(k, dim=0)
            values, winners = top.values.to(matrix.dtype).mean(0), top.indices
        values = values.view(-1, regions, width).to(matrix.dtype)  # [h, R, W]
        if best_region_only:
            matrix[rows], region = values.max(1)
        else:
            matrix[rows], region = values.mean(1), None
        if chosen is not None and winners is not None:
            chosen[:, rows] = winners.view(k, -1, regions, width).to(byte)
        if best is not None and region is not None:
            best[rows] = region.to(byte)
    return matrix, chosen, best


def _compute_in_cache(query: Tensor, target: Tensor, best_region_only: bool) -> Tensor:
    """The frame matrix [H, W] for K = 1, in pieces that fit a core's cache, targets first as they lie in memory."""
    (frames, regions, dims), (width, others, _) = query.shape, target.shape
    matrix = query.new_empty(width, frames, dtype=widen(query.dtype))  # [W, H]
    tall = max(1, min(frames, _CACHED_ROWS // regions))
    wide = max(1, _CACHED_BYTES // (tall * regions * others * query.element_size()))
    for top in range(0, frames, tall):
        rows = query[top : top + tall].reshape(-1, dims).T  # [D, h R]
        for left in range(0, width, wide):
            columns = target[left : left + wide].reshape(-1, dims)  # [w R, D]
            best = (columns @ rows).view(-1, others, rows.shape[1]).amax(1).view(-1, rows.shape[1] // regions, regions)
            cells = matrix[left : left + wide, top : top + tall]
            cells.copy_(best.amax(2) if best_region_only else best.mean(2, dtype=matrix.dtype))
    return matrix.T


def _compute_in_cache_both_ways(query: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """`_compute_in_cache`, and the same of the target with the query: [H, W] and [W, H]."""
    (frames, regions, dims), (width, others, _) = query.shape, target.shape
    forth, back = (query.new_empty(width, frames, dtype=widen(query.dtype)) for _ in range(2))  # [W, H]
    tall = max(1, min(frames, _CACHED_ROWS // regions))
    wide = max(1, _CACHED_BYTES // (tall * regions * others * query.element_size()))
    for top in range(0, frames, tall):
        rows = query[top : top + tall].reshape(-1, dims).T  # [D, h R]
        height = rows.shape[1] // regions
        for left in range(0, width, wide):
            columns = target[left : left + wide].reshape(-1, dims)  # [w R, D]
            products = columns @ rows  # [w R, h R]
            best = products.view(-1, others, rows.shape[1]).amax(1).view(-1, height, regions)
            forth[left : left + wide, top : top + tall] = best.mean(2, dtype=forth.dtype)
            best = products.view(-1, height, regions).amax(2).view(-1, others, height)
            back[left : left + wide, top : top + tall] = best.mean(1, dtype=back.dtype)
    return forth.T, back


def _running_max(block: Tensor, by_region: Tensor, remember: bool) -> tuple[Tensor, Tensor | None]:
    """The largest similarity of each query region over a frame's regions, and which one: [h R, W] each."""
    values = block @ by_region[0]
    byte = torch.uint8 if len(by_region) <= 256 else torch.int32
    winners = torch.zeros_like(values, dtype=byte) if remember else None
    for index in range(1, len(by_region)):
        similarities = block @ by_region[index]
        if winners is not None:
            winners.masked_fill_(similarities > values, index)
        torch.maximum(values, similarities, out=values)
    return values, winners


def _mark_winners(gradient: Tensor, chosen: Tensor, best: Tensor | None, regions: int, dtype: torch.dtype) -> Tensor:
    """What each dot product of a block received of the gradient: [h Rq, W Rt], zero where it was not chosen."""
    k, height, query_regions, width = chosen.shape
    share = gradient[:, None, :, None].to(dtype) / (query_regions * k)  # [h, 1, W, 1]
    if best is not None:
        region = torch.arange(query_regions, device=gradient.device)[:, None]
        share = gradient[:, None].masked_fill(best[:, None] != region, 0.0)[..., None].to(dtype)
    region = torch.arange(regions, device=gradient.device)
    marks = torch.zeros(height, query_regions, width, regions, dtype=dtype, device=gradient.device)
    for winners in chosen:
        marks += share.where(winners[..., None] == region, 0.0)
    return marks.view(height * query_regions, width * regions)


def _can_fuse(query: Tensor, target: Tensor) -> bool:
    return query.shape[1] == target.shape[1] <= 256 and query.shape[2] % 16 == 0 and kernels.usable(query)


def _blocks(query: Tensor, target: Tensor) -> list[slice]:
    frames, regions, _ = query.shape
    cells = _GPU_CELLS if query.is_cuda else _CPU_CELLS
    step = max(1, cells // (regions * target.shape[1] * max(1, target.shape[0])))
    return [slice(start, start + step) for start in range(0, frames, step)]


def widen(dtype: torch.dtype) -> torch.dtype:
    """The type to add up in: float32, or float64 for float64."""
    return torch.promote_types(dtype, torch.float32)
