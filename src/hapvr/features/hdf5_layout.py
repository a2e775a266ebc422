"""The HDF5 layout of feature files: what is where, what is refused, and in which words.

Used by `FeatureFile` and `FeatureWriter`, which say what the layout is.
"""

from __future__ import annotations

import io
import itertools
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hapvr.errors import DataError, HapvrError, ShapeError, StorageError, to_sentence
from hapvr.features.journal import JournaledFile, journal_of
from hapvr.storage import VERSION_KEY, Setting, replace_file

TIMESTAMPS, CHECKSUM, LOW_INFORMATION = "timestamps", "crc32", "low_information"
BROKEN = (OSError, RuntimeError, KeyError, ValueError, TypeError, MemoryError, OverflowError, zlib.error)
"""What h5py and zlib raise on a damaged file or a full disk."""
COPY = "Copy it again from where it came, or extract its videos again into another file."

_VERSION = 1
# Tables with checksums, attributes beyond 64 KiB, groups that grow without being rewritten; read by every HDF5 since
# 2008. Newer tables would mark the file as open for as long as its writer lives, and a killed one could not unmark it.
_LIBRARY = ("v108", "v108")
_CHUNK_BYTES = 256 * 1024
_GZIP_LEVEL = 1  # with bytes shuffled: 7% smaller than level 4 without, written faster and read twice as fast
_MAX_EXPANSION = 1100  # gzip makes at most 1,032 bytes of one; a header that promises more is damaged
_SHUFFLE, _DEFLATE = 2, 1  # HDF5's numbers of these filters


