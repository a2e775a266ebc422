"""Frame hashing: the floor. Each frame becomes 256 bits of its coarse frequencies.

Original: vPDQ (Meta, ThreatExchange, 2021): PDQ hashes of sampled frames, 256 signs of a discrete cosine transform of
the luma at 64 x 64; two frames match if at most 31 bits differ, and the share of matching frames decides.

Kept: 16 x 16 frequencies of a 64 x 64 luma, thresholds at their median, the distance of a match, the share of query
frames that have one.

Adapted: pictures come through the same interface as regions do: "features" [T, 64, 64] whose rows are those of
grey pictures (`hapvr.methods.pictures` makes such files). The mean similarity of best frames is added with a weight of
a thousandth, so that videos of equal shares have an order. This is our own code: the package `pdqhash` has no
wheels for all platforms and would be the only compiled dependency of a floor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from hapvr.config import Within
from hapvr.features import Features
from hapvr.methods.base import Description, Method, Reads, Settings, count_bytes, require_descriptions, take_times
from hapvr.methods.registry import register

_KEPT = 16  # frequencies of a side
_TIES = 1e-3  # weight of the mean similarity, below any difference in the share of a video of under 1,000 frames
_CELLS = 1 << 24  # frame pairs compared at a time


@dataclass(frozen=True)
class HashSettings(Settings):
    """When two frames match."""

    max_distance: Annotated[int, Within(0, 256)] = 31  # bits that differ


@register
class Hashing(Method[HashSettings]):
    """Hashes of frames."""

    name, title = "hash", "frame hashing (vPDQ)"
    reads: ClassVar[Reads] = "pictures"
    settings_type: ClassVar[type[Settings]] = HashSettings
    trials = ({}, {"max_distance": 48}, {"max_distance": 64}, {"max_distance": 80})
    localises: bool = True

    @torch.no_grad()
    def describe(self, features: Features) -> Description:
        """Signs [T, 256], -1 or 1."""
        codes = compute_hashes(self.take_regions(features))
        return Description(codes, take_times(features), count_bytes(codes, bits=1))

    @torch.no_grad()
    def score(self, queries: Sequence[Description], targets: Sequence[Description]) -> Tensor:
        """The share of query frames with a target frame within `max_distance` bits; see the card for equal shares."""
        require_descriptions(queries, targets)
        frames = torch.cat([one.values.to(self.device) for one in targets])  # [W, 256]
        lengths = torch.tensor([len(one.values) for one in targets], device=self.device)
        owner = torch.arange(len(targets), device=self.device).repeat_interleave(lengths)  # [W]
        rows = []
        for query in queries:
            parts = []
            for part in torch.split(query.values.to(self.device), max(1, _CELLS // len(frames))):
                similarity = part @ frames.T  # [Tq, W], 256 - 2 x distance
                best = similarity.new_full((len(part), len(targets)), -torch.inf)
                parts.append(best.scatter_reduce(1, owner.expand(len(part), -1), similarity, "amax"))
            best = torch.cat(parts)  # [Tq, N]
            share = (best >= _KEPT**2 - 2 * self.settings.max_distance).float().mean(0)
            rows.append(share + _TIES * best.mean(0) / _KEPT**2)
        return torch.stack(rows).cpu()

    @torch.no_grad()
    def frame_matrix(self, query: Description, target: Description) -> Tensor:
        """The share of equal bits less that of others, in [-1, 1]."""
        return query.values.to(self.device) @ target.values.to(self.device).T / _KEPT**2


def compute_hashes(pictures: Tensor) -> Tensor:
    """Signs of 16 x 16 coarse frequencies about their median, of grey pictures: [T, S, S] -> [T, 256], -1 or 1.

    The constant frequency is left out: it says how bright a picture is.
    """
    size = pictures.shape[1]
    place = torch.arange(size, dtype=torch.float64, device=pictures.device)
    number = torch.arange(1, _KEPT + 1, dtype=torch.float64, device=pictures.device)
    waves = (torch.pi / size * (place + 0.5) * number[:, None]).cos()  # [16, S]
    found = torch.einsum("is,tsu,ju->tij", waves, pictures.double(), waves).flatten(1)  # [T, 256]
    return torch.where(found > found.median(1, keepdim=True).values, 1.0, -1.0)
