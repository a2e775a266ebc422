"""LAMV: temporal match kernels whose coefficients are learnt.

Original: Baraldi et al., "LAMV: Learning to Align and Match Videos with Kernelized Temporal Layers", CVPR 2018. The
Fourier coefficients of TMK's kernel become weights, trained with triplets so that a video matches its copy at the
right offset better than others at any.

Kept: the layer, coefficients that are not negative, triplets on the best offset.

Adapted: frame vectors pass a learnt linear map that starts as none (`Projection`), where the original
learns the pooling of a CNN's maps; positives are edited copies, and negatives all other clips of a batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hapvr.config import Within
from hapvr.losses import Triplet
from hapvr.methods.base import FitSettings, Report, Settings
from hapvr.methods.clips import Clips
from hapvr.methods.fitting import find_relevance, run_steps
from hapvr.methods.registry import register
from hapvr.methods.tmk import KernelMethod, TMKSettings, compute_von_mises
from hapvr.similarity.weighting import Projection
from hapvr.training.step import Batch


@dataclass(frozen=True)
class LAMVSettings(FitSettings, TMKSettings):
    """The kernel that training starts from, and how it is trained."""

    margin: Annotated[float, Within(0)] = 0.1  # of triplets
    projection: bool = True  # whether frame vectors are mapped too
    rate: Annotated[float, Within(0)] = 1e-3
    frame_s: Annotated[float, Within(0.01)] = 0.5  # seconds between the frames of a clip


@register
class LAMV(KernelMethod[LAMVSettings]):
    """TMK with learnt coefficients."""

    name, title, paper_line = "lamv", "LAMV", "LAMV"
    settings_type: ClassVar[type[Settings]] = LAMVSettings
    trials = ({}, {"projection": False, "rate": 1e-2}, {"sharpness": 8.0}, {"rate": 3e-3})
    learns: ClassVar[bool] = True

    def __init__(self, dims: tuple[int, int], settings: LAMVSettings | None = None) -> None:
        super().__init__(dims, settings)
        start = compute_von_mises(self.settings.sharpness, self.settings.frequencies).clamp(min=1e-4)
        self.log_coefficients = nn.Parameter(start.log().repeat(self.settings.periods, 1))
        self.projection = Projection(dims[1]) if self.settings.projection else None

    def coefficients(self) -> Tensor:
        """The learnt ones."""
        return self.log_coefficients.exp()

    def pool_frames(self, regions: Tensor) -> Tensor:
        """Frame vectors, mapped and of unit length."""
        frames = super().pool_frames(regions)
        if self.projection is not None:
            frames = self.projection(frames)
        return F.normalize(frames, dim=-1)

    def fit(self, clips: Clips, *, seed: int = 0, report: Report | None = None) -> list[float]:
        """Learn coefficients and map with triplets on the best offset of each pair."""
        settings = self.settings
        loss = Triplet(settings.margin)
        times = torch.arange(settings.frames, device=self.device) * settings.frame_s
        offsets = self.list_offsets(settings.frames * settings.frame_s)

        def compute_loss(batch: Batch) -> Tensor:
            sums = self.embed(self.pool_frames(batch.regions), times.expand(len(batch.regions), -1))
            scores = self.evaluate_kernels(sums, sums, offsets).amax(2)
            relevance, itself = find_relevance(batch)
            value: Tensor = loss(scores / 2 + 0.5, relevance, ignore=itself)
            return value

        return run_steps(
            self.parameters(), clips.pool(), settings, compute_loss, seed=seed, report=report, name=self.name
        )
