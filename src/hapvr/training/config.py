"""The settings of a training run: one frozen dataclass a section, read from TOML and from `section.key=value` words.

Every default is the paper's (HAP-VR, arXiv:2407.15566); a recipe is a TOML file that names what it changes. The shipped
ones are known by name: "paper", "small", "tiny" and "whole". A recipe may have stages: each changes some settings and
starts from the model of the stage before it.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import torch

from hapvr.config import CheckedConfig, Share, Within, parse_toml, suggest
from hapvr.errors import ConfigError
from hapvr.losses import HAPVR_WEIGHTS, TERMS, Term, WeightedLosses
from hapvr.similarity import SimilarityConfig
from hapvr.training.augment.config import RENAMED, ViewConfig

RECIPES = Path(__file__).parent / "recipes"  # package data
STAGE = "stage"  # the table of a recipe that holds its stages
STAGES = "stages"  # the word that chooses some of them
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
    rank: Count = (
        0  # of the change that all other convolutions learn, two small matrices each; 0: they stay as they are.
    )
    # With () every convolution learns one
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

    A term of weight 0 is left out, and so is whatever would be computed for it alone. `video_ap` and `frame_ap` may
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


# --- from files and words --------------------------------------------------------------------------------------------


def list_recipes() -> list[str]:
    """The names of the recipes that are shipped."""
    return sorted(path.stem for path in RECIPES.glob("*.toml"))


def load_config(source: str | os.PathLike[str], overrides: Iterable[str] = ()) -> TrainConfig:
    """The settings of a TOML file or of a shipped recipe, changed by words such as "schedule.steps=100".

    `ConfigError` for a recipe of several stages: `load_stages` reads those.

    >>> load_config("tiny", ["schedule.steps=7"]).schedule.steps
    7
    >>> load_config("tiny", ["schedul.steps=7"])
    Traceback (most recent call last):
    hapvr.errors.ConfigError: TrainConfig has no section 'schedul'; did you mean 'schedule'?
    """
    stages = load_stages(source, overrides)
    if len(stages) > 1:
        raise ConfigError(f"'{source}' has the stages {', '.join(stages)}: read it with load_stages.")
    return next(iter(stages.values()))


def load_stages(source: str | os.PathLike[str], overrides: Iterable[str] = ()) -> dict[str, TrainConfig]:
    """The settings of each stage of a recipe, in order; a recipe without stages has one, named "".

    The tables of [stage.NAME] change the common settings. A stage has the folder RUN.FOLDER/NAME; all but the first
    start from the model of the stage before, and "model.base=NAME" says what the first starts from.
    "schedule.steps=100" changes every stage, "stage.NAME.schedule.steps=100" one; "stages=clips,network" trains these
    alone.

    >>> whole = load_stages("whole", ["stage.harden.schedule.steps=7", "run.folder=runs/a"])
    >>> [(name, config.model.base) for name, config in whole.items()]
    [('harden', 'lite-untrained'), ('clips', 'runs/a/harden/model'), ('network', 'runs/a/clips/model')]
    >>> whole["harden"].schedule.steps
    7
    >>> further = load_stages("whole", ["stages=clips,network", "model.base=lite", "run.folder=runs/b"])
    >>> [(name, config.model.base) for name, config in further.items()]
    [('clips', 'lite'), ('network', 'runs/b/clips/model')]
    """
    table = _read_table(source)
    words = list(overrides)
    chosen = [word for word in words if word.startswith(STAGES + "=")]
    words = [word for word in words if word not in chosen]
    for word in words:
        if word.startswith(STAGE + "."):
            _override(table, word)
    stages = table.pop(STAGE, {"": {}})
    if not isinstance(stages, Mapping) or not all(isinstance(changes, Mapping) for changes in stages.values()):
        raise ConfigError(f"[{STAGE}] holds a table for each stage, such as [{STAGE}.first.schedule]; got {stages!r}.")
    if chosen:
        stages = _choose_stages(stages, chosen[-1].partition("=")[2])
    configs: dict[str, TrainConfig] = {}
    base: str | None = None
    for name, changes in stages.items():
        merged = _merge(table, changes)
        for word in words:
            if not word.startswith(STAGE + "."):
                _override(merged, word)
        if base is not None:
            merged["model"] = {**merged.get("model", {}), "base": base}
        config = make_config(merged)
        if name:
            folder = (Path(config.run.folder) / name).as_posix()
            config = dataclasses.replace(config, run=dataclasses.replace(config.run, folder=folder))
            base = f"{folder}/model"
        configs[name] = config
    return configs


def _choose_stages(stages: Mapping[str, Any], names: str) -> dict[str, Any]:
    """The stages of these names, in the recipe's order."""
    wanted = [name.strip() for name in names.split(",")]
    for name in wanted:
        if name not in stages or not name:
            raise ConfigError(f"{STAGES}={names}: there is no stage '{name}'; {suggest(name, [*filter(None, stages)])}")
    return {name: changes for name, changes in stages.items() if name in wanted}


