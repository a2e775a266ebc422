"""Monitoring a drawn stream with planted clips: which are found, how soon, what else is reported, and memory.

    python benchmarks/monitor.py                       # 10 minutes, 6 clips of 12 s, 20 films in the library
    python benchmarks/monitor.py --videos FOLDER       # the same with videos of your own: the first are planted

The stream is a file that is read as fast as it is searched. A delay is in seconds of the stream, from the first frame
of a clip to the search that found it. Memory is the sum over all processes (RSS), at the first and the last event.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hapvr.library import Library
from hapvr.synthetic.clip import Clip
from hapvr.synthetic.clip_files import write_clip
from hapvr.synthetic.films import draw_scene
from hapvr.video.decode import decode
from hapvr.video.video_files import find_videos
from measure import held_bytes, machine

FPS, SIZE = 6, (144, 192)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--clips", type=int, default=6)
    parser.add_argument("--films", type=int, default=20, help="in the library")
    parser.add_argument("--clip-seconds", type=float, default=12.0)
    parser.add_argument("--videos", type=Path, help="a folder of videos; drawn films if not given")
    arguments = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as scratch:
        run(Path(scratch), arguments)


def run(folder: Path, arguments: argparse.Namespace) -> None:
    (folder / "films").mkdir()
    known, strangers = split_films(arguments)
    films = {f"{number:02}.mp4": film for number, film in enumerate(known)}
    for name, film in films.items():
        write_clip(film, folder / "films" / name)
    planted = write_stream(folder / "stream.mp4", list(films.items())[: arguments.clips], strangers, arguments)
    with Library.open(folder / "library", create=True) as library:
        library.add([folder / "films"])
        started, false = time.perf_counter(), 0
        held: list[int] = []
        found: dict[str, float] = {}
        for event in library.monitor(str(folder / "stream.mp4")):
            held.append(held_bytes(os.getpid()))
            if event.kind != "match" or event.match is None:
                continue
            name = Path(event.match.path).name
            begin = planted.get(name)
            if begin is None or not begin - 2 <= event.match.stream[0] <= begin + arguments.clip_seconds:
                false += 1
                print(f"  false: {name} at {event.match.stream[0]:.1f} s, probability {event.match.probability}")
            else:
                found.setdefault(name, event.match.found_s - begin)
        seconds = time.perf_counter() - started
    print(f"found {len(found)} of {len(planted)}; delays {[round(one, 1) for one in found.values()]} s; false {false}")
    print(f"{60 * arguments.minutes / seconds:.1f} seconds of the stream a second")
    if held:
        print(f"memory at the first event {held[0] / 2**20:,.0f} MiB, at the last {held[-1] / 2**20:,.0f} MiB")


def split_films(arguments: argparse.Namespace) -> tuple[list[Clip], Iterator[Clip]]:
    """The films of the library, and others without an end."""
    if arguments.videos is None:
        known = [draw_scene(seed, seconds=30, fps=FPS, size=SIZE) for seed in range(arguments.films)]
        return known, (draw_scene(1000 + seed, seconds=25, fps=FPS, size=SIZE) for seed in range(10_000))
    paths = list(find_videos([arguments.videos]).values())
    clips = [read_clip(path) for path in paths]
    known = [clip for clip in clips if clip.seconds > arguments.clip_seconds + 2][: arguments.films]
    others = [clip for clip in clips if all(clip is not one for one in known)]
    return known, (others[number % len(others)] for number in range(10_000))


def read_clip(path: Path) -> Clip:
    images = decode(path, fps=FPS, short_side=SIZE[0], min_frames=0, crop_bars=False, end_s=60.0).images
    height, width = SIZE
    left = max(0, (images.shape[2] - width) // 2)
    square = images[:, :height, left : left + width]
    pad = ((0, 0), (0, height - square.shape[1]), (0, width - square.shape[2]), (0, 0))
    return Clip(np.pad(square, pad), FPS)


def write_stream(
    path: Path, clips: list[tuple[str, Clip]], strangers: Iterator[Clip], arguments: argparse.Namespace
) -> dict[str, float]:
    """Strangers, and between them a part of each clip; where it begins, in seconds."""
    rng = random.Random(0)
    count, length = round(arguments.minutes * 60 * FPS), round(arguments.clip_seconds * FPS)
    slot = count // len(clips)
    planted: dict[str, float] = {}
    parts: list[np.ndarray] = []
    for name, clip in clips:
        before = rng.randrange(0, slot - length)
        first = rng.randrange(0, len(clip.images) - length)
        planted[name] = (sum(map(len, parts)) + before) / FPS
        parts += [*fill(strangers, before), clip.images[first : first + length]]
        parts += fill(strangers, slot - length - before)
    write_clip(Clip(np.concatenate(parts), FPS), path, crf=28)
    return planted


def fill(strangers: Iterator[Clip], count: int) -> Iterator[np.ndarray]:
    """So many frames of strangers."""
    while count > 0:
        images = next(strangers).images[:count]
        count -= len(images)
        yield images


if __name__ == "__main__":
    main()
