"""Packed frames: the sampled frames of many videos as JPEG in tar shards, for machines that have no video decoder.

A folder holds pairs of files: `frames-00000.tar`, an ordinary tar of JPEG pictures, and `frames-00000.json`, its index,
which says for each video where in the tar its frames lie, so that one is read without walking the rest. Ids are kept in
the index alone and never become a path. A video may continue in the next shard. `frames.json`, written when a writer
closes the folder, says how many shards there were then, so that one which gets lost is missed.

Here they are read: the index strictly, each frame against its checksum, the whole shard if one asks for it. That takes
Pillow and the standard library, nothing else. `packed_writer.py` writes them.
"""

from __future__ import annotations

import os
import re
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from hapvr.errors import ConfigError, DataError, HapvrError, StorageError, to_sentence
from hapvr.storage import StrPath, read_document, sha256_file
from hapvr.video.frame_tasks import VideoPart
from hapvr.video.pictures import Picture, crop_centre, enlarged_size, open_jpeg
from hapvr.video.stored_videos import StoredVideos, check_attributes
from hapvr.workers.pool import TaskContext

Times = NDArray[np.float64]
Flags = NDArray[np.bool_]
Item = TypeVar("Item")

FORMAT, VERSION = "hapvr-frames", 1
MAX_SIDE = 65_500  # JPEG's
_COPY = "Copy the folder again from where it came, or pack its videos again."
COUNT = "frames.json"  # the file that says how many shards there are; folders of older releases have none
_INDEX = re.compile(r"frames-(\d{5,})\.json")
_RUN = 16  # frames that a thread decodes at a time
_AHEAD_BYTES = 256 * 2**20  # of decoded frames that wait for the caller
BROKEN = (
    OSError, SyntaxError, ValueError, KeyError, TypeError, OverflowError, MemoryError, RecursionError, HapvrError,
    Image.DecompressionBombError,
)  # fmt: skip
"""What is raised on a damaged picture or index."""


# --- where frames lie ----------------------------------------------------------------------------------------------


def read_slices(path: StrPath, offsets: NDArray[np.int64], sizes: NDArray[np.int64]) -> Iterator[memoryview]:
    """The bytes of consecutive pictures of a file, read at once; they are cut off where the file ends too early."""
    begin, end = int(offsets[0]), int(offsets[-1] + sizes[-1])
    data = memoryview(bytearray(end - begin))
    try:
        with open(path, "rb", buffering=0) as file:
            file.seek(begin)
            data = data[: file.readinto(data)]
    except OSError as error:
        raise StorageError(f"'{path}' cannot be read: {error.strerror}.") from error
    for offset, size in zip((offsets - begin).tolist(), sizes.tolist(), strict=True):
        yield data[offset : offset + size]


@dataclass(frozen=True, eq=False)
class Part:
    """The frames of a video that lie in one shard, in order and without a gap."""

    path: Path  # of the tar
    id: str
    frames: int  # of the whole video
    size: tuple[int, int]  # width and height
    first: int  # frame of the video that this part begins with
    timestamps: Times
    offsets: NDArray[np.int64]  # of the JPEG data in the tar
    sizes: NDArray[np.int64]
    crc32: NDArray[np.int64]
    low_information: Flags | None  # None where it is not known

    def read(self, start: int, stop: int) -> Iterator[tuple[memoryview, int]]:
        """The bytes of some of its pictures, which may be cut off, and the checksum of each."""
        pictures = read_slices(self.path, self.offsets[start:stop], self.sizes[start:stop])
        yield from zip(pictures, self.crc32[start:stop].tolist(), strict=True)


@dataclass(frozen=True, eq=False)
class PackedVideo:
    """A complete video: its parts in all shards."""

    id: str
    size: tuple[int, int]  # width and height
    timestamps: Times
    low_information: Flags | None  # which frames are flat or repeated; None where that is not known
    parts: list[Part]

    def decode(
        self, start: int, stop: int, make_picture: Callable[[memoryview, tuple[int, int]], Item]
    ) -> Iterator[Item]:
        """What `make_picture(JPEG data, (width, height))` returns for the frames from `start` to `stop`.

        `StorageError` names the first of them that is damaged.
        """
        for part in self.parts:
            frames = range(max(start, part.first), min(stop, part.first + len(part.offsets)))
            if not frames:
                continue
            found = part.read(frames.start - part.first, frames.stop - part.first)
            for frame, (data, checksum) in zip(frames, found, strict=True):
                try:
                    if zlib.crc32(data) != checksum:
                        raise DataError("its bytes are not those that were written.")
                    picture = make_picture(data, self.size)
                except BROKEN as error:
                    raise StorageError(
                        f"'{part.path}': frame {frame} of '{self.id}' is damaged: {to_sentence(error)} {_COPY}"
                    ) from error
                yield picture


