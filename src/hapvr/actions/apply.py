"""Do what a plan says: each file is checked, moved or replaced by a link, and noted in a journal before and after.

A file is touched only if it still has the content that was compared, and if the copy that its group keeps is there and
has its content. All other files are left alone and reported.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from hapvr.actions.files import ActionError, Identity, check_content, describe_error, identify
from hapvr.actions.journal import Journal
from hapvr.actions.journal_steps import run_step, settle_steps
from hapvr.actions.plan import Plan, PlanRow
from hapvr.actions.preview import ApplyOptions, Chosen, Left, choose_files, find_common_folder
from hapvr.actions.steps import LinkStep, MoveStep, Step, make_temporary_name
from hapvr.actions.trash import find_trash
from hapvr.errors import ConfigError
from hapvr.storage import StrPath

_MAX_NAMES = 10_000  # tried for a file whose name is taken

Progress = Callable[[int, int], None]
"""Called with the bytes that are done and their total."""


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
        report = ApplyReport(str(opened.path), left=settle_steps(opened))
        preview = choose_files(plan, options, opened.entries.values())
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
        """The first of the kept copies that still has the content that was compared."""
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
    """The target of a symbolic link: relative within one file system, so that the disk can be mounted elsewhere."""
    if found.device != identity.device:
        return kept
    return os.path.relpath(os.path.realpath(kept), os.path.realpath(os.path.dirname(path)))


def require_journal_place(path: StrPath, plan: StrPath) -> None:
    """`ConfigError` unless a journal can be written there."""
    if not os.path.isdir(os.path.dirname(os.path.abspath(path))):
        raise ConfigError(f"The journal '{path}' cannot be written: its folder is not there. Make it first.")
    if os.path.abspath(path) == os.path.abspath(plan):
        raise ConfigError(f"'{path}' is the plan: name another file for the journal.")
