"""InfoNCE, SSHN and the range penalty: the base of the recipe."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hapvr.errors import ConfigError, DataError, ShapeError
from hapvr.losses import SSHN, InfoNCE, RangePenalty
from tests.losses import reference
from tests.losses.cases import Batch, batches, some_batch


def test_infonce_worked_by_hand() -> None:
    # temperature 1 / log 2 makes e(s) = 2^s. Positives 1 and 2, negatives 0 and 1 (scores may lie anywhere here):
    # 2/(2+1+2) and 4/(4+1+2); the other positive is in neither denominator.
    scores = torch.tensor([[1.0, 2.0, 0.0, 1.0]])
    relevance = torch.tensor([[True, True, False, False]])
    value = InfoNCE(temperature=1 / math.log(2))(scores, relevance)
    assert value.item() == pytest.approx((math.log(5 / 2) + math.log(7 / 4)) / 2)


def test_infonce_survives_scores_that_overflow_the_exponential() -> None:
    scores = torch.tensor([[0.0, 1.0]], requires_grad=True)
    value = InfoNCE(temperature=0.001)(scores, torch.tensor([[True, False]]))
    (gradient,) = torch.autograd.grad(value, scores)
    assert value.item() == pytest.approx(1000)
    torch.testing.assert_close(gradient, torch.tensor([[-1000.0, 1000.0]]))


def test_the_temperature_of_the_paper_is_the_default() -> None:
    assert repr(InfoNCE()) == "InfoNCE(temperature=0.03)"


@pytest.mark.parametrize("temperature", [0, -1, math.nan, "warm"])
def test_infonce_refuses_a_temperature_that_is_none(temperature: float) -> None:
    with pytest.raises(ConfigError, match="InfoNCE: temperature must be a finite number above 0"):
        InfoNCE(temperature)


def test_sshn_worked_by_hand() -> None:
    # Query 0: self .5, hardest negative .75 of (.75, .1); its positive .9 has no part. -log .5 - log .25 = 3 log 2.
    # Query 1: self .25, the only candidate ignored, so the first term alone: 2 log 2. Mean 2.5 log 2.
    scores = torch.tensor([[0.9, 0.75, 0.1], [0.6, 0.6, 0.6]])
    relevance = torch.tensor([[True, False, False], [False, False, False]])
    ignore = torch.tensor([[False, False, False], [True, True, True]])
    value = SSHN()(scores, relevance, self_scores=torch.tensor([0.5, 0.25]), ignore=ignore)
    assert value.item() == pytest.approx(2.5 * math.log(2))


def test_sshn_clamps_both_terms() -> None:
    scores, own = torch.tensor([[1.0]], requires_grad=True), torch.tensor([0.0], requires_grad=True)
    value = SSHN()(scores, torch.tensor([[False]]), self_scores=own)
    assert value.item() == pytest.approx(-2 * math.log(1e-3), rel=1e-5)
    assert all(not g.any() for g in torch.autograd.grad(value, (scores, own)))


def test_sshn_moves_self_scores_and_the_hardest_negative_alone() -> None:
    scores = torch.tensor([[0.9, 0.75, 0.1]], requires_grad=True)
    own = torch.tensor([0.5], requires_grad=True)
    value = SSHN()(scores, torch.tensor([[True, False, False]]), self_scores=own)
    on_scores, on_own = torch.autograd.grad(value, (scores, own))
    torch.testing.assert_close(on_scores, torch.tensor([[0.0, 4.0, 0.0]]))  # 1 / (1 - .75)
    torch.testing.assert_close(on_own, torch.tensor([-2.0]))


@given(batch=batches(), clamp=st.floats(1e-4, 0.5), data=st.data())
def test_sshn_agrees_with_the_loop(batch: Batch, clamp: float, data: st.DataObject) -> None:
    queries = len(batch.scores)
    own = data.draw(st.lists(st.floats(0, 1), min_size=queries, max_size=queries))
    self_scores = torch.tensor(own, dtype=torch.float64)
    value = SSHN(clamp)(batch.scores, batch.relevance, self_scores=self_scores, ignore=batch.ignore)
    assert value.item() == pytest.approx(reference.sshn(*batch.lists(), own, clamp), abs=1e-12)


def test_sshn_raises_half_precision_self_scores() -> None:
    batch = some_batch()
    own = torch.rand(4).bfloat16()
    value = SSHN()(batch.scores.bfloat16(), batch.relevance, self_scores=own)
    expected = SSHN()(batch.scores.bfloat16().float(), batch.relevance, self_scores=own.float())
    assert value.dtype == torch.float32
    assert value.item() == expected.item()


def test_sshn_refuses_self_scores_that_do_not_fit() -> None:
    batch = some_batch()
    with pytest.raises(ShapeError, match=r"one score for each of the 4 queries, got \[3\]"):
        SSHN()(batch.scores, batch.relevance, self_scores=torch.rand(3))
    with pytest.raises(ShapeError, match=r"self_scores must be a tensor \[Q\], got \[4, 4\]"):
        SSHN()(batch.scores, batch.relevance, self_scores=torch.rand(4, 4))
    with pytest.raises(ShapeError, match="self_scores is on meta"):
        SSHN()(batch.scores, batch.relevance, self_scores=torch.rand(4, device="meta"))
    with pytest.raises(DataError, match="self_scores holds 4 NaN"):
        SSHN()(batch.scores, batch.relevance, self_scores=torch.full((4,), math.nan))


@pytest.mark.parametrize("clamp", [0, 1, 1.5, -1e-3])
def test_sshn_refuses_a_clamp_that_leaves_no_range(clamp: float) -> None:
    with pytest.raises(ConfigError, match="SSHN: clamp must be"):
        SSHN(clamp)


@given(cells=st.lists(st.tuples(st.floats(-3, 3), st.booleans()), max_size=12))
def test_the_range_penalty_agrees_with_the_loop(cells: list[tuple[float, bool]]) -> None:
    raw, mask = [x for x, _ in cells], [real for _, real in cells]
    value = RangePenalty()(torch.tensor(raw, dtype=torch.float64), torch.tensor(mask, dtype=torch.bool))
    assert value.item() == pytest.approx(reference.range_penalty(raw, mask), abs=1e-12)


def test_the_range_penalty_broadcasts_its_mask_and_never_reads_what_it_hides() -> None:
    # [2, 1, 2, 3] raw cells, the last column of both matrices hidden; 2 - 1 in each of 2 * 2 rows, and -1.5 by .5 once.
    raw = torch.zeros(2, 1, 2, 3)
    raw[..., 0], raw[..., 2] = 2.0, math.nan
    raw[0, 0, 0, 1] = -1.5
    raw.requires_grad_()
    value = RangePenalty()(raw, torch.tensor([True, True, False]))
    (gradient,) = torch.autograd.grad(value, raw)
    assert value.item() == pytest.approx(4.5)
    assert gradient[..., 0].eq(1).all()
    assert gradient[0, 0, 0, 1] == -1
    assert not gradient[..., 2].any()


def test_the_range_penalty_raises_half_precision_and_sums_nothing_to_zero() -> None:
    half = torch.full((1000,), 1.5, dtype=torch.bfloat16)
    assert RangePenalty()(half).dtype == torch.float32
    assert RangePenalty()(half).item() == 500
    assert RangePenalty()(torch.zeros(0, 4)).item() == 0
    assert torch.autograd.gradcheck(RangePenalty(), torch.tensor([1.5, -2.0, 0.3]).double().requires_grad_())


def test_the_range_penalty_refuses_what_it_cannot_use() -> None:
    raw = torch.zeros(2, 3)
    with pytest.raises(ShapeError, match=r"raw must be a floating-point tensor, got torch.int64"):
        RangePenalty()(raw.long())
    with pytest.raises(ShapeError, match=r"mask must be a bool tensor, True = real; got torch.float32"):
        RangePenalty()(raw, raw)
    for shape in [(3, 2), (1, 2, 3), (2,)]:
        with pytest.raises(ShapeError, match="cannot be broadcast to raw's shape"):
            RangePenalty()(raw, torch.ones(shape, dtype=torch.bool))
    with pytest.raises(DataError, match="raw holds 6 NaN"):
        RangePenalty()(raw * math.nan)
