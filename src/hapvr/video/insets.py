"""A video within a video: the rectangle of a picture in which another one is shown, as in reactions and calls.

What a window shows and what is around it change independently. So there is a step between them in nearly every frame,
along all four sides, and it ends at the corners. Edges of things in a picture come and go, lie in any direction, or go
on. Steps between neighbouring pixels are averaged over frames; of all rectangles between lines with long steps, the one
whose sides are steps throughout, and whose sides end at its corners, is the window.

Maps of steps and marks are [P, L]: places along a line by lines. Line n lies between the pixels n - 1 and n of a row or
a column, so that there is one line more than there are pixels.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from hapvr.records import Box, Frames
from hapvr.video.quality import luma_of

Steps = NDArray[np.float32]
Marks = NDArray[np.bool_]
Indices = NDArray[np.intp]

_MIN_FRAMES, _MAX_FRAMES = 8, 32  # that are looked at; fewer say too little of what stays in its place
_STEP_FACTOR, _STEP_LEVELS = 1.5, 4.0  # a step is greater than this many times those beside it and so many levels more
_BESIDE = (4, 12)  # lines to either side that a step is compared with
_MIN_RUN, _MIN_RUN_SHARE = 0.18, 0.7  # a line counts if this share of such a part of the short side is steps
_NEAR = np.array([1, 2, 3, 2, 1]) / 9  # what lines beside another count for it
_MAX_LINES = 28  # in each direction
_MIN_SIDE, _MIN_LONG_SIDE = 0.15, 0.25  # of a window, in short sides of the picture
_MAX_AREA = 0.7  # of a window, in areas of the picture
_MAX_RATIO = 4  # of its sides
_CORNER = 0.12  # of a side at either end, where a window may be round
_BEYOND, _BEYOND_LINES = 0.15, 4  # of a side, and so many lines more, on which it should not go on beyond a corner
_GAP = 3  # lines at a corner that say nothing
_WEAK_SIDES, _BEYOND_WEIGHT = 0.3, 0.8  # what the two weakest sides count for, and what goes on beyond the corners
_MIN_SCORE = 0.6
_MIN_MOTION = 1.0  # grey levels: a window that hardly changes is a poster on a wall
_BORDER = 1  # pixels at each side that are left out: they are mixed with what is around
_MIN_SOURCE = 32  # pixels of the source along each side of a window


def find_inset(frames: Frames) -> Box | None:
    """The rectangle in which a video shows another one, in pixels of the source; None if there is none.

    Of several the clearest is found. Windows that move, and those of less than about a sixth of the picture's height or
    width, are not. Some 15 ms for frames of 256 pixels.
    """
    if len(frames) < _MIN_FRAMES:
        return None
    chosen = np.unique(np.linspace(0, len(frames) - 1, min(len(frames), _MAX_FRAMES)).round().astype(int))
    luma = luma_of(frames.images[chosen]).astype(np.int16)  # [T, H, W]
    found = find_window(luma)
    if found is None:
        return None
    height, width = luma.shape[1:]
    left, top, right, bottom = frames.crop or (0, 0, *frames.source_size)
    across, down = (right - left) / width, (bottom - top) / height
    box = (
        left + round((found[0] + _BORDER) * across),
        top + round((found[1] + _BORDER) * down),
        left + round((found[2] - _BORDER) * across),
        top + round((found[3] - _BORDER) * down),
    )
    return box if min(box[2] - box[0], box[3] - box[1]) >= _MIN_SOURCE else None


def find_window(luma: NDArray[np.int16]) -> Box | None:
    """The clearest window in the same part of all frames [T, H, W], in their pixels; None if none is clear."""
    if min(luma.shape[1:]) < 2 * _BESIDE[1]:
        return None
    found = choose_rectangle(*(MarkedLines(mark_steps(steps)) for steps in measure_steps(luma)))
    if found is None:
        return None
    left, top, right, bottom = found
    motion = np.abs(np.diff(luma[:, top:bottom, left:right], axis=0)).mean(0)
    return found if np.median(motion) >= _MIN_MOTION else None


def measure_steps(luma: NDArray[np.int16]) -> tuple[Steps, Steps]:
    """The mean steps of frames [T, H, W] across upright lines [H, W + 1] and across level ones [W, H + 1].

    A step is taken from the second pixel before a line to the second behind it: scaling blurs a border that much.

    >>> upright, level = measure_steps(np.full((1, 8, 8), 7, np.int16) * (np.arange(8) >= 4).astype(np.int16))
    >>> upright[0].tolist(), float(level.max())
    ([0.0, 0.0, 0.0, 7.0, 7.0, 7.0, 0.0, 0.0, 0.0], 0.0)
    """
    height, width = luma.shape[1:]
    upright, level = np.zeros((height, width + 1), np.float32), np.zeros((width, height + 1), np.float32)
    upright[:, 2:-2] = np.abs(luma[:, :, 3:] - luma[:, :, :-3]).mean(0)
    level[:, 2:-2] = np.abs(luma[:, 3:] - luma[:, :-3]).mean(0).T
    return upright, level


def mark_steps(steps: Steps) -> Marks:
    """Where steps [P, L] stand out from those across the lines 4 to 12 further, on either side."""
    near, far = _BESIDE
    lines, count = steps.shape[1], far - near + 1
    padded = np.pad(steps, [(0, 0), (far, far)], mode="edge")
    sums = np.pad(padded.cumsum(1, np.float64), [(0, 0), (1, 0)])
    means = (sums[:, count:] - sums[:, :-count]) / count  # of lines [L', L' + count), from `far` before the first line
    beside = np.maximum(means[:, :lines], means[:, far + near : far + near + lines])
    marked: Marks = steps > _STEP_FACTOR * beside + _STEP_LEVELS
    return marked


class MarkedLines:
    """Parallel lines and the places along each at which there is a step; a step also counts for the lines beside it.

    Args:
        marks: [P, L], places by lines.
    """

    def __init__(self, marks: Marks) -> None:
        wide = marks.copy()
        wide[:, 1:] |= marks[:, :-1]
        wide[:, :-1] |= marks[:, 1:]
        self.places = len(wide)
        self._sums = np.pad(wide.cumsum(0, np.float32), [(1, 0), (0, 0)])  # [P + 1, L]

    def share(self, line: Indices, start: Indices, end: Indices) -> NDArray[np.float32]:
        """The share of the places [start, end) of lines at which there is a step; 0 of no places."""
        steps: NDArray[np.float32] = self._sums[end, line] - self._sums[start, line]
        shares: NDArray[np.float32] = steps / np.maximum(end - start, 1)
        return shares

    def choose(self, run: int) -> Indices:
        """The lines of which a run of places is steps for the most part, those with most steps, none beside another.

        A blurred border marks some lines: of them the middle one is taken.
        """
        best = (self._sums[run:] - self._sums[:-run]).max(0) / run
        around = np.convolve(self._sums[-1], _NEAR, "same") / self.places
        worth = np.where(best >= _MIN_RUN_SHARE, best + around, 0.0)
        chosen: list[int] = []
        while len(chosen) < _MAX_LINES and worth.max() > 0:
            line = int(worth.argmax())
            chosen.append(line)
            worth[max(0, line - 2) : line + 3] = 0
        return np.array(sorted(chosen), np.intp)


def choose_rectangle(upright: MarkedLines, level: MarkedLines) -> Box | None:
    """The rectangle between two upright and two level lines with the best score; None if none is good enough."""
    size = min(upright.places, level.places)
    columns, rows = (_pair_lines(lines.choose(max(8, round(_MIN_RUN * size)))) for lines in (upright, level))
    if not len(columns) or not len(rows):
        return None
    (left, right), (top, bottom) = np.repeat(columns, len(rows), 0).T, np.tile(rows, (len(columns), 1)).T
    width, height = right - left, bottom - top
    shorter, longer = np.minimum(width, height), np.maximum(width, height)
    fits = (shorter >= _MIN_SIDE * size) & (longer >= _MIN_LONG_SIDE * size) & (longer <= _MAX_RATIO * shorter)
    fits &= width * height <= _MAX_AREA * upright.places * level.places
    if not fits.any():
        return None
    left, top, right, bottom = boxes = np.stack([left, top, right, bottom])[:, fits]
    scores = score_rectangles(upright, level, left, top, right, bottom)
    best = int(scores.argmax())
    found = boxes[:, best].tolist()
    return (found[0], found[1], found[2], found[3]) if scores[best] >= _MIN_SCORE else None


def _pair_lines(lines: Indices) -> Indices:
    """All pairs of lines, the first one first: [N, 2]."""
    return np.array(list(combinations(lines.tolist(), 2)), np.intp).reshape(-1, 2)


def score_rectangles(
    upright: MarkedLines, level: MarkedLines, left: Indices, top: Indices, right: Indices, bottom: Indices
) -> NDArray[np.float32]:
    """How much rectangles [N] look like windows, 1 at most: steps along their sides, and none beyond the corners.

    The score is the mean share of steps over the four sides, less at corners; in part the mean of the two sides with
    the fewest; less the mean share on what follows the sides beyond their corners.
    """
    sides, beyond = [], []
    for lines, pair, start, end in ((upright, (left, right), top, bottom), (level, (top, bottom), left, right)):
        corner = (_CORNER * (end - start)).astype(np.intp)
        reach = (_BEYOND * (end - start)).astype(np.intp) + _BEYOND_LINES
        before, behind = np.maximum(start - _GAP, 0), np.minimum(end + _GAP, lines.places)
        for line in pair:
            sides.append(lines.share(line, start + corner, end - corner))
            beyond.append(lines.share(line, np.maximum(before - reach, 0), before))
            beyond.append(lines.share(line, behind, np.minimum(behind + reach, lines.places)))
    ordered = np.sort(np.stack(sides), 0)  # [4, N]
    score = (1 - _WEAK_SIDES) * ordered.mean(0) + _WEAK_SIDES * ordered[:2].mean(0)
    total: NDArray[np.float32] = score - _BEYOND_WEIGHT * np.stack(beyond).mean(0)
    return total
