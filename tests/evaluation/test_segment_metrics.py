from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hapvr.errors import DataError
from hapvr.evaluation.pair_records import Box
from hapvr.evaluation.segment_metrics import measure_segments

TICKS = 12


def boxes(max_count: int) -> st.SearchStrategy[list[Box]]:
    interval = st.tuples(st.integers(0, TICKS - 1), st.integers(1, 6)).map(
        lambda pair: (float(pair[0]), float(min(TICKS, sum(pair))))
    )
    return st.lists(st.tuples(interval, interval), max_size=max_count)


def slow_ratio(these: dict[str, list[Box]], those: dict[str, list[Box]]) -> float:
    """Over all boxes of `these`: ticks on each axis that fall into an area shared with one of `those`, by painting."""
    inside, whole = [0, 0], [0, 0]
    for pair, mine in these.items():
        for box in mine:
            for axis in (0, 1):
                for tick in range(TICKS):
                    if not box[axis][0] <= tick < box[axis][1]:
                        continue
                    whole[axis] += 1
                    for other in those[pair]:
                        meets = all(max(box[k][0], other[k][0]) < min(box[k][1], other[k][1]) for k in (0, 1))
                        if meets and other[axis][0] <= tick < other[axis][1]:
                            inside[axis] += 1
                            break
    return inside[0] / whole[0] * inside[1] / whole[1] if whole[0] else math.nan


@given(boxes(3), boxes(3), boxes(2), boxes(2))
def test_it_agrees_with_painting_ticks(a: list[Box], b: list[Box], c: list[Box], d: list[Box]) -> None:
    found, true = {"x": a, "y": c}, {"x": b, "y": d}
    figures = measure_segments(found, true)
    positive = {pair for pair, some in true.items() if some}
    mine = {pair: found[pair] for pair in positive}
    theirs = {pair: true[pair] for pair in positive}
    assert figures.precision == pytest.approx(slow_ratio(mine, theirs), nan_ok=True)
    assert figures.recall == pytest.approx(slow_ratio(theirs, mine), nan_ok=True)


@given(boxes(4))
def test_what_is_found_exactly_is_perfect_and_swapping_swaps(some: list[Box]) -> None:
    figures = measure_segments({"x": some}, {"x": some})
    if some:
        assert (figures.precision, figures.recall, figures.f1) == pytest.approx((1, 1, 1))
        assert figures.boundary_error_s == 0
    other: list[Box] = [((0.0, 4.0), (2.0, 6.0))]
    there, back = measure_segments({"x": some}, {"x": other}), measure_segments({"x": other}, {"x": some})
    if some:
        assert there.precision == pytest.approx(back.recall)


def test_by_hand() -> None:
    # Two true stretches of 10 s; one found whole, with 10 s too many on the target axis; the other missed.
    found: dict[str, list[Box]] = {"x": [((0, 10), (50, 70))], "stranger": [((0, 5), (0, 5))], "clean": []}
    true: dict[str, list[Box]] = {"x": [((0, 10), (50, 60)), ((20, 30), (80, 90))]}
    figures = measure_segments(found, true)
    assert figures.precision == pytest.approx(1.0 * 0.5)
    assert figures.recall == pytest.approx(0.5 * 0.5)
    assert figures.f1 == pytest.approx(1 / 3)
    assert figures.boundary_error_s == pytest.approx(10 / 4)
    assert (figures.true, figures.found, figures.pairs) == (2, 1, 1)
    assert (figures.false_pairs, figures.negative_pairs) == (1, 2)


def test_what_two_found_boxes_cover_counts_once_for_recall() -> None:
    figures = measure_segments({"x": [((0, 6), (0, 6)), ((2, 8), (2, 8))]}, {"x": [((0, 10), (0, 10))]})
    assert figures.recall == pytest.approx(0.8 * 0.8)
    assert figures.precision == pytest.approx(1)


def test_nothing_found_and_nothing_to_find() -> None:
    figures = measure_segments({"x": []}, {"x": [((0, 1), (0, 1))]})
    assert math.isnan(figures.precision)
    assert figures.recall == 0
    assert figures.f1 == 0
    assert figures.to_json()["precision"] is None
    assert math.isnan(measure_segments({"x": []}, {}).recall)


@pytest.mark.parametrize("box", [((1, 1), (0, 1)), ((0, 1), (2, 1)), ((0, np.nan), (0, 1)), ((0, np.inf), (0, 1))])
def test_a_box_that_is_none_is_refused(box: Box) -> None:
    with pytest.raises(DataError, match="start < end"):
        measure_segments({"x": [box]}, {})


def test_a_pair_that_was_not_looked_at_is_refused() -> None:
    with pytest.raises(DataError, match="not compared"):
        measure_segments({}, {"x": [((0, 1), (0, 1))]})
