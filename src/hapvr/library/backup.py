"""A copy of a library at one moment, also while somebody writes into it. The copy is a library itself.

The list of checksums (`checksums.json`) names files that belong together, and none of them is ever changed: the list
with these files is the library of one moment. A writer may remove files of what it has replaced meanwhile: then the
next list is taken.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from hapvr.errors import BusyError, ConfigError, StorageError
from hapvr.library.checksums import CHECKSUMS, Listing, find_damage, read_listing
from hapvr.library.engine import newest_manifest, table_folder
from hapvr.library.opening import OpenLibrary
from hapvr.library.results import display_path
from hapvr.library.shared_file import SHARED
from hapvr.library.sound_lookup import list_index_files
from hapvr.library.store import Store
from hapvr.library.versions import (
    CALIBRATION,
    EMBEDDED,
    MANIFEST,
    SETTINGS,
    VERSIONS,
    Manifest,
    Settings,
    current_version,
    read_manifest,
    read_settings,
    require_creatable,
    translate_write_errors,
    version_folder,
    write_manifest,
    write_settings,
)
from hapvr.library.writer_lock import LOCK
from hapvr.places import ObjectPath, Place, copy_file, copy_folder, list_names, parse_place
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

    The copy of a library with frame vectors in Milvus has them in its own tables, made from its stored features: it
    needs no server, and the server is not asked.

    Every file is compared with its checksum on the way: what is damaged is not copied.

    Args:
        library: an open one.
        target: a folder that is not there yet, or is empty.
        progress: called with the bytes that are copied, and all.

    Raises:
        StorageError: a file is damaged, or the folder cannot be written, or holds something. No library is left there.
    """
    folder = parse_place(target)
    if isinstance(folder, ObjectPath):
        raise ConfigError(f"'{folder}' is in an object store: a backup goes into a folder of this machine.")
    if not isinstance(library.path, ObjectPath) and folder.is_relative_to(library.path):
        raise StorageError(f"'{display_path(folder)}' lies in the library itself. Give a folder beside it.")
    if (folder / MANIFEST).exists():
        raise StorageError(f"'{display_path(folder)}' is a library already. Give a new folder for the backup.")
    require_creatable(folder)
    with suppress(BusyError):  # the writer lists what it has written
        if library.store.table_set.count_unlisted():
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


def _copy(source: Place, target: Path, progress: Callable[[int, int], None] | None) -> tuple[int, int]:
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
            copy_file(here / name, there / name)
    for path in list_index_files(here):
        with suppress(FileNotFoundError):  # replaced meanwhile; they only save time, whatever sounds they are of
            copy_file(path, there / path.name)
    (there / CHECKSUMS).write_bytes(listed)
    for name in list_names(source):
        if name in (MANIFEST, LOCK, VERSIONS) or name.startswith("."):
            continue
        copy = copy_folder if (source / name).is_dir() else copy_file
        copy(source / name, target / name)
    kept = read_manifest(source).kept
    if current_version(source) != version or kept - {path.name for path in target.iterdir()}:
        raise _ReplacedError
    settings = read_settings(there)
    if settings.candidate_index != EMBEDDED:
        _embed_vectors(there, settings)
        _sync(target)
        write_manifest(target, Manifest(version, kept))
        return count, size
    _sync(target)
    (target / MANIFEST).write_bytes(manifest)
    sync_file(target / MANIFEST)
    sync_folder(target)
    return count, size


def _embed_vectors(folder: Path, settings: Settings) -> None:
    """Give a copy frame vectors of its own, from its stored regions: two libraries cannot share a collection."""
    write_settings(folder, replace(settings, candidate_index=EMBEDDED, collection_owner=""))
    store = Store(folder)
    store.begin(recover=True)
    store.mend_index()
    store.maintain()


def _copy_tables(
    here: Place, there: Path, listing: Listing, progress: Callable[[int, int], None] | None
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
            copy_file(origin, copy)
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


_REMEDY = "Repair the library first: hapvr check LIBRARY --repair"


def _is_needed(folder: Place, name: str, file: str) -> bool:
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
