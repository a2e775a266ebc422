"""Small JSON files of a library: each carries a checksum of its own content, and is replaced in one step."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

_CHECKSUM = "crc32"


def write_document(path: Path, content: Mapping[str, Any]) -> None:
    """Write a file in one step, with its checksum; after a power failure it is the old one or the new one."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("w", encoding="utf-8") as file:
        json.dump({**content, _CHECKSUM: _checksum(content)}, file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    if os.name == "posix":
        with suppress(OSError):
            descriptor = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


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


def _checksum(content: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())
