"""What a library holds twice. `finding` says how it is told; `pairs`, `links`, `groups` and `reports` are its steps."""

from __future__ import annotations

from hapvr.library.duplicates.finder import CANDIDATES, THRESHOLD, find_duplicates
from hapvr.library.duplicates.links import WHOLE, compute_strength, make_link
from hapvr.library.duplicates.report import (
    CSV_FIELDS,
    KINDS,
    DuplicateProgress,
    DuplicateReport,
    Group,
    Kind,
    Link,
    group_links,
    rank_copies,
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
    "compute_strength",
    "find_duplicates",
    "group_links",
    "make_link",
    "rank_copies",
    "report_csv",
    "require_report_files",
    "rows",
    "write_report",
]
