"""Clips whose frames can be identified by reading them: each shows its number in black and white bars."""

from __future__ import annotations

import numpy as np

from hapvr.synthetic.clip import Clip, Images
from hapvr.synthetic.edits import Edited

_BITS, _BAR = 8, 12  # a white and a black bar come first: a frame without them is no barcode


def barcodes(frames: int, fps: float, height: int = 48) -> Clip:
    """Frame i shows i."""
    assert frames <= 2**_BITS
    images = np.zeros((frames, height, (_BITS + 2) * _BAR, 3), np.uint8)
    for index, image in enumerate(images):
        bars = [1, 0] + [index >> bit & 1 for bit in range(_BITS)]
        image[:] = np.repeat(np.array(bars) * 255, _BAR)[None, :, None]
    return Clip(images, fps)


def read(image: Images) -> int | None:
    """The number a frame shows; None if it is no barcode."""
    columns = image.astype(float).mean((0, 2))
    middles = (np.arange(_BITS + 2) + 0.5) / (_BITS + 2) * len(columns)
    levels = [columns[int(middle - 0.15) : int(middle + 0.15) + 1].mean() for middle in middles]
    if any(80 < level < 175 for level in levels) or levels[0] < 128 or levels[1] > 128:
        return None
    return sum(int(level > 128) << bit for bit, level in enumerate(levels[2:]))


def grey(frames: int, fps: float) -> Clip:
    """Another video, which shows no barcode."""
    return Clip(np.full((frames, 30, 40, 3), 128, np.uint8), fps)


def assert_shows_what_the_map_says(edited: Edited, original: Clip, *, slack_s: float = 0.0) -> None:
    """In the middle of its time, each frame of the copy is the original's at the mapped moment."""
    shown = 0
    for index, image in enumerate(edited.clip.images):
        moment, number = edited.time((index + 0.5) / edited.clip.fps), read(image)
        if moment is None:
            assert number is None, f"frame {index} shows frame {number} of the original; the map says nothing"
            continue
        assert number is not None, f"frame {index} shows another video; the map says {moment} s"
        assert abs((number + 0.5) / original.fps - moment) <= 0.5 / original.fps + slack_s + 1e-6, (
            index,
            number,
            moment,
        )
        shown += 1
    assert shown > 0
