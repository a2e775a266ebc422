"""The frozen half of a step: pictures in, region vectors and a teacher's frame vectors out, on one device."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from hapvr.backbones import Backbone, load_backbone
from hapvr.checks import require_finite, shape_of
from hapvr.conversion import convert
from hapvr.errors import ConfigError, ShapeError
from hapvr.features.folding import fold_batch_norms
from hapvr.features.regions import MIN_SIDE, POOLED, input_scale, regions_of_maps
from hapvr.features.whitening import Whitening
from hapvr.training.config import TeacherConfig


class Encoded(NamedTuple):
    """What the frozen networks see in pictures."""

    regions: Tensor  # [..., R, D]
    frames: Tensor | None  # [..., D'], of the teacher


class Encoder:
    """A backbone with its whitening, and a teacher, as one function of pictures. Nothing in it is trained.

    Pictures go through in micro-batches. Where the networks are compiled the last is filled up: one size, one program.
    What runs is a copy of the backbone with its batch normalisations folded into the convolutions, in `dtype`, while
    pooling and whitening are float32; the given backbone stays as it is. Between the first and the last micro-batch
    nothing waits for a GPU. The teacher "backbone" takes the backbone's last map, pooled; another network its output;
    None makes no frame vectors.
    """

    def __init__(
        self,
        backbone: Backbone,
        whitening: Whitening,
        teacher: Backbone | str | None = None,
        *,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
        micro_batch: int = 512,
        compiled: bool = False,
    ) -> None:
        self.device, self.dtype, self.micro_batch = device, dtype, micro_batch
        self.clock: Callable[[str], AbstractContextManager[None]] | None = None  # a benchmark times both networks
        self._pooled = teacher == "backbone"
        own = _freeze(backbone, device)
        fast = fold_batch_norms(own)
        if fast is not own:  # one that cannot be folded stays in float32, under autocast
            fast = fast.to(dtype)
        prepare = input_scale(backbone, device)
        self._whitening = whitening.to(device)
        self._stages: Callable[[Tensor], tuple[Tensor, ...]] = lambda x: fast.stages(prepare(x).to(dtype))
        self._teach: Callable[[Tensor], Tensor] | None = None
        if isinstance(teacher, Backbone):
            network, prepare_taught = _freeze(teacher, device), input_scale(teacher, device)
            self._teach = lambda x: network(prepare_taught(x))
        elif teacher not in ("backbone", None):
            raise ConfigError(f"teacher must be a backbone, 'backbone' or None, got {teacher!r}.")
        self._compiled = compiled
        if compiled:
            self._stages = torch.compile(self._stages, dynamic=False)
            self._teach = None if self._teach is None else torch.compile(self._teach, dynamic=False)

    @torch.no_grad()
    def __call__(self, pictures: Tensor, *, check: bool = True) -> Encoded:
        """Pictures [..., 3, S, S], uint8 or floating point in [0, 1] -> regions [..., R, D] and frames [..., D'].

        `DataError` for regions that are not finite; `check=False` leaves that to the caller, and waits for nothing.
        """
        if pictures.ndim < 4 or pictures.shape[-3] != 3 or min(pictures.shape[-2:]) < MIN_SIDE:
            raise ShapeError(
                f"pictures must be [..., 3, S, S], S (views.size) at least {MIN_SIDE}; got {shape_of(pictures)}."
            )
        flat = pictures.flatten(0, -4)
        parts = [self._encode(part) for part in torch.split(flat, self.micro_batch)]
        shape = pictures.shape[:-3]
        regions = torch.cat([part.regions for part in parts])
        if check:
            require_finite(regions, POOLED)
        frames = [part.frames for part in parts if part.frames is not None]
        joined = torch.cat(frames).view(*shape, -1) if frames else None
        return Encoded(regions.view(*shape, *regions.shape[1:]), joined)

    def _encode(self, pictures: Tensor) -> Encoded:
        count = len(pictures)
        pictures = pictures.to(self.device, non_blocking=True)
        if self._compiled and count < self.micro_batch:
            pictures = torch.cat([pictures, pictures[-1:].expand(self.micro_batch - count, -1, -1, -1)])
        pictures = pictures.contiguous(memory_format=torch.channels_last)
        with torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32):
            with self._timed("backbone"):
                maps = [stage[:count] for stage in self._stages(pictures)]
                regions = regions_of_maps(maps, self._whitening, check=False)
            frames = maps[-1].float().mean(dim=(2, 3)) if self._pooled else None
            if self._teach is not None:
                with self._timed("teacher"):
                    frames = self._teach(pictures)[:count].float()
        return Encoded(regions, frames)

    def _timed(self, name: str) -> AbstractContextManager[None]:
        return nullcontext() if self.clock is None else self.clock(name)


def build_teacher(config: TeacherConfig) -> Backbone | str | None:
    """The teacher that labels frames: "backbone", a loaded network, or None; as `Encoder` takes it.

    DINO's ViT-S/16 is read from its published file or from a folder that `hapvr model convert` made of one.
    """
    if config.kind != "vit_small16":
        return "backbone" if config.kind == "backbone" else None
    path = Path(config.weights)
    if path.is_dir():
        network = load_backbone(path)
    else:
        with tempfile.TemporaryDirectory() as folder:
            convert(path, Path(folder) / "teacher")
            network = load_backbone(Path(folder) / "teacher")
    if network.name != config.kind:
        raise ConfigError(f"teacher.weights '{path}' holds a {network.name}, and teacher.kind is '{config.kind}'.")
    return network


def _freeze(network: Backbone, device: torch.device) -> Backbone:
    moved: Backbone = network.eval().requires_grad_(False).to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    return moved
