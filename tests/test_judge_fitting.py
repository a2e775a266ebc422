"""The fit of a judge: on drawn pairs, whose evidence is known."""

from __future__ import annotations

import dataclasses
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from torch import Tensor

from hapvr import judge_fitting
from hapvr.errors import DataError
from hapvr.evaluation.benchmarks.benchmark import TrueSegment
from hapvr.features import Features
from hapvr.judge.evidence import PairFrames, Stretch, find_stretches
from hapvr.judge.judge import measure_scene
from hapvr.judge.second_look import SecondLook
from hapvr.judge_fitting import (
    JudgedPair,
    JudgeFitConfig,
    _is_right,
    _judge,
    _judge_other_parts,
    _weigh_relations,
    fit_pairs,
)
from hapvr.matching import VideoDescription, describe_features
from hapvr.model import Model
from hapvr.similarity import SegmentConfig
from tests.judge.test_evidence import make_pair
from tests.library.test_duplicates import drawn as drawn_regions
from tests.library.test_duplicates import model as toy_model

CONFIG = SegmentConfig()


def draw(number: int, relation: str) -> JudgedPair:
    """A pair whose frames are in step if it is a copy, alike in no order if it is a scene; else neither."""
    rng = np.random.default_rng(number)
    targets = {
        "copy": np.arange(14.0) + rng.integers(0, 20),
        "scene": rng.permutation(40)[:14].astype(float),
        "other part": rng.permutation(40)[:14].astype(float),
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


def drawn(copies: int = 60, scenes: int = 10, strangers: int = 160, apart: int = 0) -> list[JudgedPair]:
    kinds = ["copy"] * copies + ["scene"] * scenes + ["stranger"] * strangers + ["other part"] * apart
    return [draw(number, relation) for number, relation in enumerate(kinds)]


def test_a_fitted_judge_tells_copies_from_strangers() -> None:
    config = JudgeFitConfig(undecided=(-50.0, 50.0))  # every pair is looked at again
    candidates = SegmentConfig(threshold=0.25)
    judge, figures = fit_pairs(drawn(), 10_000, config=config, candidates=candidates, progress=lambda *_: None)
    assert judge.candidates == candidates
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


def test_other_parts_of_a_video_are_no_copies_but_the_same_scene() -> None:
    config = JudgeFitConfig(undecided=(-50.0, 50.0))
    judge, figures = fit_pairs(drawn(apart=30), 10_000, config=config, candidates=CONFIG, progress=lambda *_: None)
    assert (figures["other_parts"], figures["false_other_parts"], figures["nearest_strangers"]) == (30, 0, 160)
    assert figures["recall"] > 0.95
    fresh = draw(902, "other part")
    assert judge.judge_stretches(fresh.stretches).max(initial=-9) < 0
    assert judge.scene.log_odds([[fresh.scene[name] for name in judge.scene.names]])[0] > 0


def test_other_parts_have_their_share_of_the_weight() -> None:
    pairs = [SimpleNamespace(relation=kind) for kind in ("copy", "stranger", "stranger", "other part")]
    config = JudgeFitConfig(other_parts=0.25)
    factors = _weigh_relations(pairs, np.array([2.0, 1.0, 2.0, 0.5]), config)  # type: ignore[arg-type]
    assert factors.tolist() == pytest.approx([1.0, 0.25, 0.25, 0.5])  # 0.75 / 3, 0.25 / 0.5
    alone = _weigh_relations(pairs[:3], np.ones(3), config)  # type: ignore[arg-type]
    assert alone.tolist() == [1.0, 1.0, 1.0]


def describe(regions: Tensor, pixels: NDArray[np.uint8], judged: Model) -> VideoDescription:
    times = np.arange(len(regions), dtype=np.float64) / 2
    return describe_features(judged, Features(regions, times, None, pixels), path="")


def make_copy(
    judged: Model, *, frames: int = 40, still: bool = False
) -> tuple[JudgedPair, dict[str, VideoDescription]]:
    """Frames 10 to 30 of a video of 40, at 2 a second, as a copy of it."""
    rng = np.random.default_rng(5)
    pixels = rng.integers(0, 256, (frames, 16, 16), dtype=np.uint8)
    pixels = np.repeat(pixels[:1], frames, 0) if still else pixels
    regions = drawn_regions(7, frames)
    part = slice(10, frames - 10)
    videos = {"q": describe(regions[part], pixels[part], judged), "t": describe(regions, pixels, judged)}
    truth = [TrueSegment(0.0, (frames - 20) / 2, "t", 5.0, (frames - 10) / 2)]
    return _judge(judged, "q", "t", "t", "copy", videos, truth), videos


def test_parts_of_a_copy_are_compared_with_other_parts_of_its_original(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = toy_model()
    pair, videos = make_copy(judged)
    assert any(pair.right)
    seen = []

    def note(model: Model, *args: Any) -> JudgedPair:
        cut = args[4]
        seen.append((cut["q"].times, cut["t"].times))
        return _judge(model, *args)

    monkeypatch.setattr(judge_fitting, "_judge", note)
    found = list(_judge_other_parts(judged, pair, videos))
    assert [(one.relation, any(one.right)) for one in found] == [("other part", False)] * 2
    (early, later), (late, before) = seen
    # The copy shows seconds 5 to 15 of its original. Its first 4.2 s are there until 9.2; 1.6 s later is the rest.
    assert (early[0], early[-1]) == (0.0, 4.0)
    assert later[0] == 11.0
    assert later[-1] == 19.5
    assert (before[0], before[-1]) == (0.0, 9.0)  # until 15 - 4.2 - 1.6
    assert late[-1] == 9.5
    for own, other in seen:
        assert set((own + 5.0).tolist()).isdisjoint(other.tolist())


def test_the_evidence_of_a_fit_does_not_depend_on_whether_the_model_has_a_judge_yet() -> None:
    judged, bare = toy_model(), toy_model()
    bare.judge = None
    (known, _), (fresh, _) = (make_copy(one) for one in (judged, bare))
    assert [one.evidence for one in fresh.stretches] == [one.evidence for one in known.stretches]
    assert any(one.evidence.vector_changes != 0 for one in fresh.stretches)


def test_a_fit_finds_stretches_as_by_the_judge_that_the_model_has(monkeypatch: pytest.MonkeyPatch) -> None:
    judged, keeping = toy_model(), toy_model()
    kept = SegmentConfig(threshold=0.25)
    keeping.judge = dataclasses.replace(keeping.judge, candidates=kept)
    seen = []

    def note(pair: PairFrames, config: SegmentConfig) -> list[Stretch]:
        seen.append(config)
        return find_stretches(pair, config)

    monkeypatch.setattr(judge_fitting, "find_stretches", note)
    for model, config in ((judged, judged.segments), (keeping, kept)):
        make_copy(model)
        assert seen == [config] * 2  # of the pair, and of a single frame
        seen.clear()


def test_what_stands_still_runs_backwards_or_is_short_has_no_other_parts() -> None:
    judged = toy_model()
    pair, videos = make_copy(judged, still=True)
    assert any(pair.right)
    assert not list(_judge_other_parts(judged, pair, videos))
    pair, videos = make_copy(judged)
    backwards = [dataclasses.replace(one, speed=-1.0) for one in pair.stretches]
    assert not list(_judge_other_parts(judged, dataclasses.replace(pair, stretches=backwards), videos))
    pair, videos = make_copy(judged, frames=34)  # 7 s
    assert any(pair.right)
    assert not list(_judge_other_parts(judged, pair, videos))


def test_too_few_pairs_are_refused() -> None:
    with pytest.raises(DataError, match="20 and 100 are needed"):
        fit_pairs(drawn(copies=3, strangers=5), 8, config=JudgeFitConfig(), candidates=CONFIG, progress=lambda *_: None)


def test_a_stretch_is_right_where_the_truth_says() -> None:
    stretch = max(
        find_stretches(make_pair(np.arange(12.0), np.arange(12.0) + 7), CONFIG), key=lambda s: len(s.instants)
    )
    assert _is_right(stretch, [TrueSegment(0.0, 12.0, "t", 7.0, 19.0)])
    assert not _is_right(stretch, [TrueSegment(0.0, 12.0, "t", 10.0, 22.0)])
    assert not _is_right(stretch, [TrueSegment(30.0, 40.0, "t", 7.0, 17.0)])
    assert not _is_right(stretch, [])
