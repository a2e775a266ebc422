"""Whether, where and how two videos match, decided from the frames of both: for `compare` and for every search.

The model's judge decides (`hapvr.judge`). A model without a judge goes by its score and by the stretches that it finds.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from hapvr.errors import ConfigError
from hapvr.judge.evidence import PairFrames
from hapvr.judge.judge import Decision, Kind, Look, Verdict
from hapvr.model import Model
from hapvr.similarity import SegmentConfig, find_segments
from hapvr.similarity.calibration import check_prior
from hapvr.similarity.comparator import DOWNSAMPLING

NO_STRETCH = "No stretch of the two videos matches."
_NO_FRAME = "No frames of the two videos are alike."
_SCORED = "The score and a matching stretch speak for it. This model has no judge of further evidence."
_EVEN = 0.5  # from this probability on it is a match
KINDS: tuple[Kind, ...] = ("no match", "same scene", "copy")
"""Verdicts in ascending order."""


def decide(
    pair: PairFrames, score: float, *, model: Model, prior: float | None = None, look: Look | None = None
) -> Decision:
    """Whether, where and how two videos match: by the model's judge.

    A picture, and a video that is too short for a stretch, matches by an instant and has no stretches. A model without
    a judge goes by its score, and if it is not calibrated either, by whether a stretch matches; without a stretch they
    do not match, whatever the score is.

    Args:
        pair: the frames of both.
        score: of the pair.
        model: that they are of.
        prior: probability of a copy before the comparison; the judge's own if None.
        look: takes a second look at the files, if they can be read.
    """
    short = is_too_short(pair.forth, choose_stretch_config(model).min_frames)
    if model.judge is not None:
        decision = model.judge.decide(pair, model.segments, prior=prior, look=look)
        return dataclasses.replace(decision, segments=()) if short else decision
    matrix = choose_matrix(pair, model)
    segments = find_segments(matrix, pair.a_times, pair.b_times, config=model.segments)
    trouble = ""
    if short:
        trouble = "" if float(matrix.max()) >= model.segments.threshold else _NO_FRAME
    elif not segments:
        trouble = NO_STRETCH
    calibration = model.calibration
    if calibration is None:
        kind: Kind = "no match" if trouble else "copy"
        return Decision(Verdict(kind, None, None, None, None, trouble or _SCORED), tuple(segments))
    prior = calibration.prior if prior is None else prior
    probability = calibration.probability(score, prior=prior)
    probability = min(probability, prior) if trouble else probability
    false = max(calibration.false_per_million(score), calibration.min_false_per_million)
    kind = "copy" if not trouble and probability >= _EVEN else "no match"
    return Decision(Verdict(kind, probability, probability, prior, false, trouble or _SCORED), tuple(segments))


def decide_through(
    pair: PairFrames,
    score: float,
    frames: tuple[NDArray[np.bool_], NDArray[np.bool_]],
    *,
    model: Model,
    prior: float | None = None,
) -> Decision | None:
    """What `decide` says without a second look, if a copy goes through these frames of the two; else None, sooner.

    A model without a judge has no quicker answer: None if the videos do not match.
    """
    if model.judge is None:
        decision = decide(pair, score, model=model, prior=prior)
        return decision if decision.verdict.match else None
    found = model.judge.decide_through(pair, model.segments, frames, prior=prior)
    if found is not None and is_too_short(pair.forth, choose_stretch_config(model).min_frames):
        return dataclasses.replace(found, segments=())
    return found


def choose_stretch_config(model: Model) -> SegmentConfig:
    """How the stretches are found that a verdict rests on: by its judge, or the segments of a model without one."""
    return model.segments if model.judge is None else model.judge.choose_config(model.segments)


def choose_matrix(pair: PairFrames, model: Model) -> NDArray[np.float32]:
    """The matrix [Tq, Tt] that a model without a judge finds segments in, and that a `Match` shows.

    A judge looks at each direction by itself: then it is that from query to target.
    """
    if model.judge is not None:
        return pair.forth
    joined = model.similarity.join_matrices(torch.from_numpy(pair.forth), torch.from_numpy(pair.back))
    matrix: NDArray[np.float32] = joined.numpy()
    return matrix


def score_frames(pair: PairFrames, model: Model) -> tuple[float, NDArray[np.float32] | None]:
    """The score of two videos, and psi's output [Tq / 4, Tt / 4] if the model has psi; in float32."""
    with torch.no_grad():
        found = model.similarity.compare_matrices(*(torch.from_numpy(matrix) for matrix in (pair.forth, pair.back)))
    psi = None
    if found.raw is not None and min(pair.forth.shape) >= DOWNSAMPLING:
        # A short video was doubled for psi: the first half is shown.
        height, width = (length // DOWNSAMPLING for length in pair.forth.shape)
        psi = found.raw[0, 0, :height, :width].clamp(-1, 1).float().cpu().numpy()
    return found.scores.item(), psi


def is_too_short(matrix: NDArray[np.float32], min_frames: int) -> bool:
    """Whether one of two videos has too few frames for a segment, as a picture has; by their matrix [Tq, Tt]."""
    return bool(min(matrix.shape) < min_frames)


def describe_verdict(verdict: Verdict) -> str:
    """The verdict in words, with its probability.

    >>> describe_verdict(Verdict("copy", 0.98765, 0.99, 0.02, 3.2, ""))
    'copy (probability 98.8%)'
    >>> describe_verdict(Verdict("same scene", 0.03, 0.91, 0.02, 900.0, ""))
    'same scene or event, not the same footage (probability of a copy 3.0%)'
    """
    if verdict.probability is None:
        return verdict.kind
    percent = format_percent(verdict.probability)
    if verdict.kind == "copy":
        return f"copy (probability {percent})"
    if verdict.kind == "same scene":
        return f"same scene or event, not the same footage (probability of a copy {percent})"
    return f"no match (probability of a copy {percent})"


def note_insets(verdict: Verdict, where: Sequence[str]) -> Verdict:
    """A verdict on a window of these videos, whose reason says so.

    >>> note_insets(Verdict("no match", None, None, None, None, "Nothing is alike."), ["query"]).reason
    'In a window of the query: nothing is alike.'
    """
    reason = verdict.reason[:1].lower() + verdict.reason[1:]
    return dataclasses.replace(verdict, reason=f"In a window of the {' and one of the '.join(where)}: {reason}")


def format_percent(probability: float) -> str:
    """A probability as text, with one decimal; never 0% or 100%.

    >>> format_percent(0.98765), format_percent(0.99999), format_percent(0.0000001)
    ('98.8%', 'over 99.9%', 'under 0.1%')
    """
    if not 0.001 <= probability <= 0.999:
        return "over 99.9%" if probability > 0.5 else "under 0.1%"
    return f"{probability:.1%}"


def require_prior(prior: float | None, model: Model) -> None:
    """Raise `ConfigError` for an invalid prior, and for any prior if the model gives no probabilities."""
    if prior is not None and not has_probability(model):
        raise ConfigError(f"The model '{model.name}' gives no probabilities, so a prior has no use. Leave it out.")
    if prior is not None:
        check_prior(prior)


def has_probability(model: Model) -> bool:
    """Whether the verdicts of a model come with probabilities."""
    return model.judge is not None or model.calibration is not None


def find_prior(model: Model) -> float | None:
    """The probability of a copy before a comparison that a model takes; None if it gives no probabilities."""
    if model.judge is not None:
        return model.judge.prior
    return None if model.calibration is None else model.calibration.prior


def find_max_probability(model: Model, prior: float | None) -> float:
    """The greatest probability that a model can give."""
    if model.judge is not None:
        return model.judge.probability(math.inf, prior)
    return 1.0 if model.calibration is None else model.calibration.probability(1.0, prior=prior)
