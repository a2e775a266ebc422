"""Features from packed frames, on machines without a video decoder: a GPU fed with JPEG pictures."""

from __future__ import annotations

import importlib
import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from hapvr.errors import ConfigError, HapvrError
from hapvr.features.batching import describe_blocks
from hapvr.features.extractor import RegionExtractor
from hapvr.features.features import Features
from hapvr.features.packed_frames import PackedFrames
from hapvr.features.video_extraction import ExtractionReport, Progress, ReportBuilder
from hapvr.video.jpeg import BROKEN_PICTURE, JpegRun, JpegTask, decode_centre, require_checksum, unpack_jpegs
from hapvr.video.resizing import crop_centre
from hapvr.workers.pool import Block, TaskResult, WorkerPool
from hapvr.workers.threads import torch_thread_pool

_RUN = 32  # pictures that a process unpacks at a time
_BLOCKS = 8  # of each process: a GPU holds those of two batches
_LINGER_S = 0.02  # how long a GPU may wait for a full batch


def extract_packed(
    extractor: RegionExtractor,
    packed: PackedFrames,
    store: Callable[[str, Features], None],
    *,
    done: Iterable[str] = (),
    workers: int | None = None,
    decoder: Literal["pillow", "gpu"] = "pillow",
    dtype: torch.dtype = torch.float16,
    progress: Progress | None = None,
) -> ExtractionReport:
    """Features of packed videos, handed to `store(id, features)` one by one as they are finished, in any order.

    Worker processes unpack the pictures into shared memory (pinned, where there is a GPU); batches run across videos.
    The centre of each picture is taken, so frames should have been packed with the short side of the model's sampling.
    A damaged picture costs its video, which is reported, and no other.

    Args:
        extractor: the backbone and its settings.
        packed: the frames.
        store: called once for each video that was done. Storing gzip takes longer than all the rest: for a
            `FeatureWriter` that keeps up with a GPU, `compression=None`.
        done: ids to leave out.
        workers: processes that unpack; by default one per core, less one that feeds a GPU.
        decoder: "pillow" unpacks in the processes; "gpu" unpacks on the GPU, through torchvision if it is installed,
            which rounds a little differently.
        dtype: of the features.
        progress: called with the number of videos just finished.
    """
    if workers is not None and workers < 1:
        raise ConfigError(f"workers must be at least 1, got {workers}.")
    if decoder not in ("pillow", "gpu"):
        raise ConfigError(f"decoder must be 'pillow' or 'gpu', got {decoder!r}.")
    run = _Run(packed, done, store, dtype, progress)
    side, gpu = extractor.sampling.crop, extractor.device.type == "cuda"
    if decoder == "gpu":
        _extract_by_gpu(extractor, run, dtype)
        return run.builder.finish()
    threads = 2 if gpu else extractor.threads()  # on a GPU, one prepares a batch while another's is computed
    threads_pool = ThreadPoolExecutor(threads) if gpu else torch_thread_pool(threads)
    with (
        WorkerPool(
            unpack_jpegs,
            run.tasks(side, _RUN),
            workers=workers or max(1, (os.cpu_count() or 1) - gpu),  # a GPU wants a core to be fed
            block_bytes=_RUN * side * side * 3,
            blocks=_BLOCKS,
            pin=gpu,
        ) as pool,
        threads_pool as executor,
    ):
        for item in describe_blocks(
            pool,
            _Describer(extractor, run, dtype),
            executor,
            threads=threads,
            batch=extractor.batch,
            count=lambda block: run.count(block.key),
            linger_s=_LINGER_S if gpu else 0.0,
        ):
            if isinstance(item, TaskResult):
                run.end(item.key, item.error)
            else:
                block, result = item
                run.take(block.key, result, block.note)
    return run.builder.finish()


@dataclass
class _OpenVideo:
    """A video of which some frames are described."""

    length: int
    regions: Tensor | None = None
    taken: int = 0
    wrong: str | None = None


@dataclass
class _Span:
    """Consecutive frames of a video within a task."""

    id: str
    first: int
    count: int


