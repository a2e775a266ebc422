"""Reading stored features and packed frames: GiB/s of region vectors, frames/s of pictures.

    python benchmarks/files.py                       # 24 videos of about 106 frames x 9 x 512, 400 frames of 224 x 398

Baselines in the same run: `plain h5py`, a loop `file[id][:]`, over a file as published (float32, gzip, h5py's own
chunks) and over ours; `plain Pillow`, one JPEG file a frame, opened one after another. Figures count the bytes of the
vectors in float32, whatever they take on disk, and include the checks. Files are in the system's cache: this is
unpacking, not the disk.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from PIL import Image

from hapvr.features import FeatureFile, Features, FeatureWriter, PackedFrames, PackedWriter
from measure import lengths, machine, seconds, video


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--videos", type=int, default=24)
    parser.add_argument("--frames", type=int, default=400, help="packed frames, in videos of 50")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, help="threads; by default one per core")
    parser.add_argument("--json", help="write the figures here too")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    figures: dict[str, float] = {}
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        measure_features(Path(folder), arguments, figures)
        measure_packed(Path(folder), arguments, figures)
    for name, value in figures.items():
        print(f"  {name:<58} {value:10.3f}")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"machine": machine(), **figures}, file, indent=2)


def measure_features(folder: Path, arguments: argparse.Namespace, figures: dict[str, float]) -> None:
    frames = lengths(arguments.videos, torch.Generator().manual_seed(0))
    videos = {f"{number % 7}/{number}": video(length, "cpu") for number, length in enumerate(frames)}
    gib = sum(regions.nbytes for regions in videos.values()) / 2**30

    def rate(function: Callable[[], object]) -> float:
        return gib / seconds(function, repeats=arguments.repeats)

    published = folder / "published.h5"
    with h5py.File(published, "w") as file:
        for id, regions in videos.items():
            file.create_dataset(id, data=regions.numpy(), compression="gzip")
    files = {"published float32 gzip": published}
    for dtype in ("float32", "float16"):
        for compression in ("gzip", None):
            path = files[f"our {dtype} {compression or 'uncompressed'}"] = folder / f"{dtype}-{compression}.h5"
            write(path, videos, dtype=dtype, compression=compression, sync=False)
    for name, path in files.items():
        figures[f"{name}: size, of float32 uncompressed"] = path.stat().st_size / 2**30 / gib
        figures[f"{name}: plain h5py, GiB/s"] = rate(lambda path=path: plain_loop(path, videos))  # type: ignore[misc]
        with FeatureFile.open(path) as opened:
            figures[f"{name}: file[id], GiB/s"] = rate(lambda opened=opened: [opened[id] for id in opened])  # type: ignore[misc]
            figures[f"{name}: stream, GiB/s"] = rate(
                lambda opened=opened: sum(len(features) for _, features in opened.stream(workers=arguments.workers))  # type: ignore[misc]
            )
    few = dict(list(videos.items())[:8])
    part = sum(regions.nbytes for regions in few.values()) / 2**30
    for compression in ("gzip", None):
        for sync in (True, False):

            def written(compression: str | None = compression, sync: bool = sync) -> None:
                path = folder / "written.h5"
                path.unlink(missing_ok=True)
                write(path, few, dtype="float32", compression=compression, sync=sync)

            name = f"write float32 {compression or 'uncompressed'}, sync {'on' if sync else 'off'}, GiB/s"
            figures[name] = part / seconds(written, repeats=1, warm_up=0)


def write(path: Path, videos: dict[str, torch.Tensor], **settings: Any) -> None:
    with FeatureWriter(path, **settings) as writer:
        for id, regions in videos.items():
            writer.add(id, Features(regions, np.arange(len(regions), dtype=np.float64)))


def plain_loop(path: Path, ids: dict[str, torch.Tensor]) -> None:
    with h5py.File(path, "r") as file:
        for id in ids:
            torch.from_numpy(file[id][:]).float()


def measure_packed(folder: Path, arguments: argparse.Namespace, figures: dict[str, float]) -> None:
    generator = np.random.default_rng(0)
    coarse = generator.integers(0, 256, (50, 14, 25, 3), dtype=np.uint8)
    grain = generator.integers(0, 12, (224, 398, 3), dtype=np.uint8)
    images = np.stack([np.asarray(Image.fromarray(image).resize((398, 224))) // 2 + grain for image in coarse])
    count = max(1, arguments.frames // len(images))
    total: int = count * len(images)

    def pack() -> None:
        target = Path(tempfile.mkdtemp(dir=folder))
        with PackedWriter(target) as writer:
            for number in range(count):
                writer.add(str(number), images, np.arange(len(images), dtype=np.float64))
        pack.target = target  # type: ignore[attr-defined]

    figures["packed frames: write, frames/s"] = total / seconds(pack, repeats=1, warm_up=0)
    packed = PackedFrames.open(pack.target, workers=arguments.workers)  # type: ignore[attr-defined]
    loose = folder / "loose"
    loose.mkdir()
    for index, image in enumerate(images):
        Image.fromarray(image).save(loose / f"{index}.jpg", quality=90)
    paths = sorted(loose.iterdir())

    def rate(function: Callable[[], object]) -> float:
        per_round = seconds(function, repeats=arguments.repeats)
        return total / per_round

    figures["plain Pillow over loose files, frames/s"] = rate(
        lambda: [np.asarray(Image.open(path)).shape for _ in range(count) for path in paths]
    )
    figures["packed frames: frames(id), frames/s"] = rate(lambda: [packed.frames(id) for id in packed])
    figures["packed frames: load_all, frames/s"] = rate(lambda: [len(images) for _, images, _ in packed.load_all()])
    figures["packed frames: load_all(size=224), frames/s"] = rate(
        lambda: [len(images) for _, images, _ in packed.load_all(size=224)]
    )


if __name__ == "__main__":
    main()
