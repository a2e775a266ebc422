from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hapvr.errors import ConfigError, DataError, ShapeError
from hapvr.evaluation import average_precision, micro_average_precision
from hapvr.evaluation.benchmarks import Benchmark, LeftOut, Task
from hapvr.evaluation.protocol import evaluate
from hapvr.evaluation.score_files import Scores
from hapvr.paper.curves import (
    choose_bins,
    order_queries,
    pool_pairs,
    precision_recall,
    rescale,
    similarity_distribution,
    surrogate_curves,
)

ROWS = st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=1, max_size=40).filter(
    lambda rows: any(relevant for _, relevant in rows)
)

# --- precision and recall --------------------------------------------------------------------------------------------


def test_precision_and_recall_at_each_positive() -> None:
    # + - + - - +, and one positive that was not retrieved.
    curve = precision_recall([0.9, 0.8, 0.7, 0.5, 0.4, 0.1], [1, 0, 1, 0, 0, 1], positives=4)
    assert curve.recall.tolist() == [0.25, 0.5, 0.75]
    assert curve.precision.tolist() == pytest.approx([1, 2 / 3, 3 / 6])
    assert curve.thresholds.tolist() == [0.9, 0.7, 0.1]
    assert curve.area == pytest.approx((1 + 2 / 3 + 1 / 2) / 4)


def test_equal_scores_are_ordered_by_position_or_are_one_threshold() -> None:
    scores, relevant = [0.5, 0.5, 0.5, 0.2], [False, True, True, True]
    assert precision_recall(scores, relevant).precision.tolist() == pytest.approx([1 / 2, 2 / 3, 3 / 4])
    grouped = precision_recall(scores, relevant, ties="group")
    assert grouped.precision.tolist() == pytest.approx([2 / 3, 2 / 3, 3 / 4])
    assert grouped.recall.tolist() == pytest.approx([2 / 3, 2 / 3, 1])


@given(ROWS, st.sampled_from(["id", "group"]), st.integers(0, 3))
def test_precision_and_recall_agree_with_a_loop(rows: list[tuple[int, bool]], ties: str, unseen: int) -> None:
    total = sum(relevant for _, relevant in rows) + unseen
    curve = precision_recall([s for s, _ in rows], [r for _, r in rows], positives=total, ties=ties)  # type: ignore[arg-type]
    ranked = sorted(enumerate(rows), key=lambda item: (-item[1][0], item[0]))
    expected = []
    for rank, (_, (score, relevant)) in enumerate(ranked, 1):
        if relevant:
            above = ranked[:rank] if ties == "id" else [item for item in ranked if item[1][0] >= score]
            hits = sum(item[1][1] for item in above)
            expected.append((hits / total, hits / len(above), score))
    assert np.column_stack([curve.recall, curve.precision, curve.thresholds]) == pytest.approx(np.array(expected))


@given(ROWS, st.sampled_from(["id", "group"]), st.integers(0, 3))
def test_the_area_is_the_metric(rows: list[tuple[int, bool]], ties: str, unseen: int) -> None:
    scores, relevant = [float(s) for s, _ in rows], [r for _, r in rows]
    total = sum(relevant) + unseen
    curve = precision_recall(scores, relevant, positives=total, ties=ties)  # type: ignore[arg-type]
    metric = average_precision(scores, relevant, positives=total, ties=ties)  # type: ignore[arg-type]
    assert curve.area == pytest.approx(metric, abs=1e-12)
    assert (np.diff(curve.recall) >= 0).all()
    assert (np.diff(curve.thresholds) <= 0).all()


def test_tensors_and_half_precision_are_taken() -> None:
    scores = torch.tensor([0.9, 0.8, 0.7], dtype=torch.bfloat16)
    assert precision_recall(scores, torch.tensor([True, False, True])).area == pytest.approx(5 / 6)


