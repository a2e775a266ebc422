"""Batch normalisation folded into convolutions: the same values in evaluation mode, for less work."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hapvr.backbones.base import Backbone
from hapvr.backbones.efficientnet import SameConv2d, same_padding
from hapvr.features.regions import MIN_SIDE

_MAX_ERROR = 1e-3  # relative: a folded backbone that differs by more is not used


class FoldedConv(nn.Module):
    """A convolution with the batch normalisation that follows it: y = conv(x) * scale + shift as one convolution."""

    def __init__(self, conv: nn.Conv2d, norm: nn.BatchNorm2d) -> None:
        super().__init__()
        assert norm.running_mean is not None
        assert norm.running_var is not None
        scale = norm.weight / (norm.running_var + norm.eps).sqrt()
        before = torch.zeros_like(norm.running_mean) if conv.bias is None else conv.bias
        weight = (conv.weight * scale[:, None, None, None]).to(memory_format=torch.channels_last)
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.bias = nn.Parameter(norm.bias + (before - norm.running_mean) * scale, requires_grad=False)
        self.same = isinstance(conv, SameConv2d)
        self.kernel, self.stride, self.groups = conv.kernel_size[0], conv.stride[0], conv.groups
        self.padding, self.dilation = conv.padding, conv.dilation

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] -> [N, outputs, h, w]."""
        padding: Any = self.padding
        if self.same:
            (top, bottom), (left, right) = (
                same_padding(size, kernel=self.kernel, stride=self.stride) for size in x.shape[2:]
            )
            padding = (top, left)
            if padding != (bottom, right):
                x, padding = F.pad(x, (left, right, top, bottom)), 0
        return F.conv2d(x, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


@torch.no_grad()
def fold_batch_norms(backbone: Backbone) -> Backbone:
    """A copy of a backbone in evaluation mode whose batch normalisations are folded into the convolutions before them.

    A backbone whose normalisations do not follow the convolutions that they are listed after would come out different:
    that is tried on a picture of noise, and such a backbone is returned as it is.
    """
    copied = copy.deepcopy(backbone)
    _fold(copied)
    parameter = next(backbone.parameters())
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(1, 3, MIN_SIDE, MIN_SIDE, generator=generator).to(parameter)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        maps = zip(backbone.stages(noise), copied.stages(noise), strict=True)
    same = all((expected - got).abs().max() <= _MAX_ERROR * expected.abs().max() for expected, got in maps)
    return copied if same else backbone


def _fold(module: nn.Module) -> None:
    name_before, before = "", None
    for name, child in list(module.named_children()):
        if (
            isinstance(child, nn.BatchNorm2d)
            and child.affine
            and child.track_running_stats
            and isinstance(before, nn.Conv2d)
            and before.out_channels == child.num_features
            and before.padding_mode == "zeros"
        ):
            setattr(module, name_before, FoldedConv(before, child))
            setattr(module, name, nn.Identity())
        else:
            _fold(child)
        name_before, before = name, child
