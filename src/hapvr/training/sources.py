"""Where the batches of a run come from. A batch is a function of the seed and the step, so a run can stop anywhere."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from hapvr.errors import DataError
from hapvr.training.alike import LookAlikes, mean_vectors
from hapvr.training.augment import ViewConfig, make_views
from hapvr.training.clips import ClipSet
from hapvr.training.distributed import rank, world_size
from hapvr.training.encoder import Encoder
from hapvr.training.step import Batch, contents_of

Timed = Callable[[str], AbstractContextManager[None]]


class Source(Protocol):
    """Gives the batch of a step."""

    def batch(self, step: int, timed: Timed) -> Batch:
        """The clips of this process for a step (from 0); `timed(name)` is entered around each part of the work."""
        ...


def seed_of(seed: int, *path: int) -> int:
    """A seed of its own for each purpose and number: mixed, so that neighbours have nothing in common.

    >>> seed_of(0, 1) == seed_of(0, 1), seed_of(0, 1) == seed_of(1, 0)
    (True, False)
    """
    return int(np.random.SeedSequence([seed, *path]).generate_state(1, np.uint64)[0] >> np.uint64(1))


def drawn_videos(step: int, *, videos: int, batch: int, seed: int, alike: LookAlikes | None = None) -> Tensor:
    """The numbers [batch] of the videos that this process looks at in a step.

    Each epoch goes through all videos in an order of its own; what does not fill a batch of all processes is left to
    other epochs. `alike` rearranges that order, so that batches hold groups of look-alikes. `DataError` if there are
    fewer videos than such a batch.

    >>> first, second = (drawn_videos(step, videos=5, batch=2, seed=0) for step in (0, 1))
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
    order = torch.randperm(videos, generator=torch.Generator().manual_seed(seed_of(seed, 0, epoch)))
    if alike is not None:
        order = alike.arranged(order, whole)
    return order[place * whole :][rank() * batch : (rank() + 1) * batch]


class ClipSource:
    """Cuts a window of twice the views' frames out of each video, makes both views of it, and describes them.

    A video that is shorter gives all its frames; they are repeated until they fill a view.

    Args:
        clips: the videos.
        encoder: backbone and teacher.
        views: how views are made.
        batch: videos a step and process.
        seed: of all that is drawn.
        alike: the share of a batch that is drawn as groups of look-alikes; they are found by a weak view of each video.
        group: videos of such a group.
    """

    def __init__(
        self,
        clips: ClipSet,
        encoder: Encoder,
        *,
        views: ViewConfig,
        batch: int,
        seed: int,
        alike: float = 0.0,
        group: int = 8,
    ) -> None:
        drawn_videos(0, videos=len(clips), batch=batch, seed=seed)  # refuses too few
        self.clips, self.encoder, self.views, self.size, self.seed = clips, encoder, views, batch, seed
        self.alike = LookAlikes.of(
            self._vectors, videos=len(clips), share=alike, group=group, batch=batch, device=encoder.device
        )

    def batch(self, step: int, timed: Timed = lambda _: nullcontext()) -> Batch:
        """See `Source`."""
        with timed("load"):
            videos = drawn_videos(step, videos=len(self.clips), batch=self.size, seed=self.seed, alike=self.alike)
            seed = seed_of(self.seed, 1, step, rank())
            windows = self.clips.draw(videos.tolist(), length=2 * self.views.frames, seed=seed)
        with timed("augment"):
            seed = seed_of(self.seed, 2, step, rank())
            views = make_views(windows, config=self.views, seed=seed, device=self.encoder.device)
        with timed("extract"):
            encoded = self.encoder(views.pictures)
        contents = contents_of(torch.from_numpy(views.plan.content), videos)  # from the CPU: no wait for the GPU
        return Batch(encoded.regions, contents.to(encoded.regions.device), encoded.frames)

    def _vectors(self) -> Tensor:
        """The mean vectors [V, D] of a weak view of each video."""
        parts = []
        for first in range(0, len(self.clips), self.size):
            videos = range(first, min(first + self.size, len(self.clips)))
            windows = self.clips.draw(videos, length=2 * self.views.frames, seed=seed_of(self.seed, 7, first))
            views = make_views(
                windows, config=self.views, seed=seed_of(self.seed, 8, first), device=self.encoder.device
            )
            parts.append(mean_vectors(self.encoder(views.pictures[: len(videos)]).regions[:, None]))
        return torch.cat(parts)
