from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace

import numpy as np
import pytest

from hapvr.evaluation import Benchmark, Origin, Task, TrueSegment
from hapvr.evaluation.intervals import bound_count
from hapvr.evaluation.verdict_figures import NEGATIVES, PairVerdict, Rate, Truth
from hapvr.evaluation.verdict_metrics import (
    EDGES,
    count_copies,
    find_truth,
    measure_false,
    measure_promises,
    measure_ranking,
    measure_reliability,
    measure_stretches,
    measure_verdicts,
)

DATABASE = ("a", "a2", "b", "c", "d", "e")


def benchmark() -> Benchmark:
    """Query q is of a, r of b, s shows another part of a; d and q have a card; c is of a's source."""
    origins = {
        "q": Origin(("a",), ("tv",)), "r": Origin(("b",)), "s": Origin(("a",), ("tv",)), "a": Origin(("a",), ("tv",)),
        "a2": Origin(("a",), ("tv",)), "b": Origin(("b",)), "c": Origin(("c",), ("tv",)), "d": Origin(("d",), ("tv",)),
    }  # fmt: skip
    return Benchmark(
        "mine",
        ("q", "r", "s"),
        DATABASE,
        {"q": {"a": "positive"}, "r": {"b": "positive"}, "s": {"a": "positive"}},
        (Task("mAP", ("positive",)),),
        groups={"q": "crop", "r": "flip", "s": "same-event"},
        segments={"q": (TrueSegment(0, 10, "a", 20, 30),), "r": (TrueSegment(0, 4, "b", 0, 4),)},
        origins=origins,
        shared={"card": {"q": (0.0, 2.0), "d": (5.0, 7.0)}},
    )


def pair(query: str, target: str, truth: Truth, verdict: str = "no match", **fields: object) -> PairVerdict:
    return PairVerdict(query, target, truth, verdict, **fields)  # type: ignore[arg-type]


# --- what is true ----------------------------------------------------------------------------------------------------


def test_a_pair_is_what_positives_cards_and_origins_say() -> None:
    known = benchmark()
    truths = [find_truth(known, "q", target) for target in DATABASE]
    assert truths == ["copy", "same video", "unrelated", "same source", "shared footage", "unrelated"]
    # A query of the same event shares no frame with its positive; d has no card of it.
    truths = [find_truth(known, "s", target) for target in DATABASE]
    assert truths == ["same video", "same video", "unrelated", "same source", "same source", "unrelated"]


def test_a_target_in_a_group_of_a_positive_shares_footage() -> None:
    groups = {"a": frozenset({0, 1}), "c": frozenset({1}), "b": frozenset({2}), "e": frozenset({3})}
    truths = [find_truth(benchmark(), "q", target, groups=groups) for target in DATABASE]
    assert truths == ["copy", "same video", "unrelated", "shared footage", "shared footage", "unrelated"]
    # Another part of a film may be in another version of it; with its own positive it shares nothing.
    assert find_truth(benchmark(), "s", "c", groups=groups) == "shared footage"
    assert find_truth(benchmark(), "s", "a", groups=groups) == "same video"


# --- counts ----------------------------------------------------------------------------------------------------------


def test_copies_and_false_verdicts_are_counted() -> None:
    pairs = [
        pair("q", "a", "copy", "copy"),
        pair("r", "b", "copy", "same scene"),
        pair("q", "c", "same source", "copy"),
        pair("q", "b", "unrelated", "same scene"),
        pair("q", "d", "shared footage", "copy"),
    ]
    found = count_copies(pairs)
    assert (found.copies, found.found, found.false) == (2, 1, 1)
    assert (found.precision, found.recall) == (0.5, 0.5)
    none = count_copies([])
    assert math.isnan(none.precision)
    assert math.isnan(none.recall)
    assert none.to_json() == {"copies": 0, "found": 0, "false": 0, "precision": None, "recall": None}


