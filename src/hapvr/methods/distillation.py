"""Learning from a teacher, as DnS's students do (Kordopatis-Zilos et al., IJCV 2022, arXiv:2106.13266)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from hapvr import weights
from hapvr.errors import ConfigError, ShapeError
from hapvr.methods.base import Report, Settings
from hapvr.methods.clips import Clips
from hapvr.methods.hapvr import HAPVR
from hapvr.methods.networks import NetworkMethod
from hapvr.methods.registry import PART, load_method
from hapvr.model import load_network
from hapvr.similarity import VideoSimilarity


@dataclass(frozen=True)
class TeacherSettings(Settings):
    """Who teaches: a fitted network's folder, a model's name or folder; "" fits HAP-VR on the same clips first."""

    teacher: str = ""


def find_teacher(name: str, clips: Clips, *, device: torch.device, seed: int, report: Report | None) -> VideoSimilarity:
    """The network that teaches, frozen, on a device; see `TeacherSettings`."""
    if not name:
        method = HAPVR(clips.dims).to(device)
        method.fit(clips, seed=seed, report=report)
        network = method.network
    elif (Path(name) / weights.CONFIG).is_file() and PART in weights.part_names(name):
        found = load_method(name, device=device)[0]
        if not isinstance(found, NetworkMethod):
            raise ConfigError(f"'{name}' holds {found.title}, which is no network on region vectors: it cannot teach.")
        network = found.network
    else:
        network = load_network(name, device=device)
    if network.config.dims != clips.dims[1]:
        raise ShapeError(
            f"The teacher '{name}' takes {network.config.dims} dims, the clips have {clips.dims[1]}. Give a teacher "
            "for these features."
        )
    return network.eval().requires_grad_(False)


def compute_distillation_loss(scores: Tensor, taught: Tensor, relevance: Tensor, itself: Tensor) -> Tensor:
    """The mean |s - s_T| over the pairs that match, and over those that do not, each half: scores [N, N].

    So pairs that match, which are few in a batch, weigh as much as the others: DnS draws as many of each.

    >>> scores, taught = torch.tensor([[1.0, 0.5], [0.0, 1.0]]), torch.tensor([[1.0, 0.9], [0.2, 1.0]])
    >>> relevance, itself = torch.tensor([[True, True], [False, True]]), torch.eye(2, dtype=torch.bool)
    >>> round(float(compute_distillation_loss(scores, taught, relevance, itself)), 4)       # (0.4 + 0.2) / 2
    0.3
    """
    error = (scores.float() - taught.float()).abs()
    parts = [error * mask for mask in (relevance & ~itself, ~relevance)]
    counts = [mask.sum().clamp(min=1) for mask in (relevance & ~itself, ~relevance)]
    return sum((part.sum() / count for part, count in zip(parts, counts, strict=True)), scores.new_zeros(())) / 2
