"""Whether a library is as it was written: every document, file, row and cross-reference, and what `--repair` can do.

Nothing is changed here, and no part of the library has to be readable. `hapvr.library.repair` repairs what is found.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from hapvr.errors import DataError, FormatError, StorageError, UnavailableError
from hapvr.library import engine, tables
from hapvr.library.bit_correction import MAX_BYTES, correct_document, find_file_correction
from hapvr.library.candidate_index import find_left_collections, open_collection
from hapvr.library.checksums import CHECKSUMS, FileSum, Guard, Listing, TableSums, find_damage, read_listing
from hapvr.library.duplicate_report import MARKS, read_marks
from hapvr.library.engine import DATA, MANIFESTS, EngineError, table_folder
from hapvr.library.indexed_folders import FOLDERS, FOLDERS_NAMES, read_folders, read_text_model
from hapvr.library.opening import parse_calibration
from hapvr.library.results import STATES, VideoRecord, display_path
from hapvr.library.shared_file import SHARED, parse_shared_footage
from hapvr.library.sound_lookup import count_unreadable
from hapvr.library.table_reader import TableReader
from hapvr.library.tables import EMBEDDINGS, FRAMES, NO_KEY, REGIONS, ROW_CHECKSUM, SOUNDS, TABLES, VIDEOS
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
from hapvr.storage import StrPath, file_signature, parse_document

RepairKind = Literal["exact", "again", "lost", "none"]
"""What `--repair` makes of a problem: "exact" puts back what was written; "again" makes it again, from files where that
is needed; "lost" goes on without it; "none": it cannot be repaired."""
BATCH = 64
"""Rows of regions that are read at once."""
_EMBEDDINGS_BATCH = 2**15  # rows
_FULL_ROWS = 2**20  # of a file of the engine: what is more goes into another one, also amid a content
_WAIT_S = 10.0
_NO_DAMAGE = (FormatError, UnavailableError)  # another release wrote it; the object store does not give it out
_LENGTH_ERROR = 0.01  # of a vector of unit length in float16


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


Progress = Callable[[int, int], None]


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


@dataclass
class _Rows:
    """What was read of the tables, by keys."""

    named: dict[int, list[VideoRecord]] = field(default_factory=dict)
    frames: dict[int, int] = field(default_factory=dict)  # of contents whose rows are intact
    vectors: set[int] = field(default_factory=set)  # contents with all their vectors
    others: set[int] = field(default_factory=set)  # contents with sound, or described by a text model
    complete: set[str] = field(default_factory=set)  # tables that could be looked at


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
        self._rows = _Rows()
        self._files = self._bytes = 0

    def run(self) -> CheckReport:
        """Look at everything."""
        self._check_manifest()
        self._check_settings()
        self._check_documents()
        self._check_files()
        for name in TABLES:
            if name == FRAMES and self.settings is not None and self.settings.candidate_index != EMBEDDED:
                self._check_collection(self.settings)
            else:
                self._check_rows(name)
        self._check_references()
        if not self._quick and (count := count_unreadable(self.folder)):
            self.notes.append(
                f"{count:,} index files of sounds cannot be read. That is harmless: their sounds are compared one by "
                "one until `hapvr add` makes the files again."
            )
        videos = sum(map(len, self._rows.named.values()))
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
        try:
            self.manifest = read_manifest(self.path)
        except _NO_DAMAGE:
            raise
        except StorageError as error:
            if not find_version_folders(self.path):
                raise
            self._report_document(
                self.path / MANIFEST, MANIFEST_NAMES, error, "again", "It is written again, from what lies beside it."
            )
            return
        if not (self.folder / SETTINGS).is_file() and not self.folder.is_dir():
            self._report(self.folder, "The folder of the version in use is missing.", "none", _RESTORE)

    def _report_document(self, path: Place, known: Any, error: Exception, repair: RepairKind, remedy: str) -> None:
        """A document that cannot be read: as it was, if one bit of it is flipped, or else what is to be done."""
        if (corrected := correct_document(path, known)) is not None:
            self.documents[path] = corrected
            repair, remedy = "exact", "One bit of it is flipped: it is put back."
        self._report(path, _first_sentence(error), repair, remedy)

    def _check_settings(self) -> None:
        path = self.folder / SETTINGS
        copied = None if self.manifest is None else self.manifest.settings
        try:
            self.settings = read_settings(self.folder)
        except _NO_DAMAGE:
            raise
        except StorageError as error:
            if copied is not None:
                self.settings = parse_settings(copied, self.path / MANIFEST)
            remedy = "It is written again, from the copy in the manifest."
            self._report_document(
                path,
                SETTINGS_NAMES,
                error,
                "none" if copied is None else "again",
                _RESTORE if copied is None else remedy,
            )
            if self.settings is None and path in self.documents:
                self.settings = parse_settings(parse_document(self.documents[path], SETTINGS_NAMES), path)

    def _check_documents(self) -> None:
        try:
            read_folders(self.path)
        except _NO_DAMAGE:
            raise
        except StorageError as error:
            if self.manifest is not None or (self.path / FOLDERS).is_file():
                remedy = (
                    "The remembered folders, their rules, and whether there is sound or a text model are forgotten: "
                    "name them again with `hapvr add`."
                )
                self._report_document(self.path / FOLDERS, FOLDERS_NAMES, error, "lost", remedy)
        try:
            read_marks(self.path)
        except _NO_DAMAGE:
            raise
        except StorageError as error:
            if self.manifest is not None or (self.path / MARKS).is_file():
                remedy = "All marks of distinct videos are forgotten: mark the pairs again."
                self._report_document(self.path / MARKS, ("format", "distinct"), error, "lost", remedy)
        try:
            self.listing = read_listing(self.folder)
            if self.listing is None and self.settings is not None and self.settings.checksums:
                raise StorageError(f"'{display_path(self.folder / CHECKSUMS)}' is missing.")
        except _NO_DAMAGE:
            raise
        except StorageError as error:
            remedy = "What can be read is kept and listed with new checksums; what has none of its own is unchecked."
            self._report_document(self.folder / CHECKSUMS, ("format", "kept", "tables"), error, "again", remedy)
        self._check_calibration()
        path = self.folder / SHARED
        if path.is_file():
            try:
                parse_shared_footage(path)
            except UnavailableError:
                raise
            except StorageError as error:
                self._report(path, _first_sentence(error), "again", "The shared footage is found again.")

    def _check_calibration(self) -> None:
        path = self.folder / CALIBRATION
        remedy = f"The calibration is removed: fit it again with `hapvr calibrate {display_path(self.path)}`."
        if not path.is_file():
            if self.listing is not None and CALIBRATION in self.listing.kept:
                self._report(path, "It is missing.", "lost", remedy)
            return
        try:
            parse_calibration(path, file_state(path))
        except UnavailableError:
            raise
        except StorageError as error:
            self._report_document(path, (), error, "lost", remedy)

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
            remedy = f"The table is read as it was before its last change. {_LOSES[name]}"
            self._report(path, f"It {what}.", "lost" if name == VIDEOS else "again", remedy)
        else:
            self._report(path, f"It {what}.", "lost" if name == VIDEOS else "again", _LOSES[name])

    def _list_columns(self, name: str) -> list[str]:
        try:
            return TableReader(self.folder, name).columns
        except EngineError:
            return []

    # --- rows --------------------------------------------------------------------------------------------------------

    def _check_rows(self, name: str) -> None:
        """The rows of a table, unless what is wrong with its files says enough."""
        table, rows = table_folder(self.folder, name), self._rows
        if not (table / MANIFESTS).is_dir() and not self.damaged.get(name):
            rows.complete.add(name)
            return
        damaged = [file for file in self.damaged.get(name, {}) if table / file not in self.corrections]
        if len(damaged) < len(self.damaged.get(name, {})) or any(not file.startswith(DATA) for file in damaged):
            return
        try:
            reader = TableReader(self.folder, name)
            if lacking := [one for one in tables.COLUMNS[name] if one not in reader.columns]:
                raise EngineError(f"it has no column '{lacking[0]}'")
            {VIDEOS: self._check_videos, REGIONS: self._check_regions, FRAMES: self._check_frames,
             SOUNDS: self._check_sounds, EMBEDDINGS: self._check_embeddings}[name](reader)  # fmt: skip
            rows.complete.add(name)
        except EngineError as error:
            if not damaged:
                self._report(table, f"The table cannot be read: {str(error)[:200]}.", "again", _LOSES[name])

    def _check_videos(self, reader: TableReader) -> None:
        found = reader.scan(tables.VIDEOS_SCHEMA.names).to_pylist()
        for row in found:
            try:
                record = tables.parse_record(row)
                if record.state not in STATES or (row["key"] == NO_KEY) != (record.state == "failed"):
                    raise ValueError(f"its state is '{record.state}', its content {row['key']}")
            except (ValueError, TypeError, OverflowError) as error:
                self._report(os.fsdecode(row["path"]), f"Its record is wrong: {error}.", "again", _READ_AGAIN)
                continue
            self._rows.named.setdefault(int(row["key"]), []).append(record)
        for column, word in (("id", "id"), ("path", "path")):
            for value, count in Counter(row[column] for row in found).items():
                if count > 1:
                    place = os.fsdecode(value)
                    self._report(place, f"{count} records have this {word}.", "again", "One of them is kept.")

    def _check_regions(self, reader: TableReader) -> None:
        if self._quick:
            found = reader.scan(["key", "frames"])
            self._rows.frames = dict(zip(found["key"].to_pylist(), found["frames"].to_pylist(), strict=True))
            repeated = found.num_rows - len(self._rows.frames)
        else:
            repeated = 0
            total, done = sum(fragment.rows for fragment in reader.fragments), 0
            for part in reader.read(batch=BATCH):
                for row in part.to_pylist():
                    repeated += row["key"] in self._rows.frames
                    if is_content(row):
                        self._rows.frames[row["key"]] = row["frames"]
                done += part.num_rows
                if self._progress is not None:
                    self._progress(done, total)
        if repeated:
            self._report(reader.path, f"{repeated} contents are there twice.", "again", "One of each is kept.")

    def _check_frames(self, reader: TableReader) -> None:
        found = reader.scan(["key", "frame"])
        self._rows.vectors = find_whole_contents(found["key"].to_numpy(), found["frame"].to_numpy())
        self._check_index(reader, found.num_rows)

    def _check_index(self, reader: TableReader, rows: int) -> None:
        indexed = reader.count_indexed()
        if indexed is not None and indexed > rows + _count_deleted(reader, rows):
            what = f"It covers {indexed:,} vectors, and there are {rows:,}."
            self._report(reader.path / engine.INDICES, what, "again", "The index is made again.")

    def _check_collection(self, settings: Settings) -> None:
        """The frame vectors of a library that keeps them in Milvus: which contents have theirs, not their values."""
        index, before = open_collection(settings, self.version), len(self.problems)
        assert index is not None
        try:
            if index.is_there():
                found = index.list_contents()
                self._rows.vectors = found.whole
                self._rows.complete.add(FRAMES)
                if left := (found.whole | found.broken) - set(self._rows.named):
                    what = f"It has vectors of {len(left):,} contents that no record names."
                    self._report(index.place, what, "again", "They are removed.")
            elif any(key != NO_KEY for key in self._rows.named):
                self._report(index.place, "There is no such collection.", "again", _LOSES[FRAMES])
            for name in find_left_collections(self.path, index) if self.manifest is not None else ():
                what = f"It is of a version that is no longer in use; that is {self.version} now."
                self._report(index.place.removesuffix(index.name) + name, what, "again", "It is dropped.")
        except StorageError as error:
            self._report(index.place, f"It was not checked: {error}", "none", "Repair that, and check again.")
        self.index_problems += len(self.problems) - before

    def _check_sounds(self, reader: TableReader) -> None:
        self._rows.others |= set(reader.scan(["key"])["key"].to_pylist())
        if self._quick:
            return
        for part in reader.read(batch=1000):
            for row in part.to_pylist():
                if not is_sound(row):
                    what = "Its stored sound is damaged."
                    self._report(self._name_content(row["key"]), what, *self._find_remedy(row["key"]))

    def _check_embeddings(self, reader: TableReader) -> None:
        keys = reader.scan(["key"])["key"].to_pylist()
        self._rows.others |= set(keys)
        self._check_index(reader, len(keys))
        if keys and self._has_no_text_model():
            what = "It holds what a text model said of videos, and no text model is remembered."
            self._report(reader.path, what, "lost", "It is removed: describe the videos again (--text-model).")
        if not self._quick:
            for key in sorted(find_whole_embeddings(reader)[1]):
                what = "What the text model said of it is damaged."
                self._report(self._name_content(key), what, "again", _LOSES[EMBEDDINGS])

    def _has_no_text_model(self) -> bool:
        """Whether it is known that there is none."""
        try:
            return read_text_model(self.path) is None
        except StorageError:  # reported already
            return False

    def _name_content(self, key: int) -> str:
        places = self._rows.named.get(key, [])
        return places[0].path if places else f"content {key}"

    def _check_references(self) -> None:
        """Whether every record has its content and its vectors."""
        rows = self._rows
        if VIDEOS not in rows.complete:
            return
        for key, records in rows.named.items():
            if key == NO_KEY:
                continue
            wrong = None
            if REGIONS in rows.complete:
                if key not in rows.frames:
                    wrong = "Its stored features are damaged or gone."
                elif rows.frames[key] != records[0].frames:
                    wrong = f"Its record says {records[0].frames} frames, its features are of {rows.frames[key]}."
            if wrong is not None:
                for record in records:
                    self._report(record.path, wrong, *self._find_remedy(key))
            elif FRAMES in rows.complete and key not in rows.vectors:
                remedy = "They are made again from its stored features."
                self._report(records[0].path, "Frame vectors by which it is found are gone.", "again", remedy)
                self.index_problems += self.settings is not None and self.settings.candidate_index != EMBEDDED
        if left := (set(rows.frames) | rows.vectors | rows.others) - set(rows.named):
            self.notes.append(
                f"{len(left):,} contents have no record: a writer was stopped. The next one removes them."
            )

    def _find_remedy(self, key: int) -> tuple[RepairKind, str]:
        """What is to be done about a content that is lost."""
        for record in self._rows.named.get(key, []):
            if os.path.isfile(record.path):
                same = file_signature(record.path) == (record.size, record.mtime_ns)
                return "again", _READ_AGAIN if same else "Its file, which has changed since, is read again."
        return "lost", "Its file is gone too: the video is counted as failed. Bring the file back, and add it again."


_RESTORE = "Restore it from a backup, or add the videos to a new library."
_READ_AGAIN = "Its file is read again."
_LOSES: Mapping[str, str] = {
    VIDEOS: "Records in it are lost: the remembered folders are read again.",
    REGIONS: "The videos whose features are lost are read again.",
    FRAMES: "Vectors and index are made again from the stored features.",
    SOUNDS: "The sounds that are lost are read again.",
    EMBEDDINGS: "The videos are described again, if the text model is where it was; else it is said how.",
}


def is_content(row: Mapping[str, Any]) -> bool:
    """Whether a row of regions is as it was written, and can be understood."""
    try:
        if not tables.is_intact(row):
            return False
        stored = tables.parse_content(row)
        times, low = stored.timestamps, stored.low_information
        return all(part is None or len(part) == stored.frames for part in (times, low, stored.miniatures))
    except (ValueError, TypeError, ArithmeticError):
        return False


def is_sound(row: Mapping[str, Any]) -> bool:
    """Whether a row of sounds is as it was written."""
    try:
        tables.parse_sound(row)
    except (DataError, ValueError, TypeError):
        return False
    return True


def find_whole_embeddings(reader: TableReader, *, without: Collection[str] = ()) -> tuple[set[int], set[int]]:
    """The keys of contents of which all that a text model said can be read and is of use; and of those with damage.

    Rows of a content follow each other. Where rows are lost amid a file, or a file is full, a content may be cut: then
    those just before and after the lost rows count as damaged.
    """
    found, damaged, edges = set[int](), set[int](), set[int]()
    last: int | None = None
    lost = 0
    for part in reader.read(batch=_EMBEDDINGS_BATCH, without=without):
        if not part.num_rows:
            continue
        keys = part["key"].to_numpy()
        if reader.lost > lost:
            edges |= {int(keys[0])} if last is None else {last, int(keys[0])}
        lost, last = reader.lost, int(keys[-1])
        vectors = part["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
        lengths = np.linalg.norm(vectors.astype(np.float32).reshape(part.num_rows, -1), axis=1)
        times = part["time_s"].to_numpy()
        right = np.isfinite(times) & (times >= 0) & (np.abs(lengths - 1) < _LENGTH_ERROR)
        found |= set(keys.tolist())
        damaged |= set(keys[~right].tolist())
    if reader.lost > lost and last is not None:
        edges.add(last)
    if reader.is_cut or any(fragment.rows >= _FULL_ROWS for fragment in reader.fragments):
        damaged |= edges
    return found - damaged, damaged


def find_whole_contents(keys: Any, frames: Any) -> set[int]:
    """The keys [N] of frame vectors whose places [N] are 0, 1, 2, ... without a gap.

    >>> find_whole_contents(np.array([7, 7, 8, 8]), np.array([1, 0, 0, 2]))
    {7}
    """
    unique, which = np.unique(keys, return_inverse=True)
    counts = np.bincount(which, minlength=len(unique))
    highest = np.full(len(unique), -1, np.int64)
    np.maximum.at(highest, which, frames)
    length = int(frames.max(initial=0)) + 1
    distinct = np.bincount(np.unique(which.astype(np.int64) * length + frames) // length, minlength=len(unique))
    return {int(key) for key in unique[(counts == highest + 1) & (distinct == counts)]}


def _count_deleted(reader: TableReader, rows: int) -> int:
    return sum(fragment.rows for fragment in reader.fragments) - rows


def _is_behind(table: Place, version: int) -> bool:
    newest = engine.newest_manifest(table)
    return newest is not None and newest[0] > version


def _first_sentence(error: Exception) -> str:
    """What is wrong, without what to do about it: `Problem.remedy` says that."""
    text = str(error)
    for word in (" Restore ", " The next `hapvr add`"):
        text = text.partition(word)[0]
    return text
