"""Edits in time, as maps: which frame of a clip is shown at each step; `BLANK` and `NOISE` stand for no frame."""

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
    if kind == "shuffle_dropout":
        return shuffle_dropout(rng, frames, config)
    if kind == "fast_forward":
        return whole[:: int(rng.integers(2, 4))]
    if kind == "slow_motion":
        return whole.repeat(2)
    if kind == "reverse":
        return whole[::-1].copy()
    if kind == "pause":
        times = np.ones(frames, np.int64)
        times[int(rng.integers(frames))] += int(rng.integers(max(1, config.frames // 4)))
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
