"""DML: pooled frames through a perceptron trained with triplets.

Original: Kordopatis-Zilos et al., "Near-Duplicate Video Retrieval with Deep Metric Learning", ICCV Workshops 2017.
Frame vectors are averaged over the video; three fully connected layers map the mean to an embedding, in which copies
are nearer than other videos by a margin. Trained on labelled near-duplicates (VCDB).

Kept: early fusion by the mean, three layers, embeddings of unit length, triplets.

Adapted: vectors of a frame are the mean of its region vectors, instead of the maxima of CNN layers. Positives are
edited copies, and all other clips of a batch are negatives. The last layer adds to the mean and
starts at zero, so that training starts from the mean itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from hapvr.config import Within
from hapvr.losses import Triplet
from hapvr.methods.base import FitSettings, Report, Settings
from hapvr.methods.clips import Clips
from hapvr.methods.fitting import find_relevance, run_steps
from hapvr.methods.registry import register
from hapvr.methods.vectors import VideoVectorMethod
from hapvr.training.step import Batch


@dataclass(frozen=True)
class DMLSettings(FitSettings):
    """The perceptron and its training."""

    width: Annotated[int, Within(1)] = 1024  # of the hidden layers
    margin: Annotated[float, Within(0)] = 0.1
    steps: Annotated[int, Within(1)] = 200  # more learn the videos of a small set by heart
    batch: Annotated[int, Within(2)] = 64
    rate: Annotated[float, Within(0)] = 3e-4


@register
class DML(VideoVectorMethod[DMLSettings]):
    """One vector a video."""

    name, title, paper_line, supervised_original = "dml", "DML", "DML", True
    settings_type: ClassVar[type[Settings]] = DMLSettings
    trials = ({}, {"rate": 1e-4}, {"margin": 0.2}, {"steps": 600})
    learns: ClassVar[bool] = True

    def __init__(self, dims: tuple[int, int], settings: DMLSettings | None = None) -> None:
        super().__init__(dims, settings)
        width = self.settings.width
        self.layers = nn.Sequential(
            nn.Linear(dims[1], width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, dims[1])
        )
        nn.init.zeros_(self.layers[-1].weight)  # type: ignore[arg-type]
        nn.init.zeros_(self.layers[-1].bias)  # type: ignore[arg-type]

    def embed(self, regions: Tensor) -> Tensor:
        """Unit vectors of clips: [N, T, R, D] -> [N, D]."""
        mean = F.normalize(F.normalize(regions.mean(2), dim=-1).mean(1), dim=-1)
        return F.normalize(mean + self.layers(mean * mean.shape[-1] ** 0.5), dim=-1)

    def fit(self, clips: Clips, *, seed: int = 0, report: Report | None = None) -> list[float]:
        """Train with triplets."""
        loss = Triplet(self.settings.margin)
        self.train()

        def compute_loss(batch: Batch) -> Tensor:
            vectors = self.embed(batch.regions)
            relevance, itself = find_relevance(batch)
            value: Tensor = loss(vectors @ vectors.T / 2 + 0.5, relevance, ignore=itself)
            return value

        return run_steps(
            self.parameters(), clips.pool(), self.settings, compute_loss, seed=seed, report=report, name=self.name
        )
