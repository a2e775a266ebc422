"""The layout of feature files, which reader and writer share: HDF5 as other projects publish it.

A file holds one dataset per video, named by the video's id: [T, R, D] (or [T, D], which is one region a frame), float32
or float16, usually gzip. An id with "/" in it lies in nested groups. What that layout lacks is kept in attributes of a
dataset: frame times as `timestamps` (float64 [T], seconds), flat and repeated frames as `low_information` (uint8 [T],
0 or 1), the checksum of the values as `crc32`; settings that features must share to be compared (model, fps) are
attributes of the file.

Compact files, for scoring again and again, hold float16 or int8 without gzip: a video is then one direct read. Codes of
int8 have their scales in the attribute `scales` (float32 [T, R]); such files are of version 2 of this layout.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hapvr.errors import HapvrError, ShapeError, StorageError, to_sentence
from hapvr.features.journal import JournaledFile
from hapvr.video.stored_videos import VERSION_KEY

VERSION = 2  # the newest that is read
FLOAT_VERSION = 1  # of files without codes, which older versions of hapvr read too
TIMESTAMPS, CHECKSUM, LOW_INFORMATION, SCALES = "timestamps", "crc32", "low_information", "scales"
BROKEN = (OSError, RuntimeError, KeyError, ValueError, TypeError, MemoryError, OverflowError, zlib.error)
"""What h5py and zlib raise on a damaged file or a full disk."""
# Tables with checksums, attributes beyond 64 KiB, groups that grow without being rewritten; read by every HDF5 since
# 2008. Newer tables would mark the file as open for as long as its writer lives, and a killed one could not unmark it.
LIBRARY = ("v108", "v108")
COPY = "Copy it again from where it came, or extract its videos again into another file."
_MAX_EXPANSION = 1100  # gzip makes at most 1,032 bytes of one; a header that promises more is damaged


@dataclass(frozen=True)
class Entry:
    """What the header of one video says."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def dims(self) -> tuple[int, int]:
        """R and D; a video of pooled frame vectors [T, D] has one region a frame."""
        return (1, self.shape[1]) if len(self.shape) == 2 else (self.shape[1], self.shape[2])


def import_h5py() -> Any:
    """The package h5py, which machines that only work from packed frames need not have."""
    try:
        import h5py
    except ImportError as error:
        raise StorageError("Feature files need the package h5py. Install it: pip install h5py") from error
    return h5py


def open_h5(path: Path, file: str | JournaledFile, mode: str) -> Any:
    """An h5py file; `StorageError` if it is in use, damaged, or no HDF5."""
    h5py = import_h5py()
    try:
        return h5py.File(file, mode, libver=LIBRARY)
    except BlockingIOError as error:
        raise StorageError(f"'{path}' is being written. Wait until its writer has closed it.") from error
    except PermissionError as error:
        raise StorageError(f"'{path}' may not be read: {error.strerror}.") from error
    except BROKEN as error:
        why = f"(cut short, damaged, or of another kind): {to_sentence(error)} {COPY}"
        raise StorageError(f"'{path}' is not a readable HDF5 file {why}") from error


def read_headers(h5: Any, path: Path) -> dict[str, Entry]:
    """Every video of a file by id, in file order; `StorageError` for anything that is none, or unlike the rest."""
    h5py = import_h5py()
    links: list[tuple[int, bytes, int]] = []
    try:
        size = h5.id.get_filesize()
        version = int(h5.attrs.get(VERSION_KEY, VERSION))
        h5.id.links.visit(lambda name, info: links.append((info.u, name, info.type)), info=True)
    except BROKEN as error:
        raise StorageError(f"'{path}': its list of videos cannot be read: {to_sentence(error)} {COPY}") from error
    if version > VERSION:
        raise StorageError(f"'{path}' was written in version {version} of this layout; this hapvr reads {VERSION}.")
    entries: dict[str, Entry] = {}
    for _, name, kind in sorted(links):
        id = name.decode("utf-8", "replace")
        if kind != h5py.h5l.TYPE_HARD:
            raise StorageError(f"'{path}': '{id}' is a link to elsewhere. Copy the features themselves into the file.")
        try:
            thing = h5py.h5o.open(h5.id, name)
            if isinstance(thing, h5py.h5g.GroupID):
                continue
            entry = _read_header(h5py, thing, size)
            id = name.decode()
        except (*BROKEN, HapvrError) as error:
            raise StorageError(f"'{path}': '{id}' is no video's features: {to_sentence(error)} {COPY}") from error
        first, expected = next(iter(entries.items()), (id, entry))
        if entry.dims != expected.dims:
            raise StorageError(
                f"'{path}' mixes features of {format_dims(expected.dims)} ('{first}') and of "
                f"{format_dims(entry.dims)} ('{id}'), which cannot be compared. Split it into two files."
            )
        entries[id] = entry
    return entries


def _read_header(h5py: Any, thing: Any, file_size: int) -> Entry:
    if not isinstance(thing, h5py.h5d.DatasetID):
        raise ShapeError(f"it is a {type(thing).__name__}, neither a dataset nor a group.")
    shape, kind = thing.shape, thing.get_type()
    code = kind.get_class() == h5py.h5t.INTEGER and thing.dtype == np.int8
    if not code and (kind.get_class() != h5py.h5t.FLOAT or kind.get_size() not in (2, 4)):
        raise ShapeError(f"its values are {thing.dtype}, not float32, float16 or int8.")
    if code and not h5py.h5a.exists(thing, SCALES.encode()):
        raise ShapeError(f"its values are int8 without the attribute '{SCALES}', which says what they stand for.")
    if len(shape) not in (2, 3) or 0 in shape:
        raise ShapeError(f"its shape is {list(shape)}, not [T, R, D] or [T, D] with a frame at least.")
    if math.prod(shape) * kind.get_size() > file_size * _MAX_EXPANSION:
        raise ShapeError(f"its shape is {list(shape)}, more than the file can hold.")
    return Entry(shape, np.dtype(np.int8) if code else np.dtype(f"f{kind.get_size()}"))


def read_attributes(h5: Any, path: Path) -> dict[str, Any]:
    """The attributes of a file as plain Python values, our own version number left out."""
    try:
        found = {name: value for name, value in h5.attrs.items() if name != VERSION_KEY}
    except BROKEN as error:
        raise StorageError(f"'{path}': its attributes cannot be read: {to_sentence(error)} {COPY}") from error
    plain = {name: value.tolist() if hasattr(value, "tolist") else value for name, value in found.items()}
    return {
        name: value.decode("utf-8", "replace") if isinstance(value, bytes) else value for name, value in plain.items()
    }


def format_dims(dims: tuple[int, int] | None) -> str:
    """R and D as an error names them."""
    return "any dims" if dims is None else f"{dims[0]} regions x {dims[1]} dims"


def compute_checksum(values: NDArray[Any], scales: NDArray[np.float32] | None) -> int:
    """CRC-32 of the values of a video, and of the scales of codes after them."""
    found = zlib.crc32(values.data)
    return found if scales is None else zlib.crc32(np.ascontiguousarray(scales).data, found)
