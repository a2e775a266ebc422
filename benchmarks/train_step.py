"""One whole training step at the paper's size: 64 pairs of clips, T = 28, ResNet-50 and ViT-S/16 with random weights.

    python benchmarks/train_step.py                       # on a GPU: bfloat16, channels last, networks compiled
    python benchmarks/train_step.py --device cpu --small  # that it runs at all

Frames are drawn at random and lie in the memory of the device, as those of a run do. First whole steps are timed, then
steps with a wait around each part. The floor is what the two frozen networks alone take: ResNet-50 at 24,900 and
ViT-S/16 at 25,300 pictures a second, as measured compiled on an H200. The authors' public code takes 1.10 s there,
without loading and augmentation.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace

import torch

from hapvr.backbones import build_backbone
from hapvr.features import Whitening
from hapvr.training import BankSource, ClipSet, ClipSource, Encoder, TrainConfig, build_network, make_bank
from hapvr.training.augment import ViewConfig
from hapvr.training.config import BankConfig, DataConfig, RunConfig, TeacherConfig
from hapvr.training.trainer import Trainer
from measure import forget_peak, machine, peak_gib, seconds

FLOOR = {"ResNet-50": 24_900, "ViT-S/16": 25_300}  # pictures a second


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--small", action="store_true", help="4 pairs of 4 frames of 112 pixels")
    parser.add_argument("--micro-batch", type=int, default=1792, help="of pictures; 3584 are a step's")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--videos", type=int, default=256, help="in memory, 56 frames each")
    parser.add_argument("--bank", action="store_true", help="time steps from a feature bank too")
    parser.add_argument("--profile", action="store_true", help="print where the GPU time of a step goes")
    parser.add_argument("--json", help="write the figures here too")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    pairs, frames, size, videos = (4, 4, 112, 8) if arguments.small else (64, 28, 224, arguments.videos)
    compiled = device.type == "cuda" and not arguments.no_compile
    config, encoder, trainer = build(device, pairs, frames, size, micro_batch=arguments.micro_batch, compiled=compiled)
    clips = random_clips(videos, 2 * frames, 128 if arguments.small else 256, device)
    source = ClipSource(clips, encoder, config.data, views=config.views, seed=0)
    print(f"{machine()}; {pairs} pairs of clips, {frames} frames, {size} x {size}; {videos} videos in memory")

    began = time.perf_counter()
    trainer.step(source)
    figures = {"first step (compiles) s": time.perf_counter() - began}
    trainer.clock.exact = False
    forget_peak()
    repeats = 1 if arguments.small else arguments.repeats
    figures["step s"] = seconds(lambda: trainer.step(source), repeats=repeats, warm_up=0 if arguments.small else 3)
    figures["step peak GiB"] = peak_gib()
    figures |= {f"  {name} s": value for name, value in split(trainer, source, encoder, repeats).items()}
    pictures = 2 * pairs * frames
    floor = {name: pictures / rate for name, rate in FLOOR.items()}
    figures |= {f"floor {name} s": value for name, value in floor.items()}
    figures["step / floor"] = figures["step s"] / sum(floor.values())
    if arguments.bank:
        bank = make_bank(clips, encoder, replace(config, bank=BankConfig(weak=1, strong=1)))
        drawn = BankSource(bank, config.data, seed=0, device=device)
        figures["step from a bank s"] = seconds(lambda: trainer.step(drawn), repeats=repeats, warm_up=1)
    for name, value in figures.items():
        print(f"  {name:<28} {value:10.4f}")
    if arguments.profile:
        profile(trainer, source)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"machine": machine(), **figures}, file, indent=2)


def build(
    device: torch.device, pairs: int, frames: int, size: int, *, micro_batch: int, compiled: bool
) -> tuple[TrainConfig, Encoder, Trainer]:
    """Settings, the two frozen networks, and the network that learns."""
    config = TrainConfig(
        data=DataConfig(batch=pairs),
        views=ViewConfig(frames=frames, size=size),
        teacher=TeacherConfig(kind="vit_small16", weights="random"),
        run=RunConfig(device=str(device)),
    )
    torch.manual_seed(0)
    backbone, teacher = build_backbone("resnet50"), build_backbone("vit_small16")
    channels = sum(backbone.stage_channels)
    encoder = Encoder(
        backbone,
        Whitening(torch.zeros(channels), torch.randn(channels, 512) / channels**0.5),
        teacher,
        device=device,
        dtype=config.run.dtype(device),
        micro_batch=micro_batch,
        compiled=compiled,
    )
    return config, encoder, Trainer(build_network(config, None).to(device), config)


def split(trainer: Trainer, source: ClipSource, encoder: Encoder, repeats: int) -> dict[str, float]:
    """Mean seconds of each part, with a wait around it: their sum is a little more than a step takes."""
    trainer.clock.take()
    trainer.clock.exact = True
    encoder.clock = trainer.clock
    for _ in range(repeats):
        trainer.step(source)
    encoder.clock = None
    times = {name: value / repeats for name, value in trainer.clock.take().items()}
    # "extract" holds both networks: what the encoder counted under "backbone" and "teacher", and the joining.
    times["extract, the rest"] = times.pop("extract") - times["backbone"] - times["teacher"]
    return times


def random_clips(videos: int, frames: int, side: int, device: torch.device) -> ClipSet:
    drawn = [torch.randint(0, 256, (frames, side, side, 3), dtype=torch.uint8, device=device) for _ in range(videos)]
    return ClipSet(drawn, [str(number) for number in range(videos)])


def profile(trainer: Trainer, source: ClipSource) -> None:
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as record

    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])
    trainer.clock.exact = False
    with record(activities=activities) as recorded:
        trainer.step(source)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    key = "self_cuda_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
    print(recorded.key_averages().table(sort_by=key, row_limit=30, max_name_column_width=60))


if __name__ == "__main__":
    main()
