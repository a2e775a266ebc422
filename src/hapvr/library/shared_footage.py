"""Footage that many videos of a library share: title screens, end cards, countdowns, logos on black.

Two videos that show the same end card are no copies of each other. Here is what is known of such footage: clips, each
with exemplars that the frames of any video are compared with.

- `shared_detection` finds it by the vectors that a library keeps, without decoding anything.
- `shared_file` keeps it with the version of the library, and makes it again when the contents have changed.
- `shared_matching` is the one rule of search, comparison and duplicates: what is left of two videos without shared
  footage is compared, and stretches of shared footage are marked.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from hapvr.features import Features
from hapvr.library.tables import Catalog

_SAME_FRAME = 0.8  # similarity of a frame and an exemplar: the frames of a run differ by as much


@dataclass(frozen=True)
class Occurrence:
    """Where a video shows a shared clip."""

    video: str  # id
    start_s: float
    end_s: float


@dataclass(frozen=True, eq=False)
class SharedClip:
    """Footage that occurs in many videos of a library."""

    id: str  # of its exemplars: the same footage has the same id
    seconds: float  # the median of its occurrences'
    videos: int  # different contents that show it
    occurrences: tuple[Occurrence, ...]  # some of them
    exemplars: NDArray[np.float32]  # [E, C] unit vectors

    def to_json(self) -> dict[str, Any]:
        """What `hapvr status --json` lists."""
        places = [dataclasses.asdict(one) for one in self.occurrences]
        return {"id": self.id, "seconds": self.seconds, "videos": self.videos, "occurrences": places}


@dataclass(frozen=True, eq=False)
class SharedFootage:
    """All shared clips of a library, those in the most videos first."""

    clips: tuple[SharedClip, ...] = ()
    complete: bool = True  # False for a library that is too large

    def find_frames(self, features: Features) -> NDArray[np.int64]:
        """Which clip each frame belongs to, [T]; -1 for none."""
        if not self.clips:
            return np.full(len(features), -1, np.int64)
        vectors = torch.from_numpy(np.concatenate([clip.exemplars for clip in self.clips]))
        owners = np.repeat(np.arange(len(self.clips)), [len(clip.exemplars) for clip in self.clips])
        similarities = (_make_vectors(features, vectors.shape[1]) @ vectors.T).numpy()  # [T, E]
        best = similarities.argmax(1)
        return np.where(similarities[np.arange(len(best)), best] >= _SAME_FRAME, owners[best], -1)

    def without_removed(self, catalog: Catalog) -> SharedFootage:
        """The same without occurrences in videos that were removed since."""
        clips = (
            replace(clip, occurrences=tuple(one for one in clip.occurrences if one.video in catalog))
            for clip in self.clips
        )
        return replace(self, clips=tuple(clips))


def _make_vectors(features: Features, dims: int) -> torch.Tensor:
    """A unit vector for each frame, [T, C], as those of runs are made; zero where there is none."""
    return F.normalize(features.regions.detach().cpu().float().mean(1)[:, :dims], dim=-1)
