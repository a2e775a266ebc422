"""Clips in memory: videos from packed frames, photographs under a moving camera."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from hapvr.errors import ConfigError, DataError, ShapeError, StorageError
from hapvr.features import PackedFrames, PackedWriter
from hapvr.training import load_clips, load_config
from hapvr.training.augment import ViewConfig, make_views
from hapvr.training.camera import Camera, draw_camera_boxes, film
from hapvr.training.clips import ClipRequest, ClipSet, make_planar

CAMERA = Camera(frames=9, size=24)


def video(frames: int, height: int = 32, width: int = 48, *, shade: int = 0) -> NDArray[np.uint8]:
    """Frame i is of the value shade + 10 i."""
    shades = (shade + 10 * np.arange(frames)).astype(np.uint8)
    return np.broadcast_to(shades[:, None, None, None], (frames, height, width, 3)).copy()


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    with PackedWriter(tmp_path / "packed", shard_mib=0.05) as writer:
        for number, frames in enumerate((5, 12, 1)):
            writer.add(
                f"video {number}",
                video(frames, shade=20 * number),
                np.linspace(0.0, 0.5 * frames, frames, endpoint=False),
            )
            writer.flush()
    return tmp_path / "packed"


def picture(folder: Path, name: str, height: int = 40, width: int = 60, *, value: int | None = None) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3)).astype(np.uint8)
    Image.fromarray(pixels if value is None else np.full_like(pixels, value)).save(folder / name)


def test_packed_videos_come_decoded_and_cut_to_a_square(packed: Path) -> None:
    clips = ClipSet.from_packed(packed, size=16)
    assert clips.ids == ("video 0", "video 1", "video 2")
    assert clips.lengths.tolist() == [5, 12, 1]
    assert clips.times[1].tolist() == [0.5 * i for i in range(12)]
    assert clips.skipped == []
    window = clips.window(1, 10, 8)
    assert window.shape == (2, 16, 16, 3)
    assert window.float().mean((1, 2, 3)).tolist() == pytest.approx([120, 130], abs=2)


def test_without_a_size_frames_are_those_that_were_packed(packed: Path) -> None:
    clips = ClipSet.from_packed(packed, size=None)
    expected = PackedFrames.open(packed).frames("video 1")[0]
    assert torch.equal(clips.window(1, 0, 99), torch.from_numpy(expected))


def test_a_damaged_video_is_skipped_and_named_and_the_rest_is_there(packed: Path) -> None:
    shard = packed / "frames-00001.tar"
    data = bytearray(shard.read_bytes())
    data[700:720] = bytes(20)
    shard.write_bytes(data)
    clips = ClipSet.from_packed(packed, size=16)
    assert clips.ids == ("video 0", "video 2")
    assert [id for id, _ in clips.skipped] == ["video 1"]
    assert "damaged" in clips.skipped[0][1]


def test_videos_to_skip_are_not_read(packed: Path) -> None:
    clips = ClipSet.from_packed(packed, size=16, skip={"video 1"})
    assert clips.ids == ("video 0", "video 2")
    with pytest.raises(DataError, match="no video"):
        ClipSet.from_packed(packed, size=16, skip={f"video {i}" for i in range(3)})


def test_a_folder_without_packed_frames_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        ClipSet.from_packed(tmp_path)


def test_packed_single_frames_can_be_photographs(packed: Path) -> None:
    clips = ClipSet.from_packed(packed, size=None, stills=CAMERA)
    assert clips.lengths.tolist() == [5, 12, 9]
    assert clips.window(2, 0, 99).shape == (9, 24, 24, 3)


def test_a_window_outside_a_video_is_refused() -> None:
    clips = ClipSet([torch.from_numpy(video(4))], ["a"])
    for start, length in ((4, 1), (-1, 2), (0, 0)):
        with pytest.raises(DataError, match="frames 0 to 3"):
            clips.window(0, start, length)


def test_clips_that_are_none_are_refused() -> None:
    frames = torch.from_numpy(video(4))
    with pytest.raises(ShapeError, match="'a'"):
        ClipSet([frames.float()], ["a"])
    with pytest.raises(ShapeError, match="'a'"):
        ClipSet([frames[:0]], ["a"])
    with pytest.raises(DataError, match="its own id"):
        ClipSet([frames, frames], ["a", "a"])
    with pytest.raises(DataError, match="its own id"):
        ClipSet([frames, frames], ["a"])


def test_drawn_windows_lie_anywhere_and_repeat_with_the_seed() -> None:
    clips = ClipSet([torch.from_numpy(video(20)), torch.from_numpy(video(3))], ["long", "short"])
    starts = set()
    for seed in range(150):
        long, short = clips.draw([0, 1], length=8, seed=(seed, 1))
        assert len(long) == 8
        assert len(short) == 3
        starts.add(int(long[0, 0, 0, 0]) // 10)
        assert torch.equal(long, clips.draw([0, 1], length=8, seed=(seed, 1))[0])
    assert starts == set(range(13))
    with pytest.raises(ConfigError, match="seed"):
        clips.draw([0], length=8, seed=-4)


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_parts_of_a_video_lie_apart_and_know_where_they_begin(parts: int) -> None:
    frames = torch.arange(11, dtype=torch.uint8).view(11, 1, 1, 1).expand(11, 2, 2, 3)
    clips = ClipSet([frames, frames[:1]], ["long", "short"])
    for seed in range(20):
        drawn = clips.draw_parts([0, 1], length=3, seed=seed, parts=parts)
        assert len(drawn) == 2 * parts
        shown = [set(window[:, 0, 0, 0].tolist()) for window, _ in drawn[:parts]]
        assert [min(each) for each in shown] == [start for _, start in drawn[:parts]]
        assert len(set().union(*shown)) == sum(map(len, shown)) == 3 * parts  # no frame twice
        assert all(len(window) == 1 and start == 0 for window, start in drawn[parts:])  # too short to be cut
    alone = clips.draw([0, 1], length=3, seed=5)
    for one, (other, _) in zip(alone, clips.draw_parts([0, 1], length=3, seed=5), strict=True):
        assert torch.equal(one, other)


def test_sets_are_joined() -> None:
    a = ClipSet([torch.from_numpy(video(4))], ["a"], skipped=[("x", "broken")])
    b = ClipSet([torch.from_numpy(video(1, 30, 40))], ["b"], cameras=[CAMERA])
    both = a + b
    assert both.ids == ("a", "b")
    assert both.lengths.tolist() == [4, 9]
    assert both.skipped == [("x", "broken")]
    assert torch.equal(both.window(1, 2, 3), both.window(1, 0, 9)[2:5])
    views = make_views(both.draw([0, 1], length=12, seed=0), config=ViewConfig(frames=6, size=16), seed=0)
    assert views.pictures.shape == (4, 6, 3, 16, 16)


def test_planar_frames_are_the_same_frames() -> None:
    frames = torch.randint(0, 256, (3, 5, 7, 3), dtype=torch.uint8)
    assert torch.equal(make_planar(frames), frames)
    assert make_planar(frames).permute(0, 3, 1, 2).is_contiguous()


# --- photographs ---------------------------------------------------------------------------------------------------


def test_photographs_become_clips_and_bad_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    picture(tmp_path, "a.png")
    picture(tmp_path / "more", "b.jpg", 300, 200)
    (tmp_path / "cut.jpg").write_bytes((tmp_path / "more" / "b.jpg").read_bytes()[:700])
    (tmp_path / "text.png").write_text("no picture")
    (tmp_path / "notes.txt").write_text("not even the name of one")
    clips = ClipSet.from_pictures(tmp_path, short_side=64, camera=CAMERA)
    assert clips.ids == ("a.png", "more/b.jpg")
    assert [tuple(pixels.shape) for pixels in clips.frames] == [(1, 40, 60, 3), (1, 96, 64, 3)]
    assert [id for id, _ in clips.skipped] == ["cut.jpg", "text.png"]
    assert clips.lengths.tolist() == [9, 9]
    assert clips.window(0, 7, 9).shape == (2, 24, 24, 3)


def test_files_can_be_listed_and_left_out(tmp_path: Path) -> None:
    picture(tmp_path, "a.png")
    picture(tmp_path, "b.png")
    files = [tmp_path / "a.png", tmp_path / "b.png"]
    assert ClipSet.from_pictures(files, camera=CAMERA, skip=[str(files[0])]).ids == (str(files[1]),)
    assert ClipSet.from_pictures(tmp_path, camera=CAMERA, max_pictures=1).ids == ("a.png",)
    assert ClipSet.from_pictures(tmp_path, camera=CAMERA, max_pictures=1, skip=["a.png"]).ids == ("b.png",)
    for words, count in ([], 2), (["data.max_pictures=1"], 1):
        config = load_config("tiny", [f"data.pictures={tmp_path}", *words])
        assert len(load_clips(config, torch.device("cpu"))) == count


def test_folders_without_a_picture_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no picture files"):
        ClipSet.from_pictures(tmp_path)
    with pytest.raises(DataError, match="not a folder"):
        ClipSet.from_pictures(tmp_path / "missing")
    (tmp_path / "a.png").write_bytes(b"")
    with pytest.raises(DataError, match="1 of 1"):
        ClipSet.from_pictures(tmp_path)


def test_a_picture_is_turned_upright_and_made_rgb(tmp_path: Path) -> None:
    turned = Image.new("L", (40, 30), 9)
    exif = turned.getexif()
    exif[0x0112] = 6  # to be turned by a quarter
    turned.save(tmp_path / "a.jpg", exif=exif)
    assert ClipSet.from_pictures(tmp_path).frames[0].shape == (1, 40, 30, 3)


def test_the_same_move_gives_the_same_frames_and_another_one_others() -> None:
    clips = ClipSet([torch.randint(0, 256, (1, 40, 60, 3), dtype=torch.uint8)], ["a"], cameras=[CAMERA])
    assert torch.equal(clips.window(0, 0, 9, move=3), clips.window(0, 0, 9, move=3))
    assert not torch.equal(clips.window(0, 0, 9, move=3), clips.window(0, 0, 9, move=4))


@pytest.mark.parametrize("seed", range(5))
def test_the_camera_stays_within_the_photograph_and_the_zoom(seed: int) -> None:
    boxes = draw_camera_boxes(Camera(frames=30, shake=0.1), (200, 320), (seed,))
    top, left, side = boxes.T
    assert (boxes[:, :2] >= 0).all()
    assert (top + side <= 200 + 1e-9).all()
    assert (left + side <= 320 + 1e-9).all()
    assert side.min() >= 0.5 * 200 - 1e-9
    ratios = side[1:] / side[:-1]
    assert np.allclose(ratios, ratios[0])


def test_a_still_camera_shows_the_photograph() -> None:
    photograph = torch.randint(0, 256, (24, 24, 3), dtype=torch.uint8)
    (shown,) = film([photograph], [np.array([[0.0, 0.0, 24.0]] * 2)], 24)
    assert torch.equal(shown, photograph.expand(2, 24, 24, 3))


def test_frames_agree_with_pillow() -> None:
    photograph = torch.randint(0, 256, (50, 70, 3), dtype=torch.uint8)
    boxes = np.array([[3.0, 10.0, 40.0], [0.0, 20.0, 50.0]])
    for shown, (top, left, side) in zip(film([photograph], [boxes], 16)[0], boxes, strict=True):
        box = (left, top, left + side, top + side)
        cut = Image.fromarray(photograph.numpy()).crop(tuple(int(edge) for edge in box))  # type: ignore[arg-type]
        expected = np.asarray(cut.resize((16, 16), Image.Resampling.BILINEAR))
        assert np.abs(shown.numpy().astype(int) - expected).max() <= 1


@pytest.mark.parametrize("most", [1, 2**29])  # one photograph at a time, all at once
def test_photographs_filmed_together_are_as_filmed_alone(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    sizes, windows = [(30, 50), (44, 20), (20, 20)], [3, 1, 5]
    photographs = [torch.randint(0, 256, (*size, 3), dtype=torch.uint8) for size in sizes]
    boxes = [
        draw_camera_boxes(Camera(frames=count), size, (number,))
        for number, (size, count) in enumerate(zip(sizes, windows, strict=True))
    ]
    alone = [film([photograph], [box], 12)[0] for photograph, box in zip(photographs, boxes, strict=True)]
    monkeypatch.setattr("hapvr.training.camera._MAX_FILMED", most)
    together = film(photographs, boxes, 12)
    assert [len(frames) for frames in together] == windows
    for one, other in zip(alone, together, strict=True):
        assert (one.int() - other.int()).abs().max() <= 1  # sums of another order


def test_windows_of_photographs_and_videos_come_in_the_order_of_the_request() -> None:
    frames = [torch.randint(0, 256, (count, 16, 24, 3), dtype=torch.uint8) for count in (1, 9, 1)]
    clips = ClipSet(frames, ["a", "b", "c"], cameras=[CAMERA, None, replace(CAMERA, size=CAMERA.size + 2)])
    drawn = clips.draw_parts([2, 1, 0], length=4, seed=3, parts=2)
    windows = clips.plan_windows(ClipRequest((2, 1, 0), 4, 3, 2))
    for (shown, start), (video, first, length, move) in zip(drawn, windows, strict=True):
        assert start == first
        assert torch.equal(shown, clips.window(video, first, length, move=move))


def test_the_camera_moves() -> None:
    ramp: Tensor = torch.arange(200, dtype=torch.uint8)[None, :, None].expand(50, 200, 3)
    clips = ClipSet([ramp.contiguous()[None]], ["a"], cameras=[Camera(frames=20, size=16, shake=0.0)])
    way = clips.window(0, 0, 20).float().mean((1, 2, 3)).diff()
    assert (way > -0.2).all() or (way < 0.2).all()  # one direction
    assert way.abs().sum() > 5


@pytest.mark.parametrize(
    "settings", [{"frames": 0}, {"size": 0}, {"zoom": (0.0, 1.0)}, {"zoom": (0.5, 1.2)}, {"shake": -1}]
)
def test_cameras_that_make_no_sense_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        Camera(**settings)  # type: ignore[arg-type]


# --- as the paper takes them ------------------------------------------------------------------------------------------


def pack_wide(folder: Path, attributes: dict[str, float]) -> list[str]:
    """Two videos of wide frames whose columns are 0, 5, 10, ..., and one of a single frame; words for `load_config`."""
    columns = np.broadcast_to((5 * np.arange(48)).astype(np.uint8)[None, None, :, None], (5, 32, 48, 3))
    with PackedWriter(folder, attributes=attributes, quality=95) as writer:
        for id, frames in (("a", 5), ("b", 3), ("c", 1)):
            writer.add(id, columns[:frames].copy(), np.arange(frames, dtype=np.float64))
    return [f"data.frames={folder}", "data.size=32", "views.frames=4", "views.size=16", "run.device=cpu"]


def test_whole_frames_are_kept_where_the_settings_ask_for_them(tmp_path: Path) -> None:
    words = pack_wide(tmp_path / "packed", {"fps": 1.0})
    square = load_clips(load_config("tiny", words), torch.device("cpu"))
    whole = load_clips(load_config("tiny", [*words, "data.whole_frames=true"]), torch.device("cpu"))
    assert square.frames[0].shape == (5, 32, 32, 3)
    assert whole.frames[0].shape == (5, 32, 48, 3)
    assert torch.equal(whole.frames[0], torch.from_numpy(PackedFrames.open(tmp_path / "packed").frames("a")[0]))
    # The square is the middle of the whole.
    assert (square.frames[0].float() - whole.frames[0][:, :, 8:40].float()).abs().max() <= 3


def test_crops_of_whole_frames_reach_all_of_them_and_crops_of_squares_do_not() -> None:
    columns = torch.arange(456).clamp(max=255)[None, None, :, None].expand(2, 256, 456, 3).to(torch.uint8)
    views = ViewConfig(frames=1, size=32)
    reach = []
    for clip in (columns, columns[:, :, 100:356]):
        plans = [make_views([clip], config=views, seed=seed).plan for seed in range(60)]
        left = [int(plan.crop[1, 1]) for plan in plans]
        right = [int(plan.crop[1, 1] + plan.crop[1, 3]) for plan in plans]
        offset = 0 if clip.shape[2] == 456 else 100
        reach.append((min(left) + offset, max(right) + offset))
    assert reach[0][0] < 10
    assert reach[0][1] > 446
    assert reach[1] == pytest.approx((100, 356), abs=5)


def test_a_true_rate_is_required_where_the_settings_name_one(tmp_path: Path) -> None:
    words = pack_wide(tmp_path / "true", {"fps": 1.0, "min_frames": 0})
    clips = load_clips(load_config("tiny", [*words, "data.fps=1"]), torch.device("cpu"))
    assert clips.lengths.tolist() == [5, 3, 1]  # a single frame is a short video, no photograph
    assert load_clips(load_config("tiny", words), torch.device("cpu")).lengths.tolist() == [5, 3, 8]
    words = pack_wide(tmp_path / "faster", {"fps": 1.0})
    with pytest.raises(ConfigError, match=r"packed at 1\.0 frames a second, and short videos faster, to at least 28"):
        load_clips(load_config("tiny", [*words, "data.fps=1"]), torch.device("cpu"))
    words = pack_wide(tmp_path / "other", {"fps": 2.0, "min_frames": 0})
    with pytest.raises(ConfigError, match=r"packed at 2\.0 frames a second\. Pack it by `hapvr frames VIDEOS --fps 1"):
        load_clips(load_config("tiny", [*words, "data.fps=1"]), torch.device("cpu"))
