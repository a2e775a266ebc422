from __future__ import annotations

import copy
import dataclasses

import pytest
import torch
from torch import nn

import hapvr.losses
from hapvr.errors import ConfigError
from hapvr.losses import (
    SSHN,
    FrameQuadLinearAP,
    InfoNCE,
    LossInputs,
    MeanAbsolute,
    QuadLinearAP,
    RangePenalty,
    Term,
    WeightedLosses,
    build_hapvr_losses,
)
from tests.losses.cases import some_batch


def all_inputs() -> LossInputs:
    batch = some_batch()
    label = torch.rand(2, 3, 5)
    return LossInputs(
        scores=batch.scores.float().requires_grad_(),
        relevance=batch.relevance,
        ignore=batch.ignore,
        self_scores=torch.rand(4).requires_grad_(),
        frame_matrices=torch.rand(2, 3, 5).requires_grad_(),
        frame_positive=label < 0.35,
        frame_negative=label > 0.65,
        frame_query_mask=torch.tensor([[True, True, True], [True, True, False]]),
        frame_target_mask=torch.tensor([[True] * 5, [True] * 4 + [False]]),
        raw=(3 * torch.randn(2, 6)).requires_grad_(),
        raw_mask=torch.tensor([[True], [False]]),
    )


def test_the_recipe_of_the_paper_is_the_sum_of_its_weighted_terms() -> None:
    x = all_inputs()
    total, terms = build_hapvr_losses()(x)
    masks = {"query_mask": x.frame_query_mask, "target_mask": x.frame_target_mask}
    expected = {
        "frame_ap": FrameQuadLinearAP(0.05, 5.0)(x.frame_matrices, x.frame_positive, x.frame_negative, **masks),
        "video_ap": QuadLinearAP(0.05, 0.1)(x.scores, x.relevance, ignore=x.ignore),
        "infonce": InfoNCE(0.03)(x.scores, x.relevance, ignore=x.ignore),
        "sshn": SSHN()(x.scores, x.relevance, self_scores=x.self_scores, ignore=x.ignore),
        "range": RangePenalty()(x.raw, x.raw_mask),
    }
    assert {name: value.item() for name, value in terms.items()} == {n: v.item() for n, v in expected.items()}
    assert all(value.item() > 0 for value in terms.values())
    weights = {"frame_ap": 6, "video_ap": 4, "infonce": 1, "sshn": 3, "range": 1}
    assert total.item() == pytest.approx(sum(weights[name] * value.item() for name, value in expected.items()))


def test_the_total_reaches_every_input_and_the_log_holds_no_graph() -> None:
    x = all_inputs()
    values = build_hapvr_losses()(x)
    wanted = [x.scores, x.self_scores, x.frame_matrices, x.raw]
    gradients = torch.autograd.grad(values.total, [w for w in wanted if w is not None])
    assert all(gradient.any() for gradient in gradients)
    assert not any(value.requires_grad for value in values.terms.values())


def test_levels_say_which_inputs_are_read() -> None:
    assert build_hapvr_losses().levels == {"video", "self", "frame", "range"}
    assert WeightedLosses({"mae": Term(MeanAbsolute())}).levels == {"video"}


@pytest.mark.parametrize(
    ("field", "term"),
    [
        ("scores", "video_ap"),
        ("relevance", "video_ap"),
        ("self_scores", "sshn"),
        ("frame_matrices", "frame_ap"),
        ("frame_positive", "frame_ap"),
        ("frame_negative", "frame_ap"),
        ("raw", "range"),
    ],
)
def test_a_term_without_its_inputs_is_an_error(field: str, term: str) -> None:
    x = dataclasses.replace(all_inputs(), **{field: None})
    with pytest.raises(ConfigError, match=rf"the term '{term}' works at the level .* LossInputs lacks {field}"):
        build_hapvr_losses()(x)


def test_what_no_term_reads_may_be_left_out() -> None:
    batch = some_batch()
    total, terms = WeightedLosses({"mae": Term(MeanAbsolute(), weight=2.0)})(
        LossInputs(scores=batch.scores, relevance=batch.relevance)
    )
    assert total.item() == 2 * terms["mae"].item()


def test_a_weight_of_zero_logs_the_term_and_pulls_nothing() -> None:
    x = all_inputs()
    values = WeightedLosses({"mae": Term(MeanAbsolute(), weight=0.0)})(x)
    assert values.total.item() == 0
    assert values.terms["mae"].item() > 0


def test_a_recipe_can_be_extended_by_one_line_and_copied() -> None:
    recipe = WeightedLosses({**build_hapvr_losses().terms, "mae": Term(MeanAbsolute())})
    x = all_inputs()
    assert list(recipe(x).terms) == ["frame_ap", "video_ap", "infonce", "sshn", "range", "mae"]
    assert copy.deepcopy(recipe)(x).total.item() == recipe(x).total.item()
    assert not list(recipe.parameters())


def test_refuses_recipes_that_mean_nothing() -> None:
    with pytest.raises(ConfigError, match="at least one term"):
        WeightedLosses({})
    with pytest.raises(ConfigError, match=r"'mae' must be a Term\(loss, weight, level\)"):
        WeightedLosses({"mae": MeanAbsolute()})  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match=r"Term has no level 'vidio'; did you mean 'video'\?"):
        Term(MeanAbsolute(), level="vidio")
    with pytest.raises(ConfigError, match="Did you pass the class"):
        Term(MeanAbsolute)  # type: ignore[arg-type]
    for weight in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match="Term: weight must be a finite number of at least 0"):
            Term(MeanAbsolute(), weight=weight)


def test_every_export_exists_and_every_loss_is_a_module_that_makes_itself_without_settings() -> None:
    for name in hapvr.losses.__all__:
        exported = getattr(hapvr.losses, name)
        assert exported.__doc__
        if isinstance(exported, type) and issubclass(exported, nn.Module) and exported is not WeightedLosses:
            assert isinstance(exported(), nn.Module)
            assert repr(exported()).startswith(f"{name}(")
