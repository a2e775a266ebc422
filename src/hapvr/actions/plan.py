"""A plan: a table of files that are copies of each other, with what is to be done with each. People review and edit it.

It is a CSV file that opens in a spreadsheet. Paths are absolute. A path with bytes that are no text, or with control
characters, is written as a `file:` URL. Contents are named by their BLAKE2b hash.
"""

from __future__ import annotations

import csv
import io
import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import quote, unquote_to_bytes

from hapvr.errors import DataError
from hapvr.storage import HASH_BYTES, StrPath, format_csv_rows, write_bytes

Way = Literal["move", "trash", "hardlink", "symlink"]
"""What can be done with a file that is not kept."""
Action = Literal["keep", "move", "trash", "hardlink", "symlink", "none", "distinct"]
WAYS: tuple[Way, ...] = get_args(Way)
ACTIONS: tuple[Action, ...] = get_args(Action)
FIELDS = (
    "group", "action", "saves", "path", "kind", "probability", "why", "size", "seconds", "width", "height", "modified",
    "content_hash",
)  # fmt: skip
_NEEDED = ("group", "action", "path", "size", "content_hash")
_HASH = re.compile(rf"(?:blake2b:)?([0-9a-f]{{{2 * HASH_BYTES}}})")
_URL = "file://"
_NO_TEXT = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


@dataclass(frozen=True)
class PlanRow:
    """One file of a group."""

    group: str
    action: Action  # "distinct": it is no duplicate of the others of its group
    path: str  # absolute
    size: int  # bytes
    content_hash: str  # BLAKE2b, hexadecimal
    kind: str = ""  # what it is to the copy that is kept: identical, copy, edited, unsure or clip
    probability: float | None = None  # that it shares footage with that copy
    why: str = ""  # why it is kept, or is what it is
    seconds: float = 0.0
    width: int = 0
    height: int = 0
    mtime_ns: int = -1  # when it was last changed; -1 if that is not known

    @property
    def way(self) -> Way | None:
        """The action, if it is one that changes something."""
        return next((way for way in WAYS if way == self.action), None)

    @property
    def saves(self) -> int:
        """Bytes that the action frees; a file that is moved frees them where it was."""
        return 0 if self.way is None else self.size

    def to_cells(self) -> dict[str, Any]:
        """The cells of a CSV row. A spreadsheet takes none of them for a formula, or for a number that it rounds."""
        return {
            "group": self.group,
            "action": self.action,
            "saves": self.saves or "",
            "path": encode_path(self.path),
            "kind": self.kind,
            "probability": "" if self.probability is None else f"{self.probability:.4f}",
            "why": _NO_TEXT.sub("?", self.why),
            "size": self.size,
            "seconds": f"{self.seconds:.1f}",
            "width": self.width,
            "height": self.height,
            "modified": "" if self.mtime_ns < 0 else _format_time(self.mtime_ns),
            "content_hash": f"blake2b:{self.content_hash}",
        }


@dataclass(frozen=True)
class Plan:
    """Files by groups, those that save most first."""

    rows: tuple[PlanRow, ...]

    @cached_property
    def groups(self) -> Mapping[str, tuple[PlanRow, ...]]:
        """The rows of each group, in the order of the table."""
        found: dict[str, list[PlanRow]] = {}
        for row in self.rows:
            found.setdefault(row.group, []).append(row)
        return {name: tuple(rows) for name, rows in found.items()}

    @property
    def acting(self) -> tuple[PlanRow, ...]:
        """The rows of files to which something is to be done."""
        return tuple(row for row in self.rows if row.action in WAYS)

    @property
    def saves(self) -> int:
        """Bytes that the plan frees."""
        return sum(row.saves for row in self.rows)


def write_plan(plan: Plan, path: StrPath) -> None:
    """Write a plan as CSV, which `read_plan` reads. It begins with a mark by which spreadsheets know UTF-8."""
    text = format_csv_rows(FIELDS, (row.to_cells() for row in plan.rows))
    write_bytes(path, b"\xef\xbb\xbf" + text.encode())


def read_plan(path: StrPath) -> Plan:
    """Read a plan, also one that a spreadsheet has saved: with semicolons or tabs, other columns, another order.

    Raises:
        DataError: the file is no plan, or a row cannot be used; the message has its line.
    """
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"The plan '{path}' cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError:
        raise DataError(f"The plan '{path}' is not in UTF-8. Save it as CSV in UTF-8.") from None
    first = text.partition("\n")[0]
    separator = max(",;\t", key=first.count)
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    try:
        missing = [name for name in _NEEDED if name not in (reader.fieldnames or ())]
        if missing:
            raise DataError(
                f"'{path}' is no plan: its first line lacks {', '.join(missing)}. "
                "`hapvr duplicates LIBRARY --plan FILE` writes one."
            )
        rows = []
        for cells in reader:
            values = {name: (value or "").strip() for name, value in cells.items() if isinstance(name, str)}
            if any(values.values()):
                rows.append(_read_row(values, f"'{path}', line {reader.line_num}"))
    except csv.Error as error:
        raise DataError(f"'{path}', line {reader.reader.line_num}, is no CSV: {error}.") from error
    return Plan(tuple(rows))


