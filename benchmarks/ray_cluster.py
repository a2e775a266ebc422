"""Features by a Ray cluster of two nodes on this machine against a plain run: the same, and what each costs.

    python benchmarks/scale.py ray VIDEOS --count 200 [--kill]

VIDEOS is a folder; with fewer videos than `--count`, each is read several times, by links to it. Each node has half of
the cores. `--kill` ends one node when a quarter of the videos is done: all features must come all the same. Both runs
come in turns. Processor seconds are those of all processes, Ray's own and its starting of actors included, but not the
start of the cluster, nor, in a plain run, the cluster that waits meanwhile; on a busy machine the clock means little.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import hapvr
from hapvr.features.cluster_extraction import extract_on_cluster
from hapvr.features.video_extraction import ExtractedVideo, extract_stream, make_tasks
from hapvr.video.frame_tasks import read_video
from hapvr.video.video_files import find_videos
from measure import machine

MAX_DIFFERENCE = 1e-6  # of vectors of unit length: how many threads share a product decides its last bits


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("videos", type=Path)
    parser.add_argument("--count", type=int, default=200, help="videos to read")
    parser.add_argument("--kill", action="store_true", help="end a node midway")
    parser.add_argument("--turns", type=int, default=1)


def measure(options: argparse.Namespace) -> None:
    import ray
    from ray.cluster_utils import Cluster

    extractor = hapvr.load().extractor
    half = max(1, (os.cpu_count() or 2) // 2)
    # Else its processes give way to all others, which those of the plain run do not.
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112
    with tempfile.TemporaryDirectory() as folder:
        files = link_videos(options.videos, Path(folder), options.count)
        print(machine(), f"{len(files)} videos, ray {ray.__version__}", sep="\n", flush=True)

        def tasks() -> Iterator[tuple[str, object]]:
            return make_tasks(files, extractor.sampling, workers=2 * half, crop=extractor.sampling.crop)

        node = {"num_cpus": half, "object_store_memory": 2**28}
        cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
        other = cluster.add_node(**node)
        ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
        try:
            for _ in range(options.turns):
                waiting = list_processes().keys() - {os.getpid()}  # Ray's
                plain = extract_stream(extractor, tasks(), workers=2 * half, work=read_video)
                here = take("this process", plain, without=waiting)
                stream = extract_on_cluster("auto", extractor, tasks(), workers=half, work=read_video)
                there = take(f"two nodes of {half} cores", stream)
                compare(here, there)
            if options.kill:
                found: dict[str, ExtractedVideo] = {}
                for one in extract_on_cluster("auto", extractor, tasks(), workers=half, work=read_video):
                    assert one.id not in found, "a video came twice"
                    found[one.id] = one
                    if len(found) == len(files) // 4:
                        cluster.remove_node(other, allow_graceful=False)
                        print(f"{len(found)} videos done: one node ended", flush=True)
                compare(here, found)
        finally:
            ray.shutdown()
            cluster.shutdown()


def link_videos(videos: Path, folder: Path, count: int) -> dict[str, str]:
    """`count` links to the videos of a folder, over and over; their paths by id."""
    found = [os.path.abspath(path) for path in find_videos([videos]).values()]
    for number in range(count):
        (folder / f"{number:04}.mp4").symlink_to(found[number % len(found)])
    return {path.name: str(path) for path in sorted(folder.iterdir())}


def take(what: str, stream: Iterable[ExtractedVideo], *, without: Collection[int] = ()) -> dict[str, ExtractedVideo]:
    """All videos of a stream, with what they cost; the processes `without` and all below them do not count."""
    start = time.perf_counter()
    with ProcessorClock(without) as clock:
        found = {one.id: one for one in stream}
    print(
        f"{what}: {clock.seconds:.1f} processor seconds, {time.perf_counter() - start:.1f} s by the clock", flush=True
    )
    return found


class ProcessorClock:
    """Processor seconds of this process and all below it, less what it takes to look at them.

    Linux; what a process does in its last moments is lost. The processes `without` and all below them do not count.
    """

    def __init__(self, without: Collection[int] = ()) -> None:
        self._without = without
        self._looking_s = 0.0

    def __enter__(self) -> ProcessorClock:
        self._before = list_processes(self._without)
        self._last = dict(self._before)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            is_last = self._ending.wait(0.2)
            self._last |= list_processes(self._without)
            if is_last:
                self._looking_s = time.thread_time()
                return

    @property
    def seconds(self) -> float:
        ticks = sum(spent - self._before.get(process, 0) for process, spent in self._last.items())
        return ticks / os.sysconf("SC_CLK_TCK") - self._looking_s


def list_processes(without: Collection[int] = ()) -> dict[int, int]:
    """The processor ticks of this process and all below it, by their ids; `without` some and what is below them."""
    parents: dict[int, int] = {}
    spent: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            parents[int(entry.name)], spent[int(entry.name)] = int(fields[1]), int(fields[11]) + int(fields[12])
    own = {os.getpid()}
    while more := {process for process, parent in parents.items() if parent in own} - own - set(without):
        own |= more
    return {process: spent[process] for process in own}


def compare(here: dict[str, ExtractedVideo], there: dict[str, ExtractedVideo]) -> None:
    assert here.keys() == there.keys(), "some videos were lost"
    largest = 0.0
    for id, one in here.items():
        other = there[id]
        assert one.error == other.error, (one.error, other.error)
        if one.features is not None and other.features is not None:
            differences = (one.features.regions - other.features.regions).abs()
            largest = max(largest, differences.max().item())
    print(f"{len(here)} videos, largest difference of a number {largest:.1e}", flush=True)
    assert largest <= MAX_DIFFERENCE, "the features differ"
