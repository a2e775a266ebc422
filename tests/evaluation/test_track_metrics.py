from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hapvr.errors import DataError
from hapvr.evaluation.pair_records import Box, Candidate, PairOfVideos, SegmentMatch
from hapvr.evaluation.track_metrics import (
    keep_best_scores,
    measure_vcsl,
    pair_average_precision,
    segment_average_precision,
)

TICKS = 8
PAIRS: list[PairOfVideos] = [("q", "r"), ("q", "s"), ("t", "r")]


def box(a: float, b: float, c: float, d: float) -> Box:
    return (a, b), (c, d)


def intervals() -> st.SearchStrategy[tuple[float, float]]:
    return st.tuples(st.integers(0, TICKS - 1), st.integers(1, 4)).map(
        lambda pair: (float(pair[0]), float(min(TICKS, sum(pair))))
    )


boxes = st.tuples(intervals(), intervals())
segments = st.builds(
    lambda pair, box, score: SegmentMatch(pair[0], pair[1], box, score / 2),
    st.sampled_from(PAIRS),
    boxes,
    st.integers(0, 4),
)
truths = st.dictionaries(st.sampled_from(PAIRS), st.lists(boxes, min_size=1, max_size=3), min_size=1)


# --- VSC2022's descriptor track ------------------------------------------------------------------------------------


def slow_pair_precision(true: set[PairOfVideos], candidates: Sequence[Candidate]) -> float:
    """For each threshold, from the highest: precision times the new share of true pairs, in fractions."""
    total, before = Fraction(0), Fraction(0)
    for threshold in sorted({candidate.score for candidate in candidates}, reverse=True):
        above = [candidate for candidate in candidates if candidate.score >= threshold]
        right = [candidate for candidate in above if (candidate.query, candidate.target) in true]
        recall = Fraction(len(right), len(true))
        total += Fraction(len(right), len(above)) * (recall - before)
        before = recall
    return float(total)


def test_pairs_by_hand() -> None:
    true = {("Q1", "R1"), ("Q2", "R2")}
    best = [Candidate("Q1", "R1", 8.0), Candidate("Q2", "R2", 4.0), Candidate("Q9", "R9", 2.0)]
    assert pair_average_precision(true, best) == 1.0
    # The second true pair was never predicted: half of the figure is lost.
    assert pair_average_precision(true, best[:1]) == 0.5
    # Three equal scores are one threshold: precision 2/3 for both.
    equal = [candidate._replace(score=1.0) for candidate in best]
    assert pair_average_precision(true, equal) == pytest.approx(2 / 3)
    assert pair_average_precision(true, []) == 0.0
    assert pair_average_precision(true, best[2:]) == 0.0


@given(st.sets(st.sampled_from([(q, r) for q in "abc" for r in "xyz"]), min_size=1),
       st.dictionaries(st.sampled_from([(q, r) for q in "abcd" for r in "wxyz"]), st.integers(0, 5)))  # fmt: skip
def test_pairs_agree_with_the_loop(true: set[PairOfVideos], scores: dict[PairOfVideos, int]) -> None:
    candidates = [Candidate(*pair, score / 3) for pair, score in scores.items()]
    assert pair_average_precision(true, candidates) == pytest.approx(slow_pair_precision(true, candidates))


def test_scores_that_only_float64_tells_apart_are_not_equal() -> None:
    found = [Candidate("q", "r", 1.0 + 1e-12), Candidate("q", "s", 1.0)]
    assert pair_average_precision({("q", "r")}, found) == 1.0


def test_bad_pairs_are_refused() -> None:
    with pytest.raises(DataError, match="predicted twice"):
        pair_average_precision({("q", "r")}, [Candidate("q", "r", 1.0), Candidate("q", "r", 2.0)])
    with pytest.raises(DataError, match="finite number"):
        pair_average_precision({("q", "r")}, [Candidate("q", "r", math.nan)])
    with pytest.raises(DataError, match="no pair is true"):
        pair_average_precision(set(), [])


# --- VSC2022's matching track --------------------------------------------------------------------------------------


def paint(boxes: Sequence[Box], axis: int) -> set[int]:
    return {tick for box in boxes for tick in range(TICKS) if box[axis][0] <= tick < box[axis][1]}


def slow_segment_precision(true: dict[PairOfVideos, list[Box]], matches: Sequence[SegmentMatch]) -> float:
    """For each threshold everything is painted on ticks again: nothing is carried over."""
    wanted = [sum(len(paint(own, axis)) for own in true.values()) for axis in (0, 1)]
    figure = before = 0.0
    for threshold in sorted({match.score for match in matches}, reverse=True):
        right, said = [0, 0], [0, 0]
        for pair in {(match.query, match.target) for match in matches}:
            mine = [one.box for one in matches if (one.query, one.target) == pair and one.score >= threshold]
            met = [
                one
                for one in true.get(pair, [])
                if any(paint([one], 0) & paint([other], 0) and paint([one], 1) & paint([other], 1) for other in mine)
            ]
            for axis in (0, 1):
                said[axis] += len(paint(mine, axis))
                right[axis] += len(paint(mine, axis) & paint(met, axis))
        recall = math.sqrt(right[0] / wanted[0] * right[1] / wanted[1])
        figure += math.sqrt(right[0] / said[0] * right[1] / said[1]) * (recall - before)
        before = recall
    return figure


