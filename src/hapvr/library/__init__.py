"""A collection of videos that is indexed once and asked many times: which is this, where is it from, what is double."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

os.environ.setdefault("LANCEDB_LOG", "error")  # the storage engine's warnings are of no use to whoever uses hapvr

if TYPE_CHECKING:
    from hapvr.library.duplicate_report import DuplicateReport, Group, Link
    from hapvr.library.library import Library
    from hapvr.library.library_calibration import CalibrationReport
    from hapvr.library.results import AddProgress, AddReport, Hit, LibraryInfo, SearchResult, VideoRecord

_HOMES = {
    "AddProgress": "results",
    "AddReport": "results",
    "CalibrationReport": "library_calibration",
    "DuplicateReport": "duplicate_report",
    "Group": "duplicate_report",
    "Hit": "results",
    "Library": "library",
    "LibraryInfo": "results",
    "Link": "duplicate_report",
    "SearchResult": "results",
    "VideoRecord": "results",
}

__all__ = [
    "AddProgress",
    "AddReport",
    "CalibrationReport",
    "DuplicateReport",
    "Group",
    "Hit",
    "Library",
    "LibraryInfo",
    "Link",
    "SearchResult",
    "VideoRecord",
]


def __getattr__(name: str) -> Any:
    # Brought when asked for: the storage engine takes its time to load.
    if name in _HOMES:
        return getattr(importlib.import_module(f"hapvr.library.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'hapvr.library' has no attribute {name!r}")
