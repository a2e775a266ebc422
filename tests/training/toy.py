"""Small things that the tests of training share: a bank without pictures, drawn clips, settings that take a moment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.multiprocessing.spawn import spawn

from hapvr.backbones.base import Backbone
from hapvr.training import Bank, ClipSet, TrainConfig, load_config
from hapvr.training.bank import Side
from hapvr.training.step import NOTHING
from hapvr.video.packed_writer import PackedWriter

DIMS, FRAMES = 16, 8


def toy_bank(videos: int = 8, *, seed: int = 0, strong: int = 2) -> Bank:
    """Views that share a video are alike up to noise; the last strong view of each video shows the next one too."""
    generator = torch.Generator().manual_seed(seed)
    scenes = torch.randn(videos, 1, FRAMES, 2, DIMS, generator=generator)

    def side(views: int, noise: float) -> Side:
        regions = scenes + noise * torch.randn(videos, views, FRAMES, 2, DIMS, generator=generator)
        contents = torch.full((videos, views, 2), NOTHING)
        contents[:, :, 0] = torch.arange(videos)[:, None]
        return Side(F.normalize(regions, dim=-1).half(), contents, regions.mean(3).half())

    weak, mixed = side(1, 0.3), side(strong, 1.0)
    mixed.contents[:, -1, 1] = (torch.arange(videos) + 1) % videos
    return Bank(weak, mixed)


def toy_config(*words: str) -> TrainConfig:
    """Settings for `toy_bank`."""
    own = ["similarity.dims=16", "data.batch=4", "schedule.steps=6", "schedule.warm_up=2", "run.log_every=2"]
    return load_config("tiny", [*own, "run.checkpoint_every=2", "run.device=cpu", *words])


def run_two_processes(work: Callable[[int, str], None], folder: Path) -> list[dict[Any, Any]]:
    """What each of two processes saves as `folder/PROCESS.pt` when it runs `work(process, folder)`."""
    spawn(work, args=(str(folder),), nprocs=2)  # type: ignore[no-untyped-call]
    return [torch.load(folder / f"{process}.pt") for process in range(2)]


def noise_clips(videos: int, *, frames: int = 6, side: int = 112) -> ClipSet:
    """Videos of coloured blocks."""
    generator = torch.Generator().manual_seed(0)
    pictures = []
    for _ in range(videos):
        blocks = torch.randint(0, 256, (frames, 4, 4, 3), dtype=torch.uint8, generator=generator)
        pictures.append(blocks.repeat_interleave(side // 4, 1).repeat_interleave(side // 4, 2))
    return ClipSet(pictures, [f"video {number}" for number in range(videos)])


def packed(folder: str, clips: ClipSet, *, leave_out: Sequence[str] = ()) -> None:
    """Write clips as packed frames."""
    with PackedWriter(folder, attributes={"fps": 1.0}, workers=1) as writer:
        for id, frames in zip(clips.ids, clips.frames, strict=True):
            if id not in leave_out:
                writer.add(id, frames.numpy(), np.arange(len(frames), dtype=np.float64))


class TinyBackbone(Backbone):
    """Four convolutions."""

    name = "tiny"
    mean, std = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)
    stage_channels = (8, 8, 8, 8)

    def __init__(self) -> None:
        super().__init__()
        strides = (4, 2, 2, 2)
        self.layers = torch.nn.ModuleList(
            torch.nn.Conv2d(3 if i == 0 else 8, 8, stride, stride=stride) for i, stride in enumerate(strides)
        )
        self.norms = torch.nn.ModuleList(torch.nn.BatchNorm2d(8) for _ in strides)

    def stages(self, images: Tensor) -> tuple[Tensor, ...]:
        maps = []
        for layer, norm in zip(self.layers, self.norms, strict=True):
            images = F.relu(norm(layer(images)))
            maps.append(images)
        return tuple(maps)
