"""What is learnt about single region vectors: a linear map of them, and how much each says."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Projection(nn.Module):
    """x <- (x + A x) / |x + A x|: a linear map that starts as none, so that weight decay pulls towards leaving x alone.

    What edits change in a region vector, a frozen backbone does not know; these are the directions to make small.

    Shape: [..., D] -> [..., D].
    """

    def __init__(self, dims: int) -> None:
        super().__init__()
        self.change = nn.Linear(dims, dims, bias=False)
        nn.init.zeros_(self.change.weight)

    def matrix(self) -> Tensor:
        """I + A, [D, D]."""
        weight = self.change.weight
        return weight + torch.eye(len(weight), dtype=weight.dtype, device=weight.device)

    def forward(self, regions: Tensor) -> Tensor:
        """Map each region vector, to unit length; zeros stay zeros."""
        return F.normalize(regions + self.change(regions), dim=-1)


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