class _Run:
    """Tasks across videos, and videos put together from the results."""

    def __init__(
        self,
        packed: PackedFrames,
        done: Iterable[str],
        store: Callable[[str, Features], None],
        dtype: torch.dtype,
        progress: Progress | None,
    ) -> None:
        self.packed, self.store, self.dtype = packed, store, dtype
        self.builder = ReportBuilder(packed.ids, done, progress)
        self._spans: dict[Any, list[_Span]] = {}  # of tasks that are not over
        self._open: dict[str, _OpenVideo] = {}
        self._taken: set[Any] = set()  # tasks whose pictures have come, though not their end

    def tasks(self, side: int, max_pictures: int) -> Iterator[tuple[int, JpegTask]]:
        """Tasks of `max_pictures` pictures each, across videos, made as they are asked for."""
        skipped, lengths = set(self.builder.report.skipped), self.packed.lengths
        numbers = itertools.count()
        runs, spans, room = list[JpegRun](), list[_Span](), max_pictures
        for id in self.packed.ids:
            if id in skipped:
                continue
            self._open[id] = _OpenVideo(lengths[id])
            first = 0
            while first < lengths[id]:
                count = min(room, lengths[id] - first)
                runs += self.packed.runs(id, first, first + count)
                spans.append(_Span(id, first, count))
                first, room = first + count, room - count
                if room == 0:
                    yield self._begin(next(numbers), runs, spans, side)
                    runs, spans, room = [], [], max_pictures
        if runs:
            yield self._begin(next(numbers), runs, spans, side)

    def _begin(self, number: int, runs: list[JpegRun], spans: list[_Span], side: int) -> tuple[int, JpegTask]:
        self._spans[number] = spans
        return number, JpegTask(tuple(runs), side)

    def count(self, key: Any) -> int:
        """Of pictures in a task."""
        return sum(span.count for span in self._spans[key])

    def take(self, key: Any, result: Tensor | HapvrError, damaged: dict[int, str]) -> None:
        """The regions of a task's pictures, or why there are none; `damaged` are places in it."""
        self._taken.add(key)
        at = 0
        for span in self._spans[key]:
            video = self._open[span.id]
            bad = next((place for place in range(at, at + span.count) if place in damaged), None)
            if bad is not None:
                frame = span.first + bad - at
                video.wrong = video.wrong or f"'{self.packed.folder}': frame {frame} of '{span.id}': {damaged[bad]}"
            elif isinstance(result, HapvrError):
                video.wrong = video.wrong or str(result)
            elif video.wrong is None:
                if video.regions is None:
                    video.regions = torch.empty((video.length, *result.shape[1:]), dtype=self.dtype)
                # By numpy: torch would spread so small a copy over all cores, which are busy unpacking, and wait.
                video.regions.numpy()[span.first : span.first + span.count] = result.numpy()[at : at + span.count]
            video.taken += span.count
            at += span.count

    def end(self, key: Any, error: str | None) -> None:
        """A task is over: videos that are complete are stored; what the task has not delivered is lost."""
        spans = self._spans.pop(key)
        if key not in self._taken:
            for span in spans:
                video = self._open[span.id]
                video.wrong, video.taken = video.wrong or error, video.taken + span.count
        self._taken.discard(key)
        for id in dict.fromkeys(span.id for span in spans):
            # Another task that ended before this one may have found it complete.
            if id in self._open and self._open[id].taken == self._open[id].length:
                self._finish(id, self._open.pop(id))

    def _finish(self, id: str, video: _OpenVideo) -> None:
        if video.wrong is None and video.regions is not None:
            try:
                self.store(id, Features(video.regions, self.packed.timestamps(id), self.packed.low_information(id)))
            except HapvrError as refusal:
                video.wrong = str(refusal)
        self.builder.add(id, str(self.packed.folder), video.wrong, frames=video.length)


class _Describer:
    """Regions of blocks of pictures, one tensor a block, on the host; each thread has a CUDA stream of its own."""

    def __init__(self, extractor: RegionExtractor, run: _Run, dtype: torch.dtype) -> None:
        self._extractor, self._run, self._dtype = extractor, run, dtype
        self._local = threading.local()

    def __call__(self, blocks: list[Block]) -> list[Tensor]:
        side = self._extractor.sampling.crop
        counts = [self._run.count(block.key) for block in blocks]
        shapes = [(count, side, side, 3) for count in counts]
        pictures = [
            torch.from_numpy(block.data[: int(np.prod(shape))].reshape(shape))
            for block, shape in zip(blocks, shapes, strict=True)
        ]
        with self.stream():
            return list(torch.split(self.regions(pictures, sum(counts)), counts))

    def stream(self) -> Any:
        """The context of this thread's stream."""
        if self._extractor.device.type != "cuda":
            return nullcontext()
        if not hasattr(self._local, "stream"):
            stream: Any = torch.cuda.Stream(self._extractor.device)  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream(self._extractor.device))  # the weights may be on their way
            self._local.stream = stream
        return torch.cuda.stream(self._local.stream)

    def regions(self, pictures: list[Tensor], total: int) -> Tensor:
        """The regions of so many pictures [N, S, S, 3], given in parts, as one tensor on the host."""
        extractor = self._extractor
        # What is compiled is compiled for one size of batch.
        length = max(total, extractor.batch) if extractor.compiled else total
        batch = torch.empty((length, *pictures[0].shape[1:]), dtype=torch.uint8, device=extractor.device)
        batch[total:] = 0
        at = 0
        for part in pictures:
            batch[at : at + len(part)].copy_(part, non_blocking=True)
            at += len(part)
        return _copy_to_host(extractor.regions(batch)[:total].to(self._dtype))


