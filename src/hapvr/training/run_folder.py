"""What a run leaves on disk: its settings, the versions it ran with, its metrics, its checkpoints, its model.

RUN/config.toml       all settings, defaults included
RUN/versions.json     packages, device and source revision of each start
RUN/metrics.jsonl     one line every run.log_every steps, and one a validation
RUN/skipped.json      what could not be read of the data, and why; skipped-1.json etc. of further processes
RUN/checkpoints/      step-00001000/ and best/, the one of the best validation: state.safetensors and state.json
RUN/model/            the trained model, at the end
RUN/tensorboard/      scalars, score and frame matrices, view sheets, where tensorboard is installed
"""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from hapvr import __version__
from hapvr.config import parse_toml
from hapvr.errors import ConfigError, StorageError
from hapvr.storage import remove_unfinished_files, sha256_bytes, sync_folder, write_bytes, write_json, write_text
from hapvr.training.config import TrainConfig
from hapvr.training.distributed import rank
from hapvr.training.recipe_files import make_config, to_table, to_toml
from hapvr.workers.processes import child_environment, find_program

CONFIG, METRICS, SHEET = "config.toml", "metrics.jsonl", "views.png"
SKIPPED, VERSIONS = "skipped.json", "versions.json"
STATE, TENSORS = "state.json", "state.safetensors"  # of a checkpoint
_FORMAT, _VERSION, _KEPT = "hapvr-checkpoint", 1, 2
_KEPT_HINT = "The checkpoints before it are kept."
_FREE = ("run", "validation", "bank")  # sections that do not change what is learnt
_PLACES = {("data", "device"), ("data", "stream"), ("data", "workers")}  # where clips lie, not which they are
_BOUND = (("run", "seed"), ("run", "precision"), ("bank", "weak"), ("bank", "strong"))

Report = Callable[[str], None]


def note_skipped(folder: Path, skipped: Sequence[tuple[str, str]]) -> None:
    """Write down which data this process could not read; each of several has a file."""
    write_json(folder / (SKIPPED if rank() == 0 else f"skipped-{rank()}.json"), skipped)


