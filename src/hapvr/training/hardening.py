"""Teach a backbone to see through damage: what it makes of a clean picture, it shall make of a spoilt one too.

The backbones were trained to name what sharp photographs show. Blur, noise and coarse coding change their region
vectors more than another picture would, and no map of the vectors brings back what the first layers have lost. So the
backbone itself learns, from pictures alone: a copy of it (the student) sees the strong view of a frame and shall find
the vectors that the unchanged backbone (the master) makes of the weak view among those of all other frames of the
batch. On weak views the student shall stay near the master: whitening and similarity network, which were made for the
master's vectors, remain good for the student's.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hapvr.backbones import Backbone
from hapvr.checks import shape_of
from hapvr.errors import ConfigError, DataError, ShapeError
from hapvr.features.regions import KERNELS, pool_regions
from hapvr.features.whitening import Whitening
from hapvr.training.alike import LookAlikes, mean_vectors
from hapvr.training.augment import ViewConfig, make_views
from hapvr.training.clips import ClipSet
from hapvr.training.config import ScheduleConfig
from hapvr.training.encoder import Encoder, preparing
from hapvr.training.sources import drawn_videos, seed_of

_VIEWS = ViewConfig(
    frames=1,
    shuffle_dropout=0.0,
    fast_forward=0.0,
    slow_motion=0.0,
    reverse=0.0,
    pause=0.0,
    blur=0.6,
    blur_radius=(0.3, 5.0),
    mixup_ratio=(0.3, 0.9),
    perspective=0.2,
    letterbox=0.2,
    noise=0.5,
    noise_strength=(3.0, 45.0),
    jpeg=0.5,
    jpeg_quality=(5.0, 60.0),
    border=0.3,
)
_CLIP = 5.0  # the length that gradients are cut to


@dataclass(frozen=True)
class HardeningConfig:
    """How a backbone is hardened."""

    batch: int = 256  # frames of a step
    frames: int = 2  # of each video in it: frames of one video are told from each other too
    rate: float = 1.5e-3  # of AdamW
    weight_decay: float = 1e-4
    schedule: ScheduleConfig = field(default_factory=lambda: ScheduleConfig(steps=4_400, warm_up=220, end=0.0))
    temperature: float = 0.05  # by which similarities are divided
    same: float = 0.7  # frames of one video that are as similar as that are not told from each other
    twin: float = 0.7  # likewise frames of two videos
    follow: bool = False  # the vectors to find are those of the student's running mean, not the master's
    alike: float = 0.0  # share of a batch that consists of groups of look-alikes
    group: int = 8  # videos of such a group
    stay: float = 4.0  # weight of staying as it was on weak views
    turned: float = 0.1  # share of strong views that are turned by 90, 180 or 270 degrees
    average: float = 0.998  # of the weights, a step: what comes out is their running mean
    seed: int = 0
    views: ViewConfig = _VIEWS

    def __post_init__(self) -> None:
        if not 1 <= self.frames <= self.batch or self.batch < 2 or not self.rate > 0 or not self.temperature > 0:
            raise ConfigError(
                "batch >= 2, 1 <= frames <= batch, rate > 0 and temperature > 0 must hold; got "
                f"batch={self.batch}, frames={self.frames}, rate={self.rate}, temperature={self.temperature}."
            )
        if self.views.frames != 1:
            raise ConfigError(f"views.frames must be 1, for pictures are learnt one by one; got {self.views.frames}.")
        for name in ("turned", "average"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} is a share, from 0 to 1; got {getattr(self, name)!r}.")


STAGES = (
    HardeningConfig(),
    HardeningConfig(
        frames=4,
        rate=1e-3,
        schedule=ScheduleConfig(steps=3_300, warm_up=165, end=0.0),
        same=0.85,
        twin=0.95,
        follow=True,
        alike=0.75,
        stay=2.0,
        views=replace(_VIEWS, weak_scale=(1.0, 1.0)),
    ),
)
"""How the shipped backbone was hardened: first against damage; then, begun with what that gave, to tell look-alikes
apart as well."""


def harden(
    backbone: Backbone,
    whitening: Whitening,
    clips: ClipSet,
    config: HardeningConfig | None = None,
    *,
    start: Backbone | None = None,
    dtype: torch.dtype | None = None,
    report: Callable[[int, dict[str, float]], None] | None = None,
    every: int = 100,
) -> Backbone:
    """A copy of a backbone that has learnt to see through damage; the one that is given stays as it is.

    Batch normalisation keeps its statistics; everything else is trained.

    Args:
        backbone: the master.
        whitening: of the model, learnt projection included.
        clips: frames of videos, and photographs; where they lie is where the work is done.
        config: how.
        start: what the student begins as; the master itself if None.
        dtype: of the networks' arithmetic; by default bfloat16 on a GPU, float32 elsewhere.
        report: called with the number of steps done and the mean values of the losses since the last call.
        every: steps between two calls.
    """
    config = config or HardeningConfig()
    if len(clips) < 2:
        raise DataError(f"hardening tells pictures from each other: it needs two clips or more, got {len(clips)}.")
    device = clips.device
    dtype = dtype or (torch.bfloat16 if device.type == "cuda" else torch.float32)
    whitening = whitening.to(device)
    master = Encoder(copy.deepcopy(backbone), whitening, device=device, dtype=dtype, micro_batch=config.batch)
    student: Backbone = copy.deepcopy(start or backbone).eval().to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    averaged = copy.deepcopy(student).requires_grad_(False)
    describe, describe_mean = (
        describing(network, whitening, dtype) for network in (student.requires_grad_(), averaged)
    )
    batches = _Batches(clips, config, master)
    optimiser = torch.optim.AdamW(student.parameters(), lr=config.rate, weight_decay=config.weight_decay)
    sums: dict[str, Tensor] = {}
    for step in range(config.schedule.steps):
        for group in optimiser.param_groups:
            group["lr"] = config.rate * config.schedule.share(step)
        weak, strong, shown, least = batches(step)
        B = len(weak)
        taught = master(weak, check=False).regions  # [B, R, D]
        with torch.no_grad():
            sought = describe_mean(weak) if config.follow else taught
        learnt = describe(torch.cat([strong, weak[: B // 2]]))
        values = hardening_losses(
            learnt[:B], learnt[B:], taught, sought, shown=shown, least=least, temperature=config.temperature
        )
        optimiser.zero_grad(set_to_none=True)
        (values["found"] + config.stay * values["stayed"]).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(student.parameters(), _CLIP)
        optimiser.step()
        _average(averaged, student, min(config.average, (step + 1) / (step + 10)))
        sums = {name: sums.get(name, 0.0) + value.detach() for name, value in values.items()}
        if report is not None and ((step + 1) % every == 0 or step + 1 == config.schedule.steps):
            report(step + 1, {name: float(value) / (step % every + 1) for name, value in sums.items()})
            sums = {}
    return averaged


class _Batches:
    """The pictures of each step: weak and strong views of frames, drawn from the seed and the step alone."""

    def __init__(self, clips: ClipSet, config: HardeningConfig, master: Encoder) -> None:
        self.clips, self.config = clips, config
        self.videos = min(len(clips), -(-config.batch // config.frames))
        self.alike = LookAlikes.of(
            lambda: _mean_vectors(clips, master, config),
            videos=len(clips), share=config.alike, group=config.group, batch=self.videos, device=clips.device,
        )  # fmt: skip

    def __call__(self, step: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Weak and strong views uint8 [B, 3, S, S]; `shown` and `least` [B, B] of `hardening_losses`."""
        config, device = self.config, self.clips.device
        drawn = drawn_videos(step, videos=len(self.clips), batch=self.videos, seed=config.seed, alike=self.alike)
        numbers = drawn.repeat_interleave(config.frames)[: config.batch]
        B = len(numbers)
        frames = self.clips.draw(numbers.tolist(), length=1, seed=seed_of(config.seed, 1, step))
        views = make_views(frames, config=config.views, seed=seed_of(config.seed, 2, step), device=device)
        pictures = views.pictures[:, 0]  # [2 B, 3, S, S]
        strong = turn(pictures[B:], share=config.turned, seed=seed_of(config.seed, 3, step))
        of_one = (numbers[:, None] == numbers).to(device)  # [B, B]
        return pictures[:B], strong, views.content[B:], torch.where(of_one, config.same, config.twin)


