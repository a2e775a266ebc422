"""What a model makes of the queries of a benchmark, once for all chunks of the database."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from hapvr.checks import require_finite
from hapvr.features import FeatureFile
from hapvr.similarity import VideoSimilarity


def make_query_descriptors(model: VideoSimilarity, file: FeatureFile, queries: Sequence[str]) -> list[Tensor]:
    """The descriptors of videos, by their names in a file, on the device of the model; no flat or repeated frames."""
    described: list[Tensor] = []
    for id, features in file.stream(queries):
        described.append(model.make_descriptors(features.drop_flat().regions.to(model.device)))
        require_finite(described[-1].as_subclass(Tensor), f"what the model makes of query '{id}'")
    return described
