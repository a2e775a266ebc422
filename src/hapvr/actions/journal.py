"""The journal of what was done to files: one line of JSON before and after each step, on disk before the step begins.

    {"event": "journal", "format": 1, ...}          the first line
    {"event": "folder", "path": ...}                a folder that is about to be made
    {"event": "begin", "step": 1, ...}              a step that is about to be made: see `hapvr.actions.steps`
    {"event": "done" | "failed", "step": 1, ...}
    {"event": "undo", "step": 1, "temporary": ...}  a step that is about to be taken back
    {"event": "undone" | "kept", "step": 1, ...}    it was taken back, or it is as before

A process that is killed may leave half a line, which counts as not written, and a step that has begun: the
next process that opens the journal looks at the files to see how far it came.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from hapvr import __version__
from hapvr.actions.files import describe_error
from hapvr.actions.steps import from_record
from hapvr.errors import StorageError
from hapvr.storage import StrPath, lock_file, sync_folder

State = Literal["begun", "done", "failed", "undoing", "undone"]
JOURNAL_ENDING = ".journal"
"""The journal of a plan lies beside it, under its name with this."""
_FORMAT = 1
_NEXT: dict[str, State] = {"done": "done", "failed": "failed", "undo": "undoing", "undone": "undone", "kept": "done"}


@dataclass
class Entry:
    """A step of the journal and how far it is."""

    number: int
    step: dict[str, Any]  # as it was written when it began
    state: State = "begun"
    temporary: str = ""  # the name that is used while it is taken back


class Journal:
    """An open journal. One process at a time: `StorageError` if another one has it open."""

    def __init__(self, path: StrPath, *, create: bool) -> None:
        self.path = Path(os.path.abspath(path))
        self.entries: dict[int, Entry] = {}
        self.folders: list[str] = []  # that were made, in that order
        flags = os.O_RDWR | os.O_APPEND | getattr(os, "O_BINARY", 0) | (os.O_CREAT if create else 0)
        try:
            self._file = os.open(self.path, flags, 0o600)
        except FileNotFoundError:
            raise StorageError(f"'{path}' is not there. Give the journal that `hapvr apply` named.") from None
        except OSError as error:
            raise StorageError(f"The journal '{path}' cannot be opened: {error.strerror}.") from error
        try:
            lock_file(self._file, self.path)
            self._read(create)
        except BaseException:
            os.close(self._file)
            raise

    def _read(self, create: bool) -> None:
        data = b""
        while block := os.read(self._file, 1 << 20):
            data += block
        whole, last, _ = data.rpartition(b"\n")
        if not whole:
            if not _may_be_header(data):
                raise StorageError(
                    f"'{self.path}' is no journal of `hapvr apply`. {self._suggest() or 'Name another file.'}"
                )
            if create:
                os.ftruncate(self._file, 0)
                self.append("journal", format=_FORMAT, hapvr=__version__)
                sync_folder(self.path.parent)
            return
        for number, line in enumerate(whole.split(b"\n"), 1):
            try:
                record = json.loads(line)
                self._follow(record, first=number == 1)
            except (ValueError, KeyError, TypeError):
                what = f"'{self.path}', line {number}: this is no journal of `hapvr apply`, or it is damaged."
                raise StorageError(f"{what} {self._suggest()}".rstrip()) from None
        os.ftruncate(self._file, len(whole) + len(last))  # without half a line

    def _suggest(self) -> str:
        """The journal beside this file, if there is one: a plan may have been named in its place."""
        beside = self.path.with_name(f"{self.path.name}{JOURNAL_ENDING}")
        return f"Its journal is '{beside}': give that." if beside.is_file() else ""

    def _follow(self, record: dict[str, Any], *, first: bool) -> None:
        event = record["event"]
        if first != (event == "journal") or (first and record["format"] != _FORMAT):
            raise ValueError
        if event == "folder":
            self.folders.append(os.fspath(record["path"]))
        elif event == "begin":
            from_record(record)  # raises an error if it cannot be used
            self.entries[record["step"]] = Entry(record["step"], record)
        elif event != "journal":
            entry = self.entries[record["step"]]
            entry.state = _NEXT[event]
            entry.temporary = os.fspath(record.get("temporary", ""))

    def append(self, event: str, **values: Any) -> None:
        """Write a line that is on disk when this returns; `StorageError` if it cannot be written."""
        record = {"event": event, **values}
        data = json.dumps(record).encode() + b"\n"  # ASCII: file names may hold bytes that are no text
        size = os.fstat(self._file).st_size
        try:
            while data:
                data = data[os.write(self._file, data) :]
            os.fsync(self._file)
        except OSError as error:
            os.ftruncate(self._file, size)
            raise StorageError(
                f"The journal '{self.path}' cannot be written: {describe_error(error)}. Nothing was done after that; "
                "run the same command again when it can."
            ) from error
        self._follow(record, first=event == "journal")

    def begin(self, step: dict[str, Any]) -> Entry:
        """Write that a step is about to be made."""
        number = len(self.entries) + 1
        self.append("begin", **{**step, "step": number})
        return self.entries[number]

    def close(self) -> None:
        """Close the file, which releases its lock."""
        os.close(self._file)

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _may_be_header(data: bytes) -> bool:
    """Whether a file without a whole line is what a killed process left of the first one."""
    return b'{"event": "journal"'.startswith(data[:19])
