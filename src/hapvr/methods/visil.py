"""ViSiL: a CNN over the frame matrix, trained with triplets.

Original: Kordopatis-Zilos et al., "ViSiL: Fine-grained Spatio-Temporal Video Similarity Learning", ICCV 2019
(arXiv:1908.07410). Regions are weighed by attention, compared by Chamfer similarity into a frame matrix, which a CNN
refines; Chamfer similarity over frames gives the score. Trained on labelled near-duplicates (VCDB) with triplets.

Kept: attention, both Chamfer similarities, the CNN, triplets with a margin of 0.5 on [-1, 1], the penalty on outputs
beyond [-1, 1] with weight 0.5.

Adapted: positives are edited copies of unlabelled videos, not labelled ones, and negatives are all other clips of the
batch, where the original mines hard ones beforehand. The CNN adds to what the matrix says (`residual`), which
starts from the untrained similarity; so do all networks here.
"""

from __future__ import annotations

from typing import ClassVar

from hapvr.losses import WeightedLosses
from hapvr.methods.base import Settings
from hapvr.methods.networks import MarginSettings, TrainedNetwork, make_recipe, make_visil_config
from hapvr.methods.registry import register
from hapvr.similarity import SimilarityConfig


@register
class ViSiL(TrainedNetwork):
    """ViSiL_v."""

    name, title, paper_line, supervised_original = "visil", "ViSiL", "ViSiL", True
    settings_type: ClassVar[type[Settings]] = MarginSettings
    trials = ({}, {"rate": 1e-5}, {"margin": 0.1}, {"steps": 1500})

    def network_config(self) -> SimilarityConfig:
        """See `NetworkMethod`."""
        return make_visil_config(self.dims[1], residual=self.settings.residual)

    def losses(self) -> WeightedLosses:
        """See `TrainedNetwork`."""
        settings = self.settings
        assert isinstance(settings, MarginSettings)
        # The penalty is a sum over all cells of a batch; the original's, of one triplet.
        weights = {"triplet": 1.0, "range": settings.range_weight / settings.batch**2}
        return make_recipe(weights, triplet={"margin": settings.margin})
