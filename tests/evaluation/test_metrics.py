from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score  # type: ignore[import-untyped]

from hapvr.errors import ConfigError, DataError, ShapeError
from hapvr.evaluation import (
    average_precision,
    evve_average_precision,
    evve_mean_average_precision,
    mean_average_precision,
    metrics,
    micro_average_precision,
)
from tests.evaluation import reference

TIES = st.sampled_from(["id", "group"])
# Thirds are no float32 and force the float64 way; halves are float32 and tie often; both zeros must tie.
SCORES = st.one_of(
    st.sampled_from([0.0, -0.0, 0.5, -0.5, 1.0, math.inf, -math.inf]), st.integers(-3, 3).map(lambda n: n / 3)
)
HALVES = st.sampled_from([0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.5, 1e-30, -1e-30, math.inf])


@st.composite
def queries(draw: st.DrawFn, *, max_count: int = 12, scores: st.SearchStrategy[float] | None = None) -> dict[str, Any]:
    """One query: scores, labels, unsorted ids of a random kind, and positives of which some may not be retrieved."""
    count = draw(st.integers(1, max_count))
    kind = draw(st.sampled_from([SCORES, HALVES])) if scores is None else scores
    numbers = draw(st.lists(kind, min_size=count, max_size=count))
    labels = draw(st.lists(st.integers(0, 1), min_size=count, max_size=count))
    ids = draw(st.permutations(range(count)))
    named = [f"v{number:02}" for number in ids] if draw(st.booleans()) else list(ids)
    return {"scores": numbers, "relevant": labels, "ids": named, "positives": sum(labels) + draw(st.integers(0, 3))}


def of(query: dict[str, Any], function: Callable[..., float], **options: Any) -> float:
    return function(query["scores"], query["relevant"], positives=query["positives"], ids=query["ids"], **options)


# One query


def test_a_hand_computed_ranking() -> None:
    # + - + + -: precisions 1, 2/3, 3/4.
    assert average_precision([0.9, 0.8, 0.7, 0.6, 0.5], [1, 0, 1, 1, 0]) == pytest.approx((1 + 2 / 3 + 3 / 4) / 3)
    assert average_precision([0.5, 0.6, 0.7, 0.8, 0.9], [0, 1, 1, 0, 1]) == pytest.approx((1 + 2 / 3 + 3 / 4) / 3)


def test_scores_that_differ_beyond_float32_are_no_ties() -> None:
    assert average_precision([1.0, 1.0 + 1e-12], [0, 1]) == 1.0
    assert average_precision([1.0, 1.0 + 1e-12], [0, 1], ties="group") == 1.0
    assert average_precision([1e300, 1e301], [0, 1]) == 1.0


def test_positives_that_were_not_retrieved_count() -> None:
    assert average_precision([0.9, 0.8], [1, 0], positives=4) == 0.25
    assert average_precision([0.9, 0.8], [0, 0], positives=4) == 0.0


def test_equal_scores_are_ordered_by_id() -> None:
    assert average_precision([0.5, 0.5], [0, 1]) == 0.5
    assert average_precision([0.5, 0.5], [0, 1], ids=["b", "a"]) == 1.0
    assert average_precision([0.5, 0.5], [0, 1], ids=[7, 30]) == 0.5
    assert average_precision([0.0, -0.0], [0, 1], ids=[1, 0]) == 1.0


def test_equal_scores_can_be_one_threshold() -> None:
    # Both of .5 stand at precision 2/3, whatever their order.
    assert average_precision([0.9, 0.5, 0.5], [1, 0, 1], ties="group") == pytest.approx((1 + 2 / 3) / 2)


@given(query=queries(), ties=TIES)
def test_agrees_with_the_loop(query: dict[str, Any], ties: Literal["id", "group"]) -> None:
    assume(query["positives"])
    assert of(query, average_precision, ties=ties) == pytest.approx(of(query, reference.average_precision, ties=ties))


@given(query=queries(scores=HALVES), ties=TIES, dtype=st.sampled_from([np.float16, np.float32, np.float64]))
def test_the_type_of_the_scores_does_not_matter(
    query: dict[str, Any], ties: Literal["id", "group"], dtype: type[np.floating[Any]]
) -> None:
    assume(query["positives"])
    with np.errstate(under="ignore"):
        query["scores"] = np.array(query["scores"], dtype=dtype)
    expected = of({**query, "scores": query["scores"].tolist()}, reference.average_precision, ties=ties)
    assert of(query, average_precision, ties=ties) == pytest.approx(expected)


