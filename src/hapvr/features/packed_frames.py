"""Packed frames: the sampled frames of many videos as JPEG in tar shards, for machines that have no video decoder.

A folder holds pairs of files: `frames-00000.tar`, an ordinary tar of JPEG pictures, and `frames-00000.json`, its index,
which says for each video where in the tar its frames lie, so that one is read without walking the rest. Ids are kept in
the index alone and never become a path. A video may continue in the next shard.

An index is written after its shard, both in one step; a shard without one was interrupted and is made again. Each frame
is read against its checksum, and the whole shard can be. Reading takes Pillow and the standard library, nothing else.
"""

from __future__ import annotations

import itertools
import os
import tarfile
import zlib
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from PIL import Image

from hapvr.errors import ConfigError, DataError, HapvrError, ShapeError, StorageError
from hapvr.features.attributes import Setting, check_attributes, require_same, sentence
from hapvr.features.journal import lock_folder
from hapvr.features.packed_index import (
    COPY,
    FORMAT,
    MAX_SIDE,
    VERSION,
    Flags,
    Images,
    PackedVideo,
    Shard,
    Times,
    join_parts,
    read_shards,
    remove_unfinished,
)
from hapvr.storage import sha256_bytes, write_bytes, write_document
from hapvr.video.jpeg import BROKEN_PICTURE, JpegRun, encode_jpeg, open_jpeg, require_checksum
from hapvr.video.resizing import reduced_size

_BLOCK = 512  # bytes of a block of a tar
_RUN = 16  # frames that a thread decodes at a time
_AHEAD_BYTES = 256 * 2**20  # of decoded frames that wait for the caller


