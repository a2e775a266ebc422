"""Two video files compared by a method: its score, and where they match if it says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from hapvr.evaluation.pair_records import Box
from hapvr.methods.extraction import load_extractor
from hapvr.methods.registry import open_method
from hapvr.storage import StrPath


@dataclass(frozen=True)
class MethodMatch:
    """What a method says of two videos."""

    method: str
    score: float
    segments: tuple[Box, ...] | None  # (query, target) in seconds; None if the method does not localise

    def to_json(self) -> dict[str, Any]:
        """The same, as JSON holds it."""
        boxes = None
        if self.segments is not None:
            boxes = [{"query": list(query), "target": list(target)} for query, target in self.segments]
        return {"method": self.method, "score": self.score, "segments": boxes}


def compare_by_method(
    query: StrPath,
    target: StrPath,
    method: StrPath,
    *,
    model: StrPath | None = None,
    device: str | torch.device = "cpu",
) -> MethodMatch:
    """Compare two files by a method's name or by the folder of a fitted one; `model` describes their frames."""
    extractor = load_extractor(method, model=model, device=device)[1]
    features = [extractor.extract_file(path).features.drop_flat() for path in (query, target)]
    regions = features[0].regions
    opened = open_method(method, (regions.shape[1], regions.shape[2]), device=device)[0]
    one, other = (opened.describe(side) for side in features)
    found = tuple(opened.locate(one, other)) if opened.localises else None
    return MethodMatch(opened.name, float(opened.score([one], [other])), found)