class RunFolder:
    """One run on disk. A folder that holds a run of the same settings is continued, one of others is refused."""

    def __init__(self, config: TrainConfig, *, report: Report) -> None:
        self.folder = Path(config.run.folder)
        self.report = report
        self._board: Any = None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            remove_unfinished_files(self.folder)
            self._require_same(config)
            write_text(self.folder / CONFIG, to_toml(to_table(config)))
            self._note_versions(config)
        except OSError as error:
            raise StorageError(f"'{self.folder}' cannot be written: {error.strerror or error}.") from error
        self._open_board()

    # --- checkpoints -----------------------------------------------------------------------------------------------

    @property
    def checkpoints(self) -> Path:
        """Where the checkpoints lie."""
        return self.folder / "checkpoints"

    def resume(self) -> Checkpoint | None:
        """The last whole checkpoint; lines of metrics that came after it are removed."""
        checkpoint = find_checkpoint(self.checkpoints, report=self.report)
        path = self.folder / METRICS
        done = 0 if checkpoint is None else checkpoint.step
        if path.exists():
            kept = [line for line in path.read_text("utf-8").splitlines() if _read_step(line) <= done]
            write_text(path, "".join(f"{line}\n" for line in kept))
        return checkpoint

    def save(self, checkpoint: Checkpoint, *, best: bool = False) -> None:
        """Keep a checkpoint as the last, or as the best."""
        save_checkpoint(self.checkpoints, checkpoint, name="best" if best else None)

    # --- the log ---------------------------------------------------------------------------------------------------

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Add a line of metrics."""
        with (self.folder / METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, **values}) + "\n")
        if self._board is not None:
            for name, value in values.items():
                self._board.add_scalar(name, value, step)

    def log_matrix(self, step: int, name: str, matrix: Tensor) -> None:
        """Show a matrix [N, M] of values in [0, 1] as a grey picture."""
        if self._board is not None:
            self._board.add_image(name, matrix.detach().float().clamp(0, 1).cpu().numpy()[None], step)

    def log_sheet(self, draw: Callable[[Path], object]) -> None:
        """Keep a sheet of views, drawn by a function that is given its path, and show it."""
        path = self.folder / SHEET
        draw(path)
        if self._board is not None:
            self._board.add_image("views", np.asarray(Image.open(path).convert("RGB")), 0, dataformats="HWC")

    def note_skipped(self, skipped: Sequence[tuple[str, str]]) -> None:
        """Write down which data could not be read, as (id, reason)."""
        note_skipped(self.folder, skipped)

    def close(self) -> None:
        """Flush everything to disk."""
        if self._board is not None:
            self._board.close()

    def _open_board(self) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            self.report("tensorboard is not installed: metrics go to metrics.jsonl alone (pip install 'hapvr[train]').")
            return
        self._board = SummaryWriter(str(self.folder / "tensorboard"))

    # --- settings and versions -------------------------------------------------------------------------------------

    def _require_same(self, config: TrainConfig) -> None:
        path = self.folder / CONFIG
        if not path.exists() or not self.checkpoints.is_dir():  # nothing was learnt yet
            return
        before = to_table(make_config(parse_toml(path.read_text(encoding="utf-8"), str(path))))
        now = to_table(config)
        changed = [
            f"{section}.{key}: {before[section].get(key)!r} -> {now[section].get(key)!r}"
            for section in now
            for key in sorted({*before[section], *now[section]})
            if (section not in _FREE or (section, key) in _BOUND)
            and (section, key) not in _PLACES
            and before[section].get(key) != now[section].get(key)
        ]
        if changed:
            raise ConfigError(
                f"'{self.folder}' holds a run of other settings ({'; '.join(changed)}). Give another run.folder, or "
                "the same settings to continue it."
            )

    def _note_versions(self, config: TrainConfig) -> None:
        path = self.folder / VERSIONS
        starts = json.loads(path.read_text("utf-8")) if path.exists() else []
        starts.append(read_versions(config.run.torch_device()))
        write_json(path, starts)


def read_versions(device: torch.device) -> dict[str, Any]:
    """What a result depends on beside its settings."""
    packages = {}
    for name in ("torch", "numpy", "safetensors", "pillow", "triton"):
        try:
            packages[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            packages[name] = "not installed"
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    return {
        "hapvr": __version__,
        "revision": _read_revision(),
        "python": sys.version.split()[0],
        "machine": platform.machine(),
        "device": gpu or f"{torch.get_num_threads()} CPU threads",
        "packages": packages,
    }


def _read_revision() -> str | None:
    """The git revision of the source, with "+" if it was changed since; None where it is installed without one."""
    here = Path(__file__).parent
    if (git := find_program("git")) is None:
        return None
    # The package may lie in a virtual environment within somebody else's repository, whose programs are not run.
    command = [git, "-c", "core.fsmonitor=false", "-C", str(here)]
    try:
        revision, known = (
            subprocess.run([*command, *words], capture_output=True, text=True, timeout=10, env=child_environment())
            for words in (
                ["describe", "--always", "--dirty=+", "--exclude=*"],
                ["ls-files", "--error-unmatch", __file__],
            )
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return revision.stdout.strip() if revision.returncode == 0 and known.returncode == 0 else None


def _read_step(line: str) -> float:
    """The step of a line of metrics; infinite where a killed run left half a line."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")


# --- checkpoints ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Where a run stands: `step` steps are done. Schedule, random draws and data order are functions of the step."""

    step: int
    tensors: Mapping[str, Tensor]  # flat names
    values: Mapping[str, Any]  # plain JSON values


def save_checkpoint(folder: Path, checkpoint: Checkpoint, *, name: str | None = None) -> Path:
    """Write a checkpoint below `folder` under its step's name, or replace the one of another `name`.

    The folder is written beside its place and moved there when all of it has reached the disk: it is there whole or not
    at all. Of those with a step's name the last two are kept.
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
            for former in _list_steps(folder)[:-_KEPT]:
                shutil.rmtree(former, ignore_errors=True)
    except OSError as error:
        reason = error.strerror or error
        raise StorageError(f"the checkpoint '{place}' cannot be written: {reason}. {_KEPT_HINT}") from error
    return place


def read_checkpoint(place: Path) -> Checkpoint:
    """Read one checkpoint, its checksum verified. `StorageError` if it is damaged."""
    try:
        state = json.loads((place / STATE).read_text("utf-8"))
        data = (place / TENSORS).read_bytes()
        if not isinstance(state, dict) or state.get("format") != _FORMAT or state.get("version") != _VERSION:
            raise StorageError(f"'{place}' is no checkpoint of this version of hapvr.")
        if sha256_bytes(data) != state["sha256"]:
            raise StorageError(f"'{place}' is damaged: its checksum is not that of {STATE}.")
        return Checkpoint(int(state["step"]), load(data), state["values"])
    except (OSError, UnicodeDecodeError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise StorageError(f"'{place}' is damaged: {error}.") from error


def find_checkpoint(folder: Path, *, report: Callable[[str], None]) -> Checkpoint | None:
    """The last checkpoint that is whole; damaged ones are reported. None if there is none at all.

    `StorageError` if there are checkpoints and every one is damaged: starting over would hide that.
    """
    places = _list_steps(folder)
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


def _list_steps(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*")) if folder.is_dir() else []
