"""What every backbone has in common: a name, the input it was trained on, and checked shapes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from hapvr.checks import require_tensor, shape_of
from hapvr.errors import ConfigError, ShapeError

Rgb = tuple[float, float, float]

IMAGENET_MEAN: Rgb = (0.485, 0.456, 0.406)
IMAGENET_STD: Rgb = (0.229, 0.224, 0.225)


class Backbone(nn.Module):
    """A network from pictures to numbers. Its input is `normalize(images, backbone)`, never raw pixels.

    `name` is what `build_backbone` knows it by, `mean` and `std` are per channel for RGB values in [0, 1], and
    `stage_channels` are the channels of the feature maps that `stages` returns (empty where there are none).
    """

    name: str
    mean: Rgb = IMAGENET_MEAN
    std: Rgb = IMAGENET_STD
    stage_channels: tuple[int, ...] = ()

    def stages(self, images: Tensor) -> tuple[Tensor, ...]:
        """Feature maps of normalised images [N, 3, H, W], fine to coarse: one [N, C, h, w] for each stage channel."""
        raise ConfigError(f"{self.name} has no stages for images {shape_of(images)}; take a convolutional backbone.")


def require_images(images: Any, *, multiple_of: int = 1) -> None:
    """Raise `ShapeError` unless `images` is a floating-point [N, 3, H, W] with sides that the network can divide."""
    require_tensor(images, "images", dims=4, axes="[N, 3, H, W]", hint="For one picture add a first axis of 1.")
    height, width = images.shape[2:]
    if images.shape[1] != 3:
        hint = " The channels come second: call .permute(0, 3, 1, 2) first." if width == 3 else ""
        raise ShapeError(f"images must be [N, 3, H, W] with 3 channels (RGB), got {shape_of(images)}.{hint}")
    if images.shape[0] == 0:
        raise ShapeError(f"images must hold at least one picture, got {shape_of(images)}.")
    if min(height, width) < 1 or height % multiple_of or width % multiple_of:
        raise ShapeError(
            f"images must have sides that are multiples of {multiple_of}, at least {multiple_of}, got {height} x "
            f"{width}. Crop or resize them first."
        )


def normalize(images: Tensor, backbone: Backbone) -> Tensor:
    """RGB images [N, 3, H, W] in [0, 1] as the backbone takes them: (x - mean) / std per channel, same shape.

    >>> from hapvr.backbones import EfficientNetLite0
    >>> white = normalize(torch.ones(1, 3, 2, 2), EfficientNetLite0())  # (255 - 127) / 128
    >>> round(white[0, 0, 0, 0].item(), 6)
    1.0
    """
    require_images(images)
    mean, std = (
        torch.tensor(values, dtype=images.dtype, device=images.device) for values in (backbone.mean, backbone.std)
    )
    return (images - mean[:, None, None]) / std[:, None, None]
