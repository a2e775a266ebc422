"""Peak memory and time of `hapvr compare` on a long film: a clip of it is looked for in the film.

    python benchmarks/compare_memory.py                        # a film of two hours at 720p, a clip of a minute
    python benchmarks/compare_memory.py --minutes 10           # a shorter film
    python benchmarks/compare_memory.py --source OTHER/src     # with the source of another checkout

Eight scenes are drawn and then repeated, in turn, by copying their packets with later times, at two frames a second:
making the film takes a minute or two, and `--folder` keeps it for the next run. Memory is the sum over the command and
its child processes of what they hold (RSS), sampled twenty times a second. The command takes several minutes on two
cores.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import av

from hapvr.synthetic.clip_files import write_clip
from hapvr.synthetic.films import draw_scene
from measure import held_bytes

FPS, SCENE_S, SCENES = 2.0, 24.0, 8
SIZE = 720, 1280  # height, width


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=120.0, help="length of the film")
    parser.add_argument("--clip-seconds", type=float, default=60.0, help="length of the clip")
    parser.add_argument("--model", help="name or folder of a model")
    parser.add_argument("--html", action="store_true", help="write the page as well")
    parser.add_argument("--source", help="folder that holds the package to run; the one installed if not given")
    parser.add_argument("--folder", type=Path, help="where the videos are made, or were; a temporary one if not given")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        scenes = [draw(folder, seed) for seed in range(SCENES)]
        film, clip = folder / f"film-{arguments.minutes:g}.mp4", folder / f"clip-{arguments.clip_seconds:g}.mp4"
        copy_packets(itertools.cycle(scenes), film, seconds=60 * arguments.minutes)
        copy_packets(itertools.cycle(scenes[3:]), clip, seconds=arguments.clip_seconds)
        start_cli = "from hapvr.cli import main; main()"
        command = [sys.executable, "-c", start_cli, "compare", str(clip), str(film), "--json"]
        command += ["--model", arguments.model] if arguments.model else []
        command += ["--html", str(Path(scratch) / "match.html")] if arguments.html else []
        print(f"{os.cpu_count()} cores ({platform.machine()}), a clip of {arguments.clip_seconds:g} s and a film of "
              f"{arguments.minutes:g} min at {SIZE[1]}x{SIZE[0]}", flush=True)  # fmt: skip
        start = time.perf_counter()
        answer, peak = run(command, arguments.source)
        wall = time.perf_counter() - start
    print(f"score {answer['score']:.7f}, {len(answer['segments'])} segments")
    print(f"peak memory {peak / 1e9:.2f} GB, {wall:.0f} s")


def draw(folder: Path, seed: int) -> Path:
    path = folder / f"scene-{seed}.mp4"
    if not path.exists():
        write_clip(draw_scene(seed, seconds=SCENE_S, fps=FPS, size=SIZE), path)
        print(f"drew scene {seed + 1} of {SCENES}", flush=True)
    return path


def copy_packets(sources: Iterable[Path], path: Path, *, seconds: float) -> None:
    """Write a file of the packets of one source after another, until it is so long."""
    if path.exists():
        return
    count, wanted = 0, round(seconds * FPS)
    with av.open(str(path), "w") as output:
        stream: Any = None
        for source in sources:
            with av.open(str(source)) as container:
                first: Any = container.streams.video[0]
                stream = stream or output.add_stream_from_template(first)
                for packet in container.demux(first):
                    if packet.dts is None:
                        continue
                    if count == wanted:
                        return
                    packet.pts = packet.dts = round(count / FPS / first.time_base)
                    packet.time_base, packet.stream = first.time_base, stream
                    output.mux(packet)
                    count += 1


def run(command: list[str], source: str | None) -> tuple[dict[str, Any], int]:
    """What the command printed, as JSON, and the most bytes that it and its children held."""
    environment = dict(os.environ) | ({"PYTHONPATH": source} if source else {})
    peak = 0
    with (
        tempfile.TemporaryFile() as printed,
        subprocess.Popen(command, stdout=printed, env=environment) as process,
    ):
        while process.poll() is None:
            peak = max(peak, held_bytes(process.pid))
            time.sleep(0.05)
        if process.returncode:
            sys.exit(f"The command failed with code {process.returncode}.")
        printed.seek(0)
        return json.loads(printed.read()), peak


if __name__ == "__main__":
    main()
