"""Frames in tar shards, read where they lie: what each shard holds, and the task of a process that decodes some of it.

Two kinds of folders are read:

packed frames   what `hapvr frames` writes, with an index beside each shard (`packed_frames.py`)
webdataset      any tar files, whose members are walked once; files with one key, next to each other, are a sample:
                KEY.NUMBER.jpg   a frame of the video KEY, by ascending number
                KEY/NUMBER.jpg   the same
                KEY.jpg          a photograph
                KEY.json         {"fps": 2.0} or {"timestamps": [...]} in seconds; without it, one frame a second
                .jpeg, .png and .webp are read too; members of other kinds are counted and not read

Nothing here raises on a damaged shard: what cannot be used is named, with the reason, and the rest is used. Neither
torch nor a video decoder is imported, so that a process that decodes starts quickly.
"""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from hapvr.errors import DataError, StorageError, to_sentence
from hapvr.storage import StrPath
from hapvr.video.packed_frames import OpenPicture, decode_square, decode_whole
from hapvr.video.packed_index import BROKEN, FrameRun, Part, cut_runs, decode_runs, read_each_shard
from hapvr.video.pictures import Picture, open_jpeg
from hapvr.workers.pool import TaskContext

Skipped = tuple[str, str]  # an id or the name of a shard, and the reason
_PICTURES = frozenset({"jpg", "jpeg", "png", "webp"})
_FORMATS = ("JPEG", "PNG", "WEBP")
_NUMBER = re.compile(r"\d{1,12}")
_END = bytes(512)  # of a tar, twice
_SCANNERS = 8  # shards walked at a time: mostly waiting for a disk
_NAMED = 20  # members of other kinds that are named


@dataclass(frozen=True, eq=False)
class ShardVideo:
    """A video in shards: where its frames lie, and when they are shown."""

    id: str
    shard: int  # that its first frame lies in
    size: tuple[int, int]  # width and height of its frames
    timestamps: NDArray[np.float64]
    runs: tuple[FrameRun, ...]

    def __len__(self) -> int:
        return len(self.timestamps)


@dataclass(frozen=True)
class ShardSet:
    """What a folder of shards holds, and what of it cannot be used."""

    videos: tuple[ShardVideo, ...]
    shards: int
    skipped: tuple[Skipped, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)  # how frames were taken, as far as it is known


def is_packed(folder: StrPath) -> bool:
    """Whether a folder holds what `hapvr frames` writes, or nothing at all that is read here."""
    folder = Path(folder)
    return any(folder.glob("frames-*.json")) or not any(folder.glob("*.tar"))


