"""Traces of an edit in the pictures of two copies: what is measured, each seen from A and from B.

The pictures of a few matching instants are registered (`edit_pictures`). Then it is measured how much of a picture the
other does not show, whether an edge runs along the other's border, where they differ, how their tones and colours
differ, and how much detail they have for their pixels.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hapvr.judge.registration import OUTSIDE, Mapping, Matrix, Plane, correlate, limit_threads, scale_matrix, warp
from hapvr.library.edit_pictures import Picture, find_nearest_frame, read_instants, register_pictures

Mask = NDArray[np.bool_]

MAX_SECONDS = 10.0
"""To look at two files; on free cores it takes less than half a second."""


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


def measure_traces(
    a: str,
    b: str,
    instants: Sequence[tuple[float, float]],
    *,
    max_seconds: float = MAX_SECONDS,
) -> Traces | None:
    """Decode a few of the instants of two files, register B's pictures on A's, and measure; None if nothing is read."""
    read = read_instants(a, b, instants, time.monotonic() + max_seconds)
    if not read:
        return None
    with limit_threads(1):
        mapping, likeness = register_pictures(read)
        pairs = [(instant.a, find_nearest_frame(instant, mapping)[1]) for instant in read]
        return _measure(pairs, mapping, likeness)


def _measure(pairs: Sequence[tuple[Picture, Picture]], mapping: Mapping, likeness: float) -> Traces:
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


def _compare_looks(a: Picture, b: Picture, matrix: Matrix, common: Mask) -> dict[str, float]:
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


def _compare_detail(a: Picture, b: Picture, matrix: Matrix) -> tuple[float, float, float, float]:
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
