"""The index of packed frames, read strictly: which frames lie where in which shard (see `packed_frames.py`)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hapvr.errors import DataError, HapvrError, StorageError
from hapvr.features.attributes import check_attributes, sentence
from hapvr.storage import read_document, sha256_file
from hapvr.video.jpeg import BROKEN_PICTURE, JpegRun

FORMAT, VERSION = "hapvr-frames", 1
MAX_SIDE = 65_500  # JPEG's
COPY = "Copy the folder again from where it came, or pack its videos again."
_UNFINISHED = re.compile(r"frames-\d{5,}\.(tar|(tar|json)\.partial)|\.frames-\d{5,}\.(tar|json)\..+\.part")
_INDEX = re.compile(r"frames-(\d{5,})\.json")

Images = NDArray[np.uint8]
Times = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Shard:
    """One index, read and checked."""

    number: int
    path: Path  # of the tar
    bytes: int
    sha256: str
    settings: dict[str, Any]
    parts: list[Part]  # of videos, in order

    def require_size(self) -> None:
        """Raise `StorageError` unless the tar exists with the size that the index says."""
        try:
            size = self.path.stat().st_size
        except FileNotFoundError as error:
            raise StorageError(f"'{self.path}' is missing; its index is there. {COPY}") from error
        if size != self.bytes:
            raise StorageError(f"'{self.path}' has {size:,} bytes instead of {self.bytes:,}. {COPY}")

    def is_damaged(self) -> bool:
        """Whether the tar has another checksum than the index says, or cannot be read."""
        try:
            return sha256_file(self.path) != self.sha256
        except OSError:
            return True


@dataclass(frozen=True, eq=False)
class Part:
    """The frames of a video that lie in one shard, in order and without a gap."""

    shard: Shard
    id: str
    frames: int  # of the whole video
    height: int
    width: int
    first: int  # frame of the video that this part begins with
    timestamps: Times
    offsets: list[int]  # of the JPEG data in the tar
    sizes: list[int]
    crc32: list[int]
    low_information: Flags | None  # None where it is not known


@dataclass(frozen=True, eq=False)
class PackedVideo:
    """A complete video: its parts in all shards."""

    id: str
    height: int
    width: int
    timestamps: Times
    parts: list[Part]

    @property
    def low_information(self) -> Flags | None:
        """Which frames are flat or repeated; None where that is not known."""
        flags = [part.low_information for part in self.parts if part.low_information is not None]
        return np.concatenate(flags) if len(flags) == len(self.parts) else None

    def runs(self, start: int = 0, stop: int | None = None) -> list[JpegRun]:
        """Where the frames from `start` to `stop` lie: one run for each shard that has some of them, in order."""
        stop = len(self.timestamps) if stop is None else stop
        runs = []
        for part in self.parts:
            inside = slice(max(start - part.first, 0), max(stop - part.first, 0))
            if offsets := part.offsets[inside]:
                sizes, checksums = part.sizes[inside], part.crc32[inside]
                path, size = str(part.shard.path), (self.width, self.height)
                runs.append(JpegRun(path, size, tuple(offsets), tuple(sizes), tuple(checksums)))
        return runs


def read_shards(folder: Path) -> list[Shard]:
    """Every index of a folder, in order; they are numbered without a gap."""
    found = ((match, path) for path in folder.iterdir() if (match := _INDEX.fullmatch(path.name)))
    numbered = sorted((int(match[1]), path) for match, path in found)
    for expected, (number, _) in enumerate(numbered):
        if number != expected:
            gone = folder / f"frames-{expected:05d}.json"
            raise StorageError(f"'{gone}' is missing, though there are later ones. {COPY}")
    return [_read_shard(path, number) for number, path in numbered]


def _read_shard(path: Path, number: int) -> Shard:
    try:
        index = read_document(path, ("format", "version", "bytes", "sha256", "settings", "videos"))
        if index["format"] != FORMAT:
            raise DataError("it is the index of something else.")
        if index["version"] != VERSION:
            raise DataError(f"it is of version {index['version']}; this hapvr reads {VERSION}.")
        settings = dict(index["settings"])
        check_attributes(settings["attributes"])
        shard = Shard(number, path.with_suffix(".tar"), int(index["bytes"]), str(index["sha256"]), settings, [])
        shard.parts.extend(_read_part(part, shard) for part in index["videos"])
    except (*BROKEN_PICTURE, HapvrError, RecursionError) as error:
        what = f"it lacks '{error.args[0]}'." if isinstance(error, KeyError) else sentence(error)
        raise StorageError(f"'{path}' is not a readable index of packed frames: {what} {COPY}") from error
    return shard


def _read_part(part: Mapping[str, Any], shard: Shard) -> Part:
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
    if not ordered or max(offsets.max(), sizes.max(), ends.max()) > shard.bytes:
        raise DataError(f"the frames of '{id}' do not lie in the shard one after another.")
    low = part.get("low_information")
    if low is not None and (len(low) != len(times) or any(flag not in (0, 1) for flag in low)):
        raise DataError(f"the list low_information of '{id}' must hold 0 or 1 for each frame.")
    flags = None if low is None else np.array(low, np.bool_)
    lists = offsets.tolist(), sizes.tolist(), checksums.tolist()
    return Part(shard, id, frames, height, width, first, times, *lists, flags)


def join_parts(shards: Sequence[Shard], folder: Path) -> tuple[dict[str, PackedVideo], list[str]]:
    """The complete videos of all shards by id, and the ids of incomplete ones."""
    begun: dict[str, list[Part]] = {}
    videos: dict[str, PackedVideo] = {}
    for part in (part for shard in shards for part in shard.parts):
        if part.id in videos:
            raise StorageError(f"'{folder}' has '{part.id}' twice, again in '{part.shard.path.name}'. {COPY}")
        parts = begun.setdefault(part.id, [])
        if part.first == 0:
            parts.clear()  # a writer that was interrupted within this video has started it again
        known = sum(len(before.offsets) for before in parts)
        if part.first != known or any(
            (before.frames, before.height, before.width) != (part.frames, part.height, part.width) for before in parts
        ):
            raise StorageError(
                f"'{part.shard.path}' goes on with '{part.id}' where the shards before it do not end. {COPY}"
            )
        parts.append(part)
        if known + len(part.offsets) == part.frames:
            times = np.concatenate([part.timestamps for part in begun.pop(part.id)])
            if not np.isfinite(times).all() or (np.diff(times) <= 0).any():
                raise StorageError(f"'{part.shard.path}': the timestamps of '{part.id}' do not increase. {COPY}")
            videos[part.id] = PackedVideo(part.id, part.height, part.width, times, parts)
    return videos, list(begun)


def remove_unfinished(folder: Path, shards: Sequence[Shard]) -> None:
    """Remove what an interrupted writer left: shards without an index, partly written files."""
    indexed = {shard.path.name for shard in shards}
    for path in folder.iterdir():
        if _UNFINISHED.fullmatch(path.name) and path.name not in indexed:
            path.unlink()
