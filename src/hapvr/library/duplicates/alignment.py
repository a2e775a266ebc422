"""Whether two videos show the same in the same order: their most similar frames lie on one straight line in time.

A copy may be so blurred, turned or framed that its frames are hardly more like those of the original than any others
are; but the most similar frame of the original moves on as the copy does. Two takes of one scene may be more alike than
that, frame by frame, yet their most similar frames follow no order. So a pair is judged by both: how similar the frames
are, and how many of them are in step.

A frame of the other video that is somewhat like everything would be the most similar one of many; so similarities count
by how far they stand out from what else that frame is similar to, in standard deviations.

The line is found by voting (Hough, 1962): for each speed, frames whose most similar frames agree in time but for a
common shift are in step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hapvr.similarity.segments import frame_edges

Floats = NDArray[np.float64]

_FASTER = np.exp(np.linspace(np.log(1.05), np.log(2.15), 15))
_SPEEDS = np.concatenate([1 / _FASTER[::-1], _FASTER])  # other than 1, forwards
_TOLERANCE = 1.25  # frames to either side of the line
_BY_CHANCE = 4  # frames in step that any two videos have, more or less
_LEAST_FRAMES = 8  # a share is of no fewer
_OTHER_SPEED = 0.2  # what a share is worth less at another speed: there are so many to choose from
_LEAST_DEVIATION = 0.03  # of similarities
_OUT_OF_STEP = 0.5  # what a frame out of step takes from a stretch, against 1 that one in step adds


@dataclass(frozen=True)
class Line:
    """Where two videos are in step: at `speed * seconds of A + shift` seconds of B."""

    speed: float  # of B against A; below 0: backwards
    shift: float
    query: tuple[float, float]  # seconds of A
    target: tuple[float, float]  # seconds of B


@dataclass(frozen=True)
class Alignment:
    """How much of two videos is in step.

    Attributes:
        shares: of A's frames, and of B's, that are in step; less what chance would give.
        line: where; None if nothing is.
    """

    shares: tuple[float, float]
    line: Line | None

    @property
    def agreement(self) -> float:
        """One number from 0 to 1: the side that is more in step counts twice, for the other may be longer."""
        return (2 * max(self.shares) + min(self.shares)) / 3


def align(forth: NDArray[np.floating], back: NDArray[np.floating], a_times: Floats, b_times: Floats) -> Alignment:
    """Find the line of two videos.

    Args:
        forth: [Ta, Tb] similarity of A's frames to B's.
        back: [Tb, Ta] likewise of B's to A's.
        a_times: [Ta] ascending, in seconds.
        b_times: [Tb] likewise.

    >>> matrix = np.eye(24)[4:]                                    # A is B from its fifth frame on
    >>> found = align(matrix, matrix.T, np.arange(20.), np.arange(24.))
    >>> found.shares, found.line.speed, found.line.shift, found.line.target
    ((0.8, 0.75), 1.0, 4.0, (4.0, 23.5))
    """
    if min(len(a_times), len(b_times)) < 4:
        return Alignment((0.0, 0.0), None)
    sides = [_in_step(np.asarray(forth), a_times, b_times), _in_step(np.asarray(back), b_times, a_times)]
    shares = (sides[0].share, sides[1].share)
    best = sides[0] if shares[0] >= shares[1] else sides[1]
    if best.share == 0:
        return Alignment(shares, None)
    if best is sides[0]:
        own, other = _stretch(best, a_times, b_times)
        return Alignment(shares, Line(best.speed, best.shift, own, other))
    own, other = _stretch(best, b_times, a_times)
    return Alignment(shares, Line(1 / best.speed, -best.shift / best.speed, other, own))


@dataclass(frozen=True, eq=False)
class _Step:
    share: float
    speed: float
    shift: float
    members: NDArray[np.bool_]  # [T] frames in step


def _in_step(matrix: NDArray[np.floating], times: Floats, others: Floats) -> _Step:
    """The line with the most frames, over all speeds; at another speed than 1 it must have more."""
    most = _standing_out(matrix).argmax(1)  # [T]
    step = float(max(np.median(np.diff(times)), np.median(np.diff(others))))
    best = _Step(0.0, 1.0, 0.0, np.zeros(len(times), np.bool_))
    for speed in (1.0, -1.0, *_SPEEDS, *-_SPEEDS):
        reach = _TOLERANCE * step * max(1.0, abs(speed))
        shifts = others[most] - speed * times
        order = np.argsort(shifts, kind="stable")
        ordered = shifts[order]
        counts = np.searchsorted(ordered, ordered + 2 * reach, side="right") - np.arange(len(ordered))
        first = int(counts.argmax())
        chosen = order[first : first + int(counts[first])]
        # Many frames that are all like one are not in step.
        count = min(len(chosen), 2 * len(np.unique(most[chosen])))
        share = max(0, count - _BY_CHANCE) / max(len(times), _LEAST_FRAMES)
        share = share if abs(speed) == 1 else share - _OTHER_SPEED
        if share > best.share:
            members = np.zeros(len(times), np.bool_)
            members[chosen] = True
            best = _Step(share, float(speed), float(np.median(shifts[chosen])), members)
    return best if abs(best.speed) == 1 else _fitted(best, times, others[most])


def _standing_out(matrix: NDArray[np.floating]) -> NDArray[np.floating]:
    """Each column [T] less its mean, by its deviation; columns that hardly vary are not blown up."""
    out: NDArray[np.floating] = (matrix - matrix.mean(0)) / (matrix.std(0) + _LEAST_DEVIATION)
    return out


def _fitted(step: _Step, times: Floats, shown: Floats) -> _Step:
    """The line of least squares through the frames in step: speeds between those that were tried."""
    x, y = times[step.members], shown[step.members]
    spread = x - x.mean()
    speed = float(spread @ y / (spread @ spread))
    if speed * step.speed <= 0:  # too few distinct frames to tell
        return step
    return replace(step, speed=speed, shift=float(y.mean() - speed * x.mean()))


def _stretch(step: _Step, times: Floats, others: Floats) -> tuple[tuple[float, float], tuple[float, float]]:
    """The seconds, on both sides, of the stretch with the most frames in step and the fewest out of it."""
    gains = np.where(step.members, 1.0, -_OUT_OF_STEP)
    sums = np.concatenate([[0.0], np.cumsum(gains)])
    lowest = np.minimum.accumulate(sums)
    last = int((sums - lowest).argmax())
    first = last - int(sums[: last + 1][::-1].argmin())  # the last of the lowest: no frames out of step at the start
    edges, limits = frame_edges(times), frame_edges(others)
    own = float(edges[first]), float(edges[last])
    image = sorted(step.speed * time + step.shift for time in own)
    other = tuple(float(np.clip(time, limits[0], limits[-1])) for time in image)
    return own, (other[0], other[1])
