"""Steps between the lines of a journal: run one, and find out how far those of a killed process came."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from hapvr.actions.files import ActionError, Identity, describe_error
from hapvr.actions.journal import Entry, Journal
from hapvr.actions.preview import Left
from hapvr.actions.steps import Step, from_record, make_temporary_name, to_record
from hapvr.storage import StrPath


def run_step(journal: Journal, step: Step, before: Identity) -> None:
    """Make a step between two lines of the journal; `ActionError` if it was not made."""
    entry = journal.begin(to_record(step))
    with _note_outcome(journal, entry, success="done", failure="failed"):
        step.make(before)


def undo_step(journal: Journal, entry: Entry) -> None:
    """Take a step back between two lines of the journal; `ActionError` if its file stays where it is."""
    step = from_record(entry.step)
    temporary = make_temporary_name(os.path.dirname(step.source))
    journal.append("undo", step=entry.number, temporary=temporary)
    with _note_outcome(journal, entry, success="undone", failure="kept"):
        step.take_back(temporary)


@contextlib.contextmanager
def _note_outcome(journal: Journal, entry: Entry, *, success: str, failure: str) -> Iterator[None]:
    """Write into the journal what became of the block; an interrupt takes back what is half made."""
    try:
        yield
    except (OSError, ActionError) as error:
        problem = error if isinstance(error, ActionError) else ActionError("failed", describe_error(error))
        journal.append(failure, step=entry.number, reason=problem.reason)
        raise problem from error
    except BaseException:
        settle_entry(journal, entry)
        raise
    journal.append(success, step=entry.number)


def settle_steps(journal: Journal) -> list[Left]:
    """Find out how far the steps came that a killed process had begun, and take back what is half made.

    Returns the files that cannot be found.
    """
    lost = []
    for entry in journal.entries.values():
        if entry.state in ("begun", "undoing"):
            try:
                settle_entry(journal, entry)
            except ActionError as problem:
                lost.append(Left(entry.step["source"], problem.kind, problem.reason))
    return lost


def settle_entry(journal: Journal, entry: Entry) -> None:
    """The same for one step; `ActionError` if its file cannot be found."""
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
