"""HAP-VR, binarised: the same network on one bit a number.

Original: none; HAP-VR (arXiv:2407.15566) with the binarisation of DnS's student (arXiv:2106.13266) in the place of
attention.

Kept: everything of HAP-VR here but attention; W starts from ITQ, and a smooth sign stands for the sign while training.

Adapted: as HAP-VR here (see its card).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from hapvr.config import Within
from hapvr.methods.base import Settings
from hapvr.methods.hapvr import HAPVR
from hapvr.methods.networks import NetworkSettings
from hapvr.methods.registry import register
from hapvr.similarity import SimilarityConfig


@dataclass(frozen=True)
class BinarySettings(NetworkSettings):
    """Those of networks on bits."""

    bits: Annotated[int, Within(0)] = 0  # of a region vector; 0: as many as it has dims


@register
class HAPVRBinary(HAPVR):
    """HAP-VR on bits."""

    name, title, paper_line = "hapvr-binary", "HAP-VR, binarised", ""
    settings_type: ClassVar[type[Settings]] = BinarySettings

    def network_config(self) -> SimilarityConfig:
        """See `NetworkMethod`."""
        settings = self.settings
        assert isinstance(settings, BinarySettings)
        bits = settings.bits or self.dims[1]
        return SimilarityConfig(dims=self.dims[1], weighting="binary", bits=bits, residual=settings.residual)
