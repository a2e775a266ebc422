"""Miniatures: by hand, by a slow loop, and what they must not depend on."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from hapvr.video.pictures import MINIATURE_SIDE, make_miniatures


def frames(*shape: int, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (*shape, 3), dtype=np.uint8)


def test_by_hand() -> None:
    picture = np.zeros((2, 32, 32, 3), np.uint8)
    picture[1, :2, :2] = (100, 200, 50)  # the first cell of the second frame
    picture[1, 2, 2] = 255  # a quarter of another
    found = make_miniatures(picture)
    assert found[0].max() == 0
    assert found[1, 0, 0] == round(0.299 * 100 + 0.587 * 200 + 0.114 * 50)
    assert found[1, 1, 1] == 64  # 63.75
    assert np.count_nonzero(found[1]) == 2


@pytest.mark.parametrize("size", [(32, 48), (128, 160), (100, 37), (16, 16)])
def test_cells_are_means_as_a_slow_loop_takes_them(size: tuple[int, int]) -> None:
    images = frames(2, *size)
    edges = [[int(length * cell / MINIATURE_SIDE) for cell in range(MINIATURE_SIDE)] + [length] for length in size]
    for t, found in enumerate(make_miniatures(images)):
        for i in range(MINIATURE_SIDE):
            for j in range(MINIATURE_SIDE):
                rows, columns = (
                    slice(edge[k], max(edge[k] + 1, edge[k + 1])) for edge, k in zip(edges, (i, j), strict=True)
                )
                red, green, blue = images[t, rows, columns].reshape(-1, 3).astype(float).mean(0)
                assert abs(found[i, j] - (0.299 * red + 0.587 * green + 0.114 * blue)) <= 0.51


def test_noise_and_size_hardly_matter_and_a_mirror_image_is_one() -> None:
    steps = np.repeat(np.repeat(frames(1, 8, 8, seed=1), 64, 1), 64, 2)  # [1, 512, 512, 3]
    small = make_miniatures(steps).astype(int)
    noise = np.random.default_rng(2).normal(0, 30, steps.shape)
    spoilt = make_miniatures(np.clip(steps + noise, 0, 255).astype(np.uint8)).astype(int)
    assert np.abs(spoilt - small).mean() < 6
    assert np.abs(make_miniatures(steps[:, ::2, ::2]).astype(int) - small).max() <= 1
    assert np.array_equal(make_miniatures(np.ascontiguousarray(steps[:, :, ::-1])), small[:, :, ::-1])


@pytest.mark.parametrize("size", [(1, 1), (3, 500), (5, 7)])
def test_frames_smaller_than_a_miniature(size: tuple[int, int]) -> None:
    images = np.full((3, *size, 3), 90, np.uint8)
    found = make_miniatures(images)
    assert found.shape == (3, MINIATURE_SIDE, MINIATURE_SIDE)
    assert (found == 90).all()
