"""Checkpoints: tensors as safetensors, the rest as JSON, in a folder that is there whole or not at all.

    RUN/checkpoints/step-00001000/state.safetensors, state.json
    RUN/checkpoints/best/          likewise: the one of the best validation

A folder is written beside its place and moved there when all of it has reached the disk. Reading checks the checksum; a
damaged checkpoint is reported and the one before it is used.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from hapvr.errors import StorageError
from hapvr.storage import sha256_bytes, sync_folder, write_bytes, write_json

STATE, TENSORS, BEST = "state.json", "state.safetensors", "best"
_FORMAT, _VERSION, _KEPT = "hapvr-checkpoint", 1, 2
_KEPT_HINT = "The checkpoints before it are kept."


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Where a run stands: `step` steps are done. Schedule, random draws and data order are functions of the step."""

    step: int
    tensors: Mapping[str, Tensor]  # flat names
    values: Mapping[str, Any]  # plain JSON values


def save_checkpoint(folder: Path, checkpoint: Checkpoint, *, name: str | None = None) -> Path:
    """Write a checkpoint below `folder` under its step's name, or replace the one of another `name`.

    Of those with a step's name the last two are kept.
    """
    place = folder / (name or f"step-{checkpoint.step:08d}")
    partial = folder / f".{place.name}.partial"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        data = save({key: tensor.detach().cpu().contiguous() for key, tensor in checkpoint.tensors.items()})
        write_bytes(partial / TENSORS, data, hint=_KEPT_HINT)
        state = {
            "format": _FORMAT,
            "version": _VERSION,
            "step": checkpoint.step,
            "sha256": sha256_bytes(data),
            "values": dict(checkpoint.values),
        }
        write_json(partial / STATE, state, hint=_KEPT_HINT)
        old = folder / f".{place.name}.old"
        shutil.rmtree(old, ignore_errors=True)
        if place.exists():
            place.rename(old)
        partial.rename(place)
        sync_folder(folder)
        shutil.rmtree(old, ignore_errors=True)
        if name is None:
            for former in _steps(folder)[:-_KEPT]:
                shutil.rmtree(former, ignore_errors=True)
    except OSError as error:
        raise StorageError(
            f"the checkpoint '{place}' cannot be written: {error.strerror or error}. {_KEPT_HINT}"
        ) from error
    return place


def read_checkpoint(place: Path) -> Checkpoint:
    """Read one checkpoint, its checksum verified. `StorageError` if it is damaged."""
    try:
        state = json.loads((place / STATE).read_text())
        data = (place / TENSORS).read_bytes()
        if not isinstance(state, dict) or state.get("format") != _FORMAT or state.get("version") != _VERSION:
            raise StorageError(f"'{place}' is no checkpoint of this version of hapvr.")
        if sha256_bytes(data) != state["sha256"]:
            raise StorageError(f"'{place}' is damaged: its checksum is not that of {STATE}.")
        return Checkpoint(int(state["step"]), load(data), state["values"])
    except (OSError, UnicodeDecodeError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise StorageError(f"'{place}' is damaged: {error}.") from error


def latest_checkpoint(folder: Path, *, report: Callable[[str], None]) -> Checkpoint | None:
    """The last checkpoint that is whole; damaged ones are reported. None if there is none at all.

    `StorageError` if there are checkpoints and every one is damaged: starting over would hide that.
    """
    places = _steps(folder)
    for place in reversed(places):
        try:
            return read_checkpoint(place)
        except StorageError as error:
            report(f"{error} The checkpoint before it is used.")
    if places:
        raise StorageError(
            f"all {len(places)} checkpoints of '{folder}' are damaged. Remove the run's folder to start over."
        )
    return None


def pack_state(model: torch.nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """A network and its optimiser as flat tensors: `model.NAME`, `optimiser.NAME.KEY`."""
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for parameter, state in optimiser.state.items():
        for key, value in state.items():
            tensors[f"optimiser.{names[id(parameter)]}.{key}"] = torch.as_tensor(value)
    return tensors


def unpack_state(tensors: Mapping[str, Tensor], model: torch.nn.Module, optimiser: torch.optim.Optimizer) -> None:
    """Put the tensors of `pack_state` back, strictly."""
    own = {name.removeprefix("model."): tensor for name, tensor in tensors.items() if name.startswith("model.")}
    try:
        model.load_state_dict(own, strict=True)
    except RuntimeError as error:
        raise StorageError(f"the checkpoint is of another network: {error}") from error
    states: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith("optimiser."):
            parameter, _, key = name.removeprefix("optimiser.").rpartition(".")
            states.setdefault(parameter, {})[key] = tensor
    numbers = {name: number for number, (name, _) in enumerate(model.named_parameters())}
    if unknown := sorted(set(states) - set(numbers)):
        raise StorageError(f"the checkpoint is of another network: it optimises {', '.join(unknown)}.")
    whole = optimiser.state_dict()
    whole["state"] = {numbers[name]: state for name, state in states.items()}
    optimiser.load_state_dict(whole)


def _steps(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*")) if folder.is_dir() else []
