"""Writing packed frames, see `packed_index.py`: shard by shard, so that an interruption costs no more than one.

An index is written after its shard, both in one step; a shard without one was interrupted and is made again.
"""

from __future__ import annotations

import itertools
import re
import tarfile
import zlib
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from hapvr.errors import ConfigError, DataError, ShapeError, StorageError
from hapvr.records import format_array, require_times, require_vector
from hapvr.storage import StrPath, lock_folder, sha256_bytes, write_bytes, write_document
from hapvr.video.packed_frames import count_threads
from hapvr.video.packed_index import COUNT, FORMAT, MAX_SIDE, VERSION, Flags, Times, join_parts, read_shards
from hapvr.video.pictures import Picture, encode_jpeg, reduced_size
from hapvr.video.stored_videos import Setting, check_attributes, require_same

_BLOCK = 512  # bytes of a block of a tar
_UNFINISHED = re.compile(r"frames-\d{5,}\.(tar|(tar|json)\.partial)|\.frames(-\d{5,})?\.(tar|json)\..+\.part")


class PackedWriter(AbstractContextManager["PackedWriter"]):
    """Packs frames of videos into a folder, which is created if there is none, shard by shard.

    A video is safe once the shard with its last frame is in place: when enough others have followed, at `flush`, or at
    the end. An interrupted writer loses the shard it was filling, and nothing else. To resume, open the same folder
    and leave out `done_ids()`.

    Args:
        folder: where the shards go.
        shard_mib: the most that a shard may take.
        quality: of the JPEG pictures, 1 to 95.
        short_side: larger frames are reduced to this short side in pixels; None keeps all as they are.
        attributes: settings that the frames share, such as {"fps": 1.0}; whenever the folder is added to, they, quality
            and short_side must be the same.
        workers: threads that encode; by default one per core.

    >>> import os, tempfile
    >>> from hapvr.video.packed_frames import PackedFrames
    >>> folder = tempfile.TemporaryDirectory()
    >>> with PackedWriter(folder.name) as writer:
    ...     writer.add("../cats", np.zeros((3, 4, 6, 3), np.uint8), np.array([0.0, 1.0, 2.5]))
    >>> frames = PackedFrames.open(folder.name)
    >>> frames.ids, frames.lengths, frames.frame("../cats", 1).shape, sorted(os.listdir(folder.name))
    (['../cats'], {'../cats': 3}, (4, 6, 3), ['frames-00000.json', 'frames-00000.tar', 'frames.json'])
    >>> folder.cleanup()
    """

    def __init__(
        self,
        folder: StrPath,
        *,
        shard_mib: float = 15,
        quality: int = 90,
        short_side: int | None = None,
        attributes: Mapping[str, Setting] | None = None,
        workers: int | None = None,
    ) -> None:
        if not shard_mib > 0 or not 1 <= quality <= 95 or (short_side is not None and short_side < 1):
            raise ConfigError(
                "shard_mib and short_side must be positive and quality from 1 to 95, got "
                f"{shard_mib}, {short_side} and {quality}."
            )
        shared = dict(attributes or {})
        check_attributes(shared)
        threads = count_threads(workers)
        self.folder = Path(folder)
        self.encoding = (quality, short_side)  # of its JPEG pictures: quality and largest short side
        self._settings: dict[str, Any] = {"quality": quality, "short_side": short_side, "attributes": shared}
        self._max_bytes = int(shard_mib * 2**20)  # of a shard
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"'{self.folder}' cannot be written: {error.strerror}.") from error
        self._lock = lock_folder(self.folder)
        try:
            shards = read_shards(self.folder)
            for shard in shards:
                require_same(shard.path, shard.settings, self._settings)
            indexed = {shard.path.name for shard in shards}
            for path in self.folder.iterdir():  # what an interrupted writer left
                if _UNFINISHED.fullmatch(path.name) and path.name not in indexed:
                    path.unlink()
            videos, _ = join_parts(shards, self.folder)
        except BaseException:
            self._lock.close()
            raise
        self._done = set(videos)
        self._number = len(shards)
        self._waiting: list[str] = []  # complete in the shard that is being filled
        self._pool = ThreadPoolExecutor(threads)
        self._open = True
        self._shard, self._parts = bytearray(), list[dict[str, Any]]()

    def done_ids(self) -> Collection[str]:
        """The ids of the videos that are safely in the folder, with all their frames."""
        return frozenset(self._done)

    def add(self, id: str, images: Picture, timestamps: Times, low_information: Flags | None = None) -> None:
        """Pack one video: images uint8 [T, H, W, 3], RGB; timestamps float64 [T], seconds, strictly increasing.

        `low_information`, bool [T], says which frames are flat or repeated, where that is known. `DataError` too if a
        frame alone is larger than a shard; `StorageError` if the folder has the id already, or cannot be written.
        """
        if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3:
            raise ShapeError(f"images must be a uint8 array [T, H, W, 3], got {format_array(images)}.")
        require_vector(timestamps, "timestamps", np.float64, len(images))
        quality, short_side = self.encoding
        height, width = reduced_size(images.shape[1], images.shape[2], short_side)

        def encode(image: Picture) -> bytes:
            return encode_jpeg(image, quality, (width, height))

        # Not all at once: a long video is large even as JPEG.
        parts = (images[start : start + 64] for start in range(0, len(images), 64))
        pictures = itertools.chain.from_iterable(self._pool.map(encode, part) for part in parts)
        self.add_encoded(id, pictures, timestamps, size=(width, height), low_information=low_information)

    def add_encoded(
        self,
        id: str,
        pictures: Iterable[bytes],
        timestamps: Times,
        *,
        size: tuple[int, int],
        low_information: Flags | None = None,
    ) -> None:
        """Pack one video whose frames are JPEG already, all of this (width, height): made as `encoding` says.

        The pictures are trusted to be such, as many as timestamps; reading checks them.
        """
        if not isinstance(id, str) or id.encode("utf-8", "replace").decode() != id:
            raise DataError(f"An id is valid Unicode text, got {id!r}.")
        (width, height), count = size, len(timestamps)
        if count < 1 or not 0 < min(size) <= max(size) <= MAX_SIDE:
            shape = [count, height, width]
            raise DataError(f"'{id}' must have a frame at least, of sides from 1 to {MAX_SIDE}, got {shape}.")
        require_vector(timestamps, "timestamps", np.float64, count)
        require_times(timestamps, name=f"The timestamps of '{id}'")
        if low_information is not None:
            require_vector(low_information, "low_information", np.bool_, count)
        if not self._open:
            raise StorageError(f"'{self.folder}' is closed to this writer. Open another `PackedWriter` on it to go on.")
        if id in self._done or id in self._waiting:
            raise StorageError(f"'{self.folder}' has '{id}' already. Leave out `done_ids()`, or use another folder.")
        video = {"id": id, "frames": count, "height": height, "width": width}
        flags = [None] * count if low_information is None else low_information.astype(int).tolist()
        before = (self._number, len(self._shard), len(self._parts))
        try:
            for index, (data, time_s, flag) in enumerate(zip(pictures, timestamps.tolist(), flags, strict=True)):
                self._append(video, index, time_s, data, flag)
        except BaseException:  # no part of this video stays in the shard that is being filled
            length, parts = before[1:] if before[0] == self._number else (0, 0)
            del self._shard[length:], self._parts[parts:]
            raise
        self._waiting.append(id)

    def _append(self, video: dict[str, Any], index: int, timestamp: float, data: bytes, flag: int | None) -> None:
        padding = bytes(-len(data) % _BLOCK)
        room = _BLOCK + len(data) + len(padding) + 2 * _BLOCK  # header, picture, and the tar's end
        if room > self._max_bytes:
            raise DataError(
                f"Frame {index} of '{video['id']}' takes {room:,} bytes, more than a shard of {self._max_bytes:,}. "
                "Give a larger shard_mib or a smaller short_side."
            )
        if len(self._shard) + room > self._max_bytes:
            self._finish_shard()
        if not self._parts or self._parts[-1]["id"] != video["id"]:
            self._parts.append({**video, "first": index, "timestamps": [], "offsets": [], "sizes": [], "crc32": []})
        part = self._parts[-1]
        header = tarfile.TarInfo(f"{len(self._parts) - 1:06d}/{index:06d}.jpg")
        header.size = len(data)
        self._shard += header.tobuf(tarfile.USTAR_FORMAT)
        part["timestamps"].append(timestamp)
        part["offsets"].append(len(self._shard))
        part["sizes"].append(len(data))
        part["crc32"].append(zlib.crc32(data))
        if flag is not None:
            part.setdefault("low_information", []).append(flag)
        self._shard += data + padding

    def _finish_shard(self) -> None:
        data = bytes(self._shard) + bytes(2 * _BLOCK)
        index = {
            "format": FORMAT,
            "version": VERSION,
            "bytes": len(data),
            "sha256": sha256_bytes(data),
            "settings": self._settings,
            "videos": self._parts,
        }
        path = self.folder / f"frames-{self._number:05d}.tar"
        hint = "The shards before it are safe. Make room, then open another `PackedWriter` on the folder."
        try:
            write_bytes(path, data, hint=hint)
            write_document(path.with_suffix(".json"), index, indent=None, hint=hint)
        except StorageError:
            self._open = False
            raise
        self._number += 1
        self._done.update(self._waiting)
        self._waiting.clear()
        self._shard, self._parts = bytearray(), []

    def flush(self) -> None:
        """Put the shard that is being filled in place, full or not."""
        if self._open and self._parts:
            self._finish_shard()

    def close(self) -> None:
        """Put the last shard in place, note how many there are, and release the folder."""
        try:
            self.flush()
            if self._open and self._number:
                content = {"format": FORMAT, "version": VERSION, "shards": self._number}
                write_document(self.folder / COUNT, content, indent=None)
        finally:
            self._open = False
            self._pool.shutdown()
            self._lock.close()

    def __exit__(self, *_: object) -> None:
        self.close()
