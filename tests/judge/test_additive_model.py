"""The additive model: by hand, against a plain loop, and laws of its fit."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from hapvr.errors import ConfigError, DataError, ShapeError
from hapvr.judge.additive_model import AdditiveModel, fit_additive_model

MODEL = AdditiveModel(("a", "b"), ((0.0, 1.0, 3.0), (-1.0, 1.0)), ((0.0, 2.0, 2.5), (0.0, 4.0)), bias=-1.0)


def evaluate_slowly(model: AdditiveModel, row: list[float]) -> float:
    total = model.bias
    for value, knots, heights in zip(row, model.knots, model.values, strict=True):
        if math.isnan(value):
            continue
        value = min(max(value, knots[0]), knots[-1])
        for place in range(len(knots) - 1):
            if knots[place] <= value <= knots[place + 1]:
                share = (value - knots[place]) / (knots[place + 1] - knots[place])
                total += heights[place] + share * (heights[place + 1] - heights[place])
                break
    return total


def draw(seed: int, count: int = 600) -> tuple[np.ndarray, np.ndarray]:
    """Pairs whose first evidence speaks for a match; the second is noise."""
    rng = np.random.default_rng(seed)
    labels = rng.random(count) < 0.3
    return np.stack([labels + rng.normal(0, 0.5, count), rng.normal(0, 1, count)], 1), labels


def test_log_odds_are_those_computed_by_hand() -> None:
    # -1 + 2 (at the knot 1) + 2 (halfway); -1 + 2.25 + 4; beyond the knots nothing is added.
    assert MODEL.log_odds([[1.0, 0.0], [2.0, 1.0], [9.0, -9.0]]).tolist() == [3.0, 5.25, 1.5]


def test_log_odds_agree_with_a_plain_loop() -> None:
    rng = np.random.default_rng(0)
    table = rng.normal(0.5, 2, (50, 2))
    table[::7, 1] = math.nan
    assert MODEL.log_odds(table) == pytest.approx([evaluate_slowly(MODEL, row) for row in table.tolist()])


def test_evidence_that_is_not_known_counts_nothing() -> None:
    assert MODEL.log_odds([[math.nan, math.nan]]).tolist() == [-1.0]


def test_more_evidence_never_lowers_the_odds() -> None:
    rng = np.random.default_rng(0)
    table, labels = draw(1)
    model = fit_additive_model(("for", "noise"), table, labels)
    low = rng.normal(0, 1, (200, 2))
    assert (model.log_odds(low + rng.random((200, 2))) >= model.log_odds(low) - 1e-12).all()


def test_the_fit_reaches_the_least_loss() -> None:
    """No small change of a value or of the bias that keeps the functions rising makes the loss smaller."""
    table, labels = draw(2)
    model = fit_additive_model(("for", "noise"), table, labels, ridge=0.0)

    def loss(one: AdditiveModel) -> float:
        odds = one.log_odds(table)
        each = np.logaddexp(0, np.where(labels, -odds, odds))
        return float(each[labels].mean() + each[~labels].mean()) / 2

    least = loss(model)
    for amount in (-0.02, 0.02):
        assert loss(AdditiveModel(model.names, model.knots, model.values, model.bias + amount)) > least
        for column, heights in enumerate(model.values):
            for place in range(1, len(heights)):
                changed = [*heights[:place], *(height + amount for height in heights[place:])]
                if min(np.diff(changed)) >= 0:
                    values = tuple(tuple(changed) if i == column else old for i, old in enumerate(model.values))
                    assert loss(AdditiveModel(model.names, model.knots, values, model.bias)) > least - 1e-6


def test_odds_are_calibrated_at_equal_weights_of_the_classes() -> None:
    table, labels = draw(3, 4000)
    model = fit_additive_model(("for", "noise"), table, labels)
    fresh, truth = draw(4, 20_000)
    chance = 1 / (1 + np.exp(-model.log_odds(fresh)))
    for low, high in ((0.05, 0.2), (0.4, 0.6), (0.8, 0.95)):
        there = (chance >= low) & (chance < high)
        weight = np.where(truth, 0.5 / truth.sum(), 0.5 / (~truth).sum())[there]
        assert (weight * truth[there]).sum() / weight.sum() == pytest.approx(chance[there].mean(), abs=0.06)


def test_what_says_nothing_counts_for_little() -> None:
    table, labels = draw(5, 4000)
    model = fit_additive_model(("for", "noise"), table, labels)
    assert model.values[0][-1] > 4
    assert model.values[1][-1] < 1


def test_weights_stand_for_copies_of_rows() -> None:
    table, labels = draw(6, 120)
    twice = np.repeat(np.arange(120), np.where(np.arange(120) % 3 == 0, 2, 1))
    weights = np.where(np.arange(120) % 3 == 0, 2.0, 1.0)
    one = fit_additive_model(("for", "noise"), table, labels, weights=weights)
    other = fit_additive_model(("for", "noise"), table[twice], labels[twice])
    assert one.log_odds(table) == pytest.approx(other.log_odds(table), abs=0.05)


def test_a_model_survives_json() -> None:
    assert AdditiveModel.from_json(json.loads(json.dumps(MODEL.to_json()))) == MODEL


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="must not fall"):
        AdditiveModel(("a",), ((0.0, 1.0),), ((1.0, 0.0),), 0.0)
    with pytest.raises(ShapeError, match=r"\[N, 2\]"):
        MODEL.log_odds([[1.0]])
    with pytest.raises(DataError, match="match and pairs that do not"):
        fit_additive_model(("a",), [[1.0], [2.0]], [True, True])
