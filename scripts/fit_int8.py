"""Fit how a model's backbone is rounded to int8, on frames of videos that nothing is measured on, and keep it with it.

    python scripts/fit_int8.py MODEL --videos FOLDER [--count 96] [--dry]
    python scripts/fit_int8.py MODEL --describe MADE FILE

Of `count` videos, chosen by a seed, one frame each is taken, at a random place. Then 1 - cosine of the region vectors
of as many other frames is printed: by OpenVINO in int8, which runs without VNNI too, but may overflow there. MODEL is
a name or a folder.

--describe measures nothing and fits nothing: it writes features in int8 of the videos of a made benchmark, which
`hapvr evaluate MADE --features FILE [--query-features OTHER]` measures. Without it, evaluation has no int8.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

from hapvr.evaluation.benchmarks import open_benchmark
from hapvr.evaluation.extraction import extract_videos
from hapvr.features.engine import OpenVinoEngine
from hapvr.features.extractor import RegionExtractor, centre_pictures
from hapvr.features.int8_convolutions import fit_rounding
from hapvr.features.regions import regions_of_pooled
from hapvr.model import find_model_folder, load, save_rounding
from hapvr.video.decode import decode_sampled
from hapvr.video.video_files import find_videos


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a model's name or folder")
    parser.add_argument("--videos", type=Path, help="a folder of videos")
    parser.add_argument("--describe", type=Path, nargs=2, metavar=("MADE", "FILE"), help="write features in int8")
    parser.add_argument("--count", type=int, default=96, help="frames to fit on, and as many to try")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dry", action="store_true", help="print, but do not write into the model")
    arguments = parser.parse_args()
    if arguments.describe:
        describe(arguments.model, *arguments.describe)
        return
    if arguments.videos is None:
        parser.error("give --videos or --describe")
    extractor = load(arguments.model, engine="torch").extractor
    pictures = draw_frames(extractor, arguments.videos, 2 * arguments.count, arguments.seed)
    rounding = fit_rounding(extractor.backbone, pictures[: arguments.count])
    others = pictures[arguments.count :]
    rounded = OpenVinoEngine(
        extractor.backbone, side=extractor.sampling.crop, precision=torch.float32, rounding=rounding
    )
    found, right = regions_of_pooled(rounded(others), extractor.whitening), extractor.regions(others)
    distance = 1 - (found * right).sum(dim=-1)
    print(f"{len(rounding.layers)} layers; 1 - cosine: mean {distance.mean():.5f}, largest {distance.max():.5f}")
    if not arguments.dry:
        print(f"written to {save_rounding(find_model_folder(arguments.model), rounding)}")


def describe(model: str, made: Path, out: Path) -> None:
    """Features of a made benchmark's videos, in int8."""
    extractor = load(model, engine="openvino", int8=True).extractor
    if extractor.rounding is None:
        raise SystemExit("Nothing runs in int8 here: the model has no part 'int8', or this CPU gains nothing by it.")
    truth = open_benchmark(str(made))
    files = {id: Path(path) for id, path in (truth.files or {}).items()}
    report = extract_videos(extractor, files, out, model=model)
    print(f"{len(files) - len(report.failed)} videos described in {out}; {len(report.failed)} failed")


def draw_frames(extractor: RegionExtractor, folder: Path, count: int, seed: int) -> torch.Tensor:
    """One frame each of `count` videos: uint8 [count, S, S, 3]."""
    rng = np.random.default_rng(seed)
    files = list(find_videos([folder]).values())
    frames = []
    for index in rng.permutation(len(files))[:count]:
        parts = [part.images for part in decode_sampled(files[index], extractor.sampling)]
        images = np.concatenate(parts)
        frames.append(torch.from_numpy(images[[rng.integers(len(images))]]))
    return torch.cat([centre_pictures(frame, extractor.sampling.crop) for frame in frames])


if __name__ == "__main__":
    main()
