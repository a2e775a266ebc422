"""Frames of many videos into packed shards: read and made JPEG in worker processes, written here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from hapvr.features.features import join_fields
from hapvr.features.video_extraction import (
    BLOCKS,
    ExtractionReport,
    FileReporter,
    Files,
    Progress,
    default_workers,
    make_tasks,
)
from hapvr.video.frame_tasks import VideoPart, VideoTask, file_of_task, read_video
from hapvr.video.packed_writer import PackedWriter
from hapvr.video.sampling import SamplingConfig
from hapvr.workers.pool import Block, WorkerPool
from hapvr.workers.sandbox import Sandbox

_MIN_BLOCK_BYTES = 4 * 2**20


def pack_files(
    writer: PackedWriter,
    files: Files,
    sampling: SamplingConfig,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
    stream: PackStream | None = None,
) -> ExtractionReport:
    """Sampled frames of many videos into packed shards; what the writer has already is left out.

    The worker processes also make the JPEG pictures, and of a video these are all that is held. `stream` reads the
    videos; `pack_stream` if None.
    """

    def write(video: EncodedVideo) -> None:
        pictures: list[bytes] = []
        for part, data in video.parts:
            ends = np.cumsum(part.sizes or ()).tolist()
            pictures += [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]
        _, height, width, _ = video.parts[0][0].shape
        fields = join_fields([part for part, _ in video.parts])
        times, low = fields["timestamps"], fields["low_information"]
        writer.add_encoded(video.id, pictures, times, size=(width, height), low_information=low)

    run = FileReporter(files, writer.done_ids(), progress)
    tasks = make_tasks(run.todo, sampling, workers=default_workers(workers), jpeg=writer.encoding)
    for video in (stream or pack_stream)(tasks, short_side=sampling.short_side, workers=workers):
        frames = sum(len(part.timestamps) for part, _ in video.parts)
        run.end(video.id, video.error, partial(write, video), frames=frames, end=video.note)
    return run.report


@dataclass(frozen=True)
class EncodedVideo:
    """The pictures of a video, end to end in each part; or why there are none."""

    id: str
    parts: Sequence[tuple[VideoPart, bytes]]
    note: Any  # what the task returned
    error: str | None


PackStream = Callable[..., Iterator[EncodedVideo]]
"""`pack_stream`, or what does the same elsewhere."""


def pack_stream(
    tasks: Iterable[tuple[str, VideoTask]], *, short_side: int, workers: int | None = None
) -> Iterator[EncodedVideo]:
    """The JPEG pictures of videos as they come, read by `workers` processes."""
    held: dict[str, list[tuple[VideoPart, bytes]]] = {}
    size = max(_MIN_BLOCK_BYTES, 8 * short_side**2 * 3)  # the widest picture that a decoder gives
    options: dict[str, Any] = {"workers": default_workers(workers), "block_bytes": size, "blocks": BLOCKS}
    with WorkerPool(read_video, tasks, sandbox=Sandbox(), file_of=file_of_task, **options) as pool:
        while pool.busy:
            for event in pool.wait():
                id = str(event.key)
                if isinstance(event, Block):
                    data = event.data[: sum(event.note.sizes)].tobytes()
                    held.setdefault(id, []).append((event.note, data))
                    pool.release(event)
                else:
                    yield EncodedVideo(id, held.pop(id, []), event.value, event.error)
