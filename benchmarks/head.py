"""One training step of the similarity network: forward, HAP-VR's total loss (frame term included), backward.

    python benchmarks/head.py                # the paper's size: 128 clips of 28 frames, 9 regions, 512 dims

On a GPU in bfloat16 autocast, on a CPU in float32. Baseline in the same run (GPU only): `dense` holds all region
similarities and psi's activations, as the plain formulas suggest.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from hapvr.losses import LossInputs, LossValues, WeightedLosses, build_hapvr_losses
from hapvr.similarity import Comparison, SimilarityConfig, VideoSimilarity
from hapvr.training.pseudo_labels import make_pseudo_labels
from measure import forget_peak, machine, peak_gib, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=int, default=128)
    parser.add_argument("--frames", type=int, default=28)
    parser.add_argument("--repeats", type=int, default=20 if torch.cuda.is_available() else 1)
    parser.add_argument("--profile", action="store_true", help="print where the GPU time goes")
    parser.add_argument("--json", help="write the figures here too")
    arguments = parser.parse_args()
    gpu = torch.cuda.is_available()
    device = torch.device("cuda" if gpu else "cpu")
    torch.manual_seed(0)
    model = VideoSimilarity(SimilarityConfig()).to(device)
    losses = build_hapvr_losses()
    batch = Batch(arguments.clips, arguments.frames, device)
    print(f"{machine()}; {arguments.clips} clips, {arguments.frames} frames, 9 regions, 512 dims")
    figures: dict[str, float] = {}

    def step(plain: bool = False) -> None:
        model.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16, enabled=gpu):
            comparison = dense(model, batch.regions) if plain else model(batch.regions, batch.regions)
        total_loss(losses, comparison, batch).backward()  # type: ignore[no-untyped-call]

    forget_peak()
    figures["step s"] = seconds(step, repeats=arguments.repeats, warm_up=3 if gpu else 0)
    figures["step peak GiB"] = peak_gib()
    if gpu:
        with torch.no_grad(), torch.autocast(device.type, torch.bfloat16):
            figures["forward without gradient s"] = seconds(lambda: model(batch.regions, batch.regions))
        if arguments.profile:
            profile(step)
        forget_peak()
        figures["dense step s"] = seconds(lambda: step(True), repeats=3)
        figures["dense step peak GiB"] = peak_gib()
    for name, value in figures.items():
        print(f"  {name:<30} {value:10.4f}")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"machine": machine(), **figures}, file, indent=2)


class Batch:
    """Half the clips are weak, half strong views of the same videos; the labels say so."""

    def __init__(self, clips: int, frames: int, device: torch.device) -> None:
        videos = torch.randn(clips // 2, frames, 9, 512, device=device)
        views = [videos + 0.5 * torch.randn_like(videos) for _ in range(2)]
        self.regions = F.normalize(torch.cat(views), dim=-1)
        content = torch.arange(clips // 2, device=device).repeat(2)
        self.relevance = content[:, None] == content
        self.ignore = torch.eye(clips, dtype=torch.bool, device=device)
        self.pairs = (self.relevance & ~self.ignore).nonzero(as_tuple=True)
        teacher = self.regions.mean(2)  # [N, T, D'] stands for the teacher's frame vectors
        self.positive, self.negative = make_pseudo_labels(teacher[self.pairs[0]], teacher[self.pairs[1]])


def total_loss(losses: WeightedLosses, comparison: Comparison, batch: Batch) -> Tensor:
    scores = comparison.scores / 2 + 0.5
    values: LossValues = losses(
        LossInputs(
            scores=scores,
            relevance=batch.relevance,
            ignore=batch.ignore,
            self_scores=scores.diagonal(),
            frame_matrices=comparison.frame_matrices[batch.pairs],
            frame_positive=batch.positive,
            frame_negative=batch.negative,
            raw=comparison.raw,
            raw_mask=comparison.raw_mask,
        )
    )
    return values.total


def dense(model: VideoSimilarity, regions: Tensor) -> Comparison:
    """The same network by the plain formulas: everything held, nothing chunked."""
    described = model.make_descriptors(regions).as_subclass(Tensor)
    clips, frames = described.shape[:2]
    similarities = torch.einsum("ntrd,muqd->ntrmuq", described, described)
    matrices = similarities.amax(-1).mean(2).transpose(1, 2)  # [N, M, T, T]
    assert model.comparator is not None
    raw = model.comparator(matrices.reshape(-1, frames, frames)).float()
    raw = raw.view(clips, clips, *raw.shape[1:])
    return Comparison(model.aggregate_time(F.hardtanh(raw)), matrices.float(), raw, None)


def profile(step: Callable[[], None]) -> None:
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as record

    with record(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as recorded:
        step()
        torch.cuda.synchronize()
    print(recorded.key_averages().table(sort_by="self_cuda_time_total", row_limit=25, max_name_column_width=60))


if __name__ == "__main__":
    main()
