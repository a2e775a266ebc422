"""Whether the files of a version are those that were written: a list of their sizes and checksums, kept beside them.

    versions/0001/checksums.json

The storage engine never changes a file that it has written. A commit adds files to a table, the last of them a
manifest that names the others; the newest manifest is the table. After each change the writer lists the newest manifest
of each table and the files that it names (`Guard.seal`). A reader checks each file once, before anything in it counts
(`Guard.check`): manifests, lists of deleted rows and records as soon as the library is opened, vectors and their index
when they are first asked for. Rows of regions have checksums of their own (see `hapvr.library.tables`), for a search
reads a few rows of many: their files are looked at only to say which one is damaged.

A writer that is killed may leave a manifest that is newer than the list. Such a table is read all the same, without a
check of what is not listed; the next writer lists it. The other way round, a list that names a newer manifest than
there is, is damage, and so is a list that is gone: `settings.json` says that there is one.
"""

from __future__ import annotations

import os
import uuid
import zlib
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from hapvr.errors import StorageError
from hapvr.library.results import display_path
from hapvr.library.tables import FRAMES, REGIONS, VIDEOS
from hapvr.storage import read_document, write_document

CHECKSUMS = "checksums.json"
REMEDY = "Restore the library from a copy, or add the videos to a new one."
_FORMAT = 1
_LIST_REMEDY = (
    f'Restore it from a copy, or write {{"format": {_FORMAT}, "kept": [], "tables": {{}}}} into it: then what there is '
    "counts unchecked, and gets new checksums with the next change."
)
_BLOCK = 16 * 2**20  # bytes that have a checksum of their own: threads share a large file
_CHUNK = 2**20  # bytes that are read at a time
_THREADS = 4
_UNREADABLE = (IndexError, KeyError, ValueError)  # what a protocol buffer that is damaged comes to
_MANIFESTS, _DELETIONS, _DATA, _INDICES = "_versions", "_deletions", "data", "_indices"


@dataclass(frozen=True)
class FileSum:
    """The size of a file, and the CRC-32 of each of its blocks, eight hexadecimal digits each."""

    size: int
    blocks: str


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


@dataclass(frozen=True)
class Damage:
    """A file that is not what was written."""

    path: Path
    what: str  # is wrong with it

    def __str__(self) -> str:
        return f"'{display_path(self.path)}' {self.what}"


# --- the list --------------------------------------------------------------------------------------------------------


