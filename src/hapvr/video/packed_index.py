"""Where the frames of packed folders lie: the index of each shard, read strictly, and the bytes of single pictures.

A folder holds pairs of files: `frames-00000.tar`, an ordinary tar of JPEG pictures, and `frames-00000.json`, its index,
which says for each video where in the tar its frames lie, so that one is read without walking the rest. Ids are kept in
the index alone and never become a path. A video may continue in the next shard. `frames.json`, written when a writer
closes the folder, says how many shards there were then, so that one which gets lost is missed.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from hapvr.errors import DataError, HapvrError, StorageError, to_sentence
from hapvr.storage import read_document, sha256_file
from hapvr.video.stored_videos import check_attributes

Times = NDArray[np.float64]
Flags = NDArray[np.bool_]
Item = TypeVar("Item")

FORMAT, VERSION = "hapvr-frames", 1
MAX_SIDE = 65_500  # JPEG's
COPY_AGAIN = "Copy the folder again from where it came, or pack its videos again."
COUNT = "frames.json"  # the file that says how many shards there are; folders of older releases have none
_INDEX = re.compile(r"frames-(\d{5,})\.json")
BROKEN = (
    OSError, SyntaxError, ValueError, KeyError, TypeError, OverflowError, MemoryError, RecursionError, HapvrError,
    Image.DecompressionBombError,
)  # fmt: skip
"""What is raised on a damaged picture or index."""


@dataclass(frozen=True, eq=False)
class FrameRun:
    """Pictures that lie in one file, in order."""

    path: Path
    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    crc32: NDArray[np.int64] | None  # None where nobody wrote it down

    def __len__(self) -> int:
        return len(self.offsets)

    def read(self) -> Iterator[tuple[memoryview, int | None]]:
        """The bytes of each, read at once and cut off where the file ends too early, and its checksum."""
        begin, end = int(self.offsets[0]), int(self.offsets[-1] + self.sizes[-1])
        data = memoryview(bytearray(end - begin))
        try:
            with open(self.path, "rb", buffering=0) as file:
                file.seek(begin)
                data = data[: file.readinto(data)]
        except OSError as error:
            raise StorageError(f"'{self.path}' cannot be read: {error.strerror}.") from error
        checksums = [None] * len(self) if self.crc32 is None else self.crc32.tolist()
        for offset, size, checksum in zip((self.offsets - begin).tolist(), self.sizes.tolist(), checksums, strict=True):
            yield data[offset : offset + size], checksum


def cut_runs(runs: Iterable[FrameRun], start: int, stop: int) -> tuple[FrameRun, ...]:
    """Frames `start` to `stop` of a video whose frames lie in these runs, one after another."""
    cut, first = [], 0
    for run in runs:
        inside = slice(max(start - first, 0), min(stop - first, len(run)))
        if inside.start < inside.stop:
            checksums = None if run.crc32 is None else run.crc32[inside]
            cut.append(FrameRun(run.path, run.offsets[inside], run.sizes[inside], checksums))
        first += len(run)
    return tuple(cut)


def decode_runs(
    runs: Iterable[FrameRun], make_picture: Callable[[memoryview, bool], Item], *, id: str, first: int, remedy: str = ""
) -> Iterator[Item]:
    """What `make_picture(data, whether it has a checksum)` returns for each frame of a video, from `first` on.

    `StorageError` names the first that is damaged, and the remedy.
    """
    for run in runs:
        for frame, (data, checksum) in enumerate(run.read(), first):
            try:
                if checksum is not None and zlib.crc32(data) != checksum:
                    raise DataError("its bytes are not those that were written.")
                picture = make_picture(data, checksum is not None)
            except BROKEN as error:
                why = f"{to_sentence(error)} {remedy}".rstrip()
                raise StorageError(f"'{run.path}': frame {frame} of '{id}' is damaged: {why}") from error
            yield picture
        first += len(run)


@dataclass(frozen=True, eq=False)
class Part(FrameRun):
    """The frames of a video that lie in one shard, in order and without a gap."""

    id: str
    frames: int  # of the whole video
    size: tuple[int, int]  # width and height
    first: int  # frame of the video that this part begins with
    timestamps: Times
    low_information: Flags | None  # None where it is not known


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
        runs = cut_runs(self.parts, start, stop)
        return decode_runs(
            runs, lambda data, _: make_picture(data, self.size), id=self.id, first=start, remedy=COPY_AGAIN
        )


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
    """Every index of a folder, in order; `StorageError` if one is missing or cannot be read."""
    shards, lost = read_each_shard(folder)
    for _, error in lost:
        raise error
    return [shard for _, shard in shards]


def read_each_shard(folder: Path) -> tuple[list[tuple[int, Shard]], list[tuple[str, StorageError]]]:
    """Every index of a folder that can be read, with its number, and the names of the others, with what is wrong."""
    shards: list[tuple[int, Shard]] = []
    lost: list[tuple[str, StorageError]] = []
    found = ((match, path) for path in folder.iterdir() if (match := _INDEX.fullmatch(path.name)))
    next_number = 0

    def miss(numbers: range, why: str) -> None:
        for name in (f"frames-{number:05d}.json" for number in numbers):
            lost.append((name, StorageError(f"'{folder / name}' is missing{why}. {COPY_AGAIN}")))

    for number, path in sorted((int(match[1]), path) for match, path in found):
        miss(range(next_number, number), ", though there are later ones")
        next_number = number + 1
        try:
            shards.append((number, _open_shard(path)))
        except StorageError as error:
            lost.append((path.name, error))
    if (folder / COUNT).exists():
        try:
            count = _read_index(folder / COUNT, ("shards",), lambda index: int(index["shards"]))
            miss(range(next_number, count), f": the folder had {count} shards")
        except StorageError as error:
            lost.append((COUNT, error))
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
        raise StorageError(f"'{path}' is not a readable index of packed frames: {what} {COPY_AGAIN}") from error


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
    return Part(path, offsets, sizes, checksums, id, frames, (width, height), first, times, flags)


def join_parts(shards: Sequence[Shard], folder: Path) -> tuple[dict[str, PackedVideo], list[str]]:
    """The complete videos of all shards by id, and the ids of incomplete ones."""
    begun: dict[str, list[Part]] = {}
    videos: dict[str, PackedVideo] = {}
    for part in (part for shard in shards for part in shard.parts):
        if part.id in videos:
            raise StorageError(f"'{folder}' has '{part.id}' twice, again in '{part.path.name}'. {COPY_AGAIN}")
        parts = begun.setdefault(part.id, [])
        if part.first == 0:
            parts.clear()  # a writer that was interrupted within this video has started it again
        known = sum(len(before.offsets) for before in parts)
        if part.first != known or any((one.frames, one.size) != (part.frames, part.size) for one in parts):
            raise StorageError(
                f"'{part.path}' goes on with '{part.id}' where the shards before it do not end. {COPY_AGAIN}"
            )
        parts.append(part)
        if known + len(part.offsets) == part.frames:
            times = np.concatenate([one.timestamps for one in begun.pop(part.id)])
            if not np.isfinite(times).all() or (np.diff(times) <= 0).any():
                raise StorageError(f"'{part.path}': the timestamps of '{part.id}' do not increase. {COPY_AGAIN}")
            flags = [one.low_information for one in parts if one.low_information is not None]
            low = np.concatenate(flags) if len(flags) == len(parts) else None
            videos[part.id] = PackedVideo(part.id, part.size, times, low, parts)
    return videos, list(begun)
