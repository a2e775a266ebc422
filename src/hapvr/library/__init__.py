"""An index of videos on disk: add videos once, then search them and find duplicates among them."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

os.environ.setdefault("LANCEDB_LOG", "error")  # the storage engine's warnings are of no use to users of hapvr

if TYPE_CHECKING:
    from hapvr.library.backup import BackupReport as BackupReport
    from hapvr.library.checking import CheckReport as CheckReport
    from hapvr.library.checking import Problem as Problem
    from hapvr.library.checking import check_library as check_library
    from hapvr.library.duplicate_report import DuplicateReport as DuplicateReport
    from hapvr.library.duplicate_report import Group as Group
    from hapvr.library.duplicate_report import Link as Link
    from hapvr.library.filters import VideoFilter as VideoFilter
    from hapvr.library.indexed_folders import IndexRules as IndexRules
    from hapvr.library.judge_calibration import JudgeCalibrationReport as JudgeCalibrationReport
    from hapvr.library.library import Library as Library
    from hapvr.library.library_calibration import CalibrationReport as CalibrationReport
    from hapvr.library.repair import repair_library as repair_library
    from hapvr.library.results import AddProgress as AddProgress
    from hapvr.library.results import AddReport as AddReport
    from hapvr.library.results import Hit as Hit
    from hapvr.library.results import LibraryInfo as LibraryInfo
    from hapvr.library.results import SearchResult as SearchResult
    from hapvr.library.results import VideoRecord as VideoRecord

_NAMES = {
    "backup": ("BackupReport",),
    "checking": ("CheckReport", "Problem", "check_library"),
    "duplicate_report": ("DuplicateReport", "Group", "Link"),
    "filters": ("VideoFilter",),
    "indexed_folders": ("IndexRules",),
    "judge_calibration": ("JudgeCalibrationReport",),
    "library": ("Library",),
    "library_calibration": ("CalibrationReport",),
    "repair": ("repair_library",),
    "results": ("AddProgress", "AddReport", "Hit", "LibraryInfo", "SearchResult", "VideoRecord"),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    # Imported when asked for: the storage engine takes its time to load.
    if name in _HOMES:
        return getattr(importlib.import_module(f"hapvr.library.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'hapvr.library' has no attribute {name!r}")
