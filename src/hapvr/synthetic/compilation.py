"""A compilation: short clips of several videos one after the other, each edited a little, in one picture format."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.random import Generator

from hapvr.synthetic import edit_pixels as pixels
from hapvr.synthetic import edit_sprites as sprites
from hapvr.synthetic.clip import Clip, Images
from hapvr.synthetic.edit_sprites import pick
from hapvr.synthetic.edits import change_rate, find_edit
from hapvr.synthetic.film_numbers import between
from hapvr.synthetic.time_map import Segment, TimeMap

_EDITS = ["flip", "crop", "colour", "caption", "logo", "speed", "downscale", "greyscale"]
_PART_S = (2.0, 6.0)


def compile_clips(
    clips: Sequence[Callable[[], Clip]], rng: Generator, *, size: tuple[int, int], fps: float
) -> tuple[Clip, tuple[TimeMap, ...]]:
    """A part of 2 to 6 s of each clip, in their order, as one clip of `size` (height, width) at `fps`.

    Every second part, by chance, is edited as well. Some compilations show a number for a second before each part.

    clips: functions that give the clips; called one by one, so that one is in memory at a time.

    Returns the compilation, and for each clip which of its moments are shown when.
    """
    counted, fit = bool(rng.random() < 0.3), pick(rng, [pixels.fit_whole, pixels.cover])
    images, maps, frames = [], [], 0
    for number, read in enumerate(clips):
        if counted:
            images.append(_draw_number(rng, len(clips) - number, size, max(1, round(fps))))
            frames += len(images[-1])
        part, time = _take_part(read(), rng)
        shown = change_rate(part, fps)
        images.append(fit(shown.clip.images, size))
        start = frames / fps
        frames += len(images[-1])
        later = TimeMap.of(Segment(start, start + shown.clip.seconds, 0.0, shown.clip.seconds))
        maps.append(later.after(shown.time).after(time))
    return Clip(np.concatenate(images), fps), tuple(maps)


def _take_part(clip: Clip, rng: Generator) -> tuple[Clip, TimeMap]:
    kept = min(len(clip), max(1, round(between(rng, *_PART_S) * clip.fps)))
    first = int(rng.integers(0, len(clip) - kept + 1))
    part = Clip(clip.images[first : first + kept], clip.fps)
    time = TimeMap.of(Segment(0.0, part.seconds, first / clip.fps, (first + kept) / clip.fps))
    if rng.random() < 0.5:
        return part, time
    edited = find_edit(pick(rng, _EDITS)).apply(part, rng)
    return edited.clip, edited.time.after(time)


def _draw_number(rng: Generator, number: int, size: tuple[int, int], count: int) -> Images:
    ground = np.empty((1, *size, 3), np.uint8)
    ground[:] = rng.integers(0, 120, 3)
    words = sprites.draw_words(f"number {number}", size[1], size[0])
    return np.repeat(pixels.lay_over(ground, words, [(0, 0)]), count, axis=0)
