"""Where two videos match: local alignment of their frame matrix by dynamic programming.

A match is a path through the frame matrix along which similarities stay above a threshold. Each cell is worth its
similarity less the threshold, so that a path gains while it matches and loses while it does not; the best local path is
found row by row as sequence aligners do (Smith and Waterman, 1981). Steps may skip up to two frames on either side or
stay on a target frame, at a small cost: so slowed and sped-up copies are followed. A path that loses too much on its
way ends there, so that two matches are not bridged into one. The rectangle of the best path is then removed and the
search goes on; frames that have a match get another only if it is about as similar. Reversed copies are found on the
mirrored matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hapvr.config import CheckedConfig, Within
from hapvr.errors import DataError, ShapeError

Matrix = NDArray[np.float64]
NonNegative = Annotated[float, Within(0)]

# (query frames, target frames) of a step, and how many frames it skips or repeats. The first is the plain diagonal.
_STEPS = ((1, 1, 0), (1, 2, 1), (1, 3, 2), (2, 1, 1), (3, 1, 2), (1, 0, 1))


@dataclass(frozen=True)
class SegmentConfig(CheckedConfig):
    """When a path counts as a match."""

    threshold: float = 0.3  # similarity at which a frame pair is as likely to match as not
    max_rival_gap: float = 0.05  # a second match of a frame may be at most this much less similar than its best
    skip_cost: NonNegative = 0.03  # of each frame skipped or repeated
    max_drop: NonNegative = 0.6  # a path ends where it has lost this since its best: two or three unlike frames
    min_gain: NonNegative = 1.0  # sum over the path of similarity less threshold and costs
    min_frames: Annotated[int, Within(1)] = 3  # distinct frames of a match, on either side
    max_speed: Annotated[float, Within(1)] = 4.0  # how many times faster one side may run: a still scene is like many
    max_segments: Annotated[int, Within(1)] = 20  # matches reported for a pair


@dataclass(frozen=True)
class Segment:
    """One matching stretch, in seconds on both videos."""

    query: tuple[float, float]
    target: tuple[float, float]
    score: float  # mean similarity along the path
    backwards: bool  # the target runs backwards
    path: tuple[tuple[int, int], ...]  # (query frame, target frame) along the match, by ascending query frame
    shared: bool = False  # it is footage that many videos of a library share, such as an end card

    def to_json(self) -> dict[str, Any]:
        """What every answer says of it, as plain values.

        >>> Segment((0.0, 2.5), (1.0, 3.5), 0.9, False, ()).to_json()
        {'query': [0.0, 2.5], 'target': [1.0, 3.5], 'score': 0.9, 'backwards': False}
        """
        plain = {
            "query": list(self.query), "target": list(self.target), "score": self.score, "backwards": self.backwards
        }  # fmt: skip
        return plain | {"shared": True} if self.shared else plain


def find_segments(
    matrix: ArrayLike,
    query_times: ArrayLike,
    target_times: ArrayLike,
    *,
    config: SegmentConfig | None = None,
) -> list[Segment]:
    """The matching stretches of two videos, best first.

    Args:
        matrix: [Tq, Tt] frame similarities, before psi.
        query_times: [Tq] ascending timestamps of the query's frames, in seconds.
        target_times: [Tt], the same for the target.
        config: when a path counts as a match.

    A frame stands for the time halfway to its neighbours, so that neighbouring segments touch and do not overlap.

    >>> matrix = np.full((6, 8), .1)
    >>> for frame in range(4):
    ...     matrix[1 + frame, 3 + frame] = .9          # query frames 1..4 are target frames 3..6
    >>> segment, = find_segments(matrix, np.arange(6.), np.arange(8.))
    >>> segment.query, segment.target, round(segment.score, 2)
    ((0.5, 4.5), (2.5, 6.5), 0.9)
    """
    config = config or SegmentConfig()
    values, rows, columns = _check(matrix, query_times, target_times)
    gains = values - config.threshold
    known = _KnownMatches(values, config.max_rival_gap)
    row_edges, column_edges = frame_edges(rows), frame_edges(columns)
    found: list[Segment] = []
    while len(found) < config.max_segments and compute_max_gain(gains) >= config.min_gain:
        both = np.stack([gains, gains[:, ::-1]], 1)  # [Tq, 2, Tt]
        forwards, backwards = _find_best_paths(both, config.skip_cost, config.max_drop)
        turned = backwards[0] > forwards[0]
        gain, path = backwards if turned else forwards
        if gain < config.min_gain or not path:
            break
        cells = [(i, len(columns) - 1 - j if turned else j) for i, j in path]
        if known.is_weaker(cells):
            known.lower(gains, cells)
            continue
        known.add(cells)
        (top, left), (bottom, right) = np.min(cells, 0).tolist(), np.max(cells, 0).tolist()
        gains[top : bottom + 1, left : right + 1] = -1.0  # removed
        if min(bottom - top, right - left) + 1 < config.min_frames:
            continue
        query = float(row_edges[top]), float(row_edges[bottom + 1])
        target = float(column_edges[left]), float(column_edges[right + 1])
        lengths = sorted((query[1] - query[0], target[1] - target[0]))
        if lengths[1] > config.max_speed * lengths[0]:
            continue
        found.append(
            Segment(
                query=query,
                target=target,
                score=min(1.0, float(np.mean([values[cell] for cell in cells]))),  # rounding goes beyond 1
                backwards=turned and right > left,
                path=tuple(cells),
            )
        )
    return found


def compute_max_gain(gains: Matrix) -> float:
    """The most that a path can gain: it passes each row once at most, and takes its best cell.

    >>> round(compute_max_gain(np.array([[-0.1, 0.4], [-0.2, -0.1], [0.2, 0.1]])), 4)
    0.6
    """
    return float(np.maximum(gains.max(1), 0.0).sum())


class _KnownMatches:
    """How similar each frame is to its matches so far.

    In footage that hardly changes, every stretch is like every other, only less than like itself. So a frame that has a
    match gets another one only if that is about as similar: a repetition is, a neighbouring stretch is not.
    """

    def __init__(self, values: Matrix, max_rival_gap: float) -> None:
        self.values, self.max_rival_gap = values, max_rival_gap
        self.best = [np.full(length, -np.inf) for length in values.shape]  # similarity to its match: rows, columns
        self.lowered = [np.zeros(length, bool) for length in values.shape]

    def add(self, cells: list[tuple[int, int]]) -> None:
        for cell in cells:
            for best, place in zip(self.best, cell, strict=True):
                best[place] = max(best[place], self.values[cell])

    def is_weaker(self, cells: list[tuple[int, int]]) -> bool:
        """Whether the frames of a path that have a match fit it less well, and `lower` was not called for them yet."""
        lost = [max(self.best[0][i], self.best[1][j]) - self.values[i, j] for i, j in self._find_matched(cells)]
        fresh = any(not self.lowered[0][i] or not self.lowered[1][j] for i, j in self._find_matched(cells))
        return bool(lost) and fresh and float(np.mean(lost)) > self.max_rival_gap

    def lower(self, gains: Matrix, cells: list[tuple[int, int]]) -> None:
        """For the frames of a path that have a match, let only gain what is about as similar as that."""
        for i, j in self._find_matched(cells):
            self.lowered[0][i] = self.lowered[1][j] = True
            np.minimum(gains[i], self.values[i] - (self.best[0][i] - self.max_rival_gap), out=gains[i])
            np.minimum(gains[:, j], self.values[:, j] - (self.best[1][j] - self.max_rival_gap), out=gains[:, j])

    def _find_matched(self, cells: list[tuple[int, int]]) -> list[tuple[int, int]]:
        return [(i, j) for i, j in cells if max(self.best[0][i], self.best[1][j]) > -np.inf]


def _find_best_paths(gains: Matrix, skip_cost: float, max_drop: float) -> list[tuple[float, list[tuple[int, int]]]]:
    """The path of the largest sum, and that sum, of each of N matrices [Tq, N, Tt].

    Every cell adds its gain, every skipped or repeated frame costs. A path may not fall by more than `max_drop` below
    the largest sum it has had.
    """
    height, count, width = gains.shape
    reach = max(max(di, dj) for di, dj, _ in _STEPS)
    # Of the sums only the last rows are kept, row i at i modulo `reach`. Shifted by `reach`: what lies outside is never
    # better.
    totals = np.full((reach, count, width + reach), -np.inf)
    peaks = np.full_like(totals, -np.inf)  # the largest sum that the path to a cell has had
    places = np.arange(totals.size).reshape(totals.shape)
    # Where the sums before each step lie, [steps, N, Tt], by the row modulo `reach`.
    sources = [
        np.stack([places[(i - di) % reach, :, reach - dj : reach - dj + width] for di, dj, _ in _STEPS])
        for i in range(reach)
    ]
    costs = np.array([skip_cost * skipped for *_, skipped in _STEPS])[:, None, None]
    options = np.empty(sources[0].shape)
    cells = np.arange(count * width).reshape(count, width)
    steps = np.empty((height, count, width), np.int8)
    begins = np.empty(steps.shape, np.bool_)  # where no path goes on
    best, columns = np.empty((height, count)), np.empty((height, count), np.intp)  # of each row: its best cell
    for i in range(height):
        source = sources[i % reach]
        np.take(totals, source, out=options, mode="wrap")
        options -= costs
        chosen = options.argmax(0)  # the first of equals
        at = chosen * cells.size + cells
        before, highest = options.take(at), peaks.take(source.take(at))
        total = before + gains[i]
        begin = np.logical_or(before <= 0, total < highest - max_drop, out=begins[i])
        np.copyto(total, gains[i], where=begin)
        np.copyto(highest, total, where=begin)
        steps[i] = chosen
        totals[i % reach, :, reach:] = total
        np.maximum(total, highest, out=peaks[i % reach, :, reach:])
        total.argmax(1, out=columns[i])
        best[i] = total.max(1)
    steps[begins] = -1
    paths = []
    for number, i in enumerate(best.argmax(0).tolist()):
        paths.append((float(best[i, number]), _follow(steps[:, number], i, int(columns[i, number]))))
    return paths


def _follow(steps: NDArray[np.int8], i: int, j: int) -> list[tuple[int, int]]:
    """The cells of the path that ends in a cell, from its first on."""
    cells = []
    while True:
        cells.append((i, j))
        if steps[i, j] < 0:
            return cells[::-1]
        di, dj, _ = _STEPS[steps[i, j]]
        i, j = i - di, j - dj


def frame_edges(times: Matrix) -> Matrix:
    """The borders [T + 1] between frames: halfway to the neighbours, half a step beyond the ends, never below 0."""
    if len(times) == 1:
        return np.array([max(times[0] - 0.5, 0.0), times[0] + 0.5])
    edges = np.empty(len(times) + 1)
    edges[1:-1] = (times[1:] + times[:-1]) / 2
    edges[0] = max(times[0] - (times[1] - times[0]) / 2, 0.0)
    edges[-1] = times[-1] + (times[-1] - times[-2]) / 2
    return edges


def _check(matrix: ArrayLike, query_times: ArrayLike, target_times: ArrayLike) -> tuple[Matrix, Matrix, Matrix]:
    values = np.array(matrix, dtype=np.float64)
    rows, columns = np.asarray(query_times, dtype=np.float64), np.asarray(target_times, dtype=np.float64)
    if values.ndim != 2 or values.size == 0:
        raise ShapeError(f"matrix must be [Tq, Tt] with at least one frame each, got {list(values.shape)}.")
    if rows.shape != values.shape[:1] or columns.shape != values.shape[1:]:
        raise ShapeError(
            f"query_times and target_times must have one entry per row and column of the matrix "
            f"{list(values.shape)}, got {list(rows.shape)} and {list(columns.shape)}."
        )
    for name, numbers in (("matrix", values), ("query_times", rows), ("target_times", columns)):
        if not np.isfinite(numbers).all():
            raise DataError(f"{name} holds NaN or infinite values.")
    for name, times in (("query_times", rows), ("target_times", columns)):
        if (np.diff(times) <= 0).any():
            raise DataError(f"{name} must ascend; two frames share or swap their times.")
    return values, rows, columns
