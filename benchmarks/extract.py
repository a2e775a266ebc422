"""Extraction of whole folders: frames a second, against a plain loop and against its own parts; the memory it takes.

    python benchmarks/extract.py                              # drawn clips and drawn 1080p30 films, on the CPU
    python benchmarks/extract.py --videos DIR                 # clips of your own
    python benchmarks/extract.py --engines                    # OpenVINO against torch, alone and on files, and no more
    python benchmarks/extract.py --before CHECKOUT            # files, by another version's code and this one in turns
    python benchmarks/extract.py --memory                     # and peak memory at two lengths and two folder sizes
    python benchmarks/extract.py --gpu packed --make 40000    # packed JPEG frames through a GPU; drawn first

On the CPU, measured in turns within each round, and the ratios taken round by round:
- `whole`: `extract_files`, start of the processes included;
- `plain loop`: every frame decoded by PyAV, those wanted resized by Pillow, batches of 16 in float32, one by one;
- `decode` and `backbone`: the same work apart, each on all cores: reading all videos and dropping the pictures (the
  start of the processes taken off), and describing as many pictures that lie in memory;
- `overlap` is (decode + backbone) / whole: 1 means that the two share the cores without loss.
- `torch`: `extract_files` with torch as the engine of the backbone, and batches of 16 in memory with either engine.
- `--before`: `extract_files` of another checkout of hapvr and of this one, with the engine that libraries use, and
  again with HAPVR_INT8=off; each in a new process that has made its engine. By the clock, and the processor time of
  all processes; the start of those that read included.
`time error` is the largest distance of a frame from the instant it stands for, in sampling steps; half a step is the
bound. r50 has random weights unless --r50 names a model: speed does not depend on them.

On a GPU: `end to end` from the packed files to float16 features on the host; `JPEG alone` and `backbone alone` are its
parts. Memory is the sum over all processes of what they hold (RSS), sampled twenty times a second.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from hapvr.backbones import build_backbone
from hapvr.features import Features, PackedFrames, PackedWriter, Whitening, extract_regions
from hapvr.features.extractor import RegionExtractor
from hapvr.features.video_extraction import default_workers, extract_files, extract_packed
from hapvr.video.frame_tasks import VideoTask, read_video
from hapvr.video.packed_frames import PackedTask, read_packed
from hapvr.video.pictures import encode_jpeg
from hapvr.video.sampling import SamplingConfig
from hapvr.video.video_files import find_videos
from hapvr.workers.pool import Block, WorkerPool
from measure import held_bytes, machine, seconds

SAMPLING = SamplingConfig()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["lite", "r50"], choices=["lite", "r50"])
    parser.add_argument("--r50", help="name or folder of an r50 model; random weights if not given")
    parser.add_argument("--videos", help="a folder of small clips; drawn ones if not given")
    parser.add_argument("--clips", type=int, default=12, help="clips to draw, or to take from --videos")
    parser.add_argument("--film-seconds", type=float, default=20.0, help="of each of two drawn 1080p films")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, help="decoding processes")
    parser.add_argument("--engines", action="store_true", help="compare the engines, and nothing else")
    parser.add_argument("--before", metavar="CHECKOUT", help="compare with another version's code, and nothing else")
    parser.add_argument("--memory", action="store_true", help="measure peak memory too")
    parser.add_argument("--gpu", metavar="PACKED", help="a folder of packed frames")
    parser.add_argument("--make", type=int, help="draw so many frames into it first")
    parser.add_argument("--picture", type=int, nargs=2, default=(256, 256), metavar=("W", "H"), help="of drawn frames")
    parser.add_argument("--device", default="cuda", help="for --gpu")
    parser.add_argument("--batch", type=int, help="for --gpu")
    parser.add_argument("--compile", action="store_true", help="for --gpu: torch.compile the backbone")
    parser.add_argument("--json", help="write the figures here too")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    if arguments.child:
        child(Path(arguments.child))
        return
    figures: dict[str, float] = {}

    def report(name: str, value: float) -> None:
        figures[name] = value
        print(f"  {name:<52} {value:12,.0f}" if value >= 1000 else f"  {name:<52} {value:12.3f}", flush=True)

    print(f"{machine()}, {os.cpu_count()} cores", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        if arguments.gpu:
            measure_packed(arguments, report)
        else:
            measure_files(Path(scratch), arguments, report)
            if arguments.memory:
                measure_memory(Path(scratch), report)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"machine": machine(), **figures}, file, indent=2)


def extractor_of(name: str, r50: str | None = None, **settings: Any) -> RegionExtractor:
    if name == "lite" or r50:
        from hapvr.model import load

        found = load(r50 or "lite" if name == "r50" else "lite").extractor
        return RegionExtractor(found.backbone, found.whitening, sampling=found.sampling, **settings)
    backbone = build_backbone("resnet50")
    whitening = Whitening(torch.zeros(3840), torch.randn(3840, 512) / 60)
    return RegionExtractor(backbone, whitening, sampling=SAMPLING, **settings)


# --- video files on the CPU ----------------------------------------------------------------------------------------


def measure_files(scratch: Path, arguments: argparse.Namespace, report: Callable[[str, float], None]) -> None:
    if arguments.videos:
        chosen = list(find_videos([arguments.videos]).items())
        clips = dict(chosen[:: max(1, len(chosen) // arguments.clips)][: arguments.clips])
    else:
        clips = draw_clips(scratch / "clips", arguments.clips)
    sets = {"clips": clips}
    if arguments.film_seconds > 0:
        sets["1080p"] = draw_films(scratch / "films", arguments.film_seconds)
    for model in arguments.models:
        if arguments.before:
            for name, files in sets.items():
                compare_versions(f"{model}, {name}", model, files, arguments, report)
            continue
        extractor = extractor_of(model, arguments.r50)
        if arguments.engines:
            measure_engines(model, extractor, sets, arguments, report)
            continue
        for name, files in sets.items():
            measure_set(f"{model}, {name}", extractor, files, arguments, report)


def measure_engines(
    model: str,
    extractor: RegionExtractor,
    sets: dict[str, dict[str, Path]],
    arguments: argparse.Namespace,
    report: Callable[[str, float], None],
) -> None:
    """The engine of this machine against torch, in turns: batches in memory on one core and on all, then files."""
    start = time.perf_counter()
    extractor.regions(torch.zeros((1, 224, 224, 3), dtype=torch.uint8))
    print(f" {model}, {extractor.engine}, {str(extractor.precision)[6:]}")
    report(f"{model}: start of the engine, s", time.perf_counter() - start)
    engines = {
        "torch": RegionExtractor(extractor.backbone, extractor.whitening, sampling=extractor.sampling, engine="torch"),
        extractor.engine: extractor,
    }
    pictures = np.random.default_rng(0).integers(0, 256, (32 * (os.cpu_count() or 1), 224, 224, 3), dtype=np.uint8)
    workers = default_workers(arguments.workers)
    threads = torch.get_num_threads()
    for count in sorted({1, threads}):
        torch.set_num_threads(count)
        compare_engines(
            f"{model}, batches, {count} cores", engines, lambda one: one(pictures), len(pictures), report, arguments
        )
    for name, files in sets.items():
        frames = extract_files(extractor, files, lambda *_: None, workers=workers).frames

        def extract(one: RegionExtractor, files: dict[str, Path] = files) -> object:
            return extract_files(one, files, lambda *_: None, workers=workers)

        compare_engines(f"{model}, {name}", engines, extract, frames, report, arguments)


def compare_engines(
    title: str,
    engines: dict[str, RegionExtractor],
    work: Callable[[RegionExtractor], object],
    frames: int,
    report: Callable[[str, float], None],
    arguments: argparse.Namespace,
) -> None:
    times: dict[str, list[float]] = {name: [] for name in engines}
    used: dict[str, list[float]] = {name: [] for name in engines}  # processor seconds, which busy cores change less
    for one in engines.values():
        work(one)  # warms up
    for _ in range(arguments.rounds):
        for name, one in engines.items():
            before = sum(os.times()[:4])
            times[name].append(timed(lambda one=one: work(one)))  # type: ignore[misc]
            used[name].append(sum(os.times()[:4]) - before)
    for name, values in times.items():
        report(f"{title}: {name}, frames/s", frames / statistics.median(values))
    if len(engines) > 1:
        other = list(engines)[-1]
        report(f"{title}: times torch, by the clock", ratio(times["torch"], times[other]))
        report(f"{title}: times torch, in processor seconds", ratio(used["torch"], used[other]))


# In a new process: MODEL, then files. Prints frames, seconds and processor seconds of the extraction alone, failures.
_EXTRACT = """
import inspect, json, os, sys, time
from pathlib import Path
import torch
from hapvr.features.video_extraction import extract_files
from hapvr.model import load

