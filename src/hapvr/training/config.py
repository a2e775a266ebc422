"""The settings of a training run: one frozen dataclass a section. Every default is the paper's (arXiv:2407.15566).

`hapvr.training.recipe_files` reads them from TOML files and from `section.key=value` words.
"""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import torch

from hapvr.config import CheckedConfig, Share, Within, suggest
from hapvr.errors import ConfigError
from hapvr.losses import HAPVR_WEIGHTS, TERMS, Term, WeightedLosses
from hapvr.similarity import SimilarityConfig
from hapvr.training.augment.config import ViewConfig

SELF_TERMS = ("video_ap", "frame_ap")  # losses that may count a clip as its own positive

Start = Literal["random", "base"]
Targets = Literal["own", "master"]
Hosts = Literal["positive", "ignored"]
TeacherKind = Literal["backbone", "vit_small16", "none"]
Precision = Literal["auto", "bfloat16", "float16", "float32"]

Positive = Annotated[int, Within(1)]
Count = Annotated[int, Within(0)]
NonNegative = Annotated[float, Within(0)]


@dataclass(frozen=True)
class DataConfig(CheckedConfig):
    """What clips are cut from, and how many of them a step compares."""

    frames: str = ""  # a folder of packed frames, as `hapvr frames` writes it, or of tar shards as webdataset has them
    pictures: str = ""  # a folder of photographs; a camera move over each is a clip
    max_pictures: Count = 0  # the first by name, so that they do not crowd out the videos; 0: all
    batch: Annotated[int, Within(2)] = 64  # videos a step and process; each gives a weak and a strong clip
    alike: Share = 0.0  # share of a batch that is drawn as groups of look-alikes; 0, as in the paper: none
    group: Annotated[int, Within(2)] = 8  # videos of such a group
    parts: Positive = 1  # windows of each video; those of one video are footage of one event, but no copies
    size: Annotated[int, Within(16)] = 256  # pixels of the squares that frames are kept as; views are cut out of them
    whole_frames: bool = False  # keep frames as they were packed instead, with what is left and right of the square
    fps: NonNegative = 0.0  # frames a second that all videos must have been packed at, short ones too; 0: any
    device: str = "auto"  # whose memory they are kept in: that of the run, or "cpu"
    stream: NonNegative = 0.0  # GiB a process: read clips from shards as steps need them; 0: decode all at the start
    buffer: Count = 0  # videos that a streamed epoch shuffles at a time, shard after shard; 0: all
    workers: Count = 0  # processes that decode streamed clips; 0: as many as there are cores


@dataclass(frozen=True)
class ModelConfig(CheckedConfig):
    """Where region vectors come from, and where the similarity network starts."""

    base: str = "lite-untrained"  # a model's name or folder: its backbone and whitening describe the frames
    start: Start = "random"  # the network's first weights: drawn from run.seed, or those of the base
    learn_psi: bool = True  # false: psi stays as it starts, and what is before it learns


@dataclass(frozen=True)
class BackboneConfig(CheckedConfig):
    """Whether the backbone learns too, and how far it may go from what it was."""

    rate: NonNegative = 0.0  # learning rate at the top of the schedule; 0: it is frozen, as in the paper
    layers: tuple[str, ...] = ()  # those that learn, by how the names of their parameters begin; batch norms always
    # learn, and (): everything does. A model that does not carry its backbone stores what has changed: few layers
    rank: Count = 0  # of the change that all other convolutions learn, two small matrices each; 0: they are frozen.
    # With layers=() every convolution learns one
    weight_decay: NonNegative = 1e-4
    stay: NonNegative = 2.0  # weight of what changes in weak views: the mean of 1 - cosine of their region vectors
    average: Share = 0.998  # of all weights, a step: what a run gives is their running mean
    targets: Targets = "own"  # what the losses of instants compare frames with: other views as the backbone in training
    # sees them, or clean frames as it saw them before
    same: Annotated[float, Within(-1)] = 0.85  # frames of one video at least this similar need not be told apart
    twin: Annotated[float, Within(-1)] = 0.95  # the same for frames of two videos, and for whole videos
    hosts: Hosts = "positive"  # a clip pasted into another is a copy of both; or of one, and its pairs with clips of
    # the other are ignored
    host_share: Share = 0.0  # where they are ignored: of these clips, those that are copies of their host; the others
    # are copies of what was pasted

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.host_share and (self.hosts != "ignored" or self.targets != "own"):
            raise ConfigError(
                f"backbone.host_share={self.host_share:g} needs hosts='ignored' and targets='own', got "
                f"{self.hosts!r} and {self.targets!r}. Clean frames show no host: with targets='master' set it to 0."
            )


