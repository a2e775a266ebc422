"""Compare two videos: whether they match, how probable that is, and where.

`compare` takes two files. For many, read each once with `describe_video` and compare any two by `match_videos`. Whether
two videos match is decided by `hapvr.decision`, here and in every search.

A file may be described twice: as a whole, and by a window in which it shows another video (`describe_views`). What
matches best of the two counts.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from hapvr.decision import (
    KINDS,
    choose_matrix,
    choose_stretch_config,
    decide,
    describe_verdict,
    is_too_short,
    note_insets,
    require_prior,
    score_frames,
)
from hapvr.features import Features, select_frames
from hapvr.features.extractor import ExtractedFile
from hapvr.judge.alignment import make_pixel_views
from hapvr.judge.evidence import PairFrames, Stretch
from hapvr.judge.judge import Look, Verdict
from hapvr.judge.second_look import SecondLook, SecondLookConfig, take_second_look
from hapvr.model import DEFAULT, Model, load
from hapvr.records import Box
from hapvr.similarity import Segment, SegmentConfig
from hapvr.similarity.network import Descriptors
from hapvr.storage import StrPath
from hapvr.video.sampling import SamplingConfig

if TYPE_CHECKING:
    from hapvr.audio.description import SoundDescription
    from hapvr.audio.matching import SoundEvidence

MIN_FLAT_SHARE = 0.1
"""Of a video's frames that are flat or repeated, from which on a warning says so."""
_FLAT = "All its frames are flat or repeats: they were compared all the same, but the score says little."


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
    look: SecondLookConfig | None = None  # how its file is looked at again, if it is not to be trusted
    inset: Box | None = None  # the same as `crop`, if it is a window in which the file shows another video

    @property
    def times(self) -> NDArray[np.float64]:
        """Timestamps of the frames that are compared, in seconds."""
        return self.features.times

    @cached_property
    def vectors(self) -> NDArray[np.float32]:
        """The mean region vector of each frame that is compared, [T, D]."""
        mean: NDArray[np.float32] = self.descriptors.as_subclass(torch.Tensor).float().mean(1).cpu().numpy()
        return mean

    @cached_property
    def pixel_views(self) -> NDArray[np.float32]:
        """Its miniatures as they may be found in another video, [V, T, pixels]; only where there are any."""
        assert self.features.miniatures is not None
        return make_pixel_views(self.features.miniatures)

    def take(self, frames: NDArray[np.intp] | NDArray[np.bool_]) -> VideoDescription:
        """Some of its frames, given by their positions or by a mask [T]."""
        descriptors = Descriptors.of(self.descriptors[torch.from_numpy(frames)])
        return dataclasses.replace(self, features=self.features.take(frames), descriptors=descriptors)

    def pictures(self, frames: Sequence[int]) -> list[NDArray[np.uint8]]:
        """The pictures [H, W, 3] of some of its frames, read from the file again; black pixels where it is not read."""
        if self.sampling is None or self.look is not None:
            return [np.zeros((1, 1, 3), np.uint8) for _ in frames]
        from hapvr.video.decode import decode_at
        from hapvr.video.sandboxed import call_sandboxed

        times = [float(self.times[frame]) for frame in frames]
        return call_sandboxed(decode_at, self.path, times, self.sampling, crop=self.crop)


@dataclass(frozen=True)
class Instant:
    """A frame of the query and one of the target, in seconds, and how similar they are."""

    query: float
    target: float
    similarity: float


@dataclass(frozen=True, eq=False)
class Match:
    """The comparison of a query with a target."""

    query: VideoDescription
    target: VideoDescription
    score: float  # in [-1, 1]
    verdict: Verdict
    segments: tuple[Segment, ...]
    matrix: NDArray[np.float32]  # [Tq, Tt] frame similarities, before psi: those of `choose_matrix`
    psi: NDArray[np.float32] | None  # [Tq / 4, Tt / 4] psi's output in [-1, 1]; None for a model without psi
    min_frames: int = SegmentConfig.min_frames  # of a segment, on either side
    sound: SoundEvidence | None = None  # what the sound of both says; None if it was not compared

    @property
    def probability(self) -> float | None:
        """The probability that they share footage; None for a model that gives none."""
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
        """The verdict in words, with its probability."""
        return describe_verdict(self.verdict)

    def to_json(self) -> dict[str, Any]:
        """What `hapvr compare --json` prints."""
        return {
            "query": self.query.path,
            "target": self.target.path,
            "score": self.score,
            **self.verdict.to_json(),
            "segments": [segment.to_json() for segment in self.segments],
            "best": dataclasses.asdict(self.best),
            "insets": list_insets(self.query.inset, self.target.inset),
            "warnings": {"query": list(self.query.warnings), "target": list(self.target.warnings)},
            "sound": None if self.sound is None else self.sound.to_json(),
        }


