"""Features from packed frames, on machines without a video decoder: a GPU fed with JPEG pictures."""

from __future__ import annotations

import importlib
import itertools
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from hapvr.errors import ConfigError, HapvrError
from hapvr.features._pipeline import described
from hapvr.features._threads import single_threads
from hapvr.features.files import Features
from hapvr.features.folders import ExtractionReport, Failure
from hapvr.features.packed import PackedFrames
from hapvr.video.crew import Block, Bytes, Crew, Ended
from hapvr.video.crew_work import BROKEN_PICTURE, JpegRun, JpegTask, read_jpegs, read_run, require_checksum, square

if TYPE_CHECKING:
    from hapvr.features.extractor import RegionExtractor

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
    progress: Callable[[int], None] | None = None,
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
    run = _Run(packed, set(done), store, dtype, progress or (lambda _: None))
    side, gpu = extractor.sampling.crop, extractor.device.type == "cuda"
    if decoder == "gpu":
        _unpacked_there(extractor, run, dtype)
        return run.finished()
    threads = 2 if gpu else extractor.threads()  # on a GPU, one prepares a batch while another's is computed
    pool = ThreadPoolExecutor(threads) if gpu else single_threads(threads)
    describe = _Describe(extractor, run, dtype)
    with (
        Crew(
            read_jpegs,
            run.tasks(side, _RUN),
            workers=workers or max(1, (os.cpu_count() or 1) - gpu),  # a GPU wants a core to be fed
            block_bytes=_RUN * side * side * 3,
            blocks=_BLOCKS,
            adopt=_pinned if gpu else None,
        ) as crew,
        pool as executor,
    ):
        for item in described(
            crew,
            describe,
            executor,
            threads=threads,
            batch=extractor.batch,
            count=lambda block: run.count(block.key),
            linger_s=_LINGER_S if gpu else 0.0,
        ):
            if isinstance(item, Ended):
                run.ended(item.key, item.error)
            else:
                block, result = item
                run.take(block.key, result, block.note)
    return run.finished()


@dataclass
class _Open:
    """A video of which some frames are described."""

    length: int
    regions: Tensor | None = None
    got: int = 0
    wrong: str | None = None


@dataclass
class _Span:
    """Consecutive frames of a video within a task."""

    id: str
    first: int
    count: int


@dataclass
class _Run:
    packed: PackedFrames
    skip: set[str]
    store: Callable[[str, Features], None]
    dtype: torch.dtype
    progress: Callable[[int], None]
    report: ExtractionReport = field(default_factory=ExtractionReport)
    start: float = field(default_factory=time.perf_counter)
    _spans: dict[Any, list[_Span]] = field(default_factory=dict)
    _open: dict[str, _Open] = field(default_factory=dict)
    _taken: set[Any] = field(default_factory=set)  # tasks whose pictures have come, though not their end

    def __post_init__(self) -> None:
        self.report.skipped = [id for id in self.packed.ids if id in self.skip]
        if self.report.skipped:
            self.progress(len(self.report.skipped))

    def tasks(self, side: int, most: int) -> Iterator[tuple[int, JpegTask]]:
        """Tasks of `most` pictures each, across videos, made as they are asked for."""
        number, runs, spans, room = 0, list[JpegRun](), list[_Span](), most
        lengths = self.packed.lengths
        for id in self.packed.ids:
            if id in self.skip:
                continue
            self._open[id] = _Open(lengths[id])
            first = 0
            for whole in self.packed.runs(id):
                at = 0
                while at < len(whole.offsets):
                    inside = slice(at, at + room)
                    part = replace(
                        whole, offsets=whole.offsets[inside], sizes=whole.sizes[inside], crc32=whole.crc32[inside]
                    )
                    count = len(part.offsets)
                    runs.append(part)
                    spans.append(_Span(id, first, count))
                    at, first, room = at + count, first + count, room - count
                    if room == 0:
                        self._spans[number] = spans
                        yield number, JpegTask(tuple(runs), side)
                        number, runs, spans, room = number + 1, [], [], most
        if runs:
            self._spans[number] = spans
            yield number, JpegTask(tuple(runs), side)

    def count(self, key: Any) -> int:
        return sum(span.count for span in self._spans[key])

    def take(self, key: Any, result: Tensor | HapvrError, damaged: dict[int, str]) -> None:
        """The regions of a task's pictures, or why there are none; `damaged` are places in it."""
        self._taken.add(key)
        at = 0
        for span in self._spans[key]:
            video = self._open[span.id]
            here = range(at, at + span.count)
            bad = next((place for place in here if place in damaged), None)
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
            video.got += span.count
            at += span.count

    def ended(self, key: Any, error: str | None) -> None:
        """A task is over: videos that are complete are stored; what the task still owed is lost."""
        spans = self._spans.pop(key)
        if key not in self._taken:
            for span in spans:
                video = self._open[span.id]
                video.wrong, video.got = video.wrong or error, video.got + span.count
        self._taken.discard(key)
        for id in dict.fromkeys(span.id for span in spans):
            # Another task that ended before this one may have found it complete.
            if id in self._open and self._open[id].got == self._open[id].length:
                self._finish(id, self._open.pop(id))

    def _finish(self, id: str, video: _Open) -> None:
        if video.wrong is None and video.regions is not None:
            try:
                self.store(id, Features(video.regions, self.packed.timestamps(id), self.packed.low_information(id)))
            except HapvrError as refusal:
                video.wrong = str(refusal)
        if video.wrong is None:
            self.report.done.append(id)
            self.report.frames += video.length
        else:
            self.report.failed.append(Failure(id, str(self.packed.folder), video.wrong))
        self.progress(1)

    def finished(self) -> ExtractionReport:
        self.report.wall_s = time.perf_counter() - self.start
        return self.report


