from __future__ import annotations

import functools
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from hapvr.backbones import (
    BACKBONES,
    Backbone,
    EfficientNetLite0,
    ResNet50,
    ViTSmall16,
    build_backbone,
    load_backbone,
    normalize,
)
from hapvr.backbones.efficientnet import InvertedResidual, SameConv2d
from hapvr.backbones.resnet import Bottleneck, StrideOn
from hapvr.backbones.vit import Block, PatchEmbed
from hapvr.errors import ConfigError, ShapeError, WeightsError
from hapvr.weights import Part, save_parts
from tests import published

# --- slow, independent answers ----------------------------------------------------------------------------------------


def conv_loop(x: Tensor, weight: Tensor, *, stride: int, before: int, after: int, groups: int = 1) -> Tensor:
    """A convolution by its definition: one output cell at a time, zeros outside; [C, H, W] -> [O, h, w]."""
    outputs, per_group, size, _ = weight.shape
    height, width = ((side + before + after - size) // stride + 1 for side in x.shape[1:])
    out = torch.zeros(outputs, height, width)
    for o in range(outputs):
        first = o // (outputs // groups) * per_group
        for i in range(height):
            for j in range(width):
                total = 0.0
                for c in range(per_group):
                    for a in range(size):
                        for b in range(size):
                            row, column = i * stride + a - before, j * stride + b - before
                            if 0 <= row < x.shape[1] and 0 <= column < x.shape[2]:
                                total += float(weight[o, c, a, b] * x[first + c, row, column])
                out[o, i, j] = total
    return out


def norm_loop(x: Tensor, norm: nn.BatchNorm2d, eps: float) -> Tensor:
    """Batch norm with stored statistics, channel by channel: [C, H, W] -> the same."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    return torch.stack(
        [
            norm.weight[c] * (x[c] - norm.running_mean[c]) / math.sqrt(float(norm.running_var[c]) + eps) + norm.bias[c]
            for c in range(len(x))
        ]
    )


def cubic(distance: float) -> float:
    """The weight that bicubic resizing (a = -3/4) gives a neighbour at this distance."""
    t = abs(distance)
    return (1.25 * t - 2.25) * t * t + 1 if t <= 1 else -0.75 * (((t - 5) * t + 8) * t - 4)


@functools.cache
def network(name: str) -> Backbone:
    """A shared network that no test changes: building one takes longer than most tests."""
    return build_backbone(name).eval().requires_grad_(False)


def randomize(module: nn.Module) -> nn.Module:
    """Random weights and statistics, so that no term can hide behind a one or a zero."""
    for name, tensor in module.state_dict().items():
        if tensor.is_floating_point():
            tensor.copy_(torch.rand(tensor.shape) + 0.5 if name.endswith("running_var") else torch.randn(tensor.shape))
    return module.eval()


# --- names and shapes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("resnet50", published.resnet50()),
        ("resnet50_v1", published.resnet50()),
        ("efficientnet_lite0", published.efficientnet_lite0()),
        ("vit_small16", published.vit_small16()),
    ],
)
def test_takes_exactly_the_published_tensors(name: str, shapes: published.Shapes) -> None:
    backbone = network(name)
    assert backbone.name == name
    assert {key: tuple(tensor.shape) for key, tensor in backbone.state_dict().items()} == shapes


def test_the_published_sizes_are_right() -> None:
    assert len(published.resnet50()) == 320
    assert len(published.efficientnet_lite0()) == 296
    assert len(published.vit_small16()) == 150


@pytest.mark.parametrize("name", ["resnet50", "resnet50_v1", "efficientnet_lite0"])
@pytest.mark.parametrize(("height", "width"), [(64, 32), (33, 65)])
def test_stages_halve_upwards_rounded_and_have_the_announced_channels(name: str, height: int, width: int) -> None:
    maps = network(name).stages(torch.randn(1, 3, height, width))
    assert [tuple(x.shape) for x in maps] == [
        (1, channels, -(-height // stride), -(-width // stride))
        for channels, stride in zip(network(name).stage_channels, (4, 8, 16, 32), strict=True)
    ]


@pytest.mark.parametrize(("name", "layer"), [("resnet50", "fc"), ("efficientnet_lite0", "_fc")])
def test_logits_are_the_linear_layer_on_the_mean_of_the_last_stage(name: str, layer: str) -> None:
    images, tensors = torch.randn(2, 3, 64, 64), network(name).state_dict()
    last = network(name).stages(images)[-1]
    expected = last.sum(dim=(2, 3)) / 4 @ tensors[f"{layer}.weight"].T + tensors[f"{layer}.bias"]
    torch.testing.assert_close(network(name)(images), expected)


def test_the_number_of_classes_is_free() -> None:
    assert EfficientNetLite0(classes=7).eval()(torch.zeros(1, 3, 32, 32)).shape == (1, 7)


def test_the_last_stage_of_lite0_is_cut_off_at_six() -> None:
    *linear, last = network("efficientnet_lite0").stages(10 * torch.randn(1, 3, 64, 64))
    assert 0 <= last.min() <= last.max() <= 6
    assert all(x.min() < 0 for x in linear)


# --- ResNet -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("stride_on", "first", "second"), [("3x3", 1, 2), ("1x1", 2, 1)])
@torch.no_grad()
def test_bottleneck_agrees_with_the_loop(stride_on: StrideOn, first: int, second: int) -> None:
    block = randomize(Bottleneck(3, 2, stride=2, stride_on=stride_on))
    assert isinstance(block, Bottleneck)
    x = torch.randn(3, 5, 6)
    inside = conv_loop(x, block.conv1.weight, stride=first, before=0, after=0)
    inside = norm_loop(inside, block.bn1, 1e-5).clamp(min=0)
    inside = conv_loop(inside, block.conv2.weight, stride=second, before=1, after=1)
    inside = norm_loop(inside, block.bn2, 1e-5).clamp(min=0)
    inside = norm_loop(conv_loop(inside, block.conv3.weight, stride=1, before=0, after=0), block.bn3, 1e-5)
    assert block.downsample is not None
    conv, norm = block.downsample
    assert isinstance(norm, nn.BatchNorm2d)
    assert isinstance(conv, nn.Conv2d)
    shortcut = norm_loop(conv_loop(x, conv.weight, stride=2, before=0, after=0), norm, 1e-5)
    torch.testing.assert_close(block(x[None])[0], (inside + shortcut).clamp(min=0), rtol=1e-4, atol=1e-4)


def test_a_block_of_equal_shape_adds_its_input() -> None:
    block = Bottleneck(8, 2, stride=1, stride_on="3x3").eval()
    nn.init.zeros_(block.bn3.weight)
    x = torch.rand(1, 8, 4, 4)
    assert block.downsample is None
    assert torch.equal(block(x), x)


def test_an_unknown_stride_placement_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"stride_on cannot be '3x'; did you mean '3x3'\?"):
        ResNet50(stride_on="3x")  # type: ignore[arg-type]


# --- EfficientNet-Lite ------------------------------------------------------------------------------------------------


def test_same_padding_puts_the_odd_zero_after() -> None:
    conv = SameConv2d(1, 1, 3, stride=2)
    nn.init.ones_(conv.weight)
    # Windows of ones over a 4 x 4 picture of ones begin at 0 and 2: the second reaches one row beyond the end.
    assert conv(torch.ones(1, 1, 4, 4)).tolist() == [[[[9, 6], [6, 4]]]]


@pytest.mark.parametrize(
    ("kernel", "stride", "size", "before", "after"),
    [
        (3, 1, 5, 1, 1),
        (5, 1, 5, 2, 2),
        (3, 2, 6, 0, 1),
        (3, 2, 5, 1, 1),
        (5, 2, 6, 1, 2),
        (5, 2, 7, 2, 2),
        (1, 1, 3, 0, 0),
    ],
)
@torch.no_grad()
def test_inverted_residual_agrees_with_the_loop(kernel: int, stride: int, size: int, before: int, after: int) -> None:
    block = randomize(InvertedResidual(2, 2, kernel=kernel, stride=stride, expand=2))
    assert isinstance(block, InvertedResidual)
    x = torch.randn(2, size, size)
    wide = norm_loop(conv_loop(x, block._expand_conv.weight, stride=1, before=0, after=0), block._bn0, 1e-3).clamp(0, 6)
    wide = conv_loop(wide, block._depthwise_conv.weight, stride=stride, before=before, after=after, groups=4)
    wide = norm_loop(wide, block._bn1, 1e-3).clamp(0, 6)
    narrow = norm_loop(conv_loop(wide, block._project_conv.weight, stride=1, before=0, after=0), block._bn2, 1e-3)
    expected = narrow + x if stride == 1 else narrow
    torch.testing.assert_close(block(x[None])[0], expected, rtol=1e-4, atol=1e-4)


def test_lite0_halves_where_the_published_network_does() -> None:
    blocks = [module for module in network("efficientnet_lite0").modules() if isinstance(module, InvertedResidual)]
    strides = [block._depthwise_conv.stride[0] for block in blocks]
    assert [i for i, stride in enumerate(strides) if stride == 2] == [1, 3, 5, 11]


def test_lite0s_maps_leave_at_the_last_block_of_their_stage() -> None:
    backbone, x = EfficientNetLite0().eval(), torch.randn(1, 3, 32, 32)
    after: list[Tensor] = []
    for module in backbone.modules():
        if isinstance(module, InvertedResidual):
            module.register_forward_hook(lambda _module, _inputs, output: after.append(output))
    with torch.no_grad():
        maps = backbone.stages(x)
    # the last of the blocks with 24, 40 and 112 channels out
    last = [
        max(i for i, block in enumerate(published.LITE0_BLOCKS) if block[3] == channels) for channels in (24, 40, 112)
    ]
    assert all(torch.equal(found, after[i]) for found, i in zip(maps[:3], last, strict=True))


# --- ViT --------------------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_vit_block_agrees_with_an_explicit_softmax() -> None:
    heads, dims, length = 2, 8, 5
    block = randomize(Block(dims, heads))
    assert isinstance(block, Block)

    def layer_norm(x: Tensor, norm: nn.LayerNorm) -> Tensor:
        variance = ((x - x.mean()) ** 2).sum() / dims
        return norm.weight * (x - x.mean()) / (variance + 1e-6).sqrt() + norm.bias

    def gelu(x: Tensor) -> Tensor:
        return torch.tensor([v * (1 + math.erf(v / math.sqrt(2))) / 2 for v in x.tolist()])

    x = torch.randn(length, dims)
    normed = torch.stack([layer_norm(token, block.norm1) for token in x])
    weight, bias = block.attn.qkv.weight, block.attn.qkv.bias
    joined = torch.zeros(length, dims)
    for head in range(heads):
        rows = slice(head * 4, head * 4 + 4)
        q, k, v = (normed @ weight[i * dims : (i + 1) * dims][rows].T + bias[i * dims :][rows] for i in range(3))
        for i in range(length):
            logits = [float(q[i] @ k[j]) / math.sqrt(4) for j in range(length)]
            exps = [math.exp(logit - max(logits)) for logit in logits]
            joined[i, rows] = torch.stack([v[j] * exps[j] / sum(exps) for j in range(length)]).sum(0)
    middle = x + joined @ block.attn.proj.weight.T + block.attn.proj.bias
    fc1, fc2 = block.mlp.fc1, block.mlp.fc2
    inner = torch.stack([gelu(fc1.weight @ layer_norm(token, block.norm2) + fc1.bias) for token in middle])
    expected = middle + inner @ fc2.weight.T + fc2.bias
    torch.testing.assert_close(block(x[None])[0], expected, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_vit_returns_the_normed_class_token() -> None:
    vit = ViTSmall16().eval()
    for block in vit.blocks:  # blocks that add nothing leave the class token alone
        assert isinstance(block, Block)
        nn.init.zeros_(block.attn.proj.weight)
        nn.init.zeros_(block.mlp.fc2.weight)
    token = vit.cls_token[0, 0] + vit.pos_embed[0, 0]
    expected = (token - token.mean()) / (token.var(unbiased=False) + 1e-6).sqrt()
    out = vit(torch.randn(2, 3, 32, 48))
    assert out.shape == (2, 384)
    torch.testing.assert_close(out, expected.expand(2, -1))


def test_every_patch_reaches_the_class_token() -> None:
    vit = network("vit_small16")
    images = torch.zeros(1, 3, 32, 48)
    for row, column in ((0, 2), (1, 1)):
        other = images.clone()
        other[:, :, 16 * row : 16 * row + 16, 16 * column : 16 * column + 16] = 5.0
        assert not torch.allclose(vit(images), vit(other))


def test_patches_are_counted_row_by_row() -> None:
    embed = PatchEmbed(8)
    images = torch.zeros(1, 3, 32, 48)
    images[:, :, 0:16, 32:48] = 1.0  # the third patch of the first row
    with torch.no_grad():
        tokens = embed(images)[0]
        expected = embed.proj.bias.repeat(6, 1)  # type: ignore[union-attr]
        expected[2] += embed.proj.weight.sum(dim=(1, 2, 3))
    torch.testing.assert_close(tokens, expected, rtol=1e-4, atol=1e-4)


def test_positions_are_untouched_at_224_and_resized_elsewhere() -> None:
    vit = ViTSmall16()
    assert vit.positions(14, 14) is vit.pos_embed
    with torch.no_grad():
        ramp = torch.arange(14.0).repeat(14)  # the value of a patch is its column
        vit.pos_embed[0, 1:] = ramp[:, None].expand(-1, 384)
        resized = vit.positions(7, 28)
    assert resized.shape == (1, 1 + 7 * 28, 384)
    assert torch.equal(resized[:, 0], vit.pos_embed[:, 0])
    grid = resized[0, 1:, 0].view(7, 28)
    torch.testing.assert_close(grid, grid[:1].expand(7, -1))
    # Twice as many columns sample the ramp at every half step: cell 10 lies at (10 + 1/2) / 2 - 1/2 = 4.75.
    assert grid[0, 10].item() == pytest.approx(sum(cubic(4.75 - column) * column for column in (3, 4, 5, 6)), abs=1e-5)


@pytest.mark.parametrize("size", [(224, 230), (8, 16)])
def test_vit_refuses_sides_that_are_not_multiples_of_16(size: tuple[int, int]) -> None:
    with pytest.raises(ShapeError, match=f"multiples of 16, at least 16, got {size[0]} x {size[1]}"):
        network("vit_small16")(torch.zeros(1, 3, *size))


def test_vit_has_no_stages() -> None:
    with pytest.raises(ConfigError, match="vit_small16 has no stages"):
        network("vit_small16").stages(torch.zeros(1, 3, 224, 224))


# --- input ------------------------------------------------------------------------------------------------------------


def test_normalisation_is_the_one_each_network_was_trained_with() -> None:
    grey = torch.full((1, 3, 2, 2), 100 / 255)

    def channels(name: str) -> list[float]:
        return normalize(grey, network(name))[0, :, 0, 0].tolist()

    assert channels("efficientnet_lite0") == pytest.approx([(100 - 127) / 128] * 3, abs=1e-6)
    for name in ("resnet50", "vit_small16"):
        expected = [(100 / 255 - 0.485) / 0.229, (100 / 255 - 0.456) / 0.224, (100 / 255 - 0.406) / 0.225]
        assert channels(name) == pytest.approx(expected, abs=1e-5)
    caffe = [(100 - 123.68) / 255 / 0.229, (100 - 116.779) / 255 / 0.224, (100 - 103.939) / 255 / 0.225]
    assert channels("resnet50_v1") == pytest.approx(caffe, abs=1e-5)


def test_normalisation_keeps_the_precision_it_is_given() -> None:
    assert normalize(torch.rand(1, 3, 2, 2, dtype=torch.float64), network("resnet50")).dtype == torch.float64


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.zeros(3, 64, 64), r"\[N, 3, H, W\], got \[3, 64, 64\]\. For one picture add a first axis of 1"),
        (torch.zeros(1, 64, 64, 3), r"got \[1, 64, 64, 3\]\. The channels come second"),
        (torch.zeros(1, 1, 64, 64), "3 channels"),
        (torch.zeros(1, 3, 64, 64, dtype=torch.uint8), "must be floating point, got torch.uint8"),
        (torch.zeros(1, 3, 0, 64), "got 0 x 64"),
        ([1, 2], "got a list"),
    ],
)
@pytest.mark.parametrize("name", ["resnet50", "efficientnet_lite0", "vit_small16"])
def test_other_shapes_are_refused_with_advice(name: str, images: Tensor, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        network(name)(images)
    with pytest.raises(ShapeError, match=message):
        normalize(images, network(name))


# --- by name and from a folder ----------------------------------------------------------------------------------------


def test_unknown_names_are_refused_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="'resnet51'; did you mean 'resnet50"):
        build_backbone("resnet51")
    with pytest.raises(ConfigError, match="known: resnet50, resnet50_v1, efficientnet_lite0, vit_small16"):
        build_backbone("zzz")
    assert [network(name).name for name in BACKBONES] == list(BACKBONES)


def test_a_backbone_comes_back_from_its_folder_frozen_and_bit_equal(tmp_path: Path) -> None:
    backbone = network("efficientnet_lite0")
    save_parts(tmp_path, {"backbone": Part({"name": backbone.name}, backbone.state_dict())})
    loaded = load_backbone(tmp_path)
    images = torch.randn(1, 3, 64, 64)
    assert torch.equal(loaded(images), backbone(images))
    assert not loaded.training
    assert not any(parameter.requires_grad for parameter in loaded.parameters())


def test_a_folder_that_names_no_backbone_or_another_one_is_refused(tmp_path: Path) -> None:
    tensors = network("efficientnet_lite0").state_dict()
    save_parts(tmp_path / "unnamed", {"backbone": Part({}, tensors)})
    with pytest.raises(WeightsError, match="does not name its backbone"):
        load_backbone(tmp_path / "unnamed")
    save_parts(tmp_path / "other", {"backbone": Part({"name": "vit_small16"}, tensors)})
    with pytest.raises(WeightsError, match="lacks 150 tensors"):
        load_backbone(tmp_path / "other")
