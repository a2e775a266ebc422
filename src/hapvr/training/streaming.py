"""Clips that do not fit into memory: processes decode them from shards, ahead of the steps that need them.

What a step needs is a function of the seed and the step, so processes work on later steps while this one computes, and
a run that stops continues with the same clips. For a set that fits, they are those of `ClipSet`, bit for bit. Memory is
bounded: a process that has filled its blocks waits until one is used.

An epoch goes through the shards in a random order, and through a buffer that shuffles the videos of some shards at a
time, so that a disk reads shards rather than single videos. With a buffer for all videos the order is that of
`ClipSet`.

A clip that cannot be read is one of another video instead, drawn by the seed, and the video is noted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hapvr.errors import ConfigError, DataError, StorageError
from hapvr.training.augment.plan import make_generator
from hapvr.training.camera import Camera, draw_camera_boxes, film
from hapvr.training.clips import ClipRequest, ClipSet, ClipWindow, Skipped, make_planar
from hapvr.training.stream_loader import StreamConfig, StreamLoader
from hapvr.video.shard_frames import ShardSet, WindowTask, cut_window, decode_window, open_shards

_TRIES = 100  # other videos, for a clip that cannot be read

Drawn = tuple[tuple[int, ...], list[tuple[Tensor, int]]]


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
        self._loader: StreamLoader | None = None
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
            self._loader = StreamLoader(self, make_request, step)
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
        return film([images[0]], [boxes[window.start : window.start + window.length]], camera.size)[0]

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
