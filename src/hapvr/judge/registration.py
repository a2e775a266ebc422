"""One picture registered on another: local features, robust mappings between them, and what is left to compare.

A mapping is a 3 x 3 matrix that takes pixels (x, y, 1) of the target's picture to pixels of the query's picture; a
mirrored one turns left into right. Mappings come from matched SIFT features (a homography and a similarity), from
where the one picture is found in the other at some size, and from the two pictures laid on top of each other.

OpenCV is imported inside functions: it is an extra.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hapvr.records import Box

Grey = NDArray[np.uint8]  # [H, W]
Matrix = NDArray[np.float64]  # [3, 3]
Plane = NDArray[np.float32]  # [h, w], grey levels

OUTSIDE = -1.0  # value of a pixel of a warped picture that the target does not cover

_RATIO = 0.8  # a match is kept if the second-best is farther by this (Lowe 2004)
_MIN_MATCHES = 6
_REACH = 4.0  # pixels within which a matched feature agrees with a mapping
_MAX_SCALE = 8.0  # one picture is at most this much larger than the other
_MAX_STRETCH = 2.5  # and this much wider for its height
_MAX_KEYSTONE = 3.0  # opposite sides of a mapped picture differ by at most this factor
_SCALES = tuple(0.85**step for step in range(10))  # sizes at which one picture is looked for in the other
_MIN_TEMPLATE = 16  # pixels of the short side of a picture that is looked for in another
_MAX_TEMPLATES = 2  # places kept for each way of looking


@dataclass(frozen=True, eq=False)
class LocalFeatures:
    """SIFT features of a picture: where they are, and their descriptors."""

    points: NDArray[np.float32]  # [N, 2]
    descriptors: NDArray[np.float32]  # [N, 128]

    def __len__(self) -> int:
        return len(self.points)


@dataclass(frozen=True, eq=False)
class Mapping:
    """Where the target's pixels lie in the query's picture."""

    matrix: Matrix
    mirrored: bool


@dataclass(frozen=True, eq=False)
class Matches:
    """Features of the target's picture, of it as it is or mirrored, that have a counterpart in the query's."""

    source: NDArray[np.float32]  # [N, 2] in the target's picture
    destination: NDArray[np.float32]  # [N, 2] in the query's picture
    mirrored: bool

    def count_inliers(self, matrix: Matrix) -> int:
        """How many different places of the query's picture agree with a mapping."""
        if not len(self.source):
            return 0
        mapped = transform(matrix, self.source.astype(np.float64))
        near = np.hypot(*(mapped - self.destination).T) <= _REACH
        return len(np.unique(np.round(self.destination[near]), axis=0))


def is_available() -> bool:
    """Whether OpenCV is installed, which the extra `second-look` brings."""
    from importlib.util import find_spec

    return find_spec("cv2") is not None


_threads_lock = threading.Lock()
_threads_users = 0
_threads_before = 0


@contextmanager
def limit_threads(threads: int) -> Iterator[None]:
    """Let OpenCV use so many threads within; the setting belongs to the process, and the last one out restores it."""
    global _threads_users, _threads_before
    import cv2

    with _threads_lock:
        if _threads_users == 0:
            _threads_before = cv2.getNumThreads()
        _threads_users += 1
        cv2.setNumThreads(threads)
    try:
        yield
    finally:
        with _threads_lock:
            _threads_users -= 1
            if _threads_users == 0:
                cv2.setNumThreads(_threads_before)


def find_features(grey: Grey, max_features: int) -> LocalFeatures:
    """The strongest SIFT features of a picture."""
    import cv2

    detector: Any = cv2.SIFT_create(nfeatures=max_features, contrastThreshold=0.015)  # type: ignore[attr-defined]
    points, descriptors = detector.detectAndCompute(grey, None)
    if descriptors is None:
        return LocalFeatures(np.zeros((0, 2), np.float32), np.zeros((0, 128), np.float32))
    return LocalFeatures(np.array([point.pt for point in points], np.float32), descriptors)


def mirror_descriptors(descriptors: NDArray[np.float32]) -> NDArray[np.float32]:
    """The descriptors that the same features have in the mirrored picture, [N, 128].

    A SIFT descriptor holds 4 x 4 cells of 8 directions, laid out along the feature's own direction: mirrored, the cells
    on its left and right and the directions to its left and right change places.
    """
    cells = descriptors.reshape(-1, 4, 4, 8)[:, ::-1]
    return np.ascontiguousarray(cells[..., -np.arange(8) % 8]).reshape(-1, 128)


