"""Recipes: settings of a run read from TOML files and from `section.key=value` words, and written as TOML.

A recipe is a TOML file that names what it changes; the shipped ones are known by name: "paper", "small", "tiny" and
"whole". A recipe may have stages: each changes some settings and starts from the model of the stage before it.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_type_hints

from hapvr.config import parse_toml, suggest
from hapvr.errors import ConfigError
from hapvr.training.augment.config import RENAMED
from hapvr.training.config import LossesConfig, TrainConfig

RECIPES = Path(__file__).parent / "recipes"  # package data
STAGE = "stage"  # the table of a recipe that holds its stages
STAGES = "stages"  # the word that chooses some of them


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
    """Stored settings of a section, and the defaults of settings in `now` that did not exist when they were stored.

    >>> add_new_settings("data", {"batch": 8}, {"batch": 8, "whole_frames": True})
    {'whole_frames': False, 'batch': 8}
    """
    defaults = json.loads(json.dumps(to_table(TrainConfig())[section]))
    return {**{key: defaults[key] for key in now if key in defaults and key not in before}, **before}


def to_toml(table: Mapping[str, Any], *path: str) -> str:
    """Nested tables of plain values as TOML, `path` names the tables around them. Values of None are left out.

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
