"""The settings of a training run: one frozen dataclass a section, read from TOML and from `section.key=value` words.

Every default is the paper's (HAP-VR, arXiv:2407.15566); a recipe is a TOML file that names what it changes. Those that
are shipped are known by name: "paper", "small", "tiny" and "whole". A recipe may have stages, each with settings of its
own and beginning with the model that the one before it gave.
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
from typing import Any, Literal, TypeVar, get_args, get_type_hints

import torch

from hapvr import losses as all_losses
from hapvr.config import parse_toml, suggest
from hapvr.errors import ConfigError
from hapvr.losses import HAPVR_WEIGHTS, Term, WeightedLosses
from hapvr.similarity import SimilarityConfig
from hapvr.training.augment import ViewConfig

RECIPES = Path(__file__).parent / "recipes"  # package data
STAGE = "stage"  # the table of a recipe that holds its stages

# What a table below [losses] may be called: the loss and the level it works at.
TERMS: Mapping[str, tuple[str, str]] = {
    "frame_ap": ("FrameQuadLinearAP", "frame"),
    "video_ap": ("QuadLinearAP", "video"),
    "infonce": ("InfoNCE", "video"),
    "sshn": ("SSHN", "self"),
    "range": ("RangePenalty", "range"),
    "mae": ("MeanAbsolute", "video"),
    "mse": ("MeanSquared", "video"),
    "contrastive": ("Contrastive", "video"),
    "triplet": ("Triplet", "video"),
    "circle": ("Circle", "video"),
    "fast_ap": ("FastAP", "video"),
    "dir_ap": ("DirAP", "video"),
    "black_box_ap": ("BlackBoxAP", "video"),
    "smooth_ap": ("SmoothAP", "video"),
    "event_ap": ("QuadLinearAP", "event"),
    "instant_ap": ("QuadLinearAP", "instant"),
    "instant_infonce": ("InfoNCE", "instant"),
}

Start = Literal["random", "base"]
Targets = Literal["own", "master"]
TeacherKind = Literal["backbone", "vit_small16", "none"]
Precision = Literal["auto", "bfloat16", "float16", "float32"]
Section = TypeVar("Section")


@dataclass(frozen=True)
class DataConfig:
    """What clips are cut from, and how many are looked at in a step."""

    frames: str = ""  # a folder of packed frames, as `hapvr frames` writes it
    pictures: str = ""  # a folder of photographs; a camera move over each is a clip
    max_pictures: int = 0  # the first so many by name, so that they do not crowd out the videos; 0: all
    batch: int = 64  # videos a step and process; each gives a weak and a strong clip
    alike: float = 0.0  # share of a batch that is drawn as groups of look-alikes; 0, as in the paper: by lot alone
    group: int = 8  # videos of such a group
    parts: int = 1  # windows of each video; those of one video are footage of one event, but no copies
    size: int = 256  # pixels of the squares that frames are kept as; views are cut out of them
    device: str = "auto"  # whose memory they are kept in: that of the run, or "cpu"

    def __post_init__(self) -> None:
        _require_whole(self, "batch", least=2)
        _require_number(self, "alike", low=0, high=1)
        _require_whole(self, "group", least=2)
        _require_whole(self, "parts", least=1)
        _require_whole(self, "max_pictures", least=0)
        _require_whole(self, "size", least=16)


@dataclass(frozen=True)
class ModelConfig:
    """Where region vectors come from, and where the similarity network starts."""

    base: str = (
        "lite-untrained"  # a model's name or folder: its backbone and whitening, both frozen, describe the frames
    )
    start: Start = "random"  # the network's first weights: drawn from run.seed, or those of the base
    learn_psi: bool = True  # false: psi stays as it starts, and what is before it learns

    def __post_init__(self) -> None:
        _require_choice(self, "start", get_args(Start))


@dataclass(frozen=True)
class BackboneConfig:
    """Whether the backbone learns too, and how far it may go from what it was."""

    rate: float = 0.0  # learning rate at the top of the schedule; 0: it is frozen, as in the paper
    weight_decay: float = 1e-4
    stay: float = 2.0  # weight of what weak views of frames change: the mean of 1 - cosine of their region vectors
    average: float = 0.998  # of all weights, a step: what a run gives is their running mean
    targets: Targets = "own"  # what frames are compared with by the losses of instants: other views as the backbone in
    # training sees them, or clean frames as it saw them before
    same: float = 0.85  # frames of one video that were as similar as that are not told from each other
    twin: float = 0.95  # the same for frames of two videos, and for the videos as a whole

    def __post_init__(self) -> None:
        for name in ("rate", "weight_decay", "stay"):
            _require_number(self, name, low=0)
        _require_number(self, "average", low=0, high=1)
        _require_choice(self, "targets", get_args(Targets))
        for name in ("same", "twin"):
            _require_number(self, name, low=-1)


@dataclass(frozen=True)
class TeacherConfig:
    """Who labels the frames of matching clips."""

    kind: TeacherKind = "backbone"  # the base model's own backbone, pooled; DINO's ViT-S/16; or nobody
    weights: str = ""  # of vit_small16: DINO's file, or a folder that `hapvr model convert` made of it
    top_rate: float = 0.35  # r_t: the share of target frames that are positive
    bottom_rate: float = 0.35  # r_b: the share that are negative

    def __post_init__(self) -> None:
        _require_choice(self, "kind", get_args(TeacherKind))
        if (self.kind == "vit_small16") != bool(self.weights):
            raise ConfigError(
                f"teacher.weights is the file or folder of kind='vit_small16' and of no other; got kind={self.kind!r} "
                f"and weights={self.weights!r}. Without DINO's file take kind='backbone'."
            )
        _require_number(self, "top_rate", low=0, high=1)
        _require_number(self, "bottom_rate", low=0, high=1)


@dataclass(frozen=True)
class LossesConfig:
    """The terms of the total: a weight and the settings of each loss, by its name in `TERMS`.

    A term of weight 0 is left out, and so is whatever would be computed for it alone.

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
            known = ["weight", *inspect.signature(getattr(all_losses, TERMS[name][0])).parameters]
            for key in settings:
                if key not in known:
                    raise ConfigError(f"losses.{name} has no setting '{key}'; {suggest(key, known)}")
        self.build()

    def build(self) -> WeightedLosses:
        """The recipe as losses that can be called."""
        terms = {}
        for name, settings in self.terms.items():
            loss, level = TERMS[name]
            own = {key: value for key, value in settings.items() if key != "weight"}
            term = Term(getattr(all_losses, loss)(**own), weight=settings.get("weight", 1.0), level=level)
            if term.weight:
                terms[name] = term
        return WeightedLosses(terms)