@pytest.mark.parametrize(
    ("scores", "relevant", "options", "error", "words"),
    [
        ([0.1, math.nan], [1, 0], {}, DataError, "1 NaN of 2 values"),
        ([0.1, 0.2], [0, 0], {}, DataError, "none of the 2 pairs is relevant"),
        ([], [], {}, DataError, "there is nothing to rank"),
        ([0.1], [1, 0], {}, ShapeError, "must have one shape"),
        ([[0.1]], [[1]], {}, ShapeError, r"must be \[N\]"),
        ([0.1, 0.2], [1, 2], {}, DataError, "all 0 or 1"),
        (["a"], [1], {}, ShapeError, "must be numbers"),
        ([0.1, 0.2], [1, 1], {"positives": 1}, DataError, "positives says there are 1"),
        ([0.1], [1], {"ties": "groups"}, ConfigError, "did you mean 'group'"),
    ],
)
def test_bad_pairs_are_refused(
    scores: list[float], relevant: list[int], options: dict[str, object], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        precision_recall(scores, relevant, **options)  # type: ignore[arg-type]


# --- pooling ---------------------------------------------------------------------------------------------------------


def benchmark_and_scores(seed: int = 0) -> tuple[Benchmark, Scores]:
    """Tasks with every rule of a ranking, scores with ties, missing videos and pairs that were not scored."""
    random = np.random.default_rng(seed)
    database = tuple(f"t{number:02d}" for number in range(30))
    queries = ("t03", "q1", "q2", "q0")
    labels = {
        query: {target: str(random.choice(["ND", "DS", "CS"])) for target in random.choice(database, 9, replace=False)}
        for query in queries
    }
    tasks = (
        Task("uAP", ("ND", "DS"), "uAP"),
        Task("grouped", ("ND",), "uAP", ties="group"),
        Task("labelled", ("ND", "CS"), "uAP", labelled_only=True, query_itself=True),
        Task("hard", ("ND", "DS", "CS"), "uAP", without=("easy",)),
    )
    easy = {"easy": LeftOut(database[:4], {"q1": database[8:10]})}
    benchmark = Benchmark("mine", queries, database, labels, tasks, left_out=easy)
    values = (random.integers(0, 12, (3, 29)) / 12).astype(np.float32)
    values[random.random(values.shape) < 0.1] = -np.inf
    return benchmark, Scores(("t03", "q1", "q0"), tuple(random.permutation(database)[:29].tolist()), values)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("missing", ["drop", "miss"])
def test_the_area_of_the_pool_is_the_figure_of_the_protocol(seed: int, missing: str) -> None:
    benchmark, scores = benchmark_and_scores(seed)
    evaluation = evaluate(benchmark, scores, missing=missing)  # type: ignore[arg-type]
    for task in benchmark.tasks:
        pool = pool_pairs(benchmark, scores, task, missing=missing)  # type: ignore[arg-type]
        curve = precision_recall(pool.scores, pool.relevant, positives=pool.positives, ties=task.ties)
        assert curve.area == pytest.approx(evaluation[task.name].value, abs=1e-12)
        again = micro_average_precision(pool.scores, pool.relevant, positives=pool.positives, ties=task.ties)
        assert curve.area == pytest.approx(again, abs=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_the_pool_agrees_with_a_loop(seed: int) -> None:
    benchmark, scores = benchmark_and_scores(seed)
    table = {
        (query, target): float(value)
        for query, row in zip(scores.queries, scores.values, strict=True)
        for target, value in zip(scores.targets, row, strict=True)
        if value != -np.inf
    }
    expected = [
        (table[query, target], benchmark.labels[query].get(target) in ("ND", "DS"))
        for query in sorted(benchmark.queries)
        for target in sorted(benchmark.database)
        if (query, target) in table and query != target
    ]
    pool = pool_pairs(benchmark, scores, benchmark.tasks[0])
    assert list(zip(pool.scores.tolist(), pool.relevant.tolist(), strict=True)) == expected


def test_missing_videos_are_an_error_if_asked() -> None:
    benchmark, scores = benchmark_and_scores()
    with pytest.raises(DataError, match="no scores for 1 queries"):
        pool_pairs(benchmark, scores, benchmark.tasks[0], missing="error")
    with pytest.raises(ConfigError, match="did you mean 'drop'"):
        pool_pairs(benchmark, scores, benchmark.tasks[0], missing="drops")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="no query has scores"):
        pool_pairs(benchmark, Scores(("x",), ("t01",), np.ones((1, 1), dtype=np.float32)), benchmark.tasks[0])


# --- distributions ---------------------------------------------------------------------------------------------------


def test_shares_of_each_bin() -> None:
    # From 2..6 to 0..1: relevant .75, 1 and 1; irrelevant 0, .25 and .5. The upper edge belongs to the last bin.
    spread = similarity_distribution([5, 6, 6, 2, 3, 4], [1, 1, 1, 0, 0, 0], bins=4)
    assert spread.edges.tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert spread.relevant.tolist() == [0, 0, 0, 1]
    assert spread.irrelevant.tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0])
    assert (spread.relevant_pairs, spread.irrelevant_pairs, spread.overlap) == (3, 3, 0)


