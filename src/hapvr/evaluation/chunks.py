"""The database from disk, chunk by chunk: each video is read once, and chunks ahead are read while one is scored.

Unpacking gzip takes longer than scoring does on a GPU, and HDF5 works for one thread at a time: large files are read
by processes (`WorkerPool`), which hand vectors over in the precision of the file. Small ones are read by threads, which
start at once. Frames that the file flags as flat or repeated are left out here (`Features.drop_flat`).
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
from collections import defaultdict, deque
from collections.abc import Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hapvr.checks import require_finite
from hapvr.errors import ConfigError, HapvrError, StorageError
from hapvr.features import FeatureFile
from hapvr.features.feature_files import StoredFrames
from hapvr.features.feature_layout import Entry, open_h5
from hapvr.similarity import VideoSimilarity
from hapvr.workers.pool import Block, TaskContext, TaskResult, WorkerPool
from hapvr.workers.processes import count_cores

_WORTH_PROCESSES = 4 << 30  # bytes; starting processes takes as long as a few threads need for this much
_FLOAT32 = 4


@dataclass(frozen=True)
class Chunk:
    """Consecutive videos of the database that are read and scored together."""

    number: int
    first: int  # position of its first video in the database
    ids: tuple[str, ...]
    lengths: tuple[int, ...]  # frames

    @property
    def frames(self) -> int:
        """Of all its videos."""
        return sum(self.lengths)

    @property
    def last(self) -> int:
        """Position of the first video after it."""
        return self.first + len(self.ids)


def plan_chunks(lengths: Mapping[str, int], *, frames: int) -> list[Chunk]:
    """Cut a database, id -> frames in the order in which it is read, into chunks of at most `frames` frames.

    A longer video is a chunk by itself. The same database gives the same chunks to all processes.

    >>> [chunk.ids for chunk in plan_chunks({"a": 3, "b": 4, "c": 9, "d": 1}, frames=8)]
    [('a', 'b'), ('c',), ('d',)]
    """
    if frames < 1:
        raise ConfigError(f"A chunk must hold at least one frame, got {frames}.")
    groups: list[list[str]] = []
    filled = frames
    for id, length in lengths.items():
        if filled + length > frames:
            groups.append([])
            filled = 0
        groups[-1].append(id)
        filled += length
    firsts = [0, *itertools.accumulate(map(len, groups))]
    return [
        Chunk(number, firsts[number], tuple(ids), tuple(lengths[id] for id in ids)) for number, ids in enumerate(groups)
    ]


def read_chunks(
    file: FeatureFile, chunks: Sequence[Chunk], *, device: torch.device, reader_processes: int | None = None
) -> Generator[tuple[Chunk, list[Tensor]], None, None]:
    """Each chunk, in order, with the region vectors [T, R, D] of its videos on `device`; no flat or repeated frames.

    Args:
        file: opened with float32.
        chunks: as planned over this file; any of them.
        device: where the vectors are wanted.
        reader_processes: processes that read; 0 for threads of this one. By default what suits the device and the size.
    """
    if reader_processes is not None and reader_processes < 0:
        raise ConfigError(f"reader_processes must be a number of processes, or 0 for threads; got {reader_processes}.")
    if reader_processes is None:
        regions, dims = file.dims or (0, 0)
        size = sum(chunk.frames for chunk in chunks) * regions * dims * _FLOAT32
        # A CPU scores so much slower than it reads that threads are enough.
        reader_processes = max(1, count_cores() - 1) if device.type == "cuda" and size > _WORTH_PROCESSES else 0
    if reader_processes and chunks:
        return _read_by_processes(file, chunks, device, reader_processes)
    return _read_by_threads(file, chunks, device)


def make_query_descriptors(model: VideoSimilarity, file: FeatureFile, queries: Sequence[str]) -> list[Tensor]:
    """The descriptors of videos, by their names in a file, on the device of the model; no flat or repeated frames."""
    described: list[Tensor] = []
    for id, features in file.stream(queries):
        described.append(model.make_descriptors(features.drop_flat().regions.to(model.device)))
        require_finite(described[-1].as_subclass(Tensor), f"what the model makes of query '{id}'")
    return described


def _read_by_threads(
    file: FeatureFile, chunks: Sequence[Chunk], device: torch.device
) -> Generator[tuple[Chunk, list[Tensor]], None, None]:
    ahead = max((len(chunk.ids) for chunk in chunks), default=1)
    videos = file.stream(itertools.chain.from_iterable(chunk.ids for chunk in chunks), prefetch=ahead)
    with contextlib.closing(videos):  # type: ignore[type-var]  # it is a generator
        for chunk in chunks:
            read = [features.drop_flat().regions for _, features in itertools.islice(videos, len(chunk.ids))]
            if device.type != "cpu":  # in one transfer
                read = list(torch.split(torch.cat(read).to(device), [len(video) for video in read]))
            yield chunk, read


def _read_by_processes(
    file: FeatureFile, chunks: Sequence[Chunk], device: torch.device, reader_processes: int
) -> Generator[tuple[Chunk, list[Tensor]], None, None]:
    """Each process reads groups of a chunk's videos. It may fill two blocks ahead, so all of them two chunks."""
    stored = _choose_precision(file, chunks)
    block_frames = max(1, max(chunk.frames for chunk in chunks) // reader_processes)
    groups = {
        chunk.number: plan_chunks(dict(zip(chunk.ids, chunk.lengths, strict=True)), frames=block_frames)
        for chunk in chunks
    }
    tasks = (
        ((chunk.number, group.number), (os.fspath(file.path), stored, [(id, file.entry(id)) for id in group.ids]))
        for chunk in chunks
        for group in groups[chunk.number]
    )
    size = block_frames * stored.row_bytes
    blocks: defaultdict[Hashable, deque[Block]] = defaultdict(deque)  # of chunks whose turn has not come
    ended: dict[Hashable, TaskResult] = {}
    with WorkerPool(_read_videos, tasks, workers=reader_processes, block_bytes=size, pin=device.type == "cuda") as pool:
        for chunk in chunks:
            videos: list[Tensor] = []
            for group in groups[chunk.number]:
                key = (chunk.number, group.number)
                frames: list[Tensor] = []
                while blocks[key] or key not in ended:
                    while blocks[key]:
                        block = blocks[key].popleft()
                        rows = torch.from_numpy(block.data[: block.note]).view(-1, stored.row_bytes)
                        frames.append(stored.unpack(rows.to(device, copy=True)))
                        pool.release(block)
                    for event in pool.wait() if key not in ended else ():
                        if isinstance(event, Block):
                            blocks[event.key].append(event)
                        else:
                            ended[event.key] = event
                lengths = _require_read(ended.pop(key), file.path)
                videos += torch.split(torch.cat(frames), lengths)
            yield chunk, videos


def _choose_precision(file: FeatureFile, chunks: Sequence[Chunk]) -> StoredFrames:
    """That of the videos of these chunks, if they share one; else float32."""
    found = {file.entry(id).dtype for chunk in chunks for id in chunk.ids}
    return StoredFrames(found.pop() if len(found) == 1 else np.dtype(np.float32), file.dims or (0, 0))


def _require_read(result: TaskResult, path: Path) -> list[int]:
    """The frames of each video of a group; `StorageError` if it could not be read."""
    if result.error is not None:
        raise StorageError(
            f"'{path}' could not be read to its end: {result.error}, perhaps for lack of memory. Run it again with "
            "fewer reader processes; finished chunks of a work folder are kept."
        )
    if isinstance(result.value, str):
        raise StorageError(result.value)
    lengths: list[int] = result.value
    return lengths


def _read_videos(context: TaskContext, task: tuple[str, StoredFrames, list[tuple[str, Entry]]]) -> list[int] | str:
    """Send the vectors of some videos, end to end; returns their lengths, or what was wrong."""
    torch.set_num_threads(1)
    path, stored, videos = task
    try:
        file = FeatureFile(Path(path), _open_once(path), dict(videos), torch.float32)
        read = [file.read_rows(id, stored) for id, _ in videos]
        data = np.concatenate(read).reshape(-1)
    except (HapvrError, OSError, MemoryError, ValueError) as error:
        return str(error) or type(error).__name__
    step = len(context.block()) // stored.row_bytes * stored.row_bytes
    for start in range(0, len(data), step):
        part = data[start : start + step]
        context.block()[: len(part)] = part
        context.send(len(part))
    return [len(rows) for rows in read]


@functools.lru_cache(maxsize=1)
def _open_once(path: str) -> Any:
    return open_h5(Path(path), path, "r")
