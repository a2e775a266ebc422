from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hapvr.errors import ConfigError, DataError, ShapeError, WeightsError
from hapvr.model.parts import SHIPPED
from hapvr.similarity.calibration import Calibration, Tail, fit_calibration, fit_line, fit_tail
from hapvr.weights import Part, load_part

Floats = npt.NDArray[np.float64]
SCORES = st.floats(-1, 1, width=32)


def drawn(seed: int, positives: int = 150, negatives: int = 3000) -> tuple[Floats, Floats]:
    """Scores that overlap."""
    draw = np.random.default_rng(seed)
    return draw.normal(0.6, 0.2, positives).clip(-1, 1), draw.normal(0.1, 0.12, negatives).clip(-1, 1)


@pytest.fixture(scope="module")
def calibration() -> Calibration:
    return fit_calibration(*drawn(0))


# --- the tail --------------------------------------------------------------------------------------------------------


def slow_log_likelihood(excess: Floats, shape: float, scale: float) -> float:
    total = 0.0
    for x in excess:
        inner = 1 + shape * x / scale
        if inner <= 0:
            return -math.inf
        total += -math.log(scale) - (x / scale if shape == 0 else (1 + 1 / shape) * math.log(inner))
    return total


def test_a_tail_by_hand() -> None:
    # (1 + 0.5 * 0.2 / 0.1)^-2 = 1/4 and (1 - 0.1 * 0.5 / 0.1)^10 = 2^-10, of a hundredth.
    assert math.exp(Tail(0.5, 0.01, 0.5, 0.1).log_share(0.7)) == pytest.approx(0.01 / 4)
    assert math.exp(Tail(0.4, 0.01, -0.1, 0.1).log_share(0.9)) == pytest.approx(0.01 / 1024)


@pytest.mark.parametrize("shape", [-0.3, -0.1, 0.0, 0.2])
def test_the_likeliest_law_is_found(shape: float) -> None:
    """No neighbour on a grid of shapes and scales that reach a score of 1 is likelier."""
    draw = np.random.default_rng(1)
    scale = 0.05 if shape > -0.2 else 0.4
    power = draw.uniform(size=300)
    excess = -scale * np.log(power) if shape == 0 else scale * (power**-shape - 1) / shape
    scores = np.concatenate([np.linspace(-0.9, -0.1, 2700), excess[excess <= 1]])
    tail = fit_tail(scores)
    kept = scores[scores > tail.start] - tail.start
    assert tail.share == len(kept) / len(scores)
    best = slow_log_likelihood(kept, tail.shape, tail.scale)
    for other_shape in np.linspace(-0.9, 0.9, 37):
        for factor in np.linspace(0.5, 2, 31):
            other = tail.scale * factor
            if other_shape < 0 and tail.start - other / other_shape <= 1:
                continue
            assert slow_log_likelihood(kept, float(other_shape), float(other)) <= best + 1e-4


def exponential_tail(score: float) -> float:
    return math.exp(-(score + 0.5) / 0.05)


def beta_tail(score: float) -> float:
    """Of 2 X - 1 with X of Beta(3, 9): fewer than 3 successes of 11."""
    up, down = (1 + score) / 2, (1 - score) / 2
    return sum(math.comb(11, k) * up**k * down ** (11 - k) for k in range(3))


def normal_tail(score: float) -> float:
    return math.erfc((score - 0.1) / 0.1 / math.sqrt(2)) / 2


