"""A copy of a library at one moment, also while somebody writes into it. The copy is a library itself.

The list of checksums (`checksums.json`) names files that belong together, and none of them is ever changed: the list
with these files is the library of one moment. A writer may remove files of what it has replaced meanwhile: then the
next list is taken.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hapvr.errors import BusyError, StorageError
from hapvr.library.checksums import CHECKSUMS, Listing, find_damage, read_listing
from hapvr.library.engine import newest_manifest, table_folder
from hapvr.library.opening import OpenLibrary
from hapvr.library.results import display_path
from hapvr.library.shared_file import SHARED
from hapvr.library.sound_lookup import list_index_files
from hapvr.library.versions import (
    CALIBRATION,
    MANIFEST,
    SETTINGS,
    VERSIONS,
    current_version,
    read_manifest,
    require_creatable,
    translate_write_errors,
    version_folder,
)
from hapvr.library.writer_lock import LOCK
from hapvr.storage import StrPath, sync_file, sync_folder

_ATTEMPTS = 20  # with a writer at work


@dataclass(frozen=True)
class BackupReport:
    """What was copied."""

    path: str  # of the copy
    videos: int
    files: int
    bytes: int


class _ReplacedError(Exception):
    """A file that the list names was removed by a writer, or another version is in use."""


def back_up_library(
    library: OpenLibrary, target: StrPath, *, progress: Callable[[int, int], None] | None = None
) -> BackupReport:
    """Copy a library into a new folder, which is a library then. Writers go on meanwhile.

    Every file is compared with its checksum on the way: what is damaged is not copied.

    Args:
        library: an open one.
        target: a folder that is not there yet, or is empty.
        progress: called with the bytes that are copied, and all.

    Raises:
        StorageError: a file is damaged, or the folder cannot be written, or holds something. No library is left there.
    """
    folder = Path(os.path.abspath(target))
    require_creatable(folder)
    if (folder / MANIFEST).exists():
        raise StorageError(f"'{display_path(folder)}' is a library already. Give a new folder for the backup.")
    if folder.is_relative_to(library.path):
        raise StorageError(f"'{display_path(folder)}' lies in the library itself. Give a folder beside it.")
    with suppress(BusyError):  # the writer lists what it has written
        if library.store.count_unchecked():
            with library.write_access("hapvr backup"):
                pass
    if read_listing(library.store.folder) is None:
        raise StorageError(f"'{display_path(library.path)}' is written for the first time. Try again in a moment.")
    for attempt in range(_ATTEMPTS):
        try:
            with translate_write_errors(folder):
                files, size = _copy(library.path, folder, progress)
            break
        except _ReplacedError:
            time.sleep(min(1.0, 0.05 * 2**attempt))  # a writer that compacts lists its files when all is done
    else:
        raise StorageError(f"'{display_path(library.path)}' changes faster than it can be copied. Try again later.")
    with OpenLibrary(folder) as copied:
        videos = int(copied.store.catalog().described.sum())
    return BackupReport(str(folder), videos, files, size)


def _copy(source: Path, target: Path, progress: Callable[[int, int], None] | None) -> tuple[int, int]:
    """Copy a library as it is listed now; the number of files and bytes of its tables. The manifest comes last."""
    manifest, version = (source / MANIFEST).read_bytes(), current_version(source)
    here, there = version_folder(source, version), version_folder(target, version)
    try:
        listed, listing = (here / CHECKSUMS).read_bytes(), read_listing(here)
    except FileNotFoundError:
        raise _ReplacedError from None
    if listing is None or (here / CHECKSUMS).read_bytes() != listed:
        raise _ReplacedError
    there.mkdir(parents=True, exist_ok=True)
    count, size = _copy_tables(here, there, listing, progress)
    for name in (SETTINGS, CALIBRATION, SHARED):
        if (here / name).is_file():
            shutil.copyfile(here / name, there / name)
    for path in list_index_files(here):
        with suppress(FileNotFoundError):  # replaced meanwhile; they only save time, whatever sounds they are of
            shutil.copyfile(path, there / path.name)
    (there / CHECKSUMS).write_bytes(listed)
    for path in source.iterdir():
        if path.name in (MANIFEST, LOCK, VERSIONS) or path.name.startswith("."):
            continue
        if path.is_dir():
            shutil.copytree(path, target / path.name, dirs_exist_ok=True)
        else:
            shutil.copyfile(path, target / path.name)
    if current_version(source) != version or read_manifest(source).kept - {path.name for path in target.iterdir()}:
        raise _ReplacedError
    _sync(target)
    (target / MANIFEST).write_bytes(manifest)
    sync_file(target / MANIFEST)
    sync_folder(target)
    return count, size


def _copy_tables(
    here: Path, there: Path, listing: Listing, progress: Callable[[int, int], None] | None
) -> tuple[int, int]:
    files = {(name, file): one for name, table in listing.tables.items() for file, one in table.files.items()}
    total, done = sum(one.size for one in files.values()), 0
    wanted = {table_folder(there, name) / file for name, file in files}
    for left in [path for path in there.rglob("*") if path.is_file() and path not in wanted]:  # of an attempt before
        left.unlink()
    for (name, file), written in files.items():
        origin, copy = table_folder(here, name) / file, table_folder(there, name) / file
        copy.parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copyfile(origin, copy)
        except FileNotFoundError:
            if not _is_needed(here, name, file):
                raise _ReplacedError from None
            raise StorageError(f"'{display_path(origin)}' is missing. {_REMEDY}") from None
        for what in find_damage(copy.parent, {copy.name: written}).values():
            raise StorageError(f"'{display_path(origin)}' {what}. {_REMEDY}")
        done += written.size
        if progress is not None:
            progress(done, total)
    return len(files), total


_REMEDY = "Mend the library first: hapvr check LIBRARY --repair"


def _is_needed(folder: Path, name: str, file: str) -> bool:
    """Whether a file is still listed, and its table has not changed since the list was written."""
    listing, newest = read_listing(folder), newest_manifest(table_folder(folder, name))
    if listing is None or name not in listing.tables or file not in listing.tables[name].files:
        return False
    return newest is None or newest[0] <= listing.tables[name].version


def _sync(folder: Path) -> None:
    for here, _, names in os.walk(folder):
        for name in names:
            sync_file(os.path.join(here, name))
        sync_folder(here)
