"""A validation set in memory: features of queries and targets, and which target is relevant to which query."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from hapvr.errors import ConfigError, ShapeError, StorageError
from hapvr.evaluation import mean_average_precision, micro_average_precision
from hapvr.evaluation.benchmarks.benchmark import Benchmark
from hapvr.evaluation.benchmarks.ground_truth import read_ground_truth
from hapvr.similarity import VideoSimilarity, pairwise
from hapvr.storage import write_bytes
from hapvr.training.config import ValidationConfig


@dataclass(frozen=True, eq=False)
class ValidationSet:
    """Region vectors [T, R, D] of queries and targets, and labels."""

    queries: Sequence[Tensor]
    targets: Sequence[Tensor]
    relevant: Tensor  # bool [Q, N]
    missing: int = 0  # videos of the ground truth that the features lack

    def __post_init__(self) -> None:
        if self.relevant.shape != (len(self.queries), len(self.targets)) or self.relevant.dtype != torch.bool:
            raise ShapeError(
                f"relevant must be bool [{len(self.queries)}, {len(self.targets)}], queries by targets; got "
                f"{self.relevant.dtype} {list(self.relevant.shape)}."
            )

    @torch.no_grad()
    def measure(self, model: VideoSimilarity) -> dict[str, float]:
        """mAP and uAP of a network, which is left in the mode it was in."""
        training = model.training
        scores = pairwise(model.eval(), list(self.queries), self.targets)
        model.train(training)
        return {
            "mAP": mean_average_precision(scores, self.relevant),
            "uAP": micro_average_precision(scores, self.relevant),
        }

    def save(self, path: Path) -> None:
        """Write everything into one safetensors file, in half precision."""
        tensors = {"relevant": self.relevant.to(torch.uint8)}
        for kind, videos in (("queries", self.queries), ("targets", self.targets)):
            tensors[f"{kind}.regions"] = torch.cat([video.half().cpu() for video in videos])
            tensors[f"{kind}.lengths"] = torch.tensor([len(video) for video in videos])
        write_bytes(path, save(tensors))

    @classmethod
    def load(cls, path: Path) -> ValidationSet:
        """Read what `save` wrote."""
        try:
            tensors = load(path.read_bytes())
            videos = {
                kind: torch.split(tensors[f"{kind}.regions"].float(), tensors[f"{kind}.lengths"].tolist())
                for kind in ("queries", "targets")
            }
            return cls(videos["queries"], videos["targets"], tensors["relevant"].bool())
        except (OSError, SafetensorError, KeyError, RuntimeError, ShapeError) as error:
            raise StorageError(f"'{path}' is no validation set that `ValidationSet.save` wrote: {error}.") from error


def load_validation_set(config: ValidationConfig) -> ValidationSet | None:
    """The validation set of the settings; None if they name none. Videos without features are left out, and counted.

    Flat and repeated frames do not count, as in `hapvr evaluate`.
    """
    if not config.features:
        return None
    path = Path(config.features)
    if path.suffix == ".safetensors":
        return ValidationSet.load(path)
    if not config.truth:
        raise ConfigError(
            f"'{path}' needs validation.truth, the ground_truth.json of its benchmark; a .safetensors file does not."
        )
    from hapvr.features import FeatureFile

    truth = read_ground_truth(config.truth)
    with FeatureFile.open(path) as file:
        known = set(file.ids)
        names = {id: name for id in (*truth.queries, *truth.database) if (name := _find_name(truth, id, known))}
        asked = [id for id in truth.queries if id in names]
        here = [id for id in truth.database if id in names]
        if not here or not asked:
            raise StorageError(
                f"'{path}' has features of {len(asked)} of {len(truth.queries)} queries and {len(here)} of "
                f"{len(truth.database)} database videos. Make it of the benchmark's own folder: "
                "hapvr extract FOLDER -o features.h5"
            )
        relevant = torch.tensor([[id in truth.labels[query] for id in here] for query in asked])
        return ValidationSet(
            [file[names[id]].drop_flat().regions for id in asked],
            [file[names[id]].drop_flat().regions for id in here],
            relevant,
            missing=len(truth.queries) + len(truth.database) - len(names),
        )


def _find_name(truth: Benchmark, id: str, known: Set[str]) -> str | None:
    """What the features of a video are called: its id (`hapvr evaluate`), or its file within the folder (`extract`)."""
    assert truth.files is not None  # a made folder has them
    file = Path(truth.files[id])
    return next((name for name in (id, f"{file.parent.name}/{file.name}") if name in known), None)
