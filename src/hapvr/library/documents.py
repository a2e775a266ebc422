"""Small JSON files of a library: each carries a checksum of its own content, and is replaced in one step."""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hapvr import storage

_CHECKSUM = "crc32"


def write_document(path: Path, content: Mapping[str, Any]) -> None:
    """Write a file in one step, with its checksum; after a power failure it is the old one or the new one."""
    storage.write_json(path, {**content, _CHECKSUM: _checksum(content)}, indent=2)


def read_document(path: Path, known: Collection[str]) -> dict[str, Any]:
    """The content of a file; `ValueError` if it is not as it was written.

    Files that an older release wrote have no checksum. They are taken as they are if they hold nothing but what is
    `known`: else it may be the name of the checksum that is damaged.
    """
    try:
        content = json.loads(path.read_bytes().decode("utf-8"))
    except ValueError as error:
        raise ValueError(f"it is no JSON ({error}).") from error
    if not isinstance(content, dict):
        raise ValueError(f"it holds a {type(content).__name__} instead of named values.")
    written = content.pop(_CHECKSUM, None)
    if written is None and (surplus := sorted(set(content).difference(known))):
        raise ValueError(f"it holds '{surplus[0]}', which is unknown here, and no checksum.")
    if written is not None and written != _checksum(content):
        raise ValueError("its checksum is not that of its content.")
    return content


def lacks_checksum(path: Path) -> bool:
    """Whether it is a file of an older release: whole, but without a checksum."""
    try:
        content = json.loads(path.read_bytes().decode("utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and _CHECKSUM not in content


def remove_unfinished(folder: Path) -> None:
    """Remove what is left of documents whose writer was killed; with the writer's lock held."""
    for path in folder.glob(".*.json.*.part"):
        with suppress(OSError):
            path.unlink()


def _checksum(content: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())