def compare(
    query: StrPath,
    target: StrPath,
    *,
    model: Model | str | None = None,
    prior: float | None = None,
    second_look: bool = True,
    device: str = "cpu",
    sound: bool = False,
) -> Match:
    """Compare two video files: how much of `query` is found in `target`, and where.

    If one of them shows another video in a window, that is compared too, and the better match counts. Flat and repeated
    frames are left out, unless there are no others; the warnings say so.

    Args:
        query, target: a video, GIF or picture each.
        model: one that `hapvr.load` gave, or its name; the default model if None.
        prior: probability of a copy before the comparison; the judge's own if None.
        second_look: compare a few instants at full size if the verdict is undecided.
        device: where a model that is loaded here computes, see `hapvr.load`.
        sound: compare their sound too, for `Match.sound`; the verdict is about the pictures in any case.
    """
    from hapvr.video.sandboxed import call_sandboxed, start_decoder
    from hapvr.video.sources import require_file

    for path in (query, target):
        require_file(path)  # before a model is loaded, which takes seconds
    start_decoder()
    chosen = model if isinstance(model, Model) else load(DEFAULT if model is None else model, device=device, int8=True)
    require_prior(prior, chosen)  # before the work
    views = [describe_views(path, chosen) for path in (query, target)]
    match = choose_best(
        match_videos(*pair, model=chosen, prior=prior, second_look=second_look) for pair in itertools.product(*views)
    )
    if not sound:
        return match
    from hapvr.audio.description import describe_sound

    return add_sound(match, *(call_sandboxed(describe_sound, path) for path in (query, target)))


def add_sound(match: Match, query: SoundDescription, target: SoundDescription) -> Match:
    """A match with what the sounds of both videos say, and with warnings about what could not be read of them."""
    from hapvr.audio.description import compare_sounds

    def warn(video: VideoDescription, sound: SoundDescription) -> VideoDescription:
        more = () if sound.warning is None else (f"The sound: {sound.warning}",)
        return dataclasses.replace(video, warnings=(*video.warnings, *more))

    sides = {"query": warn(match.query, query), "target": warn(match.target, target)}
    return dataclasses.replace(match, sound=compare_sounds(query, target), **sides)  # type: ignore[arg-type]


def describe_video(
    path: StrPath, model: Model, *, start_s: float | None = None, end_s: float | None = None
) -> VideoDescription:
    """Read and describe a video, or its part in [start_s, end_s), once for all its comparisons with this model."""
    return _describe_file(path, model, model.extractor.extract_file(path, start_s=start_s, end_s=end_s))


def describe_views(path: StrPath, model: Model) -> tuple[VideoDescription, ...]:
    """What `describe_video` gives and, if the video shows another one in a window, that one as a second description."""
    return tuple(_describe_file(path, model, read) for read in model.extractor.extract_views(path))


def _describe_file(path: StrPath, model: Model, read: ExtractedFile) -> VideoDescription:
    return describe_features(
        model,
        read.features,
        path=path,
        warnings=read.warnings,
        duration_s=read.duration_s,
        sampling=model.sampling,
        crop=read.crop,
        inset=read.inset,
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
    look: SecondLookConfig | None = None,
    inset: Box | None = None,
) -> VideoDescription:
    """Describe a video by its features, with times: flat and repeated frames are left out, with a warning."""
    compared = features.drop_flat()
    warnings = (*warnings, *warn_of_flat_frames(features), *((_FLAT,) if features.all_flat else ()))
    with torch.no_grad():
        descriptors = model.similarity.make_descriptors(compared.regions.to(model.extractor.device))
    return VideoDescription(os.fspath(path), compared, descriptors, warnings, duration_s, sampling, crop, look, inset)


