"""VRL: a convolution over regions and a transformer over short stretches, without labels.

Original: He et al., "Learn from Unlabeled Videos for Near-duplicate Video Retrieval", SIGIR 2022. A CNN describes
frames, a transformer puts the frames of a stretch into one vector; both are trained by InfoNCE on augmented copies of
unlabelled videos. Videos are compared by the vectors of their stretches.

Kept: convolutional features and a transformer over stretches, one vector a stretch, InfoNCE without labels.

Adapted: the CNN is frozen, as for all methods here; what is learnt of it is a convolution over the grid of region
vectors. Stretches are `stretch` frames long; videos are compared by symmetric Chamfer similarity of stretches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hapvr.config import Within
from hapvr.features import Features
from hapvr.losses import InfoNCE
from hapvr.methods.base import Description, FitSettings, Report, Settings, count_bytes, take_times
from hapvr.methods.clips import Clips
from hapvr.methods.fitting import find_relevance, run_steps
from hapvr.methods.registry import register
from hapvr.methods.vectors import FrameEncoder, VectorsMethod, score_batch
from hapvr.training.step import Batch


@dataclass(frozen=True)
class VRLSettings(FitSettings):
    """The network and its training."""

    stretch: Annotated[int, Within(1)] = 4  # frames of a vector
    layers: Annotated[int, Within(1)] = 1
    heads: Annotated[int, Within(1)] = 8
    temperature: Annotated[float, Within(1e-3)] = 0.07
    batch: Annotated[int, Within(2)] = 64
    rate: Annotated[float, Within(0)] = 1e-4


@register
class VRL(VectorsMethod[VRLSettings]):
    """A vector for every few frames."""

    name, title, paper_line = "vrl", "VRL", "VRL"
    settings_type: ClassVar[type[Settings]] = VRLSettings
    trials = ({}, {"stretch": 8}, {"rate": 3e-5}, {"temperature": 0.03})
    learns: ClassVar[bool] = True

    def __init__(self, dims: tuple[int, int], settings: VRLSettings | None = None) -> None:
        super().__init__(dims, settings)
        own = self.settings
        side = math.isqrt(dims[0])
        self.side = side if side * side == dims[0] else 0  # 0: the regions are no square grid
        self.convolution = nn.Conv2d(dims[1], dims[1], self.side) if self.side else nn.Linear(dims[1], dims[1])
        nn.init.zeros_(self.convolution.weight)
        nn.init.zeros_(self.convolution.bias)  # type: ignore[arg-type]
        self.encoder = FrameEncoder(dims[1], dims[1], layers=own.layers, heads=own.heads, places=True)

    def embed(self, regions: Tensor) -> Tensor:
        """Unit vectors of stretches: [N, T, R, D] -> [N, ceil(T / stretch), D]. A last, shorter stretch counts too."""
        N, T = regions.shape[:2]
        flat = regions.flatten(0, 1)  # [N T, R, D]
        if self.side:
            seen = self.convolution(flat.mT.reshape(*flat.mT.shape[:2], self.side, self.side)).flatten(1)  # [N T, D]
        else:
            seen = self.convolution(flat.mean(1))
        frames = F.normalize(flat.mean(1) + seen, dim=-1).view(N, T, -1)
        count = -(-T // self.settings.stretch)
        padded = F.pad(frames, (0, 0, 0, count * self.settings.stretch - T))
        mask = torch.arange(padded.shape[1], device=regions.device) < T
        stretches = padded.view(N * count, self.settings.stretch, -1)
        real = mask.view(count, -1).repeat(N, 1)  # [N count, stretch]
        vectors = self.encoder(stretches, real).sum(1) / real.sum(1, keepdim=True)
        return F.normalize(vectors, dim=-1).view(N, count, -1)

    def fit(self, clips: Clips, *, seed: int = 0, report: Report | None = None) -> list[float]:
        """Train by InfoNCE on the similarity of clips."""
        loss = InfoNCE(self.settings.temperature)
        self.train()

        def compute_loss(batch: Batch) -> Tensor:
            vectors = self.embed(batch.regions)
            relevance, itself = find_relevance(batch)
            value: Tensor = loss(score_batch(vectors, vectors) / 2 + 0.5, relevance, ignore=itself)
            return value

        return run_steps(
            self.parameters(), clips, self.settings, compute_loss, seed=seed, report=report, name=self.name
        )

    @torch.no_grad()
    def describe(self, features: Features) -> Description:
        """Unit vectors of stretches, and when each is in the middle."""
        values = self.embed(self.take_regions(features)[None])[0]
        times = take_times(features)
        stretch = self.settings.stretch
        middle = np.array([times[first : first + stretch].mean() for first in range(0, len(times), stretch)])
        return Description(values, middle, count_bytes(values))