@dataclass(frozen=True, eq=False)
class Shard:
    """One index, read and checked."""

    path: Path  # of the tar
    bytes: int
    sha256: str
    settings: dict[str, Any]
    parts: list[Part]  # of videos, in order

    def is_damaged(self) -> bool:
        """Whether the tar has another checksum than the index says, or cannot be read."""
        try:
            return sha256_file(self.path) != self.sha256
        except OSError:
            return True


def read_shards(folder: Path) -> list[Shard]:
    """Every index of a folder, in order; `StorageError` if one is missing."""
    found = ((match, path) for path in folder.iterdir() if (match := _INDEX.fullmatch(path.name)))
    numbered = sorted((int(match[1]), path) for match, path in found)
    for expected, (number, _) in enumerate(numbered):
        if number != expected:
            gone = folder / f"frames-{expected:05d}.json"
            raise StorageError(f"'{gone}' is missing, though there are later ones. {_COPY}")
    if (folder / COUNT).exists():
        count = _read_index(folder / COUNT, ("shards",), lambda index: int(index["shards"]))
        if count > len(numbered):
            gone = folder / f"frames-{len(numbered):05d}.json"
            raise StorageError(f"'{gone}' is missing: the folder had {count} shards. {_COPY}")
    return [_open_shard(path) for _, path in numbered]


def read_each_shard(folder: Path) -> tuple[list[tuple[int, Shard]], list[tuple[str, str]]]:
    """Every index of a folder that can be read, with its number, and (name, reason) of those that cannot."""
    shards: list[tuple[int, Shard]] = []
    lost: list[tuple[str, str]] = []
    last = -1
    for path in sorted(folder.iterdir()):
        if (match := _INDEX.fullmatch(path.name)) is None:
            continue
        lost += [(f"frames-{number:05d}.json", "it is missing") for number in range(last + 1, int(match[1]))]
        last = int(match[1])
        try:
            shards.append((last, _open_shard(path)))
        except StorageError as error:
            lost.append((path.name, str(error)))
    if (folder / COUNT).exists():
        try:
            count = _read_index(folder / COUNT, ("shards",), lambda index: int(index["shards"]))
        except StorageError as error:
            lost.append((COUNT, str(error)))
        else:
            lost += [(f"frames-{number:05d}.json", "it is missing") for number in range(last + 1, count)]
    return shards, lost


def _open_shard(path: Path) -> Shard:
    known = ("bytes", "sha256", "settings", "videos")
    return _read_index(path, known, partial(_read_shard, path.with_suffix(".tar")))


def _read_index(path: Path, known: tuple[str, ...], make: Callable[[dict[str, Any]], Item]) -> Item:
    """What `make` makes of the content of an index."""
    try:
        index = read_document(path, ("format", "version", *known))
        if index["format"] != FORMAT:
            raise DataError("it is the index of something else.")
        if index["version"] != VERSION:
            raise DataError(f"it is of version {index['version']}; this hapvr reads {VERSION}.")
        return make(index)
    except BROKEN as error:
        what = f"it lacks '{error.args[0]}'." if isinstance(error, KeyError) else to_sentence(error)
        raise StorageError(f"'{path}' is not a readable index of packed frames: {what} {_COPY}") from error


def _read_shard(path: Path, index: dict[str, Any]) -> Shard:
    settings, size = dict(index["settings"]), int(index["bytes"])
    check_attributes(settings["attributes"])
    return Shard(path, size, str(index["sha256"]), settings, [_read_part(one, path, size) for one in index["videos"]])


def _read_part(part: Mapping[str, Any], path: Path, shard_bytes: int) -> Part:
    id, frames, height, width, first = (part[key] for key in ("id", "frames", "height", "width", "first"))
    times = np.array(part["timestamps"], np.float64)
    numbers = np.array([part["offsets"], part["sizes"], part["crc32"]])  # [3, T of this part]
    if not isinstance(id, str) or not all(type(value) is int for value in (frames, height, width, first)):
        raise DataError("a video's id must be text, its counts and sizes whole numbers.")
    if times.ndim != 1 or numbers.shape != (3, len(times)) or numbers.dtype != np.int64 or not len(times):
        raise DataError(f"the lists of '{id}' must hold numbers, as many in each.")
    offsets, sizes, checksums = numbers
    if not (0 < height <= MAX_SIDE and 0 < width <= MAX_SIDE and 0 <= first <= frames - len(times)):
        raise DataError(f"'{id}' has {frames} frames of {width} x {height}, from {first} on.")
    ends = offsets + sizes
    ordered = offsets[0] >= 0 and sizes.min() >= 1 and (offsets[1:] >= ends[:-1]).all()
    if not ordered or max(offsets.max(), sizes.max(), ends.max()) > shard_bytes:
        raise DataError(f"the frames of '{id}' do not lie in the shard one after another.")
    low = part.get("low_information")
    if low is not None and (len(low) != len(times) or any(flag not in (0, 1) for flag in low)):
        raise DataError(f"the list low_information of '{id}' must hold 0 or 1 for each frame.")
    flags = None if low is None else np.array(low, np.bool_)
    return Part(path, id, frames, (width, height), first, times, offsets, sizes, checksums, flags)