def test_false_verdicts_are_of_all_pairs_compared_or_not() -> None:
    pairs = [
        pair("q", "c", "same source", "copy"),
        pair("s", "c", "same source", "copy"),  # the same two videos
        pair("q", "b", "unrelated", "no match", near=False, drawn=True),
        pair("r", "a", "unrelated", "copy", drawn=True),
        pair("q", "d", "shared footage", "copy"),
    ]
    rates = measure_false(pairs, benchmark(), {"same source": 8, "unrelated": 1000, "same video": 0})
    assert list(rates) == ["same source", "unrelated"]
    assert (rates["same source"].rate, rates["same source"].compared, rates["same source"].videos) == (Rate(2, 8), 2, 1)
    assert rates["unrelated"].rate.per_million == 1000
    assert rates["unrelated"].drawn == Rate(1, 2)


def test_the_bound_is_the_rule_of_three_where_none_was_counted() -> None:
    assert bound_count(0) == pytest.approx(math.log(20))
    assert Rate(0, 1_000_000).upper_per_million == pytest.approx(2.9957, abs=1e-4)
    assert Rate(0, 2).upper_per_million == 1_000_000  # a rate is no more than all
    assert math.isnan(Rate(0, 0).upper_per_million)


@pytest.mark.parametrize("count", [1, 2, 7, 40, 300])
def test_the_bound_is_the_mean_at_which_a_count_or_less_has_five_percent(count: int) -> None:
    """By a slow sum of the Poisson distribution, term by term."""
    mean = bound_count(count)
    term = total = math.exp(-mean)
    for number in range(1, count + 1):
        term *= mean / number
        total += term
    assert total == pytest.approx(0.05, rel=1e-6)


def test_the_bound_of_many_is_about_normal() -> None:
    assert bound_count(40_000) == pytest.approx(40_000 + 1.645 * 200, rel=1e-4)


def test_promises_are_compared_with_counts() -> None:
    pairs = [
        pair("q", "a", "copy", "copy", false_per_million=0.5),
        pair("r", "b", "copy", "copy", false_per_million=50.0),
        pair("q", "b", "unrelated", "no match", false_per_million=50.0),
        pair("q", "d", "shared footage", "copy", false_per_million=0.5),
        pair("q", "e", "unrelated", "no match", false_per_million=5000.0),
    ]
    found = {one.promised: one for one in measure_promises(pairs, {"unrelated": 10_000})}
    assert [(rate, one.copies.count, one.measured["unrelated"].count) for rate, one in found.items()] == [
        (1, 1, 0), (10, 1, 0), (100, 2, 1), (1000, 2, 1),
    ]  # fmt: skip
    assert found[100].measured["unrelated"].per_million == 100
    assert measure_promises([replace(one, false_per_million=None) for one in pairs], {}) == []


# --- stretches -------------------------------------------------------------------------------------------------------


def test_ranking_by_hand_and_by_a_slow_loop() -> None:
    rows: list[tuple[Truth, float, float]] = [
        ("copy", 0.9, 0.2), ("same video", 0.9, 0.4), ("copy", 0.5, 0.9), ("unrelated", 0.1, 0.8),
        ("shared footage", 0.99, 0.99),
    ]  # fmt: skip
    pairs = [pair("q", str(place), truth, probability=p, score=s) for place, (truth, p, s) in enumerate(rows)]
    found = measure_ranking(pairs)
    assert found is not None
    # By score: .9(+) .8(-) .4(-) .2(+). By probability, equal ones by score: .9/.4(-) .9/.2(+) .5(+) .1(-).
    assert found.by_score == pytest.approx((1 + 2 / 4) / 2)
    assert found.by_probability == pytest.approx((1 / 2 + 2 / 3) / 2)
    rng = np.random.default_rng(0)
    drawn = [
        pair(
            "q", str(place), "copy" if rng.random() < 0.3 else "unrelated", probability=rng.random(), score=rng.random()
        )
        for place in range(60)
    ]
    order = sorted(drawn, key=lambda one: -(one.probability or 0.0))
    hits, total = 0, 0.0
    for place, one in enumerate(order, start=1):
        if one.truth == "copy":
            hits += 1
            total += hits / place
    found = measure_ranking(drawn)
    assert found is not None
    assert found.by_probability == pytest.approx(total / hits)
    assert measure_ranking(drawn[::-1]) == found  # the order of pairs changes nothing, and neither does footage shared
    assert measure_ranking([*drawn, pair("r", "s", "shared footage", probability=1.0, score=1.0)]) == found
    assert measure_ranking([one for one in drawn if one.truth != "copy"]) is None
    assert measure_ranking([pair("q", "a", "copy", score=0.5)]) is None  # a model without probabilities


