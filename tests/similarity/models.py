"""Small similarity networks with weights large enough for every part to be felt in a score."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hapvr.similarity import Comparator, SimilarityConfig, VideoSimilarity


def lively(module: nn.Module, seed: int = 0) -> None:
    """Redraw weights and biases so that each is felt in the result."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            spread = 0.2 if name.endswith("bias") else parameter[0].numel() ** -0.5
            parameter.copy_(spread * torch.randn(parameter.shape, generator=generator))


@torch.no_grad()
def centre(comparator: Comparator, matrix: Tensor) -> None:
    """Scale the last layer so that psi's outputs on this frame matrix spread over [-1, 1], mostly inside it."""
    raw = comparator(matrix[None])
    assert comparator.final.bias is not None
    comparator.final.weight.mul_(0.2 / raw.std())
    comparator.final.bias.add_(-raw.mean()).mul_(0.2 / raw.std())


def model(seed: int = 0, **settings: Any) -> VideoSimilarity:
    built = VideoSimilarity(SimilarityConfig(**{"dims": 16, **settings})).eval()
    lively(built, seed)
    if built.comparator is not None:
        sample = (video(60, seed, dims=built.config.dims) for seed in (98, 99))
        centre(built.comparator, built.frame_matrix(*sample).detach())
    return built


def comparator(seed: int = 0) -> Comparator:
    built = Comparator()
    lively(built, seed)
    centre(built, torch.randn(60, 60, generator=torch.Generator().manual_seed(seed)))
    return built


def video(frames: int, seed: int = 0, *, regions: int = 4, dims: int = 16) -> Tensor:
    generator = torch.Generator().manual_seed(1000 * seed + frames)
    return F.normalize(torch.randn(frames, regions, dims, generator=generator), dim=-1)


VARIANTS: dict[str, dict[str, Any]] = {
    "hap-vr": {},
    "topk that counts": {"spatial_keep_rate": 0.5, "temporal_keep_rate": 0.4},
    "s2vs": {"spatial": "chamfer", "temporal": "chamfer", "min_frames": 4},
    "dns binary": {"weighting": "binary", "bits": 24, "spatial": "chamfer", "temporal": "chamfer"},
    "visil_f": {"weighting": "none", "comparator": False, "spatial": "chamfer", "temporal": "chamfer"},
    "visil_f, any length": {"weighting": "none", "comparator": False, "temporal_keep_rate": 0.3, "min_frames": 1},
    "residual": {"residual": True, "temporal_keep_rate": 0.4},
    "residual, leaky": {"residual": True, "negative_slope": 0.3, "temporal_keep_rate": 0.4},
    "projected": {"projection": True, "temporal_keep_rate": 0.4},
    "projected only": {"projection": True, "weighting": "none", "comparator": False, "min_frames": 1},
    "max": {"spatial": "max", "temporal": "max"},
    "average": {"spatial": "average", "temporal": "average"},
    "symmetric average": {"symmetry": "average", "temporal_keep_rate": 0.4},
    "symmetric levels": {"symmetry": "levels", "temporal_keep_rate": 0.4},
    "symmetric by lengths": {"symmetry": "lengths", "temporal_keep_rate": 0.4},
}