@pytest.mark.parametrize(
    ("draw", "truth"),
    [
        (lambda random: random.exponential(0.05, 20_000) - 0.5, exponential_tail),
        (lambda random: 2 * random.beta(3, 9, 20_000) - 1, beta_tail),
        (lambda random: random.normal(0.1, 0.1, 20_000), normal_tail),
    ],
    ids=["exponential", "beta", "normal"],
)
def test_tails_of_known_distributions_are_told_from_fewer_scores(
    draw: Callable[[np.random.Generator], Floats], truth: Callable[[float], float]
) -> None:
    """One in 100,000 from 20,000 scores: within a factor of 5; on average not 1.5 times too many,
    and at most 2.5 times too few, for a tail that must reach 1 is too heavy for scores that end long before."""
    wrong = []
    for seed in range(8):
        negative = np.clip(draw(np.random.default_rng(seed)), -1, 1)
        calibration = fit_calibration(drawn(0)[0], negative)
        for rate in (100, 10):
            found = truth(calibration.threshold(false_per_million=rate)) * 1e6 / rate
            assert 1 / 5 < found < 5
            wrong.append(math.log(found))
    assert -math.log(2.5) < np.mean(wrong) < math.log(1.5)


def test_scores_that_are_all_alike_have_no_tail() -> None:
    with pytest.raises(DataError, match="different values"):
        fit_tail([0.5] * 400)
    with pytest.raises(DataError, match="different values"):
        fit_tail([0.1, 0.2] * 400)


@pytest.mark.parametrize(
    "fields", [{"share": 0.0}, {"scale": 0.0}, {"scale": math.nan}, {"start": 1.0}, {"shape": -1.0}, {"share": "x"}]
)
def test_a_tail_that_cannot_be_is_refused(fields: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        Tail(**{"start": 0.5, "share": 0.01, "shape": -0.1, "scale": 0.1, **fields})


# --- false matches -----------------------------------------------------------------------------------------------


def test_the_counted_part_is_the_share_of_the_negatives(calibration: Calibration) -> None:
    """A slow loop: at the scores themselves exactly where a knot is, else between those of the neighbours."""
    negative = drawn(0)[1]
    for score in calibration.scores[:-1]:
        count = sum(1 for other in negative if other >= score)
        assert calibration.false_per_million(float(score)) == pytest.approx(1e6 * count / len(negative))
    for score in np.linspace(-0.3, calibration.tail.start, 60):
        share = sum(1 for other in negative if other >= score) / len(negative)
        assert calibration.false_per_million(score) / 1e6 == pytest.approx(share, rel=0.02, abs=0.004)


def test_the_tail_begins_with_what_was_counted_and_ends_beyond_it(calibration: Calibration) -> None:
    tail = calibration.tail
    assert (drawn(0)[1] > tail.start).sum() == round(tail.share * 3000) == 300
    before, after = (calibration.false_per_million(tail.start + step) for step in (-1e-9, 1e-9))
    assert before == pytest.approx(after, rel=1e-5)
    assert calibration.false_per_million(1.0) == pytest.approx(1e6 / 3000 / 100)  # a hundredth of a pair
    assert calibration.threshold(false_per_million=1.0) == math.inf
    assert calibration.false_per_million(-1.0) == 1e6


@settings(max_examples=60, deadline=None)
@given(SCORES, SCORES)
def test_false_matches_fall_and_are_never_none(one: float, other: float) -> None:
    low, high = sorted((one, other))
    calibration = CALIBRATIONS[0]
    assert 1e6 >= calibration.false_per_million(low) >= calibration.false_per_million(high) > 0


@settings(max_examples=60, deadline=None)
@given(st.floats(1e-3, 1e6))
def test_a_threshold_is_the_lowest_score_that_does(rate: float) -> None:
    calibration = CALIBRATIONS[0]
    found = calibration.threshold(false_per_million=rate)
    if found == math.inf:
        assert calibration.false_per_million(1) > rate
        return
    assert calibration.false_per_million(found) <= rate
    lower = np.nextafter(found, -2)
    assert lower < -1 or calibration.false_per_million(float(lower)) > rate


# --- probability -------------------------------------------------------------------------------------------------


def slow_loss(line: tuple[float, float], positive: list[float], negative: list[float]) -> float:
    """Cross-entropy with Platt's targets; both kinds weigh one half."""
    total = 0.0
    for values, target in ((positive, (len(positive) + 1) / (len(positive) + 2)), (negative, 1 / (len(negative) + 2))):
        for value in values:
            found = 1 / (1 + math.exp(-(line[0] * value + line[1])))
            total -= (target * math.log(found) + (1 - target) * math.log(1 - found)) / 2 / len(values)
    return total


def test_a_line_by_hand() -> None:
    # One positive at 2, two negatives at 0: targets 2/3 and 1/4, which two numbers meet exactly.
    slope, intercept = fit_line(np.array([2.0]), np.array([0.0, 0.0]))
    assert intercept == pytest.approx(math.log(1 / 3))
    assert 2 * slope + intercept == pytest.approx(math.log(2))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 15), min_size=1, max_size=8), st.lists(st.floats(0, 15), min_size=2, max_size=8))
