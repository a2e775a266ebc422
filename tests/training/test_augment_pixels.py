"""Crops, pastes and blurs as matrices, and the operations beyond the paper: Pillow, loops and laws."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from hapvr.training.augment import extras
from hapvr.training.augment.resample import blur_matrices, put, resample, resize_matrices, take, to_pixels


def numbers(*values: float) -> Tensor:
    return torch.tensor(values)


def noise(*shape: int) -> Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8)


def smooth(*shape: int) -> Tensor:
    """Soft shapes: what compression leaves about as it is."""
    rows, columns = torch.meshgrid(torch.arange(shape[-2]), torch.arange(shape[-1]), indexing="ij")
    wave = 128 + 60 * torch.sin(rows / 9) + 50 * torch.cos(columns / 7)
    tint = torch.tensor([1.0, 0.8, 0.6])[:, None, None]
    return (wave * tint).to(torch.uint8).expand(*shape).contiguous()


@pytest.mark.parametrize("box", [(0, 0, 40, 60), (5, 7, 20, 11), (3, 30, 33, 30), (10, 10, 1, 1)])
@pytest.mark.parametrize("size", [16, 50])
def test_crop_and_resize_agree_with_pillow(box: tuple[int, int, int, int], size: int) -> None:
    picture = noise(40, 60, 3)
    top, left, high, wide = box
    cut = Image.fromarray(picture[top : top + high, left : left + wide].numpy())
    expected = torch.from_numpy(np.asarray(cut.resize((size, size), Image.Resampling.BILINEAR)).copy())
    zero, whole = numbers(0), numbers(size)
    rows = resize_matrices(40, size, numbers(top), numbers(high), zero, whole)
    columns = resize_matrices(60, size, numbers(left), numbers(wide), zero, whole)
    got = to_pixels(resample(picture.permute(2, 0, 1)[None].float(), rows, columns), clamp=False)
    assert (got[0].permute(1, 2, 0).int() - expected.int()).abs().max() <= 1


def test_the_whole_picture_to_its_own_size_is_the_picture() -> None:
    picture = noise(2, 3, 7, 9).float()
    zero = numbers(0, 0)
    rows = resize_matrices(7, 7, zero, zero + 7, zero, zero + 7)
    columns = resize_matrices(9, 9, zero, zero + 9, zero, zero + 9)
    assert torch.equal(resample(picture, rows, columns), picture)
    mirrored = resize_matrices(9, 9, zero, zero + 9, zero, zero + 9, flip=torch.tensor([True, False]))
    assert torch.allclose(resample(picture, rows, mirrored)[0], picture[0].flip(-1), atol=1e-3)
    assert torch.equal(resample(picture, rows, mirrored)[1], picture[1])


def test_rows_sum_to_one_where_something_is_placed_and_to_zero_elsewhere() -> None:
    matrices = resize_matrices(9, 20, numbers(0, 2.5), numbers(9, 4), numbers(3, 0.4), numbers(11, 6.3))
    sums = matrices.sum(-1)
    centres = torch.arange(20) + 0.5
    for row, (at, length) in enumerate([(3, 11), (0.4, 6.3)]):
        inside = (centres > at) & (centres < at + length)
        assert torch.allclose(sums[row], inside.float())


def test_doubling_by_hand() -> None:
    rows = resize_matrices(2, 4, numbers(0), numbers(2), numbers(0), numbers(4))
    assert rows[0].tolist() == [[1, 0], [0.75, 0.25], [0.25, 0.75], [0, 1]]


def test_resampling_agrees_with_a_loop() -> None:
    pictures, rows, columns = torch.randn(2, 3, 4, 5), torch.randn(2, 6, 4), torch.randn(2, 7, 5)
    got = resample(pictures, rows, columns)
    for n in range(2):
        for c in range(3):
            assert torch.allclose(got[n, c], rows[n] @ pictures[n, c] @ columns[n].T, atol=1e-5)


def test_blur_agrees_with_a_loop() -> None:
    row, radius = [10.0, 200.0, 30.0, 90.0, 0.0], 0.8
    expected = []
    for i in range(5):
        weights = [math.exp(-((i - j) ** 2) / (2 * radius**2)) for j in range(5)]
        expected.append(sum(w * value for w, value in zip(weights, row, strict=True)) / sum(weights))
    got = blur_matrices(5, numbers(radius))[0] @ torch.tensor(row)
    assert got.tolist() == pytest.approx(expected, rel=1e-5)


def test_a_tiny_radius_leaves_a_picture_and_any_leaves_one_of_a_single_value() -> None:
    assert torch.allclose(blur_matrices(8, numbers(0.1))[0], torch.eye(8), atol=1e-6)
    assert torch.allclose(blur_matrices(8, numbers(2.0))[0].sum(-1), torch.ones(8))


def test_values_become_the_nearest_pixels() -> None:
    assert to_pixels(numbers(-3, 0.4, 0.6, 254.7, 300)).tolist() == [0, 0, 1, 255, 255]


@pytest.mark.parametrize("width", [8, 5])  # whole words, and not
def test_taking_and_putting_are_indexing(width: int) -> None:
    pictures = noise(6, 3, width)
    chosen = torch.tensor([4, 1])
    assert torch.equal(take(pictures, chosen), pictures[chosen])
    expected, changed = pictures.clone(), noise(2, 3, width)
    expected[chosen] = changed
    part = torch.cat([noise(1, 3, width), pictures])[1:]  # which does not begin at a whole word
    put(part, chosen, changed)
    assert torch.equal(part, expected)


# --- beyond the paper --------------------------------------------------------------------------------------------


def through_jpeg(picture: Tensor, quality: int) -> Tensor:
    buffer = io.BytesIO()
    Image.fromarray(picture.permute(1, 2, 0).numpy()).save(buffer, "JPEG", quality=quality)
    return torch.from_numpy(np.asarray(Image.open(buffer)).copy()).permute(2, 0, 1)


@pytest.mark.parametrize("quality", [10, 40, 80])
def test_compression_is_close_to_a_jpeg_file_of_the_same_quality(quality: int) -> None:
    picture = smooth(3, 48, 64)
    picture[:, 10:30, 20:40] = 230
    ours = extras.compress_jpeg(picture[None], numbers(quality))[0].float()
    theirs = through_jpeg(picture, quality).float()
    ours_error, theirs_error = ((other - picture.float()).square().mean().sqrt() for other in (ours, theirs))
    assert (ours - theirs).square().mean().sqrt() < 0.5 * theirs_error + 1
    assert 0.7 < ours_error / theirs_error < 1.4


def test_compression_loses_more_at_lower_quality_and_keeps_one_value() -> None:
    picture = smooth(1, 3, 35, 50)
    errors = [(extras.compress_jpeg(picture, numbers(q)).float() - picture.float()).abs().mean() for q in (5, 30, 90)]
    assert errors[0] > errors[1] > errors[2]
    grey = torch.full((1, 3, 16, 16), 128, dtype=torch.uint8)
    assert torch.equal(extras.compress_jpeg(grey, numbers(20)), grey)


def test_the_cosine_transform_keeps_lengths_and_its_first_row_is_the_mean() -> None:
    matrix = extras.make_cosines(torch.device("cpu"))
    assert torch.allclose(matrix @ matrix.T, torch.eye(8), atol=1e-6)
    assert matrix[0].tolist() == pytest.approx([1 / math.sqrt(8)] * 8)


def test_bars_are_black_and_the_picture_lies_between_them() -> None:
    picture = torch.full((2, 3, 20, 20), 90, dtype=torch.uint8)
    got = extras.letterbox(picture, torch.tensor([[4, 0], [0, 3]]))
    assert got[0, 0, :, 5].tolist() == [0] * 4 + [90] * 12 + [0] * 4
    assert got[1, 0, 5].tolist() == [0] * 3 + [90] * 14 + [0] * 3
    plain = noise(1, 3, 20, 20)
    assert torch.equal(extras.letterbox(plain, torch.zeros(1, 2)), plain)


def test_corners_come_to_lie_where_they_are_moved() -> None:
    corners = np.array([[[0.1, 0.2], [0.3, 0.0], [0.05, 0.15], [0.0, 0.25]]])
    matrix = extras.solve_homographies(corners)[0]
    seen = [(0.1, 0.2), (0.7, 0.0), (0.95, 0.85), (0.0, 0.75)]
    for (x, y), (u, v) in zip(seen, [(0, 0), (1, 0), (1, 1), (0, 1)], strict=True):
        a, b, w = matrix @ np.array([x, y, 1.0])
        assert (a / w, b / w) == pytest.approx((u, v), abs=1e-9)


def test_seen_from_the_front_a_picture_stays() -> None:
    picture = noise(1, 3, 12, 12)
    assert torch.equal(extras.tilt(picture, np.zeros((1, 4, 2))), picture)
    aside = extras.tilt(torch.full((1, 3, 20, 20), 80, dtype=torch.uint8), np.full((1, 4, 2), 0.2))
    assert aside[0, 0, 0].max() == 0
    assert aside[0, 0, 10, 10] == 80


def test_noise_has_the_strength_asked_for() -> None:
    pictures = torch.full((2, 3, 64, 64), 128, dtype=torch.uint8)
    got = extras.add_noise(pictures, numbers(3, 12), torch.Generator().manual_seed(0)).float() - 128
    assert got.flatten(1).std(1).tolist() == pytest.approx([3, 12], rel=0.05)
    assert got.mean().abs() < 0.3


def test_a_backdrop_shows_the_picture_dark_and_soft_where_bars_would_be() -> None:
    picture = torch.full((2, 3, 20, 20), 100, dtype=torch.uint8)
    got = extras.letterbox(picture, torch.tensor([[4, 0], [4, 0]]), torch.tensor([True, False]))
    assert got[0, 0, :, 5].tolist() == [60] * 4 + [100] * 12 + [60] * 4
    assert got[1, 0, :, 5].tolist() == [0] * 4 + [100] * 12 + [0] * 4
    halves = torch.zeros(1, 3, 40, 40, dtype=torch.uint8)
    halves[..., 20:] = 200
    soft = extras.letterbox(halves, torch.tensor([[8, 0]]), torch.tensor([True]))[0, 0, 0].float()
    assert (soft.diff() >= 0).all()
    assert soft.diff().max() < 60  # a slope, where the picture has an edge


@pytest.mark.parametrize("quarters", [1, 2, 3])
def test_four_turns_are_none(quarters: int) -> None:
    picture = noise(2, 3, 6, 6)
    turned = extras.turn(picture, [quarters, quarters])
    assert not torch.equal(turned, picture)
    assert torch.equal(extras.turn(turned, [4 - quarters, 4 - quarters]), picture)


def test_a_shrunk_picture_keeps_what_is_coarse_and_loses_what_is_fine() -> None:
    board = (torch.arange(32)[:, None] + torch.arange(32)).remainder(2).mul(255).to(torch.uint8)
    halves = torch.zeros(32, 32, dtype=torch.uint8)
    halves[:, 16:] = 200
    pictures = torch.stack([board, halves]).view(2, 1, 1, 32, 32).expand(2, 1, 3, 32, 32).contiguous()
    small = extras.shrink(pictures, torch.tensor([8, 8]), torch.tensor([95, 95])).float()
    assert small.shape == pictures.shape
    assert small[0].std() < 12  # fine squares are grey
    assert small[1, 0, 0, 16, 4] < 20
    assert small[1, 0, 0, 16, 28] > 180
    whole = extras.shrink(pictures[1:], torch.tensor([32]), torch.tensor([100]))
    assert (whole.float() - pictures[1:].float()).abs().max() <= 3
    coarse = extras.shrink(pictures[1:], torch.tensor([8]), torch.tensor([2]))
    assert not torch.equal(coarse, small[1:].to(torch.uint8))


def test_a_screen_has_stripes_that_drift_and_light_that_flickers() -> None:
    pictures = torch.full((2, 3, 3, 40, 40), 100, dtype=torch.uint8)
    striped = extras.film_screen(pictures, torch.tensor([[0.2, 10.0, 0.0, 0.0], [0.0, 10.0, 0.0, 0.2]]))
    first = striped[0, 0, 0, :, 0].float()
    assert (int(first.min()), int(first.max())) == (81, 119)  # 10 rows a stripe: the sine is met at .95 of its height
    assert torch.equal(first[:30], first[10:])
    assert not torch.equal(striped[0, 0], striped[0, 1])
    light = striped[1].flatten(1).float()
    assert (light.std(1) == 0).all()
    assert light[:, 0].tolist() == [100, round(100 * (1 + 0.2 * math.sin(2.4))), round(100 * (1 + 0.2 * math.sin(4.8)))]
    still = extras.film_screen(pictures[:1], torch.tensor([[0.0, 1.0, 0.0, 0.0]]))
    assert torch.equal(still, pictures[:1])