class PackedWriter:
    """Packs frames of videos into a folder, made if need be, shard by shard.

    A video is safe once the shard with its last frame is in place: when enough others have followed, at `flush`, or at
    the end. An interrupted writer loses the shard it was filling, and nothing else. To resume, open the same folder
    and leave out `done_ids()`.

    Args:
        folder: where the shards go.
        shard_mib: the most that a shard may take, in MiB.
        quality: of the JPEG pictures, 1 to 95.
        short_side: larger frames are reduced to this short side in pixels; None keeps all as they are.
        attributes: settings that the frames share, such as {"fps": 1.0}. With quality and short_side they must be the
            same whenever the folder is added to.
        workers: threads that encode; by default one per core.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with PackedWriter(folder.name) as writer:
    ...     writer.add("../cats", np.zeros((3, 4, 6, 3), np.uint8), np.array([0.0, 1.0, 2.5]))
    >>> frames = PackedFrames.open(folder.name)
    >>> frames.ids, frames.lengths, frames.frame("../cats", 1).shape, sorted(os.listdir(folder.name))
    (['../cats'], {'../cats': 3}, (4, 6, 3), ['frames-00000.json', 'frames-00000.tar'])
    >>> folder.cleanup()
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
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
        check_attributes(attributes or {})
        threads = _count_threads(workers)
        self.folder = Path(folder)
        self.encoding = (quality, short_side)  # of its JPEG pictures: quality and largest short side
        shared = dict(attributes or {})
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
            remove_unfinished(self.folder, shards)
            videos, _ = join_parts(shards, self.folder)
        except BaseException:
            self._lock.close()
            raise
        self._done = set(videos)
        self._number = 1 + max((shard.number for shard in shards), default=-1)
        self._waiting: list[str] = []  # complete in the shard that is being filled
        self._pool = ThreadPoolExecutor(threads)
        self._open = True
        self._shard, self._parts = bytearray(), list[dict[str, Any]]()

    def done_ids(self) -> Collection[str]:
        """The ids of the videos that are safely in the folder, with all their frames."""
        return frozenset(self._done)

    def add(self, id: str, images: Images, timestamps: Times, low_information: Flags | None = None) -> None:
        """Pack one video.

        Args:
            id: any text.
            images: uint8 [T, H, W, 3], RGB.
            timestamps: float64 [T], seconds, strictly increasing.
            low_information: bool [T], which frames are flat or repeated, where that is known.

        Raises:
            ShapeError, DataError: images, timestamps or id are not such, or a frame alone is larger than a shard.
            StorageError: the folder has the id already, or cannot be written.
        """
        if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3:
            array = isinstance(images, np.ndarray)
            given = f"{images.dtype} {list(images.shape)}" if array else f"a {type(images).__name__}"
            raise ShapeError(f"images must be a uint8 array [T, H, W, 3], got {given}.")
        quality, short_side = self.encoding
        height, width = reduced_size(images.shape[1], images.shape[2], short_side)
        _check_video(id, images.shape[:3], timestamps, low_information)

        def encode(image: Images) -> bytes:
            return encode_jpeg(image, quality, (width, height))

        # Not all at once: a long video is large even as JPEG.
        parts = (images[start : start + 64] for start in range(0, len(images), 64))
        pictures = itertools.chain.from_iterable(self._pool.map(encode, part) for part in parts)
        self._add(id, pictures, timestamps, (width, height), low_information)

    def add_encoded(
        self,
        id: str,
        pictures: Sequence[bytes],
        timestamps: Times,
        *,
        size: tuple[int, int],
        low_information: Flags | None = None,
    ) -> None:
        """Pack one video whose frames are JPEG already, all of this (width, height): made as `encoding` says.

        The pictures are trusted to be such; reading checks them.
        """
        width, height = size
        _check_video(id, (len(pictures), height, width), timestamps, low_information)
        self._add(id, pictures, timestamps, size, low_information)

    def _add(
        self, id: str, pictures: Iterable[bytes], timestamps: Times, size: tuple[int, int], flags: Flags | None
    ) -> None:
        if not self._open:
            raise StorageError(f"'{self.folder}' is closed to this writer. Open another `PackedWriter` on it to go on.")
        if id in self._done or id in self._waiting:
            raise StorageError(f"'{self.folder}' has '{id}' already. Leave out `done_ids()`, or use another folder.")
        video = {"id": id, "frames": len(timestamps), "height": size[1], "width": size[0]}
        before = (self._number, len(self._shard), len(self._parts))
        try:
            for index, data in enumerate(pictures):
                flag = None if flags is None else int(flags[index])
                self._append(video, index, float(timestamps[index]), data, flag)
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
        """Put the last shard in place and release the folder."""
        try:
            self.flush()
        finally:
            self._open = False
            self._pool.shutdown()
            self._lock.close()

    def __enter__(self) -> PackedWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class PackedFrames:
    """Frames of many videos, read from a folder of shards; a collection of ids. Open it with `PackedFrames.open`.

    Holds no file open, and may be read from several threads and processes.
    """

    def __init__(self, folder: Path, shards: list[Shard], workers: int | None) -> None:
        self.folder = folder
        self._shards = shards
        self._videos, self._incomplete = join_parts(shards, folder)
        self._threads = _count_threads(workers)

    @classmethod
    def open(cls, folder: str | os.PathLike[str], *, workers: int | None = None) -> PackedFrames:
        """Read every index of a folder and check that its shards are there, with the right size.

        Args:
            folder: made by `PackedWriter`.
            workers: threads that decode in `load_all`; by default one per core.

        Raises:
            StorageError: an index is damaged or contradicts another, a shard is missing or cut short, or the folder
                holds none.
        """
        folder = Path(folder)
        if not folder.is_dir():
            raise StorageError(f"'{folder}' is not a folder. Give one of packed frames, such as `hapvr frames` writes.")
        shards = read_shards(folder)
        if not shards:
            raise StorageError(f"'{folder}' holds no packed frames: it has no frames-00000.json. {COPY}")
        for shard in shards:
            shard.require_size()
        return cls(folder, shards, workers)

    @property
    def ids(self) -> list[str]:
        """The ids of all videos, in the order in which they were packed."""
        return list(self._videos)

    @property
    def lengths(self) -> dict[str, int]:
        """The number of frames of each video."""
        return {id: len(video.timestamps) for id, video in self._videos.items()}

    @property
    def incomplete(self) -> list[str]:
        """The ids of videos of which an interrupted writer left only the beginning; they are not among `ids`."""
        return list(self._incomplete)

    @property
    def attributes(self) -> dict[str, Any]:
        """The settings that the frames share, as given to `PackedWriter`."""
        return dict(self._shards[0].settings["attributes"])

    def __len__(self) -> int:
        return len(self._videos)

    def __iter__(self) -> Iterator[str]:
        return iter(self._videos)

    def __contains__(self, id: object) -> bool:
        return id in self._videos

    def timestamps(self, id: str) -> Times:
        """The times of a video's frames, float64 [T] in seconds; no picture is read."""
        return self._video(id).timestamps.copy()

    def low_information(self, id: str) -> Flags | None:
        """Which of a video's frames are flat or repeated, bool [T]; None where that is not known."""
        return self._video(id).low_information

    def frames(self, id: str, *, size: int | None = None) -> tuple[Images, Times]:
        """All frames of a video, uint8 [T, H, W, 3], and their times, float64 [T]; `size` as in `load_all`."""
        video = self._video(id)
        images = _allocate(video, size)
        for start in range(0, len(images), _RUN):
            _decode(video, start, images[start : start + _RUN], size)
        return images, video.timestamps.copy()

    def frame(self, id: str, index: int) -> Images:
        """One frame of a video, uint8 [H, W, 3]; negative indices count from the end."""
        video = self._video(id)
        length = len(video.timestamps)
        if not -length <= index < length:
            raise DataError(f"'{id}' has frames 0 to {length - 1}, got {index}.")
        image: Images = np.empty((video.height, video.width, 3), np.uint8)
        _decode(video, index % length, image[None], None)
        return image

    def load_all(
        self, ids: Iterable[str] | None = None, *, size: int | None = None
    ) -> Iterator[tuple[str, Images, Times]]:
        """Each id with its frames and times, decoded ahead by a pool of threads while the caller works.

        At most 256 MiB of frames wait for the caller, beside the video it holds.

        Args:
            ids: which videos, in this order; by default all, as they were packed.
            size: side in pixels of the square to return: the short side is resized to it and the middle cut out. By
                default frames come as they were packed.
        """
        if size is not None and size < 1:
            raise ConfigError(f"size must be at least 1 pixel, got {size}.")
        waiting: deque[tuple[PackedVideo, Images, list[Future[None]]]] = deque()
        ahead = 0

        def finish() -> tuple[str, Images, Times]:
            video, images, runs = waiting.popleft()
            for run in runs:
                run.result()
            return video.id, images, video.timestamps.copy()

        with ThreadPoolExecutor(self._threads) as pool:
            try:
                for id in self._videos if ids is None else ids:
                    video = self._video(id)
                    images = _allocate(video, size)
                    runs = [(start, images[start : start + _RUN]) for start in range(0, len(images), _RUN)]
                    waiting.append((video, images, [pool.submit(_decode, video, *run, size) for run in runs]))
                    ahead += images.nbytes
                    while ahead > _AHEAD_BYTES and len(waiting) > 1:
                        ahead -= waiting[0][1].nbytes
                        yield finish()
                while waiting:
                    yield finish()
            finally:
                pool.shutdown(cancel_futures=True)

    def runs(self, id: str, start: int = 0, stop: int | None = None) -> list[JpegRun]:
        """Where some frames of a video lie, by default all: one run for each shard that has some, in order."""
        return self._video(id).runs(start, stop)

    def verify(self) -> None:
        """Compare every shard with its checksum; raise one `StorageError` that names every shard that is damaged."""
        damaged = [shard for shard in self._shards if shard.is_damaged()]
        if damaged:
            names = ", ".join(f"'{shard.path.name}'" for shard in damaged[:20])
            videos = sum(any(part.shard in damaged for part in video.parts) for video in self._videos.values())
            raise StorageError(
                f"'{self.folder}' has {len(damaged)} of {len(self._shards)} shards that are damaged ({names}), with "
                f"frames of {videos} videos. {COPY}"
            )

    def _video(self, id: str) -> PackedVideo:
        if id not in self._videos:
            known = ", ".join(f"'{known}'" for known in itertools.islice(self._videos, 3))
            raise StorageError(
                f"'{self.folder}' has no video '{id}' among its {len(self)} (such as {known or 'none'})."
            )
        return self._videos[id]


