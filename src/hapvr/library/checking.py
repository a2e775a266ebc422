"""Whether a library is as it was written: every document, file, row and cross-reference, and what `--repair` can do.

Nothing is changed here, and no part of the library has to be readable. `hapvr.library.repair` repairs what is found.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from hapvr.errors import FormatError, StorageError, UnavailableError
from hapvr.library import engine
from hapvr.library.bit_correction import MAX_BYTES, correct_document, find_file_correction
from hapvr.library.checksums import CHECKSUMS, FileSum, Guard, Listing, TableSums, find_damage, read_listing
from hapvr.library.engine import DATA, MANIFESTS, EngineError, table_folder
from hapvr.library.indexed_folders import FOLDERS, FOLDERS_NAMES, read_folders
from hapvr.library.marks import MARKS, read_marks
from hapvr.library.opening import parse_calibration
from hapvr.library.results import display_path
from hapvr.library.row_checks import LOSES, Progress, RepairKind, RowCheck
from hapvr.library.shared_file import SHARED, parse_shared_footage
from hapvr.library.sound_lookup import count_unreadable
from hapvr.library.table_reader import TableReader
from hapvr.library.tables import FRAMES, REGIONS, ROW_CHECKSUM, TABLES, VIDEOS
from hapvr.library.versions import (
    CALIBRATION,
    EMBEDDED,
    MANIFEST,
    MANIFEST_NAMES,
    SETTINGS,
    SETTINGS_NAMES,
    Manifest,
    Settings,
    find_version_folders,
    parse_settings,
    read_manifest,
    read_settings,
    version_folder,
)
from hapvr.library.writer_lock import find_writer, open_lock
from hapvr.places import ObjectPath, Place, file_state, find_state, name_below, parse_place
from hapvr.storage import StrPath, parse_document

_WAIT_S = 10.0
_NO_DAMAGE = (FormatError, UnavailableError)  # another release wrote it; the object store does not give it out
_RESTORE = "Restore it from a backup, or add the videos to a new library."


@dataclass(frozen=True)
class Problem:
    """Something in a library that is not as it was written."""

    place: str  # a file, below the library; or the path of a video
    what: str  # a sentence
    repair: RepairKind
    remedy: str  # a sentence: what `--repair` does, or what a person can do

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return dataclasses.asdict(self) | {"place": display_path(self.place), "repairable": self.repair != "none"}


@dataclass(frozen=True)
class CheckReport:
    """What a check of a library found."""

    path: str
    quick: bool  # whether the content of large files and rows was left out
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()  # no damage, but worth knowing
    videos: int = 0  # records that were read
    files: int = 0  # that were looked at
    bytes: int = 0  # of these files
    seconds: float = 0.0
    done: tuple[str, ...] = ()  # what `--repair` did, in sentences
    lost: tuple[str, ...] = ()  # what could not be had again, in sentences

    @property
    def intact(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        """What `hapvr check --json` prints."""
        problems = [problem.to_json() for problem in self.problems]
        return dataclasses.asdict(self) | {
            "path": display_path(self.path), "intact": self.intact, "problems": problems
        }  # fmt: skip


def check_library(
    path: StrPath | ObjectPath, *, quick: bool = False, progress: Progress | None = None, wait_s: float = _WAIT_S
) -> CheckReport:
    """Check a library; nothing is changed.

    What looks wrong while somebody is writing is looked at again with the writer's lock held.

    Args:
        path: its folder, or its address in an object store: there everything is read once, unless it is `quick`.
        quick: leave out the content of large files and of rows: sizes, documents, records and keys alone.
        progress: called with the number of rows that are done, and of all.
        wait_s: how long to wait for a writer, if the library has to be looked at again.

    Raises:
        StorageError: it is no library, one of a newer release, or the object store does not answer.
    """
    folder = parse_place(path)
    began, before = time.perf_counter(), _read_state(folder)
    found = Examination(folder, quick=quick, progress=progress).run()
    if found.problems and (find_writer(folder) is not None or _read_state(folder) != before):
        lock = open_lock(folder)
        try:
            lock.acquire("hapvr check", wait_s=wait_s)
        except StorageError as error:  # another writer does not end, or this reader may not write
            note = f"It was written while it was checked, so some of this may be no damage: {error}"
            found = dataclasses.replace(found, notes=(*found.notes, note))
        else:
            try:
                found = Examination(folder, quick=quick, progress=progress).run()
            finally:
                lock.release(clean=not lock.left_behind)
    return dataclasses.replace(found, seconds=time.perf_counter() - began)


def _read_state(path: Place) -> object:
    """What changes whenever something is written."""
    lists = [find_state(version_folder(path, name) / CHECKSUMS) for name in find_version_folders(path)]
    return find_state(path / MANIFEST), lists


class Examination:
    """One look at a library; `run` does it. The attributes are what a repair goes on with."""

    def __init__(self, path: Place, *, quick: bool, progress: Progress | None = None) -> None:
        self.path, self._quick, self._progress = path, quick, progress
        self.problems: list[Problem] = []
        self.notes: list[str] = []
        self.manifest: Manifest | None = None
        self.settings: Settings | None = None
        self.listing: Listing | None = None
        self.damaged: dict[str, dict[str, str]] = {}  # files of tables, by table, and what is wrong with each
        self.corrections: dict[Place, dict[int, int]] = {}  # of files in which one bit of a block is flipped
        self.documents: dict[Place, bytes] = {}  # as they were before one bit flipped
        self.index_problems = 0  # how many of the problems are about a candidate index that lies elsewhere
        self._files = self._bytes = 0

    def run(self) -> CheckReport:
        """Look at everything."""
        self._check_manifest()
        self._check_settings()
        self._check_documents()
        self._check_files()
        videos = self._check_rows()
        if not self._quick and (count := count_unreadable(self.folder)):
            self.notes.append(
                f"{count:,} index files of sounds cannot be read. That is harmless: their sounds are compared one by "
                "one until `hapvr add` makes the files again."
            )
        return CheckReport(
            str(self.path), self._quick, tuple(self.problems), tuple(self.notes), videos, self._files, self._bytes
        )

    @property
    def version(self) -> str:
        """The version in use; if the manifest does not say it, the oldest: a newer one may not be whole."""
        return self.manifest.version if self.manifest is not None else find_version_folders(self.path)[0]

    @property
    def folder(self) -> Place:
        """The folder of that version."""
        return version_folder(self.path, self.version)

    def _report(self, place: Place | str, what: str, repair: RepairKind, remedy: str) -> None:
        name = place if isinstance(place, str) else name_below(place, self.path)
        self.problems.append(Problem(name, what, repair, remedy))

    # --- documents ---------------------------------------------------------------------------------------------------

    def _check_manifest(self) -> None:
        if not find_version_folders(self.path):
            read_manifest(self.path)  # says what is wrong
        remedy = "It is written again, from what lies beside it."
        with self._report_damage(self.path / MANIFEST, MANIFEST_NAMES, "again", remedy):
            self.manifest = read_manifest(self.path)
            if not (self.folder / SETTINGS).is_file() and not self.folder.is_dir():
                self._report(self.folder, "The folder of the version in use is missing.", "none", _RESTORE)

    def _check_settings(self) -> None:
        path = self.folder / SETTINGS
        copied = None if self.manifest is None else self.manifest.settings
        repair: RepairKind = "none" if copied is None else "again"
        remedy = _RESTORE if copied is None else "It is written again, from the copy in the manifest."
        with self._report_damage(path, SETTINGS_NAMES, repair, remedy):
            self.settings = read_settings(self.folder)
        if self.settings is None and copied is not None:
            self.settings = parse_settings(copied, self.path / MANIFEST)
        elif self.settings is None and path in self.documents:
            self.settings = parse_settings(parse_document(self.documents[path], SETTINGS_NAMES), path)

    def _check_documents(self) -> None:
        folders, marks = self.path / FOLDERS, self.path / MARKS
        listing, shared = self.folder / CHECKSUMS, self.folder / SHARED
        if self.manifest is not None or folders.is_file():
            remedy = (
                "The remembered folders, their rules, and whether there is sound or a text model are forgotten: "
                "name them again with `hapvr add`."
            )
            with self._report_damage(folders, FOLDERS_NAMES, "lost", remedy):
                read_folders(self.path)
        if self.manifest is not None or marks.is_file():
            remedy = "All marks of distinct videos are forgotten: mark the pairs again."
            with self._report_damage(marks, ("format", "distinct"), "lost", remedy):
                read_marks(self.path)
        remedy = "What can be read is kept and listed with new checksums; what has none of its own is unchecked."
        with self._report_damage(listing, ("format", "kept", "tables"), "again", remedy):
            self.listing = read_listing(self.folder)
            if self.listing is None and self.settings is not None and self.settings.checksums:
                raise StorageError(f"'{display_path(listing)}' is missing.")
        self._check_calibration()
        if shared.is_file():
            with self._report_damage(shared, None, "again", "The shared footage is found again."):
                parse_shared_footage(shared)

    def _check_calibration(self) -> None:
        path = self.folder / CALIBRATION
        remedy = f"The calibration is removed: fit it again with `hapvr calibrate {display_path(self.path)}`."
        if path.is_file():
            with self._report_damage(path, (), "lost", remedy):
                parse_calibration(path, file_state(path))
        elif self.listing is not None and CALIBRATION in self.listing.kept:
            self._report(path, "It is missing.", "lost", remedy)

    @contextmanager
    def _report_damage(
        self, path: Place, known: Collection[str] | None, repair: RepairKind, remedy: str
    ) -> Iterator[None]:
        """Within, a document is read: if that cannot be done, it is a problem.

        The document is put back as it was if one bit of it is flipped; not without its `known` names.
        """
        try:
            yield
        except _NO_DAMAGE:
            raise
        except StorageError as error:
            if known is not None and (corrected := correct_document(path, known)) is not None:
                self.documents[path] = corrected
                repair, remedy = "exact", "One bit of it is flipped: it is put back."
            self._report(path, _first_sentence(error), repair, remedy)

    # --- files -------------------------------------------------------------------------------------------------------

    def _check_files(self) -> None:
        """The files of each table, by the list of checksums."""
        if self.listing is None:
            self.notes.append("There is no list of checksums: the files of the tables were not compared with it.")
            return
        guard = Guard(self.folder, listed=False, read_objects=not self._quick)
        for name in TABLES:
            table, listed = table_folder(self.folder, name), self.listing.tables.get(name, TableSums(0, {}))
            if _is_behind(table, listed.version):
                self.damaged[name] = engine.find_broken_manifest(table)
                for file, what in self.damaged[name].items():
                    self._report_file(name, table / file, what, None)
        for name, listed in self.listing.tables.items():
            table = table_folder(self.folder, name)
            found = guard.find_damage(name, version=None, whole=not self._quick)
            if self._quick and not _is_behind(table, listed.version):
                found |= find_damage(table, listed.files, sizes_only=True)
            self._files += len(listed.files)
            self._bytes += sum(one.size for one in listed.files.values())
            self.damaged[name] = self.damaged.get(name, {}) | found
            for file, what in found.items():
                self._report_file(name, table / file, what, listed.files.get(file))
        if count := guard.count_unlisted():
            self.notes.append(
                f"{count:,} files have no checksum yet: a writer is at work, or was killed. The next change adds them."
            )

    def _report_file(self, name: str, path: Place, what: str, written: FileSum | None) -> None:
        file = name_below(path, table_folder(self.folder, name))
        # Rows of regions have checksums of their own, which confirm a correction.
        large = name == REGIONS and file.startswith(DATA) and ROW_CHECKSUM in self._list_columns(REGIONS)
        correction = None
        if written is not None and path.is_file():
            correction = find_file_correction(path, written, max_bytes=None if large else MAX_BYTES)
        if correction:
            self.corrections[path] = correction
            self._report(path, f"It {what}.", "exact", "One bit of it is flipped: it is put back.")
        elif file.startswith(MANIFESTS):
            remedy = f"The table is read as it was before its last change. {LOSES[name]}"
            self._report(path, f"It {what}.", "lost" if name == VIDEOS else "again", remedy)
        else:
            self._report(path, f"It {what}.", "lost" if name == VIDEOS else "again", LOSES[name])

    def _list_columns(self, name: str) -> list[str]:
        try:
            return TableReader(self.folder, name).columns
        except EngineError:
            return []

    # --- rows --------------------------------------------------------------------------------------------------------

    def _check_rows(self) -> int:
        """The rows of all tables, and whether they agree; how many records there are."""
        rows = RowCheck(self.folder, quick=self._quick, report=self._report, progress=self._progress)
        elsewhere = self.settings is not None and self.settings.candidate_index != EMBEDDED
        for name in TABLES:
            if name == FRAMES and elsewhere and self.settings is not None:
                before = len(self.problems)
                rows.check_collection(self.settings, others=self.manifest is not None)
                self.index_problems += len(self.problems) - before
            else:
                rows.check_table(name, self.damaged.get(name, {}), self.corrections)
        lacking = rows.check_references()
        self.index_problems += lacking if elsewhere else 0
        if left := rows.count_unnamed():
            self.notes.append(f"{left:,} contents have no record: a writer was stopped. The next one removes them.")
        return sum(map(len, rows.named.values()))


def _is_behind(table: Place, version: int) -> bool:
    newest = engine.newest_manifest(table)
    return newest is not None and newest[0] > version


def _first_sentence(error: Exception) -> str:
    """What is wrong, without what to do about it: `Problem.remedy` says that."""
    text = str(error)
    for word in (" Restore ", " The next `hapvr add`"):
        text = text.partition(word)[0]
    return text
