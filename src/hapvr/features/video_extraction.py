"""Features of many videos: read in worker processes, described here in batches; a report that leaves no file out."""

from __future__ import annotations

import itertools
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hapvr.errors import ConfigError, HapvrError
from hapvr.features.batching import extract_blocks
from hapvr.features.extractor import RegionExtractor
from hapvr.features.features import Features, join_fields
from hapvr.records import Box
from hapvr.storage import StrPath
from hapvr.video.frame_tasks import VideoEnd, VideoPart, VideoTask, file_of_task, find_video_inset, read_video
from hapvr.video.packed_frames import PackedFrames, PackedTask, read_packed
from hapvr.video.sampling import SamplingConfig
from hapvr.workers.pool import Block, TaskContext, TaskResult, WorkerPool, run_tasks
from hapvr.workers.processes import count_cores
from hapvr.workers.sandbox import Sandbox
from hapvr.workers.threads import torch_thread_pool

Files = Mapping[str, StrPath]
Store = Callable[[str, Features], None]
Progress = Callable[[int, int], None]
Warn = Callable[[str, list[str]], None]

MAX_WORKERS = 16  # decoding processes, if no number is given: each takes about 100 MB of memory
BLOCKS = 3  # of each reading process: one being filled, one at work, one on the way
_GPU_BLOCKS = 8  # a GPU holds those of two batches
_MAX_BLOCK_PICTURES = 32
_GPU_LINGER_S = 0.02  # how long a GPU may wait for a full batch
_MAX_HELD_BYTES = 32 * 2**20  # of features of one video in memory, about 1,800 frames; the rest goes to disk


@dataclass(frozen=True)
class ExtractionFailure:
    """A file that could not be done, and why."""

    id: str
    path: str
    error: str


@dataclass
class ExtractionReport:
    """What became of every file: done now, done before, or failed. Files with `warnings` were done all the same."""

    done: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    failed: list[ExtractionFailure] = field(default_factory=list)
    warnings: dict[str, list[str]] = field(default_factory=dict)
    other_files: list[Path] = field(default_factory=list)  # found beside them, and no videos by their names
    frames: int = 0
    video_s: float = 0.0
    wall_s: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """What `hapvr extract --json` prints."""
        failed = [asdict(one) for one in self.failed]
        return {"done": self.done, "skipped": self.skipped, "failed": failed, "warnings": self.warnings,
                "other_files": len(self.other_files), "frames": self.frames, "wall_s": self.wall_s}  # fmt: skip


class FileReporter:
    """The files of one call, less those that are done, and the report of what becomes of them."""

    def __init__(self, files: Files, done: Iterable[str], progress: Progress | None, warn: Warn | None = None) -> None:
        before = set(done)
        self.todo = {id: os.fspath(path) for id, path in files.items() if id not in before}
        self.report = ExtractionReport(skipped=[id for id in files if id in before])
        self._total, self._progress, self._warn = len(files), progress, warn
        self._start = time.perf_counter()
        self._tell()

    def end(self, id: str, error: str | None, store: Callable[[], None], *, frames: int, end: VideoEnd | None) -> None:
        """A video has been read: store it if nothing was wrong, and report it."""
        report = self.report
        try:
            if error is None:
                store()
        except HapvrError as refusal:
            error = str(refusal)
        if error is not None:
            report.failed.append(ExtractionFailure(id, self.todo[id], error))
        else:
            report.done.append(id)
            report.frames += frames
            report.video_s += 0.0 if end is None else end.duration_s or 0.0
            if end is not None and end.warnings:
                report.warnings[id] = list(end.warnings)
                if self._warn is not None:
                    self._warn(id, report.warnings[id])
        report.wall_s = time.perf_counter() - self._start
        self._tell()

    def _tell(self) -> None:
        finished = len(self.report.skipped) + len(self.report.done) + len(self.report.failed)
        if self._progress is not None and finished:
            self._progress(finished, self._total)


