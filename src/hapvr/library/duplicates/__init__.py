"""What a library holds twice. `finding` says how it is told; `pairs`, `links`, `groups` and `reports` are its steps."""

from __future__ import annotations

from hapvr.library.duplicates.finding import CANDIDATES, THRESHOLD, find_duplicates
from hapvr.library.duplicates.groups import best_first, grouped
from hapvr.library.duplicates.links import WHOLE, link_of, strength_of
from hapvr.library.duplicates.reports import (
    CSV_FIELDS,
    KINDS,
    DuplicateProgress,
    DuplicateReport,
    Group,
    Kind,
    Link,
    report_csv,
    require_report_files,
    rows,
    write_report,
)

__all__ = [
    "CANDIDATES",
    "CSV_FIELDS",
    "KINDS",
    "THRESHOLD",
    "WHOLE",
    "DuplicateProgress",
    "DuplicateReport",
    "Group",
    "Kind",
    "Link",
    "best_first",
    "find_duplicates",
    "grouped",
    "link_of",
    "report_csv",
    "require_report_files",
    "rows",
    "strength_of",
    "write_report",
]