def hardening_losses(
    strong: Tensor, weak: Tensor, taught: Tensor, sought: Tensor, *, shown: Tensor, least: Tensor, temperature: float
) -> dict[str, Tensor]:
    """How well the student finds each frame, and how far it went from the master on clean ones.

    Args:
        strong: [B, R, D] unit vectors of the student, of strong views.
        weak: [H, R, D] likewise of the first H <= B weak views.
        taught: [B, R, D] of the master, of all weak views: what `weak` shall stay.
        sought: [B, R, D] of all weak views, which the strong ones shall find.
        shown: bool [B, B], which frames a strong view shows: its own, and that of the host it was pasted into.
        least: [B, B], frames whose `sought` are at least as similar as that are not told from each other.
        temperature: by which similarities are divided.

    Returns "found": the mean cross-entropy, over both directions of Chamfer similarity, of finding the weak view of a
    strong one; "stayed": the mean of 1 - cosine over the weak views' regions.

    Example: of two frames with one region each, both found with similarity 1 where the other has 0.
        >>> frames = torch.eye(2)[:, None]
        >>> losses = hardening_losses(frames, frames[:1], frames, frames, shown=torch.eye(2).bool(),
        ...                           least=torch.full((2, 2), 0.9), temperature=1.0)
        >>> round(losses["found"].item(), 4), losses["stayed"].item()  # log(1 + 1 / e), and nothing
        (0.3133, 0.0)
    """
    B = len(taught)
    if strong.shape != taught.shape or weak.shape[1:] != taught.shape[1:] or shown.shape != (B, B):
        raise ShapeError(
            f"strong and taught must be [B, R, D], weak [H, R, D] and shown [B, B]; got {shape_of(strong)}, "
            f"{shape_of(taught)}, {shape_of(weak)} and {shape_of(shown)}."
        )
    own = torch.eye(B, dtype=torch.bool, device=taught.device)
    forth, back = chamfer_both(strong, sought)
    with torch.no_grad():
        alike = torch.maximum(*chamfer_both(sought, sought))
        left_out = ((alike >= least) | shown) & ~own
    target = torch.arange(B, device=taught.device)
    found = [
        F.cross_entropy((matrix / temperature).masked_fill(left_out, -torch.inf), target) for matrix in (forth, back)
    ]
    stayed = 1 - (weak * taught[: len(weak)]).sum(-1).mean() if len(weak) else taught.new_zeros(())
    return {"found": (found[0] + found[1]) / 2, "stayed": stayed}


