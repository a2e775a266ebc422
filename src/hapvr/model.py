"""A model as people use it: a backbone, its whitening, a similarity network and a sampling rate, loaded by name."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path

import torch

from hapvr import weights
from hapvr.backbones import Backbone, empty_backbone
from hapvr.config import from_mapping, suggest
from hapvr.errors import WeightsError
from hapvr.features.extractor import RegionExtractor, SamplingConfig, decode_parts
from hapvr.features.files import Features, joined
from hapvr.features.whitening import Whitening
from hapvr.similarity import SegmentConfig, SimilarityConfig, VideoSimilarity

SHIPPED = Path(__file__).parent / "models"  # package data
DEFAULT = "lite"
PARTS = ("backbone", "whitening", "similarity", "sampling", "segments")


@dataclass(frozen=True)
class Model:
    """Everything between a video file and a score. Get one with `load`."""

    name: str
    extractor: RegionExtractor
    similarity: VideoSimilarity
    segments: SegmentConfig

    @property
    def sampling(self) -> SamplingConfig:
        """How videos become pictures."""
        return self.extractor.sampling

    def features(self, path: str | os.PathLike[str]) -> Features:
        """The region vectors of a video file, with the times of its frames."""
        return joined([self.extractor.features(part) for part in decode_parts(path, self.sampling)])


def shipped_models() -> list[str]:
    """The names that `load` knows."""
    return sorted(path.name for path in SHIPPED.iterdir() if (path / weights.CONFIG).is_file())


def load(name_or_folder: str | os.PathLike[str] = DEFAULT, *, device: str | torch.device = "cpu") -> Model:
    """A model by name, or from a folder that `save_model` wrote; checksums verified, nothing unpickled.

    >>> load("light")
    Traceback (most recent call last):
    hapvr.errors.WeightsError: There is no model 'light' here; did you mean 'lite'?
    """
    folder = SHIPPED / name_or_folder if str(name_or_folder) in shipped_models() else Path(name_or_folder)
    if not folder.is_dir():
        raise WeightsError(
            f"There is no model '{name_or_folder}' here; {suggest(str(name_or_folder), shipped_models())}"
        )
    parts = weights.load_parts(folder)
    if missing := [part for part in PARTS if part not in parts]:
        raise WeightsError(f"'{folder}' is no whole model: it lacks {', '.join(missing)}.")
    backbone = empty_backbone(str(parts["backbone"].config["name"]))
    weights.load_strict(backbone, parts["backbone"].tensors, source=f"'{folder}'")
    similarity = VideoSimilarity(from_mapping(SimilarityConfig, parts["similarity"].config))
    weights.load_strict(similarity, parts["similarity"].tensors, source=f"'{folder}'")
    extractor = RegionExtractor(
        backbone,
        Whitening.from_part(_widened(parts["whitening"])),
        sampling=from_mapping(SamplingConfig, parts["sampling"].config),
        device=device,
    )
    segments = from_mapping(SegmentConfig, parts["segments"].config)
    return Model(folder.name, extractor, similarity.to(device).eval(), segments)


def save_model(
    folder: str | os.PathLike[str],
    *,
    backbone: Backbone,
    whitening: Whitening,
    similarity: VideoSimilarity,
    sampling: SamplingConfig,
    segments: SegmentConfig,
    half: bool = False,
) -> Path:
    """Write a whole model into `folder`; `half` keeps weights of backbone and whitening in float16."""
    parts: dict[str, weights.Part] = {
        "backbone": weights.Part({"name": backbone.name}, backbone.state_dict()),
        "whitening": whitening.to_part(),
        "similarity": weights.Part(dataclasses.asdict(similarity.config), similarity.state_dict()),
        "sampling": weights.Part(dataclasses.asdict(sampling), {}),
        "segments": weights.Part(dataclasses.asdict(segments), {}),
    }
    if half:
        parts |= {name: _halved(parts[name]) for name in ("backbone", "whitening")}
    return weights.save_parts(folder, parts)


def _halved(part: weights.Part) -> weights.Part:
    return _as(part, torch.float16)


def _widened(part: weights.Part) -> weights.Part:
    return _as(part, torch.float32)


def _as(part: weights.Part, dtype: torch.dtype) -> weights.Part:
    tensors = {
        name: tensor.to(dtype) if tensor.is_floating_point() else tensor for name, tensor in part.tensors.items()
    }
    return weights.Part(part.config, tensors)
