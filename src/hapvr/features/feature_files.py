"""Reading feature files strictly; `feature_layout.py` says what is in them, `feature_writer.py` writes them.

Whatever is damaged, cut short, of another shape or not finite is a `StorageError` that names the file and the video.
"""

from __future__ import annotations

import itertools
import math
import os
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hapvr.errors import ConfigError, DataError, HapvrError, StorageError, to_sentence
from hapvr.features.feature_layout import (
    BROKEN,
    CHECKSUM,
    COPY,
    LOW_INFORMATION,
    SCALES,
    TIMESTAMPS,
    Entry,
    compute_checksum,
    open_h5,
    read_attributes,
    read_headers,
)
from hapvr.features.features import Features, select_frames
from hapvr.features.int8_codes import decode_regions
from hapvr.features.journal import recover
from hapvr.storage import StrPath
from hapvr.video.stored_videos import StoredVideos

_SHUFFLE, _DEFLATE = 2, 1  # HDF5's numbers of these filters
_SCALE_BYTES = 4
_ReadValues = Callable[[Any, np.dtype[Any]], NDArray[Any]]


class StoredFrames:
    """Frames as bytes, in the precision in which a file holds them: what is handed from a reading process to a GPU.

    A row holds the numbers of a frame; those of int8, followed by the scales of its regions.

    Args:
        dtype: float32, float16 or int8.
        dims: R and D.
    """

    def __init__(self, dtype: np.dtype[Any], dims: tuple[int, int]) -> None:
        self.dtype, (self.regions, self.dims) = dtype, dims
        self._numbers = self.regions * self.dims * dtype.itemsize  # bytes
        self.row_bytes = self._numbers + (self.regions * _SCALE_BYTES if dtype == np.int8 else 0)

    def pack(self, values: NDArray[Any], scales: NDArray[np.float32] | None) -> NDArray[np.uint8]:
        """Numbers or codes [T, R, D], and the scales [T, R] of codes, as rows: uint8 [T, row_bytes]."""
        rows = np.ascontiguousarray(values).reshape(len(values), -1).view(np.uint8)
        if scales is None:
            return rows
        return np.concatenate([rows, np.ascontiguousarray(scales).view(np.uint8)], axis=1)

    def unpack(self, rows: Tensor) -> Tensor:
        """The vectors of rows, on the device where they lie: float32 [T, R, D]."""
        shape = (len(rows), self.regions, self.dims)
        if self.dtype == np.int8:
            scales = rows[:, self._numbers :].contiguous().view(torch.float32)
            return decode_regions(rows[:, : self._numbers].view(torch.int8).reshape(shape), scales)
        return rows.view(torch.float16 if self.dtype == np.float16 else torch.float32).view(shape).float()


