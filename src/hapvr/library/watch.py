"""Watching folders: files are added as they come, change and go.

A watch looks at nothing but names, sizes and times. A file is added when it has stayed the same from one look to the
next, so that one that is being copied is not read half-way; the lock is held only while there is something to do.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from hapvr.errors import BusyError, ConfigError
from hapvr.features.video_extraction import default_workers
from hapvr.library.adding import add_found
from hapvr.library.found_files import Found, choose_folders, find_files
from hapvr.library.indexed_folders import IndexRules
from hapvr.library.opening import OpenLibrary
from hapvr.library.results import AddOptions, AddProgress, AddReport
from hapvr.storage import StrPath, file_signature

Signatures = dict[bytes, tuple[int, int]]
"""Size and time of files, by their absolute paths."""
_STEP_S = 0.1  # between questions whether to stop


def watch_folders(
    library: OpenLibrary,
    paths: Iterable[StrPath] | None = None,
    *,
    rules: IndexRules | None = None,
    interval_s: float = 5.0,
    prune: bool = False,
    workers: int | None = None,
    progress: Callable[[AddProgress], None] | None = None,
    report: Callable[[AddReport], None] | None = None,
    say: Callable[[str], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> None:
    """Keep the library up to date with folders until asked to stop.

    Args:
        library: an open one.
        paths: files and folders; None: the folders that the library remembers.
        rules: as in `add`.
        interval_s: seconds between two looks.
        prune: as in `add`, like the next two.
        workers: ...
        progress: ...
        report: called whenever something was done.
        say: called with what is in the way for the moment, such as another writer.
        stop: asked all the time.
    """
    options = AddOptions(prune=prune, workers=default_workers(workers), progress=progress, stop=stop)
    folders, _ = choose_folders(library, paths, rules)
    is_stopped = stop or (lambda: False)
    handled: Signatures | None = None
    said, prune_later = "", False
    scan = FolderScan(library, folders, interval_s=interval_s)
    while not is_stopped():
        trouble = ""
        try:
            found, settled = scan.find_settled()
            # What is there but still changes counts as it was when it was last added.
            restless = {path: one for path, one in (handled or {}).items() if path in scan.seen and path not in settled}
            quiet = len(settled) == len(scan.seen)
            if handled is None or settled | restless != handled or (prune_later and quiet):
                # What is gone is not removed while a file is still to come: it may be the same, moved.
                now_options = replace(options, prune=prune and quiet)
                done = add_found(library, replace(found, files=list(settled)), now_options, folders)
                handled, prune_later = settled | restless, prune and not quiet
                if report is not None:
                    report(done)
        except (BusyError, ConfigError) as error:  # another writer, or a folder that is not there just now
            trouble = str(error)
        if trouble and trouble != said and say is not None:
            say(trouble)
        said = trouble
        wait_for(interval_s, is_stopped)


class FolderScan:
    """Looks at folders again and again, and says which files have settled.

    Args:
        library: an open one; what it knows may be gone, anything else that is not there is a `ConfigError`.
        folders: the files and folders to look at, with their rules.
        interval_s: seconds from one look to the next.
    """

    def __init__(self, library: OpenLibrary, folders: Mapping[str, IndexRules], *, interval_s: float) -> None:
        if not 0 < interval_s < math.inf:
            raise ConfigError(f"interval_s must be above 0, got {interval_s}.")
        self._folders, self._interval_s = folders, interval_s
        self.seen: Signatures = {}  # at the last look
        find_files(folders, known=library.store.catalog().paths)  # what is not there at the beginning is a mistake

    def find_settled(self) -> tuple[Found, Signatures]:
        """What is there now; and which of the files have stayed the same since the last look, or are old."""
        found = find_files(self._folders, folders=self._folders)
        now = {path: file_signature(path) for path in found.files}
        settled = {
            path: one for path, one in now.items() if self.seen.get(path) == one or _is_old(one, self._interval_s)
        }
        self.seen = now
        return found, settled


def wait_for(seconds: float, is_stopped: Callable[[], bool]) -> None:
    """Wait; shorter if it is asked to stop."""
    end = time.monotonic() + seconds
    while not is_stopped() and (left := end - time.monotonic()) > 0:
        time.sleep(min(_STEP_S, left))


def _is_old(signature: tuple[int, int], interval_s: float) -> bool:
    return time.time_ns() - signature[1] > max(2.0, 2 * interval_s) * 1e9
