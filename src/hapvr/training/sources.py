"""Where the batches of a run come from. A batch is a function of the seed and the step, so a run can stop anywhere.

Batches may hold groups of look-alikes. In a batch drawn at random hardly any two videos look alike, and what tells
look-alikes apart is not learnt from it. A group is a video and those that resemble it most. Look-alikes count as
different videos, so the material should not hold the same footage twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from hapvr.errors import ConfigError, DataError, ShapeError
from hapvr.training.augment import ViewConfig, make_views
from hapvr.training.clips import ClipRequest, ClipSet
from hapvr.training.config import DataConfig
from hapvr.training.distributed import rank, world_size
from hapvr.training.encoder import Encoder
from hapvr.training.step import Batch, list_contents

_ENTRIES = 2**22  # of the table of neighbours: up to 2,048 videos it holds all of each
_MIN_LISTED = 8  # groups' worth of neighbours in the table
_ROWS = 2**24  # cosines held at a time, and values of views that are averaged

Timed = Callable[[str], AbstractContextManager[None]]


class Clock:
    """Adds up seconds by name. While it is `exact` it waits for the GPU, so that work counts where it was asked for.

    >>> clock = Clock(torch.device("cpu"))
    >>> with clock("load"):
    ...     pass
    >>> list(clock.take())
    ['load']
    """

    def __init__(self, device: torch.device) -> None:
        self.exact = True
        self._gpu = device.type == "cuda"
        self._seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Count the time of a block under `name`."""
        self._wait()
        start = time.perf_counter()
        try:
            yield
        finally:
            self._wait()
            self._seconds[name] = self._seconds.get(name, 0.0) + time.perf_counter() - start

    def take(self) -> dict[str, float]:
        """The seconds by name since the last call."""
        seconds, self._seconds = self._seconds, {}
        return seconds

    def _wait(self) -> None:
        if self.exact and self._gpu:
            torch.cuda.synchronize()


class Source(Protocol):
    """Gives the batch of a step."""

    def batch(self, step: int, timed: Timed) -> Batch:
        """The clips of this process for a step (from 0); `timed(name)` is entered around each part of the work."""
        ...


def derive_seed(seed: int, *path: int) -> int:
    """A seed for each purpose and number: mixed, so that neighbours have nothing in common.

    >>> derive_seed(0, 1) == derive_seed(0, 1), derive_seed(0, 1) == derive_seed(1, 0)
    (True, False)
    """
    return int(np.random.SeedSequence([seed, *path]).generate_state(1, np.uint64)[0] >> np.uint64(1))