def test_stretches_are_measured_on_copies_and_counted_on_strangers() -> None:
    pairs = [
        pair("q", "a", "copy", "copy", segments=(((2.0, 12.0), (22.0, 32.0)),)),
        pair("q", "c", "same source", "copy", segments=(((0.0, 5.0), (0.0, 5.0)),)),
        pair("q", "b", "unrelated"),
        pair("q", "d", "shared footage", "copy", segments=(((0.0, 2.0), (5.0, 7.0)),)),
    ]
    figures = measure_stretches(pairs, benchmark())
    assert figures.precision == pytest.approx(0.64)
    assert figures.recall == pytest.approx(0.64)
    assert figures.boundary_error_s == 2
    assert (figures.pairs, figures.false_pairs, figures.negative_pairs) == (1, 1, 2)


def test_a_copy_without_a_true_stretch_is_left_out() -> None:
    known = replace(benchmark(), segments={})
    figures = measure_stretches([pair("q", "a", "copy", "copy", segments=(((0.0, 5.0), (0.0, 5.0)),))], known)
    assert (figures.pairs, figures.negative_pairs, figures.false_pairs) == (0, 0, 0)


# --- reliability -----------------------------------------------------------------------------------------------------


def test_shares_of_copies_are_weighed_to_the_prior() -> None:
    # 2 copies and 4 strangers stand for a population with 2% of copies: a stranger weighs 24.5 times as much.
    said = [0.9, 0.9, 0.9, 0.1, 0.1, 0.1]
    low, high = measure_reliability(said, [1, 1, 0, 0, 0, 0], prior=0.02, edges=(0, 0.5, 1))
    assert (low.copies, low.strangers, low.observed) == (0, 3, 0.0)
    assert (high.copies, high.strangers) == (2, 1)
    assert high.observed == pytest.approx((0.02 / 2 * 2) / (0.02 / 2 * 2 + 0.98 / 4 * 1))
    assert high.observed_low < high.observed < high.observed_high


def test_the_interval_of_an_even_share_is_wilsons() -> None:
    (one,) = measure_reliability([0.5] * 10, [1] * 5 + [0] * 5, prior=0.5, edges=(0, 1))
    assert one.observed_low == pytest.approx(0.2366, abs=1e-4)
    assert one.observed_high == pytest.approx(0.7634, abs=1e-4)


def test_bins_agree_with_a_slow_loop() -> None:
    random = np.random.default_rng(0)
    said = random.choice([0.0, 0.001, 0.05, 0.5, 0.65, 0.97, 0.9995, 1.0], 200)
    true = random.random(200) < said
    bins = measure_reliability(said, true, prior=0.1)
    weight = {True: 0.1 / true.sum(), False: 0.9 / (~true).sum()}
    for one, (low, high) in zip(bins, itertools.pairwise(EDGES), strict=True):
        inside = [n for n in range(200) if low <= said[n] < high or (high == 1 and said[n] == 1)]
        assert one.copies + one.strangers == len(inside)
        if inside:
            whole = sum(weight[bool(true[n])] for n in inside)
            assert one.observed == pytest.approx(sum(weight[True] for n in inside if true[n]) / whole)
            assert one.predicted == pytest.approx(sum(weight[bool(true[n])] * said[n] for n in inside) / whole)
        else:
            assert math.isnan(one.predicted)
            assert math.isnan(one.observed)
    assert sum(one.copies + one.strangers for one in bins) == 200


