"""Which files are meant: those that are named and those below folders that are named; and watching these for changes.

A watch looks at nothing but names, sizes and times. A file is added when it has stayed the same from one look to the
next, so that one that is being copied is not read half-way; the lock is held only while there is something to do.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from hapvr.errors import BusyError, ConfigError
from hapvr.library.results import AddOptions, AddReport, display_path
from hapvr.library.versions import is_library
from hapvr.storage import file_signature
from hapvr.video.video_files import walk_videos

_SEPARATOR = os.fsencode(os.sep)


@dataclass(frozen=True)
class Found:
    """Files and folders as they were given, and what lies there now."""

    files: list[bytes]  # absolute paths, each once
    roots: list[bytes]  # the absolute paths that were given
    empty: list[bytes]  # folders among them that are empty, or not there
    skipped: int = 0
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
        raise ConfigError(f"'{display_path(folder)}' is a library, not a folder of videos.")


def _not_there(path: str | os.PathLike[str]) -> str:
    return f"'{display_path(path)}' is not there."


_STEP_S = 0.1  # between questions whether to stop


def watch(
    paths: Iterable[str | os.PathLike[str]],
    add: Callable[[Found, AddOptions], AddReport],
    how: AddOptions,
    *,
    known: Collection[bytes],
    interval_s: float,
    report: Callable[[AddReport], None] | None,
    say: Callable[[str], None] | None,
) -> None:
    """Look at folders every few seconds and add what is new, until told to stop; see `Library.watch`."""
    if not interval_s > 0:
        raise ConfigError(f"interval must be above 0 seconds, got {interval_s}.")
    given = list(paths)
    asked = how.stop or (lambda: False)
    tell = say or (lambda _: None)
    seen: dict[bytes, tuple[int, int]] = {}
    handled: dict[bytes, tuple[int, int]] | None = None
    said, owed = "", False
    find_files(given, known=known)  # what is not there at the beginning is a mistake
    while not asked():
        trouble = ""
        try:
            found = find_files(given)
            now = {path: file_signature(path) for path in found.files}
            settled = {path: one for path, one in now.items() if seen.get(path) == one or _old(one, interval_s)}
            seen = now
            # What is there but still changes counts as it was when it was last taken up.
            restless = {path: one for path, one in (handled or {}).items() if path in now and path not in settled}
            quiet = len(settled) == len(now)
            if handled is None or settled | restless != handled or (owed and quiet):
                files = replace(found, files=list(settled))
                # What is gone is not forgotten while a file is still to come: it may be the same, moved.
                done = add(files, replace(how, prune=how.prune and quiet))
                handled, owed = settled | restless, how.prune and not quiet
                if report is not None:
                    report(done)
        except (BusyError, ConfigError) as error:  # another writer, or a folder that is not there just now
            trouble = str(error)
        if trouble and trouble != said:
            tell(trouble)
        said = trouble
        end = time.monotonic() + interval_s
        while not asked() and (left := end - time.monotonic()) > 0:
            time.sleep(min(_STEP_S, left))


def _old(changed: tuple[int, int], interval_s: float) -> bool:
    return time.time_ns() - changed[1] > max(2.0, 2 * interval_s) * 1e9