def draw_videos(
    step: int,
    *,
    videos: int,
    batch: int,
    seed: int,
    alike: LookAlikes | None = None,
    shuffle: Callable[[int], Tensor] | None = None,
) -> Tensor:
    """The numbers [batch] of the videos that this process looks at in a step.

    Each epoch goes through all videos in another order, `shuffle(seed)`, by default any; what does not fill a batch of
    all processes is left to other epochs. `alike` rearranges that order, so that batches hold groups of look-alikes.
    `DataError` if there are fewer videos than such a batch.

    >>> first, second = (draw_videos(step, videos=5, batch=2, seed=0) for step in (0, 1))
    >>> len({*first.tolist(), *second.tolist()})
    4
    """
    whole = batch * world_size()
    if videos < whole:
        share = f" ({batch} for each of {world_size()} processes)" if world_size() > 1 else ""
        raise DataError(
            f"there are {videos} videos, fewer than a batch of {whole}{share}. Give more, or a smaller data.batch."
        )
    epoch, place = divmod(step, videos // whole)
    epoch_seed = derive_seed(seed, 0, epoch)
    if shuffle is None:
        order = torch.randperm(videos, generator=torch.Generator().manual_seed(epoch_seed))
    else:
        order = shuffle(epoch_seed)
    if alike is not None:
        order = alike.arrange(order, whole)
    return order[place * whole :][rank() * batch : (rank() + 1) * batch]


def draw_batch(clips: ClipSet, step: int, data: DataConfig, *, seed: int, alike: LookAlikes | None) -> tuple[int, ...]:
    """The numbers of the videos of a set that this process looks at in a step."""
    videos = draw_videos(step, videos=len(clips), batch=data.batch, seed=seed, alike=alike, shuffle=clips.shuffle)
    return tuple(videos.tolist())


class ClipSource:
    """Cuts a window of twice the views' frames out of each video, makes both views of it, and describes them.

    A video that is shorter gives all its frames; they are repeated until they fill a view. Look-alikes are found by a
    weak view of each video.
    """

    def __init__(self, clips: ClipSet, encoder: Encoder, data: DataConfig, *, views: ViewConfig, seed: int) -> None:
        self.clips, self.encoder, self.data, self.views, self.seed = clips, encoder, data, views, seed
        self.alike = find_look_alikes(self._compute_vectors, len(clips), data, device=encoder.device)

    def batch(self, step: int, timed: Timed = lambda _: nullcontext()) -> Batch:
        """See `Source`."""
        with timed("load"):
            numbers, drawn = self.clips.fetch(step, self._make_request)
            videos, windows = torch.tensor(numbers), [window for window, _ in drawn]
        with timed("augment"):
            seed = derive_seed(self.seed, 2, step, rank())
            views = make_views(windows, config=self.views, seed=seed, device=self.encoder.device)
        with timed("extract"):
            encoded = self.encoder(views.pictures)
        contents = list_contents(torch.from_numpy(views.plan.content), videos)  # from the CPU: no wait for the GPU
        return Batch(encoded.regions, contents.to(encoded.regions.device), encoded.frames)

    def _make_request(self, step: int) -> ClipRequest:
        videos = draw_batch(self.clips, step, self.data, seed=self.seed, alike=self.alike)
        return ClipRequest(videos, 2 * self.views.frames, derive_seed(self.seed, 1, step, rank()))

    def _compute_vectors(self) -> Tensor:
        return compute_clip_vectors(
            self.clips, self.encoder, self.views, length=2 * self.views.frames, batch=self.data.batch, seed=self.seed
        )


# --- look-alikes -----------------------------------------------------------------------------------------------------


class LookAlikes:
    """Rearranges an epoch's order of videos so that batches hold groups of look-alikes.

    Args:
        neighbours: int64 [V, K], for each video those most like it, the most similar first.
        share: of a batch, from 0 to 1; rounded to whole groups.
        group: videos of a group.

    Example: of videos 0 to 3, 0 resembles 2 and 1 resembles 3; batches of two are made of whole groups.
        >>> pairs = LookAlikes(torch.tensor([[2, 1, 3], [3, 0, 2], [0, 1, 3], [1, 0, 2]]), share=1.0, group=2)
        >>> pairs.arrange(torch.tensor([3, 0, 1, 2]), 2).tolist()
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

    def arrange(self, order: Tensor, whole: int) -> Tensor:
        """The same videos in an order whose consecutive batches of `whole` hold the groups first, then the others.

        Going through the order given, each video that is in no group yet is joined by those most like it that are in
        none either; where its neighbours are all taken, by the next videos of the order. What fills no batch is last.
        """
        if self._last is not None and self._last[1] == whole and torch.equal(self._last[0], order):
            return self._last[2]
        batches, each = len(order) // whole, _count_groups(whole, self.share, self.group)
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


def find_look_alikes(
    vectors: Callable[[], Tensor], videos: int, data: DataConfig, *, device: torch.device
) -> LookAlikes | None:
    """The groups of videos with these vectors [V, D], the same in all processes; None if data.alike is 0.

    `vectors` is called in the first process alone, where neighbours are looked for, on `device`. `DataError` if there
    are fewer videos than a batch.
    """
    draw_videos(0, videos=videos, batch=data.batch, seed=0)  # refuses too few
    if data.alike == 0:
        return None
    whole = data.batch * world_size()
    if not _count_groups(whole, data.alike, data.group):
        raise ConfigError(
            f"data.alike={data.alike:g} of a batch of {whole} videos is no group of {data.group}. Give a larger share, "
            "or a smaller data.group."
        )
    count = min(videos - 1, max(_MIN_LISTED * data.group, _ENTRIES // videos))
    if rank() == 0:
        found = vectors()
        if len(found) != videos:
            raise ShapeError(f"there are {videos} videos and vectors of {len(found)}.")
        if not bool(torch.isfinite(found).all()):
            raise DataError("the mean vectors of some videos are not finite: they have no neighbours.")
        neighbours = find_neighbours(found.to(device), count)
    else:
        neighbours = torch.empty(videos, count, dtype=torch.int64, device=device)
    if world_size() > 1:  # one table for all: rounding may order nearly equal cosines differently on two machines
        dist.broadcast(neighbours, src=0)
    return LookAlikes(neighbours, share=data.alike, group=data.group)


def find_neighbours(vectors: Tensor, count: int) -> Tensor:
    """For each of the vectors [V, D] of unit length the numbers [V, count] of those most like it, without itself.

    Of equally similar ones the lower number comes first.

    >>> find_neighbours(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6]]), 2).tolist()
    [[2, 1], [2, 0], [0, 1]]
    """
    rows = []
    for own in torch.split(torch.arange(len(vectors), device=vectors.device), max(1, _ROWS // max(1, len(vectors)))):
        cosines = vectors[own] @ vectors.T
        cosines[torch.arange(len(own), device=vectors.device), own] = -torch.inf
        rows.append(cosines.sort(dim=1, descending=True, stable=True).indices[:, :count])
    return torch.cat(rows)


def compute_mean_vectors(regions: Tensor) -> Tensor:
    """One vector of unit length for each video: region vectors [V, W, T, R, D] of its views -> float32 [V, D].

    >>> compute_mean_vectors(torch.tensor([[3.0, 0.0], [0.0, 4.0]]).view(1, 1, 2, 1, 2)).tolist()
    [[0.6000000238418579, 0.800000011920929]]
    """
    if regions.ndim != 5:
        raise ShapeError(f"regions must be [V, W, T, R, D], got {list(regions.shape)}.")
    at_once = max(1, _ROWS // max(1, regions[0].numel())) if len(regions) else 1
    means = [part.float().mean(dim=(1, 2, 3)) for part in torch.split(regions, at_once)]
    return F.normalize(torch.cat(means), dim=-1)


def compute_clip_vectors(
    clips: ClipSet, encoder: Encoder, views: ViewConfig, *, length: int, batch: int, seed: int
) -> Tensor:
    """The mean vectors [V, D] of a weak view of each video, made of a window of `length` frames, `batch` at a time."""
    parts = []
    for first in range(0, len(clips), batch):
        numbers = range(first, min(first + batch, len(clips)))
        windows = clips.draw(numbers, length=length, seed=derive_seed(seed, 7, first))
        made = make_views(windows, config=views, seed=derive_seed(seed, 8, first), device=encoder.device)
        parts.append(compute_mean_vectors(encoder(made.pictures[: len(numbers)]).regions[:, None]))
    return torch.cat(parts)


def _count_groups(whole: int, share: float, group: int) -> int:
    return min(whole // group, round(share * whole / group))
