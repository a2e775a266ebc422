"""The private folder of a server that runs: uploads and pictures. A server that was killed leaves one; the next takes
it away.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from hapvr.errors import StorageError
from hapvr.library.writer_lock import LOCK, WriterLock, find_holder

_PREFIX = "hapvr-serve-"
_WAIT_S = 5.0


class Workplace:
    """A new folder for this user's eyes only, in `parent` or where temporary files go; locked as long as it is used."""

    def __init__(self, parent: Path | None) -> None:
        inside = Path(tempfile.gettempdir()) if parent is None else parent
        remove_left(inside)
        self.folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=inside))
        self._lock = WriterLock(self.folder)
        with suppress(StorageError):  # of a file system without locks: then nobody takes it away either
            self._lock.acquire("hapvr serve", wait_s=_WAIT_S)

    def part(self, name: str) -> Path:
        """A folder in it."""
        path = self.folder / name
        path.mkdir()
        return path

    def close(self) -> None:
        """Remove it and all that is in it."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.release(clean=True)
        shutil.rmtree(self.folder, ignore_errors=True)  # a lock that is held cannot be removed on Windows


def remove_left(parent: Path) -> list[Path]:
    """Remove the folders of this user's servers that died without removing them; which they were."""
    removed = []
    try:
        found = [Path(entry.path) for entry in os.scandir(parent) if entry.name.startswith(_PREFIX) and _is_own(entry)]
    except OSError:
        return []
    for folder in found:
        with suppress(OSError, StorageError):
            # A lock that is free but not empty: its holder has ended, and not as it should.
            if (folder / LOCK).stat().st_size > 0 and find_holder(folder) is None:
                shutil.rmtree(folder, ignore_errors=True)
                removed.append(folder)
    return removed


def _is_own(entry: os.DirEntry[str]) -> bool:
    """Whether it is a folder of this user, not a link to one: anybody may put things where temporary files go."""
    with suppress(OSError):
        own = os.name != "posix" or entry.stat(follow_symlinks=False).st_uid == os.geteuid()
        return own and entry.is_dir(follow_symlinks=False)
    return False
