"""`Library`: a collection of videos on disk that is indexed once and asked many times."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import TracebackType

import numpy as np

from hapvr.errors import StorageError
from hapvr.features import Features
from hapvr.library import adding, creation, library_calibration, scan, transfer
from hapvr.library.duplicate_report import MARKS, DuplicateProgress, DuplicateReport, set_mark
from hapvr.library.duplicates import find_duplicates
from hapvr.library.library_calibration import CalibrationProgress, CalibrationReport
from hapvr.library.results import AddOptions, AddProgress, AddReport, LibraryInfo, VideoRecord
from hapvr.library.search import compare_videos, explain_hits, search_library
from hapvr.library.store import Store
from hapvr.library.tables import NO_KEY, Catalog
from hapvr.library.versions import (
    Settings,
    add_checksums,
    current_version,
    read_settings,
    unfinished_version,
    version_folder,
)
from hapvr.library.writer_lock import WriterLock, find_holder
from hapvr.model import Model

_FRESH_S = 1.0  # how old a reader's view may be
_WAIT_S = 10.0  # for another writer


class Library:
    """Videos that were indexed, in one folder. Open one with `Library.open`; use it in a `with` block, or close it.

    Many processes may read while one writes. A writer that is killed leaves every acknowledged video.
    """

    def __init__(self, path: Path, *, wait_s: float = _WAIT_S) -> None:
        self.path = path
        self.wait_s = wait_s  # how long a writer waits for another
        self._version = current_version(path)
        self._store: Store | None = Store(version_folder(path, self._version))
        self._seen = time.monotonic()
        self._model: Model | None = None

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        create: bool = False,
        model: str | Path | None = None,
        codec: str | None = None,
        rate: float | None = None,
        wait_s: float = _WAIT_S,
    ) -> Library:
        """Open a library, or make one.

        Args:
            path: its folder.
            create: make it if it is not there.
            model: a model's name or folder. What is given here and in the next two must agree with what the library
                was made with; for a new one, the shipped model, the usual codec and the model's own rate are taken.
            codec: how region vectors are stored, see `hapvr.library.codecs`.
            rate: frames a second.
            wait_s: how long to wait for another writer, when writing.

        Raises:
            StorageError: there is no library, it is damaged, or it was made with other settings.
        """
        opened = creation.opened(Path(path), create=create, model=model, codec=codec, rate=rate, wait_s=wait_s)
        library = cls(opened.path, wait_s=wait_s)
        library._model = opened.model
        return library

    # --- reading -----------------------------------------------------------------------------------------------------

    @property
    def store(self) -> Store:
        """The tables in use, no older than a second."""
        if self._store is None:
            raise StorageError(f"The library '{self.path}' has been closed.")
        if time.monotonic() - self._seen > _FRESH_S:
            self.refresh()
        return self._store

    @property
    def settings(self) -> Settings:
        """What all its videos share: model, codec, rate."""
        return self.store.settings

    @property
    def model(self) -> Model:
        """The model it was made with, and the library's calibration if it has one; loaded when first asked for."""
        return library_calibration.calibrated(self.base_model, self.store)

    @property
    def base_model(self) -> Model:
        """The model it was made with, as it came: whatever the library's own calibration is."""
        settings = self.settings
        if self._model is None:
            self._model = creation.load_model(settings, self.path)
        return self._model

    def refresh(self) -> None:
        """See what other processes have written since."""
        if self._store is None:
            raise StorageError(f"The library '{self.path}' has been closed.")
        version = current_version(self.path)
        if version != self._version:
            self._store = Store(version_folder(self.path, version))
            self._version, self._model = version, None
        else:
            self._store.refresh()
        self._seen = time.monotonic()

    def info(self) -> LibraryInfo:
        """What it is made of, and what it takes."""
        store = self.store  # first: it may be another version than a moment ago
        return _measure(self.path, self._version, store)

    def videos(self, *, state: str | None = None, offset: int = 0, limit: int | None = None) -> list[VideoRecord]:
        """The records of all videos, or of those in a state, sorted by path."""
        catalog = self.store.catalog()
        rows = catalog.rows(state)[offset:]
        return catalog.records(rows if limit is None else rows[:limit])

    def wrong(self) -> list[VideoRecord]:
        """The records of videos that something is wrong with: those that failed, are missing, or have warnings."""
        catalog = self.store.catalog()
        failed, missing = catalog.rows("failed"), catalog.rows("missing")
        warned = [int(row) for row in np.flatnonzero(catalog.warned)]
        return catalog.records(list(dict.fromkeys([*failed, *missing, *warned])))

    def get(self, id: str) -> VideoRecord:
        """The record of a video; `DataError` if there is none of this id."""
        catalog = self.store.catalog()
        return catalog.record(catalog.row(id))

    def files_named(self, path: str | os.PathLike[str]) -> list[str]:
        """The files of the library that have the name of this one, in whatever folder: what a report may overwrite."""
        names = {os.path.basename(path), os.path.basename(os.path.realpath(path))}
        return [record.path for record in self.videos() if os.path.basename(record.path) in names]

    def features(self, id: str) -> Features:
        """The stored features of a video: region vectors, times, and which frames say nothing."""
        store = self.store
        catalog = store.catalog()
        return store.features(int(catalog.keys[catalog.row(id)]))

    search = search_library
    explain_hits = explain_hits
    compare = compare_videos

    def duplicates(
        self,
        *,
        threshold: float | None = None,
        since: datetime | None = None,
        progress: Callable[[DuplicateProgress], None] | None = None,
    ) -> DuplicateReport:
        """Find what is there twice: groups of copies, and parts of others; see `hapvr.library.duplicates`.

        Args:
            threshold: strength of a link, above 0 and at most 1; 0.28 if None. Higher is stricter.
            since: only what was added at or after this time, against everything; a time without a zone is local.
            progress: called now and then.
        """
        return find_duplicates(self.store, lambda: self.model, threshold=threshold, since=since, progress=progress)

    # --- writing -----------------------------------------------------------------------------------------------------

    def mark_distinct(self, a: str, b: str) -> bool:
        """Remember that two videos are no duplicates; False if that was known. See `hapvr.library.duplicate_report`."""
        return self._mark(a, b, distinct=True)

    def forget_mark(self, a: str, b: str) -> bool:
        """Take back what `mark_distinct` said; False if it was never said."""
        return self._mark(a, b, distinct=False)

    def _mark(self, a: str, b: str, *, distinct: bool) -> bool:
        with self.writing("hapvr duplicates") as store:
            return set_mark(store, a, b, distinct=distinct)

    def calibrate(
        self,
        *,
        copies: int = 100,
        pairs: int = 10_000,
        seed: int = 0,
        progress: Callable[[CalibrationProgress], None] | None = None,
    ) -> CalibrationReport:
        """Fit what scores mean on the library's own videos; searches use it from then on.

        It takes at least 16 different videos, most of whose files are still there.

        Args:
            copies: edited copies to make, at least 20; all kinds of edit in turn.
            pairs: of different videos to score, at least 200; all, if there are fewer.
            seed: the same seed draws the same videos, pairs and edits.
            progress: called now and then.

        Raises:
            DataError: there are too few videos, too few of their files can be read, too few pairs are without a match,
                or copies do not score higher than such pairs. Nothing is kept then.
        """
        store = self.store
        # Not `model`: the calibration that is there may be damaged.
        report = library_calibration.fit(
            store, lambda: self.base_model, copies=copies, pairs=pairs, seed=seed, progress=progress
        )
        with self.writing("hapvr calibrate") as now:
            if now.settings != store.settings:
                raise StorageError(f"'{self.path}' was rebuilt meanwhile. Calibrate it again.")
            library_calibration.save(now, report.calibration)
        return report

    @contextmanager
    def writing(self, command: str) -> Iterator[Store]:
        """The tables, for nobody else to write within; `StorageError` if another writer does not end in time."""
        lock = WriterLock(self.path)
        lock.acquire(command, wait_s=self.wait_s)
        clean = False
        try:
            self.refresh()
            store = self.store
            creation.clean_up(self.path)
            add_checksums(self.path, [MARKS])
            store.begin(recover=lock.left_behind)
            yield store
            clean = True
        finally:
            lock.release(clean=clean)
            self._seen = time.monotonic()

    def add(
        self,
        paths: Iterable[str | os.PathLike[str]] | str | os.PathLike[str],
        *,
        prune: bool = False,
        retry: bool = False,
        workers: int | None = None,
        progress: Callable[[AddProgress], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> AddReport:
        """Bring the library in step with files and folders: new ones are described, others left as they are.

        Interrupted at any moment, it goes on where it was when called again.

        Args:
            paths: files, and folders with all that is below them. Links to files are files; links to folders are
                followed where they are named here, and not where they lie in a folder.
            prune: forget videos of these folders whose files are gone; else they are kept as "missing". Of those that
                failed nothing is kept in either case.
            retry: try those again that failed before and have not changed. One that could not be opened, as for want of
                permission, is tried again every time.
            workers: decoding processes; by default as many as cores, four at most.
            progress: called after each file.
            stop: asked all the time; True ends it, and what is done by then is kept.
        """
        given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
        found = scan.find_files(given, known=self.store.catalog().paths)
        return self.add_found(found, AddOptions(prune, retry, workers, progress, stop))

    def add_found(self, found: scan.Found, how: AddOptions) -> AddReport:
        """`add`, of files that were found before."""
        with self.writing("hapvr add") as store:
            return adding.add_files(store, lambda: self.model.extractor, found, how)

    def rebuild(
        self,
        *,
        model: str | Path | None = None,
        codec: str | None = None,
        rate: float | None = None,
        prune: bool = False,
        workers: int | None = None,
        progress: Callable[[AddProgress], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> AddReport:
        """Build the library anew with another model, codec or rate, beside the old version, and put it to use.

        Until that is done the old version answers. Interrupted, it goes on where it was when called again with the same
        settings. Videos that cannot be read again are not lost: it then stops before the change, unless `prune`.

        Args:
            model: a model's name or folder; the present one if None.
            codec: the present one if None.
            rate: frames a second; the present one if None, or the model's own if that is another.
            prune: forget videos whose files are gone or cannot be read.
            workers: as in `add`, like the next two.
            progress: ...
            stop: ...
        """
        with self.writing("hapvr add --rebuild") as store:
            how = AddOptions(prune=prune, workers=workers, progress=progress, stop=stop)
            report = creation.rebuild(self.path, store, how, model=model, codec=codec, rate=rate)
        self.refresh()
        return report

    def watch(
        self,
        paths: Iterable[str | os.PathLike[str]],
        *,
        interval_s: float = 5.0,
        prune: bool = False,
        workers: int | None = None,
        progress: Callable[[AddProgress], None] | None = None,
        report: Callable[[AddReport], None] | None = None,
        say: Callable[[str], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> None:
        """Keep the library in step with folders until told to stop.

        Args:
            paths: files and folders.
            interval_s: seconds between two looks.
            prune: as in `add`, like the next two.
            workers: ...
            progress: ...
            report: called whenever something was done.
            say: called with what is in the way for the moment, such as another writer.
            stop: asked all the time.
        """
        how = AddOptions(prune=prune, workers=workers, progress=progress, stop=stop)
        known = self.store.catalog().paths
        scan.watch(paths, self.add_found, how, known=known, interval_s=interval_s, report=report, say=say)

    def remove(self, ids: Sequence[str]) -> int:
        """Forget videos; their files stay. Returns how many there were; `DataError` if one is not there."""
        chosen = dict.fromkeys([ids] if isinstance(ids, str) else ids)
        with self.writing("hapvr remove") as store:
            store.remove(list(chosen))
            store.maintain()
        return len(chosen)

    def compact(self) -> None:
        """Put small files together and remove what is no longer used."""
        with self.writing("hapvr compact") as store:
            store.maintain(thoroughly=True)

    def export(self, file: str | os.PathLike[str], *, progress: Callable[[int, int], None] | None = None) -> int:
        """Write the features and records of all videos into a new HDF5 file; returns how many there were."""
        return transfer.export(self.store, file, progress=progress)

    def import_features(
        self, file: str | os.PathLike[str], *, progress: Callable[[int, int], None] | None = None
    ) -> AddReport:
        """Take in the videos of an HDF5 file that `export` or `hapvr extract` wrote with the same model and rate.

        Videos whose paths are there already are left as they are.
        """
        with self.writing("hapvr import") as store:
            return transfer.import_features(store, file, progress=progress)

    def close(self) -> None:
        """Let go of it."""
        self._store = self._model = None

    def __enter__(self) -> Library:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _measure(path: Path, version: str, store: Store) -> LibraryInfo:
    """What there is in the library at this path, of which this version is in use; see `Library.info`."""
    settings, catalog = store.settings, store.catalog()
    states, totals = catalog.states, _sum_up(catalog)
    building = unfinished_version(path)
    return LibraryInfo(
        path=str(path),
        version=version,
        model=settings.model,
        model_digest=settings.model_digest,
        codec=settings.codec,
        rate=settings.rate,
        videos=int((catalog.keys != NO_KEY).sum()),
        failed=int((states == "failed").sum()),
        missing=int((states == "missing").sum()),
        warned=int(catalog.warned.sum()),
        contents=int(totals["contents"]),
        frames=int(totals["frames"]),
        duration=totals["duration"],
        bytes=_count_bytes(store.folder),
        indexed=store.indexed_vectors(),
        vectors=store.count_vectors(),
        building=None if building is None else read_settings(version_folder(path, building)).model,
        writer=find_holder(path),
        unchecked=store.count_unchecked(),
    )


def _count_bytes(folder: Path) -> int:
    """Bytes of all files below a folder."""
    total = 0
    for here, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(here, name)).st_size
            except OSError:  # removed meanwhile
                continue
    return total


def _sum_up(catalog: Catalog) -> Mapping[str, float]:
    """Totals over what a search looks through."""
    keys = catalog.keys
    here = keys != NO_KEY
    first = np.unique(keys[here], return_index=True)[1]
    duration = np.array(catalog.column("duration"), float)
    return {
        "duration": float(duration[here].sum()),
        "frames": int(catalog.frames[here].sum()),
        "contents": len(first),
    }
