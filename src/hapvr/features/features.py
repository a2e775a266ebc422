"""The record of a video's features: region vectors of its frames, when each was shown, and which of them count.

Flat frames (black, or of one colour) look like the flat frames of any video. Repeated frames show what the frame before
shows and add nothing. `hapvr.video.quality` flags both while a video is decoded; `Features.low_information` keeps the
flags. `select_frames`, here, decides which flagged frames a comparison leaves out, for everything that compares videos.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from hapvr.checks import require_finite, require_tensor
from hapvr.errors import DataError, ShapeError
from hapvr.records import require_times, require_vector

_FIELDS = ("timestamps", "low_information", "miniatures")
_REPEATS = 0.8  # mean cosine similarity of regions from which on a frame shows what another shows


@dataclass(frozen=True, eq=False)
class Features:
    """The region vectors of one video, and the times of its frames. Fields that are not known are None.

    `ShapeError` or `DataError` where the fields contradict each other.

    >>> features = Features(torch.ones(2, 9, 4), np.array([0.0, 1.0]))
    >>> len(features), features.timestamps.tolist()
    (2, [0.0, 1.0])
    """

    regions: Tensor  # floating point [T, R, D], at least one frame; finite
    timestamps: NDArray[np.float64] | None = None  # [T], seconds, strictly increasing; published files have none
    low_information: NDArray[np.bool_] | None = None  # [T], True where a frame is flat or repeated
    miniatures: NDArray[np.uint8] | None = None  # [T, S, S], the frames as tiny grey pictures; not in files

    def __post_init__(self) -> None:
        require_tensor(self.regions, "regions", dims=3, axes="[T, R, D]", hint="One video at a time, regions kept.")
        if 0 in self.regions.shape:
            raise DataError(f"Features hold at least one value, got regions of shape {list(self.regions.shape)}.")
        if not math.isfinite(max_magnitude(self.regions)):
            require_finite(self.regions, "regions")
        for name, dtype in (("timestamps", np.float64), ("low_information", np.bool_)):
            if getattr(self, name) is not None:
                require_vector(getattr(self, name), name, dtype, len(self.regions))
        small = self.miniatures
        if small is not None and (small.dtype != np.uint8 or small.ndim != 3 or len(small) != len(self.regions)):
            raise ShapeError(f"miniatures must be uint8 [{len(self.regions)}, S, S]; got {small.dtype} {small.shape}.")
        if self.timestamps is not None:
            require_times(self.timestamps)

    def __len__(self) -> int:
        return len(self.regions)

    @property
    def times(self) -> NDArray[np.float64]:
        """The timestamps; `DataError` where they are not known."""
        if self.timestamps is None:
            raise DataError("These features have no timestamps. Give them some with `with_timestamps`.")
        return self.timestamps

    @property
    def all_flat(self) -> bool:
        """Whether it is known that all frames are flat or repeated: a comparison says little then."""
        return self.low_information is not None and bool(self.low_information.all())

    def drop_flat(self) -> Features:
        """The frames that count in a comparison, see `select_frames`."""
        kept = select_frames(self.low_information, len(self))
        return self if len(kept) == len(self) else self.take(kept)

    def take(self, frames: NDArray[np.intp] | NDArray[np.bool_]) -> Features:
        """Some of the frames, given by their positions or by a mask [T]."""
        arrays = (self.timestamps, self.low_information, self.miniatures)
        chosen = (None if values is None else values[frames] for values in arrays)
        return Features(self.regions[torch.from_numpy(frames)], *chosen)  # type: ignore[arg-type]

    def with_timestamps(self, fps: float) -> Features:
        """The same features; where timestamps are not known, frames are taken to be 1 / fps seconds apart."""
        if self.timestamps is not None:
            return self
        return dataclasses.replace(self, timestamps=np.arange(len(self)) / fps)

    def between(self, start_s: float | None, end_s: float | None, *, name: str = "The video") -> Features:
        """The part of the video in [start_s, end_s); None means from its beginning, or to its end.

        If all frames of the part are repeated from before it, none would count: then the first of them does.

        Raises:
            DataError: no frame lies there; the message calls the video `name`.
        """
        if start_s is None and end_s is None:
            return self
        kept = (self.times >= (start_s or 0.0)) & (self.times < (math.inf if end_s is None else end_s))
        if not kept.any():
            until = "its end" if end_s is None else f"{end_s:g} s"
            raise DataError(
                f"{name} has no frame from {start_s or 0.0:g} s to {until}: its frames are of {self.times[0]:g} to "
                f"{self.times[-1]:g} s."
            )
        part = self.take(kept)
        if self.low_information is None or not part.all_flat:
            return part
        before = np.flatnonzero(~self.low_information[: int(kept.argmax())])
        if len(before):
            same = F.cosine_similarity(part.regions, self.regions[before[-1]], dim=-1).mean(1).cpu().numpy() >= _REPEATS
            flags = np.ones(len(part), np.bool_)
            flags[int(same.argmax())] = not same.any()  # flat frames are like none before, and stay flat
            part = dataclasses.replace(part, low_information=flags)
        return part


def select_frames(low_information: NDArray[np.bool_] | None, count: int) -> NDArray[np.intp]:
    """The positions of the frames that count in a comparison: those that are neither flat nor repeated.

    All `count` frames where that is not known, and where none would be left.

    >>> select_frames(np.array([True, False, False]), 3).tolist(), select_frames(np.array([True, True]), 2).tolist()
    ([1, 2], [0, 1])
    """
    if low_information is None or low_information.all():
        return np.arange(count)
    return np.flatnonzero(~low_information)


def join_features(parts: Iterable[Features], *, name: str = "The video") -> Features:
    """Features of one video that come in parts, one after the other; the regions are never held twice.

    Raises:
        DataError: there is no part; the message calls the video `name`.
    """
    regions, count, fields = torch.empty(0), 0, []
    for part in parts:
        if count + len(part) > len(regions):  # room for twice as many; memory that is not written to is not taken
            grown = part.regions.new_empty(2 * count + len(part), *part.regions.shape[1:])
            if count:
                grown[:count] = regions[:count]
            regions = grown
        regions[count : count + len(part)] = part.regions
        count += len(part)
        fields.append(SimpleNamespace(**{name: getattr(part, name) for name in _FIELDS}))
    if not fields:
        raise DataError(f"{name} has no frame in that part.")
    return Features(regions[:count], **join_fields(fields))


def join_fields(parts: Sequence[Any]) -> dict[str, Any]:
    """Timestamps, flags and miniatures of the parts of a video, joined; None unless each part has them."""
    joined: dict[str, Any] = {}
    for name in _FIELDS:
        values = [value for part in parts if (value := getattr(part, name)) is not None]
        joined[name] = np.concatenate(values) if len(values) == len(parts) else None
    return joined


def max_magnitude(values: Tensor) -> float:
    """The largest magnitude, NaN if one value is; of CPU tensors in one thread, as features are read by many."""
    values = values.detach()
    if values.device.type != "cpu" or values.dtype == torch.bfloat16:
        return values.abs().max().item()
    array = values.numpy()
    if values.dtype == torch.float16:  # as integers, which numpy compares a hundred times faster
        return float((array.view(np.uint16) & 0x7FFF).max().view(np.float16))
    return float(max(-array.min(), array.max()))
