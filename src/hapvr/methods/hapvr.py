"""HAP-VR: TopK-Chamfer similarity and average precision as a loss, on videos and on frames.

Original: the paper of this package (arXiv:2407.15566), Table 1's last line.

Kept: attention, TopK-Chamfer similarity at both levels, psi; QuadLinear-AP of videos and of frames, InfoNCE, SSHN and
the range penalty, with the paper's weights.

Adapted: copies at the level of features, as for S2VS here. Frame labels come from the pooled region vectors
instead of DINO's. psi adds to what the matrix says, as for ViSiL here.
"""

from __future__ import annotations

from typing import ClassVar

from hapvr.losses import HAPVR_WEIGHTS, WeightedLosses
from hapvr.methods.base import Settings
from hapvr.methods.networks import NetworkSettings, TrainedNetwork, make_recipe
from hapvr.methods.registry import register
from hapvr.similarity import SimilarityConfig


@register
class HAPVR(TrainedNetwork):
    """HAP-VR."""

    name, title, paper_line = "hapvr", "HAP-VR", "HAP-VR"
    settings_type: ClassVar[type[Settings]] = NetworkSettings
    trials = ({}, {"rate": 1e-3}, {"rate": 5e-5}, {"steps": 1500})

    def network_config(self) -> SimilarityConfig:
        """See `NetworkMethod`."""
        return SimilarityConfig(dims=self.dims[1], residual=self.settings.residual)

    def losses(self) -> WeightedLosses:
        """See `TrainedNetwork`."""
        return make_recipe(HAPVR_WEIGHTS)
