"""`Library`: an index of videos on disk. Videos are added once; searches read the index."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import datetime

import numpy as np

from hapvr.actions.plan import Plan, make_pairs
from hapvr.features import Features
from hapvr.library.adding import add_videos
from hapvr.library.backup import back_up_library
from hapvr.library.checking import CheckReport, check_library
from hapvr.library.cluster_work import Run
from hapvr.library.duplicate_report import DuplicateProgress, DuplicateReport
from hapvr.library.duplicates import MIN_PROBABILITY, find_duplicates
from hapvr.library.indexed_folders import IndexRules, read_folders, read_text_model, write_folders
from hapvr.library.library_calibration import calibrate_library
from hapvr.library.marks import set_mark, set_marks
from hapvr.library.match_watch import watch_matches
from hapvr.library.monitoring import monitor_stream
from hapvr.library.opening import OpenLibrary
from hapvr.library.rebuild import rebuild_library
from hapvr.library.results import LibraryInfo, VideoRecord
from hapvr.library.search import compare_videos, explain_hits, search_library
from hapvr.library.shared_file import read_shared_footage, update_shared_footage
from hapvr.library.shared_footage import SharedFootage
from hapvr.library.sound import search_sound
from hapvr.library.text import forget_text_model, search_text
from hapvr.library.transfer import export_features, import_features
from hapvr.library.versions import read_settings, unfinished_version, version_folder
from hapvr.library.watch import watch_folders
from hapvr.library.writer_lock import find_writer
from hapvr.places import count_bytes
from hapvr.storage import StrPath


class Library(OpenLibrary):
    """An index of videos, in one folder. Open one with `Library.open`; use it in a `with` block, or close it.

    Many processes may read while one writes. A writer that is killed leaves every acknowledged video.
    """

    # Methods that are defined, with their arguments and defaults, in the modules that do the work.
    search = search_library
    search_sound = search_sound
    search_text = search_text
    forget_text_model = forget_text_model
    explain_hits = explain_hits
    compare = compare_videos
    add = add_videos
    watch = watch_folders
    watch_matches = watch_matches
    monitor = monitor_stream
    rebuild = rebuild_library
    calibrate = calibrate_library
    export = export_features
    import_features = import_features
    back_up = back_up_library

    def info(self) -> LibraryInfo:
        """What the library consists of, and its size."""
        store = self.store  # first: it may be another version than a moment ago
        settings, catalog = store.settings, store.catalog()
        building, text_model = unfinished_version(self.path), read_text_model(self.path)
        return LibraryInfo(
            path=str(self.path),
            version=self._version,
            model=settings.model,
            model_digest=settings.model_digest,
            codec=settings.codec,
            fps=settings.fps,
            keyframes=settings.keyframes,
            videos=int(catalog.described.sum()),
            failed=int((catalog.states == "failed").sum()),
            missing=int((catalog.states == "missing").sum()),
            warned=int(catalog.warned.sum()),
            contents=len(catalog.contents),
            frames=int(catalog.frames[catalog.described].sum()),
            duration=float(np.array(catalog.column("duration"), float)[catalog.described].sum()),
            bytes=count_bytes(store.folder),
            indexed=store.candidates.count_indexed(),
            vectors=store.candidates.count(),
            building=None if building is None else read_settings(version_folder(self.path, building)).model,
            writer=find_writer(self.path),
            unchecked=store.table_set.count_unlisted(),
            text_model=None if text_model is None else text_model.name,
            candidates=settings.candidate_index,
        )

    def folders(self) -> dict[str, IndexRules]:
        """The folders that it remembers, and which of their files are indexed; `add` without paths updates them."""
        return read_folders(self.path)

    def forget_folder(self, folder: StrPath) -> bool:
        """Do not remember a folder any more, whose videos stay; False if it was not remembered."""
        name = os.path.abspath(folder)
        with self.write_access("hapvr folders"):
            known = read_folders(self.path)
            write_folders(self.path, {one: rules for one, rules in known.items() if one != name})
        return name in known

    def videos(self, *, state: str | None = None, offset: int = 0, limit: int | None = None) -> list[VideoRecord]:
        """The records of all videos, or of those in a state, sorted by path."""
        catalog = self.store.catalog()
        rows = catalog.rows(state)[offset:]
        return catalog.records(rows if limit is None else rows[:limit])

    def list_problem_videos(self) -> list[VideoRecord]:
        """The records of videos that failed, are missing, or have warnings."""
        catalog = self.store.catalog()
        warned = [int(row) for row in np.flatnonzero(catalog.warned)]
        return catalog.records(list(dict.fromkeys([*catalog.rows("failed"), *catalog.rows("missing"), *warned])))

    def get(self, id: str) -> VideoRecord:
        """The record of a video; `DataError` if no video has this id."""
        catalog = self.store.catalog()
        return catalog.record(catalog.row(id))

    def find_files_named(self, path: StrPath) -> list[str]:
        """The files of the library with the same file name, in any folder: writing `path` might overwrite them."""
        names = {os.path.basename(path), os.path.basename(os.path.realpath(path))}
        return [record.path for record in self.videos() if os.path.basename(record.path) in names]

    def features(self, id: str) -> Features:
        """The stored features of a video: region vectors, times, and which frames are flat or repeated."""
        store = self.store
        catalog = store.catalog()
        return store.features(int(catalog.keys[catalog.row(id)]))

    def find_duplicates(
        self,
        *,
        min_probability: float = MIN_PROBABILITY,
        second_look: bool = True,
        ignore_shared: bool = True,
        since: datetime | None = None,
        progress: Callable[[DuplicateProgress], None] | None = None,
        sound: bool = True,
        cluster: Run | None = None,
    ) -> DuplicateReport:
        """Find groups of copies, and clips that are part of longer videos; see `hapvr.library.duplicates`.

        Args:
            min_probability: links that are copies with at least this probability, above 0 and at most 1.
            second_look: compare a few instants of undecided pairs at full size, if the files are at hand.
            ignore_shared: footage that many videos of the library share makes no link; False keeps such links.
            since: only what was added at or after this time, against everything; a time without a zone is local.
            progress: called now and then.
            sound: in a library with sound, say of each link whether the sound is the same, and find videos with the
                same sound and other pictures.
            cluster: of `hapvr.library.cluster_work.use_cluster`: its nodes find and compare the pairs.
        """
        return find_duplicates(
            self.store,
            lambda: self.model,
            min_probability=min_probability,
            second_look=second_look,
            ignore_shared=ignore_shared,
            since=since,
            progress=progress,
            sound=sound,
            cluster=cluster,
        )

    def find_shared_footage(self) -> SharedFootage:
        """Footage that many videos share, such as end cards; see `hapvr.library.shared_footage`."""
        store = self.store
        return read_shared_footage(store).without_removed(store.catalog())

    def mark_distinct(self, a: str, b: str) -> bool:
        """Mark two videos as no duplicates; False if they were marked. See `hapvr.library.marks`."""
        with self.write_access("hapvr duplicates") as store:
            return set_mark(store, a, b, distinct=True)

    def unmark_distinct(self, a: str, b: str) -> bool:
        """Remove the mark of `mark_distinct`; False if there was none."""
        with self.write_access("hapvr duplicates") as store:
            return set_mark(store, a, b, distinct=False)

    def mark_plan(self, plan: Plan, *, groups: Sequence[str] = (), distinct: bool = True) -> int:
        """Mark what a reviewed plan calls distinct as no duplicates, or remove these marks; how many pairs changed.

        These are the rows with the action "distinct", each against the others of its group, and all rows of the
        `groups` named; see `hapvr.actions.plan.make_pairs`. Marks are about contents, whatever their paths are.
        """
        with self.write_access("hapvr duplicates") as store:
            return set_marks(store, make_pairs(plan.rows, groups), distinct=distinct)

    def remove(self, ids: Sequence[str]) -> int:
        """Remove videos from the library; their files stay. Returns their number; `DataError` if an id is unknown."""
        chosen = dict.fromkeys([ids] if isinstance(ids, str) else ids)
        with self.write_access("hapvr remove") as store:
            store.remove(list(chosen))
            store.maintain()
            update_shared_footage(store)
        return len(chosen)

    def check(self, *, quick: bool = False, progress: Callable[[int, int], None] | None = None) -> CheckReport:
        """Whether everything in it is as it was written; see `hapvr.library.checking.check_library`.

        For a library that cannot be opened, call `hapvr.library.check_library` with its folder, or `repair_library`.
        """
        return check_library(self.path, quick=quick, progress=progress, wait_s=self.wait_s)

    def compact(self) -> None:
        """Join small files and free space that is no longer used."""
        with self.write_access("hapvr compact") as store:
            store.maintain(thoroughly=True)
