"""Packed frames: the sampled frames of many videos as JPEG in tar shards, for machines that have no video decoder.

Here they are read, each frame against its checksum, the whole shard if one asks for it. That takes Pillow and the
standard library, nothing else. `packed_index.py` says where they lie, `packed_writer.py` writes them.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from hapvr.errors import ConfigError, DataError, StorageError
from hapvr.storage import StrPath
from hapvr.video.frame_tasks import VideoPart
from hapvr.video.packed_index import COPY_AGAIN, PackedVideo, Shard, Times, join_parts, read_shards
from hapvr.video.pictures import Picture, crop_centre, enlarged_size, open_jpeg
from hapvr.video.stored_videos import StoredVideos
from hapvr.workers.pool import TaskContext

_RUN = 16  # frames that a thread decodes at a time
_AHEAD_BYTES = 256 * 2**20  # of decoded frames that wait for the caller


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
            raise StorageError(f"'{folder}' holds no packed frames: it has no frames-00000.json. {COPY_AGAIN}")
        for shard in shards:
            if not shard.path.exists():
                raise StorageError(f"'{shard.path}' is missing; its index is there. {COPY_AGAIN}")
            if (size := shard.path.stat().st_size) != shard.bytes:
                raise StorageError(f"'{shard.path}' has {size:,} bytes instead of {shard.bytes:,}. {COPY_AGAIN}")
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
                f"frames of {videos} videos. {COPY_AGAIN}"
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
