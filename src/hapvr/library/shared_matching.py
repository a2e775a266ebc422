"""Matches of two videos without the footage that many videos of their library share.

`match_beyond_shared` is the one rule of search, comparison and duplicates: what is left of both is compared, and
stretches of shared footage are marked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hapvr.judge.judge import Verdict
from hapvr.library.shared_footage import SharedFootage
from hapvr.matching import Match, VideoDescription, match_videos
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
    ignore_shared: bool = True,
    prior: float | None = None,
    second_look: bool = True,
) -> Match:
    """`match_videos`, of what is left of two videos without shared footage; score and matrix are those of all of it.

    Stretches that lie in shared footage are marked, and listed after the others. If one of the two videos is shared
    footage for the most part, that is what is looked for: then all of it counts, as with `ignore_shared` of False.
    """
    frames = [footage.find_frames(one.features) for one in (query, target)]
    kept = _choose_frames(frames) if ignore_shared else None
    if kept is None:
        match = match_videos(query, target, model=model, prior=prior, second_look=second_look)
        marked = (replace(one, shared=_is_in_clip(frames, one.path)) for one in match.segments)
        return replace(match, segments=tuple(marked))
    whole = match_videos(query, target, model=model, prior=prior, second_look=False)
    left = _take_frames(query, kept[0]), _take_frames(target, kept[1])
    rest = match_videos(*left, model=model, prior=prior, second_look=second_look)
    verdict: Verdict = rest.verdict
    parts: list[Segment] = []
    if whole.verdict.match:
        for one in whole.segments:
            part = _cut_shared(whole, one, frames)
            if part is not None and not any(_overlap(part, other) for other in parts):
                parts.append(part)
        if not verdict.match:
            verdict = replace(verdict, reason=_explain(footage, whole, frames, parts))
    segments = [
        _place_segment(whole, one, [(int(kept[0][row]), int(kept[1][column])) for row, column in one.path])
        for one in rest.segments
    ]
    return replace(whole, verdict=verdict, segments=(*segments, *parts))


def drop_shared(
    query: VideoDescription, target: VideoDescription, footage: SharedFootage
) -> tuple[VideoDescription, VideoDescription]:
    """What `match_beyond_shared` compares of two videos: what is not shared, or all if one of them is little else."""
    kept = _choose_frames([footage.find_frames(one.features) for one in (query, target)])
    return (query, target) if kept is None else (_take_frames(query, kept[0]), _take_frames(target, kept[1]))


def _choose_frames(frames: Sequence[Ints]) -> list[NDArray[np.intp]] | None:
    """The frames of two videos that are not shared; None if all of both count."""
    shares = [float((one >= 0).mean()) for one in frames]
    return [np.flatnonzero(one < 0) for one in frames] if 0 < max(shares) < _MOSTLY else None


def _take_frames(video: VideoDescription, frames: NDArray[np.intp]) -> VideoDescription:
    return video if len(frames) == len(video.times) else video.take(frames)


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


def _explain(footage: SharedFootage, match: Match, frames: Sequence[Ints], parts: Sequence[Segment]) -> str:
    """That nothing but shared footage matches, and where that is in the query."""
    paths = [one.path for one in parts] or [(match.best_pair,)]
    clips = {int(max(frames[0][row], frames[1][column])) for path in paths for row, column in path}
    videos = max((footage.clips[clip].videos for clip in clips if clip >= 0), default=0)
    if not videos:  # the instant of a picture that is not the shared one
        return match.verdict.reason
    where = ", ".join(f"{_format_time(one.query[0])}-{_format_time(one.query[1])}" for one in parts)
    return f"Only a part that occurs in {videos} videos of the library matches{f': {where}' if where else ''}."


def _format_time(seconds: float) -> str:
    """Minutes and seconds.

    >>> _format_time(63.6)
    '1:04'
    """
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02d}"
