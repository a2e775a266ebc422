"""Watching folders for matches: each new file is searched in a library, once, and what is found is reported.

Which files are done is kept in a record of lines, so that a watch that is started again reports only what it has not
reported before. A line is added after its file was reported: a watch that is killed in between reports it again.
"""

from __future__ import annotations

import bisect
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from hapvr.errors import BusyError, ConfigError, DataError, DecodeError, StorageError
from hapvr.features.video_extraction import default_workers
from hapvr.library.adding import add_found
from hapvr.library.found_files import Found, choose_folders
from hapvr.library.indexed_folders import IndexRules
from hapvr.library.opening import OpenLibrary
from hapvr.library.queries import read_query
from hapvr.library.results import AddOptions, SearchResult, VideoRecord, display_path, escape_text, utc_now
from hapvr.library.search import require_search_options, search_library
from hapvr.library.watch import FolderScan, Signatures, wait_for
from hapvr.places import require_local
from hapvr.storage import StrPath, write_bytes

RECORD = "watched.jsonl"
"""Where a library's watch keeps which files it has reported, if nothing else is asked for."""
_HEADER = {"kind": "hapvr watch", "format": 1}
_ADDED_AT_A_TIME = 16  # files, before they are searched


@dataclass(frozen=True)
class FileEvent:
    """What became of a new file; or a warning about the folders or the library."""

    kind: Literal["match", "no match", "failed", "warning"]
    path: str = ""
    result: SearchResult | None = None  # None if it could not be read
    text: str = ""  # of a warning, or why the file could not be read
    time: datetime = field(default_factory=utc_now)

    def to_json(self) -> dict[str, Any]:
        """A line of `hapvr watch --against --json`; hits that are no match are left out."""
        plain: dict[str, Any] = {"event": self.kind, "time": self.time.isoformat(timespec="seconds")}
        if self.path:
            plain["path"] = display_path(self.path)
        if self.result is not None:
            plain["matches"] = [hit.to_json() for hit in self.result.matches]
            plain["sound_hits"] = [hit.to_json() for hit in self.result.sound_hits]
            plain["warnings"] = list(self.result.warnings)
        if self.text:
            plain["text"] = self.text
        return plain


def watch_matches(
    library: OpenLibrary,
    paths: Iterable[StrPath] | None = None,
    *,
    rules: IndexRules | None = None,
    add: bool = False,
    record: StrPath | None = None,
    k: int = 10,
    min_probability: float | None = None,
    interval_s: float = 5.0,
    workers: int | None = None,
    stop: Callable[[], bool] | None = None,
) -> Iterator[FileEvent]:
    """Search each new file of folders in the library, and give an event for it, until asked to stop.

    New is what the library does not know and no watch with the same record has reported: also files that were there
    before the watch began. A file that has changed is new. It counts as reported when the next event is asked for.

    Args:
        library: an open one. It is only read, unless `add`.
        paths: files and folders; None: the folders that the library remembers.
        rules: as in `add`.
        add: add each file to the library, and search it then: what comes later is compared with it too.
        record: the file that says what was reported; `watched.jsonl` in the library's folder if None.
        k: matches of a file at most.
        min_probability: matches with a lower probability of a copy are not reported.
        interval_s: seconds between two looks at the folders.
        workers: decoding processes, of `add`.
        stop: asked all the time.

    Raises:
        ConfigError: a path is not there at the beginning.
        StorageError: the record cannot be read or written.
    """
    require_search_options(k, min_probability=min_probability)
    is_stopped = stop or (lambda: False)
    folders, _ = choose_folders(library, paths, rules)
    scan = FolderScan(library, folders, interval_s=interval_s)
    if record is None:
        record = require_local(library.path, "A watch without --record") / RECORD
    reported = WatchRecord(record)
    model = library.model  # an error of the library is none of its files
    del model
    watch = _MatchWatch(
        library, folders, reported, is_stopped, k, min_probability, AddOptions(workers=default_workers(workers))
    )
    said = ""
    while not is_stopped():
        trouble = ""
        try:
            found, settled = scan.find_settled()
            new = watch.choose_new(settled)
            parts = [new[i : i + _ADDED_AT_A_TIME] for i in range(0, len(new), _ADDED_AT_A_TIME)]
            for part in parts:
                yield from watch.add_and_search(found, part, settled) if add else watch.search(found, part, settled)
        except (BusyError, ConfigError) as error:  # another writer, or a folder that is not there just now
            trouble = str(error)
        if trouble and trouble != said:
            yield FileEvent("warning", text=escape_text(trouble))
        said = trouble
        wait_for(interval_s, is_stopped)


