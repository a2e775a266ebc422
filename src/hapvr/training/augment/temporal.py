"""Edits in time, as maps: which frame of a clip is shown at each step; `BLANK` and `NOISE` stand for no frame.

With `ViewConfig.temporal_edits="authors"` they are those of the authors' public code:

- a short video is repeated to twice the frames of a view before it is edited, see `repeat_as_authors`;
- shuffle and dropout work on sub-clips of one length, see `shuffle_dropout_as_authors`;
- a view is cut out anywhere but at the very end, and may show nothing of the clip, see `crop_as_authors`;
- a pause is never of the last frame.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from hapvr.training.augment.config import EDIT_KINDS, ViewConfig

BLANK, NOISE = -1, -2
KINDS = (*EDIT_KINDS, "none")

Map = NDArray[np.int64]  # [T], frames of the clip


def draw_kind(rng: Generator, config: ViewConfig) -> str:
    """One of `KINDS`, with the probabilities of the configuration; what they leave of 1 is "none"."""
    chances = [getattr(config, kind) for kind in KINDS[:-1]]
    return KINDS[int(np.searchsorted(np.cumsum(chances), rng.random(), side="right"))]


def edit(rng: Generator, frames: int, kind: str, config: ViewConfig) -> Map:
    """The map of a clip of `frames` frames after one edit; its length is whatever the edit makes it.

    - fast_forward: every second or third frame; slow_motion: every frame twice; reverse: the last first;
    - pause: a frame is shown up to T / 4 - 1 more times, T the frames of a view;
    - shuffle_dropout: see `shuffle_dropout`.

    >>> rng = np.random.default_rng(0)
    >>> edit(rng, 3, "slow_motion", ViewConfig()).tolist(), edit(rng, 3, "reverse", ViewConfig()).tolist()
    ([0, 0, 1, 1, 2, 2], [2, 1, 0])
    """
    whole = np.arange(frames)
    authors = config.temporal_edits == "authors"
    if kind == "shuffle_dropout":
        return shuffle_dropout_as_authors(rng, frames, config) if authors else shuffle_dropout(rng, frames, config)
    if kind == "fast_forward":
        return whole[:: int(rng.integers(2, 4))]
    if kind == "slow_motion":
        return whole.repeat(2)
    if kind == "reverse":
        return whole[::-1].copy()
    if kind == "pause":
        times = np.ones(frames, np.int64)
        times[int(rng.integers(max(1, frames - authors)))] += int(rng.integers(max(1, config.frames // 4)))
        return whole.repeat(times)
    return whole


def shuffle_dropout(rng: Generator, frames: int, config: ViewConfig) -> Map:
    """The clip cut into sub-clips of `window` frames (the last may be shorter), put in another order with probability
    `shuffle`, and each dropped with probability `drop`: cut out, or, with `keep_dropped`, left as blank frames or as
    noise, either as likely. One sub-clip always stays, or nothing of the video would be left to find.
    """
    low, high = config.window
    parts: list[Map] = []
    start = 0
    while start < frames:
        stop = min(frames, start + int(rng.integers(low, high + 1)))
        parts.append(np.arange(start, stop))
        start = stop
    if rng.random() < config.shuffle:
        parts = [parts[number] for number in rng.permutation(len(parts))]
    dropped = rng.random(len(parts)) < config.drop
    dropped[int(rng.integers(len(parts)))] &= not dropped.all()
    left: list[Map] = []
    for part, gone in zip(parts, dropped, strict=True):
        if not gone:
            left.append(part)
        elif rng.random() < config.keep_dropped:
            left.append(np.full(len(part), BLANK if rng.random() < 0.5 else NOISE))
    return np.concatenate(left)


def shuffle_dropout_as_authors(rng: Generator, frames: int, config: ViewConfig) -> Map:
    """The same as the authors' public code does it: one length of sub-clips, what fills none is cut off at the end.

    Nothing is dropped at all where the dropped sub-clips, those that stay as blank frames or noise counted twice, are
    as many as there are sub-clips. Each frame of those is blank or noise, either as likely.
    """
    low, high = config.window
    size = min(frames, int(rng.integers(low, high + 1)))
    parts = np.arange(frames - frames % size).reshape(-1, size)
    if rng.random() < config.shuffle:
        parts = rng.permutation(parts)
    dropped = rng.random(len(parts)) < config.drop
    blanked = dropped & (rng.random(len(parts)) < config.keep_dropped)
    fillings = np.where(rng.random(parts.shape) < 0.5, BLANK, NOISE)
    if int(dropped.sum() + blanked.sum()) >= len(parts):
        return parts.reshape(-1)
    parts = np.where(blanked[:, None], fillings, parts)
    return parts[~dropped | blanked].reshape(-1)


def repeat_as_authors(rng: Generator, frames: int, length: int) -> Map:
    """A short video as the authors' code loads it: doubled until it has `length` frames, of which as many are cut out.

    >>> repeat_as_authors(np.random.default_rng(0), 2, 4).tolist(), repeat_as_authors(np.random.default_rng(0), 5, 4)
    ([0, 1, 0, 1], array([0, 1, 2, 3, 4]))
    """
    whole = np.arange(frames)
    return whole if frames >= length else crop_as_authors(rng, whole, length)


def crop_as_authors(rng: Generator, index: Map, frames: int) -> Map:
    """`frames` consecutive entries as the authors' code cuts them out.

    A shorter map is doubled until it is long enough; the last place is never drawn where there is another.

    >>> crop_as_authors(np.random.default_rng(0), np.array([4, 5, BLANK]), 11).tolist()
    [4, 5, -1, 4, 5, -1, 4, 5, -1, 4, 5]
    """
    while len(index) < frames:
        index = np.concatenate([index, index])
    start = int(rng.integers(max(1, len(index) - frames)))
    return index[start : start + frames]


def crop(rng: Generator, index: Map, frames: int) -> Map:
    """`frames` consecutive entries at random; a shorter map is repeated as a whole until it is long enough.

    Only places with at least one frame of the clip are drawn, if there are such.

    >>> crop(np.random.default_rng(0), np.array([4, 5]), 4).tolist()
    [4, 5, 4, 5]
    """
    if len(index) < frames:
        index = np.tile(index, -(-frames // len(index)))
    real = np.concatenate([[0], np.cumsum(index >= 0)])
    places = np.flatnonzero(real[frames:] > real[:-frames])  # where a frame of the clip is shown
    if not len(places):
        places = np.arange(len(index) - frames + 1)
    start = places[int(rng.random() * len(places))]
    return index[start : start + frames]


def hold(index: Map, step: int) -> Map:
    """Every `step`-th frame, held until the next: the look of a lower frame rate.

    >>> hold(np.arange(5), 2).tolist()
    [0, 0, 2, 2, 4]
    """
    return index[np.arange(len(index)) // step * step]
