"""Build the models that hapvr ships, from converted backbones and unlabelled videos and photographs.

    python scripts/build_models.py lite --backbone models/lite0 --videos DIR --photos DIR

The whitening is fitted on the region vectors of the videos (sampled as the model samples) and of the photographs.
The network is ViSiL_f: Chamfer on both levels, nothing trained.
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
from hapvr.features import WhiteningFit
from hapvr.features.extractor import RegionExtractor, SamplingConfig, extract_files, find_videos
from hapvr.features.files import Features
from hapvr.model import SHIPPED, save_model
from hapvr.similarity import SegmentConfig, SimilarityConfig, VideoSimilarity


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=["lite"])
    parser.add_argument("--backbone", type=Path, required=True, help="folder made by `hapvr model convert`")
    parser.add_argument("--videos", type=Path, required=True)
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--most-photos", type=int, default=7000)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    backbone = load_backbone(arguments.backbone)
    sampling = SamplingConfig()
    extractor = RegionExtractor(backbone, sampling=sampling, precision=None)
    fit = WhiteningFit()

    def take(_: str, features: Features) -> None:
        fit.update(features.regions)

    photos = sorted(path for path in arguments.photos.rglob("*") if path.suffix.lower() in {".jpg", ".jpeg", ".png"})
    photos = random.Random(0).sample(photos, min(len(photos), arguments.most_photos))
    with Progress() as progress:
        videos = find_videos([arguments.videos])
        task = progress.add_task("videos", total=len(videos))
        report = extract_files(extractor, videos, take, progress=lambda n: progress.advance(task, n))
        task = progress.add_task("photos", total=len(photos))
        for start in range(0, len(photos), 64):
            pictures = np.stack([centre(path, sampling) for path in photos[start : start + 64]])
            fit.update(extractor(pictures))
            progress.advance(task, len(pictures))
    print(f"{len(report.done)} videos, {report.frames} frames, {len(photos)} photos, {fit.count} vectors; failed:")
    for failure in report.failed:
        print(f"  {failure.path}: {failure.error}")
    whitening = fit.finish(outputs=512)
    config = SimilarityConfig(weighting="none", comparator=False, spatial="chamfer", temporal="chamfer", min_frames=1)
    folder = save_model(
        arguments.out or SHIPPED / arguments.name,
        backbone=backbone,
        whitening=whitening,
        similarity=VideoSimilarity(config),
        sampling=sampling,
        segments=SegmentConfig(),
        half=True,
    )
    print(f"written to {folder}: {(folder / 'model.safetensors').stat().st_size / 1e6:.1f} MB")


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