def open_shards(folder: StrPath) -> ShardSet:
    """Every video of a folder of packed frames, or of tar files as webdataset has them.

    `StorageError` if it holds no shard, or no video that can be used.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise StorageError(f"'{folder}' is not a folder. Give one of packed frames (`hapvr frames`) or of tar shards.")
    found = _open_packed(folder) if is_packed(folder) else _open_tars(folder)
    if not found.shards and not found.skipped:
        raise StorageError(f"'{folder}' holds no shard: neither frames-00000.json of `hapvr frames` nor a .tar file.")
    if not found.videos:
        why = "; ".join(f"{name}: {reason}" for name, reason in found.skipped[:3])
        raise StorageError(f"'{folder}' holds no video that can be used{': ' + why if why else ''}.")
    return found


# --- decoding --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class WindowTask:
    """Decode some frames of a video that follow on each other."""

    id: str
    first: int  # number of the first in its video, for errors
    size: tuple[int, int]  # width and height as stored
    side: int | None  # of the squares that frames come as; None: as stored
    runs: tuple[FrameRun, ...]

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """[t, H, W, 3] of what comes out."""
        width, height = self.size if self.side is None else (self.side, self.side)
        return sum(map(len, self.runs)), height, width, 3


def cut_window(video: ShardVideo, start: int, count: int, side: int | None) -> WindowTask:
    """The task of `count` frames of a video from `start` on."""
    return WindowTask(video.id, start, video.size, side, cut_runs(video.runs, start, start + count))


def decode_window(task: WindowTask, images: Picture) -> None:
    """Fill [t, H, W, 3] with the frames of a task. `StorageError` names the first that is damaged."""
    pictures = decode_runs(task.runs, partial(_decode, task), id=task.id, first=task.first)
    for place, picture in enumerate(pictures):
        images[place] = picture


def read_window(context: TaskContext, task: WindowTask) -> None:
    """The frames of a task into one block, with their shape as the note."""
    count = int(np.prod(task.shape))
    decode_window(task, context.block()[:count].reshape(task.shape))
    context.send(task.shape)


def _decode(task: WindowTask, data: memoryview, stored: bool) -> Picture:
    """A frame as the task wants it; those that hapvr stored are JPEG of the known size, others any picture."""
    open_picture: OpenPicture = open_jpeg if stored else _open_any
    if task.side is None:
        return decode_whole(data, task.size, open_picture)
    return decode_square(data, task.size, task.side, open_picture)


def _open_any(data: memoryview, size: tuple[int, int]) -> Image.Image:
    picture = Image.open(io.BytesIO(data), formats=_FORMATS)
    if picture.size != size:
        raise DataError(f"it is {picture.size[0]} x {picture.size[1]}, the first one {size[0]} x {size[1]}.")
    return picture if picture.mode == "RGB" else picture.convert("RGB")


# --- packed frames ---------------------------------------------------------------------------------------------------


def _open_packed(folder: Path) -> ShardSet:
    """The complete videos of all shards that can be read; a video that lies in another shard too is not complete."""
    shards, unreadable = read_each_shard(folder)
    skipped = [(name, str(error)) for name, error in unreadable]
    videos: dict[str, ShardVideo] = {}
    lost: dict[str, str] = {}
    begun: dict[str, list[tuple[int, Part]]] = {}
    for number, shard in shards:
        try:
            held = shard.path.stat().st_size
        except OSError as error:
            skipped.append((shard.path.name, f"it cannot be read: {error.strerror}."))
            held = 0
        else:
            if held < shard.bytes:
                skipped.append((shard.path.name, f"it has {held:,} bytes instead of {shard.bytes:,}."))
        for part in shard.parts:
            parts = begun.setdefault(part.id, [])
            if part.first == 0:
                parts.clear()  # a writer that was interrupted within this video has started it again
            parts.append((number, part))
            if int(part.offsets[-1] + part.sizes[-1]) > held:
                lost[part.id] = f"frames of it lie in '{shard.path.name}', which is cut short or missing"
    for id, numbered in begun.items():
        own = [part for _, part in numbered]
        if id in lost:
            skipped.append((id, lost[id]))
        elif _is_complete(own):
            times = np.concatenate([part.timestamps for part in own])
            videos[id] = ShardVideo(id, numbered[0][0], own[0].size, times, tuple(own))
        else:
            skipped.append((id, "only a part of it is there"))
    attributes = dict(shards[0][1].settings["attributes"]) if shards else {}
    return ShardSet(tuple(videos.values()), len(shards), tuple(skipped), attributes)


def _is_complete(parts: Sequence[Part]) -> bool:
    ends = np.cumsum([len(part.offsets) for part in parts]).tolist()
    firsts = [part.first for part in parts]
    alike = all((part.frames, part.size) == (parts[0].frames, parts[0].size) for part in parts)
    return alike and firsts == [0, *ends[:-1]] and ends[-1] == parts[0].frames


# --- webdataset ------------------------------------------------------------------------------------------------------


@dataclass
class _Sample:
    """Members of one key that follow on each other."""

    id: str
    pictures: list[tuple[int, str, int, int]] = field(default_factory=list)  # number, name, offset, size
    about: tuple[int, int] | None = None  # where its JSON lies


def _open_tars(folder: Path) -> ShardSet:
    paths = sorted(folder.glob("*.tar"))
    videos: dict[str, ShardVideo] = {}
    skipped: list[Skipped] = []
    with ThreadPoolExecutor(_SCANNERS) as pool:
        for own, lost in pool.map(_scan_tar, range(len(paths)), paths):
            skipped += lost
            for video in own:
                if video.id in videos:
                    skipped.append((video.id, f"it is in '{video.runs[0].path.name}' again, and read once"))
                else:
                    videos[video.id] = video
    steps = [np.diff(video.timestamps) for video in videos.values() if len(video) > 1]
    rates = np.unique(np.round(1 / np.concatenate(steps), 6)) if steps else np.zeros(0)
    # At one rate for all: then no video was sampled more often than others either.
    attributes = {"fps": float(rates[0]), "min_frames": 0} if len(rates) == 1 else {}
    return ShardSet(tuple(videos.values()), len(paths), tuple(skipped), attributes)


def _scan_tar(number: int, path: Path) -> tuple[list[ShardVideo], list[Skipped]]:
    """The videos of a tar file, and what of it cannot be used."""
    skipped: list[Skipped] = []
    samples: list[_Sample] = []
    others: list[str] = []
    whole = True
    try:
        with path.open("rb") as file:
            length = os.fstat(file.fileno()).st_size
            end = 0
            try:
                with tarfile.open(fileobj=file, mode="r:") as tar:
                    for member in tar:
                        end = member.offset_data + -(-member.size // 512) * 512
                        if not member.isfile():
                            continue
                        if member.offset_data + member.size > length:
                            whole = False
                            break
                        if not _take_member(samples, member):
                            others.append(member.name)
                file.seek(end)
                whole = whole and file.read(1024) == 2 * _END
            except (tarfile.TarError, ValueError, OverflowError, UnicodeError, EOFError) as error:
                whole = False
                skipped.append((path.name, f"it is damaged after byte {end:,}: {to_sentence(error)}"))
            if not whole:
                if not skipped:
                    skipped.append((path.name, f"it is cut short after byte {min(end, length):,}."))
                if samples:  # nobody knows how many frames it had
                    skipped.append((samples.pop().id, f"'{path.name}' ends within it or just after it"))
            if others:
                names = ", ".join(others[:_NAMED])
                skipped.append((path.name, f"{len(others)} members are of no kind that is read here: {names}."))
            videos: list[ShardVideo] = []
            for sample in samples:
                try:
                    videos.append(_make_video(sample, number, path, file))
                except BROKEN as error:
                    skipped.append((sample.id, f"'{path.name}': {to_sentence(error)}"))
    except OSError as error:
        return [], [(path.name, f"it cannot be read: {error.strerror or error}.")]
    return videos, skipped


def _take_member(samples: list[_Sample], member: tarfile.TarInfo) -> bool:
    """Add a member to the sample at hand, or begin the next; False if it is of no kind that is read."""
    folder, _, base = member.name.removeprefix("./").rpartition("/")
    stem, _, suffix = base.partition(".")
    *middle, kind = suffix.lower().split(".")
    key, number = f"{folder}/{stem}" if folder else stem, 0
    if kind in _PICTURES and not middle and folder and _NUMBER.fullmatch(stem):
        key, number = folder, int(stem)
    elif kind in _PICTURES and len(middle) == 1 and _NUMBER.fullmatch(middle[0]):
        number = int(middle[0])
    elif (kind not in _PICTURES and kind != "json") or middle:
        return False
    if not samples or samples[-1].id != key:
        samples.append(_Sample(key))
    if kind == "json":
        samples[-1].about = member.offset_data, member.size
    else:
        samples[-1].pictures.append((number, member.name, member.offset_data, member.size))
    return True


def _make_video(sample: _Sample, shard: int, path: Path, file: io.BufferedReader) -> ShardVideo:
    frames = sorted(sample.pictures)
    if not frames:
        raise DataError("it has no picture.")
    numbers = [number for number, *_ in frames]
    if len(set(numbers)) != len(numbers):
        raise DataError("two of its frames have one number.")
    offsets, sizes = (np.array([frame[place] for frame in frames], np.int64) for place in (2, 3))
    if (offsets[1:] < offsets[:-1]).any():
        raise DataError("its frames do not lie in the order of their numbers.")
    file.seek(int(offsets[0]))
    with Image.open(io.BytesIO(file.read(int(sizes[0]))), formats=_FORMATS) as picture:
        size = picture.size
    run = FrameRun(path, offsets, sizes, None)
    return ShardVideo(sample.id, shard, size, _read_times(sample, len(frames), file), (run,))


def _read_times(sample: _Sample, count: int, file: io.BufferedReader) -> NDArray[np.float64]:
    if sample.about is None:
        return np.arange(count, dtype=np.float64)
    file.seek(sample.about[0])
    about = json.loads(file.read(sample.about[1]))
    if not isinstance(about, dict):
        raise DataError("its JSON is no table.")
    if "timestamps" in about:
        times = np.array(about["timestamps"], np.float64)
    else:
        fps = float(about.get("fps", 1.0))
        if not fps > 0:
            raise DataError(f"its JSON says {fps} frames a second.")
        times = np.arange(count, dtype=np.float64) / fps
    if times.shape != (count,) or not np.isfinite(times).all() or (np.diff(times) <= 0).any():
        raise DataError(f"its JSON must have {count} rising timestamps, one for each frame.")
    return times
