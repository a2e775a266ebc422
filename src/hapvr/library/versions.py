"""The folder of a library: a manifest that names the version in use, and versions beside each other.

    LIBRARY/
      hapvr-library.json      which version is in use; replaced in one step
      marks.json              which videos are no duplicates, if that was said
      writer.lock             who is writing
      versions/0001/          one version: settings.json, checksums.json, the tables, and a calibration if there is one

A version holds what one model, codec and fps made of the videos. When one of these changes, another version is built
beside it; while that takes, the old one answers, and the manifest changes over when the new one is whole.
"""

from __future__ import annotations

import dataclasses
import errno
import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from hapvr.config import from_mapping
from hapvr.errors import FormatError, HapvrError, StorageError, UnavailableError, explain_format
from hapvr.library.checksums import CHECKSUMS, Listing, write_listing
from hapvr.library.results import display_path
from hapvr.library.writer_lock import LOCK
from hapvr.places import AnyPlace, Place, list_names, make_folder, path_exists, remove_folder
from hapvr.storage import lacks_checksum, read_document, sync_folder, write_document
from hapvr.video.sampling import KEYFRAMES

MANIFEST = "hapvr-library.json"
SETTINGS = "settings.json"
VERSIONS = "versions"
CALIBRATION = "calibration.json"
FIRST_VERSION = "0001"
FORMAT = 1
EMBEDDED = "embedded"
"""The candidate index of a library whose frame vectors lie in its own tables."""
_KIND = "hapvr library"
_STORED_NAMES = {"fps": "rate"}  # of settings whose name in the file is another


@dataclass(frozen=True)
class Settings:
    """What all videos of a version share; anything else would not be comparable."""

    model: str  # a shipped model's name, or the folder of another
    model_digest: str  # of what its features depend on: backbone, whitening, sampling
    codec: str
    fps: float  # at which videos are sampled
    keyframes: bool = False  # whether key frames alone are read, where a video has enough of them
    candidates: int = 1  # the way frame vectors are made of regions
    checksums: bool = field(default=False, compare=False)  # there must be a list of files; older releases wrote none
    candidate_index: str = EMBEDDED  # or the address of a Milvus collection, where frame vectors lie
    collection_owner: str = field(default="", compare=False)  # by which the library knows its own collections

    @property
    def rate(self) -> str:
        """How often frames are taken, as `hapvr add --rate` says it."""
        return KEYFRAMES if self.keyframes else f"{self.fps:g}"


MANIFEST_NAMES = ("kind", "format", "version", "kept", "settings")
"""What a manifest holds, beside its checksum."""
SETTINGS_NAMES = tuple(_STORED_NAMES.get(one.name, one.name) for one in dataclasses.fields(Settings))
"""What the settings hold."""
_SETTINGS_REMEDY = "Restore it from a copy, or repair the library: hapvr check LIBRARY --repair"


def is_library(path: Place) -> bool:
    """Whether there is a library in this folder; one that may not be looked into is none."""
    try:
        return (path / MANIFEST).is_file()
    except OSError:
        return False


@dataclass(frozen=True)
class Manifest:
    """What `hapvr-library.json` holds."""

    version: str  # the one in use
    kept: frozenset[str] = frozenset()  # files beside it that there must be
    settings: Mapping[str, Any] | None = None  # a copy of its settings, if they are lost; older releases wrote none


def read_manifest(path: Place) -> Manifest:
    """What the manifest of a library says; `StorageError` where there is no library, or its manifest is damaged."""
    manifest = path / MANIFEST
    try:
        content = read_document(manifest, MANIFEST_NAMES)
    except (FileNotFoundError, NotADirectoryError):
        raise StorageError(_explain_no_library(path)) from None
    except (OSError, ValueError) as error:
        raise StorageError(f"'{display_path(manifest)}' cannot be read: {error} {_manifest_remedy(path)}") from error
    version, kept = content.get("version"), content.get("kept", [])
    if content.get("kind") != _KIND or not isinstance(version, str) or not isinstance(kept, list):
        raise StorageError(
            f"'{display_path(manifest)}' was not written by hapvr. Is '{display_path(path)}' a library? "
            f"{_manifest_remedy(path)}"
        )
    if content.get("format") != FORMAT:
        raise FormatError(f"'{display_path(path)}' is a library {explain_format(content.get('format'), FORMAT)}")
    return Manifest(version, frozenset(kept), content.get("settings"))


def current_version(path: Place) -> str:
    """The name of the version in use; `StorageError` where there is no library."""
    return read_manifest(path).version


def write_manifest(path: Place, manifest: Manifest) -> None:
    """Replace the manifest of a library in one step, with a copy of the settings of the version that it names."""
    settings = _format_settings(read_settings(version_folder(path, manifest.version)))
    with translate_write_errors(path):
        content = {"kind": _KIND, "format": FORMAT, "version": manifest.version, "kept": sorted(manifest.kept)}
        write_document(path / MANIFEST, content | {"settings": settings})


