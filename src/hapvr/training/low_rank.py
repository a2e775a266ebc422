"""Convolutions that learn a change of low rank (LoRA, arXiv:2106.09685): a whole backbone learns, and little is stored.

The kernel W [O, I, h, w] of a layer stays as it is. What learns are two matrices: W + up @ down, up [O, r] and down
[r, I h w]. `up` starts as zeros, so that nothing changes at first.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


class LowRankConv2d(nn.Module):
    """A frozen convolution, plus a change of its kernel of rank `rank` that learns."""

    def __init__(self, frozen: nn.Conv2d, rank: int) -> None:
        super().__init__()
        self.frozen = frozen.requires_grad_(False)
        rows, columns = len(frozen.weight), frozen.weight[0].numel()
        # With rows of this size, a step of Adam changes a number of the kernel about as much as if it learnt itself.
        self.down = nn.Parameter(torch.randn(rank, columns) / rank**0.5)
        self.up = nn.Parameter(torch.zeros(rows, rank))

    def changed_weight(self) -> Tensor:
        """The kernel [O, I, h, w] with its change."""
        return self.frozen.weight + (self.up @ self.down).view_as(self.frozen.weight)

    def forward(self, images: Tensor) -> Tensor:
        """Images [N, I, H, W] -> [N, O, H', W']."""
        return self.frozen._conv_forward(images, self.changed_weight(), self.frozen.bias)  # type: ignore[no-any-return]

    @torch.no_grad()
    def merge(self) -> nn.Conv2d:
        """The convolution with the changed kernel; this module is of no use afterwards."""
        self.frozen.weight.copy_(self.changed_weight())
        return self.frozen


def add_low_rank_changes(network: nn.Module, rank: int) -> None:
    """Let the frozen convolutions of a network learn changes of this rank, where these are smaller than the kernel."""

    def make(layer: nn.Module) -> nn.Module | None:
        if not isinstance(layer, nn.Conv2d) or layer.weight.requires_grad:
            return None
        rows, columns = len(layer.weight), layer.weight[0].numel()
        return LowRankConv2d(layer, rank) if rank * (rows + columns) < rows * columns else None

    _replace_layers(network, make)


def merge_low_rank_changes(network: nn.Module) -> None:
    """Put plain convolutions with the changed kernels back."""
    _replace_layers(network, lambda layer: layer.merge() if isinstance(layer, LowRankConv2d) else None)


def _replace_layers(network: nn.Module, make: Callable[[nn.Module], nn.Module | None]) -> None:
    for parent in list(network.modules()):
        for name, layer in list(parent.named_children()):
            if (other := make(layer)) is not None:
                setattr(parent, name, other)