def _allocate(video: PackedVideo, size: int | None) -> Images:
    """Memory for the frames of a video, of their own size or as squares."""
    height, width = (video.height, video.width) if size is None else (size, size)
    return np.empty((len(video.timestamps), height, width, 3), np.uint8)


def _decode(video: PackedVideo, start: int, images: Images, size: int | None) -> None:
    """Fill `images` with the frames of a video from `start` on."""
    at = 0
    for run in video.runs(start, start + len(images)):
        for data, count, checksum in zip(run.read(), run.sizes, run.crc32, strict=True):
            try:
                if len(data) != count:
                    raise DataError("the file ends before it.")
                require_checksum(data, checksum)
                images[at] = _decode_picture(data, run.size, size)
            except (*BROKEN_PICTURE, HapvrError) as error:
                raise StorageError(
                    f"'{run.path}': frame {start + at} of '{video.id}' is damaged: {sentence(error)} {COPY}"
                ) from error
            at += 1


def _decode_picture(data: memoryview, packed_size: tuple[int, int], size: int | None) -> Images:
    with open_jpeg(data, packed_size) as picture:
        if size is None:
            return np.asarray(picture)
        picture.draft("RGB", (size, size))  # decodes at a half, a quarter or an eighth where that is still large enough
        width, height = picture.size
        side = min(width, height)
        left, top = (width - side) // 2, (height - side) // 2
        box = (left, top, left + side, top + side)
        return np.asarray(
            picture.crop(box) if side == size else picture.resize((size, size), Image.Resampling.BICUBIC, box)
        )


def _check_video(id: str, shape: tuple[int, ...], times: Times, flags: Flags | None) -> None:
    """Raise unless this can be a video of [T, H, W] with these times and flags."""
    if not isinstance(id, str) or id.encode("utf-8", "replace").decode() != id:
        raise DataError(f"An id is valid Unicode text, got {id!r}.")
    if 0 in shape or max(shape[1:]) > MAX_SIDE:
        raise DataError(f"'{id}' must have a frame at least, of sides from 1 to {MAX_SIDE}, got {list(shape)}.")
    if not isinstance(times, np.ndarray) or times.dtype != np.float64 or times.shape != shape[:1]:
        raise ShapeError(f"timestamps must be a float64 array [{shape[0]}], one per frame.")
    if not np.isfinite(times).all() or (np.diff(times) <= 0).any():
        raise DataError(f"The timestamps of '{id}' must be finite and strictly increasing.")
    if flags is not None and (not isinstance(flags, np.ndarray) or flags.dtype != np.bool_ or flags.shape != shape[:1]):
        raise ShapeError(f"low_information must be a bool array [{shape[0]}], one per frame.")


def _count_threads(workers: int | None) -> int:
    if workers is not None and workers < 1:
        raise ConfigError(f"workers must be at least 1, got {workers}.")
    return workers or os.cpu_count() or 1
