"""The fused GPU kernels: `chamfer` of region vectors, and `psi`.

Each has a plain torch twin that computes the same (`spatial.compute_frame_similarities`, `comparator.Comparator`); the
tests hold them equal, on a GPU or in Triton's interpreter. Triton is imported by these modules alone: ask `usable`
first.
"""

from __future__ import annotations

import importlib.util
from functools import cache

import torch
from torch import Tensor

HALF = (torch.bfloat16, torch.float16)


@cache
def _is_available() -> bool:
    # Hopper and newer: the kernels read their tiles through the tensor memory accelerator.
    return importlib.util.find_spec("triton") is not None and torch.cuda.get_device_capability() >= (9, 0)


def usable(tensor: Tensor, dtype: torch.dtype | None = None) -> bool:
    """Whether the fused kernels can do this work: half precision (`dtype`, or the tensor's), on a GPU they run on."""
    return tensor.is_cuda and (dtype or tensor.dtype) in HALF and _is_available()
