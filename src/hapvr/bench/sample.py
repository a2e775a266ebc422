"""What a user's own folder is like: every header is read, and parts of some videos are decoded and described.

Parts are spread evenly over the footage: files are sorted by size, codec and length, laid end to end, and parts begin
at equal distances along them, from a random start. So a kind of video has as many parts as it has footage (a stratified
sample), and the rate of all parts together is that of the folder. A part is the beginning of a long video, or some
short videos as a whole.
"""

from __future__ import annotations

import bisect
import itertools
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hapvr.bench.estimate import FileRate
from hapvr.bench.measure import Clock, subtract_start
from hapvr.errors import ConfigError
from hapvr.features.extractor import RegionExtractor
from hapvr.features.video_extraction import default_workers, extract_stream
from hapvr.library.found_files import find_files
from hapvr.library.results import display_path, escape_text
from hapvr.records import VideoInfo
from hapvr.video.frame_tasks import VideoTask, file_of_task, probe_video, read_video
from hapvr.workers.pool import TaskResult, WorkerPool
from hapvr.workers.sandbox import Sandbox

PART_S, KEYFRAME_PART_S = 30.0, 120.0
"""Seconds of a part; at key frames alone more, as a video needs eight of them."""
PARTS = 24

_MIN_PART_S = 15.0  # a shorter part of a video would be sampled faster than the video is
_PROBE_TIMEOUT_S = 20.0  # after which a process that reads a header is killed
_SIZES = ((480, "480p or smaller"), (720, "720p"), (1080, "1080p"))  # by the shorter side


@dataclass(frozen=True)
class ProbedFile:
    """A file and what its header says."""

    path: str
    info: VideoInfo

    @property
    def video_s(self) -> float:
        """Its length; 0 where none is declared, as of pictures."""
        return self.info.duration_s or 0.0


@dataclass(frozen=True)
class FileFailure:
    """A file that could not be read, and why."""

    path: str
    error: str


@dataclass
class Folder:
    """The files of a folder, as far as their headers were read."""

    files: int = 0
    skipped: int = 0  # no videos by their names
    probed: list[ProbedFile] = field(default_factory=list)
    failed: list[FileFailure] = field(default_factory=list)

    @property
    def videos(self) -> list[ProbedFile]:
        """Those that declare a length."""
        return [one for one in self.probed if one.video_s > 0]

    @property
    def complete(self) -> bool:
        """Whether every file was looked at."""
        return len(self.probed) + len(self.failed) == self.files

    @property
    def scale(self) -> float:
        """How many files there are for each that was looked at."""
        return self.files / max(1, len(self.probed) + len(self.failed))

    @property
    def video_s(self) -> float:
        """The length of all videos; those that were not looked at are taken to be like the others."""
        return self.scale * sum(one.video_s for one in self.videos)

    def count_kinds(self) -> dict[str, float]:
        """The share of the footage by size and codec, the largest first."""
        total: Counter[str] = Counter()
        for one in self.videos:
            total[name_kind(one.info)] += one.video_s  # type: ignore[assignment]
        whole = sum(total.values())
        return {kind: seconds / whole for kind, seconds in total.most_common()}


def name_kind(info: VideoInfo) -> str:
    """Size and codec in words.

    >>> name_kind(VideoInfo(9.0, (1920, 1080), 30.0, None, "mp4", "h264", 0))
    '1080p h264'
    """
    size = next((name for side, name in _SIZES if min(info.size) <= side), "larger than 1080p")
    return f"{size} {info.codec}"


