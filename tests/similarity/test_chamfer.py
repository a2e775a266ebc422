from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hapvr.errors import ConfigError, DataError, HapvrError, ShapeError
from hapvr.similarity import compute_keep_count, topk_chamfer
from hapvr.similarity.chamfer import Aggregation, aggregate
from tests.similarity import reference

sizes = st.integers(1, 9)
rates = st.floats(0.0, 1.0)


def test_keeps_the_two_best_targets_of_each_query_frame() -> None:
    matrix = torch.tensor([[0.9, 0.1, 0.5], [0.2, 0.8, 0.0]])
    assert topk_chamfer(matrix, keep_rate=2 / 3).item() == pytest.approx((0.7 + 0.5) / 2)


@pytest.mark.parametrize(
    ("size", "rate", "k"), [(9, 0.1, 1), (5, 0.3, 2), (5, 0.5, 2), (7, 0.5, 4), (49, 0.03, 1), (50, 0.03, 2)]
)
def test_k_rounds_half_to_even(size: int, rate: float, k: int) -> None:
    assert compute_keep_count(size, rate) == k
    assert compute_keep_count(torch.tensor(size), rate).item() == k


@given(sizes, sizes, rates, st.integers(0, 99))
def test_agrees_with_the_loop(queries: int, targets: int, rate: float, seed: int) -> None:
    matrix = torch.randn(queries, targets, generator=torch.Generator().manual_seed(seed))
    expected = reference.topk_chamfer(matrix.tolist(), rate)
    assert topk_chamfer(matrix, keep_rate=rate).item() == pytest.approx(expected, abs=1e-6)


@given(sizes, sizes, rates, st.integers(0, 99), st.sampled_from(["topk", "chamfer", "max", "average"]))
def test_masked_entries_count_for_nothing(
    queries: int, targets: int, rate: float, seed: int, kind: Aggregation
) -> None:
    """Whatever stands in the padding, and wherever it stands, the score is that of the real entries alone."""
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.randn(queries, targets, generator=generator)
    rows = torch.randperm(queries + 3, generator=generator)[:queries].sort().values
    columns = torch.randperm(targets + 4, generator=generator)[:targets].sort().values
    padded = torch.full((queries + 3, targets + 4), 1e6)
    padded[rows[:, None], columns] = matrix
    query_mask = torch.zeros(queries + 3, dtype=torch.bool).index_fill(0, rows, True)
    target_mask = torch.zeros(targets + 4, dtype=torch.bool).index_fill(0, columns, True)
    score = aggregate(padded, kind=kind, keep_rate=rate, query_mask=query_mask, target_mask=target_mask)
    assert score.item() == pytest.approx(reference.aggregate(matrix.tolist(), kind, rate), abs=1e-6)


def test_each_matrix_of_a_batch_has_its_own_k() -> None:
    matrices = torch.randn(3, 2, 5, 12)
    mask = torch.arange(12) < torch.tensor([[12, 3], [7, 1], [9, 10]])[..., None]
    scores = topk_chamfer(matrices, keep_rate=0.3, target_mask=mask)
    for i, j in ((i, j) for i in range(3) for j in range(2)):
        alone = matrices[i, j][:, mask[i, j]]
        assert scores[i, j].item() == pytest.approx(reference.topk_chamfer(alone.tolist(), 0.3), abs=1e-6)


@given(sizes, sizes, st.integers(0, 99))
def test_the_limits_are_chamfer_and_the_mean(queries: int, targets: int, seed: int) -> None:
    matrix = torch.randn(queries, targets, generator=torch.Generator().manual_seed(seed))
    assert topk_chamfer(matrix, keep_rate=0.0).item() == pytest.approx(matrix.amax(1).mean().item())
    assert topk_chamfer(matrix, keep_rate=1.0).item() == pytest.approx(matrix.mean().item(), abs=1e-6)


@given(sizes, sizes, rates, rates, st.integers(0, 99))
def test_a_larger_share_never_scores_higher(queries: int, targets: int, a: float, b: float, seed: int) -> None:
    matrix = torch.randn(queries, targets, generator=torch.Generator().manual_seed(seed))
    fewer, more = (topk_chamfer(matrix, keep_rate=rate).item() for rate in sorted((a, b)))
    assert more <= fewer + 1e-6


def test_the_gradient_is_that_of_the_kept_entries() -> None:
    matrix = torch.tensor([[0.9, 0.1, 0.5]], requires_grad=True)
    mask = torch.tensor([True, True, True])
    for target_mask in (None, mask):
        (gradient,) = torch.autograd.grad(topk_chamfer(matrix, keep_rate=2 / 3, target_mask=target_mask), matrix)
        assert gradient.tolist() == [[0.5, 0.0, 0.5]]


@pytest.mark.parametrize(
    ("matrix", "options", "error", "words"),
    [
        (torch.rand(5), {}, ShapeError, r"\[\.\.\., Tq, Tt\], got \[5\]"),
        (torch.ones(2, 2, dtype=torch.int64), {}, ShapeError, "floating-point"),
        ([[0.5]], {}, ShapeError, "got a list"),
        (torch.rand(0, 4), {}, DataError, "empty"),
        (torch.rand(4, 0), {}, DataError, "empty"),
        (torch.full((2, 2), torch.nan), {}, DataError, "4 NaN or infinite of 4"),
        (torch.rand(2, 3), {"target_mask": torch.zeros(3, dtype=torch.bool)}, DataError, "target_mask leaves"),
        (torch.rand(2, 3), {"query_mask": torch.zeros(2, dtype=torch.bool)}, DataError, "query_mask leaves"),
        (torch.rand(2, 3), {"query_mask": torch.ones(3, dtype=torch.bool)}, ShapeError, r"shape \[2\], got \[3\]"),
        (torch.rand(2, 3), {"target_mask": torch.ones(3)}, ShapeError, "bool tensor"),
        (torch.rand(2, 3), {"keep_rate": 1.5}, ConfigError, "a share of the targets, not a count"),
        (torch.rand(2, 3), {"keep_rate": float("nan")}, ConfigError, "0..1"),
    ],
)
def test_bad_input_is_refused(
    matrix: torch.Tensor, options: dict[str, object], error: type[HapvrError], words: str
) -> None:
    with pytest.raises(error, match=words):
        topk_chamfer(matrix, **{"keep_rate": 0.1, **options})  # type: ignore[arg-type]


def test_a_nan_outside_the_mask_is_nobodys_business() -> None:
    matrix = torch.tensor([[0.5, torch.nan], [0.25, torch.nan]])
    assert topk_chamfer(matrix, keep_rate=0.0, target_mask=torch.tensor([True, False])).item() == 0.375
