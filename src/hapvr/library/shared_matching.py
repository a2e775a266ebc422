"""Matches of two videos without the footage that many videos of their library share.

`match_beyond_shared` is the one rule of search, comparison and duplicates: what is left of both is compared, and
stretches of shared footage are marked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hapvr.decision import choose_matrix, choose_stretch_config, decide, decide_through, require_prior, score_frames
from hapvr.library.shared_footage import SharedFootage
from hapvr.matching import Match, VideoDescription, choose_look, compare_frames, pair_frames
from hapvr.model import Model
from hapvr.similarity import Segment
from hapvr.similarity.segments import frame_edges

Ints = NDArray[np.int64]

_GREATER_PART = 0.5  # of a stretch, from which on it is shared
_MOSTLY = 0.8  # of a video's frames: then it is the shared footage itself


def match_beyond_shared(
    query: VideoDescription,
    target: VideoDescription,
    *,
    model: Model,
    footage: SharedFootage,
    frames: Sequence[Ints] | None = None,
    ignore_shared: bool = True,
    prior: float | None = None,
    second_look: bool = True,
) -> Match:
    """`match_videos`, of what is left of two videos without shared footage; score and matrix are those of all of it.

    Stretches that lie in shared footage are marked, and listed after the others. If one of the two videos is shared
    footage for the most part, that is what is looked for: then all of it counts, as with `ignore_shared` of False.
    `frames` is `footage.find_frames` of both, where that is known.
    """
    require_prior(prior, model)
    frames = frames or [footage.find_frames(one.features) for one in (query, target)]
    kept = _choose_frames(frames) if ignore_shared else None
    pair = compare_frames(query, target, model)
    score, psi = score_frames(pair, model)
    look = choose_look(query, target) if second_look else None
    if kept is None:
        decision = decide(pair, score, model=model, prior=prior, look=look)
    else:
        rest = pair.take(*kept)
        own_score = score if model.judge is not None else score_frames(rest, model)[0]  # a judge asks for no score
        decision = decide(rest, own_score, model=model, prior=prior, look=look)
    min_frames = choose_stretch_config(model).min_frames
    match = Match(query, target, score, decision.verdict, (), choose_matrix(pair, model), psi, min_frames)
    if kept is None:
        marked = (replace(one, shared=_is_in_clip(frames, one.path)) for one in decision.segments)
        return replace(match, segments=tuple(marked))
    whole = decide_through(pair, score, (frames[0] >= 0, frames[1] >= 0), model=model, prior=prior)
    parts: list[Segment] = []
    if whole is not None:
        for one in whole.segments:
            part = _cut_shared(match, one, frames)
            if part is not None and not any(_overlap(part, other) for other in parts):
                parts.append(part)
        if not match.verdict.match and (reason := _explain(footage, match, frames, parts)):
            match = replace(match, verdict=replace(match.verdict, reason=reason))
    segments = [
        _place_segment(match, one, [(int(kept[0][row]), int(kept[1][column])) for row, column in one.path])
        for one in decision.segments
    ]
    return replace(match, segments=(*segments, *parts))


def may_be_copies(
    query: VideoDescription,
    target: VideoDescription,
    *,
    model: Model,
    frames: Sequence[Ints],
    ignore_shared: bool = True,
    min_probability: float,
) -> bool:
    """Whether `match_beyond_shared` could give this probability of a copy: a quick answer, without psi and the files.

    `frames` is `SharedFootage.find_frames` of both.
    """
    if model.judge is None:
        return True
    pair = pair_frames(query, target, model)
    if ignore_shared and (kept := _choose_frames(frames)) is not None:
        pair = pair.take(*kept)
    return model.judge.may_be_copies(pair, model.segments, min_probability=min_probability)


def _choose_frames(frames: Sequence[Ints]) -> list[NDArray[np.intp]] | None:
    """The frames of two videos that are not shared; None if all of both count."""
    shares = [float((one >= 0).mean()) for one in frames]
    return [np.flatnonzero(one < 0) for one in frames] if 0 < max(shares) < _MOSTLY else None


def _is_in_clip(frames: Sequence[Ints], path: Sequence[tuple[int, int]]) -> bool:
    """Whether the greater part of a path is shared footage, on either side: both show the same."""
    inside = [frames[0][row] >= 0 or frames[1][column] >= 0 for row, column in path]
    return bool(sum(inside) > _GREATER_PART * len(inside))


def _overlap(one: Segment, other: Segment) -> bool:
    """Whether two stretches overlap in both videos."""
    pairs = (one.query, other.query), (one.target, other.target)
    return all(max(a[0], b[0]) < min(a[1], b[1]) for a, b in pairs)


def _cut_shared(match: Match, segment: Segment, frames: Sequence[Ints]) -> Segment | None:
    """The part of a stretch from its first to its last shared frames; None if it has none."""
    inside = [frames[0][row] >= 0 or frames[1][column] >= 0 for row, column in segment.path]
    if not any(inside):
        return None
    first, last = inside.index(True), len(inside) - inside[::-1].index(True)
    path = segment.path[first:last]
    score = float(np.mean([match.matrix[row, column] for row, column in path]))
    return replace(_place_segment(match, segment, path), score=score, shared=True)


def _place_segment(match: Match, segment: Segment, path: Sequence[tuple[int, int]]) -> Segment:
    """A stretch along a path through all frames of both videos, with its seconds."""
    if not path:
        return segment
    parts = []
    for axis, times in enumerate((match.query.times, match.target.times)):
        edges, own = frame_edges(times), [pair[axis] for pair in path]
        parts.append((float(edges[min(own)]), float(edges[max(own) + 1])))
    return replace(segment, query=parts[0], target=parts[1], path=tuple(path))


def _explain(footage: SharedFootage, match: Match, frames: Sequence[Ints], parts: Sequence[Segment]) -> str | None:
    """That nothing but shared footage matches, and where that is in the query; None if the best frames are others."""
    paths = [one.path for one in parts] or [(match.best_pair,)]
    clips = {int(max(frames[0][row], frames[1][column])) for path in paths for row, column in path}
    videos = max((footage.clips[clip].videos for clip in clips if clip >= 0), default=0)
    if not videos:  # the instant of a picture that is not the shared one
        return None
    where = ", ".join(f"{_format_time(one.query[0])}-{_format_time(one.query[1])}" for one in parts)
    return f"Only a part that occurs in {videos} videos of the library matches{f': {where}' if where else ''}."


def _format_time(seconds: float) -> str:
    """Minutes and seconds.

    >>> _format_time(63.6)
    '1:04'
    """
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02d}"
