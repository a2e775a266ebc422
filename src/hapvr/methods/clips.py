"""What methods learn from: videos and their edited copies as region vectors, and which show the same.

A folder of `hapvr make-benchmark` on training videos is such a set: its database holds the originals, its queries the
copies, and its ground truth says which belongs to which. Clips of all videos have as many frames, so that a batch needs
no padding: of a longer video a stretch is taken, a shorter one is repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from hapvr.errors import DataError
from hapvr.evaluation.benchmarks import Benchmark, TrueSegment, open_benchmark
from hapvr.evaluation.scoring import match_names
from hapvr.features import FeatureFile, Features
from hapvr.storage import StrPath
from hapvr.training.step import NOTHING, Batch

_HALF = torch.float16
_POOLED = 4096  # frames pooled at a time


@dataclass(frozen=True, eq=False)
class Clips:
    """Originals and their copies. All frames lie end to end in one tensor, which `to` moves to a GPU."""

    ids: tuple[str, ...]
    frames: Tensor  # float16 [F, R, D] of all videos
    starts: Tensor  # int64 [N], where a video begins
    lengths: Tensor  # int64 [N]
    contents: Tensor  # int64 [N, K], the originals that a video shows, by their place in `ids`; the rest is NOTHING
    times: tuple[NDArray[np.float64], ...]  # [T] seconds of each video's frames
    segments: Mapping[str, tuple[TrueSegment, ...]]  # of the copies

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def dims(self) -> tuple[int, int]:
        """R and D."""
        return self.frames.shape[1], self.frames.shape[2]

    def to(self, device: torch.device | str) -> Clips:
        """The same with its frames on another device."""
        return replace(self, frames=self.frames.to(device))

    def pool(self) -> Clips:
        """The same with one vector a frame, the mean of its regions, of unit length: for methods that see no more."""
        means = (part.float().mean(1, keepdim=True) for part in torch.split(self.frames, _POOLED))
        return replace(self, frames=torch.cat([F.normalize(mean, dim=-1).to(_HALF) for mean in means]))

    def features(self, place: int) -> Features:
        """The features of one video."""
        start, length = int(self.starts[place]), int(self.lengths[place])
        return Features(self.frames[start : start + length].float(), self.times[place])

    @property
    def copies(self) -> list[int]:
        """The places of the copies that show an original which is here too."""
        own = self.contents[:, 0]
        return [place for place in range(len(self)) if own[place] not in (NOTHING, place)]

    def draw(self, *, batch: int, frames: int, generator: torch.Generator) -> Batch:
        """Clips of some originals and of a copy of each: [2 batch, frames, R, D], originals first.

        Original and copy are cut at the same share of their lengths, so that most pairs show the same seconds.
        """
        copies = torch.tensor(self.copies)
        if len(copies) < 2:
            raise DataError(f"A method learns from at least 2 edited copies with their originals, got {len(copies)}.")
        chosen = copies[torch.randperm(len(copies), generator=generator)]
        originals = self.contents[chosen, 0]
        # No original twice, though it may have several copies.
        _, first = np.unique(originals.numpy(), return_index=True)
        chosen = chosen[torch.from_numpy(np.sort(first))][:batch]
        places = torch.cat([self.contents[chosen, 0], chosen])
        share = torch.rand(len(chosen), generator=generator).repeat(2)
        lengths = self.lengths[places]
        begin = (share * (lengths - frames + 1).clamp(min=1)).long()
        rows = self.starts[places, None] + (begin[:, None] + torch.arange(frames)) % lengths[:, None]  # [2 batch, T]
        device = self.frames.device
        return Batch(self.frames[rows.to(device)].float(), self.contents[places].to(device))


def make_clips(
    videos: Mapping[str, Features],
    copies: Mapping[str, Sequence[str]],
    segments: Mapping[str, tuple[TrueSegment, ...]] | None = None,
) -> Clips:
    """Clips of videos by id; `copies` has the originals that each copy shows, `segments` where.

    >>> video = Features(torch.ones(5, 1, 4))
    >>> clips = make_clips({"a": video, "b": video, "a-copy": video}, {"a-copy": ["a"]})
    >>> clips.contents.tolist(), clips.copies
    ([[0], [1], [0]], [2])
    """
    if not videos:
        raise DataError("There is no video to learn from.")
    place = {id: number for number, id in enumerate(videos)}
    shown = {id: [place[one] for one in copies.get(id, ()) if one in place] or [place[id]] for id in videos}
    contents = torch.full((len(videos), max(map(len, shown.values()))), NOTHING)
    for id, numbers in shown.items():
        contents[place[id], : len(numbers)] = torch.tensor(numbers)
    kept = {id: features.drop_flat().with_timestamps(1.0) for id, features in videos.items()}
    lengths = torch.tensor([len(features) for features in kept.values()])
    return Clips(
        ids=tuple(videos),
        frames=torch.cat([features.regions.to(_HALF) for features in kept.values()]),
        starts=lengths.cumsum(0) - lengths,
        lengths=lengths,
        contents=contents,
        times=tuple(features.times for features in kept.values()),
        segments=dict(segments or {}),
    )


def read_clips(benchmark: Benchmark | StrPath, features: StrPath) -> Clips:
    """Originals and copies of a made benchmark, from the HDF5 file of their features.

    A copy shows the targets that are its positives. Videos without features are left out.
    """
    truth = benchmark if isinstance(benchmark, Benchmark) else open_benchmark(benchmark)
    positive = {label for task in truth.tasks for label in task.labels}
    copies = {
        query: [target for target, label in row.items() if label in positive] for query, row in truth.labels.items()
    }
    with FeatureFile.open(features, dtype=None) as file:
        names = match_names([*truth.queries, *truth.database], file)
        ids = [id for id in dict.fromkeys([*truth.database, *truth.queries]) if id in names]
        if not ids:
            raise DataError(f"'{file.path}' has no video of {truth.name}. Is it the file of another benchmark?")
        read = dict(file.stream(names[id] for id in ids))
    return make_clips({id: read[names[id]] for id in ids}, copies, truth.segments)