def probe_folder(
    folder: Path,
    *,
    seconds: float,
    seed: int,
    clock: Clock = time.perf_counter,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> Folder:
    """Read the headers of all files that `hapvr add` would find, in random order, until `seconds` have gone by.

    `ConfigError` for a folder without any video that can be read. A file that cannot be read, or on which a decoder
    crashes, is a failure.
    """
    found = find_files([folder])
    names = [os.fsdecode(path) for path in found.files]
    if not names:
        raise ConfigError(f"There is no video in '{display_path(folder)}'. Name another folder, or leave out --sample.")
    random.Random(seed).shuffle(names)
    result, begun = Folder(len(names), found.skipped), clock()

    def tasks() -> Iterator[tuple[str, str]]:
        for number, name in enumerate(names):
            if number > 0 and clock() - begun >= seconds:
                return
            yield name, name

    options: dict[str, Any] = {"workers": default_workers(None), "sandbox": Sandbox(), "file_of": file_of_task}
    with WorkerPool(probe_video, tasks(), block_bytes=1, timeout_s=_PROBE_TIMEOUT_S, **options) as pool:
        while pool.busy:
            for event in pool.wait():
                if isinstance(event, TaskResult):
                    name = str(event.key)
                    if event.error is None:
                        result.probed.append(ProbedFile(name, event.value))
                    else:
                        result.failed.append(FileFailure(display_path(name), escape_text(event.error)))
                    progress(len(result.probed) + len(result.failed), len(names))
    if not result.videos:
        reason = f", such as '{result.failed[0].path}': {result.failed[0].error}" if result.failed else "."
        raise ConfigError(
            f"None of the {len(names):,} files in '{display_path(folder)}' is a video that can be read{reason}"
        )
    return result


@dataclass(frozen=True)
class Part:
    """A video up to `end_s`, or all of it."""

    path: str
    video_s: float
    end_s: float | None = None


def choose_parts(videos: Sequence[ProbedFile], *, parts: int, part_s: float, seed: int) -> list[Part]:
    """Parts of about `part_s` seconds that are spread evenly over the footage, in random order.

    Where the videos are hardly longer than that together, all of them.
    """
    chosen = random.Random(seed)
    ordered = sorted(videos, key=lambda one: (min(one.info.size), one.info.codec, one.video_s, one.path))
    ends = list(itertools.accumulate(one.video_s for one in ordered))
    if not ordered:
        return []
    if ends[-1] <= parts * part_s:
        whole = [Part(one.path, one.video_s) for one in ordered]
        chosen.shuffle(whole)
        return whole
    step = ends[-1] / parts
    first = chosen.random() * step
    groups = [_take(ordered[bisect.bisect_right(ends, first + number * step) :], part_s) for number in range(parts)]
    chosen.shuffle(groups)
    return [part for group in groups for part in group]


def _take(videos: Sequence[ProbedFile], part_s: float) -> list[Part]:
    """The first video up to `part_s`, or if it is shorter, it and the next ones."""
    taken: list[Part] = []
    left = part_s
    for one in videos:
        if taken and left < _MIN_PART_S:
            break
        longer = one.video_s > left
        taken.append(Part(one.path, min(one.video_s, left), left if longer else None))
        left -= one.video_s
    return taken


@dataclass(frozen=True)
class SampleRate:
    """How fast the parts of a sample were read and described."""

    rate: FileRate
    failed: tuple[FileFailure, ...]


def measure_parts(
    extractor: RegionExtractor,
    parts: Sequence[Part],
    *,
    keyframes: bool,
    seconds: float,
    start_s: float,
    clock: Clock = time.perf_counter,
) -> SampleRate | None:
    """Read and describe parts as `hapvr add` does, until `seconds` have gone by; None if none could be read.

    Each is read once. (`add` also computes a checksum of each file, about a second a gigabyte.)
    """
    sampling, begun = extractor.sampling, clock()

    def tasks() -> Iterator[tuple[str, VideoTask]]:
        for number, part in enumerate(parts):
            if number > 0 and clock() - begun >= seconds:
                return
            options = {"crop": sampling.crop, "miniatures": True, "keyframes": keyframes, "end_s": part.end_s}
            yield str(number), VideoTask(part.path, sampling, **options)  # type: ignore[arg-type]

    files, frames, video_s = 0, 0, 0.0
    failed: list[FileFailure] = []
    for video in extract_stream(extractor, tasks(), workers=default_workers(None), work=read_video):
        part = parts[int(video.id)]
        if video.error is not None or video.features is None:
            failed.append(FileFailure(display_path(part.path), escape_text(video.error or "it has no frames.")))
        else:
            files, frames, video_s = files + 1, frames + len(video.features), video_s + part.video_s
    if not files:
        return None
    return SampleRate(FileRate(files, frames, video_s, subtract_start(clock() - begun, start_s)), tuple(failed))