PAIRS = st.lists(st.tuples(st.floats(-1, 1, width=32), st.booleans()), min_size=2, max_size=40).filter(
    lambda rows: len({relevant for _, relevant in rows}) == 2 and len({score for score, _ in rows}) > 1
)


@given(PAIRS, st.integers(1, 12))
def test_a_distribution_agrees_with_a_loop(rows: list[tuple[float, bool]], bins: int) -> None:
    spread = similarity_distribution([s for s, _ in rows], [r for _, r in rows], bins=bins, scale="half")
    for kind, shares in ((True, spread.relevant), (False, spread.irrelevant)):
        placed = [score / 2 + 0.5 for score, relevant in rows if relevant == kind]
        for number, (low, high) in enumerate(pairwise(spread.edges.tolist())):
            last = number == bins - 1
            count = sum(low <= score < high or (last and score == high) for score in placed)
            assert shares[number] == pytest.approx(count / len(placed))


@given(PAIRS)
def test_a_distribution_sums_to_one_and_knows_no_scale(rows: list[tuple[float, bool]]) -> None:
    scores, relevant = np.array([s for s, _ in rows], dtype=np.float64), [r for _, r in rows]
    spread = similarity_distribution(scores, relevant, bins=7)
    assert spread.relevant.sum() == pytest.approx(1)
    assert spread.irrelevant.sum() == pytest.approx(1)
    assert 0 <= spread.overlap <= 1 + 1e-12
    wider = similarity_distribution(4 * scores, relevant, bins=7)  # a power of two: exact
    assert wider.relevant.tolist() == spread.relevant.tolist()
    swapped = similarity_distribution(scores, [not r for r in relevant], bins=7)
    assert swapped.relevant.tolist() == spread.irrelevant.tolist()
    assert swapped.overlap == spread.overlap


def test_distributions_that_are_alike_overlap_wholly() -> None:
    assert similarity_distribution([0, 1, 0, 1], [0, 0, 1, 1]).overlap == 1


def test_scores_are_rescaled_as_asked() -> None:
    assert rescale([-1, 0, 3]).tolist() == [0, 0.25, 1]
    assert rescale([-1, 0, 1], scale="half").tolist() == [0, 0.5, 1]
    assert rescale([0, 0.25, 1], scale="none").tolist() == [0, 0.25, 1]
    assert rescale([1.00001], scale="half").tolist() == [1]  # a rounding
    largest = float(np.finfo(np.float64).max)
    assert rescale([-largest, 0, largest]).tolist() == [0, 0.5, 1]


@pytest.mark.parametrize(
    ("scores", "options", "error", "words"),
    [
        ([0.5, 0.5], {}, DataError, "all 2 scores are 0.5"),
        ([-2.0, 0.5], {"scale": "half"}, DataError, r"lie in \[-2, 0.5\]"),
        ([-0.5, 0.5], {"scale": "none"}, DataError, "Use scale='range'"),
        ([-math.inf, 0.5], {}, DataError, "1 of 2 scores are infinite"),
        ([0.1, 0.5], {"scale": "halve"}, ConfigError, "did you mean 'half'"),
        ([0.1, 0.5], {"bins": 0}, ConfigError, "bins must be"),
        ([0.1, 0.5], {"bins": 2.5}, ConfigError, "bins must be"),
    ],
)
def test_bad_distributions_are_refused(
    scores: list[float], options: dict[str, object], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        similarity_distribution(scores, [True, False], **options)  # type: ignore[arg-type]


def test_two_distributions_need_two_kinds_of_pairs() -> None:
    with pytest.raises(DataError, match="none of the 2 pairs is irrelevant"):
        similarity_distribution([0.1, 0.5], [1, 1])


def test_the_number_of_bins_fits_the_pairs() -> None:
    assert [choose_bins(pairs) for pairs in (0, 125, 1000, 8000, 10**9)] == [10, 10, 20, 40, 50]


# --- queries ---------------------------------------------------------------------------------------------------------


def test_queries_are_ordered_by_group_and_then_by_their_mean() -> None:
    models = {
        "one": {"a": 0.5, "b": 1.0, "c": 0.2, "d": 0.9, "e": math.nan},
        "two": {"a": 0.7, "b": 0.8, "c": 0.4, "d": 0.1, "e": 0.5},
    }
    order = order_queries(models, groups={"a": "crop", "b": "crop", "c": "speed", "d": "speed", "e": "speed"})
    assert order.queries == ("b", "a", "d", "c")
    assert order.values.tolist() == [[1.0, 0.5, 0.9, 0.2], [0.8, 0.7, 0.1, 0.4]]
    assert order.groups == (("crop", 0, 2), ("speed", 2, 4))
    assert order.left_out == 1


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=30))
def test_the_order_agrees_with_repeated_picking(rows: list[tuple[int, int, int]]) -> None:
    groups = {f"q{number}": f"event {kind * 5}" for number, (kind, _, _) in enumerate(rows)}
    models = {name: {f"q{n}": row[1 + at] / 12 for n, row in enumerate(rows)} for at, name in enumerate("ab")}
    order = order_queries(models, groups=groups)
    left, expected = set(groups), []
    for kind in (0, 5, 10, 15):
        while members := [query for query in left if groups[query] == f"event {kind}"]:
            best = max(members, key=lambda query: (models["a"][query] + models["b"][query], [-ord(c) for c in query]))
            left.remove(best)
            expected.append(best)
    mean = {query: round(12 * (models["a"][query] + models["b"][query])) for query in groups}
    assert [mean[query] for query in order.queries] == [mean[query] for query in expected]
    assert sorted(order.queries) == sorted(groups)
    assert [groups[query] for query in order.queries] == [groups[query] for query in expected]
    for row, name in zip(order.values, "ab", strict=True):
        assert row.tolist() == [models[name][query] for query in order.queries]
    assert [name for name, start, end in order.groups for _ in range(start, end)] == [groups[q] for q in order.queries]