def join_parts(shards: Sequence[Shard], folder: Path) -> tuple[dict[str, PackedVideo], list[str]]:
    """The complete videos of all shards by id, and the ids of incomplete ones."""
    begun: dict[str, list[Part]] = {}
    videos: dict[str, PackedVideo] = {}
    for part in (part for shard in shards for part in shard.parts):
        if part.id in videos:
            raise StorageError(f"'{folder}' has '{part.id}' twice, again in '{part.path.name}'. {_COPY}")
        parts = begun.setdefault(part.id, [])
        if part.first == 0:
            parts.clear()  # a writer that was interrupted within this video has started it again
        known = sum(len(before.offsets) for before in parts)
        if part.first != known or any((one.frames, one.size) != (part.frames, part.size) for one in parts):
            raise StorageError(f"'{part.path}' goes on with '{part.id}' where the shards before it do not end. {_COPY}")
        parts.append(part)
        if known + len(part.offsets) == part.frames:
            times = np.concatenate([one.timestamps for one in begun.pop(part.id)])
            if not np.isfinite(times).all() or (np.diff(times) <= 0).any():
                raise StorageError(f"'{part.path}': the timestamps of '{part.id}' do not increase. {_COPY}")
            flags = [one.low_information for one in parts if one.low_information is not None]
            low = np.concatenate(flags) if len(flags) == len(parts) else None
            videos[part.id] = PackedVideo(part.id, part.size, times, low, parts)
    return videos, list(begun)


# --- reading -------------------------------------------------------------------------------------------------------


class PackedFrames(StoredVideos[PackedVideo]):
    """Frames of many videos, read from a folder of shards; a collection of ids. Open it with `PackedFrames.open`.

    Holds no file open, and may be read from several threads and processes.
    """

    def __init__(self, folder: Path, shards: list[Shard], workers: int | None) -> None:
        videos, self._incomplete = join_parts(shards, folder)
        super().__init__(folder, videos)
        self.folder, self._shards, self._threads = folder, shards, count_threads(workers)

    @classmethod
    def open(cls, folder: StrPath, *, workers: int | None = None) -> PackedFrames:
        """Read every index of a folder that `PackedWriter` made, and check that its shards are there, whole by size.

        `workers` threads decode in `load_all`; by default one per core. `StorageError` if an index is damaged or
        contradicts another, a shard is missing or cut short, or the folder holds none.
        """
        folder = Path(folder)
        if not folder.is_dir():
            raise StorageError(f"'{folder}' is not a folder. Give one of packed frames, such as `hapvr frames` writes.")
        shards = read_shards(folder)
        if not shards:
            raise StorageError(f"'{folder}' holds no packed frames: it has no frames-00000.json. {_COPY}")
        for shard in shards:
            if not shard.path.exists():
                raise StorageError(f"'{shard.path}' is missing; its index is there. {_COPY}")
            if (size := shard.path.stat().st_size) != shard.bytes:
                raise StorageError(f"'{shard.path}' has {size:,} bytes instead of {shard.bytes:,}. {_COPY}")
        return cls(folder, shards, workers)

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

    def __getitem__(self, id: str) -> PackedVideo:
        return self.entry(id)

    def frames(self, id: str, *, size: int | None = None) -> tuple[Picture, Times]:
        """All frames of a video, uint8 [T, H, W, 3], and their times, float64 [T]; `size` as in `load_all`."""
        ((_, images, times),) = self.load_all([id], size=size)
        return images, times

    def frame(self, id: str, index: int) -> Picture:
        """One frame of a video, uint8 [H, W, 3]; negative indices count from the end."""
        length = len(self[id].timestamps)
        if not -length <= index < length:
            raise DataError(f"'{id}' has frames 0 to {length - 1}, got {index}.")
        (image,) = self[id].decode(index % length, index % length + 1, decode_whole)
        return image

    def load_all(
        self, ids: Iterable[str] | None = None, *, size: int | None = None
    ) -> Iterator[tuple[str, Picture, Times]]:
        """Each id, by default all, with its frames and times, decoded ahead by threads while the caller works.

        With `size`, frames come as squares of that side: the short side is resized to it and the middle cut out. At
        most 256 MiB of frames wait for the caller, beside the video it holds.
        """
        if size is not None and size < 1:
            raise ConfigError(f"size must be at least 1 pixel, got {size}.")
        make_picture = decode_whole if size is None else lambda data, packed: decode_square(data, packed, size)
        waiting: deque[tuple[PackedVideo, Picture, list[Future[None]]]] = deque()
        ahead = 0

        def fill(video: PackedVideo, images: Picture, start: int) -> None:
            stop = min(start + _RUN, len(images))
            for place, image in enumerate(video.decode(start, stop, make_picture), start):
                images[place] = image

        def finish() -> tuple[str, Picture, Times]:
            video, images, runs = waiting.popleft()
            for run in runs:
                run.result()
            return video.id, images, video.timestamps.copy()

        with ThreadPoolExecutor(self._threads) as pool:
            try:
                for id in self._videos if ids is None else ids:
                    video = self[id]
                    width, height = video.size if size is None else (size, size)
                    images = np.empty((len(video.timestamps), height, width, 3), np.uint8)
                    runs = [pool.submit(fill, video, images, start) for start in range(0, len(images), _RUN)]
                    waiting.append((video, images, runs))
                    ahead += images.nbytes
                    while ahead > _AHEAD_BYTES and len(waiting) > 1:
                        ahead -= waiting[0][1].nbytes
                        yield finish()
                while waiting:
                    yield finish()
            finally:
                pool.shutdown(cancel_futures=True)

    def verify(self) -> None:
        """Compare every shard with its checksum; raise one `StorageError` that names every shard that is damaged."""
        damaged = [shard.path for shard in self._shards if shard.is_damaged()]
        if damaged:
            names = ", ".join(f"'{path.name}'" for path in damaged[:20])
            videos = sum(any(part.path in damaged for part in video.parts) for video in self._videos.values())
            raise StorageError(
                f"'{self.folder}' has {len(damaged)} of {len(self._shards)} shards that are damaged ({names}), with "
                f"frames of {videos} videos. {_COPY}"
            )


