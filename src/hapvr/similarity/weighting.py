"""What is learnt about single region vectors: a linear map, a weight for each (attention), and binarisation."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_SOFTNESS = math.sqrt(2e-6)  # erf(y / sqrt(2e-6)) is the expected sign of y under noise of variance 1e-6


class Projection(nn.Module):
    """x <- (x + A x) / |x + A x|: a linear map that starts as none, so that weight decay pulls towards leaving x alone.

    What edits change in a region vector, a frozen backbone does not know; these are the directions to make small.
    Shape: [..., D] -> [..., D]; zeros stay zeros.
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
        """[..., D] -> [..., D], of unit length."""
        return F.normalize(regions + self.change(regions), dim=-1)


class RegionAttention(nn.Module):
    """x <- w x with w = sigmoid(u . tanh(W x + b)), one weight per region vector. Shape: [..., D] -> [..., D].

    A weighted vector is no longer of unit length: its norm is its weight, and dot products carry it on. Weights start
    Xavier-uniform and the bias at zero, as in the authors' public code; torch's default would start W at 57% of that.
    """

    def __init__(self, dims: int) -> None:
        super().__init__()
        self.transform = nn.Linear(dims, dims)
        self.context = nn.Linear(dims, 1, bias=False)
        nn.init.xavier_uniform_(self.context.weight)
        nn.init.xavier_uniform_(self.transform.weight)
        nn.init.zeros_(self.transform.bias)

    def weights(self, regions: Tensor) -> Tensor:
        """The weight of each region vector, in 0..1: [..., D] -> [..., 1]."""
        return torch.sigmoid(self.context(torch.tanh(self.transform(regions))))

    def forward(self, regions: Tensor) -> Tensor:
        """[..., D] -> [..., D], each vector times its weight."""
        return regions * self.weights(regions)


class Binarization(nn.Module):
    """x -> sign(W^T x / |x|), in {-1, 1}, as in the DnS students (arXiv:2106.13266). Shape: [..., D] -> [..., bits].

    While training the smooth erf(y / sqrt(2e-6)) stands for the sign. Codes stay of size one, exact in every precision:
    dot products are divided by the number of bits afterwards. W should be initialised by ITQ; the default is a random
    rotation.
    """

    def __init__(self, dims: int, bits: int) -> None:
        super().__init__()
        self.projection = nn.Parameter(torch.empty(dims, bits))  # [D, bits]
        nn.init.orthogonal_(self.projection)

    def forward(self, regions: Tensor) -> Tensor:
        """[..., D] -> [..., bits]: signs (or, while training, soft signs) of the projected unit vectors."""
        projected = F.normalize(regions, dim=-1) @ self.projection.to(regions.dtype)
        return torch.erf(projected / _SOFTNESS) if self.training else torch.sign(projected)
