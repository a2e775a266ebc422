"""What runs a backbone: torch, or OpenVINO on a CPU, where it takes about half the time.

An engine turns a batch of pictures into the max-pooled maps of the backbone's stages. All that follows (normalisation,
joining, whitening) is done by torch in float32, whichever engine ran, so region vectors of both are interchangeable.
torch is the reference, and what runs where OpenVINO is not installed or fails.

OpenVINO's converter and its package `openvino_telemetry` report their use over the network. Neither is used here: the
graph comes from OpenVINO's reader of TorchScript, and the package is hidden while OpenVINO is imported.
"""

from __future__ import annotations

import copy
import importlib.metadata
import importlib.util
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hapvr.backbones.base import Backbone
from hapvr.config import suggest
from hapvr.errors import ConfigError
from hapvr.features.folding import fold_batch_norms
from hapvr.features.int8_convolutions import LEVELS, Int8Rounding, round_convolutions
from hapvr.features.regions import input_scale, join_pooled, pool_maps

ENGINES = ("auto", "openvino", "torch")
SETTING = "HAPVR_ENGINE"  # the environment variable that names one of them

# Pictures that OpenVINO is given at a time: their maps stay in the cache of a core. A graph for a fixed number takes
# less time than one for any number; an empty picture makes up for a missing one.
_BATCH = 2
_PAD_STEP = 32  # pictures: batches beyond a full one are filled up to a multiple of it
# Largest distance (1 - cosine) of a region vector from torch's in float32. An engine that differs by more is not used.
# int8 is compared with the same rounding in torch; one step of rounding more or less in an early layer shows later.
_MAX_DISTANCE = {torch.float32: 1e-4, torch.bfloat16: 0.05, torch.int8: 0.05}
_hiding = threading.Lock()


class Engine(Protocol):
    """Runs a backbone: squares, uint8 [N, S, S, 3], to the pooled maps of its stages, each [N, C, h, w]."""

    def __call__(self, pictures: Tensor) -> Sequence[Tensor]:
        """The pooled maps of each stage, fine to coarse."""


class EngineError(Exception):
    """OpenVINO cannot run this backbone on this machine."""


def choose_engine(engine: str | None, device: torch.device) -> str:
    """The engine to run on a device: "openvino" or "torch".

    None stands for the environment's `HAPVR_ENGINE`, or "auto". "auto" is OpenVINO on a CPU if it is installed.

    >>> choose_engine("torch", torch.device("cpu")), choose_engine("auto", torch.device("cuda"))
    ('torch', 'torch')
    """
    name = engine or os.environ.get(SETTING) or "auto"
    if name not in ENGINES:
        where = "engine" if engine else SETTING
        raise ConfigError(f"{where} cannot be {name!r}; {suggest(name, list(ENGINES))}")
    if name == "auto":
        return "openvino" if device.type == "cpu" and find_openvino() else "torch"
    if name == "openvino" and device.type != "cpu":
        if engine is None:  # the environment speaks of the models on a CPU
            return "torch"
        raise ConfigError(f"The engine openvino runs on a CPU, not on {device}. Take 'auto' or 'torch'.")
    if name == "openvino" and not find_openvino():
        raise ConfigError(
            "The engine openvino is not installed. Run `pip install openvino`, or take 'auto' or 'torch'."
        )
    return name


def describe_engine(engine: str | None = None) -> str:
    """The engine that describes pictures on the CPU of this machine, with its version, in words."""
    if choose_engine(engine, torch.device("cpu")) == "openvino":
        return f"OpenVINO {find_openvino()}"
    return f"torch {torch.__version__}" + ("" if find_openvino() else " (OpenVINO is not installed)")


def find_openvino() -> str | None:
    """The version of OpenVINO, None if it is not installed; it is not imported."""
    try:
        found = importlib.util.find_spec("openvino") is not None
        return importlib.metadata.version("openvino") if found else None
    except (ImportError, ValueError):  # no such package; or it was imported and hidden
        return None


