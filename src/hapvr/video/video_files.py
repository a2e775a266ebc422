"""Which files below a folder may be videos."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from hapvr.errors import ConfigError
from hapvr.storage import StrPath

# Suffixes of files that lie among videos and are none. Short on purpose: what is not known is tried.
_NO_VIDEOS = (
    *(".txt", ".md", ".pdf", ".html", ".xml", ".json", ".csv", ".log", ".ini", ".db", ".nfo", ".url", ".lnk"),
    *(".srt", ".vtt", ".ass", ".sub"),
    *(".zip", ".part", ".crdownload", ".torrent"),
    *(".mp3", ".wav", ".flac", ".m4a", ".aac", ".ogg", ".opus"),
)


def find_videos(paths: Iterable[StrPath], *, others: list[Path] | None = None) -> dict[str, Path]:
    """The files named, and those below the folders named: id -> path. An id is the path below its folder.

    In folders, hidden files are skipped, and those whose suffix says that they are no videos: texts, subtitles, sound,
    unfinished downloads. Nothing else is skipped: pipes, broken links, links to folders and unreadable folders are
    returned too, and reading them reports the error. The files that were skipped for their suffix are added to
    `others`. `ConfigError` for a path that does not exist, and for two files of one id.
    """
    found: dict[str, Path] = {}
    left_out: set[Path] = set()
    for given in paths:
        root = Path(given)
        if root.is_dir():
            named = {path.relative_to(root).as_posix(): path for path in sorted(walk_videos(root, others=left_out))}
        elif os.path.lexists(root):
            named = {root.name: root}
        else:
            raise ConfigError(f"'{root}' is not there.")
        for id, path in named.items():
            if id in found and found[id] != path:
                raise ConfigError(f"'{found[id]}' and '{path}' would both be called '{id}'. Name their common folder.")
            found[id] = path
    if others is not None:
        others += sorted(left_out.difference(found.values()))
    return found


def walk_videos(
    root: Path, *, others: set[Path] | None = None, leave: Callable[[Path], bool] | None = None
) -> Iterator[Path]:
    """What lies below a folder, as `find_videos` finds it; folders for which `leave` is True are not entered."""
    closed: list[Path] = []
    for folder, inner, names in os.walk(root, onerror=lambda error: closed.append(Path(error.filename))):
        here = Path(folder)
        inner[:] = [
            name for name in inner if not name.startswith(".") and not (leave is not None and leave(here / name))
        ]
        linked = [name for name in inner if (here / name).is_symlink()]
        for name in names:
            if name.startswith("."):
                continue
            if os.path.splitext(name)[1].lower() in _NO_VIDEOS:
                if others is not None:
                    others.add(here / name)
            else:
                yield here / name
        yield from (here / name for name in linked)
    yield from closed