def test_probabilities_that_are_drawn_by_their_own_law_are_reliable() -> None:
    random = np.random.default_rng(1)
    said = random.random(20_000)
    true = random.random(20_000) < said
    for one in measure_reliability(said, true, prior=float(true.mean()), edges=np.linspace(0, 1, 11).tolist()):
        assert one.observed == pytest.approx(one.predicted, abs=0.04)
        assert one.observed_low < one.observed < one.observed_high


# --- all of it -------------------------------------------------------------------------------------------------------


def draw_pairs(seed: int) -> list[PairVerdict]:
    draw = random.Random(seed)
    known, pairs = benchmark(), []
    for query, target in itertools.product(known.queries, DATABASE):
        verdict = draw.choice(["copy", "same scene", "no match"])
        part = ((0.0, 1.0 + draw.random()), (20.0, 21.0 + draw.random()))
        pairs.append(
            pair(
                query, target, find_truth(known, query, target), verdict, probability=draw.random(),
                false_per_million=10 ** draw.uniform(-1, 5), second_look=draw.random() < 0.5,
                segments=(part,) if verdict == "copy" else (), near=draw.random() < 0.8, drawn=draw.random() < 0.3,
            )
        )  # fmt: skip
    return pairs


POPULATION: dict[Truth, int] = {"copy": 2, "shared footage": 1, "same video": 30, "same source": 40, "unrelated": 500}


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_pairs_changes_nothing(seed: int) -> None:
    pairs = draw_pairs(seed)
    first = measure_verdicts(pairs, benchmark(), population=POPULATION, prior=0.02).to_json()
    shuffled = random.Random(seed).sample(pairs, len(pairs))
    again = measure_verdicts(shuffled, benchmark(), population=POPULATION, prior=0.02).to_json()
    for one, other in zip(first.pop("reliability"), again.pop("reliability"), strict=True):
        assert one == pytest.approx(other, nan_ok=True)
    assert first == again


@pytest.mark.parametrize("seed", range(5))
def test_a_pair_that_shares_footage_never_counts_as_false(seed: int) -> None:
    pairs = draw_pairs(seed)
    called = [
        replace(one, verdict="copy", false_per_million=0.1) if one.truth in ("copy", "shared footage") else one
        for one in pairs
    ]
    before, after = (measure_verdicts(own, benchmark(), population=POPULATION, prior=0.02) for own in (pairs, called))
    assert after.false == before.false
    assert after.overall.false == before.overall.false
    assert [one.measured for one in after.promises] == [one.measured for one in before.promises]
    assert sum(one.rate.count for one in after.false.values()) == after.overall.false
    assert after.segments[""].false_pairs == before.segments[""].false_pairs


def test_figures_by_kind_add_up_to_all() -> None:
    figures = measure_verdicts(draw_pairs(0), benchmark(), population=POPULATION, prior=0.02)
    assert list(figures.by_kind) == ["crop", "flip", "same-event"]
    for name in ("copies", "found", "false"):
        assert sum(getattr(one, name) for one in figures.by_kind.values()) == getattr(figures.overall, name)
    assert figures.by_kind["same-event"].copies == 0  # it shares no frame
    assert figures.compared == sum(sum(counts.values()) for counts in figures.verdicts.values()) == 18


def test_a_model_without_probabilities_has_no_reliability_and_no_promises() -> None:
    pairs = [replace(one, probability=None, false_per_million=None) for one in draw_pairs(0)]
    figures = measure_verdicts(pairs, benchmark(), population=POPULATION)
    assert (figures.reliability, figures.promises) == ((), ())
    assert set(figures.false) == set(NEGATIVES)
