"""Decoding a video chunk by chunk: the frames of `decode`, read once, to the end."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hapvr.errors import ConfigError, DecodeTimeoutError, NoVideoError
from hapvr.records import Frames
from hapvr.video import reading
from hapvr.video.decode import decode, decode_at, decode_chunks
from hapvr.video.ffmpeg import FFmpegSource
from hapvr.video.limits import DecodeLimits
from hapvr.video.sampling import SamplingConfig
from tests.video import media

SIZE = (80, 48)


def codes(count: int) -> Iterator[media.Picture]:
    return (media.barcode(index, SIZE) for index in range(count))


def joined(parts: list[Frames], name: str) -> Any:
    return np.concatenate([getattr(part, name) for part in parts])


def test_chunks_join_to_the_whole(tmp_path: Path) -> None:
    dark = [np.zeros((48, 80, 3), np.uint8)] * 3
    path = media.write(tmp_path / "a.mp4", [*dark, *codes(150)], rate=10)
    for settings in ({"fps": 10.0, "min_frames": 0}, {"fps": 3.0, "min_frames": 28}, {"fps": 0.5, "min_frames": 40}):
        whole = decode(path, short_side=48, **settings)  # type: ignore[arg-type]
        for chunk in (1, 7, len(whole) - 1, len(whole), 1000):
            parts = list(decode_chunks(path, chunk=chunk, short_side=48, **settings))  # type: ignore[arg-type]
            assert [len(part) for part in parts[:-1]] == [chunk] * (len(whole) // chunk - (len(whole) % chunk == 0))
            for name in ("images", "timestamps", "low_information"):
                assert (joined(parts, name) == getattr(whole, name)).all(), (settings, chunk, name)
            assert parts[-1].duration_s == whole.duration_s
            assert {part.crop for part in parts} == {whole.crop}
            assert parts[-1].warnings == whole.warnings


def wrong_duration(path: Path, factor: float) -> Path:
    data = bytearray(path.read_bytes())
    for kind, offset in ((b"mvhd", 20), (b"tkhd", 24), (b"mdhd", 20)):
        at = data.index(kind) + offset
        data[at : at + 4] = int(int.from_bytes(data[at : at + 4], "big") * factor).to_bytes(4, "big")
    path.write_bytes(data)
    return path


def undeclared(folder: Path, kind: str) -> Path:
    """140 frames in 14 s of which the container says nothing, or something false."""
    frames = codes(140)
    if kind == "h264":
        return media.write(folder / "a.h264", frames, rate=25, container="h264")
    if kind == "mjpeg":
        return media.write(folder / "a.mjpeg", frames, rate=25, codec="mjpeg", pixels="yuvj420p", container="mjpeg")
    if kind in ("mkv", "webm"):
        container, codec = ("matroska", "libx264") if kind == "mkv" else ("webm", "libvpx")
        return media.write(folder / f"a.{kind}", frames, rate=25, codec=codec, container=container, seekable=False)
    path = media.write(folder / "a.mp4", frames, rate=25)
    return wrong_duration(path, float(kind))


@pytest.mark.parametrize("kind", ["h264", "mjpeg", "mkv", "webm", "0", "0.3", "3"])
def test_a_video_is_read_to_its_end_whatever_it_declares(tmp_path: Path, kind: str) -> None:
    path = undeclared(tmp_path, kind)
    parts = list(decode_chunks(path, chunk=9, fps=12.5, min_frames=4, short_side=48))
    assert len(parts) == 8
    times = joined(parts, "timestamps")
    assert [media.read_barcode(image) for image in joined(parts, "images")] == list(range(0, 140, 2))
    assert times == pytest.approx(np.arange(0, 140, 2) / 25, abs=2e-3)
    assert parts[-1].duration_s == pytest.approx(140 / 25, abs=0.05)


@pytest.mark.parametrize("kind", ["mp4", "h264"])
def test_a_long_video_is_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    path = undeclared(tmp_path, "1" if kind == "mp4" else kind)
    passes: list[float] = []
    honest = FFmpegSource.frames

    def counted(self: FFmpegSource, start_s: float) -> Iterator[Any]:
        passes.append(start_s)
        return honest(self, start_s)

    monkeypatch.setattr(FFmpegSource, "frames", counted)
    assert sum(map(len, decode_chunks(path, chunk=5, fps=25.0, min_frames=8, short_side=48))) == 140
    assert passes == [0.0]


def test_bars_are_cut_alike_in_all_chunks(tmp_path: Path) -> None:
    scene = [np.pad(picture, ((40, 40), (0, 0), (0, 0))) for picture in media.moving(25)]
    path = media.write(tmp_path / "a.mp4", [picture for picture in scene for _ in range(4)])
    whole = decode(path, fps=30.0, min_frames=0, short_side=60)
    parts = list(decode_chunks(path, chunk=16, fps=30.0, min_frames=0, short_side=60))
    assert whole.crop is not None
    assert {part.crop for part in parts} == {whole.crop}
    assert (joined(parts, "images") == whole.images).all()


def test_frames_are_skipped_only_while_that_costs_no_precision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """40 s without frames that could be skipped, then 12 s in which sixteen of seventeen can."""
    plain, long_runs = {"bf": "0", "g": "30"}, {"bf": "16", "b_strategy": "0", "g": "300", "x264-params": "b-pyramid=0"}
    first = media.write(
        tmp_path / "1.ts", codes(1000), rate=25, container="mpegts", options={**plain, "preset": "ultrafast"}
    )
    rest = (media.barcode(1000 + index, SIZE) for index in range(24))
    held = (picture for picture in rest for _ in range(12))
    second = media.write(
        tmp_path / "2.ts", held, rate=25, offset=1000, container="mpegts", options={**long_runs, "preset": "veryfast"}
    )
    path = tmp_path / "a.ts"
    path.write_bytes(first.read_bytes() + second.read_bytes())
    strayed: list[bool] = []
    honest = reading.Reading.has_strayed

    def noted(*given: Any) -> bool:
        strayed.append(honest(*given))
        return strayed[-1]

    monkeypatch.setattr(reading.Reading, "has_strayed", noted)
    parts = list(decode_chunks(path, chunk=8, fps=2.0, min_frames=0, short_side=48))
    times = joined(parts, "timestamps")
    assert (np.diff(times) > 0).all()
    instants = np.arange(len(times)) / 2
    assert np.abs(times - instants).max() < 0.13
    assert len(times) == 104  # in 51.52 s
    assert strayed == [False] * strayed.index(True) + [True]  # once, then no frame is skipped any more
    assert not joined(parts, "low_information").any()
    for time_s, image in zip(times, joined(parts, "images"), strict=True):
        index = round(time_s * 25)
        assert media.read_barcode(image) == (index if index < 1000 else 1000 + (index - 1000) // 12)


def test_the_limit_on_frames_counts_all_chunks(tmp_path: Path) -> None:
    path = media.write(tmp_path / "a.mp4", codes(100))
    parts = list(
        decode_chunks(path, chunk=30, fps=30.0, min_frames=0, short_side=48, limits=DecodeLimits(max_frames=70))
    )
    assert [len(part) for part in parts] == [30, 30, 10]
    assert [bool(part.warnings) for part in parts] == [False, False, True]
    assert "Stopped at 70 frames" in parts[-1].warnings[0]


def test_the_clock_stands_still_while_the_caller_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = media.write(tmp_path / "a.mp4", codes(150))
    settings: dict[str, Any] = {"chunk": 40, "fps": 30.0, "min_frames": 0, "short_side": 48}
    count = 0
    for part in decode_chunks(path, limits=DecodeLimits(max_seconds=1.0), **settings):
        time.sleep(0.5)
        count += len(part)
    assert count == 150
    honest = FFmpegSource._demux

    def slow(self: FFmpegSource, start_s: float) -> Iterator[Any]:
        for number, packet in enumerate(honest(self, start_s)):
            time.sleep(0.05 if number > 100 else 0.0)
            yield packet

    monkeypatch.setattr(FFmpegSource, "_demux", slow)
    with pytest.raises(DecodeTimeoutError):
        list(decode_chunks(path, limits=DecodeLimits(max_seconds=0.5), **settings))


def test_a_chunk_that_is_left_closes_the_file(tmp_path: Path) -> None:
    path = media.write(tmp_path / "a.mp4", codes(100))
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    chunks = decode_chunks(path, chunk=10, fps=30.0, min_frames=0, short_side=48)
    next(chunks)
    chunks.close()  # type: ignore[attr-defined]
    assert not before or len(os.listdir("/proc/self/fd")) <= before


def test_bad_settings_and_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="chunk must be at least 1"):
        next(decode_chunks(tmp_path / "a.mp4", chunk=0))
    with pytest.raises(NoVideoError):
        next(decode_chunks(media.write_sound(tmp_path / "a.m4a")))


def test_a_flat_video_says_so_once(tmp_path: Path) -> None:
    path = media.write(tmp_path / "a.mp4", [np.zeros((48, 80, 3), np.uint8)] * 100, rate=Fraction(10))
    parts = list(decode_chunks(path, chunk=40, fps=10.0, min_frames=0, short_side=48))
    told = [warning for part in parts for warning in part.warnings]
    assert len(parts) == 3
    assert [warning for warning in told if "Every frame is flat" in warning] == told[-1:]


# --- single frames, read again ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["mp4", "h264", "mjpeg", "mkv", "webm", "0.3", "bars"])
@pytest.mark.parametrize(("fps", "min_frames"), [(2.0, 28), (7.0, 0)])
def test_frames_are_read_again_by_their_times(tmp_path: Path, kind: str, fps: float, min_frames: int) -> None:
    if kind == "bars":
        scene = [np.pad(picture, ((40, 40), (0, 0), (0, 0))) for picture in media.moving(50)]
        path = media.write(tmp_path / "a.mp4", [picture for picture in scene for _ in range(3)], rate=25)
    else:
        path = undeclared(tmp_path, "1" if kind == "mp4" else kind)
    whole = decode(path, fps=fps, min_frames=min_frames, short_side=48)
    assert (whole.crop is not None) is (kind == "bars")
    places = [len(whole) - 1, 0, 1, len(whole) // 2, 1]
    times = whole.timestamps[places].tolist()
    sampling = SamplingConfig(fps=fps, at_least=min_frames, short_side=48, crop=48)
    found = decode_at(path, times, sampling, crop=whole.crop)
    for place, picture in zip(places, found, strict=True):
        assert np.array_equal(picture, whole.images[place]), place


def test_frames_of_joined_recordings_are_read_again(tmp_path: Path) -> None:
    """The times of the second begin at 0 again; where one seeks to, the clock does not know of that."""
    first, second = (
        media.write(tmp_path / f"{start}.ts", list(codes(200))[start : start + 100], rate=10, container="mpegts")
        for start in (0, 100)
    )
    path = tmp_path / "a.ts"
    path.write_bytes(first.read_bytes() + second.read_bytes())
    whole = decode(path, fps=5.0, min_frames=0, short_side=48)
    assert "go backwards" in " ".join(whole.warnings)
    places = [3, 40, len(whole) - 9]
    found = decode_at(path, whole.timestamps[places].tolist(), SamplingConfig(5.0, 0, 48, 48))
    assert [media.read_barcode(picture) for picture in found] == [
        media.read_barcode(whole.images[place]) for place in places
    ]
    assert media.read_barcode(found[-1]) > 100


def test_a_single_frame_is_sought(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = media.write(tmp_path / "a.mp4", codes(500), rate=10)
    decoded = 0
    honest = FFmpegSource.frames

    def counted(self: FFmpegSource, start_s: float) -> Iterator[Any]:
        nonlocal decoded
        for item in honest(self, start_s):
            decoded += 1
            yield item

    monkeypatch.setattr(FFmpegSource, "frames", counted)
    (picture,) = decode_at(path, [40.0], SamplingConfig(2.0, 28, 48, 48))
    assert media.read_barcode(picture) == 400
    assert decoded < 60
    with pytest.raises(NoVideoError, match=r"has no frame at 40\.04 s"):
        decode_at(path, [40.04], SamplingConfig(2.0, 28, 48, 48))


@pytest.mark.parametrize(("start_s", "end_s"), [(None, 6.2), (3.3, None), (4.1, 9.7), (12.0, 12.3)])
def test_chunks_of_a_part_join_to_the_part(tmp_path: Path, start_s: float | None, end_s: float | None) -> None:
    path = media.write(tmp_path / "a.mp4", codes(150), rate=10)
    for settings in ({"fps": 10.0, "min_frames": 0}, {"fps": 3.0, "min_frames": 28}):
        options: dict[str, Any] = {"short_side": 48, "start_s": start_s, "end_s": end_s, **settings}
        whole = decode(path, **options)
        parts = list(decode_chunks(path, chunk=7, **options))
        for name in ("images", "timestamps", "low_information"):
            assert (joined(parts, name) == getattr(whole, name)).all(), (settings, name)
