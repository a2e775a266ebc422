"""The folder of a library: a manifest that names the version in use, and versions beside each other.

    LIBRARY/
      hapvr-library.json      which version is in use; replaced in one step
      writer.lock             who is writing
      versions/0001/          one version: settings.json, and the tables

A version holds what one model, codec and rate made of the videos. When one of these changes, another version is built
beside it; while that takes, the old one answers, and the manifest changes over when the new one is whole.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hapvr.config import from_mapping
from hapvr.errors import HapvrError, StorageError
from hapvr.library.locking import LOCK
from hapvr.library.records import shown

MANIFEST = "hapvr-library.json"
SETTINGS = "settings.json"
VERSIONS = "versions"
FORMAT = 1
_KIND = "hapvr library"


@dataclass(frozen=True)
class Settings:
    """What all videos of a version share; anything else would not be comparable."""

    model: str  # a shipped model's name, or the folder of another
    model_digest: str  # of what its features depend on: backbone, whitening, sampling
    codec: str
    rate: float  # frames a second
    candidates: int = 1  # the way frame vectors are made of regions


def is_library(path: Path) -> bool:
    """Whether there is a library in this folder; one that may not be looked into is none."""
    try:
        return (path / MANIFEST).is_file()
    except OSError:
        return False


def current_version(path: Path) -> str:
    """The name of the version in use; `StorageError` where there is no library."""
    manifest = path / MANIFEST
    try:
        content = json.loads(manifest.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise StorageError(_no_library(path)) from None
    except (OSError, ValueError) as error:
        raise StorageError(f"'{shown(manifest)}' cannot be read: {error}. Restore it from a copy.") from error
    if not isinstance(content, dict) or content.get("kind") != _KIND or not isinstance(content.get("version"), str):
        raise StorageError(f"'{shown(manifest)}' was not written by hapvr. Is '{shown(path)}' a library?")
    if content.get("format") != FORMAT:
        raise StorageError(
            f"'{shown(path)}' is a library of format {content.get('format')}; this hapvr reads {FORMAT}. "
            "Use the release of hapvr that wrote it, or add the videos to a new library."
        )
    return str(content["version"])


def _no_library(path: Path) -> str:
    if not os.path.lexists(path):
        what = "does not exist"
    elif not path.is_dir():
        what = "is a file, not a library"
    else:
        what = "is a folder, but no library"
    return f"'{shown(path)}' {what}. A library is made by adding videos to it: hapvr add {shown(path)} VIDEOS"


def require_creatable(path: Path) -> None:
    """Raise `StorageError` unless a library can be made here: in a new folder, an empty one, or one left half-made."""
    if not os.path.lexists(path):
        return
    if not path.is_dir():
        raise StorageError(f"'{shown(path)}' is a file: a library is a folder. Give another name.")
    if others := sorted(name for name in os.listdir(path) if name not in (LOCK, VERSIONS, MANIFEST + ".partial")):
        raise StorageError(
            f"'{shown(path)}' is no library and holds other things ('{shown(others[0])}'). Give a new or an empty "
            "folder for the library; videos stay where they are."
        )


def read_settings(folder: Path) -> Settings:
    """What a version was made with."""
    try:
        content = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
        return from_mapping(Settings, content)
    except (OSError, ValueError, TypeError, HapvrError) as error:
        raise StorageError(f"'{shown(folder / SETTINGS)}' cannot be read: {error} Restore it from a copy.") from error


def write_settings(folder: Path, settings: Settings) -> None:
    """Make the folder of a version."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(folder / SETTINGS, dataclasses.asdict(settings))


def switch(path: Path, version: str) -> None:
    """Put a version to use, in one step."""
    with writing(path):
        replace_file(path / MANIFEST, {"kind": _KIND, "format": FORMAT, "version": version})


def version_folder(path: Path, version: str) -> Path:
    """Where a version lies."""
    return path / VERSIONS / version


def other_versions(path: Path) -> list[str]:
    """Versions that are not in use, oldest first: replaced, or not yet whole."""
    current = current_version(path) if is_library(path) else None
    folder = path / VERSIONS
    return sorted(name for name in os.listdir(folder) if name != current) if folder.is_dir() else []


def unfinished_version(path: Path) -> str | None:
    """The version that a rebuild has begun and not ended."""
    current = current_version(path)
    newer = [name for name in other_versions(path) if name > current and (path / VERSIONS / name / SETTINGS).is_file()]
    return newer[-1] if newer else None


def remove_versions(path: Path, *, keep: str | None = None) -> None:
    """Remove versions that are not in use, except one."""
    for name in other_versions(path):
        if name != keep:
            shutil.rmtree(path / VERSIONS / name, ignore_errors=True)


def next_version(path: Path) -> str:
    """A name for another version, after all there are."""
    numbers = [int(name) for name in (*other_versions(path), current_version(path)) if name.isdecimal()]
    return f"{max(numbers, default=0) + 1:04d}"


class writing:  # noqa: N801 - used as a statement
    """Within, what the system or the storage engine raises becomes a `StorageError` that says what to do."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (OSError, RuntimeError, ValueError)) and not isinstance(error, HapvrError):
            raise StorageError(_reason(self._path, error)) from error


def _reason(path: Path, error: Exception) -> str:
    text = str(error)
    kept = "What was acknowledged before is kept, and the library can be opened as ever."
    if "No space left" in text or "os error 28" in text or getattr(error, "errno", None) == 28:
        return f"The disk of '{shown(path)}' is full. {kept} Make room, and run the same again."
    if "Disk quota exceeded" in text or "os error 122" in text or "File too large" in text or "os error 27" in text:
        return f"The quota of the disk of '{shown(path)}' is used up. {kept} Make room, and run the same again."
    if "Read-only file system" in text or "Permission denied" in text:
        return f"'{shown(path)}' cannot be written: {_short(text)}. It can be searched all the same."
    return f"'{shown(path)}' could not be written: {_short(text)}. {kept}"


def _short(text: str) -> str:
    return text.splitlines()[0][:300].rstrip(".") if text else "for no reason given"


def replace_file(path: Path, content: dict[str, Any]) -> None:
    """Write a small file in one step; after a power failure it is the old one or the new one."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("w", encoding="utf-8") as file:
        json.dump(content, file, indent=2)
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
