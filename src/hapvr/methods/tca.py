"""TCA: a transformer over frame vectors, trained by contrast with a memory bank.

Original: Shao et al., "Temporal Context Aggregation for Video Retrieval with Contrastive Learning", WACV 2021
(arXiv:2008.01334). Self-attention puts each frame vector into the context of its video. The mean of the frames is the
video's vector, by which it is trained, with negatives from a memory bank; retrieval compares videos by that vector, or
frames by symmetric Chamfer similarity, which the paper's Table 1 has.

Kept: one layer of self-attention, training at the level of videos with a bank of negatives, both levels of retrieval
(`level`).

Adapted: frame vectors are the mean of a frame's region vectors. Positives are edited copies, where the original has
labelled ones (VCDB). The loss is InfoNCE. The transformer's output is added to the frame's own vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from hapvr.config import Within
from hapvr.features import Features
from hapvr.losses import InfoNCE
from hapvr.methods.base import Description, FitSettings, Report, Settings, count_bytes, take_times
from hapvr.methods.clips import Clips
from hapvr.methods.fitting import find_relevance, run_steps
from hapvr.methods.registry import register
from hapvr.methods.vectors import FrameEncoder, VectorsMethod, score_vectors
from hapvr.training.step import Batch, find_shared_content


@dataclass(frozen=True)
class TCASettings(FitSettings):
    """The transformer and its training."""

    level: Literal["frame", "video"] = "frame"  # at which videos are compared
    layers: Annotated[int, Within(1)] = 1
    heads: Annotated[int, Within(1)] = 8
    bank: Annotated[int, Within(0)] = 1024  # vectors of earlier clips that are negatives
    temperature: Annotated[float, Within(1e-3)] = 0.07
    batch: Annotated[int, Within(2)] = 64
    rate: Annotated[float, Within(0)] = 1e-4


@register
class TCA(VectorsMethod[TCASettings]):
    """Frame vectors in context."""

    name, title, paper_line, supervised_original = "tca", "TCA", "TCA", True
    settings_type: ClassVar[type[Settings]] = TCASettings
    trials = ({}, {"level": "video"}, {"rate": 3e-5}, {"temperature": 0.03})
    learns: ClassVar[bool] = True

    def __init__(self, dims: tuple[int, int], settings: TCASettings | None = None) -> None:
        super().__init__(dims, settings)
        own = self.settings
        self.localises = own.level == "frame"
        self.encoder = FrameEncoder(dims[1], dims[1], layers=own.layers, heads=own.heads, places=False)

    def embed(self, regions: Tensor) -> Tensor:
        """Unit vectors of frames in context: [N, T, R, D] -> [N, T, D]."""
        found: Tensor = self.encoder(F.normalize(regions.mean(2), dim=-1))
        return found

    def fit(self, clips: Clips, *, seed: int = 0, report: Report | None = None) -> list[float]:
        """Train the mean of the frames by InfoNCE; clips of earlier steps join the negatives."""
        settings = self.settings
        loss = InfoNCE(settings.temperature)
        bank = torch.empty(0, self.dims[1], device=self.device)
        known = torch.empty(0, clips.contents.shape[1], dtype=torch.int64, device=self.device)
        self.train()

        def compute_loss(batch: Batch) -> Tensor:
            nonlocal bank, known
            vectors = F.normalize(self.embed(batch.regions).mean(1), dim=-1)
            relevance, itself = find_relevance(batch)
            scores = torch.cat([vectors @ vectors.T, vectors @ bank.T], 1) / 2 + 0.5
            # What shows the same as a clip in the bank, made by older weights, is neither positive nor negative.
            shown = find_shared_content(batch.contents, known)
            ignore = torch.cat([itself, shown], 1)
            value: Tensor = loss(scores, torch.cat([relevance, torch.zeros_like(shown)], 1), ignore=ignore)
            bank = torch.cat([vectors.detach(), bank])[: settings.bank]
            known = torch.cat([batch.contents, known])[: settings.bank]
            return value

        return run_steps(
            self.parameters(), clips.pool(), settings, compute_loss, seed=seed, report=report, name=self.name
        )

    @torch.no_grad()
    def describe(self, features: Features) -> Description:
        """Unit vectors of frames [T, D], or of the video [D]."""
        values = self.embed(self.take_regions(features)[None])[0]
        if self.settings.level == "video":
            values = F.normalize(values.mean(0), dim=-1)
        return Description(values, take_times(features), count_bytes(values))

    def score(self, queries: Sequence[Description], targets: Sequence[Description]) -> Tensor:
        """Symmetric Chamfer similarity of frames, or cosines of videos."""
        if self.settings.level == "video":
            return score_vectors(queries, targets, self.device)
        return super().score(queries, targets)
