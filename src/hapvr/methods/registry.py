"""Methods by name, and their folders: `config.json` and `model.safetensors`, as all weights here are kept."""

from __future__ import annotations

import dataclasses
import importlib
import json
import pkgutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch

from hapvr import weights
from hapvr.config import from_mapping, suggest
from hapvr.errors import ConfigError, WeightsError
from hapvr.methods.base import Method, Settings
from hapvr.methods.fitting import FitRecord
from hapvr.storage import StrPath

PART = "method"  # the name of the only part of a method's folder
_METHODS: dict[str, type[Method[Any]]] = {}
M = TypeVar("M", bound=type[Method[Any]])


def register(cls: M) -> M:
    """Make a method known by its `name`; the only line that a new method needs beside its class."""
    if not cls.name or not cls.title:
        raise ConfigError(f"{cls.__name__} needs a name and a title to be registered.")
    other = _METHODS.get(cls.name)
    if other is not None and (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
        raise ConfigError(f"There are two methods '{cls.name}': {other.__qualname__} and {cls.__qualname__}.")
    _METHODS[cls.name] = cls
    return cls


def list_methods() -> dict[str, type[Method[Any]]]:
    """All methods by name: those of this package, and what else was registered."""
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if not module.name.startswith("_"):
            importlib.import_module(f"{__package__}.{module.name}")
    return dict(sorted(_METHODS.items()))


def find_method(name: str) -> type[Method[Any]]:
    """A method's class by name.

    >>> find_method("tmk").title
    'TMK'
    >>> find_method("tkm")
    Traceback (most recent call last):
    hapvr.errors.ConfigError: There is no method 'tkm'; did you mean 'tmk'?
    """
    known = list_methods()
    if name not in known:
        raise ConfigError(f"There is no method '{name}'; {suggest(name, list(known))}")
    return known[name]


def make_method(
    name: str,
    dims: tuple[int, int],
    settings: Mapping[str, Any] | None = None,
    *,
    device: str | torch.device = "cpu",
    seed: int = 0,
) -> Method[Any]:
    """A method that is not fitted yet, its weights drawn from the seed."""
    cls = find_method(name)
    torch.manual_seed(seed)
    return cls(dims, from_mapping(cls.settings_type, dict(settings or {}))).to(device).eval()


def parse_settings(name: str, words: Sequence[str]) -> dict[str, Any]:
    """Settings of a method from words such as "rate=0.01": values as JSON has them, or texts.

    >>> parse_settings("tmk", ["periods=2"])
    {'periods': 2}
    """
    known = [one.name for one in dataclasses.fields(find_method(name).settings_type)]
    settings = parse_words(words)
    for key in settings:
        if key not in known:
            raise ConfigError(f"'{key}' is no setting of {name}; {suggest(key, known)}")
    return settings


def parse_words(words: Sequence[str]) -> dict[str, Any]:
    """Keys and values of words such as "rate=0.01"; values as JSON has them, or texts.

    >>> parse_words(["rate=1e-3", "level=video"])
    {'rate': 0.001, 'level': 'video'}
    """
    settings: dict[str, Any] = {}
    for word in words:
        key, sign, value = word.partition("=")
        if not sign:
            raise ConfigError(f"'{word}' is no setting: write KEY=VALUE, such as rate=0.001.")
        try:
            settings[key] = json.loads(value)
        except ValueError:
            settings[key] = value
    return settings


def save_method(method: Method[Any], folder: StrPath, record: FitRecord | None = None) -> Path:
    """Write a method's settings, tensors and how it was fitted into a folder."""
    config = {
        "name": method.name,
        "dims": list(method.dims),
        "settings": dataclasses.asdict(method.settings),
        "fit": None if record is None else dataclasses.asdict(record),
    }
    return weights.save_parts(folder, {PART: weights.Part(config, method.state_dict())})


def load_method(folder: StrPath, *, device: str | torch.device = "cpu") -> tuple[Method[Any], FitRecord | None]:
    """A method from its folder, in evaluation mode, and how it was fitted."""
    part = weights.load_part(folder, PART)
    try:
        name, dims, settings, fit = (part.config[key] for key in ("name", "dims", "settings", "fit"))
    except KeyError as error:
        raise WeightsError(f"'{folder}' is no folder of a method: its settings lack {error}.") from error
    method = make_method(name, (dims[0], dims[1]), settings)
    weights.load_strict(method, part.tensors, source=f"'{folder}'")
    record = None if fit is None else from_mapping(FitRecord, {**fit, "notes": tuple(fit.get("notes", ()))})
    return method.to(device).eval(), record


def open_method(
    name_or_folder: StrPath, dims: tuple[int, int], *, device: str | torch.device = "cpu"
) -> tuple[Method[Any], FitRecord | None]:
    """A fitted method from its folder, or, by its name, one that learns nothing."""
    if (Path(name_or_folder) / weights.CONFIG).is_file():
        return load_method(name_or_folder, device=device)
    cls = find_method(str(name_or_folder))
    if cls.learns:
        raise ConfigError(
            f"{cls.title} learns, so it is fitted first: hapvr method fit {cls.name} CLIPS FEATURES FOLDER. Then give "
            "the folder."
        )
    return make_method(cls.name, dims, device=device), None


def read_card(cls: type[Method[Settings]]) -> str:
    """The card of a method: what the original is, what is kept, what is adapted; its module's docstring."""
    return (importlib.import_module(cls.__module__).__doc__ or "").strip()
