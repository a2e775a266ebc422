"""One version of a library on disk: tables in LanceDB, read by many and written by one.

Each commit of a table is atomic; they are kept in step by the order of the commits (see `hapvr.library.tables`)
and by `recover`, which removes what a writer that was killed had begun. Readers have a moment's view; `refresh` brings
them to the latest. What is read is checked (see `hapvr.library.checksums`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import lancedb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from torch import Tensor

from hapvr.audio.description import SoundDescription, SoundState
from hapvr.errors import DataError, ShapeError, StorageError
from hapvr.features import Features
from hapvr.library import engine, tables
from hapvr.library.candidates import NEIGHBOURS, Finds, find_nearest_vectors, find_runs
from hapvr.library.checksums import REMEDY, Guard
from hapvr.library.codecs import get_codec
from hapvr.library.engine import EngineError, table_folder
from hapvr.library.results import VideoRecord, display_path
from hapvr.library.tables import (
    EMBEDDINGS,
    FRAMES,
    NO_KEY,
    REGIONS,
    ROW_CHECKSUM,
    SOUNDS,
    TABLES,
    VIDEOS,
    Catalog,
    FrameEmbeddings,
    StoredContent,
)
from hapvr.library.versions import (
    CALIBRATION,
    Settings,
    current_version,
    is_disk_error,
    read_settings,
    translate_write_errors,
    write_settings,
)
from hapvr.workers.threads import torch_thread_pool

Result = TypeVar("Result")

INDEX_FROM = 50_000
"""Frame vectors from which on there is an index; fewer are searched one by one."""
# Partitions of the index looked through: with 50 of them 95% of the needles among 100,000 videos were found, with 150
# 99%. To compute the similarities of the finds as well takes three times as long, for the same needles.
_PROBES = 150
_REFINE = 2  # times as many finds as are asked for have their similarities computed, where that is done
_IN_ONE_FILTER = 2_000  # keys
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


@dataclass(frozen=True)
class SoundSummary:
    """What is known of the sound of a content without reading it."""

    state: SoundState
    seconds: float
    check: int  # of its fingerprint: the CRC-32 of its bytes


def is_batch(videos: int, size: int) -> bool:
    """Whether this number of videos, with this many bytes of features, is enough to be written."""
    return videos >= BATCH or size >= BATCH_BYTES


class Store:
    """The tables of one version. Reading is safe from several threads; writing needs the lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.library = folder.parents[1]
        self.settings: Settings = read_settings(folder)
        self.codec = get_codec(self.settings.codec)
        self._database: Any = lancedb.connect(folder)
        self._lock = threading.RLock()
        self._guard = Guard(folder, listed=self.settings.checksums)
        self._whole: set[str] = set()  # tables whose large files are checked, as they were when they were last opened
        self._changes = 0  # that are being made, one within another
        self._tables: dict[str, Any] = {}
        # Of the tables that are open, where they are known: the engine takes a millisecond to say it.
        self._versions: dict[str, int] = {}
        self._columns: dict[str, list[str]] = {}
        self._catalog: tuple[int, Catalog] | None = None
        self._row_ids: tuple[int, NDArray[np.int64], NDArray[np.uint64]] | None = None
        self._counts: dict[str, tuple[int, int]] = {}  # of vectors, with the version of their table
        self._vectors: tuple[int, NDArray[np.int64], NDArray[np.float32]] | None = None
        self._dims: tuple[int, int] | None = None
        self._next_key = 0
        self.refresh()

    # --- reading -----------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """See what has been committed since.

        Records come last: a content they name may then be newer than the other tables' view, which `read_contents` sees
        to, but never older.
        """
        with self._lock:
            for name in (REGIONS, FRAMES, SOUNDS, EMBEDDINGS, VIDEOS):
                if name in self._tables:
                    self._follow(name)
                else:
                    self._table(name)

    def catalog(self) -> Catalog:
        """All records."""
        with self._lock:
            table = self._table(VIDEOS)
            if table is None:
                return Catalog(tables.VIDEOS_SCHEMA.empty_table())
            version = self._version(VIDEOS)
            if self._catalog is None or self._catalog[0] != version:
                rows = self._read(VIDEOS, lambda: table.search().to_arrow())
                self._catalog = (version, Catalog(rows))
            return self._catalog[1]

    def read_contents(self, keys: Sequence[int], *, batch: int = 64, pixels: bool = True) -> Iterator[StoredContent]:
        """The encoded regions of contents, read in batches, in the order in which they lie; absent keys left out.

        Without `pixels` the miniatures are not read: a search has no use for them.
        """
        for first in range(0, len(keys), batch):
            wanted = keys[first : first + batch]
            rows = self._read_rows(wanted, pixels)
            if len(rows) < len(wanted) and self._table(REGIONS) is not None:
                self._follow(REGIONS)  # some may have been written since
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
        table = self._table(REGIONS)
        if self._dims is not None or table is None:
            return self._dims
        columns = [name for name in self._list_columns(REGIONS) if name not in ("data", tables.MINIATURES)]
        rows = self._read(REGIONS, lambda: table.search().select(columns).limit(1).to_arrow().to_pylist())
        if rows and not tables.is_intact(rows[0]):
            raise self._explain_damaged_content(rows[0]["key"])
        self._dims = (rows[0]["regions"], rows[0]["dims"]) if rows else None
        return self._dims

    def count_vectors(self, name: str = FRAMES) -> int:
        """How many frame vectors there are, or vectors of another table."""
        table = self._table(name)
        if table is None:
            return 0
        with self._lock:
            version = self._version(name)
            if name not in self._counts or self._counts[name][0] != version:
                self._counts[name] = version, int(self._read(name, table.count_rows, whole=False))
            return self._counts[name][1]

    def count_indexed(self, name: str = FRAMES) -> int:
        """How many of them are in the index, or of another table; the others are searched one by one."""
        table = self._table(name)
        if table is None:
            return 0

        def ask() -> int:
            found = [one for one in table.list_indices() if "vector" in one.columns]
            return int(table.index_stats(found[0].name).num_indexed_rows) if found else 0

        return self._read(name, ask, whole=False)

    def count_unchecked(self) -> int:
        """How many files have no checksum yet: of an older release, or of a writer that was killed."""
        with self._lock:
            return self._guard.count_unlisted()

    def must_have(self, name: str) -> bool:
        """Whether a file of this name was written beside the tables, so that it must be there."""
        with self._lock:
            return name in self._guard.listing.kept

    def vectors(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The keys [N] and vectors [N, C] of all frames, kept in memory from then on: for small libraries."""
        with self._lock:
            table = self._table(FRAMES)
            if table is None:
                return np.zeros(0, np.int64), np.zeros((0, 0), np.float32)
            version = self._version(FRAMES)
            if self._vectors is None or self._vectors[0] != version:
                rows = self._read(FRAMES, lambda: table.search().select(["key", "vector"]).to_arrow().combine_chunks())
                flat = rows["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
                shape = (rows.num_rows, table.schema.field("vector").type.list_size)
                self._vectors = (version, rows["key"].to_numpy(), flat.astype(np.float32).reshape(shape))
            return self._vectors[1], self._vectors[2]

    def find_nearest(self, vectors: Tensor, *, k: int = NEIGHBOURS, exact: bool = False) -> Finds:
        """The `k` stored frames nearest to each of some vectors [Q, C], by dot product.

        Few stored vectors are all compared; many are looked up in the index, which estimates their similarities: enough
        to sort by. With `exact` they are computed, for a caller that compares them with a threshold. Keys that do not
        count (see `Catalog.with_key`) may be among the finds.
        """
        table = self._table(FRAMES)
        if len(vectors) == 0 or table is None or self.count_vectors() < INDEX_FROM:
            return find_nearest_vectors(*self.vectors(), vectors, k=k)

        def ask() -> pa.Table:
            query = table.search(vectors.numpy(), vector_column_name="vector").distance_type("dot").limit(k)
            query = query.select(["key", "_distance"]).nprobes(_PROBES)
            return (query.refine_factor(_REFINE) if exact else query).to_arrow()

        found = self._read(FRAMES, ask)
        which = found["query_index"].to_numpy() if "query_index" in found.column_names else np.zeros(len(found))
        return which.astype(np.int64), found["key"].to_numpy(), 1 - found["_distance"].to_numpy()

    def has_sound(self) -> bool:
        """Whether the sound of any video was ever read."""
        return self._table(SOUNDS) is not None

    def list_sounds(self) -> NDArray[np.int64]:
        """The keys of all contents whose sound was read."""
        return self._keys(SOUNDS)

    def summarize_sounds(self) -> dict[int, SoundSummary]:
        """What is known of all sounds but their fingerprints, by the keys of their contents."""
        table = self._table(SOUNDS)
        if table is None:
            return {}
        names = ["key", "state", "seconds", "crc32"]
        rows = self._read(SOUNDS, lambda: table.search().select(names).to_arrow())
        columns = [rows[name].to_pylist() for name in names]
        return {key: SoundSummary(*rest) for key, *rest in zip(*columns, strict=True)}

    def read_sounds(self, keys: Collection[int] | None = None) -> Iterator[tuple[int, SoundDescription]]:
        """The sounds of contents, or of all, a thousand at a time; absent ones are left out."""
        table = self._table(SOUNDS)
        if table is None:
            return
        wanted = self._keys(SOUNDS).tolist() if keys is None else sorted(set(map(int, keys)))
        for part in _split(wanted):
            chosen = f"key IN ({_join(part)})"
            query = partial(table.search().where(chosen).limit, len(part))
            for row in self._read(SOUNDS, lambda query=query: _list_rows(query())):  # type: ignore[misc]
                try:
                    yield row["key"], tables.parse_sound(row)
                except DataError as error:
                    raise self._explain_damage(SOUNDS) or self._explain_damaged_content(
                        row["key"], f"are damaged: the sound cannot be read ({error})"
                    ) from error

    def list_embedded(self) -> NDArray[np.int64]:
        """The keys of all contents that a text model described, ascending."""
        return np.unique(self._keys(EMBEDDINGS))

    def read_embeddings(self, keys: Collection[int]) -> dict[int, FrameEmbeddings]:
        """What a text model said of contents; absent ones are left out."""
        table, found = self._table(EMBEDDINGS), {}
        for part in _split(sorted(set(map(int, keys)))) if table is not None else ():
            chosen = table.search().where(f"key IN ({_join(part)})")
            rows = self._read(EMBEDDINGS, chosen.to_arrow).sort_by([("key", "ascending"), ("time_s", "ascending")])
            vectors = np.array(rows["vector"].to_pylist(), np.float16)
            own: NDArray[np.int64] = rows["key"].to_numpy()
            for key in np.unique(own).tolist():
                found[key] = FrameEmbeddings(rows["time_s"].to_numpy()[own == key], vectors[own == key])
        return found

    def find_embeddings(
        self, vector: NDArray[np.float32], *, k: int, keys: Collection[int] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float32]]:
        """The `k` frames that are nearest to a vector [D], of some contents or of all: keys, times, similarities."""
        table = self._table(EMBEDDINGS)
        if table is None or (keys is not None and not len(keys)):
            return np.zeros(0, np.int64), np.zeros(0, np.float64), np.zeros(0, np.float32)
        if (dims := table.schema.field("vector").type.list_size) != len(vector):
            raise ShapeError(f"The text model gives {len(vector)} numbers; the library was made with {dims}.")

        def ask() -> pa.Table:
            query = table.search(vector, vector_column_name="vector").distance_type("dot").limit(k)
            query = query.select(["key", "time_s", "_distance"]).nprobes(_PROBES).refine_factor(_REFINE)
            return (query if keys is None else query.where(f"key IN ({_join(keys)})", prefilter=True)).to_arrow()

        found = self._read(EMBEDDINGS, ask)
        return found["key"].to_numpy(), found["time_s"].to_numpy(), 1 - found["_distance"].to_numpy()

    # --- writing -----------------------------------------------------------------------------------------------------

    def begin(self, *, recover: bool) -> None:
        """Prepare for writing, with the lock held; `recover` removes what another writer had begun."""
        self.refresh()
        if recover:
            self.recover()
        self.seal()
        if not self.settings.checksums:  # an older release has made it
            write_settings(self.folder, self.settings)
            self.settings = replace(self.settings, checksums=True)
        keys = [int(values.max()) for name in (VIDEOS, REGIONS) if len(values := self._keys(name))]
        # Not only above those that are there: a reader that still knows one that was removed must not find another.
        self._next_key = max([time.time_ns() // 1_000_000, *(key + 1 for key in keys)])

    def recover(self) -> None:
        """Remove contents that no record names; records whose content is gone become failed, to be done again."""
        named, stored = set(self._keys(VIDEOS).tolist()) - {NO_KEY}, set(self._keys(REGIONS).tolist())
        others = {key for name in (FRAMES, SOUNDS, EMBEDDINGS) for key in np.unique(self._keys(name)).tolist()}
        self._remove_contents((stored | others) - named)
        if lost := named - stored:
            catalog = self.catalog()
            rows = [row for key in lost for row in catalog.with_key(key)]
            error = "its features were lost. Add it again."
            broken = [replace(one, state="failed", error=error, mtime_ns=-1) for one in catalog.records(rows)]
            self.put_records([(record, NO_KEY) for record in broken])

    def seal(self) -> None:
        """List what there is by now, with its checksums: from then on it must be there. With the lock held."""
        kept = [CALIBRATION] if (self.folder / CALIBRATION).is_file() else []
        with self._lock, translate_write_errors(self.folder):
            self._guard.seal(kept=kept)

    def new_key(self) -> int:
        """A key for another content."""
        key, self._next_key = self._next_key, self._next_key + 1
        return key

    def write(self, videos: Sequence[NewVideo], *, moved: Collection[str] = ()) -> list[int]:
        """Write videos, in place of the records with their paths; then they are safe. See `put_records`."""
        contents = [(video.key, video.features) for video in videos if video.features is not None]

        def find_vectors(content: tuple[int, Features]) -> NDArray[np.float16]:
            features = content[1]
            return find_runs(features.regions, features.low_information)[0].numpy().astype(np.float16)  # [F, C]

        # One video is too little for torch to divide: its threads would wait for each other, on busy cores for long.
        with torch_thread_pool(1) as pool:
            rows = list(pool.map(lambda one: tables.encode_content(one[0], one[1], self.codec), contents))
            vectors = list(pool.map(find_vectors, contents))
        with self._change():
            if rows:
                self._add(REGIONS, pa.Table.from_pylist(rows, schema=tables.REGIONS_SCHEMA))
                self._add(FRAMES, tables.make_frame_rows([key for key, _ in contents], vectors))
            return self.put_records([(video.record, video.key) for video in videos], moved=moved)

    def write_rows(self, name: str, rows: pa.Table) -> None:
        """Add rows of another version to a table, as they are."""
        if rows.num_rows:
            self._add(name, rows)

    def put_sounds(self, sounds: Mapping[int, SoundDescription]) -> None:
        """Write the sounds of contents, by their keys, in place of those that are there."""
        if not sounds:
            return
        known = set(self._keys(SOUNDS).tolist())
        with self._change():
            table = self._table(SOUNDS)
            for part in _split(sorted(known.intersection(sounds))):
                self._write(SOUNDS, partial(table.delete, f"key IN ({_join(part)})"))
            self._add(SOUNDS, tables.make_sound_rows(sounds))

    def put_embeddings(self, embeddings: Mapping[int, FrameEmbeddings]) -> None:
        """Write what a text model says of contents, by their keys, that have nothing of the kind yet."""
        if not embeddings:
            return
        rows, table = tables.make_embedding_rows(embeddings), self._table(EMBEDDINGS)
        if table is not None and table.schema != rows.schema and not len(self._keys(EMBEDDINGS)):
            # Of another text model, whose vectors were removed.
            self._write(EMBEDDINGS, partial(self._create, EMBEDDINGS, rows, "overwrite"))
        else:
            self._add(EMBEDDINGS, rows)

    def remove_embeddings(self) -> None:
        """Remove all that a text model said."""
        if (table := self._table(EMBEDDINGS)) is not None:
            self._write(EMBEDDINGS, partial(table.delete, "true"))

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
            self._add(VIDEOS, rows)
            return []

        def merge() -> None:
            merging = self._table(VIDEOS).merge_insert("path").when_matched_update_all().when_not_matched_insert_all()
            if moved:
                merging = merging.when_not_matched_by_source_delete(f"id IN ({_quote(moved)})")
            merging.execute(rows)

        self._write(VIDEOS, merge)
        return [int(key) for key in catalog.keys[replaced] if key != NO_KEY]

    def remove_unused(self, keys: Iterable[int]) -> None:
        """Remove contents that no record names."""
        catalog = self.catalog()
        self._remove_contents({key for key in keys if key != NO_KEY and not catalog.with_key(key)})

    def remove(self, ids: Collection[str]) -> None:
        """Remove records, and contents that no other record names."""
        catalog = self.catalog()
        rows = [catalog.row(id) for id in ids]
        table = self._table(VIDEOS)
        if not rows or table is None:
            return
        with self._change():
            for part in _split(sorted(ids)):
                self._write(VIDEOS, partial(table.delete, f"id IN ({_quote(part)})"))
            self.remove_unused(catalog.keys[rows].tolist())

    def maintain(self, *, thoroughly: bool = False) -> None:
        """Keep the number of files and the index in order; cheap if there is nothing to do."""
        with self._change():
            for name in TABLES:
                if (table := self._table(name)) is not None:
                    check = partial(self._check_whole, name)
                    self._write(name, partial(engine.compact_table, table, check, thoroughly=thoroughly))
            for name in (FRAMES, EMBEDDINGS):
                if (table := self._table(name)) is not None and self.count_vectors(name) >= INDEX_FROM:
                    check, indexed = partial(self._check_whole, name), self.count_indexed(name)
                    update = partial(engine.update_index, table, check, indexed=indexed, thoroughly=thoroughly)
                    self._write(name, update)

    # --- one table: opening, reading, changing -----------------------------------------------------------------------

    def _table(self, name: str) -> Any:
        """A table; None if it has not been made, or was left half-made."""
        with self._lock:
            if name not in self._tables:
                self._refresh_list()
                try:
                    if not (table_folder(self.folder, name) / engine.MANIFESTS).is_dir():
                        raise EngineError("not found")
                    table = engine.call(lambda: self._database.open_table(name))
                    self._check(name, version=engine.call(lambda: table.version))
                except EngineError as error:
                    if "not found" not in str(error):
                        raise self._explain_failure(name, error) from error
                    self._check(name, version=None)
                    return None
                # Without checksums, this is how damage may be noticed.
                if lacking := [one for one in tables.COLUMNS[name] if one not in table.schema.names]:
                    where = f"The table '{name}' of '{display_path(self.folder)}'"
                    raise StorageError(f"{where} has no column '{lacking[0]}': it is damaged. {REMEDY}")
                self._tables[name] = table
            return self._tables[name]

    def _follow(self, name: str) -> None:
        """Bring a table that is open to its latest version, and check the files that are new."""
        with self._lock:
            self._refresh_list()
            self._forget(name)
            table = self._tables[name]
            try:
                engine.call(table.checkout_latest)
                version = engine.call(lambda: table.version)
            except EngineError as error:
                raise self._explain_failure(name, error) from error
            self._whole.discard(name)
            self._check(name, version=version)
            self._versions[name] = version

    def _version(self, name: str) -> int:
        """The version of a table that is open."""
        with self._lock:
            if name not in self._versions:
                self._versions[name] = int(engine.call(lambda: self._tables[name].version))
            return self._versions[name]

    def _list_columns(self, name: str) -> list[str]:
        """The columns of a table that is open."""
        with self._lock:
            if name not in self._columns:
                self._columns[name] = list(engine.call(lambda: self._tables[name].schema.names))
            return self._columns[name]

    def _forget(self, name: str) -> None:
        """Forget what is known of a table that may have changed."""
        with self._lock:
            self._versions.pop(name, None)
            self._columns.pop(name, None)

    def _refresh_list(self) -> None:
        with self._notice_replacement():
            self._guard.refresh()

    def _check(self, name: str, *, version: int | None, whole: bool = False) -> None:
        with self._notice_replacement():
            self._guard.check(name, version=version, whole=whole)

    @contextmanager
    def _notice_replacement(self) -> Iterator[None]:
        """Within, files that are gone are no damage if another version is in use by now."""
        try:
            yield
        except StorageError as error:
            raise self._explain_replacement() or error from None

    def _check_whole(self, name: str) -> None:
        """Check the large files of a table too, unless each of its rows has a checksum."""
        with self._lock:
            if name in self._whole or (name == REGIONS and ROW_CHECKSUM in self._list_columns(REGIONS)):
                return
            self._check(name, version=None, whole=True)
            self._whole.add(name)

    def _read(self, name: str, read: Callable[[], Result], *, whole: bool = True) -> Result:
        """Read a table; a writer may have moved its content to other files since it was opened: then read again.

        Its large files are checked before, if their content counts: `whole`.
        """
        for again in (True, False):
            if whole:
                self._check_whole(name)
            try:
                return engine.call(read)
            except EngineError as error:
                if not again:
                    raise self._explain_failure(name, error) from error
            self._follow(name)
        raise AssertionError("it is read twice at most")

    def _write(self, name: str, action: Callable[[], object]) -> None:
        """Change a table; `StorageError` if it cannot be written, or if what it consists of is damaged."""
        with self._change(), translate_write_errors(self.folder):
            try:
                engine.call(action)
            except EngineError as error:
                if not is_disk_error(error) and (damage := self._explain_damage(name)) is not None:
                    raise damage from error
                raise
            finally:
                self._forget(name)

    @contextmanager
    def _change(self) -> Iterator[None]:
        """Within, tables change; at the end they are sealed, once for all changes within one another."""
        self._changes += 1
        try:
            yield
            if self._changes == 1:
                self.seal()
        finally:
            self._changes -= 1

    def _add(self, name: str, rows: pa.Table) -> None:
        table = self._table(name)
        if table is not None:
            # One that is older may have fewer columns.
            self._write(name, lambda: table.add(rows.select(table.schema.names)))
            return
        mode = "overwrite" if table_folder(self.folder, name).exists() else "create"
        self._write(name, partial(self._create, name, rows, mode))

    def _create(self, name: str, rows: pa.Table, mode: str) -> None:
        self._tables[name] = self._database.create_table(name, data=rows, mode=mode)

    def _keys(self, name: str) -> NDArray[np.int64]:
        table = self._table(name)
        if table is None:
            return np.zeros(0, np.int64)
        keys: NDArray[np.int64] = self._read(name, lambda: table.search().select(["key"]).to_arrow()["key"].to_numpy())
        return keys

    def _read_rows(self, keys: Sequence[int], pixels: bool) -> list[dict[str, Any]]:
        """The rows of contents, by their places in the table; those that are not where they were are left out.

        A filter on keys (`_find_rows`) takes several milliseconds more, however few they are.
        """
        table = self._table(REGIONS)
        if table is None or not len(keys):
            return []
        ids, columns = self._find_row_ids(keys), self._choose_columns(pixels)
        return self._read(REGIONS, lambda: _list_rows(table.take_row_ids(ids).select(columns))) if ids else []

    def _find_row_ids(self, keys: Sequence[int]) -> list[int]:
        """The engine's numbers of the rows of contents, of those that are there."""
        with self._lock:
            table, version = self._table(REGIONS), self._version(REGIONS)
            if self._row_ids is None or self._row_ids[0] != version:
                rows = self._read(REGIONS, lambda: table.search().select(["key"]).with_row_id(True).to_arrow())
                own: NDArray[np.int64] = rows["key"].to_numpy()
                order = np.argsort(own)
                self._row_ids = version, own[order], rows["_rowid"].to_numpy()[order]
            _, own, ids = self._row_ids
        wanted = np.unique(np.array(keys, np.int64))
        places = np.minimum(np.searchsorted(own, wanted), max(0, len(own) - 1))
        return [int(id) for id in ids[places[own[places] == wanted]]] if len(own) else []

    def _find_rows(self, keys: Sequence[int], pixels: bool) -> list[dict[str, Any]]:
        """The rows of contents, looked for in the whole table."""
        table = self._table(REGIONS)
        if table is None or not len(keys):
            return []
        columns, chosen = self._choose_columns(pixels), f"key IN ({_join(keys)})"
        return self._read(REGIONS, lambda: _list_rows(table.search().where(chosen).select(columns).limit(len(keys))))

    def _choose_columns(self, pixels: bool) -> list[str]:
        return [name for name in self._list_columns(REGIONS) if pixels or name != tables.MINIATURES]

    def _remove_contents(self, keys: Collection[int]) -> None:
        with self._change():
            for name in (FRAMES, REGIONS, SOUNDS, EMBEDDINGS):
                if (table := self._table(name)) is not None:
                    for part in _split(sorted(keys)):
                        self._write(name, partial(table.delete, f"key IN ({_join(part)})"))

    # --- damage ------------------------------------------------------------------------------------------------------

    def _explain_failure(self, name: str, error: Exception) -> StorageError:
        """What to say when a table cannot be read: which of its files is damaged, if one is."""
        if (why := self._explain_replacement() or self._explain_damage(name)) is not None:
            return why
        text = str(error).splitlines()[0][:300].rstrip(".") if str(error) else type(error).__name__
        return StorageError(f"The table '{name}' of '{display_path(self.folder)}' cannot be read: {text}. {REMEDY}")

    def _explain_replacement(self) -> StorageError | None:
        """What to say if another version is in use by now, and this one is going or gone."""
        with suppress(StorageError):
            if self.folder.is_dir() and current_version(self.library) <= self.folder.name:
                return None
            return StorageError(f"'{display_path(self.folder)}' was replaced by another version meanwhile. Ask again.")
        return None

    def _explain_damage(self, name: str) -> StorageError | None:
        """The damage in the files of a table, however large they are; None if they are what was written."""
        try:
            with self._lock:
                self._guard.check(name, version=None, whole=True)
        except StorageError as error:
            return error
        return None

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
        return self._explain_damage(REGIONS) or StorageError(f"The stored features of content {key} {what}. {REMEDY}")

    def _require_removed(self, keys: Collection[int]) -> None:
        """Raise `StorageError` if contents that are not there should be: a record still names one."""
        if keys and self._table(VIDEOS) is not None:
            self._follow(VIDEOS)
            catalog = self.catalog()
            for key in sorted(keys):
                if catalog.with_key(key):
                    raise self._explain_damaged_content(key, "are not there, though nobody removed them")


def _list_rows(query: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = query.to_arrow().to_pylist()
    return rows


def _quote(ids: Iterable[str]) -> str:
    return ", ".join("'" + id.replace("'", "''") + "'" for id in ids)


def _join(keys: Iterable[int]) -> str:
    return ", ".join(str(int(key)) for key in keys)


def _split(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for first in range(0, len(values), _IN_ONE_FILTER):
        yield values[first : first + _IN_ONE_FILTER]
