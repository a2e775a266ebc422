"""Fitting a method: the loop that all share, and the scale and threshold of its segments."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from hapvr.errors import DataError
from hapvr.evaluation.pair_records import Box
from hapvr.evaluation.segment_metrics import measure_segments
from hapvr.methods.base import FitSettings, Method, Report, Settings
from hapvr.methods.clips import Clips
from hapvr.training.config import ScheduleConfig
from hapvr.training.step import Batch, find_shared_content

_LOGGED = 10  # times that a fit reports its loss
_PAIRS = 48  # copies that segments are calibrated on; as many pairs do not match
_THRESHOLDS = (0.15, 0.25, 0.35, 0.45, 0.55, 0.65)  # on the scale of `Method.scale_evidence`


@dataclass(frozen=True)
class FitRecord:
    """How a method was fitted."""

    seed: int
    seconds: float
    device: str
    videos: int
    steps: int
    first_loss: float | None = None  # means over the first and the last tenth of the steps; None if nothing is learnt
    last_loss: float | None = None
    notes: tuple[str, ...] = field(default=())


def run_steps(
    parameters: Iterable[nn.Parameter],
    clips: Clips,
    settings: FitSettings,
    compute_loss: Callable[[Batch], Tensor],
    *,
    seed: int,
    report: Report | None = None,
    name: str = "",
) -> list[float]:
    """Train `parameters` on batches of clips; the loss of each step. The batches depend on the seed alone."""
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    if not trained:
        raise DataError(f"{name or 'the method'} has no weights to train.")
    optimiser = torch.optim.AdamW(trained, lr=settings.rate, weight_decay=settings.weight_decay)
    schedule = ScheduleConfig(steps=settings.steps, warm_up=settings.steps // 20)
    generator = torch.Generator().manual_seed(seed)
    losses: list[Tensor] = []
    for step in range(settings.steps):
        for group in optimiser.param_groups:
            group["lr"] = settings.rate * schedule.share(step)
        batch = clips.draw(batch=settings.batch, frames=settings.frames, generator=generator)
        loss = compute_loss(batch)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(trained, 10.0)
        optimiser.step()
        losses.append(loss.detach())
        if report is not None and (step + 1) % max(1, settings.steps // _LOGGED) == 0:
            report(f"{name}: step {step + 1} of {settings.steps}, loss {float(losses[-1]):.4f}")
    values: list[float] = torch.stack(losses).float().cpu().tolist()
    if not np.isfinite(values).all():
        raise DataError(f"{name}: the loss is no longer finite. Lower its rate.")
    return values


def fit_method(
    method: Method[Settings],
    clips: Clips,
    *,
    seed: int = 0,
    segments: bool = True,
    report: Report | None = None,
) -> FitRecord:
    """Fit a method on its device, and calibrate its segments; `segments=False` leaves those as they are."""
    if clips.dims != method.dims:
        raise DataError(f"{method.name} was made for {method.dims} regions x dims, the clips have {clips.dims}.")
    torch.manual_seed(seed)
    clips = clips.to(method.device)
    began = time.perf_counter()
    losses = method.fit(clips, seed=seed, report=report)
    method.eval()
    if method.device.type == "cuda":
        torch.cuda.synchronize(method.device)
    seconds = time.perf_counter() - began
    if method.localises and segments:
        calibrate_segments(method, clips, seed=seed)
    tenth = max(1, len(losses) // 10)
    return FitRecord(
        seed=seed,
        seconds=seconds if losses else 0.0,
        device=describe_device(method.device),
        videos=len(clips),
        steps=len(losses),
        first_loss=float(np.mean(losses[:tenth])) if losses else None,
        last_loss=float(np.mean(losses[-tenth:])) if losses else None,
    )


@torch.no_grad()
def calibrate_segments(method: Method[Settings], clips: Clips, *, seed: int = 0) -> None:
    """Set the scale of a method's evidence and the threshold of its segments, by the clips alone.

    Unlike and matching frames are brought to 0 and 1, each by the median over pairs of clips. Of a few thresholds in
    between the best is kept: by F1 of the segments, times the share of unrelated pairs without one.
    """
    copies = [place for place in clips.copies if clips.segments.get(clips.ids[place])]
    generator = np.random.default_rng([seed, len(copies)])
    if len(copies) < 2:
        return
    chosen = generator.permutation(copies)[:_PAIRS].tolist()
    place_of = {id: place for place, id in enumerate(clips.ids)}
    described = {
        place: method.describe(clips.features(place)) for place in {*chosen, *clips.contents[chosen, 0].tolist()}
    }
    matching = [(place, int(clips.contents[place, 0])) for place in chosen]
    others = [
        (place, target)
        for (place, _), (_, target) in zip(matching, matching[1:] + matching[:1], strict=True)
        if target not in clips.contents[place].tolist()
    ]
    high, low = (
        float(np.median(np.concatenate([method.measure_evidence(described[a], described[b]) for a, b in pairs])))
        for pairs in (matching, others or matching)
    )
    method.evidence_scale.copy_(torch.tensor([low, high]))  # type: ignore[operator]
    true: dict[tuple[int, int], list[Box]] = {
        (place, target): [
            ((one.start_s, one.end_s), (one.target_start_s, one.target_end_s))
            for one in clips.segments[clips.ids[place]]
            if place_of.get(one.target) == target
        ]
        for place, target in matching
    }
    best = (-1.0, 0.0)
    for threshold in _THRESHOLDS:
        method.segment_threshold.fill_(threshold)  # type: ignore[operator]
        found = {pair: method.locate(described[pair[0]], described[pair[1]]) for pair in [*matching, *others]}
        figures = measure_segments(found, true)
        quality = figures.f1 * (1 - figures.false_pairs / max(1, figures.negative_pairs))
        best = max(best, (0.0 if np.isnan(quality) else quality, threshold))
    method.segment_threshold.fill_(best[1])  # type: ignore[operator]


def describe_device(device: torch.device) -> str:
    """A device in words.

    >>> describe_device(torch.device("cpu")).startswith("CPU, ")
    True
    """
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU, {torch.get_num_threads()} threads"


def find_relevance(batch: Batch) -> tuple[Tensor, Tensor]:
    """Which clips of a batch show the same, and which are a clip itself: bool [N, N] each."""
    itself = torch.eye(len(batch.contents), dtype=torch.bool, device=batch.contents.device)
    return find_shared_content(batch.contents, batch.contents), itself
