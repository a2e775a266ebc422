"""How fast this machine is at what `hapvr add` and `hapvr search` do, measured with their own functions.

Each function measures for about the seconds it is given, by the clock it is given. The start of worker processes, about
a second, is measured once (`measure_start`) and taken off: it would count for a minute of video, not for a collection.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from hapvr.bench.drawn_videos import REGIONS, draw_query, draw_regions, fill_store, make_videos
from hapvr.bench.estimate import HITS, FileRate, ScoreRate, SearchRate, StoreRate
from hapvr.features import Features
from hapvr.features.extractor import RegionExtractor
from hapvr.features.video_extraction import default_workers, extract_stream
from hapvr.library import Library
from hapvr.library.shared_file import update_shared_footage
from hapvr.library.stored_scores import RegionCache, score_contents
from hapvr.model import Model
from hapvr.similarity.int8 import fast_score_dtype
from hapvr.video.frame_tasks import FileEnd, FileTask, VideoEnd, VideoTask, file_of_task, read_file, read_video
from hapvr.video.sampling import SamplingConfig
from hapvr.workers.pool import Block, WorkerPool
from hapvr.workers.sandbox import Sandbox

Clock = Callable[[], float]
Item = TypeVar("Item")

STORED_FRAMES, QUERY_FRAMES = 30, 20
"""Frames of the videos of a drawn library, and of its queries."""
SCORE_FRAMES = (28, 105)
"""Lengths at which pairs are scored: a clip, and the mean of FIVR-5K."""

_MIN_SEARCHES = 5
_WARM_UP = 2  # searches that are not counted
_POOL = 40  # videos that those of a library are made of
_SCORE_POOL = 8  # and those that are scored,
_SCORE_TOTAL = 6_720  # frames of them together: 240 videos of 28, 64 of 105
_SCORE_SEARCHES = 3
_CACHE_BYTES = 64 * 2**20  # of stored videos
_BLOCK_PICTURES = 16
_MAX_START_SHARE = 0.5  # of a measurement, that is taken off for the start of processes


def measure_start(extractor: RegionExtractor, *, clock: Clock = time.perf_counter) -> float:
    """Seconds until worker processes run, and end: they are given files without any content."""
    workers = default_workers(None)
    tasks = [(str(number), VideoTask(os.devnull, extractor.sampling)) for number in range(workers)]
    begun = clock()
    for _ in extract_stream(extractor, tasks, workers=workers, work=read_video):
        pass
    return clock() - begun


# --- video files -----------------------------------------------------------------------------------------------------


def measure_decode(
    paths: Sequence[Path],
    sampling: SamplingConfig,
    *,
    keyframes: bool,
    seconds: float,
    start_s: float,
    clock: Clock = time.perf_counter,
) -> FileRate:
    """Read files again and again, as `hapvr add` does, and drop the pictures."""
    begun, frames, video_s, files = clock(), 0, 0.0, 0
    tasks = repeat_for(make_tasks(paths, sampling, keyframes=keyframes), seconds, clock)
    size = _BLOCK_PICTURES * sampling.crop**2 * 3
    options: dict[str, Any] = {"workers": default_workers(None), "sandbox": Sandbox(), "file_of": file_of_task}
    with WorkerPool(read_file, tasks, block_bytes=size, blocks=3, **options) as pool:
        while pool.busy:
            for event in pool.wait():
                if isinstance(event, Block):
                    frames += int(event.note.shape[0])
                    pool.release(event)
                else:
                    files += 1
                    video_s += _find_duration(event.value)
    return FileRate(files, frames, video_s, subtract_start(clock() - begun, start_s))


def measure_files(
    extractor: RegionExtractor,
    paths: Sequence[Path],
    *,
    keyframes: bool,
    seconds: float,
    start_s: float,
    clock: Clock = time.perf_counter,
) -> FileRate:
    """Read and describe files again and again, as `hapvr add` does, and drop the features."""
    tasks = make_tasks(paths, extractor.sampling, keyframes=keyframes)
    begun, frames, video_s, files = clock(), 0, 0.0, 0
    repeated = repeat_for(tasks, seconds, clock)
    for video in extract_stream(extractor, repeated, workers=default_workers(None), work=read_file):
        files += 1
        frames += 0 if video.features is None else len(video.features)
        video_s += _find_duration(video.note)
    return FileRate(files, frames, video_s, subtract_start(clock() - begun, start_s))


def make_tasks(paths: Sequence[Path], sampling: SamplingConfig, *, keyframes: bool) -> list[FileTask]:
    """What `hapvr add` asks worker processes to do with many files."""
    return [
        FileTask(VideoTask(str(path), sampling, crop=sampling.crop, miniatures=True, keyframes=keyframes))
        for path in paths
    ]


def repeat_for(tasks: Sequence[Item], seconds: float, clock: Clock) -> Iterator[tuple[str, Item]]:
    """The tasks in turns, each once at least, until `seconds` have gone by; each time with another key."""
    begun = clock()
    for number in count():
        if number >= len(tasks) and clock() - begun >= seconds:
            return
        yield str(number), tasks[number % len(tasks)]


def subtract_start(wall_s: float, start_s: float) -> float:
    """The time of a measurement without the start of its processes, which is never taken for more than half of it.

    >>> subtract_start(5.0, 1.0), subtract_start(1.5, 1.0)
    (4.0, 0.75)
    """
    return wall_s - min(start_s, _MAX_START_SHARE * wall_s)


def _find_duration(end: FileEnd | VideoEnd | None) -> float:
    video = end.video if isinstance(end, FileEnd) else end
    return 0.0 if video is None else video.duration_s or 0.0


def measure_backbone(extractor: RegionExtractor, *, seconds: float, clock: Clock = time.perf_counter) -> float:
    """Pictures that are described a second, from memory, on all cores."""
    side = extractor.sampling.crop
    number = 2 * extractor.batch * extractor.threads()
    pictures = np.random.default_rng(0).integers(0, 256, (number, side, side, 3), np.uint8)
    extractor(pictures)  # starts the engine, with a request a thread
    begun, done = clock(), 0
    while done == 0 or clock() - begun < seconds:
        extractor(pictures)
        done += number
    return done / (clock() - begun)


# --- a library -------------------------------------------------------------------------------------------------------


def build_library(
    folder: Path, *, model: str | None, shape: tuple[int, int], videos: int, clock: Clock = time.perf_counter
) -> tuple[StoreRate, list[Features]]:
    """A library of drawn videos, written as `hapvr add` writes; what that costs, and queries for it.

    `shape` is that of the model's frames, [R, D]; see `find_shape`.
    """
    draw = torch.Generator().manual_seed(0)
    regions, dims = shape
    pool = [draw_regions(STORED_FRAMES, draw, regions=regions, dims=dims) for _ in range(min(_POOL, videos))]
    needles = pool[: max(1, videos // 2)]
    queries = [
        draw_query(needle, draw, frames=QUERY_FRAMES, mirror=regions == REGIONS and number % 2 == 1)
        for number, needle in enumerate(needles)
    ]
    drawn = _Timed(make_videos(pool, needles, range(videos), miniatures=True), clock)
    with Library.open(folder, create=True, model=model) as library:
        with library.write_access("hapvr bench") as store:
            begun = clock()
            fill_store(store, drawn)
            store.maintain()
            update_shared_footage(store)
            took = clock() - begun - drawn.seconds
        info = library.info()
    return StoreRate(info.frames / took, info.bytes / info.frames), queries


class _Timed(Iterable[Item]):
    """An iterable that knows how long its items took to make."""

    def __init__(self, items: Iterable[Item], clock: Clock) -> None:
        self._items, self._clock, self.seconds = items, clock, 0.0

    def __iter__(self) -> Iterator[Item]:
        items = iter(self._items)
        while True:
            begun = self._clock()
            try:
                item = next(items)
            except StopIteration:
                return
            finally:
                self.seconds += self._clock() - begun
            yield item


def measure_search(
    folder: Path, queries: Sequence[Features], *, seconds: float, clock: Clock = time.perf_counter
) -> SearchRate:
    """Search a drawn library for each of the queries, in turns; nothing is decoded."""
    times: list[float] = []
    stages: list[dict[str, float]] = []
    with Library.open(folder) as library:
        videos = library.info().videos
        for number in count():
            if number == _WARM_UP:
                begun = clock()
            elif number >= _WARM_UP + _MIN_SEARCHES and clock() - begun >= seconds:
                break
            asked = clock()
            result = library.search(queries[number % len(queries)], second_look=False)
            if number >= _WARM_UP:
                times.append(clock() - asked)
                stages.append(result.seconds)
    middle = {name: statistics.median(stage[name] for stage in stages) for name in stages[0]}
    return SearchRate(
        videos=videos,
        video_frames=STORED_FRAMES,
        query_frames=QUERY_FRAMES,
        p50_s=float(np.percentile(times, 50)),
        p95_s=float(np.percentile(times, 95)),
        candidates_s=middle["candidates"],
        score_s=middle["score"],
        segments_s=middle["segments"],
    )


def measure_score(
    folder: Path,
    *,
    model: str | None,
    shape: tuple[int, int],
    frames: int,
    seconds: float,
    clock: Clock = time.perf_counter,
) -> ScoreRate:
    """Scores of a query with stored videos, all of `frames`, as a search computes them; and searches for it."""
    draw = torch.Generator().manual_seed(frames)
    pool = [draw_regions(frames, draw, regions=shape[0], dims=shape[1]) for _ in range(_SCORE_POOL)]
    query = draw_query(pool[0], draw, frames=frames, mirror=False)
    with Library.open(folder, create=True, model=model) as library:
        with library.write_access("hapvr bench") as store:
            fill_store(store, make_videos(pool, (), range(max(HITS, _SCORE_TOTAL // frames))))
        store, loaded = library.store, library.model
        keys = [int(key) for key in store.catalog().contents]
        cache = RegionCache(_CACHE_BYTES, only_stored=True)  # as a search has it
        score_contents(store, loaded, query, keys, cache=cache)  # warms up
        begun, done = clock(), 0
        while done == 0 or clock() - begun < seconds:
            done += len(score_contents(store, loaded, query, keys, cache=cache))
        pairs_per_s = done / (clock() - begun)
        searches = [library.search(query, second_look=False).seconds["segments"] for _ in range(_SCORE_SEARCHES)]
    return ScoreRate(frames, pairs_per_s, statistics.median(searches))


def find_shape(extractor: RegionExtractor) -> tuple[int, int]:
    """Regions and dimensions of a frame, [R, D]."""
    side = extractor.sampling.crop
    _, regions, dims = extractor.regions(torch.zeros((1, side, side, 3), dtype=torch.uint8)).shape
    return regions, dims


def name_score_precision(model: Model, regions: int) -> str:
    """What a search scores in on this machine, such as int8."""
    return str(fast_score_dtype(model.similarity, regions)).removeprefix("torch.")
