"""Do what a plan says: each file is checked, moved or replaced by a link, and noted in a journal before and after.

A file is touched only if it still has the content that was compared, and if the copy that its group keeps is there and
has its content. Whatever else is found is left alone and reported.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from hapvr.actions.files import ActionError, Identity, Problem, check_content, describe_error, identify
from hapvr.actions.journal import Entry, Journal
from hapvr.actions.plan import Plan, PlanRow, Way
from hapvr.actions.steps import LinkStep, MoveStep, Step, from_record, make_temporary_name, to_record
from hapvr.actions.trash import find_device, find_trash
from hapvr.errors import ConfigError
from hapvr.storage import StrPath

_MAX_NAMES = 10_000  # tried for a file whose name is taken

Progress = Callable[[int, int], None]
"""Called with the bytes that are done and their total."""


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
        """Files and bytes of each way."""
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


@dataclass
class ApplyReport:
    """What `apply_plan` or `undo_journal` did."""

    journal: str
    files: Counter[str] = field(default_factory=Counter)  # by action; taken back: "undone"
    bytes: int = 0
    paths: list[str] = field(default_factory=list)  # of the files, where they were before `apply_plan`
    left: list[Left] = field(default_factory=list)
    done_before: int = 0

    @property
    def problems(self) -> list[Left]:
        """What could not be done."""
        return [one for one in self.left if one.kind != "skipped"]

    def to_json(self) -> dict[str, Any]:
        """What `hapvr apply --json` and `hapvr undo --json` print."""
        return asdict(self) | {"files": dict(self.files)}


# --- what would be done ----------------------------------------------------------------------------------------------


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
    return _choose(plan, options, entries)


def _choose(plan: Plan, options: ApplyOptions, entries: Collection[Entry]) -> Preview:
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
    """The copies to keep that are there, and why there is none."""
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
    """Refuse to begin what cannot end: files that are copied to a file system with too little space."""
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


# --- doing it --------------------------------------------------------------------------------------------------------


def apply_plan(
    plan: Plan,
    options: ApplyOptions,
    journal: StrPath,
    *,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
) -> ApplyReport:
    """Do what a plan says, and write it into a journal; called again with the same journal, it goes on.

    Args:
        plan: the table, as it was reviewed.
        options: what is done with the files.
        journal: a file; `undo_journal` takes back what it says.
        progress: called after each file.
        stop: asked before each file; True ends it.

    Raises:
        ConfigError: the options do not fit the plan.
        StorageError: the journal cannot be read or written; the files are where it says.
    """
    with Journal(journal, create=True) as opened:
        report = ApplyReport(str(opened.path))
        settle_steps(opened, report)
        preview = _choose(plan, options, opened.entries.values())
        report.left += preview.left
        report.done_before = preview.done_before
        run = _Run(opened, plan, options)
        total, done = preview.size, 0
        for one in preview.chosen:
            if stop is not None and stop():
                break
            try:
                run.apply(one)
            except ActionError as problem:
                report.left.append(Left(one.row.path, problem.kind, problem.reason))
            else:
                report.files[one.way] += 1
                report.bytes += one.row.size
                report.paths.append(one.row.path)
            done += one.row.size
            if progress is not None:
                progress(done, total)
    return report


class _Run:
    """One run of a plan: which kept copies were read, and where files go."""

    def __init__(self, journal: Journal, plan: Plan, options: ApplyOptions) -> None:
        self._journal, self._options = journal, options
        self._common = find_common_folder(plan)
        self._kept: dict[PlanRow, Identity] = {}

    def apply(self, chosen: Chosen) -> None:
        """Make one step; `ActionError` if the file is left alone."""
        row = chosen.row
        kept, identity = self._find_kept(chosen)
        found = check_content(row.path, size=row.size, content_hash=row.content_hash)
        if found.is_same_file(identity):
            raise ActionError("refused", f"it is the same file as '{kept.path}', which is kept")
        try:
            step = self._make_step(chosen, kept, identity, found)
        except OSError as error:
            raise ActionError("failed", describe_error(error)) from error
        if identify(kept.path) != identity:
            raise ActionError("changed", f"the copy to keep, '{kept.path}', was changed a moment ago")
        run_step(self._journal, step, found)

    def _find_kept(self, chosen: Chosen) -> tuple[PlanRow, Identity]:
        """A copy that is kept, has its content, and whose file is no other one of the plan's."""
        reason = ""
        for row in chosen.kept:
            try:
                if self._kept.get(row) != identify(row.path):
                    self._kept[row] = check_content(row.path, size=row.size, content_hash=row.content_hash)
                return row, self._kept[row]
            except ActionError as problem:
                reason = f"the copy to keep, '{row.path}', cannot stand for it: {problem.reason}"
        raise ActionError("changed", reason)

    def _make_step(self, chosen: Chosen, kept: PlanRow, identity: Identity, found: Identity) -> Step:
        row, way = chosen.row, chosen.way
        if way == "hardlink" or way == "symlink":
            return LinkStep(
                source=row.path,
                kept=kept.path,
                size=row.size,
                content_hash=row.content_hash,
                temporary=make_temporary_name(os.path.dirname(row.path)),
                kind=way,
                mtime_ns=found.mtime_ns,
                mode=found.mode,
                device=identity.device,
                inode=identity.inode,
                text=_make_link_text(row.path, kept.path, found, identity) if way == "symlink" else "",
            )
        info = top = ""
        if way == "trash":
            trash = find_trash(row.path)
            trash.make()
            top = trash.top
            target, info = _choose_trash_names(trash.folder, os.path.basename(row.path))
        else:
            target = self._choose_target(row.path)
        temporary = make_temporary_name(os.path.dirname(target))
        return MoveStep(row.path, target, row.size, row.content_hash, temporary, kind=way, info=info, top=top)

    def _choose_target(self, path: str) -> str:
        """A free name below the folder that files are moved to, in the same folders as below their common one."""
        assert self._options.folder is not None
        folder = os.path.abspath(self._options.folder)
        below = os.path.relpath(os.path.dirname(path), self._common) if self._common else "."
        folder = os.path.normpath(os.path.join(folder, below))
        self._make_folder(folder)
        for name in _list_names(os.path.basename(path)):
            target = os.path.join(folder, name)
            if not os.path.lexists(target):
                return target
        raise ActionError("failed", f"no name is free for it in '{folder}'")

    def _make_folder(self, folder: str) -> None:
        missing = []
        while not os.path.isdir(folder):
            missing.append(folder)
            folder = os.path.dirname(folder)
        for one in reversed(missing):
            self._journal.append("folder", path=one)
            os.mkdir(one)


