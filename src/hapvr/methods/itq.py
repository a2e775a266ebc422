"""Iterative quantisation: the rotation under which signs lose least (Gong and Lazebnik, CVPR 2011)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from hapvr.errors import ConfigError

_TURNS = 30  # of codes and rotation


@dataclass(frozen=True, eq=False)
class Rotation:
    """What `fit_rotation` found."""

    projection: Tensor  # [D, bits], the principal directions times the rotation
    rotation: Tensor  # [bits, bits], orthogonal
    errors: tuple[float, ...]  # mean squared distance of projected vectors to their signs, before and after each turn


@torch.no_grad()
def fit_rotation(vectors: Tensor, *, bits: int, seed: int = 0) -> Rotation:
    """Principal directions of unit vectors [N, D], and the rotation R that brings V = X W nearest to its signs.

        B = sign(V R) / sqrt(bits);   R = the orthogonal matrix with least |B - V R|, by the SVD of V^T B

    in turns; neither step raises the error. The mean is not taken off, since `Binarization` takes none off. More bits
    than dims are refused.
    """
    dims = vectors.shape[1]
    if not 1 <= bits <= dims:
        raise ConfigError(f"ITQ makes 1 to {dims} bits of {dims} dims, got {bits}.")
    unit = F.normalize(vectors.double(), dim=1)
    _, directions = torch.linalg.eigh(unit.T @ unit)
    principal = directions.flip(1)[:, :bits]  # [D, bits], largest first
    projected = unit @ principal  # [N, bits]
    start = torch.randn(bits, bits, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    rotation = torch.linalg.qr(start.to(vectors.device))[0]
    errors = [_measure_error(projected @ rotation)]
    for _ in range(_TURNS):
        codes = torch.sign(projected @ rotation) / bits**0.5
        left, _, right = torch.linalg.svd(projected.T @ codes)
        rotation = left @ right
        errors.append(_measure_error(projected @ rotation))
    return Rotation((principal @ rotation).to(vectors.dtype), rotation, tuple(errors))


def _measure_error(values: Tensor) -> float:
    return float((torch.sign(values) / values.shape[1] ** 0.5 - values).square().sum(1).mean())
