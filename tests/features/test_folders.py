"""Whole folders: every file is accounted for, whatever is wrong with it and whatever happens to the processes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hapvr.backbones import EfficientNetLite0
from hapvr.errors import ConfigError, DataError
from hapvr.features import FeatureFile, Features, FeatureWriter, PackedFrames, PackedWriter, video_extraction
from hapvr.features.extractor import RegionExtractor
from hapvr.features.features import join_fields
from hapvr.features.video_extraction import extract_files, extract_packed
from hapvr.features.video_packing import pack_files
from hapvr.synthetic.clip_files import write_clip
from hapvr.synthetic.films import draw_scene
from hapvr.video.decode import decode_sampled
from hapvr.video.limits import CHUNK_FRAMES
from hapvr.video.sampling import SamplingConfig
from hapvr.video.video_files import find_videos
from tests.video import media
from tests.workers import pool_probe

SAMPLING = SamplingConfig(fps=1, at_least=4, short_side=112, crop=112)


@pytest.fixture(scope="module")
def small() -> RegionExtractor:
    torch.manual_seed(0)
    return RegionExtractor(EfficientNetLite0(), sampling=SAMPLING, precision=torch.float32, batch=3)


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("videos")
    (folder / "deep").mkdir()
    for number, name in enumerate(("a.mp4", "b.mp4", "deep/a.mp4")):
        write_clip(draw_scene(number, seconds=3, fps=8, size=(112, 160)), folder / name)
    (folder / "broken.mp4").write_bytes(b"no video at all")
    (folder / ".hidden").write_bytes(b"")
    return folder


@pytest.fixture(scope="module")
def packed(videos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packed")
    sampling = SamplingConfig(fps=2, at_least=0, short_side=112, crop=112)
    for skipped in (0, 3):
        with PackedWriter(folder, shard_mib=0.02) as writer:
            report = pack_files(writer, find_videos([videos]), sampling, workers=1)
        assert (len(report.done), len(report.skipped), len(report.failed)) == (3 - skipped, skipped, 1)
    return folder


def test_every_file_is_accounted_for_and_described(small: RegionExtractor, videos: Path, tmp_path: Path) -> None:
    files = find_videos([videos])
    assert list(files) == ["a.mp4", "b.mp4", "broken.mp4", "deep/a.mp4"]
    ticks: list[tuple[int, int]] = []
    with FeatureWriter(tmp_path / "f.h5", sync=False) as writer:
        report = extract_files(
            small, files, writer.add, done=["b.mp4"], workers=2, progress=lambda *tick: ticks.append(tick)
        )
    assert sorted(report.done) == ["a.mp4", "deep/a.mp4"]
    assert report.skipped == ["b.mp4"]
    assert [failure.id for failure in report.failed] == ["broken.mp4"]
    assert "broken.mp4" in report.failed[0].error
    assert ticks == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert report.video_s == pytest.approx(6, abs=0.3)
    with FeatureFile.open(tmp_path / "f.h5") as file:
        assert report.frames == sum(file.lengths.values())
        for id in report.done:  # batches of 3 that run across videos give what each video alone gives
            (frames,) = decode_sampled(files[id], SAMPLING)
            stored = file[id]
            torch.testing.assert_close(stored.regions, small(frames.images), atol=1e-5, rtol=1e-4)
            assert stored.timestamps is not None
            assert stored.low_information is not None
            assert stored.timestamps.tolist() == frames.timestamps.tolist()
            assert stored.low_information.tolist() == frames.low_information.tolist()


def test_frames_are_packed_with_times_and_flags(packed: Path, videos: Path) -> None:
    frames = PackedFrames.open(packed)
    images, times = frames.frames("deep/a.mp4")
    assert images.shape == (6, 112, 160, 3)
    assert times.tolist() == pytest.approx([0, 0.5, 1, 1.5, 2, 2.5], abs=1e-3)
    (exact,) = decode_sampled(videos / "deep/a.mp4", SamplingConfig(fps=2, at_least=0, short_side=112, crop=112))
    assert np.abs(images.astype(int) - exact.images).mean() < 4  # JPEG
    flags = frames["deep/a.mp4"].low_information
    assert flags is not None
    assert flags.tolist() == exact.low_information.tolist()


def test_a_long_video_of_unknown_length_passes_through_whole(tmp_path: Path) -> None:
    count = CHUNK_FRAMES + 40
    codes = (media.barcode(index, (64, 48)) for index in range(count))
    path = media.write(tmp_path / "long.mjpeg", codes, rate=25, codec="mjpeg", pixels="yuvj420p", container="mjpeg")
    sampling = SamplingConfig(fps=25, at_least=0, short_side=48, crop=48)
    with PackedWriter(tmp_path / "packed") as writer:
        report = pack_files(writer, {"long": path}, sampling, workers=1)
    assert (report.done, report.frames) == (["long"], count)
    images, times = PackedFrames.open(tmp_path / "packed").frames("long")
    assert [media.read_barcode(image) for image in images] == list(range(count))
    assert times == pytest.approx(np.arange(count) / 25, abs=1e-3)


def test_features_of_a_long_video_wait_on_disk(
    small: RegionExtractor, videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"a": videos / "a.mp4", "b": videos / "b.mp4"}
    kept: dict[str, Features] = {}
    extract_files(small, files, kept.__setitem__, workers=1)
    monkeypatch.setattr(video_extraction, "_MAX_HELD_BYTES", 1)
    with FeatureWriter(tmp_path / "f.h5", sync=False) as writer:
        report = extract_files(small, files, writer.add, workers=1)
    assert report.done == ["a", "b"]
    with FeatureFile.open(tmp_path / "f.h5") as file:
        for id, features in kept.items():
            torch.testing.assert_close(file[id].regions, features.regions, atol=1e-5, rtol=1e-4)
            assert file[id].timestamps.tolist() == features.timestamps.tolist()  # type: ignore[union-attr]
            assert file[id].low_information.tolist() == features.low_information.tolist()  # type: ignore[union-attr]


def test_a_video_that_the_store_refuses_is_reported(small: RegionExtractor, videos: Path) -> None:
    def refuse(id: str, _: Features) -> None:
        raise DataError(f"'{id}' is not wanted.")

    report = extract_files(small, {"a": videos / "a.mp4"}, refuse, workers=1)
    assert [(failure.id, failure.error) for failure in report.failed] == [("a", "'a' is not wanted.")]


def test_pictures_that_give_no_finite_regions_cost_only_their_video(
    small: RegionExtractor, videos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = small.regions
    (bad,) = decode_sampled(videos / "b.mp4", SAMPLING)

    def sour(pictures: torch.Tensor) -> torch.Tensor:
        if any(np.array_equal(picture, bad.images[0, :, 24:136]) for picture in pictures.numpy()):
            raise DataError("pooled regions hold 3 NaN.")
        return honest(pictures)

    monkeypatch.setattr(small, "regions", sour)
    files = {id: videos / id for id in ("a.mp4", "b.mp4", "deep/a.mp4")}
    report = extract_files(small, files, lambda *_: None, workers=2)
    assert sorted(report.done) == ["a.mp4", "deep/a.mp4"]
    assert [(failure.id, failure.error) for failure in report.failed] == [("b.mp4", "pooled regions hold 3 NaN.")]


def test_parts_that_do_not_fit_together_cost_only_their_video(
    small: RegionExtractor, videos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = join_fields
    joined: list[int] = []

    def refuse_the_first(parts: Any) -> Any:
        joined.append(len(parts))
        if len(joined) == 1:
            raise DataError("timestamps must be finite and strictly increasing.")
        return honest(parts)

    monkeypatch.setattr(video_extraction, "join_fields", refuse_the_first)
    report = extract_files(small, {"a": videos / "a.mp4", "b": videos / "b.mp4"}, lambda *_: None, workers=1)
    assert len(report.done) == 1
    assert [failure.error for failure in report.failed] == ["timestamps must be finite and strictly increasing."]


def test_a_worker_that_dies_takes_only_its_file_with_it(
    small: RegionExtractor, videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(video_extraction, "read_video", pool_probe.mortal)
    (tmp_path / "deadly.mp4").write_bytes((videos / "a.mp4").read_bytes())
    files = {"deadly": tmp_path / "deadly.mp4", "a": videos / "a.mp4", "b": videos / "b.mp4"}
    report = extract_files(small, files, lambda *_: None, workers=1)
    assert sorted(report.done) == ["a", "b"]
    assert [(failure.id, failure.error) for failure in report.failed] == [
        ("deadly", "the process that read it was ended by SIGKILL")
    ]


def test_what_is_no_file_is_found_too_and_what_is_hidden_is_not(tmp_path: Path) -> None:
    (tmp_path / "x.mp4").mkdir()
    (tmp_path / "x.mp4" / "inside.mp4").write_bytes(b"")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "a.mp4").write_bytes(b"")
    (tmp_path / "nowhere.mp4").symlink_to(tmp_path / "gone")
    (tmp_path / "folder_link").symlink_to(tmp_path / "x.mp4")
    os.mkfifo(tmp_path / "pipe.mp4")
    assert list(find_videos([tmp_path])) == ["folder_link", "nowhere.mp4", "pipe.mp4", "x.mp4/inside.mp4"]
    assert list(find_videos([tmp_path / "nowhere.mp4"])) == ["nowhere.mp4"]


def test_two_files_of_one_name_and_missing_paths_are_refused(videos: Path, small: RegionExtractor) -> None:
    with pytest.raises(ConfigError, match=r"would both be called 'a\.mp4'"):
        find_videos([videos / "a.mp4", videos / "deep" / "a.mp4"])
    with pytest.raises(ConfigError, match="is not there"):
        find_videos([videos / "missing"])
    with pytest.raises(ConfigError, match="workers must be at least 1"):
        extract_files(small, {"a": videos / "a.mp4"}, lambda *_: None, workers=0)


# --- packed frames ---------------------------------------------------------------------------------------------------


def test_features_of_packed_frames_are_those_of_their_pictures(small: RegionExtractor, packed: Path) -> None:
    frames = PackedFrames.open(packed)
    assert any(len(frames[id].parts) > 1 for id in frames)  # videos that go on in the next shard
    kept: dict[str, Features] = {}
    ticks: list[tuple[int, int]] = []
    report = extract_packed(
        small,
        frames,
        kept.__setitem__,
        done=["b.mp4"],
        workers=2,
        dtype=torch.float32,
        progress=lambda *tick: ticks.append(tick),
    )
    assert sorted(report.done) == sorted(kept) == ["a.mp4", "deep/a.mp4"]
    assert (report.skipped, report.failed, ticks) == (["b.mp4"], [], [(1, 3), (2, 3), (3, 3)])
    for id, features in kept.items():
        images, times = frames.frames(id)
        torch.testing.assert_close(features.regions, small(images), atol=1e-5, rtol=1e-4)
        assert features.timestamps is not None
        assert features.low_information is not None
        assert features.timestamps.tolist() == times.tolist()
        assert features.low_information.tolist() == frames[id].low_information.tolist()  # type: ignore[union-attr]


def test_a_damaged_picture_costs_its_video_and_no_other(small: RegionExtractor, packed: Path, tmp_path: Path) -> None:
    for file in packed.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    frames = PackedFrames.open(tmp_path)
    part = frames["b.mp4"].parts[0]
    with open(part.path, "r+b") as shard:
        shard.seek(part.offsets[0] + 100)
        shard.write(b"damage")
    kept: dict[str, Features] = {}
    report = extract_packed(small, frames, kept.__setitem__, workers=1)
    assert sorted(report.done) == sorted(kept) == ["a.mp4", "deep/a.mp4"]
    assert [failure.id for failure in report.failed] == ["b.mp4"]
    assert "frame 0 of 'b.mp4' is damaged: its bytes are not those that were written" in report.failed[0].error
    assert kept["a.mp4"].regions.dtype == torch.float16
