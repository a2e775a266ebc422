"""Clips streamed from a set that is ten times larger than the memory they may take, against the need of training.

    python benchmarks/streaming.py SHARDS                     # how many clips a second; drawn first
    python benchmarks/streaming.py SHARDS --train             # on a GPU: whole training steps too
    python benchmarks/streaming.py SHARDS --small             # that it runs at all

The paper's step takes 64 clips of 56 frames and, on an H200, 0.34 s from memory: 188 clips a second. Pictures are drawn
once and stored again and again, which changes nothing for whoever decodes them. Memory is what this process and its
children hold together (shared pages once), less what this process held before.
"""

from __future__ import annotations

import argparse
import json
import os
import threading
import time
from pathlib import Path

import numpy as np
import torch

from extract import draw_video
from hapvr.training import ClipSource
from hapvr.training.clips import ClipRequest
from hapvr.training.config import DataConfig
from hapvr.training.sources import derive_seed, draw_batch
from hapvr.training.stream_loader import StreamConfig
from hapvr.training.streaming import StreamedClips
from hapvr.video.packed_writer import PackedWriter
from measure import machine, seconds
from train_step import build, random_clips

STEP_S = 0.34  # of the paper's step on an H200, from memory
DRAWN = 64  # different pictures
LONGER = 2  # frames of a video over those of a window


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of shards; drawn if it is not there")
    parser.add_argument("--memory", type=float, default=2.0, help="GiB that clips may take")
    parser.add_argument("--times", type=float, default=10.0, help="the set, decoded, over that")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--frames", type=int, default=28, help="of a view; a window has twice as many")
    parser.add_argument("--picture", type=int, nargs=2, default=(455, 256), help="width and height")
    parser.add_argument("--side", type=int, default=256, help="of squares; 0: whole frames")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--buffer", type=int, default=0, help="videos that are shuffled at a time; 0: all")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    if arguments.small:
        arguments.memory, arguments.batch, arguments.frames, arguments.steps = 0.01, 4, 4, 3
        arguments.picture, arguments.side = (64, 48), 32
    side = arguments.side or None
    window = 2 * arguments.frames
    width, height = arguments.picture if side is None else (side, side)
    clip_bytes = window * width * height * 3
    videos = max(2 * arguments.batch, round(arguments.times * arguments.memory * 2**30 / (LONGER * clip_bytes)))
    if not arguments.folder.exists():
        make_set(arguments.folder, videos, LONGER * window, tuple(arguments.picture))
    with MemoryWatch() as watch:
        began = time.perf_counter()
        clips = open_stream(arguments, side)
        opened_s = time.perf_counter() - began
        figures = {"videos": len(clips), "decoded GiB": len(clips) * LONGER * clip_bytes / 2**30}
        figures |= {"opening s": opened_s, "indexed GiB": watch.grown()}
        words = f"{arguments.batch} clips of {window} frames a step, {clip_bytes / 2**20:.1f} MiB each"
        print(f"{machine()}, {os.cpu_count()} cores; {words}")
        figures |= measure_rate(clips, arguments, window)
        clips.close()
        figures["peak GiB"] = watch.peak()
    figures["decoded / peak"] = figures["decoded GiB"] / figures["peak GiB"]
    need = arguments.batch / STEP_S
    figures |= {"needed clips a second": need, "rate / need": figures["clips a second"] / need}
    if arguments.train:
        figures |= measure_steps(arguments, side)
    for name, value in figures.items():
        print(f"  {name:<34} {value:12.3f}")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps({"machine": machine(), **figures}, indent=2))


def open_stream(arguments: argparse.Namespace, side: int | None) -> StreamedClips:
    config = StreamConfig(
        memory_bytes=int(arguments.memory * 2**30), workers=arguments.workers, buffer=arguments.buffer
    )
    return StreamedClips.from_folder(arguments.folder, size=side, device=arguments.device, config=config)