class _Describe:
    """Regions of blocks of pictures, one tensor a block, on the host; each thread has a stream of its own."""

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
        extractor = self._extractor
        # What is compiled is compiled for one size of batch.
        length = max(total, extractor.batch) if extractor.compiled else total
        batch = torch.empty((length, *pictures[0].shape[1:]), dtype=torch.uint8, device=extractor.device)
        batch[total:] = 0
        at = 0
        for part in pictures:
            batch[at : at + len(part)].copy_(part, non_blocking=True)
            at += len(part)
        return _on_the_host(extractor.regions(batch)[:total].to(self._dtype))


def _on_the_host(values: Tensor) -> Tensor:
    """A copy on the host. The thread sleeps until it is there: waiting as CUDA does it takes a core."""
    if values.device.type != "cuda":
        return values.cpu()
    host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    host.copy_(values, non_blocking=True)
    done: Any = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
    done.record()
    done.synchronize()
    return host


def _pinned(memory: Bytes) -> Callable[[], None]:
    """Let the GPU read this memory itself; without that, copying to it is slower and waits."""
    runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    address = memory.ctypes.data
    if int(runtime.cudaHostRegister(address, memory.nbytes, 0)) != 0:
        return lambda: None
    return lambda: runtime.cudaHostUnregister(address)


# --- unpacking on the GPU --------------------------------------------------------------------------------------------


def _unpacked_there(extractor: RegionExtractor, run: _Run, dtype: torch.dtype) -> None:
    """The same with pictures that the GPU unpacks; threads read the files."""
    try:
        unpack: Any = importlib.import_module("torchvision.io")
    except ImportError as error:
        raise ConfigError("decoder='gpu' needs torchvision; without it, use decoder='pillow'.") from error
    if extractor.device.type != "cuda":
        raise ConfigError(f"decoder='gpu' unpacks on a GPU, and the extractor is on '{extractor.device}'.")
    side, describe = extractor.sampling.crop, _Describe(extractor, run, dtype)

    def work(task: JpegTask) -> tuple[Tensor, dict[int, str]]:
        damaged: dict[int, str] = {}
        files: list[Tensor] = []
        sizes: list[tuple[int, int]] = []
        for piece in task.runs:
            try:
                data = read_run(piece)
            except HapvrError as error:
                damaged |= dict.fromkeys(range(len(sizes), len(sizes) + len(piece.offsets)), str(error))
                data = []
            sizes += [piece.size] * len(piece.offsets)
            for place, (picture, checksum) in enumerate(
                zip(data, piece.crc32, strict=bool(data)), len(sizes) - len(piece.offsets)
            ):
                try:
                    require_checksum(picture, checksum)
                    files.append(torch.frombuffer(picture, dtype=torch.uint8))
                except HapvrError as error:
                    damaged[place] = str(error)
        whole = [place for place in range(len(sizes)) if place not in damaged]
        with describe.stream():
            pictures = torch.zeros((len(sizes), side, side, 3), dtype=torch.uint8, device=extractor.device)
            try:
                decoded = unpack.decode_jpeg(files, mode=unpack.ImageReadMode.RGB, device=extractor.device)
                squares = [_square(picture, sizes[place], side) for place, picture in zip(whole, decoded, strict=True)]
                pictures[whole] = torch.stack(squares).permute(0, 2, 3, 1)
            except (RuntimeError, HapvrError):  # one of them is damaged, or smaller than the square
                for place, file in zip(whole, files, strict=True):
                    try:
                        pictures[place] = torch.from_numpy(square(file.numpy().data, sizes[place], side).copy())
                    except (*BROKEN_PICTURE, HapvrError) as error:
                        damaged[place] = str(error) or type(error).__name__
            return describe.regions([pictures], len(pictures)), damaged

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
                    run.ended(key, None)
                except HapvrError as error:
                    run.ended(key, str(error))
        finally:
            pool.shutdown(cancel_futures=True)


def _square(picture: Tensor, size: tuple[int, int], side: int) -> Tensor:
    """The centre of [3, H, W]: [3, side, side]."""
    height, width = picture.shape[1:]
    if (width, height) != size or min(size) < side:
        raise ConfigError(f"a picture of {width}x{height}, not of {size}.")
    top, left = (height - side) // 2, (width - side) // 2
    return picture[:, top : top + side, left : left + side]
