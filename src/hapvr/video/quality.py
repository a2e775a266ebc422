"""Frames and borders that carry no information: flat and repeated frames, black bars.

All of it works on luma, uint8 [H, W], of frames already resized to a short side of a few hundred pixels.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hapvr.records import Box, Size

Luma = NDArray[np.uint8]

# A frame is flat if this share of its pixels lies within this many levels of their median.
_FLAT_SHARE, _FLAT_LEVELS = 0.98, 8
_FLAT_WITHIN = 0.9  # the share for what is left within bars, where edges are blurred
# A frame is repeated if no block of 8x8 pixels differs from the earlier one by more than this many levels in the mean.
_STATIC_BLOCK, _STATIC_LEVELS = 8, 3.0
# Bars are at most this bright in every frame, but for this share of a row.
_BAR_LEVEL, _BAR_STRAY = 24, 0.02
# Next to a bar the picture begins at once: this share of the edge is at some time brighter than the bar by this much.
_EDGE_SHARE, _EDGE_LEVELS, _EDGE_WIDTH = 0.6, 24, 2
# A bar takes at least this share of the frame, and this many rows; bars together leave at least this share of it.
_MIN_BAR, _MIN_PICTURE = 0.015, 1 / 3
_MIN_BAR_ROWS = 2


def luma_of(image: NDArray[np.uint8]) -> Luma:
    """The brightness of an RGB image: (R + 2 G + B) / 4, [H, W, 3] -> [H, W]."""
    wide = image[..., 1].astype(np.uint16)
    wide += wide
    wide += image[..., 0]
    wide += image[..., 2]
    wide >>= 2
    return wide.astype(np.uint8)


def thin(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Every second row and column of [H, W, ...], as a view: a quarter of the pixels, which says as much."""
    return picture[::2, ::2]


