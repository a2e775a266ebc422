"""The fused GPU kernels: `frames` packed, `chamfer` of region vectors, `psi`, and the `temporal` aggregation.

Each has a plain torch twin that computes the same (`weighting.RegionAttention`, `spatial.compute_frame_similarities`,
`comparator.Comparator`, `chamfer.aggregate`); the tests hold them equal, on a GPU or in Triton's interpreter. Triton is
imported by these modules alone: ask `usable` first.

On Hopper and newer, `chamfer` reads its tiles through the tensor memory accelerator (TMA), on Ampere and Ada by plain
pointers; HAPVR_KERNELS=plain in the environment asks for the latter everywhere. There `psi` has smaller tiles, and for
scores its kernels of training. The rest of the two is one code.
"""

from __future__ import annotations

import importlib.util
import os
from functools import cache

import torch
from torch import Tensor

HALF = (torch.bfloat16, torch.float16)
_OLDEST = (8, 0)  # compute capability: Ampere, the first with bfloat16 and copies that run beside the arithmetic
_OLDEST_TMA = (9, 0)


@cache
def _capability() -> tuple[int, int]:
    """Of the GPU, as far as Triton can be used on it; else (0, 0)."""
    return torch.cuda.get_device_capability() if importlib.util.find_spec("triton") is not None else (0, 0)


def usable(tensor: Tensor, dtype: torch.dtype | None = None) -> bool:
    """Whether the fused kernels can do this work: half precision or int8 (`dtype`, or the tensor's), on such a GPU.

    int8 is for scores alone, without gradients.
    """
    return tensor.is_cuda and (dtype or tensor.dtype) in (*HALF, torch.int8) and _capability() >= _OLDEST


@cache
def use_tma() -> bool:
    """Whether tiles are read through the tensor memory accelerator. Triton's interpreter, without a GPU, knows it."""
    plain = os.environ.get("HAPVR_KERNELS") == "plain"
    return not plain and (not torch.cuda.is_available() or _capability() >= _OLDEST_TMA)
