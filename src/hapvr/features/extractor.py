"""From frames to region vectors at speed, and whole folders of videos: decoding in processes, inference in batches."""

from __future__ import annotations

import multiprocessing
import os
import queue
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hapvr.backbones.base import Backbone
from hapvr.checks import shape_of
from hapvr.errors import ConfigError, HapvrError, ShapeError
from hapvr.features.files import Features, joined
from hapvr.features.regions import extract_regions
from hapvr.features.whitening import Whitening

if TYPE_CHECKING:
    from hapvr.features.packed import PackedWriter
    from hapvr.records import Frames

Result = TypeVar("Result")

_FRAMES_A_PART = 512  # about 100 MB of pictures


@dataclass(frozen=True)
class SamplingConfig:
    """How a video becomes pictures for a backbone: one home for training, comparing and indexing alike."""

    fps: float = 2.0  # frames a second; short videos are sampled faster
    at_least: int = 28  # frames of a short video, where it has them: what psi was trained on
    short_side: int = 256  # pixels, after decoding
    crop: int = 224  # pixels, the centre of that

    def __post_init__(self) -> None:
        if not self.fps > 0 or self.at_least < 0 or not 0 < self.crop <= self.short_side:
            raise ConfigError(f"fps > 0, at_least >= 0 and 0 < crop <= short_side must hold; got {self}.")


def half_pays() -> bool:
    """Whether this CPU multiplies bfloat16 itself; else float32 is faster."""
    check = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    return bool(check is not None and check())


class RegionExtractor:
    """A frozen backbone and its whitening as one function: pictures in, region vectors out.

    On a GPU and on CPUs that multiply bfloat16 the backbone runs in bfloat16, elsewhere in float32; pooling and
    whitening are float32 always. `precision` overrides that.

    Args:
        backbone: anything with stages; put into evaluation mode, moved to `device`.
        whitening: None leaves the pooled vectors as they are.
        sampling: how videos become pictures.
        device: where to compute.
        precision: torch.float32 or torch.bfloat16.
        batch: pictures at a time.
    """

    def __init__(
        self,
        backbone: Backbone,
        whitening: Whitening | None = None,
        *,
        sampling: SamplingConfig | None = None,
        device: str | torch.device = "cpu",
        precision: torch.dtype | None = None,
        batch: int | None = None,
    ) -> None:
        self.device = torch.device(device)
        gpu = self.device.type == "cuda"
        self.precision = precision or (torch.bfloat16 if gpu or half_pays() else torch.float32)
        if self.precision not in (torch.float32, torch.bfloat16):
            raise ConfigError(f"precision must be torch.float32 or torch.bfloat16, got {precision}.")
        self.backbone = backbone.eval().requires_grad_(False).to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.whitening = None if whitening is None else whitening.to(self.device)
        self.sampling = sampling or SamplingConfig()
        self.batch = batch or (256 if gpu else 16)

    @torch.no_grad()
    def __call__(self, images: NDArray[np.uint8] | Tensor) -> Tensor:
        """Region vectors of pictures: uint8 [T, H, W, 3] -> float32 [T, R, D] on the CPU. The centre is cropped."""
        pictures = torch.as_tensor(images)
        if pictures.dtype != torch.uint8 or pictures.ndim != 4 or pictures.shape[3] != 3 or len(pictures) == 0:
            raise ShapeError(f"images must be uint8 [T, H, W, 3], got {pictures.dtype} {shape_of(pictures)}.")
        pictures = _centre(pictures, self.sampling.crop)
        starts = range(0, len(pictures), self.batch)
        return torch.cat([self._regions(pictures[start : start + self.batch]) for start in starts]).float().cpu()

    def _regions(self, pictures: Tensor) -> Tensor:
        pictures = pictures.to(self.device, non_blocking=True).permute(0, 3, 1, 2).float().div_(255)
        half = self.precision != torch.float32
        with torch.autocast(self.device.type, self.precision, enabled=half):
            regions = extract_regions(self.backbone, pictures)
        return regions if self.whitening is None else self.whitening(regions)

    def features(self, frames: Frames) -> Features:
        """Features of a decoded video, with the times of its frames."""
        return Features(self(frames.images), frames.timestamps)


