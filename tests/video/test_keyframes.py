"""Key frames alone: which are taken, when a video has too few of them, and what is known of the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hapvr.records import Frames
from hapvr.video.decode import decode, decode_chunks
from hapvr.video.ffmpeg import FFmpegSource
from tests.video import media

SIZE = (80, 48)


def write(path: Path, count: int, *, every: int, **settings: Any) -> Path:
    """A film of `count` frames, 10 a second, each `every`th a key frame."""
    options = {"preset": "ultrafast", "g": str(every), "keyint_min": str(every), "sc_threshold": "0", "bf": "2"}
    pictures = (media.barcode(index % 4096, SIZE) for index in range(count))
    return media.write(path, pictures, rate=10, options=options, **settings)


def read(frames: Frames) -> list[int]:
    return [media.read_barcode(image) for image in frames.images]


@pytest.mark.parametrize("name", ["a.mp4", "a.mkv", "a.ts", "a.avi"])
def test_key_frames_are_taken_and_no_others(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, 200, every=20)
    frames = decode(path, fps=2.0, short_side=48, keyframes=True)
    assert read(frames) == list(range(0, 200, 20))
    assert frames.timestamps == pytest.approx(np.arange(0, 20, 2), abs=2e-3)
    assert frames.duration_s == pytest.approx(20.0, abs=0.11)
    assert frames.warnings == ()
    if not name.endswith(".avi"):  # whose other frames have other times than those they were written with
        every = decode(path, fps=10.0, short_side=48)
        assert (frames.images == every.images[::20]).all()


def test_of_key_frames_near_one_instant_the_nearest_is_taken(tmp_path: Path) -> None:
    path = write(tmp_path / "a.mp4", 160, every=2)
    frames = decode(path, fps=1.0, min_frames=0, short_side=48, keyframes=True)
    assert read(frames) == list(range(0, 160, 10))


@pytest.mark.parametrize(
    ("count", "every"), [(140, 20), (2800, 310), (40, 100)], ids=["fewer than eight", "one in 31 seconds", "one alone"]
)
def test_a_video_with_too_few_is_read_in_full(tmp_path: Path, count: int, every: int) -> None:
    path = write(tmp_path / "a.mp4", count, every=every)
    found, usual = decode(path, fps=2.0, short_side=48, keyframes=True), decode(path, fps=2.0, short_side=48)
    assert (found.timestamps == usual.timestamps).all()
    assert (found.images == usual.images).all()
    assert found.duration_s == usual.duration_s


def test_frames_without_times_are_read_in_full(tmp_path: Path) -> None:
    path = write(tmp_path / "a.h264", 200, every=10, container="h264")
    found = decode(path, fps=2.0, short_side=48, keyframes=True)
    assert found.timestamps == pytest.approx(decode(path, fps=2.0, short_side=48).timestamps)
    assert np.array(read(found)) / 10 == pytest.approx(found.timestamps, abs=2e-3)


@pytest.mark.parametrize("kind", ["gif", "png"])
def test_pictures_and_animations_are_read_as_ever(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"a.{kind}"
    if kind == "gif":
        media.write(path, [media.barcode(index, SIZE) for index in range(30)], codec="gif", rate=10, pixels="rgb8")
    else:
        from PIL import Image

        Image.fromarray(media.barcode(5, SIZE)).save(path)
    found, usual = decode(path, short_side=48, keyframes=True), decode(path, short_side=48)
    assert (found.images == usual.images).all()
    assert found.duration_s == usual.duration_s


def test_where_key_frames_end_all_frames_are_read_from_there(tmp_path: Path) -> None:
    """100 s with a key frame a second, then 70 s with one in 35 s."""
    first = write(tmp_path / "1.ts", 1000, every=10, container="mpegts")
    second = write(tmp_path / "2.ts", 700, every=350, container="mpegts", offset=1000)
    path = tmp_path / "a.ts"
    path.write_bytes(first.read_bytes() + second.read_bytes())
    parts = list(decode_chunks(path, chunk=8, fps=1.0, min_frames=0, short_side=48, keyframes=True))
    times = np.concatenate([part.timestamps for part in parts])
    assert (np.diff(times) > 0).all()
    assert np.diff(times).max() < 30
    assert len(times) > 100 + 40  # not two in the last 70 s
    assert times[-1] == pytest.approx(169, abs=1.5)


def test_a_part_of_a_video_gives_the_key_frames_in_it(tmp_path: Path) -> None:
    path = write(tmp_path / "a.mp4", 600, every=10)
    part = decode(path, fps=2.0, min_frames=0, short_side=48, keyframes=True, start_s=20.0, end_s=40.0)
    assert read(part) == list(range(200, 401, 10))[: len(part)]
    assert len(part) in (20, 21)  # the one at 40 s is nearest to the instant 39.5


def test_a_file_that_was_cut_off_says_so(tmp_path: Path) -> None:
    whole = write(tmp_path / "a.mkv", 600, every=10)
    path = tmp_path / "b.mkv"
    path.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    found = decode(path, fps=2.0, short_side=48, keyframes=True)
    assert 10 < len(found) < 50
    assert any("missing at the end" in warning for warning in found.warnings)


def test_only_frames_that_are_much_reduced_are_not_smoothed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"preset": "veryfast", "bf": "3", "crf": "35"}
    film = [media.barcode(index, (640, 256)) for index in range(40)]
    path = media.write(tmp_path / "a.mp4", film, options=options)
    found = decode(path, fps=10.0, min_frames=0, short_side=64)
    calls: list[FFmpegSource] = []
    monkeypatch.setattr(FFmpegSource, "skip_smoothing", lambda self: calls.append(self))
    smooth = decode(path, fps=10.0, min_frames=0, short_side=64)
    assert len(calls) == 1
    decode(path, fps=10.0, min_frames=0, short_side=65)
    assert len(calls) == 1
    assert np.abs(found.images.astype(int) - smooth.images).mean() < 1.0
    assert (found.timestamps == smooth.timestamps).all()
