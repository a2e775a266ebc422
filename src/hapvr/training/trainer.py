"""The training loop; `hapvr.training.run` is a whole run around it.

Learning rate, random draws and the order of the data are functions of the seed and the step. So a run that stopped goes
on from its last checkpoint as if it had never stopped: on a CPU bit for bit.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from hapvr.backbones import Backbone
from hapvr.errors import ConfigError, DataError
from hapvr.similarity import VideoSimilarity
from hapvr.training.config import TrainConfig
from hapvr.training.distributed import average, broadcast, rank, world_size
from hapvr.training.run_folder import Checkpoint, Report, RunFolder, pack_state, unpack_state
from hapvr.training.sources import Clock, Source
from hapvr.training.step import StepValues, compute_step_losses
from hapvr.training.validation import ValidationSet
from hapvr.training.whole import compute_stay_loss, update_mean

_REMEDY = (
    "The last checkpoint is as it was. Lower optimiser.rate, set optimiser.clip, or look at the data of that step."
)


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
