"""The doors to the fused GPU kernels, and when they are open.

Each kernel has a plain torch twin that computes the same (`spatial.frame_similarities`, `comparator.Comparator`); the
tests hold them equal, on a GPU or in Triton's interpreter. Triton itself is imported only once a door is used.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from hapvr.similarity.comparator import Comparator

HALF = (torch.bfloat16, torch.float16)


@cache
def _available() -> bool:
    # Hopper and newer: the kernels read their tiles through the tensor memory accelerator.
    return importlib.util.find_spec("triton") is not None and torch.cuda.get_device_capability() >= (9, 0)


def usable(tensor: Tensor, dtype: torch.dtype | None = None) -> bool:
    """Whether the fused kernels can do this work: half precision (`dtype`, or the tensor's), on a GPU they run on."""
    return tensor.is_cuda and (dtype or tensor.dtype) in HALF and _available()


def chamfer(query: Tensor, target: Tensor, *, remember: bool) -> tuple[Tensor, Tensor | None]:
    """Frame matrix by Chamfer over regions: [H, R, D] x [W, R, D] -> [H, W] float32, and the winners [1, H, R, W].

    The winner of a query region and a target frame is the target region most like it (uint8), for the gradient.
    D must be a multiple of 16.
    """
    from hapvr.similarity.kernels import chamfer_kernels

    return chamfer_kernels.chamfer(query.contiguous(), target.contiguous(), remember=remember)


def marks(gradient: Tensor, winners: Tensor, dtype: torch.dtype) -> Tensor:
    """What each dot product received of the gradient [h, W] of `chamfer`: [h R, W R], winners [h, R, W]."""
    from hapvr.similarity.kernels import chamfer_kernels

    return chamfer_kernels.marks(gradient.contiguous(), winners.contiguous(), dtype)


def compare(
    comparator: Comparator, matrix: Tensor, row_mask: Tensor, column_mask: Tensor, *, dtype: torch.dtype
) -> Tensor:
    """psi on one packed matrix: [H, W] -> [H / 4, W / 4] float32, activations in `dtype`; differentiable once.

    H and W are multiples of 4, every run of real rows [H] and columns [W] begins at one and is followed by a gap,
    and the matrix is already zero outside them.
    """
    from hapvr.similarity.kernels import psi

    return psi.compare(comparator, matrix, row_mask, column_mask, dtype)
