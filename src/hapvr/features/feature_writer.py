"""Writing feature files (see `feature_layout.py`) video by video, so that an interruption loses none that was added."""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from hapvr.errors import ConfigError, DataError, StorageError, to_sentence
from hapvr.features.feature_files import FeatureFile
from hapvr.features.feature_layout import (
    BROKEN,
    CHECKSUM,
    FLOAT_VERSION,
    LIBRARY,
    LOW_INFORMATION,
    SCALES,
    TIMESTAMPS,
    VERSION,
    Entry,
    compute_checksum,
    format_dims,
    import_h5py,
    open_h5,
    read_attributes,
    read_headers,
)
from hapvr.features.features import Features, max_magnitude
from hapvr.features.int8_codes import encode_regions
from hapvr.features.journal import JournaledFile, journal_of, recover
from hapvr.storage import StrPath, hold_interrupts, replace_file
from hapvr.video.stored_videos import VERSION_KEY, Setting, check_attributes, require_same

_MAX_ID = 8192  # HDF5 takes 64 KiB of UTF-8
_CHUNK_BYTES = 256 * 1024
_GZIP_LEVEL = 1  # with bytes shuffled: 7% smaller than level 4 without, written faster and read twice as fast


class FeatureWriter(AbstractContextManager["FeatureWriter"]):
    """Adds videos to an HDF5 file, which is created if there is none. A video is safe once `add` has returned.

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
        dtype: "float32" as published; "float16", half as large; or "int8", a quarter, with a scale a vector. Values are
            rounded.
        compression: "gzip" as published (with shuffled bytes), or None, so that a video is one direct read.
        dims: R and D, if they are to be refused before the first video decides them.
        attributes: settings that the features share, such as {"model": "lite", "fps": 1.0}. A file that exists must
            have the same; None accepts whatever it has.
        sync: wait for the disk, so that not even a power failure loses a video.
    """

    def __init__(
        self,
        path: StrPath,
        *,
        dtype: Literal["float32", "float16", "int8"] = "float32",
        compression: Literal["gzip"] | None = "gzip",
        dims: tuple[int, int] | None = None,
        attributes: Mapping[str, Setting] | None = None,
        sync: bool = True,
    ) -> None:
        if dtype not in ("float32", "float16", "int8"):
            raise ConfigError(f"dtype must be 'float32', 'float16' or 'int8', got {dtype!r}.")
        if compression not in ("gzip", None):
            raise ConfigError(f"compression must be 'gzip' or None, got {compression!r}.")
        check_attributes(attributes or {})
        self.path = Path(path)
        self.dims = dims
        self._dtype: np.dtype[Any] = np.dtype(dtype)
        self._gzip = compression == "gzip"
        if not self.path.exists():
            version = VERSION if dtype == "int8" else FLOAT_VERSION
            _create(self.path, attributes or {}, version=version, sync=sync)
        recover(self.path)
        open_h5(self.path, str(self.path), "r").close()  # HDF5 takes a file object for more than it takes a file
        self._file = JournaledFile(self.path, sync=sync)
        try:
            self._h5 = open_h5(self.path, self._file, "r+")
            entries = read_headers(self._h5, self.path)
            if attributes is not None:
                require_same(self.path, read_attributes(self._h5, self.path), attributes)
            self._require_alike(entries)
        except BaseException:
            self.close()
            raise
        self._done = set(entries)
        self._groups = {group for id in entries for group in groups_of(id)}

    def _require_alike(self, entries: Mapping[str, Entry]) -> None:
        for id, entry in entries.items():
            if self.dims is not None and entry.dims != self.dims:
                raise StorageError(
                    f"'{self.path}' holds features of {format_dims(entry.dims)} ('{id}'), not of "
                    f"{format_dims(self.dims)}. Write into another file."
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
                f"'{self.path}' takes features of {format_dims(self.dims)}, '{id}' has {format_dims(dims)}: "
                "another model or layout. Write it into another file."
            )
        held = np.dtype(np.float32) if self._dtype == np.int8 else self._dtype  # the scales of codes are float32
        if (largest := max_magnitude(features.regions)) > (most := float(np.finfo(held).max)):
            raise DataError(f"The regions of '{id}' hold {largest:g}; {held.name} ends at {most:g}.")
        values = features.regions.detach().cpu().to(torch.promote_types(features.regions.dtype, torch.float32)).numpy()
        with hold_interrupts():
            try:
                self._store(id, values, features)
                self._h5.flush()
                self._file.commit()
            except BaseException as error:
                self._file.abandon()
                if isinstance(error, BROKEN):
                    raise StorageError(
                        f"'{id}' could not be written into '{self.path}': {to_sentence(error)} The file keeps what it "
                        "had. Is the disk full? Then make room, and open another `FeatureWriter` on it."
                    ) from error
                raise
            self.dims = dims
            self._done.add(id)
            self._groups.update(groups_of(id))

    def _store(self, id: str, values: NDArray[Any], features: Features) -> None:
        """Put the values [T, R, D] of a video into the file, in pieces alike along T if they are packed."""
        scales = None
        if self._dtype == np.int8:
            values, scales = encode_regions(values.astype(np.float32, copy=False))
        values = np.ascontiguousarray(values.astype(self._dtype, copy=False))
        packing: dict[str, Any] = {}
        if self._gzip:
            most = max(1, _CHUNK_BYTES // values[0].nbytes)
            frames = math.ceil(len(values) / math.ceil(len(values) / most))  # alike, because the last one is padded
            packing = {"chunks": (frames, *values.shape[1:]), "shuffle": True}
            packing |= {"compression": "gzip", "compression_opts": _GZIP_LEVEL}
        dataset = self._h5.create_dataset(id, data=values, **packing)
        # HDF5's tables have checksums, but values, and the table that says which piece is where, do not.
        dataset.attrs[CHECKSUM] = np.uint32(compute_checksum(values, scales))
        if scales is not None:
            dataset.attrs[SCALES] = scales
        if features.timestamps is not None:
            dataset.attrs[TIMESTAMPS] = features.timestamps
        if features.low_information is not None:
            dataset.attrs[LOW_INFORMATION] = features.low_information.astype(np.uint8)

    def _check_id(self, id: str) -> None:
        if not isinstance(id, str):
            raise DataError(f"An id is a str, got a {type(id).__name__}.")
        if id.encode("utf-8", "replace").decode() != id:
            raise DataError(f"The id {id!r} is not valid Unicode. Give the video another id.")
        if len(id) > _MAX_ID:
            raise DataError(f"The id '{id[:40]}...' has {len(id):,} characters; at most {_MAX_ID:,} are stored.")
        if "\0" in id or any(part in ("", ".") for part in id.split("/")):
            raise DataError(
                f"The id {id!r} cannot be a name in an HDF5 file: before and after each slash there must be a name, "
                "other than '.', and no NUL. Give the video another id."
            )
        if id in self._done:
            raise StorageError(f"'{self.path}' has '{id}' already. Leave out `done_ids()`, or write into another file.")
        above = next((group for group in groups_of(id) if group in self._done), None)
        if above is not None or id in self._groups:
            below = id if above is not None else next(done for done in self._done if done.startswith(id + "/"))
            raise StorageError(
                f"'{self.path}' cannot hold both '{above or id}' and '{below}': in HDF5 a name is a video or a "
                f"folder of videos. Rename one of them, for instance to '{above or id}.mp4', or use two files."
            )

    def close(self) -> None:
        """Release the file. Everything that was added is in it already."""
        with hold_interrupts():
            self._file.abandon()
            try:
                if hasattr(self, "_h5"):
                    self._h5.close()
            finally:
                self._file.close()

    def __exit__(self, *_: object) -> None:
        self.close()


def convert_features(
    source: StrPath,
    output: StrPath,
    *,
    dtype: Literal["float32", "float16", "int8"] = "int8",
    compression: Literal["gzip"] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Copy features into another file in another precision, by default the compact one; how many videos it then has.

    Times, flags and settings are kept. A file that an interrupted call left is continued.

    Args:
        source: any HDF5 file of features, published ones too.
        output: the file to write, or to continue.
        dtype: float16, or int8, a quarter as large as float32; both, without gzip, are one direct read a video.
        compression: "gzip" for a file as published.
        progress: called with how many videos are done, and how many there are.
    """
    with FeatureFile.open(source, dtype=None) as file:
        settings = {name: value for name, value in file.attributes.items() if isinstance(value, str | int | float)}
        with FeatureWriter(output, dtype=dtype, compression=compression, attributes=settings, sync=False) as writer:
            if more := set(writer.done_ids()) - set(file.ids):
                raise StorageError(f"'{output}' has '{min(more)}', which '{source}' lacks. Write into another file.")
            todo = [id for id in file.ids if id not in writer.done_ids()]
            done = len(file) - len(todo)
            for id, features in file.stream(todo):
                writer.add(id, features)
                done += 1
                if progress is not None:
                    progress(done, len(file))
            return len(writer.done_ids())


def _create(path: Path, attributes: Mapping[str, Setting], *, version: int, sync: bool) -> None:
    """An empty file with its attributes, made in memory and put in place at once."""
    h5py = import_h5py()
    buffer = io.BytesIO()
    with h5py.File(buffer, "w", libver=LIBRARY) as h5:
        h5.attrs[VERSION_KEY] = version
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


def groups_of(id: str) -> list[str]:
    """The groups an id lies in.

    >>> groups_of("a/b/c")
    ['a', 'a/b']
    """
    return list(itertools.accumulate(id.split("/")[:-1], lambda above, part: f"{above}/{part}"))
