"""Feature files: the HDF5 layout in which the field publishes features, read strictly and written safely.

A file holds one dataset per video, named by the video's id: [T, R, D] (or [T, D], which is one region a frame), float32
or float16, usually gzip. An id with "/" in it lies in nested groups. What that layout lacks is kept in attributes of a
dataset: frame times as `timestamps` (float64 [T], seconds), flat and repeated frames as `low_information` (uint8 [T],
0 or 1), the checksum of the values as `crc32`; settings that features must share to be compared (model, rate) are
attributes of the file.

Whatever is damaged, cut short, of another shape or not finite is a `StorageError` that names the file and the video.
"""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hapvr.errors import ConfigError, DataError, HapvrError, StorageError, to_sentence
from hapvr.features import hdf5_layout as layout
from hapvr.features.features import Features, max_magnitude
from hapvr.features.journal import JournaledFile, recover
from hapvr.interrupts import uninterrupted
from hapvr.storage import Setting, check_attributes, require_same

_DTYPES: dict[str, np.dtype[Any]] = {"float32": np.dtype("f4"), "float16": np.dtype("f2")}
_MAX_ID = 8192  # HDF5 takes 64 KiB of UTF-8
_Reader = Callable[[Any, np.dtype[Any]], NDArray[Any]]


class FeatureFile:
    """Features of many videos, read from one HDF5 file; a collection of ids. Open it with `FeatureFile.open`.

    Safe to read from several threads. Close it, or use it in a `with` block: nobody can append while it is open.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name) / "features.h5"
    >>> with FeatureWriter(path, attributes={"model": "lite"}) as writer:
    ...     writer.add("cats/one", Features(torch.ones(2, 9, 4), np.array([0.0, 1.0])))
    >>> with FeatureFile.open(path) as file:
    ...     print(file.ids, file.lengths, file.dims, file.attributes, file["cats/one"].regions.sum().item())
    ['cats/one'] {'cats/one': 2} (9, 4) {'model': 'lite'} 72.0
    >>> folder.cleanup()
    """

    def __init__(self, path: Path, h5: Any, entries: dict[str, layout.Entry], dtype: torch.dtype | None) -> None:
        self.path = path
        self.dtype = dtype
        self._h5 = h5
        self._entries = entries

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, dtype: torch.dtype | None = torch.float32) -> FeatureFile:
        """Open a file and check the header of every video in it; values are checked when they are read.

        Finishes what an interrupted `FeatureWriter` had begun, if need be.

        Args:
            path: an HDF5 file.
            dtype: of the tensors that are returned; None leaves them as they are stored.

        Raises:
            StorageError: the file is missing, in use by a writer, damaged, or not of this layout.
        """
        path = Path(path)
        if not path.is_file():
            what = "is a folder" if path.is_dir() else "does not exist"
            raise StorageError(f"'{path}' {what}. Give an HDF5 file of features, such as `hapvr extract` writes.")
        recover(path)
        h5 = layout.open_h5(path, str(path), "r")
        try:
            entries = layout.survey(h5, path)
        except BaseException:
            h5.close()
            raise
        return cls(path, h5, entries, dtype)

    @property
    def ids(self) -> list[str]:
        """The ids of all videos, in the order in which they lie in the file."""
        return list(self._entries)

    @property
    def lengths(self) -> dict[str, int]:
        """The number of frames of each video."""
        return {id: entry.shape[0] for id, entry in self._entries.items()}

    @property
    def dims(self) -> tuple[int, int] | None:
        """R and D, which all videos share; None if there are none."""
        return next((entry.dims for entry in self._entries.values()), None)

    @property
    def attributes(self) -> dict[str, Any]:
        """The settings the features were made with, as far as the file tells: model, rate."""
        return layout.attributes_of(self._h5, self.path)

    def require(self, attributes: Mapping[str, Setting]) -> None:
        """Raise `StorageError` unless the file's attributes hold these values: features of two models do not mix."""
        require_same(self.path, self.attributes, attributes)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __contains__(self, id: object) -> bool:
        return id in self._entries

    def __getitem__(self, id: str) -> Features:
        return self._read(id, layout.read_whole)

    def low_information(self, id: str) -> NDArray[np.bool_] | None:
        """Which frames of a video are flat or repeated, [T], without reading its vectors; None where not known."""
        try:
            return layout.read_flags(self._dataset(id))
        except (*layout.BROKEN, HapvrError) as error:
            raise self._broken(id, error) from error

    def stream(
        self, ids: Iterable[str] | None = None, *, prefetch: int = 8, workers: int | None = None
    ) -> Iterator[tuple[str, Features]]:
        """Each id with its features, read ahead by threads while the caller works.

        HDF5 reads and unpacks for one thread at a time; here it only reads, and the threads unpack gzip.

        Args:
            ids: which videos, in this order; by default all, as they lie in the file, which is the fastest.
            prefetch: how many videos are held ready at most.
            workers: threads; by default one per core, at most 8.
        """
        if prefetch < 1 or (workers is not None and workers < 1):
            raise ConfigError(f"prefetch and workers must be at least 1, got {prefetch} and {workers}.")
        order = iter(self._entries if ids is None else ids)
        waiting: deque[tuple[str, Future[Features]]] = deque()
        pool = ThreadPoolExecutor(min(8, os.cpu_count() or 1) if workers is None else workers)
        try:
            for id in itertools.islice(order, prefetch):
                waiting.append((id, pool.submit(self._read, id, layout.read_by_pieces)))
            while waiting:
                id, future = waiting.popleft()
                features = future.result()
                for following in itertools.islice(order, 1):
                    waiting.append((following, pool.submit(self._read, following, layout.read_by_pieces)))
                yield id, features
        finally:
            pool.shutdown(cancel_futures=True)

    def verify(self) -> None:
        """Read everything; raise one `StorageError` that names every video that cannot be used."""
        damaged = []
        for id in self._entries:
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

    def __enter__(self) -> FeatureFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- reading one video -----------------------------------------------------------------------------------------

    def _read(self, id: str, read: _Reader) -> Features:
        dataset = self._dataset(id)
        entry = self._entries[id]
        try:
            layout.require_stored(dataset)
            values = read(dataset, entry.dtype)
            layout.require_checksum(dataset, values)
            regions = torch.from_numpy(values).reshape(entry.shape[0], *entry.dims)
            times, low = dataset.attrs.get(layout.TIMESTAMPS), layout.read_flags(dataset)
            return Features(_convert(regions, self.dtype), None if times is None else np.asarray(times), low)
        except (*layout.BROKEN, HapvrError) as error:
            raise self._broken(id, error) from error

    def _dataset(self, id: str) -> Any:
        if not self._h5:
            raise StorageError(f"'{self.path}' has been closed. Read inside the `with` block that opened it.")
        if id not in self._entries:
            known = ", ".join(f"'{known}'" for known in itertools.islice(self._entries, 3))
            raise StorageError(f"'{self.path}' has no video '{id}' among its {len(self)} (such as {known or 'none'}).")
        try:
            return self._h5[id]
        except layout.BROKEN as error:
            raise self._broken(id, error) from error

    def _broken(self, id: str, error: Exception) -> StorageError:
        return StorageError(f"'{self.path}': the features of '{id}' cannot be used: {to_sentence(error)} {layout.COPY}")


