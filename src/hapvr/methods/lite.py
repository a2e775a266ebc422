"""lite: the network that ships with this package, as it is.

Original: the model `lite` of this package, HAP-VR's network and losses, trained on clips (see its card in the package).

Kept: its similarity network, not trained again.

Adapted: nothing. It fits features of `lite` alone, whose learnt map is part of them; on other features it would be no
fair comparison.
"""

from __future__ import annotations

from typing import ClassVar

from hapvr.errors import ShapeError
from hapvr.methods.base import Settings
from hapvr.methods.networks import NetworkMethod
from hapvr.methods.registry import register
from hapvr.model import load_network
from hapvr.similarity import SimilarityConfig


@register
class Lite(NetworkMethod[Settings]):
    """The shipped network."""

    name, title = "lite", "HAP-VR, shipped lite"
    settings_type: ClassVar[type[Settings]] = Settings

    def __init__(self, dims: tuple[int, int], settings: Settings | None = None) -> None:
        super().__init__(dims, settings)
        self.network.load_state_dict(load_network("lite").state_dict())

    def network_config(self) -> SimilarityConfig:
        """See `NetworkMethod`."""
        config = load_network("lite").config
        if config.dims != self.dims[1]:
            raise ShapeError(f"The network of lite takes {config.dims} dims, the features have {self.dims[1]}.")
        return config
