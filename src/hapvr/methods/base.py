"""What every method shares: settings, the three calls `fit`, `describe` and `score`, and where two videos match."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeAlias, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hapvr.config import CheckedConfig, Within
from hapvr.errors import ConfigError, DataError, ShapeError
from hapvr.evaluation.pair_records import Box
from hapvr.features import Features
from hapvr.methods.clips import Clips
from hapvr.similarity import SegmentConfig, find_segments

Reads: TypeAlias = Literal["regions", "pictures"]
Report: TypeAlias = Callable[[str], None]
TRIALS = 4  # settings that each method tries on a tune set: as many as every other
_HALF = 2  # bytes of a number at rest


@dataclass(frozen=True)
class Settings(CheckedConfig):
    """Settings of a method without any."""


@dataclass(frozen=True)
class FitSettings(Settings):
    """How a method is trained: AdamW, a short linear warm-up, then a cosine. Methods change the defaults."""

    steps: Annotated[int, Within(1)] = 600
    rate: Annotated[float, Within(0)] = 1e-3  # learning rate at the top of the schedule
    weight_decay: Annotated[float, Within(0)] = 0.01
    batch: Annotated[int, Within(2)] = 32  # originals of a step; each comes with one edited copy
    frames: Annotated[int, Within(1)] = 32  # of a clip; shorter videos are repeated


S = TypeVar("S", bound=Settings, covariant=True)


@dataclass(frozen=True, eq=False)
class Description:
    """What a method keeps of a video."""

    values: Tensor  # its shape is the method's own
    times: NDArray[np.float64]  # [T] seconds of the frames that it was made of
    bytes: int  # that it takes at rest: float16 numbers, or packed bits
    more: Mapping[str, Tensor] = dataclasses.field(default_factory=dict)  # of methods that keep several things

    def to(self, device: torch.device) -> Description:
        """The same on another device."""
        more = {name: tensor.to(device) for name, tensor in self.more.items()}
        return dataclasses.replace(self, values=self.values.to(device), more=more)


class Method(nn.Module, Generic[S]):
    """A retrieval method: subclasses write `describe` and `score`, and `fit` if anything is learnt.

    A subclass says who it is by the class attributes below and is registered by `@register`. Its tensors are saved with
    its settings by `hapvr.methods.save_method`.

    Attributes:
        name: by which commands call it.
        title: in tables.
        paper_line: its line in the paper's Table 1; "" where it has none.
        supervised_original: whether the published method learns from labels. Here all learn from edited copies.
        reads: "regions", or "pictures": grey pictures [T, S, S] in the place of region vectors.
        settings_type: the dataclass of its settings.
        trials: settings to try on a tune set, `TRIALS` of them, the first the defaults.

    Args:
        dims: R and D of the region vectors.
        settings: None for the defaults.
    """

    name: ClassVar[str] = ""
    title: ClassVar[str] = ""
    paper_line: ClassVar[str] = ""
    supervised_original: ClassVar[bool] = False
    reads: ClassVar[Reads] = "regions"
    settings_type: ClassVar[type[Settings]] = Settings
    trials: ClassVar[tuple[Mapping[str, Any], ...]] = ({},)
    learns: ClassVar[bool] = False  # whether `fit` trains anything
    localises: bool = False  # whether `locate` finds segments

    def __init__(self, dims: tuple[int, int], settings: S | None = None) -> None:
        super().__init__()
        self.dims = (int(dims[0]), int(dims[1]))
        self.settings: S = cast(S, self.settings_type() if settings is None else settings)
        if not isinstance(self.settings, self.settings_type):
            raise ConfigError(f"{self.name} takes {self.settings_type.__name__}, got {type(settings).__name__}.")
        self.register_buffer("_here", torch.empty(0), persistent=False)  # knows the device, also without weights
        if self.localises:  # set by `calibrate`: evidence of unlike and of matching frames, and the threshold between
            self.register_buffer("evidence_scale", torch.tensor([0.0, 1.0]))
            self.register_buffer("segment_threshold", torch.tensor(0.3))

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return cast(Tensor, self._here).device

    # --- the interface ---------------------------------------------------------------------------------------------

    def fit(self, clips: Clips, *, seed: int = 0, report: Report | None = None) -> list[float]:  # noqa: ARG002
        """Learn from originals and their edited copies; the loss of each step. Nothing, where nothing is learnt."""
        return []

    def describe(self, features: Features) -> Description:
        """What the method keeps of a video; flat and repeated frames are left out by the caller."""
        raise NotImplementedError

    def score(self, queries: Sequence[Description], targets: Sequence[Description]) -> Tensor:
        """The similarity of each query to each target, the higher the more alike: float32 [Q, N] on the CPU."""
        raise NotImplementedError

    # --- where videos match ----------------------------------------------------------------------------------------

    def frame_matrix(self, query: Description, target: Description) -> Tensor:
        """Similarities [Tq, Tt] of frames, of methods that compare frames."""
        raise NotImplementedError(f"{self.name} does not compare frames.")

    def measure_evidence(self, query: Description, target: Description) -> NDArray[np.float64]:
        """How well each query frame is matched, [Tq]; methods without frame matrices give their score, [1]."""
        return np.asarray(self.frame_matrix(query, target).float().amax(1).cpu().numpy(), np.float64)

    def scale_evidence(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Evidence on a scale on which unlike frames are at 0 and matching ones at 1, in the median of the clips."""
        low, high = cast(Tensor, self.evidence_scale).tolist()
        return np.asarray((values - low) / max(high - low, 1e-6))

    def locate(self, query: Description, target: Description) -> list[Box]:
        """The matching stretches of two videos, in seconds: diagonals of the frame matrix."""
        matrix = self.scale_evidence(self.frame_matrix(query, target).double().cpu().numpy())
        config = SegmentConfig(threshold=float(cast(Tensor, self.segment_threshold)))
        return [(one.query, one.target) for one in find_segments(matrix, query.times, target.times, config=config)]

    # --- for subclasses --------------------------------------------------------------------------------------------

    def take_regions(self, features: Features) -> Tensor:
        """The region vectors [T, R, D] of a video in float32 on the device; `ShapeError` if they are not of `dims`."""
        if tuple(features.regions.shape[1:]) != self.dims:
            raise ShapeError(
                f"{self.name} was made for features of {self.dims[0]} regions x {self.dims[1]} dims, got "
                f"{list(features.regions.shape[1:])}. Give the features that it was fitted on."
            )
        return features.regions.to(self.device).float()


def take_times(features: Features) -> NDArray[np.float64]:
    """The times of the frames [T]; where they are not known, a frame a second.

    >>> take_times(Features(torch.ones(3, 1, 2))).tolist()
    [0.0, 1.0, 2.0]
    """
    return features.with_timestamps(1.0).times


def count_bytes(values: Tensor, *, bits: int = 8 * _HALF) -> int:
    """The bytes of a description at rest, `bits` a number.

    >>> count_bytes(torch.zeros(3, 512)), count_bytes(torch.zeros(3, 512), bits=1)
    (3072, 192)
    """
    return math.ceil(values.numel() * bits / 8)


def require_descriptions(queries: Sequence[Description], targets: Sequence[Description]) -> None:
    """Raise `DataError` where there is nothing to compare."""
    if not queries or not targets:
        raise DataError(f"There are {len(queries)} queries and {len(targets)} targets: give at least one of each.")
