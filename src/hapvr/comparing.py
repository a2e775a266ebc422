"""Two videos in, an answer out: do they match, how surely, and where."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hapvr.features.files import Features, joined
from hapvr.model import Model, load
from hapvr.records import Frames
from hapvr.similarity import Segment, find_segments


@dataclass(frozen=True, eq=False)
class Side:
    """One of the two videos: what was read of it and what of that was compared."""

    path: str
    frames: Frames
    features: Features
    used: NDArray[np.intp]  # frames that were compared: all but those of low information
    warnings: tuple[str, ...]

    @property
    def times(self) -> NDArray[np.float64]:
        """Timestamps of the frames that were compared, in seconds."""
        return self.frames.timestamps[self.used]


@dataclass(frozen=True, eq=False)
class Match:
    """The comparison of a query with a target."""

    query: Side
    target: Side
    score: float  # in [-1, 1]
    probability: float | None  # that they match; None until the model is calibrated
    segments: tuple[Segment, ...]
    matrix: NDArray[np.float32]  # [Tq, Tt] frame similarities, before psi
    compared: NDArray[np.float32] | None  # [Tq / 4, Tt / 4] psi's output in [-1, 1]; None for a model without psi

    def as_json(self) -> dict[str, Any]:
        """What `hapvr compare --json` prints."""
        return {
            "query": self.query.path,
            "target": self.target.path,
            "score": self.score,
            "probability": self.probability,
            "segments": [
                {
                    "query": list(segment.query),
                    "target": list(segment.target),
                    "score": segment.score,
                    "backwards": segment.backwards,
                }
                for segment in self.segments
            ],
            "warnings": {"query": list(self.query.warnings), "target": list(self.target.warnings)},
        }


def compare(
    query: str | os.PathLike[str], target: str | os.PathLike[str], *, model: Model | str | None = None
) -> Match:
    """Compare two video files: how much of `query` is found in `target`, and where.

    Frames that say nothing (black, one colour, repeats) are left out, unless there are no others; the warnings say so.

    Args:
        query: a video, GIF or picture.
        target: likewise.
        model: one that `hapvr.load` gave, or its name; the default model if None.
    """
    chosen = model if isinstance(model, Model) else load() if model is None else load(model)
    sides = _side(query, chosen), _side(target, chosen)
    regions = [side.features.regions[torch.from_numpy(side.used)] for side in sides]
    network = chosen.similarity
    device = chosen.extractor.device
    with torch.no_grad():
        q, t = (network.describe(video.to(device)) for video in regions)
        matrix = network.frame_matrix(q, t)
        score = network.score(q, t).item()
        psi = None
        if network.comparator is not None and min(matrix.shape) >= 4:
            psi = network.comparator(matrix[None])[0].clamp(-1, 1).float().cpu().numpy()
    cells = matrix.float().cpu().numpy()
    segments = find_segments(cells, sides[0].times, sides[1].times, config=chosen.segments)
    return Match(*sides, score, None, tuple(segments), cells, psi)


def _side(path: str | os.PathLike[str], model: Model) -> Side:
    from hapvr.features.extractor import decode_parts

    parts = list(decode_parts(path, model.sampling))
    frames = _whole(parts)
    features = joined([model.extractor.features(part) for part in parts])
    used = np.flatnonzero(~frames.low_information)
    warnings = frames.warnings
    if len(used) == 0:
        used = np.arange(len(frames))
        warnings = (*warnings, "Every frame is flat or a repeat; they were compared all the same.")
    elif len(used) < len(frames):
        warnings = (*warnings, f"{len(frames) - len(used)} of {len(frames)} frames are flat or repeats: left out.")
    return Side(os.fspath(path), frames, features, used, warnings)


def _whole(parts: list[Frames]) -> Frames:
    """The parts of one video as one record."""
    first = parts[0]
    if len(parts) == 1:
        return first
    return Frames(
        np.concatenate([part.images for part in parts]),
        np.concatenate([part.timestamps for part in parts]),
        np.concatenate([part.low_information for part in parts]),
        duration_s=first.duration_s,
        fps=first.fps,
        source_size=first.source_size,
        crop=first.crop,
        warnings=tuple(dict.fromkeys(warning for part in parts for warning in part.warnings)),
    )
