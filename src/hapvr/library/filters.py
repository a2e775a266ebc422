"""Which videos of a library are meant: by folder, size, length and date."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from hapvr.errors import ConfigError

if TYPE_CHECKING:  # the command line reads this module: it must not wait for torch and tables
    from hapvr.library.results import VideoRecord
    from hapvr.library.tables import Catalog

_UNITS = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


class FiledVideo(NamedTuple):
    """What a filter looks at; a `VideoRecord` has it too."""

    path: str
    size: int
    duration: float
    mtime_ns: int


@dataclass(frozen=True)
class VideoFilter:
    """Limits that a video must keep; None, and no folders, allow everything."""

    folders: tuple[str, ...] = ()  # at or below one of them
    min_size: int | None = None  # bytes
    max_size: int | None = None
    min_seconds: float | None = None
    max_seconds: float | None = None
    after: datetime | None = None  # last changed at this time or later; a time without a zone is local
    before: datetime | None = None  # last changed before this time

    def __post_init__(self) -> None:
        for name, low, high in (
            ("size", self.min_size, self.max_size),
            ("seconds", self.min_seconds, self.max_seconds),
        ):
            for which, limit in (("min", low), ("max", high)):
                if limit is not None and not 0 <= limit < math.inf:
                    raise ConfigError(f"{which}_{name} must be 0 or more, got {limit:g}.")
            if low is not None and high is not None and low > high:
                raise ConfigError(f"min_{name} must not be above max_{name}; got {low:g} and {high:g}.")
        if self.after is not None and self.before is not None and self.after.timestamp() >= self.before.timestamp():
            raise ConfigError(f"No time is after {self.after} and before {self.before}.")

    def allows(self, video: FiledVideo | VideoRecord) -> bool:
        """Whether a video keeps all limits.

        >>> video = FiledVideo("/films/a/b.mp4", size=2_000, duration=60.0, mtime_ns=0)
        >>> VideoFilter(folders=("/films/a",), min_size=2_000).allows(video), VideoFilter(("/films/a/b",)).allows(video)
        (True, False)
        """
        if self.folders and not any(_is_below(video.path, os.path.abspath(folder)) for folder in self.folders):
            return False
        changed = video.mtime_ns / 1e9
        limits = (
            (self.min_size, video.size, self.max_size),
            (self.min_seconds, video.duration, self.max_seconds),
        )
        if not all((low is None or low <= value) and (high is None or value <= high) for low, value, high in limits):
            return False
        after, before = (None if one is None else one.timestamp() for one in (self.after, self.before))
        return (after is None or after <= changed) and (before is None or changed < before)


def find_allowed(catalog: Catalog, filter: VideoFilter | None) -> set[int] | None:
    """The rows of described videos that a filter allows; None for all."""
    if filter is None or filter == VideoFilter():
        return None
    rows = catalog.described.nonzero()[0].tolist()
    columns = [catalog.column(name) for name in ("size", "duration", "mtime_ns")]
    videos = (FiledVideo(os.fsdecode(catalog.paths[row]), *(column[row] for column in columns)) for row in rows)
    return {row for row, video in zip(rows, videos, strict=True) if filter.allows(video)}


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def parse_size(text: str, name: str = "size") -> int:
    """Bytes, from a number with or without a unit; an error calls it by its name.

    >>> parse_size("700"), parse_size("1.5GB"), parse_size("2 MiB")
    (700, 1500000000, 2097152)
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]*)?)\s*([kmgt]?i?)b?", text.strip().lower())
    if found is None or found[2] not in _UNITS:
        raise ConfigError(f"{name} must be a number of bytes, or one with a unit such as 500MB or 2GiB; got '{text}'.")
    return int(float(found[1]) * _UNITS[found[2]])
