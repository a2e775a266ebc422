"""Drawn footage: the same for a seed, other films for other seeds, and something moves in each."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hapvr.errors import ConfigError
from hapvr.synthetic.footage import _SCENES, _Camera, _Scene, draw_footage
from hapvr.synthetic.footage_canvas import HEIGHT, WIDTH

SMALL = (48, 64)


def test_a_seed_gives_one_film() -> None:
    first, second = (draw_footage(5, seconds=1, size=SMALL).images for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_other_seeds_give_other_films_of_the_same_kind_too() -> None:
    films = {
        seed: draw_footage(seed, seconds=0.1, size=SMALL).images[0].astype(int) for seed in (*range(1, 13), 15, 16)
    }
    for one, other in itertools.combinations(films, 2):
        assert np.abs(films[one] - films[other]).mean() > 8, (one, other)


@pytest.mark.parametrize("kind", range(len(_SCENES)))
def test_something_moves_in_every_scene(kind: int) -> None:
    scene = _Scene(_SCENES[kind], np.random.default_rng(kind))
    pictures = [np.asarray(scene.draw(time_s), int) for time_s in (0.0, 0.5, 1.0)]
    for before, after in itertools.pairwise(pictures):
        assert (np.abs(after - before).max(2) > 20).mean() > 0.003
    np.testing.assert_array_equal(np.asarray(scene.draw(0.0), int), pictures[0])  # time alone decides


def test_a_film_has_three_shots() -> None:
    images = draw_footage(2, seconds=6, size=SMALL).images.astype(int)
    steps = np.abs(np.diff(images, axis=0)).mean((1, 2, 3))
    assert (steps > 3 * np.median(steps)).sum() == 2


def test_the_camera_stays_within_the_scene() -> None:
    rng = np.random.default_rng(0)
    for zoom in (0.45, 0.7, 0.95, 1.0):
        camera = _Camera(rng, zoom=zoom)
        for share in (0.0, 0.3, 1.0):
            left, top, right, bottom = camera.find_box(share, 5 * share, 4 / 3)
            assert 0 <= left < right <= WIDTH + 1e-9
            assert 0 <= top < bottom <= HEIGHT + 1e-9
            assert (right - left) / (bottom - top) == pytest.approx(4 / 3)


def test_a_seed_below_1_is_refused() -> None:
    with pytest.raises(ConfigError, match="1 or above"):
        draw_footage(0)
