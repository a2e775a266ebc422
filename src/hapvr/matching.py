"""Compare two videos: whether they match, how probable that is, and where.

`compare` takes two files. For many, read each once with `describe_video` and compare any two by `match_videos`. Whether
two videos match is decided by `decide`, here and in every search.
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
from hapvr.features import Features, select_frames
from hapvr.model import Model, load
from hapvr.records import Box
from hapvr.similarity import Segment, SegmentConfig, find_segments
from hapvr.similarity.calibration import check_prior
from hapvr.similarity.comparator import DOWNSAMPLING
from hapvr.similarity.network import Descriptors
from hapvr.storage import StrPath
from hapvr.video.sampling import SamplingConfig

_FLAT = "All its frames are flat or repeats: they were compared all the same, but the score says little."
NO_STRETCH = "no match: no stretch of the two videos matches"
_NO_FRAME = "no match: no frames of the two are alike"
_EVEN = 0.5  # from this probability on it is a match
_SURE = ((0.99, "almost certainly the same"), (0.9, "very likely the same"), (0.5, "probably the same"),
         (0.1, "possibly the same"), (0.0, "probably not the same"))  # fmt: skip


@dataclass(frozen=True, eq=False)
class VideoDescription:
    """One of the two videos, by the frames that are compared. `pictures` reads their pixels again from the file."""

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


@dataclass(frozen=True)
class Verdict:
    """Whether two videos match, and how probable that is: every command decides it in the same way.

    Without a stretch or instant that matches, the probability is no higher than the prior, whatever the score: an upper
    bound, and no estimate. `false_per_million` is never below what the pairs of the calibration could show.
    """

    match: bool  # `aligned`, and no less likely than not, if that is known
    probability: float | None  # that they match; None for a model without calibration, as the next two
    prior: float | None  # probability of a match before the comparison, which `probability` was computed with
    false_per_million: float | None  # estimated pairs without a match that score as high, look-alikes aside
    words: str  # the verdict in a few words
    aligned: bool = True  # a stretch matches, or an instant where one video has too few frames for a stretch

    def to_json(self) -> dict[str, Any]:
        """What every command and answer says of it."""
        return {name: value for name, value in dataclasses.asdict(self).items() if name != "aligned"}


@dataclass(frozen=True, eq=False)
class Match:
    """The comparison of a query with a target."""

    query: VideoDescription
    target: VideoDescription
    score: float  # in [-1, 1]
    verdict: Verdict
    segments: tuple[Segment, ...]
    matrix: NDArray[np.float32]  # [Tq, Tt] frame similarities, before psi
    psi: NDArray[np.float32] | None  # [Tq / 4, Tt / 4] psi's output in [-1, 1]; None for a model without psi
    min_frames: int = SegmentConfig.min_frames  # of a segment, on either side

    @property
    def probability(self) -> float | None:
        """The probability of a match; None for a model without calibration."""
        return self.verdict.probability

    @property
    def best_pair(self) -> tuple[int, int]:
        """The most similar frames: row and column of the matrix."""
        row, column = np.unravel_index(int(self.matrix.argmax()), self.matrix.shape)
        return int(row), int(column)

    @property
    def best(self) -> Instant:
        """The most similar frames, whether or not they are part of a segment."""
        return find_best_instant(self.matrix, self.query.times, self.target.times)

    @property
    def too_short(self) -> bool:
        """Whether one side has too few frames for a segment, as a picture has: then only an instant is found."""
        return is_too_short(self.matrix, self.min_frames)

    @property
    def meaning(self) -> str:
        """The verdict in words, with what it rests on; nothing if a match was found and the model is not calibrated."""
        verdict = self.verdict
        if not verdict.aligned:
            return verdict.words
        if verdict.probability is None or verdict.false_per_million is None:
            return ""
        probability = f"probability {format_percent(verdict.probability)} (prior {verdict.prior:g})"
        if not verdict.match:
            return f"no match: a match has {probability}"
        return f"a match with {probability}; {_false_matches(verdict.false_per_million)}"

    def to_json(self) -> dict[str, Any]:
        """What `hapvr compare --json` prints."""
        return {
            "query": self.query.path,
            "target": self.target.path,
            "score": self.score,
            **self.verdict.to_json(),
            "segments": [segment.to_json() for segment in self.segments],
            "best": dataclasses.asdict(self.best),
            "warnings": {"query": list(self.query.warnings), "target": list(self.target.warnings)},
        }


def compare(
    query: StrPath,
    target: StrPath,
    *,
    model: Model | str | None = None,
    prior: float | None = None,
) -> Match:
    """Compare two video files: how much of `query` is found in `target`, and where.

    Flat and repeated frames are left out, unless there are no others; the warnings say so.

    Args:
        query, target: a video, GIF or picture each.
        model: one that `hapvr.load` gave, or its name; the default model if None.
        prior: probability of a match before the comparison; the calibration's own if None.
    """
    chosen = model if isinstance(model, Model) else load() if model is None else load(model)
    require_prior(prior, chosen)  # before the work
    return match_videos(describe_video(query, chosen), describe_video(target, chosen), model=chosen, prior=prior)


def describe_video(
    path: StrPath, model: Model, *, start_s: float | None = None, end_s: float | None = None
) -> VideoDescription:
    """Read and describe a video, or its part in [start_s, end_s), once for all its comparisons with this model."""
    read = model.extractor.extract_file(path, start_s=start_s, end_s=end_s)
    return describe_features(
        model,
        read.features,
        path=path,
        warnings=read.warnings,
        duration_s=read.duration_s,
        sampling=model.sampling,
        crop=read.crop,
    )


def describe_features(
    model: Model,
    features: Features,
    *,
    path: StrPath,
    warnings: tuple[str, ...] = (),
    duration_s: float | None = None,
    sampling: SamplingConfig | None = None,
    crop: Box | None = None,
) -> VideoDescription:
    """Describe a video by its features, with times: flat and repeated frames are left out, with a warning."""
    compared = features.drop_flat()
    warnings = (*warnings, *warn_of_flat_frames(features), *((_FLAT,) if features.all_flat else ()))
    with torch.no_grad():
        descriptors = model.similarity.make_descriptors(compared.regions.to(model.extractor.device))
    return VideoDescription(os.fspath(path), compared, descriptors, warnings, duration_s, sampling, crop)


def warn_of_flat_frames(features: Features) -> tuple[str, ...]:
    """A warning that some frames of a video are flat or repeated and left out; empty if none are, or all."""
    count = len(features) - len(select_frames(features.low_information, len(features)))
    return (f"{count} of {len(features)} frames are flat or repeats: left out.",) if count else ()


def match_videos(
    query: VideoDescription, target: VideoDescription, *, model: Model, prior: float | None = None
) -> Match:
    """Compare two videos that one model has described; the score is that of `VideoSimilarity.score`."""
    require_prior(prior, model)
    with torch.no_grad():
        found = model.similarity(query.descriptors[None], target.descriptors[None])
    matrix = found.frame_matrices[0, 0].float().cpu().numpy()
    psi = None
    if found.raw is not None and min(matrix.shape) >= DOWNSAMPLING:
        # A short video was doubled for psi: the first half is shown.
        height, width = (length // DOWNSAMPLING for length in matrix.shape)
        psi = found.raw[0, 0, :height, :width].clamp(-1, 1).float().cpu().numpy()
    segments = find_segments(matrix, query.times, target.times, config=model.segments)
    score = found.scores.item()
    verdict = decide(score, segments, matrix, model=model, prior=prior)
    return Match(query, target, score, verdict, tuple(segments), matrix, psi, model.segments.min_frames)


def decide(
    score: float,
    segments: Sequence[Segment],
    matrix: NDArray[np.float32],
    *,
    model: Model,
    prior: float | None = None,
) -> Verdict:
    """Whether two videos match.

    Without a stretch that matches they do not, whatever the score is: many frames that are somewhat alike, in no order,
    are what look-alikes have. Such a pair's score can speak against a match, but not for it.

    Args:
        score, segments, matrix: of the pair, as in `Match`.
        model: that the score is of.
        prior: probability of a match before the comparison; the calibration's own if None.
    """
    words = ""
    if is_too_short(matrix, model.segments.min_frames):
        words = "" if float(matrix.max()) >= model.segments.threshold else _NO_FRAME
    elif not segments:
        words = NO_STRETCH
    calibration = model.calibration
    if calibration is None:
        return Verdict(not words, None, None, None, words or f"similarity {score:.2f}", not words)
    prior = calibration.prior if prior is None else prior
    probability = calibration.probability(score, prior=prior)
    if words:
        probability = min(probability, prior)
    false = max(calibration.false_per_million(score), calibration.min_false_per_million)
    said = words or next(words for least, words in _SURE if probability >= least)
    return Verdict(not words and probability >= _EVEN, probability, prior, false, said, not words)


def is_too_short(matrix: NDArray[np.float32], min_frames: int) -> bool:
    """Whether one of two videos has too few frames for a segment, as a picture has; by their matrix [Tq, Tt]."""
    return bool(min(matrix.shape) < min_frames)


def find_best_instant(
    matrix: NDArray[np.float32], query_times: NDArray[np.float64], target_times: NDArray[np.float64]
) -> Instant:
    """The most similar frames of a matrix [Tq, Tt]."""
    row, column = np.unravel_index(int(matrix.argmax()), matrix.shape)
    return Instant(float(query_times[row]), float(target_times[column]), float(matrix[row, column]))


def require_prior(prior: float | None, model: Model) -> None:
    """Raise `ConfigError` for an invalid prior, and for any prior if the model has no calibration."""
    if prior is not None and model.calibration is None:
        raise ConfigError(f"The model '{model.name}' is not calibrated, so a prior has no use. Leave it out.")
    if prior is not None:
        check_prior(prior)


def format_percent(probability: float) -> str:
    """A probability as text, with one decimal; never 0% or 100%.

    >>> format_percent(0.98765), format_percent(0.99999), format_percent(0.0000001)
    ('98.8%', 'over 99.9%', 'under 0.1%')
    """
    if not 0.001 <= probability <= 0.999:
        return "over 99.9%" if probability > 0.5 else "under 0.1%"
    return f"{probability:.1%}"


def _false_matches(per_million: float) -> str:
    """Two digits are enough.

    >>> _false_matches(0.2)
    'at most 1 of a million unrelated pairs should score as high'
    >>> _false_matches(1234.5)
    'at most 1,200 of a million unrelated pairs should score as high'
    """
    digits = max(0, len(str(round(per_million))) - 2)
    return f"at most {max(1, round(per_million, -digits)):,.0f} of a million unrelated pairs should score as high"
