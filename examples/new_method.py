"""A new retrieval method in one file: the mean of a video's regions, less what all videos share. It is measured.

python examples/new_method.py made/ground_truth.json features.h5
"""

import sys
from collections.abc import Sequence

import torch
import torch.nn.functional as F

from hapvr.features import Features
from hapvr.methods import Clips, Description, Method, Settings, evaluate_method, fit_method, read_clips, register


@register
class CentredMean(Method[Settings]):
    name, title, learns = "centred-mean", "centred mean", True

    def __init__(self, dims: tuple[int, int], settings: Settings | None = None) -> None:
        super().__init__(dims, settings)
        self.register_buffer("mean", torch.zeros(dims[1]))

    def fit(self, clips: Clips, *, seed: int = 0, report: object = None) -> list[float]:
        self.mean = clips.frames.float().mean((0, 1))
        return []

    def describe(self, features: Features) -> Description:
        values = F.normalize(self.take_regions(features).mean((0, 1)) - self.mean, dim=0)
        return Description(values, features.with_timestamps(1.0).times, bytes=2 * len(values))

    def score(self, queries: Sequence[Description], targets: Sequence[Description]) -> torch.Tensor:
        return torch.stack([one.values for one in queries]) @ torch.stack([one.values for one in targets]).T


if __name__ == "__main__":
    truth, features = sys.argv[1:]
    clips = read_clips(truth, features)
    method = CentredMean(clips.dims)
    fit_method(method, clips)
    result = evaluate_method(method, truth, features)
    print(result.title, {one.task.name: round(one.overall.value, 3) for one in result.evaluation.results})