def _read_row(cells: Mapping[str, str], place: str) -> PlanRow:
    action = cells["action"].lower() or "none"
    if action not in ACTIONS:
        raise DataError(f"{place}: the action is '{action}'; it must be one of {', '.join(ACTIONS)}.")
    if not cells["group"]:
        raise DataError(f"{place}: the group is empty. Rows of one group are copies of each other.")
    path = decode_path(cells["path"])
    if not os.path.isabs(path) or os.path.normpath(path) != path:
        raise DataError(f"{place}: '{cells['path']}' is no absolute path without '..', as a plan has.")
    found = _HASH.fullmatch(cells["content_hash"].lower())
    if found is None:
        raise DataError(f"{place}: the content_hash is not as it was written. Write the plan again.")
    probability = _read_number(cells.get("probability", ""), place, "probability")
    return PlanRow(
        group=cells["group"].removesuffix(".0"),
        action=action,
        path=path,
        size=_read_size(cells["size"], place),
        content_hash=found[1],
        kind=cells.get("kind", ""),
        probability=probability,
        why=cells.get("why", ""),
        seconds=_read_number(cells.get("seconds", ""), place, "seconds") or 0.0,
        width=int(_read_number(cells.get("width", ""), place, "width") or 0),
        height=int(_read_number(cells.get("height", ""), place, "height") or 0),
        mtime_ns=_parse_time(cells.get("modified", "")),
    )


def _read_size(cell: str, place: str) -> int:
    value = _read_number(cell, place, "size")
    if value is None or value < 0 or value != int(value):
        raise DataError(f"{place}: the size is '{cell}'; it must be a number of bytes, as it was written.")
    return int(value)


def _read_number(cell: str, place: str, name: str) -> float | None:
    """A number; with a comma in place of the point too, as spreadsheets of some languages save it."""
    if not cell:
        return None
    try:
        if math.isfinite(value := float(cell.replace(",", "."))):
            return value
    except ValueError:
        pass
    raise DataError(f"{place}: the {name} is '{cell}'; it must be a number.")


# --- cells -----------------------------------------------------------------------------------------------------------


def encode_path(path: str) -> str:
    r"""A path as text that a spreadsheet keeps; `decode_path` gives it back.

    >>> encode_path("/videos/a b.mp4"), encode_path("/videos/caf\udce9\n.mp4")
    ('/videos/a b.mp4', 'file:///videos/caf%E9%0A.mp4')
    """
    if _NO_TEXT.search(path) or path != path.strip():
        return _URL + quote(os.fsencode(path))
    return path


def decode_path(cell: str) -> str:
    r"""The path of a cell.

    >>> decode_path("file:///videos/caf%E9%0A.mp4")
    '/videos/caf\udce9\n.mp4'
    """
    return os.fsdecode(unquote_to_bytes(cell.removeprefix(_URL))) if cell.startswith(_URL) else cell


def _format_time(time_ns: int) -> str:
    seconds, rest = divmod(time_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%d %H:%M:%S}.{rest:09d} UTC"


def _parse_time(cell: str) -> int:
    """The time of a cell; -1 where a spreadsheet has changed it: contents decide, not times."""
    found = re.fullmatch(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\.(\d{9}) UTC", cell)
    if found is None:
        return -1
    try:
        moment = datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=timezone.utc)
    except ValueError:  # such as 25 o'clock
        return -1
    return int(moment.timestamp()) * 1_000_000_000 + int(found[2])


def make_pairs(rows: Iterable[PlanRow], groups: Iterable[str] = ()) -> set[tuple[str, str]]:
    """The pairs of contents that a reviewed plan calls distinct, each with the smaller hash first.

    A row whose action is "distinct" is no duplicate of any other row of its group; in the `groups` named, all rows are
    distinct from each other.

    >>> rows = [PlanRow("1", action, f"/{hash}", 1, hash) for action, hash in (("keep", "a"), ("none", "b"))]
    >>> make_pairs(rows), make_pairs(rows, ["1"])
    (set(), {('a', 'b')})
    """
    whole = set(groups)
    found = set()
    for name, members in Plan(tuple(rows)).groups.items():
        for row in members:
            if name in whole or row.action == "distinct":
                others = {other.content_hash for other in members} - {row.content_hash}
                found |= {(min(row.content_hash, other), max(row.content_hash, other)) for other in others}
    return found
