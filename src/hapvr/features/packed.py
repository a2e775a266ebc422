"""Packed frames: the sampled frames of many videos as JPEG in tar shards, for machines that have no video decoder.

A folder holds pairs of files: `frames-00000.tar`, an ordinary tar of JPEG pictures, and `frames-00000.json`, its index,
which says for each video where in the tar its frames lie, so that one is read without walking the rest. Ids are kept in
the index alone and never become a path. A video may continue in the next shard.

An index is written after its shard, both in one step; a shard without one was interrupted and is made again. Each frame
is read against its checksum, and the whole shard can be. Reading takes Pillow and the standard library, nothing else.
"""

from __future__ import annotations

import io
import itertools
import math
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
from numpy.typing import NDArray
from PIL import Image

from hapvr.errors import ConfigError, DataError, HapvrError, ShapeError, StorageError
from hapvr.features._layout import Setting, check_attributes, require_same, sentence
from hapvr.features._shards import (
    BROKEN,
    COPY,
    FORMAT,
    LONGEST_SIDE,
    VERSION,
    Images,
    Shard,
    Times,
    Video,
    join_parts,
    read_shards,
    remove_unfinished,
    require_size,
    shard_checksum,
)
from hapvr.features._transaction import locked_folder
from hapvr.storage import sha256_bytes, write_bytes, write_json
from hapvr.video.crew_work import JpegRun, encode_jpeg, reduced

Flags = NDArray[np.bool_]

