"""Processes that decode the clips of later steps while the current one computes, for `StreamedClips`."""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hapvr.errors import ConfigError, StorageError
from hapvr.training.clips import ClipRequest, ClipWindow
from hapvr.video.shard_frames import ShardVideo, WindowTask, read_window
from hapvr.workers.pool import Block, Task, TaskResult, WorkerPool

_BLOCKS = 2  # of a process, at least: one to fill while the other is used
_MAX_STEPS = 3  # that are decoded ahead: more would only take memory
_CHECK_S = 0.2  # how often the thread looks whether it is still needed


@dataclass(frozen=True)
class StreamConfig:
    """How clips are streamed.

    Attributes:
        memory_bytes: of clips that wait, and of those of the current step while they are in memory, not on a GPU.
        workers: processes that decode; 0: one for each core but one.
        buffer: videos that are shuffled at a time; 0: all.
        background: a thread brings the clips of the next step to the device while this step computes. It takes the
            memory of two more steps there. None: on a GPU.
    """

    memory_bytes: int = 4 * 2**30
    workers: int = 0
    buffer: int = 0
    background: bool | None = None


class LoadedClips(Protocol):
    """What the loader asks of the clips that it loads; `StreamedClips` gives it."""

    config: StreamConfig
    videos: tuple[ShardVideo, ...]
    size: int | None  # pixels a side of squares; None: whole frames

    @property
    def device(self) -> torch.device:
        """Where frames are wanted."""

    @property
    def background(self) -> bool:
        """Whether a thread brings the clips of the next step."""

    def plan_windows(self, request: ClipRequest) -> list[ClipWindow]:
        """Where the windows of a request lie."""

    def make_task(self, window: ClipWindow) -> WindowTask:
        """What is to be decoded for a window."""

    def upload(self, images: NDArray[np.uint8]) -> Tensor:
        """Frames on the device."""

    def decode(self, task: WindowTask) -> Tensor:
        """The frames of a task on the device, decoded in this process."""


class _Tasks:
    """A queue of tasks that may run empty and be filled again."""

    def __init__(self) -> None:
        self._waiting: deque[Task] = deque()

    def add(self, task: Task) -> None:
        self._waiting.append(task)

    def __iter__(self) -> Iterator[Task]:
        return self

    def __next__(self) -> Task:
        if not self._waiting:
            raise StopIteration
        return self._waiting.popleft()


@dataclass(eq=False)
class _Step:
    """What a step asked for, and what of it is there: a tensor, a block that waits, or why there is none."""

    request: ClipRequest
    windows: list[ClipWindow]
    found: list[Tensor | Block | str | None]


Taken = tuple[ClipRequest, list[ClipWindow], list[Tensor | str]]
"""The request of a step, its windows, and for each its frames, or why there are none."""


class _StoppedError(Exception):
    """The loader was closed."""