@given(count=st.integers(1, 200), seed=st.integers(0, 2**31), ties=st.booleans())
def test_agrees_with_scikit_learn(count: int, seed: int, ties: bool) -> None:
    rng = np.random.default_rng(seed)
    scores = np.round(rng.normal(size=count), 1 if ties else 15)
    relevant = rng.random(count) < 0.3
    assume(relevant.any())
    expected = pytest.approx(average_precision_score(relevant, scores))
    assert average_precision(scores, relevant, ties="group") == expected
    assert average_precision(scores.astype(np.float32), relevant, ties="group") == expected


@given(query=queries(), ties=TIES, seed=st.integers(0, 2**31))
def test_permuting_videos_with_their_ids_changes_nothing(
    query: dict[str, Any], ties: Literal["id", "group"], seed: int
) -> None:
    assume(query["positives"])
    order = np.random.default_rng(seed).permutation(len(query["scores"]))
    permuted = {key: np.array(value)[order] for key, value in query.items() if key != "positives"}
    again = {**permuted, "positives": query["positives"]}
    assert of(again, average_precision, ties=ties) == of(query, average_precision, ties=ties)


@given(query=queries(scores=st.floats(-5, 5)), worse=st.floats(0.1, 9), ties=TIES)
def test_an_irrelevant_target_below_all_positives_changes_nothing(
    query: dict[str, Any], worse: float, ties: Literal["id", "group"]
) -> None:
    assume(any(query["relevant"]))
    lowest = min(s for s, label in zip(query["scores"], query["relevant"], strict=True) if label)
    arguments = {"positives": query["positives"], "ties": ties}
    before = average_precision(query["scores"], query["relevant"], **arguments)
    after = average_precision([*query["scores"], lowest - worse], [*query["relevant"], 0], **arguments)
    assert after == pytest.approx(before)


@given(query=queries(scores=st.floats(-5, 5, width=32)), ties=TIES)
def test_only_the_order_of_scores_matters(query: dict[str, Any], ties: Literal["id", "group"]) -> None:
    assume(query["positives"])
    ordinals = [sorted(set(query["scores"])).index(score) for score in query["scores"]]
    rescaled = {**query, "scores": [n * 7 - 100 for n in ordinals]}
    assert of(rescaled, average_precision, ties=ties) == of(query, average_precision, ties=ties)


def test_a_perfect_ranking_has_one_and_the_worst_the_least() -> None:
    scores = np.linspace(1, 0, 10)
    assert average_precision(scores, scores > 0.5) == 1.0
    assert average_precision(scores, scores == 0) == 0.1


def test_no_positive_is_not_a_number() -> None:
    assert math.isnan(average_precision([0.5, 0.4], [0, 0]))


def test_tensors_are_taken() -> None:
    scores, relevant = torch.tensor([0.9, 0.8, 0.7], dtype=torch.bfloat16), torch.tensor([True, False, True])
    expected = average_precision([0.9, 0.8, 0.7], [1, 0, 1])
    assert average_precision(scores.requires_grad_(), relevant, ids=torch.tensor([5, 4, 3])) == expected
    assert mean_average_precision(scores[None], relevant[None]) == expected
    assert mean_average_precision([scores], [relevant]) == expected
    assert micro_average_precision(scores[None], relevant[None]) == expected


# Several queries


@given(rows=st.lists(queries(), min_size=1, max_size=4), ties=TIES)
def test_the_mean_agrees_with_the_loop(rows: list[dict[str, Any]], ties: Literal["id", "group"]) -> None:
    counted = [row for row in rows if row["positives"]]
    assume(counted)
    expected = sum(of(row, reference.average_precision, ties=ties) for row in counted) / len(counted)
    columns = {key: [row[key] for row in rows] for key in rows[0]}
    assert of(columns, mean_average_precision, ties=ties) == pytest.approx(expected)


