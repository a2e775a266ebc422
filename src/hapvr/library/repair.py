"""Repairing a library that `hapvr.library.checking` finds damaged.

First single flipped bits are put back, and documents are written again. If tables are still damaged, all rows that are
intact are copied into another version beside the old one, which is then put to use in one step; what it lacks is made
again: vectors from the stored features, features, sounds and what a text model says from the files where they exist.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa

from hapvr.errors import ConfigError, StorageError
from hapvr.library import tables
from hapvr.library.adding import add_files, add_videos
from hapvr.library.bit_correction import correct_file
from hapvr.library.candidate_index import (
    find_left_collections,
    find_vectors,
    open_collection,
    require_new_index,
)
from hapvr.library.checking import CheckReport, Examination, check_library
from hapvr.library.checksums import write_listing
from hapvr.library.codecs import get_codec
from hapvr.library.engine import DATA, MANIFESTS, EngineError, table_folder
from hapvr.library.found_files import Found
from hapvr.library.indexed_folders import FOLDERS, read_folders, read_sound_setting, read_text_model
from hapvr.library.marks import MARKS
from hapvr.library.opening import OpenLibrary
from hapvr.library.results import AddOptions, AddProgress, AddReport, display_path
from hapvr.library.row_checks import BATCH, find_whole_contents, find_whole_embeddings, is_content, is_sound
from hapvr.library.shared_file import SHARED, update_shared_footage
from hapvr.library.sound import add_sounds
from hapvr.library.sound_lookup import update_sound_index
from hapvr.library.store import Store
from hapvr.library.table_reader import TableReader, link_table
from hapvr.library.tables import EMBEDDINGS, FRAMES, NO_KEY, REGIONS, SOUNDS, TABLES, VIDEOS
from hapvr.library.text import add_embeddings
from hapvr.library.versions import (
    CALIBRATION,
    MANIFEST,
    SETTINGS,
    VERSIONS,
    Manifest,
    Settings,
    current_version,
    find_version_folders,
    read_manifest,
    translate_write_errors,
    version_folder,
    write_manifest,
    write_settings,
)
from hapvr.library.writer_lock import hold_lock
from hapvr.places import ObjectPath, Place, name_below, parse_place, remove_file, remove_folder
from hapvr.storage import StrPath, write_bytes

_ASIDE = ".repair"  # a folder in the library, while tables are read that lack their newest manifest
_DESCRIBE = "`hapvr add LIBRARY --text-model FOLDER` describes them again."
_LOST = "its features were lost. Add it again."  # of `Store.recover`
_WAIT_S = 10.0


def repair_library(
    path: StrPath | ObjectPath,
    *,
    workers: int | None = None,
    device: str = "cpu",
    progress: Callable[[AddProgress], None] | None = None,
    stop: Callable[[], bool] | None = None,
    wait_s: float = _WAIT_S,
) -> CheckReport:
    """Repair a library, and check it again: the report says what is still wrong, what was done and what is lost.

    Killed at any moment, it can be run again. It needs as much room again as the library takes if tables are damaged.

    Args:
        path: its folder, or its address in an object store.
        workers: decoding processes for videos that are read again, as in `Library.add`; also the next three.
        device: where the model computes.
        progress: called after each video that is read again.
        stop: asked all the time; True ends the reading of videos.
        wait_s: how long to wait for another writer.
    """
    folder, began = parse_place(path), time.perf_counter()
    repair = _Repair(folder)
    with hold_lock(folder, "hapvr check --repair", wait_s=wait_s, recovers=False) as lock:
        repair.require_lock = lock.require_held
        found = Examination(folder, quick=False)
        if found.run().problems:
            repair.correct(found)
            found = Examination(folder, quick=False)
            if len(found.run().problems) > found.index_problems:
                repair.salvage(found)
            if found.index_problems or repair.salvaged:
                repair.mend_index()
    if repair.needs_files:
        with OpenLibrary.open(folder, wait_s=wait_s, device=device) as library:
            repair.read_files(library, AddOptions(workers=workers, progress=progress, stop=stop))
    report = check_library(folder, wait_s=wait_s)
    seconds = time.perf_counter() - began
    return dataclasses.replace(report, done=tuple(repair.done), lost=tuple(repair.lost), seconds=seconds)


class _Repair:
    """The steps, and what they did."""

    def __init__(self, path: Place) -> None:
        self._path = path
        self.require_lock: Callable[[], None] = lambda: None  # called before each change
        self.done: list[str] = []
        self.lost: list[str] = []
        self.needs_files = False
        self.salvaged = False  # whether another version is in use now
        self._records_incomplete = False
        self._text_damaged = False

    # --- what can be put back as it was ------------------------------------------------------------------------------

    def correct(self, found: Examination) -> None:
        """Put single flipped bits back, and write documents again."""
        self.require_lock()
        with translate_write_errors(self._path):
            for path, data in found.documents.items():
                write_bytes(path, data)
                self.done.append(f"{self._name(path)}: a flipped bit was put back.")
            for path, correction in found.corrections.items():
                correct_file(path, correction)
                self.done.append(f"{self._name(path)}: a flipped bit was put back.")
            if found.settings is None:
                raise StorageError(
                    f"'{display_path(found.folder / SETTINGS)}' is lost, and with it how the vectors are stored. "
                    "Restore the library from a backup, or add the videos to a new one."
                )
            wrong = {problem.place for problem in found.problems}
            for path, replace in self._list_documents(found).items():
                if self._name(path) in wrong and path not in found.documents:
                    replace()

    def _list_documents(self, found: Examination) -> dict[Place, Callable[[], None]]:
        """How each document is made again, in the order in which they need each other."""
        folder = found.folder

        def write_settings_again() -> None:
            assert found.settings is not None
            write_settings(folder, found.settings)
            self.done.append(f"{self._name(folder / SETTINGS)}: written again, from the copy in the manifest.")

        def write_manifest_again() -> None:
            kept = frozenset(name for name in (MARKS, FOLDERS) if (self._path / name).is_file())
            write_manifest(self._path, Manifest(found.version, kept))
            versions = len(find_version_folders(self._path))
            which = f", which names version {found.version}, the oldest of {versions}" if versions > 1 else ""
            self.done.append(f"{MANIFEST}: written again{which}.")

        def forget(name: str, what: str) -> Callable[[], None]:
            def remove() -> None:
                remove_file(self._path / name)
                manifest = read_manifest(self._path)
                write_manifest(self._path, dataclasses.replace(manifest, kept=manifest.kept - {name}))
                self.lost.append(f"{name}: {what}")

            return remove

        def remove_calibration() -> None:
            remove_file(folder / CALIBRATION)
            if found.listing is not None:
                write_listing(folder, dataclasses.replace(found.listing, kept=found.listing.kept - {CALIBRATION}))
            self.lost.append(f"{self._name(folder / CALIBRATION)}: fit it again with `hapvr calibrate`.")

        def remove_shared() -> None:
            remove_file(folder / SHARED)
            self.done.append(f"{self._name(folder / SHARED)}: removed; the shared footage is found when it is needed.")

        return {
            folder / SETTINGS: write_settings_again,
            self._path / MANIFEST: write_manifest_again,
            self._path / FOLDERS: forget(FOLDERS, "the remembered folders are forgotten; name them again."),
            self._path / MARKS: forget(MARKS, "the marks of distinct videos are forgotten."),
            folder / CALIBRATION: remove_calibration,
            folder / SHARED: remove_shared,
        }

    def _name(self, path: Place) -> str:
        return name_below(path, self._path)

    # --- tables ------------------------------------------------------------------------------------------------------

    def salvage(self, found: Examination) -> None:
        """Copy what is intact into another version, and put that to use."""
        assert found.settings is not None
        aside = self._path / _ASIDE
        remove_folder(aside)
        number = max(int(name) for name in find_version_folders(self._path)) + 1
        version = f"{number:04d}"
        target = version_folder(self._path, version)
        self.require_lock()
        with translate_write_errors(self._path):
            folders = _put_aside(found, aside)
            write_settings(target, found.settings)
            require_new_index(found.settings, version)
            if (found.folder / CALIBRATION).is_file():
                write_bytes(target / CALIBRATION, (found.folder / CALIBRATION).read_bytes())
        new = Store(target)
        new.table_set.require_lock = self.require_lock
        self._copy_rows(found, folders, new, found.settings)
        # Records whose content is lost become failed, to be read again.
        new.begin(recover=True, require_lock=self.require_lock)
        new.maintain()
        update_shared_footage(new)
        update_sound_index(new)
        self.require_lock()
        write_manifest(self._path, dataclasses.replace(read_manifest(self._path), version=version))
        remove_folder(aside)
        self.salvaged = True
        catalog = new.catalog()
        failed = catalog.records(catalog.rows("failed"))
        lost = [record for record in failed if record.error == _LOST]
        self.needs_files = bool(lost) or self._records_incomplete or read_sound_setting(self._path)
        self.needs_files |= self._text_damaged
        self.done.append(
            f"{VERSIONS}/{version}: {int(catalog.described.sum()):,} videos were taken over as they are stored; "
            f"the features of {len(lost):,} are lost."
        )
        if self._records_incomplete:
            self.lost.append(
                "Records: those that were written last, or all of a damaged file; removed ones may be back."
            )

    def _copy_rows(self, found: Examination, folders: Mapping[str, Place], new: Store, settings: Settings) -> None:
        records = list(_read_rows(folders[VIDEOS], VIDEOS, found.damaged.get(VIDEOS, {}), 10_000))
        exists = table_folder(found.folder, VIDEOS).is_dir()
        self._records_incomplete = bool(found.damaged.get(VIDEOS)) or (exists and not records)
        kept, keys = _choose_records([row for part in records for row in part.to_pylist()])
        vectors = list(_read_rows(folders[FRAMES], FRAMES, found.damaged.get(FRAMES, {}), 4_096))
        joined = pa.concat_tables(vectors) if vectors else None
        whole: set[int] = set()
        if joined is not None:
            whole = find_whole_contents(joined["key"].to_numpy(), joined["frame"].to_numpy())
        # Each row of regions and sounds has a checksum: rows in damaged files may be whole.
        unread = {name: [file for file in found.damaged.get(name, {}) if not file.startswith(DATA)] for name in TABLES}
        codec, taken = get_codec(settings.codec), set[int]()
        for part in _read_rows(folders[REGIONS], REGIONS, unread[REGIONS], BATCH):
            rows = [row for row in part.to_pylist() if keys.get(row["key"]) == row["frames"] and is_content(row)]
            rows = [row for row in rows if row["key"] not in taken]
            taken |= {row["key"] for row in rows}
            new.write_rows(REGIONS, pa.Table.from_pylist(rows, schema=part.schema))
            if lacking := [tables.parse_content(row) for row in rows if row["key"] not in whole]:
                features = [stored.features(codec) for stored in lacking]
                new.candidates.add([stored.key for stored in lacking], [find_vectors(one) for one in features])
        if joined is not None:
            kept_vectors = whole & taken
            new.write_rows(FRAMES, joined.filter(pa.array([key in kept_vectors for key in joined["key"].to_pylist()])))
        sounds_lost = bool(found.damaged.get(SOUNDS))
        for part in _read_rows(folders[SOUNDS], SOUNDS, unread[SOUNDS], 1_000):
            rows = [row for row in part.to_pylist() if row["key"] in keys and is_sound(row)]
            new.write_rows(SOUNDS, pa.Table.from_pylist([row for row in rows if row["key"] in taken], part.schema))
            sounds_lost |= any(row["key"] not in taken for row in rows)
        if sounds_lost and not read_sound_setting(self._path):
            self.lost.append("The sound of some videos: `hapvr add LIBRARY --audio` reads it again.")
        self._copy_embeddings(found, folders, new, taken)
        if kept:
            new.write_rows(VIDEOS, pa.Table.from_pylist(kept, schema=tables.VIDEOS_SCHEMA))

    def _copy_embeddings(self, found: Examination, folders: Mapping[str, Place], new: Store, taken: set[int]) -> None:
        """Copy what a text model said of contents, where all of it is intact and it is known which model it was."""
        damaged = found.damaged.get(EMBEDDINGS, {})
        table = self._name(table_folder(found.folder, EMBEDDINGS))
        is_wrong = bool(damaged) or any(problem.place == table for problem in found.problems)
        if read_text_model(self._path) is None:
            if is_wrong:
                self.lost.append(f"What a text model said of the videos, and which it was: {_DESCRIBE}")
            return
        self._text_damaged, whole = is_wrong, set[int]()
        with suppress(EngineError):
            whole, broken = find_whole_embeddings(TableReader(folders[EMBEDDINGS], EMBEDDINGS), without=damaged)
            self._text_damaged |= bool(broken) or not whole <= taken
        whole &= taken
        for part in _read_rows(folders[EMBEDDINGS], EMBEDDINGS, damaged, 2**15):
            new.write_rows(EMBEDDINGS, part.filter(pa.array([key in whole for key in part["key"].to_pylist()])))

    # --- a candidate index that lies elsewhere -----------------------------------------------------------------------

    def mend_index(self) -> None:
        """Make it agree with the records, and drop what is left of other versions; if it cannot be reached, nothing."""
        version = current_version(self._path)
        store = Store(version_folder(self._path, version))
        index = open_collection(store.settings, version)
        if index is None:
            return
        try:
            index.connect()
        except StorageError:
            return  # the check at the end says why
        added, removed = store.mend_index()
        if added or removed:
            self.done.append(
                f"{index.place}: the vectors of {added:,} contents were made again from their stored features, "
                f"those of {removed:,} without a record removed."
            )
        for name in find_left_collections(self._path, index):
            index.drop_collection(name)
            self.done.append(f"{index.place.removesuffix(index.name)}{name}: dropped.")

    # --- videos that are read again ----------------------------------------------------------------------------------

    def read_files(self, library: OpenLibrary, options: AddOptions) -> None:
        """Read the files of what is lost, where they exist."""
        with library.write_access("hapvr check --repair") as store:
            catalog = store.catalog()
            lost = {os.fsencode(one.path) for one in catalog.records(catalog.rows("failed")) if one.error == _LOST}
            here = sorted(path for path in lost if os.path.isfile(path))
            if here:
                add_files(store, lambda: library.base_model.extractor, Found(here, [], []), options)
            after = store.catalog()
            states = dict(zip(after.paths, after.states, strict=True))
            count = sum(states.get(path) == "ready" for path in lost)
            if lost:
                self.done.append(f"{count:,} of {len(lost):,} videos were read again from their files.")
            for path in sorted(path for path in lost if states.get(path) != "ready"):
                why = "could not be read again" if path in here else "is gone"
                self.lost.append(f"'{display_path(os.fsdecode(path))}': its features, and its file {why}.")
        folders = [folder for folder in read_folders(self._path) if os.path.isdir(folder)]
        if self._records_incomplete and folders:
            with suppress(ConfigError):
                report = add_videos(library, workers=options.workers, progress=options.progress, stop=options.stop)
                self.done.append(f"The remembered folders were read again: {report.added:,} videos added.")
        elif read_sound_setting(self._path):
            with library.write_access("hapvr check --repair") as store:
                report = add_sounds(store, AddReport(), options)
            if report.sounds or report.silent:
                self.done.append(f"The sound of {report.sounds + report.silent:,} videos was read again.")
        if self._text_damaged:
            self._describe_again(library, options)

    def _describe_again(self, library: OpenLibrary, options: AddOptions) -> None:
        """Let the text model describe the videos of which it is lost what it said."""
        with library.write_access("hapvr check --repair") as store:
            report = add_embeddings(library, store, AddReport(), options)
            missing = len(set(store.catalog().contents.tolist()) - store.embeddings.list_keys())
        if report.text_described:
            self.done.append(f"{report.text_described:,} videos were described again by the text model.")
        if missing:
            why = f" ({report.warnings[0][1]})" if report.warnings else ""
            self.lost.append(f"What the text model said of {missing:,} videos{why}: {_DESCRIBE}")


def _put_aside(found: Examination, aside: Place) -> dict[str, Place]:
    """Where each table can be read: where it is or, if its newest manifest is damaged, beside it without that one."""
    folders: dict[str, Place] = {}
    for name in TABLES:
        damaged = found.damaged.get(name, {})
        is_cut = any(file.startswith(MANIFESTS) for file in damaged)
        folders[name] = aside if is_cut else found.folder
        if is_cut:
            link_table(found.folder, name, aside, without=damaged)
    return folders


def _read_rows(folder: Place, name: str, damaged: Collection[str], batch: int) -> Iterator[pa.Table]:
    """All rows of a table that can be read and are not in damaged files, in batches."""
    with suppress(EngineError):  # there is no such table, or nothing of it can be read
        yield from (part for part in TableReader(folder, name).read(batch=batch, without=damaged) if part.num_rows)


def _choose_records(rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], dict[int, int]]:
    """Rows of records that can be understood, the last of each path and id; and the frames of contents, by key."""
    chosen: dict[bytes, dict[str, Any]] = {}
    for row in rows:
        with suppress(ValueError, TypeError, OverflowError):
            tables.parse_record(row)
            chosen[row["path"]] = row
    kept = list({row["id"]: row for row in chosen.values()}.values())
    return kept, {int(row["key"]): row["frames"] for row in kept if row["key"] != NO_KEY}
