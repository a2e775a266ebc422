"""The training loop, and a whole run around it: data, bank, loop, checkpoints, validation, model.

Learning rate, random draws and the order of the data are functions of the seed and the step. So a run that stopped goes
on from its last checkpoint as if it had never stopped: on a CPU bit for bit.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from hapvr import weights
from hapvr.backbones import Backbone
from hapvr.errors import ConfigError, DataError
from hapvr.features.whitening import Whitening
from hapvr.model import Model, load, make_trained_parts, read_base_parts
from hapvr.similarity import VideoSimilarity
from hapvr.training.augment import Views
from hapvr.training.bank import Bank, BankSource, make_bank
from hapvr.training.camera import Camera
from hapvr.training.clips import ClipSet, Skipped
from hapvr.training.config import TrainConfig, to_table, to_toml
from hapvr.training.distributed import average, broadcast, join_processes, rank, world_size
from hapvr.training.encoder import Encoder, build_teacher
from hapvr.training.low_rank import merge_low_rank_changes
from hapvr.training.preview import save_preview
from hapvr.training.run_folder import (
    SKIPPED,
    Checkpoint,
    Report,
    RunFolder,
    find_checkpoint,
    note_skipped,
    pack_state,
    unpack_state,
)
from hapvr.training.sources import ClipSource, Clock, Source, derive_seed, draw_videos
from hapvr.training.step import StepValues, compute_step_losses
from hapvr.training.stream_loader import StreamConfig
from hapvr.training.streaming import StreamedClips
from hapvr.training.validation import ValidationSet, load_validation_set
from hapvr.training.whole import WholeSource, compute_stay_loss, copy_for_training, make_region_extractor, update_mean
from hapvr.video.packed_frames import PackedFrames
from hapvr.video.sampling import SamplingConfig
from hapvr.video.shard_frames import is_packed, open_shards

_REMEDY = (
    "The last checkpoint is as it was. Lower optimiser.rate, set optimiser.clip, or look at the data of that step."
)
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
                run.log_sheet(partial(_draw_sheet, clips, config, count=min(_SHOWN, config.data.batch)))
            report(f"{len(clips)} videos, {len(clips.skipped)} skipped; {device}, {world_size()} process(es)")
            if backbone is None:
                source = _make_source(config, clips, build_encoder(config, base, device), report)
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


# --- the loop --------------------------------------------------------------------------------------------------------


def fit(
    model: VideoSimilarity,
    source: Source | None,
    config: TrainConfig,
    *,
    run: RunFolder | None = None,
    benchmark: ValidationSet | None = None,
    report: Report = print,
    backbone: Backbone | None = None,
) -> dict[str, float]:
    """Take all steps of the schedule that are not done yet; returns the metrics of the last validation.

    Every process passes its own part of the data as `source`, or None where no step is left; `run` is given in the
    first alone, or nowhere. A `backbone`, which the source's regions come from, learns too; network and backbone end as
    the running means of their weights. `DataError` if the loss or a gradient is NaN or infinite: it reaches no
    checkpoint.
    """
    trainer = Trainer(model, config, backbone=backbone)
    if not trainer.parameters:
        raise ConfigError("nothing in this network is trained: similarity needs attention, binarisation or psi.")
    steps = config.schedule.steps
    best, metrics = -math.inf, {}
    start = broadcast(run.resume() if run is not None else None)
    if start is not None:
        trainer.restore(start)
        best = -math.inf if start.values.get("best") is None else start.values["best"]
        metrics = dict(start.values.get("metrics", {}))
        report(f"continued after step {start.step}" if start.step < steps else f"all {steps} steps are done already")
    if source is None and trainer.done < steps:
        raise ConfigError(f"{steps - trainer.done} steps are left and there is no source of data for them.")
    seconds: list[float] = []  # of the steps since the last line, without what is between them
    while source is not None and trainer.done < steps:
        trainer.clock.exact = (trainer.done + 1) % config.run.log_every == 0  # waiting costs time: one step in many
        began = time.perf_counter()
        values = trainer.step(source)
        seconds.append(time.perf_counter() - began)
        done = trainer.done
        times = trainer.clock.take()
        if done % config.run.log_every == 0 or done == steps:
            terms = {name: value.item() for name, value in values.terms.items()}
            line = {"loss": average(values.total).item(), "rate": trainer.rate, **terms}
            line |= {"gradient": trainer.gradient, "step_s": sum(seconds) / len(seconds)}
            seconds.clear()
            report(
                f"step {done}/{steps} loss {line['loss']:.4f} ({_join(terms)}) rate {line['rate']:.2e} | "
                f"{line['step_s']:.3f} s a step: {_join(times)}"
            )
            if run is not None:
                run.log(done, line | {f"time_{name}_s": value for name, value in times.items()})
                run.log_matrix(done, "scores", values.scores)
                run.log_matrix(done, "relevance", values.relevance)
                run.log_matrix(done, "frames of positive pairs", join_matrices(values.matrices))
        if benchmark is not None and rank() == 0 and (done % config.validation.every == 0 or done == steps):
            metrics = benchmark.measure(model)
            report(f"step {done}: " + ", ".join(f"{name} {value:.4f}" for name, value in metrics.items()))
            if run is not None:
                run.log(done, metrics)
            if metrics[config.validation.metric] > best:
                best = metrics[config.validation.metric]
                if run is not None:
                    run.save(trainer.checkpoint(best, metrics), best=True)
        if run is not None and (done % config.run.checkpoint_every == 0 or done == steps):
            run.save(trainer.checkpoint(best, metrics))
    if trainer.mean is not None:
        trainer.whole.load_state_dict(trainer.mean.state_dict())
    model.eval()
    return metrics


class Trainer:
    """The state of a run between two steps: network, optimiser, and how many steps are done."""

    def __init__(self, model: VideoSimilarity, config: TrainConfig, *, backbone: Backbone | None = None) -> None:
        self.model, self.config = model.train(), config
        self.losses = config.losses.build()
        if not config.model.learn_psi and model.comparator is not None:
            model.comparator.requires_grad_(False)
        self.whole: torch.nn.Module = model
        self.mean: torch.nn.Module | None = None  # the running mean of the weights, where the backbone learns
        if backbone is not None:
            self.whole = torch.nn.ModuleDict({"similarity": model, "backbone": backbone})
            self.mean = copy.deepcopy(self.whole).requires_grad_(False)
        self.parameters = [parameter for parameter in self.whole.parameters() if parameter.requires_grad]
        own = config.optimiser
        groups: list[dict[str, Any]] = [
            {"params": [*model.parameters()] or [torch.zeros(1)], "rate": own.rate, "weight_decay": own.weight_decay}
        ]
        if backbone is not None:
            slow = config.backbone
            learning = [parameter for parameter in backbone.parameters() if parameter.requires_grad]
            groups.append({"params": learning, "rate": slow.rate, "weight_decay": slow.weight_decay})
        self.optimiser: torch.optim.Optimizer = torch.optim.AdamW(groups, lr=own.rate, betas=(own.beta1, own.beta2))
        self.dtype = config.run.dtype(model.device)
        self.scaler = torch.amp.GradScaler(model.device.type, enabled=self.dtype == torch.float16)
        self.clock = Clock(model.device)
        self.done = 0
        self.rate = self.gradient = 0.0

    def step(self, source: Source) -> StepValues:
        """Take one step."""
        batch = source.batch(self.done, self.clock)
        share = self.config.schedule.share(self.done)
        self.rate = self.config.optimiser.rate * share
        for group in self.optimiser.param_groups:
            group["lr"] = group["rate"] * share
        self.optimiser.zero_grad(set_to_none=True)
        with self.clock("head"):
            try:
                values = compute_step_losses(
                    self.model, self.losses, batch, teacher=self.config.teacher, dtype=self.dtype
                )
            except DataError as error:
                raise DataError(f"step {self.done + 1}: {error} {_REMEDY}") from error
            if self.mean is not None and self.config.backbone.stay:
                stay = compute_stay_loss(self.model, batch)
                terms = values.terms | {"stay": stay.detach()}
                values = values._replace(total=values.total + self.config.backbone.stay * stay, terms=terms)
            self._require_finite(values.total, values)
            self.scaler.scale(values.total).backward()  # type: ignore[no-untyped-call]
        with self.clock("optimiser"):
            self._average_gradients()
            self.scaler.unscale_(self.optimiser)
            norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.config.optimiser.clip or math.inf)
            self.gradient = norm.item()
            if not self.scaler.is_enabled():  # in float16 gradients overflow now and then: the scaler skips the step
                self._require_finite(norm, values)
            self.scaler.step(self.optimiser)
            self.scaler.update()
            if self.mean is not None:  # at first over few steps, so that it soon forgets the weights it began with
                keep = min(self.config.backbone.average, (self.done + 1) / (self.done + 10))
                update_mean(self.mean, self.whole, keep=keep)
        self.done += 1
        return values

    def checkpoint(self, best: float, metrics: dict[str, float]) -> Checkpoint:
        """All that is needed to go on from here."""
        values: dict[str, Any] = {
            "best": best if math.isfinite(best) else None,
            "metrics": metrics,
            "scaler": self.scaler.state_dict(),
        }
        tensors = pack_state(self.whole, self.optimiser)
        if self.mean is not None:
            tensors |= {f"mean.{name}": tensor for name, tensor in self.mean.state_dict().items()}
        return Checkpoint(self.done, tensors, values)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint."""
        unpack_state(checkpoint.tensors, self.whole, self.optimiser)
        if self.mean is not None:
            means = {name: value for name, value in checkpoint.tensors.items() if name.startswith("mean.")}
            self.mean.load_state_dict({name.removeprefix("mean."): value for name, value in means.items()})
        if self.scaler.is_enabled():
            self.scaler.load_state_dict(checkpoint.values["scaler"])
        self.done = checkpoint.step

    def _average_gradients(self) -> None:
        """The mean of all processes' gradients: after `compute_step_losses`, the gradient of the joined batch."""
        if world_size() == 1:
            return
        for parameter in self.parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        flat = torch.cat([parameter.grad.flatten() for parameter in self.parameters if parameter.grad is not None])
        dist.all_reduce(flat)
        flat /= world_size()
        parts = torch.split(flat, [parameter.numel() for parameter in self.parameters])
        for parameter, part in zip(self.parameters, parts, strict=True):
            parameter.grad = part.view_as(parameter)

    def _require_finite(self, value: Tensor, values: StepValues) -> None:
        if not torch.isfinite(average(value)):  # of all processes: they stop together
            terms = ", ".join(f"{name} {term.item():g}" for name, term in values.terms.items())
            raise DataError(f"step {self.done + 1}: the loss or its gradient is {value.item():g} ({terms}). {_REMEDY}")


