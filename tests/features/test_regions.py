from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from hapvr.backbones import Backbone, EfficientNetLite0, ResNet50
from hapvr.errors import ConfigError, DataError, ShapeError
from hapvr.features import KERNELS, MIN_SIDE, Whitening, extract_regions, pool_regions


class Pyramid(Backbone):
    """A stand-in for a backbone: averages of the picture at strides 4 to 32, one random channel mix each."""

    mean = (0.5, 0.4, 0.3)
    std = (0.2, 0.25, 0.5)
    stage_channels = (4, 5, 6, 7)

    def __init__(self) -> None:
        super().__init__()
        self.mixes = nn.ModuleList([nn.Conv2d(3, channels, 1) for channels in self.stage_channels])
        self.seen: Tensor | None = None

    def stages(self, images: Tensor) -> tuple[Tensor, ...]:
        self.seen = images
        return tuple(
            mix(nn.functional.avg_pool2d(images, stride))
            for mix, stride in zip(self.mixes, (4, 8, 16, 32), strict=True)
        )


def loop(maps: list[Tensor], kernels: list[int], grid: int) -> list[list[list[float]]]:
    """Region vectors of [N, C, H, W] maps, written from the definition."""

    def unit(vector: list[float]) -> list[float]:
        length = math.sqrt(sum(value * value for value in vector))
        return [value / length for value in vector] if length else vector

    def windowed(plane: list[list[list[float]]], rows: list[range], columns: list[range]) -> list[list[list[float]]]:
        """Per window the maximum of each channel, normalised over channels; plane is [H][W][C]."""
        channels = range(len(plane[0][0]))
        return [
            [unit([max(plane[y][x][c] for y in ys for x in xs) for c in channels]) for xs in columns] for ys in rows
        ]

    def sliding(length: int, kernel: int) -> list[range]:
        stride = math.ceil(kernel / 2)
        return [range(at, at + kernel) for at in range(0, length - kernel + 1, stride)]

    def adaptive(length: int) -> list[range]:
        return [range(i * length // grid, math.ceil((i + 1) * length / grid)) for i in range(grid)]

    pictures = []
    for n in range(len(maps[0])):
        grids = []
        for stage, kernel in zip(maps, kernels, strict=True):
            plane = stage[n].permute(1, 2, 0).tolist()
            plane = windowed(plane, sliding(len(plane), kernel), sliding(len(plane[0]), kernel))
            grids.append(windowed(plane, adaptive(len(plane)), adaptive(len(plane[0]))))
        pictures.append([unit([value for g in grids for value in g[y][x]]) for y in range(grid) for x in range(grid)])
    return pictures


def random_maps(sides: tuple[int, ...], *, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    return [torch.randn(2, 3 + number, side, side, dtype=dtype) for number, side in enumerate(sides)]


def test_pools_a_hand_computed_map() -> None:
    # Kernel 2 slides by 1 over 2 x 3, so there are two windows: (3, 4) and (0, 4) are the maxima of the channels.
    stage = torch.tensor([[[3.0, 0, 0], [0, 0, 0]], [[0, 4.0, 2], [1, 1, 1]]])[None]
    regions = pool_regions([stage], kernels=[2], grid=1)
    # Normalised, (.6, .8) and (0, 1); their maximum is (.6, 1), of length sqrt(1.36).
    assert regions[0, 0].tolist() == pytest.approx([0.6 / math.sqrt(1.36), 1 / math.sqrt(1.36)])


def test_counts_regions_row_by_row() -> None:
    stage = torch.zeros(1, 9, 3, 3)
    for region in range(9):
        stage[0, region, region // 3, region % 3] = 1
    assert torch.equal(pool_regions([stage], kernels=[1])[0], torch.eye(9))


@given(
    sizes=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=3),
    grid=st.integers(1, 4),
    seed=st.integers(0, 2**31),
)
def test_agrees_with_the_loop(sizes: list[tuple[int, int, int]], grid: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    maps = [
        torch.randn(2, 3, kernel + dy, kernel + dx, generator=generator, dtype=torch.float64)
        for kernel, dy, dx in sizes
    ]
    kernels = [kernel for kernel, _, _ in sizes]
    expected = torch.tensor(loop(maps, kernels, grid), dtype=torch.float64)
    torch.testing.assert_close(pool_regions(maps, kernels=kernels, grid=grid), expected)


@given(scale=st.floats(1e-3, 1e3), stage=st.integers(0, 3))
def test_scaling_a_stage_changes_nothing(scale: float, stage: int) -> None:
    maps = random_maps((8, 6, 4, 3))
    scaled = [m * scale if number == stage else m for number, m in enumerate(maps)]
    torch.testing.assert_close(pool_regions(scaled, kernels=[4, 3, 2, 1]), pool_regions(maps, kernels=[4, 3, 2, 1]))


@pytest.mark.parametrize("sides", [(56, 28, 14, 7), (28, 14, 7, 4), (64, 32, 16, 8)])
def test_regions_have_unit_length(sides: tuple[int, ...]) -> None:
    regions = pool_regions(random_maps(sides), kernels=list(KERNELS.values()))
    assert regions.shape == (2, 9, 3 + 4 + 5 + 6)
    torch.testing.assert_close(regions.norm(dim=-1), torch.ones(2, 9, dtype=torch.float64))


def test_a_picture_is_described_alike_in_any_batch() -> None:
    maps = random_maps((9, 5))
    alone = pool_regions([m[1:] for m in maps], kernels=[3, 2])
    assert torch.equal(pool_regions(maps, kernels=[3, 2])[1:], alone)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_gives_float32_and_zero_stays_zero(dtype: torch.dtype) -> None:
    maps = [torch.full((1, 2, 4, 4), 30000.0, dtype=dtype), torch.zeros(1, 3, 4, 4, dtype=dtype)]
    regions = pool_regions(maps, kernels=[2, 2])
    assert regions.dtype == torch.float32
    torch.testing.assert_close(regions[0, 0], torch.tensor([0.5**0.5, 0.5**0.5, 0, 0, 0]))
    assert pool_regions(maps[1:], kernels=[2]).abs().max() == 0


def test_a_map_below_its_kernel_is_refused_with_what_would_do() -> None:
    with pytest.raises(ShapeError, match=r"maps\[1\] is 3 x 9, smaller than its pooling kernel 6.*2 times as large"):
        pool_regions([torch.ones(1, 1, 9, 9), torch.ones(1, 1, 3, 9)], kernels=[3, 6])


def test_nan_is_refused() -> None:
    with pytest.raises(DataError, match="pooled regions holds 9 NaN"):
        pool_regions([torch.full((1, 1, 3, 3), torch.nan)], kernels=[1])


@pytest.mark.parametrize(
    ("maps", "kernels", "grid", "error"),
    [
        ([], [], 3, ShapeError),
        ([torch.ones(1, 1, 3, 3)], [1, 1], 3, ShapeError),
        ([torch.ones(1, 3, 3)], [1], 3, ShapeError),
        ([torch.ones(1, 1, 3, 3).int()], [1], 3, ShapeError),
        ([torch.ones(0, 1, 3, 3)], [1], 3, ShapeError),
        ([torch.ones(1, 1, 3, 3), torch.ones(2, 1, 3, 3)], [1, 1], 3, ShapeError),
        ([torch.ones(1, 1, 3, 3)], [0], 3, ConfigError),
        ([torch.ones(1, 1, 3, 3)], [1], 0, ConfigError),
    ],
)
def test_bad_maps_are_refused(maps: list[Tensor], kernels: list[int], grid: int, error: type[Exception]) -> None:
    with pytest.raises(error):
        pool_regions(maps, kernels=kernels, grid=grid)


def test_pictures_are_normalised_pooled_and_whitened() -> None:
    backbone, images = Pyramid().eval(), torch.rand(2, 3, 224, 224)
    regions = extract_regions(backbone, images)
    assert backbone.seen is not None
    torch.testing.assert_close(backbone.seen[:, 1], (images[:, 1] - 0.4) / 0.25)
    torch.testing.assert_close(regions, pool_regions(backbone.stages(backbone.seen), kernels=[28, 14, 6, 3]))
    whitening = Whitening(torch.rand(22), torch.randn(22, 5))
    assert torch.equal(extract_regions(backbone, images, whitening), whitening(regions))


@pytest.mark.parametrize("backbone_class", [ResNet50, EfficientNetLite0])
@pytest.mark.parametrize("side", [MIN_SIDE, 224])
def test_real_backbones_have_nine_regions(backbone_class: type[ResNet50 | EfficientNetLite0], side: int) -> None:
    backbone = backbone_class().eval()
    with torch.no_grad():
        regions = extract_regions(backbone, torch.rand(1, 3, side, side))
    assert regions.shape == (1, 9, sum(backbone.stage_channels))
    torch.testing.assert_close(regions.norm(dim=-1), torch.ones(1, 9))


@pytest.mark.parametrize(
    ("images", "error", "words"),
    [
        (torch.rand(3, 224, 224), ShapeError, "add a first axis"),
        (torch.rand(1, 224, 224, 3), ShapeError, "channels come second"),
        (torch.rand(0, 3, 224, 224), ShapeError, "at least one picture"),
        (torch.rand(1, 3, 111, 224), ShapeError, "at least 112 x 112"),
        (torch.rand(1, 3, 224, 224) * 255, DataError, "Divide bytes by 255"),
        (torch.rand(1, 3, 224, 224) * torch.nan, DataError, "NaN"),
    ],
)
def test_bad_pictures_are_refused(images: Tensor, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        extract_regions(Pyramid().eval(), images)


def test_a_backbone_of_other_stages_than_it_says_is_refused() -> None:
    backbone = Pyramid().eval()
    backbone.stage_channels = (4, 5, 6, 8)
    with pytest.raises(ShapeError, match=r"promises stages of \[4, 5, 6, 8\]"):
        extract_regions(backbone, torch.rand(1, 3, 112, 112))


def test_a_backbone_in_training_mode_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"call \.eval\(\)"):
        extract_regions(Pyramid(), torch.rand(1, 3, 224, 224))
