"""The task of a worker process that reads a video: sampled frames into blocks, as pictures or as JPEG.

Neither torch nor a decoder is imported at the top: a process loads what it uses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hapvr.errors import DataError
from hapvr.video.jpeg import encode_jpeg
from hapvr.video.miniatures import miniatures
from hapvr.video.resizing import crop_centre, reduced_size
from hapvr.video.sampling import SamplingConfig
from hapvr.workers.pool import TaskContext
from hapvr.workers.shared_memory import Bytes

Images = NDArray[np.uint8]


@dataclass(frozen=True)
class VideoTask:
    """Which video to read, and what to make of it."""

    path: str
    sampling: SamplingConfig
    crop: int | None = None  # pixels of a side, if blocks are to hold the centre squares only
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


def read_video(context: TaskContext, task: VideoTask) -> VideoEnd:
    """Frames of a video into blocks, in order."""
    from hapvr.video.decode import decode_sampled

    end = VideoEnd(None, ())
    for frames in decode_sampled(task.path, task.sampling, threads=task.threads):
        end = VideoEnd(frames.duration_s, frames.warnings, frames.source_size)  # the last chunk knows all
        images = frames.images if task.crop is None else crop_centre(frames.images, task.crop)
        small = miniatures(frames.images) if task.miniatures else None
        start = 0
        while start < len(images):
            if task.jpeg is None:
                shape, sizes = _fill(context.block(), images[start : start + task.batch]), None
            else:
                shape, sizes = _fill_jpeg(context.block(), images[start:], *task.jpeg)
            inside = slice(start, start + shape[0])
            tiny = None if small is None else small[inside]
            context.send(VideoPart(shape, frames.timestamps[inside], frames.low_information[inside], sizes, tiny))
            start += shape[0]
    return end


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
    height, width = reduced_size(images.shape[1], images.shape[2], short_side)
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