_BLOCK = 512  # tar's
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
        threads = _workers(workers)
        self.folder = Path(folder)
        self._short_side = short_side
        self._settings: dict[str, Any] = {
            "quality": quality,
            "short_side": short_side,
            "attributes": dict(attributes or {}),
        }
        self._most = int(shard_mib * 2**20)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"'{self.folder}' cannot be written: {error.strerror}.") from error
        self._lock = locked_folder(self.folder)
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
        self._live = True
        self._begin()

    def _begin(self) -> None:
        self._shard = bytearray()
        self._parts: list[dict[str, Any]] = []

    def done_ids(self) -> Collection[str]:
        """The ids of the videos that are safely in the folder, with all their frames."""
        return frozenset(self._done)

    def add(self, id: str, images: Images, timestamps: Times, low_information: Flags | None = None) -> None:
        """Pack one video.

        Args:
            id: any text.
            images: uint8 [T, H, W, 3], RGB.
            timestamps: float64 [T], seconds, strictly increasing.
            low_information: bool [T], which frames say nothing, where that is known.

        Raises:
            ShapeError, DataError: images, timestamps or id are not such, or a frame alone is larger than a shard.
            StorageError: the folder has the id already, or cannot be written.
        """
        _check_video(id, images, timestamps, low_information)
        height, width = reduced(images.shape[1], images.shape[2], self._short_side)
        self._add(id, self._encoded(images, (width, height)), timestamps, (width, height), low_information)

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
        blank = np.broadcast_to(np.zeros((), np.uint8), (len(pictures), height, width, 3))  # of the same shape
        _check_video(id, blank, timestamps, low_information)
        self._add(id, pictures, timestamps, size, low_information)

    @property
    def encoding(self) -> tuple[int, int | None]:
        """Quality and largest short side of its JPEG pictures."""
        return self._settings["quality"], self._short_side

    def _add(
        self, id: str, pictures: Iterable[bytes], timestamps: Times, size: tuple[int, int], flags: Flags | None
    ) -> None:
        if not self._live:
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

    def _encoded(self, images: Images, size: tuple[int, int]) -> Iterator[bytes]:
        def encode(image: Images) -> bytes:
            return encode_jpeg(image, self._settings["quality"], size)

        for start in range(0, len(images), 64):  # not all at once: a long video is large even as JPEG
            yield from self._pool.map(encode, images[start : start + 64])

    def _append(self, video: dict[str, Any], index: int, timestamp: float, data: bytes, flag: int | None) -> None:
        room = _BLOCK + _padded(len(data)) + 2 * _BLOCK  # header, picture, and the tar's end
        if room > self._most:
            raise DataError(
                f"Frame {index} of '{video['id']}' takes {room:,} bytes, more than a shard of {self._most:,}. Give a "
                "larger shard_mib or a smaller short_side."
            )
        if len(self._shard) + room > self._most:
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
        self._shard += data + bytes(_padded(len(data)) - len(data))

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
            write_json(path.with_suffix(".json"), index, indent=None, hint=hint)
        except StorageError:
            self._live = False
            raise
        self._number += 1
        self._done.update(self._waiting)
        self._waiting.clear()
        self._begin()

    def flush(self) -> None:
        """Put the shard that is being filled in place, full or not."""
        if self._live and self._parts:
            self._finish_shard()

    def close(self) -> None:
        """Put the last shard in place and release the folder."""
        try:
            self.flush()
        finally:
            self._live = False
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
        self._workers = _workers(workers)

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
            require_size(shard)
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
        """Which of a video's frames say nothing, bool [T]; None where whoever packed it did not tell."""
        return self._video(id).low_information

    def frames(self, id: str, *, size: int | None = None) -> tuple[Images, Times]:
        """All frames of a video, uint8 [T, H, W, 3], and their times, float64 [T]; `size` as in `load_all`."""
        video = self._video(id)
        images = video.empty(size)
        for start in range(0, len(images), _RUN):
            self._decode(video, start, images[start : start + _RUN], size)
        return images, video.timestamps.copy()

    def frame(self, id: str, index: int) -> Images:
        """One frame of a video, uint8 [H, W, 3]; negative indices count from the end."""
        video = self._video(id)
        length = len(video.timestamps)
        if not -length <= index < length:
            raise DataError(f"'{id}' has frames 0 to {length - 1}, got {index}.")
        image: Images = np.empty((video.height, video.width, 3), np.uint8)
        self._decode(video, index % length, image[None], None)
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
        waiting: deque[tuple[Video, Images, list[Future[None]]]] = deque()
        ahead = 0
        with ThreadPoolExecutor(self._workers) as pool:
            try:
                for id in self._videos if ids is None else ids:
                    video = self._video(id)
                    images = video.empty(size)
                    runs = [(start, images[start : start + _RUN]) for start in range(0, len(images), _RUN)]
                    waiting.append((video, images, [pool.submit(self._decode, video, *run, size) for run in runs]))
                    ahead += images.nbytes
                    while ahead > _AHEAD_BYTES and len(waiting) > 1:
                        ahead -= waiting[0][1].nbytes
                        yield _awaited(*waiting.popleft())
                while waiting:
                    yield _awaited(*waiting.popleft())
            finally:
                pool.shutdown(cancel_futures=True)

    def runs(self, id: str) -> list[JpegRun]:
        """Where the pictures of a video lie: one run for each shard that has some, in order."""
        video = self._video(id)
        size = video.width, video.height
        return [
            JpegRun(str(part.shard.path), size, tuple(part.offsets), tuple(part.sizes), tuple(part.crc32))
            for part in video.parts
        ]

    def verify(self) -> None:
        """Compare every shard with its checksum; raise one `StorageError` that names every shard that is damaged."""
        damaged = [shard for shard in self._shards if shard_checksum(shard) != shard.sha256]
        if damaged:
            names = ", ".join(f"'{shard.path.name}'" for shard in damaged[:20])
            videos = sum(any(part.shard in damaged for part in video.parts) for video in self._videos.values())
            raise StorageError(
                f"'{self.folder}' has {len(damaged)} of {len(self._shards)} shards that are damaged ({names}), with "
                f"frames of {videos} videos. {COPY}"
            )

    # --- reading ---------------------------------------------------------------------------------------------------

    def _video(self, id: str) -> Video:
        if id not in self._videos:
            known = ", ".join(f"'{known}'" for known in itertools.islice(self._videos, 3))
            raise StorageError(
                f"'{self.folder}' has no video '{id}' among its {len(self)} (such as {known or 'none'})."
            )
        return self._videos[id]

    def _decode(self, video: Video, start: int, images: Images, size: int | None) -> None:
        """Fill `images` with the frames of a video from `start` on."""
        stop = start + len(images)
        for part in video.parts:
            first, last = max(start, part.first), min(stop, part.first + len(part.offsets))
            if first >= last:
                continue
            inside = slice(first - part.first, last - part.first)
            offsets, sizes, checksums = part.offsets[inside], part.sizes[inside], part.crc32[inside]
            try:
                with part.shard.path.open("rb") as file:
                    file.seek(offsets[0])
                    data = memoryview(file.read(offsets[-1] + sizes[-1] - offsets[0]))
            except OSError as error:
                raise StorageError(f"'{part.shard.path}' cannot be read: {error.strerror}. {COPY}") from error
            for index, offset, count, checksum in zip(range(first, last), offsets, sizes, checksums, strict=True):
                picture = data[offset - offsets[0] : offset - offsets[0] + count]
                try:
                    if len(picture) != count or zlib.crc32(picture) != checksum:
                        raise DataError("its bytes are not those that were written.")
                    images[index - start] = _picture(picture, video, size)
                except (*BROKEN, HapvrError) as error:
                    raise StorageError(
                        f"'{part.shard.path}': frame {index} of '{video.id}' is damaged: {sentence(error)} {COPY}"
                    ) from error