class StreamLoader:
    """Processes that decode the windows of one step after the other, from a first step on."""

    def __init__(self, clips: LoadedClips, make_request: Callable[[int], ClipRequest], first: int) -> None:
        self._clips, self._make_request = clips, make_request
        self._next = self._planned = first  # the step to be taken, and the first that is not planned
        self._steps: dict[int, _Step] = {}
        self._tasks = _Tasks()
        self._ahead = 1
        self._plan(first)
        step = self._steps[first]
        self._block_bytes = _find_block_bytes(clips, step.request.length)
        workers, blocks = _share_memory(clips, len(step.windows), self._block_bytes)
        self._ahead = min(_MAX_STEPS, 1 + workers * blocks // len(step.windows))
        self._pool_size = workers, blocks
        self._pool: WorkerPool | None = None
        self._stopped = threading.Event()
        self._ready: queue.Queue[Taken | BaseException] = queue.Queue(maxsize=1)
        self._thread: threading.Thread | None = None
        if clips.background:
            self._thread = threading.Thread(target=self._work_ahead, args=(first,), daemon=True)
            self._thread.start()

    def expects(self, step: int) -> bool:
        """Whether this is the step that comes next."""
        return step == self._next

    def close(self) -> None:
        """End the thread and the processes."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
        self._end_pool()

    def take(self, number: int) -> Taken:
        """The request of a step, its windows, and for each its frames, or why there are none."""
        self._next = number + 1
        if self._thread is None:
            return self._collect(number)
        taken = self._ready.get()
        if isinstance(taken, BaseException):
            raise taken
        return taken

    def _work_ahead(self, first: int) -> None:
        """What the thread does: one step after the other, each held until it is taken."""
        device = self._clips.device
        try:
            if device.type == "cuda":
                torch.cuda.set_device(device)  # of this thread
            for number in itertools.count(first):
                if not self._hold(self._collect(number)):
                    return
        except _StoppedError:
            return
        except BaseException as error:  # raised again where the step is taken
            self._hold(error)

    def _hold(self, taken: Taken | BaseException) -> bool:
        while not self._stopped.is_set():
            with contextlib.suppress(queue.Full):
                self._ready.put(taken, timeout=_CHECK_S)
                return True
        return False

    def _collect(self, number: int) -> Taken:
        while self._planned <= number + self._ahead:
            self._plan(self._planned)
        if self._pool is None:
            workers, blocks = self._pool_size
            pin = self._clips.device.type == "cuda"
            self._pool = WorkerPool(
                read_window, self._tasks, workers=workers, block_bytes=self._block_bytes, blocks=blocks, pin=pin
            )
        step = self._steps.pop(number)
        for place, found in enumerate(step.found):
            if isinstance(found, Block):
                step.found[place] = self._use(found)
        while any(found is None for found in step.found):
            if self._stopped.is_set():
                raise _StoppedError
            for event in self._pool.wait(_CHECK_S):
                self._receive(event, number, step)
            if not self._pool.busy and any(found is None for found in step.found):  # no process is left
                self._end_pool()
                self._decode_missing(step)
                break
        return step.request, step.windows, [found for found in step.found if isinstance(found, (Tensor, str))]

    def _end_pool(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def _plan(self, number: int) -> None:
        request = self._make_request(number)
        windows = self._clips.plan_windows(request)
        self._steps[number] = _Step(request, windows, [None] * len(windows))
        for place, window in enumerate(windows):
            self._tasks.add(((number, place), self._clips.make_task(window)))
        self._planned = number + 1

    def _receive(self, event: Block | TaskResult, number: int, current: _Step) -> None:
        assert isinstance(event.key, tuple)
        owner, place = event.key
        step = current if owner == number else self._steps.get(owner)
        if step is None:
            if isinstance(event, Block) and self._pool is not None:
                self._pool.release(event)
        elif isinstance(event, Block):
            # Tasks are begun in their order, so a process whose blocks all wait for later steps has none of this one.
            step.found[place] = self._use(event) if step is current else event
        elif event.error is not None:
            step.found[place] = self._decode_here(step.windows[place])

    def _use(self, block: Block) -> Tensor:
        assert self._pool is not None
        images = self._clips.upload(block.data[: int(np.prod(block.note))].reshape(block.note))
        self._pool.release(block)
        return images

    def _decode_here(self, window: ClipWindow) -> Tensor | str:
        """In this process, which tells a damaged video from a process that was killed."""
        try:
            return self._clips.decode(self._clips.make_task(window))
        except StorageError as error:
            return str(error)

    def _decode_missing(self, step: _Step) -> None:
        """Without processes: the current step in this process, later ones by new processes."""
        for other in (step, *self._steps.values()):
            other.found = [None if isinstance(found, Block) else found for found in other.found]
        self._tasks = _Tasks()
        for number, later in sorted(self._steps.items()):
            for place, found in enumerate(later.found):
                if found is None:
                    self._tasks.add(((number, place), self._clips.make_task(later.windows[place])))
        for place, found in enumerate(step.found):
            if found is None:
                step.found[place] = self._decode_here(step.windows[place])


def _find_block_bytes(clips: LoadedClips, length: int) -> int:
    """Bytes of the largest window."""
    if clips.size is not None:
        return max(min(length, len(video)) for video in clips.videos) * clips.size * clips.size * 3
    return max(min(length, len(video)) * video.size[0] * video.size[1] * 3 for video in clips.videos)


def _share_memory(clips: LoadedClips, windows: int, block_bytes: int) -> tuple[int, int]:
    """How many processes, and how many blocks of each, fit into the memory that clips may take."""
    workers = clips.config.workers or max(1, (os.cpu_count() or 1) - 1)
    workers = min(workers, windows)
    # The step that computes; with a thread, also the one that is ready and the one that is being brought.
    at_hand = 0 if clips.device.type == "cuda" else (3 if clips.background else 1) * windows * block_bytes
    room = (clips.config.memory_bytes - at_hand) // block_bytes
    if room < _BLOCKS:
        need = at_hand + _BLOCKS * block_bytes
        raise ConfigError(
            f"streamed clips may take {clips.config.memory_bytes / 2**30:.2f} GiB (data.stream), but a step of "
            f"{windows} clips of {block_bytes / 2**20:.1f} MiB takes {need / 2**30:.2f} GiB at least. Give more, a "
            "smaller data.batch, or a smaller data.size."
        )
    workers = max(1, min(workers, room // _BLOCKS))
    most = -(-_MAX_STEPS * windows // workers)
    return workers, max(_BLOCKS, min(room // workers, most))
