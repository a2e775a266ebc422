"""The storage engine, LanceDB: its errors as one exception, few files and old versions, an index, files of a table.

The engine never changes a file that it has written. A commit adds files to a table, the last of them a manifest that
names the others; the newest manifest is the table.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar, cast

import lancedb
from lancedb.index import IvfRq

from hapvr.errors import HapvrError
from hapvr.places import AnyPlace, ObjectPath, Place, file_size, list_names, path_exists
from hapvr.storage import sync_file, sync_folder

Result = TypeVar("Result")

# Each change of a table adds to what LanceDB remembers about its files; it forgets from a gigabyte on. What it has
# forgotten is read again, which takes no time that could be measured here and a request in an object store.
_METADATA_BYTES = 8 * 2**20
_METADATA_BYTES_OF_OBJECTS = 64 * 2**20
_PANICS = ("PanicException", "RustPanic")  # classes that cannot be imported; the first is a BaseException


class EngineError(RuntimeError):
    """LanceDB could not do what it was asked: a file is damaged or gone, the disk is full, ..."""


def connect(folder: Place) -> Any:
    """The tables of a version."""
    if isinstance(folder, ObjectPath):
        session = lancedb.Session(metadata_cache_size_bytes=_METADATA_BYTES_OF_OBJECTS)
        return lancedb.connect(str(folder), storage_options=folder.options, session=session)
    return lancedb.connect(folder, session=lancedb.Session(metadata_cache_size_bytes=_METADATA_BYTES))


def call(action: Callable[[], Result]) -> Result:
    """Do something with LanceDB; `EngineError` if it cannot.

    >>> call(lambda: {}["rows"])
    Traceback (most recent call last):
    hapvr.library.engine.EngineError: KeyError: 'rows'
    """
    try:
        return action()
    except (HapvrError, MemoryError):
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ not in _PANICS:
            raise  # an interrupt is no answer of the engine
        raise EngineError(_summarise(error)) from error


def _summarise(error: BaseException) -> str:
    """What it says, on one line; with its kind where that says more."""
    lines = str(error).splitlines()
    if isinstance(error, OSError | RuntimeError | ValueError) and lines:
        return lines[0]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


# --- keeping tables in order -----------------------------------------------------------------------------------------

_FRAGMENTS = 64  # of a table, before they are put together
_MAX_FRAGMENTS = 512
_KEEP_VERSIONS = timedelta(minutes=10)  # for readers that have not looked for newer ones
_KEEP_LITTLE = timedelta(seconds=1)
_KEEP_ALL = timedelta(days=36_500)
_MIN_NEW = 20_000  # vectors, and a fifth of all, before they are added to an index


def compact_table(table: Any, folder: Place, check: Callable[[], None], *, thoroughly: bool) -> None:
    """Make few files of many, if there are too many or all is to be done `thoroughly`; free what is no longer used.

    `check` is called before: what is damaged would get new checksums. The table lies in `folder`.
    """
    if not thoroughly and not _is_scattered(table):
        return
    check()
    _optimize(table, folder, _KEEP_LITTLE if thoroughly else _KEEP_VERSIONS)


def _optimize(table: Any, folder: Place, keep: timedelta) -> None:
    """Put together and index what is new. When that is on the disk, versions older than `keep` are removed."""
    table.optimize(cleanup_older_than=_KEEP_ALL, delete_unverified=True)
    if not isinstance(folder, ObjectPath) and (newest := newest_manifest(folder)) is not None:
        sync_files(folder, list_files(folder, newest[1]))
    if keep == _KEEP_LITTLE:  # the version before this one is of no use any more
        time.sleep(1.1 * keep.total_seconds())
    table.optimize(cleanup_older_than=keep, delete_unverified=True)


def _is_scattered(table: Any) -> bool:
    """Putting together writes everything again: only when there is as much new as old, or too many files."""
    fragments = table.stats()["fragment_stats"]
    small, largest = fragments["num_small_fragments"], fragments["lengths"]["max"]
    return bool(small > _MAX_FRAGMENTS or (small > _FRAGMENTS and table.count_rows() >= 2 * largest))


def update_index(table: Any, folder: Place, check: Callable[[], None], *, indexed: int, thoroughly: bool) -> None:
    """Index the vectors of a table of which `indexed` are indexed: all at first, then the new ones when they are many.

    `check` is called before anything is written. The table lies in `folder`.
    """
    count = table.count_rows()
    if indexed == 0:
        check()
        _build_index(table)
    elif count - indexed > (0 if thoroughly else max(_MIN_NEW, count // 5)):
        check()
        _optimize(table, folder, _KEEP_VERSIONS)


def _build_index(table: Any) -> None:
    """In fewer partitions if many vectors are alike and the usual number cannot be filled."""
    try:
        table.create_index("vector", config=IvfRq(distance_type="dot"))
    except RuntimeError as error:
        formed = re.search(r"could only form (\d+) non-empty clusters", str(error))
        if formed is None:
            raise
        table.create_index("vector", config=IvfRq(distance_type="dot", num_partitions=max(1, int(formed[1]) // 2)))


def count_indexed(table: Any) -> int | None:
    """How many vectors of a table are in its index; None if there is none."""
    found = [one for one in table.list_indices() if "vector" in one.columns]
    return int(table.index_stats(found[0].name).num_indexed_rows) if found else None


# --- files of a table ------------------------------------------------------------------------------------------------

MANIFESTS, DELETIONS, DATA, INDICES = "_versions", "_deletions", "data", "_indices"
UNREADABLE = (IndexError, KeyError, ValueError)
"""What reading a manifest that is damaged may raise."""


def table_folder(folder: AnyPlace, name: str) -> AnyPlace:
    """Where a table of a version lies."""
    return cast("AnyPlace", folder / f"{name}.lance")


def newest_manifest(table: Place) -> tuple[int, str] | None:
    """The newest version of a table and its manifest, by the names of its files; None where there is no table."""
    return max(list_manifests(table), default=None)


def list_manifests(table: Place) -> list[tuple[int, str]]:
    """All versions of a table of which there is a manifest, and these, by the names of its files.

    Names of manifests count downwards, so that the newest comes first in a listing.
    """
    found = []
    for name in list_names(table / MANIFESTS):
        number = name.removesuffix(".manifest")
        if number != name and number.isdecimal():
            found.append((2**64 - 1 - int(number) if len(number) == 20 else int(number), f"{MANIFESTS}/{name}"))
    return found


def sync_files(table: Place, names: Iterable[str]) -> None:
    """Let files of a table and their names reach the disk, a manifest after the files that it names.

    LanceDB leaves that to the system, which takes its time.
    """
    if isinstance(table, ObjectPath):
        return
    paths = [table / name for name in names]
    manifests = [path for path in paths if path.parent.name == MANIFESTS]
    for group in ([path for path in paths if path not in manifests], manifests):
        for path in group:
            sync_file(path)
        for folder in {folder for path in group for folder in path.parents if folder.is_relative_to(table.parent)}:
            sync_folder(folder)


def find_broken_manifest(table: Place) -> dict[str, str]:
    """The newest manifest of a table and what is wrong with it: it, or a file that it names, did not reach the disk."""
    newest = newest_manifest(table)
    if newest is None:
        return {}
    try:
        names = list_files(table, newest[1])
    except (*UNREADABLE, OSError):
        return {newest[1]: "cannot be read: it is no manifest"}
    lacking = [name for name in names if not path_exists(table / name) or not file_size(table / name)]
    if not lacking or newest_manifest(table) != newest:  # a writer may be at work
        return {}
    return {newest[1]: f"names '{lacking[0]}', which is missing or empty"}


@dataclass(frozen=True)
class Fragment:
    """Rows of a table that were written at once. Row n of them has the engine's number `(id << 32) + n`."""

    id: int
    rows: int  # those that were deleted since included
    files: tuple[str, ...]  # within the table: the data, and the list of deleted rows if there is one


