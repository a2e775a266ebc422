"""From frames to region vectors at speed: a frozen backbone and its whitening as one function.

Whole folders of videos are the matter of `hapvr.features.folders`.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from hapvr.backbones.base import Backbone
from hapvr.backbones.efficientnet import SameConv2d, same_padding
from hapvr.checks import shape_of
from hapvr.errors import ConfigError, ShapeError
from hapvr.features._threads import side_by_side
from hapvr.features.files import Features
from hapvr.features.folders import ExtractionReport, Failure, extract_files, find_videos, pack_files
from hapvr.features.from_packed import extract_packed
from hapvr.features.regions import LEAST_SIDE, input_scale, regions_of_maps
from hapvr.features.whitening import Whitening
from hapvr.storage import sha256_bytes, sha256_tensors

if TYPE_CHECKING:
    from hapvr.records import Box, Frames

__all__ = [
    "ExtractionReport",
    "Failure",
    "RegionExtractor",
    "SamplingConfig",
    "decode_parts",
    "decode_pictures",
    "extract_files",
    "extract_packed",
    "find_videos",
    "folded",
    "half_pays",
    "pack_files",
]

_FRAMES_A_PART = 256  # about 90 MB of pictures
_FOLDED_ERROR = 1e-3  # relative: a folded backbone that differs by more is not used


@dataclass(frozen=True)
class SamplingConfig:
    """How a video becomes pictures for a backbone: one home for training, comparing and indexing alike."""

    fps: float = 2.0  # frames a second; short videos are sampled faster
    at_least: int = 28  # frames of a short video, where it has them: what psi was trained on
    short_side: int = 256  # pixels, after decoding
    crop: int = 224  # pixels, the centre of that

    def __post_init__(self) -> None:
        if not self.fps > 0 or self.at_least < 0 or not 0 < self.crop <= self.short_side:
            raise ConfigError(f"fps > 0, at_least >= 0 and 0 < crop <= short_side must hold; got {self}.")


def half_pays() -> bool:
    """Whether this CPU multiplies bfloat16 itself; else float32 is faster."""
    check = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    return bool(check is not None and check())


class RegionExtractor:
    """A frozen backbone and its whitening as one function: pictures in, region vectors out.

    On a GPU and on CPUs that multiply bfloat16 the backbone runs in bfloat16, elsewhere in float32; pooling and
    whitening are float32 always. `precision` overrides that. Batch normalisation is folded into the convolutions of a
    copy of the backbone, which is what runs; `backbone` stays as it was given.

    On a CPU batches are described side by side, one a core: no core waits for another at every layer, which costs
    little on an idle machine and a great deal on a busy one.

    Args:
        backbone: anything with stages; put into evaluation mode, moved to `device`.
        whitening: None leaves the pooled vectors as they are.
        sampling: how videos become pictures.
        device: where to compute.
        precision: torch.float32 or torch.bfloat16.
        batch: pictures at a time.
        compiled: run the backbone through torch.compile. The first batch then takes a minute.
    """

    def __init__(
        self,
        backbone: Backbone,
        whitening: Whitening | None = None,
        *,
        sampling: SamplingConfig | None = None,
        device: str | torch.device = "cpu",
        precision: torch.dtype | None = None,
        batch: int | None = None,
        compiled: bool = False,
    ) -> None:
        self.device = torch.device(device)
        gpu = self.device.type == "cuda"
        self.precision = precision or (torch.bfloat16 if gpu or half_pays() else torch.float32)
        if self.precision not in (torch.float32, torch.bfloat16):
            raise ConfigError(f"precision must be torch.float32 or torch.bfloat16, got {precision}.")
        self.backbone = backbone.eval().requires_grad_(False).to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.whitening = None if whitening is None else whitening.to(self.device)
        self.sampling = sampling or SamplingConfig()
        self.batch = batch or (512 if gpu else 16)
        self.compiled = compiled
        fast = folded(self.backbone)
        fast = (copy.deepcopy(fast) if fast is self.backbone else fast).to(self.precision)
        self._stages: Callable[[Tensor], Sequence[Tensor]] = (
            torch.compile(fast.stages, dynamic=False) if compiled else fast.stages
        )
        self._prepare = input_scale(self.backbone, self.device)

    @torch.no_grad()
    def __call__(self, images: NDArray[np.uint8] | Tensor) -> Tensor:
        """Region vectors of pictures: uint8 [T, H, W, 3] -> float32 [T, R, D] on the CPU. The centre is cropped."""
        pictures = torch.as_tensor(images)
        if pictures.dtype != torch.uint8 or pictures.ndim != 4 or pictures.shape[3] != 3 or len(pictures) == 0:
            raise ShapeError(f"images must be uint8 [T, H, W, 3], got {pictures.dtype} {shape_of(pictures)}.")
        pictures = _centre(pictures, self.sampling.crop)
        threads = self.threads()
        count = max(-(-len(pictures) // self.batch), min(threads, len(pictures) // 4))
        return torch.cat(side_by_side(self.regions, pictures.chunk(max(1, count)), threads)).float().cpu()

    def threads(self) -> int:
        """How many batches are described at a time: on a CPU as many as torch has threads, on a GPU one."""
        return torch.get_num_threads() if self.device.type == "cpu" else 1

    @torch.no_grad()
    def regions(self, pictures: Tensor) -> Tensor:
        """Region vectors of one batch of squares, uint8 [N, S, S, 3] -> float32 [N, R, D] on the device."""
        if min(pictures.shape[1:3]) < LEAST_SIDE:
            raise ShapeError(f"regions need pictures of at least {LEAST_SIDE} pixels a side, got {shape_of(pictures)}.")
        pictures = pictures.to(self.device, non_blocking=True).permute(0, 3, 1, 2)  # channels last, as they lie
        return regions_of_maps(self._stages(self._prepare(pictures).to(self.precision)), self.whitening)

    def digest(self) -> str:
        """The sha256 of all that region vectors depend on but the rate: backbone, whitening and sampling."""
        sampling = {name: value for name, value in asdict(self.sampling).items() if name != "fps"}
        total = repr(sorted(sampling.items())) + sha256_tensors(self.backbone.state_dict())
        if self.whitening is not None:
            total += sha256_tensors(self.whitening.to_part().tensors)
        return sha256_bytes(total.encode())

    def features(self, frames: Frames) -> Features:
        """Features of a decoded video, with the times of its frames and the flags of those that say nothing."""
        return Features(self(frames.images), frames.timestamps, frames.low_information)


def _centre(pictures: Tensor, side: int) -> Tensor:
    """The centre square of [T, H, W, 3]; a picture that is smaller is enlarged first."""
    height, width = pictures.shape[1:3]
    if min(height, width) < side:
        scale = side / min(height, width)
        size = (max(side, round(height * scale)), max(side, round(width * scale)))
        moved = F.interpolate(pictures.permute(0, 3, 1, 2).float(), size, mode="bilinear")
        pictures = moved.round().to(torch.uint8).permute(0, 2, 3, 1)
        height, width = size
    top, left = (height - side) // 2, (width - side) // 2
    return pictures[:, top : top + side, left : left + side]


# --- folding ---------------------------------------------------------------------------------------------------------


class _Folded(nn.Module):
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
def folded(backbone: Backbone) -> Backbone:
    """A copy of a backbone in evaluation mode without batch normalisation: each is folded into what precedes it.

    A backbone whose normalisations do not follow the convolutions that they are listed after would come out different:
    that is tried on a picture of noise, and such a backbone is returned as it is.
    """
    copied = copy.deepcopy(backbone)
    _fold(copied)
    parameter = next(backbone.parameters())
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(1, 3, LEAST_SIDE, LEAST_SIDE, generator=generator).to(parameter)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        maps = zip(backbone.stages(noise), copied.stages(noise), strict=True)
    same = all((expected - got).abs().max() <= _FOLDED_ERROR * expected.abs().max() for expected, got in maps)
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
            setattr(module, name_before, _Folded(before, child))
            setattr(module, name, nn.Identity())
        else:
            _fold(child)
        name_before, before = name, child


# --- one video -------------------------------------------------------------------------------------------------------


def decode_pictures(
    path: str | os.PathLike[str], times: Sequence[float], sampling: SamplingConfig, *, crop: Box | None
) -> list[NDArray[np.uint8]]:
    """Pictures [H, W, 3] that `decode_parts` gave at these times; see `hapvr.video.decode.decode_at`."""
    from hapvr.video.crew_work import MOST_FRAMES
    from hapvr.video.decode import decode_at
    from hapvr.video.limits import DecodeLimits

    return decode_at(
        path,
        times,
        fps=sampling.fps,
        short_side=sampling.short_side,
        at_least=sampling.at_least,
        crop=crop,
        limits=DecodeLimits(frames=MOST_FRAMES),
    )


def decode_parts(path: str | os.PathLike[str], sampling: SamplingConfig, *, threads: int = 0) -> Iterator[Frames]:
    """The frames of a video in parts of a bounded number, cropped alike; most videos are one part.

    The file is decoded once, whatever duration it declares; see `hapvr.video.decode.decode_chunks`.
    """
    from hapvr.video.crew_work import MOST_FRAMES
    from hapvr.video.decode import decode_chunks
    from hapvr.video.limits import DecodeLimits

    return decode_chunks(
        path,
        chunk=_FRAMES_A_PART,
        fps=sampling.fps,
        short_side=sampling.short_side,
        at_least=sampling.at_least,
        threads=threads,
        limits=DecodeLimits(frames=MOST_FRAMES),
    )
