"""The judge: verdicts by hand, bounds of probability, the second look, and what is stored."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest

from hapvr.errors import WeightsError
from hapvr.judge.additive_model import AdditiveModel
from hapvr.judge.evidence import PairFrames, Stretch, find_stretches
from hapvr.judge.judge import SECOND_LOOK, Judge
from hapvr.judge.second_look import SecondLook
from hapvr.model import read_judge
from hapvr.similarity import SegmentConfig
from hapvr.weights import Part
from tests.judge.test_evidence import make_pair

CONFIG = SegmentConfig()


def line(name: str, low: float, high: float, rise: float, bias: float) -> AdditiveModel:
    return AdditiveModel((name,), ((low, high),), ((0.0, rise),), bias)


JUDGE = Judge(
    stretch=line("changes", 0.0, 1.0, 16.0, -8.0),
    stretch_without_pixels=line("similarity", 0.0, 1.0, 16.0, -8.0),
    instant=line("pixels", 0.0, 1.0, 12.0, -6.0),
    instant_without_pixels=line("similarity", 0.0, 1.0, 12.0, -6.0),
    second_look=AdditiveModel(
        SECOND_LOOK, ((0.0, 1.0),) * 4, tuple((0.0, 18.0 * (name == "motion")) for name in SECOND_LOOK), -9.0
    ),
    scene=line("likeness", 0.0, 1.0, 20.0, -5.0),
    tail=((-4.0, 10_000.0), (0.0, 100.0), (4.0, 1.0)),
    videos=3_000,
    prior=0.5,
    undecided=(-2.0, 2.0),
)
LOOK = SecondLook(4, 50.0, 0.9, 1.0, 10.0, 0.8, False)


def similar(level: float) -> PairFrames:
    """Fourteen frames that are the same footage, of about this similarity."""
    pair = make_pair(np.arange(14.0), np.arange(14.0) + 9, noise=0.01)
    scale = np.float32(level / 0.8)
    return dataclasses.replace(pair, forth=pair.forth * scale, back=pair.back * scale)


def test_a_probability_is_that_computed_by_hand() -> None:
    # Odds e^2 at a prior of .2; a share .001 of strangers may look like copies: 1 / (.999 e^-2 + .001).
    odds = 1 / (0.999 * math.exp(-2) + 0.001) * 0.25
    assert JUDGE.probability(2.0, 0.2) == pytest.approx(odds / (1 + odds))
    assert JUDGE.probability(-math.inf) == 0.0


def test_a_probability_rises_and_is_bounded_by_the_videos_of_the_fit() -> None:
    values = [JUDGE.probability(odds) for odds in np.linspace(-30, 30, 61)]
    assert (np.diff(values) > 0).all()  # it does not saturate before its bound
    assert values[-1] < JUDGE.probability(math.inf) == pytest.approx(1000 / 1001)
    assert JUDGE.probability(5.0, 1e-4) < JUDGE.probability(5.0, 0.5)


@pytest.mark.parametrize("level", [0.9, 0.5, 0.15])
def test_a_judge_finds_stretches_as_when_it_was_fitted(level: float) -> None:
    pair, other = similar(level), SegmentConfig(threshold=0.99, min_gain=50.0, min_frames=15)
    whole = np.ones(14, bool), np.ones(40, bool)
    keeping = dataclasses.replace(JUDGE, candidates=CONFIG)
    assert keeping.decide(pair, other) == JUDGE.decide(pair, CONFIG)
    assert JUDGE.decide(pair, other) != JUDGE.decide(pair, CONFIG)  # without candidates of its own, as the model says
    assert keeping.decide_through(pair, other, whole) == JUDGE.decide_through(pair, CONFIG, whole)
    for min_probability in np.linspace(0.01, 0.99, 25):
        quick = keeping.may_be_copies(pair, other, prior=0.01, min_probability=min_probability)
        assert quick == JUDGE.may_be_copies(pair, CONFIG, prior=0.01, min_probability=min_probability)
    assert keeping.digest() == JUDGE.digest()  # what libraries have stored of its log odds stays valid


def test_promised_rates_lie_on_the_tail() -> None:
    assert JUDGE.false_per_million(0.0) == pytest.approx(100)
    assert JUDGE.false_per_million(2.0) == pytest.approx(10)
    assert JUDGE.false_per_million(9.0) == pytest.approx(1)


@pytest.mark.parametrize(("level", "kind"), [(0.9, "copy"), (0.42, "same scene"), (0.15, "no match")])
def test_verdicts_have_three_kinds(level: float, kind: str) -> None:
    decision = JUDGE.decide(similar(level), CONFIG)
    assert decision.verdict.kind == kind
    assert decision.verdict.match is (kind == "copy")
    assert bool(decision.segments) is (kind == "copy")
    assert decision.verdict.scene_probability >= decision.verdict.probability  # type: ignore[operator]
    assert decision.verdict.reason.endswith(".")


def test_the_best_stretch_stands_for_the_pair_and_each_copy_is_a_segment() -> None:
    targets = np.concatenate([np.arange(2.0, 12), np.arange(25.0, 35)])
    decision = JUDGE.decide(make_pair(np.arange(20.0), targets, noise=0.01), CONFIG)
    starts = sorted(round(segment.target[0]) for segment in decision.segments)
    assert starts == [2, 24] or starts == [2, 25]
    alone = JUDGE.decide(make_pair(np.arange(10.0), targets[:10], noise=0.01), CONFIG)
    assert decision.verdict.probability == pytest.approx(
        alone.verdict.probability, abs=0.02
    )  # however long the rest is


def test_a_decision_on_some_frames_is_that_on_all_if_a_copy_goes_through_them_and_none_else() -> None:
    targets = np.concatenate([np.arange(2.0, 12), np.full(10, math.nan), np.arange(25.0, 35)])
    pair = make_pair(np.arange(30.0), targets, noise=0.01)
    whole = JUDGE.decide(pair, CONFIG)
    assert len(whole.segments) == 2

    def ask(a: set[int], b: set[int], prior: float | None = None) -> object:
        frames = np.isin(np.arange(30), list(a)), np.isin(np.arange(40), list(b))
        return JUDGE.decide_through(pair, CONFIG, frames, prior=prior)

    for a, b in (({4}, set()), (set(), {30}), ({12, 22}, {0})):  # one of them lies on a copy
        assert ask(a, b) == whole
    for a, b in ((set(), set()), ({15}, set()), (set(), {18}), ({14, 16}, {20})):
        assert ask(a, b) is None
    assert ask({4}, set(), prior=1e-6) is None  # then it is no copy


def test_a_second_look_is_taken_where_odds_are_undecided_and_decides() -> None:
    taken: list[Stretch] = []

    def look(stretch: Stretch, motion: float = 1.0) -> SecondLook:
        taken.append(stretch)
        return dataclasses.replace(LOOK, motion=motion)

    pair = similar(0.5)  # log odds of about 0
    first = JUDGE.decide(pair, CONFIG)
    assert not first.verdict.second_look
    good = JUDGE.decide(pair, CONFIG, look=look)
    assert good.verdict.second_look
    assert good.verdict.kind == "copy"
    assert good.verdict.probability == pytest.approx(JUDGE.probability(9.0))
    assert good.verdict.evidence["second_look_motion"] == 1.0
    bad = JUDGE.decide(pair, CONFIG, look=lambda stretch: look(stretch, 0.0))
    assert bad.verdict.kind != "copy"
    assert bad.verdict.probability == pytest.approx(JUDGE.probability(-9.0))
    assert len(taken) == 2
    for decided in (0.9, 0.2):
        JUDGE.decide(similar(decided), CONFIG, look=look)
    assert len(taken) == 2


def test_a_second_look_counts_together_with_the_odds_before_it() -> None:
    second = AdditiveModel(("first", "motion"), ((-2.0, 2.0), (0.0, 1.0)), ((0.0, 4.0), (0.0, 3.0)), -3.0)
    judge = dataclasses.replace(JUDGE, second_look=second)
    assert judge.judge_second_look(dataclasses.replace(LOOK, motion=0.5), 1.0) == pytest.approx(-3.0 + 3.0 + 1.5)
    assert judge.judge_second_look(dataclasses.replace(LOOK, motion=0.5), -1.0) == pytest.approx(-3.0 + 1.0 + 1.5)
    decision = judge.decide(similar(0.5), CONFIG, look=lambda _: dataclasses.replace(LOOK, motion=1.0))
    before = judge.decide(similar(0.5), CONFIG).log_odds
    assert decision.log_odds == pytest.approx(-3.0 + (before + 2.0) + 3.0)


def test_looks_go_on_until_one_is_a_copy_at_the_prior_that_is_asked_for() -> None:
    pair = similar(0.5)
    place, other = (dataclasses.replace(LOOK, motion=motion) for motion in (0.6, 0.55))
    taken: list[Stretch] = []

    def look(stretch: Stretch) -> SecondLook:
        taken.append(stretch)
        return place if len(taken) == 1 else other

    stretches = find_stretches(pair, CONFIG) * 2
    for prior, count in ((0.5, 1), (0.01, 2)):  # log odds of 1.8 are enough at a prior of a half
        taken.clear()
        odds = np.zeros(2)
        JUDGE._look_again(stretches[:2], odds, [0, 1], look, prior)
        assert len(taken) == count


def test_without_the_files_the_first_look_stays() -> None:
    pair = similar(0.5)
    assert JUDGE.decide(pair, CONFIG, look=lambda _: None) == JUDGE.decide(pair, CONFIG)


def test_videos_without_pixels_are_judged_by_their_regions() -> None:
    pair = similar(0.9)
    blank = np.zeros((40, 16, 16), np.uint8)
    with_pixels = dataclasses.replace(pair, a_small=blank[:14], b_small=blank)
    assert JUDGE.decide(pair, CONFIG).verdict.match
    assert not JUDGE.decide(with_pixels, CONFIG).verdict.match  # nothing moves alike in them


def test_a_picture_is_judged_by_its_instant() -> None:
    pair = make_pair([0.0], np.array([17.0]))
    decision = JUDGE.decide(pair, CONFIG)
    assert decision.verdict.match
    assert [segment.target for segment in decision.segments] == [(16.5, 17.5)]


@pytest.mark.parametrize("prior", [None, 0.05, 0.95])
@pytest.mark.parametrize("min_probability", [1e-6, 0.01, 0.5, 0.99])
def test_a_quick_answer_misses_nothing_that_could_be_reported(prior: float | None, min_probability: float) -> None:
    """Whatever the files show: a second look that speaks for it, one that speaks against it, none at all."""
    answers = set()
    for level in np.linspace(0.1, 0.95, 18):
        pair = similar(float(level))
        quick = JUDGE.may_be_copies(pair, CONFIG, prior=prior, min_probability=min_probability)
        answers.add(quick)
        for look in (lambda _: LOOK, lambda _: dataclasses.replace(LOOK, motion=0.0), None):
            found = JUDGE.decide(pair, CONFIG, prior=prior, look=look).verdict
            assert found.probability is not None
            assert quick or found.probability < min_probability
    assert True in answers
    weakest = JUDGE.decide(similar(0.1), CONFIG, prior=prior).verdict.probability
    assert weakest is not None
    assert (False in answers) is (weakest < min_probability)  # it saves work where that is possible


def test_a_quick_answer_counts_a_pair_that_lies_on_the_bound() -> None:
    pair = similar(0.3)
    exact = JUDGE.decide(pair, CONFIG).verdict.probability
    assert exact is not None
    assert JUDGE.probability(JUDGE.undecided[0]) > exact  # no second look would be taken
    assert JUDGE.may_be_copies(pair, CONFIG, min_probability=exact)
    assert not JUDGE.may_be_copies(pair, CONFIG, min_probability=exact * 1.001)


def test_a_judge_survives_its_file() -> None:
    kept = dataclasses.replace(JUDGE, candidates=SegmentConfig(threshold=0.2, max_segments=7))
    for judge in (JUDGE, kept):
        part = judge.to_part()
        plain = json.loads(json.dumps(dict(part.config)))
        assert Judge.from_part(Part(plain, {})) == judge
    assert plain["candidates"] == dataclasses.asdict(SegmentConfig(threshold=0.2, max_segments=7))
    older = {name: value for name, value in plain.items() if name != "candidates"}
    assert Judge.from_part(Part(older, {})) == JUDGE  # judges that were saved before they kept it
    for broken in (
        {}, {**plain, "tail": 3}, {**plain, "surplus": 1}, {**plain, "stretch": {"bias": "x"}},
        {**plain, "candidates": {"treshold": 0.2}}, {**plain, "candidates": {"min_gain": -1.0}},
        {**plain, "candidates": 0},
    ):  # fmt: skip
        with pytest.raises(WeightsError, match="judge"):
            Judge.from_part(Part(broken, {}))


@pytest.mark.parametrize("name", ["lite", "r50"])
def test_the_shipped_models_have_a_judge(name: str) -> None:
    judge = read_judge(name)
    assert judge is not None
    assert judge.videos >= 200
    gap = {"lite": 0.05, "r50": 0.03}[name]
    assert judge.candidates == SegmentConfig(threshold=0.2, max_rival_gap=gap)  # as they were fitted
    for model in (judge.stretch, judge.stretch_without_pixels, judge.instant, judge.instant_without_pixels):
        least, most = (model.log_odds([[knots[end] for knots in model.knots]])[0] for end in (0, -1))
        assert judge.probability(least) < 0.01  # without any evidence
        assert 0.9 < judge.probability(most) < 0.999  # with all of it, no more than the videos of the fit can show


def test_the_reason_says_what_speaks_and_what_is_missing() -> None:
    pair = similar(0.9)
    assert JUDGE.decide(pair, CONFIG).verdict.reason == (
        "Along 14 frames they are closely alike and in step; their pixels are not known, so this is less sure."
    )
    moving = np.random.default_rng(0).integers(0, 256, (40, 16, 16), dtype=np.uint8)
    same = dataclasses.replace(pair, a_small=moving[9:23], b_small=moving)
    assert JUDGE.decide(same, CONFIG).verdict.reason.endswith("in step; what moves agrees.")
    unlike = np.random.default_rng(1).integers(0, 256, (14, 16, 16), dtype=np.uint8)
    other = dataclasses.replace(pair, a_small=unlike, b_small=moving)
    assert JUDGE.decide(other, CONFIG).verdict.reason.endswith("what moves differs.")
    still = dataclasses.replace(pair, a_small=moving[[3] * 14], b_small=moving[[3] * 40])
    assert JUDGE.decide(still, CONFIG).verdict.reason.endswith("hardly anything moves.")
    looked = JUDGE.decide(similar(0.5), CONFIG, look=lambda _: LOOK).verdict
    assert looked.reason.endswith("at full size what moves agrees.")
    assert JUDGE.decide(make_pair([0.0], np.array([17.0])), CONFIG).verdict.reason.startswith("One frame is")


def test_a_stretch_that_was_not_looked_at_does_not_take_the_place_of_one_that_was_refused() -> None:
    """Two stretches are undecided. The better one is refused: so must be the other, by a look of its own."""
    targets = np.concatenate([np.arange(2.0, 16), np.arange(25.0, 37)])
    pair = make_pair(np.arange(26.0), targets, noise=0.01)
    scale = np.float32(0.5 / 0.8)
    pair = dataclasses.replace(pair, forth=pair.forth * scale, back=pair.back * scale)
    seen: list[Stretch] = []

    def refuse(stretch: Stretch) -> SecondLook:
        seen.append(stretch)
        return dataclasses.replace(LOOK, motion=0.0)

    assert not JUDGE.decide(pair, CONFIG, look=refuse).verdict.match
    assert len({stretch.segment.target for stretch in seen}) == len(seen) >= 2

    def accept_the_second(stretch: Stretch) -> SecondLook:
        return dataclasses.replace(LOOK, motion=float(stretch.segment.target[0] > 20))

    found = JUDGE.decide(pair, CONFIG, look=accept_the_second)
    assert found.verdict.match
    assert [round(segment.target[0]) for segment in found.segments] in ([24], [25])


def test_a_picture_is_not_looked_at_again() -> None:
    def refuse(_: Stretch) -> SecondLook:
        raise AssertionError("there is no movement in a picture")

    JUDGE.decide(make_pair([0.0], np.array([17.0])), CONFIG, look=refuse)
