"""The tasks of worker processes that read a video: sampled frames into blocks, as pictures or as JPEG.

Neither torch nor a decoder is imported at the top: a process loads what it uses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hapvr.errors import DataError, HapvrError
from hapvr.records import Box, VideoInfo
from hapvr.storage import blake2b_file, file_signature, is_regular_file
from hapvr.video.pictures import crop_centre, encode_jpeg, make_miniatures, reduced_size
from hapvr.video.sampling import SamplingConfig
from hapvr.workers.pool import TaskContext
from hapvr.workers.sandbox import find_given, open_given

Images = NDArray[np.uint8]

_PROBE_S = 10.0  # for a file whose header is read


@dataclass(frozen=True)
class VideoTask:
    """Which video to read, and what to make of it."""

    path: str
    sampling: SamplingConfig
    crop: int | None = None  # pixels of a side, if blocks are to hold the centre squares only
    jpeg: tuple[int, int | None] | None = None  # quality and largest short side: blocks hold JPEG
    threads: int = 1  # of the decoder
    miniatures: bool = False  # whether parts hold them too
    keyframes: bool = False  # whether key frames alone are read
    end_s: float | None = None  # where reading ends; None for all of the video
    inset: Box | None = None  # the part of each frame that is read; None: all of it but black bars


@dataclass(frozen=True, eq=False)
class VideoPart:
    """What a block holds: pictures [T, H, W, 3], or if `sizes` are given JPEG files one after another."""

    shape: tuple[int, int, int, int]
    timestamps: NDArray[np.float64]
    low_information: NDArray[np.bool_] | None  # None where it is not known
    sizes: tuple[int, ...] | None = None
    miniatures: Images | None = None  # [T, 16, 16], if they were asked for


@dataclass(frozen=True)
class VideoEnd:
    """What is known of a video when it has been read."""

    duration_s: float | None
    warnings: tuple[str, ...]
    source_size: tuple[int, int] | None = None  # width and height


def file_of_task(task: VideoTask | FileTask | str) -> str:
    """The file that a task of this module is about."""
    return task if isinstance(task, str) else task.path if isinstance(task, VideoTask) else task.video.path


def read_video(context: TaskContext, task: VideoTask) -> VideoEnd:
    """Frames of a video into blocks, in order; as many into each as it holds."""
    from hapvr.video.decode import decode_sampled

    end = VideoEnd(None, ())
    for frames in decode_sampled(
        task.path,
        task.sampling,
        end_s=task.end_s,
        crop=task.inset,
        keyframes=task.keyframes,
        threads=task.threads,
    ):
        end = VideoEnd(frames.duration_s, frames.warnings, frames.source_size)  # the last chunk knows all
        images = frames.images if task.crop is None else crop_centre(frames.images, task.crop)
        small = make_miniatures(frames.images) if task.miniatures else None
        start = 0
        while start < len(images):
            shape, sizes = _fill(context.block(), images[start:], task.jpeg)
            inside = slice(start, start + shape[0])
            tiny = None if small is None else small[inside]
            context.send(VideoPart(shape, frames.timestamps[inside], frames.low_information[inside], sizes, tiny))
            start += shape[0]
    return end


def find_video_inset(_: TaskContext, task: VideoTask) -> Box | None:
    """Where a video shows another one in a window; None if it does not, or cannot be read."""
    from hapvr.video.decode import decode_sampled
    from hapvr.video.insets import find_inset

    try:
        first = next(decode_sampled(task.path, task.sampling, threads=task.threads), None)
    except HapvrError:
        return None
    return None if first is None else find_inset(first)


def probe_video(_: TaskContext, path: str) -> VideoInfo:
    """What a file declares about its video; see `hapvr.video.decode.probe`."""
    from hapvr.video.decode import probe
    from hapvr.video.limits import DecodeLimits

    return probe(path, limits=DecodeLimits(max_seconds=_PROBE_S))


def _fill(
    block: Images, images: Images, jpeg: tuple[int, int | None] | None
) -> tuple[tuple[int, int, int, int], tuple[int, ...] | None]:
    """Put as many pictures into a block as it holds, and say which shape they have, and which sizes as JPEG."""
    height, width = images.shape[1:3]
    sizes: list[int] | None = None
    if jpeg is None:
        count = min(len(images), len(block) // images[0].size)
        filled = images[:count]
        block[: filled.size].reshape(filled.shape)[:] = filled
    else:
        quality, short_side = jpeg
        height, width = reduced_size(height, width, short_side)
        sizes, end = [], 0
        for image in images:
            data = encode_jpeg(image, quality, (width, height))
            if end + len(data) > len(block):
                break
            block[end : end + len(data)] = np.frombuffer(data, np.uint8)
            end += len(data)
            sizes.append(len(data))
        count = len(sizes)
    if count == 0:
        raise DataError(f"a picture of {width}x{height} pixels is too large to be handed over.")
    return (count, height, width, 3), None if sizes is None else tuple(sizes)


@dataclass(frozen=True)
class FileTask:
    """Read a video for a library, unless its content is one of those that are known."""

    video: VideoTask
    known: frozenset[str] = frozenset()  # content hashes
    min_seconds: float = 0.0  # a video that declares to be shorter is not read


@dataclass(frozen=True)
class FileEnd:
    """What is known of a file when it has been read."""

    size: int  # bytes, before it was read
    mtime_ns: int  # before it was read; -1 where it is to be read again whatever it says
    content_hash: str | None  # None if it could not be read at all
    known: bool = False  # nothing was decoded: the hash is one of those that are known
    too_short: bool = False  # nothing was decoded: it is shorter than was asked for
    video: VideoEnd | None = None
    error: str | None = None


def read_file(context: TaskContext, task: FileTask) -> FileEnd:
    """Hash a file and read its frames into blocks; what is wrong with it is in the result.

    The file is looked at before and after, so that it is certain which content the frames are of.
    """
    path = task.video.path
    given = find_given(path)
    size, changed = file_signature(path if given is None else given)
    digest, video, wrong = None, None, None
    try:
        if is_regular_file(path):  # a pipe would be waited for
            if _is_shorter(path, task.min_seconds):
                return FileEnd(size, changed, None, too_short=True)
            digest = blake2b_file(open_given(path))
            if digest in task.known and file_signature(path) == (size, changed):
                return FileEnd(size, changed, digest, known=True)
        video = read_video(context, task.video)
    except (HapvrError, OSError) as error:
        wrong = str(error) or type(error).__name__
    if file_signature(path) != (size, changed):
        return FileEnd(size, -1, digest, error="it was changed while it was being read. It is read again next time.")
    return FileEnd(size, changed, digest, video=video, error=wrong)


def _is_shorter(path: str, min_seconds: float) -> bool:
    """Whether a file declares a video that is shorter than this; what cannot be read is not."""
    if not min_seconds:
        return False
    from hapvr.video.decode import probe

    try:
        declared = probe(path).duration_s
    except HapvrError:
        return False
    return declared is not None and declared < min_seconds
