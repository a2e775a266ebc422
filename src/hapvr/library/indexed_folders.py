"""Which files of a folder are indexed, and what a library remembers: its folders, whether sound is read, and which text
model describes frames.
"""

from __future__ import annotations

import fnmatch
import os
import unicodedata
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from hapvr.config import from_mapping
from hapvr.errors import ConfigError, HapvrError, StorageError
from hapvr.library.results import display_path
from hapvr.library.versions import read_kept_document, require_from_now_on, translate_write_errors
from hapvr.places import Place
from hapvr.storage import write_document

FOLDERS = "folders.json"
_RESTORE = "Restore it from a copy"
_FORMAT = 1
_SOUND, _TEXT = "sound", "text_model"  # names in the file
FOLDERS_NAMES = ("format", "folders", _SOUND, _TEXT)
"""All names in the file."""


@dataclass(frozen=True)
class IndexRules:
    """Which files below a folder are indexed. Files that are named themselves are always indexed.

    A pattern without a slash (`*.tmp`, `cache`) is matched with the name of a file and of each folder on the way to it;
    one with a slash (`raw/*.mp4`) with the path below the folder that was given, where `*` matches slashes too. Upper
    and lower case are the same.

    Attributes:
        include: if there are any, only files that match one of them.
        exclude: no files that match one of them.
        min_size: bytes of a file at least.
        min_seconds: of a video at least, by what its file declares; a file that declares nothing is indexed.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    min_size: int = 0
    min_seconds: float = 0.0

    def __post_init__(self) -> None:
        for name in ("min_size", "min_seconds"):
            if not 0 <= (value := getattr(self, name)) < float("inf"):
                raise ConfigError(f"{name} must be 0 or more, got {value:g}.")
        for name in ("include", "exclude"):
            if empty := [one for one in getattr(self, name) if not one.strip("/")]:
                raise ConfigError(f"{name} must be patterns such as '*.mp4' or 'folder/*', got '{empty[0]}'.")

    def allows(self, path: Path, root: Path) -> bool:
        """Whether a file below `root` is indexed, by its name and size.

        >>> rules = IndexRules(exclude=("cache", "*.TMP"))
        >>> [rules.allows(Path("/films") / name, Path("/films")) for name in ("a.mp4", "cache/a.mp4", "b.tmp")]
        [True, False, False]
        """
        # macOS takes the letters of a name apart (NFD); people type them in one piece (NFC).
        below = unicodedata.normalize("NFC", path.relative_to(root).as_posix()).lower()
        if self.include and not any(_matches(below, pattern) for pattern in self.include):
            return False
        if any(_matches(below, pattern) for pattern in self.exclude):
            return False
        if self.min_size:
            try:
                return os.stat(path).st_size >= self.min_size
            except OSError:
                return True  # what is wrong with it is said when it is read
        return True


def _matches(below: str, pattern: str) -> bool:
    pattern = unicodedata.normalize("NFC", pattern).lower()
    if "/" in pattern.rstrip("/"):
        return fnmatch.fnmatchcase(below, pattern.lstrip("/"))
    return any(fnmatch.fnmatchcase(name, pattern.rstrip("/")) for name in below.split("/"))


Folders = Mapping[str, IndexRules]
"""The rules of folders, by their absolute paths."""


@dataclass(frozen=True)
class TextModelSource:
    """The text model that described the frames of a library."""

    name: str  # its folder, or what a model of your own calls itself
    digest: str


@dataclass(frozen=True)
class _Remembered:
    folders: Folders = field(default_factory=dict)
    sound: bool = False
    text_model: TextModelSource | None = None


def read_folders(library: Place) -> dict[str, IndexRules]:
    """The folders that a library remembers; none in one of an older release."""
    return dict(_read(library).folders)


def read_sound_setting(library: Place) -> bool:
    """Whether `add` reads the sound of videos too; False in a library that was never asked to."""
    return _read(library).sound


def read_text_model(library: Place) -> TextModelSource | None:
    """The text model of a library; None if it has none."""
    return _read(library).text_model


def _read(library: Place) -> _Remembered:
    missing, remedy = f". {_RESTORE}; or name the folders again: hapvr add.", f"{_RESTORE}."
    content = read_kept_document(library, FOLDERS, FOLDERS_NAMES, format=_FORMAT, missing=missing, remedy=remedy)
    if content is None:
        return _Remembered()
    try:
        folders = {str(folder): _parse(rules) for folder, rules in content["folders"].items()}
        text = content.get(_TEXT)
        model = None if text is None else from_mapping(TextModelSource, text)
        return _Remembered(folders, bool(content.get(_SOUND, False)), model)
    except (ValueError, KeyError, TypeError, AttributeError, HapvrError) as error:
        raise StorageError(f"'{display_path(library / FOLDERS)}' cannot be read: {error} {remedy}") from error


def _parse(rules: Mapping[str, Any]) -> IndexRules:
    patterns = {name: tuple(rules[name]) for name in ("include", "exclude")}
    return from_mapping(IndexRules, {**rules, **patterns})


def write_folders(library: Place, folders: Folders, *, sound: bool | None = None) -> None:
    """Remember these folders, and whether sound is read, with the writer's lock held; None leaves that as it is."""
    before = _read(library)
    _write(library, replace(before, folders=dict(folders), sound=before.sound if sound is None else sound))


def write_text_model(library: Place, model: TextModelSource | None) -> None:
    """Remember a text model, or that there is none, with the writer's lock held."""
    _write(library, replace(_read(library), text_model=model))


def _write(library: Place, wanted: _Remembered) -> None:
    """Write what is to be remembered, unless it is already."""
    if wanted == _read(library):
        return
    with translate_write_errors(library):
        content = {folder: asdict(rules) for folder, rules in sorted(wanted.folders.items())}
        # Without sound and a text model the file is what older releases write.
        more: dict[str, Any] = {_SOUND: True} if wanted.sound else {}
        more |= {} if wanted.text_model is None else {_TEXT: asdict(wanted.text_model)}
        write_document(library / FOLDERS, {"format": _FORMAT, "folders": content, **more})
    require_from_now_on(library, FOLDERS)