def extract_files(
    extractor: RegionExtractor,
    files: Files,
    store: Store,
    *,
    done: Iterable[str] = (),
    keyframes: bool = False,
    insets: Mapping[str, Box] | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
    warn: Warn | None = None,
    stream: ExtractStream | None = None,
) -> ExtractionReport:
    """Features of many videos, handed to `store(id, features)` one by one.

    A file that cannot be decoded is reported and the rest goes on; a worker that dies or hangs loses only its file.
    Pictures pass through shared memory, a few batches at a time. Of a video nothing is held but its features, and those
    of a long one wait in a temporary file: memory does not grow with its length.

    Args:
        extractor: describes the pictures.
        files: id -> path.
        store: called once for each video that was done, such as `FeatureWriter.add`.
        done: ids to leave out, such as `FeatureWriter.done_ids()`.
        keyframes: take key frames alone, where a video has enough of them; see `decode`.
        insets: the rectangle of each frame that is read, by id, as `find_insets` gives it; of other ids all is read.
        workers: decoding processes; by default one per usable core, sixteen at most.
        progress: called with how many files are finished, and how many there are.
        warn: called with the id and the warnings of a video that was stored, damaged as it is.
        stream: what reads and describes the videos; `extract_stream` if None.
    """
    count, run = default_workers(workers), FileReporter(files, done, progress, warn)
    sampling = extractor.sampling
    tasks = make_tasks(run.todo, sampling, insets=insets or {}, workers=count, crop=sampling.crop, keyframes=keyframes)
    return _extract(extractor, tasks, store, run, workers=workers, work=read_video, stream=stream)


def find_insets(files: Files, sampling: SamplingConfig, *, workers: int | None = None) -> dict[str, Box]:
    """Where those of many videos that show another one in a window do so, by id; in pixels of each file.

    A file that cannot be read has none.
    """
    tasks = make_tasks({id: os.fspath(path) for id, path in files.items()}, sampling, workers=1)
    options = {"workers": default_workers(workers), "sandbox": Sandbox(), "file_of": file_of_task}
    found = run_tasks(find_video_inset, tasks, **options)  # type: ignore[arg-type]
    return {str(result.key): tuple(result.value) for result in found if result.error is None and result.value}


def extract_packed(
    extractor: RegionExtractor,
    packed: PackedFrames,
    store: Store,
    *,
    done: Iterable[str] = (),
    workers: int | None = None,
    dtype: torch.dtype = torch.float16,
    progress: Progress | None = None,
) -> ExtractionReport:
    """Features of packed frames, on machines without a video decoder; otherwise as `extract_files`.

    The centre of each picture is taken, so frames should have been packed with the short side of the model's sampling.
    A damaged picture costs its video, which is reported, and no other. Storing gzip takes longer than all the rest: for
    a `FeatureWriter` that keeps up with a GPU, `compression=None`.

    Args:
        extractor, store, done, progress: see `extract_files`.
        packed: the frames.
        workers: processes that unpack; by default one per usable core, less one that feeds a GPU.
        dtype: of the features.
    """
    count = default_workers(workers, packed=True, gpu=extractor.device.type == "cuda")
    run = FileReporter(dict.fromkeys(packed, packed.folder), done, progress)
    tasks = ((id, PackedTask(packed[id], extractor.sampling.crop)) for id in run.todo)
    files = (os.path.realpath(path) for path in Path(packed.folder).iterdir())  # some may be links to elsewhere
    sandbox = Sandbox(readable=(os.path.abspath(packed.folder), *files))
    settings: dict[str, Any] = {"work": read_packed, "dtype": dtype, "sandbox": sandbox, "file_of": None}
    return _extract(extractor, tasks, store, run, workers=count, **settings)


