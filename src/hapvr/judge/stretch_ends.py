"""Where a stretch begins and ends: frame by frame along its line.

A path or a vote finds the line of a stretch, but not its ends: frames of the host around an inserted clip are somewhat
like any other, and frames of a copy that is damaged or covered for a while are less like the original than the rest.
So the line is followed through both videos, and each frame on it counts by how alike it is against what is usual on the
stretch. With s the similarity of a frame and u the upper quartile of the stretch's own frames, it is worth

    g = (s / u - t) / (1 - t)     within -1 and 1, with t = 0.4

which is above 0 where a frame is more than 0.4 times as similar as usual. Where the miniatures correlate along the
stretch, their correlations are worth h by the same formula, with t = 0.6, and a frame counts max((g + h) / 2, 3 g - 2):
one that is nearly as similar as usual, 0.8 times or more, belongs to it whatever its pixels say, as when the picture is
zoomed or a caption comes in.

The part of the greatest sum is the stretch (Bentley, 1984): it reaches farther than what was found, or less far. Where
the sum falls too much on its way, something else was put in between, and the parts before and after are stretches each.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hapvr.judge.alignment import find_step
from hapvr.similarity.segments import frame_edges

Floats = NDArray[np.float64]
Interval = tuple[float, float]
Matrix = NDArray[np.float32]
Cells = NDArray[np.int64]

_USUAL = 0.75  # quantile: up to three quarters of what was found may be host
_LEAST = 0.4  # of the usual similarity, from which on a frame speaks for the stretch
_LEAST_PIXELS = 0.6  # the same of correlations
_MIN_CORRELATION = 0.6  # that is usual on a stretch for which correlations count
_MAX_DROP = 6.0  # of the sum within a stretch: about what twelve frames of a host take from it
_MIN_SIMILARITY = 0.05  # that is taken as usual: nothing is alike below it


def find_ends(
    mean: Matrix,
    a_times: Floats,
    b_times: Floats,
    line: tuple[float, float],
    cells: Cells,
    *,
    min_frames: int,
    pixels: Matrix | None = None,
) -> list[Cells]:
    """The parts of a line that match, which a stretch on it is a part of or reaches into.

    Args:
        mean: [Ta, Tb] similarity of A's frames to B's, both ways.
        a_times: [Ta] seconds, ascending.
        b_times: [Tb]
        line: speed and shift: B's time is `speed` times A's plus `shift`.
        cells: [P, 2] frames of A and of B on the stretch, as it was found.
        min_frames: of a stretch; a part that is worth less than half as many is none.
        pixels: [Ta, Tb] correlations of A's miniatures with B's; None where they are not known.

    Returns:
        Cells [P, 2] of each part, by ascending frame of A; in order. Empty if none is worth enough, or without cells.

    Example: the last two of five frames that were found belong to the host, and the first of the copy was not found.
        >>> mean = np.where(np.eye(8, k=1) > 0, 0.8, 0.1).astype(np.float32)       # A is B from its second frame on,
        >>> mean[5:] = 0.1                                                          # for five frames
        >>> found = np.array([[1, 2], [2, 3], [3, 4], [4, 5], [5, 6], [6, 7]])
        >>> part, = find_ends(mean, np.arange(8.), np.arange(8.), (1.0, 1.0), found, min_frames=3)
        >>> part.tolist()
        [[0, 1], [1, 2], [2, 3], [3, 4], [4, 5]]
    """
    if not len(cells):  # of frames that a video lacks, because they are repeated
        return []
    walked = walk_line(*line, a_times, b_times)
    on = mean[walked[:, 0], walked[:, 1]].astype(np.float64)
    first, last = cells.min(0), cells.max(0)
    own = ((walked >= first) & (walked <= last)).all(1)
    if not own.any():
        return []
    gains = _compare_with_usual(on, max(_find_usual(on[own]), _MIN_SIMILARITY), _LEAST)
    if pixels is not None:
        correlations = pixels[walked[:, 0], walked[:, 1]].astype(np.float64)
        usual = _find_usual(correlations[own])
        if usual >= _MIN_CORRELATION:
            both = (gains + _compare_with_usual(correlations, usual, _LEAST_PIXELS)) / 2
            gains = np.maximum(both, 3 * gains - 2)
    parts = find_parts(gains, min_gain=min_frames / 2, max_drop=_MAX_DROP)
    return [walked[start:end] for start, end in parts if own[start:end].any()]


def _find_usual(values: Floats) -> float:
    """The upper quartile, between two values by linear interpolation; `np.quantile` takes ten times as long."""
    ordered = np.sort(values)
    place = _USUAL * (len(ordered) - 1)
    low = int(place)
    return float(ordered[low] + (place - low) * (ordered[min(low + 1, len(ordered) - 1)] - ordered[low]))


def _compare_with_usual(values: Floats, usual: float, least: float) -> Floats:
    """What each frame is worth, from -1 to 1: above 0 from the share `least` of the usual value on."""
    return np.minimum(np.maximum((values / usual - least) / (1 - least), -1.0), 1.0)


def walk_line(speed: float, shift: float, a_times: Floats, b_times: Floats) -> Cells:
    """The cells [P, 2] along a line, as far as both videos last: one for each frame of the video that has more on it.

    >>> walk_line(-1.0, 3.0, np.arange(3.0), np.arange(3.0)).tolist()
    [[1, 2], [2, 1]]
    """
    a_step, b_step = (find_step(times) if len(times) > 1 else 0.0 for times in (a_times, b_times))
    forth = _walk(speed, shift, a_times, b_times, max(b_step, abs(speed) * a_step))
    back = _walk(1 / speed, -shift / speed, b_times, a_times, max(a_step, b_step / abs(speed)))
    if len(forth) >= len(back):
        return forth
    cells = back[:, ::-1]
    return cells[::-1] if speed < 0 else cells


def _walk(speed: float, shift: float, times: Floats, others: Floats, step: float) -> Cells:
    """One cell for each frame at `times` for which the other video lasts, and has a frame within a step."""
    wanted = speed * times + shift
    lasting = np.flatnonzero((wanted >= others[0] - 0.51 * step) & (wanted <= others[-1] + 0.51 * step))
    wanted = wanted[lasting]
    after = np.minimum(np.searchsorted(others, wanted), len(others) - 1)
    before = np.maximum(after - 1, 0)
    places = np.where(wanted - others[before] < others[after] - wanted, before, after)
    close = np.abs(others[places] - wanted) <= 1.01 * step  # repeated frames are left out of videos
    cells = np.empty((int(close.sum()), 2), np.int64)
    cells[:, 0], cells[:, 1] = lasting[close], places[close]
    return cells


def find_parts(gains: Floats, *, min_gain: float, max_drop: float) -> list[tuple[int, int]]:
    """The parts [start, end) of a sequence with the greatest sums, in order; none is worth less than `min_gain`.

    The part of the greatest sum is taken, then those of what lies before and after it. One within which the sum falls
    by more than `max_drop` is cut there.

    >>> find_parts(np.array([-1.0, 1, 1, -1, 1, 1, -1, -1, -1, 1, 1]), min_gain=2, max_drop=2)
    [(1, 6), (9, 11)]
    """
    found: list[tuple[int, int]] = []
    waiting = [(0, len(gains))]
    while waiting:
        first, last = waiting.pop()
        sums = np.concatenate([[0.0], np.cumsum(gains[first:last])])
        rises = sums - np.minimum.accumulate(sums)
        end = int(rises.argmax())
        if end == 0 or rises[end] < min_gain:
            continue
        start = end - int(sums[: end + 1][::-1].argmin())
        inside = sums[start : end + 1]
        drops = np.maximum.accumulate(inside) - inside
        low = int(drops.argmax())
        if drops[low] > max_drop:
            waiting += [(first, first + start + low), (first + start + low, last)]
            continue
        found.append((first + start, first + end))
        waiting += [(first, first + start), (first + end, last)]
    return sorted(found)


def find_borders(
    cells: Cells, line: tuple[float, float], a_times: Floats, b_times: Floats
) -> tuple[Interval, Interval]:
    """The seconds of A and of B that cells [P, 2] on a line stand for.

    A frame stands for the time halfway to its neighbours. But where one video is over and the other goes on, the border
    in the other is where the line meets that end, no farther than its next frame.

    Example: all of A, at 0, 1 and 2 s, is in B from 10.3 s on. A lasts from 0 to 2.5 s.
        >>> cells = np.array([[0, 10], [1, 11], [2, 12]])
        >>> find_borders(cells, (1.0, 10.3), np.arange(3.0), np.arange(20.0))
        ((0.0, 2.5), (10.3, 12.8))
    """
    speed, shift = line
    first, last = cells.min(0), cells.max(0)
    edges = frame_edges(a_times), frame_edges(b_times)
    borders = [[float(own[low]), float(own[high + 1])] for own, low, high in zip(edges, first, last, strict=True)]
    if min(len(a_times), len(b_times)) > 1:
        for at_end in (False, True):  # of A; that is of B where the line falls
            ends = at_end, at_end == (speed > 0)
            places = [int(high if end else low) for low, high, end in zip(first, last, ends, strict=True)]
            over = [
                place == (len(times) - 1 if end else 0)
                for place, times, end in zip(places, (a_times, b_times), ends, strict=True)
            ]
            if over[0] == over[1]:
                continue
            a, b = (border[end] for border, end in zip(borders, ends, strict=True))
            side, met, times = (1, speed * a + shift, b_times) if over[0] else (0, (b - shift) / speed, a_times)
            place, end = places[side], ends[side]
            beyond = float(times[place + (1 if end else -1)])  # the next frame
            low, high = sorted((beyond, float(edges[side][place + (not end)])))
            borders[side][end] = min(max(met, low), high)
    query, target = ((start, end) for start, end in borders)
    return query, target