def read_listing(folder: Path) -> Listing | None:
    """The list of a version; None where there is none, `StorageError` where it is damaged."""
    path = folder / CHECKSUMS
    try:
        content = read_document(path, ("format", "kept", "tables"))
        if content["format"] != _FORMAT:
            raise ValueError(f"it is of format {content['format']}, this hapvr reads {_FORMAT}.")
        tables = {
            name: TableSums(table["version"], {file: FileSum(*one) for file, one in table["files"].items()})
            for name, table in content["tables"].items()
        }
        return Listing(tables, frozenset(content["kept"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StorageError(f"'{display_path(path)}' cannot be read: {error} {_LIST_REMEDY}") from error


def write_listing(folder: Path, listing: Listing) -> None:
    """Replace the list of a version in one step."""
    tables = {
        name: {"version": table.version, "files": {file: [one.size, one.blocks] for file, one in table.files.items()}}
        for name, table in listing.tables.items()
    }
    write_document(folder / CHECKSUMS, {"format": _FORMAT, "kept": sorted(listing.kept), "tables": tables})


def table_folder(folder: Path, name: str) -> Path:
    """Where a table of a version lies."""
    return folder / f"{name}.lance"


def newest_manifest(table: Path) -> tuple[int, str] | None:
    """The newest version of a table and its manifest, by the names of its files; None where there is no table.

    Names of manifests count downwards, so that the newest comes first in a listing.
    """
    try:
        names = os.listdir(table / _MANIFESTS)
    except OSError:
        return None
    found = []
    for name in names:
        number = name.removesuffix(".manifest")
        if number != name and number.isdecimal():
            found.append((2**64 - 1 - int(number) if len(number) == 20 else int(number), f"{_MANIFESTS}/{name}"))
    return max(found, default=None)


def list_table(table: Path, known: Mapping[str, FileSum]) -> TableSums | None:
    """The files that the newest manifest of a table names, with checksums: those that are `known`, or new ones."""
    newest = newest_manifest(table)
    if newest is None:
        return None
    version, manifest = newest
    try:
        names = [manifest, *files_in_use(table, (table / manifest).read_bytes())]
        return TableSums(version, {name: known.get(name) or sum_file(table / name) for name in names})
    except FileNotFoundError as error:
        raise StorageError(f"{Damage(Path(error.filename), 'is missing')}. {REMEDY}") from error
    except _UNREADABLE as error:
        raise StorageError(f"'{display_path(table / manifest)}' cannot be read: it is no manifest. {REMEDY}") from error


def files_in_use(table: Path, manifest: bytes) -> list[str]:
    """The files of a table that a manifest names, by their paths within it.

    Those that only older manifests name, or the record of what the last commit replaced, are not among them: they are
    removed without a commit. (Of Lance's `table.proto`: fragments are field 2 of a manifest, the place of its index
    section 6; of a fragment, the id is field 1, data files 2, the list of deleted rows 3; of a data file, the path 1;
    of a list of deleted rows, the version 2 and the number 3; of an index, the UUID 1.)
    """
    start = int.from_bytes(manifest[-16:-8], "little")
    content = _fields(_section(manifest, start))
    names: list[str] = []
    for fragment in map(_fields, content.get(2, [])):
        names += [f"{_DATA}/{_fields(file)[1][0].decode()}" for file in fragment.get(2, [])]
        for deleted in map(_fields, fragment.get(3, [])):
            number = "-".join(str(_number(values)) for values in (fragment.get(1), deleted.get(2), deleted.get(3)))
            names += [f"{_DELETIONS}/{file}" for file in _listed(table / _DELETIONS) if file.startswith(f"{number}.")]
    if 6 in content:
        for index in _fields(_section(manifest, _number(content[6]))).get(1, []):
            folder = f"{_INDICES}/{uuid.UUID(bytes=_fields(_fields(index)[1][0])[1][0])}"
            names += [f"{folder}/{file}" for file in _listed(table / folder)]
    return names


def _listed(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _section(manifest: bytes, start: int) -> bytes:
    """A message in a manifest, behind its length."""
    size = int.from_bytes(manifest[start : start + 4], "little")
    return manifest[start + 4 : start + 4 + size]


def _fields(message: bytes) -> dict[int, list[bytes]]:
    """The fields of a protocol buffer by their numbers, as they lie there.

    >>> _fields(bytes([0x08, 0xAC, 0x02, 0x12, 0x02, 0x68, 0x69]))  # 1: the number 300, 2: two bytes
    {1: [b'\\xac\\x02'], 2: [b'hi']}
    """
    found: dict[int, list[bytes]] = {}
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        start = place
        if tag & 7 == 0:
            _, place = _varint(message, place)
        elif tag & 7 == 2:
            size, start = _varint(message, place)
            place = start + size
        else:
            place += {1: 8, 5: 4}[tag & 7]
        found.setdefault(tag >> 3, []).append(message[start:place])
    return found


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """A number of variable length and the place behind it."""
    number, shift = 0, 0
    while message[place] & 128:
        number |= (message[place] & 127) << shift
        place, shift = place + 1, shift + 7
    return number | message[place] << shift, place + 1


def _number(values: list[bytes] | None) -> int:
    """The value of a field that is a number: 0 where it is not written."""
    return _varint(values[0], 0)[0] if values else 0


# --- checksums -------------------------------------------------------------------------------------------------------


def sum_file(path: Path) -> FileSum:
    """Size and checksums of a file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "file").write_bytes(b"123456789")
    ...     sum_file(Path(folder) / "file")
    FileSum(size=9, blocks='cbf43926')
    """
    size = path.stat().st_size
    return FileSum(size, "".join(_block_sum(path, start) for start in range(0, size, _BLOCK)))


def _block_sum(path: Path, start: int) -> str:
    """The checksum of the block that starts there."""
    buffer = memoryview(bytearray(min(_CHUNK, _BLOCK)))
    total, left = 0, _BLOCK
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        while left > 0 and (count := file.readinto(buffer[: min(left, len(buffer))])):
            total, left = zlib.crc32(buffer[:count], total), left - count
    return f"{total:08x}"


def find_damage(folder: Path, files: Mapping[str, FileSum]) -> list[Damage]:
    """Which of these files below a folder are not what they were: gone, of another size, or of another content."""
    found: list[Damage] = []
    blocks: list[tuple[str, int, str]] = []
    for name, written in files.items():
        try:
            size = (folder / name).stat().st_size
        except OSError as error:
            found.append(Damage(folder / name, f"is missing ({error.strerror})"))
            continue
        if size != written.size:
            found.append(Damage(folder / name, f"is damaged: it has {size:,} bytes instead of {written.size:,}"))
        else:
            starts = range(0, size, _BLOCK)
            blocks += [(name, start, written.blocks[8 * at : 8 * at + 8]) for at, start in enumerate(starts)]
    wrong = dict.fromkeys(name for name, is_right in _compare(folder, blocks) if not is_right)
    return found + [
        Damage(folder / name, "is damaged: its checksum is not the one it was written with") for name in wrong
    ]


def _compare(folder: Path, blocks: list[tuple[str, int, str]]) -> Iterator[tuple[str, bool]]:
    def compare(block: tuple[str, int, str]) -> tuple[str, bool]:
        name, start, written = block
        try:
            return name, _block_sum(folder / name, start) == written
        except OSError:  # gone meanwhile, or a sector that cannot be read
            return name, False

    if len(blocks) < 2:
        yield from map(compare, blocks)
        return
    with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1, len(blocks))) as pool:
        yield from pool.map(compare, blocks)


# --- watching over a version -----------------------------------------------------------------------------------------


class Guard:
    """Checks the files of a version, each once for as long as this lives; and keeps the list, for a writer.

    Not for several threads at once.

    Args:
        folder: of the version.
        listed: whether there must be a list.
    """

    def __init__(self, folder: Path, *, listed: bool) -> None:
        self.folder = folder
        self._listed = listed
        self._state: tuple[int, int, int] | None = None  # of the file of the list, when it was read
        self._checked: set[tuple[str, str, FileSum]] = set()
        self.listing = Listing()
        self.refresh()

    def refresh(self) -> None:
        """Read the list again if it has changed; before the tables are looked at, so that these are no older."""
        try:
            found = os.stat(self.folder / CHECKSUMS)
            state = (found.st_ino, found.st_size, found.st_mtime_ns)
        except FileNotFoundError:
            state = None
        except OSError as error:
            raise StorageError(
                f"'{display_path(self.folder / CHECKSUMS)}' cannot be read: {error.strerror}."
            ) from error
        if state is not None and state == self._state:
            return
        listing = read_listing(self.folder)
        if listing is None and self._listed:
            raise StorageError(f"'{display_path(self.folder / CHECKSUMS)}' is missing. {_LIST_REMEDY}")
        self._state, self.listing = state, listing or Listing()
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
        if found := self.damage(name, version=version, whole=whole):
            raise StorageError(f"{found[0]}. {REMEDY}")

    def damage(self, name: str, *, version: int | None, whole: bool) -> list[Damage]:
        """What `check` raises."""
        table, listed = table_folder(self.folder, name), self.listing.tables.get(name)
        if listed is None:
            return []
        newest = newest_manifest(table)
        if newest is None or newest[0] < listed.version:
            manifest = next((file for file in listed.files if file.startswith(_MANIFESTS)), _MANIFESTS)
            return [Damage(table / manifest, "is missing")]
        is_older = newest[0] > listed.version  # the list: somebody is writing, or was killed
        if not is_older and version is not None and version != listed.version:
            return [Damage(table / newest[1], f"is the newest manifest, but version {version:,} was read")]
        files = {
            file: written
            for file, written in listed.files.items()
            if (name, file, written) not in self._checked
            and not (is_older and file.startswith(_MANIFESTS))
            and (whole or name == VIDEOS or not file.startswith((_DATA, _INDICES)))
        }
        found = find_damage(table, files)
        wrong = {one.path for one in found}
        self._checked |= {(name, file, written) for file, written in files.items() if table / file not in wrong}
        if found and (is_older or newest_manifest(table) != newest):
            found = [one for one in found if os.path.lexists(one.path)]  # others are not needed any more
        return found

    def count_unlisted(self) -> int:
        """How many files are in use without a checksum."""
        count = 0
        for name in (VIDEOS, REGIONS, FRAMES):
            table, listed = table_folder(self.folder, name), self.listing.tables.get(name)
            newest = newest_manifest(table)
            if newest is not None and (listed is None or newest[0] > listed.version):
                with suppress(OSError, *_UNREADABLE):  # a writer may be at work
                    in_use = [newest[1], *files_in_use(table, (table / newest[1]).read_bytes())]
                    count += sum(listed is None or file not in listed.files for file in in_use)
        return count

    # --- writing -----------------------------------------------------------------------------------------------------

    def seal(self, *, kept: Collection[str] = ()) -> None:
        """List what the tables consist of by now, and files beside them that are `kept`; for the writer."""
        tables: dict[str, TableSums] = {}
        for name in (VIDEOS, REGIONS, FRAMES):
            table, listed = table_folder(self.folder, name), self.listing.tables.get(name)
            newest, before = newest_manifest(table), {} if listed is None else listed.files
            if listed is not None and (newest is None or newest[0] <= listed.version):
                tables[name] = listed  # as it is, or gone: then that stays to be seen
            elif (found := list_table(table, before)) is not None:
                tables[name] = found
                self._checked |= {(name, file, one) for file, one in found.files.items() if file not in before}
        sealed = replace(self.listing, tables=tables, kept=self.listing.kept | set(kept))
        if sealed != self.listing or not self._listed:
            write_listing(self.folder, sealed)
            self.listing, self._listed, self._state = sealed, True, None


def find_all_damage(folder: Path) -> list[Damage]:
    """Every listed file of a version that is not what was written, large ones too."""
    guard = Guard(folder, listed=False)
    return [one for name in guard.listing.tables for one in guard.damage(name, version=None, whole=True)]