def match_features(query: LocalFeatures, target: LocalFeatures, *, mirrored: bool) -> Matches:
    """The features of the target that one feature of the query resembles far more than any other does."""
    import cv2

    if len(query) < 2 or not len(target):
        return Matches(target.points[:0], query.points[:0], mirrored)
    wanted = mirror_descriptors(target.descriptors) if mirrored else target.descriptors
    distances, nearest = cv2.batchDistance(wanted, query.descriptors, cv2.CV_32F, normType=cv2.NORM_L2, K=2)
    distinct = distances[:, 0] < _RATIO * distances[:, 1]
    return Matches(target.points[distinct], query.points[nearest[distinct, 0]], mirrored)


def find_mappings(matches: Matches, query: Grey, target: Grey) -> list[Mapping]:
    """The homography and the similarity that most matches agree with, each if it is one that a camera could give."""
    import cv2

    if len(matches.source) < _MIN_MATCHES:
        return []
    # The estimators know no mirrored similarity: they are given the points of the mirrored picture.
    flip = flip_matrix(target.shape[1]) if matches.mirrored else np.eye(3)
    source = transform(flip, matches.source.astype(np.float64)).astype(np.float32)
    found: list[Mapping] = []
    homography, _ = cv2.findHomography(
        source, matches.destination, cv2.USAC_MAGSAC, _REACH, maxIters=2000, confidence=0.999
    )
    similarity, _ = cv2.estimateAffinePartial2D(
        source, matches.destination, method=cv2.RANSAC, ransacReprojThreshold=_REACH, maxIters=2000
    )
    for matrix in (homography, None if similarity is None else np.vstack([similarity, [0, 0, 1]])):
        if matrix is None:
            continue
        whole = np.asarray(matrix, np.float64) @ flip
        if is_plausible(whole, query.shape, target.shape, mirrored=matches.mirrored) and (
            matches.count_inliers(whole) >= _MIN_MATCHES
        ):
            found.append(Mapping(whole, matches.mirrored))
    return found


def is_plausible(matrix: Matrix, query: tuple[int, ...], target: tuple[int, ...], *, mirrored: bool) -> bool:
    """Whether a mapping turns the target's picture [H, W] into one that a camera or an edit could show.

    Its four corners stay a convex quadrangle, of the orientation that `mirrored` says, neither far larger or smaller
    than the query's picture, nor stretched or tapered beyond measure.
    """
    if not np.isfinite(matrix).all():
        return False
    height, width = target
    corners = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float64)
    depth = corners @ matrix[2, :2] + matrix[2, 2]
    if not ((depth > 1e-6).all() or (depth < -1e-6).all()):
        return False
    mapped = transform(matrix, corners)
    sides = np.roll(mapped, -1, axis=0) - mapped
    turns = sides[:, 0] * np.roll(sides[:, 1], -1) - sides[:, 1] * np.roll(sides[:, 0], -1)
    if not (turns < 0 if mirrored else turns > 0).all():
        return False
    across, down, back, up = np.hypot(*sides.T)
    if max(across / back, back / across, down / up, up / down) > _MAX_KEYSTONE:
        return False
    scales = (across + back) / (2 * width), (down + up) / (2 * height)
    relative = np.sqrt(scales[0] * scales[1] * (width * height) / (query[0] * query[1]))
    stretch = max(scales) / min(scales)
    return bool(1 / _MAX_SCALE <= relative <= _MAX_SCALE and stretch <= _MAX_STRETCH)


def lay_over(query: Box, target: Box, *, mirrored: bool) -> Mapping:
    """The mapping that stretches one box (the picture without its bars) over the other."""
    (left, top, right, bottom), (x, y, x_end, y_end) = query, target
    across, down = (right - left) / (x_end - x), (bottom - top) / (y_end - y)
    # Pixel 0 is the square from -0.5 to 0.5.
    matrix = np.array(
        [[across, 0, left - 0.5 - across * (x - 0.5)], [0, down, top - 0.5 - down * (y - 0.5)], [0, 0, 1]]
    )
    flip = np.array([[-1.0, 0, x + x_end - 1], [0, 1, 0], [0, 0, 1]])
    return Mapping(matrix @ flip if mirrored else matrix, mirrored)