@dataclass(frozen=True)
class Entry:
    """What the header of one video says."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def dims(self) -> tuple[int, int]:
        """R and D; a video of pooled frame vectors [T, D] has one region a frame."""
        return (1, self.shape[1]) if len(self.shape) == 2 else (self.shape[1], self.shape[2])


def h5py_module() -> Any:
    """The package h5py, which machines that only work from packed frames need not have."""
    try:
        import h5py
    except ImportError as error:
        raise StorageError("Feature files need the package h5py. Install it: pip install h5py") from error
    return h5py


def open_h5(path: Path, file: str | JournaledFile, mode: str) -> Any:
    """An h5py file; `StorageError` if it is in use, damaged, or no HDF5."""
    h5py = h5py_module()
    try:
        return h5py.File(file, mode, libver=_LIBRARY)
    except BlockingIOError as error:
        raise StorageError(f"'{path}' is being written. Wait until its writer has closed it.") from error
    except PermissionError as error:
        raise StorageError(f"'{path}' may not be read: {error.strerror}.") from error
    except BROKEN as error:
        raise StorageError(
            f"'{path}' is not a readable HDF5 file (cut short, damaged, or of another kind): {to_sentence(error)} "
            f"{COPY}"
        ) from error


def create(path: Path, attributes: Mapping[str, Setting], *, sync: bool) -> None:
    """An empty file with its attributes, made in memory and put in place at once."""
    h5py = h5py_module()
    buffer = io.BytesIO()
    with h5py.File(buffer, "w", libver=_LIBRARY) as h5:
        h5.attrs[VERSION_KEY] = _VERSION
        for name, value in attributes.items():
            if isinstance(value, str):  # of fixed length: HDF5 keeps the others in a heap without checksums
                text = value.encode()
                h5.attrs[name] = np.array(text, h5py.string_dtype("utf-8", max(1, len(text))))
            else:
                h5.attrs[name] = value
    with replace_file(path, sync=sync) as temporary:
        path.parent.mkdir(parents=True, exist_ok=True)
        journal_of(path).unlink(missing_ok=True)  # of a file that is no more
        temporary.write_bytes(buffer.getvalue())


def survey(h5: Any, path: Path) -> dict[str, Entry]:
    """Every video of a file by id, in file order; `StorageError` for anything that is none, or unlike the rest."""
    h5py = h5py_module()
    links: list[tuple[int, bytes, int]] = []
    try:
        size = h5.id.get_filesize()
        version = int(h5.attrs.get(VERSION_KEY, _VERSION))
        h5.id.links.visit(lambda name, info: links.append((info.u, name, info.type)), info=True)
    except BROKEN as error:
        raise StorageError(f"'{path}': its list of videos cannot be read: {to_sentence(error)} {COPY}") from error
    if version > _VERSION:
        raise StorageError(f"'{path}' was written in version {version} of this layout; this hapvr reads {_VERSION}.")
    entries: dict[str, Entry] = {}
    for _, name, kind in sorted(links):
        id = name.decode("utf-8", "replace")
        if kind != h5py.h5l.TYPE_HARD:
            raise StorageError(f"'{path}': '{id}' is a link to elsewhere. Copy the features themselves into the file.")
        try:
            thing = h5py.h5o.open(h5.id, name)
            if isinstance(thing, h5py.h5g.GroupID):
                continue
            entry = _header(h5py, thing, size)
            id = name.decode()
        except (*BROKEN, HapvrError) as error:
            raise StorageError(f"'{path}': '{id}' is no video's features: {to_sentence(error)} {COPY}") from error
        first, expected = next(iter(entries.items()), (id, entry))
        if entry.dims != expected.dims:
            raise StorageError(
                f"'{path}' mixes features of {in_words(expected.dims)} ('{first}') and of {in_words(entry.dims)} "
                f"('{id}'), which cannot be compared. Split it into two files."
            )
        entries[id] = entry
    return entries


def _header(h5py: Any, thing: Any, file_size: int) -> Entry:
    if not isinstance(thing, h5py.h5d.DatasetID):
        raise ShapeError(f"it is a {type(thing).__name__}, neither a dataset nor a group.")
    shape = thing.shape
    kind = thing.get_type()
    if kind.get_class() != h5py.h5t.FLOAT or kind.get_size() not in (2, 4):
        raise ShapeError(f"its values are {thing.dtype}, not float32 or float16.")
    if len(shape) not in (2, 3) or 0 in shape:
        raise ShapeError(f"its shape is {list(shape)}, not [T, R, D] or [T, D] with a frame at least.")
    if math.prod(shape) * kind.get_size() > file_size * _MAX_EXPANSION:
        raise ShapeError(f"its shape is {list(shape)}, more than the file can hold.")
    return Entry(shape, np.dtype(f"f{kind.get_size()}"))


def store(
    h5: Any,
    id: str,
    values: NDArray[Any],
    timestamps: NDArray[np.float64] | None,
    *,
    gzip: bool,
    low_information: NDArray[np.bool_] | None = None,
) -> None:
    """Put the values [T, R, D] of a video into an open file, in pieces alike along T if they are packed."""
    packing: dict[str, Any] = {}
    if gzip:
        most = max(1, _CHUNK_BYTES // values[0].nbytes)
        frames = math.ceil(len(values) / math.ceil(len(values) / most))  # alike, because the last one is padded
        packing = {"chunks": (frames, *values.shape[1:]), "shuffle": True}
        packing |= {"compression": "gzip", "compression_opts": _GZIP_LEVEL}
    values = np.ascontiguousarray(values)
    dataset = h5.create_dataset(id, data=values, **packing)
    # HDF5's tables have checksums, but values, and the table that says which piece is where, do not.
    dataset.attrs[CHECKSUM] = np.uint32(zlib.crc32(values.data))
    if timestamps is not None:
        dataset.attrs[TIMESTAMPS] = timestamps
    if low_information is not None:
        dataset.attrs[LOW_INFORMATION] = low_information.astype(np.uint8)


def read_flags(dataset: Any) -> NDArray[np.bool_] | None:
    """Which frames are flat or repeated, as `store` wrote it; None if the file does not tell."""
    stored = dataset.attrs.get(LOW_INFORMATION)
    if stored is None:
        return None
    flags = np.asarray(stored)
    if flags.dtype != np.uint8 or (flags > 1).any():
        raise DataError(f"its attribute '{LOW_INFORMATION}' must hold bytes of 0 and 1.")
    return flags.astype(np.bool_)


def require_checksum(dataset: Any, values: NDArray[Any]) -> None:
    """Raise `DataError` if the dataset has a checksum (ours do) and the values have another."""
    expected = dataset.attrs.get(CHECKSUM)
    if expected is not None and zlib.crc32(values.data) != expected:
        raise DataError("its values are not those that were written.")


def require_stored(dataset: Any) -> None:
    """HDF5 reads zeros where nothing was ever written: a sign of a writer that did not finish."""
    if dataset.external or dataset.is_virtual:
        raise DataError("its values lie in another file.")
    if dataset.chunks is None:
        stored, expected, unit = dataset.id.get_storage_size(), dataset.nbytes, "bytes"
    else:
        pieces = (-(-length // size) for length, size in zip(dataset.shape, dataset.chunks, strict=True))
        stored, expected, unit = dataset.id.get_num_chunks(), math.prod(pieces), "pieces"
    if stored != expected:
        raise DataError(f"only {stored} of {expected} {unit} were ever written.")


def read_whole(dataset: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The values of a dataset, as HDF5 reads them."""
    values = np.empty(dataset.shape, dtype)
    dataset.read_direct(values)
    return values


