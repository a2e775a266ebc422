"""Temporal edits as the authors' public code makes them, against hand cases, a slow loop and measured rates."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hapvr.training.augment import ViewConfig, draw_plan, temporal
from hapvr.training.augment.temporal import BLANK, NOISE

AUTHORS = ViewConfig(temporal_edits="authors")
ONLY = {"fast_forward": 0.0, "slow_motion": 0.0, "reverse": 0.0, "pause": 0.0, "shuffle_dropout": 1.0}


class Script:
    """Random numbers that are written down: `random` and `integers` give them in order."""

    def __init__(self, *values: Any) -> None:
        self.values = list(values)

    def random(self, shape: Any = None) -> Any:
        return self.values.pop(0) if shape is None else np.array(self.values.pop(0), float).reshape(shape)

    def integers(self, *_: int) -> Any:
        return self.values.pop(0)

    def permutation(self, parts: Any) -> Any:
        return parts[self.values.pop(0)]


def test_shuffle_and_dropout_by_hand() -> None:
    # 11 frames in windows of 3: frames 9 and 10 fill none and are cut off. The windows change places (2, 0, 1); the
    # second is dropped and cut out.
    script = Script(3, 0.4, [2, 0, 1], [0.9, 0.1, 0.9], [0.9, 0.6, 0.9], np.zeros(9))
    index = temporal.shuffle_dropout_as_authors(script, 11, AUTHORS)  # type: ignore[arg-type]
    assert index.tolist() == [6, 7, 8, 3, 4, 5]
    # The second stays as blank frames and noise, frame by frame; no shuffle.
    script = Script(3, 0.6, [0.9, 0.1, 0.9], [0.9, 0.4, 0.9], [0] * 3 + [0.2, 0.7, 0.2] + [0] * 3)
    index = temporal.shuffle_dropout_as_authors(script, 11, AUTHORS)  # type: ignore[arg-type]
    assert index.tolist() == [0, 1, 2, BLANK, NOISE, BLANK, 6, 7, 8]
    # Two windows, one of them blank: counted twice it is as many as there are, and nothing happens.
    script = Script(4, 0.6, [0.9, 0.1], [0.9, 0.4], np.zeros(8))
    index = temporal.shuffle_dropout_as_authors(script, 8, AUTHORS)  # type: ignore[arg-type]
    assert index.tolist() == list(range(8))


def loop(rng: np.random.Generator, frames: int) -> list[int]:
    """One clip, by lists: what the docstring says, drawn with other random numbers."""
    size = min(frames, int(rng.integers(4, 16)))
    windows = [list(range(start, start + size)) for start in range(0, frames - frames % size, size)]
    if rng.random() < 0.5:
        rng.shuffle(windows)
    fates = [("keep" if rng.random() >= 0.3 else "cut" if rng.random() < 0.5 else "blank") for _ in windows]
    count = sum({"keep": 0, "cut": 1, "blank": 2}[fate] for fate in fates)
    if count >= len(windows):
        return [frame for window in windows for frame in window]
    shown = []
    for window, fate in zip(windows, fates, strict=True):
        if fate != "cut":
            shown += window if fate == "keep" else [(BLANK, NOISE)[int(rng.integers(2))] for _ in window]
    return shown


@pytest.mark.parametrize("frames", [12, 56])
def test_shuffle_and_dropout_have_the_rates_of_a_slow_loop(frames: int) -> None:
    clips, rng, other = 8000, np.random.default_rng(0), np.random.default_rng(1)
    ours = [temporal.shuffle_dropout_as_authors(rng, frames, AUTHORS) for _ in range(clips)]
    slow = [np.array(loop(other, frames)) for _ in range(clips)]
    measures: dict[str, Callable[[Any], Any]] = {
        "length": len,
        "blank": lambda index: (index == BLANK).mean(),
        "noise": lambda index: (index == NOISE).mean(),
        "no blank": lambda index: (index >= 0).all(),
        "first": lambda index: index[0],
        "in order": lambda index: (np.diff(index[index >= 0]) > 0).all(),
    }
    for name, measure in measures.items():
        a, b = (np.array([float(measure(index)) for index in drawn]) for drawn in (ours, slow))
        assert abs(a.mean() - b.mean()) < 4 * np.sqrt((a.var() + b.var()) / clips) + 1e-9, name


def share(config: ViewConfig, frames: int, clips: int = 4000) -> tuple[float, float]:
    """Of strong views whose edit is shuffle and dropout: the share of frames gone from the clip, of clips with gaps."""
    plan = draw_plan([(frames, 8, 8)] * clips, config, seed=5)
    strong = plan.index[clips:]
    return float((strong < 0).mean()), float((strong < 0).any(1).mean())


def test_clips_with_gaps_are_as_common_as_was_measured_on_their_code() -> None:
    # Measured on their code and on ours, videos of 12 frames, every strong view shuffled and dropped.
    theirs, ours = (share(ViewConfig(temporal_edits=kind, **ONLY), 12)[1] for kind in ("authors", "hapvr"))  # type: ignore[arg-type]
    assert theirs == pytest.approx(0.458, abs=0.03)
    assert ours == pytest.approx(0.174, abs=0.03)


def test_a_short_video_is_repeated_before_it_is_edited_and_shows_only_its_frames() -> None:
    still = ViewConfig(frames=4, temporal_edits="authors", **dict.fromkeys(ONLY, 0.0))  # type: ignore[arg-type]
    for length in (1, 3, 5):
        plan = draw_plan([(length, 8, 8)] * 200, still, seed=length)
        for row in plan.index:
            assert all((b - a) % length == 1 % length for a, b in itertools.pairwise(row))
        assert plan.index.min() == 0
        assert plan.index.max() == length - 1
    fast = ViewConfig(frames=4, temporal_edits="authors", **{kind: float(kind == "fast_forward") for kind in ONLY})  # type: ignore[arg-type]
    steps = {int((row[1] - row[0]) % 5) for row in draw_plan([(5, 8, 8)] * 99, fast, seed=0).index[99:]}
    assert steps == {2, 3}


def test_views_are_cut_out_anywhere_but_at_the_very_end_and_may_be_empty() -> None:
    rng = np.random.default_rng(0)
    assert {int(temporal.crop_as_authors(rng, np.arange(10), 4)[0]) for _ in range(200)} == set(range(6))
    assert temporal.crop_as_authors(rng, np.arange(4), 4).tolist() == [0, 1, 2, 3]
    hidden = np.array([BLANK] * 9 + [5])
    assert {int(temporal.crop_as_authors(rng, hidden, 4).max()) for _ in range(200)} == {BLANK}
    pauses = ViewConfig(frames=8, temporal_edits="authors")
    held = {
        int(np.flatnonzero(np.diff(index) == 0)[0])
        for index in (temporal.edit(rng, 5, "pause", pauses) for _ in range(300))
        if len(index) > 5
    }
    assert held == {0, 1, 2, 3}
    assert {len(temporal.edit(rng, 5, "pause", pauses)) for _ in range(100)} == {5, 6}


def test_edits_of_our_own_are_as_they_were() -> None:
    # Drawn before there was a choice: old runs can be repeated.
    plan = draw_plan([(5, 8, 8), (40, 8, 8)], ViewConfig(frames=6), seed=3)
    assert plan.index.tolist() == [
        [2, 3, 4, 0, 1, 2],
        [13, 14, 15, 16, 17, 18],
        [1, 2, 3, 4, 0, 1],
        [1, 2, 3, 4, 5, 6],
    ]
