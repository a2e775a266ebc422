"""Batches of look-alikes: which videos resemble each other, and an epoch's order in which they come together.

In a batch drawn by lot hardly any two videos look alike, and what tells look-alikes apart is not learnt from it. Here a
share of each batch consists of groups: a video and those that resemble it most. Look-alikes count as different videos,
so the material should not hold the same footage twice.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from hapvr.errors import ConfigError, DataError, ShapeError
from hapvr.training.distributed import rank, world_size

_ENTRIES = 2**22  # of the table of neighbours: up to 2,048 videos it holds all of each
_LISTED = 8  # groups' worth of neighbours that it holds at least
_ROWS = 2**24  # cosines that are held at a time, and values of views that are averaged


def mean_vectors(regions: Tensor) -> Tensor:
    """One vector of unit length for each video: region vectors [V, W, T, R, D] of its views -> float32 [V, D].

    >>> mean_vectors(torch.tensor([[3.0, 0.0], [0.0, 4.0]]).view(1, 1, 2, 1, 2)).tolist()
    [[0.6000000238418579, 0.800000011920929]]
    """
    if regions.ndim != 5:
        raise ShapeError(f"regions must be [V, W, T, R, D], got {list(regions.shape)}.")
    at_once = max(1, _ROWS // max(1, regions[0].numel())) if len(regions) else 1
    means = [part.float().mean(dim=(1, 2, 3)) for part in torch.split(regions, at_once)]
    return F.normalize(torch.cat(means), dim=-1)


def nearest(vectors: Tensor, count: int) -> Tensor:
    """For each of the vectors [V, D] of unit length the numbers [V, count] of those most like it, without itself.

    Of equally similar ones the lower number comes first.

    >>> nearest(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6]]), 2).tolist()
    [[2, 1], [2, 0], [0, 1]]
    """
    rows = []
    for own in torch.split(torch.arange(len(vectors), device=vectors.device), max(1, _ROWS // max(1, len(vectors)))):
        cosines = vectors[own] @ vectors.T
        cosines[torch.arange(len(own), device=vectors.device), own] = -torch.inf
        rows.append(cosines.sort(dim=1, descending=True, stable=True).indices[:, :count])
    return torch.cat(rows)


class LookAlikes:
    """Rearranges an epoch's order of videos so that batches hold groups of look-alikes.

    Args:
        neighbours: int64 [V, K], for each video those most like it, the most similar first.
        share: of a batch, from 0 to 1; rounded to whole groups.
        group: videos of a group.

    Example: of videos 0 to 3, 0 resembles 2 and 1 resembles 3; batches of two are made of whole groups.
        >>> pairs = LookAlikes(torch.tensor([[2, 1, 3], [3, 0, 2], [0, 1, 3], [1, 0, 2]]), share=1.0, group=2)
        >>> pairs.arranged(torch.tensor([3, 0, 1, 2]), 2).tolist()
        [3, 1, 0, 2]
    """

    def __init__(self, neighbours: Tensor, *, share: float, group: int) -> None:
        if neighbours.ndim != 2 or neighbours.dtype != torch.int64:
            raise ShapeError(f"neighbours must be int64 [V, K], got {neighbours.dtype} {list(neighbours.shape)}.")
        if not 0 < share <= 1 or group < 2:
            raise ConfigError(f"share must lie in 0..1 and group be at least 2, got {share} and {group}.")
        self.neighbours = neighbours.cpu().numpy()
        self.share, self.group = share, group
        self._last: tuple[Tensor, int, Tensor] | None = None  # an epoch's order is asked for at each of its steps

    @classmethod
    def of(
        cls,
        vectors: Callable[[], Tensor],
        *,
        videos: int,
        share: float,
        group: int,
        batch: int,
        device: torch.device,
    ) -> LookAlikes | None:
        """The groups of videos with these vectors [V, D], the same in all processes; None if the share is 0.

        Args:
            vectors: called in the first process alone, where neighbours are looked for.
            videos: V.
            share: of a batch.
            group: videos of a group.
            batch: videos a step and process, of which the share must be half a group at least.
            device: where they are looked for, and that the processes speak through.
        """
        if share == 0:
            return None
        whole = batch * world_size()
        if not _groups(whole, share, group):
            raise ConfigError(
                f"data.alike={share:g} of a batch of {whole} videos is no group of {group}. Give a larger share, or a "
                "smaller data.group."
            )
        count = min(videos - 1, max(_LISTED * group, _ENTRIES // videos))
        if rank() == 0:
            found = vectors()
            if len(found) != videos:
                raise ShapeError(f"there are {videos} videos and vectors of {len(found)}.")
            if not bool(torch.isfinite(found).all()):
                raise DataError("the mean vectors of some videos are not finite: they have no neighbours.")
            neighbours = nearest(found.to(device), count)
        else:
            neighbours = torch.empty(videos, count, dtype=torch.int64, device=device)
        if world_size() > 1:  # one table for all: of nearly equal cosines two machines might see another one larger
            dist.broadcast(neighbours, src=0)
        return cls(neighbours, share=share, group=group)

    def arranged(self, order: Tensor, whole: int) -> Tensor:
        """The same videos in an order whose consecutive batches of `whole` hold the groups first, then the others.

        Going through the order given, each video that is in no group yet is joined by those most like it that are in
        none either; where its neighbours are all taken, by the next videos of the order. What fills no batch is last.
        """
        if self._last is not None and self._last[1] == whole and torch.equal(self._last[0], order):
            return self._last[2]
        batches, each = len(order) // whole, _groups(whole, self.share, self.group)
        free = np.ones(len(order), dtype=bool)
        wanted = order.numpy()
        groups: list[np.ndarray] = []
        place = 0
        while len(groups) < batches * each:
            while not free[wanted[place]]:
                place += 1
            founder = wanted[place]
            free[founder] = False
            row = self.neighbours[founder]
            others = row[free[row]][: self.group - 1]
            free[others] = False
            if lacking := self.group - 1 - len(others):
                rest = wanted[place:]
                more = rest[free[rest]][:lacking]
                free[more] = False
                others = np.concatenate([others, more])
            groups.append(np.concatenate([[founder], others]))
        singles = wanted[free[wanted]]
        alone = whole - each * self.group
        parts = []
        for number in range(batches):
            parts += groups[number * each : (number + 1) * each]
            parts.append(singles[number * alone : (number + 1) * alone])
        parts.append(singles[batches * alone :])
        arranged = torch.from_numpy(np.concatenate(parts))
        self._last = (order, whole, arranged)
        return arranged


def _groups(whole: int, share: float, group: int) -> int:
    """How many groups a batch holds."""
    return min(whole // group, round(share * whole / group))