def _read_table(source: str | os.PathLike[str]) -> dict[str, Any]:
    path = RECIPES / f"{source}.toml" if str(source) in list_recipes() else Path(source)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"'{source}' is neither a file nor a recipe; recipes: {', '.join(list_recipes())}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"'{path}' cannot be read: {error}.") from error
    return parse_toml(text, str(path))


def _merge(table: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Nested tables with changes. [losses] is replaced as a whole: its terms are the terms of the stage."""
    merged = {key: dict(value) if isinstance(value, Mapping) else value for key, value in table.items()}
    for key, value in changes.items():
        nested = key != "losses" and isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _merge(merged[key], value) if nested else copy.deepcopy(value)
    return merged


def make_config(table: Mapping[str, Any]) -> TrainConfig:
    """The settings of nested tables: absent ones take their defaults, unknown ones are refused.

    [losses] names all terms; without [losses] they are the paper's.
    """
    sections = get_type_hints(TrainConfig)
    given: dict[str, Any] = {}
    for name, settings in table.items():
        if name not in sections:
            raise ConfigError(f"TrainConfig has no section '{name}'; {_suggest_section(name)}")
        if not isinstance(settings, Mapping):
            raise ConfigError(f"[{name}] is a table of settings, got {settings!r}.")
        if name == "losses":
            given[name] = LossesConfig(copy.deepcopy(settings))
            continue
        settings = {RENAMED.get(key, key): value for key, value in settings.items()}
        known = [entry.name for entry in dataclasses.fields(sections[name])]
        for key in settings:
            if key not in known:
                raise ConfigError(f"[{name}] has no setting '{key}'; {suggest(str(key), known)}")
        given[name] = sections[name](**settings)
    return TrainConfig(**given)


def to_table(config: TrainConfig) -> dict[str, Any]:
    """The settings as nested tables of plain values: what `make_config` reads."""
    table = dataclasses.asdict(config)
    return table | {"losses": table["losses"]["terms"]}


def add_new_settings(section: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Stored settings of a section with the defaults of those in `now` that there were none of when they were stored.

    >>> add_new_settings("data", {"batch": 8}, {"batch": 8, "whole_frames": True})
    {'whole_frames': False, 'batch': 8}
    """
    defaults = json.loads(json.dumps(to_table(TrainConfig())[section]))
    return {**{key: defaults[key] for key in now if key in defaults and key not in before}, **before}


def to_toml(table: Mapping[str, Any], *path: str) -> str:
    """Nested tables of plain values as TOML, `path` being the names of the tables around. None is left out.

    Written here, since training runs where nothing but torch, numpy, safetensors and Pillow is installed.

    >>> print(to_toml({"a": {"b": 1, "c": [True, "x"], "d": {"e": 0.5}}}))
    [a]
    b = 1
    c = [true, "x"]
    <BLANKLINE>
    [a.d]
    e = 0.5
    <BLANKLINE>
    """
    nested = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    values = {key: value for key, value in table.items() if key not in nested and value is not None}
    lines = [f"{key} = {_toml_value(value)}\n" for key, value in values.items()]
    if path and (values or not table):
        lines.insert(0, f"[{'.'.join(path)}]\n")
    blocks = ["".join(lines)] + [to_toml(inner, *path, key) for key, inner in nested.items()]
    return "\n".join(block for block in blocks if block)


def _override(table: dict[str, Any], word: str) -> None:
    key, sign, value = word.partition("=")
    parts = key.strip().split(".")
    if not sign or not all(parts):
        raise ConfigError(f"'{word}' is no setting: write section.key=value, such as schedule.steps=100.")
    if len(parts) == 1:
        raise ConfigError(f"'{word}' names no section; {_suggest_section(parts[0])}")
    if parts[0] == "losses" and "losses" not in table:
        table["losses"] = to_table(TrainConfig())["losses"]
    for part in parts[:-1]:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise ConfigError(f"'{word}': '{part}' is a value, not a table.")
    try:
        table[parts[-1]] = parse_toml(f"value = {value.strip()}", word)["value"]
    except ConfigError:
        table[parts[-1]] = value.strip()  # a bare word is a text: run.folder=runs/first


def _suggest_section(word: str) -> str:
    """Where a setting that was given without its section belongs, or the nearest section."""
    sections = get_type_hints(TrainConfig)
    for section, hint in sections.items():
        if section != "losses" and word in {entry.name for entry in dataclasses.fields(hint)}:
            return f"did you mean '{section}.{word}'?"
    return suggest(word, list(sections))


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # JSON's escapes are TOML's, but for DEL, which JSON leaves as it is.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml_value(item) for item in value) + "]"
    return repr(value)