@dataclass(frozen=True)
class TeacherConfig(CheckedConfig):
    """The teacher, which labels the frames of matching clips."""

    kind: TeacherKind = "backbone"  # the base model's own backbone, pooled; DINO's ViT-S/16; or nobody
    weights: str = ""  # of vit_small16: DINO's file, or a folder that `hapvr model convert` made of it
    top_rate: Share = 0.35  # r_t: the share of target frames that are positive
    bottom_rate: Share = 0.35  # r_b: the share that are negative

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.kind == "vit_small16") != bool(self.weights):
            raise ConfigError(
                f"teacher.weights is the file or folder of kind='vit_small16' and of no other; got kind={self.kind!r} "
                f"and weights={self.weights!r}. Without DINO's file take kind='backbone'."
            )


@dataclass(frozen=True)
class LossesConfig:
    """The terms of the total: a weight and the settings of each loss, by its name in `TERMS`.

    A term of weight 0 is left out, with everything that would be computed for it alone. `video_ap` and `frame_ap` may
    also have `include_self = true`, see `Term`.

    >>> LossesConfig({"video_ap": {"weight": 4.0, "delta": 0.05}}).build()
    WeightedLosses(
      (losses): ModuleList(
        (0): QuadLinearAP(delta=0.05, rho=0.1)
      )
    )
    """

    terms: Mapping[str, Mapping[str, float]] = field(
        default_factory=lambda: {name: {"weight": weight} for name, weight in HAPVR_WEIGHTS.items()}
    )

    def __post_init__(self) -> None:
        for name, settings in self.terms.items():
            if name not in TERMS:
                raise ConfigError(f"losses has no term '{name}'; {suggest(name, list(TERMS))}")
            if not isinstance(settings, Mapping):
                raise ConfigError(f"losses.{name} is a table such as {{weight = 1.0}}, got {settings!r}.")
            known = ["weight", *inspect.signature(TERMS[name][0]).parameters]
            known += ["include_self"] * (name in SELF_TERMS)
            for key in settings:
                if key not in known:
                    raise ConfigError(f"losses.{name} has no setting '{key}'; {suggest(key, known)}")
        self.build()

    def build(self) -> WeightedLosses:
        """The recipe as losses that can be called."""
        terms = {}
        for name, settings in self.terms.items():
            loss, level = TERMS[name]
            own = {key: value for key, value in settings.items() if key not in ("weight", "include_self")}
            # The table is typed by its numbers; `Term` refuses an include_self that is neither true nor false.
            with_self: Any = settings.get("include_self", False)
            term = Term(loss(**own), weight=settings.get("weight", 1.0), level=level, include_self=with_self)
            if term.weight:
                terms[name] = term
        return WeightedLosses(terms)


@dataclass(frozen=True)
class OptimiserConfig(CheckedConfig):
    """AdamW."""

    rate: NonNegative = 4e-5  # learning rate at the top of the schedule
    weight_decay: NonNegative = 0.01
    beta1: Share = 0.9
    beta2: Share = 0.999
    clip: NonNegative = 0.0  # largest norm of the gradient; 0 leaves it as it is


@dataclass(frozen=True)
class ScheduleConfig(CheckedConfig):
    """How long, and how fast: a linear warm-up, then a cosine, both counted from step 0."""

    steps: Positive = 30_000
    warm_up: Count = 1_000  # steps
    warm_up_from: Share = 0.01  # of the rate
    end: Share = 0.1  # of the rate, at the last step

    def share(self, step: int) -> float:
        """The share of the learning rate that a step (from 0) takes.

        The cosine runs over all steps, also those of the warm-up: where it takes over it has fallen a little.

        >>> schedule = ScheduleConfig(steps=100, warm_up=10, warm_up_from=0.01, end=0.1)
        >>> [round(schedule.share(step), 4) for step in (0, 5, 10, 50, 100)]
        [0.01, 0.505, 0.978, 0.55, 0.1]
        """
        if step < self.warm_up:
            return self.warm_up_from + (1 - self.warm_up_from) * step / self.warm_up
        return self.end + (1 - self.end) * (1 + math.cos(math.pi * step / self.steps)) / 2


