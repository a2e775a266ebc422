"""What the processes of a `Crew` do: read sampled frames of videos, as pictures or as JPEG; unpack JPEG pictures."""

from __future__ import annotations

import io
import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from hapvr.errors import DataError, HapvrError, StorageError
from hapvr.video.crew import Bytes, Desk
from hapvr.video.miniatures import miniatures

Images = NDArray[np.uint8]

CHUNK = 256
"""Frames of a video that are read at a time, about 90 MB of them at 256 x 455 pixels."""
MOST_FRAMES = 172_800
"""Frames of one video: a day at two a second."""
BROKEN_PICTURE = (
    OSError, SyntaxError, ValueError, KeyError, TypeError, OverflowError, MemoryError, Image.DecompressionBombError,
)  # fmt: skip
"""What Pillow raises, one or the other, on a damaged picture."""


@dataclass(frozen=True)
class VideoTask:
    """Read a video: `fps`, `at_least` and `short_side` as in `decode`, the centre square of `crop` pixels if any."""

    path: str
    fps: float
    at_least: int
    short_side: int
    crop: int | None = None
    batch: int = 16  # pictures in a block, at most
    jpeg: tuple[int, int | None] | None = None  # quality and largest short side: blocks hold JPEG
    threads: int = 1  # of the decoder
    miniatures: bool = False  # whether parts hold them too


@dataclass(frozen=True, eq=False)
class VideoPart:
    """What a block holds: pictures [T, H, W, 3], or if `sizes` are given JPEG files one after another."""

    shape: tuple[int, int, int, int]
    timestamps: NDArray[np.float64]
    low_information: NDArray[np.bool_]
    sizes: tuple[int, ...] | None = None
    miniatures: Images | None = None  # [T, 16, 16], if they were asked for


@dataclass(frozen=True)
class VideoEnd:
    """What is known of a video when it has been read."""

    duration_s: float | None
    warnings: tuple[str, ...]
    source_size: tuple[int, int] | None = None  # width and height


def read_video(desk: Desk, task: VideoTask) -> VideoEnd:
    """Frames of a video into blocks, in order."""
    from hapvr.video.decode import decode_chunks
    from hapvr.video.limits import DecodeLimits

    duration, warnings, size = None, dict[str, None](), None
    for frames in decode_chunks(
        task.path,
        chunk=CHUNK,
        fps=task.fps,
        at_least=task.at_least,
        short_side=task.short_side,
        threads=task.threads,
        limits=DecodeLimits(frames=MOST_FRAMES),
    ):
        duration, size = frames.duration_s, frames.source_size
        warnings |= dict.fromkeys(frames.warnings)
        images = frames.images if task.crop is None else centre(frames.images, task.crop)
        small = miniatures(frames.images) if task.miniatures else None
        start = 0
        while start < len(images):
            if task.jpeg is None:
                shape, sizes = _fill(desk.block(), images[start : start + task.batch]), None
            else:
                shape, sizes = _fill_jpeg(desk.block(), images[start:], *task.jpeg)
            inside = slice(start, start + shape[0])
            tiny = None if small is None else small[inside]
            desk.send(VideoPart(shape, frames.timestamps[inside], frames.low_information[inside], sizes, tiny))
            start += shape[0]
    return VideoEnd(duration, tuple(warnings), size)


