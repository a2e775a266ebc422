"""The words of answers: what a link of duplicates is, and messages without the places of files on the server."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePath
from typing import Any

from hapvr.errors import HapvrError
from hapvr.library.results import VideoRecord, display_path, escape_text
from hapvr.library.versions import is_library
from hapvr.server.problems import Problem, library_gone, status_of

LINK_WORDS = {
    "identical": "the same bytes",
    "duplicate": "a copy",
    "contained": "a part of the other",
    "shared": "a part of both is the same",
}
"""What the links of duplicates are called."""


def name_of(path: str) -> str:
    """The name of a file as it can be shown; nothing of where it lies.

    >>> name_of("/home/ann/films/a.mp4")
    'a.mp4'
    """
    return display_path(os.path.basename(path))


def visible_path(path: str, roots: Iterable[str]) -> str | None:
    """The path of a file that lies in one of the folders that the server was given; None for any other.

    >>> visible_path("/films/new/a.mp4", ["/films"]), visible_path("/home/ann/a.mp4", ["/films"])
    ('/films/new/a.mp4', None)
    """
    inside = any(PurePath(path).is_relative_to(root) for root in roots)
    return display_path(path) if inside and ".." not in PurePath(path).parts else None


def without_place(text: str, path: str) -> str:
    """A message about a file, without where it lies.

    >>> without_place("'/home/ann/a.mp4' holds no video.", "/home/ann/a.mp4")
    "'a.mp4' holds no video."
    """
    for form in (path, display_path(path)):
        folder = os.path.dirname(form)
        text = text.replace(form, os.path.basename(form))
        if len(folder) > 1:
            text = text.replace(folder + os.sep, "").replace(folder, "its folder")
    return escape_text(text)


def problem_of(error: Exception, library: Path) -> Problem | None:
    """What a client is told of an error about a library, without where it lies; None for a fault of the program."""
    if isinstance(error, Problem) and error.status < 500:
        return error
    if not is_library(library):
        return library_gone()
    if isinstance(error, Problem):
        return Problem(error.status, without_place(error.message, str(library)), hint=error.hint, headers=error.headers)
    if isinstance(error, HapvrError):
        return Problem(status_of(error), without_place(str(error), str(library)))
    return None


def visible_record(record: VideoRecord, roots: Sequence[str]) -> VideoRecord:
    """A record as reports may show it: with its path if that is visible, else with its name alone."""
    return dataclasses.replace(
        record,
        path=visible_path(record.path, roots) or name_of(record.path),
        error=None if record.error is None else without_place(record.error, record.path),
        warnings=tuple(without_place(text, record.path) for text in record.warnings),
    )


def video_json(record: VideoRecord, roots: Sequence[str]) -> dict[str, Any]:
    """A video as clients see it: its name, and its path if it lies in one of the server's folders."""
    return {
        "id": record.id,
        "name": name_of(record.path),
        "path": visible_path(record.path, roots),
        "duration": record.duration,
        "frames": record.frames,
        "width": record.width,
        "height": record.height,
        "bitrate": record.bitrate,
        "size": record.size,
        "state": record.state,
        "error": None if record.error is None else without_place(record.error, record.path),
        "added": record.added.isoformat(),
        "warnings": [without_place(text, record.path) for text in record.warnings],
    }