def find_version_folders(path: Place) -> list[str]:
    """All versions of a library that hold settings or a table, oldest first, whatever the manifest says."""
    found = {name for name in list_names(path / VERSIONS) if (version_folder(path, name) / SETTINGS).is_file()}
    return sorted(name for name in {*found, *_find_filled_versions(path)} if name.isdecimal())


def _manifest_remedy(path: Place) -> str:
    """What to do about a manifest that is damaged or gone."""
    made = [name for name in _find_filled_versions(path) if name.isdecimal()]
    again = json.dumps({"kind": _KIND, "format": FORMAT, "version": made[0]}) if len(made) == 1 else ""
    return f"Restore it from a copy{f', or write it again: {again}' if again else ''}."


def _find_filled_versions(path: Place) -> list[str]:
    """The versions in which there is a table."""
    versions = path / VERSIONS
    return [name for name in list_names(versions) if any(one.endswith(".lance") for one in list_names(versions / name))]


def _explain_no_library(path: Place) -> str:
    if not path_exists(path):
        what = "does not exist"
    elif not path.is_dir():
        what = "is a file, not a library"
    elif _find_filled_versions(path):
        return f"'{display_path(path / MANIFEST)}' is missing, though there are videos. {_manifest_remedy(path)}"
    else:
        what = "is a folder, but no library"
    name = display_path(path)
    new = name if what == "does not exist" else "LIBRARY"
    return f"'{name}' {what}. A library is made in a folder of its own by adding videos to it: hapvr add {new} VIDEOS"


def require_creatable(path: Place) -> None:
    """Raise `StorageError` unless a library can be made here: in a new folder, an empty one, or one left half-made."""
    if not path_exists(path):
        return
    if not path.is_dir():
        raise StorageError(f"'{display_path(path)}' is a file: a library is a folder. Give another name.")
    if _find_filled_versions(path):  # no library that was left half-made has a table
        raise StorageError(_explain_no_library(path))
    if others := sorted(name for name in list_names(path) if name not in (LOCK, VERSIONS) and MANIFEST not in name):
        raise StorageError(
            f"'{display_path(path)}' is no library and holds other things ('{display_path(others[0])}'). Give a new "
            "or an empty folder for the library; videos stay where they are."
        )


def read_settings(folder: Place) -> Settings:
    """What a version was made with."""
    path = folder / SETTINGS
    try:
        return parse_settings(read_document(path, SETTINGS_NAMES), path)
    except (FormatError, UnavailableError):
        raise
    except (OSError, ValueError, TypeError, HapvrError) as error:
        raise StorageError(f"'{display_path(path)}' cannot be read: {error} {_SETTINGS_REMEDY}") from error


def read_current_settings(path: Place) -> Settings:
    """What the version of a library that is in use was made with."""
    return read_settings(version_folder(path, current_version(path)))


def parse_settings(content: Mapping[str, Any], path: Place) -> Settings:
    """Settings as `settings.json` or the copy in the manifest has them; `FormatError` if this release knows less."""
    newer = "A newer release of hapvr wrote it: install that one again, or a later one: pip install --upgrade hapvr"
    if surplus := sorted(set(content).difference(SETTINGS_NAMES)):
        raise FormatError(f"'{display_path(path)}' has a setting '{surplus[0]}', unknown to this hapvr. {newer}")
    names = {stored: name for name, stored in _STORED_NAMES.items()}
    found = from_mapping(Settings, {names.get(stored, stored): value for stored, value in content.items()})
    if found.candidates != Settings.candidates:
        raise FormatError(
            f"'{display_path(path)}' says that frame vectors are of kind {found.candidates!r}; this hapvr reads kind "
            f"{Settings.candidates}. {newer}"
        )
    return found


def write_settings(folder: Place, settings: Settings) -> None:
    """Make the folder of a version."""
    with translate_write_errors(folder):
        make_folder(folder)
        if not (folder / CHECKSUMS).exists():
            write_listing(folder, Listing())
        write_document(folder / SETTINGS, _format_settings(settings) | {"checksums": True})
        if isinstance(folder, Path):  # the names of the folders that were made, up to the library's own
            for parent in list(folder.parents)[:3]:
                sync_folder(parent)


def _format_settings(settings: Settings) -> dict[str, Any]:
    content = dataclasses.asdict(settings)
    if not settings.keyframes:  # older releases read every library but those of key frames
        del content["keyframes"]
    if settings.candidate_index == EMBEDDED:  # the same
        del content["candidate_index"], content["collection_owner"]
    return {_STORED_NAMES.get(name, name): value for name, value in content.items()}


