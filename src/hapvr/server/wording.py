"""The words of answers: what a link of duplicates is, and messages without the places of files on the server."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hapvr.errors import HapvrError
from hapvr.library.records import VideoRecord, printable, shown
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
    return shown(os.path.basename(path))


def without_place(text: str, path: str) -> str:
    """A message about a file, without where it lies.

    >>> without_place("'/home/ann/a.mp4' holds no video.", "/home/ann/a.mp4")
    "'a.mp4' holds no video."
    """
    for form in (path, shown(path)):
        folder = os.path.dirname(form)
        text = text.replace(form, os.path.basename(form))
        if len(folder) > 1:
            text = text.replace(folder + os.sep, "").replace(folder, "its folder")
    return printable(text)


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


def video_json(record: VideoRecord) -> dict[str, Any]:
    """A video as clients see it: its name, never its path."""
    return {
        "id": record.id,
        "name": name_of(record.path),
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
