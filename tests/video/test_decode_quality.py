"""Bars are cut, flat and static frames are flagged, dark scenes are left alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hapvr.video.decode import decode
from hapvr.video.quality import BarFinder, LowInformation, _block_means, is_flat, luma_of, thin
from tests.video import media


def padded(pictures: list[media.Picture], top: int, bottom: int, left: int, right: int) -> list[media.Picture]:
    return [np.pad(picture, ((top, bottom), (left, right), (0, 0))) for picture in pictures]


BARS = {"letterbox": (30, 30, 0, 0), "pillarbox": (0, 0, 40, 40), "window": (20, 20, 24, 24), "one": (0, 40, 0, 0)}


@pytest.mark.parametrize("kind", BARS)
def test_a_letterboxed_video_gives_about_the_frames_of_the_original(tmp_path: Path, kind: str) -> None:
    pictures = media.moving(30)
    original = decode(media.write(tmp_path / "a.mp4", pictures), short_side=120)
    top, bottom, left, right = BARS[kind]
    boxed = decode(media.write(tmp_path / "b.mp4", padded(pictures, *BARS[kind])), short_side=120)
    assert original.crop is None
    assert boxed.crop is not None
    wanted = (left, top, left + 160, top + 120)
    assert np.abs(np.subtract(boxed.crop, wanted)).max() <= 4
    assert boxed.source_size == (160 + left + right, 120 + top + bottom)
    assert boxed.timestamps.tolist() == original.timestamps.tolist()
    assert boxed.images.shape[1] == 120
    common = min(boxed.images.shape[2], original.images.shape[2])
    a, b = (frames.images[:, :, :common].astype(int) for frames in (original, boxed))
    assert np.abs(a - b).mean() < 12
    uncut = decode(tmp_path / "b.mp4", short_side=120, crop_bars=False)
    assert uncut.crop is None
    assert uncut.images.shape[1:3] != boxed.images.shape[1:3] or kind == "window"


def test_one_box_holds_for_the_whole_video(tmp_path: Path) -> None:
    pictures = padded(media.moving(20), 30, 30, 0, 0)
    black = np.zeros_like(pictures[0])
    wider = padded([picture[:100] for picture in media.moving(20)], 40, 40, 0, 0)  # a scene with higher bars
    frames = decode(media.write(tmp_path / "a.mp4", [black] * 10 + wider + pictures), short_side=60)
    assert frames.crop is not None
    assert 30 <= frames.crop[1] <= 34
    assert 146 <= frames.crop[3] <= 150


def test_bars_that_hold_something_once_are_no_bars(tmp_path: Path) -> None:
    pictures = padded(media.moving(20), 30, 30, 0, 0)
    frames = decode(media.write(tmp_path / "a.mp4", [*pictures, *media.moving(3, (160, 180))]), short_side=60)
    assert frames.crop is None


def test_a_box_can_be_given(tmp_path: Path) -> None:
    pictures = padded(media.moving(8), 30, 30, 0, 0)
    path = media.write(tmp_path / "a.mp4", pictures)
    found = decode(path, short_side=60)
    given = decode(path, short_side=60, crop_bars=found.crop or False)
    assert given.crop == found.crop
    assert (given.images == found.images).all()


def test_a_dark_scene_is_not_cut(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    night = []
    for step in range(20):  # a lamp that moves in the dark
        y, x = np.mgrid[:120, :160]
        lamp = 200 * np.exp(-((x - 60 - 2 * step) ** 2 + (y - 60) ** 2) / 200)
        night.append(np.repeat((lamp + rng.integers(0, 12, (120, 160)))[..., None], 3, -1).astype(np.uint8))
    frames = decode(media.write(tmp_path / "a.mp4", night), short_side=120)
    assert frames.crop is None
    assert not frames.low_information.all()


def test_a_skyline_is_not_cut(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    skyline = np.repeat(rng.integers(30, 90, 20), 8)
    city = []
    for step in range(10):
        picture = np.zeros((120, 160, 3), np.uint8)
        for x, height in enumerate(skyline):
            picture[height:, x] = 100 + 5 * step + x // 2
        city.append(picture)
    assert decode(media.write(tmp_path / "a.mp4", city), short_side=120).crop is None


def test_a_black_video_is_flagged_and_not_cut(tmp_path: Path) -> None:
    frames = decode(media.write(tmp_path / "a.mp4", [np.zeros((90, 160, 3), np.uint8)] * 30))
    assert frames.low_information.all()
    assert frames.crop is None
    assert "Every frame is flat" in frames.warnings[0]


def test_black_and_repeated_frames_are_flagged(tmp_path: Path) -> None:
    black, white = np.zeros((120, 160, 3), np.uint8), np.full((120, 160, 3), 255, np.uint8)
    a, b = media.moving(12)[::11]
    path = media.write(tmp_path / "a.mp4", [black, a, a, a, black, a, b, white, b], rate=1)
    assert decode(path).low_information.tolist() == [True, False, True, True, True, True, False, True, True]


def test_slow_change_adds_up() -> None:
    seen = LowInformation()
    ramp = np.tile(np.arange(64, dtype=np.uint8), (64, 1))
    flags = [seen.classify(thin(ramp + step)) for step in range(9)]
    assert flags == [None, "static", "static", "static"] * 2 + [None]


def test_a_small_change_is_seen() -> None:
    seen = LowInformation()
    face = np.tile(np.arange(64, dtype=np.uint8), (64, 1))
    talking = face.copy()
    talking[40:48, 24:40] += 20
    assert [seen.classify(thin(face)), seen.classify(thin(talking))] == [None, None]


@pytest.mark.parametrize("size", [(16, 16), (17, 31), (5, 40)])
def test_frames_of_any_size_can_be_compared(size: tuple[int, int]) -> None:
    seen = LowInformation()
    picture = np.random.default_rng(0).integers(0, 256, size).astype(np.uint8)
    assert [seen.classify(thin(picture)), seen.classify(thin(picture)), seen.classify(thin(255 - picture))] == [
        None,
        "static",
        None,
    ]


def test_flat_is_a_matter_of_two_percent() -> None:
    picture = np.full((50, 40), 100, np.uint8)
    picture.flat[:40] = 109
    assert is_flat(picture)
    picture.flat[40] = 109
    assert not is_flat(picture)


def test_a_picture_flat_but_for_its_border_is_left_whole(tmp_path: Path) -> None:
    half = np.zeros((120, 160, 3), np.uint8)
    half[:, 80:] = 255
    Image.fromarray(half).save(tmp_path / "a.png")
    assert decode(tmp_path / "a.png").crop is None


def test_bars_may_take_two_thirds_at_most() -> None:
    finder = BarFinder()
    frame = np.zeros((90, 160), np.uint8)
    frame[35:60] = np.arange(60, 220, dtype=np.uint8)
    finder.add(frame)
    assert finder.box((160, 90)) is None


def test_that_there_are_no_bars_is_said_only_where_a_full_search_finds_none() -> None:
    rng = np.random.default_rng(0)
    said = 0
    for trial in range(60):
        finder = BarFinder()
        top, bottom, left, right = rng.integers(0, 6, 4) * (rng.random(4) < 0.5)  # rows and columns that stay black
        for _ in range(3):
            frame = np.zeros((60, 90), np.uint8)
            frame[top : 60 - bottom, left : 90 - right] = rng.integers(25, 256) * (rng.random() < 0.8)
            frame[::17, ::23] = 255  # stray pixels
            finder.add(frame)
        said += finder.has_none
        shortcut, finder.has_none = finder.box((90, 60)), False
        assert shortcut == finder.box((90, 60)), trial
    assert 5 < said < 30


def test_one_dark_border_is_enough_to_go_on_looking_for_bars() -> None:
    lit = np.tile(np.arange(40, 200, dtype=np.uint8), (90, 1))
    for border in (np.s_[:4], np.s_[-4:], np.s_[:, :4], np.s_[:, -4:]):
        finder = BarFinder()
        frame = lit.copy()
        frame[border] = 0
        finder.add(frame)
        assert not finder.has_none
        finder.add(lit)
        assert finder.has_none
        assert finder.box((160, 90)) is None


@pytest.mark.parametrize("size", [(8, 8), (9, 21), (3, 6), (1, 1)])
def test_blocks_are_means_as_a_slow_loop_takes_them(size: tuple[int, int]) -> None:
    luma = np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)
    height, width = (max(length // 4, 1) for length in size)
    wanted = [[luma[4 * y : 4 * y + 4, 4 * x : 4 * x + 4].mean() for x in range(width)] for y in range(height)]
    assert _block_means(luma).tolist() == wanted


def test_brightness_counts_green_twice() -> None:
    assert luma_of(np.array([[[255, 255, 255], [10, 20, 30], [0, 255, 0], [1, 1, 4]]], np.uint8)).tolist() == [
        [255, 20, 127, 1]
    ]
