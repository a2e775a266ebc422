"""The networks that turn pictures into features, in plain torch; weights come from `hapvr model convert`.

>>> import torch
>>> backbone = build_backbone("efficientnet_lite0").eval()
>>> with torch.no_grad():
...     [tuple(x.shape[1:]) for x in backbone.stages(normalize(torch.rand(1, 3, 64, 64), backbone))]
[(24, 16, 16), (40, 8, 8), (112, 4, 4), (1280, 2, 2)]
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

import torch

from hapvr.backbones.base import Backbone, normalize
from hapvr.backbones.efficientnet import EfficientNetLite0
from hapvr.backbones.resnet import ResNet50
from hapvr.backbones.vit import ViTSmall16
from hapvr.config import suggest
from hapvr.errors import ConfigError, WeightsError
from hapvr.weights import load_part, load_strict

__all__ = [
    "BACKBONES",
    "Backbone",
    "EfficientNetLite0",
    "ResNet50",
    "ViTSmall16",
    "build_backbone",
    "build_empty_backbone",
    "load_backbone",
    "normalize",
]

BACKBONES: dict[str, Callable[[], Backbone]] = {
    "resnet50": ResNet50,
    "resnet50_v1": partial(ResNet50, stride_on="1x1"),
    "efficientnet_lite0": EfficientNetLite0,
    "vit_small16": ViTSmall16,
}


def build_backbone(name: str) -> Backbone:
    """The backbone of that name with random weights.

    >>> build_backbone("resnet")
    Traceback (most recent call last):
    hapvr.errors.ConfigError: There is no backbone 'resnet'; did you mean 'resnet50'?
    """
    if name not in BACKBONES:
        raise ConfigError(f"There is no backbone {name!r}; {suggest(str(name), list(BACKBONES))}")
    return BACKBONES[name]()


def build_empty_backbone(name: str) -> Backbone:
    """The backbone of that name with undefined weights, to be loaded next: drawing random ones takes longer."""
    with torch.device("meta"):
        backbone = build_backbone(name)
    return backbone.to_empty(device="cpu")


def load_backbone(folder: str | os.PathLike[str]) -> Backbone:
    """The backbone of a converted folder, strictly loaded, frozen and in evaluation mode."""
    part = load_part(folder, "backbone")
    if not isinstance(name := part.config.get("name"), str):
        raise WeightsError(f"'{folder}' does not name its backbone. Convert the original file again.")
    backbone = build_empty_backbone(name)
    load_strict(backbone, part.tensors, source=f"'{folder}'")
    return backbone.eval().requires_grad_(False)
