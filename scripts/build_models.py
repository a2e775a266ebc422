"""Build the models that hapvr ships, from converted backbones and unlabelled videos and photographs.

    python scripts/build_models.py lite --backbone models/lite0 --videos DIR --photos DIR
    python scripts/build_models.py r50 --backbone models/resnet50 --videos DIR --photos DIR
    python scripts/build_models.py r50 --backbone models/resnet50 --fitted models/r50

The whitening is fitted on the region vectors of the videos (sampled as the model samples) and of the photographs, or
taken from a model that has it already. The network is ViSiL_f: Chamfer on both levels, nothing trained. `lite` carries
its backbone, `r50` names it.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from rich.progress import Progress

from hapvr.backbones import load_backbone
from hapvr.features import Features, Whitening, WhiteningFit
from hapvr.features.extractor import RegionExtractor
from hapvr.features.video_extraction import extract_files
from hapvr.model import save_model
from hapvr.model.fetching import RESNET50
from hapvr.model.parts import SHIPPED
from hapvr.similarity import SegmentConfig, SimilarityConfig, VideoSimilarity
from hapvr.video.sampling import SamplingConfig
from hapvr.video.video_files import find_videos
from hapvr.weights import Part, load_part

ORIGINS = {"r50": RESNET50}  # models that name their backbone instead of carrying it


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=["lite", "r50"])
    parser.add_argument("--backbone", type=Path, required=True, help="folder made by `hapvr model convert`")
    parser.add_argument("--videos", type=Path)
    parser.add_argument("--photos", type=Path)
    parser.add_argument("--most-photos", type=int, default=7000)
    parser.add_argument("--fitted", type=Path, help="a model folder whose whitening is taken instead of fitting one")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.fitted is None and (arguments.videos is None or arguments.photos is None):
        parser.error("give --videos and --photos to fit a whitening on, or --fitted to take one")
    backbone = load_backbone(arguments.backbone)
    sampling = SamplingConfig()
    if arguments.fitted is not None:
        part = load_part(arguments.fitted, "whitening")
        whitening = Whitening.from_part(Part(part.config, {key: value.float() for key, value in part.tensors.items()}))
    else:
        extractor = RegionExtractor(backbone, sampling=sampling, precision=None)
        whitening = fit_whitening(extractor, arguments.videos, arguments.photos, arguments.most_photos)
    config = SimilarityConfig(weighting="none", comparator=False, spatial="chamfer", temporal="chamfer", min_frames=1)
    folder = save_model(
        arguments.out or SHIPPED / arguments.name,
        backbone=backbone,
        whitening=whitening,
        similarity=VideoSimilarity(config),
        sampling=sampling,
        segments=SegmentConfig(),
        half=True,
        origin=ORIGINS.get(arguments.name),
    )
    print(f"written to {folder}: {(folder / 'model.safetensors').stat().st_size / 1e6:.1f} MB")


def fit_whitening(extractor: RegionExtractor, video_folder: Path, photo_folder: Path, most_photos: int) -> Whitening:
    fit = WhiteningFit()

    def take(_: str, features: Features) -> None:
        fit.update(features.regions)

    photos = sorted(path for path in photo_folder.rglob("*") if path.suffix.lower() in {".jpg", ".jpeg", ".png"})
    photos = random.Random(0).sample(photos, min(len(photos), most_photos))
    with Progress() as progress:
        videos = find_videos([video_folder])
        task = progress.add_task("videos", total=len(videos))
        report = extract_files(extractor, videos, take, progress=lambda done, _: progress.update(task, completed=done))
        task = progress.add_task("photos", total=len(photos))
        for start in range(0, len(photos), 64):
            pictures = np.stack([centre(path, extractor.sampling) for path in photos[start : start + 64]])
            fit.update(extractor(pictures))
            progress.advance(task, len(pictures))
    print(f"{len(report.done)} videos, {report.frames} frames, {len(photos)} photos, {fit.count} vectors; failed:")
    for failure in report.failed:
        print(f"  {failure.path}: {failure.error}")
    return fit.finish(outputs=512)


def centre(path: Path, sampling: SamplingConfig) -> np.ndarray:
    """The centre square of a photograph at the size the backbone takes, uint8 [S, S, 3]."""
    with Image.open(path) as opened:
        image = opened.convert("RGB")
    scale = sampling.short_side / min(image.size)
    image = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BILINEAR)
    left, top = (image.width - sampling.crop) // 2, (image.height - sampling.crop) // 2
    return np.asarray(image.crop((left, top, left + sampling.crop, top + sampling.crop)))


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