class FeatureFile(StoredVideos[Entry], AbstractContextManager["FeatureFile"]):
    """Features of many videos, read from one HDF5 file; a collection of ids. Open it with `FeatureFile.open`.

    Safe to read from several threads. Close it, or use it in a `with` block: nobody can append while it is open.

    >>> import tempfile
    >>> from hapvr.features import FeatureWriter
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name) / "features.h5"
    >>> with FeatureWriter(path, attributes={"model": "lite"}) as writer:
    ...     writer.add("cats/one", Features(torch.ones(2, 9, 4), np.array([0.0, 1.0])))
    >>> with FeatureFile.open(path) as file:
    ...     print(file.ids, file.lengths, file.dims, file.attributes, file["cats/one"].regions.sum().item())
    ['cats/one'] {'cats/one': 2} (9, 4) {'model': 'lite'} 72.0
    >>> folder.cleanup()
    """

    def __init__(self, path: Path, h5: Any, entries: dict[str, Entry], dtype: torch.dtype | None) -> None:
        super().__init__(path, entries)
        self.path, self.dtype, self._h5 = path, dtype, h5

    @classmethod
    def open(cls, path: StrPath, *, dtype: torch.dtype | None = torch.float32) -> FeatureFile:
        """Open a file and check the header of every video in it; values are checked when they are read.

        Tensors come in `dtype`; None leaves them as they are stored, but int8 becomes float32. What an interrupted
        `FeatureWriter` had begun is finished. `StorageError` if the file is missing, in use by a writer, damaged, or
        not of this layout.
        """
        path = Path(path)
        if not path.is_file():
            what = "is a folder" if path.is_dir() else "does not exist"
            raise StorageError(f"'{path}' {what}. Give an HDF5 file of features, such as `hapvr extract` writes.")
        recover(path)
        h5 = open_h5(path, str(path), "r")
        try:
            entries = read_headers(h5, path)
        except BaseException:
            h5.close()
            raise
        return cls(path, h5, entries, dtype)

    @property
    def lengths(self) -> dict[str, int]:
        """The number of frames of each video."""
        return {id: entry.shape[0] for id, entry in self._videos.items()}

    @property
    def dims(self) -> tuple[int, int] | None:
        """R and D, which all videos share; None if there are none."""
        return next((entry.dims for entry in self._videos.values()), None)

    @property
    def attributes(self) -> dict[str, Any]:
        """The settings the features were made with, as far as the file has them: model, fps."""
        return read_attributes(self._h5, self.path)

    def __getitem__(self, id: str) -> Features:
        return self._read(id, _read_whole, self.dtype)

    def low_information(self, id: str) -> NDArray[np.bool_] | None:
        """Which frames of a video are flat or repeated, [T], without reading its vectors; None where not known."""
        try:
            return _read_flags(self._dataset(id))
        except (*BROKEN, HapvrError) as error:
            raise self._unusable(id, error) from error

    def stream(
        self, ids: Iterable[str] | None = None, *, prefetch: int = 8, workers: int | None = None
    ) -> Iterator[tuple[str, Features]]:
        """Each id with its features, read ahead by threads while the caller works.

        HDF5 reads and unpacks for one thread at a time; here it only reads, and the threads (by default one per core,
        at most 8) unpack gzip. At most `prefetch` videos are held ready. All `ids` in file order is the fastest.
        """
        if prefetch < 1 or (workers is not None and workers < 1):
            raise ConfigError(f"prefetch and workers must be at least 1, got {prefetch} and {workers}.")
        order = iter(self._videos if ids is None else ids)
        waiting: deque[tuple[str, Future[Features]]] = deque()
        pool = ThreadPoolExecutor(workers or min(8, os.cpu_count() or 1))
        try:
            while True:
                for id in itertools.islice(order, prefetch - len(waiting)):
                    waiting.append((id, pool.submit(self._read, id, _read_chunks, self.dtype)))
                if not waiting:
                    return
                id, future = waiting.popleft()
                yield id, future.result()
        finally:
            pool.shutdown(cancel_futures=True)

    def read_rows(self, id: str, stored: StoredFrames) -> NDArray[np.uint8]:
        """The frames of a video that count in a comparison, as rows of bytes: uint8 [T', row_bytes].

        `stored` is of the dtype of this video, or of float32, which takes any. Values are checked as ever.
        """
        if stored.dtype == np.int8:
            codes, scales, _, flags = self._read_stored(id, _read_whole)
            kept = select_frames(flags, len(codes))
            return stored.pack(codes[kept], None if scales is None else scales[kept])
        wanted = torch.float16 if stored.dtype == np.float16 else torch.float32
        regions = self._read(id, _read_whole, wanted).drop_flat().regions
        return stored.pack(regions.numpy(), None)

    def verify(self) -> None:
        """Read everything; raise one `StorageError` that names every video that cannot be used."""
        damaged = []
        for id in self._videos:
            try:
                self[id]
            except StorageError as error:
                damaged.append((id, error))
        if damaged:
            names = ", ".join(f"'{id}'" for id, _ in damaged[:20])
            more = f" and {len(damaged) - 20} more" if len(damaged) > 20 else ""
            raise StorageError(
                f"'{self.path}' has {len(damaged)} of {len(self)} videos that cannot be used: {names}{more}. The "
                f"first: {damaged[0][1]}"
            )

    def close(self) -> None:
        """Close the file; reading from it afterwards is an error."""
        self._h5.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, id: str, read_values: _ReadValues, dtype: torch.dtype | None) -> Features:
        values, scales, times, flags = self._read_stored(id, read_values)
        try:
            regions = torch.from_numpy(values)
            regions = regions if scales is None else decode_regions(regions, torch.from_numpy(scales))
            return Features(_convert(regions, dtype), times, flags)
        except (*BROKEN, HapvrError) as error:
            raise self._unusable(id, error) from error

    def _read_stored(
        self, id: str, read_values: _ReadValues
    ) -> tuple[NDArray[Any], NDArray[np.float32] | None, NDArray[np.float64] | None, NDArray[np.bool_] | None]:
        """The numbers or codes [T, R, D], the scales [T, R] of codes, times and flags, as far as the file has them."""
        dataset, entry = self._dataset(id), self._videos[id]
        try:
            _require_stored(dataset)
            values = read_values(dataset, entry.dtype)
            checksum, times = (dataset.attrs.get(name) for name in (CHECKSUM, TIMESTAMPS))
            shape = (entry.shape[0], *entry.dims)
            scales = _read_scales(dataset, shape[:2]) if entry.dtype == np.int8 else None
            if checksum is not None and compute_checksum(values, scales) != checksum:  # files of others have none
                raise DataError("its values are not those that were written.")
            stamps = None if times is None else np.asarray(times)
            return values.reshape(shape), scales, stamps, _read_flags(dataset)
        except (*BROKEN, HapvrError) as error:
            raise self._unusable(id, error) from error

    def _dataset(self, id: str) -> Any:
        if not self._h5:
            raise StorageError(f"'{self.path}' has been closed. Read inside the `with` block that opened it.")
        self.entry(id)
        try:
            return self._h5[id]
        except BROKEN as error:
            raise self._unusable(id, error) from error

    def _unusable(self, id: str, error: Exception) -> StorageError:
        return StorageError(f"'{self.path}': the features of '{id}' cannot be used: {to_sentence(error)} {COPY}")


