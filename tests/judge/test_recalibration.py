"""What log odds mean among a library's videos: by hand, by a slow search, and by laws."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hapvr.errors import ConfigError, DataError
from hapvr.judge.recalibration import JudgeCalibration, fit_odds_line, measure_own_tail, measure_tail
from tests.judge.test_judge import JUDGE

EVEN = math.log(49)  # at a prior of .02
TAIL = ((0.0, 10_000.0), (4.0, 100.0))


def draw_expected(copies: int, strangers: int, *, seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Log odds that mean what they say: of two normal laws with the means 4.5 and -4.5 and the variance 9."""
    rng = np.random.default_rng(seed)
    return rng.normal(4.5, 3, copies), rng.normal(-4.5, 3, strangers)


def slow_loss(copies: NDArray[np.float64], strangers: NDArray[np.float64], offset: float, slope: float) -> float:
    """What the fit minimises, pair by pair."""
    total = 0.0
    for values, label, weight in ((copies, 1, 1.0), (strangers, 0, len(copies) / len(strangers))):
        for value in values.tolist():
            if value > -2:
                odds = offset + slope * min(value, 8.0)
                total += weight * math.log1p(math.exp(-odds if label else odds))
    for place in np.linspace(-6, 6, 30).tolist():
        share, odds = 1 / (1 + math.exp(-place)), offset + slope * place
        total += share * math.log1p(math.exp(-odds)) + (1 - share) * math.log1p(math.exp(odds))
    return total


def test_the_line_is_the_best_of_those_that_a_slow_search_tries() -> None:
    rng = np.random.default_rng(1)
    copies, strangers = rng.normal(5, 4, 60), rng.normal(0, 2, 300)
    copies[:3] = -math.inf  # nothing was found of these
    offset, slope = fit_odds_line(copies, strangers, even=math.inf)
    best = slow_loss(copies, strangers, offset, slope)
    for more in (-0.05, 0.0, 0.05):
        for steeper in (-0.02, 0.0, 0.02):
            assert slow_loss(copies, strangers, offset + more, slope + steeper) >= best