def _list_names(name: str) -> Iterator[str]:
    """The name, and names with a number before the suffix.

    >>> from itertools import islice
    >>> list(islice(_list_names("a.b.mp4"), 3))
    ['a.b.mp4', 'a.b (2).mp4', 'a.b (3).mp4']
    """
    yield name
    stem, suffix = os.path.splitext(name)
    for number in range(2, _MAX_NAMES):
        yield f"{stem} ({number}){suffix}"


def _choose_trash_names(folder: str, name: str) -> tuple[str, str]:
    """Free names of a file and of its note in a trash."""
    for one in _list_names(name):
        target, info = os.path.join(folder, "files", one), os.path.join(folder, "info", f"{one}.trashinfo")
        if not os.path.lexists(target) and not os.path.lexists(info):
            return target, info
    raise ActionError("failed", f"no name is free for it in '{folder}'")


def _make_link_text(path: str, kept: str, found: Identity, identity: Identity) -> str:
    """What a symbolic link says: within a file system the way from folder to folder, so that a disk can be moved."""
    if found.device != identity.device:
        return kept
    return os.path.relpath(os.path.realpath(kept), os.path.realpath(os.path.dirname(path)))


# --- steps and the journal -------------------------------------------------------------------------------------------


def run_step(journal: Journal, step: Step, before: Identity) -> None:
    """Make a step between two lines of the journal; `ActionError` if it was not made."""
    entry = journal.begin(to_record(step))
    try:
        step.make(before)
    except (OSError, ActionError) as error:
        problem = error if isinstance(error, ActionError) else ActionError("failed", describe_error(error))
        journal.append("failed", step=entry.number, reason=problem.reason)
        raise problem from error
    except BaseException:
        settle_entry(journal, entry)
        raise
    journal.append("done", step=entry.number)


def settle_steps(journal: Journal, report: ApplyReport) -> None:
    """Find out how far the steps came that a killed process had begun, and take back what is half made."""
    for entry in journal.entries.values():
        if entry.state in ("begun", "undoing"):
            try:
                settle_entry(journal, entry)
            except ActionError as problem:
                report.left.append(Left(entry.step["source"], problem.kind, problem.reason))


def settle_entry(journal: Journal, entry: Entry) -> None:
    """The same for one step; `ActionError` if its file is nowhere."""
    step, undoing = from_record(entry.step), entry.state == "undoing"
    try:
        reached = step.settle_back(entry.temporary) if undoing else step.settle()
    except ActionError as problem:
        journal.append("kept" if undoing else "failed", step=entry.number, reason=problem.reason)
        raise
    if undoing:
        journal.append("undone" if reached else "kept", step=entry.number, settled=True)
    else:
        journal.append("done" if reached else "failed", step=entry.number, settled=True)


def read_steps(path: StrPath) -> list[tuple[Step, str]]:
    """The steps of a journal and how far each is: begun, done, failed, undoing or undone."""
    with Journal(path, create=False) as journal:
        return [(from_record(entry.step), entry.state) for entry in journal.entries.values()]


def require_journal_place(path: StrPath, plan: StrPath) -> None:
    """`ConfigError` unless a journal can be written there."""
    if not os.path.isdir(os.path.dirname(os.path.abspath(path))):
        raise ConfigError(f"The journal '{path}' cannot be written: its folder is not there. Make it first.")
    if os.path.abspath(path) == os.path.abspath(plan):
        raise ConfigError(f"'{path}' is the plan: name another file for the journal.")
