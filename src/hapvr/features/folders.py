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
from hapvr.video.crew import Block, Crew, Desk, Ended
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
    passed_over: list[Path] = field(default_factory=list)  # found beside them, and no videos by their names
    frames: int = 0
    video_s: float = 0.0
    wall_s: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """What `hapvr extract --json` prints."""
        failed = [{"id": one.id, "path": one.path, "error": one.error} for one in self.failed]
        return {"done": self.done, "skipped": self.skipped, "failed": failed, "warnings": self.warnings,
                "passed_over": len(self.passed_over), "frames": self.frames, "wall_s": self.wall_s}  # fmt: skip


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
    run = _Run(files, done, workers, progress)
    tasks = run.tasks(extractor.sampling, crop=extractor.sampling.crop, batch=extractor.batch)
    for video in extracted(extractor, tasks, workers=run.workers, work=read_video):
        reason = video.error
        if video.features is not None and reason is None:
            run.report.frames += len(video.features)
            try:
                store(video.id, video.features)
            except HapvrError as error:
                reason = str(error)
        run.ended(video.id, video.note, reason)
    return run.over()


@dataclass(frozen=True, eq=False)
class Extracted:
    """A video that has been read: its features, if it had frames, and what `work` returned; or what was wrong."""

    id: str
    features: Features | None
    note: Any
    error: str | None


def extracted(
    extractor: RegionExtractor,
    tasks: Iterable[tuple[str, Any]],
    *,
    workers: int,
    work: Callable[[Desk, Any], Any],
    stop: Callable[[], bool] | None = None,
) -> Iterator[Extracted]:
    """Videos as they are done, in bounded memory: `extract_files` is a loop over this.

    Args:
        extractor: the backbone and its settings.
        tasks: ids and what `work` takes, such as `VideoTask`; taken as they are needed.
        workers: decoding processes.
        work: what they do; it fills blocks as `read_video` does.
        stop: asked all the time; True ends it, and what was being read is dropped.
    """
    begun: dict[str, _Gathered] = {}

    def describe(blocks: list[Block]) -> list[Tensor]:
        pictures = [torch.from_numpy(_pictures(block)) for block in blocks]
        regions = extractor.regions(pictures[0] if len(pictures) == 1 else torch.cat(pictures))
        return list(torch.split(regions.float().cpu(), [len(part) for part in pictures]))

    def take(id: str, part: VideoPart, regions: Tensor) -> None:
        begun.setdefault(id, _Gathered()).add(Features(regions, part.timestamps, part.low_information, part.miniatures))

    threads = extractor.threads()
    size = extractor.batch * extractor.sampling.crop**2 * 3
    with (
        Crew(work, tasks, workers=workers, block_bytes=size, blocks=_BLOCKS) as crew,
        single_threads(threads) as pool,
    ):
        stream = described(crew, describe, pool, threads=threads, batch=extractor.batch, count=_count)
        try:
            for id, note, error in _ends(stream, take, stop):
                gathered = begun.pop(id, None)
                if gathered is None or error is not None:
                    (gathered or _Gathered()).close()
                    yield Extracted(id, None, note, error)
                else:
                    yield Extracted(id, gathered.whole(), note, None)
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
    with (
        Crew(read_video, tasks, workers=run.workers, block_bytes=size, blocks=_BLOCKS) as crew,
        ThreadPoolExecutor(1) as pool,
    ):
        stream = described(crew, describe, pool, threads=1, batch=1, count=_count)
        for id, note, error in _ends(stream, take):
            reason = error
            if reason is None:
                run.report.frames += sum(len(part.timestamps) for part, _ in parts[id])
                try:
                    finish(id)
                except HapvrError as refused:
                    reason = str(refused)
            parts.pop(id, None)
            run.ended(id, note, reason)
    return run.over()


def usual_workers(workers: int | None) -> int:
    """Decoding processes: as many as were asked for, else as cores, four at most."""
    if workers is not None and workers < 1:
        raise ConfigError(f"workers must be at least 1, got {workers}.")
    return min(4, os.cpu_count() or 1) if workers is None else workers


class _Gathered:
    """Features of a video that come in parts."""

    def __init__(self) -> None:
        self._parts: list[Features] = []
        self._bytes = 0
        self._file: IO[bytes] | None = None
        self._times: list[NDArray[np.float64]] = []  # of what lies in the file
        self._flags: list[NDArray[np.bool_]] = []
        self._small: list[NDArray[np.uint8]] = []

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
            if part.miniatures is not None:
                self._small.append(part.miniatures)
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
        small = np.concatenate(self._small) if self._small else None
        return Features(torch.from_numpy(regions), times, np.concatenate(self._flags), small)


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
        self.workers = usual_workers(workers)
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
        threads = max(1, self.workers // max(1, len(self._todo)))  # a lone video is decoded by all cores
        usual = VideoTask("", sampling.fps, sampling.at_least, sampling.short_side, crop, batch, jpeg, threads)
        for id, path in self._todo.items():
            yield id, replace(usual, path=path)

    def ended(self, id: str, note: Any, reason: str | None) -> None:
        if reason is None:
            self.report.done.append(id)
            self.report.video_s += note.duration_s or 0.0
            if note.warnings:
                self.report.warnings[id] = list(note.warnings)
        else:
            self.report.failed.append(Failure(id, self._todo[id], reason))
        self._progress(1)

    def over(self) -> ExtractionReport:
        self.report.wall_s = time.perf_counter() - self._start
        return self.report


def _ends(
    stream: Iterator[tuple[Block, Result | HapvrError] | Ended],
    take: Callable[[str, VideoPart, Result], None],
    stop: Callable[[], bool] | None = None,
) -> Iterator[tuple[str, Any, str | None]]:
    """The end of each task, after all its blocks have been taken: id, note, and what was wrong."""
    wrong: dict[str, str] = {}  # what was wrong with a video that is still being read
    for item in stream:
        if stop is not None and stop():
            return
        if isinstance(item, Ended):
            id = str(item.key)
            yield id, item.note, wrong.pop(id, None) or item.error
            continue
        (block, result), id = item, str(item[0].key)
        if isinstance(result, HapvrError):
            wrong.setdefault(id, str(result))
        elif id not in wrong:
            try:
                take(id, block.note, result)
            except HapvrError as error:
                wrong[id] = str(error)


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
            named = {path.relative_to(root).as_posix(): path for path in sorted(videos_below(root, others=others))}
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


def videos_below(
    root: Path, *, others: set[Path] | None = None, leave: Callable[[Path], bool] | None = None
) -> Iterator[Path]:
    """What lies below a folder, as `find_videos` finds it.

    Args:
        root: the folder.
        others: takes the files that are no videos by their suffix.
        leave: folders for which it is True are not entered.
    """
    closed: list[Path] = []
    for folder, inner, names in os.walk(root, onerror=lambda error: closed.append(Path(error.filename))):
        here = Path(folder)
        inner[:] = [
            name for name in inner if not name.startswith(".") and not (leave is not None and leave(here / name))
        ]
        linked = [name for name in inner if (here / name).is_symlink()]
        for name in names:
            if name.startswith("."):
                continue
            if os.path.splitext(name)[1].lower() in _NO_VIDEOS:
                if others is not None:
                    others.add(here / name)
            else:
                yield here / name
        yield from (here / name for name in linked)
    yield from closed
