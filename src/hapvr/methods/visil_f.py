"""ViSiL_f: Chamfer similarity of frozen features, nothing trained.

Original: the untrained baseline of Kordopatis-Zilos et al., ICCV 2019 (arXiv:1908.07410): Chamfer similarity of region
vectors for a frame matrix, Chamfer similarity over frames for the score.

Kept: all of it.

Adapted: the features are those that all methods here get, instead of the original's. Its settings are the
aggregations, which the original fixes to Chamfer on both levels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hapvr.methods.base import Settings
from hapvr.methods.networks import NetworkMethod
from hapvr.methods.registry import register
from hapvr.similarity import SimilarityConfig
from hapvr.similarity.network import KeepRate, Symmetry


@dataclass(frozen=True)
class ViSiLFSettings(Settings):
    """The aggregations."""

    symmetry: Symmetry = "none"
    spatial_keep_rate: KeepRate = 0.0  # 0 is Chamfer, 1 the mean
    temporal_keep_rate: KeepRate = 0.0


@register
class ViSiLF(NetworkMethod[ViSiLFSettings]):
    """ViSiL_f."""

    name, title, paper_line = "visil-f", "ViSiL_f", "ViSiL_f"
    settings_type: ClassVar[type[Settings]] = ViSiLFSettings
    trials = ({}, {"symmetry": "levels"}, {"temporal_keep_rate": 0.1}, {"spatial_keep_rate": 0.3})

    def network_config(self) -> SimilarityConfig:
        """See `NetworkMethod`."""
        return SimilarityConfig(
            dims=self.dims[1],
            weighting="none",
            spatial_keep_rate=self.settings.spatial_keep_rate,
            comparator=False,
            temporal_keep_rate=self.settings.temporal_keep_rate,
            symmetry=self.settings.symmetry,
            min_frames=1,
        )
