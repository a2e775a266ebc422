"""The index of packed frames, read strictly: what lies where in which shard (see `packed.py`)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hapvr.errors import DataError, HapvrError, StorageError
from hapvr.features._layout import check_attributes, sentence
from hapvr.storage import sha256_file
from hapvr.video.crew_work import BROKEN_PICTURE

FORMAT, VERSION = "hapvr-frames", 1
LONGEST_SIDE = 65_500  # JPEG's
BROKEN = BROKEN_PICTURE  # what a damaged index can raise, too
COPY = "Copy the folder again from where it came, or pack its videos anew."
_UNFINISHED = re.compile(r"frames-\d{5,}\.(tar|(tar|json)\.partial)|\.frames-\d{5,}\.(tar|json)\..+\.part")
_INDEX = re.compile(r"frames-(\d{5,})\.json")

Images = NDArray[np.uint8]
Times = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Shard:
    """One index, read and checked; `parts` are those of videos, in order."""

    number: int
    path: Path
    bytes: int
    sha256: str
    settings: dict[str, Any]
    parts: list[Part]


@dataclass(frozen=True, eq=False)
class Part:
    """The frames of a video that lie in one shard, in order and without a gap; offsets are those of the JPEG data."""

    shard: Shard
    id: str
    frames: int
    height: int
    width: int
    first: int
    timestamps: Times
    offsets: list[int]
    sizes: list[int]
    crc32: list[int]
    low_information: NDArray[np.bool_] | None  # None where it is not known


@dataclass(frozen=True, eq=False)
class Video:
    id: str
    height: int
    width: int
    timestamps: Times
    parts: list[Part]

    @property
    def low_information(self) -> NDArray[np.bool_] | None:
        """Which frames say nothing; None where that is not known."""
        flags = [part.low_information for part in self.parts if part.low_information is not None]
        return np.concatenate(flags) if len(flags) == len(self.parts) else None

    def empty(self, size: int | None) -> Images:
        """Room for its frames."""
        height, width = (self.height, self.width) if size is None else (size, size)
        return np.empty((len(self.timestamps), height, width, 3), np.uint8)


def read_shards(folder: Path) -> list[Shard]:
    numbered = ((match, path) for path in folder.iterdir() if (match := _INDEX.fullmatch(path.name)))
    return [_read_shard(path, number) for number, path in sorted((int(match[1]), path) for match, path in numbered)]


def _read_shard(path: Path, number: int) -> Shard:
    try:
        index = json.loads(path.read_bytes())
        if index["format"] != FORMAT:
            raise DataError("it is the index of something else.")
        if index["version"] != VERSION:
            raise DataError(f"it is of version {index['version']}; this hapvr reads {VERSION}.")
        settings = dict(index["settings"])
        check_attributes(settings["attributes"])
        tar = path.with_suffix(".tar")
        shard = Shard(number, tar, int(index["bytes"]), str(index["sha256"]), settings, [])
        shard.parts.extend(_read_part(part, shard) for part in index["videos"])
    except (*BROKEN, HapvrError, RecursionError) as error:
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
    if not (0 < height <= LONGEST_SIDE and 0 < width <= LONGEST_SIDE and 0 <= first <= frames - len(times)):
        raise DataError(f"'{id}' has {frames} frames of {width} x {height}, from {first} on.")
    if (
        (np.diff(offsets) < sizes[:-1]).any()
        or offsets[0] < 0
        or sizes.min() < 1
        or offsets[-1] + sizes[-1] > shard.bytes
    ):
        raise DataError(f"the frames of '{id}' do not lie in the shard one after another.")
    low = part.get("low_information")
    if low is not None and (len(low) != len(times) or any(flag not in (0, 1) for flag in low)):
        raise DataError(f"the list low_information of '{id}' must hold 0 or 1 for each frame.")
    flags = None if low is None else np.array(low, np.bool_)
    numbered = offsets.tolist(), sizes.tolist(), checksums.tolist()
    return Part(shard, id, frames, height, width, first, times, *numbered, flags)


def join_parts(shards: Sequence[Shard], folder: Path) -> tuple[dict[str, Video], list[str]]:
    """The complete videos of all shards by id, and the ids of incomplete ones."""
    begun: dict[str, list[Part]] = {}
    videos: dict[str, Video] = {}
    for part in (part for shard in shards for part in shard.parts):
        if part.id in videos:
            raise StorageError(f"'{folder}' has '{part.id}' twice, again in '{part.shard.path.name}'. {COPY}")
        parts = begun.setdefault(part.id, [])
        if part.first == 0:
            parts.clear()  # a writer that was interrupted within this video has begun it anew
        there = sum(len(before.offsets) for before in parts)
        if part.first != there or any(
            (before.frames, before.height, before.width) != (part.frames, part.height, part.width) for before in parts
        ):
            raise StorageError(
                f"'{part.shard.path}' goes on with '{part.id}' where the shards before it do not end. {COPY}"
            )
        parts.append(part)
        if there + len(part.offsets) == part.frames:
            times = np.concatenate([part.timestamps for part in begun.pop(part.id)])
            if not np.isfinite(times).all() or (np.diff(times) <= 0).any():
                raise StorageError(f"'{part.shard.path}': the timestamps of '{part.id}' do not increase. {COPY}")
            videos[part.id] = Video(part.id, part.height, part.width, times, parts)
    return videos, list(begun)


def remove_unfinished(folder: Path, shards: Sequence[Shard]) -> None:
    """Remove what an interrupted writer left: shards without an index, files half written."""
    indexed = {shard.path.name for shard in shards}
    for path in folder.iterdir():
        if _UNFINISHED.fullmatch(path.name) and path.name not in indexed:
            path.unlink()


def require_size(shard: Shard) -> None:
    try:
        size = shard.path.stat().st_size
    except FileNotFoundError as error:
        raise StorageError(f"'{shard.path}' is missing; its index is there. {COPY}") from error
    if size != shard.bytes:
        raise StorageError(f"'{shard.path}' has {size:,} bytes instead of {shard.bytes:,}. {COPY}")


def shard_checksum(shard: Shard) -> str:
    try:
        return sha256_file(shard.path)
    except OSError as error:
        return f"unreadable: {error.strerror}"