class TorchEngine:
    """The engine that runs everywhere, and the reference.

    Args:
        backbone: in evaluation mode, in float32; a copy of it runs.
        precision: what it computes in.
        compiled: run it through torch.compile.
        full_batch: fill batches up to a few sizes, of which this is the usual one; see `pad_batch`. None: run them as
            they are.
    """

    def __init__(
        self, backbone: Backbone, *, precision: torch.dtype, compiled: bool = False, full_batch: int | None = None
    ) -> None:
        fast = fold_batch_norms(backbone)
        fast = (copy.deepcopy(fast) if fast is backbone else fast).to(precision)
        self._stages: Callable[[Tensor], Sequence[Tensor]] = (
            torch.compile(fast.stages, dynamic=False) if compiled else fast.stages
        )
        self._device = next(backbone.parameters()).device
        self._scale, self._precision = input_scale(backbone, self._device), precision
        self._full_batch, self._compiled = full_batch, compiled

    def __call__(self, pictures: Tensor) -> Sequence[Tensor]:
        """See `Engine`."""
        count = len(pictures)
        pictures = pictures.to(self._device, non_blocking=True)
        if self._full_batch is not None:
            missing = pad_batch(count, self._full_batch, compiled=self._compiled) - count
            if missing:  # to pad by nothing would copy a full batch
                pictures = F.pad(pictures, (0, 0, 0, 0, 0, 0, 0, missing))
        pictures = pictures.permute(0, 3, 1, 2)  # channels last, as they lie
        return [pooled[:count] for pooled in pool_maps(self._stages(self._scale(pictures).to(self._precision)))]


def pad_batch(count: int, full: int, *, compiled: bool = False) -> int:
    """How many pictures a batch of `count` is filled up to, so that a GPU sees few sizes of batches.

    Its convolutions are prepared for each new size, which can take longer than the batch. A compiled network has one
    size for all batches up to a `full` one, others have powers of two.

    >>> [pad_batch(count, 512) for count in (1, 9, 300, 512, 530)]
    [8, 16, 512, 512, 544]
    """
    if count > full:  # batches are made up of whole blocks, so that the last one may reach beyond
        return full + -(-(count - full) // _PAD_STEP) * _PAD_STEP
    return full if compiled else min(full, max(8, 1 << (count - 1).bit_length()))


class OpenVinoEngine:
    """A backbone, with the pooling after it, as one graph of OpenVINO.

    It may be called from any number of threads: each call runs on one core. Every call that runs beside others has its
    own copy of the compiled graph, made when it is first needed.

    Args:
        backbone: in evaluation mode, on the CPU in float32.
        side: of the pictures, in pixels; others are refused.
        precision: torch.float32, or torch.bfloat16, which is used if the CPU has instructions for it.
        rounding: how the 1 x 1 convolutions are rounded to int8; then everything else is in float32. None: they are
            not. Give it on CPUs that multiply bytes (`multiplies_bytes`); others may overflow.

    Raises:
        EngineError: OpenVINO cannot be imported, or cannot run this backbone, or gives other maps than torch.
    """

    def __init__(
        self, backbone: Backbone, *, side: int, precision: torch.dtype, rounding: Int8Rounding | None = None
    ) -> None:
        self._side = side
        mean, std = (torch.tensor(values).repeat(side) for values in (backbone.mean, backbone.std))  # of a row
        self._shift, self._factor = -mean / std, 1 / (255 * std)
        folded = fold_batch_norms(backbone) if rounding is None else round_convolutions(backbone, rounding)
        network = _PooledStages(copy.deepcopy(folded) if folded is backbone else folded).eval().requires_grad_(False)
        self._lock = threading.Lock()
        self._free: list[Any] = []  # requests that nobody uses
        try:
            openvino = _import_openvino()
            self._core: Any = openvino.Core()
            capable = "BF16" in self._core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
            self._graph = _make_graph(openvino, network, side)
            self._precision = precision if capable else torch.float32
            if rounding is not None:
                _name_levels(self._graph)
                self._precision = torch.int8
            distance = self._measure_distance(network)
        except Exception as error:  # an import, or whatever OpenVINO raises: it has no base class for it
            raise EngineError(" ".join(str(error).split())[:300] or type(error).__name__) from error
        if not distance <= _MAX_DISTANCE[self._precision]:
            raise EngineError(f"its maps differ from those of torch by {distance:.2g} (1 - cosine of region vectors)")

    @property
    def precision(self) -> torch.dtype:
        """What it computes in; torch.int8 stands for 1 x 1 convolutions in int8 and the rest in float32."""
        return self._precision

    def takes(self, pictures: Tensor) -> bool:
        """Whether these are pictures of its side, on the CPU."""
        return tuple(pictures.shape[1:3]) == (self._side, self._side) and pictures.device.type == "cpu"

    def __call__(self, pictures: Tensor) -> Sequence[Tensor]:
        """See `Engine`."""
        with self._request() as request:
            parts = [self._run(request, some) for some in torch.split(pictures.contiguous(), _BATCH)]
        return [torch.cat(stage) for stage in zip(*parts, strict=True)]

    @contextmanager
    def _request(self) -> Iterator[Any]:
        """A request that this thread alone uses."""
        with self._lock:
            request = self._free.pop() if self._free else self._make_request()
        try:
            yield request
        finally:
            with self._lock:
                self._free.append(request)

    def _make_request(self) -> Any:
        settings = {
            "INFERENCE_PRECISION_HINT": "bf16" if self._precision == torch.bfloat16 else "f32",
            "NUM_STREAMS": 1,
            "INFERENCE_NUM_THREADS": 1,
            "ENABLE_CPU_PINNING": False,  # other processes would be pinned to the same cores
        }
        return self._core.compile_model(self._graph, "CPU", settings).create_infer_request()

    def _run(self, request: Any, pictures: Tensor) -> list[Tensor]:
        """The pooled maps of at most `_BATCH` pictures."""
        count = len(pictures)
        scaled = self._scale(pictures)
        if count < _BATCH:
            scaled = torch.cat([scaled, scaled.new_zeros((_BATCH - count, *scaled.shape[1:]))])
        request.start_async({0: scaled.numpy()}, share_inputs=True)
        request.wait()
        outputs = range(len(request.model_outputs))
        return [torch.from_numpy(request.get_output_tensor(index).data[:count].copy()) for index in outputs]

    def _scale(self, pictures: Tensor) -> Tensor:
        """Pictures [N, S, S, 3] as the backbone takes them, as `input_scale` does it, but row by row.

        Not in the graph, which would do it in bfloat16: differences of similar numbers would be lost.
        """
        return torch.addcmul(self._shift, pictures.flatten(2).float(), self._factor).view(pictures.shape)

    def _measure_distance(self, network: nn.Module) -> float:
        """The largest distance (1 - cosine) of a region vector of a drawn picture from that of the network in torch."""
        generator = torch.Generator().manual_seed(0)
        coarse = torch.rand((1, 3, 8, 8), generator=generator)
        soft = nn.functional.interpolate(coarse, (self._side, self._side), mode="bilinear")
        picture = (255 * soft).byte().permute(0, 2, 3, 1)
        with torch.no_grad():
            found, right = self(picture), network(self._scale(picture))
            got, expected = (join_pooled(pooled, check=False) for pooled in (found, right))
        return 1 - float((got * expected).sum(dim=-1).min())


class _PooledStages(nn.Module):
    """What an engine computes, as a module that can be traced."""

    def __init__(self, folded: Backbone) -> None:
        super().__init__()
        self.backbone = folded

    def forward(self, scaled: Tensor) -> tuple[Tensor, ...]:
        """Scaled pictures [N, S, S, 3] -> pooled maps [N, C, h, w]."""
        return tuple(pool_maps(self.backbone.stages(scaled.permute(0, 3, 1, 2))))


def _import_openvino() -> Any:
    """OpenVINO, without the package by which it reports over the network that it was imported."""
    with _hiding:
        hide = "openvino" not in sys.modules and "openvino_telemetry" not in sys.modules
        if hide:
            sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]
        try:
            import openvino
            import openvino.frontend.pytorch.ts_decoder
        finally:
            if hide:
                sys.modules.pop("openvino_telemetry", None)
    return openvino