@given(rows=st.lists(queries(), min_size=1, max_size=4), ties=TIES)
def test_the_pooled_figure_agrees_with_the_loop(rows: list[dict[str, Any]], ties: Literal["id", "group"]) -> None:
    total = sum(row["positives"] for row in rows)
    assume(total)
    expected = reference.average_precision(
        [score for row in rows for score in row["scores"]],
        [label for row in rows for label in row["relevant"]],
        positives=total,
        ids=[(number, str(i).zfill(3)) for number, row in enumerate(rows) for i in row["ids"]],
        ties=ties,
    )
    columns = {key: [row[key] for row in rows] for key in rows[0]}
    assert of(columns, micro_average_precision, ties=ties) == pytest.approx(expected)
    assert of({**columns, "positives": total}, micro_average_precision, ties=ties) == pytest.approx(expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("ties", ["id", "group"])
@pytest.mark.parametrize("function", [mean_average_precision, micro_average_precision, evve_mean_average_precision])
def test_an_array_and_a_list_of_its_rows_give_one_figure(
    function: Callable[..., float], ties: str, dtype: type[np.floating[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    scores = np.round(rng.normal(size=(7, 30)), 1).astype(dtype)
    relevant = rng.random((7, 30)) < 0.2
    relevant[3] = False
    options: dict[str, Any] = {} if function is evve_mean_average_precision else {"ties": ties}
    ids = rng.permutation(30)
    listed = function(list(scores), list(relevant), ids=[ids] * 7, **options)
    assert function(scores, relevant, ids=ids, **options) == pytest.approx(listed, abs=1e-15)
    assert function(scores.tolist(), relevant.tolist(), ids=ids.tolist(), **options) == pytest.approx(listed, abs=1e-15)
    monkeypatch.setattr(metrics, "_BLOCK", 60)
    assert function(scores, relevant, ids=ids, **options) == pytest.approx(listed, abs=1e-15)


def test_hand_computed_means() -> None:
    scores = [[0.9, 0.1, 0.5], [0.3, 0.2], [0.8]]
    relevant = [[0, 0, 1], [1, 0], [0]]
    assert mean_average_precision(scores, relevant) == (0.5 + 1) / 2
    # Pooled: .9- .8- .5+ .3+ .2- .1-.
    assert micro_average_precision(scores, relevant) == pytest.approx((1 / 3 + 2 / 4) / 2)
    assert micro_average_precision(scores, relevant, positives=[1, 1, 2]) == pytest.approx((1 / 3 + 2 / 4) / 4)
    assert mean_average_precision(scores, relevant, positives=[2, 1, 1]) == pytest.approx((0.25 + 1 + 0) / 3)


def test_pooled_ties_are_ordered_by_query_and_then_by_target() -> None:
    ties = np.zeros((2, 2))
    assert micro_average_precision(ties, [[0, 0], [1, 0]]) == pytest.approx(1 / 3)
    assert micro_average_precision(ties, [[0, 0], [1, 0]], ids=["b", "a"]) == pytest.approx(1 / 4)


def test_pairs_pooled_already_are_taken_as_they_are() -> None:
    assert micro_average_precision([0.9, 0.8, 0.7], [1, 0, 1]) == average_precision([0.9, 0.8, 0.7], [1, 0, 1])
    assert micro_average_precision(np.array([0.9, 0.8]), np.array([0, 1]), positives=2) == 0.25


def test_one_query_pools_to_its_average_precision() -> None:
    rng = np.random.default_rng(1)
    scores, relevant = rng.normal(size=(1, 50)), rng.random((1, 50)) < 0.3
    assert micro_average_precision(scores, relevant) == mean_average_precision(scores, relevant)


def test_a_shift_of_one_query_changes_the_pooled_figure_only() -> None:
    scores, relevant = np.array([[0.9, 0.1], [0.8, 0.2]]), np.eye(2)[[0, 0]]
    shifted = scores + np.array([[0], [-1]])
    assert mean_average_precision(shifted, relevant) == mean_average_precision(scores, relevant) == 1.0
    assert micro_average_precision(scores, relevant) == 1.0
    assert micro_average_precision(shifted, relevant) == pytest.approx((1 + 2 / 3) / 2)


# EVVE


def test_a_hand_computed_trapezoid() -> None:
    # + - - +: (1 + 1)/2 and (1/3 + 2/4)/2, over 2.
    assert evve_average_precision([4, 3, 2, 1], [1, 0, 0, 1]) == pytest.approx((1 + (1 / 3 + 1 / 2) / 2) / 2)
    assert evve_average_precision([4, 3], [1, 1], positives=4) == pytest.approx(0.5)
    assert evve_average_precision([4, 3], [0, 0]) == 0.0


@given(query=queries())
def test_the_trapezoid_agrees_with_the_loop(query: dict[str, Any]) -> None:
    assume(query["positives"])
    assert of(query, evve_average_precision) == pytest.approx(of(query, reference.evve_average_precision))


@given(rows=st.lists(queries(), min_size=1, max_size=4))
def test_the_mean_trapezoid_counts_all_queries(rows: list[dict[str, Any]]) -> None:
    assume(any(row["positives"] for row in rows))
    expected = sum(of(row, reference.evve_average_precision) for row in rows if row["positives"]) / len(rows)
    columns = {key: [row[key] for row in rows] for key in rows[0]}
    assert of(columns, evve_mean_average_precision) == pytest.approx(expected)


@given(query=queries())
def test_the_trapezoid_never_exceeds_average_precision(query: dict[str, Any]) -> None:
    # The precision just before a positive is at most the precision with it.
    assume(query["positives"])
    assert of(query, evve_average_precision) <= of(query, average_precision) + 1e-12


# What is refused

SINGLE = [average_precision, evve_average_precision]
SEVERAL = [mean_average_precision, micro_average_precision, evve_mean_average_precision]


@pytest.mark.parametrize("function", SINGLE)
@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (([0.1, math.nan], [0, 1]), DataError, "1 NaN of 2"),
        (([0.1, 0.2], [0, 1, 1]), ShapeError, r"one shape, got \[2\] and \[3\]"),
        (([0.1, 0.2], [0, 2]), DataError, "all 0 or 1"),
        (([0.1, 0.2], [0.0, math.nan]), DataError, "all 0 or 1"),
        (([0.1, 0.2], ["a", "b"]), DataError, "all 0 or 1"),
        (([], []), DataError, "empty"),
        (([[0.1, 0.2]], [[0, 1]]), ShapeError, "For several queries"),
        (([[0.1, 0.2], [0.1]], [0, 1]), ShapeError, "differ in length"),
        ((["a", "b"], [0, 1]), ShapeError, "must be numbers"),
    ],
)
def test_bad_arrays_are_refused(
    function: Callable[..., float], arguments: tuple[Any, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        function(*arguments)


@pytest.mark.parametrize("function", SINGLE)
@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"positives": 1}, DataError, "has 2 positives among its targets, but positives says the database holds 1"),
        ({"positives": 2.5}, ShapeError, "whole numbers"),
        ({"ids": [1, 2]}, ShapeError, "ids must be 3"),
        ({"ids": ["a", "b", "a"]}, DataError, "'a'.* more than once"),
    ],
)
def test_bad_options_are_refused(
    function: Callable[..., float], options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        function([0.3, 0.2, 0.1], [1, 1, 0], **options)


@pytest.mark.parametrize("function", SEVERAL)
@pytest.mark.parametrize(
    ("arguments", "options", "error", "words"),
    [
        (([[0.1], [0.2, math.nan]], [[1], [0, 1]]), {}, DataError, "query 1: scores holds 1 NaN"),
        (([[0.1], [0.2]], [[1]]), {}, ShapeError, "2 queries and relevant of 1"),
        (([[0.1], []], [[1], []]), {}, DataError, "query 1: scores is empty"),
        (([], []), {}, DataError, "empty"),
        ((np.zeros((2, 0)), np.zeros((2, 0))), {}, DataError, "empty"),
        ((np.zeros((2, 2, 2)), np.zeros((2, 2, 2))), {}, ShapeError, r"\[Q, N\]"),
        ((np.zeros((2, 3)), np.zeros((3, 2))), {}, ShapeError, "one shape"),
        ((np.zeros((2, 3)), np.zeros((2, 3))), {}, DataError, "none of the 2 queries has a positive"),
        ((np.zeros((2, 3)), np.ones((2, 3))), {"positives": [3]}, ShapeError, "2 whole numbers"),
        ((np.zeros((2, 3)), np.ones((2, 3))), {"positives": [3, 2]}, DataError, "query 1 has 3 positives"),
        ((np.zeros((2, 3)), np.ones((2, 3))), {"ids": [1, 2]}, ShapeError, "ids must be 3"),
        (([[0.1], [0.2]], [[1], [0]]), {"ids": [[1]]}, ShapeError, "ids of 1"),
    ],
)
def test_bad_queries_are_refused(
    function: Callable[..., float],
    arguments: tuple[Any, Any],
    options: dict[str, Any],
    error: type[Exception],
    words: str,
) -> None:
    with pytest.raises(error, match=words):
        function(*arguments, **options)


def test_one_row_where_queries_are_meant_is_refused() -> None:
    with pytest.raises(ShapeError, match="For one query use average_precision"):
        mean_average_precision(np.zeros(3), np.ones(3))
    with pytest.raises(DataError, match="database holds 1"):
        micro_average_precision(np.zeros((2, 3)), np.ones((2, 3)), positives=1)


def test_an_unknown_way_with_ties_is_refused_with_the_known() -> None:
    with pytest.raises(ConfigError, match="did you mean 'group'"):
        average_precision([0.1], [1], ties="groups")  # type: ignore[arg-type]
