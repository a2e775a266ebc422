"""Names and shapes of the weight files that others publish, written from their documentation, not from our modules."""

from __future__ import annotations

import torch
from torch import Tensor

Shapes = dict[str, tuple[int, ...]]


def _norm(name: str, channels: int) -> Shapes:
    shapes: Shapes = {f"{name}.{entry}": (channels,) for entry in ("weight", "bias", "running_mean", "running_var")}
    return shapes | {f"{name}.num_batches_tracked": ()}


def resnet50() -> Shapes:
    shapes: Shapes = {"conv1.weight": (64, 3, 7, 7), **_norm("bn1", 64), "fc.weight": (1000, 2048), "fc.bias": (1000,)}
    inputs = 64
    for layer, blocks, width in ((1, 3, 64), (2, 4, 128), (3, 6, 256), (4, 3, 512)):
        for i in range(blocks):
            block = f"layer{layer}.{i}"
            shapes |= {
                f"{block}.conv1.weight": (width, inputs, 1, 1),
                f"{block}.conv2.weight": (width, width, 3, 3),
                f"{block}.conv3.weight": (4 * width, width, 1, 1),
                **_norm(f"{block}.bn1", width),
                **_norm(f"{block}.bn2", width),
                **_norm(f"{block}.bn3", 4 * width),
            }
            if i == 0:
                shapes |= {f"{block}.downsample.0.weight": (4 * width, inputs, 1, 1)}
                shapes |= _norm(f"{block}.downsample.1", 4 * width)
            inputs = 4 * width
    return shapes


# (channels in, channels inside, kernel, channels out) of blocks 0..15, read off the published file
LITE0_BLOCKS = (
    (32, 32, 3, 16),
    (16, 96, 3, 24),
    (24, 144, 3, 24),
    (24, 144, 5, 40),
    (40, 240, 5, 40),
    (40, 240, 3, 80),
    (80, 480, 3, 80),
    (80, 480, 3, 80),
    (80, 480, 5, 112),
    (112, 672, 5, 112),
    (112, 672, 5, 112),
    (112, 672, 5, 192),
    (192, 1152, 5, 192),
    (192, 1152, 5, 192),
    (192, 1152, 5, 192),
    (192, 1152, 3, 320),
)


def efficientnet_lite0() -> Shapes:
    shapes: Shapes = {"_conv_stem.weight": (32, 3, 3, 3), **_norm("_bn0", 32)}
    for i, (inputs, wide, kernel, outputs) in enumerate(LITE0_BLOCKS):
        block = f"_blocks.{i}"
        if inputs != wide:
            shapes |= {f"{block}._expand_conv.weight": (wide, inputs, 1, 1), **_norm(f"{block}._bn0", wide)}
        shapes |= {f"{block}._depthwise_conv.weight": (wide, 1, kernel, kernel), **_norm(f"{block}._bn1", wide)}
        shapes |= {f"{block}._project_conv.weight": (outputs, wide, 1, 1), **_norm(f"{block}._bn2", outputs)}
    shapes |= {"_conv_head.weight": (1280, 320, 1, 1), **_norm("_bn1", 1280)}
    return shapes | {"_fc.weight": (1000, 1280), "_fc.bias": (1000,)}


def vit_small16() -> Shapes:
    shapes: Shapes = {
        "cls_token": (1, 1, 384),
        "pos_embed": (1, 197, 384),
        "patch_embed.proj.weight": (384, 3, 16, 16),
        "patch_embed.proj.bias": (384,),
        "norm.weight": (384,),
        "norm.bias": (384,),
    }
    for i in range(12):
        for layer, outputs, inputs in (
            ("attn.qkv", 1152, 384),
            ("attn.proj", 384, 384),
            ("mlp.fc1", 1536, 384),
            ("mlp.fc2", 384, 1536),
        ):
            shapes |= {f"blocks.{i}.{layer}.weight": (outputs, inputs), f"blocks.{i}.{layer}.bias": (outputs,)}
        for layer in ("norm1", "norm2"):
            shapes |= {f"blocks.{i}.{layer}.weight": (384,), f"blocks.{i}.{layer}.bias": (384,)}
    return shapes


def attention() -> Shapes:
    return {
        "attention.transform.weight": (512, 512),
        "attention.transform.bias": (512,),
        "attention.context_vector.weight": (1, 512),
    }


def psi(head: str) -> Shapes:
    return {
        f"{head}.conv1.weight": (32, 1, 3, 3),
        f"{head}.conv1.bias": (32,),
        f"{head}.conv2.weight": (64, 32, 3, 3),
        f"{head}.conv2.bias": (64,),
        f"{head}.conv3.weight": (128, 64, 3, 3),
        f"{head}.conv3.bias": (128,),
        f"{head}.fconv.weight": (1, 128, 1, 1),
        f"{head}.fconv.bias": (1,),
    }


def filled(shapes: Shapes) -> dict[str, Tensor]:
    """Random values of those names and shapes; counters are whole numbers, as in the files."""
    return {
        name: torch.tensor(7) if name.endswith("num_batches_tracked") else torch.rand(shape)
        for name, shape in shapes.items()
    }