@dataclass(frozen=True)
class OptimiserConfig:
    """AdamW."""

    rate: float = 4e-5  # learning rate at the top of the schedule
    weight_decay: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    clip: float = 0.0  # largest norm of the gradient; 0 leaves it as it is

    def __post_init__(self) -> None:
        for name in ("rate", "weight_decay", "clip"):
            _require_number(self, name, low=0)
        for name in ("beta1", "beta2"):
            _require_number(self, name, low=0, high=1)


@dataclass(frozen=True)
class ScheduleConfig:
    """How long, and how fast: a linear warm-up, then a cosine, both counted from step 0."""

    steps: int = 30_000
    warm_up: int = 1_000  # steps
    warm_up_from: float = 0.01  # of the rate
    end: float = 0.1  # of the rate, at the last step

    def __post_init__(self) -> None:
        _require_whole(self, "steps", least=1)
        _require_whole(self, "warm_up", least=0)
        for name in ("warm_up_from", "end"):
            _require_number(self, name, low=0, high=1)

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
class BankConfig:
    """Views that are extracted once and drawn from ever after. Without views, every step makes its own."""

    weak: int = 0  # weak views of a clip; 0 of both kinds: no bank
    strong: int = 0  # strong views
    folder: str = ""  # where it is kept, or found; "" keeps it in memory alone
    device: str = "auto"  # where it lies while it is used: that of the run, or "cpu"

    def __post_init__(self) -> None:
        _require_whole(self, "weak", least=0)
        _require_whole(self, "strong", least=0)
        if (self.weak == 0) != (self.strong == 0):
            raise ConfigError(f"a bank holds weak and strong views, got weak={self.weak} and strong={self.strong}.")

    @property
    def used(self) -> bool:
        """Whether there is a bank at all."""
        return self.weak > 0


@dataclass(frozen=True)
class ValidationConfig:
    """A benchmark that is scored while training; the checkpoint of the highest `metric` is kept as `best`."""

    features: str = ""  # HDF5 as `hapvr extract` writes it of a benchmark's folder, or a file of `Benchmark.save`
    truth: str = ""  # the benchmark's ground_truth.json; none for a file of `Benchmark.save`
    every: int = 1_000  # steps
    metric: Literal["mAP", "uAP"] = "mAP"

    def __post_init__(self) -> None:
        _require_whole(self, "every", least=1)
        _require_choice(self, "metric", ("mAP", "uAP"))
        if self.truth and not self.features:
            raise ConfigError("validation.truth is given without validation.features, which it labels.")