def switch_version(path: Place, version: str) -> None:
    """Put a version to use, in one step."""
    kept = read_manifest(path).kept if is_library(path) else frozenset()
    write_manifest(path, Manifest(version, kept))


def require_from_now_on(path: Place, name: str) -> None:
    """From now on there must be a file of this name beside the manifest; with the writer's lock held."""
    manifest = read_manifest(path)
    if name not in manifest.kept:
        write_manifest(path, dataclasses.replace(manifest, kept=manifest.kept | {name}))


def read_kept_document(
    path: Place, name: str, known: Collection[str], *, format: int, missing: str, remedy: str
) -> dict[str, Any] | None:
    """A document beside the manifest; None if there never was one, `StorageError` if it is damaged or gone.

    `missing` ends the sentence about one that is gone; `remedy` says what to do about one that is damaged.
    """
    place = display_path(path / name)
    try:
        content = read_document(path / name, known)
    except FileNotFoundError:
        if name in read_manifest(path).kept:
            raise StorageError(f"'{place}' is missing{missing}") from None
        return None
    except (OSError, ValueError) as error:
        raise StorageError(f"'{place}' cannot be read: {error} {remedy}") from error
    if content.get("format") != format:
        raise FormatError(f"'{place}' is {explain_format(content.get('format'), format)}")
    return content


def add_checksums(path: Place, name: str) -> None:
    """Give checksums to the manifest of a library of an older release and to a file beside it, if there is one.

    With the writer's lock held. `Store.begin` does it for the tables.
    """
    if lacks_checksum(path / name):
        with translate_write_errors(path):
            write_document(path / name, json.loads((path / name).read_bytes()))
    if (path / name).is_file():
        require_from_now_on(path, name)
    if lacks_checksum(path / MANIFEST) or read_manifest(path).settings is None:
        write_manifest(path, read_manifest(path))


def version_folder(path: AnyPlace, version: str) -> AnyPlace:
    """Where a version lies."""
    return cast("AnyPlace", path / VERSIONS / version)


def other_versions(path: Place) -> list[str]:
    """Versions that are not in use, oldest first: replaced, or not yet whole."""
    current = current_version(path) if is_library(path) else None
    return [name for name in list_names(path / VERSIONS) if name != current]


def unfinished_version(path: Place) -> str | None:
    """The version that a rebuild has begun and not ended."""
    current = current_version(path)
    newer = [name for name in other_versions(path) if name > current and (path / VERSIONS / name / SETTINGS).is_file()]
    return newer[-1] if newer else None


def remove_versions(path: Place, *, keep: str | None = None) -> None:
    """Remove versions that are not in use, except one."""
    for name in other_versions(path):
        if name != keep:
            remove_folder(path / VERSIONS / name)


def next_version(path: Place) -> str:
    """A name for another version, after all there are."""
    numbers = [int(name) for name in (*other_versions(path), current_version(path)) if name.isdecimal()]
    return f"{max(numbers, default=0) + 1:04d}"


@contextmanager
def translate_write_errors(path: Place) -> Iterator[None]:
    """Within, what the system or the storage engine raises becomes a `StorageError` that says what to do."""
    try:
        yield
    except HapvrError as error:
        if isinstance(error, StorageError) and isinstance(cause := error.__cause__, OSError):
            raise StorageError(_explain_write_error(path, cause)) from cause  # a small file could not be written
        raise
    except (OSError, RuntimeError, ValueError) as error:
        raise StorageError(_explain_write_error(path, error)) from error


def is_disk_error(error: Exception) -> bool:
    """Whether something could not be written because the disk is full or may not be written to."""
    return _explain_disk_error(Path(), error) is not None


_KEPT = "What was acknowledged before is kept, and the library can be opened as ever."


def _explain_write_error(path: Place, error: Exception) -> str:
    known = _explain_disk_error(path, error)
    return known or f"'{display_path(path)}' could not be written: {_shorten(str(error))}. {_KEPT}"


def _explain_disk_error(path: Place, error: Exception) -> str | None:
    text, place = str(error), display_path(path)
    if "No space left" in text or "os error 28" in text or getattr(error, "errno", None) == errno.ENOSPC:
        return f"The disk of '{place}' is full. {_KEPT} Make room, and run the same again."
    if any(reason in text for reason in ("Disk quota exceeded", "os error 122", "File too large", "os error 27")):
        return f"The quota of the disk of '{place}' is used up. {_KEPT} Make room, and run the same again."
    if "Read-only file system" in text or "Permission denied" in text:
        return f"'{place}' cannot be written: {_shorten(text)}. It can be searched all the same."
    return None


def _shorten(text: str) -> str:
    return text.splitlines()[0][:300].rstrip(".") if text else "for no reason given"