def _make_graph(openvino: Any, network: nn.Module, side: int) -> Any:
    """The graph from scaled pictures [_BATCH, side, side, 3] to pooled maps; the weights need no gradient."""
    example = torch.zeros((1, side, side, 3))
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is frozen; paddings become constants, as they are for one side
        # As a function: of a module, torch would first make a script of each of its hundred parts, for 0.3 s.
        traced = torch.jit.trace(lambda scaled: network(scaled), example, check_trace=False)  # type: ignore[no-untyped-call]
        decoder = openvino.frontend.pytorch.ts_decoder.TorchScriptPythonDecoder(traced)
        reader = openvino.frontend.FrontEndManager().load_by_framework("pytorch")
        graph = reader.convert(reader.load(decoder))
    graph.reshape([_BATCH, side, side, 3])
    return graph


def _name_levels(graph: Any) -> None:
    """Put constants where the reader computes the levels of rounded inputs: OpenVINO multiplies bytes only then."""
    import openvino.opset13 as operations

    for node in graph.get_ops():
        if node.get_type_name() == "FakeQuantize":
            for number, level in zip(range(1, 5), (0, LEVELS - 1, 0, LEVELS - 1), strict=True):
                node.input(number).replace_source_output(operations.constant(np.float32(level)).output(0))