class FeatureWriter:
    """Adds videos to an HDF5 file, made if need be: what `add` has returned from is never lost.

    Every `add` ends in a commit: killed at any moment, even by SIGKILL in the middle of a write, the writer leaves a
    file with every video that was added and none by half. (It writes its features beyond the end of the file and then
    changes HDF5's tables in one step, by way of a small journal, `NAME.journal`, which `FeatureFile.open` or the next
    writer finishes if need be; keep it with the file if you copy both after a crash.) With `sync` this holds for
    power failures too, at the price of two waits for the disk per video.

    The file is locked while it is written: no other writer, and no reader, HDF5's own included. To resume, open the
    same file again and leave out `done_ids()`. Features that would not be comparable are refused: all videos share R
    and D, the dtype, and the `attributes`.

    Args:
        path: the file; appended to if it exists, also if other programs wrote it.
        dtype: "float32" as published, or "float16", half as large; values are rounded.
        compression: "gzip" as published (with shuffled bytes), or None.
        dims: R and D, if they are to be refused before the first video decides them.
        attributes: settings that the features share, such as {"model": "lite", "fps": 1.0}. A file that exists must
            have the same; None accepts whatever it has.
        sync: wait for the disk, so that not even a power failure loses a video.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        dtype: Literal["float32", "float16"] = "float32",
        compression: Literal["gzip"] | None = "gzip",
        dims: tuple[int, int] | None = None,
        attributes: Mapping[str, Setting] | None = None,
        sync: bool = True,
    ) -> None:
        if dtype not in _DTYPES:
            raise ConfigError(f"dtype must be 'float32' or 'float16', got {dtype!r}.")
        if compression not in ("gzip", None):
            raise ConfigError(f"compression must be 'gzip' or None, got {compression!r}.")
        check_attributes(attributes or {})
        self.path = Path(path)
        self.dims = dims
        self._dtype = _DTYPES[dtype]
        self._gzip = compression == "gzip"
        if not self.path.exists():
            layout.create(self.path, attributes or {}, sync=sync)
        recover(self.path)
        layout.open_h5(self.path, str(self.path), "r").close()  # HDF5 takes a file object for more than it takes a file
        self._file = JournaledFile(self.path, sync=sync)
        try:
            self._h5 = layout.open_h5(self.path, self._file, "r+")
            entries = layout.survey(self._h5, self.path)
            if attributes is not None:
                require_same(self.path, layout.attributes_of(self._h5, self.path), attributes)
            self._require_alike(entries)
        except BaseException:
            self.close()
            raise
        self._done = set(entries)
        self._groups = {group for id in entries for group in layout.groups_of(id)}

    def _require_alike(self, entries: Mapping[str, layout.Entry]) -> None:
        for id, entry in entries.items():
            if self.dims is not None and entry.dims != self.dims:
                raise StorageError(
                    f"'{self.path}' holds features of {layout.in_words(entry.dims)} ('{id}'), not of "
                    f"{layout.in_words(self.dims)}. Write into another file."
                )
            if entry.dtype != self._dtype:
                raise StorageError(
                    f"'{self.path}' holds {entry.dtype.name} features ('{id}'), not {self._dtype.name}. Write "
                    f"into another file, or pass dtype='{entry.dtype.name}'."
                )
            self.dims = entry.dims

    def done_ids(self) -> Collection[str]:
        """The ids of the videos that are safely in the file."""
        return frozenset(self._done)

    def add(self, id: str, features: Features) -> None:
        """Store the features of one video; when this returns they are safe.

        Raises:
            DataError: the id cannot be a name in an HDF5 file, or a value is too large for the file's dtype.
            StorageError: the id is there already, cannot lie beside another, the features have other dims than the
                file, or they could not be written (the file keeps what it had; the writer accepts no more).
        """
        if not self._file.live:
            raise StorageError(f"'{self.path}' is closed to this writer. Open another `FeatureWriter` on it to go on.")
        self._check_id(id)
        dims = (int(features.regions.shape[1]), int(features.regions.shape[2]))
        if self.dims not in (None, dims):
            raise StorageError(
                f"'{self.path}' takes features of {layout.in_words(self.dims)}, '{id}' has {layout.in_words(dims)}: "
                "another model or layout. Write it into another file."
            )
        if (largest := max_magnitude(features.regions)) > (most := float(np.finfo(self._dtype).max)):
            raise DataError(f"The regions of '{id}' hold {largest:g}; {self._dtype.name} ends at {most:g}.")
        values = features.regions.detach().cpu().to(torch.promote_types(features.regions.dtype, torch.float32)).numpy()
        with uninterrupted():
            self._store(id, values.astype(self._dtype, copy=False), features)
            self.dims = dims
            self._done.add(id)
            self._groups.update(layout.groups_of(id))

    def _store(self, id: str, values: NDArray[Any], features: Features) -> None:
        try:
            layout.store(
                self._h5, id, values, features.timestamps, gzip=self._gzip, low_information=features.low_information
            )
            self._h5.flush()
            self._file.commit()
        except BaseException as error:
            self._file.abandon()
            if isinstance(error, layout.BROKEN):
                raise StorageError(
                    f"'{id}' could not be written into '{self.path}': {to_sentence(error)} The file keeps what it "
                    "had. Is the disk full? Then make room, and open another `FeatureWriter` on it."
                ) from error
            raise

    def _check_id(self, id: str) -> None:
        if not isinstance(id, str):
            raise DataError(f"An id is a str, got a {type(id).__name__}.")
        try:
            id.encode()
        except UnicodeEncodeError as error:
            raise DataError(f"The id {id!r} is not valid Unicode. Give the video another id.") from error
        if len(id) > _MAX_ID:
            raise DataError(f"The id '{id[:40]}...' has {len(id):,} characters; at most {_MAX_ID:,} are stored.")
        if "\0" in id or any(part in ("", ".") for part in id.split("/")):
            raise DataError(
                f"The id {id!r} cannot be a name in an HDF5 file: before and after each slash there must be a name, "
                "other than '.', and no NUL. Give the video another id."
            )
        if id in self._done:
            raise StorageError(f"'{self.path}' has '{id}' already. Leave out `done_ids()`, or write into another file.")
        above = next((group for group in layout.groups_of(id) if group in self._done), None)
        if above is not None or id in self._groups:
            below = id if above is not None else next(done for done in self._done if done.startswith(id + "/"))
            raise StorageError(
                f"'{self.path}' cannot hold both '{above or id}' and '{below}': in HDF5 a name is a video or a "
                f"folder of videos. Rename one of them, for instance to '{above or id}.mp4', or use two files."
            )

    def close(self) -> None:
        """Release the file. Everything that was added is in it already."""
        with uninterrupted():
            self._file.abandon()
            try:
                if hasattr(self, "_h5"):
                    self._h5.close()
            finally:
                self._file.close()

    def __enter__(self) -> FeatureWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _convert(values: Tensor, dtype: torch.dtype | None) -> Tensor:
    if dtype is None or dtype == values.dtype:
        return values
    result = torch.empty_like(values, dtype=dtype)
    # In pieces that torch does not divide: the threads that read features are one per core already.
    pieces = (torch.split(tensor.view(-1), 1 << 14) for tensor in (result, values))
    for target, source in zip(*pieces, strict=True):
        target.copy_(source)
    return result