def _centre(pictures: Tensor, side: int) -> Tensor:
    """The centre square of [T, H, W, 3]; a picture that is smaller is enlarged first."""
    height, width = pictures.shape[1:3]
    if min(height, width) < side:
        scale = side / min(height, width)
        size = (max(side, round(height * scale)), max(side, round(width * scale)))
        moved = torch.nn.functional.interpolate(pictures.permute(0, 3, 1, 2).float(), size, mode="bilinear")
        pictures = moved.round().to(torch.uint8).permute(0, 2, 3, 1)
        height, width = size
    top, left = (height - side) // 2, (width - side) // 2
    return pictures[:, top : top + side, left : left + side]


# --- many files ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Failure:
    """A file that could not be done, and why."""

    id: str
    path: str
    error: str


@dataclass
class ExtractionReport:
    """What became of every file: done now, done before, or failed. Files with `warnings` were done all the same."""

    done: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    failed: list[Failure] = field(default_factory=list)
    warnings: dict[str, list[str]] = field(default_factory=dict)
    frames: int = 0
    video_s: float = 0.0
    wall_s: float = 0.0


def extract_files(
    extractor: RegionExtractor,
    files: Mapping[str, str | os.PathLike[str]],
    store: Callable[[str, Features], None],
    *,
    done: Iterable[str] = (),
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> ExtractionReport:
    """Features of many videos: decoded in worker processes, described here, handed to `store(id, features)` one by one.

    A file that cannot be decoded is reported and the rest goes on; a worker that dies takes only its file with it.
    At most a few videos are held at a time.

    Args:
        extractor: the backbone and its settings.
        files: id -> path.
        store: called once for each video that was done, such as `FeatureWriter.add`.
        done: ids to leave out, such as `FeatureWriter.done_ids()`.
        workers: decoding processes; by default as many as cores, four at most.
        progress: called with the number of files just finished.
    """

    def finish(id: str, parts: list[Features]) -> None:
        store(id, joined(parts))

    return _each(files, extractor.sampling, extractor.features, finish, done, workers, progress)


def pack_files(
    writer: PackedWriter,
    files: Mapping[str, str | os.PathLike[str]],
    sampling: SamplingConfig,
    *,
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> ExtractionReport:
    """Sampled frames of many videos into packed shards; what the writer has already is left out."""

    def finish(id: str, parts: list[Frames]) -> None:
        images, times = (np.concatenate([getattr(part, name) for part in parts]) for name in ("images", "timestamps"))
        writer.add(id, images, times)

    return _each(files, sampling, lambda frames: frames, finish, writer.done_ids(), workers, progress)


def _each(
    files: Mapping[str, str | os.PathLike[str]],
    sampling: SamplingConfig,
    work: Callable[[Frames], Result],
    finish: Callable[[str, list[Result]], None],
    done: Iterable[str],
    workers: int | None,
    progress: Callable[[int], None] | None,
) -> ExtractionReport:
    """Decode every file in worker processes; `work` on each part here, `finish` a video with what came of its parts."""
    report = ExtractionReport()
    finished = set(done)
    report.skipped = [id for id in files if id in finished]
    todo = {id: os.fspath(path) for id, path in files.items() if id not in finished}
    begun: dict[str, list[Result]] = {}  # long videos come in parts
    start = time.perf_counter()
    if progress is not None and report.skipped:
        progress(len(report.skipped))
    for id, outcome, last in _decoded(todo, sampling, workers or min(4, os.cpu_count() or 1)):
        if isinstance(outcome, str):
            begun.pop(id, None)
            report.failed.append(Failure(id, todo[id], outcome))
        else:
            begun.setdefault(id, []).append(work(outcome))
            report.frames += len(outcome)
            if outcome.warnings:
                report.warnings[id] = list(outcome.warnings)
            if not last:
                continue
            try:
                finish(id, begun.pop(id))
            except HapvrError as error:
                report.failed.append(Failure(id, todo[id], str(error)))
            else:
                report.done.append(id)
                report.video_s += outcome.duration_s or 0.0
        if progress is not None:
            progress(1)
    report.wall_s = time.perf_counter() - start
    return report


def find_videos(paths: Iterable[str | os.PathLike[str]]) -> dict[str, Path]:
    """The files named, and those below the folders named: id -> path. An id is the path below its folder.

    Hidden files are passed over. `ConfigError` for a path that is not there, and for two files of one id.
    """
    found: dict[str, Path] = {}
    for given in paths:
        root = Path(given)
        if root.is_dir():
            below = sorted(path for path in root.rglob("*") if path.is_file() and not _hidden(path.relative_to(root)))
            named = {path.relative_to(root).as_posix(): path for path in below}
        elif root.exists():
            named = {root.name: root}
        else:
            raise ConfigError(f"'{root}' is not there.")
        for id, path in named.items():
            if id in found and found[id] != path:
                raise ConfigError(f"'{found[id]}' and '{path}' would both be called '{id}'. Name their common folder.")
            found[id] = path
    return found


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _decoded(
    files: Mapping[str, str], sampling: SamplingConfig, workers: int
) -> Iterator[tuple[str, Frames | str, bool]]:
    """(id, frames or what was wrong, whether that was the last of it), as they get ready; two a worker may wait."""
    context = multiprocessing.get_context("spawn")  # a fork would copy torch's threads half-way
    tasks: Any = context.SimpleQueue()
    results: Any = context.Queue(maxsize=2 * workers)
    left = set(files)
    for item in files.items():
        tasks.put(item)
    crew: dict[int, Any] = {}
    at_work: dict[int, str] = {}  # process -> the id it has taken up

    def hire() -> None:
        process = context.Process(target=_work, args=(tasks, results, sampling), daemon=True)
        process.start()
        crew[process.pid or 0] = process

    for _ in range(min(workers, len(files))):
        hire()
    try:
        while left:
            try:
                pid, id, outcome, last = results.get(timeout=0.5)
            except queue.Empty:
                for pid, process in [(pid, process) for pid, process in crew.items() if not process.is_alive()]:
                    del crew[pid]
                    lost = at_work.pop(pid, None)
                    if lost is not None:
                        left.remove(lost)
                        yield lost, f"the decoder died on it (exit code {process.exitcode})", True
                    if left:
                        hire()
                continue
            if outcome is None:
                at_work[pid] = id
                continue
            if last:
                del at_work[pid]
                left.remove(id)
            yield id, outcome, last
    finally:
        for process in crew.values():
            process.terminate()
        for process in crew.values():
            process.join()


def _work(tasks: Any, results: Any, sampling: SamplingConfig) -> None:
    """One decoding process: announces what it takes up, then sends its frames part by part, or the error."""
    while True:
        id, path = tasks.get()
        results.put((os.getpid(), id, None, False))
        try:
            part: Any = None
            for following in decode_parts(path, sampling, threads=1):
                if part is not None:
                    results.put((os.getpid(), id, part, False))
                part = following
        except HapvrError as error:
            part = str(error)
        results.put((os.getpid(), id, part, True))


def decode_parts(path: str | os.PathLike[str], sampling: SamplingConfig, *, threads: int = 0) -> Iterator[Frames]:
    """The frames of a video in parts of a bounded number, cropped alike; most videos are one part."""
    from hapvr.errors import NoVideoError
    from hapvr.video.decode import decode

    settings = {"fps": sampling.fps, "short_side": sampling.short_side, "threads": threads}
    length = _FRAMES_A_PART / sampling.fps
    first = decode(path, at_least=sampling.at_least, end_s=length, **settings)  # type: ignore[arg-type]
    yield first
    duration = first.duration_s or 0.0
    box = first.crop or (0, 0, *first.source_size)
    start = length
    while start < duration:
        try:
            yield decode(path, at_least=0, start_s=start, end_s=start + length, crop_bars=box, **settings)  # type: ignore[arg-type]
        except NoVideoError:  # the file ends before its declared duration: the part before this one has said so
            return
        start += length