def _extract(
    extractor: RegionExtractor,
    tasks: Iterable[tuple[str, Any]],
    store: Store,
    run: FileReporter,
    *,
    stream: ExtractStream | None = None,
    **settings: Any,
) -> ExtractionReport:
    """Store what `extract_stream` or another gives, and report it; `settings` are those of `extract_stream`."""
    for video in (stream or extract_stream)(extractor, tasks, **settings):
        features = video.features
        save = (lambda: None) if features is None else partial(store, video.id, features)
        run.end(video.id, video.error, save, frames=0 if features is None else len(features), end=video.note)
    return run.report


@dataclass(frozen=True, eq=False)
class ExtractedVideo:
    """A video that has been read: its features, if it had frames, and what `work` returned; or what was wrong."""

    id: str
    features: Features | None
    note: Any
    error: str | None


ExtractStream = Callable[..., Iterator[ExtractedVideo]]
"""`extract_stream`, or what does the same elsewhere."""


def extract_stream(
    extractor: RegionExtractor,
    tasks: Iterable[tuple[str, Any]],
    *,
    workers: int | None = None,
    work: Callable[[TaskContext, Any], Any],
    stop: Callable[[], bool] | None = None,
    dtype: torch.dtype = torch.float32,
    sandbox: Sandbox = Sandbox(),  # noqa: B008 - frozen
    file_of: Callable[[Any], str] | None = file_of_task,
) -> Iterator[ExtractedVideo]:
    """Videos as they are done, in bounded memory: `extract_files` is a loop over this.

    Args:
        extractor: describes the pictures, with its copies on other devices: whichever is free takes the next batch.
        tasks: ids and what `work` takes, such as `VideoTask`; taken as they are needed.
        workers: decoding processes; by default one per usable core, sixteen at most.
        work: what they do; it fills blocks as `read_video` does.
        stop: asked all the time; True ends it, and what was being read is dropped.
        dtype: of the features.
        sandbox, file_of: what the processes may do; see `WorkerPool`.
    """
    begun: dict[str, _FeatureSpool] = {}
    wrong: dict[str, str] = {}  # with videos that are still being read
    gpu = extractor.device.type == "cuda"
    extractors = (extractor, *extractor.copies)
    # On a GPU, one thread prepares a batch while another's is computed.
    threads = sum(2 if gpu else one.threads() for one in extractors)
    size = min(extractor.batch, _MAX_BLOCK_PICTURES) * extractor.sampling.crop**2 * 3
    blocks, linger_s = (_GPU_BLOCKS, _GPU_LINGER_S) if gpu else (BLOCKS, 0.0)
    extract_batch = partial(_extract_batch, itertools.cycle(extractors), dtype, threading.local())
    with (
        WorkerPool(
            work,
            tasks,
            workers=default_workers(workers),
            block_bytes=size,
            blocks=blocks,
            pin=gpu,
            sandbox=sandbox,
            file_of=file_of,
        ) as pool,
        ThreadPoolExecutor(threads) if gpu else torch_thread_pool(threads) as executor,
    ):
        stream = extract_blocks(
            pool, extract_batch, executor, threads=threads, batch=extractor.batch, count=_count, linger_s=linger_s
        )
        try:
            for item in stream:
                if stop is not None and stop():
                    return
                if isinstance(item, TaskResult):
                    id = str(item.key)
                    error, features = wrong.pop(id, None) or item.error, None
                    with closing(begun.pop(id, _FeatureSpool())) as spool:
                        try:
                            features = spool.join() if error is None else None
                        except HapvrError as refusal:
                            error = str(refusal)
                    yield ExtractedVideo(id, features, item.value, error)
                    continue
                (block, regions), id = item, str(item[0].key)
                if isinstance(regions, HapvrError):
                    wrong.setdefault(id, str(regions))
                elif id not in wrong:
                    begun.setdefault(id, _FeatureSpool()).add(regions, block.note)
        finally:
            for spool in begun.values():
                spool.close()


