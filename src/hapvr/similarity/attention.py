"""Weighting regions: each region vector is scaled by how much it says."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class RegionAttention(nn.Module):
    """x <- w x with w = sigmoid(u . tanh(W x + b)), one weight per region vector.

    A weighted vector is no longer of unit length: its norm is its weight, and dot products carry it on.

    Shape: [..., D] -> [..., D].
    """

    def __init__(self, dims: int) -> None:
        super().__init__()
        self.transform = nn.Linear(dims, dims)
        self.context = nn.Linear(dims, 1, bias=False)

    def weights(self, regions: Tensor) -> Tensor:
        """The weight of each region vector, in 0..1: [..., D] -> [..., 1]."""
        return torch.sigmoid(self.context(torch.tanh(self.transform(regions))))

    def forward(self, regions: Tensor) -> Tensor:
        """Scale each region vector by its weight."""
        return regions * self.weights(regions)
