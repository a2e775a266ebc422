"""Reads a made benchmark's folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def truth_of(folder: Path) -> dict[str, Any]:
    """The content of its ground_truth.json."""
    truth: dict[str, Any] = json.loads((folder / "ground_truth.json").read_text())
    return truth


def files_of(folder: Path, pattern: str = "*") -> dict[str, bytes]:
    """The bytes of its files, by their paths."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob(pattern) if path.is_file()}