def find_by_size(query: Plane, target: Plane, *, mirrored: bool) -> list[Mapping]:
    """Where one picture is found within the other, shrunk to several sizes: for pictures with few features.

    As picture in picture the target is found in the query; as a crop, the query in the target. Sides stay in
    proportion.
    """
    import cv2

    whole = np.ascontiguousarray(target[:, ::-1]) if mirrored else target
    flip = flip_matrix(target.shape[1]) if mirrored else np.eye(3)
    found: list[tuple[float, Mapping]] = []
    for inside, outside, target_inside in ((whole, query, True), (query, whole, False)):
        fits = min(outside.shape[0] / inside.shape[0], outside.shape[1] / inside.shape[1])
        places: list[tuple[float, Mapping]] = []
        for scale in (fits * step for step in _SCALES):
            height, width = (min(round(inside.shape[axis] * scale), outside.shape[axis]) for axis in (0, 1))
            if min(height, width) < _MIN_TEMPLATE:
                break
            small = cv2.resize(inside, (width, height), interpolation=cv2.INTER_AREA)
            likeness = cv2.matchTemplate(outside, small, cv2.TM_CCOEFF_NORMED)
            _, best, _, (x, y) = cv2.minMaxLoc(np.nan_to_num(likeness, nan=0.0, posinf=0.0, neginf=0.0))
            box, all_of_it = (x, y, x + width, y + height), (0, 0, inside.shape[1], inside.shape[0])
            mapping = (
                lay_over(box, all_of_it, mirrored=False) if target_inside else lay_over(all_of_it, box, mirrored=False)
            )
            places.append((best, Mapping(mapping.matrix @ flip, mirrored)))
        found += sorted(places, key=lambda place: -place[0])[:_MAX_TEMPLATES]
    return [mapping for _, mapping in found]


def blur(grey: NDArray[Any]) -> Plane:
    """A picture without the finest detail, which compression changes."""
    import cv2

    return np.asarray(cv2.GaussianBlur(grey.astype(np.float32), (0, 0), 1.0), np.float32)


def flip_matrix(width: int) -> Matrix:
    """The matrix that mirrors a picture of this width, left to right."""
    return np.array([[-1.0, 0.0, width - 1.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])


def scale_matrix(scale: float) -> Matrix:
    """The matrix that takes pixels of a picture to pixels of the picture resized by `scale`.

    >>> transform(scale_matrix(0.5), np.array([[0.5, 2.5]])).tolist()
    [[0.0, 1.0]]
    """
    shift = (scale - 1) / 2
    return np.array([[scale, 0.0, shift], [0.0, scale, shift], [0.0, 0.0, 1.0]])


def transform(matrix: Matrix, points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Points [N, 2] under a mapping."""
    mapped = points @ matrix[:, :2].T + matrix[:, 2]  # [N, 3]
    divided: NDArray[np.float64] = mapped[:, :2] / mapped[:, 2:]
    return divided


def warp(plane: Plane, matrix: Matrix, shape: tuple[int, ...]) -> Plane:
    """The target's picture as it lies in a picture of this shape [h, w]; `OUTSIDE` where it does not reach."""
    import cv2

    # Pixels on the border are mixed with what lies outside: far below any grey level, so that they count as outside.
    warped = cv2.warpPerspective(plane, matrix, shape[::-1], borderValue=-1e6)
    return np.where(warped > -0.5, np.maximum(warped, 0), np.float32(OUTSIDE))


def correlate(first: NDArray[Any], second: NDArray[Any], mask: NDArray[np.bool_] | None = None) -> float:
    """The correlation of two arrays over the places in a mask, in [-1, 1]; 0 where one of them is constant.

    >>> correlate(np.array([1., 2., 3.]), np.array([2., 4., 9.]))  # 7 / sqrt(2 * 26)
    0.9707253433941511
    >>> correlate(np.array([1., 2., 3.]), np.array([5., 5., 5.]))
    0.0
    """
    a = np.asarray(first if mask is None else first[mask], np.float64).ravel()
    b = np.asarray(second if mask is None else second[mask], np.float64).ravel()
    if not len(a):
        return 0.0
    a, b = a - a.mean(), b - b.mean()
    squares = float((a * a).sum()) * float((b * b).sum())
    if squares <= (1e-9 * len(a)) ** 2:
        return 0.0
    return float(np.clip((a * b).sum() / np.sqrt(squares), -1.0, 1.0))


def rms(values: NDArray[Any]) -> float:
    """The root of the mean square.

    >>> rms(np.array([3.0, -1.0, 1.0, -1.0]))
    1.7320508075688772
    """
    return float(np.sqrt(np.square(values, dtype=np.float64).mean()))