def list_fragments(table: Place, manifest: str) -> list[Fragment]:
    """The fragments that a manifest names; one of `UNREADABLE` if it is damaged. See `list_files`."""
    return _parse_fragments(table, _parse_manifest(table, manifest)[1])


def list_files(table: Place, manifest: str) -> list[str]:
    """A manifest and the files of its table that it names, by their paths within it.

    Those that only older manifests name, or the record of what the last commit replaced, are not among them: they are
    removed without a commit. (Of Lance's `table.proto`: fragments are field 2 of a manifest, the place of its index
    section 6; of a fragment, the id is field 1, data files 2, the list of deleted rows 3, the number of rows 4; of a
    data file, the path 1; of a list of deleted rows, the version 2 and the number 3; of an index, the UUID 1.)
    """
    data, content = _parse_manifest(table, manifest)
    names = [manifest, *(file for fragment in _parse_fragments(table, content) for file in fragment.files)]
    if 6 in content:
        for index in _parse_fields(_read_section(data, _parse_number(content[6]))).get(1, []):
            folder = f"{INDICES}/{uuid.UUID(bytes=_parse_fields(_parse_fields(index)[1][0])[1][0])}"
            names += [f"{folder}/{file}" for file in list_names(table / folder)]
    return names


def _parse_manifest(table: Place, manifest: str) -> tuple[bytes, dict[int, list[bytes]]]:
    """The bytes of a manifest, and its fields."""
    data = (table / manifest).read_bytes()
    return data, _parse_fields(_read_section(data, int.from_bytes(data[-16:-8], "little")))