@dataclass(frozen=True)
class BankConfig(CheckedConfig):
    """Views that are extracted once and drawn from in every step. Without views, every step makes its own."""

    weak: Count = 0  # weak views of a clip; 0 of both kinds: no bank
    strong: Count = 0  # strong views
    folder: str = ""  # where it is kept, or found; "" keeps it in memory alone
    device: str = "auto"  # where it lies while it is used: that of the run, or "cpu"

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.weak == 0) != (self.strong == 0):
            raise ConfigError(f"a bank holds weak and strong views, got weak={self.weak} and strong={self.strong}.")

    @property
    def used(self) -> bool:
        """Whether there is a bank at all."""
        return self.weak > 0


@dataclass(frozen=True)
class ValidationConfig(CheckedConfig):
    """A benchmark that is scored while training; the checkpoint of the highest `metric` is kept as `best`."""

    features: str = ""  # HDF5 as `hapvr extract` writes it of a benchmark's folder, or a file of `ValidationSet.save`
    truth: str = ""  # the benchmark's ground_truth.json; none for a file of `ValidationSet.save`
    every: Positive = 1_000  # steps
    metric: Literal["mAP", "uAP"] = "mAP"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.truth and not self.features:
            raise ConfigError("validation.truth is given without validation.features, which it labels.")


@dataclass(frozen=True)
class RunConfig(CheckedConfig):
    """Where a run is kept and how it computes; nothing here changes what is learnt but `seed` and `precision`."""

    folder: str = "runs/hapvr"  # a run that it holds already is continued
    seed: Count = 0
    device: str = "auto"  # the GPU if there is one
    precision: Precision = "auto"  # of the forward pass: bfloat16 on a GPU, float32 on a CPU
    compiled: Literal["auto", "yes", "no"] = "auto"  # backbone and teacher through torch.compile; auto: on a GPU
    micro_batch: Positive = 512  # pictures that go through backbone and teacher at a time
    log_every: Positive = 50  # steps
    checkpoint_every: Positive = 1_000  # steps

    def torch_device(self) -> torch.device:
        """Where to compute; the GPU of this process where there are several."""
        if self.device == "auto":
            if not torch.cuda.is_available():
                return torch.device("cpu")
            return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        try:
            return torch.device(self.device)
        except RuntimeError as error:
            raise ConfigError(f"run.device must be auto, cpu or cuda, got {self.device!r}.") from error

    def dtype(self, device: torch.device) -> torch.dtype:
        """The type of the forward pass on a device."""
        if self.precision == "auto":
            return torch.bfloat16 if device.type == "cuda" else torch.float32
        return {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}[self.precision]


@dataclass(frozen=True)
class TrainConfig:
    """All settings of a run. The defaults are the paper's, on the base model that is shipped."""

    data: DataConfig = field(default_factory=DataConfig)
    views: ViewConfig = field(default_factory=ViewConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    similarity: SimilarityConfig = field(default_factory=SimilarityConfig)
    backbone: BackboneConfig = field(default_factory=BackboneConfig)
    teacher: TeacherConfig = field(default_factory=TeacherConfig)
    losses: LossesConfig = field(default_factory=LossesConfig)
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    bank: BankConfig = field(default_factory=BankConfig)
    validation: ValidationConfig = field(default_factory=ValidationConfig)
    run: RunConfig = field(default_factory=RunConfig)

    def __post_init__(self) -> None:
        if self.teacher.kind == "none" and "frame" in self.losses.build().levels:
            raise ConfigError(
                "the frame loss needs a teacher, and teacher.kind is 'none'. Take teacher.kind='backbone', or leave "
                "the loss out with losses.frame_ap.weight=0."
            )