def _join(values: Mapping[str, float]) -> str:
    return " ".join(f"{name} {value:.3f}" for name, value in values.items())


def join_matrices(matrices: Tensor) -> Tensor:
    """Matrices [P, T, T] as one picture [T, P (T + 1)], with a white line after each; below 0 is black.

    >>> join_matrices(torch.tensor([[[0.5]], [[-1.0]]])).tolist()
    [[0.5, 1.0, -1.0, 1.0]]
    """
    return torch.nn.functional.pad(matrices.float(), (0, 1), value=1.0).transpose(0, 1).flatten(1)


# --- the parts of a run ----------------------------------------------------------------------------------------------


def build_network(config: TrainConfig, base: Model | None) -> VideoSimilarity:
    """The network before its first step: drawn from the run's seed, or the base model's."""
    if base is not None:
        dims = base.similarity.config.dims
        if config.similarity.dims != dims:
            raise ConfigError(
                f"similarity.dims is {config.similarity.dims}; region vectors of '{base.name}' have {dims}."
            )
        if config.model.start == "base":
            if base.similarity.config == config.similarity:
                return base.similarity
            if base.similarity.config == dataclasses.replace(config.similarity, projection=False):
                network = VideoSimilarity(config.similarity)  # its projection starts as none
                network.load_state_dict(base.similarity.state_dict(), strict=False)
                return network
            raise ConfigError(
                f"model.start='base' takes the network of '{base.name}' as it is ({base.similarity.config}), or with a "
                f"projection; [similarity] asks for another ({config.similarity})."
            )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(config.run.seed, 6))
        return VideoSimilarity(config.similarity)


