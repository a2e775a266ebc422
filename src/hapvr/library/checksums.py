"""Whether the files of a version are those that were written: a list of their sizes and checksums, kept beside them.

    versions/0001/checksums.json

After each change the writer lists the newest manifest of each table and the files that it names (`Guard.seal`; see
`hapvr.library.engine`). A reader checks each file once, before anything in it counts (`Guard.check`): manifests, lists
of deleted rows and records as soon as the library is opened, vectors and their index when they are first asked for.
Each row of regions has its checksums (see `hapvr.library.tables`), for a search reads a few rows of many: their
files are looked at only to say which one is damaged.

In an object store the list holds sizes alone, unless it was copied there from a folder: what an object store gives out
it has checked itself, and to read every object once more would cost more than a search. So readers compare sizes there;
`hapvr check` compares checksums too, where the list has them.

A writer that is killed may leave a manifest that is newer than the list. Such a table is read all the same, without a
check of what is not listed; the next writer lists it. The other way round, a list that names a newer manifest than
there is, is damage, and so is a list that is gone: `settings.json` says that there is one.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Collection, Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace

from hapvr.errors import FormatError, StorageError, explain_format
from hapvr.library.engine import (
    DATA,
    INDICES,
    MANIFESTS,
    UNREADABLE,
    list_files,
    newest_manifest,
    sync_files,
    table_folder,
)
from hapvr.library.results import display_path
from hapvr.library.tables import TABLES, VIDEOS
from hapvr.places import ObjectPath, Place, file_size, file_state, path_exists
from hapvr.storage import read_document, write_document

CHECKSUMS = "checksums.json"
REMEDY = "Restore the library from a copy, or repair it: hapvr check LIBRARY --repair"
_FORMAT = 1
_LIST_REMEDY = (
    "Restore it from a copy, or repair the library, which gives new checksums to what can be read: "
    "hapvr check LIBRARY --repair"
)
_BLOCK = 16 * 2**20  # bytes of one checksum: threads share a large file
_CHUNK = 2**20  # bytes that are read at a time
_THREADS = 4


@dataclass(frozen=True)
class FileSum:
    """The size of a file, and the CRC-32 of each of its blocks, eight hexadecimal digits each."""

    size: int
    blocks: str

    def block_sizes(self) -> list[int]:
        """The bytes of each block."""
        return [min(_BLOCK, self.size - start) for start in range(0, self.size, _BLOCK)]

    def block_sums(self) -> list[int]:
        """The CRC-32 of each block."""
        return [int(self.blocks[at : at + 8], 16) for at in range(0, len(self.blocks), 8)]


@dataclass(frozen=True)
class TableSums:
    """The files that a table consisted of at a version, by their paths within it."""

    version: int
    files: Mapping[str, FileSum]


@dataclass(frozen=True)
class Listing:
    """What `checksums.json` holds: the tables, and which files beside them there must be."""

    tables: Mapping[str, TableSums] = field(default_factory=dict)
    kept: frozenset[str] = frozenset()


# --- the list --------------------------------------------------------------------------------------------------------


def read_listing(folder: Place) -> Listing | None:
    """The list of a version; None where there is none, `StorageError` where it is damaged."""
    path = folder / CHECKSUMS
    try:
        content = read_document(path, ("format", "kept", "tables"))
        if content["format"] != _FORMAT:
            raise FormatError(f"'{display_path(path)}' is {explain_format(content['format'], _FORMAT)}")
        tables = {
            name: TableSums(table["version"], {file: FileSum(*one) for file, one in table["files"].items()})
            for name, table in content["tables"].items()
        }
        return Listing(tables, frozenset(content["kept"]))
    except FormatError:
        raise
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StorageError(f"'{display_path(path)}' cannot be read: {error} {_LIST_REMEDY}") from error


def write_listing(folder: Place, listing: Listing) -> None:
    """Replace the list of a version in one step."""
    tables = {
        name: {"version": table.version, "files": {file: [one.size, one.blocks] for file, one in table.files.items()}}
        for name, table in listing.tables.items()
    }
    write_document(folder / CHECKSUMS, {"format": _FORMAT, "kept": sorted(listing.kept), "tables": tables})


def list_table(table: Place, known: Mapping[str, FileSum]) -> TableSums | None:
    """The files that the newest manifest of a table names, with checksums: those that are `known`, or new ones."""
    newest = newest_manifest(table)
    if newest is None:
        return None
    version, manifest = newest
    try:
        names = list_files(table, manifest)
        return TableSums(version, {name: known.get(name) or _list_file(table / name) for name in names})
    except FileNotFoundError as error:
        raise StorageError(f"'{display_path(error.filename)}' is missing. {REMEDY}") from error
    except UNREADABLE as error:
        raise StorageError(f"'{display_path(table / manifest)}' cannot be read: it is no manifest. {REMEDY}") from error


# --- checksums -------------------------------------------------------------------------------------------------------


def sum_file(path: Place) -> FileSum:
    """Size and checksums of a file.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "file").write_bytes(b"123456789")
    ...     sum_file(Path(folder) / "file")
    FileSum(size=9, blocks='cbf43926')
    """
    size = file_size(path)
    return FileSum(size, "".join(_sum_block(path, start) for start in range(0, size, _BLOCK)))


def _list_file(path: Place) -> FileSum:
    """What is listed of a file: of an object its size alone."""
    return FileSum(file_size(path), "") if isinstance(path, ObjectPath) else sum_file(path)


def _sum_block(path: Place, start: int) -> str:
    if isinstance(path, ObjectPath):
        return f"{zlib.crc32(path.read_range(start, _BLOCK)):08x}"
    buffer = memoryview(bytearray(min(_CHUNK, _BLOCK)))
    total, left = 0, _BLOCK
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        while left > 0 and (count := file.readinto(buffer[: min(left, len(buffer))])):
            total, left = zlib.crc32(buffer[:count], total), left - count
    return f"{total:08x}"


def find_damage(folder: Place, files: Mapping[str, FileSum], *, sizes_only: bool = False) -> dict[str, str]:
    """What is wrong with those of the files below a folder that are gone, of another size, or of another content.

    With `sizes_only` their content is not read.
    """
    found: dict[str, str] = {}
    blocks: list[tuple[str, int, str]] = []
    sizes = _find_sizes(folder, files)
    for name, written in files.items():
        size = sizes[name]
        if isinstance(size, str):
            found[name] = size
        elif size != written.size:
            found[name] = f"is damaged: it has {size:,} bytes instead of {written.size:,}"
        elif not sizes_only and written.blocks:  # of a library written in an object store, sizes alone are known
            starts = range(0, size, _BLOCK)
            blocks += [(name, start, written.blocks[8 * at : 8 * at + 8]) for at, start in enumerate(starts)]

    def is_right(block: tuple[str, int, str]) -> bool:
        name, start, written = block
        try:
            return _sum_block(folder / name, start) == written
        except OSError:  # gone meanwhile, or a sector that cannot be read
            return False

    if len(blocks) < 2:
        right = [is_right(block) for block in blocks]
    else:
        with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1, len(blocks))) as pool:
            right = list(pool.map(is_right, blocks))
    wrong = [name for (name, _, _), is_so in zip(blocks, right, strict=True) if not is_so]
    return found | dict.fromkeys(wrong, "is damaged: its checksum is not the one it was written with")


def _find_sizes(folder: Place, names: Collection[str]) -> dict[str, int | str]:
    """The bytes of files below a folder; of an object store, by one listing. Or why a file cannot be looked at."""
    if isinstance(folder, ObjectPath):
        sizes = folder.sizes() if names else {}
        return {name: sizes.get(name, "is missing") for name in names}
    found: dict[str, int | str] = {}
    for name in names:
        try:
            found[name] = (folder / name).stat().st_size
        except OSError as error:
            found[name] = f"is missing ({error.strerror})"
    return found


class Guard:
    """Checks the files of a version, each once for as long as this lives; and keeps the list, for a writer.

    Not for several threads at once.

    Args:
        folder: of the version.
        listed: whether there must be a list.
        read_objects: compare the checksums of what lies in an object store, if there are any, not only sizes.
    """

    def __init__(self, folder: Place, *, listed: bool, read_objects: bool = False) -> None:
        self.folder = folder
        self._listed = listed
        self._sizes_only = isinstance(folder, ObjectPath) and not read_objects
        self.state: Hashable = None  # of the file of the list, when it was read
        self._checked: set[tuple[str, str, FileSum]] = set()
        self.listing = Listing()
        self.refresh()

    def refresh(self) -> None:
        """Read the list again if it has changed; before the tables are looked at, so that these are no older."""
        path = self.folder / CHECKSUMS
        state: Hashable = None
        try:
            state = file_state(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise StorageError(f"'{display_path(path)}' cannot be read: {error.strerror}.") from error
        if state is not None and state == self.state:
            return
        listing = read_listing(self.folder)
        if listing is None and self._listed:
            raise StorageError(f"'{display_path(path)}' is missing. {_LIST_REMEDY}")
        self.state, self.listing = state, listing or Listing()
        self._listed |= listing is not None
        tables = self.listing.tables.items()
        self._checked &= {(name, file, one) for name, table in tables for file, one in table.files.items()}

    def check(self, name: str, *, version: int | None, whole: bool) -> None:
        """Raise `StorageError` if files of a table are not what was written.

        Args:
            name: of the table.
            version: at which it was opened after the last `refresh`; None if it could not be.
            whole: its large files too.
        """
        for file, what in self.find_damage(name, version=version, whole=whole).items():
            path = table_folder(self.folder, name) / file
            raise StorageError(f"'{display_path(path)}' {what}. {REMEDY}")

    def find_damage(self, name: str, *, version: int | None, whole: bool) -> dict[str, str]:
        """The files of a table that `check` complains of, by their paths within it, and what is wrong with each."""
        table, listed = table_folder(self.folder, name), self.listing.tables.get(name)
        if listed is None:
            return {}
        newest = newest_manifest(table)
        if newest is None or newest[0] < listed.version:
            manifest = next((file for file in listed.files if file.startswith(MANIFESTS)), MANIFESTS)
            return {manifest: "is missing"}
        is_older = newest[0] > listed.version  # the list: somebody is writing, or was killed
        if not is_older and version is not None and version != listed.version:
            return {newest[1]: f"is the newest manifest, but version {version:,} was read"}
        files = {
            file: written
            for file, written in listed.files.items()
            if (name, file, written) not in self._checked
            and not (is_older and file.startswith(MANIFESTS))
            and (whole or name == VIDEOS or not file.startswith((DATA, INDICES)))
        }
        found = find_damage(table, files, sizes_only=self._sizes_only)
        self._checked |= {(name, file, written) for file, written in files.items() if file not in found}
        if found and (is_older or newest_manifest(table) != newest):  # files that are gone are not needed any more
            return {file: what for file, what in found.items() if path_exists(table / file)}
        return found

    def count_unlisted(self) -> int:
        """How many files are in use without a checksum."""
        count = 0
        for name in TABLES:
            table, listed = table_folder(self.folder, name), self.listing.tables.get(name)
            newest = newest_manifest(table)
            if newest is not None and (listed is None or newest[0] > listed.version):
                with suppress(OSError, *UNREADABLE):  # a writer may be at work
                    count += sum(listed is None or file not in listed.files for file in list_files(table, newest[1]))
        return count

    def seal(self, *, kept: Collection[str] = ()) -> None:
        """List what the tables consist of by now, and files beside them that are `kept`; for the writer."""
        tables: dict[str, TableSums] = {}
        for name in TABLES:
            table, listed = table_folder(self.folder, name), self.listing.tables.get(name)
            newest, before = newest_manifest(table), {} if listed is None else listed.files
            if listed is not None and (newest is None or newest[0] <= listed.version):
                tables[name] = listed  # as it is, or gone: then that stays to be seen
            elif (found := list_table(table, before)) is not None:
                tables[name] = found
                new = {file: one for file, one in found.files.items() if file not in before}
                sync_files(table, new)  # before they are listed: what is listed must be there
                self._checked |= {(name, file, one) for file, one in new.items()}
        sealed = replace(self.listing, tables=tables, kept=self.listing.kept | set(kept))
        if sealed != self.listing or not self._listed:
            write_listing(self.folder, sealed)
            self.listing, self._listed, self.state = sealed, True, None
