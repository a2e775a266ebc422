from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hapvr.errors import ConfigError, ShapeError
from hapvr.losses import QuadLinearAP, SmoothAP, quad_linear, quad_linear_ap
from tests.losses import reference
from tests.losses.cases import Batch, batches, some_batch, value_and_gradient

DELTAS = st.floats(0.01, 2)
LEADS = st.floats(-3, 3)


def surrogate(x: float, delta: float) -> float:
    return float(quad_linear(torch.tensor(x, dtype=torch.float64), delta))


def slope(x: float, delta: float) -> float:
    at = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(quad_linear(at, delta), at)
    return float(gradient)


@given(x=LEADS, delta=DELTAS)
def test_the_surrogate_agrees_with_its_three_cases(x: float, delta: float) -> None:
    assert surrogate(x, delta) == pytest.approx(reference.surrogate(x, delta), abs=1e-12)


@given(x=LEADS, delta=DELTAS)
def test_the_surrogate_bounds_the_step_from_above(x: float, delta: float) -> None:
    assert surrogate(x, delta) >= (1 if x > 0 else 0)


@given(x=LEADS, y=LEADS, t=st.floats(0, 1), delta=DELTAS)
def test_the_surrogate_is_convex(x: float, y: float, t: float, delta: float) -> None:
    chord = t * surrogate(x, delta) + (1 - t) * surrogate(y, delta)
    assert surrogate(t * x + (1 - t) * y, delta) <= chord + 1e-9


@given(x=LEADS, y=LEADS, delta=DELTAS)
def test_the_surrogate_and_its_slope_never_decrease(x: float, y: float, delta: float) -> None:
    low, high = min(x, y), max(x, y)
    assert surrogate(low, delta) <= surrogate(high, delta)
    assert 0 <= slope(low, delta) <= slope(high, delta) + 1e-9


@given(x=st.floats(0, 3), delta=DELTAS)
def test_the_slope_is_two_over_delta_on_every_wrongly_ranked_pair(x: float, delta: float) -> None:
    assert slope(x, delta) == pytest.approx(2 / delta)


@pytest.mark.parametrize("delta", [0.05, 1.0])
@pytest.mark.parametrize("joint", [-1.0, 0.0])  # in units of delta
def test_the_surrogate_has_no_jump_and_no_corner_at_its_joints(joint: float, delta: float) -> None:
    x, step = joint * delta, 1e-9 * delta
    assert surrogate(x - step, delta) == pytest.approx(surrogate(x + step, delta), abs=1e-7)
    assert slope(x - step, delta) * delta == pytest.approx(slope(x + step, delta) * delta, abs=1e-7)
    assert slope(x, delta) * delta == pytest.approx(slope(x + step, delta) * delta, abs=1e-7)


def test_the_surrogate_keeps_shape_and_raises_half_precision() -> None:
    x = torch.zeros(2, 3, 4, dtype=torch.bfloat16)
    assert quad_linear(x, 0.1).shape == (2, 3, 4)
    assert quad_linear(x, 0.1).dtype == torch.float32


def test_a_case_worked_by_hand() -> None:
    # delta = .1, rho = .5; scores .5(+) .45(-) .4(+) .6(-), and a query without positives.
    # .5: R-(-.05) = (1 - .5)^2 = .25, R-(.1) = 3, sum 3.25; no positive above: 3.25 / (1 + 3.25).
    # .4: R-(.05) = 1 + 1 = 2, R-(.2) = 1 + 4 = 5, sum 7; one positive above: 7 / (1.5 + 7).
    scores = torch.tensor([[0.5, 0.45, 0.4, 0.6], [0.1, 0.2, 0.3, 0.4]])
    relevance = torch.tensor([[True, False, True, False], [False, False, False, False]])
    value = QuadLinearAP(delta=0.1, rho=0.5)(scores, relevance)
    assert value.item() == pytest.approx((3.25 / 4.25 + 7 / 8.5) / 2)


@given(batch=batches(), delta=DELTAS, rho=st.floats(0, 6))
def test_agrees_with_the_loop_at_any_setting(batch: Batch, delta: float, rho: float) -> None:
    value, _ = value_and_gradient(QuadLinearAP(delta, rho), batch)
    assert value == pytest.approx(reference.quad_linear_ap(*batch.lists(), delta, rho), abs=1e-12)


@given(batch=batches(), delta=DELTAS, rho=st.floats(0, 1))
def test_up_to_rho_one_it_is_an_upper_bound_of_one_minus_ap(batch: Batch, delta: float, rho: float) -> None:
    value, _ = value_and_gradient(QuadLinearAP(delta, rho), batch)
    assert value >= reference.average_precision_risk(*batch.lists()) - 1e-12