@dataclass(frozen=True)
class RunConfig:
    """Where a run is kept and how it computes; nothing here changes what is learnt but `seed` and `precision`."""

    folder: str = "runs/hapvr"  # a run that is there already is continued
    seed: int = 0
    device: str = "auto"  # the GPU if there is one
    precision: Precision = "auto"  # of the forward pass: bfloat16 on a GPU, float32 on a CPU
    compiled: Literal["auto", "yes", "no"] = "auto"  # backbone and teacher through torch.compile; auto: on a GPU
    micro_batch: int = 512  # pictures that go through backbone and teacher at a time
    log_every: int = 50  # steps
    checkpoint_every: int = 1_000  # steps

    def __post_init__(self) -> None:
        _require_choice(self, "precision", get_args(Precision))
        _require_choice(self, "compiled", ("auto", "yes", "no"))
        _require_whole(self, "seed", least=0)
        for name in ("micro_batch", "log_every", "checkpoint_every"):
            _require_whole(self, name, least=1)

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


def recipes() -> list[str]:
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

    The tables of [stage.NAME] change the settings that are common to all. A stage is kept in a folder of its name below
    run.folder; all but the first begin with the model of the one before. Words such as "schedule.steps=100" change
    every stage, "stage.NAME.schedule.steps=100" one.

    >>> whole = load_stages("whole", ["stage.harden.schedule.steps=7", "run.folder=runs/a"])
    >>> [(name, config.model.base) for name, config in whole.items()]
    [('harden', 'lite-untrained'), ('clips', 'runs/a/harden/model'), ('network', 'runs/a/clips/model')]
    >>> whole["harden"].schedule.steps
    7
    """
    table = _read_table(source)
    words = list(overrides)
    for word in words:
        if word.startswith(STAGE + "."):
            _override(table, word)
    stages = table.pop(STAGE, None)
    if stages is None:
        stages = {"": {}}
    if not isinstance(stages, Mapping) or not all(isinstance(changes, Mapping) for changes in stages.values()):
        raise ConfigError(f"[{STAGE}] holds a table for each stage, such as [{STAGE}.first.schedule]; got {stages!r}.")
    configs: dict[str, TrainConfig] = {}
    base: str | None = None
    for name, changes in stages.items():
        merged = _merged(table, changes)
        if base is not None:
            merged = _merged(merged, {"model": {"base": base}})
        for word in words:
            if not word.startswith(STAGE + "."):
                _override(merged, word)
        config = config_from(merged)
        if name:
            folder = (Path(config.run.folder) / name).as_posix()
            config = dataclasses.replace(config, run=dataclasses.replace(config.run, folder=folder))
            base = f"{folder}/model"
        configs[name] = config
    return configs


def _read_table(source: str | os.PathLike[str]) -> dict[str, Any]:
    path = RECIPES / f"{source}.toml" if str(source) in recipes() else Path(source)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"'{source}' is neither a file nor a recipe; recipes: {', '.join(recipes())}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"'{path}' cannot be read: {error}.") from error
    return parse_toml(text, str(path))


def _merged(table: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Nested tables with changes. [losses] is replaced as a whole: the terms that are named are the terms there are."""
    merged = {key: dict(value) if isinstance(value, Mapping) else value for key, value in table.items()}
    for key, value in changes.items():
        nested = key != "losses" and isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _merged(merged[key], value) if nested else copy.deepcopy(value)
    return merged


def config_from(table: Mapping[str, Any]) -> TrainConfig:
    """The settings of nested tables; absent ones take their defaults, unknown ones are refused.

    Of [losses], the terms that are named are the terms there are; without [losses] they are the paper's.
    """
    sections = {entry.name: entry for entry in dataclasses.fields(TrainConfig)}
    given: dict[str, Any] = {}
    for name, settings in table.items():
        if name not in sections:
            raise ConfigError(f"TrainConfig has no section '{name}'; {_section_of(name, sections)}")
        if not isinstance(settings, Mapping):
            raise ConfigError(f"[{name}] is a table of settings, got {settings!r}.")
        if name == "losses":
            given[name] = LossesConfig({term: dict(own) if isinstance(own, Mapping) else own
                                        for term, own in settings.items()})  # fmt: skip
        else:
            given[name] = _section(get_type_hints(TrainConfig)[name], settings, name)
    return TrainConfig(**given)


def as_table(config: TrainConfig) -> dict[str, Any]:
    """The settings as nested tables of plain values: what `config_from` reads."""
    table = dataclasses.asdict(config)
    table["losses"] = {name: dict(settings) for name, settings in config.losses.terms.items()}
    return table


