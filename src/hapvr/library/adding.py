"""Update a library from files: find those that are new, changed, moved or gone, and index the new ones.

A file is unchanged if its size and time are; else its content decides, by its hash. Whatever is described is written
in batches, since every commit costs a file and a version of each table, and acknowledged when the batch is written.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from hapvr.errors import StorageError
from hapvr.features import Features
from hapvr.features.cluster_extraction import extract_on_cluster
from hapvr.features.extractor import RegionExtractor
from hapvr.features.video_extraction import (
    ExtractedVideo,
    ExtractStream,
    default_workers,
    extract_stream,
    make_tasks,
)
from hapvr.library.found_files import Found, choose_folders, find_files, is_below, is_gone
from hapvr.library.indexed_folders import IndexRules, read_folders, read_sound_setting, write_folders
from hapvr.library.opening import OpenLibrary
from hapvr.library.results import AddOptions, AddProgress, AddReport, VideoRecord, escape_text, utc_now
from hapvr.library.shared_file import SHARED, update_shared_footage
from hapvr.library.sound import add_sounds
from hapvr.library.store import NewVideo, Store, is_batch
from hapvr.library.tables import NO_KEY
from hapvr.library.text import add_embeddings, choose_text_model
from hapvr.library.text_model import TextModel
from hapvr.storage import HASH_BYTES, StrPath, file_signature, hold_interrupts, is_regular_file
from hapvr.video.frame_tasks import FileEnd, FileTask, read_file

ID_DIGITS = 12  # of the content hash
_BATCH_S = 15.0  # after which what is described is written, however little
_MAINTAIN_EVERY = 64  # batches


def add_videos(
    library: OpenLibrary,
    paths: Iterable[StrPath] | StrPath | None = None,
    *,
    rules: IndexRules | None = None,
    prune: bool = False,
    retry: bool = False,
    workers: int | None = None,
    progress: Callable[[AddProgress], None] | None = None,
    stop: Callable[[], bool] | None = None,
    sound: bool | None = None,
    text_model: TextModel | StrPath | None = None,
    cluster: str | None = None,
) -> AddReport:
    """Update the library from files and folders: new and changed videos are indexed, the others left as they are.

    Folders are remembered, with their rules: without `paths`, all that were ever given are updated. After an
    interruption at any moment, the same call continues where it was.

    Args:
        library: an open one.
        paths: files, and folders with all that is below them. Links to files are files; links to folders are
            followed where they are named here, and not where they lie in a folder. None: the folders that the library
            remembers.
        rules: which files below the folders are indexed; None: as the last time, all of a new folder. Videos that are
            in the library already stay there.
        prune: remove videos of these folders whose files are gone; else they are kept as "missing". Of those that
            failed nothing is kept in either case.
        retry: try those again that failed before and have not changed. One that could not be opened, as for want of
            permission, is tried again every time.
        workers: decoding processes; by default one per usable core, sixteen at most.
        progress: called after each file.
        stop: asked all the time; True ends it, and what is done by then is kept.
        sound: read the sound of all videos of the library too, whose sound is not read yet; it remembers that. None: as
            it remembers, which is no for a new library.
        text_model: describes frames of all videos of the library that it has not described yet, for `search_text`: a
            folder of open_clip, or any `hapvr.library.text_model.TextModel`. The library remembers a folder. None: the
            one that it remembers, if any.
        cluster: a Ray cluster whose nodes read and describe the videos: "local", "auto" or HOST:PORT; the files must be
            at the same paths there. The sound is read here.
    """
    model = None if text_model is None else choose_text_model(library, text_model)
    folders, gone = choose_folders(library, paths, rules)
    found = find_files(folders, known=library.store.catalog().paths, folders=folders)
    options = AddOptions(prune, retry, workers, progress, stop, sound, model, cluster)
    report = add_found(library, found, options, folders)
    return replace(report, warnings=(*((folder, "The folder is not there.") for folder in gone), *report.warnings))


def add_found(library: OpenLibrary, found: Found, options: AddOptions, folders: Mapping[str, IndexRules]) -> AddReport:
    """`add_videos`, of files that were found before."""
    with library.write_access("hapvr add") as store:
        new = {place: rules for place, rules in folders.items() if os.path.isdir(place)}
        write_folders(library.path, read_folders(library.path) | new, sound=options.sound)
        report = add_files(store, lambda: library.base_model.extractor, found, options)
        if not report.stopped and read_sound_setting(library.path):
            report = add_sounds(store, report, options)
        return report if report.stopped else add_embeddings(library, store, report, options)


def add_files(
    store: Store,
    load_extractor: Callable[[], RegionExtractor],
    found: Found,
    options: AddOptions,
    *,
    ids: Mapping[bytes, str] | None = None,
) -> AddReport:
    """Update a store from files, with the lock held; see `add_videos`.

    The extractor is loaded if there is anything to extract. `ids` are what videos were called before, by path: kept
    where the content is still the same.
    """
    run = _Run(store, found, options, ids or {})
    default_workers(options.workers)  # refuses what is no number of them
    try:
        run.find_changed()
        if run.todo:
            run.extract(load_extractor())
    except KeyboardInterrupt:  # Ctrl-C, or SIGTERM where the command line made it one
        run.flush()  # what is described need not be described again
        raise
    run.flush()
    if not run.stopped:
        run.handle_gone()
    store.remove_unused(run.replaced)
    store.maintain()
    update_shared_footage(store)
    return run.make_report()


def choose_id(wanted: str, taken: set[str]) -> str:
    """An id that nobody has, which is added to those taken: the wanted one, or its beginning with "-2", "-3", ...

    >>> taken = {"3f2a", "3f2a-2"}
    >>> choose_id("3f2a", taken), choose_id("b7", taken), sorted(taken)
    ('3f2a-3', 'b7', ['3f2a', '3f2a-2', '3f2a-3', 'b7'])
    """
    id, number = wanted, 1
    while id in taken:
        number += 1
        id = f"{wanted.partition('-')[0]}-{number}"
    taken.add(id)
    return id


class _Run:
    """The files of one `add`, and what becomes of them."""

    def __init__(self, store: Store, found: Found, options: AddOptions, ids: Mapping[bytes, str]) -> None:
        self._store, self._found, self._options, self._old_ids = store, found, options, ids
        self._started = time.monotonic()
        self._counts: Counter[str] = Counter()  # by the names of AddReport
        self._failed: list[tuple[str, str]] = []
        self._warnings: list[tuple[str, str]] = []
        self.todo: list[bytes] = []
        self.stopped = False
        self._catalog = catalog = store.catalog()  # as it was at the beginning
        self._row = {path: row for row, path in enumerate(catalog.paths)}
        self._taken = set(catalog.ids)
        sizes, self._hashes = catalog.column("size"), catalog.column("content_hash")
        self._signatures = list(zip(sizes, catalog.column("mtime_ns"), strict=True))
        self._states = catalog.column("state")
        self._keys: dict[str, int] = {}  # of contents, by hash
        self._by_size: dict[int, set[str]] = {}  # hashes
        self._owners: dict[str, list[int]] = {}  # rows of a content
        self._gone: dict[str, list[int]] = {}  # of these, those whose file is gone: it may turn out to have moved
        self._displaced: dict[str, list[int]] = {}  # rows of a content whose file has another one by now
        for row, (size, hash, key) in enumerate(zip(sizes, self._hashes, catalog.keys.tolist(), strict=True)):
            if key != NO_KEY:
                self._remember(hash, size, key)
                self._owners.setdefault(hash, []).append(row)
        # Contents whose records were replaced. They are removed at the end: the next file may have just this content.
        self.replaced: list[int] = []
        # Contents from which on shared footage is found before the end: where none is kept, each process that searches
        # looks for it after each batch.
        self._next_shared = 2 * len(self._keys) if (store.folder / SHARED).exists() else 0
        self._batches = 0
        self._pending: list[NewVideo] = []
        self._pending_bytes = 0
        self._pending_since = 0.0
        self._moved: list[str] = []

    def _remember(self, hash: str, size: int, key: int) -> None:
        self._keys.setdefault(hash, key)
        self._by_size.setdefault(size, set()).add(hash)

    def find_changed(self) -> None:
        """Find by size and time which files are to be read."""
        for path in self._found.files:
            row = self._row.get(path)
            failed = row is not None and self._states[row] == "failed"
            if row is None or self._signatures[row] != file_signature(path) or (failed and self._options.retry):
                self.todo.append(path)
            else:
                self._counts.update(unchanged=1, still_failed=int(failed))
                if self._states[row] == "missing":  # it is back
                    record = replace(self._catalog.record(row), state="ready")
                    self._add_pending(NewVideo(record, int(self._catalog.keys[row])))
        self._report_progress(None)

    # --- extracting --------------------------------------------------------------------------------------------------

    def extract(self, extractor: RegionExtractor) -> None:
        """Read the files and keep what comes of them."""
        is_stopped = self._options.stop or (lambda: False)
        count = 0
        cluster, workers = self._options.cluster, self._options.workers
        tasks = self._make_tasks(extractor, default_workers(workers))
        stream: ExtractStream = extract_stream if cluster is None else partial(extract_on_cluster, cluster)
        for video in stream(extractor, tasks, workers=workers, work=read_file, stop=is_stopped):
            path = self.todo[int(video.id)]
            self._handle(path, video)
            count += 1
            self._report_progress(path)
            overdue = time.monotonic() - self._pending_since > _BATCH_S
            if self._pending and (overdue or is_batch(len(self._pending), self._pending_bytes)):
                self.flush()
            if is_stopped():
                break
        self.stopped = count < len(self.todo)

    def _make_tasks(self, extractor: RegionExtractor, workers: int) -> Iterator[tuple[str, FileTask]]:
        files = {str(number): os.fsdecode(path) for number, path in enumerate(self.todo)}
        tasks = make_tasks(
            files,
            extractor.sampling,
            workers=workers,
            crop=extractor.sampling.crop,
            miniatures=True,
            keyframes=self._store.settings.keyframes,
        )
        for id, video in tasks:
            known = frozenset(self._by_size.get(file_signature(video.path)[0], ()))
            yield id, FileTask(video, known, self._found.min_seconds.get(os.fsencode(video.path), 0.0))

    def _handle(self, path: bytes, video: ExtractedVideo) -> None:
        end: FileEnd = video.note or FileEnd(*file_signature(path), None, error=video.error)
        if end.too_short:
            self._counts.update(excluded=1)
            return
        reason, hash = video.error or end.error, end.content_hash
        row = self._row.get(path)
        if row is not None and self._catalog.keys[row] != NO_KEY and hash not in (None, self._hashes[row]):
            self._displaced.setdefault(self._hashes[row], []).append(row)
        if reason is None and hash is not None and hash in self._keys:
            self._add_known(path, end, hash)
        elif reason is None and hash is not None and video.features is not None and end.video is not None:
            self._add_new(path, end, hash, video.features)
        else:
            # A file that could not even be opened does not look different when it can be: it is tried every time.
            if video.note is not None and hash is None and is_regular_file(os.fsdecode(path)):
                end = replace(end, mtime_ns=-1)
            self._add_failed(path, end, escape_text(reason or "it has no frames."))

    def _add_new(self, path: bytes, end: FileEnd, hash: str, features: Features) -> None:
        assert end.video is not None
        duration = end.video.duration_s or 0.0
        width, height = end.video.source_size or (0, 0)
        record = VideoRecord(
            id=self._choose_id(path, hash),
            path=os.fsdecode(path),
            size=end.size,
            mtime_ns=end.mtime_ns,
            content_hash=hash,
            duration=duration,
            frames=len(features),
            width=width,
            height=height,
            bitrate=end.size * 8 / duration if duration > 0 else 0.0,
            warnings=end.video.warnings,
        )
        key = self._store.new_key()
        self._remember(hash, end.size, key)
        self._counts.update({"updated" if path in self._row else "added": 1, "frames": len(features)})
        self._warnings += [(record.path, text) for text in record.warnings]
        self._add_pending(NewVideo(record, key, features))

    def _add_known(self, path: bytes, end: FileEnd, hash: str) -> None:
        """A content that is there: the file was touched, moved, or is a copy."""
        row, owners = self._row.get(path), self._owners.get(hash, [])
        if row is not None and row in owners:
            self._counts.update(unchanged=1)
            record = self._catalog.record(row)
        elif left := self._find_left(hash, owners):
            record = self._catalog.record(left.pop(0))
            self._counts.update(moved=1)
            self._moved.append(record.id)
        else:
            record = replace(self._find_record(hash), id=self._choose_id(path, hash), added=utc_now())
            self._counts.update({"added" if row is None else "updated": 1})
            self._warnings += [(os.fsdecode(path), text) for text in record.warnings]
        record = replace(record, path=os.fsdecode(path), size=end.size, mtime_ns=end.mtime_ns, state="ready")
        self._add_pending(NewVideo(record, self._keys[hash]))

    def _find_left(self, hash: str, owners: list[int]) -> list[int] | None:
        """The rows of a content whose files are gone or have another content: one of them may have moved."""
        if hash not in self._gone:  # looked up once: there may be very many copies
            self._gone[hash] = [owner for owner in owners if is_gone(self._catalog.paths[owner])]
        return self._gone[hash] or self._displaced.get(hash)

    def _find_record(self, hash: str) -> VideoRecord:
        """A record of this content."""
        for video in self._pending:
            if video.record.content_hash == hash:
                return video.record
        catalog = self._store.catalog()
        rows = catalog.with_key(self._keys[hash])
        if not rows:
            raise StorageError("A content that was there has gone: is somebody else writing?")
        return catalog.record(rows[0])

    def _add_failed(self, path: bytes, end: FileEnd, reason: str) -> None:
        self._failed.append((os.fsdecode(path), reason))
        row = self._row.get(path)
        if end.content_hash is None and row is not None and self._states[row] != "failed":
            return  # it cannot be looked at just now: what is known of it may still be true
        hash = end.content_hash or hashlib.blake2b(path, digest_size=HASH_BYTES).hexdigest()
        id = self._choose_id(path, hash)
        record = VideoRecord(id, os.fsdecode(path), end.size, end.mtime_ns, hash, state="failed", error=reason)
        self._add_pending(NewVideo(record))

    def _choose_id(self, path: bytes, hash: str) -> str:
        row, beginning = self._row.get(path), hash[:ID_DIGITS]
        if row is not None and self._catalog.ids[row].partition("-")[0] == beginning:
            return self._catalog.ids[row]
        old = self._old_ids.get(path, beginning)
        return choose_id(old if old.partition("-")[0] == beginning else beginning, self._taken)

    # --- writing -----------------------------------------------------------------------------------------------------

    def _add_pending(self, video: NewVideo) -> None:
        if not self._pending:
            self._pending_since = time.monotonic()
        self._pending.append(video)
        self._pending_bytes += 0 if video.features is None else video.features.regions.nbytes

    def flush(self) -> None:
        """Write what there is."""
        pending, moved = self._pending, self._moved
        self._pending, self._moved, self._pending_bytes = [], [], 0  # before: what fails half-way is not written twice
        if not pending:
            return
        with hold_interrupts():
            self.replaced += self._store.write(pending, moved=moved)
        self._batches += 1
        if self._batches % _MAINTAIN_EVERY == 0:
            self._store.maintain()
        if len(self._keys) >= self._next_shared:
            update_shared_footage(self._store)
            self._next_shared = 2 * len(self._keys)

    def handle_gone(self) -> None:
        """Mark the records of files below the roots that are no longer there, or remove them: failed ones always."""
        here, roots = set(self._found.files), self._found.roots
        catalog = self._store.catalog()
        removed: list[int] = []
        missing: list[int] = []
        for row, path in enumerate(catalog.paths):
            if path in here or not any(path == root or is_below(path, root) for root in roots) or not is_gone(path):
                continue
            # A folder that is empty or not there is more often a disk that is not mounted than a wish to remove.
            unmounted = any(is_below(path, folder) for folder in self._found.empty)
            # Of failed ones there is nothing to keep.
            remove = (self._options.prune and not unmounted) or catalog.states[row] == "failed"
            (removed if remove else missing).append(row)
        records = zip(missing, catalog.records(missing), strict=True)
        self._store.put_records(
            [(replace(one, state="missing"), int(catalog.keys[row])) for row, one in records if one.state == "ready"]
        )
        self._store.remove([catalog.ids[row] for row in removed])
        self._counts.update(missing=len(missing), removed=len(removed))

    # --- reporting ---------------------------------------------------------------------------------------------------

    def _report_progress(self, path: bytes | None) -> None:
        if self._options.progress is None:
            return
        counts, failed = self._counts, len(self._failed)
        described = counts["added"] + counts["updated"]
        self._options.progress(
            AddProgress(
                done=described + counts["moved"] + counts["unchanged"] + counts["excluded"] + failed,
                total=len(self._found.files),
                added=described,
                failed=failed,
                unchanged=counts["unchanged"],
                frames=counts["frames"],
                seconds=time.monotonic() - self._started,
                current=None if path is None else os.fsdecode(path),
            )
        )

    def make_report(self) -> AddReport:
        """What became of every file."""
        self._counts.update(excluded=self._found.excluded)
        return AddReport(
            **self._counts,
            failed=tuple(self._failed),
            skipped=self._found.skipped,
            linked=self._found.linked,
            warnings=tuple(self._warnings),
            stopped=self.stopped,
            seconds=time.monotonic() - self._started,
        )