def is_flat(luma: Luma, share: float = _FLAT_SHARE) -> bool:
    """Whether a frame is of one colour, black above all: 98% of it lies within 8 levels of the median.

    A dark scene is not flat as long as more than 2% of it stands out by more than 8 levels.

    >>> is_flat(np.full((8, 8), 16, np.uint8)), is_flat(np.arange(64, dtype=np.uint8).reshape(8, 8))
    (True, False)
    """
    counts = np.bincount(luma.ravel(), minlength=256)
    median = int(np.searchsorted(counts.cumsum(), (luma.size + 1) // 2))
    near = counts[max(median - _FLAT_LEVELS, 0) : median + _FLAT_LEVELS + 1].sum()
    return bool(near >= share * luma.size)


class LowInformation:
    """Flags flat frames, and repeated ones (called "static" here): they show what the last unflagged frame shows.

    >>> seen = LowInformation()
    >>> ramp = np.arange(256, dtype=np.uint8).reshape(16, 16)
    >>> [seen.classify(thin(frame)) for frame in (np.zeros((16, 16), np.uint8), ramp, ramp, ramp.T)]
    ['flat', None, 'static', None]
    """

    def __init__(self) -> None:
        self._last: NDArray[np.float64] | None = None

    def classify(self, luma: Luma) -> Literal["flat", "static"] | None:
        """Whether the next frame, thinned, is flat or repeated; None if neither.

        Slow change adds up: the comparison is with the last frame that was neither.
        """
        if is_flat(luma):
            return "flat"
        blocks = _block_means(luma)
        if self._last is not None and np.abs(blocks - self._last).max() <= _STATIC_LEVELS:
            return "static"
        self._last = blocks
        return None


class BarFinder:
    """Finds the black bars around a picture, one box for the whole video.

    What counts is the brightest value each pixel ever takes. A bar is a border that stays black throughout and ends
    in a straight edge: just inside it, most of the row lights up at some time. A dark scene has no such edge, for what
    is lit in it ends in no straight line, and is left whole. So is a picture that would be flat without its border.

    >>> finder, frame = BarFinder(), np.full((90, 160), 200, np.uint8) - np.arange(160, dtype=np.uint8)
    >>> frame[:10], frame[-10:] = 0, 0
    >>> finder.add(frame)
    >>> finder.box((320, 180))
    (0, 22, 320, 158)
    """

    def __init__(self) -> None:
        self._brightest: Luma | None = None
        self.has_none = False  # known for certain: whatever frames follow, `box` finds nothing

    def add(self, luma: Luma) -> None:
        """Take one more frame, of the size of the first."""
        if self._brightest is None:
            self._brightest = luma.copy()
        else:
            np.maximum(self._brightest, luma, out=self._brightest)
        # A border that was lit once is no bar, and stays lit.
        self.has_none = self.has_none or all(map(_is_lit, _borders(self._brightest)))

    def box(self, size: Size) -> Box | None:
        """The picture without its bars, in pixels of a source of this size; None if there are no bars.

        Cut a pixel of the small frame further in than the bar ends, where the edge is blurred.
        """
        if self._brightest is None or self.has_none:
            return None
        lit = self._brightest > _BAR_LEVEL  # [H, W]
        rows, columns = np.flatnonzero(lit.mean(1) > _BAR_STRAY), np.flatnonzero(lit.mean(0) > _BAR_STRAY)
        if len(rows) == 0 or len(columns) == 0:
            return None
        picture = self._brightest[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        height, width = lit.shape
        top, bottom = _bar(rows[0], height, picture), _bar(height - 1 - rows[-1], height, picture[::-1])
        left, right = _bar(columns[0], width, picture.T), _bar(width - 1 - columns[-1], width, picture.T[::-1])
        if not (top or bottom or left or right):
            return None
        if height - top - bottom < _MIN_PICTURE * height or width - left - right < _MIN_PICTURE * width:
            return None
        if is_flat(self._brightest[top : height - bottom, left : width - right], _FLAT_WITHIN):
            return None
        across, down = size[0] / width, size[1] / height
        return (
            round(left * across),
            round(top * down),
            size[0] - round(right * across),
            size[1] - round(bottom * down),
        )


def _borders(luma: Luma) -> tuple[Luma, Luma, Luma, Luma]:
    """The outermost rows at each side, too few to be a bar: top, bottom, left and right, each [rows, length]."""
    return luma[:_MIN_BAR_ROWS], luma[-_MIN_BAR_ROWS:], luma.T[:_MIN_BAR_ROWS], luma.T[-_MIN_BAR_ROWS:]


def _is_lit(border: Luma) -> bool:
    """Whether one of these rows is lit, but for stray pixels."""
    return bool(((border > _BAR_LEVEL).mean(1) > _BAR_STRAY).any())


def _bar(dark: int, length: int, picture: Luma) -> int:
    """How many rows to cut where `dark` of `length` rows stay black before `picture` begins; 0 if that is no bar."""
    if dark < max(_MIN_BAR_ROWS, _MIN_BAR * length) or len(picture) <= _EDGE_WIDTH:
        return 0
    edge = picture[_EDGE_WIDTH] > _BAR_LEVEL + _EDGE_LEVELS
    return int(dark) + 1 if edge.mean() >= _EDGE_SHARE else 0


def _block_means(luma: Luma) -> NDArray[np.float64]:
    block = _STATIC_BLOCK // 2
    height, width = (max(length // block, 1) for length in luma.shape)
    cut = luma[: height * block, : width * block]
    down, across = cut.shape[0] // height, cut.shape[1] // width  # of a block: less than `block` in a tiny picture
    # Sums of strided views take a quarter of the time of `mean` over two short axes.
    rows = sum((cut[i::down] for i in range(1, down)), start=cut[::down].astype(np.uint16))
    sums = sum((rows[:, i::across] for i in range(1, across)), start=rows[:, ::across])
    means: NDArray[np.float64] = sums / (down * across)
    return means
