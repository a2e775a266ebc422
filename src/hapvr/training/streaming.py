"""Material that does not fit into memory: clips are decoded from shards as steps ask for them, by processes, ahead.

What a step needs is a function of the seed and the step, so processes work on later steps while this one computes, and
a run that stops continues with the same clips. For a set that fits, they are those of `ClipSet`, bit for bit. Memory is
bounded: a process that has filled its blocks waits until one is used.

An epoch goes through the shards in a random order, and through a buffer that shuffles the videos of some shards at a
time, so that a disk reads shards rather than single videos. With a buffer for all videos the order is that of
`ClipSet`.

A clip that cannot be read is one of another video instead, drawn by the seed, and the video is noted.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hapvr.errors import ConfigError, DataError, StorageError
from hapvr.training.augment.plan import make_generator
from hapvr.training.clips import Camera, ClipRequest, ClipSet, ClipWindow, Skipped, draw_camera_boxes, film, make_planar
from hapvr.video.shard_frames import ShardSet, WindowTask, cut_window, decode_window, open_shards, read_window
from hapvr.workers.pool import Block, Task, TaskResult, WorkerPool

_BLOCKS = 2  # of a process, at least: one to fill while the other is used
_MAX_STEPS = 3  # that are decoded ahead: more would only take memory
_CHECK_S = 0.2  # how often the thread looks whether it is still needed
_TRIES = 100  # other videos, for a clip that cannot be read

Drawn = tuple[tuple[int, ...], list[tuple[Tensor, int]]]


@dataclass(frozen=True)
class StreamConfig:
    """How clips are streamed.

    Attributes:
        memory_bytes: of clips that wait, and of those of the step at hand while they are in memory, not on a GPU.
        workers: processes that decode; 0: one for each core but one.
        buffer: videos that are shuffled at a time; 0: all.
        background: a thread brings the clips of the next step to the device while this step computes. It takes the
            memory of two more steps there. None: on a GPU.
    """

    memory_bytes: int = 4 * 2**30
    workers: int = 0
    buffer: int = 0
    background: bool | None = None


class StreamedClips(ClipSet):
    """Videos and photographs in shards, of which only what is asked for is decoded. Use `close` at the end.

    `fetch` is what a run uses: it works ahead. `draw` and `window` decode on the spot, and give black frames for what
    cannot be read. `skipped` names what could not be read so far.

    Args:
        shards: what `open_shards` found.
        size: side of the squares that frames come as; None: as they are stored.
        stills: videos of one frame are photographs, filmed by this camera; None: they are videos.
        device: where clips are brought to.
        config: memory, processes and shuffling.
        on_skip: called when something more could not be read.
    """

    def __init__(
        self,
        shards: ShardSet,
        *,
        size: int | None = 256,
        stills: Camera | None = None,
        device: torch.device | str = "cpu",
        config: StreamConfig = StreamConfig(),  # noqa: B008 - frozen
        on_skip: Callable[[Skipped], None] | None = None,
    ) -> None:
        self.videos, self.size, self.config, self.on_skip = shards.videos, size, config, on_skip
        self.ids = tuple(video.id for video in self.videos)
        self.cameras = tuple(stills if len(video) == 1 else None for video in self.videos)
        counts = [
            len(video) if camera is None else camera.frames
            for video, camera in zip(self.videos, self.cameras, strict=True)
        ]
        self.lengths = torch.tensor(counts, dtype=torch.int64)
        self.times = [
            video.timestamps if camera is None else np.arange(camera.frames, dtype=np.float64)
            for video, camera in zip(self.videos, self.cameras, strict=True)
        ]
        self.skipped = list(shards.skipped)
        self.replaced = 0  # clips of other videos that a step was given
        self._known = {name for name, _ in self.skipped}
        self._device = torch.device(device)
        if self._device.type == "cuda" and self._device.index is None:  # which one that is differs between threads
            self._device = torch.device("cuda", torch.cuda.current_device())
        self._order: tuple[int, Tensor] | None = None
        self._loader: _Loader | None = None
        self._threads = ThreadPoolExecutor(os.cpu_count() or 1)
        self._uploader = _Uploader(self._device)

    @classmethod
    def from_folder(cls, folder: str | os.PathLike[str], **options: Any) -> StreamedClips:
        """The clips of a folder of packed frames, or of tar shards as webdataset has them."""
        return cls(open_shards(folder), **options)

    def __len__(self) -> int:
        return len(self.videos)

    def __add__(self, other: ClipSet) -> ClipSet:
        raise ConfigError("streamed clips cannot be joined with others: put all into shards of one folder.")

    @property
    def device(self) -> torch.device:
        """Where clips are brought to."""
        return self._device

    @property
    def background(self) -> bool:
        """Whether a thread brings the clips of the next step."""
        return self._device.type == "cuda" if self.config.background is None else self.config.background

    def load(self) -> ClipSet:
        """All of it in memory; what cannot be read is left out and named in `skipped`."""
        frames, kept, skipped = [], [], list(self.skipped)
        for number, video in enumerate(self.videos):
            try:
                frames.append(self.decode(cut_window(video, 0, len(video), self.size)))
                kept.append(number)
            except StorageError as error:
                skipped.append((video.id, str(error)))
        if not frames:
            raise DataError(f"no video could be read: {len(skipped)} failed.")
        return ClipSet(
            frames,
            [self.ids[number] for number in kept],
            times=[self.times[number] for number in kept],
            cameras=[self.cameras[number] for number in kept],
            skipped=skipped,
        )

    def close(self) -> None:
        """End the processes and give their memory back."""
        if self._loader is not None:
            self._loader.close()
            self._loader = None
        self._threads.shutdown()

    # --- order -------------------------------------------------------------------------------------------------------

    def shuffle(self, seed: int) -> Tensor:
        """The numbers of all videos: shards in a random order, their videos through a buffer of bounded size."""
        buffer = self.config.buffer
        if not 0 < buffer < len(self):
            return super().shuffle(seed)
        if self._order is None or self._order[0] != seed:  # an epoch asks for one many times
            shards = [video.shard for video in self.videos]
            self._order = seed, torch.from_numpy(shuffle_shards(shards, buffer, seed))
        return self._order[1]

    # --- on the spot -------------------------------------------------------------------------------------------------

    def window(self, video: int, start: int, length: int, *, move: int = 0) -> Tensor:
        """See `ClipSet.window`; black if it cannot be read."""
        count = int(self.lengths[video])
        if length < 1 or not 0 <= start < count:
            raise DataError(f"'{self.ids[video]}' has frames 0 to {count - 1}; cannot take {length} from {start} on.")
        window = ClipWindow(video, start, min(length, count - start), move)
        task = self.make_task(window)
        try:
            images = self.decode(task)
        except StorageError as error:
            self.note(video, str(error))
            images = torch.zeros(task.shape, dtype=torch.uint8, device=self._device)
        return self.finish(window, images)

    def draw_parts(self, videos: Sequence[int], *, length: int, seed: Any, parts: int = 1) -> list[tuple[Tensor, int]]:
        """See `ClipSet.draw_parts`; several at a time."""
        windows = self.plan_windows(ClipRequest(tuple(videos), length, seed, parts))
        found = self._threads.map(lambda one: self.window(one.video, one.start, one.length, move=one.move), windows)
        return list(zip(found, [window.start for window in windows], strict=True))

    # --- ahead -------------------------------------------------------------------------------------------------------

    def fetch(self, step: int, make_request: Callable[[int], ClipRequest]) -> Drawn:
        """See `ClipSet.fetch`: what processes have decoded by now, or as soon as they have.

        `make_request` must be the same function of the step in every call.
        """
        if self._loader is None or not self._loader.expects(step):
            if self._loader is not None:
                self._loader.close()
            self._loader = _Loader(self, make_request, step)
        request, windows, images = self._loader.take(step)
        videos, made = list(request.videos), []
        for slot, video in enumerate(request.videos):
            own = slice(slot * request.parts, (slot + 1) * request.parts)
            chosen, pictures = windows[own], images[own]
            failed = [one for one in pictures if isinstance(one, str)]
            if failed:
                self.note(video, failed[0])
                chosen, pictures = self._replace(request, slot)
                videos[slot] = chosen[0].video
                self.replaced += 1
            made += [
                (self.finish(window, picture), window.start)
                for window, picture in zip(chosen, pictures, strict=True)
                if isinstance(picture, Tensor)
            ]
        return tuple(videos), made

    def _replace(self, request: ClipRequest, slot: int) -> tuple[list[ClipWindow], list[Tensor | str]]:
        """Windows of a video that is not of the batch and can be read; the same for the same request."""
        seeds = request.seed if isinstance(request.seed, (tuple, list)) else (request.seed,)
        rng = make_generator((*seeds, slot))
        for _ in range(_TRIES):
            video = int(rng.integers(len(self)))
            places, moves = rng.random(request.parts), rng.integers(2**31, size=request.parts)
            if video in request.videos and len(self) > len(set(request.videos)):
                continue
            windows = [
                self._place_window(video, part, request.parts, request.length, float(places[part]), int(moves[part]))
                for part in range(request.parts)
            ]
            try:
                return windows, [self.decode(self.make_task(window)) for window in windows]
            except StorageError as error:
                self.note(video, str(error))
        raise DataError(
            f"{_TRIES} videos in a row could not be read, such as '{self.skipped[-1][0]}': {self.skipped[-1][1]} Is "
            "the folder of the shards still there?"
        )

    # --- parts of the work -------------------------------------------------------------------------------------------

    def make_task(self, window: ClipWindow) -> WindowTask:
        """What is to be decoded for a window: all of a photograph, which is filmed afterwards."""
        if self.cameras[window.video] is not None:
            return cut_window(self.videos[window.video], 0, 1, self.size)
        return cut_window(self.videos[window.video], window.start, window.length, self.size)

    def finish(self, window: ClipWindow, images: Tensor) -> Tensor:
        """The frames of a window from what was decoded for it."""
        camera = self.cameras[window.video]
        if camera is None:
            return images
        size = (images.shape[1], images.shape[2])
        boxes = draw_camera_boxes(camera, size, (window.move, window.video % 2**32))
        return film(images[0], boxes[window.start : window.start + window.length], camera.size)

    def upload(self, images: NDArray[np.uint8]) -> Tensor:
        """Frames on the device; the array may be written over afterwards."""
        return self._uploader(images)

    def note(self, video: int, reason: str) -> None:
        """Name a video among the skipped, once."""
        if self.ids[video] not in self._known:
            self._known.add(self.ids[video])
            self.skipped.append((self.ids[video], reason))
            if self.on_skip is not None:
                self.on_skip(self.skipped[-1])

    def decode(self, task: WindowTask) -> Tensor:
        """The frames of a task on the device, decoded in this process; `StorageError` if one is damaged."""
        images = np.empty(task.shape, np.uint8)
        decode_window(task, images)
        return self.upload(images)


def shuffle_shards(shards: Sequence[int], buffer: int, seed: int) -> NDArray[np.int64]:
    """The numbers of videos, given the shard of each: shards in a random order, through a shuffle buffer.

    The buffer is filled from the front; each time a random entry leaves it, the next video takes its place. So a video
    comes at most `buffer` places too early, and what is in the buffer lies in few shards.

    >>> sorted(shuffle_shards([0, 0, 1, 1, 1, 2], 2, 7).tolist())
    [0, 1, 2, 3, 4, 5]
    """
    rng = np.random.default_rng(seed)
    numbers = np.asarray(shards)
    rank_of = rng.permutation(int(numbers.max()) + 1) if len(numbers) else numbers
    waiting = np.argsort(rank_of[numbers], kind="stable").astype(np.int64)
    order, held = np.empty_like(waiting), waiting[:buffer].copy()
    picks = rng.random(len(waiting))
    filled = len(held)
    for place in range(len(waiting)):
        pick = int(picks[place] * filled)
        order[place] = held[pick]
        following = place + buffer
        if following < len(waiting):
            held[pick] = waiting[following]
        else:
            filled -= 1
            held[pick] = held[filled]
    return order


class _Uploader:
    """Brings frames to a device. To a GPU they are copied beside its work, not after it."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def __call__(self, images: NDArray[np.uint8]) -> Tensor:
        frames = torch.from_numpy(images)
        if self._stream is None:
            planar = torch.empty(frames.permute(0, 3, 1, 2).shape, dtype=torch.uint8)
            return planar.copy_(frames.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        with torch.cuda.stream(self._stream):
            planar = make_planar(frames.to(self._device, non_blocking=True))
        self._stream.synchronize()
        planar.record_stream(torch.cuda.current_stream(self._device))  # which works on it from now on
        return planar


class _Tasks:
    """Tasks in the order in which they were added; more may follow after it has run out."""

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


_Taken = tuple[ClipRequest, list[ClipWindow], list[Tensor | str]]


class _StoppedError(Exception):
    """Nobody wants the clips any more."""


class _Loader:
    """Processes that decode the windows of one step after the other, from a first step on."""

    def __init__(self, clips: StreamedClips, make_request: Callable[[int], ClipRequest], first: int) -> None:
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
        self._ready: queue.Queue[_Taken | BaseException] = queue.Queue(maxsize=1)
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

    def take(self, number: int) -> _Taken:
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
        except BaseException as error:  # whoever waits must hear of it
            self._hold(error)

    def _hold(self, taken: _Taken | BaseException) -> bool:
        while not self._stopped.is_set():
            with contextlib.suppress(queue.Full):
                self._ready.put(taken, timeout=_CHECK_S)
                return True
        return False

    def _collect(self, number: int) -> _Taken:
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
        """Without processes: the step at hand here, later ones by new processes."""
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


def _find_block_bytes(clips: StreamedClips, length: int) -> int:
    """Bytes of the largest window."""
    if clips.size is not None:
        return max(min(length, len(video)) for video in clips.videos) * clips.size * clips.size * 3
    return max(min(length, len(video)) * video.size[0] * video.size[1] * 3 for video in clips.videos)


def _share_memory(clips: StreamedClips, windows: int, block_bytes: int) -> tuple[int, int]:
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