def to_toml(table: Mapping[str, Any]) -> str:
    """Nested tables of plain values as TOML. None, which TOML has not, is left out.

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
    lines: list[str] = []
    _write_table(lines, table, ())
    return "\n".join(lines).lstrip("\n") + "\n"


def _override(table: dict[str, Any], word: str) -> None:
    key, sign, value = word.partition("=")
    parts = key.strip().split(".")
    if not sign or not all(parts):
        raise ConfigError(f"'{word}' is no setting: write section.key=value, such as schedule.steps=100.")
    if len(parts) == 1:
        raise ConfigError(f"'{word}' names no section; {_section_of(parts[0], TrainConfig.__dataclass_fields__)}")
    if parts[0] == "losses" and "losses" not in table:
        table["losses"] = as_table(TrainConfig())["losses"]
    for part in parts[:-1]:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise ConfigError(f"'{word}': '{part}' is a value, not a table.")
    try:
        table[parts[-1]] = parse_toml(f"value = {value.strip()}", word)["value"]
    except ConfigError:
        table[parts[-1]] = value.strip()  # a bare word is a text: run.folder=runs/first


def _section(cls: type[Section], settings: Mapping[str, Any], where: str) -> Section:
    """One dataclass, and those within it, from a table."""
    hints = get_type_hints(cls)
    known = [entry.name for entry in dataclasses.fields(cls)]  # type: ignore[arg-type]
    given: dict[str, Any] = {}
    for key, value in settings.items():
        if key not in known:
            raise ConfigError(f"[{where}] has no setting '{key}'; {suggest(str(key), known)}")
        hint = hints[key]
        if dataclasses.is_dataclass(hint) and isinstance(hint, type):
            if not isinstance(value, Mapping):
                raise ConfigError(f"{where}.{key} is a table of settings, got {value!r}.")
            value = _section(hint, value, f"{where}.{key}")
        given[key] = _fitting(value, hint, f"{where}.{key}")
    return cls(**given)


def _fitting(value: Any, hint: Any, name: str) -> Any:
    """A TOML value as a field takes it: a whole number may stand for a float, a list for a tuple; nothing else may."""
    if isinstance(value, list):
        return tuple(_fitting(item, Any, name) for item in value)
    simple: dict[Any, tuple[type, ...]] = {int: (int,), float: (int, float), str: (str,), bool: (bool,)}
    if hint in simple:
        fits = isinstance(value, simple[hint]) and (hint is bool or not isinstance(value, bool))
        if not fits:
            raise ConfigError(f"{name} must be {'a text' if hint is str else f'a {hint.__name__}'}, got {value!r}.")
        return float(value) if hint is float else value
    return value


def _section_of(word: str, sections: Mapping[str, Any]) -> str:
    """Where a setting that was given without its section belongs, or the nearest section."""
    for section, hint in get_type_hints(TrainConfig).items():
        if section != "losses" and word in {entry.name for entry in dataclasses.fields(hint)}:
            return f"did you mean '{section}.{word}'?"
    return suggest(word, list(sections))


def _write_table(lines: list[str], table: Mapping[str, Any], path: tuple[str, ...]) -> None:
    values = {key: value for key, value in table.items() if not isinstance(value, Mapping) and value is not None}
    if path and (values or not table):
        lines += ["", f"[{'.'.join(path)}]"]
    lines += [f"{key} = {_toml_value(value)}" for key, value in values.items()]
    for key, value in table.items():
        if isinstance(value, Mapping):
            _write_table(lines, value, (*path, key))


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # JSON's escapes are TOML's, but for DEL, which JSON leaves as it is.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml_value(item) for item in value) + "]"
    return repr(value)


# --- checks ----------------------------------------------------------------------------------------------------------


def _require_whole(section: Any, name: str, *, least: int) -> None:
    value = getattr(section, name)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"{type(section).__name__}.{name} must be a whole number of at least {least}, got {value!r}.")


def _require_number(section: Any, name: str, *, low: float, high: float = math.inf) -> None:
    value = getattr(section, name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not (low <= value <= high and value < math.inf):
        raise ConfigError(f"{type(section).__name__}.{name} must lie in {low}..{high}, got {value!r}.")


def _require_choice(section: Any, name: str, choices: tuple[str, ...]) -> None:
    if (value := getattr(section, name)) not in choices:
        known = suggest(str(value), list(choices))
        raise ConfigError(f"{type(section).__name__}.{name} cannot be {value!r}; {known}")
