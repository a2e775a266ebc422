"""Grey pictures in the place of region vectors, for methods that read pictures: [T, 64, 64] in a feature file."""

from __future__ import annotations

from dataclasses import asdict

import torch
import torch.nn.functional as F
from torch import Tensor

from hapvr.backbones.base import Backbone
from hapvr.features.extractor import RegionExtractor
from hapvr.storage import sha256_bytes
from hapvr.video.sampling import SamplingConfig

SIDE = 64  # pixels of a picture
_LUMA = (0.299, 0.587, 0.114)


class PictureExtractor(RegionExtractor):
    """Frames as grey pictures of 64 x 64, means of the pixels below each: what `extract_videos` writes is those.

    The rows of a picture stand where regions stand elsewhere, so that feature files, flags of flat frames and
    evaluation serve both.
    """

    def __init__(self, *, sampling: SamplingConfig | None = None, device: str | torch.device = "cpu") -> None:
        super().__init__(_NoBackbone(), sampling=sampling, device=device, precision=torch.float32)

    @torch.no_grad()
    def regions(self, pictures: Tensor) -> Tensor:
        """Grey pictures [N, 64, 64], 0 to 255, of squares, uint8 [N, S, S, 3]."""
        luma = pictures.to(self.device).float() @ torch.tensor(_LUMA, device=self.device)
        return F.adaptive_avg_pool2d(luma[:, None], SIDE)[:, 0]

    def digest(self) -> str:
        """The sha256 of all that pictures depend on but the rate."""
        sampling = {name: value for name, value in asdict(self.sampling).items() if name != "fps"}
        return sha256_bytes(f"pictures {SIDE} {sorted(sampling.items())!r}".encode())


class _NoBackbone(Backbone):
    """Nothing: pictures are not described."""

    name = "none"
    mean, std = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    stage_channels = (3, 3, 3, 3)

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(1))

    def stages(self, images: Tensor) -> tuple[Tensor, ...]:
        return (images * self.scale,) * 4
