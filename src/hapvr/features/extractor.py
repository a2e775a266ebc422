"""From frames to region vectors at speed: a frozen backbone and its whitening as one function."""

from __future__ import annotations

import copy
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from hapvr.backbones.base import Backbone
from hapvr.checks import shape_of
from hapvr.config import suggest
from hapvr.errors import ConfigError, ShapeError
from hapvr.features.engine import Engine, EngineError, OpenVinoEngine, TorchEngine, choose_engine, describe_engine
from hapvr.features.features import Features, join_features
from hapvr.features.int8_convolutions import Int8Rounding
from hapvr.features.regions import MIN_SIDE, regions_of_pooled
from hapvr.features.whitening import Whitening
from hapvr.processor import has_unusable_amx, multiplies_bytes
from hapvr.records import Box, Frames
from hapvr.storage import StrPath, sha256_bytes, sha256_tensors
from hapvr.video.insets import find_inset
from hapvr.video.pictures import crop_centre, enlarged_size, make_miniatures
from hapvr.video.sampling import SamplingConfig
from hapvr.workers.threads import map_threads, torch_thread_pool

INT8_SETTING = "HAPVR_INT8"  # the environment variable that switches int8 off


def fast_dtype(device: torch.device) -> torch.dtype:
    """bfloat16 on a GPU and on CPUs that multiply it themselves, else float32: what is fastest at little loss.

    A CPU whose AMX cannot be used has other instructions for bfloat16, slower than those for float32.
    """
    check = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    capable = check is not None and check() and not has_unusable_amx()
    fast = device.type == "cuda" or (device.type == "cpu" and capable)
    return torch.bfloat16 if fast else torch.float32


def uses_int8(device: torch.device) -> bool:
    """Whether 1 x 1 convolutions in int8 are what is fastest at little loss: on CPUs with VNNI and without bfloat16.

    `HAPVR_INT8=off` in the environment says no.
    """
    if (setting := os.environ.get(INT8_SETTING) or "auto") not in ("auto", "off"):
        raise ConfigError(f"{INT8_SETTING} cannot be {setting!r}; {suggest(setting, ['auto', 'off'])}")
    capable = device.type == "cpu" and fast_dtype(device) == torch.float32 and multiplies_bytes()
    return setting == "auto" and capable


def describe_precision(*, rounded: bool) -> str:
    """The engine that describes pictures on this machine's CPU, and what it computes in; `rounded`: the model has a
    rounding to int8.
    """
    cpu = torch.device("cpu")
    if rounded and choose_engine(None, cpu) == "openvino" and uses_int8(cpu):
        return f"{describe_engine()}, in float32, for libraries in int8"
    return f"{describe_engine()}, in {str(fast_dtype(cpu))[6:]}"