def _fill(block: Bytes, images: Images) -> tuple[int, int, int, int]:
    """Put as many pictures into a block as it holds."""
    count = min(len(images), len(block) // images[0].size)
    if count == 0:
        raise DataError(f"a picture of {images.shape[2]}x{images.shape[1]} pixels is too large to be handed over.")
    shape = (count, *images.shape[1:])
    block[: images[0].size * count].reshape(shape)[:] = images[:count]
    return shape


def _fill_jpeg(
    block: Bytes, images: Images, quality: int, short_side: int | None
) -> tuple[tuple[int, int, int, int], tuple[int, ...]]:
    sizes: list[int] = []
    filled = 0
    height, width = reduced(images.shape[1], images.shape[2], short_side)
    for image in images:
        data = encode_jpeg(image, quality, (width, height))
        if filled + len(data) > len(block):
            break
        block[filled : filled + len(data)] = np.frombuffer(data, np.uint8)
        filled += len(data)
        sizes.append(len(data))
    if not sizes:
        raise DataError(f"a picture of {width}x{height} pixels is too large to be handed over.")
    return (len(sizes), height, width, 3), tuple(sizes)


def centre(images: Images, side: int) -> Images:
    """The centre square of [..., H, W, 3]; all of it where it is smaller."""
    height, width = images.shape[-3:-1]
    top, left = max(height - side, 0) // 2, max(width - side, 0) // 2
    return images[..., top : top + side, left : left + side, :]


# --- JPEG ----------------------------------------------------------------------------------------------------------


def reduced(height: int, width: int, short_side: int | None) -> tuple[int, int]:
    """The size of a frame whose short side is at most this, with the same proportions.

    >>> reduced(1080, 1920, 256), reduced(100, 200, 256)
    ((256, 455), (100, 200))
    """
    if short_side is None or min(height, width) <= short_side:
        return height, width
    scale = short_side / min(height, width)
    return max(1, round(height * scale)), max(1, round(width * scale))


def encode_jpeg(image: Images, quality: int, size: tuple[int, int]) -> bytes:
    """A picture as JPEG of this (width, height)."""
    picture = Image.fromarray(image)
    if picture.size != size:
        picture = picture.resize(size, Image.Resampling.BICUBIC)
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


@dataclass(frozen=True)
class JpegRun:
    """JPEG pictures of one size that lie in a file, in order: offsets, sizes and checksums of each."""

    path: str
    size: tuple[int, int]  # width, height
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    crc32: tuple[int, ...]


@dataclass(frozen=True)
class JpegTask:
    """Pictures to unpack into one block [T, crop, crop, 3], from one run or several."""

    runs: tuple[JpegRun, ...]
    crop: int


def read_jpegs(desk: Desk, task: JpegTask) -> None:
    """Unpack pictures into a block. The note names those that are damaged: place in the block -> what is wrong."""
    count = sum(len(run.offsets) for run in task.runs)
    side = task.crop
    images = desk.block()[: count * side * side * 3].reshape(count, side, side, 3)
    damaged: dict[int, str] = {}
    at = 0
    for run in task.runs:
        try:
            pictures = read_run(run)
        except StorageError as error:
            damaged.update(dict.fromkeys(range(at, at + len(run.offsets)), str(error)))
            at += len(run.offsets)
            continue
        for data, checksum in zip(pictures, run.crc32, strict=True):
            try:
                require_checksum(data, checksum)
                images[at] = square(data, run.size, side)
            except (*BROKEN_PICTURE, HapvrError) as error:
                damaged[at] = str(error) or type(error).__name__
            at += 1
    desk.send(damaged)


def read_run(run: JpegRun) -> list[memoryview]:
    """The bytes of the pictures of a run; `StorageError` if the file cannot be read. Shorter where the file ends."""
    first = run.offsets[0]
    try:
        with open(run.path, "rb", buffering=0) as file:
            file.seek(first)
            data = memoryview(bytearray(run.offsets[-1] + run.sizes[-1] - first))
            data = data[: file.readinto(data)]
    except OSError as error:
        raise StorageError(f"'{run.path}' cannot be read: {error.strerror}.") from error
    return [data[at - first : at - first + size] for at, size in zip(run.offsets, run.sizes, strict=True)]


def require_checksum(data: memoryview, checksum: int) -> None:
    """Raise `DataError` if these are not the bytes that were written."""
    if zlib.crc32(data) != checksum:
        raise DataError("its bytes are not those that were written.")


def square(data: memoryview, size: tuple[int, int], side: int) -> Images:
    """The centre of a picture; enlarged first if it is smaller."""
    with Image.open(io.BytesIO(data), formats=["JPEG"]) as picture:
        if picture.size != size or picture.mode != "RGB":
            raise DataError(f"it is {picture.size} {picture.mode}, not {size} RGB.")
        width, height = size
        if min(size) < side:
            scale = side / min(size)
            width, height = max(side, round(width * scale)), max(side, round(height * scale))
            return centre(np.asarray(picture.resize((width, height), Image.Resampling.BILINEAR)), side)
        left, top = (width - side) // 2, (height - side) // 2
        return np.asarray(picture.crop((left, top, left + side, top + side)))
