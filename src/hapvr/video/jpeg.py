"""JPEG pictures that lie in files, and the task of a worker process that unpacks them. Neither torch nor a decoder."""

from __future__ import annotations

import io
import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from hapvr.errors import DataError, HapvrError, StorageError
from hapvr.video.resizing import crop_centre, enlarged_size
from hapvr.workers.pool import TaskContext

Picture = NDArray[np.uint8]

BROKEN_PICTURE = (
    OSError, SyntaxError, ValueError, KeyError, TypeError, OverflowError, MemoryError, Image.DecompressionBombError,
)  # fmt: skip
"""What Pillow raises on a damaged picture."""


@dataclass(frozen=True)
class JpegRun:
    """JPEG pictures of one size that lie in a file, in order: offset, size in bytes and checksum of each."""

    path: str
    size: tuple[int, int]  # width, height
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    crc32: tuple[int, ...]

    def read(self) -> list[memoryview]:
        """The bytes of the pictures, shorter where the file ends; `StorageError` if the file cannot be read."""
        first = self.offsets[0]
        try:
            with open(self.path, "rb", buffering=0) as file:
                file.seek(first)
                data = memoryview(bytearray(self.offsets[-1] + self.sizes[-1] - first))
                data = data[: file.readinto(data)]
        except OSError as error:
            raise StorageError(f"'{self.path}' cannot be read: {error.strerror}.") from error
        return [data[at - first : at - first + size] for at, size in zip(self.offsets, self.sizes, strict=True)]


@dataclass(frozen=True)
class JpegTask:
    """Pictures to unpack into one block [T, crop, crop, 3], from one run or several."""

    runs: tuple[JpegRun, ...]
    crop: int


def unpack_jpegs(context: TaskContext, task: JpegTask) -> None:
    """Unpack the centres of pictures into a block. The note is what is wrong with those that are damaged, by place."""
    count, side = sum(len(run.offsets) for run in task.runs), task.crop
    images = context.block()[: count * side * side * 3].reshape(count, side, side, 3)
    damaged: dict[int, str] = {}
    at = 0
    for run in task.runs:
        try:
            pictures = run.read()
        except StorageError as error:
            damaged.update(dict.fromkeys(range(at, at + len(run.offsets)), str(error)))
            at += len(run.offsets)
            continue
        for data, checksum in zip(pictures, run.crc32, strict=True):
            try:
                require_checksum(data, checksum)
                images[at] = decode_centre(data, run.size, side)
            except (*BROKEN_PICTURE, HapvrError) as error:
                damaged[at] = str(error) or type(error).__name__
            at += 1
    context.send(damaged)


def encode_jpeg(image: Picture, quality: int, size: tuple[int, int]) -> bytes:
    """A picture as JPEG of this (width, height)."""
    picture = Image.fromarray(image)
    if picture.size != size:
        picture = picture.resize(size, Image.Resampling.BICUBIC)
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


def open_jpeg(data: memoryview, size: tuple[int, int]) -> Image.Image:
    """A picture that is not decoded yet; `DataError` unless it is of this (width, height), in colour."""
    picture = Image.open(io.BytesIO(data), formats=["JPEG"])
    if picture.size != size or picture.mode != "RGB":
        raise DataError(f"it is {picture.size} {picture.mode}, not {size} RGB.")
    return picture


def decode_centre(data: memoryview, size: tuple[int, int], side: int) -> Picture:
    """The centre square of a picture; a smaller picture is enlarged first."""
    with open_jpeg(data, size) as picture:
        height, width = enlarged_size(size[1], size[0], side)
        if (width, height) != size:
            return crop_centre(np.asarray(picture.resize((width, height), Image.Resampling.BILINEAR)), side)
        return crop_centre(np.asarray(picture), side)


def require_checksum(data: memoryview, checksum: int) -> None:
    """Raise `DataError` if these are not the bytes that were written."""
    if zlib.crc32(data) != checksum:
        raise DataError("its bytes are not those that were written.")
