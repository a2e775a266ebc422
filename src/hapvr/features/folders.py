"""Whole folders of videos: decoding in processes, inference in batches, a report that leaves no file out."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hapvr.errors import ConfigError, HapvrError
from hapvr.features._pipeline import described
from hapvr.features._threads import single_threads
from hapvr.features.files import Features, joined
from hapvr.video.crew import Block, Crew, Ended
from hapvr.video.crew_work import VideoPart, VideoTask, read_video

if TYPE_CHECKING:
    from hapvr.features.extractor import RegionExtractor, SamplingConfig
    from hapvr.features.packed import PackedWriter

Result = TypeVar("Result")
Files = Mapping[str, str | os.PathLike[str]]

_BLOCKS = 3  # of each decoding process: one being filled, one at work, one on the way
_LEAST_BLOCK = 4 * 2**20
_HELD_BYTES = 32 * 2**20  # of features of one video in memory, about 1,800 frames; the rest goes to disk

# Suffixes of files that lie among videos and are none. Short on purpose: what is not known is tried.
_NO_VIDEOS = (
    *(".txt", ".md", ".pdf", ".html", ".xml", ".json", ".csv", ".log", ".ini", ".db", ".nfo", ".url", ".lnk"),
    *(".srt", ".vtt", ".ass", ".sub"),
    *(".zip", ".part", ".crdownload", ".torrent"),
    *(".mp3", ".wav", ".flac", ".m4a", ".aac", ".ogg", ".opus"),
)


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
    files: Files,
    store: Callable[[str, Features], None],
    *,
    done: Iterable[str] = (),
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> ExtractionReport:
    """Features of many videos: decoded in worker processes, described here, handed to `store(id, features)` one by one.

    A file that cannot be decoded is reported and the rest goes on; a worker that dies takes only its file with it, and
    so does one that hangs. Pictures pass through shared memory, a few batches at a time. Of a video nothing is held but
    its features, and those of a long one wait in a temporary file: memory does not grow with its length.

    Args:
        extractor: the backbone and its settings.
        files: id -> path.
        store: called once for each video that was done, such as `FeatureWriter.add`.
        done: ids to leave out, such as `FeatureWriter.done_ids()`.
        workers: decoding processes; by default as many as cores, four at most.
        progress: called with the number of files just finished.
    """
    sampling, threads = extractor.sampling, extractor.threads()
    begun: dict[str, _Gathered] = {}

    def describe(blocks: list[Block]) -> list[Tensor]:
        pictures = [torch.from_numpy(_pictures(block)) for block in blocks]
        regions = extractor.regions(pictures[0] if len(pictures) == 1 else torch.cat(pictures))
        return list(torch.split(regions.float().cpu(), [len(part) for part in pictures]))

    def take(id: str, part: VideoPart, regions: Tensor) -> None:
        begun.setdefault(id, _Gathered()).add(Features(regions, part.timestamps, part.low_information))

    def finish(id: str) -> None:
        store(id, begun.pop(id).whole())

    run = _Run(files, done, workers, progress)
    tasks = run.tasks(sampling, crop=sampling.crop, batch=extractor.batch)
    size = extractor.batch * sampling.crop**2 * 3
    with run.crew(tasks, size) as crew, single_threads(threads) as pool:
        stream = described(crew, describe, pool, threads=threads, batch=extractor.batch, count=_count)
        try:
            return run.through(stream, take, finish, lambda id: begun.pop(id, _Gathered()).close())
        finally:
            for left in begun.values():
                left.close()


def pack_files(
    writer: PackedWriter,
    files: Files,
    sampling: SamplingConfig,
    *,
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> ExtractionReport:
    """Sampled frames of many videos into packed shards; what the writer has already is left out.

    The worker processes also make the JPEG pictures, and of a video these are all that is held.
    """
    parts: dict[str, list[tuple[VideoPart, bytes]]] = {}

    def describe(blocks: list[Block]) -> list[bytes]:
        return [block.data[: sum(block.note.sizes)].tobytes() for block in blocks]

    def take(id: str, part: VideoPart, data: bytes) -> None:
        parts.setdefault(id, []).append((part, data))

    def finish(id: str) -> None:
        held = parts.pop(id)
        pictures: list[bytes] = []
        for part, data in held:
            ends = np.cumsum(part.sizes or ()).tolist()
            pictures += [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]
        _, height, width, _ = held[0][0].shape
        times, low = (
            np.concatenate([getattr(part, name) for part, _ in held]) for name in ("timestamps", "low_information")
        )
        writer.add_encoded(id, pictures, times, size=(width, height), low_information=low)

    run = _Run(files, writer.done_ids(), workers, progress)
    tasks = run.tasks(sampling, jpeg=writer.encoding)
    size = max(_LEAST_BLOCK, 8 * sampling.short_side**2 * 3)  # the widest picture that a decoder gives
    with run.crew(tasks, size) as crew, ThreadPoolExecutor(1) as pool:
        stream = described(crew, describe, pool, threads=1, batch=1, count=_count)
        return run.through(stream, take, finish, lambda id: parts.pop(id, None))


class _Gathered:
    """Features of a video that come in parts."""

    def __init__(self) -> None:
        self._parts: list[Features] = []
        self._bytes = 0
        self._file: IO[bytes] | None = None
        self._times: list[NDArray[np.float64]] = []  # of what lies in the file
        self._flags: list[NDArray[np.bool_]] = []

    def add(self, part: Features) -> None:
        """Take the next part."""
        self._parts.append(part)
        self._bytes += part.regions.nbytes
        if self._bytes > _HELD_BYTES:
            self._spill()

    def _spill(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the features are used
        for part in self._parts:
            assert part.timestamps is not None
            assert part.low_information is not None
            self._file.write(part.regions.contiguous().numpy().data)
            self._times.append(part.timestamps)
            self._flags.append(part.low_information)
            self._dims = part.regions.shape[1:]
        self._file.flush()
        self._parts.clear()
        self._bytes = 0

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()

    def whole(self) -> Features:
        """All parts as one; what is in the file is read from there when it is used."""
        if self._file is None:
            return joined(self._parts)
        self._spill()
        times = np.concatenate(self._times)
        regions: Any = np.memmap(self._file, np.float32, "r+", shape=(len(times), *self._dims))
        self.close()  # what is mapped stays
        return Features(torch.from_numpy(regions), times, np.concatenate(self._flags))


def _pictures(block: Block) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    shape = block.note.shape
    return block.data[: int(np.prod(shape))].reshape(shape)


def _count(block: Block) -> int:
    return int(block.note.shape[0])


class _Run:
    """The files of one run, and what becomes of them."""

    def __init__(
        self, files: Files, done: Iterable[str], workers: int | None, progress: Callable[[int], None] | None
    ) -> None:
        if workers is not None and workers < 1:
            raise ConfigError(f"workers must be at least 1, got {workers}.")
        self._workers = min(4, os.cpu_count() or 1) if workers is None else workers
        finished = set(done)
        self.report = ExtractionReport(skipped=[id for id in files if id in finished])
        self._todo = {id: os.fspath(path) for id, path in files.items() if id not in finished}
        self._progress = progress or (lambda _: None)
        self._start = time.perf_counter()
        if self.report.skipped:
            self._progress(len(self.report.skipped))

    def tasks(
        self,
        sampling: SamplingConfig,
        *,
        crop: int | None = None,
        batch: int = 16,
        jpeg: tuple[int, int | None] | None = None,
    ) -> Iterator[tuple[str, VideoTask]]:
        threads = max(1, self._workers // max(1, len(self._todo)))  # a lone video is decoded by all cores
        usual = VideoTask("", sampling.fps, sampling.at_least, sampling.short_side, crop, batch, jpeg, threads)
        for id, path in self._todo.items():
            yield id, replace(usual, path=path)

    def crew(self, tasks: Iterator[tuple[str, VideoTask]], block_bytes: int) -> Crew:
        return Crew(read_video, tasks, workers=self._workers, block_bytes=block_bytes, blocks=_BLOCKS)

    def through(
        self,
        stream: Iterator[tuple[Block, Result | HapvrError] | Ended],
        take: Callable[[str, VideoPart, Result], None],
        finish: Callable[[str], None],
        forget: Callable[[str], object],
    ) -> ExtractionReport:
        report = self.report
        wrong: dict[str, str] = {}  # what was wrong with a video that is still being read
        for item in stream:
            if not isinstance(item, Ended):
                (block, result), id = item, str(item[0].key)
                if isinstance(result, HapvrError):
                    wrong.setdefault(id, str(result))
                elif id not in wrong:
                    try:
                        take(id, block.note, result)
                        report.frames += len(block.note.timestamps)
                    except HapvrError as error:
                        wrong[id] = str(error)
                continue
            id = str(item.key)
            reason = wrong.pop(id, None) or item.error
            if reason is None:
                try:
                    finish(id)
                except HapvrError as error:
                    reason = str(error)
            if reason is None:
                report.done.append(id)
                report.video_s += item.note.duration_s or 0.0
                if item.note.warnings:
                    report.warnings[id] = list(item.note.warnings)
            else:
                forget(id)
                report.failed.append(Failure(id, self._todo[id], reason))
            self._progress(1)
        report.wall_s = time.perf_counter() - self._start
        return report


def find_videos(paths: Iterable[str | os.PathLike[str]], *, passed_over: list[Path] | None = None) -> dict[str, Path]:
    """The files named, and those below the folders named: id -> path. An id is the path below its folder.

    In folders, hidden files are passed over, and those whose suffix says that they are no videos: texts, subtitles,
    sound, halves of downloads. Nothing else is: pipes, links to nowhere or to folders and folders that may not be read
    are given too, so that whoever reads them says what is wrong with them. `ConfigError` for a path that is not there,
    and for two files of one id.

    Args:
        paths: files and folders.
        passed_over: takes the files that were left out for their suffix.
    """
    found: dict[str, Path] = {}
    others: set[Path] = set()
    for given in paths:
        root = Path(given)
        if root.is_dir():
            named = {path.relative_to(root).as_posix(): path for path in sorted(_below(root, others))}
        elif os.path.lexists(root):
            named = {root.name: root}
        else:
            raise ConfigError(f"'{root}' is not there.")
        for id, path in named.items():
            if id in found and found[id] != path:
                raise ConfigError(f"'{found[id]}' and '{path}' would both be called '{id}'. Name their common folder.")
            found[id] = path
    if passed_over is not None:
        passed_over += sorted(others.difference(found.values()))
    return found


def _below(root: Path, others: set[Path]) -> Iterator[Path]:
    """What lies below a folder; files that are no videos go to `others`."""
    closed: list[Path] = []
    for folder, inner, names in os.walk(root, onerror=lambda error: closed.append(Path(error.filename))):
        here = Path(folder)
        inner[:] = [name for name in inner if not name.startswith(".")]
        linked = [name for name in inner if (here / name).is_symlink()]
        for name in names:
            if name.startswith("."):
                continue
            if os.path.splitext(name)[1].lower() in _NO_VIDEOS:
                others.add(here / name)
            else:
                yield here / name
        yield from (here / name for name in linked)
    yield from closed
