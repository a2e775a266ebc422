"""What is kept of contents beside their features: their sound, and what a text model says of their frames.

Each is a table that a library has once it was asked for. Contents are named by their keys.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hapvr.audio.description import SoundDescription, SoundState
from hapvr.errors import DataError, ShapeError, StorageError
from hapvr.library import tables
from hapvr.library.candidate_index import PROBES, REFINE
from hapvr.library.table_set import TableSet, join_keys
from hapvr.library.tables import EMBEDDINGS, SOUNDS, FrameEmbeddings
from hapvr.storage import hold_interrupts

T = TypeVar("T")

_BATCH = 256  # contents that are written at once
_MAX_WAIT_S = 15.0  # until fewer are written


class SideTable(Generic[T]):
    """What is kept of each of some contents."""

    name: str
    in_one_read = 1_000  # contents

    def __init__(self, opened: TableSet) -> None:
        self._tables = opened

    @property
    def exists(self) -> bool:
        """Whether anything was ever kept."""
        return self._tables.open(self.name) is not None

    def list_keys(self) -> set[int]:
        """The contents of which something is kept."""
        return set(np.unique(self._tables.list_keys(self.name)).tolist())

    def read(self, keys: Collection[int] | None = None) -> Iterator[tuple[int, T]]:
        """What is kept of contents, or of all, a part at a time; absent ones are left out."""
        if (table := self._tables.open(self.name)) is None:
            return
        wanted = sorted(self.list_keys() if keys is None else set(map(int, keys)))
        for first in range(0, len(wanted), self.in_one_read):
            query = table.search().where(f"key IN ({join_keys(wanted[first : first + self.in_one_read])})")
            yield from self._parse(self._tables.read(self.name, query.to_arrow))

    def put(self, values: Mapping[int, T]) -> None:
        """Write what is to be kept of contents."""
        raise NotImplementedError

    def _parse(self, rows: pa.Table) -> Iterator[tuple[int, T]]:
        raise NotImplementedError

    def copy_from(self, other: SideTable[T], keys: Mapping[int, int]) -> None:
        """Take over what another version keeps of contents, which nothing is kept of here yet.

        `keys` are those of the other version, each with the key here.
        """
        known = self.list_keys()
        writer = BatchWriter(self.put)
        for key, value in other.read([key for key, own in keys.items() if own not in known]):
            writer.put(keys[key], value)
        writer.flush()


class BatchWriter(Generic[T]):
    """Collects what is to be kept of contents by key, and writes it when there is enough, or after a while.

    >>> written: list[dict[int, str]] = []
    >>> writer = BatchWriter(written.append)
    >>> writer.put(1, "a sound")
    >>> writer.flush()
    >>> written
    [{1: 'a sound'}]
    """

    def __init__(self, write: Callable[[dict[int, T]], object]) -> None:
        self._write = write
        self._pending: dict[int, T] = {}
        self._written_s = time.monotonic()

    def put(self, key: int, value: T) -> None:
        """Write this; by the end of `flush` at the latest."""
        self._pending[key] = value
        if len(self._pending) >= _BATCH or time.monotonic() - self._written_s > _MAX_WAIT_S:
            self.flush()

    def flush(self) -> None:
        """Write what is left. An interrupt waits until it is written."""
        with hold_interrupts():
            self._write(self._pending)
        self._pending, self._written_s = {}, time.monotonic()


@dataclass(frozen=True)
class SoundSummary:
    """What is known of the sound of a content without reading it."""

    state: SoundState
    seconds: float
    check: int  # of its fingerprint: the CRC-32 of its bytes


class SoundTable(SideTable[SoundDescription]):
    """The sounds of contents.

    Args:
        opened: the tables.
        explain_damage: what to say of a content whose sound cannot be read, for a reason that it is given.
    """

    name = SOUNDS

    def __init__(self, opened: TableSet, explain_damage: Callable[[int, str], StorageError]) -> None:
        super().__init__(opened)
        self._explain_damage = explain_damage

    def summarize(self) -> dict[int, SoundSummary]:
        """What is known of all sounds but their fingerprints."""
        if (table := self._tables.open(SOUNDS)) is None:
            return {}
        names = ["key", "state", "seconds", "crc32"]
        rows = self._tables.read(SOUNDS, table.search().select(names).to_arrow)
        columns = [rows[name].to_pylist() for name in names]
        return {key: SoundSummary(*rest) for key, *rest in zip(*columns, strict=True)}

    def put(self, values: Mapping[int, SoundDescription]) -> None:
        """Write the sounds of contents, in place of those that are there."""
        if values:
            with self._tables.change():
                self._tables.remove_rows(SOUNDS, self.list_keys().intersection(values))
                self._tables.add(SOUNDS, tables.make_sound_rows(values))

    def _parse(self, rows: pa.Table) -> Iterator[tuple[int, SoundDescription]]:
        for row in rows.to_pylist():
            try:
                yield row["key"], tables.parse_sound(row)
            except DataError as error:
                what = f"are damaged: the sound cannot be read ({error})"
                raise self._tables.explain_damage(SOUNDS) or self._explain_damage(row["key"], what) from error


class EmbeddingTable(SideTable[FrameEmbeddings]):
    """What a text model says of the frames of contents."""

    name = EMBEDDINGS
    in_one_read = _BATCH

    def put(self, values: Mapping[int, FrameEmbeddings]) -> None:
        """Write what a text model says of contents that have nothing of the kind yet."""
        if not values:
            return
        rows, table = tables.make_embedding_rows(values), self._tables.open(EMBEDDINGS)
        if table is not None and table.schema != rows.schema and not self.list_keys():
            self._tables.replace(EMBEDDINGS, rows)  # those of another text model were removed
        else:
            self._tables.add(EMBEDDINGS, rows)

    def clear(self) -> None:
        """Remove all that a text model said."""
        if (table := self._tables.open(EMBEDDINGS)) is not None:
            self._tables.write(EMBEDDINGS, partial(table.delete, "true"))

    def find_nearest(
        self, vector: NDArray[np.float32], *, k: int, keys: Collection[int] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float32]]:
        """The `k` frames that are nearest to a vector [D], of some contents or of all: keys, times, similarities."""
        table = self._tables.open(EMBEDDINGS)
        if table is None or (keys is not None and not len(keys)):
            return np.zeros(0, np.int64), np.zeros(0, np.float64), np.zeros(0, np.float32)
        if (dims := table.schema.field("vector").type.list_size) != len(vector):
            raise ShapeError(f"The text model gives {len(vector)} numbers; the library was made with {dims}.")

        def ask() -> pa.Table:
            query = table.search(vector, vector_column_name="vector").distance_type("dot").limit(k)
            query = query.select(["key", "time_s", "_distance"]).nprobes(PROBES).refine_factor(REFINE)
            return (query if keys is None else query.where(f"key IN ({join_keys(keys)})", prefilter=True)).to_arrow()

        found = self._tables.read(EMBEDDINGS, ask)
        return found["key"].to_numpy(), found["time_s"].to_numpy(), 1 - found["_distance"].to_numpy()

    def _parse(self, rows: pa.Table) -> Iterator[tuple[int, FrameEmbeddings]]:
        rows = rows.sort_by([("key", "ascending"), ("time_s", "ascending")])
        vectors = np.array(rows["vector"].to_pylist(), np.float16)
        keys, times = rows["key"].to_numpy(), rows["time_s"].to_numpy()
        for key in np.unique(keys).tolist():
            yield key, FrameEmbeddings(times[keys == key], vectors[keys == key])
