"""Where the frame vectors of a library lie and how the nearest are found: what each kind of index can do.

There are two kinds: a table of the library itself (`FrameTable`), and a collection of a Milvus server
(`hapvr.library.milvus_index`). Whichever it is, the tables of records and regions are the truth: vectors are written
after the regions and before the record, and removed after the record. An index may therefore hold contents that no
record names, which do not count and are removed by the next writer after one that was killed; it never lacks one that a
record names, unless it was damaged. `Store.mend_index` brings it into agreement: every vector can be made
again from regions.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from torch import Tensor

from hapvr.features import Features
from hapvr.library import table_set, tables
from hapvr.library.candidates import Finds, find_nearest_vectors, find_runs
from hapvr.library.milvus_index import IndexedContents, MilvusIndex
from hapvr.library.milvus_server import MilvusAddress
from hapvr.library.table_set import TableSet
from hapvr.library.tables import FRAMES
from hapvr.library.versions import EMBEDDED, Settings, current_version, unfinished_version
from hapvr.places import Place

# Partitions of the index looked through: with 50 of them 95% of the needles among 100,000 videos were found, with 150
# 99%. To compute the similarities of the finds as well takes three times as long, for the same needles.
PROBES = 150
REFINE = 2
"""Times as many finds as are asked for have their similarities computed, where that is done."""


class CandidateIndex(Protocol):
    """The frame vectors of one version. Contents are named by their keys."""

    def connect(self) -> None:
        """Make it ready; `StorageError` if it cannot be used. The other methods do it too."""

    def find_nearest(self, vectors: Tensor, *, k: int, exact: bool) -> Finds:
        """The `k` stored vectors nearest to each of some [Q, C], by dot product; see `Store.find_nearest`."""

    def read_all(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The keys [N] and vectors [N, C] of all frames."""

    def count(self) -> int:
        """How many vectors there are."""

    def count_indexed(self) -> int:
        """How many of them need not be searched one by one."""

    def count_contents(self) -> int:
        """How many contents have vectors."""

    def list_contents(self) -> IndexedContents:
        """Which contents have vectors."""

    def add(self, keys: Sequence[int], vectors: Sequence[NDArray[np.float16]]) -> None:
        """Add the vectors [F, C] of each of some contents. When this returns, every search finds them."""

    def remove(self, keys: Collection[int]) -> None:
        """Remove the vectors of contents, whether there are any or not."""

    def maintain(self, *, thoroughly: bool) -> None:
        """Keep it in order; cheap if there is nothing to do."""

    def drop(self) -> None:
        """Remove all of it, when its version is no longer in use."""


class FrameTable:
    """The frame vectors of a version, in its tables; see `CandidateIndex`."""

    def __init__(self, opened: TableSet) -> None:
        self._tables = opened
        self._vectors: tuple[int, NDArray[np.int64], NDArray[np.float32]] | None = None

    def connect(self) -> None:
        """Nothing to do: the store is open."""

    def find_nearest(self, vectors: Tensor, *, k: int, exact: bool) -> Finds:
        """Few stored vectors are all compared; many are looked up in the engine's index."""
        table = self._tables.open(FRAMES)
        if table is None or self.count() < table_set.INDEX_FROM:
            return find_nearest_vectors(*self.read_all(), vectors, k=k)

        def ask() -> pa.Table:
            query = table.search(vectors.numpy(), vector_column_name="vector").distance_type("dot").limit(k)
            query = query.select(["key", "_distance"]).nprobes(PROBES)
            return (query.refine_factor(REFINE) if exact else query).to_arrow()

        found = self._tables.read(FRAMES, ask)
        which = found["query_index"].to_numpy() if "query_index" in found.column_names else np.zeros(len(found))
        return which.astype(np.int64), found["key"].to_numpy(), 1 - found["_distance"].to_numpy()

    def read_all(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The keys and vectors of all frames, kept in memory from then on: for small libraries."""
        with self._tables.lock:
            table = self._tables.open(FRAMES)
            if table is None:
                return np.zeros(0, np.int64), np.zeros((0, 0), np.float32)
            version = self._tables.version_of(FRAMES)
            if self._vectors is None or self._vectors[0] != version:
                read = table.search().select(["key", "vector"])
                rows = self._tables.read(FRAMES, lambda: read.to_arrow().combine_chunks())
                flat = rows["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
                shape = (rows.num_rows, table.schema.field("vector").type.list_size)
                self._vectors = (version, rows["key"].to_numpy(), flat.astype(np.float32).reshape(shape))
            return self._vectors[1], self._vectors[2]

    def count(self) -> int:
        """How many vectors there are."""
        return self._tables.count_rows(FRAMES)

    def count_indexed(self) -> int:
        """How many of them are in the engine's index."""
        return self._tables.count_indexed(FRAMES)

    def count_contents(self) -> int:
        """How many contents have vectors."""
        return len(self.list_contents().whole)

    def list_contents(self) -> IndexedContents:
        """Which contents have vectors; whether all of them is for `hapvr check` to say."""
        return IndexedContents(set(np.unique(self._tables.list_keys(FRAMES)).tolist()), set())

    def add(self, keys: Sequence[int], vectors: Sequence[NDArray[np.float16]]) -> None:
        """Add the vectors of contents."""
        self._tables.add(FRAMES, tables.make_frame_rows(keys, vectors))

    def remove(self, keys: Collection[int]) -> None:
        """Remove the vectors of contents."""
        self._tables.remove_rows(FRAMES, keys)

    def maintain(self, *, thoroughly: bool) -> None:
        """Index the vectors, if they are many."""
        self._tables.update_index(FRAMES, thoroughly=thoroughly)

    def drop(self) -> None:
        """Nothing to do: it goes with the folder of its version."""


def parse_index(text: str) -> str:
    """The candidate index that `--candidates` names, in its usual form; `ConfigError` if there is no such kind.

    >>> parse_index("milvus://Localhost/films")
    'milvus://localhost:19530/films'
    """
    return EMBEDDED if text == EMBEDDED else str(MilvusAddress.parse(text))


def open_collection(settings: Settings, version: str) -> MilvusIndex | None:
    """The collection of a version; None if its vectors lie in its tables. It is not connected yet."""
    if settings.candidate_index == EMBEDDED:
        return None
    address = MilvusAddress.parse(settings.candidate_index)
    model = f"{settings.model_digest}, vectors of kind {settings.candidates}"
    return MilvusIndex(address, version, owner=settings.collection_owner, model=model)


def require_new_index(settings: Settings, version: str) -> None:
    """Raise `StorageError` unless an index for a new version can be made; nothing is made yet."""
    if (index := open_collection(settings, version)) is not None:
        index.require_new()


def find_left_collections(path: Place, index: MilvusIndex) -> list[str]:
    """The names of collections that a library made for versions that it no longer uses: a writer was killed."""
    used = {f"{index.address.collection}_{version}" for version in (current_version(path), unfinished_version(path))}
    return [name for name in index.list_others() if name not in used]


def find_vectors(features: Features) -> NDArray[np.float16]:
    """The vectors by which a content is found, [F, C], as an index stores them."""
    return find_runs(features.regions, features.low_information)[0].numpy().astype(np.float16)
