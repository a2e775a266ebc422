"""Whether the rows of a library's tables are as they were written, and whether they agree with each other."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, Protocol

import numpy as np

from hapvr.errors import DataError, StorageError
from hapvr.library import engine, tables
from hapvr.library.candidate_index import find_left_collections, open_collection
from hapvr.library.engine import DATA, MANIFESTS, EngineError, table_folder
from hapvr.library.indexed_folders import read_text_model
from hapvr.library.results import STATES, VideoRecord
from hapvr.library.table_reader import TableReader
from hapvr.library.tables import EMBEDDINGS, FRAMES, NO_KEY, REGIONS, SOUNDS, VIDEOS
from hapvr.library.versions import Settings
from hapvr.places import Place
from hapvr.storage import file_signature

RepairKind = Literal["exact", "again", "lost", "none"]
"""What `--repair` makes of a problem: "exact" puts back what was written; "again" makes it again, from files where that
is needed; "lost" goes on without it; "none": it cannot be repaired."""
Progress = Callable[[int, int], None]
BATCH = 64
"""Rows of regions that are read at once."""
_EMBEDDINGS_BATCH = 2**15  # rows
_FULL_ROWS = 2**20  # of a file of the engine: what is more goes into another one, also amid a content
_LENGTH_ERROR = 0.01  # of a vector of unit length in float16
_READ_AGAIN = "Its file is read again."
LOSES: Mapping[str, str] = {
    VIDEOS: "Records in it are lost: the remembered folders are read again.",
    REGIONS: "The videos whose features are lost are read again.",
    FRAMES: "Vectors and index are made again from the stored features.",
    SOUNDS: "The sounds that are lost are read again.",
    EMBEDDINGS: "The videos are described again, if the text model is where it was; else it is said how.",
}
"""What `--repair` does about a table that is damaged."""


class Report(Protocol):
    """Called with each problem: where it is, what it is, and what `--repair` does about it."""

    def __call__(self, place: Place | str, what: str, repair: RepairKind, remedy: str) -> None:
        """Report it."""


class RowCheck:
    """One look at the rows of a version.

    Args:
        folder: of the version.
        quick: leave out the content of rows: keys alone.
        report: called with each problem.
        progress: called with the number of rows of regions that are done, and of all.
    """

    def __init__(self, folder: Place, *, quick: bool, report: Report, progress: Progress | None) -> None:
        self._folder, self._library = folder, folder.parents[1]
        self._quick, self._report, self._progress = quick, report, progress
        self.named: dict[int, list[VideoRecord]] = {}  # by key
        self.frames: dict[int, int] = {}  # of contents whose rows are intact
        self.vectors: set[int] = set()  # contents with all their vectors
        self.others: set[int] = set()  # contents with sound, or described by a text model
        self.complete: set[str] = set()  # tables that could be looked at

    def check_table(self, name: str, damaged: Collection[str], corrected: Collection[Place]) -> None:
        """The rows of a table, unless what is wrong with its files, some of which can be corrected, says enough."""
        table = table_folder(self._folder, name)
        if not (table / MANIFESTS).is_dir() and not damaged:
            self.complete.add(name)
            return
        if any(table / file in corrected or not file.startswith(DATA) for file in damaged):
            return
        try:
            reader = TableReader(self._folder, name)
            if lacking := [one for one in tables.COLUMNS[name] if one not in reader.columns]:
                raise EngineError(f"it has no column '{lacking[0]}'")
            {VIDEOS: self._check_videos, REGIONS: self._check_regions, FRAMES: self._check_frames,
             SOUNDS: self._check_sounds, EMBEDDINGS: self._check_embeddings}[name](reader)  # fmt: skip
            self.complete.add(name)
        except EngineError as error:
            if not damaged:
                self._report(table, f"The table cannot be read: {str(error)[:200]}.", "again", LOSES[name])

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
            self.named.setdefault(int(row["key"]), []).append(record)
        for column, word in (("id", "id"), ("path", "path")):
            for value, count in Counter(row[column] for row in found).items():
                if count > 1:
                    place = os.fsdecode(value)
                    self._report(place, f"{count} records have this {word}.", "again", "One of them is kept.")

    def _check_regions(self, reader: TableReader) -> None:
        if self._quick:
            found = reader.scan(["key", "frames"])
            self.frames = dict(zip(found["key"].to_pylist(), found["frames"].to_pylist(), strict=True))
            repeated = found.num_rows - len(self.frames)
        else:
            repeated = 0
            total, done = sum(fragment.rows for fragment in reader.fragments), 0
            for part in reader.read(batch=BATCH):
                for row in part.to_pylist():
                    repeated += row["key"] in self.frames
                    if is_content(row):
                        self.frames[row["key"]] = row["frames"]
                done += part.num_rows
                if self._progress is not None:
                    self._progress(done, total)
        if repeated:
            self._report(reader.path, f"{repeated} contents are there twice.", "again", "One of each is kept.")

    def _check_frames(self, reader: TableReader) -> None:
        found = reader.scan(["key", "frame"])
        self.vectors = find_whole_contents(found["key"].to_numpy(), found["frame"].to_numpy())
        self._check_index(reader, found.num_rows)

    def _check_index(self, reader: TableReader, rows: int) -> None:
        indexed = reader.count_indexed()
        if indexed is not None and indexed > sum(fragment.rows for fragment in reader.fragments):
            what = f"It covers {indexed:,} vectors, and there are {rows:,}."
            self._report(reader.path / engine.INDICES, what, "again", "The index is made again.")

    def _check_sounds(self, reader: TableReader) -> None:
        self.others |= set(reader.scan(["key"])["key"].to_pylist())
        if self._quick:
            return
        for part in reader.read(batch=1000):
            for row in part.to_pylist():
                if not is_sound(row):
                    what = "Its stored sound is damaged."
                    self._report(self._name_content(row["key"]), what, *self._find_remedy(row["key"]))

    def _check_embeddings(self, reader: TableReader) -> None:
        keys = reader.scan(["key"])["key"].to_pylist()
        self.others |= set(keys)
        self._check_index(reader, len(keys))
        if keys and self._has_no_text_model():
            what = "It holds what a text model said of videos, and no text model is remembered."
            self._report(reader.path, what, "lost", "It is removed: describe the videos again (--text-model).")
        if not self._quick:
            for key in sorted(find_whole_embeddings(reader)[1]):
                what = "What the text model said of it is damaged."
                self._report(self._name_content(key), what, "again", LOSES[EMBEDDINGS])

    def _has_no_text_model(self) -> bool:
        """Whether it is known that there is none."""
        try:
            return read_text_model(self._library) is None
        except StorageError:  # reported already
            return False

    def _name_content(self, key: int) -> str:
        places = self.named.get(key, [])
        return places[0].path if places else f"content {key}"

    def _find_remedy(self, key: int) -> tuple[RepairKind, str]:
        """What is to be done about a content that is lost."""
        for record in self.named.get(key, []):
            if os.path.isfile(record.path):
                same = file_signature(record.path) == (record.size, record.mtime_ns)
                return "again", _READ_AGAIN if same else "Its file, which has changed since, is read again."
        return "lost", "Its file is gone too: the video is counted as failed. Bring the file back, and add it again."

    def check_collection(self, settings: Settings, *, others: bool) -> None:
        """The frame vectors of a library that keeps them in Milvus: which contents have theirs, not their values.

        With `others`, collections that were left of other versions are problems too.
        """
        version = self._folder.name
        index = open_collection(settings, version)
        assert index is not None
        try:
            if index.is_there():
                found = index.list_contents()
                self.vectors = found.whole
                self.complete.add(FRAMES)
                if left := (found.whole | found.broken) - set(self.named):
                    what = f"It has vectors of {len(left):,} contents that no record names."
                    self._report(index.place, what, "again", "They are removed.")
            elif any(key != NO_KEY for key in self.named):
                self._report(index.place, "There is no such collection.", "again", LOSES[FRAMES])
            for name in find_left_collections(self._library, index) if others else ():
                what = f"It is of a version that is no longer in use; that is {version} now."
                self._report(index.place.removesuffix(index.name) + name, what, "again", "It is dropped.")
        except StorageError as error:
            self._report(index.place, f"It was not checked: {error}", "none", "Repair that, and check again.")

    def check_references(self) -> int:
        """Whether every record has its content and its vectors; how many contents lack only vectors."""
        lacking = 0
        for key, records in self.named.items() if VIDEOS in self.complete else ():
            if key == NO_KEY:
                continue
            wrong = None
            if REGIONS in self.complete:
                if key not in self.frames:
                    wrong = "Its stored features are damaged or gone."
                elif self.frames[key] != records[0].frames:
                    wrong = f"Its record says {records[0].frames} frames, its features are of {self.frames[key]}."
            if wrong is not None:
                for record in records:
                    self._report(record.path, wrong, *self._find_remedy(key))
            elif FRAMES in self.complete and key not in self.vectors:
                remedy = "They are made again from its stored features."
                self._report(records[0].path, "Frame vectors by which it is found are gone.", "again", remedy)
                lacking += 1
        return lacking

    def count_unnamed(self) -> int:
        """How many contents no record names, if that is known."""
        return len((set(self.frames) | self.vectors | self.others) - set(self.named)) if VIDEOS in self.complete else 0


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
