"""Which files clients may read, and which paths they may name and see.

The roots (`--root`) are the folders that clients may name when they add videos. They do not limit what is served: the
file of every indexed video is served, also if it lies outside the roots, because the owner of the library added it. Not
served are files that have changed since, and links in a root that lead out of all roots. Clients see the names of all
videos, the paths of those in the roots, and no other path, not even in messages.
"""

from __future__ import annotations

import dataclasses
import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePath

from hapvr.errors import StorageError
from hapvr.library.results import VideoRecord, display_path, escape_text
from hapvr.library.versions import is_library
from hapvr.places import Place
from hapvr.server.problems import Problem, busy, translate_error

_MAX_FOLDERS = 1000  # that are listed


def resolve_below(root: Path, given: str) -> Path:
    """The folder or file that a client names in a root; `Problem` if it leads out of it, by dots or by links."""
    parts = given.replace("\\", "/").split("/")
    absolute = given.startswith(("/", "\\")) or os.path.isabs(given) or ":" in parts[0]
    if absolute or ".." in parts or "\0" in given:
        raise Problem(403, "A path is relative to its root, and does not lead out of it.")
    try:
        place = (root / given).resolve(strict=True)
    except (OSError, ValueError, RuntimeError):
        raise Problem(404, f"There is nothing at '{given[:80]}' in '{root.name}'.") from None
    if place != root and root not in place.parents:
        raise Problem(403, "The path is a link that leads out of its root.")
    return place


def list_folders(root: Path, given: str) -> tuple[list[str], bool]:
    """The names of the folders at a place in a root, and whether there are more than are named.

    Hidden folders are left out, and so are links that lead out of the root and names that are no text.
    """
    place = resolve_below(root, given)
    if not place.is_dir():
        raise Problem(400, f"'{given[:80]}' in '{root.name}' is no folder.")
    names: list[str] = []
    try:
        with os.scandir(place) as entries:
            for entry in entries:
                if not entry.name.startswith(".") and entry.name.isprintable() and _is_folder_below(entry, root):
                    names.append(entry.name)
    except OSError:
        raise Problem(409, f"The folder '{given[:80]}' in '{root.name}' cannot be read.") from None
    names.sort(key=lambda name: (name.casefold(), name))
    return names[:_MAX_FOLDERS], len(names) > _MAX_FOLDERS


def _is_folder_below(entry: os.DirEntry[str], root: Path) -> bool:
    try:
        if not entry.is_dir():
            return False
        place = Path(entry.path).resolve(strict=True)
    except (OSError, RuntimeError):
        return False
    return root in place.parents


def open_unchanged(path: str, name: str, *, size: int, mtime_ns: int | None, roots: Sequence[Path]) -> int:
    """A descriptor of a file, if it is still the one that was indexed.

    `roots` are resolved. A file in one of them may not be a link that leads out of all of them. A file outside the
    roots is opened: the owner of the library indexed it.
    """
    # A library may know a folder of a root by the name of a link to it.
    folders = [os.path.realpath(folder) for folder in Path(os.path.abspath(path)).parents]
    names = [path, *(os.path.join(folder, name) for folder in folders)]
    in_roots = any(_is_below(one, root) for one in names for root in roots)

    def require_inside(real: str) -> None:
        if in_roots and not any(_is_below(real, root) for root in roots):
            raise Problem(403, f"'{name}' is a link that leads out of the folders this server may read.")

    require_inside(os.path.realpath(path))
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except OSError:
        raise Problem(409, f"The file '{name}' is not there any more, or cannot be read.") from None
    try:
        require_inside(_find_opened(descriptor, path))  # a link may have been changed in between
    except Problem:
        os.close(descriptor)
        raise
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_size != size or mtime_ns not in (None, found.st_mtime_ns):
        os.close(descriptor)
        hint = "Add it again, so that what is shown is what was indexed."
        raise Problem(409, f"The file '{name}' has changed since it was indexed.", hint=hint)
    return descriptor


def _find_opened(descriptor: int, path: str) -> str:
    """The place of an open file, as Linux knows it; elsewhere as its path resolves now."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return os.path.realpath(path)


def _is_below(path: str, root: Path) -> bool:
    return os.path.abspath(path).startswith(str(root).rstrip(os.sep) + os.sep)


def file_name(path: str) -> str:
    """The name of a file as it can be shown.

    >>> file_name("/home/ann/films/a.mp4")
    'a.mp4'
    """
    return display_path(os.path.basename(path))


def visible_path(path: str, roots: Iterable[str]) -> str | None:
    """The path of a file in one of the roots; None for any other.

    >>> visible_path("/films/new/a.mp4", ["/films"]), visible_path("/home/ann/a.mp4", ["/films"])
    ('/films/new/a.mp4', None)
    """
    inside = any(PurePath(path).is_relative_to(root) for root in roots)
    return display_path(path) if inside and ".." not in PurePath(path).parts else None


def hide_path(text: str, path: str, name: str | None = None) -> str:
    """A message about a file with its name, or another, in place of its path.

    >>> hide_path("'/home/ann/a.mp4' holds no video.", "/home/ann/a.mp4")
    "'a.mp4' holds no video."
    """
    for form in (path, display_path(path)):
        folder = os.path.dirname(form)
        text = text.replace(form, os.path.basename(form) if name is None else name)
        if len(folder) > 1:
            text = text.replace(folder + os.sep, "").replace(folder, "its folder")
    return escape_text(text)


def visible_record(record: VideoRecord, roots: Sequence[str]) -> VideoRecord:
    """A record as reports may show it: with its path if that is visible, else with its name alone."""
    return dataclasses.replace(
        record,
        path=visible_path(record.path, roots) or file_name(record.path),
        error=None if record.error is None else hide_path(record.error, record.path),
        warnings=tuple(hide_path(text, record.path) for text in record.warnings),
    )


def is_reachable(library: Place) -> bool:
    """Whether there is a library that can be read."""
    try:
        return is_library(library)
    except StorageError:
        return False


def translate_library_error(error: Exception, library: Place) -> Problem:
    """The answer to a client after an error that the library may have caused, without the path of the library."""
    problem = translate_error(error)
    if isinstance(error, Problem) and problem.status < 500:
        return problem
    if not is_reachable(library):
        message = "The library is not there: its folder was removed or moved, or cannot be reached."
        hint = "Put it back where it was; the server need not be restarted."
        return busy(message, after_s=10, hint=hint)
    message = hide_path(problem.message, str(library))
    return Problem(problem.status, message, hint=problem.hint, headers=problem.headers)
