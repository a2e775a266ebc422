"""Two videos in, an answer out: do they match, how surely, and where.

`compare` takes two files. For many, read each once with `read_side` and `match` any two of them.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hapvr.errors import ConfigError
from hapvr.features.features import Features
from hapvr.model import Model, load
from hapvr.records import Box
from hapvr.similarity import Segment, SegmentConfig, find_segments
from hapvr.similarity.calibration import checked_prior
from hapvr.similarity.comparator import DOWNSAMPLING
from hapvr.similarity.network import Descriptors
from hapvr.video.sampling import SamplingConfig

_FLAT = "All its frames are flat or repeats: they were compared all the same, but the score says little."


@dataclass(frozen=True, eq=False)
class Side:
    """One of the two videos: the frames of it that are compared. Their pictures are not kept; see `pictures`."""

    path: str
    features: Features  # of the frames that are compared: all but flat and repeated ones
    descriptors: Descriptors  # [T, R, D] of those, on the model's device
    warnings: tuple[str, ...]
    duration_s: float | None = None  # of the whole video; None for a still picture
    sampling: SamplingConfig | None = None  # how frames were taken from the file; None where none was read
    crop: Box | None = None  # what is left of a frame without its bars

    @property
    def times(self) -> NDArray[np.float64]:
        """Timestamps of the frames that are compared, in seconds."""
        return self.features.times

    def pictures(self, frames: Sequence[int]) -> list[NDArray[np.uint8]]:
        """The pictures [H, W, 3] of some of its frames, read from the file again; a black pixel where none was read."""
        if self.sampling is None:
            return [np.zeros((1, 1, 3), np.uint8) for _ in frames]
        from hapvr.video.decode import decode_at

        return decode_at(self.path, [float(self.times[frame]) for frame in frames], self.sampling, crop=self.crop)


@dataclass(frozen=True)
class Instant:
    """A frame of the query and one of the target, in seconds, and how similar they are."""

    query: float
    target: float
    similarity: float


@dataclass(frozen=True, eq=False)
class Match:
    """The comparison of a query with a target."""

    query: Side
    target: Side
    score: float  # in [-1, 1]
    probability: float | None  # that they match, given the prior; None for a model without calibration
    segments: tuple[Segment, ...]
    matrix: NDArray[np.float32]  # [Tq, Tt] frame similarities, before psi
    compared: NDArray[np.float32] | None  # [Tq / 4, Tt / 4] psi's output in [-1, 1]; None for a model without psi
    prior: float | None = None  # that the probability was computed with; None likewise
    false_per_million: float | None = None  # pairs without a match that score as high; None likewise
    least_frames: int = SegmentConfig.least_frames  # of a segment, on either side

    @property
    def best_pair(self) -> tuple[int, int]:
        """The most similar frames: row and column of the matrix."""
        row, column = np.unravel_index(int(self.matrix.argmax()), self.matrix.shape)
        return int(row), int(column)

    @property
    def best(self) -> Instant:
        """The most similar frames, whether or not they are part of a segment."""
        row, column = self.best_pair
        times = float(self.query.times[row]), float(self.target.times[column])
        return Instant(*times, float(self.matrix[row, column]))

    @property
    def too_short(self) -> bool:
        """Whether the query, as a picture, has too few frames for a segment: all that can be told is an instant."""
        return len(self.matrix) < self.least_frames

    @property
    def meaning(self) -> str:
        """The score in words, as far as the model is calibrated; else nothing."""
        if self.probability is None or self.false_per_million is None:
            return ""
        probability = f"a match with probability {_percent(self.probability)} (prior {self.prior:g})"
        return f"{probability}; {_false_matches(self.false_per_million)}"

    def as_json(self) -> dict[str, Any]:
        """What `hapvr compare --json` prints."""
        return {
            "query": self.query.path,
            "target": self.target.path,
            "score": self.score,
            "probability": self.probability,
            "prior": self.prior,
            "false_per_million": self.false_per_million,
            "segments": [
                {
                    "query": list(segment.query),
                    "target": list(segment.target),
                    "score": segment.score,
                    "backwards": segment.backwards,
                }
                for segment in self.segments
            ],
            "best": dataclasses.asdict(self.best),
            "warnings": {"query": list(self.query.warnings), "target": list(self.target.warnings)},
        }


def compare(
    query: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    model: Model | str | None = None,
    prior: float | None = None,
) -> Match:
    """Compare two video files: how much of `query` is found in `target`, and where.

    Frames that say nothing (black, one colour, repeats) are left out, unless there are no others; the warnings say so.

    Args:
        query: a video, GIF or picture.
        target: likewise.
        model: one that `hapvr.load` gave, or its name; the default model if None.
        prior: how likely a match is before looking, for the probability; the calibration's own if None.
    """
    chosen = model if isinstance(model, Model) else load() if model is None else load(model)
    _require_prior(prior, chosen)  # before the work
    return match(read_side(query, chosen), read_side(target, chosen), model=chosen, prior=prior)


def read_side(
    path: str | os.PathLike[str], model: Model, *, start_s: float | None = None, end_s: float | None = None
) -> Side:
    """Read and describe a video, or its part in [start_s, end_s), once for all its comparisons with this model."""
    read = model.extractor.describe_file(path, start_s=start_s, end_s=end_s)
    return describe_side(
        model,
        read.features,
        path=path,
        warnings=read.warnings,
        duration_s=read.duration_s,
        sampling=model.sampling,
        crop=read.crop,
    )


def describe_side(
    model: Model,
    features: Features,
    *,
    path: str | os.PathLike[str],
    warnings: tuple[str, ...] = (),
    duration_s: float | None = None,
    sampling: SamplingConfig | None = None,
    crop: Box | None = None,
) -> Side:
    """A side from the features of a whole video, with times: frames that say nothing are left out, and it is said."""
    compared = features.drop_flat()
    if len(compared) < len(features):
        left_out = len(features) - len(compared)
        warnings = (*warnings, f"{left_out} of {len(features)} frames are flat or repeats: left out.")
    elif features.all_flat:
        warnings = (*warnings, _FLAT)
    with torch.no_grad():
        descriptors = model.similarity.describe(compared.regions.to(model.extractor.device))
    return Side(os.fspath(path), compared, descriptors, warnings, duration_s, sampling, crop)


def match(query: Side, target: Side, *, model: Model, prior: float | None = None) -> Match:
    """Compare two sides that `read_side` gave with the same model; the score is that of `VideoSimilarity.score`."""
    _require_prior(prior, model)
    with torch.no_grad():
        found = model.similarity(query.descriptors[None], target.descriptors[None])
    matrix = found.frame_matrices[0, 0].float().cpu().numpy()
    psi = None
    if found.raw is not None and min(matrix.shape) >= DOWNSAMPLING:
        # A short video was doubled for psi: what is shown is the first time round.
        height, width = (length // DOWNSAMPLING for length in matrix.shape)
        psi = found.raw[0, 0, :height, :width].clamp(-1, 1).float().cpu().numpy()
    segments = find_segments(matrix, query.times, target.times, config=model.segments)
    answer = Match(
        *(query, target, found.scores.item(), None, tuple(segments), matrix, psi),
        least_frames=model.segments.least_frames,
    )
    calibration = model.calibration
    if calibration is None:
        return answer
    return dataclasses.replace(
        answer,
        probability=calibration.probability(answer.score, prior=prior),
        prior=calibration.prior if prior is None else prior,
        false_per_million=calibration.false_per_million(answer.score),
    )


def _require_prior(prior: float | None, model: Model) -> None:
    if prior is None:
        return
    if model.calibration is None:
        raise ConfigError(f"The model '{model.name}' is not calibrated, so a prior has no use. Leave it out.")
    checked_prior(prior)


def _percent(probability: float) -> str:
    """No more digits than a calibration can bear; never 0 or 100%.

    >>> _percent(0.98765), _percent(0.99999), _percent(0.0000001)
    ('98.8%', 'over 99.9%', 'under 0.1%')
    """
    if not 0.001 <= probability <= 0.999:
        return "over 99.9%" if probability > 0.5 else "under 0.1%"
    return f"{probability:.1%}"


def _false_matches(per_million: float) -> str:
    """Two digits are enough.

    >>> _false_matches(0.2)
    'fewer than 1 of a million pairs without a match score as high'
    >>> _false_matches(1234.5)
    '1,200 of a million pairs without a match score as high'
    """
    digits = max(0, len(str(round(per_million))) - 2)
    count = "fewer than 1" if per_million < 1 else f"{round(per_million, -digits):,.0f}"
    return f"{count} of a million pairs without a match score as high"