def load_clips(config: TrainConfig, device: torch.device) -> ClipSet:
    """The videos and photographs of the settings, as one set of clips."""
    data = config.data
    if data.stream and (not data.frames or data.pictures):
        raise ConfigError(
            "data.stream reads the shards of data.frames: give that folder, and photographs in it as single pictures, "
            "not by data.pictures."
        )
    if data.stream and config.bank.used:
        raise ConfigError("a bank is made of videos in memory: set data.stream=0, or bank.weak=0 and bank.strong=0.")
    if not data.frames and not data.pictures:
        raise ConfigError(
            "there is nothing to train on: give data.frames, a folder of packed frames (`hapvr frames`), or "
            "data.pictures, a folder of photographs."
        )
    device = device if data.device == "auto" else torch.device(data.device)
    camera = Camera(frames=2 * config.views.frames, size=data.size)
    sets = []
    if data.frames:
        size = None if data.whole_frames else data.size
        # At a rate that is the same for all, a single frame is a short video and no photograph.
        stills = None if data.fps else camera
        if data.stream or not is_packed(data.frames):
            clips = _open_stream(config, device, size=size, stills=stills)
            sets.append(clips if data.stream else clips.load())
        else:
            if data.fps:
                _require_rate(PackedFrames.open(data.frames).attributes, data.frames, data.fps)
            sets.append(ClipSet.from_packed(data.frames, device=device, size=size, stills=stills))
    if data.pictures:
        limit = data.max_pictures or None
        sets.append(ClipSet.from_pictures(data.pictures, device=device, camera=camera, max_pictures=limit))
    return sets[0] if len(sets) == 1 else sets[0] + sets[1]


