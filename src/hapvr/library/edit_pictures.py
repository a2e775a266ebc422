"""Pictures of the same instants of two copies: read from their files, and laid on top of each other.

One frame of A is decoded for each instant, and the frames of B around it. One mapping brings all small pictures of B
onto those of A: the whole pictures or what lies within their bars, mirrored or not, or what local features say.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hapvr.errors import HapvrError
from hapvr.judge.registration import (
    OUTSIDE,
    Grey,
    Mapping,
    blur,
    correlate,
    find_by_size,
    find_features,
    find_mappings,
    lay_over,
    match_features,
    warp,
)
from hapvr.judge.second_look import choose_instants
from hapvr.records import Box
from hapvr.video.limits import DecodeLimits
from hapvr.video.quality import BarFinder, luma_of

_INSTANTS = 3
_FPS, _REACH_S = 8.0, 0.5  # the frame of the second file is looked for this far around its instant
_SHORT_SIDE = 160  # pixels of the pictures that are registered
_MAX_SIDE = 720  # pixels of the shorter side of the pictures whose detail is measured
_MAX_FEATURES = 500
_GOOD = 0.95  # correlation of pictures laid on top of each other that needs no local features
_SURE_INLIERS = 20


class Picture:
    """A decoded frame at its full size, and small to be registered."""

    def __init__(self, image: NDArray[np.uint8]) -> None:
        import cv2

        self.grey: Grey = luma_of(image)
        self.shrink = min(1.0, _SHORT_SIDE / min(self.grey.shape))
        height, width = (max(1, round(side * self.shrink)) for side in self.grey.shape)
        self.colours: NDArray[np.uint8] = np.asarray(
            cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA), np.uint8
        )
        self.small: Grey = luma_of(self.colours)
        self.plane = blur(self.small)


@dataclass(frozen=True, eq=False)
class InstantPictures:
    """The frame of A at an instant, and frames of B around it."""

    a: Picture
    b: list[Picture]  # frames around it


def read_instants(a: str, b: str, instants: Sequence[tuple[float, float]], end: float) -> list[InstantPictures]:
    """Decode a few of the instants of both files, those that are reached soonest, until the clock says `end`."""
    from hapvr.video.decode import find_seek_distances
    from hapvr.video.sandboxed import call_sandboxed

    try:
        costs = []
        for place, (path, reach) in enumerate(((a, 0.0), (b, _REACH_S))):
            times = [max(0.0, one[place] - reach) for one in instants]
            costs.append([cost or 0.0 for cost in call_sandboxed(find_seek_distances, path, times)])
        chosen = choose_instants([sum(both) for both in zip(*costs, strict=True)], _INSTANTS)
        found = []
        for place in chosen:
            if time.monotonic() >= end:
                break
            time_a, time_b = instants[place]
            one = _decode(a, time_a, time_a + 1 / _FPS, end)
            others = _decode(b, time_b - _REACH_S, time_b + _REACH_S, end)
            if one and others:
                found.append(InstantPictures(one[0], others))
        return found
    except (HapvrError, OSError):
        return []


def _decode(path: str, start_s: float, end_s: float, end: float) -> list[Picture]:
    from hapvr.video.decode import decode, probe
    from hapvr.video.sandboxed import call_sandboxed

    limits = DecodeLimits(max_seconds=max(0.05, end - time.monotonic()))
    short_side = min(_MAX_SIDE, *call_sandboxed(probe, path, limits=limits).size)
    frames = call_sandboxed(
        decode, path, fps=_FPS, short_side=max(16, short_side), min_frames=0, crop_bars=False, threads=1, limits=limits,
        start_s=max(0.0, start_s), end_s=max(0.0, start_s) + (end_s - start_s),
    )  # fmt: skip
    return [Picture(image) for image in frames.images]


def register_pictures(instants: Sequence[InstantPictures]) -> tuple[Mapping, float]:
    """The mapping from B's small pictures to A's under which they agree best, and how well, in the median."""
    boxes = [_find_box([instant.a for instant in instants]), _find_box([one for each in instants for one in each.b])]
    whole = [_whole(instants[0].a.small), _whole(instants[0].b[0].small)]
    choice = [lay_over(one, other, mirrored=mirrored) for mirrored in (False, True) for one, other in (whole, boxes)]

    def rank(mapping: Mapping) -> float:
        return float(np.median([find_nearest_frame(instant, mapping)[0] for instant in instants]))

    best = max(choice, key=rank)
    if rank(best) < _GOOD:
        for instant in instants:
            nearest = find_nearest_frame(instant, best)[1]
            choice += _find_by_features(instant.a, nearest)
        best = max(choice, key=rank)
    return best, rank(best)


def _find_by_features(a: Picture, b: Picture) -> list[Mapping]:
    query, target = find_features(a.small, _MAX_FEATURES), find_features(b.small, _MAX_FEATURES)
    found: list[Mapping] = []
    inliers = 0
    for mirrored in (False, True):
        matches = match_features(query, target, mirrored=mirrored)
        mappings = find_mappings(matches, a.small, b.small)
        inliers = max([inliers, *(matches.count_inliers(mapping.matrix) for mapping in mappings)])
        found += mappings
    if inliers < _SURE_INLIERS:
        for mirrored in (False, True):
            found += find_by_size(a.plane, b.plane, mirrored=mirrored)
    return found


def find_nearest_frame(instant: InstantPictures, mapping: Mapping) -> tuple[float, Picture]:
    """The frame of B that agrees best with A's, and how well: the correlation, less the smaller the common part is."""
    a = instant.a.plane
    found = []
    for picture in instant.b:
        warped = warp(picture.plane, mapping.matrix, a.shape)
        inside = warped != OUTSIDE
        share = float(inside.mean())
        found.append((correlate(a, warped, inside) * share**0.1 if share > 0.02 else -1.0, picture))
    return max(found, key=lambda one: one[0])


def _whole(plane: NDArray[Any]) -> Box:
    return 0, 0, plane.shape[1], plane.shape[0]


def _find_box(pictures: Sequence[Picture]) -> Box:
    bars = BarFinder()
    for picture in pictures:
        bars.add(picture.small)
    height, width = pictures[0].small.shape
    return bars.box((width, height)) or (0, 0, width, height)
