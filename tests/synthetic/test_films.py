from __future__ import annotations

import ast
import zlib
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import hapvr.synthetic.films
from hapvr.errors import ConfigError, DataError, ShapeError
from hapvr.synthetic.clip import Clip
from hapvr.synthetic.films import draw_scene

SMALL = (48, 64)


def thumbnails(clip: Clip) -> NDArray[np.float64]:
    """[T, 12 * 16 * 3]: means of 4 x 4 pixels."""
    means: NDArray[np.float64] = clip.images.reshape(len(clip), 12, 4, 16, 4, 3).mean((2, 4))
    return means.reshape(len(clip), -1)


def test_a_seed_gives_the_same_bytes_again_and_another_seed_others() -> None:
    first, again, other = (draw_scene(seed, seconds=3, size=SMALL).images for seed in (4, 4, 5))
    assert first.tobytes() == again.tobytes()
    assert first.tobytes() != other.tobytes()


def test_a_seed_gives_the_bytes_it_always_gave() -> None:
    clip = draw_scene(11, seconds=6, fps=4, size=SMALL)
    assert zlib.crc32(clip.images.tobytes()) == 2083380078


def test_films_last_5_to_30_seconds() -> None:
    lengths = [draw_scene(seed, fps=1, size=(16, 16)).seconds for seed in range(30)]
    assert min(lengths) >= 5
    assert max(lengths) <= 30
    assert max(lengths) - min(lengths) > 15


@pytest.mark.parametrize("seed", range(6))
def test_films_have_two_to_five_shots_and_move_within_them(seed: int) -> None:
    clip = draw_scene(seed, size=SMALL)
    steps = np.abs(np.diff(thumbnails(clip), axis=0)).mean(1)
    cuts = int((steps > 25).sum())
    assert 1 <= cuts <= 4
    assert np.median(steps) > 0.2


def test_frames_are_nearer_to_frames_of_their_own_film_than_to_others() -> None:
    clips = [draw_scene(seed, fps=2, size=SMALL) for seed in range(16)]
    frames = np.concatenate([thumbnails(clip) for clip in clips])
    film = np.repeat(np.arange(len(clips)), [len(clip) for clip in clips])
    nearest_elsewhere = np.empty(len(frames))
    right = 0
    for index, frame in enumerate(frames):
        distance = np.abs(frames - frame).mean(1)
        distance[index] = np.inf
        right += film[distance.argmin()] == film[index]
        nearest_elsewhere[index] = distance[film != film[index]].min()
    assert right / len(frames) > 0.98
    assert nearest_elsewhere.min() > 5


def test_another_rate_samples_the_same_film() -> None:
    fine, coarse = (draw_scene(3, seconds=4, fps=fps, size=SMALL) for fps in (8, 4))
    assert (fine.images[::2] == coarse.images).all()


def test_a_very_short_film_is_one_frame() -> None:
    assert len(draw_scene(0, seconds=0.01, size=SMALL)) == 1


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"seconds": 0}, "seconds"),
        ({"seconds": float("nan")}, "seconds"),
        ({"fps": -1}, "fps"),
        ({"size": (8, 64)}, "size"),
    ],
)
def test_impossible_settings_are_refused_by_name(settings: dict[str, float], name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        draw_scene(0, **settings)  # type: ignore[arg-type]


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(ConfigError, match="seed"):
        draw_scene(-1)


def test_drawing_needs_no_decoder() -> None:
    paths = list(Path(hapvr.synthetic.films.__file__).parent.glob("film*.py"))
    assert len(paths) == 3
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
                assert not any(str(name).split(".")[0] in {"av", "PIL", "torch"} for name in names), path.name


def test_a_clip_refuses_what_is_no_video() -> None:
    with pytest.raises(ShapeError, match=r"uint8 \[T, H, W, 3\]"):
        Clip(np.zeros((2, 4, 4), np.uint8), 5)
    with pytest.raises(ShapeError, match="float32"):
        Clip(np.zeros((2, 4, 4, 3), np.float32), 5)
    with pytest.raises(DataError, match="at least one"):
        Clip(np.zeros((0, 4, 4, 3), np.uint8), 5)
    with pytest.raises(DataError, match="fps"):
        Clip(np.zeros((1, 4, 4, 3), np.uint8), 0)