def _picture(data: memoryview, video: Video, size: int | None) -> Images:
    with Image.open(io.BytesIO(data), formats=["JPEG"]) as picture:
        if picture.size != (video.width, video.height) or picture.mode != "RGB":
            raise DataError(f"it is {picture.size} {picture.mode}, not {(video.width, video.height)} RGB.")
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


def _awaited(video: Video, images: Images, runs: Iterable[Future[None]]) -> tuple[str, Images, Times]:
    for run in runs:
        run.result()
    return video.id, images, video.timestamps.copy()


def _check_video(id: str, images: Images, timestamps: Times, flags: Flags | None) -> None:
    if not isinstance(id, str) or id.encode("utf-8", "replace").decode() != id:
        raise DataError(f"An id is valid Unicode text, got {id!r}.")
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3:
        given = (
            f"{images.dtype} {list(images.shape)}" if isinstance(images, np.ndarray) else f"a {type(images).__name__}"
        )
        raise ShapeError(f"images must be a uint8 array [T, H, W, 3], got {given}.")
    if 0 in images.shape or max(images.shape[1:3]) > LONGEST_SIDE:
        raise DataError(
            f"'{id}' must have a frame at least, of sides from 1 to {LONGEST_SIDE}, got {list(images.shape)}."
        )
    times = timestamps
    if not isinstance(times, np.ndarray) or times.dtype != np.float64 or times.shape != images.shape[:1]:
        raise ShapeError(f"timestamps must be a float64 array [{len(images)}], one per frame.")
    if not np.isfinite(times).all() or (np.diff(times) <= 0).any():
        raise DataError(f"The timestamps of '{id}' must be finite and strictly increasing.")
    if flags is not None and (
        not isinstance(flags, np.ndarray) or flags.dtype != np.bool_ or flags.shape != images.shape[:1]
    ):
        raise ShapeError(f"low_information must be a bool array [{len(images)}], one per frame.")


def _padded(size: int) -> int:
    return math.ceil(size / _BLOCK) * _BLOCK


def _workers(workers: int | None) -> int:
    if workers is not None and workers < 1:
        raise ConfigError(f"workers must be at least 1, got {workers}.")
    return workers or os.cpu_count() or 1