def _open_stream(
    config: TrainConfig, device: torch.device, *, size: int | None, stills: Camera | None
) -> StreamedClips:
    data = config.data
    shards = open_shards(data.frames)
    if data.fps:
        _require_rate(shards.attributes, data.frames, data.fps)
    cores = (os.cpu_count() or 1) // max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))  # torchrun's
    settings = StreamConfig(
        memory_bytes=int(data.stream * 2**30), workers=data.workers or max(1, cores), buffer=data.buffer
    )
    return StreamedClips(shards, size=size, stills=stills, device=device, config=settings)


def _require_rate(attributes: Mapping[str, Any], folder: str, fps: float) -> None:
    """Raise `ConfigError` unless all videos of a folder were packed at this rate, whatever their length."""
    rate, least = attributes.get("fps"), attributes.get("min_frames", SamplingConfig().at_least)
    if (rate, least) != (fps, 0):
        faster = "" if least == 0 else f", and short videos faster, to at least {least} frames"
        raise ConfigError(
            f"data.fps is {fps:g}: '{folder}' was packed at {rate} frames a second{faster}. Pack it by `hapvr frames "
            f"VIDEOS --fps {fps:g} --min-frames 0`, or set data.fps=0 to take it as it is."
        )


def preview_views(config: TrainConfig, path: str | os.PathLike[str], *, clips: int = 4) -> int:
    """Write a sheet of the views that a run of these settings would learn from first, as a picture.

    Returns of how many videos: `clips`, or all where there are fewer.
    """
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, device="cpu"))
    material = load_clips(config, torch.device("cpu"))
    count = min(clips, len(material))
    _draw_sheet(material, config, path, count)
    material.close()
    return count


def _draw_sheet(clips: ClipSet, config: TrainConfig, path: str | os.PathLike[str], count: int) -> Views:
    seed = config.run.seed
    videos = torch.randperm(len(clips), generator=torch.Generator().manual_seed(derive_seed(seed, 0, 0)))[:count]
    windows = clips.draw(videos.tolist(), length=2 * config.views.frames, seed=derive_seed(seed, 1))
    return save_preview(path, windows, config.views, derive_seed(seed, 2))


def build_encoder(config: TrainConfig, base: Model, device: torch.device, *, teacher: bool = True) -> Encoder:
    """Backbone, whitening and, if wanted, teacher of the settings, ready to compute."""
    return Encoder(
        base.extractor.backbone,
        _require_whitening(base),
        build_teacher(config.teacher) if teacher and "frame" in config.losses.build().levels else None,
        device=device,
        dtype=config.run.dtype(device),
        micro_batch=config.run.micro_batch,
        compiled=_is_compiled(config, device),
    )


def make_whole_source(
    config: TrainConfig, clips: ClipSet, base: Model, backbone: Backbone, device: torch.device
) -> WholeSource:
    """The batches of a run in which the backbone learns too."""
    whitening = _require_whitening(base).to(device)
    if world_size() > 1:
        raise ConfigError("a backbone is trained by one process; start it without torchrun, or set backbone.rate=0.")
    if config.validation.features:
        raise ConfigError("validation.features were made by the backbone as it was: they say nothing while it learns.")
    extract = make_region_extractor(
        backbone, whitening, config.run.dtype(device), compiled=_is_compiled(config, device)
    )
    frozen = build_encoder(config, base, device, teacher=False)
    return WholeSource(
        clips, extract, frozen, config.data, views=config.views, settings=config.backbone, seed=config.run.seed
    )


def _make_source(config: TrainConfig, clips: ClipSet, encoder: Encoder, report: Report) -> Source:
    """The batches of a run with a frozen backbone: from a bank of views, or from the clips themselves."""
    seed = config.run.seed
    if not config.bank.used:
        return ClipSource(clips, encoder, config.data, views=config.views, seed=seed)
    bank = make_bank(clips, encoder, config, report=report)
    report(f"the bank holds {config.bank.weak} weak and {config.bank.strong} strong views: {bank.gib:.2f} GiB")
    return BankSource(bank, config.data, seed=seed, device=encoder.device)


def _require_whitening(base: Model) -> Whitening:
    if base.extractor.whitening is None:
        raise ConfigError(f"the model '{base.name}' has no whitening.")
    return base.extractor.whitening


def _is_compiled(config: TrainConfig, device: torch.device) -> bool:
    return config.run.compiled == "yes" or (config.run.compiled == "auto" and device.type == "cuda")


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
