"""The tables of a version and how records lie in them.

    videos    one row a file: its record, and the key of its content
    regions   one row a content: its key, frames, their times and flags, and the encoded region vectors
    frames    one row a frame that may vote: the key of its content, its place among them, and its vector
    sounds    one row a content whose sound was read: its key and the fingerprint; only in libraries with sound
    embeddings  one row a frame that a text model described: the key of its content, its time, and its vector; only in
              libraries with a text model

Copies of a file are rows of `videos` with one key. The order of writing makes the row of `videos` the acknowledgement:
it is written when `regions` and `frames` have the key, and taken away before they lose it. A key that `videos` does not
have is of something unfinished, and does not count.
"""

from __future__ import annotations

import difflib
import json
import math
import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hapvr.audio.description import SoundDescription
from hapvr.audio.fingerprints import Fingerprint
from hapvr.config import suggest
from hapvr.errors import DataError
from hapvr.features import Features
from hapvr.library.codecs import Codec
from hapvr.library.results import STATES, VideoRecord, escape_text

VIDEOS, REGIONS, FRAMES, SOUNDS, EMBEDDINGS = "videos", "regions", "frames", "sounds", "embeddings"
TABLES = (VIDEOS, REGIONS, FRAMES, SOUNDS, EMBEDDINGS)
"""All tables that a version may have; libraries without sound or without a text model lack one of the last two."""
MINIATURES = "miniatures"  # a column of the regions, which libraries of older releases lack
ROW_CHECKSUM = "row_crc32"  # the same, with `miniatures_crc32`
_NO_WARNINGS = "[]"  # JSON of none
NO_KEY = -1  # of a video that failed
_MAX_NAMED, _MAX_COMPARED = 3, 20_000  # ids that a message names, and among which it looks for near ones

# The engine's compression would save 2% of drawn codes and 9% of real ones, and make reading take four times as long.
_NOT_COMPRESSED = {"lance-encoding:compression": "none"}

VIDEOS_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("path", pa.binary(), nullable=False),  # bytes: names of files need not be text
        pa.field("key", pa.int64(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("mtime_ns", pa.int64(), nullable=False),
        pa.field("content_hash", pa.string(), nullable=False),
        pa.field("duration", pa.float64(), nullable=False),
        pa.field("frames", pa.int32(), nullable=False),
        pa.field("width", pa.int32(), nullable=False),
        pa.field("height", pa.int32(), nullable=False),
        pa.field("bitrate", pa.float64(), nullable=False),
        pa.field("state", pa.string(), nullable=False),
        pa.field("error", pa.string()),
        pa.field("added_us", pa.int64(), nullable=False),
        pa.field("warnings", pa.string(), nullable=False),  # JSON
    ]
)
REGIONS_SCHEMA = pa.schema(
    [
        pa.field("key", pa.int64(), nullable=False),
        pa.field("frames", pa.int32(), nullable=False),
        pa.field("regions", pa.int32(), nullable=False),
        pa.field("dims", pa.int32(), nullable=False),
        pa.field("times", pa.binary()),  # float64, seconds
        pa.field("low", pa.binary()),  # bits
        pa.field(MINIATURES, pa.binary()),  # squares of bytes
        pa.field("crc32", pa.int64(), nullable=False),  # of `data`
        pa.field("data", pa.large_binary(), nullable=False, metadata=_NOT_COMPRESSED),
        pa.field("miniatures_crc32", pa.int64()),
        pa.field(ROW_CHECKSUM, pa.int64(), nullable=False),  # of all columns but `data` and the miniatures
    ]
)

SOUNDS_SCHEMA = pa.schema(
    [
        pa.field("key", pa.int64(), nullable=False),
        pa.field("state", pa.string(), nullable=False),  # of `hapvr.audio.description.SoundDescription`
        pa.field("seconds", pa.float64(), nullable=False),
        pa.field("warning", pa.string()),
        pa.field("data", pa.binary(), nullable=False),  # `Fingerprint.to_bytes`
        pa.field("crc32", pa.int64(), nullable=False),  # of `data`
    ]
)


def _vectors_schema(place: pa.Field, dims: int) -> pa.Schema:
    """A table of vectors of `dims` dimensions, each of a content, with its place there."""
    vector = pa.field("vector", pa.list_(pa.float16(), dims), nullable=False)
    return pa.schema([pa.field("key", pa.int64(), nullable=False), place, vector])


_FRAME = pa.field("frame", pa.int32(), nullable=False)
_TIME = pa.field("time_s", pa.float64(), nullable=False)
_SAME = [name for name in VIDEOS_SCHEMA.names if name not in ("path", "key", "added_us", "warnings")]
"""Columns that are fields of a record, as they are."""

COLUMNS = {
    VIDEOS: VIDEOS_SCHEMA.names,
    REGIONS: ["key", "frames", "regions", "dims", "times", "low", "crc32", "data"],
    FRAMES: _vectors_schema(_FRAME, 1).names,
    SOUNDS: SOUNDS_SCHEMA.names,
    EMBEDDINGS: _vectors_schema(_TIME, 1).names,
}
"""What each table has in libraries of every release, where there is one."""