def test_models_of_different_queries_are_not_drawn_together() -> None:
    with pytest.raises(DataError, match="'a' and 'b' have different queries: 2 are of one alone"):
        order_queries({"a": {"q": 1.0}, "b": {"r": 1.0}})
    with pytest.raises(DataError, match="none of the 1 queries"):
        order_queries({"a": {"q": math.nan}})
    with pytest.raises(DataError, match="no model"):
        order_queries({})


# --- surrogates ------------------------------------------------------------------------------------------------------


def test_surrogates_by_hand() -> None:
    step, sigmoid, quad = surrogate_curves(delta=0.1, temperature=0.05, reach=0.1, points=5)
    assert step.x.tolist() == pytest.approx([-0.1, -0.05, 0, 0.05, 0.1])
    assert step.value.tolist() == [0, 0, 0, 1, 1]
    assert step.slope.tolist() == [0] * 5
    assert quad.value.tolist() == pytest.approx([0, 0.25, 1, 2, 3])
    assert quad.slope.tolist() == pytest.approx([0, 10, 20, 20, 20])
    assert sigmoid.value[2] == 0.5
    assert sigmoid.slope[2] == pytest.approx(1 / (4 * 0.05))
    assert sigmoid.value[4] == pytest.approx(1 / (1 + math.exp(-2)))
    assert (sigmoid.setting, quad.setting) == ("τ = 0.05", "δ = 0.1")


def test_slopes_agree_with_differences() -> None:
    for curve in surrogate_curves(points=4001)[1:]:
        middle = (curve.value[2:] - curve.value[:-2]) / (curve.x[2:] - curve.x[:-2])
        assert curve.slope[1:-1] == pytest.approx(middle, abs=0.05)


def test_laws_of_the_surrogates() -> None:
    step, sigmoid, quad = surrogate_curves()
    assert (quad.value >= step.value).all()
    assert (np.diff(quad.slope) >= -1e-9).all()  # convex
    assert quad.slope[quad.x >= 0] == pytest.approx(2 / 0.05)
    assert sigmoid.value + sigmoid.value[::-1] == pytest.approx(np.ones_like(sigmoid.x))
    assert sigmoid.slope[-1] < 1e-6  # it vanishes on badly misranked pairs
    for curve in (sigmoid, quad):
        gained = ((curve.slope[1:] + curve.slope[:-1]) / 2 * np.diff(curve.x)).sum()
        assert gained == pytest.approx(curve.value[-1] - curve.value[0], rel=1e-4)


@pytest.mark.parametrize("options", [{"delta": 0.0}, {"temperature": -1.0}, {"reach": 0.0}, {"points": 1}])
def test_bad_surrogates_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        surrogate_curves(**options)  # type: ignore[arg-type]