def _extract_batch(
    extractors: Iterator[RegionExtractor], dtype: torch.dtype, own: threading.local, blocks: list[Block]
) -> list[Tensor]:
    """Regions of blocks of pictures, one tensor a block, on the host.

    Each thread keeps the extractor that it takes for its first batch, and on a GPU has its own CUDA stream.
    """
    if not hasattr(own, "extractor"):
        own.extractor = next(extractors)
    extractor: RegionExtractor = own.extractor
    counts = [_count(block) for block in blocks]
    total = sum(counts)
    context: Any = nullcontext()
    if extractor.device.type == "cuda":
        if not hasattr(own, "stream"):
            own.stream = torch.cuda.Stream(extractor.device)  # type: ignore[no-untyped-call]
            own.stream.wait_stream(torch.cuda.current_stream(extractor.device))  # the weights may be on their way
        context = torch.cuda.stream(own.stream)
    with context:
        batch = torch.empty((total, *blocks[0].note.shape[1:]), dtype=torch.uint8, device=extractor.device)
        for target, block in zip(torch.split(batch, counts), blocks, strict=True):
            pictures = block.data[: target.numel()].reshape(target.shape)
            target.copy_(torch.from_numpy(pictures), non_blocking=True)
        regions = _copy_to_host(extractor.regions(batch).to(dtype))
    return list(torch.split(regions, counts))


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


def default_workers(workers: int | None, *, packed: bool = False, gpu: bool = False) -> int:
    """How many processes read videos: as many as were asked for, else one per core that this process may use.

    Of those that decode files there are `MAX_WORKERS` at most. Those that unpack frames (`packed`) are not limited, as
    they feed the fastest GPUs, and leave a core to the process that feeds a GPU (`gpu`).
    """
    if workers is not None and workers < 1:
        raise ConfigError(f"workers must be at least 1, got {workers}.")
    if workers is not None:
        return workers
    return max(1, count_cores() - gpu) if packed else min(MAX_WORKERS, count_cores())


def make_tasks(
    files: Mapping[str, str],
    sampling: SamplingConfig,
    *,
    workers: int,
    insets: Mapping[str, Box] = MappingProxyType({}),
    **settings: Any,
) -> Iterator[tuple[str, VideoTask]]:
    """A task for each video, id -> path; `settings` are those of `VideoTask`. A lone video is decoded by all cores."""
    threads = max(1, workers // max(1, len(files)))
    for id, path in files.items():
        yield id, VideoTask(path, sampling, threads=threads, inset=insets.get(id), **settings)


class _FeatureSpool:
    """Features of a video that come in parts; beyond some megabytes their regions wait in a temporary file."""

    def __init__(self) -> None:
        self._parts: list[VideoPart] = []
        self._regions: list[NDArray[Any]] = []  # of the last parts, which are not in the file
        self._file: IO[bytes] | None = None

    def add(self, regions: Tensor, part: VideoPart) -> None:
        """Take the regions [T, R, D] of the next part."""
        # Copied, by numpy: the batch that they were described with need not stay, and torch would use all cores for it.
        self._regions.append(regions.numpy().copy())
        self._parts.append(part)
        self._shape, self._dtype = self._regions[0].shape[1:], self._regions[0].dtype
        if sum(one.nbytes for one in self._regions) > _MAX_HELD_BYTES:
            self._spill()

    def _spill(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the features are used
        for regions in self._regions:
            self._file.write(regions.data)
        self._file.flush()
        self._regions.clear()

    def join(self) -> Features | None:
        """All parts as one, None if there are none; what is in the file is read from there when it is used."""
        if not self._parts:
            return None
        regions: Any
        if self._file is None:
            regions = np.concatenate(self._regions)
        else:
            self._spill()
            length = sum(len(part.timestamps) for part in self._parts)
            regions = np.memmap(self._file, self._dtype, "r+", shape=(length, *self._shape))
        return Features(torch.from_numpy(regions), **join_fields(self._parts))

    def close(self) -> None:
        """Close the file; what was joined stays."""
        if self._file is not None:
            self._file.close()


def _count(block: Block) -> int:
    return int(block.note.shape[0])
