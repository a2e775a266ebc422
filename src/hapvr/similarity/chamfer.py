"""TopK-Chamfer similarity: how well each query row is matched by its best few targets, averaged over the rows."""

from __future__ import annotations

from typing import Literal, overload

import torch
from torch import Tensor

from hapvr.checks import require_finite, require_mask, shape_of
from hapvr.errors import ConfigError, DataError, ShapeError

Aggregation = Literal["topk", "chamfer", "max", "average"]


@overload
def compute_keep_count(size: int, keep_rate: float) -> int: ...
@overload
def compute_keep_count(size: Tensor, keep_rate: float) -> Tensor: ...
def compute_keep_count(size: int | Tensor, keep_rate: float) -> int | Tensor:
    """K = max(1, round(keep_rate * size)), rounding half to even as Python does.

    >>> compute_keep_count(9, 0.1), compute_keep_count(50, 0.03), compute_keep_count(7, 1.0)
    (1, 2, 7)
    >>> compute_keep_count(torch.tensor([9, 50]), 0.03).tolist()
    [1, 2]
    """
    if isinstance(size, Tensor):
        return (size.double() * keep_rate).round().long().clamp(min=1)
    return max(1, round(keep_rate * size))


def topk_chamfer(
    matrix: Tensor, *, keep_rate: float, query_mask: Tensor | None = None, target_mask: Tensor | None = None
) -> Tensor:
    """Mean over query rows of the mean of each row's K largest similarities (HAP-VR, arXiv:2407.15566, Eq. 3 and 5).

    K = max(1, round(keep_rate * real targets)): masked entries are excluded, never counted. keep_rate = 0 is the
    Chamfer similarity, keep_rate = 1 the mean. (Eq. 5 omits 1/K; its limit cases need the mean.)

    Args:
        matrix: [..., Tq, Tt] similarities; the scores are [...].
        keep_rate: share of the targets that counts, 0 to 1.
        query_mask: bool [..., Tq], True = real.
        target_mask: bool [..., Tt], True = real.

    `DataError` for a NaN, an empty matrix, or a mask that leaves nothing.

    >>> matrix = torch.tensor([[.9, .1, .5], [.2, .8, .0]])
    >>> round(topk_chamfer(matrix, keep_rate=2 / 3).item(), 4)      # ((.9 + .5) / 2 + (.8 + .2) / 2) / 2
    0.6
    >>> round(topk_chamfer(matrix, keep_rate=0.).item(), 4)         # (.9 + .8) / 2
    0.85
    """
    _check(matrix, query_mask, target_mask)
    if not 0.0 <= keep_rate <= 1.0:
        raise ConfigError(f"keep_rate must lie in 0..1, got {keep_rate}. It is a share of the targets, not a count.")
    return aggregate(matrix, kind="topk", keep_rate=keep_rate, query_mask=query_mask, target_mask=target_mask)


def aggregate(
    matrix: Tensor,
    *,
    kind: Aggregation,
    keep_rate: float = 0.0,
    query_mask: Tensor | None = None,
    target_mask: Tensor | None = None,
) -> Tensor:
    """Reduce [..., Tq, Tt] to [...]: `topk_chamfer`, its limits "chamfer" and "average", or "max" over all cells.

    For inner loops: the arguments are not checked.
    """
    if kind == "max":
        best = _average_best(matrix, 0.0, target_mask)
        return (best if query_mask is None else best.masked_fill(~query_mask, -torch.inf)).amax(-1)
    rate = {"topk": keep_rate, "chamfer": 0.0, "average": 1.0}[kind]
    best = _average_best(matrix, rate, target_mask)  # [..., Tq]
    if query_mask is None:
        return best.mean(-1)
    return best.masked_fill(~query_mask, 0.0).sum(-1) / query_mask.sum(-1)


def _average_best(matrix: Tensor, keep_rate: float, target_mask: Tensor | None) -> Tensor:
    """The mean of the K largest entries of each row: [..., Tq, Tt] -> [..., Tq]."""
    if target_mask is None:
        k = compute_keep_count(matrix.shape[-1], keep_rate)
        if k == matrix.shape[-1]:
            return matrix.mean(-1)
        return matrix.amax(-1) if k == 1 else matrix.topk(k, dim=-1).values.mean(-1)
    if keep_rate == 1.0:
        return matrix.masked_fill(~target_mask[..., None, :], 0.0).sum(-1) / target_mask.sum(-1, keepdim=True)
    counts = compute_keep_count(target_mask.sum(-1), keep_rate)[..., None]  # [..., 1]: one K for all rows of a matrix
    filled = matrix.masked_fill(~target_mask[..., None, :], -torch.inf)
    largest = compute_keep_count(matrix.shape[-1], keep_rate)  # the largest count itself would wait for a GPU
    if largest == 1:
        return filled.amax(-1)
    top = filled.topk(largest, dim=-1).values  # [..., Tq, largest]
    kept = torch.arange(largest, device=matrix.device) < counts[..., None]  # [..., 1, largest]
    return top.masked_fill(~kept, 0.0).sum(-1) / counts


def _check(matrix: Tensor, query_mask: Tensor | None, target_mask: Tensor | None) -> None:
    if not isinstance(matrix, Tensor) or matrix.ndim < 2 or not matrix.is_floating_point():
        raise ShapeError(f"matrix must be a floating-point tensor [..., Tq, Tt], got {shape_of(matrix)}.")
    if matrix.shape[-1] == 0 or matrix.shape[-2] == 0:
        raise DataError(f"matrix is empty ({shape_of(matrix)}): both videos need at least one frame.")
    for mask, name, shape in (
        (query_mask, "query_mask", matrix.shape[:-1]),
        (target_mask, "target_mask", matrix.shape[:-2] + matrix.shape[-1:]),
    ):
        if mask is not None:
            require_mask(mask, name, tuple(shape))
            if not bool(mask.any(-1).all()):
                raise DataError(f"{name} leaves a video without any frame. Leave such videos out beforehand.")
    real = matrix
    if query_mask is not None:
        real = real.masked_fill(~query_mask[..., None], 0.0)
    if target_mask is not None:
        real = real.masked_fill(~target_mask[..., None, :], 0.0)
    require_finite(real.detach(), "matrix")
