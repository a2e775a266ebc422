"""How two videos compare frame by frame: whether similar frames are in the same order, and whether pixels correlate.

Order. A copy may be so blurred, turned or framed that its frames are hardly more like those of the original than any
others are; but the most similar frame of the original moves on as the copy does. Two takes of one scene may be more
alike than that, frame by frame, yet their most similar frames follow no order. The line on which a copy's most similar
frames lie is found by voting (Hough, 1962): for each speed, frames whose most similar frames agree in time but for a
common shift are in step. A frame of the other video that is somewhat like everything would be the most similar one of
many; so similarities count by how far they stand out from what else that frame is similar to, in standard deviations.

Pixels. Region vectors see a copy through crops, frames and turns, but damage changes them. Miniatures (16 x 16 grey
pictures) are the other way round: a picture that was moved is another one, yet noise, blur, coding and colours are
averaged away or scaled out. One video may be the mirror image of the other, be turned by quarters, or show its middle
(a crop; or the other way round, the other has bars): each of these is tried.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hapvr.similarity.segments import frame_edges

Floats = NDArray[np.float64]
Pixels = NDArray[np.float32]
Interval = tuple[float, float]

_FASTER = np.exp(np.linspace(np.log(1.05), np.log(2.15), 15))
_SPEEDS = np.concatenate([1 / _FASTER[::-1], _FASTER])  # other than 1, forwards
_ALL_SPEEDS = np.concatenate([[1.0, -1.0], _SPEEDS, -_SPEEDS])
_APART = 2.0**24  # seconds that no video lasts
_TOLERANCE = 1.25  # frames to either side of the line
_BY_CHANCE = 4  # frames in step that any two videos have, more or less
_MIN_FRAMES = 8  # a share is of no fewer
_OTHER_SPEED = 0.2  # is taken from a share at another speed than 1: there are many to choose from
_MIN_DEVIATION = 0.03  # of similarities
_OUT_OF_STEP = 0.5  # what a frame out of step takes from a stretch, against 1 that one in step adds


@dataclass(frozen=True)
class Line:
    """Where two videos are in step: at `speed * seconds of A + shift` seconds of B."""

    speed: float  # of B against A; below 0: backwards
    shift: float
    query: Interval  # seconds of A
    target: Interval  # seconds of B


@dataclass(frozen=True)
class Alignment:
    """How much of two videos is in step."""

    shares: tuple[float, float]  # of A's frames, and of B's, that are in step; less what chance would give
    line: Line | None  # None if no frames are in step

    @property
    def agreement(self) -> float:
        """One number from 0 to 1: the side that is more in step counts twice, because the other may be longer."""
        return (2 * max(self.shares) + min(self.shares)) / 3


def align(
    forth: NDArray[np.floating],
    back: NDArray[np.floating],
    a_times: Floats,
    b_times: Floats,
    *,
    most: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
) -> Alignment:
    """Find the line of two videos.

    Args:
        forth: [Ta, Tb] similarity of A's frames to B's.
        back: [Tb, Ta] similarity of B's frames to A's.
        a_times: [Ta] seconds, ascending.
        b_times: [Tb] seconds, ascending.
        most: `find_most_similar` of forth and of back, if they are known.

    >>> matrix = np.eye(24)[4:]                                    # A is B from its fifth frame on
    >>> found = align(matrix, matrix.T, np.arange(20.), np.arange(24.))
    >>> found.shares, found.line.speed, found.line.shift, found.line.target
    ((0.8, 0.75), 1.0, 4.0, (4.0, 23.5))
    """
    if min(len(a_times), len(b_times)) < 4:
        return Alignment((0.0, 0.0), None)
    most_a, most_b = most or (find_most_similar(np.asarray(forth)), find_most_similar(np.asarray(back)))
    a, b = _find_steps(most_a, a_times, b_times), _find_steps(most_b, b_times, a_times)
    shares = (a.share, b.share)
    if max(shares) == 0:
        return Alignment(shares, None)
    if a.share >= b.share:
        query, target = _find_stretch(a, a_times, b_times)
        return Alignment(shares, Line(a.speed, a.shift, query, target))
    target, query = _find_stretch(b, b_times, a_times)
    return Alignment(shares, Line(1 / b.speed, -b.shift / b.speed, query, target))


@dataclass(frozen=True, eq=False)
class _Steps:
    share: float
    speed: float
    shift: float
    frames: NDArray[np.bool_]  # [T] which are in step


def _find_steps(most: NDArray[np.int64], times: Floats, others: Floats) -> _Steps:
    """The line with the most frames, over all speeds; at another speed than 1 it must have more.

    `most` is the most similar frame of the other video for each, [T].
    """
    step = max(find_step(times), find_step(others))
    best = _Steps(0.0, 1.0, 0.0, np.zeros(len(times), np.bool_))
    shifts = others[most] - _ALL_SPEEDS[:, None] * times  # [speeds, T]
    reach = _TOLERANCE * step * np.maximum(1.0, np.abs(_ALL_SPEEDS))
    counts = _count_within(np.sort(shifts, axis=1), 2 * reach)  # [speeds, T]
    firsts = counts.argmax(1)
    most_frames = counts[np.arange(len(counts)), firsts]
    less = np.where(np.abs(_ALL_SPEEDS) == 1, 0.0, _OTHER_SPEED)
    bounds = np.maximum(0, most_frames - _BY_CHANCE) / max(len(times), _MIN_FRAMES) - less  # of the share
    for row in np.flatnonzero(bounds > 0).tolist():
        if bounds[row] <= best.share:
            continue
        first = int(firsts[row])
        chosen = np.argsort(shifts[row], kind="stable")[first : first + int(most_frames[row])]
        # Many frames that are all like one are not in step.
        count = min(len(chosen), 2 * len(np.unique(most[chosen])))
        share = max(0, count - _BY_CHANCE) / max(len(times), _MIN_FRAMES) - float(less[row])
        if share > best.share:
            frames = np.zeros(len(times), np.bool_)
            frames[chosen] = True
            best = _Steps(share, float(_ALL_SPEEDS[row]), find_median(shifts[row, chosen]), frames)
    return best if abs(best.speed) == 1 else _fit_line(best, times, others[most])


def _count_within(rows: Floats, reach: Floats) -> NDArray[np.int64]:
    """How many values of its row lie from each value up to `reach` [N] above it; rows [N, T] ascend.

    >>> _count_within(np.array([[0.0, 1.0, 3.0], [0.0, 1.0, 3.0]]), np.array([1.0, 3.0])).tolist()
    [[2, 1, 1], [3, 2, 1]]
    """
    apart = np.arange(len(rows))[:, None] * _APART  # so that one search is for all rows
    flat = (rows + apart).ravel()
    ends = np.searchsorted(flat, (rows + apart + reach[:, None]).ravel(), side="right")
    return np.asarray((ends - np.arange(len(flat))).reshape(rows.shape), np.int64)


def find_median(values: NDArray[np.floating]) -> float:
    """The median of some numbers; `np.median` takes ten times as long for a few of them.

    >>> find_median(np.array([3.0, 1.0, 2.0])), find_median(np.array([4.0, 1.0]))
    (2.0, 2.5)
    """
    ordered = np.sort(values)
    return float(ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def find_step(times: Floats) -> float:
    """Seconds from frame to frame, [T] with T of 2 or more: the median.

    >>> find_step(np.array([0.0, 0.5, 1.0, 4.0]))
    0.5
    """
    return find_median(times[1:] - times[:-1])


def measure_spread(values: NDArray[np.floating], axis: int) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """What `values` have beyond their mean along an axis, and their standard deviation; in one go.

    >>> centred, deviation = measure_spread(np.array([[1.0, 3.0], [5.0, 5.0]]), 1)
    >>> centred.tolist(), deviation.tolist()
    ([[-1.0, 1.0], [0.0, 0.0]], [[1.0], [0.0]])
    """
    count = values.shape[axis]
    centred = values - values.sum(axis, keepdims=True) / count
    return centred, np.sqrt(np.square(centred).sum(axis, keepdims=True) / count)


def find_most_similar(matrix: NDArray[np.floating]) -> NDArray[np.int64]:
    """The frame of the other video that each of T frames is most similar to, [T, To] -> [T].

    Each column counts by how far it stands out; columns that hardly vary are not blown up.
    """
    centred, deviation = measure_spread(matrix, 0)
    return np.asarray((centred / (deviation + _MIN_DEVIATION)).argmax(1), np.int64)


def _fit_line(steps: _Steps, times: Floats, shown: Floats) -> _Steps:
    """The line of least squares through the frames in step: speeds between those that were tried."""
    x, y = times[steps.frames], shown[steps.frames]
    spread = x - x.mean()
    speed = float(spread @ y / (spread @ spread))
    if speed * steps.speed <= 0:  # too few distinct frames to tell
        return steps
    return replace(steps, speed=speed, shift=float(y.mean() - speed * x.mean()))


def _find_stretch(steps: _Steps, times: Floats, others: Floats) -> tuple[Interval, Interval]:
    """The seconds, on both sides, of the stretch with the most frames in step and the fewest out of it."""
    gains = np.where(steps.frames, 1.0, -_OUT_OF_STEP)
    sums = np.concatenate([[0.0], np.cumsum(gains)])
    lowest = np.minimum.accumulate(sums)
    last = int((sums - lowest).argmax())
    first = last - int(sums[: last + 1][::-1].argmin())  # the last of the lowest: no frames out of step at the start
    edges, limits = frame_edges(times), frame_edges(others)
    own = float(edges[first]), float(edges[last])
    start, end = sorted(float(np.clip(steps.speed * time + steps.shift, limits[0], limits[-1])) for time in own)
    return own, (start, end)


# --- pixels ----------------------------------------------------------------------------------------------------------

_FLAT = 2.0  # of 255: a standard deviation as small as that is noise
# The parts of a frame, as shares of its height and width, that another may show.
_MIDDLES = ((0.75, 1.0), (1.0, 0.75), (0.85, 0.85), (0.7, 0.7), (0.6, 1.0), (1.0, 0.6), (0.75, 0.9))


def make_pixel_views(miniatures: NDArray[np.uint8]) -> Pixels:
    """A video's miniatures uint8 [T, S, S] as they may be found in another: standardised float32 [V, T, S S].

    The first view is the video as it is; then its middles, each enlarged to the whole; its mirror image; quarter turns.
    """
    pictures = miniatures.astype(np.float32)
    count, side = pictures.shape[:2]
    by_rows = np.ascontiguousarray(pictures.transpose(1, 0, 2))  # [S, T, S]: so each side is one matrix product
    middles = []
    for high, wide in _MIDDLES:  # a share of 1 changes nothing
        middle = by_rows
        if wide < 1:
            middle = multiply(middle.reshape(-1, side), enlarge_middle(side, wide).T).reshape(by_rows.shape)
        if high < 1:
            middle = multiply(enlarge_middle(side, high), middle.reshape(side, -1)).reshape(by_rows.shape)
        middles.append(middle)
    whole = standardise(pictures).reshape(pictures.shape)
    turns = [np.rot90(whole, quarters, (1, 2)) for quarters in (1, 2, 3)]
    enlarged = standardise(np.concatenate(middles, 1).transpose(1, 0, 2)).reshape(len(middles), count, -1)
    alike = [whole, whole[:, :, ::-1], *turns]  # the same pixels in another order
    first, *others = (view.reshape(1, count, -1) for view in alike)
    return np.concatenate([first, enlarged, *others])


@lru_cache(maxsize=64)
def enlarge_middle(side: int, share: float) -> Pixels:
    """The matrix [S, S] that enlarges the middle `share` of S values to all of them, by linear interpolation.

    >>> enlarge_middle(3, 0.5).tolist()                            # at -.5, 0 and .5 of a step from the middle
    [[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.5, 0.5]]
    """
    centre = (side - 1) / 2
    places = centre + (np.arange(side) - centre) * share
    weights = np.maximum(0, 1 - np.abs(places[:, None] - np.arange(side)))
    return np.asarray(weights, np.float32)


def standardise(pictures: NDArray[Any]) -> Pixels:
    """Each picture less its mean, by its deviation: [T, S, S] -> float32 [T, S S]; flat ones stay near 0.

    >>> standardise(np.array([[[0.0, 200.0], [200.0, 0.0]]])).round(2).tolist()
    [[-1.0, 1.0, 1.0, -1.0]]
    """
    values = pictures.reshape(len(pictures), -1).astype(np.float32)
    values -= values.mean(1, keepdims=True)
    return np.asarray(values / np.sqrt(np.square(values).mean(1, keepdims=True) + _FLAT**2), np.float32)


def correlate(a: Pixels, b: Pixels) -> Pixels:
    """How the frames of two videos correlate, views [V, Ta, S S] and [V, Tb, S S] -> [Ta, Tb].

    A as it is with any view of B, or B as it is with a middle of A; of all, the matrix of the greatest likeness.
    """
    middles = a[1 : 1 + len(_MIDDLES)]
    forth = _mean_products(a[0], b.reshape(-1, b.shape[2])).reshape(a.shape[1], len(b), b.shape[1])  # [Ta, V, Tb]
    back = _mean_products(middles.reshape(-1, a.shape[2]), b[0]).reshape(len(middles), a.shape[1], b.shape[1])
    views = [forth.transpose(1, 0, 2), back]  # [., Ta, Tb]
    best = int(np.concatenate([measure_likeness(view) for view in views]).argmax())
    return np.ascontiguousarray(views[0][best] if best < len(b) else views[1][best - len(b)])


def _mean_products(rows: Pixels, others: Pixels) -> Pixels:
    """[N, P] and [M, P] -> [N, M]."""
    return multiply(rows, others.T) / np.float32(rows.shape[1])


def multiply(one: Pixels, other: Pixels) -> Pixels:
    """The product of two matrices, or of batches of them; by torch, which can be limited to one thread."""
    product: Pixels = (torch.from_numpy(one) @ torch.from_numpy(other)).numpy()
    return product


def measure_likeness(matrices: NDArray[np.floating]) -> NDArray[np.floating]:
    """The mean over one video's frames of the best match in the other; the greater of both ways. [..., Ta, Tb] -> [...]

    >>> measure_likeness(np.array([[1.0, 0.0, 0.5]])).item(), measure_likeness(np.array([[0.5], [0.0]])).item()
    (1.0, 0.5)
    """
    return np.asarray(np.maximum(matrices.max(-1).mean(-1), matrices.max(-2).mean(-1)))