def count_threads(workers: int | None) -> int:
    """As many as are asked for, else one per core."""
    if workers is not None and workers < 1:
        raise ConfigError(f"workers must be at least 1, got {workers}.")
    return workers or os.cpu_count() or 1


OpenPicture = Callable[[memoryview, tuple[int, int]], Image.Image]


def decode_whole(data: memoryview, packed_size: tuple[int, int], open_picture: OpenPicture = open_jpeg) -> Picture:
    """A frame as it was packed."""
    with open_picture(data, packed_size) as picture:
        return np.asarray(picture)


def decode_square(
    data: memoryview, packed_size: tuple[int, int], size: int, open_picture: OpenPicture = open_jpeg
) -> Picture:
    """The middle square, resized to `size`."""
    with open_picture(data, packed_size) as picture:
        picture.draft("RGB", (size, size))  # decodes at a half, a quarter or an eighth where that is still large enough
        width, height = picture.size
        side = min(width, height)
        left, top = (width - side) // 2, (height - side) // 2
        box = (left, top, left + side, top + side)
        return np.asarray(
            picture.crop(box) if side == size else picture.resize((size, size), Image.Resampling.BICUBIC, box)
        )


# --- the task of a worker process ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PackedTask:
    """Unpack the frames of a video into blocks."""

    video: PackedVideo
    crop: int  # pixels of a side: blocks hold the centre squares of pictures, enlarged if they are smaller


def read_packed(context: TaskContext, task: PackedTask) -> None:
    """Frames of a packed video into blocks, in order; as many into each as it holds."""
    video, side = task.video, task.crop
    start, length = 0, len(video.timestamps)
    while start < length:
        block = context.block()
        stop = min(length, start + len(block) // (side * side * 3))
        shape = (stop - start, side, side, 3)
        images = block[: (stop - start) * side * side * 3].reshape(shape)
        for place, image in enumerate(video.decode(start, stop, lambda data, size: _decode_centre(data, size, side))):
            images[place] = image
        low = None if video.low_information is None else video.low_information[start:stop]
        context.send(VideoPart(shape, video.timestamps[start:stop], low))
        start = stop


def _decode_centre(data: memoryview, packed_size: tuple[int, int], side: int) -> Picture:
    with open_jpeg(data, packed_size) as picture:
        height, width = enlarged_size(packed_size[1], packed_size[0], side)
        if (width, height) != packed_size:
            return crop_centre(np.asarray(picture.resize((width, height), Image.Resampling.BILINEAR)), side)
        return crop_centre(np.asarray(picture), side)
