"""S2VS: ViSiL's network, trained on edited copies of unlabelled videos.

Original: Kordopatis-Zilos et al., "Self-Supervised Video Similarity Learning", CVPR Workshops 2023 (arXiv:2304.03378).
InfoNCE over the clips of a batch, and SSHN: self-similarity to 1, the hardest negative to 0.

Kept: network, both losses with weights 1 and 3 and the penalty on outputs beyond [-1, 1].

Adapted: the copies are those of the made benchmark that all methods here learn from, at the level of features, where
the original makes new ones in every step. The CNN adds to what the matrix says, as for ViSiL here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from hapvr.config import Within
from hapvr.losses import HAPVR_WEIGHTS, WeightedLosses
from hapvr.methods.base import Settings
from hapvr.methods.networks import NetworkSettings, TrainedNetwork, make_recipe, make_visil_config
from hapvr.methods.registry import register
from hapvr.similarity import SimilarityConfig


@dataclass(frozen=True)
class S2VSSettings(NetworkSettings):
    """Those of S2VS."""

    temperature: Annotated[float, Within(1e-3)] = 0.03  # of InfoNCE


@register
class S2VS(TrainedNetwork):
    """S2VS."""

    name, title, paper_line = "s2vs", "S2VS", "S2VS"
    settings_type: ClassVar[type[Settings]] = S2VSSettings
    trials = ({}, {"rate": 1e-3}, {"rate": 5e-5}, {"temperature": 0.07})

    def network_config(self) -> SimilarityConfig:
        """See `NetworkMethod`."""
        return make_visil_config(self.dims[1], residual=self.settings.residual)

    def losses(self) -> WeightedLosses:
        """See `TrainedNetwork`."""
        settings = self.settings
        assert isinstance(settings, S2VSSettings)
        weights = {name: HAPVR_WEIGHTS[name] for name in ("infonce", "sshn", "range")}
        return make_recipe(weights, infonce={"temperature": settings.temperature})
