"""Which files an update of a library looks at: those that are named, and those below folders by their rules."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hapvr.errors import ConfigError
from hapvr.library.indexed_folders import IndexRules, read_folders
from hapvr.library.opening import OpenLibrary
from hapvr.library.results import display_path
from hapvr.library.versions import is_library
from hapvr.storage import StrPath
from hapvr.video.video_files import walk_videos

_SEPARATOR = os.fsencode(os.sep)


def choose_folders(
    library: OpenLibrary, paths: Iterable[StrPath] | StrPath | None, rules: IndexRules | None
) -> tuple[dict[str, IndexRules], list[str]]:
    """The files and folders to be looked at, with their rules, and remembered folders that are not there."""
    remembered = read_folders(library.path)
    if paths is not None:
        given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
        places = [os.path.abspath(one) for one in given]
        return {place: rules or remembered.get(place, IndexRules()) for place in places}, []
    if rules is not None or not remembered:
        why = "Rules are those of folders" if rules is not None else "The library remembers no folders"
        raise ConfigError(f"{why}: give the videos to add, files and folders of them.")
    known = library.store.catalog().paths
    below = [folder for folder in remembered if any(is_below(path, os.fsencode(folder)) for path in known)]
    gone = [folder for folder in remembered if not os.path.isdir(folder)]
    chosen = {folder: rules for folder, rules in remembered.items() if folder not in gone or folder in below}
    if not chosen:
        raise ConfigError(f"None of the folders of the library is there, such as '{display_path(gone[0])}'.")
    return chosen, gone


@dataclass(frozen=True)
class Found:
    """Files and folders as they were given, and what lies there now."""

    files: list[bytes]  # absolute paths, each once
    roots: list[bytes]  # the absolute paths that were given
    empty: list[bytes]  # folders among them that are empty, or not there
    skipped: int = 0
    linked: int = 0  # links to folders below those that were given, which were not followed
    excluded: int = 0  # by the rules of folders
    min_seconds: Mapping[bytes, float] = field(default_factory=dict)  # of files for which there is a limit


def find_files(
    paths: Iterable[StrPath], *, known: Collection[bytes] = (), folders: Mapping[str, IndexRules] | None = None
) -> Found:
    """The files named and those below the folders named; other libraries on the way are not entered.

    A link to a folder is followed if it is named. Those on the way are not: they may lead out of the folder, or round
    in circles. `ConfigError` for a path that is not there, unless it is `known` to have been. `folders` are the rules
    of folders, by absolute paths.
    """
    files: dict[bytes, None] = {}
    roots: list[bytes] = []
    empty: list[bytes] = []
    others: set[Path] = set()
    linked: set[bytes] = set()
    excluded: set[bytes] = set()
    min_seconds: dict[bytes, float] = {}
    for given in paths:
        root = Path(os.path.abspath(given))
        name = os.fsencode(root)
        roots.append(name)
        if root.is_dir():
            _require_no_library(root)
            below = sorted(os.fsencode(path) for path in walk_videos(root, others=others, leave=is_library))
            links = {path for path in below if os.path.islink(path) and path != name and os.path.isdir(path)}
            linked |= links
            rules = (folders or {}).get(str(root), IndexRules())
            left_out = {path for path in below if not rules.allows(Path(os.fsdecode(path)), root)} - links
            excluded |= left_out
            taken = [path for path in below if path not in links and path not in left_out]
            files |= dict.fromkeys(taken)
            if rules.min_seconds:
                min_seconds |= dict.fromkeys(taken, rules.min_seconds)
            if not below:
                empty.append(name)
        elif os.path.lexists(root):
            files[name] = None
        elif any(is_below(path, name) for path in known):
            empty.append(name)
        elif name not in known:
            raise ConfigError(f"'{display_path(given)}' is not there: give a video, or a folder of videos.")
    return Found(list(files), roots, empty, len(others), len(linked), len(excluded - set(files)), min_seconds)


def require_files(paths: Iterable[StrPath]) -> None:
    """Raise `ConfigError` for what `find_files` would refuse in a library that knows no files yet; looks no deeper."""
    for given in paths:
        if not os.path.lexists(given):
            raise ConfigError(f"'{display_path(given)}' is not there: give a video, or a folder of videos.")
        _require_no_library(Path(given))


def _require_no_library(folder: Path) -> None:
    if is_library(folder):
        raise ConfigError(f"'{display_path(folder)}' is a library, not a folder of videos.")


def is_gone(path: bytes) -> bool:
    """Whether a file is known not to be there, or to be a folder by now; one that cannot be looked at may be there."""
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) or (stat.S_ISLNK(found.st_mode) and os.path.isdir(path))


def is_below(path: bytes, root: bytes) -> bool:
    """Whether a path is below a folder."""
    return path.startswith(root.rstrip(_SEPARATOR) + _SEPARATOR)
