"""What holds for every loss of a score matrix."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import hapvr.losses
from hapvr.errors import DataError, ShapeError
from hapvr.losses._base import ScoreLoss
from tests.losses.cases import LOOPS, LOSSES, Batch, batches, some_batch, value_and_gradient

ALL = pytest.mark.parametrize("name", list(LOSSES))
# The gradients of these two are not the derivatives of their values: they have tests of their own.
DIFFERENTIABLE = pytest.mark.parametrize("name", [n for n in LOSSES if n not in ("black_box_ap", "circle")])


def test_every_exported_loss_on_scores_is_in_the_cases() -> None:
    exported = [getattr(hapvr.losses, name) for name in hapvr.losses.__all__]
    on_scores = {one for one in exported if isinstance(one, type) and issubclass(one, ScoreLoss)}
    assert len(on_scores) >= 11
    assert on_scores <= {type(loss) for loss in LOSSES.values()}, "add the missing loss to tests/losses/cases.py"
    assert LOOPS.keys() == LOSSES.keys()


@ALL
@given(batch=batches())
def test_agrees_with_the_loop(name: str, batch: Batch) -> None:
    value, _ = value_and_gradient(LOSSES[name], batch)
    assert value == pytest.approx(LOOPS[name](*batch.lists()), rel=1e-9, abs=1e-12)


@ALL
def test_agrees_with_the_loop_on_a_larger_batch_in_float32(name: str) -> None:
    batch = some_batch(queries=20, candidates=40)
    value = LOSSES[name](batch.scores.float(), batch.relevance, ignore=batch.ignore)
    assert value.dtype == torch.float32
    assert value.shape == ()
    assert value.item() == pytest.approx(LOOPS[name](*batch.lists()), rel=1e-4)


@ALL
@given(batch=batches(), data=st.data())
def test_the_order_of_queries_and_clips_changes_nothing(name: str, batch: Batch, data: st.DataObject) -> None:
    queries, clips = batch.scores.shape
    rows = torch.tensor(data.draw(st.permutations(range(queries))))
    columns = torch.tensor(data.draw(st.permutations(range(clips))))
    moved = Batch(*(x[rows][:, columns] for x in (batch.scores, batch.relevance, batch.ignore)))
    assert value_and_gradient(LOSSES[name], moved)[0] == pytest.approx(value_and_gradient(LOSSES[name], batch)[0])


@ALL
def test_the_gradient_moves_with_the_clips(name: str) -> None:
    batch = some_batch()
    columns = torch.randperm(batch.scores.shape[1])
    moved = Batch(*(x[:, columns] for x in (batch.scores, batch.relevance, batch.ignore)))
    expected = value_and_gradient(LOSSES[name], batch)[1][:, columns]
    torch.testing.assert_close(value_and_gradient(LOSSES[name], moved)[1], expected)


@ALL
@given(batch=batches(queries=st.just(1)))
def test_ignoring_entries_equals_deleting_them(name: str, batch: Batch) -> None:
    kept = ~batch.ignore[0]
    short = Batch(batch.scores[:, kept], batch.relevance[:, kept], torch.zeros(1, int(kept.sum()), dtype=torch.bool))
    value, gradient = value_and_gradient(LOSSES[name], batch)
    expected, expected_gradient = value_and_gradient(LOSSES[name], short)
    assert value == pytest.approx(expected)
    torch.testing.assert_close(gradient[:, kept], expected_gradient)
    assert not gradient[:, ~kept].any()


@ALL
def test_an_ignored_clip_counts_nothing_whatever_its_label(name: str) -> None:
    batch = some_batch()
    flipped = Batch(batch.scores, batch.relevance ^ batch.ignore, batch.ignore)
    assert value_and_gradient(LOSSES[name], flipped)[0] == value_and_gradient(LOSSES[name], batch)[0]


@ALL
def test_no_ignore_is_an_ignore_of_nothing(name: str) -> None:
    batch = some_batch()
    nothing = torch.zeros_like(batch.ignore)
    plain = LOSSES[name](batch.scores, batch.relevance)
    assert plain.item() == LOSSES[name](batch.scores, batch.relevance, ignore=nothing).item()


@pytest.mark.parametrize("name", [n for n in LOSSES if n != "sshn"])
@given(batch=batches())
def test_a_query_without_positives_changes_nothing(name: str, batch: Batch) -> None:
    row = torch.full((1, batch.scores.shape[1]), 0.7, dtype=torch.float64)
    longer = Batch(
        torch.cat([row, batch.scores]),
        torch.cat([row < 0, batch.relevance]),
        torch.cat([row < 0, batch.ignore]),
    )
    value, gradient = value_and_gradient(LOSSES[name], longer)
    expected, expected_gradient = value_and_gradient(LOSSES[name], batch)
    assert value == pytest.approx(expected)
    torch.testing.assert_close(gradient[1:], expected_gradient)
    assert not gradient[0].any()


@DIFFERENTIABLE
def test_the_gradient_is_the_derivative(name: str) -> None:
    batch = some_batch(queries=3, candidates=6)
    scores = batch.scores.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda s: LOSSES[name](s, batch.relevance, ignore=batch.ignore), scores)


@ALL
def test_a_square_matrix_is_like_any_other(name: str) -> None:
    # The diagonal is not left out unless `ignore` says so.
    scores = torch.tensor([[0.9, 0.3], [0.4, 0.8]], dtype=torch.float64)
    relevance = torch.eye(2, dtype=torch.bool)
    value = LOSSES[name](scores, relevance).item()
    assert value == pytest.approx(LOOPS[name](scores.tolist(), relevance.tolist(), [[False] * 2] * 2))


@ALL
def test_half_precision_scores_are_raised_to_float32(name: str) -> None:
    batch = some_batch()
    half = batch.scores.bfloat16()
    expected = LOSSES[name](half.float(), batch.relevance, ignore=batch.ignore)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = LOSSES[name](half, batch.relevance, ignore=batch.ignore)
        plain = LOSSES[name](half.float(), batch.relevance, ignore=batch.ignore)
    assert value.dtype == torch.float32
    assert value.item() == plain.item() == expected.item()


def test_a_loss_that_multiplies_matrices_is_kept_out_of_autocast() -> None:
    class Product(ScoreLoss):
        def _compute(self, scores: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
            return (scores @ scores.T * positive.any() * negative.any()).sum()

    batch = some_batch(3, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = Product()(batch.scores.float(), batch.relevance)
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(Product()(batch.scores, batch.relevance).item(), rel=1e-6)


def degenerate() -> dict[str, Batch]:
    def filled(value: float, queries: int, clips: int, *, relevant: bool, ignored: bool = False) -> Batch:
        scores = torch.full((queries, clips), value)
        return Batch(scores, torch.full((queries, clips), relevant), torch.full((queries, clips), ignored))

    tied = filled(0.5, 2, 4, relevant=False)
    tied.relevance[:, :2] = True
    worst = Batch(torch.tensor([[0.0, 1.0]]), torch.tensor([[True, False]]), torch.zeros(1, 2, dtype=torch.bool))
    return {
        "no positives": filled(0.3, 3, 5, relevant=False),
        "all positive": filled(0.3, 3, 5, relevant=True),
        "all ignored": filled(0.3, 3, 5, relevant=True, ignored=True),
        "one positive": filled(0.3, 1, 1, relevant=True),
        "one negative": filled(0.3, 1, 1, relevant=False),
        "all tied": tied,
        "all at 1": filled(1.0, 2, 3, relevant=False),
        "all at 0": filled(0.0, 2, 3, relevant=True),
        "as wrong as can be": worst,
        "no queries": filled(0.3, 0, 4, relevant=True),
        "no clips": filled(0.3, 3, 0, relevant=True),
    }


@ALL
@pytest.mark.parametrize("case", list(degenerate()))
def test_degenerate_batches_have_a_finite_loss_and_gradient(name: str, case: str) -> None:
    batch = degenerate()[case]
    value, gradient = value_and_gradient(LOSSES[name], batch)
    assert math.isfinite(value)
    assert gradient.shape == batch.scores.shape
    assert torch.isfinite(gradient).all()
    assert value == pytest.approx(LOOPS[name](*batch.lists()), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("name", [n for n in LOSSES if n != "sshn"])
@pytest.mark.parametrize("case", ["no positives", "all ignored", "one negative", "no queries", "no clips"])
def test_without_positives_the_loss_is_zero_and_pulls_nothing(name: str, case: str) -> None:
    value, gradient = value_and_gradient(LOSSES[name], degenerate()[case])
    assert value == 0
    assert not gradient.any()


@pytest.mark.parametrize(
    "name",
    ["quad_linear_ap", "infonce", "smooth_ap", "fast_ap", "dir_ap", "black_box_ap", "triplet", "circle"],
)
def test_a_query_without_negatives_has_nothing_to_rank(name: str) -> None:
    value, gradient = value_and_gradient(LOSSES[name], degenerate()["all positive"])
    assert value == pytest.approx(0, abs=1e-6)
    assert gradient.abs().max().item() == pytest.approx(0, abs=1e-6)


@ALL
def test_refuses_what_it_cannot_use(name: str) -> None:
    loss, batch = LOSSES[name], some_batch()
    scores, relevance = batch.scores, batch.relevance
    with pytest.raises(ShapeError, match=r"scores must be a tensor \[Q, N\], got \[9\]"):
        loss(scores[0], relevance[0])
    with pytest.raises(ShapeError, match=r"scores must be floating point, got torch.int64"):
        loss(scores.long(), relevance)
    with pytest.raises(ShapeError, match=r"relevance must be a bool tensor.*got torch.float64"):
        loss(scores, relevance.double())
    with pytest.raises(ShapeError, match=r"relevance must be a bool tensor.*got a list"):
        loss(scores, relevance.tolist())
    with pytest.raises(ShapeError, match=r"relevance must have the shape \[4, 9\] of the scores, got \[4, 8\]"):
        loss(scores, relevance[:, :8])
    with pytest.raises(ShapeError, match="relevance is on meta"):
        loss(scores, relevance.to("meta"))
    with pytest.raises(ShapeError, match=r"ignore must be a bool tensor.*got torch.int64"):
        loss(scores, relevance, ignore=relevance.long())
    with pytest.raises(ShapeError, match=r"ignore must have the shape"):
        loss(scores, relevance, ignore=relevance[:1])
    for bad in (math.nan, math.inf, -math.inf):
        broken = scores.clone()
        broken[1, 2] = bad
        with pytest.raises(DataError, match="scores holds 1 NaN or infinite of 36"):
            loss(broken, relevance)
