"""One version of a library on disk: tables in LanceDB (`hapvr.library.table_set`), read by many and written by one.

Each commit of a table is atomic; they are kept in step by the order of the commits (see `hapvr.library.tables`)
and by `recover`, which removes what a writer that was killed had begun. Readers have a moment's view; `refresh` brings
them to the latest. What is read is checked (see `hapvr.library.checksums`).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from torch import Tensor

from hapvr.errors import StorageError
from hapvr.features import Features
from hapvr.library import tables
from hapvr.library.candidate_index import CandidateIndex, FrameTable, find_vectors, open_collection
from hapvr.library.candidates import NEIGHBOURS, Finds
from hapvr.library.checksums import REMEDY
from hapvr.library.codecs import get_codec
from hapvr.library.results import VideoRecord, display_path
from hapvr.library.side_tables import EmbeddingTable, SoundTable
from hapvr.library.table_set import TableSet, join_keys, list_rows, split_filter
from hapvr.library.tables import (
    EMBEDDINGS,
    NO_KEY,
    REGIONS,
    SOUNDS,
    TABLES,
    VIDEOS,
    Catalog,
    StoredContent,
)
from hapvr.library.versions import (
    EMBEDDED,
    Settings,
    read_settings,
    write_settings,
)
from hapvr.places import Place
from hapvr.workers.threads import torch_thread_pool

_IN_ONE_READ = 64  # contents
_LOOKS = 3  # at records and index, until they agree: somebody may be writing
_KEY_GAP = 2**20  # keys that may be left out where it is not known which ones were removed
BATCH = 256
"""Videos that are written at once: every commit costs a file and a version of each table."""
BATCH_BYTES = 64 * 2**20
"""Of their features, in memory until they are written."""


@dataclass(frozen=True, eq=False)
class NewVideo:
    """A record to be written, and its content: new, with features; one that is there already; or none, if it failed."""

    record: VideoRecord
    key: int = NO_KEY
    features: Features | None = None


def is_batch(videos: int, size: int) -> bool:
    """Whether this number of videos, with this many bytes of features, is enough to be written."""
    return videos >= BATCH or size >= BATCH_BYTES


class Store:
    """The records and contents of one version. Reading is safe from several threads; writing needs the lock."""

    def __init__(self, folder: Place) -> None:
        self.folder = folder
        self.library = folder.parents[1]
        self.settings: Settings = read_settings(folder)
        self.codec = get_codec(self.settings.codec)
        self.table_set = TableSet(folder, listed=self.settings.checksums)
        self._catalog: tuple[int, Catalog] | None = None
        self._row_ids: tuple[int, NDArray[np.int64], NDArray[np.uint64]] | None = None
        self._dims: tuple[int, int] | None = None
        self._next_key = 0
        self.candidates: CandidateIndex = open_collection(self.settings, folder.name) or FrameTable(self.table_set)
        self.sounds = SoundTable(self.table_set, self._explain_damaged_content)
        self.embeddings = EmbeddingTable(self.table_set)
        self._found_complete = False  # whether the index has all contents, as far as that was looked at
        self.refresh()

    # --- reading -----------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """See what has been committed since."""
        self.table_set.refresh()

    def catalog(self) -> Catalog:
        """All records."""
        with self.table_set.lock:
            table = self.table_set.open(VIDEOS)
            if table is None:
                return Catalog(tables.VIDEOS_SCHEMA.empty_table())
            version = self.table_set.version_of(VIDEOS)
            if self._catalog is None or self._catalog[0] != version:
                rows = self.table_set.read(VIDEOS, lambda: table.search().to_arrow())
                self._catalog = (version, Catalog(rows))
            return self._catalog[1]

    def read_contents(
        self, keys: Sequence[int], *, batch: int = _IN_ONE_READ, pixels: bool = True
    ) -> Iterator[StoredContent]:
        """The encoded regions of contents, read in batches, in the order in which they lie; absent keys left out.

        Without `pixels` the miniatures are not read: a search has no use for them.
        """
        for first in range(0, len(keys), batch):
            wanted = keys[first : first + batch]
            rows = self._read_rows(wanted, pixels)
            if len(rows) < len(wanted) and self.table_set.open(REGIONS) is not None:
                self.table_set.follow(REGIONS)  # some may have been written since
                rows = self._find_rows(wanted, pixels)
                self._require_removed(set(map(int, wanted)).difference(row["key"] for row in rows))
            yield from map(self._parse_content, rows)

    def features(self, key: int) -> Features:
        """The features of one content, decoded."""
        for stored in self.read_contents([key]):
            return stored.features(self.codec)
        raise StorageError("The features of this video are not there: it was removed meanwhile, or failed.")

    def dims(self) -> tuple[int, int] | None:
        """R and D, which all videos share; None while there are none."""
        table = self.table_set.open(REGIONS)
        if self._dims is not None or table is None:
            return self._dims
        columns = [name for name in self.table_set.list_columns(REGIONS) if name not in ("data", tables.MINIATURES)]
        rows = self.table_set.read(REGIONS, lambda: table.search().select(columns).limit(1).to_arrow().to_pylist())
        if rows and not tables.is_intact(rows[0]):
            raise self._explain_damaged_content(rows[0]["key"])
        self._dims = (rows[0]["regions"], rows[0]["dims"]) if rows else None
        return self._dims

    def find_nearest(self, vectors: Tensor, *, k: int = NEIGHBOURS, exact: bool = False) -> Finds:
        """The `k` stored frames nearest to each of some vectors [Q, C], by dot product.

        An index may estimate similarities: enough to sort by. With `exact` they are computed, for a caller that
        compares them with a threshold. Keys that do not count (see `Catalog.with_key`) may be among the finds.
        """
        if len(vectors) == 0:
            return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32)
        try:
            self._require_complete()
            return self.candidates.find_nearest(vectors, k=k, exact=exact)
        except StorageError as error:
            raise self.table_set.explain_replacement() or error from None

    def _require_complete(self) -> None:
        """Raise `StorageError` if an index that lies elsewhere has fewer contents than the records name.

        It is asked once for each opening and each writer.
        """
        if self._found_complete or self.settings.candidate_index == EMBEDDED:
            return
        for _ in range(_LOOKS):
            if self.table_set.open(VIDEOS) is not None:
                self.table_set.follow(VIDEOS)
            named, found = len(self.catalog().contents), self.candidates.count_contents()
            if found >= named:
                self._found_complete = True
                return
        library = display_path(self.library)
        raise StorageError(
            f"'{self.settings.candidate_index}' has the frame vectors of {found:,} contents; '{library}' has {named:,} "
            f"contents: some are lost. Make them again from the stored features: hapvr check {library} --repair"
        )

    # --- writing -----------------------------------------------------------------------------------------------------

    def begin(self, *, recover: bool, require_lock: Callable[[], None] = lambda: None) -> None:
        """Prepare for writing, with the lock held; `recover` removes what another writer had begun.

        `require_lock` is called before each change: it raises `StorageError` if the lock was lost.
        """
        self.table_set.require_lock = require_lock
        self.table_set.forget_list()
        self.candidates.connect()
        self._found_complete = False
        self.refresh()
        if recover:
            self.recover()
        self._require_complete()
        self.table_set.seal()
        if not self.settings.checksums:  # an older release has made it
            write_settings(self.folder, self.settings)
            self.settings = replace(self.settings, checksums=True)
        keys = [int(values.max()) for name in (VIDEOS, REGIONS) if len(values := self.table_set.list_keys(name))]
        # Not only above those that are there: a reader that still knows one that was removed must not find another.
        self._next_key, highest = time.time_ns() // 1_000_000, max(keys, default=0)
        if self._next_key <= highest:  # many at once, or the clock went back: those that were removed are not known
            self._next_key = highest + 1 + secrets.randbelow(_KEY_GAP)

    def recover(self) -> None:
        """Remove contents that no record names; records whose content is gone become failed, to be done again."""
        named = set(self.table_set.list_keys(VIDEOS).tolist()) - {NO_KEY}
        stored = set(self.table_set.list_keys(REGIONS).tolist())
        others = self.sounds.list_keys() | self.embeddings.list_keys()
        indexed = self.candidates.list_contents()
        if lost := named - stored:
            catalog = self.catalog()
            rows = [row for key in lost for row in catalog.with_key(key)]
            error = "its features were lost. Add it again."
            broken = [replace(one, state="failed", error=error, mtime_ns=-1) for one in catalog.records(rows)]
            self.put_records([(record, NO_KEY) for record in broken])
        self._remove_contents((stored | others | indexed.whole | indexed.broken) - (named & stored))

    def mend_index(self) -> tuple[int, int]:
        """Make the candidate index agree with the records, with the lock held: contents that were added, and removed.

        What no record names is removed; the vectors of what lacks some are made again from its stored regions.
        """
        found, named = self.candidates.list_contents(), set(self.catalog().contents.tolist())
        surplus = (found.whole | found.broken) - named
        self.candidates.remove(surplus | found.broken)
        lacking = sorted(named - found.whole)
        for first in range(0, len(lacking), _IN_ONE_READ):
            if stored := list(self.read_contents(lacking[first : first + _IN_ONE_READ], pixels=False)):
                vectors = [find_vectors(one.features(self.codec)) for one in stored]
                self.candidates.add([one.key for one in stored], vectors)
        return len(lacking), len(surplus)

    def new_key(self) -> int:
        """A key for another content."""
        key, self._next_key = self._next_key, self._next_key + 1
        return key

    def write(self, videos: Sequence[NewVideo], *, moved: Collection[str] = ()) -> list[int]:
        """Write videos, in place of the records with their paths; then they are safe. See `put_records`."""
        contents = [(video.key, video.features) for video in videos if video.features is not None]

        # One video is too little for torch to divide: its threads would wait for each other, on busy cores for long.
        with torch_thread_pool(1) as pool:
            rows = list(pool.map(lambda one: tables.encode_content(one[0], one[1], self.codec), contents))
            vectors = list(pool.map(lambda one: find_vectors(one[1]), contents))
        with self.table_set.change():
            if rows:
                self.table_set.add(REGIONS, pa.Table.from_pylist(rows, schema=tables.REGIONS_SCHEMA))
                self.table_set.require_lock()
                self.candidates.add([key for key, _ in contents], vectors)
            return self.put_records([(video.record, video.key) for video in videos], moved=moved)

    def write_rows(self, name: str, rows: pa.Table) -> None:
        """Add rows of another version to a table, as they are."""
        if rows.num_rows:
            self.table_set.add(name, rows)

    def write_all(self, videos: Iterable[NewVideo]) -> None:
        """Write any number of videos as they come, in batches of `write`; of no two with the same path."""
        batch: list[NewVideo] = []
        size = 0
        for video in videos:
            batch.append(video)
            size += 0 if video.features is None else video.features.regions.nbytes
            if is_batch(len(batch), size):
                self.write(batch)
                batch, size = [], 0
        self.write(batch)

    def put_records(self, entries: Sequence[tuple[VideoRecord, int]], *, moved: Collection[str] = ()) -> list[int]:
        """Write records and their keys, in place of those with the same paths; in one step.

        Of the ids that were `moved`, the records at other paths than these go in the same step. Returns the keys of
        records that were replaced: `remove_unused` their contents when nothing will name them any more.
        """
        if not entries:
            return []
        catalog = self.catalog()
        before = {path: row for row, path in enumerate(catalog.paths)}
        rows = tables.make_video_rows(entries)
        moved = [id for id in moved if id in catalog]
        replaced = [before[path] for path in rows["path"].to_pylist() if path in before]
        replaced += [catalog.row(id) for id in moved]
        if not replaced:
            self.table_set.add(VIDEOS, rows)
            return []

        def merge() -> None:
            merging = (
                self.table_set.open(VIDEOS).merge_insert("path").when_matched_update_all().when_not_matched_insert_all()
            )
            if moved:
                merging = merging.when_not_matched_by_source_delete(f"id IN ({_quote(moved)})")
            merging.execute(rows)

        self.table_set.write(VIDEOS, merge)
        return [int(key) for key in catalog.keys[replaced] if key != NO_KEY]

    def remove_unused(self, keys: Iterable[int]) -> None:
        """Remove contents that no record names."""
        catalog = self.catalog()
        self._remove_contents({key for key in keys if key != NO_KEY and not catalog.with_key(key)})

    def remove(self, ids: Collection[str]) -> None:
        """Remove records, and contents that no other record names."""
        catalog = self.catalog()
        rows = [catalog.row(id) for id in ids]
        table = self.table_set.open(VIDEOS)
        if not rows or table is None:
            return
        with self.table_set.change():
            for part in split_filter(sorted(ids)):
                self.table_set.write(VIDEOS, partial(table.delete, f"id IN ({_quote(part)})"))
            self.remove_unused(catalog.keys[rows].tolist())

    def maintain(self, *, thoroughly: bool = False) -> None:
        """Keep the number of files and the index in order; cheap if there is nothing to do."""
        with self.table_set.change():
            for name in TABLES:
                self.table_set.maintain(name, thoroughly=thoroughly)
            self.candidates.maintain(thoroughly=thoroughly)
            self.table_set.update_index(EMBEDDINGS, thoroughly=thoroughly)

    def _read_rows(self, keys: Sequence[int], pixels: bool) -> list[dict[str, Any]]:
        """The rows of contents, by their places in the table; those that are not where they were are left out.

        A filter on keys (`_find_rows`) takes several milliseconds more, however few they are.
        """
        table = self.table_set.open(REGIONS)
        if table is None or not len(keys):
            return []
        ids, columns = self._find_row_ids(keys), self._choose_columns(pixels)
        return self.table_set.read(REGIONS, lambda: list_rows(table.take_row_ids(ids).select(columns))) if ids else []

    def _find_row_ids(self, keys: Sequence[int]) -> list[int]:
        """The engine's numbers of the rows of contents, of those that are there."""
        with self.table_set.lock:
            table, version = self.table_set.open(REGIONS), self.table_set.version_of(REGIONS)
            if self._row_ids is None or self._row_ids[0] != version:
                rows = self.table_set.read(REGIONS, lambda: table.search().select(["key"]).with_row_id(True).to_arrow())
                own: NDArray[np.int64] = rows["key"].to_numpy()
                order = np.argsort(own)
                self._row_ids = version, own[order], rows["_rowid"].to_numpy()[order]
            _, own, ids = self._row_ids
        wanted = np.unique(np.array(keys, np.int64))
        places = np.minimum(np.searchsorted(own, wanted), max(0, len(own) - 1))
        return [int(id) for id in ids[places[own[places] == wanted]]] if len(own) else []

    def _find_rows(self, keys: Sequence[int], pixels: bool) -> list[dict[str, Any]]:
        """The rows of contents, looked for in the whole table."""
        table = self.table_set.open(REGIONS)
        if table is None or not len(keys):
            return []
        columns, chosen = self._choose_columns(pixels), f"key IN ({join_keys(keys)})"
        return self.table_set.read(
            REGIONS, lambda: list_rows(table.search().where(chosen).select(columns).limit(len(keys)))
        )

    def _choose_columns(self, pixels: bool) -> list[str]:
        return [name for name in self.table_set.list_columns(REGIONS) if pixels or name != tables.MINIATURES]

    def _remove_contents(self, keys: Collection[int]) -> None:
        with self.table_set.change():
            self.table_set.require_lock()
            self.candidates.remove(keys)
            for name in (REGIONS, SOUNDS, EMBEDDINGS):
                self.table_set.remove_rows(name, keys)

    # --- damage ------------------------------------------------------------------------------------------------------

    def _parse_content(self, row: dict[str, Any]) -> StoredContent:
        """A content from its row, if that is intact."""
        # In a library of an older release, more than bytes may differ.
        with suppress(ValueError, TypeError, ArithmeticError):
            if tables.is_intact(row):
                return tables.parse_content(row)
        raise self._explain_damaged_content(row["key"])

    def _explain_damaged_content(self, key: int, what: str = "are damaged: their checksum is another") -> StorageError:
        catalog = self.catalog()
        if rows := catalog.with_key(key):
            record, library = catalog.record(rows[0]), display_path(self.library)
            return StorageError(
                f"The stored features of '{display_path(record.path)}' {what}. Remove it and add it again: "
                f"hapvr remove {library} {record.id}; hapvr add {library} {display_path(record.path)}"
            )
        return self.table_set.explain_damage(REGIONS) or StorageError(
            f"The stored features of content {key} {what}. {REMEDY}"
        )

    def _require_removed(self, keys: Collection[int]) -> None:
        """Raise `StorageError` if contents that are not there should be: a record still names one."""
        if keys and self.table_set.open(VIDEOS) is not None:
            self.table_set.follow(VIDEOS)
            catalog = self.catalog()
            for key in sorted(keys):
                if catalog.with_key(key):
                    raise self._explain_damaged_content(key, "are not there, though nobody removed them")


def _quote(ids: Iterable[str]) -> str:
    return ", ".join("'" + id.replace("'", "''") + "'" for id in ids)
