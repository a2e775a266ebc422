"""What the methods around the similarity network share: ViSiL, S2VS, HAP-VR and DnS's fine students.

The network, its losses and the training step are those of `hapvr.similarity`, `hapvr.losses` and `hapvr.training`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from hapvr.config import Share, Within
from hapvr.features import Features
from hapvr.losses import TERMS, Term, WeightedLosses
from hapvr.methods.base import Description, FitSettings, Method, Report, Settings, count_bytes, take_times
from hapvr.methods.clips import Clips
from hapvr.methods.fitting import run_steps
from hapvr.methods.itq import fit_rotation
from hapvr.similarity import Descriptors, SimilarityConfig, VideoSimilarity, pairwise
from hapvr.training.config import TeacherConfig
from hapvr.training.step import Batch, compute_step_losses

_SAMPLE = 8192  # region vectors that ITQ sees


@dataclass(frozen=True)
class NetworkSettings(FitSettings):
    """How a network on region vectors is trained."""

    rate: Annotated[float, Within(0)] = 2e-4
    batch: Annotated[int, Within(2)] = 24
    residual: bool = True  # psi adds to what the frame matrix says, so that it starts as the untrained similarity


N = TypeVar("N", bound=Settings, covariant=True)


class NetworkMethod(Method[N]):
    """A method whose score is that of a `VideoSimilarity`."""

    localises: bool = True

    def __init__(self, dims: tuple[int, int], settings: N | None = None) -> None:
        super().__init__(dims, settings)
        self.network = VideoSimilarity(self.network_config())

    def network_config(self) -> SimilarityConfig:
        """The shape of the network."""
        raise NotImplementedError

    @torch.no_grad()
    def describe(self, features: Features) -> Description:
        """Weighed or binarised region vectors [T, R, D]."""
        values = self.network.make_descriptors(self.take_regions(features)).as_subclass(Tensor)
        size = count_bytes(values, bits=16 if self.network.config.bits is None else 1)
        return Description(values, take_times(features), size)

    def score(self, queries: Sequence[Description], targets: Sequence[Description]) -> Tensor:
        """See `Method`."""
        described = ([Descriptors.of(one.values.to(self.device)) for one in side] for side in (queries, targets))
        return pairwise(self.network, *described)

    @torch.no_grad()
    def frame_matrix(self, query: Description, target: Description) -> Tensor:
        """See `Method`."""
        one, other = (Descriptors.of(side.values.to(self.device)) for side in (query, target))
        return self.network.scored_matrix(one, other)


def make_visil_config(dims: int, *, residual: bool) -> SimilarityConfig:
    """ViSiL's network: regions weighed by attention, Chamfer similarity of regions and of frames, a CNN between."""
    return SimilarityConfig(dims=dims, spatial="chamfer", temporal="chamfer", residual=residual)


class TrainedNetwork(NetworkMethod[NetworkSettings]):
    """A network that is trained by a recipe of losses, on all pairs of a batch."""

    settings_type: ClassVar[type[Settings]] = NetworkSettings
    learns: ClassVar[bool] = True

    def losses(self) -> WeightedLosses:
        """The recipe."""
        raise NotImplementedError

    def fit(self, clips: Clips, *, seed: int = 0, report: Report | None = None) -> list[float]:
        """Train the network; binarised ones start from ITQ."""
        start_binarization(self.network, clips, seed=seed)
        losses = self.losses().to(self.device)
        self.train()
        dtype = torch.bfloat16 if self.device.type == "cuda" else torch.float32

        def compute_loss(batch: Batch) -> Tensor:
            frames = F.normalize(batch.regions.mean(2), dim=-1)  # the teacher of frame labels: pooled regions
            batch = Batch(batch.regions, batch.contents, frames)
            return compute_step_losses(self.network, losses, batch, teacher=TeacherConfig(), dtype=dtype).total

        return run_steps(
            self.network.parameters(), clips, self.settings, compute_loss, seed=seed, report=report, name=self.name
        )


def make_recipe(weights: Mapping[str, float], **settings: Mapping[str, float]) -> WeightedLosses:
    """A recipe of named terms and their weights; `settings` are those of a term's loss.

    >>> list(make_recipe({"triplet": 1.0, "range": 0.5}, triplet={"margin": 0.1}).terms)
    ['triplet', 'range']
    """
    terms = {}
    for name, weight in weights.items():
        loss, level = TERMS[name]
        terms[name] = Term(loss(**settings.get(name, {})), weight, level)
    return WeightedLosses(terms)


def start_binarization(network: VideoSimilarity, clips: Clips, *, seed: int) -> None:
    """Initialise the binarisation of a network by ITQ on region vectors of the clips; nothing if it has none."""
    if network.binarization is None:
        return
    vectors = clips.frames.flatten(0, 1)
    chosen = torch.randperm(len(vectors), generator=torch.Generator().manual_seed(seed))[:_SAMPLE]
    sample = vectors[chosen.to(vectors.device)].float()
    bits = network.binarization.projection.shape[1]
    with torch.no_grad():
        network.binarization.projection.copy_(fit_rotation(sample, bits=bits, seed=seed).projection)


@dataclass(frozen=True)
class MarginSettings(NetworkSettings):
    """Those of networks trained with triplets."""

    rate: Annotated[float, Within(0)] = 5e-5  # four times as much diverged; the original has 1e-5
    margin: Annotated[float, Within(0)] = 0.25  # on scores in [0, 1]; ViSiL's 0.5 on [-1, 1]
    range_weight: Share = 0.5  # of the penalty on psi's outputs that leave [-1, 1]
