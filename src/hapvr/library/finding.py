"""Which files are meant: those that are named, and those below the folders that are named."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from hapvr.errors import ConfigError
from hapvr.library.records import shown
from hapvr.library.versions import is_library
from hapvr.video.video_files import walk_videos

_SEPARATOR = os.fsencode(os.sep)


@dataclass(frozen=True)
class Found:
    """Files and folders as they were given, and what lies there now."""

    files: list[bytes]  # absolute paths, each once
    roots: list[bytes]  # the absolute paths that were given
    empty: list[bytes]  # folders among them that are empty, or not there
    passed_over: int = 0
    linked: int = 0  # links to folders below those that were given, which were not followed


def find_files(paths: Iterable[str | os.PathLike[str]], *, known: Collection[bytes] = ()) -> Found:
    """The files named and those below the folders named; other libraries on the way are not entered.

    A link to a folder is followed if it is named. Those on the way are not: they may lead out of the folder, or round
    in circles.

    `ConfigError` for a path that is not there, unless it is `known` to have been.
    """
    files: dict[bytes, None] = {}
    roots: list[bytes] = []
    empty: list[bytes] = []
    others: set[Path] = set()
    linked: set[bytes] = set()
    for given in paths:
        root = Path(os.path.abspath(given))
        name = os.fsencode(root)
        roots.append(name)
        if root.is_dir():
            _require_no_library(root)
            below = sorted(os.fsencode(path) for path in walk_videos(root, others=others, leave=is_library))
            links = {path for path in below if os.path.islink(path) and path != name and os.path.isdir(path)}
            linked |= links
            files |= dict.fromkeys(path for path in below if path not in links)
            if not below:
                empty.append(name)
        elif os.path.lexists(root):
            files[name] = None
        elif any(is_below(path, name) for path in known):
            empty.append(name)
        elif name not in known:
            raise ConfigError(_not_there(given))
    return Found(list(files), roots, empty, len(others), len(linked))


def require_files(paths: Iterable[str | os.PathLike[str]]) -> None:
    """Raise `ConfigError` for what `find_files` would refuse in a library that knows no files yet; looks no deeper."""
    for given in paths:
        if not os.path.lexists(given):
            raise ConfigError(_not_there(given))
        _require_no_library(Path(given))


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
    """Whether a path lies in a folder, however deep."""
    return path.startswith(root.rstrip(_SEPARATOR) + _SEPARATOR)


def _require_no_library(folder: Path) -> None:
    if is_library(folder):
        raise ConfigError(f"'{shown(folder)}' is a library, not a folder of videos.")


def _not_there(path: str | os.PathLike[str]) -> str:
    return f"'{shown(path)}' is not there."