def test_no_line_near_by_is_better(positive: list[float], negative: list[float]) -> None:
    slope, intercept = fit_line(np.array(positive), np.array(negative))
    best = slow_loss((slope, intercept), positive, negative)
    assert slope >= 0
    for width in (1.0, 0.1, 0.01):
        for a, b in ((1, 0), (-1, 0), (0, 1), (0, -1), (1, -1), (-1, 1), (1, 1), (-1, -1)):
            other = (slope + width * a, intercept + width * b)
            assert other[0] < 0 or slow_loss(other, positive, negative) >= best - 1e-9


def test_matches_that_score_lower_say_nothing() -> None:
    draw = np.random.default_rng(0)
    calibration = fit_calibration(draw.uniform(-0.9, -0.5, 50), draw.uniform(0, 0.5, 500))
    assert calibration.slope == 0
    assert (
        calibration.probability(1, prior=0.2) == calibration.probability(-1, prior=0.2) == pytest.approx(0.2, abs=0.01)
    )


def by_hand(negatives: int = 506) -> Calibration:
    """Evidence of the fit is 2 times the surprise, less 3; at a share of e^-2 that is 1. It ends at log 2N."""
    tail = Tail(0.5, math.exp(-2), 0.0, 0.01)
    return Calibration(np.array([0.0, 0.5]), np.array([0.0, -2.0]), tail, 2.0, -3.0, 5, negatives)


def test_a_probability_by_hand() -> None:
    """506 pairs are of 23 videos: a share of 3/23 of what does not match may score as copies do."""
    calibration = by_hand()
    assert calibration.videos == 23
    assert calibration.unseen_share == pytest.approx(3 / 23)
    for score, odds in (
        (0.5, math.exp(1)),
        (0.25, math.exp(-1)),  # half way: 2 * 1 - 3
        (0.505, math.exp(2)),  # the tail: 2 * 2.5 - 3
        (1, 1012),  # 2N: 506 pairs show no more
        (-1, 1 / 10),  # not e^-3: 5 positives show no more
    ):
        against = 20 / 23 / odds + 3 / 23
        assert calibration.probability(score) == pytest.approx(1 / (1 + against))
        assert calibration.probability(score, prior=0.01) == pytest.approx(1 / (1 + 99 * against))
    assert calibration.probability(1) == pytest.approx(23 / 26, abs=1e-3)  # 23 to 3, nearly


def slow_videos(pairs: int) -> int:
    """The fewest videos that have that many ordered pairs, by counting."""
    videos: list[int] = []
    while len(videos) < 2 or sum(1 for one in videos for other in videos if one != other) < pairs:
        videos.append(len(videos))
    return len(videos)