class RegionExtractor:
    """A frozen backbone and its whitening as one function: pictures in, region vectors out.

    On a GPU and on CPUs that multiply bfloat16 the backbone runs in bfloat16, elsewhere in float32; normalisation and
    whitening are float32 always. `precision` overrides that. Batch normalisation is folded into the convolutions of a
    copy of the backbone, which is what runs; `backbone` stays as it was given. What runs it is OpenVINO on a CPU, for
    pictures of the size that `sampling` gives, and torch elsewhere (see `hapvr.features.engine`).

    On a CPU batches are described side by side, one a core: no core waits for another at every layer, which costs
    little on an idle machine and a great deal on a busy one.

    Args:
        backbone: anything with stages; put into evaluation mode, moved to `device`.
        whitening: None leaves the pooled vectors as they are.
        sampling: how videos become pictures.
        device: where to compute.
        precision: torch.float32 or torch.bfloat16.
        batch: pictures at a time; 512 on a GPU and 16 on a CPU if None.
        compiled: run the backbone through torch.compile. The first batch then takes a minute.
        engine: "openvino", "torch", or "auto": OpenVINO on a CPU where it is installed and can run the backbone. None
            takes what the environment variable HAPVR_ENGINE says, and "auto" where there is none.
        stored_digest: the sha256 of the weights as they are stored, where some are multiplied with each other when they
            are loaded: products differ in their last bits from one kind of processor to another.
        rounding: how the backbone's 1 x 1 convolutions are rounded to int8. OpenVINO then runs them so where that is
            fastest (`uses_int8`), unless a `precision` is given; None leaves them in `precision`.

    Attributes:
        engine: what runs the backbone: "openvino" or "torch".
        rounding: the one that OpenVINO uses; None where it rounds nothing.
        copies: the same on further devices, which share the work on many videos; see `copy_to`.
    """

    def __init__(
        self,
        backbone: Backbone,
        whitening: Whitening | None = None,
        *,
        sampling: SamplingConfig | None = None,
        device: str | torch.device = "cpu",
        precision: torch.dtype | None = None,
        batch: int | None = None,
        compiled: bool = False,
        engine: str | None = None,
        stored_digest: str | None = None,
        rounding: Int8Rounding | None = None,
    ) -> None:
        self.device = torch.device(device)
        gpu = self.device.type == "cuda"
        self.precision = precision or fast_dtype(self.device)
        self.rounding = rounding if precision is None and uses_int8(self.device) else None
        if self.precision not in (torch.float32, torch.bfloat16):
            raise ConfigError(f"precision must be torch.float32 or torch.bfloat16, got {precision}.")
        self.backbone = backbone.eval().requires_grad_(False).to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.whitening = None if whitening is None else whitening.to(self.device)
        self.sampling = sampling or SamplingConfig()
        self.batch = batch or (512 if gpu else 16)
        self.compiled = compiled
        self._stored_digest = stored_digest
        if not self.backbone.stage_channels:
            raise ConfigError(f"{backbone.name} has no stages to take regions from; take a convolutional backbone.")
        self.engine = "torch" if compiled else choose_engine(engine, self.device)
        self._required = engine == "openvino"
        self.copies: tuple[RegionExtractor, ...] = ()
        self._lock = threading.Lock()
        self._openvino: OpenVinoEngine | None = None  # made for the first batch: a search by id needs none
        self._torch = self._make_torch_engine() if self.engine == "torch" else None

    @property
    def computes_in(self) -> torch.dtype:
        """What the engine computes in; torch.int8 stands for int8 in 1 x 1 convolutions and `precision` elsewhere."""
        return self.precision if self.rounding is None or self.engine == "torch" else torch.int8

    def copy_to(self, devices: Iterable[torch.device]) -> None:
        """Let further devices share the work on many videos: each gets a copy of the network."""
        made = []
        for device in devices:
            parts = copy.deepcopy(self.backbone), copy.deepcopy(self.whitening)
            engine = self.engine if device.type == self.device.type else None
            settings = {"batch": self.batch, "compiled": self.compiled, "engine": engine}
            made.append(
                RegionExtractor(*parts, sampling=self.sampling, device=device, precision=self.precision, **settings)  # type: ignore[arg-type]
            )
        self.copies = tuple(made)

    @torch.no_grad()
    def __call__(self, images: NDArray[np.uint8] | Tensor) -> Tensor:
        """Region vectors of pictures: uint8 [T, H, W, 3] -> float32 [T, R, D] on the CPU. The centre is cropped."""
        pictures = torch.as_tensor(images)
        if pictures.dtype != torch.uint8 or pictures.ndim != 4 or pictures.shape[3] != 3 or len(pictures) == 0:
            raise ShapeError(f"images must be uint8 [T, H, W, 3], got {pictures.dtype} {shape_of(pictures)}.")
        pictures = centre_pictures(pictures, self.sampling.crop)
        threads = self.threads()
        count = max(-(-len(pictures) // self.batch), min(threads, len(pictures) // 4))
        return torch.cat(map_threads(self.regions, pictures.chunk(max(1, count)), threads)).float().cpu()

    def threads(self) -> int:
        """How many batches are described at a time: on a CPU as many as torch has threads, on a GPU one."""
        return torch.get_num_threads() if self.device.type == "cpu" else 1

    @torch.no_grad()
    def regions(self, pictures: Tensor) -> Tensor:
        """Region vectors of one batch of squares, uint8 [N, S, S, 3] -> float32 [N, R, D] on the device."""
        if min(pictures.shape[1:3]) < MIN_SIDE:
            raise ShapeError(f"regions need pictures of at least {MIN_SIDE} pixels a side, got {shape_of(pictures)}.")
        return regions_of_pooled(self._choose(pictures)(pictures), self.whitening)

    def _choose(self, pictures: Tensor) -> Engine:
        """The engine for these pictures, made if there is none yet. OpenVINO's takes one size."""
        side = self.sampling.crop
        with self._lock:
            if self.engine == "openvino" and tuple(pictures.shape[1:3]) == (side, side) and self._openvino is None:
                self._make_openvino_engine(side)
            if self._openvino is not None and self._openvino.takes(pictures):
                return self._openvino
            if self._torch is None:
                self._torch = self._make_torch_engine()
            return self._torch

    def _make_torch_engine(self) -> TorchEngine:
        few_sizes = self.compiled or self.device.type == "cuda"
        options = {"precision": self.precision, "compiled": self.compiled}
        return TorchEngine(self.backbone, **options, full_batch=self.batch if few_sizes else None)  # type: ignore[arg-type]

    def _make_openvino_engine(self, side: int) -> None:
        try:
            with torch_thread_pool(1) as pool:  # small work, for which torch's threads would wait for each other
                options = {"side": side, "precision": self.precision, "rounding": self.rounding}
                make = partial(OpenVinoEngine, self.backbone, **options)  # type: ignore[arg-type]
                self._openvino = pool.submit(make).result()
        except EngineError as error:
            problem = f"OpenVINO cannot run {self.backbone.name} here: {error}."
            if self.rounding is not None:
                warnings.warn(f"{problem} It is run without int8.", RuntimeWarning, stacklevel=2)
                self.rounding = None
                self._make_openvino_engine(side)
                return
            if self._required:
                raise ConfigError(f"{problem} Take the engine 'auto' or 'torch'.") from error
            warnings.warn(f"{problem} torch runs it instead.", RuntimeWarning, stacklevel=2)
            self.engine = "torch"

    def digest(self) -> str:
        """The sha256 of all that region vectors depend on but the rate: backbone, whitening and sampling.

        It is the same on every machine.
        """
        return self._digest_with_sampling(self._stored_digest or self._digest_tensors())

    def digest_as_loaded(self) -> str:
        """The digest that libraries have which were made before `stored_digest`: of the weights after loading."""
        return self._digest_with_sampling(self._digest_tensors())

    def _digest_tensors(self) -> str:
        whitening = "" if self.whitening is None else sha256_tensors(self.whitening.to_part().tensors)
        return sha256_tensors(self.backbone.state_dict()) + whitening

    def _digest_with_sampling(self, weights: str) -> str:
        sampling = {name: value for name, value in asdict(self.sampling).items() if name != "fps"}
        return sha256_bytes((repr(sorted(sampling.items())) + weights).encode())

    def features(self, frames: Frames) -> Features:
        """Features of decoded frames, with their times, flags and miniatures."""
        small = make_miniatures(frames.images)
        return Features(self(frames.images), frames.timestamps, frames.low_information, small)

    def extract_file(self, path: StrPath, *, start_s: float | None = None, end_s: float | None = None) -> ExtractedFile:
        """Features of a video file, or of the part of it in [start_s, end_s), which is decoded in a sandbox."""
        parts = self._decode(path, start_s, end_s, None)
        return self.extract_parts(parts, start_s=start_s, end_s=end_s, name=f"'{os.fspath(path)}'")

    def extract_views(
        self, path: StrPath, *, start_s: float | None = None, end_s: float | None = None
    ) -> tuple[ExtractedFile, ...]:
        """What `extract_file` gives and, if the video shows another one in a window, the features of that one too."""
        decode = partial(self._decode, path, start_s, end_s)
        return self.extract_decoded_views(decode, start_s=start_s, end_s=end_s, name=f"'{os.fspath(path)}'")

    def _decode(self, path: StrPath, start_s: float | None, end_s: float | None, crop: Box | None) -> Iterator[Frames]:
        from hapvr.video.decode import decode_sampled
        from hapvr.video.sandboxed import iterate_sandboxed

        return iterate_sandboxed(decode_sampled, path, self.sampling, start_s=start_s, end_s=end_s, crop=crop)

    def extract_decoded_views(
        self,
        decode: Callable[[Box | None], Iterable[Frames]],
        *,
        start_s: float | None = None,
        end_s: float | None = None,
        name: str,
    ) -> tuple[ExtractedFile, ...]:
        """`extract_views` of what `decode` gives: all of the picture if it is given None, or a rectangle of it."""
        inset: Box | None = None

        def look_into(parts: Iterable[Frames]) -> Iterator[Frames]:
            nonlocal inset
            for number, part in enumerate(parts):
                if number == 0:  # windows that open later are not looked for
                    inset = find_inset(part)
                yield part
                del part  # it would stay while the next part is decoded

        whole = self.extract_parts(look_into(decode(None)), start_s=start_s, end_s=end_s, name=name)
        if inset is None:
            return (whole,)
        shown = self.extract_parts(decode(inset), start_s=start_s, end_s=end_s, name=name)
        return whole, replace(shown, inset=inset)

    def extract_parts(
        self, parts: Iterable[Frames], *, start_s: float | None = None, end_s: float | None = None, name: str
    ) -> ExtractedFile:
        """Features of a video that is decoded in parts: each is described and dropped before the next is asked for.

        Frames outside of [start_s, end_s) are left out. Errors call the video `name`.
        """
        facts: tuple[tuple[str, ...], float | None, Box | None] = ((), None, None)

        def extract() -> Iterator[Features]:
            nonlocal facts
            for part in parts:
                features = self.features(part)
                facts = part.warnings, part.duration_s, part.crop  # what is known at the end comes with the last part
                del part  # 90 MB that would stay while the next part is decoded
                yield features

        whole = join_features(extract(), name=name)
        return ExtractedFile(whole.between(start_s, end_s, name=name), *facts)


@dataclass(frozen=True, eq=False)
class ExtractedFile:
    """What was read of a video file."""

    features: Features
    warnings: tuple[str, ...]  # what was wrong with the file
    duration_s: float | None  # of the whole video; None for a still picture
    crop: Box | None  # the part of a frame that was described, without its bars, in pixels of the source
    inset: Box | None = None  # the same, if it is a window in which the video shows another one


def centre_pictures(pictures: Tensor, side: int) -> Tensor:
    """The centre square of [T, H, W, 3]; pictures that are smaller are enlarged first."""
    height, width = pictures.shape[1:3]
    if (size := enlarged_size(height, width, side)) != (height, width):
        larger = F.interpolate(pictures.permute(0, 3, 1, 2).float(), size, mode="bilinear")
        pictures = larger.round().to(torch.uint8).permute(0, 2, 3, 1)
    return crop_centre(pictures, side)
