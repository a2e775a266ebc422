"""ResNet-50 (He et al., arXiv:1512.03385) in plain torch, with torchvision's state-dict names."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from hapvr.backbones.base import IMAGENET_MEAN, Backbone, Rgb, require_images
from hapvr.config import suggest
from hapvr.errors import ConfigError

StrideOn = Literal["3x3", "1x1"]

CAFFE_MEAN: Rgb = (123.68 / 255, 116.779 / 255, 103.939 / 255)
EXPANSION = 4  # a block's output has four times the channels of its 3x3 convolution


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions added to the input, itself projected where stride or channels change.

    Shapes: [N, inputs, H, W] -> [N, 4 * width, ceil(H / stride), ceil(W / stride)].
    """

    def __init__(self, inputs: int, width: int, *, stride: int, stride_on: StrideOn) -> None:
        super().__init__()
        outputs = EXPANSION * width
        first, second = (stride, 1) if stride_on == "1x1" else (1, stride)
        self.conv1 = nn.Conv2d(inputs, width, 1, stride=first, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=second, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample: nn.Sequential | None = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        """[N, inputs, H, W] -> [N, 4 * width, h, w]."""
        shortcut = x if self.downsample is None else self.downsample(x)
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        return F.relu(self.bn3(self.conv3(x)) + shortcut)


class ResNet50(Backbone):
    """ResNet-50 for `classes` classes; `stride_on` says which convolution of a stage's first block halves the map.

    "3x3" is v1.5, the network of torchvision, under ImageNet's mean and std. "1x1" is v1, the network of the paper:
    its weights descend from the authors' Caffe release, so its mean is Caffe's mean pixel, which differs from
    ImageNet's by up to half a grey level. Folding that difference into a bias would be wrong under the zero padding at
    the borders; stated here, it leaves converted weights exact.
    """

    stage_channels = (256, 512, 1024, 2048)

    def __init__(self, *, stride_on: StrideOn = "3x3", classes: int = 1000) -> None:
        super().__init__()
        if stride_on not in ("3x3", "1x1"):
            raise ConfigError(f"stride_on cannot be {stride_on!r}; {suggest(str(stride_on), ['3x3', '1x1'])}")
        self.name = "resnet50" if stride_on == "3x3" else "resnet50_v1"
        self.mean = IMAGENET_MEAN if stride_on == "3x3" else CAFFE_MEAN
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = _stage(64, 64, blocks=3, stride=1, stride_on=stride_on)
        self.layer2 = _stage(256, 128, blocks=4, stride=2, stride_on=stride_on)
        self.layer3 = _stage(512, 256, blocks=6, stride=2, stride_on=stride_on)
        self.layer4 = _stage(1024, 512, blocks=3, stride=2, stride_on=stride_on)
        self.fc = nn.Linear(2048, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def stages(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Outputs of layer1..layer4 for normalised images [N, 3, H, W]: [N, C, h, w] at strides 4, 8, 16 and 32."""
        require_images(images)
        x = F.relu(self.bn1(self.conv1(images)))  # [N, 64, H/2, W/2]
        x = F.max_pool2d(x, 3, stride=2, padding=1)  # [N, 64, H/4, W/4]
        first = self.layer1(x)
        second = self.layer2(first)
        third = self.layer3(second)
        return first, second, third, self.layer4(third)

    def forward(self, images: Tensor) -> Tensor:
        """Logits [N, classes] of normalised images [N, 3, H, W]."""
        logits: Tensor = self.fc(self.stages(images)[-1].mean(dim=(2, 3)))
        return logits


def _stage(inputs: int, width: int, *, blocks: int, stride: int, stride_on: StrideOn) -> nn.Sequential:
    first = Bottleneck(inputs, width, stride=stride, stride_on=stride_on)
    rest = [Bottleneck(EXPANSION * width, width, stride=1, stride_on=stride_on) for _ in range(blocks - 1)]
    return nn.Sequential(first, *rest)
