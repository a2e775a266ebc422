"""The database from disk, chunk by chunk: each video is read once, and chunks ahead are read while one is scored.

Unpacking gzip takes longer than scoring does on a GPU, and HDF5 works for one thread at a time: large files are read
by processes, which put the vectors into memory that this process shares. Small ones are read by threads, which start at
once. Frames that the file flags as flat or repeated are left out here (`Features.informative`).
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import queue
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hapvr.errors import ConfigError, HapvrError, StorageError
from hapvr.features import FeatureFile
from hapvr.features import hdf5_layout as layout
from hapvr.workers.processes import how_ended, spawn_context
from hapvr.workers.shared_memory import SharedMemory, open_shared

_SLOTS = 3  # chunks in memory: one that is being scored, two that are being read
_VIDEOS_A_TASK = 4  # few enough for processes to finish a chunk together
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

    A longer video is a chunk of its own. The same database gives the same chunks, whoever shares the work.

    >>> [chunk.ids for chunk in plan_chunks({"a": 3, "b": 4, "c": 9, "d": 1}, frames=8)]
    [('a', 'b'), ('c',), ('d',)]
    """
    if frames < 1:
        raise ConfigError(f"A chunk must hold a frame at least, got {frames}.")
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
    file: FeatureFile, chunks: Sequence[Chunk], *, device: torch.device, readers: int | None = None
) -> Generator[tuple[Chunk, list[Tensor]], None, None]:
    """Each chunk with the region vectors [T, R, D] of its videos on `device`, in order, flat frames left out.

    A chunk's tensors are to be used before the next one is asked for: its memory is used again.

    Args:
        file: opened with float32.
        chunks: as planned over this file; any of them.
        device: where the vectors are wanted.
        readers: processes that read; 0 for threads of this one. By default what suits the device and the size.
    """
    if readers is not None and readers < 0:
        raise ConfigError(f"readers must be a number of processes, or 0 for threads; got {readers}.")
    if readers is None:
        regions, dims = file.dims or (0, 0)
        size = sum(chunk.frames for chunk in chunks) * regions * dims * _FLOAT32
        # A CPU scores so much slower than it reads that threads are enough.
        readers = max(1, _cores() - 1) if device.type == "cuda" and size > _WORTH_PROCESSES else 0
    return _by_processes(file, chunks, device, readers) if readers and chunks else _by_threads(file, chunks, device)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _by_threads(
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


# --- processes -------------------------------------------------------------------------------------------------------


def _by_processes(
    file: FeatureFile, chunks: Sequence[Chunk], device: torch.device, readers: int
) -> Generator[tuple[Chunk, list[Tensor]], None, None]:
    pool = _ReaderPool(file, chunks, readers, pinned=device.type == "cuda")
    try:
        coming = iter(chunks)
        begun: deque[tuple[Chunk, int]] = deque()
        for slot, chunk in zip(range(_SLOTS), coming, strict=False):
            pool.begin(slot, chunk)
            begun.append((chunk, slot))
        while begun:
            chunk, slot = begun.popleft()
            kept = pool.wait(slot)
            # Not waited for: scoring follows on the same stream, and its result is waited for.
            frames = pool.slots[slot].frames[: chunk.frames].to(device, non_blocking=True)
            starts = itertools.accumulate(chunk.lengths, initial=0)
            yield chunk, [frames[start : start + kept[id]] for id, start in zip(chunk.ids, starts, strict=False)]
            for following in itertools.islice(coming, 1):
                pool.begin(slot, following)
                begun.append((following, slot))
    finally:
        pool.close()


class _Slot:
    """Memory for one chunk [F, R, D] that the readers fill."""

    def __init__(self, shape: tuple[int, int, int], *, pinned: bool) -> None:
        self.memory = SharedMemory(int(np.prod(shape)) * _FLOAT32)
        if pinned:
            self.memory.pin()
        self.frames = torch.from_numpy(self.memory.data.view(np.float32)).view(shape)


class _ReaderPool:
    """Processes that fill slots. They end with this process; that one has ended before it is an error."""

    def __init__(self, file: FeatureFile, chunks: Sequence[Chunk], readers: int, *, pinned: bool) -> None:
        regions, dims = file.dims or (0, 0)
        shape = (max(chunk.frames for chunk in chunks), regions, dims)
        self._file = file
        self.slots: list[_Slot] = []
        self._left = [0] * _SLOTS  # tasks of the chunk in a slot
        self._kept: list[dict[str, int]] = [{} for _ in range(_SLOTS)]  # frames of each video that are not flat
        self._errors: list[list[str]] = [[] for _ in range(_SLOTS)]  # raised when it is that chunk's turn
        context = spawn_context()
        self._tasks: Any = context.Queue()
        self._results: Any = context.Queue()
        self._processes: list[Any] = []
        try:
            for _ in range(min(_SLOTS, len(chunks))):
                self.slots.append(_Slot(shape, pinned=pinned))
            paths = [slot.memory.path for slot in self.slots]
            arguments = (os.fspath(file.path), paths, shape, self._tasks, self._results)
            for _ in range(min(readers, sum(-(-len(chunk.ids) // _VIDEOS_A_TASK) for chunk in chunks))):
                process = context.Process(target=_work, args=arguments, daemon=True)
                process.start()
                self._processes.append(process)
        except OSError as error:
            self.close()
            raise StorageError(
                f"Reading '{file.path}' by {readers} processes could not begin: {error}. Ask for fewer (readers), or 0."
            ) from error
        except BaseException:
            self.close()
            raise

    def begin(self, slot: int, chunk: Chunk) -> None:
        """Have a chunk read into a slot.

        A task brings the headers along: to look at all of them would take each process as long as it took this one.
        """
        self._kept[slot] = {}
        starts = itertools.accumulate(chunk.lengths, initial=0)
        videos = [(id, self._file._entries[id], start) for id, start in zip(chunk.ids, starts, strict=False)]
        for at in range(0, len(videos), _VIDEOS_A_TASK):
            self._tasks.put((slot, videos[at : at + _VIDEOS_A_TASK]))
            self._left[slot] += 1

    def wait(self, slot: int) -> dict[str, int]:
        """When a slot is full, the frames of each video in it; `StorageError` if one could not be read."""
        while self._left[slot]:
            try:
                done, kept, error = self._results.get(timeout=0.5)
            except queue.Empty:
                if dead := [process.exitcode for process in self._processes if not process.is_alive()]:
                    raise StorageError(
                        f"A process that read '{self._file.path}' {how_ended(dead[0])}, perhaps for lack of memory. "
                        "Run it again with fewer readers; finished chunks of a work folder are kept."
                    ) from None
                continue
            self._left[done] -= 1
            self._kept[done] |= kept
            self._errors[done] += [] if error is None else [error]
        if self._errors[slot]:
            raise StorageError(self._errors[slot][0])
        return self._kept[slot]

    def close(self) -> None:
        """End the processes and let go of the memory."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.join()
        for channel in (self._tasks, self._results):
            channel.cancel_join_thread()
            channel.close()
        for slot in self.slots:
            slot.memory.close()


def _work(path: str, slots: Sequence[str], shape: tuple[int, int, int], tasks: Any, results: Any) -> None:
    """One reading process. It ends by itself when the one that started it is no more."""
    torch.set_num_threads(1)
    parent = multiprocessing.parent_process()
    file: FeatureFile | None = None
    entries: dict[str, layout.Entry] = {}
    memories: list[NDArray[np.float32]] = []
    while True:
        try:
            slot, videos = tasks.get(timeout=5)
        except queue.Empty:
            if parent is None or parent.is_alive():
                continue
            return
        kept: dict[str, int] = {}
        try:
            if file is None:
                memories = [_open_memory(name, shape) for name in slots]
                file = FeatureFile(Path(path), layout.open_h5(Path(path), path, "r"), entries, torch.float32)
            for id, entry, start in videos:
                entries[id] = entry
                regions = file[id].drop_flat().regions
                kept[id] = len(regions)
                memories[slot][start : start + len(regions)] = regions.numpy()
            entries.clear()
        except (HapvrError, OSError, MemoryError, ValueError) as error:
            results.put((slot, kept, str(error) or type(error).__name__))
        else:
            results.put((slot, kept, None))


def _open_memory(path: str, shape: tuple[int, int, int]) -> NDArray[np.float32]:
    return open_shared(path, int(np.prod(shape)) * _FLOAT32).view(np.float32).reshape(shape)
