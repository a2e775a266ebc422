"""What speaks for two videos showing the same footage: stretches that may match, and named evidence of each.

A stretch is a part of either video and a straight line in time between the two. Candidates are the paths that
`similarity.find_segments` finds in the frame matrix, cut into straight pieces, and the lines that `alignment.align`
finds by voting, in the frame matrix and in the correlations of miniatures. Where each begins and ends on its line is
found frame by frame (`stretch_ends`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hapvr.judge.alignment import (
    align,
    correlate,
    find_median,
    find_most_similar,
    find_step,
    make_pixel_views,
    measure_spread,
)
from hapvr.judge.stretch_ends import find_borders, find_ends
from hapvr.judge.windows import find_window
from hapvr.similarity.segments import Segment, SegmentConfig, find_segments

Floats = NDArray[np.float64]
Matrix = NDArray[np.float32]
Miniatures = NDArray[np.uint8]

_TOLERANCE = 1.25  # frames to either side of the line that are in step
_BY_CHANCE = 4  # frames in step that any two videos have, more or less
_MIN_FRAMES = 8  # a share is of no fewer
_MAX_BEND = 1.5  # frames that a straight piece of a path may be away from its line
_ABOUT_AS_LONG, _ALONG = 0.6, 0.8  # of another line, one that is left out because it goes along it
_MAX_PIXEL_CELLS = 4_000_000  # of a frame matrix, for which correlations of all pixels are computed
_MAX_CELLS = 48  # of a stretch, whose pixels are compared


@dataclass(frozen=True, eq=False)
class PairFrames:
    """What is known of two videos A and B, frame by frame."""

    forth: Matrix  # [Ta, Tb] similarity of A's frames to B's
    back: Matrix  # [Tb, Ta] similarity of B's frames to A's
    a_times: Floats  # [Ta] seconds, ascending
    b_times: Floats  # [Tb]
    a_small: Miniatures | None = None  # [Ta, S, S]; None where they are not known
    b_small: Miniatures | None = None
    a_vectors: Matrix | None = None  # [Ta, D] mean region vector of each frame
    b_vectors: Matrix | None = None  # [Tb, D]
    a_views: Callable[[], Matrix] | None = None  # gives `make_pixel_views` of `a_small`, where that was made before
    b_views: Callable[[], Matrix] | None = None

    @cached_property
    def step(self) -> float:
        """Seconds from frame to frame, of the video with fewer; 1 for two pictures."""
        return max((find_step(times) for times in (self.a_times, self.b_times) if len(times) > 1), default=1.0)

    @cached_property
    def mean(self) -> Matrix:
        """Similarity of the frames, both ways [Ta, Tb]."""
        return np.asarray((self.forth + self.back.T) / 2, np.float32)

    @cached_property
    def likeness(self) -> float:
        """The mean similarity of all frames to their most similar ones, of the video for which it is greater."""
        return float(max(self.forth.max(1).mean(), self.back.max(1).mean()))

    def take(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> PairFrames:
        """Some frames of A and some of B, by their positions."""
        return PairFrames(
            self.forth[np.ix_(rows, columns)],
            self.back[np.ix_(columns, rows)],
            self.a_times[rows],
            self.b_times[columns],
            None if self.a_small is None else self.a_small[rows],
            None if self.b_small is None else self.b_small[columns],
            None if self.a_vectors is None else self.a_vectors[rows],
            None if self.b_vectors is None else self.b_vectors[columns],
            _take_views(self.a_views, rows),
            _take_views(self.b_views, columns),
        )


def _take_views(views: Callable[[], Matrix] | None, frames: NDArray[np.intp]) -> Callable[[], Matrix] | None:
    """What gives the views [V, T, S S] of some frames."""
    return None if views is None else lambda: np.ascontiguousarray(views()[:, frames])


@dataclass(frozen=True)
class Evidence:
    """Named evidence that a stretch of two videos is the same footage. More of each speaks for it."""

    similarity: float  # mean similarity of its frames, both ways
    contrast: float  # how far these similarities stand out from those of the same frames elsewhere, in deviations
    in_step: float  # share of its frames whose most similar frame is on the line, less what chance gives
    frames: float  # log of how many frames those are
    coverage: float  # share of the video that it covers more of
    likeness: float  # mean similarity of all frames to their most similar ones, of the two videos
    evenness: float  # 0 at the same speed; less by how much one is faster, and if it runs backwards
    vector_changes: float  # correlation of what changes in the frames' vectors from one to the next, the median
    pixels: float = math.nan  # correlation of its miniatures, where one picture is best found in the other
    changes: float = math.nan  # correlation of what changes in them from one to the next, the median
    moves: float = math.nan  # how much changes, log of grey levels


@dataclass(frozen=True, eq=False)
class Stretch:
    """A part of two videos that may be the same footage."""

    segment: Segment
    speed: float  # seconds of B per second of A; below 0: backwards
    shift: float  # B's time is `speed` times A's plus this
    evidence: Evidence
    instants: tuple[tuple[float, float], ...] = ()  # seconds of A and of B, along it


class Candidate:
    """A line of two videos that may match; its evidence is measured when it is asked for."""

    def __init__(self, context: _Context, speed: float, shift: float, cells: NDArray[np.int64]) -> None:
        self._context, self._line, self._cells = context, (speed, shift), cells

    @cached_property
    def stretch(self) -> Stretch:
        """With its evidence."""
        evidence = _measure(self._context, *self._line, self._cells)
        return _make_stretch(self._context, *self._line, self._cells, evidence)

    def meets(self, a: NDArray[np.bool_], b: NDArray[np.bool_]) -> bool:
        """Whether it goes through any of these frames, bool [Ta] and [Tb]."""
        return bool(a[self._cells[:, 0]].any() or b[self._cells[:, 1]].any())


@dataclass(frozen=True, eq=False)
class _Context:
    """What all lines of two videos have in common."""

    pair: PairFrames
    most: tuple[NDArray[np.int64], NDArray[np.int64]]  # the most similar frame of each, [Ta] and [Tb]


def find_stretches(pair: PairFrames, config: SegmentConfig) -> list[Stretch]:
    """The stretches of two videos that may match, in no order.

    Of a picture, and of a video that is too short for a stretch, it is where its frames are most similar.
    """
    return [candidate.stretch for candidate in find_candidates(pair, config)]


def find_candidates(pair: PairFrames, config: SegmentConfig) -> list[Candidate]:
    """The lines of `find_stretches`, before their evidence is measured: that is most of the work."""
    mean = pair.mean
    context = _Context(pair, (find_most_similar(pair.forth), find_most_similar(pair.back)))
    if min(mean.shape) < config.min_frames:
        cells = _find_instants(mean)
        shift = find_median(pair.b_times[cells[:, 1]] - pair.a_times[cells[:, 0]])
        return [Candidate(context, 1.0, shift, cells)]
    lines: list[tuple[float, float, NDArray[np.int64]]] = []  # speed, shift, cells [P, 2]
    for segment in find_segments(pair.forth, pair.a_times, pair.b_times, config=config):
        for part in _cut_at_gaps(np.array(segment.path), pair.forth, config.threshold):
            lines += _straighten(part, pair, config)
    found = align(pair.forth, pair.back, pair.a_times, pair.b_times, most=context.most).line
    if found is not None:
        lines.append((found.speed, found.shift, _walk(found.speed, found.shift, found.query, pair)))
    pixels = None
    if pair.a_small is not None and pair.b_small is not None and mean.size <= _MAX_PIXEL_CELLS:
        views = (
            make_pixel_views(small) if known is None else known()
            for small, known in ((pair.a_small, pair.a_views), (pair.b_small, pair.b_views))
        )
        pixels = correlate(*views)
        found = align(pixels, pixels.T, pair.a_times, pair.b_times).line
        if found is not None:
            lines.append((found.speed, found.shift, _walk(found.speed, found.shift, found.query, pair)))
    parts = [
        (speed, shift, part)
        for speed, shift, cells in lines
        for part in find_ends(
            mean, pair.a_times, pair.b_times, (speed, shift), cells, min_frames=config.min_frames, pixels=pixels
        )
    ]
    return [
        Candidate(context, speed, shift, cells)
        for speed, shift, cells in _drop_repeated(parts, mean)
        if _count_frames(cells) >= config.min_frames
    ]


def _count_frames(cells: NDArray[np.int64]) -> int:
    """The different frames of A or of B among cells [P, 2], whichever are fewer."""
    return min(len(set(frames)) for frames in cells.T.tolist())


def _find_instants(mean: Matrix) -> NDArray[np.int64]:
    """The most similar frame of the longer video for each of the shorter one: cells [P, 2]."""
    if mean.shape[0] <= mean.shape[1]:
        return np.stack([np.arange(len(mean)), mean.argmax(1)], 1)
    return np.stack([mean.argmax(0), np.arange(mean.shape[1])], 1)


def _cut_at_gaps(path: NDArray[np.int64], matrix: Matrix, threshold: float) -> list[NDArray[np.int64]]:
    """The parts of a path between gaps: two or more cells in a row that are no match, which a path may bridge."""
    low = matrix[path[:, 0], path[:, 1]] < threshold
    gap = low & (np.append(low[1:], False) | np.append(False, low[:-1]))
    borders = np.flatnonzero(np.diff(gap)) + 1
    return [part for part, first in zip(np.split(path, borders), [0, *borders], strict=True) if not gap[first]]


def _straighten(
    path: NDArray[np.int64], pair: PairFrames, config: SegmentConfig
) -> list[tuple[float, float, NDArray[np.int64]]]:
    """Cut a path into straight pieces, each with its line; what is too short or too fast is dropped."""
    x, y = pair.a_times[path[:, 0]], pair.b_times[path[:, 1]]
    if _count_frames(path) < config.min_frames:
        return []
    speed, shift = fit_line(x, y)
    step = pair.step
    away = np.abs(y - (speed * x + shift)) / (step * max(1.0, abs(speed)))
    if speed != 0 and away.max() <= _MAX_BEND:
        if not 1 / config.max_speed <= abs(speed) <= config.max_speed:
            return []
        return [(speed, shift, path)]
    # Split where the path is farthest from the chord between its ends.
    chord = y[0] + (y[-1] - y[0]) * (x - x[0]) / max(x[-1] - x[0], 1e-9)
    cut = int(np.clip(np.abs(y - chord).argmax(), 1, len(path) - 2))
    return _straighten(path[: cut + 1], pair, config) + _straighten(path[cut:], pair, config)


def fit_line(x: Floats, y: Floats) -> tuple[float, float]:
    """Speed and shift of the line through the points, by least squares; a speed within 4% of 1 is taken as 1.

    >>> fit_line(np.array([0.0, 1.0, 2.0]), np.array([3.0, 5.0, 7.0]))
    (2.0, 3.0)
    """
    spread = x - x.mean()
    total = float(spread @ spread)
    speed = float(spread @ y) / total if total > 0 else 1.0
    if abs(abs(speed) - 1) < 0.04:
        speed = math.copysign(1.0, speed)
    return speed, find_median(y - speed * x)


def _drop_repeated(
    lines: list[tuple[float, float, NDArray[np.int64]]], mean: Matrix
) -> list[tuple[float, float, NDArray[np.int64]]]:
    """The lines without those that a line of about the same length, and more similar in all, goes along."""
    kept: list[tuple[float, float, NDArray[np.int64]]] = []
    for line in sorted(lines, key=lambda line: -float(mean[line[2][:, 0], line[2][:, 1]].sum())):
        cells = {tuple(cell) for cell in line[2].tolist()}
        near = {(i, j + d) for i, j in cells for d in (-1, 0, 1)}
        if not any(
            len(other[2]) * _ABOUT_AS_LONG <= len(line[2])
            and len(near & {tuple(cell) for cell in other[2].tolist()}) >= _ALONG * len(cells)
            for other in kept
        ):
            kept.append(line)
    return kept


def _walk(speed: float, shift: float, part: tuple[float, float], pair: PairFrames) -> NDArray[np.int64]:
    """The cells [P, 2] along a line, one for each frame of A in the part of it."""
    inside = np.flatnonzero((pair.a_times >= part[0] - 1e-9) & (pair.a_times <= part[1] + 1e-9))
    wanted = speed * pair.a_times[inside] + shift
    near = np.abs(pair.b_times[None] - wanted[:, None]).argmin(1)
    close = np.abs(pair.b_times[near] - wanted) <= 1.01 * pair.step
    return np.stack([inside[close], near[close]], 1)


def _make_stretch(
    context: _Context, speed: float, shift: float, cells: NDArray[np.int64], evidence: Evidence
) -> Stretch:
    pair, mean = context.pair, context.pair.mean
    query, target = find_borders(cells, (speed, shift), pair.a_times, pair.b_times)
    segment = Segment(
        query=query,
        target=target,
        score=min(1.0, float(mean[cells[:, 0], cells[:, 1]].mean())),
        backwards=speed < 0,
        path=tuple(map(tuple, cells.tolist())),
    )
    instants = tuple(zip(pair.a_times[cells[:, 0]].tolist(), pair.b_times[cells[:, 1]].tolist(), strict=True))
    return Stretch(segment, speed, shift, evidence, instants)


def _measure(context: _Context, speed: float, shift: float, cells: NDArray[np.int64]) -> Evidence:
    pair, mean, most = context.pair, context.pair.mean, context.most
    rows, columns = cells[:, 0], cells[:, 1]
    on = mean[rows, columns]
    step = pair.step
    reach = _TOLERANCE * step * max(1.0, abs(speed))
    shares, counts, covers = [], [], []
    for own, other, nearest, places, slope, offset in (
        (pair.a_times, pair.b_times, most[0], rows, speed, shift),
        (pair.b_times, pair.a_times, most[1], columns, 1 / speed, -shift / speed),
    ):
        inside = np.arange(places.min(), places.max() + 1)
        allowed = reach if slope == speed else reach / abs(speed)
        good = np.abs(other[nearest[inside]] - (slope * own[inside] + offset)) <= max(allowed, _TOLERANCE * step)
        count = min(int(good.sum()), 2 * len(set(nearest[inside][good].tolist())))
        shares.append(max(0, count - _BY_CHANCE) / max(len(inside), _MIN_FRAMES))
        counts.append(count)
        covers.append(len(inside) / len(own))
    evidence = Evidence(
        similarity=float(on.mean()),
        contrast=_contrast(mean, cells),
        in_step=(2 * max(shares) + min(shares)) / 3,
        frames=math.log1p(max(0, max(counts) - _BY_CHANCE)),
        coverage=max(covers),
        likeness=pair.likeness,
        evenness=-abs(math.log(abs(speed))) - 0.5 * (speed < 0),
        vector_changes=0.0,
    )
    if pair.a_vectors is not None and pair.b_vectors is not None:
        changes = measure_vector_changes(pair.a_vectors[rows], pair.b_vectors[columns])
        evidence = dataclasses.replace(evidence, vector_changes=changes)
    if pair.a_small is None or pair.b_small is None:
        return evidence
    chosen = cells[np.linspace(0, len(cells) - 1, min(len(cells), _MAX_CELLS)).round().astype(int)]
    found = find_window(pair.a_small[chosen[:, 0]], pair.b_small[chosen[:, 1]])
    return dataclasses.replace(evidence, pixels=found.pixels, changes=found.changes, moves=math.log1p(found.moves))


def measure_vector_changes(a: Matrix, b: Matrix) -> float:
    """The median over steps of the correlation of what changes in two sequences of vectors [P, D]; 0 of one frame.

    >>> one, other = np.array([[0., 0.], [1., 0.], [1., 1.]]), np.array([[5., 5.], [7., 5.], [7., 4.]])
    >>> round(measure_vector_changes(one, other), 3)               # the steps correlate by 1 and by -1
    0.0
    """
    if len(a) < 2:
        return 0.0
    one, other = a[1:] - a[:-1], b[1:] - b[:-1]
    sizes = np.sqrt(np.square(one).sum(1) * np.square(other).sum(1))
    return find_median((one * other).sum(1) / (sizes + 1e-6))


def _contrast(mean: Matrix, cells: NDArray[np.int64]) -> float:
    """How far the cells stand out from their rows and columns, in deviations; the mean."""
    rows, columns = cells[:, 0], cells[:, 1]
    total = 0.0
    for lines, places in ((mean[rows], columns), (mean[:, columns].T, rows)):  # [P, T]
        centred, deviation = measure_spread(lines, 1)
        total += float((centred[np.arange(len(lines)), places] / (deviation[:, 0] + 0.03)).mean())
    return total / 2
