"""The candidate index that is a table of the library itself: see `hapvr.library.candidate_index`."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from torch import Tensor

from hapvr.library import table_set, tables
from hapvr.library.candidates import Finds, find_nearest_vectors
from hapvr.library.milvus_index import IndexedContents
from hapvr.library.table_set import TableSet
from hapvr.library.tables import FRAMES

# Partitions of the index looked through: with 50 of them 95% of the needles among 100,000 videos were found, with 150
# 99%. To compute the similarities of the finds as well takes three times as long, for the same needles.
PROBES = 150
REFINE = 2
"""Times as many finds as are asked for have their similarities computed, where that is done."""


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
