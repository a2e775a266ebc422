"""Fit how a model's backbone is rounded to int8, on frames of videos that nothing is measured on, and keep it with it.

    python scripts/fit_int8.py MODEL --videos FOLDER [--count 96] [--dry]
    python scripts/fit_int8.py MODEL --scores FOLDER [--count 12]
    python scripts/fit_int8.py MODEL --describe MADE FILE

Of `count` videos, chosen by a seed, one frame each is taken, at a random place. The convolutions in EXACT are left in
float32: of those that change region vectors most when they are rounded, the ones that gain little time by it. Then as
many other frames are described in float32 and in int8, and 1 - cosine of their region vectors is printed, and the time
that OpenVINO takes. It runs without VNNI too, but products may overflow there. MODEL is a name or a folder.

--scores fits nothing: it compares `count` clips with each other, described in float32, in int8 and by torch in
bfloat16, and prints how far scores are from those in float32.
--describe measures nothing and fits nothing: it writes features in int8 of the videos of a made benchmark, which
`hapvr evaluate MADE --features FILE [--query-features OTHER]` measures. Without it, evaluation has no int8.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from hapvr.evaluation.benchmarks import open_benchmark
from hapvr.evaluation.extraction import extract_videos
from hapvr.features.engine import OpenVinoEngine
from hapvr.features.extractor import RegionExtractor, centre_pictures
from hapvr.features.int8_convolutions import fit_rounding
from hapvr.features.regions import regions_of_pooled
from hapvr.model import find_model_folder, load, save_rounding
from hapvr.similarity import pairwise
from hapvr.video.decode import decode_sampled
from hapvr.video.video_files import find_videos

EXACT = {
    "efficientnet_lite0": (
        "_blocks.0._project_conv",
        "_blocks.1._expand_conv",
        "_blocks.1._project_conv",
        "_blocks.2._expand_conv",
        "_blocks.3._expand_conv",
        "_blocks.8._expand_conv",
    )
}  # by backbone


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a model's name or folder")
    parser.add_argument("--videos", type=Path, help="a folder of videos")
    parser.add_argument("--scores", type=Path, metavar="FOLDER", help="print how scores of these clips change")
    parser.add_argument("--describe", type=Path, nargs=2, metavar=("MADE", "FILE"), help="write features in int8")
    parser.add_argument("--count", type=int, help="frames to fit on and as many to try, 96; clips of --scores, 12")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dry", action="store_true", help="print, but do not write into the model")
    arguments = parser.parse_args()
    if arguments.describe:
        describe(arguments.model, *arguments.describe)
        return
    if arguments.scores:
        compare_scores(arguments.model, arguments.scores, arguments.count or 12)
        return
    if arguments.videos is None:
        parser.error("give --videos, --scores or --describe")
    count = arguments.count or 96
    extractor = load(arguments.model, engine="torch").extractor
    pictures = draw_frames(extractor, arguments.videos, 2 * count, arguments.seed)
    backbone = extractor.backbone
    rounding = fit_rounding(backbone, pictures[:count], exact=EXACT.get(backbone.name, ()))
    others = pictures[count:]
    side = extractor.sampling.crop
    engines = [
        OpenVinoEngine(extractor.backbone, side=side, precision=torch.float32, rounding=one) for one in (None, rounding)
    ]
    times: list[list[float]] = [[], []]
    for batch in torch.split(others, 8):
        for engine, used in zip(engines, times, strict=True):  # in turns
            start = time.process_time()
            engine(batch)
            used.append(1000 * (time.process_time() - start) / len(batch))
    right, found = (regions_of_pooled(engine(others), extractor.whitening) for engine in engines)
    distance = 1 - (found * right).sum(dim=-1)
    print(f"{len(rounding.layers)} layers; 1 - cosine: mean {distance.mean():.5f}, largest {distance.max():.5f}")
    for name, used in zip(("float32", "int8"), times, strict=True):
        print(f"  {name}: {min(used):.2f} ms of a processor a picture at best, {statistics.median(used):.2f} usually")
    if not arguments.dry:
        print(f"written to {save_rounding(find_model_folder(arguments.model), rounding)}")


def compare_scores(name: str, folder: Path, count: int) -> None:
    """Print how far scores of the first clips of a folder are from those in float32, and their regions."""
    model, extractor = load(name), load_rounded(name)
    files = list(find_videos([folder]).values())[:count]
    clips = [read_frames(file, extractor) for file in files]
    parts = extractor.backbone, extractor.whitening
    sampling = extractor.sampling
    ways = {
        "float32": RegionExtractor(*parts, sampling=sampling, precision=torch.float32),
        "int8": extractor,
        "torch, bfloat16": RegionExtractor(*parts, sampling=sampling, precision=torch.bfloat16, engine="torch"),
    }
    described = {way: [one(clip) for clip in clips] for way, one in ways.items()}
    exact = described.pop("float32")
    right = pairwise(model.similarity, exact, exact)
    print(f"{len(clips)} clips, {sum(map(len, clips))} frames, scores from {right.min():.2f} to {right.max():.2f}")
    for way, videos in described.items():
        both, mixed = ((pairwise(model.similarity, videos, other) - right).abs() for other in (videos, exact))
        distance = 1 - (torch.cat(videos) * torch.cat(exact)).sum(dim=-1).mean()
        changes = f"both {both.max():.4f} ({both.mean():.4f}), mixed {mixed.max():.4f} ({mixed.mean():.4f})"
        print(f"{way}: {changes}, 1 - cosine {distance:.5f}")


def load_rounded(name: str) -> RegionExtractor:
    """A model's extractor that runs in int8."""
    extractor = load(name, engine="openvino", int8=True).extractor
    if extractor.rounding is None:
        raise SystemExit("Nothing runs in int8 here: the model has no part 'int8', or this CPU gains nothing by it.")
    return extractor


def describe(model: str, made: Path, out: Path) -> None:
    """Features of a made benchmark's videos, in int8."""
    extractor = load_rounded(model)
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
        images = read_frames(files[index], extractor)
        frames.append(torch.from_numpy(images[[rng.integers(len(images))]]))
    return torch.cat([centre_pictures(frame, extractor.sampling.crop) for frame in frames])


def read_frames(file: Path, extractor: RegionExtractor) -> NDArray[np.uint8]:
    """The frames of a video, uint8 [T, H, W, 3]."""
    return np.concatenate([part.images for part in decode_sampled(file, extractor.sampling)])


if __name__ == "__main__":
    main()
