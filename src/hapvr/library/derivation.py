"""Which of two copies was made of the other, by what their files show.

A few matching instants of both files are decoded, the one picture is registered on the other, and each trace of an edit
is looked for: a part of the picture cut off, a frame around it, words or stickers over it, colour taken away, less
detail than the pixels could hold. Each trace names the copy that has it. A mirrored picture, changed colours
or another speed are the same seen from either side: they say that one is an edit, but not which.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hapvr.errors import HapvrError
from hapvr.judge.registration import (
    OUTSIDE,
    Grey,
    Mapping,
    Matrix,
    Plane,
    blur,
    correlate,
    find_by_size,
    find_features,
    find_mappings,
    is_available,
    lay_over,
    limit_threads,
    match_features,
    scale_matrix,
    warp,
)
from hapvr.judge.second_look import choose_instants
from hapvr.records import Box
from hapvr.similarity import Segment
from hapvr.video.limits import DecodeLimits
from hapvr.video.quality import BarFinder, luma_of

Mask = NDArray[np.bool_]
Side = Literal["a", "b"]

_INSTANTS = 3
_CHOICE = 8  # instants of a stretch to choose from, by what they cost to reach
_MAX_SECONDS = 10.0  # of two files; on free cores it takes less than half a second
_FPS, _REACH_S = 8.0, 0.5  # the frame of the second file is looked for so far around its instant
_SHORT_SIDE = 160  # pixels of the pictures that are registered
_MAX_SIDE = 720  # pixels of the shorter side of the pictures whose detail is measured
_MAX_FEATURES = 500
_GOOD = 0.95  # correlation of pictures laid on top of each other that needs no local features
_MIN_LIKE = 0.5  # correlation of registered pictures below which nothing is said
_SURE_INLIERS = 20
_MIN_CROP_LIKENESS = 0.8  # correlation of registered pictures from which on one can be a crop
_MIN_REGISTERED = 0.5  # common detail of pictures that are registered beyond doubt
_MIN_EXACT = 0.6  # common detail of pictures that lie exactly on each other


@dataclass(frozen=True)
class DerivationLimits:
    """From where on a trace counts; chosen on edited copies of training videos.

    Attributes:
        min_beyond: share of a picture that the other does not show.
        min_edge: how much stronger an edge along the other's border is than edges beside it, in a frame.
        max_edge: and in a crop.
        min_overlay: share of the picture that differs under words or stickers.
        min_differing: and under something that has no edges.
        min_overlay_edges: how much stronger edges are there.
        max_grey: chroma of a picture without colour, in grey levels.
        min_colour: and of one with colour.
        max_tones: factor of contrast or saturation that coding explains.
        max_brightness: difference of mean grey levels that coding explains.
        min_hues: correlation of colours.
        max_soft: factor of detail, relative to the other, of a copy that is softer.
        min_larger: how much larger a picture is whose detail should be more.
        min_finer: factor of the finest detail that a larger picture has more than a smaller one enlarged.
    """

    min_beyond: float = 0.06
    min_edge: float = 2.5
    max_edge: float = 1.7
    min_overlay: float = 0.004
    min_differing: float = 0.02
    min_overlay_edges: float = 1.4
    max_grey: float = 3.0
    min_colour: float = 8.0
    max_tones: float = 1.2
    max_brightness: float = 8.0
    min_hues: float = 0.8
    max_soft: float = 0.75
    min_larger: float = 1.15
    min_finer: float = 1.25


LIMITS = DerivationLimits()


@dataclass(frozen=True)
class Derivation:
    """Which of two copies is an edit of the other, and why.

    Without reasons the two differ in nothing but how they were encoded. With reasons but no answer, one is an edit and
    nothing says which, or the traces contradict each other.
    """

    derived: Side | None
    reasons: tuple[str, ...] = ()

    @property
    def unsure(self) -> bool:
        """Whether they differ, and nothing says which is the edit."""
        return self.derived is None and bool(self.reasons)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"derived": self.derived, "reasons": list(self.reasons)}

    def swap(self) -> Derivation:
        """The same about the two in the other order."""
        return Derivation(None if self.derived is None else "a" if self.derived == "b" else "b", self.reasons)


@dataclass(frozen=True)
class Traces:
    """What was measured of the pictures of A and B, each the median over instants."""

    likeness: float  # correlation of the registered pictures
    mirrored: bool
    tilted: float  # how far from upright the one lies in the other, as a part of its sides
    beyond: tuple[float, float]  # share of A's picture that B does not show, and the other way round
    edges: tuple[float, float]  # strength of A's edge along B's border, relative to edges beside it; and of B's
    overlay: float  # share of the picture that differs
    overlay_edges: float  # edges of A there relative to B's
    chroma: tuple[float, float]  # mean, in grey levels
    hues: float  # correlation of chroma
    contrast: float  # of A relative to B
    brightness: float  # difference of means, in grey levels
    detail: tuple[
        float, float
    ]  # of A seen in B and of B seen in A: what is common, relative to all detail of the other
    scale: float  # pixels of A for each of B, along a side
    finer: float  # finest detail of the one with more pixels, relative to the other enlarged


def find_derivation(
    a: str | os.PathLike[str],
    b: str | os.PathLike[str],
    segments: Sequence[Segment],
    *,
    speed: float = 1.0,
    max_seconds: float = _MAX_SECONDS,
) -> Derivation | None:
    """Say which of two files that match is an edit of the other; the same with the two exchanged.

    None if they cannot be looked at: a file is gone or cannot be decoded in time, or OpenCV is not installed.

    Args:
        a, b: files; with names that differ.
        segments: the stretches that match (query: A, target: B); none for pictures.
        speed: of B against A; below 0 it runs backwards.
        max_seconds: after which it goes by the instants that were read.
    """
    if not is_available():
        return None
    paths, instants = (os.fspath(a), os.fspath(b)), _list_instants(segments)
    # The one is registered on the other in one order, whichever is called A.
    swapped = paths[0] > paths[1]
    if swapped:
        paths, instants = paths[::-1], [(second, first) for first, second in instants]
    traces = measure_traces(*paths, instants, max_seconds=max_seconds)
    if traces is None:
        return None
    found = decide_derivation(traces, speed=speed)
    return found.swap() if swapped else found


def decide_derivation(traces: Traces, *, speed: float = 1.0, limits: DerivationLimits = LIMITS) -> Derivation:
    """Weigh the traces: one copy is derived if all that name one name it."""
    if traces.likeness < _MIN_LIKE:
        return Derivation(None, ("their pictures differ too much to be compared",))
    named = _find_named(traces, limits)
    sides = {side for side, _ in named}
    reasons = [reason for _, reason in named] + _find_symmetric(traces, speed, limits)
    return Derivation(sides.pop() if len(sides) == 1 else None, tuple(dict.fromkeys(reasons)))


def _find_named(traces: Traces, limits: DerivationLimits) -> list[tuple[Side, str]]:
    """Traces that say which copy is the edit."""
    found: list[tuple[Side, str]] = []
    sides: tuple[tuple[Side, Side, int], ...] = (("a", "b", 0), ("b", "a", 1))
    for this, other, place in sides:
        if traces.beyond[place] >= limits.min_beyond:
            if traces.edges[place] >= limits.min_edge:
                found.append((this, "framed: it shows the other's whole picture within a border or another picture"))
            elif traces.edges[place] <= limits.max_edge and _are_registered(traces):
                found.append((other, "cropped: it shows a part of the other's picture"))
        if traces.chroma[place] <= limits.max_grey and traces.chroma[1 - place] >= limits.min_colour:
            found.append((this, "without colour"))
    if traces.overlay >= limits.min_overlay:
        # A blurred picture has weaker edges everywhere.
        blurred = max(traces.detail) >= 2 * min(traces.detail)
        least = limits.min_overlay_edges * (2 if blurred else 1)
        for side, ratio in (("a", traces.overlay_edges), ("b", 1 / traces.overlay_edges)):
            if ratio >= least:
                found.append(("a" if side == "a" else "b", "words, a sticker or a logo over the picture"))
    found += _find_softer(traces, limits)
    return found


def _are_registered(traces: Traces) -> bool:
    return traces.likeness >= _MIN_CROP_LIKENESS and min(traces.detail) >= _MIN_REGISTERED


def _tones_differ(traces: Traces, limits: DerivationLimits) -> bool:
    contrast = abs(math.log(max(traces.contrast, 1e-3)))
    return contrast > math.log(limits.max_tones) or abs(traces.brightness) > limits.max_brightness


def _find_softer(traces: Traces, limits: DerivationLimits) -> list[tuple[Side, str]]:
    a_in_b, b_in_a = traces.detail
    larger: Side | None = None
    if max(traces.scale, 1 / traces.scale) >= limits.min_larger:
        larger = "a" if traces.scale > 1 else "b"
    softer: Side | None = None
    if a_in_b <= limits.max_soft and b_in_a >= 1:
        softer = "a"
    elif b_in_a <= limits.max_soft and a_in_b >= 1:
        softer = "b"
    if softer is not None:
        return [(softer, "enlarged: less detail, in more pixels" if softer == larger else "softer: less detail")]
    # The finest detail is compared only of pictures that lie exactly on each other.
    exact = max(traces.beyond) < limits.min_beyond and min(traces.detail) >= _MIN_EXACT
    if larger is not None and exact and 0 < traces.finer < limits.min_finer:
        return [(larger, "enlarged: it has more pixels but no finer detail")]
    return []


def _find_symmetric(traces: Traces, speed: float, limits: DerivationLimits) -> list[str]:
    """Traces that say that one is an edit, but not which."""
    found = []
    if traces.mirrored:
        found.append("one is mirrored")
    if traces.tilted > 0.03:
        found.append("one is tilted or seen from aside")
    if traces.overlay >= limits.min_differing:
        found.append("parts of their pictures differ")
    if max(traces.beyond) >= limits.min_beyond:
        found.append("one shows more of the picture, or a border")
    if min(traces.detail) <= limits.max_soft and not _find_softer(traces, limits):
        found.append("one is softer or noisier")
    chroma = abs(math.log((traces.chroma[0] + 2) / (traces.chroma[1] + 2)))
    if _tones_differ(traces, limits) or chroma > math.log(limits.max_tones) or traces.hues < limits.min_hues:
        found.append("their colours differ")
    if abs(abs(speed) - 1) > 0.03:
        found.append("one plays faster")
    if speed < 0:
        found.append("one plays backwards")
    return found


# --- reading ---------------------------------------------------------------------------------------------------------


def _list_instants(segments: Sequence[Segment]) -> list[tuple[float, float]]:
    """Instants of both along the stretches, in seconds."""
    shares = (np.arange(_CHOICE) + 0.5) / _CHOICE
    found = []
    for segment in segments:
        (start, end), (first, last) = segment.query, segment.target
        if segment.backwards:
            first, last = last, first
        found += [(start + (end - start) * share, first + (last - first) * share) for share in shares.tolist()]
    return found or [(0.0, 0.0)]


class _Picture:
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
class _Instant:
    a: _Picture
    b: list[_Picture]  # frames around it


def _read_instants(a: str, b: str, instants: Sequence[tuple[float, float]], end: float) -> list[_Instant]:
    from hapvr.video.decode import find_seek_distances

    try:
        costs = [
            [cost or 0.0 for cost in find_seek_distances(path, [max(0.0, one[place] - reach) for one in instants])]
            for place, (path, reach) in enumerate(((a, 0.0), (b, _REACH_S)))
        ]
        chosen = choose_instants([sum(both) for both in zip(*costs, strict=True)], _INSTANTS)
        found = []
        for place in chosen:
            if time.monotonic() >= end:
                break
            time_a, time_b = instants[place]
            one = _decode(a, time_a, time_a + 1 / _FPS, end)
            others = _decode(b, time_b - _REACH_S, time_b + _REACH_S, end)
            if one and others:
                found.append(_Instant(one[0], others))
        return found
    except (HapvrError, OSError):
        return []


def _decode(path: str, start_s: float, end_s: float, end: float) -> list[_Picture]:
    from hapvr.video.decode import decode, probe

    limits = DecodeLimits(max_seconds=max(0.05, end - time.monotonic()))
    short_side = min(_MAX_SIDE, *probe(path, limits=limits).size)
    frames = decode(
        path, fps=_FPS, short_side=max(16, short_side), min_frames=0, crop_bars=False, start_s=max(0.0, start_s),
        end_s=max(0.0, start_s) + (end_s - start_s), threads=1, limits=limits,
    )  # fmt: skip
    return [_Picture(image) for image in frames.images]


# --- measuring -------------------------------------------------------------------------------------------------------


def measure_traces(
    a: str,
    b: str,
    instants: Sequence[tuple[float, float]],
    *,
    max_seconds: float = _MAX_SECONDS,
    clock: Callable[[], float] = time.monotonic,
) -> Traces | None:
    """Decode a few of the instants of two files, register B's pictures on A's, and measure; None if nothing is read."""
    read = _read_instants(a, b, instants, clock() + max_seconds)
    if not read:
        return None
    with limit_threads(1):
        mapping, likeness = _register(read)
        pairs = [(instant.a, _find_nearest(instant, mapping)[1]) for instant in read]
        return _measure(pairs, mapping, likeness)


def _register(instants: Sequence[_Instant]) -> tuple[Mapping, float]:
    """The mapping from B's small pictures to A's under which they agree best, and how well, in the median."""
    boxes = [_find_box([instant.a for instant in instants]), _find_box([one for each in instants for one in each.b])]
    whole = [_whole(instants[0].a.small), _whole(instants[0].b[0].small)]
    choice = [lay_over(one, other, mirrored=mirrored) for mirrored in (False, True) for one, other in (whole, boxes)]

    def rank(mapping: Mapping) -> float:
        return float(np.median([_find_nearest(instant, mapping)[0] for instant in instants]))

    best = max(choice, key=rank)
    if rank(best) < _GOOD:
        for instant in instants:
            nearest = _find_nearest(instant, best)[1]
            choice += _find_by_features(instant.a, nearest)
        best = max(choice, key=rank)
    return best, rank(best)


def _find_by_features(a: _Picture, b: _Picture) -> list[Mapping]:
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


def _find_nearest(instant: _Instant, mapping: Mapping) -> tuple[float, _Picture]:
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


def _find_box(pictures: Sequence[_Picture]) -> Box:
    bars = BarFinder()
    for picture in pictures:
        bars.add(picture.small)
    height, width = pictures[0].small.shape
    return bars.box((width, height)) or (0, 0, width, height)


def _measure(pairs: Sequence[tuple[_Picture, _Picture]], mapping: Mapping, likeness: float) -> Traces:
    first = pairs[0]
    shapes = first[0].small.shape, first[1].small.shape
    back: Matrix = np.asarray(np.linalg.inv(mapping.matrix), np.float64)
    covered = (
        warp(np.zeros(shapes[1], np.float32), mapping.matrix, shapes[0]) != OUTSIDE,
        warp(np.zeros(shapes[0], np.float32), back, shapes[1]) != OUTSIDE,
    )
    common = _erode(covered[0], 3)
    if not common.any():
        common = covered[0]
    looks = [_compare_looks(a, b, mapping.matrix, common) for a, b in pairs]
    details = [_compare_detail(a, b, mapping.matrix) for a, b in pairs]
    mean = [np.asarray(np.mean([pair[place].plane for pair in pairs], 0), np.float32) for place in (0, 1)]

    def median(name: str) -> float:
        return float(np.median([look[name] for look in looks]))

    return Traces(
        likeness=likeness,
        mirrored=mapping.mirrored,
        tilted=_measure_tilt(mapping.matrix, shapes[1]),
        beyond=(1 - float(covered[0].mean()), 1 - float(covered[1].mean())),
        edges=(_measure_edge(mean[0], covered[0]), _measure_edge(mean[1], covered[1])),
        overlay=median("overlay"),
        overlay_edges=median("overlay_edges"),
        chroma=(median("chroma_a"), median("chroma_b")),
        hues=median("hues"),
        contrast=median("contrast"),
        brightness=median("brightness"),
        detail=(float(np.median([one[0] for one in details])), float(np.median([one[1] for one in details]))),
        scale=details[0][2],
        finer=float(np.median([one[3] for one in details])),
    )


def _erode(mask: Mask, pixels: int) -> Mask:
    import cv2

    kernel = np.ones((2 * pixels + 1, 2 * pixels + 1), np.uint8)
    return np.asarray(cv2.erode(mask.astype(np.uint8), kernel, borderValue=1) > 0)


def _measure_tilt(matrix: Matrix, shape: tuple[int, ...]) -> float:
    """How far the sides of a mapped picture lie from upright, relative to its size."""
    height, width = shape
    corners = np.array([[0, 0, 1], [width, 0, 1], [width, height, 1], [0, height, 1]], np.float64) @ matrix.T
    x, y = corners[:, 0] / corners[:, 2], corners[:, 1] / corners[:, 2]
    size = max(float(np.ptp(x)), float(np.ptp(y)), 1.0)
    slants = abs(y[0] - y[1]), abs(y[2] - y[3]), abs(x[0] - x[3]), abs(x[1] - x[2])
    return float(max(slants)) / size


def _measure_edge(picture: Plane, covered: Mask) -> float:
    """How strong the edge along the border of a part is, relative to edges inside beside it; 0 without a border."""
    import cv2

    if covered.all() or not covered.any():
        return 0.0
    inside = cv2.distanceTransform(np.pad(covered, 1, mode="edge").astype(np.uint8), cv2.DIST_L2, 3)[1:-1, 1:-1]
    outside = cv2.distanceTransform(np.pad(~covered, 1, mode="edge").astype(np.uint8), cv2.DIST_L2, 3)[1:-1, 1:-1]
    distance = np.where(covered, inside, -outside)  # above 0 inside
    slope = _measure_slope(picture)

    def find_mean(low: float, high: float) -> float | None:
        ring = (distance > low) & (distance <= high)
        return float(slope[ring].mean()) if ring.sum() >= 16 else None

    at_border = [value for step in range(-4, 4) if (value := find_mean(step, step + 1)) is not None]
    beside = [value for step in range(6, 20, 2) if (value := find_mean(step, step + 2)) is not None]
    if not at_border or not beside:
        return 0.0
    return max(at_border) / (float(np.median(beside)) + 0.5)


def _measure_slope(plane: Plane) -> Plane:
    import cv2

    across, down = (cv2.Sobel(plane, cv2.CV_32F, *order, ksize=3, scale=1 / 8) for order in ((1, 0), (0, 1)))
    return np.asarray(cv2.magnitude(across, down), np.float32)


def _compare_looks(a: _Picture, b: _Picture, matrix: Matrix, common: Mask) -> dict[str, float]:
    """Tones, colours, and areas that differ, of A's picture and of B's laid on it."""
    import cv2

    size = a.small.shape[::-1]
    colours = cv2.warpPerspective(b.colours, matrix, size).astype(np.float32)
    own = a.colours.astype(np.float32)
    one, other = a.plane, np.maximum(warp(b.plane, matrix, a.plane.shape), 0)
    x, y = one[common].astype(np.float64), other[common].astype(np.float64)
    contrast = float((x.std() + 1) / (y.std() + 1))
    fitted = (other - y.mean()) * contrast + x.mean()
    differs = (cv2.GaussianBlur(np.abs(one - fitted), (0, 0), 1.5) > 28) & common
    chromas = [pixels - pixels.mean(2, keepdims=True) for pixels in (own, colours)]
    strengths = [float(np.ptp(pixels, axis=2)[common].mean()) for pixels in (own, colours)]
    strong = min(strengths) >= 6
    overlay_edges = 1.0
    if differs.any() and not differs[common].all():
        near = cv2.dilate(differs.astype(np.uint8), np.ones((5, 5), np.uint8)).astype(bool) & common
        away = common & ~near
        slopes = _measure_slope(one), _measure_slope(np.asarray(fitted, np.float32))
        inside = (slopes[0][near].mean() + 1) / (slopes[1][near].mean() + 1)
        outside = (slopes[0][away].mean() + 1) / (slopes[1][away].mean() + 1) if away.any() else 1.0
        overlay_edges = float(inside / outside)
    return {
        "overlay": float(differs[common].mean()),
        "overlay_edges": overlay_edges,
        "chroma_a": strengths[0],
        "chroma_b": strengths[1],
        "hues": correlate(chromas[0][common], chromas[1][common]) if strong else 1.0,
        "contrast": contrast,
        "brightness": float(x.mean() - y.mean()),
    }


def _compare_detail(a: _Picture, b: _Picture, matrix: Matrix) -> tuple[float, float, float, float]:
    """The common detail relative to all of B's, and to all of A's; pixels of A for each of B; and how much finer.

    Detail is what is 1 to 3 pixels wide, of the picture with fewer pixels; contrast is made equal before.
    """
    import cv2

    native = np.linalg.inv(scale_matrix(a.shrink)) @ matrix @ scale_matrix(b.shrink)  # B's pixels to A's
    scale = math.sqrt(abs(float(np.linalg.det(native[:2, :2]))))
    # The one with more pixels is brought to the pixels of the other.
    large, small, onto = (a, b, np.linalg.inv(native)) if scale > 1 else (b, a, native)
    ratio = max(scale, 1 / scale)
    size = tuple(max(8, round(side / ratio)) for side in large.grey.shape[::-1])
    shrunk = cv2.resize(large.grey, size, interpolation=cv2.INTER_AREA).astype(np.float32)
    exact = np.diag([large.grey.shape[1] / size[0], large.grey.shape[0] / size[1], 1.0])
    shift = np.array([[1, 0, 0.5], [0, 1, 0.5], [0, 0, 1.0]])
    laid = warp(shrunk, onto @ np.linalg.inv(shift) @ exact @ shift, small.grey.shape)
    inside = _erode(laid != OUTSIDE, 6)
    if inside.sum() < 256:
        return 1.0, 1.0, scale, 0.0
    own, laid = small.grey.astype(np.float32), np.maximum(laid, 0)
    gain = (float(own[inside].std()) + 1) / (float(laid[inside].std()) + 1)
    bands = [cv2.GaussianBlur(one, (0, 0), 0.7) - cv2.GaussianBlur(one, (0, 0), 2.0) for one in (own, laid * gain)]
    own_band, laid_band = (band[inside].astype(np.float64) for band in bands)
    both = float((own_band * laid_band).mean())
    own_in_laid, laid_in_own = both / (float((laid_band**2).mean()) + 0.5), both / (float((own_band**2).mean()) + 0.5)
    finer = 0.0
    if ratio >= 1.05:
        grown = cv2.warpPerspective(own, np.linalg.inv(onto), large.grey.shape[::-1], flags=cv2.INTER_CUBIC)
        reached = warp(np.zeros_like(own), np.linalg.inv(onto), large.grey.shape) != OUTSIDE
        reached = _erode(reached, 6)
        if reached.sum() >= 256:
            whole = large.grey.astype(np.float32)
            fine = [one - cv2.GaussianBlur(one, (0, 0), 0.8) for one in (whole * gain, grown)]
            finer = float((fine[0][reached].std() + 0.2) / (fine[1][reached].std() + 0.2))
    return (laid_in_own, own_in_laid, scale, finer) if scale > 1 else (own_in_laid, laid_in_own, scale, finer)