def measure_rate(clips: StreamedClips, arguments: argparse.Namespace, window: int) -> dict[str, float]:
    """Clips a second when nothing else is done, after the processes have started."""
    data = DataConfig(batch=arguments.batch)

    def request(step: int) -> ClipRequest:
        return ClipRequest(draw_batch(clips, step, data, seed=0, alike=None), window, derive_seed(0, 1, step))

    began = time.perf_counter()
    clips.fetch(0, request)
    first_s = time.perf_counter() - began
    warm = 3  # what was decoded ahead while the first was awaited
    for step in range(1, 1 + warm):
        clips.fetch(step, request)
    began, worked = time.perf_counter(), cpu_seconds()
    for step in range(1 + warm, 1 + warm + arguments.steps):
        clips.fetch(step, request)
    took, worked = time.perf_counter() - began, cpu_seconds() - worked
    count = arguments.steps * arguments.batch
    rate, core_s = count / took, worked / count
    return {"first step s": first_s, "clips a second": rate, "frames a second": rate * window,
            "core seconds a clip": core_s, "cores for the need": core_s * arguments.batch / STEP_S}  # fmt: skip


def measure_steps(arguments: argparse.Namespace, side: int | None) -> dict[str, float]:
    """Seconds of whole training steps, from memory and streamed."""
    device = torch.device(arguments.device)
    compiled = device.type == "cuda"
    pairs, frames = arguments.batch, arguments.frames
    size = 224 if arguments.picture[1] >= 224 else 112
    config, encoder, trainer = build(device, pairs, frames, size, micro_batch=1792, compiled=compiled)
    figures = {}
    memory = random_clips(4 * pairs, 2 * frames, side or arguments.picture[1], device)
    stream = open_stream(arguments, side)
    for name, clips in (("in memory", memory), ("streamed", stream)) * 2:  # the first round warms up
        source = ClipSource(clips, encoder, config.data, views=config.views, seed=0)
        trainer.done = 0
        trainer.step(source)
        trainer.clock.exact = False
        figures[f"step {name} s"] = seconds(
            lambda source=source: [trainer.step(source) for _ in range(5)], repeats=3, warm_up=1  # type: ignore[misc]
        ) / 5  # fmt: skip
    stream.close()
    figures["streamed / in memory"] = figures["step streamed s"] / figures["step in memory s"]
    return figures


def make_set(folder: Path, videos: int, frames: int, size: tuple[int, int]) -> None:
    """Shards of videos, of pictures that are drawn once."""
    rng, began = np.random.default_rng(0), time.perf_counter()
    pictures = draw_video(0, DRAWN, size)
    with PackedWriter(folder, attributes={"fps": 1.0, "min_frames": 0}) as writer:
        for number in range(videos):
            chosen = [pictures[place] for place in rng.integers(0, DRAWN, frames)]
            writer.add_encoded(f"video {number}", chosen, np.arange(frames, dtype=np.float64), size=size)
    took, kib = time.perf_counter() - began, sum(map(len, pictures)) / DRAWN / 1024
    print(f"drew {videos} videos of {frames} frames ({kib:.1f} KiB each) in {took:.0f} s")


def list_processes() -> list[str]:
    """This process and its children."""
    own = os.getpid()
    return [str(own), *Path(f"/proc/{own}/task/{own}/children").read_text().split()]


def cpu_seconds() -> float:
    """What these have used of all cores so far."""
    ticks = 0
    for process in list_processes():
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


class MemoryWatch:
    """The memory of this process and its children, looked at ten times a second."""

    def __enter__(self) -> MemoryWatch:
        self._before = self._now()
        self._most, self._done = self._before, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def grown(self) -> float:
        return max(0.0, self._now() - self._before)

    def peak(self) -> float:
        return self._most - self._before

    def _watch(self) -> None:
        while not self._done.wait(0.1):
            self._most = max(self._most, self._now())

    def _now(self) -> float:
        """GiB, each page shared out among those who have it."""
        total = 0
        for process in list_processes():
            try:
                rows = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
                total += sum(int(row.split()[1]) for row in rows if row.startswith("Pss:"))
            except OSError:  # it has ended
                continue
        return total / 2**20


if __name__ == "__main__":
    main()
