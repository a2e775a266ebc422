"""Features of a benchmark's videos for a method: region vectors by a model, or pictures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from hapvr import weights
from hapvr.errors import ConfigError
from hapvr.evaluation.benchmarks import Benchmark
from hapvr.evaluation.extraction import extract_videos, find_video_files
from hapvr.features.extractor import RegionExtractor
from hapvr.methods.pictures import PictureExtractor
from hapvr.methods.registry import PART, find_method
from hapvr.model import DEFAULT, load
from hapvr.model_evaluation import choose_feature_file
from hapvr.storage import StrPath


def extract_for_method(
    method: StrPath,
    benchmark: Benchmark,
    *,
    model: StrPath | None = None,
    videos: StrPath | None = None,
    feature_cache: StrPath | None = None,
    device: str | torch.device = "cpu",
    progress: Callable[[str, int, int], None] | None = None,
) -> Path:
    """Extract what a method reads of a benchmark's videos into a file that is kept; what it has is not decoded again.

    Args:
        method: a method's name, or the folder of a fitted one.
        benchmark: one that comes with videos, or whose videos lie in the folder `videos`.
        model: that describes frames; the default one if None. Methods that read pictures have no use for it.
        videos: a folder of the benchmark's videos, named by their ids.
        feature_cache: the file; one in the folder of a made benchmark if None.
        device: where frames are described.
        progress: called with "extracting", how many videos are done, and of how many.
    """
    if videos is None and benchmark.files is None:
        raise ConfigError(f"{benchmark.name} needs something to measure: give features or videos.")
    files = (benchmark.files or {}) if videos is None else find_video_files(benchmark, videos)
    made_by, extractor = load_extractor(method, model=model, device=device)
    out = choose_feature_file(benchmark, made_by, extractor, feature_cache)

    def advance(done: int, total: int) -> None:
        if progress is not None:
            progress("extracting", done, total)

    extract_videos(extractor, files, out, model=made_by, progress=advance)
    return out


def load_extractor(
    method: StrPath, *, model: StrPath | None = None, device: str | torch.device = "cpu"
) -> tuple[str, RegionExtractor]:
    """What a method reads, by name ("pictures", or a model's), and what makes it of frames."""
    folder, name = Path(method), str(method)
    if (folder / weights.CONFIG).is_file():
        name = str(weights.load_part(folder, PART).config["name"])
    if find_method(name).reads == "pictures":
        return "pictures", PictureExtractor(sampling=load(model or DEFAULT).sampling, device=device)
    whole = load(model or DEFAULT, device=device)
    return whole.name, whole.extractor