int8 = {"int8": True} if "int8" in inspect.signature(load).parameters else {}
extractor = load(sys.argv[1], **int8).extractor
side = extractor.sampling.crop
extractor.regions(torch.zeros((1, side, side, 3), dtype=torch.uint8))
files = {name: Path(name) for name in sys.argv[2:]}
used, began = sum(os.times()[:4]), time.perf_counter()
done = extract_files(extractor, files, lambda *_: None)
took = time.perf_counter() - began
print(json.dumps([done.frames, took, sum(os.times()[:4]) - used, len(done.failed)]))
"""


def compare_versions(
    title: str, model: str, files: dict[str, Path], arguments: argparse.Namespace, report: Callable[[str, float], None]
) -> None:
    """`extract_files` of another checkout and of this one, in turns."""
    here = Path(__file__).parents[1]
    versions = {
        "before": (Path(arguments.before), {}),
        "now": (here, {}),
        "now, no int8": (here, {"HAPVR_INT8": "off"}),
    }
    kinds = ("by the clock", "in processor time")
    spent: dict[tuple[str, str], list[float]] = {(version, kind): [] for version in versions for kind in kinds}
    name = arguments.r50 or model if model == "r50" else model
    for _ in range(arguments.rounds):
        for version, (checkout, settings) in versions.items():
            environment = os.environ | {"PYTHONPATH": str(checkout.resolve() / "src")} | settings
            command = [sys.executable, "-c", _EXTRACT, name, *map(str, files.values())]
            run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
            frames, *seconds_spent, failed = json.loads(run.stdout)
            assert failed == 0
            for kind, value in zip(kinds, seconds_spent, strict=True):
                spent[version, kind].append(1000 * value / frames)
    for (version, kind), values in spent.items():
        report(f"{title}: {version}, ms a frame {kind}", statistics.median(values))
    for version, kind in spent:
        if version != "before":
            ratios = sorted(a / b for a, b in zip(spent["before", kind], spent[version, kind], strict=True))
            report(f"{title}: before / {version}, {kind}", statistics.median(ratios))
            print(f"    rounds: {', '.join(f'{value:.2f}' for value in ratios)}", flush=True)


def measure_set(
    title: str,
    extractor: RegionExtractor,
    files: dict[str, Path],
    arguments: argparse.Namespace,
    report: Callable[[str, float], None],
) -> None:
    sampling = extractor.sampling
    workers = default_workers(arguments.workers)
    kept: dict[str, Features] = {}
    whole = extract_files(extractor, files, kept.__setitem__, workers=workers)  # warms up, and counts
    frames, video_s = whole.frames, whole.video_s
    pictures = np.random.default_rng(0).integers(0, 256, (min(frames, 256), 224, 224, 3), dtype=np.uint8)
    times: dict[str, list[float]] = {"whole": [], "plain": [], "decode": [], "backbone": []}

    def bare_backbone() -> None:
        left = frames
        while left > 0:
            extractor(pictures[: min(left, len(pictures))])
            left -= len(pictures)

    tasks = [(id, VideoTask(str(path), sampling, 224)) for id, path in files.items()]
    nothing = [(number, VideoTask(os.devnull, sampling, 224)) for number in range(workers)]
    for _ in range(arguments.rounds):
        times["whole"].append(timed(lambda: extract_files(extractor, files, lambda *_: None, workers=workers)))
        times["decode"].append(timed(lambda: read_all(tasks, workers)) - timed(lambda: read_all(nothing, workers)))
        times["backbone"].append(timed(bare_backbone))
        times["plain"].append(timed(lambda: plain_loop(extractor, files)))
    middle = {name: statistics.median(values) for name, values in times.items()}
    print(f" {title}: {len(files)} files, {video_s:.0f} s of video, {frames} frames, {workers} processes")
    report(f"{title}: whole, frames/s", frames / middle["whole"])
    report(f"{title}: whole, seconds of video a second", video_s / middle["whole"])
    report(f"{title}: plain loop, frames/s", frames / middle["plain"])
    report(f"{title}: times the plain loop", ratio(times["plain"], times["whole"]))
    report(f"{title}: decode alone, frames/s", frames / middle["decode"])
    report(f"{title}: backbone alone, frames/s", frames / middle["backbone"])
    both = [sum(pair) for pair in zip(times["decode"], times["backbone"], strict=True)]
    report(f"{title}: overlap, (decode + backbone) / whole", ratio(both, times["whole"]))
    report(
        f"{title}: time error, steps",
        max(time_error(kept[id], path, sampling) for id, path in files.items() if id in kept),
    )


def timed(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def ratio(above: list[float], below: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


def read_all(tasks: list[tuple[Any, VideoTask]], workers: int) -> None:
    with WorkerPool(read_video, tasks, workers=workers, block_bytes=16 * 224 * 224 * 3, blocks=3) as pool:
        while pool.busy:
            for event in pool.wait():
                if isinstance(event, Block):
                    pool.release(event)


def plain_loop(extractor: RegionExtractor, files: dict[str, Path]) -> None:
    """What one writes first: decode everything, keep what is wanted, describe sixteen at a time."""
    import av

    for path in files.values():
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            duration = float((container.duration or 0) / av.time_base)
            rate = max(extractor.sampling.fps, extractor.sampling.at_least / duration if duration else 0.0)
            pictures: list[Any] = []
            wanted = 0
            for frame in container.decode(stream):
                if frame.time is None or frame.time < wanted / rate - 0.5 / float(stream.average_rate or 25):
                    continue
                wanted += 1
                image = Image.fromarray(frame.to_ndarray(format="rgb24"))
                scale = 256 / min(image.size)
                image = image.resize(
                    (round(image.width * scale), round(image.height * scale)), Image.Resampling.BILINEAR
                )
                left, top = (image.width - 224) // 2, (image.height - 224) // 2
                pictures.append(np.asarray(image.crop((left, top, left + 224, top + 224))))
        for start in range(0, len(pictures), 16):
            batch = torch.from_numpy(np.stack(pictures[start : start + 16])).permute(0, 3, 1, 2) / 255
            with torch.no_grad():
                extract_regions(extractor.backbone, batch, extractor.whitening)


def time_error(features: Features, path: Path, sampling: SamplingConfig) -> float:
    """The largest distance of frame k from instant k / rate, in steps. (Of videos with a constant frame rate.)"""
    from hapvr.video.decode import decode

    times = features.timestamps
    assert times is not None
    rate = decode(path, fps=sampling.fps, min_frames=sampling.at_least, short_side=32).fps
    return float(np.abs(times * rate - np.arange(len(times))).max())


def draw_clips(folder: Path, count: int) -> dict[str, Path]:
    from hapvr.synthetic.clip_files import write_clip
    from hapvr.synthetic.films import draw_scene

    folder.mkdir()
    for number in range(count):
        write_clip(draw_scene(number, seconds=10, fps=12.5), folder / f"{number:03}.mp4")
    return find_videos([folder])


def draw_films(folder: Path, length_s: float) -> dict[str, Path]:
    """Two films in 1080p at 30 frames a second, H.264 with the B-frames that encoders make by default."""
    folder.mkdir()
    for number in range(2):
        write_film(folder / f"{number}.mp4", panned(number, round(30 * length_s), (360, 640)), (1920, 1080), 30)
    return find_videos([folder])


def panned(seed: int, count: int, size: tuple[int, int]) -> Iterator[Any]:
    """Frames of drawn scenes, a new one every three seconds, over which a window moves."""
    from hapvr.synthetic.films import draw_scene

    scene = None
    for index in range(count):
        if index % 90 == 0:
            larger = (size[0] + 60, size[1] + 90)
            scene = draw_scene(100 * seed + index // 90, seconds=1, fps=1, size=larger).images[0]
        at = index % 90
        assert scene is not None
        yield np.ascontiguousarray(scene[at // 2 : at // 2 + size[0], at : at + size[1]])


def write_film(path: Path, pictures: Iterator[Any], size: tuple[int, int], rate: int) -> None:
    import av

    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("libx264", rate=rate, options={"preset": "veryfast", "bf": "3"})
        stream.width, stream.height = size
        stream.pix_fmt = "yuv420p"
        for picture in pictures:
            frame = av.VideoFrame.from_ndarray(picture, "rgb24").reformat(*size, "yuv420p")
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


# --- memory --------------------------------------------------------------------------------------------------------


def measure_memory(scratch: Path, report: Callable[[str, float], None]) -> None:
    for minutes in (10, 40):
        folder = scratch / f"long-{minutes}"
        folder.mkdir()
        write_film(folder / "film.mp4", panned(minutes, 5 * 60 * minutes, (108, 192)), (192, 108), 5)
        peak, frames = peak_of(folder)
        report(f"memory: one video of {minutes} minutes, {frames:,} frames, MiB", peak)
    source = next(iter(draw_clips(scratch / "one", 1).values()))
    for count in (20, 80):
        folder = scratch / f"many-{count}"
        folder.mkdir()
        for number in range(count):
            os.link(source, folder / f"{number}.mp4")
        peak, frames = peak_of(folder)
        report(f"memory: {count} clips, {frames:,} frames, MiB", peak)


def child(folder: Path) -> None:
    from hapvr.features import FeatureWriter

    with FeatureWriter(folder.with_suffix(".h5"), sync=False) as writer:
        done = extract_files(extractor_of("lite"), find_videos([folder]), writer.add)
    print(json.dumps({"frames": done.frames, "failed": len(done.failed)}))


def peak_of(folder: Path) -> tuple[float, int]:
    """Peak memory in MiB of a process, and those it starts, that extracts a folder; and how many frames it did."""
    process = subprocess.Popen([sys.executable, __file__, "--child", str(folder)], stdout=subprocess.PIPE, text=True)
    peak, over = 0.0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not over.wait(0.05):
            peak = max(peak, held_bytes(process.pid) / 2**20)

    watcher = threading.Thread(target=watch)
    watcher.start()
    text, _ = process.communicate()
    over.set()
    watcher.join()
    answer = json.loads(text)
    assert answer["failed"] == 0
    return peak, answer["frames"]


# --- packed frames on a GPU ----------------------------------------------------------------------------------------


def measure_packed(arguments: argparse.Namespace, report: Callable[[str, float], None]) -> None:
    device = torch.device(arguments.device)
    if arguments.make:
        took = timed(lambda: make_packed(Path(arguments.gpu), arguments.make, tuple(arguments.picture)))
        print(f" drew {arguments.make} frames in {took:.0f} s")
    packed = PackedFrames.open(arguments.gpu)
    frames = sum(packed.lengths.values())
    size = sum(path.stat().st_size for path in Path(arguments.gpu).glob("*.tar")) / frames / 1024
    workers = default_workers(arguments.workers, packed=True, gpu=device.type == "cuda")
    print(f" {len(packed)} videos, {frames:,} frames of {size:.1f} KiB; {workers} processes")
    report("JPEG alone, frames/s", frames / unpack_all(packed, workers))
    for model in arguments.models:
        if model == "lite" and arguments.models == ["lite", "r50"] and device.type == "cuda":
            continue  # r50 is what a GPU is for; --models lite asks for the other
        for compiled in (True,) if arguments.compile else (False,):
            extractor = extractor_of(model, arguments.r50, device=device, batch=arguments.batch, compiled=compiled)
            title = (
                f"{model}, {str(extractor.precision)[6:]}, batch {extractor.batch}{', compiled' if compiled else ''}"
            )
            pictures = torch.randint(0, 256, (extractor.batch, 224, 224, 3), dtype=torch.uint8, device=device)
            alone: Any = extractor.regions if device.type == "cuda" else extractor
            took = seconds(lambda alone=alone, pictures=pictures: alone(pictures))  # type: ignore[misc]
            report(f"{title}: backbone alone, frames/s", extractor.batch / took)
            rates = [end_to_end(extractor, packed, workers) for _ in range(arguments.rounds)]
            report(f"{title}: end to end, frames/s", statistics.median(rates))
            report(f"{title}: end to end, best", max(rates))


def end_to_end(extractor: RegionExtractor, packed: PackedFrames, workers: int) -> float:
    """Frames a second from the first call to the last feature on the host, start of the processes included."""
    held = 0

    def take(_: str, features: Features) -> None:
        nonlocal held
        held += len(features)
        assert features.regions.dtype == torch.float16
        assert features.regions.device.type == "cpu"

    done = extract_packed(extractor, packed, take, workers=workers)
    assert held == done.frames == sum(packed.lengths.values()), done.failed[:3]
    return done.frames / done.wall_s


def unpack_all(packed: PackedFrames, workers: int) -> float:
    """Seconds that the processes take to unpack all pictures, which are dropped; less what it takes to start them."""
    tasks = [(id, PackedTask(packed[id], 224)) for id in packed]

    def through(some: list[tuple[str, PackedTask]]) -> None:
        with WorkerPool(read_packed, some, workers=workers, block_bytes=32 * 224 * 224 * 3, blocks=3) as pool:
            while pool.busy:
                for event in pool.wait():
                    if isinstance(event, Block):
                        pool.release(event)

    through(tasks[:workers])
    return timed(lambda: through(tasks)) - timed(lambda: through(tasks[:workers]))


def make_packed(folder: Path, count: int, size: tuple[int, int]) -> None:
    """Drawn frames in videos of 100, of which each is a few KiB as JPEG, as frames of real videos are."""
    with PackedWriter(folder, shard_mib=64) as writer, ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        lengths = [min(100, count - start) for start in range(0, count, 100)]
        jobs = [pool.submit(draw_video, number, length, size) for number, length in enumerate(lengths)]
        for number, job in enumerate(jobs):
            pictures = job.result()
            writer.add_encoded(f"{number:06}", pictures, np.arange(len(pictures), dtype=np.float64), size=size)


def draw_video(seed: int, count: int, size: tuple[int, int]) -> list[bytes]:
    """Soft shapes at three scales that drift from frame to frame, with a little grain: JPEG files."""
    rng = np.random.default_rng(seed)
    wide = (size[0] + 200, size[1])
    scene = np.zeros((wide[1], wide[0], 3))
    for cells, weight in ((6, 0.5), (24, 0.3), (96, 0.2)):
        coarse = rng.integers(0, 256, (cells, cells, 3), dtype=np.uint8)
        scene += weight * np.asarray(Image.fromarray(coarse).resize(wide, Image.Resampling.BICUBIC), np.float64)
    grain = rng.normal(0, 0.7, scene.shape)
    picture = np.clip(scene + grain, 0, 255).astype(np.uint8)
    return [encode_jpeg(np.ascontiguousarray(picture[:, at : at + size[0]]), 90, size) for at in range(0, 2 * count, 2)]


if __name__ == "__main__":
    main()