def warn_of_flat_frames(features: Features) -> tuple[str, ...]:
    """A warning that frames of a video are flat or repeated and left out; none if they are few, or all.

    Few are less than a tenth (`MIN_FLAT_SHARE`): a fade or a title changes no answer.
    """
    count = len(features) - len(select_frames(features.low_information, len(features)))
    if count == 0 or count < MIN_FLAT_SHARE * len(features):
        return ()
    return (f"{count} of {len(features)} frames are flat or repeats: left out.",)


def match_videos(
    query: VideoDescription,
    target: VideoDescription,
    *,
    model: Model,
    prior: float | None = None,
    second_look: bool = True,
) -> Match:
    """Compare two videos that one model has described; the score is that of `VideoSimilarity.score`.

    A second look is taken if the verdict is undecided and both files can be read.
    """
    require_prior(prior, model)
    pair = compare_frames(query, target, model)
    score, psi = score_frames(pair, model)
    look = choose_look(query, target) if second_look else None
    decision = decide(pair, score, model=model, prior=prior, look=look)
    found = decision.verdict, decision.segments
    min_frames = choose_stretch_config(model).min_frames
    return Match(query, target, score, *found, choose_matrix(pair, model), psi, min_frames)


def choose_best(matches: Iterable[Match]) -> Match:
    """The best match of the views of two videos: by verdict, probability and score. Its reason says which views."""
    best = max(matches, key=rank_match)
    where = [name for name, side in (("query", best.query), ("target", best.target)) if side.inset is not None]
    if not where:
        return best
    return dataclasses.replace(best, verdict=note_insets(best.verdict, where))


def rank_match(match: Match) -> tuple[int, float, float]:
    """The order of matches, the best greatest: a copy, the same scene, no match; then by probability and score."""
    return KINDS.index(match.verdict.kind), match.probability or 0.0, match.score


def list_insets(query: Box | None, target: Box | None) -> dict[str, list[int] | None] | None:
    """The windows that were compared, in pixels of each file, as answers give them; None if whole pictures were."""
    if query is None and target is None:
        return None
    return {name: None if box is None else list(box) for name, box in (("query", query), ("target", target))}


def compare_frames(query: VideoDescription, target: VideoDescription, model: Model) -> PairFrames:
    """The frames of two videos for `decide`; of a model without a judge only their matrix counts."""
    if model.judge is not None:
        return pair_frames(query, target, model)
    with torch.no_grad():
        if model.similarity.config.symmetry == "lengths":
            matrices = model.similarity.frame_matrices_both_ways(query.descriptors, target.descriptors)
            forth, back = (matrix.float().cpu() for matrix in matrices)
        else:
            forth = model.similarity.frame_matrix_unchecked(query.descriptors, target.descriptors).float().cpu()
            back = forth.T
            if model.similarity.config.symmetry == "average":
                back = model.similarity.frame_matrix_unchecked(target.descriptors, query.descriptors).float().cpu()
    return PairFrames(forth.numpy(), back.numpy(), query.times, target.times)


def pair_frames(query: VideoDescription, target: VideoDescription, model: Model) -> PairFrames:
    """What a judge looks at; also to fit the judge of a model."""
    with torch.no_grad():
        matrices = model.similarity.frame_matrices_both_ways(query.descriptors, target.descriptors)
    forth, back = (matrix.float().cpu().numpy() for matrix in matrices)
    small = query.features.miniatures, target.features.miniatures
    views = [partial(getattr, video, "pixel_views") for video in (query, target)]
    return PairFrames(forth, back, query.times, target.times, *small, query.vectors, target.vectors, *views)


def choose_look(query: VideoDescription, target: VideoDescription) -> Look | None:
    """What takes a second look at two videos; None if one of the files cannot be read."""
    if query.sampling is None or target.sampling is None:
        return None
    return partial(look_again, query.path, target.path, config=query.look or target.look)


def look_again(
    query: str, target: str, stretch: Stretch, *, config: SecondLookConfig | None = None
) -> SecondLook | None:
    """Compare instants spread over a stretch, at full size."""
    return take_second_look(query, target, stretch.instants, speed=stretch.speed, config=config or SecondLookConfig())


def find_best_instant(
    matrix: NDArray[np.float32], query_times: NDArray[np.float64], target_times: NDArray[np.float64]
) -> Instant:
    """The most similar frames of a matrix [Tq, Tt]."""
    row, column = np.unravel_index(int(matrix.argmax()), matrix.shape)
    return Instant(float(query_times[row]), float(target_times[column]), float(matrix[row, column]))