@dataclass
class _MatchWatch:
    """One watch: the library, and what was reported."""

    library: OpenLibrary
    folders: Mapping[str, IndexRules]
    reported: WatchRecord
    is_stopped: Callable[[], bool]
    k: int
    min_probability: float | None
    options: AddOptions
    known: Signatures = field(default_factory=dict)  # files that the library had before

    def choose_new(self, settled: Signatures) -> list[bytes]:
        """The files that are neither reported nor known to the library."""
        new = []
        for path, signature in settled.items():
            if self.reported.done.get(path) == signature or self.known.get(path) == signature:
                continue
            found = self._find(path)
            # One that was being added when the watch was killed is known, and was not reported.
            begun = self.reported.begun.get(path) == signature
            if found is not None and (found.size, found.mtime_ns) == signature and not begun:
                self.known[path] = signature
            else:
                new.append(path)
        return new

    def search(self, found: Found, paths: Sequence[bytes], signatures: Signatures) -> Iterator[FileEvent]:
        """An event for each file, by what can be read of it."""
        for path in paths:
            if self.is_stopped():
                return
            name = os.fsdecode(path)
            try:
                query = read_query(self.library.store, self.library.model, name)
                too_short = query.duration_s is not None and query.duration_s < found.min_seconds.get(path, 0.0)
                if not too_short:
                    yield self._search(name, query)
            except (DataError, DecodeError) as error:
                if not os.path.lexists(path):
                    continue  # it went away
                yield FileEvent("failed", name, text=escape_text(str(error)))
            self.reported.finish(path, signatures[path])

    def add_and_search(self, found: Found, paths: Sequence[bytes], signatures: Signatures) -> Iterator[FileEvent]:
        """The same, of files that are added first; what is stored of them is searched."""
        if self.is_stopped():
            return
        for path in paths:
            self.reported.begin(path, signatures[path])
        options = replace(self.options, stop=self.is_stopped)
        report = add_found(self.library, replace(found, files=list(paths)), options, self.folders)
        self.library.refresh()
        failed = dict(report.failed)
        for path in paths:
            if self.is_stopped():
                return
            name, record = os.fsdecode(path), self._find(path)
            if name in failed:
                yield FileEvent("failed", name, text=escape_text(failed[name]))
            elif record is not None and record.state == "failed":
                yield FileEvent("failed", name, text=escape_text(str(record.error)))
            elif record is not None:
                yield self._search(name, record.id)
            elif report.stopped:
                return
            self.reported.finish(path, signatures[path])  # a video that the rules leave out is done as well

    def _search(self, path: str, query: Any) -> FileEvent:
        result = search_library(self.library, query, k=self.k, min_probability=self.min_probability)
        return FileEvent("match" if result.matches or result.sound_hits else "no match", path, result)

    def _find(self, path: bytes) -> VideoRecord | None:
        """What the library has of a file."""
        catalog = self.library.store.catalog()
        row = bisect.bisect_left(catalog.paths, path)
        return catalog.record(row) if row < len(catalog) and catalog.paths[row] == path else None


class WatchRecord:
    """Which files were begun and which are done, with their sizes and times; a line of JSON for each.

    A line that was cut off, as by a full disk, does not count. `StorageError` for a file that is no such record.
    """

    def __init__(self, path: StrPath) -> None:
        self._path = Path(path)
        self.begun: Signatures = {}
        self.done: Signatures = {}
        if not os.path.lexists(path):
            write_bytes(
                path,
                json.dumps(_HEADER).encode() + b"\n",
                hint="It keeps which files were reported: name another file by --record.",
            )
            return
        try:
            header, *lines = self._path.read_bytes().split(b"\n")
        except OSError as error:
            raise StorageError(f"'{display_path(path)}' cannot be read: {error.strerror}.") from error
        if _parse(header) != _HEADER:
            raise StorageError(
                f"'{display_path(path)}' is no record of `hapvr watch --against` that this hapvr reads. Name another "
                "file by --record; it is made if it is not there."
            )
        for line in lines:
            content = _parse(line)
            try:
                place, signature = os.fsencode(content["path"]), (int(content["size"]), int(content["mtime_ns"]))
                (self.done if content["done"] else self.begun)[place] = signature
            except (KeyError, TypeError, ValueError):
                continue
        if lines[-1:] != [b""]:
            self._append(b"\n")

    def begin(self, path: bytes, signature: tuple[int, int]) -> None:
        """A file is going to be added."""
        if self.begun.get(path) != signature:
            self._write(path, signature, done=False)
            self.begun[path] = signature

    def finish(self, path: bytes, signature: tuple[int, int]) -> None:
        """A file was reported, or is not to be."""
        self._write(path, signature, done=True)
        self.done[path] = signature

    def _write(self, path: bytes, signature: tuple[int, int], *, done: bool) -> None:
        size, mtime_ns = signature
        line = {"path": os.fsdecode(path), "size": size, "mtime_ns": mtime_ns, "done": done}
        self._append(json.dumps(line).encode() + b"\n")

    def _append(self, data: bytes) -> None:
        try:
            with open(self._path, "ab") as file:
                file.write(data)
        except OSError as error:
            raise StorageError(f"'{display_path(self._path)}' cannot be written: {error.strerror}.") from error


def _parse(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


class EventCounter:
    """How many files a watch has looked at."""

    def __init__(self) -> None:
        self._kinds: Counter[str] = Counter()

    def add(self, event: FileEvent) -> None:
        """Count an event; warnings are none of a file."""
        self._kinds[event.kind] += 1

    def to_json(self) -> dict[str, int]:
        """Files, and how many of them matched or could not be read.

        >>> counter = EventCounter()
        >>> for kind in ("match", "failed", "no match", "match", "warning"):
        ...     counter.add(FileEvent(kind))
        >>> counter.to_json()
        {'files': 4, 'matched': 2, 'failed': 1}
        """
        kinds = self._kinds
        files = kinds["match"] + kinds["no match"] + kinds["failed"]
        return {"files": files, "matched": kinds["match"], "failed": kinds["failed"]}
