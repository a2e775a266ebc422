"""What a run leaves behind: its settings, the versions it ran with, its metrics, its checkpoints, its model.

RUN/config.toml       all settings, defaults included
RUN/versions.json     packages, device and source revision of each start
RUN/metrics.jsonl     one line every run.log_every steps, and one a validation
RUN/skipped.json      what the data could not give, and why
RUN/checkpoints/      see `hapvr.training.checkpoints`
RUN/model/            the trained model, at the end
RUN/tensorboard/      scalars, score and frame matrices, view sheets, where tensorboard is installed
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from hapvr import __version__
from hapvr.config import parse_toml
from hapvr.errors import ConfigError, StorageError
from hapvr.storage import write_json, write_text
from hapvr.training.checkpoints import Checkpoint, latest_checkpoint, save_checkpoint
from hapvr.training.config import TrainConfig, as_table, config_from, to_toml
from hapvr.workers.processes import child_environment, find_program

CONFIG, METRICS, SHEET = "config.toml", "metrics.jsonl", "views.png"
SKIPPED, VERSIONS = "skipped.json", "versions.json"
_FREE = ("run", "validation", "bank")  # sections that do not change what is learnt
_BOUND = (("run", "seed"), ("run", "precision"), ("bank", "weak"), ("bank", "strong"))

Report = Callable[[str], None]


class RunFolder:
    """One run on disk. A folder that holds a run of the same settings is continued, one of others is refused."""

    def __init__(self, config: TrainConfig, *, report: Report) -> None:
        self.folder = Path(config.run.folder)
        self.report = report
        self._board: Any = None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._require_same(config)
            write_text(self.folder / CONFIG, to_toml(as_table(config)))
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
        """The last whole checkpoint; lines of metrics that came after it are forgotten."""
        checkpoint = latest_checkpoint(self.checkpoints, report=self.report)
        path = self.folder / METRICS
        done = 0 if checkpoint is None else checkpoint.step
        if path.exists():
            kept = [line for line in path.read_text().splitlines() if _step_of(line) <= done]
            write_text(path, "".join(f"{line}\n" for line in kept))
        return checkpoint

    def save(self, checkpoint: Checkpoint, *, best: bool = False) -> None:
        """Keep a checkpoint as the last, or as the best."""
        save_checkpoint(self.checkpoints, checkpoint, name="best" if best else None)

    # --- the log ---------------------------------------------------------------------------------------------------

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Add a line of metrics."""
        with (self.folder / METRICS).open("a") as file:
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

    def note_skipped(self, skipped: Any) -> None:
        """Write down what the data could not give."""
        write_text(self.folder / SKIPPED, json.dumps(skipped, indent=1, default=str) + "\n")

    def close(self) -> None:
        """Let everything reach the disk."""
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
        before = as_table(config_from(parse_toml(path.read_text(encoding="utf-8"), str(path))))
        now = as_table(config)
        changed = [
            f"{section}.{key}: {before[section].get(key)!r} -> {now[section].get(key)!r}"
            for section in now
            for key in sorted({*before[section], *now[section]})
            if (section not in _FREE or (section, key) in _BOUND)
            and (section, key) != ("data", "device")
            and _plain(before[section].get(key)) != _plain(now[section].get(key))
        ]
        if changed:
            raise ConfigError(
                f"'{self.folder}' holds a run of other settings ({'; '.join(changed)}). Give another run.folder, or "
                "the same settings to continue it."
            )

    def _note_versions(self, config: TrainConfig) -> None:
        path = self.folder / VERSIONS
        starts = json.loads(path.read_text()) if path.exists() else []
        starts.append(versions(config.run.torch_device()))
        write_json(path, starts)


def versions(device: torch.device) -> dict[str, Any]:
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
        "revision": _revision(),
        "python": sys.version.split()[0],
        "machine": platform.machine(),
        "device": gpu or f"{torch.get_num_threads()} CPU threads",
        "packages": packages,
    }


def _revision() -> str | None:
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


def _plain(value: Any) -> Any:
    """A setting as it reads after a way through a file."""
    return json.loads(json.dumps(value))


def _step_of(line: str) -> float:
    """The step of a line of metrics; infinite where a killed run left half a line."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")
