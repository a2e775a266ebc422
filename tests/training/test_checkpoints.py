from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from hapvr.errors import StorageError
from hapvr.training.run_folder import (
    STATE,
    TENSORS,
    Checkpoint,
    find_checkpoint,
    pack_state,
    read_checkpoint,
    save_checkpoint,
    unpack_state,
)


def at(step: int) -> Checkpoint:
    return Checkpoint(step, {"a": torch.full((3,), float(step)), "b": torch.tensor(7)}, {"best": 0.5, "metrics": {}})


def latest(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    lines: list[str] = []
    return find_checkpoint(folder, report=lines.append), lines


def test_a_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    place = save_checkpoint(tmp_path, at(5))
    back = read_checkpoint(place)
    assert (back.step, back.values) == (5, {"best": 0.5, "metrics": {}})
    assert torch.equal(back.tensors["a"], torch.full((3,), 5.0))
    assert back.tensors["b"].item() == 7
    assert sorted(path.name for path in place.iterdir()) == [STATE, TENSORS]


def test_the_last_two_are_kept_and_the_best_beside_them(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, at(1), name="best")
    for step in (1, 2, 3, 1000):
        save_checkpoint(tmp_path, at(step))
    save_checkpoint(tmp_path, at(3), name="best")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best", "step-00000003", "step-00001000"]
    assert read_checkpoint(tmp_path / "best").step == 3
    checkpoint, lines = latest(tmp_path)
    assert checkpoint is not None
    assert checkpoint.step == 1000
    assert lines == []


def test_no_checkpoint_is_none(tmp_path: Path) -> None:
    assert latest(tmp_path / "nowhere") == (None, [])


def damage_bytes(place: Path) -> None:
    data = bytearray((place / TENSORS).read_bytes())
    data[-1] ^= 1
    (place / TENSORS).write_bytes(data)


def cut_short(place: Path) -> None:
    (place / TENSORS).write_bytes((place / TENSORS).read_bytes()[:40])


def lose_state(place: Path) -> None:
    (place / STATE).unlink()


def garble_state(place: Path) -> None:
    (place / STATE).write_text('{"format": "hapvr-ch')


def foreign_state(place: Path) -> None:
    (place / STATE).write_text("[1, 2]")


def binary_state(place: Path) -> None:
    (place / STATE).write_bytes(b"\xff\xfe\x00")


@pytest.mark.parametrize("damage", [damage_bytes, cut_short, lose_state, garble_state, foreign_state, binary_state])
def test_a_damaged_checkpoint_is_reported_and_the_one_before_it_used(tmp_path: Path, damage: object) -> None:
    save_checkpoint(tmp_path, at(1))
    damage(save_checkpoint(tmp_path, at(2)))  # type: ignore[operator]
    checkpoint, lines = latest(tmp_path)
    assert checkpoint is not None
    assert checkpoint.step == 1
    assert len(lines) == 1
    assert "step-00000002" in lines[0]
    assert "The checkpoint before it is used" in lines[0]


def test_starting_over_is_not_done_silently(tmp_path: Path) -> None:
    damage_bytes(save_checkpoint(tmp_path, at(1)))
    with pytest.raises(StorageError, match="all 1 checkpoints"):
        latest(tmp_path)


def test_what_an_interrupted_writer_left_is_no_checkpoint(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, at(1))
    (tmp_path / ".step-00000002.partial").mkdir()
    checkpoint, lines = latest(tmp_path)
    assert checkpoint is not None
    assert (checkpoint.step, lines) == (1, [])
    save_checkpoint(tmp_path, at(2))
    assert not (tmp_path / ".step-00000002.partial").exists()


def test_a_folder_that_cannot_be_written_is_an_error_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be written"):
        save_checkpoint(tmp_path / "file" / "checkpoints", at(1))


def trained(steps: int) -> tuple[nn.Module, torch.optim.AdamW]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.1)
    continue_(model, optimiser, steps)
    return model, optimiser


def continue_(model: nn.Module, optimiser: torch.optim.Optimizer, steps: int) -> None:
    for step in range(steps):
        optimiser.zero_grad()
        (model(torch.full((2, 3), 1.0 + step)) ** 2).sum().backward()
        optimiser.step()


def test_network_and_optimiser_go_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    model, optimiser = trained(3)
    place = save_checkpoint(tmp_path, Checkpoint(3, pack_state(model, optimiser), {}))
    other, fresh = trained(0)
    unpack_state(read_checkpoint(place).tensors, other, fresh)
    continue_(model, optimiser, 2)
    continue_(other, fresh, 2)
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)


def test_the_state_of_another_network_is_refused() -> None:
    model, optimiser = trained(1)
    other = nn.Sequential(nn.Linear(3, 4))
    with pytest.raises(StorageError, match="another network"):
        unpack_state(pack_state(model, optimiser), other, torch.optim.AdamW(other.parameters()))
    tensors = pack_state(model, optimiser)
    tensors["optimiser.7.weight.step"] = torch.tensor(1.0)
    with pytest.raises(StorageError, match=r"it optimises 7\.weight"):
        unpack_state(tensors, model, optimiser)