def _parse_fragments(table: Place, content: dict[int, list[bytes]]) -> list[Fragment]:
    found = []
    for fragment in map(_parse_fields, content.get(2, [])):
        files = [f"{DATA}/{_parse_fields(file)[1][0].decode()}" for file in fragment.get(2, [])]
        for deleted in map(_parse_fields, fragment.get(3, [])):
            number = "-".join(str(_parse_number(one)) for one in (fragment.get(1), deleted.get(2), deleted.get(3)))
            there = [file for file in list_names(table / DELETIONS) if file.startswith(f"{number}.")]
            files += [f"{DELETIONS}/{file}" for file in there or [f"{number}.arrow"]]  # if it is gone, that is noticed
        found.append(Fragment(_parse_number(fragment.get(1)), _parse_number(fragment.get(4)), tuple(files)))
    return found


def _read_section(manifest: bytes, start: int) -> bytes:
    """A message in a manifest, behind its length."""
    size = int.from_bytes(manifest[start : start + 4], "little")
    return manifest[start + 4 : start + 4 + size]


def _parse_fields(message: bytes) -> dict[int, list[bytes]]:
    """The fields of a protocol buffer by their numbers, as they lie there.

    >>> _parse_fields(bytes([0x08, 0xAC, 0x02, 0x12, 0x02, 0x68, 0x69]))  # 1: the number 300, 2: two bytes
    {1: [b'\\xac\\x02'], 2: [b'hi']}
    """
    found: dict[int, list[bytes]] = {}
    place = 0
    while place < len(message):
        tag, place = _parse_varint(message, place)
        start = place
        if tag & 7 == 0:
            _, place = _parse_varint(message, place)
        elif tag & 7 == 2:
            size, start = _parse_varint(message, place)
            place = start + size
        else:
            place += {1: 8, 5: 4}[tag & 7]
        found.setdefault(tag >> 3, []).append(message[start:place])
    return found


def _parse_varint(message: bytes, place: int) -> tuple[int, int]:
    """A number of variable length and the place behind it."""
    number, shift = 0, 0
    while message[place] & 128:
        number |= (message[place] & 127) << shift
        place, shift = place + 1, shift + 7
    return number | message[place] << shift, place + 1


def _parse_number(values: list[bytes] | None) -> int:
    """The value of a field that is a number: 0 where it is not written."""
    return _parse_varint(values[0], 0)[0] if values else 0
