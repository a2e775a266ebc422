from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hapvr.backbones import EfficientNetLite0
from hapvr.errors import ConfigError, DataError, ShapeError
from hapvr.features import PackedFrames, PackedWriter, extract_regions, extractor
from hapvr.features.extractor import (
    RegionExtractor,
    SamplingConfig,
    decode_parts,
    extract_files,
    find_videos,
    pack_files,
)
from hapvr.features.files import Features
from hapvr.video.files import write_clip
from hapvr.video.synth import draw_scene


@pytest.fixture(scope="module")
def small() -> RegionExtractor:
    torch.manual_seed(0)
    return RegionExtractor(
        EfficientNetLite0(),
        sampling=SamplingConfig(fps=1, at_least=3, short_side=112, crop=112),
        precision=torch.float32,
    )


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("videos")
    (folder / "deep").mkdir()
    for number, name in enumerate(("a.mp4", "b.mp4", "deep/a.mp4")):
        write_clip(draw_scene(number, seconds=3, size=(112, 160)), folder / name)
    (folder / "broken.mp4").write_bytes(b"no video at all")
    (folder / ".hidden").write_bytes(b"")
    return folder


def test_pictures_are_cropped_to_their_centre_and_described(small: RegionExtractor) -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, 120, 160, 3), dtype=np.uint8)
    centre = torch.from_numpy(images[:, 4:116, 24:136]).permute(0, 3, 1, 2) / 255
    with torch.no_grad():
        expected = extract_regions(small.backbone, centre)
    torch.testing.assert_close(small(images), expected, atol=1e-5, rtol=1e-4)


def test_batches_change_nothing(small: RegionExtractor, monkeypatch: pytest.MonkeyPatch) -> None:
    images = np.random.default_rng(1).integers(0, 256, (5, 112, 112, 3), dtype=np.uint8)
    whole = small(images)
    monkeypatch.setattr(small, "batch", 2)
    torch.testing.assert_close(small(images), whole, atol=1e-5, rtol=1e-4)


def test_half_precision_is_close(small: RegionExtractor) -> None:
    images = draw_scene(3, seconds=1, fps=3, size=(112, 112)).images
    half = RegionExtractor(small.backbone, sampling=small.sampling, precision=torch.bfloat16)
    alike = torch.nn.functional.cosine_similarity(half(images), small(images), dim=-1)
    assert alike.min() > 0.99


def test_small_pictures_are_enlarged(small: RegionExtractor) -> None:
    assert small(np.zeros((1, 40, 90, 3), np.uint8)).shape == (1, 9, 1456)


def test_every_file_is_accounted_for(small: RegionExtractor, videos: Path) -> None:
    files = find_videos([videos])
    assert list(files) == ["a.mp4", "b.mp4", "broken.mp4", "deep/a.mp4"]
    kept: dict[str, Features] = {}
    ticks: list[int] = []
    report = extract_files(small, files, kept.__setitem__, done=["b.mp4"], workers=2, progress=ticks.append)
    assert sorted(report.done) == sorted(kept) == ["a.mp4", "deep/a.mp4"]
    assert report.skipped == ["b.mp4"]
    assert [failure.id for failure in report.failed] == ["broken.mp4"]
    assert "broken.mp4" in report.failed[0].error
    assert sum(ticks) == len(files)
    assert report.frames == sum(len(features) for features in kept.values())
    assert report.video_s == pytest.approx(6, abs=0.3)
    times = kept["a.mp4"].timestamps
    assert times is not None
    assert times.tolist() == pytest.approx([0, 1, 2, 3], abs=0.05)


def test_frames_are_packed_and_what_is_there_is_left_out(videos: Path, tmp_path: Path) -> None:
    sampling = SamplingConfig(fps=2, at_least=0, short_side=112, crop=112)
    for skipped in (0, 3):
        with PackedWriter(tmp_path / "packed") as writer:
            report = pack_files(writer, find_videos([videos]), sampling, workers=1)
        assert (len(report.done), len(report.skipped), len(report.failed)) == (3 - skipped, skipped, 1)
    images, times = PackedFrames.open(tmp_path / "packed").frames("deep/a.mp4")
    assert images.shape == (7, 112, 160, 3)
    assert times.tolist() == pytest.approx([0, 0.5, 1, 1.5, 2, 2.5, 3], abs=0.06)


def test_a_video_that_the_store_refuses_is_reported(small: RegionExtractor, videos: Path) -> None:
    def refuse(id: str, _: Features) -> None:
        raise DataError(f"'{id}' is not wanted.")

    report = extract_files(small, {"a": videos / "a.mp4"}, refuse, workers=1)
    assert [(failure.id, failure.error) for failure in report.failed] == [("a", "'a' is not wanted.")]


def test_long_videos_come_in_parts_that_join_to_the_whole(videos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sampling = SamplingConfig(fps=4, at_least=0, short_side=112, crop=112)
    (whole,) = decode_parts(videos / "a.mp4", sampling)
    monkeypatch.setattr(extractor, "_FRAMES_A_PART", 5)
    parts = list(decode_parts(videos / "a.mp4", sampling))
    assert len(parts) == 3
    assert np.concatenate([part.timestamps for part in parts]).tolist() == whole.timestamps.tolist()
    assert np.array_equal(np.concatenate([part.images for part in parts]), whole.images)


def _mortal_work(tasks: Any, results: Any, sampling: SamplingConfig) -> None:
    """The work of a decoding process that a file called "deadly" kills."""
    while True:
        id, path = tasks.get()
        results.put((os.getpid(), id, None, False))
        if id == "deadly":
            time.sleep(0.2)  # until the announcement has left this process
            os.kill(os.getpid(), signal.SIGKILL)
        results.put((os.getpid(), id, *(list(decode_parts(path, sampling))), True))


def test_a_worker_that_dies_takes_only_its_file_with_it(
    small: RegionExtractor, videos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extractor, "_work", _mortal_work)
    files = {"deadly": videos / "a.mp4", "a": videos / "a.mp4", "b": videos / "b.mp4"}
    report = extract_files(small, files, lambda *_: None, workers=1)
    assert sorted(report.done) == ["a", "b"]
    assert [(failure.id, failure.error) for failure in report.failed] == [
        ("deadly", "the decoder died on it (exit code -9)")
    ]


def test_two_files_of_one_name_and_missing_paths_are_refused(videos: Path) -> None:
    with pytest.raises(ConfigError, match=r"would both be called 'a\.mp4'"):
        find_videos([videos / "a.mp4", videos / "deep" / "a.mp4"])
    with pytest.raises(ConfigError, match="is not there"):
        find_videos([videos / "missing"])


def test_bad_pictures_and_settings_are_refused(small: RegionExtractor) -> None:
    with pytest.raises(ShapeError, match=r"uint8 \[T, H, W, 3\]"):
        small(np.zeros((2, 3, 224, 224), np.uint8))
    with pytest.raises(ShapeError, match="float32"):
        small(torch.zeros(2, 224, 224, 3))
    with pytest.raises(ConfigError, match="precision"):
        RegionExtractor(small.backbone, precision=torch.float64)
    with pytest.raises(ConfigError, match="fps > 0"):
        SamplingConfig(fps=0)