# --- videos ----------------------------------------------------------------------------------------------------------


def make_video_rows(entries: Iterable[tuple[VideoRecord, int]]) -> pa.Table:
    """Records and their keys as rows."""
    rows = [
        vars(record)
        | {
            "path": os.fsencode(record.path),
            "key": key,
            "error": None if record.error is None else escape_text(record.error),
            "added_us": round(record.added.timestamp() * 1e6),
            "warnings": json.dumps([escape_text(text) for text in record.warnings]),
        }
        for record, key in entries
    ]
    return pa.Table.from_pylist(rows, schema=VIDEOS_SCHEMA)


def parse_record(row: Mapping[str, Any]) -> VideoRecord:
    """A record from its row."""
    same = {name: row[name] for name in _SAME}
    return VideoRecord(
        **same,
        path=os.fsdecode(row["path"]),
        added=datetime.fromtimestamp(row["added_us"] / 1e6, timezone.utc),
        warnings=tuple(json.loads(row["warnings"])),
    )


class Catalog:
    """All records of a library at one moment, sorted by path. Rows are numbered as in that order."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table.sort_by("path").combine_chunks()
        self.keys: NDArray[np.int64] = self._table["key"].to_numpy()
        self.frames: NDArray[np.int32] = self._table["frames"].to_numpy()

    def __len__(self) -> int:
        return int(self._table.num_rows)

    @cached_property
    def described(self) -> NDArray[np.bool_]:
        """Which rows have a content: those that did not fail."""
        return np.not_equal(self.keys, NO_KEY)

    @cached_property
    def contents(self) -> NDArray[np.int64]:
        """The keys of all contents, ascending, each once."""
        return np.unique(self.keys[self.described])

    @cached_property
    def ids(self) -> list[str]:
        """The ids of all rows."""
        return cast("list[str]", self._table["id"].to_pylist())

    @cached_property
    def paths(self) -> list[bytes]:
        """The paths of all rows, as the file system has them."""
        return cast("list[bytes]", self._table["path"].to_pylist())

    @cached_property
    def states(self) -> NDArray[Any]:
        """The states of all rows."""
        return np.array(self._table["state"].to_pylist(), dtype="U7")

    @cached_property
    def warned(self) -> NDArray[np.bool_]:
        """Which rows have warnings."""
        return np.array([text != _NO_WARNINGS for text in self._table["warnings"].to_pylist()], np.bool_)

    @cached_property
    def _row_by_id(self) -> dict[str, int]:
        return {id: row for row, id in enumerate(self.ids)}

    @cached_property
    def _rows_by_key(self) -> dict[int, list[int]]:
        rows: dict[int, list[int]] = {}
        for row, key in enumerate(self.keys.tolist()):
            if key != NO_KEY:
                rows.setdefault(key, []).append(row)
        return rows

    def rows(self, state: str | None = None) -> list[int]:
        """The rows of a state, or all."""
        if state is None:
            return list(range(len(self)))
        if state not in STATES:
            raise DataError(f"There is no state '{state}'; {suggest(state, list(STATES))}")
        return [int(row) for row in np.flatnonzero(self.states == state)]

    def row(self, id: str) -> int:
        """The row of an id; `DataError` if there is none."""
        if id not in self._row_by_id:
            raise DataError(f"The library has no video '{escape_text(id)}'{self.suggest_ids(id)}")
        return self._row_by_id[id]

    def suggest_ids(self, id: str) -> str:
        """The end of a message about an id that is not there: the nearest ids, or how many there are."""
        near = difflib.get_close_matches(id, self.ids[:_MAX_COMPARED], n=_MAX_NAMED)
        if near:
            return f"; did you mean {' or '.join(map(repr, near))}?"
        if not len(self):
            return ": it is empty."
        return f": it has {len(self):,}, which `hapvr status LIBRARY --state ready` lists."

    def __contains__(self, id: object) -> bool:
        return id in self._row_by_id

    def with_key(self, key: int) -> list[int]:
        """The rows of a content: one, or several copies; none if the key does not count."""
        return self._rows_by_key.get(key, [])

    def record(self, row: int) -> VideoRecord:
        """The record of a row."""
        return parse_record(self._table.slice(row, 1).to_pylist()[0])

    def records(self, rows: Sequence[int]) -> list[VideoRecord]:
        """The records of rows, in their order."""
        return [parse_record(row) for row in self._table.take(pa.array(rows, pa.int64())).to_pylist()]

    def column(self, name: str) -> list[Any]:
        """One column of the table."""
        return cast("list[Any]", self._table[name].to_pylist())


# --- regions ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class StoredContent:
    """The regions of one content as they lie in the table; `data` is what the codec made of [T, R, D]."""

    key: int
    frames: int
    regions: int
    dims: int
    timestamps: NDArray[np.float64] | None
    low_information: NDArray[np.bool_] | None
    data: bytes
    miniatures: NDArray[np.uint8] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of memory, about."""
        return len(self.data) + (0 if self.miniatures is None else self.miniatures.nbytes)

    def features(self, codec: Codec) -> Features:
        """Decoded."""
        regions = codec.decode(self.data, self.frames, self.regions, self.dims)
        return Features(regions, self.timestamps, self.low_information, self.miniatures)