def test_segments_by_hand() -> None:
    true = {("q", "r"): [box(4, 14, 10, 18)]}
    whole = SegmentMatch("q", "r", box(4, 14, 10, 18), 1.0)
    assert segment_average_precision(true, [whole]) == pytest.approx(1)
    # Split in two: still all of it.
    halves = [SegmentMatch("q", "r", box(4, 8, 10, 14), 1.0), SegmentMatch("q", "r", box(8, 14, 14, 18), 2.0)]
    assert segment_average_precision(true, halves) == pytest.approx(1)
    # Two false pairs of the same size come before: 10 of 30 query seconds and 8 of 24 target seconds are right.
    false = [SegmentMatch("x", "r", whole.box, 3.0), SegmentMatch("q", "y", whole.box, 2.0)]
    assert segment_average_precision(true, [*false, whole]) == pytest.approx(1 / 3)
    # The first covers too much: precision 10/30 and 8/20 at once, and nothing is left for the exact one.
    wide = SegmentMatch("q", "r", box(0, 30, 5, 25), 3.0)
    assert segment_average_precision(true, [wide, whole]) == pytest.approx(math.sqrt(10 / 30 * 8 / 20))


def test_segments_on_the_wrong_diagonal_are_worth_nothing() -> None:
    """Both axes are covered, but no predicted area meets a true one."""
    true = {("q", "r"): [box(4, 14, 10, 18), box(20, 28, 21, 29)]}
    crossed = [SegmentMatch("q", "r", box(4, 14, 21, 29), 1.0), SegmentMatch("q", "r", box(20, 28, 10, 18), 1.0)]
    assert segment_average_precision(true, crossed) == 0.0


@given(truths, st.lists(segments, max_size=8))
def test_segments_agree_with_painting_ticks(true: dict[PairOfVideos, list[Box]], matches: list[SegmentMatch]) -> None:
    assert segment_average_precision(true, matches) == pytest.approx(slow_segment_precision(true, matches), abs=1e-12)


@given(truths, st.lists(segments, max_size=6))
def test_laws_of_segments(true: dict[PairOfVideos, list[Box]], matches: list[SegmentMatch]) -> None:
    figure = segment_average_precision(true, matches)
    assert -1e-12 <= figure <= 1 + 1e-12
    # Swapping query and target, shifting time, or a rising change of scores does not change it.
    turned = {(r, q): [(b, a) for a, b in own] for (q, r), own in true.items()}
    swapped = [SegmentMatch(one.target, one.query, (one.box[1], one.box[0]), one.score) for one in matches]
    assert segment_average_precision(turned, swapped) == pytest.approx(figure, abs=1e-12)
    louder = [one._replace(score=math.exp(one.score)) for one in matches]
    assert segment_average_precision(true, louder) == pytest.approx(figure, abs=1e-12)
    # The ground truth itself is perfect; a prediction given twice with one score counts once.
    perfect = [SegmentMatch(*pair, one, 9.0) for pair, own in true.items() for one in own]
    assert segment_average_precision(true, perfect) == pytest.approx(1)
    assert segment_average_precision(true, [*matches, *matches]) == pytest.approx(figure, abs=1e-12)


def test_segments_without_a_duration_and_bad_ones() -> None:
    true = {("q", "r"): [box(4, 14, 10, 18)]}
    instant = SegmentMatch("q", "r", box(5, 5, 11, 11), 2.0)
    assert segment_average_precision(true, [instant]) == 0.0
    assert segment_average_precision(true, [instant, SegmentMatch("q", "r", box(4, 14, 10, 18), 1.0)]) == pytest.approx(
        1
    )
    with pytest.raises(DataError, match=r"from 6.* to 5"):
        segment_average_precision(true, [SegmentMatch("q", "r", box(6, 5, 1, 2), 1.0)])
    with pytest.raises(DataError, match="score inf"):
        segment_average_precision(true, [SegmentMatch("q", "r", box(4, 5, 1, 2), math.inf)])
    with pytest.raises(DataError, match="no segment is true"):
        segment_average_precision({}, [])


def test_a_pair_has_the_best_score_of_its_segments_also_below_zero() -> None:
    some = box(0, 1, 0, 1)
    matches = [
        SegmentMatch("q", "r", some, -0.5),
        SegmentMatch("q", "r", some, -0.2),
        SegmentMatch("q", "s", some, 0.1),
    ]
    assert keep_best_scores(matches) == [Candidate("q", "r", -0.2), Candidate("q", "s", 0.1)]


