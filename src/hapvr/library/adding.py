"""Bringing a library in step with files: which are new, changed, moved or gone, and describing those that are new.

A file is unchanged if its size and time are; else its content decides, by its hash. Whatever is described is written
in batches, since every commit costs a file and a version of each table, and acknowledged when the batch is written.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timezone

from hapvr.errors import StorageError
from hapvr.features import Features
from hapvr.features.extractor import RegionExtractor
from hapvr.features.video_extraction import ExtractedVideo, default_workers, extract_stream, make_tasks
from hapvr.library.results import AddOptions, AddProgress, AddReport, VideoRecord, escape_text
from hapvr.library.scan import Found, is_below, is_gone
from hapvr.library.store import NewVideo, Store, is_batch
from hapvr.library.tables import NO_KEY
from hapvr.storage import HASH_BYTES, file_signature, is_regular_file, uninterrupted
from hapvr.video.frame_tasks import FileEnd, FileTask, read_file

ID_DIGITS = 12  # of the content hash
_BATCH_S = 15.0  # after which what is described is written, however little
_MAINTAIN_EVERY = 64  # batches


def add_files(
    store: Store,
    extractor: Callable[[], RegionExtractor],
    found: Found,
    how: AddOptions,
    *,
    ids: Mapping[bytes, str] | None = None,
) -> AddReport:
    """Bring a store in step with files, with the lock held; see `Library.add`.

    Args:
        store: where to write; `Store.begin` has been called.
        extractor: gives what describes them; called if there is anything to describe.
        found: the files.
        how: what the caller wants.
        ids: what videos were called before, by path; kept where the content is still the same.
    """
    run = _Run(store, found, how, ids or {})
    workers = default_workers(how.workers)
    try:
        run.look()
        if run.todo:
            run.describe(extractor(), workers)
    except KeyboardInterrupt:  # Ctrl-C, or SIGTERM where the command line made it one
        run.flush()  # what is described need not be described again
        raise
    run.flush()
    if not run.stopped:
        run.vanished()
    store.forget(run.replaced)
    store.maintain()
    return run.report()


class _Run:
    """The files of one `add`, and what becomes of them."""

    def __init__(self, store: Store, found: Found, how: AddOptions, ids: Mapping[bytes, str]) -> None:
        self._store, self._found, self._how, self._ids = store, found, how, ids
        self._start = time.monotonic()
        self._report = AddReport(skipped=found.skipped, linked=found.linked)
        self.todo: list[bytes] = []
        self.stopped = False
        catalog = store.catalog()
        self._records = catalog
        self._row = {path: row for row, path in enumerate(catalog.paths)}
        self._taken = set(catalog.ids)
        sizes, hashes = catalog.column("size"), catalog.column("content_hash")
        self._signatures = list(zip(sizes, catalog.column("mtime_ns"), strict=True))
        self._states = catalog.column("state")
        self._keys: dict[str, int] = {}  # of contents, by hash
        self._by_size: dict[int, set[str]] = {}
        self._owners: dict[str, list[int]] = {}  # rows of a content
        self._hashes = hashes
        self._displaced: dict[str, list[int]] = {}  # rows of a content whose file has another one by now
        self._gone: dict[str, list[int]] = {}  # of these, those whose file is gone: it may turn out to have moved
        for row, (size, hash, key) in enumerate(zip(sizes, hashes, catalog.keys.tolist(), strict=True)):
            if key != NO_KEY:
                self._known(hash, size, key)
                self._owners.setdefault(hash, []).append(row)
        # Contents whose records were replaced. They are forgotten at the end: the next file may have just this content.
        self.replaced: list[int] = []
        self._batches = 0
        self._pending: list[NewVideo] = []
        self._moved: list[str] = []
        self._pending_bytes = 0
        self._pending_since = 0.0
        self._failed: list[tuple[str, str]] = []
        self._warnings: list[tuple[str, str]] = []

    def _known(self, hash: str, size: int, key: int) -> None:
        self._keys.setdefault(hash, key)
        self._by_size.setdefault(size, set()).add(hash)

    # --- looking -----------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Tell by size and time which files are to be read."""
        for path in self._found.files:
            row = self._row.get(path)
            failed = row is not None and self._states[row] == "failed"
            if row is None or self._signatures[row] != file_signature(path) or (failed and self._how.retry):
                self.todo.append(path)
            else:
                self._count(unchanged=1, still_failed=int(failed))
                if self._states[row] == "missing":  # it is back
                    record = replace(self._records.record(row), state="ready")
                    self._keep(NewVideo(record, int(self._records.keys[row])))
        self._tell(None)

    def _tasks(self, extractor: RegionExtractor, workers: int) -> Iterator[tuple[str, FileTask]]:
        files = {str(number): os.fsdecode(path) for number, path in enumerate(self.todo)}
        settings = {"crop": extractor.sampling.crop, "miniatures": True}
        for id, video in make_tasks(files, extractor.sampling, workers=workers, **settings):
            known = frozenset(self._by_size.get(file_signature(video.path)[0], ()))
            yield id, FileTask(video, known)

    # --- describing --------------------------------------------------------------------------------------------------

    def describe(self, extractor: RegionExtractor, workers: int) -> None:
        """Read the files and keep what comes of them."""
        asked = self._how.stop or (lambda: False)
        count = 0
        tasks = self._tasks(extractor, workers)
        for video in extract_stream(extractor, tasks, workers=workers, work=read_file, stop=asked):
            path = self.todo[int(video.id)]
            self._take(path, video)
            count += 1
            self._tell(path)
            self._flush_if_due()
            if asked():
                break
        self.stopped = count < len(self.todo)

    def _take(self, path: bytes, video: ExtractedVideo) -> None:
        end: FileEnd = video.note or FileEnd(*file_signature(path), None, error=video.error)
        reason = video.error or end.error
        row = self._row.get(path)
        if row is not None and self._records.keys[row] != NO_KEY and end.content_hash not in (None, self._hashes[row]):
            self._displaced.setdefault(self._hashes[row], []).append(row)
        if reason is None and end.content_hash is not None and end.content_hash in self._keys:
            self._take_known(path, end, end.content_hash)
        elif reason is None and video.features is not None and end.video is not None and end.content_hash is not None:
            self._take_new(path, end, end.content_hash, video.features)
        else:
            # A file that could not even be opened does not look different when it can be: it is tried every time.
            if video.note is not None and end.content_hash is None and is_regular_file(os.fsdecode(path)):
                end = replace(end, mtime_ns=-1)
            self._take_failed(path, end, reason or "it has no frames.")

    def _take_new(self, path: bytes, end: FileEnd, hash: str, features: Features) -> None:
        assert end.video is not None
        duration = end.video.duration_s or 0.0
        width, height = end.video.source_size or (0, 0)
        record = VideoRecord(
            id=self._new_id(path, hash),
            path=os.fsdecode(path),
            size=end.size,
            mtime_ns=end.mtime_ns,
            content_hash=hash,
            duration=duration,
            frames=len(features),
            width=width,
            height=height,
            bitrate=end.size * 8 / duration if duration > 0 else 0.0,
            state="ready",
            error=None,
            added=_now(),
            warnings=end.video.warnings,
        )
        key = self._store.new_key()
        self._known(hash, end.size, key)
        self._count(**{"updated" if path in self._row else "added": 1}, frames=len(features))
        self._warnings += [(record.path, text) for text in record.warnings]
        self._keep(NewVideo(record, key, features))

    def _take_known(self, path: bytes, end: FileEnd, hash: str) -> None:
        """A content that is there: the file was touched, moved, or is a copy."""
        row = self._row.get(path)
        change = {"path": os.fsdecode(path), "size": end.size, "mtime_ns": end.mtime_ns, "state": "ready"}
        owners = self._owners.get(hash, [])
        if row is not None and row in owners:
            self._count(unchanged=1)
            self._keep(NewVideo(replace(self._records.record(row), **change), self._keys[hash]))  # type: ignore[arg-type]
            return
        if hash not in self._gone:  # looked up once: there may be very many copies
            self._gone[hash] = [owner for owner in owners if is_gone(self._records.paths[owner])]
        left = self._gone[hash] or self._displaced.get(hash)
        if left:
            record = self._records.record(left.pop(0))
            self._count(moved=1)
            self._moved.append(record.id)
            self._keep(NewVideo(replace(record, **change), self._keys[hash]))  # type: ignore[arg-type]
            return
        like = self._like(hash)
        record = replace(like, **change, id=self._new_id(path, hash), added=_now())  # type: ignore[arg-type]
        self._count(**{"added" if row is None else "updated": 1})
        self._warnings += [(record.path, text) for text in record.warnings]
        self._keep(NewVideo(record, self._keys[hash]))

    def _like(self, hash: str) -> VideoRecord:
        """A record of this content."""
        for video in self._pending:
            if video.record.content_hash == hash:
                return video.record
        catalog = self._store.catalog()
        rows = catalog.with_key(self._keys[hash])
        if not rows:
            raise StorageError("A content that was there has gone: is somebody else writing?")
        return catalog.record(rows[0])

    def _take_failed(self, path: bytes, end: FileEnd, reason: str) -> None:
        shown_reason = escape_text(reason)
        self._failed.append((os.fsdecode(path), shown_reason))
        row = self._row.get(path)
        if end.content_hash is None and row is not None and self._states[row] != "failed":
            return  # it cannot be looked at just now: what is known of it may still be true
        hash = end.content_hash or hashlib.blake2b(path, digest_size=HASH_BYTES).hexdigest()
        record = VideoRecord(
            id=self._new_id(path, hash),
            path=os.fsdecode(path),
            size=end.size,
            mtime_ns=end.mtime_ns,
            content_hash=hash,
            duration=0.0,
            frames=0,
            width=0,
            height=0,
            bitrate=0.0,
            state="failed",
            error=shown_reason,
            added=_now(),
        )
        self._keep(NewVideo(record))

    def _new_id(self, path: bytes, hash: str) -> str:
        row = self._row.get(path)
        beginning = hash[:ID_DIGITS]
        if row is not None and self._records.ids[row].partition("-")[0] == beginning:
            return self._records.ids[row]
        id, number = self._ids.get(path, beginning), 1
        if id.partition("-")[0] != beginning:  # it had another content
            id = beginning
        while id in self._taken:
            number += 1
            id = f"{beginning}-{number}"
        self._taken.add(id)
        return id

    # --- writing -----------------------------------------------------------------------------------------------------

    def _keep(self, video: NewVideo) -> None:
        if not self._pending:
            self._pending_since = time.monotonic()
        self._pending.append(video)
        self._pending_bytes += 0 if video.features is None else video.features.regions.nbytes

    def _flush_if_due(self) -> None:
        due = time.monotonic() - self._pending_since > _BATCH_S
        if self._pending and (due or is_batch(len(self._pending), self._pending_bytes)):
            self.flush()

    def flush(self) -> None:
        """Write what there is."""
        pending, moved = self._pending, self._moved
        self._pending, self._moved, self._pending_bytes = [], [], 0  # before: what fails half-way is not written twice
        if not pending:
            return
        with uninterrupted():
            self.replaced += self._store.write(pending, moved=moved)
        self._batches += 1
        if self._batches % _MAINTAIN_EVERY == 0:
            self._store.maintain()

    def vanished(self) -> None:
        """Mark the records of files below the roots that are no longer there, or forget them: failed ones always."""
        here = set(self._found.files)
        catalog = self._store.catalog()
        states = catalog.states
        gone = [
            row for row, path in enumerate(catalog.paths) if path not in here and self._given(path) and is_gone(path)
        ]
        # A folder that is empty or not there is more often a disk that is not mounted than a wish to forget.
        prune, empty = self._how.prune, self._found.empty
        kept = [row for row in gone if not prune or any(is_below(catalog.paths[row], one) for one in empty)]
        forgotten = sorted(set(gone).difference(kept))
        failed = [row for row in kept if states[row] == "failed"]
        missing = [row for row in kept if states[row] != "failed"]
        records = [(row, record) for row, record in zip(missing, catalog.records(missing), strict=True)]
        self._store.put(
            [(replace(one, state="missing"), int(catalog.keys[row])) for row, one in records if one.state == "ready"]
        )
        forgotten += failed  # there is nothing of them to keep
        self._store.remove([catalog.ids[row] for row in forgotten])
        self._count(missing=len(missing), forgotten=len(forgotten))

    def _given(self, path: bytes) -> bool:
        return any(path == root or is_below(path, root) for root in self._found.roots)

    # --- reporting ---------------------------------------------------------------------------------------------------

    def _count(self, **counts: int) -> None:
        self._report = replace(
            self._report, **{name: getattr(self._report, name) + count for name, count in counts.items()}
        )

    def _tell(self, path: bytes | None) -> None:
        if self._how.progress is None:
            return
        now, failed = self._report, len(self._failed)
        described = now.added + now.updated
        self._how.progress(
            AddProgress(
                done=described + now.moved + now.unchanged + failed,
                total=len(self._found.files),
                added=described,
                failed=failed,
                unchanged=now.unchanged,
                frames=now.frames,
                seconds=time.monotonic() - self._start,
                current=None if path is None else os.fsdecode(path),
            )
        )

    def report(self) -> AddReport:
        """What became of every file."""
        return replace(
            self._report,
            failed=tuple(self._failed),
            warnings=tuple(self._warnings),
            stopped=self.stopped,
            seconds=time.monotonic() - self._start,
        )


def _now() -> datetime:
    return datetime.now(timezone.utc)
