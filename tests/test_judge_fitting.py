"""The fit of a judge: on drawn pairs, whose evidence is known."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from hapvr.errors import DataError
from hapvr.evaluation.benchmarks.benchmark import TrueSegment
from hapvr.judge.evidence import Stretch, find_stretches
from hapvr.judge.judge import measure_scene
from hapvr.judge.second_look import SecondLook
from hapvr.judge_fitting import JudgedPair, JudgeFitConfig, _is_right, fit_pairs
from hapvr.similarity import SegmentConfig
from tests.judge.test_evidence import make_pair

CONFIG = SegmentConfig()


def draw(number: int, relation: str) -> JudgedPair:
    """A pair whose frames are in step if it is a copy, alike in no order if it is a scene; else neither."""
    rng = np.random.default_rng(number)
    targets = {
        "copy": np.arange(14.0) + rng.integers(0, 20),
        "scene": rng.permutation(40)[:14].astype(float),
        "stranger": np.full(14, math.nan),
    }[relation]
    pair = make_pair(np.arange(14.0), targets, seed=number, noise=0.1)
    b_small = rng.integers(0, 256, (40, 16, 16), dtype=np.uint8)
    shown = b_small[targets.astype(int)] if relation != "stranger" else rng.integers(0, 256, (14, 16, 16), np.uint8)
    pair = dataclasses.replace(pair, a_small=shown, b_small=b_small)
    stretches = find_stretches(pair, CONFIG)
    right = [relation == "copy" and abs(one.shift - targets[0]) < 1 for one in stretches]

    def look(_: Stretch) -> SecondLook:
        return SecondLook(4, 80.0 * (relation == "copy"), 0.9, 0.9 if relation == "copy" else 0.1, 9.0, 0.9, False)

    instants = list(zip(stretches, right, strict=True))
    return JudgedPair(
        f"q{number}", f"t{number}", f"s{number}", relation, stretches, right, measure_scene(pair), look, instants
    )


def drawn(copies: int = 60, scenes: int = 10, strangers: int = 160) -> list[JudgedPair]:
    kinds = ["copy"] * copies + ["scene"] * scenes + ["stranger"] * strangers
    return [draw(number, relation) for number, relation in enumerate(kinds)]


def test_a_fitted_judge_tells_copies_from_strangers() -> None:
    config = JudgeFitConfig(undecided=(-50.0, 50.0))  # every pair is looked at again
    judge, figures = fit_pairs(drawn(), 10_000, config=config, progress=lambda *_: None)
    assert (figures["copies"], figures["nearest_strangers"]) == (60, 160)
    assert figures["recall"] > 0.95
    assert figures["false"] == 0
    assert (judge.prior, judge.videos) == (config.prior, 230)
    for number, match in ((900, True), (901, False)):
        fresh = draw(number, "copy" if match else "stranger")
        assert bool(judge.judge_stretches(fresh.stretches).max(initial=-9) > 0) is match
    places, rates = zip(*judge.tail, strict=True)
    assert list(places) == sorted(places)
    assert list(rates) == sorted(rates, reverse=True)


def test_too_few_pairs_are_refused() -> None:
    with pytest.raises(DataError, match="20 and 100 are needed"):
        fit_pairs(drawn(copies=3, strangers=5), 8, config=JudgeFitConfig(), progress=lambda *_: None)


def test_a_stretch_is_right_where_the_truth_says() -> None:
    stretch = max(
        find_stretches(make_pair(np.arange(12.0), np.arange(12.0) + 7), CONFIG), key=lambda s: len(s.instants)
    )
    assert _is_right(stretch, [TrueSegment(0.0, 12.0, "t", 7.0, 19.0)])
    assert not _is_right(stretch, [TrueSegment(0.0, 12.0, "t", 10.0, 22.0)])
    assert not _is_right(stretch, [TrueSegment(30.0, 40.0, "t", 7.0, 17.0)])
    assert not _is_right(stretch, [])
