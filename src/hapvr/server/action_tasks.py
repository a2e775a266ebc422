"""What the add worker does with files of duplicates, if the server allows it; see `hapvr.actions`.

Clients name videos by id. They may only name a group, or a part of one, that the last search for duplicates found. Each
request has a journal in the folder `actions` of the library, by whose name it is taken back.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hapvr.actions import ApplyOptions, ApplyReport, Left, Plan, PlanRow, apply_plan, preview_plan, undo_journal
from hapvr.actions.journal_steps import read_steps
from hapvr.actions.plan import Action, Way
from hapvr.errors import DataError
from hapvr.library import DuplicateReport, Library, VideoRecord
from hapvr.places import require_local
from hapvr.server.access import file_name, hide_path

FOLDER = "actions"  # of a library
_WHAT = "An action on files"
Progress = Callable[[int, int], None]


class ActionTasks:
    """Actions on the groups of the last search for duplicates."""

    def __init__(self, library: Library, move_to: str | None) -> None:
        self._library, self._move_to = library, move_to
        self._groups: list[frozenset[str]] = []

    def remember(self, report: DuplicateReport) -> None:
        """Take note of the groups that were found."""
        self._groups = [frozenset(video.id for video in group.videos) for group in report.groups]

    def preview(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """What would be done; nothing is."""
        plan, options = self._make_plan(arguments), self._make_options(arguments)
        preview = preview_plan(plan, options)
        kept = {row.path for one in preview.chosen for row in one.kept}
        left = _show_left(preview.left, [row.path for row in plan.rows])
        return {"files": len(preview.chosen), "bytes": preview.size, "kept": len(kept), "left": left}

    def apply(self, arguments: dict[str, Any], progress: Progress, stop: Callable[[], bool]) -> dict[str, Any]:
        """Do it, and let the library know."""
        plan, options = self._make_plan(arguments), self._make_options(arguments)
        folder = require_local(self._library.path, _WHAT) / FOLDER
        folder.mkdir(exist_ok=True)
        report = apply_plan(plan, options, folder / f"{arguments['id']}.journal", progress=progress, stop=stop)
        gone = {path for path in report.paths if not os.path.lexists(path)}
        ids = [record.id for record in self._library.videos() if record.path in gone]
        if ids:
            self._library.remove(ids)
        return _show(report, arguments["id"], arguments["action"], [row.path for row in plan.rows])

    def undo(self, id: str, progress: Progress, stop: Callable[[], bool]) -> dict[str, Any]:
        """Take back what was done under an id."""
        journal = require_local(self._library.path, _WHAT) / FOLDER / f"{id}.journal"
        if not journal.is_file():
            raise DataError(f"Nothing was done under '{id}'.")
        report = undo_journal(journal, progress=progress, stop=stop)
        if report.paths:
            self._library.add([Path(path) for path in report.paths])
        steps = [step for step, _ in read_steps(journal)]
        return _show(report, id, "undo", [path for step in steps for path in (step.place(), step.source)])

    def _make_options(self, arguments: dict[str, Any]) -> ApplyOptions:
        way: Way = arguments["action"]
        return ApplyOptions(way, self._move_to)

    def _make_plan(self, arguments: dict[str, Any]) -> Plan:
        rows: list[PlanRow] = []
        for number, group in enumerate(arguments["groups"], 1):
            ids = frozenset((group["keep"], *group["videos"]))
            if group["keep"] in group["videos"] or not any(ids <= known for known in self._groups):
                raise DataError("A group is not one of the last search for duplicates. Look for duplicates again.")
            rows.append(_make_row(number, "keep", self._library.get(group["keep"])))
            acting = [self._library.get(id) for id in dict.fromkeys(group["videos"])]
            rows += [_make_row(number, arguments["action"], record) for record in acting]
        return Plan(tuple(rows))


def _make_row(group: int, action: Action, record: VideoRecord) -> PlanRow:
    return PlanRow(str(group), action, record.path, record.size, record.content_hash, mtime_ns=record.mtime_ns)


def _show(report: ApplyReport, id: str, action: str, paths: Sequence[str]) -> dict[str, Any]:
    about = {"id": id, "action": action, "files": sum(report.files.values()), "bytes": report.bytes}
    return about | {"left": _show_left(report.left, paths)}


def _show_left(left: Sequence[Left], paths: Sequence[str]) -> list[dict[str, str]]:
    """Files that are left alone, by name: clients do not see where files lie."""
    shown = []
    for one in left:
        reason = one.reason
        for path in sorted({*paths, one.path}, key=len, reverse=True):
            reason = hide_path(reason, path)
        shown.append({"name": file_name(one.path), "reason": reason})
    return shown
