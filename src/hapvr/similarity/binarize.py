"""Binary regions: each region vector becomes a code of signs, as in the DnS students (arXiv:2106.13266)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_SOFTNESS = math.sqrt(2e-6)  # erf(y / sqrt(2e-6)) is the expected sign of y under noise of variance 1e-6


class Binarization(nn.Module):
    """x -> sign(W^T x / |x|), in {-1, 1}; while training the smooth erf(y / sqrt(2e-6)) stands for the sign.

    Codes stay of size one, exact in every precision: dot products are divided by the number of bits afterwards.
    W should be initialised by ITQ; the default is a random rotation.

    Shape: [..., D] -> [..., bits].
    """

    def __init__(self, dims: int, bits: int) -> None:
        super().__init__()
        self.projection = nn.Parameter(torch.empty(dims, bits))  # [D, bits]
        nn.init.orthogonal_(self.projection)

    def forward(self, regions: Tensor) -> Tensor:
        """Signs (or, while training, soft signs) of the projected unit vectors."""
        projected = F.normalize(regions, dim=-1) @ self.projection.to(regions.dtype)
        return torch.erf(projected / _SOFTNESS) if self.training else torch.sign(projected)
