"""The loop: exact resuming, processes, broken losses, what a run leaves behind."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.multiprocessing.spawn import spawn

from hapvr.errors import ConfigError, DataError, StorageError
from hapvr.features import Features, FeatureWriter
from hapvr.similarity import SimilarityConfig, VideoSimilarity
from hapvr.training import (
    BankSource,
    Batch,
    TrainConfig,
    ValidationSet,
    build_network,
    fit,
    load_validation_set,
    train_from_bank,
)
from hapvr.training.config import DataConfig, ValidationConfig
from hapvr.training.run_folder import RunFolder, read_checkpoint
from hapvr.training.sources import Timed
from hapvr.training.trainer import Trainer
from tests.training.toy import DIMS, toy_bank, toy_config

CPU = torch.device("cpu")


def weights(model: VideoSimilarity) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def source(config: TrainConfig) -> BankSource:
    return BankSource(toy_bank(), config.data, seed=config.run.seed, device=CPU)


def benchmark() -> ValidationSet:
    bank = toy_bank(seed=9)
    queries = [views[0].float() for views in bank.strong.regions]
    return ValidationSet(queries, [views[0].float() for views in bank.weak.regions], torch.eye(8, dtype=torch.bool))


def run(config: TrainConfig, *, stop: int | None = None, data: Any = None) -> tuple[VideoSimilarity, list[str]]:
    """Train in the run folder of the settings; `stop` interrupts it after that many steps."""
    lines: list[str] = []

    def report(line: str) -> None:
        lines.append(line)
        if stop is not None and line.startswith(f"step {stop}/"):
            raise KeyboardInterrupt

    folder = RunFolder(config, report=lines.append)
    model = build_network(config, None)
    with contextlib.suppress(KeyboardInterrupt):
        fit(model, data or source(config), config, run=folder, benchmark=benchmark(), report=report)
    return model, lines


def settings(folder: Path, *words: str) -> TrainConfig:
    return toy_config(f"run.folder={folder}", "validation.every=2", "run.log_every=1", *words)


@pytest.mark.parametrize("stop", [1, 3, 5])
def test_an_interrupted_run_equals_an_uninterrupted_one_bit_for_bit(tmp_path: Path, stop: int) -> None:
    whole, _ = run(settings(tmp_path / "whole"))
    run(settings(tmp_path / "parts"), stop=stop)
    parts, lines = run(settings(tmp_path / "parts"))
    assert torch.equal(weights(parts), weights(whole))
    assert (f"continued after step {stop // 2 * 2}" in lines) == (stop > 1)
    logs = [(tmp_path / name / "metrics.jsonl").read_text().splitlines() for name in ("whole", "parts")]
    timeless = [[{k: v for k, v in json.loads(line).items() if not k.endswith("_s")} for line in log] for log in logs]
    assert timeless[0] == timeless[1]
    states = [read_checkpoint(tmp_path / name / "checkpoints" / "step-00000006") for name in ("whole", "parts")]
    assert states[0].tensors.keys() == states[1].tensors.keys()
    assert all(torch.equal(states[0].tensors[name], states[1].tensors[name]) for name in states[0].tensors)


def test_a_damaged_checkpoint_costs_its_steps_and_nothing_else(tmp_path: Path) -> None:
    whole, _ = run(settings(tmp_path / "whole"))
    run(settings(tmp_path / "parts"), stop=5)
    tensors = tmp_path / "parts" / "checkpoints" / "step-00000004" / "state.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-8])
    parts, lines = run(settings(tmp_path / "parts"))
    assert any("is damaged" in line for line in lines)
    assert "continued after step 2" in lines
    assert torch.equal(weights(parts), weights(whole))


def test_a_finished_run_is_not_run_again(tmp_path: Path) -> None:
    whole, _ = run(settings(tmp_path / "run"))
    again, lines = run(settings(tmp_path / "run"))
    assert torch.equal(weights(again), weights(whole))
    assert not [line for line in lines if line.startswith("step")]


def test_other_settings_in_the_same_folder_are_refused(tmp_path: Path) -> None:
    run(settings(tmp_path / "run", "optimiser.rate=0.02"), stop=1)  # before the first checkpoint nothing is lost
    run(settings(tmp_path / "run"), stop=3)
    with pytest.raises(ConfigError, match=r"optimiser\.rate: 0\.001 -> 0\.01"):
        run(settings(tmp_path / "run", "optimiser.rate=0.01"))
    with pytest.raises(ConfigError, match=r"run\.seed: 0 -> 1"):
        run(settings(tmp_path / "run", "run.seed=1"))
    run(settings(tmp_path / "run", "run.checkpoint_every=3"))  # changes nothing that is learnt


def test_what_a_run_leaves_behind(tmp_path: Path) -> None:
    _, lines = run(settings(tmp_path / "run"))
    folder = tmp_path / "run"
    assert sorted(path.name for path in (folder / "checkpoints").iterdir()) == [
        "best", "step-00000004", "step-00000006",
    ]  # fmt: skip
    logged = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in logged if "loss" in line]
    assert [line["step"] for line in steps] == [1, 2, 3, 4, 5, 6]
    assert {"frame_ap", "video_ap", "infonce", "sshn", "range", "rate", "time_head_s", "step_s"} <= steps[0].keys()
    measured = [line["mAP"] for line in logged if "mAP" in line]
    assert len(measured) == 3
    best = read_checkpoint(folder / "checkpoints" / "best")
    assert best.values["best"] == max(measured)
    assert best.step == 2 * (1 + measured.index(max(measured)))
    run(settings(tmp_path / "other", "validation.metric=uAP"))
    logged = [json.loads(line) for line in (tmp_path / "other" / "metrics.jsonl").read_text().splitlines()]
    best = read_checkpoint(tmp_path / "other" / "checkpoints" / "best")
    assert best.values["best"] == max(line["uAP"] for line in logged if "uAP" in line)
    (start,) = json.loads((folder / "versions.json").read_text())
    assert start["packages"]["torch"] == torch.__version__
    assert any("head" in line and "s a step" in line for line in lines)


def test_the_rate_follows_the_schedule(tmp_path: Path) -> None:
    config = settings(tmp_path / "run")
    run(config)
    logged = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    rates = [line["rate"] for line in logged if "rate" in line]
    assert rates == [config.optimiser.rate * config.schedule.share(step) for step in range(6)]


# --- when it goes wrong ----------------------------------------------------------------------------------------------


class Broken:
    """Batches that overflow from step 5 on."""

    def __init__(self, config: TrainConfig) -> None:
        self.whole = source(config)

    def batch(self, step: int, timed: Timed) -> Batch:
        batch = self.whole.batch(step, timed)
        return replace(batch, regions=batch.regions.float() * 1e30) if step >= 4 else batch


def test_a_loss_that_is_not_finite_stops_the_run_and_the_last_checkpoint_stays_good(tmp_path: Path) -> None:
    config = settings(tmp_path / "run")
    with pytest.raises(DataError, match=r"step 5: .*The last checkpoint is as it was"):
        run(config, data=Broken(config))
    last = read_checkpoint(tmp_path / "run" / "checkpoints" / "step-00000004")
    assert all(torch.isfinite(tensor.float()).all() for tensor in last.tensors.values())
    good, _ = run(settings(tmp_path / "run"))
    assert torch.isfinite(weights(good)).all()


def test_a_total_that_overflows_is_named_with_its_terms() -> None:
    config = toy_config("losses.video_ap.weight=1e39")
    with pytest.raises(DataError, match=r"step 1: the loss or its gradient is inf \(frame_ap"):
        train_from_bank(toy_bank(), config)


def test_a_network_without_weights_is_refused() -> None:
    config = toy_config("similarity.weighting=none", "similarity.comparator=false", "losses.range.weight=0")
    with pytest.raises(ConfigError, match="nothing in this network is trained"):
        train_from_bank(toy_bank(), config)


def test_the_gradient_is_cut_to_its_norm() -> None:
    config = toy_config("optimiser.clip=0.01")
    trainer = Trainer(build_network(config, None), config)
    trainer.step(source(config))
    norms = [parameter.grad.norm() for parameter in trainer.parameters if parameter.grad is not None]
    assert trainer.gradient > 0.01
    assert torch.stack(norms).norm().item() == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_half_precision_trains(precision: str) -> None:
    config = toy_config(f"run.precision={precision}")
    before, after = weights(build_network(config, None)), weights(train_from_bank(toy_bank(), config))
    assert torch.isfinite(after).all()
    assert not torch.equal(before, after)


def test_terms_of_a_rival_loss_train_without_a_teacher() -> None:
    config = toy_config("teacher.kind=none", "losses.frame_ap.weight=0", "losses.smooth_ap.weight=1")
    bank = toy_bank()
    blind = replace(bank, weak=replace(bank.weak, frames=None), strong=replace(bank.strong, frames=None))
    assert torch.isfinite(weights(train_from_bank(blind, config))).all()


# --- several processes -----------------------------------------------------------------------------------------------


def many(process: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=process, world_size=2)
    for stop in (3, None):  # interrupted once: the second process learns from the first where they stand
        config = settings(Path(folder) / "run", "data.batch=2")
        held = RunFolder(config, report=lambda _: None) if process == 0 else None

        class Stopping:
            def __init__(self, whole: BankSource, last: int | None) -> None:
                self.whole, self.last = whole, last

            def batch(self, step: int, timed: Timed) -> Batch:
                if step == self.last:
                    raise KeyboardInterrupt
                return self.whole.batch(step, timed)

        data = BankSource(toy_bank(strong=1), DataConfig(batch=2), seed=0, device=CPU)
        model = build_network(config, None)
        try:
            fit(model, Stopping(data, stop), config, run=held, report=lambda _: None)
        except KeyboardInterrupt:
            continue
    torch.save(weights(model), f"{folder}/{process}.pt")
    dist.barrier()
    # Gloo's threads once aborted a process that was done and ended by itself: what is tested is in the file by now.
    os._exit(0)


def test_two_processes_learn_what_one_learns_from_the_joined_batches(tmp_path: Path) -> None:
    spawn(many, args=(str(tmp_path),), nprocs=2)  # type: ignore[no-untyped-call]
    both = [torch.load(tmp_path / f"{process}.pt") for process in range(2)]
    assert torch.equal(both[0], both[1])
    config = toy_config("data.batch=4")
    alone = build_network(config, None)
    fit(alone, BankSource(toy_bank(strong=1), DataConfig(batch=4), seed=0, device=CPU), config, report=lambda _: None)
    moved = (weights(alone) - weights(build_network(config, None))).abs().max()
    assert (both[0] - weights(alone)).abs().max() < 0.02 * moved


# --- tensorboard -----------------------------------------------------------------------------------------------------


def test_without_tensorboard_it_is_said_once_and_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    _, lines = run(settings(tmp_path / "run"))
    assert len([line for line in lines if "tensorboard is not installed" in line]) == 1


def test_tensorboard_is_given_scalars_matrices_and_sheets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, str, Any]] = []

    class Writer:
        def __init__(self, folder: str) -> None:
            calls.append(("open", folder, None))

        def add_scalar(self, name: str, value: float, step: int) -> None:
            calls.append(("scalar", name, (value, step)))

        def add_image(self, name: str, picture: Any, step: int, dataformats: str = "CHW") -> None:
            calls.append(("image", name, (picture.shape, step, dataformats)))

        def close(self) -> None:
            calls.append(("close", "", None))

    module = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Writer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    run(settings(tmp_path / "run"))
    assert calls[0] == ("open", str(tmp_path / "run" / "tensorboard"), None)
    assert {name for kind, name, _ in calls if kind == "scalar"} >= {"loss", "mAP", "uAP", "video_ap"}
    assert ("image", "scores", ((1, 8, 8), 6, "CHW")) in calls
    frames = settings(tmp_path / "run").views.frames
    assert ("image", "frames of positive pairs", ((1, frames, 4 * (frames + 1)), 6, "CHW")) in calls


# --- validation ------------------------------------------------------------------------------------------------------


def test_a_benchmark_measures_and_survives_being_written(tmp_path: Path) -> None:
    model = VideoSimilarity(SimilarityConfig(dims=DIMS, weighting="none", comparator=False, min_frames=1))
    whole = benchmark()
    figures = whole.measure(model)
    assert 0.5 < figures["mAP"] <= 1
    whole.save(tmp_path / "benchmark.safetensors")
    assert ValidationSet.load(tmp_path / "benchmark.safetensors").measure(model) == pytest.approx(figures)


def test_a_benchmark_of_features_and_a_ground_truth(tmp_path: Path) -> None:
    truth = {
        "queries": {
            "a": {"file": "queries/a.mp4", "kind": "blur", "positives": ["x"], "segments": []},
            "b": {"file": "queries/b.mp4", "kind": "blur", "positives": ["y", "z"], "segments": []},
            "lost": {"file": "queries/lost.mp4", "kind": "blur", "positives": ["x"], "segments": []},
        },
        "database": {"x": "database/x.mp4", "y": "database/y.mp4", "z": "database/z.gif"},
    }
    (tmp_path / "ground_truth.json").write_text(json.dumps(truth))
    regions, flat = torch.randn(5, 2, DIMS), np.array([True, False, False, False, True])
    with FeatureWriter(tmp_path / "features.h5") as writer:
        for name in ("queries/a.mp4", "queries/b.mp4", "database/x.mp4", "y", "database/z.gif"):
            writer.add(name, Features(regions, np.arange(5.0), flat if name == "queries/b.mp4" else None))
    config = ValidationConfig(features=str(tmp_path / "features.h5"), truth=str(tmp_path / "ground_truth.json"))
    loaded = load_validation_set(config)
    assert loaded is not None
    assert loaded.relevant.int().tolist() == [[1, 0, 0], [0, 1, 1]]
    assert loaded.missing == 1
    assert [len(video) for video in loaded.queries] == [5, 3]  # flat frames do not count
    assert torch.equal(loaded.queries[1], loaded.queries[0][1:4])
    assert load_validation_set(ValidationConfig()) is None
    with pytest.raises(ConfigError, match=r"needs validation\.truth"):
        load_validation_set(replace(config, truth=""))
    with pytest.raises(DataError, match="no JSON that can be used"):
        load_validation_set(replace(config, truth=str(tmp_path / "features.h5")))
    with pytest.raises(StorageError, match=r"no validation set that `ValidationSet\.save` wrote"):
        load_validation_set(ValidationConfig(features=str(tmp_path / "nowhere.safetensors")))
    (tmp_path / "ground_truth.json").write_text('{"queries": {}, "database": {}}')
    with pytest.raises(DataError, match="0 queries and 0 database videos"):
        load_validation_set(config)
    other = json.dumps(truth).replace('.mp4"', '.avi"').replace('"y"', '"w"')
    (tmp_path / "ground_truth.json").write_text(other)
    with pytest.raises(StorageError, match="0 of 3 queries and 1 of 3"):
        load_validation_set(config)
