"""Harden the backbone of a model against damage, as the shipped `lite` was; see `hapvr.training.hardening`.

    hapvr frames VIDEOS --out packed
    python scripts/harden_backbone.py MODEL OUT --frames packed --photos PHOTOS [--skip FILE]

MODEL is a name or a folder, with its network trained already. OUT is a new model without calibration; fit one with
`scripts/calibrate_model.py`. With --skip, a JSON list of ids of packed videos that are left out.

Both stages take 15 minutes on an H200, and days without a GPU.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from hapvr.features.packed import PackedFrames
from hapvr.model import load, save_hardened
from hapvr.training import ClipSet
from hapvr.training.hardening import STAGES, HardeningConfig, harden

SIDE = 256  # of the squares that are cut out of frames and photographs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a model's name or folder")
    parser.add_argument("out", type=Path, help="a new folder")
    parser.add_argument("--frames", type=Path, required=True, help="packed frames of videos, made by `hapvr frames`")
    parser.add_argument("--photos", type=Path, help="a folder of photographs")
    parser.add_argument("--most", type=int, nargs=2, default=(2400, 800), help="photographs of the two stages")
    parser.add_argument("--skip", type=Path, help="a JSON list of videos that are left out")
    parser.add_argument("--steps", type=int, nargs=2, help="of the two stages, instead of the shipped model's")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    model = load(arguments.model, device=arguments.device)
    whitening = model.extractor.whitening
    if whitening is None:
        raise SystemExit(f"{arguments.model} has no whitening.")
    skip = set(json.loads(arguments.skip.read_text())) if arguments.skip else set()
    if strange := skip - set(PackedFrames.open(arguments.frames)):
        raise SystemExit(f"{len(strange)} of --skip are no packed videos, such as '{min(strange)}': ids are wanted.")
    clips = ClipSet.from_packed(arguments.frames, device=arguments.device, size=SIDE, skip=skip)
    photos = squares(arguments.photos, max(arguments.most), arguments.device) if arguments.photos else []
    stages: tuple[HardeningConfig, ...] = STAGES
    if arguments.steps:
        stages = tuple(
            dataclasses.replace(stage, schedule=dataclasses.replace(stage.schedule, steps=steps, warm_up=steps // 20))
            for stage, steps in zip(STAGES, arguments.steps, strict=True)
        )
    hardened = None
    for number, (stage, most) in enumerate(zip(stages, arguments.most, strict=True), 1):
        stills = ClipSet(photos[:most], [f"photo {i}" for i in range(len(photos[:most]))])
        print(f"stage {number}: {len(clips)} videos, {len(stills)} photographs", flush=True)
        hardened = harden(model.extractor.backbone, whitening, clips + stills, stage, start=hardened, report=say)
    assert hardened is not None
    about = {
        "stages": [dataclasses.asdict(stage) for stage in stages],
        "videos": len(clips),
        "photographs": [len(photos[:most]) for most in arguments.most],
    }
    print(f"written to {save_hardened(arguments.out, arguments.model, hardened, about=about)}")


def say(step: int, values: dict[str, float]) -> None:
    print(step, {name: round(value, 3) for name, value in values.items()}, flush=True)


def squares(folder: Path, most: int, device: str) -> list[Tensor]:
    """The first photographs of a folder as clips of one frame, uint8 [1, SIDE, SIDE, 3]: their centre squares."""
    with ThreadPoolExecutor() as pool:
        return [pixels.to(device) for pixels in pool.map(_square, sorted(folder.iterdir())[:most])]


def _square(path: Path) -> Tensor:
    with Image.open(path) as image:
        side = min(image.size)
        left, top = ((length - side) // 2 for length in image.size)
        cut = image.convert("RGB").crop((left, top, left + side, top + side))
        return torch.from_numpy(np.array(cut.resize((SIDE, SIDE), Image.Resampling.BICUBIC)))[None]


if __name__ == "__main__":
    main()
