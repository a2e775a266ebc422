"""The tiny recipe on drawn films: what it learns holds for films it has not seen, and comes from the labels."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
import torch

from hapvr.model import load
from hapvr.synthetic.films import draw_scene
from hapvr.training import (
    Bank,
    ClipSet,
    TrainConfig,
    ValidationSet,
    build_encoder,
    build_network,
    load_config,
    make_bank,
    train_from_bank,
)
from hapvr.training.config import BankConfig

SEEDS = int(os.environ.get("HAPVR_TEST_SEEDS", "1"))
FILMS = 24
CPU = torch.device("cpu")


def films(first: int) -> ClipSet:
    drawn = [draw_scene(first + n, seconds=8, fps=2, size=(128, 160)).images for n in range(FILMS)]
    return ClipSet([torch.from_numpy(images) for images in drawn], [str(first + n) for n in range(FILMS)])


def settings(seed: int) -> TrainConfig:
    return load_config("tiny", [f"run.seed={seed}", "run.device=cpu"])


@pytest.fixture(scope="module")
def bank() -> Bank:
    config = settings(0)
    encoder = build_encoder(config, load(config.model.base), CPU)
    return make_bank(films(1000), encoder, config)


@pytest.fixture(scope="module")
def unseen() -> ValidationSet:
    """Two strong views of each of other films are looked for among the films' weak views."""
    config = settings(0)
    encoder = build_encoder(config, load(config.model.base), CPU)
    config = replace(settings(1), views=replace(config.views, mixup=0.0), bank=BankConfig(weak=1, strong=2))
    held = make_bank(films(5000), encoder, config)
    queries = [view.float() for film in held.strong.regions for view in film]
    relevant = torch.eye(FILMS, dtype=torch.bool).repeat_interleave(2, 0)
    return ValidationSet(queries, [film[0].float() for film in held.weak.regions], relevant)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_training_finds_unseen_films_better_than_before_and_than_from_shuffled_labels(
    bank: Bank, unseen: ValidationSet, seed: int
) -> None:
    before = unseen.measure(build_network(settings(seed), None))
    after = unseen.measure(train_from_bank(bank, settings(seed)))
    assert after["mAP"] > before["mAP"] + 0.03
    assert after["uAP"] > before["uAP"]
    order = torch.randperm(FILMS, generator=torch.Generator().manual_seed(0))
    shuffled = Bank(bank.weak, replace(bank.strong, contents=bank.strong.contents[order]))
    assert after["mAP"] > unseen.measure(train_from_bank(shuffled, settings(seed)))["mAP"] + 0.05
