"""The finished runs of an ablation, on disk: for each line and seed the network, and a record with its figures.

    RUN/ablations/topk-line-3-seed-0.safetensors    the network
    RUN/ablations/topk-line-3-seed-0.json           settings, figures, the network's checksum

The record is written last, and each file whole or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from hapvr.errors import ConfigError, StorageError
from hapvr.storage import sha256_bytes, write_bytes, write_json

_FORMAT, _VERSION = "hapvr-ablation", 1
_HINT = "What is finished is safe."
_NEEDED = {"settings", "figures", "trained_as", "failed", "sha256"}


class Store:
    """The folder of an ablation."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"'{folder}' cannot be written: {error.strerror or error}.") from error

    def read(
        self, name: str, settings: Mapping[str, Any], *, complete: Callable[[Any, Mapping[str, Any]], Any] | None = None
    ) -> dict[str, Any] | None:
        """The record of a finished run of these settings; None if there is none that can be read.

        `complete` is given the stored settings and these, and returns the stored ones as this version names them.
        `ConfigError` if they are others: figures of unlike runs must not come into one table.
        """
        path = self.folder / f"{name}.json"
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):  # not there, or damaged: the run is made again
            return None
        if not isinstance(record, dict) or record.get("format") != _FORMAT or record.get("version") != _VERSION:
            raise StorageError(f"'{path}' is no record of an ablation. Give another run.folder.")
        if not record.keys() >= _NEEDED:
            return None
        before = record["settings"] if complete is None else complete(record["settings"], settings)
        if changed := find_changes(before, settings):
            raise ConfigError(
                f"'{path}' is of other settings ({'; '.join(changed[:4])}{'; ...' if len(changed) > 4 else ''}). Give "
                "another run.folder, or the same settings to continue."
            )
        return record

    def write(self, name: str, record: Mapping[str, Any]) -> None:
        """Keep a record."""
        whole = {"format": _FORMAT, "version": _VERSION, **record}
        write_json(self.folder / f"{name}.json", whole, hint=_HINT)

    def read_network(self, name: str, checksum: str) -> dict[str, Tensor] | None:
        """The weights of a network; None if they are not there whole."""
        try:
            data = (self.folder / f"{name}.safetensors").read_bytes()
            if sha256_bytes(data) != checksum:
                return None
            tensors: dict[str, Tensor] = load(data)
            return tensors
        except (OSError, SafetensorError):
            return None

    def write_network(self, name: str, tensors: Mapping[str, Tensor]) -> str:
        """Keep the weights of a network; returns their checksum."""
        data = save({key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()})
        write_bytes(self.folder / f"{name}.safetensors", data, hint=_HINT)
        return sha256_bytes(data)

    def note(self, name: str, content: Any) -> None:
        """Keep something that explains figures, as JSON."""
        write_json(self.folder / f"{name}.json", content, hint=_HINT)


def find_changes(before: Any, now: Any, path: str = "") -> list[str]:
    """What differs between two nested tables of plain values, as `section.key: old -> new`.

    >>> find_changes({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}})
    ['a.c: 2 -> 3']
    """
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        found = []
        for key in [*now, *(key for key in before if key not in now)]:
            found += find_changes(before.get(key), now.get(key), f"{path}.{key}" if path else str(key))
        return found
    plain = json.loads(json.dumps(now))
    return [] if before == plain else [f"{path}: {before!r} -> {plain!r}"]
