"""What applying a plan would do, by what can be seen without reading the files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from hapvr.actions.files import ActionError, Identity, Problem, identify
from hapvr.actions.journal import Entry, Journal
from hapvr.actions.plan import Plan, PlanRow, Way
from hapvr.actions.steps import from_record
from hapvr.actions.trash import find_device
from hapvr.errors import ConfigError
from hapvr.storage import StrPath


@dataclass(frozen=True)
class ApplyOptions:
    """How a plan is applied."""

    way: Way | None = None  # what is done with every file that has an action; None: what the plan says of each
    folder: str | None = None  # where files are moved to


@dataclass(frozen=True)
class Left:
    """A file that is left alone."""

    path: str
    kind: Problem | Literal["skipped"]  # "skipped": there is nothing to do
    reason: str


@dataclass(frozen=True)
class Chosen:
    """A file to which something is to be done, and the copies of it that are kept."""

    row: PlanRow
    way: Way
    kept: tuple[PlanRow, ...]


@dataclass(frozen=True)
class Preview:
    """What `apply_plan` would do, by what can be seen without reading the files."""

    chosen: tuple[Chosen, ...] = ()
    left: tuple[Left, ...] = ()
    done_before: int = 0  # files with which the journal is through

    @property
    def size(self) -> int:
        """Bytes of the chosen files."""
        return sum(one.row.size for one in self.chosen)

    def count(self) -> dict[Way, tuple[int, int]]:
        """Number of files and bytes of each action."""
        ways = dict.fromkeys(one.way for one in self.chosen)
        named = {way: [one.row.size for one in self.chosen if one.way == way] for way in ways}
        return {way: (len(sizes), sum(sizes)) for way, sizes in named.items()}

    def to_json(self) -> dict[str, Any]:
        """What `hapvr apply --dry-run --json` prints."""
        return {
            "files": [
                {"path": one.row.path, "action": one.way, "size": one.row.size, "kept": [row.path for row in one.kept]}
                for one in self.chosen
            ],
            "bytes": self.size,
            "left": [asdict(one) for one in self.left],
            "done_before": self.done_before,
        }


def preview_plan(plan: Plan, options: ApplyOptions, journal: StrPath | None = None) -> Preview:
    """Say what `apply_plan` would do. Files are looked at but not read, and nothing is written.

    Raises:
        ConfigError: the folder that files are to be moved to is missing in the options, or cannot be used.
        StorageError: the journal exists and cannot be read.
    """
    entries: Collection[Entry] = ()
    if journal is not None and os.path.lexists(journal) and os.path.getsize(journal):
        with Journal(journal, create=True) as opened:
            entries = opened.entries.values()
    return choose_files(plan, options, entries)


def choose_files(plan: Plan, options: ApplyOptions, entries: Collection[Entry]) -> Preview:
    """The files of a plan that something is to be done to, and those that are left alone; `entries`: of the journal."""
    _check_folder(plan, options)
    # One that a killed process had begun is done if its file is no longer there: a preview does not settle it.
    made = [entry for entry in entries if entry.state in ("done", "begun")]
    done = {(entry.step["source"], entry.step["content_hash"]): entry for entry in made}
    acting = {row.path for row in plan.acting}
    kept = {row.path: row for row in reversed(plan.rows) if row.action == "keep"}
    chosen: list[Chosen] = []
    left: list[Left] = []
    before = 0
    seen: set[str] = set()
    for rows in plan.groups.values():
        keeping = [row for row in rows if row.action == "keep" and row.path not in acting]
        valid, problem = _find_valid(keeping)
        for row in rows:
            way = row.way and (options.way or row.way)
            if way is None:
                continue
            if (row.path, row.content_hash) in done and from_record(done[row.path, row.content_hash].step).is_made():
                before += 1
                continue
            try:
                if row.path in seen:
                    raise ActionError("refused", "the plan names it twice")
                seen.add(row.path)
                if row.path in kept:
                    raise ActionError(
                        "refused", f"group {kept[row.path].group} keeps it, and group {row.group} does not"
                    )
                if not valid:
                    raise ActionError("refused", f"group {row.group} keeps no other copy: {problem}")
                copies = _check_row(row, way, valid)
            except ActionError as found:
                left.append(Left(row.path, found.kind, found.reason))
                continue
            except _NothingToDoError as found:
                left.append(Left(row.path, "skipped", str(found)))
                continue
            chosen.append(Chosen(row, way, copies))
    preview = Preview(tuple(chosen), tuple(left), before)
    _check_space(preview, options)
    return preview


class _NothingToDoError(Exception):
    """Why there is nothing to do about a file."""


def _find_valid(rows: list[PlanRow]) -> tuple[dict[PlanRow, Identity], str]:
    """The copies to keep that exist unchanged, and a reason if there is none."""
    valid, problem = {}, "no row has the action keep, or its file has another action in another group"
    for row in rows:
        try:
            found = identify(row.path)
            if found.size != row.size:
                raise ActionError("changed", "it has changed")
            valid[row] = found
        except ActionError as error:
            problem = f"'{row.path}' is to be kept, but {error.reason}"
    return valid, problem


def _check_row(row: PlanRow, way: Way, valid: Mapping[PlanRow, Identity]) -> tuple[PlanRow, ...]:
    """The copies of a file that are kept and serve for this action."""
    found = identify(row.path)
    for other, identity in valid.items():
        if found.is_same_file(identity):
            raise _NothingToDoError(
                f"it is the same file as '{other.path}' already, which is kept: nothing would be saved"
            )
    if found.size != row.size:
        raise ActionError("changed", f"it has changed: {found.size:,} bytes instead of {row.size:,}")
    if way not in ("hardlink", "symlink"):
        return tuple(valid)
    same = tuple(other for other in valid if other.content_hash == row.content_hash)
    if not same:
        raise _NothingToDoError(
            "the copy that is kept has other bytes: a link would lose this file; move it, or trash it"
        )
    return same


def _check_folder(plan: Plan, options: ApplyOptions) -> None:
    if options.folder is None:
        if options.way == "move" or (options.way is None and any(row.action == "move" for row in plan.rows)):
            raise ConfigError("The plan moves files: say where to by --to FOLDER.")
        return
    folder = os.path.abspath(options.folder)
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise ConfigError(f"'{options.folder}' is no folder. Name one, or one that is to be made.")
    if os.path.isdir(folder) and not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"There is no permission to write in '{options.folder}'. Name another folder.")
    if plan.rows and os.path.realpath(folder) == os.path.realpath(find_common_folder(plan)):
        raise ConfigError(f"'{options.folder}' is the folder that the files are in. Name another one.")


def _check_space(preview: Preview, options: ApplyOptions) -> None:
    """Raise `ConfigError` if files are to be copied to a file system with too little space."""
    if options.folder is None:
        return
    there = os.path.abspath(options.folder)
    while not os.path.isdir(there):
        there = os.path.dirname(there)
    device = find_device(there)
    moved = [one.row for one in preview.chosen if one.way == "move"]
    needed = sum(row.size for row in moved if find_device(row.path) != device)
    free = shutil.disk_usage(there).free
    if needed > free:
        raise ConfigError(f"'{options.folder}' has {free:,} bytes free, and {needed:,} are to be copied there.")


def find_common_folder(plan: Plan) -> str:
    """The folder that all files of a plan are below; "" if there is none, as on several drives."""
    try:
        return os.path.commonpath([os.path.dirname(row.path) for row in plan.rows])
    except ValueError:
        return ""