# --- VCSL ----------------------------------------------------------------------------------------------------------


def slow_vcsl_ratio(these: Sequence[Box], those: Sequence[Box]) -> float:
    """Of each box of `these`, the ticks on each axis that lie in an area shared with one of `those`; both axes."""
    ratio = 1.0
    for axis in (0, 1):
        inside = whole = 0
        for one in these:
            shared = [other for other in those if all(paint([one], k) & paint([other], k) for k in (0, 1))]
            inside += len(paint([one], axis) & paint(shared, axis))
            whole += len(paint([one], axis))
        ratio *= inside / whole
    return ratio


some_boxes = st.dictionaries(st.sampled_from(PAIRS), st.lists(boxes, max_size=3))


@given(some_boxes, some_boxes)
def test_vcsl_agrees_with_painting_ticks(
    found: dict[PairOfVideos, list[Box]], true: dict[PairOfVideos, list[Box]]
) -> None:
    sets = {"one": PAIRS[:2], "two": PAIRS[1:]}
    figures = measure_vcsl(found, true, PAIRS, sets=sets)
    precisions: dict[PairOfVideos, float] = {}
    recalls: dict[PairOfVideos, float] = {}
    for pair in PAIRS:
        mine, theirs = found.get(pair, []), true.get(pair, [])
        precisions[pair] = 1.0 if not mine else 0.0 if not theirs else slow_vcsl_ratio(mine, theirs)
        recalls[pair] = 1.0 if not theirs else 0.0 if not mine else slow_vcsl_ratio(theirs, mine)
    said = [precisions[pair] for pair in PAIRS if found.get(pair)]
    wanted = [recalls[pair] for pair in PAIRS if true.get(pair)]
    assert figures.precision == pytest.approx(sum(said) / len(said) if said else math.nan, nan_ok=True)
    assert figures.recall == pytest.approx(sum(wanted) / len(wanted) if wanted else math.nan, nan_ok=True)
    of_sets = [
        [sum(values[pair] for pair in own) / len(own) for values in (precisions, recalls)] for own in sets.values()
    ]
    assert figures.set_precision == pytest.approx((of_sets[0][0] + of_sets[1][0]) / 2)
    assert figures.set_recall == pytest.approx((of_sets[0][1] + of_sets[1][1]) / 2)
    missed = [not found.get(pair) for pair in PAIRS if true.get(pair)]
    alarms = [bool(found.get(pair)) for pair in PAIRS if not true.get(pair)]
    assert figures.false_rejection_rate == pytest.approx(sum(missed) / len(missed) if missed else math.nan, nan_ok=True)
    assert figures.false_alarm_rate == pytest.approx(sum(alarms) / len(alarms) if alarms else math.nan, nan_ok=True)


def test_vcsl_by_hand() -> None:
    """Pair 1: 8 of 10 s on both axes. Pair 2 does not match and has a box. Pair 3 matches and has none."""
    found = {PAIRS[0]: [box(2, 12, 102, 112)], PAIRS[1]: [box(0, 5, 0, 5)]}
    true = {PAIRS[0]: [box(0, 10, 100, 110)], PAIRS[2]: [box(0, 1, 0, 1)]}
    figures = measure_vcsl(found, true, PAIRS)
    assert figures.precision == pytest.approx(0.64 / 2)
    assert figures.recall == pytest.approx(0.64 / 2)
    assert (figures.false_rejection_rate, figures.false_alarm_rate) == (0.5, 1.0)
    assert (figures.pairs, figures.matching_pairs, figures.sets) == (3, 2, 0)
    assert math.isnan(figures.set_f1)


@given(some_boxes.filter(lambda true: any(true.values())))
def test_laws_of_vcsl(true: dict[PairOfVideos, list[Box]]) -> None:
    perfect = measure_vcsl(true, true, PAIRS)
    assert (perfect.precision, perfect.recall, perfect.f1) == pytest.approx((1, 1, 1))
    other = {PAIRS[0]: [box(0, 4, 2, 6)], PAIRS[1]: [box(1, 3, 1, 3)]}
    there, back = measure_vcsl(other, true, PAIRS), measure_vcsl(true, other, PAIRS)
    assert there.precision == pytest.approx(back.recall)


def test_vcsl_counts_boxes_without_a_duration_as_wrong() -> None:
    true = {PAIRS[0]: [box(0, 10, 0, 10)]}
    assert measure_vcsl({PAIRS[0]: [box(3, 3, 0, 5)]}, true, PAIRS[:1]).precision == 0.0
    with pytest.raises(DataError, match="no pair to measure"):
        measure_vcsl({}, true, [])
