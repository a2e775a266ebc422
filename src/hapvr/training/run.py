"""A whole training run: data, bank, loop, checkpoints, validation, model.

The network is trained as the settings say; a run that its folder holds is continued.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from hapvr import weights
from hapvr.backbones import Backbone
from hapvr.errors import ConfigError
from hapvr.model import load, make_trained_parts, read_base_parts
from hapvr.similarity import VideoSimilarity
from hapvr.training.bank import Bank, BankSource
from hapvr.training.clips import ClipSet, Skipped
from hapvr.training.config import TrainConfig
from hapvr.training.distributed import broadcast, join_processes, rank, world_size
from hapvr.training.low_rank import merge_low_rank_changes
from hapvr.training.recipe_files import to_table, to_toml
from hapvr.training.run_folder import SKIPPED, Report, RunFolder, find_checkpoint, note_skipped
from hapvr.training.run_parts import (
    build_encoder,
    build_network,
    draw_sheet,
    load_clips,
    make_source,
    make_whole_source,
)
from hapvr.training.sources import Source, derive_seed, draw_videos
from hapvr.training.streaming import StreamedClips
from hapvr.training.trainer import fit
from hapvr.training.validation import ValidationSet, load_validation_set
from hapvr.training.whole import copy_for_training

_SHOWN = 4  # videos on a sheet of views


@dataclass(frozen=True, eq=False)
class Trained:
    """The result of a run."""

    similarity: VideoSimilarity
    folder: Path  # of the run
    model: Path  # the model folder
    metrics: dict[str, float]  # of the last validation; empty without a benchmark

    def to_json(self) -> dict[str, Any]:
        """What `hapvr train --json` prints."""
        return {"folder": str(self.folder), "model": str(self.model), "metrics": self.metrics}


def train(config: TrainConfig, *, report: Report = print) -> Trained:
    """Train a similarity network as the settings say (see `load_config`); a run that its folder holds is continued.

    Under `torchrun` every process calls this with the same settings; the batch grows with them. The result is saved as
    a model folder, `RUN/model`: the base model's with the trained network instead. `report` takes lines of progress, in
    the first process alone.
    """
    with join_processes():
        report = report if rank() == 0 else _ignore
        device = config.run.torch_device()
        base = load(config.model.base)
        model = build_network(config, base).to(device)  # what contradicts the base is refused before any work
        backbone = None
        if config.backbone.rate:
            own = config.backbone
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(derive_seed(config.run.seed, 7))
                backbone = copy_for_training(base.extractor.backbone, device, layers=own.layers, rank=own.rank)
        benchmark = load_validation_set(config.validation)
        folder = Path(config.run.folder)
        begun = rank() == 0 and (folder / "checkpoints").is_dir()
        run = RunFolder(config, report=report) if begun else None  # refuses other settings before the data is read
        last = find_checkpoint(run.checkpoints, report=_ignore) if run is not None else None
        source: Source | None = None
        clips: ClipSet | None = None
        if not broadcast(last is not None and last.step >= config.schedule.steps):  # else no data is needed
            clips = load_clips(config, device)
            draw_videos(0, videos=len(clips), batch=config.data.batch, seed=config.run.seed)  # refuses too few
            if isinstance(clips, StreamedClips):
                clips.on_skip = partial(_note_skip, clips, folder, report)
            if run is None and rank() == 0:
                run = RunFolder(config, report=report)  # a new run has no folder until its data is there
            if run is not None:
                run.note_skipped(clips.skipped)
                run.log_sheet(partial(draw_sheet, clips, config, count=min(_SHOWN, config.data.batch)))
            report(f"{len(clips)} videos, {len(clips.skipped)} skipped; {device}, {world_size()} process(es)")
            if backbone is None:
                source = make_source(config, clips, build_encoder(config, base, device), report)
            else:
                source = make_whole_source(config, clips, base, backbone, device)
        try:
            metrics = fit(model, source, config, run=run, benchmark=benchmark, report=report, backbone=backbone)
        finally:
            if clips is not None:
                clips.close()
        if isinstance(clips, StreamedClips) and clips.replaced:
            report(f"{clips.replaced} clips could not be read; other videos took their places, see {SKIPPED}")
        if backbone is not None:
            merge_low_rank_changes(backbone)
        if run is not None:
            save_trained(folder / "model", model, config, backbone=backbone)
            run.close()
            report(f"the model is in {folder / 'model'}")
        return Trained(model, folder, folder / "model", metrics)


def _note_skip(clips: StreamedClips, folder: Path, report: Report, skipped: Skipped) -> None:
    report(f"skipped '{skipped[0]}': {skipped[1]}")
    if folder.is_dir():
        note_skipped(folder, clips.skipped)


def train_stages(stages: Mapping[str, TrainConfig], *, report: Report = print) -> Trained:
    """Train one stage after the other (see `load_stages`), skipping those that are done; returns the last's result."""
    if not stages:
        raise ConfigError("there is no stage to train.")
    for name, config in stages.items():
        if name:
            report(f"stage {name}: {config.run.folder}")
        trained = train(config, report=report)
    return trained


def train_from_bank(
    bank: Bank, config: TrainConfig, *, benchmark: ValidationSet | None = None, report: Report | None = None
) -> VideoSimilarity:
    """Train a network on the views of a bank, in memory alone: nothing is written, nothing is resumed.

    Many runs may share a bank: of `config` the settings of losses, network, optimiser, schedule and seed are read, and
    those of views and bank are not.
    """
    device = config.run.torch_device()
    base = load(config.model.base) if config.model.start == "base" else None
    model = build_network(config, base).to(device)
    source = BankSource(bank, config.data, seed=config.run.seed, device=device)
    fit(model, source, config, benchmark=benchmark, report=report or _ignore)
    return model.eval()


def save_trained(
    folder: Path, similarity: VideoSimilarity, config: TrainConfig, *, backbone: Backbone | None = None
) -> Path:
    """Write the base model with the trained network instead of its network, and how it was trained.

    Where the network began as the base's, or the backbone was trained too, the model keeps the base's whitening and its
    untrained form; see `make_trained_parts`.
    """
    if backbone is not None or config.model.start == "base":
        parts = make_trained_parts(config.model.base, similarity, backbone=backbone)
    else:
        parts = read_base_parts(config.model.base)
        parts["similarity"] = weights.Part(dataclasses.asdict(similarity.config), similarity.state_dict())
    trained = {
        "base": config.model.base,
        "teacher": config.teacher.kind,
        "steps": config.schedule.steps,
        "rate": config.optimiser.rate,
        "batch": config.data.batch,
        "recipe": to_toml(to_table(config)),
    }
    parts["trained"] = weights.Part(trained, {})
    return weights.save_parts(folder, parts)


def _ignore(_: str) -> None:
    pass
