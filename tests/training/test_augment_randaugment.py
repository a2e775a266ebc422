"""RandAugment's operations: cases by hand, Pillow and slow loops as second opinions, laws."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from hapvr.training.augment import randaugment as ra
from hapvr.training.augment.randaugment import GEOMETRIC, OPERATIONS, SIGNED, randaugment, strength

Picture = Image.Image

# Each with a strength as `randaugment` takes it, and how Pillow says the same.
PILLOW: dict[str, tuple[float, Callable[[Picture], Picture]]] = {
    "Brightness": (0.27, lambda picture: ImageEnhance.Brightness(picture).enhance(1.27)),
    "Color": (-0.5, lambda picture: ImageEnhance.Color(picture).enhance(0.5)),
    "Contrast": (0.4, lambda picture: ImageEnhance.Contrast(picture).enhance(1.4)),
    "Sharpness": (0.9, lambda picture: ImageEnhance.Sharpness(picture).enhance(1.9)),
    "Posterize": (3, lambda picture: ImageOps.posterize(picture, 3)),
    "Solarize": (100, lambda picture: ImageOps.solarize(picture, 100)),
    "AutoContrast": (0, ImageOps.autocontrast),
    "Equalize": (0, ImageOps.equalize),
}


def clip(*, frames: int = 2, height: int = 24, width: int = 30, low: int = 40, high: int = 200) -> Tensor:
    """Smooth colours with some noise, not over the full range: uint8 [1, T, 3, H, W]."""
    rng = np.random.default_rng(0)
    slope = np.linspace(low, high - 30, width)[None, None, None, None] + rng.integers(
        0, 30, (1, frames, 3, height, width)
    )
    return torch.from_numpy(slope.astype(np.uint8))


def through_pillow(pictures: Tensor, change: Callable[[Picture], Picture]) -> Tensor:
    frames = [np.asarray(change(Image.fromarray(frame.permute(1, 2, 0).numpy()))) for frame in pictures[0]]
    return torch.from_numpy(np.stack(frames)).permute(0, 3, 1, 2)[None]


def apply(name: str, value: float, pictures: Tensor) -> Tensor:
    return randaugment(pictures.clone(), [name] * len(pictures), [value] * len(pictures))


@pytest.mark.parametrize("name", PILLOW)
def test_tones_agree_with_pillow(name: str) -> None:
    value, change = PILLOW[name]
    pictures = clip()
    difference = (apply(name, value, pictures).int() - through_pillow(pictures, change).int()).abs()
    # Pillow rounds where we truncate, and its grey has other last digits, which the contrast's mean repeats.
    assert difference.max() <= (2 if name == "Contrast" else 1)


@pytest.mark.parametrize("name", sorted(GEOMETRIC))
@pytest.mark.parametrize("sign", [1, -1])
def test_geometry_agrees_with_a_loop_over_pixels(name: str, sign: int) -> None:
    pictures = clip(frames=1, height=9, width=11)
    value = sign * {"Rotate": 25.0, "TranslateX": 3.0, "TranslateY": 2.0}.get(name, 0.3)
    expected = torch.zeros_like(pictures)
    for y in range(9):
        for x in range(11):
            right, down = x + 0.5, y + 0.5
            if name == "ShearX":
                u, v = right + value * down, down
            elif name == "ShearY":
                u, v = right, down + value * right
            elif name == "TranslateX":
                u, v = right - value, down
            elif name == "TranslateY":
                u, v = right, down - value
            else:  # back by the angle: the result is turned counter-clockwise, and rows count downwards
                angle = math.radians(value)
                right, down = right - 5.5, down - 4.5
                u = 5.5 + right * math.cos(angle) - down * math.sin(angle)
                v = 4.5 + right * math.sin(angle) + down * math.cos(angle)
            if 0 <= math.floor(u) < 11 and 0 <= math.floor(v) < 9:
                expected[..., y, x] = pictures[..., math.floor(v), math.floor(u)]
    assert torch.equal(apply(name, value, pictures), expected)


def test_a_quarter_turn_is_counter_clockwise() -> None:
    pictures = clip(frames=1, height=6, width=6)
    assert torch.equal(apply("Rotate", 90, pictures), pictures.rot90(1, (-2, -1)))


def test_translation_moves_right_and_leaves_black() -> None:
    row = torch.tensor([1, 2, 3, 4], dtype=torch.uint8).expand(1, 1, 3, 2, 4)
    assert apply("TranslateX", 2, row)[0, 0, 0].tolist() == [[0, 0, 1, 2]] * 2


def test_mixing_by_hand() -> None:
    pixel = torch.tensor([200, 100, 50], dtype=torch.uint8).view(1, 1, 3, 1, 1)
    assert apply("Brightness", 0.5, pixel).flatten().tolist() == [255, 150, 75]
    # Grey is floor(.2989 * 200 + .587 * 100 + .114 * 50) = floor(124.18) = 124, also the mean of the only pixel.
    assert apply("Color", -0.5, pixel).flatten().tolist() == [162, 112, 87]
    assert apply("Contrast", -1.0, pixel).flatten().tolist() == [124, 124, 124]
    assert apply("Posterize", 4, pixel).flatten().tolist() == [192, 96, 48]
    assert apply("Solarize", 100, pixel).flatten().tolist() == [55, 155, 50]


def test_sharpness_by_hand() -> None:
    picture = torch.zeros(1, 1, 3, 3, 3, dtype=torch.uint8)
    picture[..., 1, 1] = 130
    # The mean is 5 * 130 / 13 = 50; with strength -1 the pixel becomes that, with 0.5 it is 1.5 * 130 - 0.5 * 50.
    assert apply("Sharpness", -1.0, picture)[0, 0, 0].tolist() == [[0, 0, 0], [0, 50, 0], [0, 0, 0]]
    assert apply("Sharpness", 0.5, picture)[0, 0, 0, 1, 1] == 170
    picture[..., 1, 1] = 120  # 5 * 120 / 13 = 46.15
    picture[..., 0, 0] = 6  # and 606 / 13 = 46.6, which is nearer to 47
    assert apply("Sharpness", -1.0, picture)[0, 0, 0, 1, 1] == 47


def test_autocontrast_stretches_each_channel_and_leaves_one_of_a_single_value() -> None:
    picture = torch.tensor([[[10, 20], [30, 60]], [[7, 7], [7, 7]], [[0, 255], [1, 254]]], dtype=torch.uint8)[
        None, None
    ]
    assert ra.autocontrast(picture)[0, 0].tolist() == [[[0, 51], [102, 255]], [[7, 7], [7, 7]], [[0, 255], [1, 254]]]


def test_equalize_by_hand() -> None:
    # 510 pixels: 170 each of 5, 6 and 9. Without the highest 340 are left: step 340 // 255 = 1.
    values = (
        torch.tensor([5] * 170 + [6] * 170 + [9] * 170, dtype=torch.uint8).view(1, 1, 1, 10, 51).expand(1, 1, 3, 10, 51)
    )
    assert sorted(set(ra.equalize(values.contiguous()).flatten().tolist())) == [0, 170, 255]


@pytest.mark.parametrize("name", ["AutoContrast", "Equalize", "Contrast", "Sharpness", "Rotate"])
def test_one_value_stays_where_nothing_can_be_spread(name: str) -> None:
    pictures = torch.full((1, 2, 3, 8, 8), 77, dtype=torch.uint8)
    value = 0.0 if name == "Rotate" else 0.5
    assert torch.equal(apply(name, value, pictures), pictures)


@pytest.mark.parametrize("name", sorted(SIGNED | {"Identity"}))
def test_strength_zero_changes_nothing(name: str) -> None:
    pictures = clip()
    assert torch.equal(apply(name, 0.0, pictures), pictures)


@pytest.mark.parametrize("name", OPERATIONS)
def test_clips_of_a_batch_do_not_touch_each_other(name: str) -> None:
    a, b = clip(), clip(low=10, high=90)
    value = strength(name, magnitude=9, bins=31, size=24)
    got = randaugment(torch.cat([a, b, a]), ["Identity", name, name], [0.0, value, value])
    assert torch.equal(got, torch.cat([a, apply(name, value, b), apply(name, value, a)]))


@pytest.mark.parametrize("name", OPERATIONS)
def test_frames_of_a_clip_that_are_equal_stay_equal(name: str) -> None:
    frame = clip(frames=1)
    value = strength(name, magnitude=9, bins=31, size=24)
    got = apply(name, value, frame.expand(1, 4, 3, 24, 30))
    assert torch.equal(got, apply(name, value, frame).expand_as(got))


def test_pictures_of_odd_sizes_and_a_single_pixel_pass_through_every_operation() -> None:
    for height, width in ((1, 1), (2, 5), (3, 3)):
        for name in OPERATIONS:
            value = strength(name, magnitude=9, bins=31, size=height)
            got = apply(name, value, torch.full((3, 1, 3, height, width), 200, dtype=torch.uint8))
            assert got.shape == (3, 1, 3, height, width)


def test_strengths_span_the_table() -> None:
    highest = {name: strength(name, magnitude=30, bins=31, size=331) for name in OPERATIONS}
    assert highest == pytest.approx(
        {
            "Identity": 0, "ShearX": 0.3, "ShearY": 0.3, "TranslateX": 150, "TranslateY": 150, "Rotate": 30,
            "Brightness": 0.9, "Color": 0.9, "Contrast": 0.9, "Sharpness": 0.9, "Posterize": 4, "Solarize": 0,
            "AutoContrast": 0, "Equalize": 0,
        }
    )  # fmt: skip
    assert len(OPERATIONS) == 14
    assert len(SIGNED) == 9