def test_beyond_rho_one_it_is_no_upper_bound() -> None:
    # The second positive has one positive and one negative above it: AP = (1 + 2/3) / 2, 1 - AP = 1/6.
    # The negative leads by .001 = delta/50: R- = 1.04. With rho = 5 the positive above counts 5: 1.04 / 7.04 / 2.
    batch = Batch(
        torch.tensor([[0.9, 0.501, 0.5]], dtype=torch.float64),
        torch.tensor([[True, False, True]]),
        torch.zeros(1, 3, dtype=torch.bool),
    )
    risk = reference.average_precision_risk(*batch.lists())
    assert risk == pytest.approx(1 / 6)
    assert value_and_gradient(QuadLinearAP(0.05, 1.0), batch)[0] > risk
    assert value_and_gradient(QuadLinearAP(0.05, 5.0), batch)[0] == pytest.approx(1.04 / 7.04 / 2)
    assert value_and_gradient(QuadLinearAP(0.05, 5.0), batch)[0] < risk / 2


def test_is_zero_when_every_positive_leads_by_more_than_delta() -> None:
    scores = torch.tensor([[0.9, 0.8, 0.74, 0.1]], requires_grad=True)
    loss = QuadLinearAP(delta=0.05)(scores, torch.tensor([[True, True, False, False]]))
    (gradient,) = torch.autograd.grad(loss, scores)
    assert loss.item() == 0
    assert not gradient.any()


def test_pulls_on_every_wrongly_ranked_negative_where_smooth_ap_has_let_go() -> None:
    batch = Batch(
        torch.tensor([[0.1, 0.9, 0.5, 0.4]], dtype=torch.float64),
        torch.tensor([[True, False, False, False]]),
        torch.zeros(1, 4, dtype=torch.bool),
    )
    _, pull = value_and_gradient(QuadLinearAP(), batch)
    _, smooth = value_and_gradient(SmoothAP(0.01), batch)
    # wrong = 3 + (2 / .05) * (.8 + .4 + .3) = 63; each negative: (2 / .05) / (1 + 63)^2.
    torch.testing.assert_close(pull[0, 1:], torch.full((3,), 40 / 64**2, dtype=torch.float64))
    assert pull[0, 0].item() == pytest.approx(-3 * 40 / 64**2)
    assert smooth.abs().max() < 1e-10


def test_counting_positives_passes_no_gradient() -> None:
    # The upper positive is far above the negative: it weighs the lower one's term and is not moved by it.
    _, gradient = value_and_gradient(
        QuadLinearAP(delta=0.05, rho=1.0),
        Batch(
            torch.tensor([[0.9, 0.5, 0.45]], dtype=torch.float64),
            torch.tensor([[True, False, True]]),
            torch.zeros(1, 3, dtype=torch.bool),
        ),
    )
    assert gradient[0, 0] == 0
    assert gradient[0, 1] == -gradient[0, 2] != 0


@pytest.mark.parametrize("cells", [1, 20, 50])
def test_computing_in_parts_changes_neither_value_nor_gradient(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = some_batch(queries=5, candidates=9)
    whole, whole_gradient = value_and_gradient(QuadLinearAP(), batch)
    monkeypatch.setattr(quad_linear_ap, "_CELLS", cells)
    parts, parts_gradient = value_and_gradient(QuadLinearAP(), batch)
    assert parts == pytest.approx(whole)
    torch.testing.assert_close(parts_gradient, whole_gradient)


def test_settings_of_the_paper_are_the_defaults() -> None:
    assert repr(QuadLinearAP()) == "QuadLinearAP(delta=0.05, rho=0.1)"


@pytest.mark.parametrize("delta", [0, -0.1, float("nan"), float("inf"), "0.05", True, None])
def test_refuses_a_delta_that_is_no_width(delta: float) -> None:
    with pytest.raises(ConfigError, match="QuadLinearAP: delta must be a finite number above 0"):
        QuadLinearAP(delta=delta)
    with pytest.raises(ConfigError, match="delta must be"):
        quad_linear(torch.zeros(1), delta)


@pytest.mark.parametrize("rho", [-0.1, float("nan"), float("inf")])
def test_refuses_a_rho_below_zero(rho: float) -> None:
    with pytest.raises(ConfigError, match="QuadLinearAP: rho must be a finite number of at least 0"):
        QuadLinearAP(rho=rho)


def test_the_surrogate_refuses_whole_numbers() -> None:
    with pytest.raises(ShapeError, match=r"x must be a floating-point tensor, got torch.int64"):
        quad_linear(torch.arange(3), 0.1)
    with pytest.raises(ShapeError, match=r"got a float"):
        quad_linear(0.5, 0.1)  # type: ignore[arg-type]
