"""EfficientNet-Lite0 in plain torch: no squeeze-and-excitation, ReLU6, TensorFlow's 'SAME' padding.

The state-dict names are those of the published PyTorch file (`_conv_stem`, `_blocks.0._depthwise_conv`, ...). Dropout
and stochastic depth are left out: the network serves frozen.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from hapvr.backbones.base import Backbone, require_images

# TensorFlow's values; torch counts momentum from the other side (1 - 0.99).
BATCH_NORM_EPS, BATCH_NORM_MOMENTUM = 1e-3, 0.01

# (blocks, kernel, stride of the first block, expansion, output channels) of each stage
STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
STEM_CHANNELS, HEAD_CHANNELS = 32, 1280
# The blocks at whose ends the stages of 24, 40 and 112 channels leave the network.
STAGE_ENDS = (2, 4, 10)


def same_padding(size: int, *, kernel: int, stride: int) -> tuple[int, int]:
    """Zeros before and after one axis, so that the output has ceil(size / stride) cells; the odd one goes after.

    >>> same_padding(224, kernel=3, stride=2), same_padding(224, kernel=5, stride=2)
    ((0, 1), (1, 2))
    >>> same_padding(7, kernel=3, stride=2)
    (1, 1)
    """
    cells = -(-size // stride)
    total = max((cells - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


class SameConv2d(nn.Conv2d):
    """A convolution without bias under 'SAME' padding: [N, C, H, W] -> [N, outputs, ceil(H/stride), ceil(W/stride)]."""

    def __init__(self, inputs: int, outputs: int, kernel: int, *, stride: int = 1, groups: int = 1) -> None:
        super().__init__(inputs, outputs, kernel, stride=stride, groups=groups, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] -> [N, outputs, h, w]."""
        (top, bottom), (left, right) = (
            same_padding(size, kernel=self.kernel_size[0], stride=self.stride[0]) for size in x.shape[2:]
        )
        if (top, left) == (bottom, right):
            return F.conv2d(x, self.weight, stride=self.stride, padding=(top, left), groups=self.groups)
        padded = F.pad(x, (left, right, top, bottom))
        return F.conv2d(padded, self.weight, stride=self.stride, groups=self.groups)


class InvertedResidual(nn.Module):
    """Widen by a 1x1 convolution (unless `expand` is 1), filter each channel, narrow again; added to an equal input.

    Shapes: [N, inputs, H, W] -> [N, outputs, ceil(H / stride), ceil(W / stride)].
    """

    def __init__(self, inputs: int, outputs: int, *, kernel: int, stride: int, expand: int) -> None:
        super().__init__()
        self.residual = stride == 1 and inputs == outputs
        self.expands = expand != 1
        wide = inputs * expand
        if self.expands:
            self._expand_conv = SameConv2d(inputs, wide, 1)
            self._bn0 = _batch_norm(wide)
        self._depthwise_conv = SameConv2d(wide, wide, kernel, stride=stride, groups=wide)
        self._bn1 = _batch_norm(wide)
        self._project_conv = SameConv2d(wide, outputs, 1)
        self._bn2 = _batch_norm(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """[N, inputs, H, W] -> [N, outputs, h, w]."""
        wide = F.relu6(self._bn0(self._expand_conv(x))) if self.expands else x
        wide = F.relu6(self._bn1(self._depthwise_conv(wide)))
        narrow: Tensor = self._bn2(self._project_conv(wide))
        return narrow + x if self.residual else narrow


class EfficientNetLite0(Backbone):
    """EfficientNet-Lite0 for `classes` classes: 4.7 M parameters, about a tenth of ResNet-50's work.

    Its input is (x - 127) / 128 for x in 0..255, which `mean` and `std` say for x in [0, 1].
    """

    name = "efficientnet_lite0"
    mean = (127 / 255, 127 / 255, 127 / 255)
    std = (128 / 255, 128 / 255, 128 / 255)
    stage_channels = (24, 40, 112, HEAD_CHANNELS)

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self._conv_stem = SameConv2d(3, STEM_CHANNELS, 3, stride=2)
        self._bn0 = _batch_norm(STEM_CHANNELS)
        blocks, inputs = [], STEM_CHANNELS
        for count, kernel, stride, expand, outputs in STAGES:
            for step in (stride, *[1] * (count - 1)):
                blocks.append(InvertedResidual(inputs, outputs, kernel=kernel, stride=step, expand=expand))
                inputs = outputs
        self._blocks = nn.ModuleList(blocks)
        self._conv_head = SameConv2d(inputs, HEAD_CHANNELS, 1)
        self._bn1 = _batch_norm(HEAD_CHANNELS)
        self._fc = nn.Linear(HEAD_CHANNELS, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")

    def stages(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Feature maps of normalised images [N, 3, H, W]: 24, 40, 112 channels at strides 4, 8, 16, 1,280 at 32.

        The first three leave at the ends of their stages (linear, so of either sign), the last after the head's ReLU6.
        """
        require_images(images)
        x = F.relu6(self._bn0(self._conv_stem(images)))
        ends = []
        for i, block in enumerate(self._blocks):
            x = block(x)
            if i in STAGE_ENDS:
                ends.append(x)
        first, second, third = ends
        return first, second, third, F.relu6(self._bn1(self._conv_head(x)))

    def forward(self, images: Tensor) -> Tensor:
        """Logits [N, classes] of normalised images [N, 3, H, W]."""
        logits: Tensor = self._fc(self.stages(images)[-1].mean(dim=(2, 3)))
        return logits


def _batch_norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=BATCH_NORM_EPS, momentum=BATCH_NORM_MOMENTUM)
