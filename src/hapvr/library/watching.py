"""Keeping a library in step with folders as they change, by looking at them again and again.

Nothing but names, sizes and times is looked at. A file is taken up when it has stayed the same from one look to the
next, so that one that is being copied is not read half-way; the lock is held only while there is something to do.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from hapvr.errors import ConfigError
from hapvr.library.adding import How
from hapvr.library.finding import Found, find_files
from hapvr.library.locking import BusyError
from hapvr.library.records import AddReport
from hapvr.storage import file_signature

_STEP_S = 0.1  # between questions whether to stop


def watch(
    paths: Iterable[str | os.PathLike[str]],
    add: Callable[[Found, How], AddReport],
    how: How,
    *,
    known: Collection[bytes],
    interval_s: float,
    report: Callable[[AddReport], None] | None,
    say: Callable[[str], None] | None,
) -> None:
    """Look at folders every few seconds and add what is new, until told to stop; see `Library.watch`."""
    if not interval_s > 0:
        raise ConfigError(f"interval must be above 0 seconds, got {interval_s}.")
    given = list(paths)
    asked = how.stop or (lambda: False)
    tell = say or (lambda _: None)
    seen: dict[bytes, tuple[int, int]] = {}
    handled: dict[bytes, tuple[int, int]] | None = None
    said, owed = "", False
    find_files(given, known=known)  # what is not there at the beginning is a mistake
    while not asked():
        trouble = ""
        try:
            found = find_files(given)
            now = {path: file_signature(path) for path in found.files}
            settled = {path: one for path, one in now.items() if seen.get(path) == one or _old(one, interval_s)}
            seen = now
            # What is there but still changes counts as it was when it was last taken up.
            restless = {path: one for path, one in (handled or {}).items() if path in now and path not in settled}
            quiet = len(settled) == len(now)
            if handled is None or settled | restless != handled or (owed and quiet):
                files = replace(found, files=list(settled))
                # What is gone is not forgotten while a file is still to come: it may be the same, moved.
                done = add(files, replace(how, prune=how.prune and quiet))
                handled, owed = settled | restless, how.prune and not quiet
                if report is not None:
                    report(done)
        except (BusyError, ConfigError) as error:  # another writer, or a folder that is not there just now
            trouble = str(error)
        if trouble and trouble != said:
            tell(trouble)
        said = trouble
        end = time.monotonic() + interval_s
        while not asked() and (left := end - time.monotonic()) > 0:
            time.sleep(min(_STEP_S, left))


def _old(changed: tuple[int, int], interval_s: float) -> bool:
    return time.time_ns() - changed[1] > max(2.0, 2 * interval_s) * 1e9