def encode_content(key: int, features: Features, codec: Codec) -> dict[str, Any]:
    """The row of a content."""
    frames, regions, dims = features.regions.shape
    times, low = features.timestamps, features.low_information
    data = codec.encode(features.regions)
    small = None if features.miniatures is None else features.miniatures.tobytes()
    row = {
        "key": key,
        "frames": frames,
        "regions": regions,
        "dims": dims,
        "times": None if times is None else times.astype("<f8").tobytes(),
        "low": None if low is None else np.packbits(low).tobytes(),
        MINIATURES: small,
        "crc32": zlib.crc32(data),
        "data": data,
        "miniatures_crc32": None if small is None else zlib.crc32(small),
    }
    return row | {ROW_CHECKSUM: _row_checksum(row)}


def _row_checksum(row: Mapping[str, Any]) -> int:
    """The CRC-32 of all columns but the two large ones, which may be left unread: their checksums stand for them."""
    numbers = [row[name] for name in ("key", "frames", "regions", "dims", "crc32", "miniatures_crc32")]
    sizes = [None if row[name] is None else len(row[name]) for name in ("times", "low")]
    written = repr((numbers, sizes)).encode() + (row["times"] or b"") + (row["low"] or b"")
    return zlib.crc32(written)


def is_intact(row: Mapping[str, Any]) -> bool:
    """Whether a row, or its columns without `data` or miniatures, is as `encode_content` made it.

    Rows of tables that are older have a checksum of `data` only.
    """
    if "data" in row and zlib.crc32(row["data"]) != row["crc32"]:
        return False
    if ROW_CHECKSUM not in row:
        return True
    if _row_checksum(row) != row[ROW_CHECKSUM]:
        return False
    small = row.get(MINIATURES)
    return MINIATURES not in row or (None if small is None else zlib.crc32(small)) == row["miniatures_crc32"]


def parse_content(row: Mapping[str, Any]) -> StoredContent:
    """A content from its row."""
    frames, read = row["frames"], row.get(MINIATURES)
    times = None if row["times"] is None else np.frombuffer(row["times"], "<f8").astype(np.float64)
    low = None
    if row["low"] is not None:
        low = np.unpackbits(np.frombuffer(row["low"], np.uint8), count=frames).astype(np.bool_)
    small = None
    if read is not None:
        side = math.isqrt(len(read) // frames)
        small = np.frombuffer(read, np.uint8).reshape(frames, side, side)
    return StoredContent(row["key"], frames, row["regions"], row["dims"], times, low, row["data"], small)


# --- vectors of frames ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FrameEmbeddings:
    """What a text model says of frames of one content."""

    times: NDArray[np.float64]  # [T], seconds
    vectors: NDArray[np.float16]  # [T, D], of unit length


def make_frame_rows(keys: Sequence[int], vectors: Sequence[NDArray[np.float16]]) -> pa.Table:
    """The rows of contents, each with the vectors [F, C] by which it is found."""
    return _make_vector_rows(keys, vectors, _FRAME, [np.arange(len(one), dtype=np.int32) for one in vectors])


def make_embedding_rows(embeddings: Mapping[int, FrameEmbeddings]) -> pa.Table:
    """The rows of contents, by their keys."""
    described = embeddings.values()
    return _make_vector_rows(
        list(embeddings), [one.vectors for one in described], _TIME, [one.times for one in described]
    )


def _make_vector_rows(
    keys: Sequence[int], vectors: Sequence[NDArray[np.float16]], place: pa.Field, places: Sequence[NDArray[Any]]
) -> pa.Table:
    dims = vectors[0].shape[1]
    flat = pa.array(np.concatenate(vectors).reshape(-1), pa.float16())
    columns = [
        pa.array(np.repeat(np.array(keys, np.int64), [len(one) for one in vectors])),
        pa.array(np.concatenate(places)),
        pa.FixedSizeListArray.from_arrays(flat, dims),
    ]
    return pa.Table.from_arrays(columns, schema=_vectors_schema(place, dims))


# --- sounds ----------------------------------------------------------------------------------------------------------


def make_sound_rows(sounds: Mapping[int, SoundDescription]) -> pa.Table:
    """The rows of contents, by their keys."""
    rows = []
    for key, sound in sounds.items():
        data = sound.peaks.to_bytes()
        warning = None if sound.warning is None else escape_text(sound.warning)
        row = {"key": key, "state": sound.state, "seconds": sound.seconds, "warning": warning}
        rows.append(row | {"data": data, "crc32": zlib.crc32(data)})
    return pa.Table.from_pylist(rows, schema=SOUNDS_SCHEMA)


def parse_sound(row: Mapping[str, Any]) -> SoundDescription:
    """A sound from its row; `DataError` if that is damaged."""
    if zlib.crc32(row["data"]) != row["crc32"]:
        raise DataError("its checksum is another")
    return SoundDescription(row["state"], Fingerprint.from_bytes(row["data"]), row["seconds"], row["warning"])
