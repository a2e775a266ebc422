from __future__ import annotations

import pytest
import torch

from hapvr.errors import WeightsError
from hapvr.model.backbone_changes import apply_changes, list_changes
from hapvr.model.fetching import halve


def tensors() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    shapes = {"a.weight": (32, 16, 3, 3), "b.weight": (24, 40, 1, 1), "norm.bias": (32,)}
    return halve({name: torch.randn(shape, generator=generator) for name, shape in shapes.items()})


def low_rank(rank: int, shape: torch.Size) -> torch.Tensor:
    matrix = torch.randn(shape[0], rank) @ torch.randn(rank, shape[1:].numel())
    return 0.01 * matrix.view(shape)


def test_what_did_not_change_is_not_stored() -> None:
    old = tensors()
    assert list_changes({name: value.float() for name, value in old.items()}, old) == {}


@pytest.mark.parametrize("rank", [1, 3, 7])
def test_a_change_of_low_rank_is_two_factors_and_comes_back(rank: int) -> None:
    old = tensors()
    new = {name: value.float() for name, value in old.items()}
    new["a.weight"] = new["a.weight"] + low_rank(rank, new["a.weight"].shape)
    changes = list_changes(new, old)
    assert {name: tuple(value.shape) for name, value in changes.items()} == {
        "a.weight.up": (32, rank),
        "a.weight.down": (rank, 144),
    }
    back = apply_changes(old, changes)
    change = (new["a.weight"] - old["a.weight"].float()).abs().max()
    assert (back["a.weight"].float() - new["a.weight"]).abs().max() < 2e-3 * change  # factors are float16
    assert torch.equal(back["b.weight"], old["b.weight"])


def test_a_change_of_full_rank_and_vectors_are_stored_whole() -> None:
    old = tensors()
    new = {name: value.float() + torch.randn(value.shape) for name, value in old.items()}
    changes = list_changes(new, old)
    assert set(changes) == set(old)
    assert all(torch.equal(value, apply_changes(old, changes)[name]) for name, value in halve(new).items())


def test_factors_that_fit_nothing_are_refused() -> None:
    old = tensors()
    with pytest.raises(WeightsError, match=r"the change of 'b.weight' is not whole"):
        apply_changes(old, {"b.weight.up": torch.ones(24, 2)})
    with pytest.raises(WeightsError, match=r"the change of 'b.weight' is not whole"):
        apply_changes(old, {"b.weight.up": torch.ones(24, 2), "b.weight.down": torch.ones(3, 40)})
    with pytest.raises(WeightsError, match=r"is for a matrix of 24 x 41; the backbone has 24 x 40"):
        apply_changes(old, {"b.weight.up": torch.ones(24, 2), "b.weight.down": torch.ones(2, 41)})