@pytest.mark.parametrize("negatives", [1, 2, 3, 6, 7, 200, 306, 307, 420])
def test_the_cap_is_that_of_a_slow_loop(negatives: int) -> None:
    calibration = by_hand(negatives)
    videos = slow_videos(negatives)
    assert calibration.videos == videos
    unseen = min(1.0, 3 / videos)
    for score in np.linspace(-1, 1, 21):
        surprise = -float(calibration.log_share([score])[0])
        odds = min(max(math.exp(2 * surprise - 3), 1 / 10), 2 * negatives)
        expected = 1 / ((1 - unseen) / odds + unseen)
        assert math.exp(float(calibration.log_odds([score])[0])) == pytest.approx(expected)


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 10**7), SCORES, SCORES, st.floats(0.001, 0.999))
def test_no_score_claims_more_than_the_videos_of_the_fit_can_show(
    negatives: int, one: float, other: float, prior: float
) -> None:
    calibration = by_hand(negatives)
    low, high = (calibration.probability(score, prior=prior) for score in sorted((one, other)))
    most = calibration.videos / 3 * prior / (1 - prior)
    assert low <= high <= max(prior, most / (1 + most)) + 1e-12
    # More videos never take back what a score says for a match.
    assert by_hand(2 * negatives).probability(1.0, prior=prior) >= calibration.probability(1.0, prior=prior) - 1e-12


def test_the_shipped_models_claim_no_certainty() -> None:
    for name in ("lite", "r50"):
        calibration = Calibration.from_part(load_part(SHIPPED / name, "calibration"))
        odds = calibration.videos / 3
        assert 0.95 < calibration.probability(1.0) < odds / (1 + odds) < 0.99
        assert calibration.min_false_per_million == pytest.approx(3e6 / calibration.negatives)


def test_drawn_pairs_get_the_probability_they_have() -> None:
    """Where both densities are known: the mean distance of fitted and true probability over what is seen."""
    calibration = fit_calibration(*drawn(3, positives=3000, negatives=30_000))
    scores = np.linspace(-0.1, 0.9, 101)
    true = [
        1 / (1 + (0.2 / 0.12) * math.exp(-(((s - 0.1) / 0.12) ** 2) / 2 + ((s - 0.6) / 0.2) ** 2 / 2)) for s in scores
    ]
    found = [calibration.probability(float(s)) for s in scores]
    assert np.abs(np.subtract(found, true)).mean() < 0.03


def spread(seed: int) -> Calibration:
    """Coarsely rounded scores, so that many are equal and the classes lie in a mess."""
    positive, negative = drawn(seed, positives=40, negatives=400)
    return fit_calibration(positive.round(1), negative.round(2 if seed else 3))


CALIBRATIONS = [spread(seed) for seed in range(4)]


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(CALIBRATIONS), SCORES, SCORES, st.floats(1e-300, 1, exclude_max=True))
def test_probability_never_falls_and_is_never_certain(
    calibration: Calibration, one: float, other: float, prior: float
) -> None:
    low, high = sorted((one, other))
    assert 0 < calibration.probability(low, prior=prior) <= calibration.probability(high, prior=prior) < 1
    assert calibration.probability(low, prior=prior / 2) <= calibration.probability(low, prior=prior)


def test_odds_multiply_with_those_of_the_prior(calibration: Calibration) -> None:
    for score in (-1.0, 0.2, 0.35, 0.6):
        even, rare = (calibration.probability(score, prior=prior) for prior in (0.5, 0.001))
        assert rare / (1 - rare) == pytest.approx(even / (1 - even) / 999)
    assert dataclasses.replace(calibration, prior=0.001).probability(0.6) == rare


def test_the_order_of_the_pairs_does_not_matter_and_doubling_them_changes_little() -> None:
    positive, negative = drawn(5)
    once = fit_calibration(positive, negative)
    turned = fit_calibration(torch.from_numpy(positive).flip(0), negative[::-1])
    assert all(np.array_equal(getattr(once, name), getattr(turned, name)) for name in ("scores", "log_shares"))
    assert (once.slope, once.intercept) == pytest.approx((turned.slope, turned.intercept))
    twice = fit_calibration(np.tile(positive, 2), np.tile(negative, 2), tail=600)
    assert twice.tail.shape == pytest.approx(once.tail.shape, abs=1e-6)
    for score in np.linspace(-1, 1, 41):
        assert twice.probability(score) == pytest.approx(once.probability(score), abs=0.05)
        assert twice.false_per_million(score) == pytest.approx(once.false_per_million(score), rel=0.01, abs=2)