# --- reading one dataset -------------------------------------------------------------------------------------------


def _read_scales(dataset: Any, shape: tuple[int, ...]) -> NDArray[np.float32]:
    scales = np.asarray(dataset.attrs[SCALES])
    if scales.dtype != np.float32 or scales.shape != shape or not (np.isfinite(scales) & (scales >= 0)).all():
        raise DataError(f"its attribute '{SCALES}' must hold float32 {list(shape)}, finite and not negative.")
    return scales


def _read_flags(dataset: Any) -> NDArray[np.bool_] | None:
    """Which frames are flat or repeated; None if the file does not tell."""
    stored = dataset.attrs.get(LOW_INFORMATION)
    if stored is None:
        return None
    flags = np.asarray(stored)
    if flags.dtype != np.uint8 or (flags > 1).any():
        raise DataError(f"its attribute '{LOW_INFORMATION}' must hold bytes of 0 and 1.")
    return flags.astype(np.bool_)


def _require_stored(dataset: Any) -> None:
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


def _read_whole(dataset: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The values of a dataset, as HDF5 reads them."""
    values = np.empty(dataset.shape, dtype)
    dataset.read_direct(values)
    return values


def _read_chunks(dataset: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The same, with gzip unpacked outside HDF5, which works for one thread at a time; the rest is left to HDF5."""
    plan = dataset.id.get_create_plist()
    filters = [plan.get_filter(number)[0] for number in range(plan.get_nfilters())]
    if dataset.dtype != dtype or filters not in ([_DEFLATE], [_SHUFFLE, _DEFLATE]):
        return _read_whole(dataset, dtype)
    offsets: list[tuple[int, ...]] = []
    dataset.id.chunk_iter(lambda info: offsets.append(info.chunk_offset))
    packed = [dataset.id.read_direct_chunk(offset) for offset in offsets]
    if any(skipped for skipped, _ in packed):  # pieces that were stored without their filters
        return _read_whole(dataset, dtype)
    values = np.empty(dataset.shape, dtype)
    for offset, (_, data) in zip(offsets, packed, strict=True):
        size, stream = math.prod(dataset.chunks) * dtype.itemsize, zlib.decompressobj()
        unpacked = stream.decompress(data, size)
        if len(unpacked) != size or stream.decompress(stream.unconsumed_tail, 1) or not stream.eof:
            raise DataError("a piece of it is damaged.")
        piece = np.frombuffer(unpacked, np.uint8)
        if filters[0] == _SHUFFLE:
            piece = np.stack(list(piece.reshape(dtype.itemsize, -1)), axis=1).reshape(-1)
        inside = tuple(slice(at, at + size) for at, size in zip(offset, dataset.chunks, strict=True))
        target = values[inside]
        target[:] = piece.view(dtype).reshape(dataset.chunks)[tuple(map(slice, target.shape))]
    return values


def _convert(values: Tensor, dtype: torch.dtype | None) -> Tensor:
    if dtype is None or dtype == values.dtype:
        return values
    result = torch.empty_like(values, dtype=dtype)
    # In pieces that torch does not divide: the threads that read features are one per core already.
    pieces = (torch.split(tensor.view(-1), 1 << 14) for tensor in (result, values))
    for target, source in zip(*pieces, strict=True):
        target.copy_(source)
    return result
