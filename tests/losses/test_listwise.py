"""Smooth-AP, FastAP, DIR and BlackBox: the rivals that optimise a ranking."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hapvr.errors import ConfigError, DataError
from hapvr.losses import BlackBoxAP, DirAP, FastAP, SmoothAP
from tests.losses import reference
from tests.losses.cases import Batch, batches, some_batch, value_and_gradient


def test_smooth_ap_worked_by_hand() -> None:
    # temperature 1 / log 3: G(1) = 3/4, G(0) = 1/2, G(-1) = 1/4. Scores 1(+) 0(+) 0(-).
    # First: 1 + 1/4 among positives, 1/4 negative: (5/4) / (6/4). Second: 1 + 3/4, 1/2: (7/4) / (9/4).
    scores, relevance = torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([[True, True, False]])
    value = SmoothAP(temperature=1 / torch.log(torch.tensor(3.0)).item())(scores, relevance)
    assert value.item() == pytest.approx(1 - (5 / 6 + 7 / 9) / 2)


def test_smooth_ap_nears_one_minus_ap_as_the_temperature_falls() -> None:
    batch = some_batch()
    value, _ = value_and_gradient(SmoothAP(temperature=1e-5), batch)
    assert value == pytest.approx(reference.average_precision_risk(*batch.lists()), abs=1e-9)


def test_fast_ap_worked_by_hand() -> None:
    # bins=2, edges 1, .5, 0; .75(+) shared half and half by 1 and .5; .5(-) at .5; 0(+) at 0.
    # 1: p = .5, P = .5, A = .5. .5: p = .5, P = 1, A = 2. 0: p = 1, P = 2, A = 3. AP = (.5 + .25 + 2/3) / 2.
    scores, relevance = torch.tensor([[0.75, 0.5, 0.0]]), torch.tensor([[True, False, True]])
    assert FastAP(bins=2)(scores, relevance).item() == pytest.approx(1 - (0.5 + 0.25 + 2 / 3) / 2)


def test_dir_worked_by_hand() -> None:
    # The same histogram as above, whose three edges are three centres: precisions 1, 1/2, 2/3; gains 1/4, 1/4, 1/2.
    scores, relevance = torch.tensor([[0.75, 0.5, 0.0]]), torch.tensor([[True, False, True]])
    assert DirAP(bins=3)(scores, relevance).item() == pytest.approx(1 - (1 / 4 + 1 / 8 + 1 / 3))


@given(batch=batches(), bins=st.integers(1, 12))
def test_dir_and_fast_ap_are_one_formula_on_a_score_matrix(batch: Batch, bins: int) -> None:
    fast, fast_gradient = value_and_gradient(FastAP(bins), batch)
    other, other_gradient = value_and_gradient(DirAP(bins + 1), batch)
    assert fast == other
    torch.testing.assert_close(fast_gradient, other_gradient)
    assert fast == pytest.approx(reference.binned_ap(*batch.lists(), bins + 1), abs=1e-9)


@pytest.mark.parametrize("loss", [FastAP(), DirAP()])
def test_bins_refuse_scores_out_of_range_and_forgive_rounding(loss: FastAP | DirAP) -> None:
    relevance = torch.tensor([[True, False]])
    within, exact = torch.tensor([[1.0005, -0.0005]]), torch.tensor([[1.0, 0.0]])
    assert loss(within, relevance).item() == loss(exact, relevance).item()
    with pytest.raises(DataError, match=r"scores must lie in \[0, 1\], got 1 outside: they run from -0.2 to 1"):
        loss(torch.tensor([[1.0, -0.2]]), relevance)
    with pytest.raises(DataError, match=r"Map similarities of \[-1, 1\] with s / 2 \+ 1 / 2"):
        loss(torch.tensor([[1.01, 0.2]]), relevance)
    outside = torch.tensor([[1.0, 0.0, -5.0]])
    value = loss(outside, torch.tensor([[True, False, False]]), ignore=torch.tensor([[False, False, True]]))
    assert value.item() == loss(exact, relevance).item()


def test_scores_at_centres_of_their_own_give_one_minus_ap() -> None:
    scores = torch.randperm(65)[:20].double()[None] / 64
    batch = Batch(scores, torch.rand(1, 20) < 0.4, torch.zeros(1, 20, dtype=torch.bool))
    value, _ = value_and_gradient(DirAP(bins=65), batch)
    assert value == pytest.approx(reference.average_precision_risk(*batch.lists()))


def test_black_box_worked_by_hand() -> None:
    # Margin 0. .9(-) .8(+) .7(-) .6(+): ranks of positives 2 and 4, precisions 1/2 and 2/4, loss 1/2.
    # g = rank+ / rank^2 / 2: 1/8 and 1/16. strength 2.4 lifts .8 by .3 to 1.1 and .6 by .15 to .75:
    # new ranks 2, 1, 4, 3; gradient (new - old) / 2.4.
    scores = torch.tensor([[0.9, 0.8, 0.7, 0.6]], requires_grad=True)
    value = BlackBoxAP(strength=2.4, margin=0)(scores, torch.tensor([[False, True, False, True]]))
    (gradient,) = torch.autograd.grad(value, scores)
    assert value.item() == pytest.approx(0.5)
    torch.testing.assert_close(gradient, torch.tensor([[1.0, -1.0, 1.0, -1.0]]) / 2.4)


def test_black_box_margin_asks_for_a_lead() -> None:
    relevance = torch.tensor([[True, False]])
    near, far = torch.tensor([[0.51, 0.5]]), torch.tensor([[0.53, 0.5]])
    assert BlackBoxAP(margin=0)(near, relevance).item() == 0
    assert BlackBoxAP(margin=0.02)(near, relevance).item() == pytest.approx(0.5)
    assert BlackBoxAP(margin=0.02)(far, relevance).item() == 0


@pytest.mark.parametrize("relevance", [[True, False], [False, True]])
def test_black_box_breaks_ties_against_the_positive(relevance: list[bool]) -> None:
    value = BlackBoxAP(margin=0)(torch.tensor([[0.5, 0.5]]), torch.tensor([relevance]))
    assert value.item() == 0.5


@given(batch=batches(), strength=st.sampled_from([0.1, 1.0, 4.0, 100.0]), margin=st.sampled_from([0.0, 0.1]))
def test_black_box_agrees_with_the_loop_in_value_and_gradient(batch: Batch, strength: float, margin: float) -> None:
    value, gradient = value_and_gradient(BlackBoxAP(strength, margin), batch)
    expected, expected_gradient = reference.black_box_ap(*batch.lists(), strength, margin)
    assert value == pytest.approx(expected, abs=1e-12)
    torch.testing.assert_close(gradient, torch.tensor(expected_gradient, dtype=torch.float64))


@given(batch=batches())
def test_black_box_lifts_positives_and_lowers_negatives(batch: Batch) -> None:
    _, gradient = value_and_gradient(BlackBoxAP(), batch)
    assert (gradient[~batch.relevance] >= 0).all()
    torch.testing.assert_close(gradient.sum(1), torch.zeros(len(gradient), dtype=torch.float64))


def test_scaling_the_black_box_loss_scales_its_gradient_and_nothing_else() -> None:
    # A gradient scaler multiplies the loss by 65536 before the backward pass: it must not change the strength.
    batch = some_batch()
    scores = batch.scores.clone().requires_grad_()
    loss = BlackBoxAP()(scores, batch.relevance, ignore=batch.ignore)
    (scaled,) = torch.autograd.grad(loss * 65536, scores)
    torch.testing.assert_close(scaled / 65536, value_and_gradient(BlackBoxAP(), batch)[1])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SmoothAP(0), "SmoothAP: temperature must be a finite number above 0, got 0"),
        (lambda: FastAP(0), "FastAP: bins must be a whole number of at least 1, got 0"),
        (lambda: FastAP(2.5), "FastAP: bins must be a whole number"),  # type: ignore[arg-type]
        (lambda: DirAP(1), "DirAP: bins must be a whole number of at least 2, got 1"),
        (lambda: DirAP(True), "DirAP: bins must be a whole number"),
        (lambda: BlackBoxAP(0), "BlackBoxAP: strength must be"),
        (lambda: BlackBoxAP(margin=-0.1), "BlackBoxAP: margin must be"),
    ],
)
def test_refuses_settings_that_mean_nothing(make: type, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
