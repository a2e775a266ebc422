"""A collection of videos that is indexed once and asked many times: which is this, where is it from, what is double."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

os.environ.setdefault("LANCEDB_LOG", "error")  # the storage engine's warnings are of no use to whoever uses hapvr

if TYPE_CHECKING:
    from hapvr.library.library import Library
    from hapvr.library.records import AddProgress, AddReport, Hit, LibraryInfo, SearchResult, VideoRecord

__all__ = ["AddProgress", "AddReport", "Hit", "Library", "LibraryInfo", "SearchResult", "VideoRecord"]


def __getattr__(name: str) -> Any:
    # Brought when asked for: the storage engine takes its time to load.
    if name == "Library":
        from hapvr.library.library import Library

        return Library
    if name in __all__:
        from hapvr.library import records

        return getattr(records, name)
    raise AttributeError(f"module 'hapvr.library' has no attribute {name!r}")
