"""Contrastive, triplet and circle (pair-wise), absolute and squared error (point-wise)."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hapvr.errors import ConfigError
from hapvr.losses import Circle, Contrastive, MeanAbsolute, MeanSquared, Triplet
from tests.losses import reference
from tests.losses.cases import Batch, batches, some_batch, value_and_gradient


def test_contrastive_worked_by_hand() -> None:
    # margin .5. Query 0: positives .8 and .6: (.04 + .16) / 2; negatives .9 and .4: (.16 + 0) / 2: .18.
    # Query 1: positive .5: .25; no negative left: .25. Mean .215.
    scores = torch.tensor([[0.8, 0.6, 0.9, 0.4], [0.5, 0.9, 0.9, 0.9]])
    relevance = torch.tensor([[True, True, False, False], [True, False, False, False]])
    ignore = torch.tensor([[False, False, False, False], [False, True, True, True]])
    assert Contrastive()(scores, relevance, ignore=ignore).item() == pytest.approx(0.215)


def test_triplet_worked_by_hand() -> None:
    # margin .1. Positives .7, .5; negatives .65, .3: violations .05 (.65 against .7) and .25 (.65 against .5).
    scores, relevance = torch.tensor([[0.7, 0.5, 0.65, 0.3]]), torch.tensor([[True, True, False, False]])
    assert Triplet(margin=0.1)(scores, relevance).item() == pytest.approx(0.15)


def test_triplets_are_pooled_over_queries() -> None:
    # One violation of .3 in query 0, two of .1 and .2 in query 1: their mean, not the mean of means.
    scores = torch.tensor([[0.5, 0.8, 0.0], [0.5, 0.6, 0.7]])
    relevance = torch.tensor([[True, False, False], [True, False, False]])
    assert Triplet(margin=0)(scores, relevance).item() == pytest.approx(0.2)


def test_circle_worked_by_hand() -> None:
    # margin .25, scale 4. Positive .5: weight .75, exponent -4 * .75 * (.5 - .75) = .75. Negatives .25 (exponent 0) and
    # .75: weight 1, exponent 4 * (.75 - .25) = 2. log(1 + e^.75 (1 + e^2)).
    scores, relevance = torch.tensor([[0.5, 0.25, 0.75]]), torch.tensor([[True, False, False]])
    expected = math.log(1 + math.exp(0.75) * (1 + math.exp(2)))
    assert Circle(margin=0.25, scale=4)(scores, relevance).item() == pytest.approx(expected)


def test_circle_holds_its_weights_constant() -> None:
    # One positive s, one negative t: z = scale * (b (1 - margin - s) + a (t - margin)), loss log(1 + e^z).
    # With a, b constant the gradient is -scale b sigmoid(z) and scale a sigmoid(z).
    scores, relevance = torch.tensor([[0.6, 0.5]], requires_grad=True), torch.tensor([[True, False]])
    (gradient,) = torch.autograd.grad(Circle(margin=0.25, scale=4)(scores, relevance), scores)
    b, a = 1.25 - 0.6, 0.5 + 0.25
    z = 4 * (b * (0.75 - 0.6) + a * (0.5 - 0.25))
    share = 4 / (1 + math.exp(-z))
    torch.testing.assert_close(gradient, torch.tensor([[-b * share, a * share]]))


def test_circle_survives_its_default_scale_at_the_ends() -> None:
    scores = torch.tensor([[0.0, 1.0]], requires_grad=True)
    value = Circle()(scores, torch.tensor([[True, False]]))
    (gradient,) = torch.autograd.grad(value, scores)
    assert value.item() == pytest.approx(256 * (1.25 * 0.75 + 1.25 * 0.75))
    assert torch.isfinite(gradient).all()


@given(batch=batches(), margin=st.floats(0, 0.9))
def test_contrastive_and_triplet_agree_with_the_loop_at_any_margin(batch: Batch, margin: float) -> None:
    contrastive, _ = value_and_gradient(Contrastive(margin), batch)
    assert contrastive == pytest.approx(reference.contrastive(*batch.lists(), margin), abs=1e-12)
    triplet, _ = value_and_gradient(Triplet(margin), batch)
    assert triplet == pytest.approx(reference.triplet(*batch.lists(), margin), abs=1e-12)


@given(batch=batches(), margin=st.floats(0, 0.5), scale=st.floats(0.5, 100))
def test_circle_agrees_with_the_loop_at_any_setting(batch: Batch, margin: float, scale: float) -> None:
    value, _ = value_and_gradient(Circle(margin, scale), batch)
    assert value == pytest.approx(reference.circle(*batch.lists(), margin, scale), rel=1e-7, abs=1e-9)


def test_errors_worked_by_hand() -> None:
    # Query 0: .8(+) .4(-) and one ignored: errors .2, .4. Query 1: .7(+) .1(-) .2(-): .3, .1, .2. Query 2: no positive.
    scores = torch.tensor([[0.8, 0.4, 0.9], [0.7, 0.1, 0.2], [0.9, 0.9, 0.9]])
    relevance = torch.tensor([[True, False, False], [True, False, False], [False, False, False]])
    ignore = torch.zeros(3, 3, dtype=torch.bool)
    ignore[0, 2] = True
    assert MeanAbsolute()(scores, relevance, ignore=ignore).item() == pytest.approx(1.2 / 5)
    assert MeanSquared()(scores, relevance, ignore=ignore).item() == pytest.approx(0.34 / 5)


def test_without_ignored_entries_the_errors_are_those_of_torch() -> None:
    batch = some_batch()
    counted = batch.relevance.any(1)
    scores, target = batch.scores[counted], batch.relevance[counted].double()
    assert MeanAbsolute()(batch.scores, batch.relevance).item() == pytest.approx(
        torch.nn.functional.l1_loss(scores, target).item()
    )
    assert MeanSquared()(batch.scores, batch.relevance).item() == pytest.approx(
        torch.nn.functional.mse_loss(scores, target).item()
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Contrastive(-0.1), "Contrastive: margin must be a finite number of at least 0"),
        (lambda: Contrastive(1.0), "Contrastive: margin must be below 1"),
        (lambda: Triplet(-0.1), "Triplet: margin must be"),
        (lambda: Triplet(math.nan), "Triplet: margin must be"),
        (lambda: Circle(margin=-0.1), "Circle: margin must be"),
        (lambda: Circle(scale=0), "Circle: scale must be"),
    ],
)
def test_refuses_settings_that_mean_nothing(make: type, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
