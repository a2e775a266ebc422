"""DnS's coarse student: one vector a video.

Original: the coarse-grained student S^c of Kordopatis-Zilos et al., IJCV 2022 (arXiv:2106.13266): attention weighs
regions, a transformer sees the frames, NetVLAD pools them into one vector; its products learn the teacher's scores.

Kept: all four steps, and the loss of the fine students.

Adapted: the teacher and the pairs, as for the fine students here. The transformer's output is added to the
frame's own vector. Vectors have as many dims as region vectors have. A score is 2 cos - 1: a network here gives
unrelated videos about -0.9, which no more than a few vectors can have as their cosines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hapvr.config import Within
from hapvr.methods.base import Description, FitSettings, Report, Settings
from hapvr.methods.clips import Clips
from hapvr.methods.distillation import TeacherSettings, compute_distillation_loss, find_teacher
from hapvr.methods.fitting import find_relevance, run_steps
from hapvr.methods.registry import register
from hapvr.methods.vectors import FrameEncoder, VideoVectorMethod
from hapvr.similarity import VideoSimilarity
from hapvr.similarity.weighting import RegionAttention
from hapvr.training.step import Batch


@dataclass(frozen=True)
class CoarseSettings(FitSettings, TeacherSettings):
    """The network and its training."""

    clusters: Annotated[int, Within(1)] = 16  # of NetVLAD
    heads: Annotated[int, Within(1)] = 8
    batch: Annotated[int, Within(2)] = 32
    rate: Annotated[float, Within(0)] = 3e-5


class VLAD(nn.Module):
    """NetVLAD: differences of vectors to soft clusters, summed, of unit length: [N, T, D] -> [N, C D].

    The sum is over frames t: a_c(x_t) (x_t - m_c), with a the softmax of a linear map.
    """

    def __init__(self, dims: int, clusters: int) -> None:
        super().__init__()
        self.assign = nn.Linear(dims, clusters)
        self.centres = nn.Parameter(0.1 * F.normalize(torch.randn(clusters, dims), dim=1))

    def forward(self, vectors: Tensor) -> Tensor:
        """[N, T, D] -> [N, C D]; a cluster's part is of unit length before the whole is."""
        shares = self.assign(vectors).softmax(-1)  # [N, T, C]
        sums = torch.einsum("ntc,ntd->ncd", shares, vectors) - shares.sum(1)[..., None] * self.centres
        return F.normalize(F.normalize(sums, dim=-1).flatten(1), dim=-1)


@register
class CoarseStudent(VideoVectorMethod[CoarseSettings]):
    """S^c."""

    name, title, supervised_original = "dns-coarse", "DnS (coarse)", True
    settings_type: ClassVar[type[Settings]] = CoarseSettings
    trials = ({}, {"rate": 1e-4}, {"clusters": 64}, {"steps": 200})
    learns: ClassVar[bool] = True

    def __init__(self, dims: tuple[int, int], settings: CoarseSettings | None = None) -> None:
        super().__init__(dims, settings)
        self.attention = RegionAttention(dims[1])
        self.encoder = FrameEncoder(dims[1], dims[1], layers=1, heads=self.settings.heads, places=True)
        self.pooling = VLAD(dims[1], self.settings.clusters)
        self.reduce = nn.Linear(self.settings.clusters * dims[1], dims[1])

    def embed(self, regions: Tensor) -> Tensor:
        """Unit vectors of clips: [N, T, R, D] -> [N, D]."""
        frames = F.normalize(self.attention(regions).sum(2), dim=-1)
        return F.normalize(self.reduce(self.pooling(self.encoder(frames))), dim=-1)

    def fit(self, clips: Clips, *, seed: int = 0, report: Report | None = None) -> list[float]:
        """Learn the scores of the teacher."""
        own = self.settings.teacher
        return self.learn_from(
            find_teacher(own, clips, device=self.device, seed=seed, report=report), clips, seed=seed, report=report
        )

    def learn_from(self, teacher: VideoSimilarity, clips: Clips, *, seed: int, report: Report | None) -> list[float]:
        """Learn the scores of a given network."""
        self.train()
        half = self.device.type == "cuda"

        def compute_loss(batch: Batch) -> Tensor:
            with torch.no_grad(), torch.autocast(self.device.type, torch.bfloat16, enabled=half):
                taught = teacher(batch.regions, batch.regions).scores
            vectors = self.embed(batch.regions)
            return compute_distillation_loss(stretch_cosines(vectors @ vectors.T), taught, *find_relevance(batch))

        return run_steps(
            self.parameters(), clips, self.settings, compute_loss, seed=seed, report=report, name=self.name
        )

    def score(self, queries: Sequence[Description], targets: Sequence[Description]) -> Tensor:
        """Cosines, on the scale of a network's scores."""
        return stretch_cosines(super().score(queries, targets))


def stretch_cosines(cosines: Tensor) -> Tensor:
    """A score on the scale of networks: 1 for the same vectors, -1 for vectors that have nothing in common."""
    return 2 * cosines - 1
