"""The trash of desktops on Linux and BSD, by the freedesktop.org specification: file managers can restore from it.

A file goes to the trash of its own file system: of the user's home (`$XDG_DATA_HOME/Trash`), or else of the top folder
(`.Trash/UID` if an administrator made it, `.Trash-UID` otherwise). A note in `info` says where it was and when.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

from hapvr.actions.files import ActionError, remove
from hapvr.storage import sync_folder


@dataclass(frozen=True)
class TrashFolder:
    """A trash, and the folder that paths in its notes begin at."""

    folder: str
    top: str = ""  # "" for the home's trash: its notes have absolute paths

    def make(self) -> None:
        """Make the folders of the trash that are not there."""
        for folder in (self.folder, os.path.join(self.folder, "files"), os.path.join(self.folder, "info")):
            os.makedirs(folder, mode=0o700, exist_ok=True)


def find_trash(path: str) -> TrashFolder:
    """The trash that a file belongs into; `ActionError` if there can be none."""
    if sys.platform in ("win32", "darwin"):
        raise ActionError("refused", "there is no freedesktop.org trash on this system: move files by --to FOLDER")
    home = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    device = os.lstat(path).st_dev
    if find_device(home) == device:
        return TrashFolder(os.path.join(home, "Trash"))
    top = os.path.dirname(os.path.abspath(path))
    while not os.path.ismount(top):
        top = os.path.dirname(top)
    user = os.getuid()
    shared = os.path.join(top, ".Trash")
    with contextlib.suppress(OSError):
        found = os.lstat(shared)
        if stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX:
            return TrashFolder(os.path.join(shared, str(user)), top)
    own = os.path.join(top, f".Trash-{user}")
    if os.path.islink(own) or not (os.path.isdir(own) or os.access(top, os.W_OK)):
        raise ActionError("refused", f"no trash can be made at '{top}': move files by --to FOLDER")
    return TrashFolder(own, top)


def find_device(path: str) -> int | None:
    """The file system of a path, or of the nearest folder above it that is there."""
    while True:
        try:
            return os.stat(path).st_dev
        except OSError:
            above = os.path.dirname(path)
            if above == path:
                return None
            path = above


def write_info(info: str, source: str, *, top: str) -> None:
    """Write the note about a file that is about to be moved into the trash."""
    named = os.path.relpath(source, top) if top else source
    now = datetime.now().strftime("%Y-%m-%dT%H:%M:%S")
    text = f"[Trash Info]\nPath={quote(os.fsencode(named))}\nDeletionDate={now}\n"
    try:
        note = os.open(info, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        raise ActionError("failed", "its name in the trash was taken meanwhile: run the command again") from None
    try:
        os.write(note, text.encode())
        os.fsync(note)
    except OSError:
        remove(info)
        raise
    finally:
        os.close(note)
    sync_folder(os.path.dirname(info))


def remove_info(info: str) -> None:
    """Remove the note about a file that is not in the trash, or no longer."""
    if info:
        remove(info)
        sync_folder(os.path.dirname(info))
