"""Compare RandAugment, crops and blur with torchvision, where it is installed.

    python -m tests.training.check_randaugment

Not a test: torchvision is no dependency. Prints, for each operation, the largest difference and the share of values
that differ, and exits with 1 where they differ by more than rounding: by more than 1, or (geometry, where a pixel on
the edge between two may be either) in more than 1 value of 1,000.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import Any

import torch
from torch import Tensor

from hapvr.training.augment.randaugment import GEOMETRIC, OPERATIONS, SIGNED, randaugment, strength
from hapvr.training.augment.resample import blur_matrices, choose_dtype, resample, resize_matrices, to_pixels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--size", type=int, default=224)
    arguments = parser.parse_args()
    theirs: Any = importlib.import_module("torchvision.transforms.autoaugment")
    functional: Any = importlib.import_module("torchvision.transforms.functional")
    torch.manual_seed(0)
    size, device = arguments.size, torch.device(arguments.device)
    pictures = sample_pictures(size, device)
    space = theirs.RandAugment()._augmentation_space(31, (size, size))
    fine = True
    for name in OPERATIONS:
        for magnitude in (0, 9, 30):
            for sign in (1, -1) if name in SIGNED else (1,):
                values, signed = space[name]
                value = float(values[magnitude]) if values.ndim else 0.0
                mine = sign * strength(name, magnitude=magnitude, bins=31, size=size)
                if signed != (name in SIGNED):
                    sys.exit(f"{name}: torchvision says signed={signed}")
                expected = theirs._apply_op(
                    pictures[0], name, sign * value, functional.InterpolationMode.NEAREST, fill=None
                )
                got = randaugment(pictures.clone(), [name], [mine])[0]
                fine &= report(f"{name} {mine:.4g}", got, expected, geometric=name in GEOMETRIC)
    box = (11, 7, size - 40, size - 23)  # top, left, height, width
    cropped = functional.resized_crop(
        pictures[0], *box, [size // 2, size // 2], functional.InterpolationMode.BILINEAR, antialias=True
    )
    numbers = [torch.tensor([float(number)], device=device) for number in box]
    zero, half = torch.zeros(1, device=device), torch.full((1,), float(size // 2), device=device)
    rows = resize_matrices(size, size // 2, numbers[0], numbers[2], zero, half)
    columns = resize_matrices(size, size // 2, numbers[1], numbers[3], zero, half)
    real = pictures.flatten(1, 2).to(choose_dtype(device))
    fine &= report("crop and resize", to_pixels(resample(real, rows, columns))[0].view_as(cropped), cropped)
    matrices = blur_matrices(size, torch.tensor([1.5], device=device))
    mine_blurred = to_pixels(resample(real, matrices, matrices))[0].view_as(pictures[0])[..., 8:-8, 8:-8]
    blurred = functional.gaussian_blur(pictures[0], [15, 15], [1.5, 1.5])[..., 8:-8, 8:-8]
    fine &= report("blur 1.5, away from the border", mine_blurred, blurred)
    sys.exit(0 if fine else 1)


def sample_pictures(size: int, device: torch.device) -> Tensor:
    """Noise, a ramp, a narrow range and a single value: uint8 [1, 4, 3, S, S]."""
    noise = torch.randint(0, 256, (3, size, size), dtype=torch.uint8)
    ramp = torch.linspace(0, 255, size).to(torch.uint8).expand(3, size, size)
    return torch.stack([noise, ramp, noise // 4 + 90, torch.full_like(noise, 77)])[None].to(device)


def report(name: str, got: Tensor, expected: Tensor, *, geometric: bool = False) -> bool:
    difference = (got.int() - expected.int()).abs()
    share = float((difference > 0).float().mean())
    fine = share <= 1e-3 if geometric else int(difference.max()) <= 1
    print(f"{'ok ' if fine else 'BAD'} {name:<36} largest {int(difference.max()):3d}, share that differs {share:.2e}")
    return fine


if __name__ == "__main__":
    main()
