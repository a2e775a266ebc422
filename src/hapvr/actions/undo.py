"""Take back what a journal says was done: files return to where they were, links become files again."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from hapvr.actions.apply import ApplyReport, Progress
from hapvr.actions.files import ActionError
from hapvr.actions.journal import Journal
from hapvr.actions.journal_steps import settle_steps, undo_step
from hapvr.actions.preview import Left
from hapvr.actions.steps import from_record
from hapvr.storage import StrPath


def undo_journal(
    path: StrPath, *, progress: Progress | None = None, stop: Callable[[], bool] | None = None
) -> ApplyReport:
    """Take back every step of a journal, the last first; called again, it goes on.

    A file that has changed since, or whose old place is taken, stays where it is and is reported. Nothing is
    overwritten. `stop` is asked before each file; True ends it.

    Raises:
        StorageError: the journal is not there, or cannot be read or written.
    """
    with Journal(path, create=False) as journal:
        report = ApplyReport(str(journal.path), left=settle_steps(journal))
        report.done_before = sum(entry.state == "undone" for entry in journal.entries.values())
        entries = [entry for entry in reversed(journal.entries.values()) if entry.state == "done"]
        total, done = sum(entry.step["size"] for entry in entries), 0
        for entry in entries:
            if stop is not None and stop():
                break
            try:
                undo_step(journal, entry)
            except ActionError as problem:
                report.left.append(Left(from_record(entry.step).place(), problem.kind, problem.reason))
            else:
                report.files["undone"] += 1
                report.bytes += entry.step["size"]
                report.paths.append(entry.step["source"])
            done += entry.step["size"]
            if progress is not None:
                progress(done, total)
        for folder in reversed(journal.folders):
            with contextlib.suppress(OSError):  # something else is in it, or it is gone
                os.rmdir(folder)
    return report