def chamfer_both(queries: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Frame similarities [N, M] of regions [N, R, D] and [M, R, D]: each query region's best, and each target region's.

    >>> one, other = torch.eye(2)[None], torch.tensor([[[1.0, 0.0], [1.0, 0.0]]])
    >>> [matrix.item() for matrix in chamfer_both(one, other)]  # half of the first is in the second, all the other way
    [0.5, 1.0]
    """
    N, R, D = queries.shape
    products = (queries.reshape(N * R, D) @ targets.reshape(-1, D).T).view(N, R, len(targets), -1)
    return products.amax(3).mean(1), products.amax(1).mean(2)


def _mean_vectors(clips: ClipSet, master: Encoder, config: HardeningConfig) -> Tensor:
    """The mean region vectors [V, D] of a frame of each clip."""
    parts = []
    for first in range(0, len(clips), config.batch):
        numbers = list(range(first, min(first + config.batch, len(clips))))
        frames = clips.draw(numbers, length=1, seed=seed_of(config.seed, 4, first))
        views = make_views(frames, config=config.views, seed=seed_of(config.seed, 5, first), device=clips.device)
        parts.append(mean_vectors(master(views.pictures[: len(numbers)], check=False).regions[:, None]))
    return torch.cat(parts)


def describing(backbone: Backbone, whitening: Whitening, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """Pictures uint8 [N, 3, S, S] -> region vectors [N, R, D], with gradients to the backbone's weights."""
    device = next(backbone.parameters()).device
    prepare = preparing(backbone, device)

    def describe(pictures: Tensor) -> Tensor:
        with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
            maps = backbone.stages(prepare(pictures).contiguous(memory_format=torch.channels_last))
        regions: Tensor = whitening(pool_regions(maps, kernels=list(KERNELS.values()), check=False))
        return regions

    return describe


def turn(pictures: Tensor, *, share: float, seed: int) -> Tensor:
    """A share of square pictures [N, C, S, S] turned by 90, 180 or 270 degrees, by lot; the others as they are."""
    generator = torch.Generator().manual_seed(seed)
    quarters = torch.randint(1, 4, (len(pictures),), generator=generator)
    quarters = torch.where(torch.rand(len(pictures), generator=generator) < share, quarters, 0).to(pictures.device)
    turned = pictures
    for count in (1, 2, 3):
        chosen = (quarters == count)[:, None, None, None]
        turned = torch.where(chosen, pictures.rot90(count, (2, 3)), turned)
    return turned


@torch.no_grad()
def _average(mean: nn.Module, student: nn.Module, keep: float) -> None:
    for own, new in zip(mean.parameters(), student.parameters(), strict=True):
        own.lerp_(new, 1 - keep)
