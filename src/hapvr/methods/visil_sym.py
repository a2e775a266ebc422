"""ViSiL_sym: ViSiL with symmetric Chamfer similarity.

Original: the symmetric variant of Kordopatis-Zilos et al., ICCV 2019 (arXiv:1908.07410), where both Chamfer
similarities are averaged over the two directions. The CNN between them still tells rows from columns.

Kept: everything of ViSiL, and symmetry at both levels.

Adapted: as ViSiL here (see its card). The published ViSiL_sym uses the weights of ViSiL; here it is
trained as it is used.
"""

from __future__ import annotations

import dataclasses

from hapvr.methods.registry import register
from hapvr.methods.visil import ViSiL
from hapvr.similarity import SimilarityConfig


@register
class ViSiLSym(ViSiL):
    """ViSiL_sym."""

    name, title, paper_line = "visil-sym", "ViSiL_sym", ""

    def network_config(self) -> SimilarityConfig:
        """See `NetworkMethod`."""
        return dataclasses.replace(super().network_config(), symmetry="levels")
