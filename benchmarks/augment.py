"""Weak and strong views of a batch of clips: seconds and pictures/s, in all and by stage.

    python benchmarks/augment.py                      # the paper's size: 64 clips of 56 frames of 256 x 256, T = 28

On a GPU if there is one. Stages are timed one by one, so their sum exceeds the whole, in which the GPU works while the
CPU draws. `--mixed` gives every second clip another shape, as frames that keep their proportions have.
"""

from __future__ import annotations

import argparse
import json

import torch

from hapvr.training.augment import ViewConfig, make_views
from hapvr.training.augment.plan import draw_plan
from hapvr.training.augment.randaugment import OPERATIONS, randaugment, strength
from hapvr.training.augment.views import blur, carry_out, cut, fill_gaps, lay_over, mix
from hapvr.training.clips import make_planar
from measure import forget_peak, machine, peak_gib, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=int, default=64)
    parser.add_argument("--frames", type=int, default=28)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--side", type=int, default=256, help="of the stored frames")
    parser.add_argument("--mixed", action="store_true", help="every second clip is 16:9")
    parser.add_argument("--extras", action="store_true", help="switch on what is beyond the paper, each with 0.3")
    parser.add_argument("--repeats", type=int, default=20 if torch.cuda.is_available() else 1)
    parser.add_argument("--operations", action="store_true", help="time each operation of RandAugment on all clips")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", help="write the figures here too")
    arguments = parser.parse_args()
    device, B = torch.device(arguments.device), arguments.clips
    names = ("perspective", "letterbox", "low_rate", "noise", "jpeg", "border") if arguments.extras else ()
    config = ViewConfig(frames=arguments.frames, size=arguments.size, **dict.fromkeys(names, 0.3))  # type: ignore[arg-type]
    generator = torch.Generator(device).manual_seed(0)
    clips = []
    for number in range(B):
        width = arguments.side * 16 // 9 if arguments.mixed and number % 2 else arguments.side
        shape = 2 * config.frames, -(-arguments.side // 8), -(-width // 8), 3
        # Blocks of one colour: equal neighbours, as in pictures, are what counting values is slowest on.
        blocks = torch.randint(0, 256, shape, dtype=torch.uint8, device=device, generator=generator)
        whole = blocks.repeat_interleave(8, 1).repeat_interleave(8, 2)[:, : arguments.side, :width]
        clips.append(make_planar(whole))
    pictures = 2 * B * config.frames
    print(f"{machine()}; {B} clips of {2 * config.frames} frames, {pictures:,} pictures of {config.size} pixels")
    figures: dict[str, float] = {}
    repeats = arguments.repeats
    count = iter(range(10**9))
    forget_peak()
    figures["all s"] = seconds(
        lambda: make_views(clips, config=config, seed=next(count), device=device), repeats=repeats, warm_up=3
    )
    figures["all pictures/s"] = pictures / figures["all s"]
    figures["all peak GiB"] = peak_gib()
    shapes = [(clip.shape[0], clip.shape[1], clip.shape[2]) for clip in clips]
    figures["draw s"] = seconds(lambda: draw_plan(shapes, config, next(count)), repeats=repeats)
    plan = draw_plan(shapes, config, 0)
    figures["carry out s"] = seconds(lambda: carry_out(plan, clips, config, device), repeats=repeats)
    views = cut(plan, clips, config, device)
    strong = views[B:]
    frames = strong.view(-1, *strong.shape[2:])
    figures["  frames, crop, flip s"] = seconds(lambda: cut(plan, clips, config, device), repeats=repeats)
    figures["  blank and noise s"] = seconds(lambda: fill_gaps(views, plan.index, generator), repeats=repeats)
    for number, (drawn, strengths) in enumerate(zip(plan.operations, plan.strengths, strict=True)):
        figures[f"  RandAugment, round {number + 1} s"] = seconds(
            lambda drawn=drawn, strengths=strengths: randaugment(strong, drawn, strengths),  # type: ignore[misc]
            repeats=repeats,
        )
    figures["  text s"] = seconds(lambda: lay_over(frames, plan.text, "text"), repeats=repeats)
    figures["  emoji s"] = seconds(lambda: lay_over(frames, plan.emoji, "emoji"), repeats=repeats)
    figures["  blur s"] = seconds(lambda: blur(frames, plan.blur.reshape(-1)), repeats=repeats)
    figures["  video in video s"] = seconds(lambda: mix(strong, plan), repeats=repeats)
    if arguments.operations:
        for name in OPERATIONS:
            value = strength(name, magnitude=9, bins=31, size=config.size)
            figures[f"  {name}, all strong clips s"] = seconds(
                lambda name=name, value=value: randaugment(strong, [name] * B, [value] * B),  # type: ignore[misc]
                repeats=max(1, repeats // 4),
            )
    for name, value in figures.items():
        print(f"  {name:<38} {value:12.5f}")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"machine": machine(), **figures}, file, indent=2)


if __name__ == "__main__":
    main()