def _copy_to_host(values: Tensor) -> Tensor:
    """A copy on the host. The thread sleeps until it is there: waiting as CUDA does it takes a core."""
    if values.device.type != "cuda":
        return values.cpu()
    host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    host.copy_(values, non_blocking=True)
    done: Any = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
    done.record()
    done.synchronize()
    return host


# --- unpacking on the GPU --------------------------------------------------------------------------------------------


def _extract_by_gpu(extractor: RegionExtractor, run: _Run, dtype: torch.dtype) -> None:
    """The same with pictures that the GPU unpacks; threads read the files."""
    try:
        unpack: Any = importlib.import_module("torchvision.io")
    except ImportError as error:
        raise ConfigError("decoder='gpu' needs torchvision; without it, use decoder='pillow'.") from error
    if extractor.device.type != "cuda":
        raise ConfigError(f"decoder='gpu' unpacks on a GPU, and the extractor is on '{extractor.device}'.")
    side, describer = extractor.sampling.crop, _Describer(extractor, run, dtype)

    def work(task: JpegTask) -> tuple[Tensor, dict[int, str]]:
        files, sizes, damaged = _read_files(task)
        whole = [place for place in range(len(sizes)) if place not in damaged]
        with describer.stream():
            pictures = torch.zeros((len(sizes), side, side, 3), dtype=torch.uint8, device=extractor.device)
            try:
                decoded = unpack.decode_jpeg(files, mode=unpack.ImageReadMode.RGB, device=extractor.device)
                for place, picture in zip(whole, decoded, strict=True):
                    pictures[place] = _crop_decoded(picture, sizes[place], side)
            except (RuntimeError, HapvrError):  # one of them is damaged, or smaller than the square
                for place, file in zip(whole, files, strict=True):
                    try:
                        pictures[place] = torch.from_numpy(decode_centre(file.numpy().data, sizes[place], side).copy())
                    except (*BROKEN_PICTURE, HapvrError) as error:
                        damaged[place] = str(error) or type(error).__name__
            return describer.regions([pictures], len(pictures)), damaged

    waiting: deque[tuple[int, Future[tuple[Tensor, dict[int, str]]]]] = deque()
    with ThreadPoolExecutor(4) as pool:
        tasks = run.tasks(side, extractor.batch)
        try:
            while True:
                waiting.extend(
                    (key, pool.submit(work, task)) for key, task in itertools.islice(tasks, 6 - len(waiting))
                )
                if not waiting:
                    return
                key, future = waiting.popleft()
                try:
                    run.take(key, *future.result())
                    run.end(key, None)
                except HapvrError as error:
                    run.end(key, str(error))
        finally:
            pool.shutdown(cancel_futures=True)


def _read_files(task: JpegTask) -> tuple[list[Tensor], list[tuple[int, int]], dict[int, str]]:
    """The bytes of the pictures that are whole, the sizes of all, and what is wrong with the others, by place."""
    files: list[Tensor] = []
    sizes: list[tuple[int, int]] = []
    damaged: dict[int, str] = {}
    for run in task.runs:
        first = len(sizes)
        sizes += [run.size] * len(run.offsets)
        try:
            pictures = run.read()
        except HapvrError as error:
            damaged |= dict.fromkeys(range(first, len(sizes)), str(error))
            continue
        for place, (picture, checksum) in enumerate(zip(pictures, run.crc32, strict=True), first):
            try:
                require_checksum(picture, checksum)
                files.append(torch.frombuffer(picture, dtype=torch.uint8))
            except HapvrError as error:
                damaged[place] = str(error)
    return files, sizes, damaged


def _crop_decoded(picture: Tensor, size: tuple[int, int], side: int) -> Tensor:
    """The centre of [3, H, W]: [side, side, 3]."""
    height, width = picture.shape[1:]
    if (width, height) != size or min(size) < side:
        raise ConfigError(f"a picture of {width}x{height}, not of {size}.")
    return crop_centre(picture.permute(1, 2, 0), side)
