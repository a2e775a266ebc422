"""Region vectors of a picture: the maps of a backbone's stages, max-pooled onto one grid and joined."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from hapvr.backbones.base import Backbone, normalize, require_images
from hapvr.checks import require_finite, require_tensor
from hapvr.errors import ConfigError, DataError, ShapeError
from hapvr.features.whitening import Whitening

# Stride of a stage -> side of its pooling window. At 224 x 224 both ResNet-50 and EfficientNet-Lite0 have maps of
# 56, 28, 14 and 7 cells a side, and each window then leaves exactly 3 x 3 of them.
KERNELS = {4: 28, 8: 14, 16: 6, 32: 3}
POOLED = "pooled regions"  # what they are called in errors
MIN_SIDE = max(stride * kernel for stride, kernel in KERNELS.items())  # a smaller picture has a map below its window


def pool_regions(maps: Sequence[Tensor], *, kernels: Sequence[int], grid: int = 3, check: bool = True) -> Tensor:
    """Region vectors [N, R = grid * grid, C_total] of the stages' maps [N, C, H, W], each of unit length.

    Every map is max-pooled with its kernel k and stride ceil(k / 2), L2-normalised over channels, max-pooled to
    grid x grid and normalised again; so each stage weighs the same. The stages are joined along channels, regions
    are counted row by row from the upper left, and each region is normalised a last time. A stage that is zero in a
    region stays zero there. Half-precision maps give float32 regions: squares of halves overflow.

    A map smaller than its kernel is refused, not pooled with a smaller window: its regions would be like no other's.
    So are values that are not finite; `check=False` leaves that to the caller, who need not wait for a GPU here then.

    Example: two stages of one cell. The first, (3, 4), becomes (.6, .8); the second, (5), becomes (1); joined and
    divided by sqrt(2) they give (.4243, .5657, .7071).
        >>> maps = [torch.tensor([3.0, 4.0]).view(1, 2, 1, 1), torch.tensor([5.0]).view(1, 1, 1, 1)]
        >>> [round(value, 4) for value in pool_regions(maps, kernels=[1, 1], grid=1)[0, 0].tolist()]
        [0.4243, 0.5657, 0.7071]
    """
    if grid < 1 or any(kernel < 1 for kernel in kernels):
        raise ConfigError(f"grid and kernels must be at least 1, got grid {grid} and kernels {list(kernels)}.")
    return join_pooled(pool_maps(maps, kernels=kernels), grid=grid, check=check)


def pool_maps(maps: Sequence[Tensor], *, kernels: Sequence[int] = tuple(KERNELS.values())) -> list[Tensor]:
    """The maps [N, C, H, W] of the stages, max-pooled each with its kernel: the first half of `pool_regions`."""
    _check_maps(maps, kernels=kernels)
    return [_max_pool(stage, kernel) for stage, kernel in zip(maps, kernels, strict=True)]  # [N, C, h, w] each


def join_pooled(pooled: Sequence[Tensor], *, grid: int = 3, check: bool = True) -> Tensor:
    """Region vectors [N, R, C_total] of what `pool_maps` gives: the second half of `pool_regions`."""
    stages = []
    for stage in pooled:
        cells = stage.to(torch.promote_types(stage.dtype, torch.float32))
        if cells.shape[2:] != (grid, grid):  # else pooling changes nothing, and normalising once does
            cells = F.adaptive_max_pool2d(F.normalize(cells, dim=1), grid)
        # Channels side by side: normalising them takes a fifth of the time.
        stages.append(F.normalize(cells.flatten(2).mT.contiguous(), dim=-1))  # [N, R, C]
    regions = F.normalize(torch.cat(stages, dim=-1), dim=-1)  # [N, R, C_total]
    if check:
        require_finite(regions, POOLED)
    return regions


def extract_regions(backbone: Backbone, images: Tensor, whitening: Whitening | None = None) -> Tensor:
    """Region vectors [N, R = 9, D] of pictures [N, 3, H, W] with values in [0, 1]; D = C_total without whitening.

    Pictures are normalised with the backbone's mean and std, and must be at least `MIN_SIDE` = 112 a side, though
    weights and whitening are made for 224. Values may leave [0, 1] by 0.1, as bicubic resizing makes them do.
    Gradients flow as usual: wrap the call in `torch.no_grad()` to describe pictures with a frozen backbone.
    """
    require_images(images)
    if backbone.training:
        raise ConfigError(
            "the backbone is in training mode, where a picture's regions depend on its batch: call .eval()."
        )
    height, width = images.shape[2:]
    if min(height, width) < MIN_SIDE:
        raise ShapeError(
            f"images are {height} x {width}, and regions need at least {MIN_SIDE} x {MIN_SIDE} (224 x 224 is what "
            "the weights were made for). Resize them."
        )
    require_finite(images, "images")
    low, high = (value.item() for value in images.detach().aminmax())
    if low < -0.1 or high > 1.1:
        raise DataError(f"images must lie in [0, 1], got values from {low:g} to {high:g}. Divide bytes by 255.")
    maps = backbone.stages(normalize(images, backbone))
    if [stage.shape[1] for stage in maps] != list(backbone.stage_channels):
        raise ShapeError(
            f"the backbone promises stages of {list(backbone.stage_channels)} channels and returned "
            f"{[stage.shape[1] for stage in maps]}."
        )
    return regions_of_maps(maps, whitening)


def regions_of_maps(maps: Sequence[Tensor], whitening: Whitening | None, *, check: bool = True) -> Tensor:
    """Region vectors [N, R = 9, D] of a backbone's feature maps, pooled with `KERNELS` and whitened, in float32.

    Extraction and training call this or `regions_of_pooled`, and nothing else makes region vectors. `check` is that of
    `pool_regions`.
    """
    return regions_of_pooled(pool_maps(maps), whitening, check=check)


def regions_of_pooled(pooled: Sequence[Tensor], whitening: Whitening | None, *, check: bool = True) -> Tensor:
    """The same of maps that were pooled already, by `pool_maps` or by an engine (`hapvr.features.engine`)."""
    regions = join_pooled(pooled, check=check)  # [N, R, C_total]
    return regions if whitening is None else whitening(regions)


def input_scale(backbone: Backbone, device: torch.device) -> Callable[[Tensor], Tensor]:
    """A function that makes pictures [..., 3, H, W], bytes or values in [0, 1], what the backbone takes, in float32.

    It is `normalize` without its checks and with its constants on the device, so that it can be compiled together with
    the backbone: bytes are read, and floats never written.

    >>> from hapvr.backbones import EfficientNetLite0
    >>> prepare = input_scale(EfficientNetLite0(), torch.device("cpu"))
    >>> [round(prepare(white)[0, 0, 0].item(), 6) for white in (torch.ones(3, 1, 1), torch.full((3, 1, 1), 255).byte())]
    [1.0, 1.0]
    """
    mean, std = (torch.tensor(values, device=device).view(3, 1, 1) for values in (backbone.mean, backbone.std))
    shift, of_units, of_bytes = -mean / std, 1 / std, 1 / (255 * std)

    def prepare(pictures: Tensor) -> Tensor:
        return torch.addcmul(shift, pictures.float(), of_bytes if pictures.dtype == torch.uint8 else of_units)

    return prepare


def _max_pool(stage: Tensor, kernel: int) -> Tensor:
    """The maxima of windows of `kernel` cells at stride ceil(kernel / 2): [N, C, H, W] -> [N, C, h, w].

    A window of 2 s at stride s is one of 2 at stride 1 over windows of s side by side: the same maxima, and each cell
    is read once instead of four times.
    """
    if kernel % 2 or kernel == 2:
        return F.max_pool2d(stage, kernel, stride=-(-kernel // 2))
    return F.max_pool2d(F.max_pool2d(stage, kernel // 2), 2, stride=1)


def _check_maps(maps: Sequence[Tensor], *, kernels: Sequence[int]) -> None:
    if not maps or len(maps) != len(kernels):
        raise ShapeError(f"maps and kernels must be equally many and at least one, got {len(maps)} and {len(kernels)}.")
    for number, (stage, kernel) in enumerate(zip(maps, kernels, strict=True)):
        require_tensor(stage, f"maps[{number}]", dims=4, axes="[N, C, H, W]")
        if stage.shape[0] != maps[0].shape[0] or 0 in stage.shape:
            raise ShapeError(
                f"maps must be [N, C, H, W] of the same N and nothing empty, got {[list(m.shape) for m in maps]}."
            )
        height, width = stage.shape[2:]
        if min(height, width) < kernel:
            raise ShapeError(
                f"maps[{number}] is {height} x {width}, smaller than its pooling kernel {kernel}. Give the backbone "
                f"pictures at least {kernel / min(height, width):.2g} times as large (with the kernels of `KERNELS`: "
                f"at least {MIN_SIDE} x {MIN_SIDE})."
            )