def test_without_pairs_that_say_otherwise_the_line_is_that_of_the_judge() -> None:
    # By hand: copies and strangers in equal numbers at 0 agree with odds of 1 to 1, whatever the slope is.
    offset, slope = fit_odds_line(np.zeros(50), np.zeros(50), even=math.inf)
    assert (offset, slope) == pytest.approx((0.0, 1.0), abs=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_a_library_as_the_judge_expects_it_changes_hardly_anything(seed: int) -> None:
    offset, slope = fit_odds_line(*draw_expected(100, 1_000, seed=seed), even=EVEN)
    assert abs(offset) < 0.6
    assert abs(slope - 1) < 0.35
    offset, slope = fit_odds_line(*draw_expected(20_000, 200_000, seed=seed), even=EVEN)
    assert (offset, slope) == pytest.approx((0.0, 1.0), abs=0.05)


def test_more_look_alikes_lower_probabilities_but_not_those_of_clear_copies() -> None:
    copies, strangers = draw_expected(100, 1_000)
    base = dataclasses.replace(JUDGE, prior=0.02)
    before = base.find_even()
    last = -math.inf
    for share in (0.02, 0.1, 0.3):
        alike = np.random.default_rng(2).normal(4.0, 1.0, round(share * 1_000))
        others = np.concatenate([strangers, alike])
        offset, slope = fit_odds_line(copies, others, even=before)
        judge = dataclasses.replace(base, offset=offset, slope=slope)
        assert judge.probability(4.0) < base.probability(4.0)
        assert judge.find_even() > max(last, before)
        last = judge.find_even()
        assert judge.probability(float(others.max()) + 3.0) >= 0.5 - 1e-9


@pytest.mark.parametrize("copies", [1, 5, 20, 200])
def test_a_copy_far_above_all_strangers_stays_one_whatever_the_fit_says(copies: int) -> None:
    """Among 200 copies at -1 and strangers at 2 the regression alone would turn the line around."""
    strangers = np.full(500, 2.0)
    low = np.concatenate([np.full(copies, -1.0), np.full(copies, 9.0)])
    offset, slope = fit_odds_line(low, strangers, even=EVEN)
    assert slope > 0
    assert offset + slope * 5.0 >= EVEN - 1e-9
    # The regression without the guard does otherwise, for many copies.
    free = fit_odds_line(low, strangers, even=math.inf)
    assert copies < 200 or free[0] + free[1] * 5.0 < EVEN


def test_few_copies_that_are_hard_to_see_do_not_make_others_uncertain() -> None:
    rng = np.random.default_rng(0)
    copies = np.concatenate([rng.normal(7, 1, 15), np.full(5, -math.inf), np.full(4, -3.0)])
    strangers = rng.normal(-5, 2, 200).clip(max=0.5)
    offset, slope = fit_odds_line(copies, strangers, even=EVEN)
    assert offset + slope * EVEN >= EVEN - 1e-9


def test_copies_that_look_like_strangers_are_refused() -> None:
    with pytest.raises(DataError, match=r"does not tell copies from other videos here: half of 300 copies .* 100%"):
        fit_odds_line(np.linspace(-1.5, 0, 300), np.linspace(2, 6, 2_000), even=math.inf)


def test_a_tail_is_counted_by_hand_and_ends_at_what_pairs_can_show() -> None:
    odds = [3.0, 2.0, 1.0] + [0.0] * 7 + [-math.inf] * 90
    tail = measure_own_tail(odds, 1_000, TAIL)
    assert tail[:2] == ((0.0, 10_000.0), (1.0, 3_000.0))
    assert tail[-1][1] == 3_000.0  # 3 of 1,000: nothing rarer was seen
    assert measure_tail(odds, 1_000, rarest=300.0)[-1][0] == pytest.approx(1 + math.log(10) / math.log(10 / 3))
    # Too few strangers have a stretch: the judge's own tail, ended in the same way.
    assert measure_own_tail([1.0, 0.5], 5_000, TAIL) == ((0.0, 10_000.0), (4.0, 600.0))


def test_a_tail_is_never_below_the_rule_of_three() -> None:
    rng = np.random.default_rng(0)
    for count in (20, 200, 5_000):
        tail = measure_own_tail(rng.normal(-4, 2, count), count, TAIL)
        assert min(rate for _, rate in tail) >= 3e6 / count - 1e-9


CALIBRATION = JudgeCalibration(JUDGE.digest(), -1.0, 0.8, TAIL, 40, 400, 60)


def test_a_judge_takes_over_what_was_fitted() -> None:
    judge = JUDGE.recalibrate(CALIBRATION)
    assert judge.videos == JUDGE.videos + 60
    more = dataclasses.replace(JUDGE, videos=3_060)
    for odds in (-3.0, 0.0, 2.5, 7.0):
        assert judge.probability(odds) == pytest.approx(more.probability(-1 + 0.8 * odds))
    assert judge.probability(-math.inf) == 0.0
    assert judge.false_per_million(2.0) == pytest.approx(1_000)
    # Law: the order never changes, and fitted again it is as if it were the first time.
    values = [judge.probability(odds) for odds in np.linspace(-30, 30, 61)]
    assert (np.diff(values) > 0).all()
    assert judge.recalibrate(CALIBRATION).offset == -1.0
    assert judge.digest() == JUDGE.digest() != dataclasses.replace(JUDGE, undecided=(0.0, 1.0)).digest()


@pytest.mark.parametrize("prior", [0.02, 0.5])
def test_a_pair_is_a_copy_from_its_even_log_odds_on(prior: float) -> None:
    for judge in (dataclasses.replace(one, prior=prior) for one in (JUDGE, JUDGE.recalibrate(CALIBRATION))):
        assert judge.probability(judge.find_even()) == pytest.approx(0.5)
    assert dataclasses.replace(JUDGE, prior=0.02, videos=100).find_even() == math.inf


def test_a_calibration_is_stored_and_read_and_checked() -> None:
    plain = CALIBRATION.to_json()
    assert JudgeCalibration.from_json(plain) == CALIBRATION
    wrong: dict[str, Any]
    for wrong in (
        {"slope": 0.0}, {"slope": math.nan}, {"offset": "much"}, {"tail": []}, {"tail": [[1.0, 5.0], [0.0, 1.0]]},
        {"tail": [[0.0, 5.0], [1.0, 50.0]]}, {"tail": [[0.0, -1.0]]}, {"tail": 3}, {"copies": 0}, {"more": 1},
    ):  # fmt: skip
        with pytest.raises(ConfigError):
            JudgeCalibration.from_json(plain | wrong)
