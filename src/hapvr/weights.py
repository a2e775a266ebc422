"""Weights on disk: a folder of `config.json` and `model.safetensors`, strict and checksummed; nothing is unpickled.

A folder holds one or more named parts ("backbone", "whitening", "similarity"): `config.json` keeps each part's
settings and the checksums of the tensors and of the settings, `model.safetensors` each part's tensors under `part.`
names. Settings may be edited by hand if their checksum is taken out; tensors may not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from hapvr.errors import WeightsError, explain_format
from hapvr.storage import StrPath, crc32_json, sha256_bytes, sha256_file, write_bytes, write_json

VERSION = 1
CONFIG, TENSORS = "config.json", "model.safetensors"
_SETTINGS_CHECKSUM = "parts_crc32"  # models of older releases have none
_MAX_NAMES = 20  # of tensors, in an error
_KEYS = ("format", "version", "sha256", "parts", _SETTINGS_CHECKSUM)


@dataclass(frozen=True)
class Part:
    """One part of a model at rest: its settings (plain JSON values) and its tensors by name."""

    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]


def save_parts(folder: StrPath, parts: Mapping[str, Part]) -> Path:
    """Write the parts into `folder` (made if need be). The config, with the checksum, is put in place last.

    A model of the same parts is replaced; one that has others is not, for they would be lost.
    """
    folder = Path(folder)
    if (folder / CONFIG).exists() and (lost := [name for name in _read_config(folder)["parts"] if name not in parts]):
        raise WeightsError(f"'{folder}' holds a model with other parts ({', '.join(lost)}). Give another folder.")
    folder.mkdir(parents=True, exist_ok=True)
    named = {
        f"{part}.{name}": tensor.detach().cpu().contiguous().clone()
        for part, content in parts.items()
        for name, tensor in content.tensors.items()
    }
    data = save(named)  # not save_file: it would hide the file from everybody but its owner
    config = {
        "format": "hapvr",
        "version": VERSION,
        "sha256": sha256_bytes(data),
        "parts": {part: dict(content.config) for part, content in parts.items()},
    }
    config[_SETTINGS_CHECKSUM] = crc32_json(config["parts"])
    write_bytes(folder / TENSORS, data)
    write_json(folder / CONFIG, config, indent=2)
    return folder


def load_parts(folder: StrPath) -> dict[str, Part]:
    """Read every part of a folder that `save_parts` wrote, after checking format, version and checksum."""
    folder = Path(folder)
    config = _read_config(folder)
    path = folder / TENSORS
    if not path.is_file():
        raise WeightsError(f"'{folder}' has {CONFIG} but no {TENSORS}. Copy the whole folder again.")
    if (found := sha256_file(path)) != config["sha256"]:
        raise WeightsError(
            f"'{path}' is damaged or was replaced: its sha256 begins {found[:12]}, {CONFIG} expects "
            f"{str(config['sha256'])[:12]}. Copy the whole folder again."
        )
    tensors: dict[str, dict[str, Tensor]] = {part: {} for part in config["parts"]}
    try:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118  (safe_open is no mapping)
                part, _, rest = name.partition(".")
                if part not in tensors:
                    raise WeightsError(f"'{path}' holds '{name}', but {CONFIG} knows no part '{part}'.")
                tensors[part][rest] = file.get_tensor(name)
    except SafetensorError as error:
        raise WeightsError(f"'{path}' is not a readable safetensors file: {error}") from error
    return {part: Part(settings, tensors[part]) for part, settings in config["parts"].items()}


def part_names(folder: StrPath) -> list[str]:
    """What a folder holds, read from its description alone."""
    return list(_read_config(Path(folder))["parts"])


def read_part_config(folder: StrPath, name: str) -> dict[str, Any] | None:
    """The settings of a part, read from the folder's description alone; None if it has no such part."""
    found: dict[str, Any] | None = _read_config(Path(folder))["parts"].get(name)
    return found


def load_part(folder: StrPath, name: str) -> Part:
    """Read one part of a folder; the error says which parts it has instead."""
    parts = load_parts(folder)
    if name not in parts:
        raise WeightsError(f"'{folder}' has no part '{name}'; it has: {', '.join(parts) or 'none'}.")
    return parts[name]


def load_strict(module: nn.Module, tensors: Mapping[str, Tensor], *, source: str) -> None:
    """Load tensors into `module`; missing, surplus or misshapen ones are an error that lists them all."""
    expected = module.state_dict()
    found = {
        "lacks": [name for name in expected if name not in tensors],
        "has in surplus": [name for name in tensors if name not in expected],
        "misshapes": [
            f"{name} {list(tensors[name].shape)} instead of {list(tensor.shape)}"
            for name, tensor in expected.items()
            if name in tensors and tensors[name].shape != tensor.shape
        ],
    }
    if troubles := [f"{verb} {len(names)} tensors ({_join_first(names)})" for verb, names in found.items() if names]:
        raise WeightsError(
            f"{source} does not fit {type(module).__name__}: it {'; it '.join(troubles)}. "
            "Was it made for another model or another configuration?"
        )
    module.load_state_dict(dict(tensors), strict=True)


def _join_first(names: list[str]) -> str:
    more = f", and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(names[:_MAX_NAMES]) + more


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    if not path.is_file():
        raise WeightsError(
            f"'{folder}' is not a model folder: it has no {CONFIG}. Give a folder made by save_pretrained or by "
            "`hapvr model convert`."
        )
    try:
        config = json.loads(path.read_text("utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise WeightsError(f"'{path}' is not readable JSON: {error}. Copy the whole folder again.") from error
    if not isinstance(config, dict) or config.get("format") != "hapvr" or not isinstance(config.get("parts"), dict):
        raise WeightsError(f'\'{path}\' was not written by hapvr: it lacks "format": "hapvr" or its parts.')
    if config.get("version") != VERSION:
        raise WeightsError(f"The model '{folder}' is {explain_format(config.get('version'), VERSION)}")
    written, surplus = config.get(_SETTINGS_CHECKSUM), sorted(set(config).difference(_KEYS))
    if written is None and surplus:  # the name of the checksum may be what is damaged
        raise WeightsError(f"'{path}' holds '{surplus[0]}', which is unknown here. Copy the whole folder again.")
    if written is not None and written != crc32_json(config["parts"]):
        raise WeightsError(
            f"'{path}' is damaged or was edited: its settings are not those that were saved. Copy the whole folder "
            f'again; if the edit is meant, take out the line "{_SETTINGS_CHECKSUM}".'
        )
    return config