def read_by_pieces(dataset: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The same, with gzip unpacked outside HDF5, which works for one thread at a time; the rest is left to HDF5."""
    plan = dataset.id.get_create_plist()
    filters = [plan.get_filter(number)[0] for number in range(plan.get_nfilters())]
    if dataset.dtype != dtype or filters not in ([_DEFLATE], [_SHUFFLE, _DEFLATE]):
        return read_whole(dataset, dtype)
    offsets: list[tuple[int, ...]] = []
    dataset.id.chunk_iter(lambda info: offsets.append(info.chunk_offset))
    packed = [dataset.id.read_direct_chunk(offset) for offset in offsets]
    if any(skipped for skipped, _ in packed):  # pieces that were stored without their filters
        return read_whole(dataset, dtype)
    values = np.empty(dataset.shape, dtype)
    for offset, (_, data) in zip(offsets, packed, strict=True):
        piece = _unzipped(data, math.prod(dataset.chunks) * dtype.itemsize)
        if filters[0] == _SHUFFLE:
            piece = np.stack(list(piece.reshape(dtype.itemsize, -1)), axis=1).reshape(-1)
        inside = tuple(slice(at, at + size) for at, size in zip(offset, dataset.chunks, strict=True))
        target = values[inside]
        target[:] = piece.view(dtype).reshape(dataset.chunks)[tuple(map(slice, target.shape))]
    return values


def _unzipped(data: bytes, size: int) -> NDArray[np.uint8]:
    stream = zlib.decompressobj()
    unpacked = stream.decompress(data, size)
    if len(unpacked) != size or stream.decompress(stream.unconsumed_tail, 1) or not stream.eof:
        raise DataError("a piece of it is damaged.")
    return np.frombuffer(unpacked, np.uint8)


def attributes_of(h5: Any, path: Path) -> dict[str, Any]:
    """The attributes of a file as plain Python values, our own version number left out."""
    try:
        found = {name: value for name, value in h5.attrs.items() if name != VERSION_KEY}
    except BROKEN as error:
        raise StorageError(f"'{path}': its attributes cannot be read: {to_sentence(error)} {COPY}") from error
    plain = {name: value.tolist() if hasattr(value, "tolist") else value for name, value in found.items()}
    return {
        name: value.decode("utf-8", "replace") if isinstance(value, bytes) else value for name, value in plain.items()
    }


def groups_of(id: str) -> list[str]:
    """The groups an id lies in.

    >>> groups_of("a/b/c")
    ['a', 'a/b']
    """
    return list(itertools.accumulate(id.split("/")[:-1], lambda above, part: f"{above}/{part}"))


def in_words(dims: tuple[int, int] | None) -> str:
    """R and D as an error names them."""
    return "any dims" if dims is None else f"{dims[0]} regions x {dims[1]} dims"