def test_one_more_score_that_is_there_already_does_no_harm() -> None:
    positive, negative = drawn(6)
    before = fit_calibration(positive, negative)
    after = fit_calibration(np.append(positive, positive[3]), np.append(negative, negative.max()))
    assert after.probability(0.5) == pytest.approx(before.probability(0.5), abs=0.05)
    assert after.false_per_million(0.5) == pytest.approx(before.false_per_million(0.5), rel=0.5)


# --- what is refused, and files ----------------------------------------------------------------------------------


def test_bad_scores_are_refused() -> None:
    positive, negative = drawn(7)
    with pytest.raises(DataError, match="at least 20 positive"):
        fit_calibration(positive[:19], negative)
    with pytest.raises(DataError, match="at least 200 negative"):
        fit_calibration(positive, negative[:199])
    with pytest.raises(DataError, match=r"\[-1, 1\]; 1 of"):
        fit_calibration(np.append(positive, 1.5), negative)
    with pytest.raises(DataError, match="nan"):
        fit_calibration(positive, np.append(negative, math.nan))
    with pytest.raises(ShapeError, match=r"numbers \[n\]"):
        fit_calibration(positive[:, None], negative)
    with pytest.raises(ShapeError):
        fit_calibration(["a"] * 30, negative)


def test_bad_questions_are_refused(calibration: Calibration) -> None:
    for score in (math.nan, math.inf, -1.2):
        with pytest.raises(DataError):
            calibration.probability(score)
        with pytest.raises(DataError):
            calibration.false_per_million(score)
    for prior in (0, 1, -0.1, math.nan, "half"):
        with pytest.raises(ConfigError, match="prior"):
            calibration.probability(0.5, prior=prior)  # type: ignore[arg-type]
    for rate in (0, -1, 2e6, math.nan, "few"):
        with pytest.raises(ConfigError, match="false_per_million"):
            calibration.threshold(false_per_million=rate)  # type: ignore[arg-type]


def test_a_calibration_survives_a_part(calibration: Calibration) -> None:
    again = Calibration.from_part(calibration.to_part())
    for score in np.linspace(-1, 1, 101):
        assert again.probability(score) == calibration.probability(score)
        assert again.false_per_million(score) == calibration.false_per_million(score)
    assert (again.positives, again.negatives, again.prior) == (150, 3000, 0.5)


def test_a_part_that_is_none_is_refused(calibration: Calibration) -> None:
    part = calibration.to_part()
    tensors = dict(part.tensors)
    bad = [
        Part({}, tensors),
        Part(part.config, {}),
        Part({**part.config, **tensors}, {}),
        Part({**part.config, "bend": 1}, tensors),
        Part({**part.config, "tail": 3}, tensors),
        Part({**part.config, "tail": {"start": 0.5}}, tensors),
        Part({**part.config, "prior": 2}, tensors),
        Part({**part.config, "slope": -1}, tensors),
        Part({**part.config, "intercept": "high"}, tensors),
        Part({**part.config, "negatives": 0.5}, tensors),
        Part(part.config, {**tensors, "scores": -tensors["scores"]}),
        Part(part.config, {**tensors, "scores": tensors["scores"][1:]}),
        Part(part.config, {**tensors, "scores": tensors["scores"] * math.nan}),
        Part(part.config, {**tensors, "log_shares": tensors["log_shares"] + 1}),
        Part(part.config, {**tensors, "log_shares": tensors["log_shares"] - 1}),
    ]
    for one in bad:
        with pytest.raises(WeightsError, match="Fit it again"):
            Calibration.from_part(one)


def test_what_is_frozen_is_a_copy(calibration: Calibration) -> None:
    mine = calibration.log_shares.copy()
    made = dataclasses.replace(calibration, log_shares=mine)
    mine[:] = 0
    assert np.array_equal(made.log_shares, calibration.log_shares)
    with pytest.raises(ValueError, match="read-only"):
        made.log_shares[0] = 0
