"""DnS's fine students: S_a weighs regions by attention, S_b keeps one bit a number.

Original: Kordopatis-Zilos et al., "DnS: Distill-and-Select for Efficient and Accurate Video Indexing and Retrieval",
IJCV 2022 (arXiv:2106.13266). A teacher scores pairs of unlabelled videos (DnS-100K); students with ViSiL's network
learn its scores. S_b binarises region vectors: it starts from ITQ, and a smooth sign stands for the sign in
training.

Kept: both students, the mean absolute difference to the teacher's score, ITQ, the penalty on outputs beyond [-1, 1].

Adapted: the teacher is a HAP-VR network of this package, not ViSiL trained with labels; pairs are those of the
clips that all methods here learn from. psi adds to what the matrix says, as for ViSiL here.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from hapvr.config import Share, Within
from hapvr.losses import RangePenalty
from hapvr.methods.base import Report, Settings
from hapvr.methods.clips import Clips
from hapvr.methods.distillation import TeacherSettings, compute_distillation_loss, find_teacher
from hapvr.methods.fitting import find_relevance, run_steps
from hapvr.methods.networks import NetworkMethod, NetworkSettings, make_visil_config, start_binarization
from hapvr.methods.registry import register
from hapvr.similarity import SimilarityConfig, VideoSimilarity
from hapvr.training.step import Batch


@dataclass(frozen=True)
class StudentSettings(NetworkSettings, TeacherSettings):
    """Those of a fine student."""

    range_weight: Share = 0.5
    bits: Annotated[int, Within(0)] = 0  # S_b: of a region vector; 0: as many as it has dims


class FineStudent(NetworkMethod[StudentSettings]):
    """A network that learns a teacher's scores."""

    settings_type: ClassVar[type[Settings]] = StudentSettings
    supervised_original = True
    trials = ({}, {"rate": 1e-3}, {"rate": 5e-5}, {"steps": 1500})
    learns: ClassVar[bool] = True

    def fit(self, clips: Clips, *, seed: int = 0, report: Report | None = None) -> list[float]:
        """Learn the scores of the teacher on all pairs of a batch."""
        own = self.settings.teacher
        return self.learn_from(
            find_teacher(own, clips, device=self.device, seed=seed, report=report), clips, seed=seed, report=report
        )

    def learn_from(self, teacher: VideoSimilarity, clips: Clips, *, seed: int, report: Report | None) -> list[float]:
        """Learn the scores of a given network."""
        settings = self.settings
        start_binarization(self.network, clips, seed=seed)
        penalty = RangePenalty()
        self.train()
        half = self.device.type == "cuda"

        def compute_loss(batch: Batch) -> Tensor:
            with torch.autocast(self.device.type, torch.bfloat16, enabled=half):
                with torch.no_grad():
                    taught = teacher(batch.regions, batch.regions).scores
                comparison = self.network(batch.regions, batch.regions)
            loss = compute_distillation_loss(comparison.scores, taught, *find_relevance(batch))
            if comparison.raw is not None:
                loss = loss + settings.range_weight / len(batch.regions) ** 2 * penalty(comparison.raw)
            return loss

        return run_steps(
            self.network.parameters(), clips, settings, compute_loss, seed=seed, report=report, name=self.name
        )


@register
class AttentionStudent(FineStudent):
    """S_a."""

    name, title, paper_line = "dns-a", "DnS (S_a)", "DnS (S_a)"

    def network_config(self) -> SimilarityConfig:
        """See `NetworkMethod`."""
        return make_visil_config(self.dims[1], residual=self.settings.residual)


@register
class BinaryStudent(FineStudent):
    """S_b."""

    name, title, paper_line = "dns-b", "DnS (S_b)", "DnS (S_b)"

    def network_config(self) -> SimilarityConfig:
        """See `NetworkMethod`."""
        plain = make_visil_config(self.dims[1], residual=self.settings.residual)
        return dataclasses.replace(plain, weighting="binary", bits=self.settings.bits or self.dims[1])
