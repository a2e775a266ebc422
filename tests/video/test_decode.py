"""Decoding: which frames are taken, when they are shown, how they look."""

from __future__ import annotations

import struct
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from hapvr.errors import ConfigError, DecodeError, DecodeLimitError, NoVideoError
from hapvr.records import Frames
from hapvr.video.decode import decode, find_seek_distances, probe
from hapvr.video.ffmpeg import FFmpegSource
from hapvr.video.limits import DecodeLimits
from tests.video import media

B_FRAMES = {"bf": "3", "b_strategy": "0", "preset": "veryfast", "g": "60"}


def codes(count: int, size: tuple[int, int] = media.SIZE) -> list[media.Picture]:
    return [media.barcode(index, size) for index in range(count)]


def read(frames: Frames) -> list[int]:
    return [media.read_barcode(image) for image in frames.images]


def nearest(times: np.ndarray[Any, Any], fps: float, end_s: float) -> list[int]:
    """The slow way: for each instant the index of the nearest frame, the later of two, each once."""
    chosen: list[int] = []
    step = 0
    while step / fps < end_s - 1e-9:
        instant = step / fps
        best = max(range(len(times)), key=lambda i: (-round(abs(float(times[i]) - instant), 7), i))
        if best not in chosen:
            chosen.append(best)
        step += 1
    return chosen


# --- which frames, and when ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("fps", [0.7, 1.0, 2.0, 6.3])
@pytest.mark.parametrize("rate", [Fraction(30), Fraction(30000, 1001), Fraction(12)])
def test_takes_the_frames_nearest_to_the_instants(tmp_path: Path, fps: float, rate: Fraction) -> None:
    path = media.write(tmp_path / "a.mp4", codes(150, (80, 48)), rate=rate)
    frames = decode(path, fps=fps, min_frames=0, short_side=48)
    times = np.arange(150) / float(rate)
    assert read(frames) == nearest(times, fps, 150 / float(rate))
    assert frames.timestamps == pytest.approx(times[read(frames)], abs=1e-4)
    assert frames.fps == fps
    assert frames.duration_s == pytest.approx(150 / float(rate), abs=1e-3)
    assert frames.warnings == ()


def test_irregular_times_are_kept(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    times_ms = np.cumsum(rng.integers(10, 400, 60)) - 10
    times_ms -= times_ms[0]
    path = media.write(tmp_path / "a.mkv", codes(60), times_ms=times_ms.tolist())
    for fps in (1.0, 3.0):
        frames = decode(path, fps=fps, min_frames=0)
        assert read(frames) == nearest(times_ms / 1000, fps, times_ms[-1] / 1000 + 0.01)
        assert frames.timestamps == pytest.approx(times_ms[read(frames)] / 1000, abs=1e-3)


@pytest.mark.parametrize("name", ["a.mp4", "a.mkv", "a.ts", "a.flv", "a.mov"])
def test_time_begins_with_the_first_frame(tmp_path: Path, name: str) -> None:
    path = media.write(tmp_path / name, codes(90), offset=1000, options=B_FRAMES)
    frames = decode(path, fps=2.0, min_frames=0)
    assert frames.timestamps[0] == 0.0
    assert frames.timestamps == pytest.approx(np.array(read(frames)) / 30, abs=2e-3)


@pytest.mark.parametrize("fps", [1.0, 2.0, 3.5])
@pytest.mark.parametrize("run", [3, 16])
def test_skipping_frames_never_costs_half_a_step(tmp_path: Path, fps: float, run: int) -> None:
    options = {"bf": str(run), "b_strategy": "0", "b-pyramid": "none", "preset": "veryfast", "g": "250"}
    path = media.write(tmp_path / "a.mp4", codes(300, (80, 48)), options=options)
    frames = decode(path, fps=fps, min_frames=0, short_side=48)
    instants = np.arange(len(frames)) / fps
    assert len(frames) == np.ceil(10 * fps)
    assert np.abs(frames.timestamps - instants).max() < 0.5 / fps
    assert np.array(read(frames)) / 30 == pytest.approx(frames.timestamps, abs=1e-4)


def test_frames_are_skipped_where_it_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(FFmpegSource, "skip_unneeded", lambda self: calls.append(self))
    path = media.write(tmp_path / "a.mp4", codes(90))
    decode(path, fps=1.0, min_frames=0)
    assert len(calls) == 1
    decode(path, fps=10.0, min_frames=0)
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("a.h264", {"container": "h264", "options": B_FRAMES}),
        ("a.mjpeg", {"container": "mjpeg", "codec": "mjpeg", "pixels": "yuvj420p", "rate": 25}),
        ("live.mkv", {"container": "matroska", "seekable": False}),
        ("live.ts", {"container": "mpegts", "seekable": False}),
    ],
)
def test_the_duration_need_not_be_declared(tmp_path: Path, name: str, settings: dict[str, Any]) -> None:
    path = media.write(tmp_path / name, codes(90), **settings)
    frames = decode(path)
    assert len(frames) == 28
    rate = settings.get("rate", 30)
    assert frames.duration_s == pytest.approx(90 / rate, abs=0.05)
    assert frames.timestamps == pytest.approx(np.array(read(frames)) / rate, abs=2e-3)
    assert decode(path, fps=2.0, min_frames=0).timestamps == pytest.approx(np.arange(0, 90 / rate, 0.5), abs=0.1)


@pytest.mark.parametrize("name", ["a.mp4", "a.mkv", "a.ts", "a.mjpeg", "a.h264", "a.gif", "a.webp"])
def test_parts_of_a_video_add_up_to_the_whole(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    kinds: dict[str, dict[str, Any]] = {
        "a.mjpeg": {"codec": "mjpeg", "pixels": "yuvj420p", "container": "mjpeg"},
        "a.h264": {"container": "h264"},
        "a.gif": {"codec": "gif", "pixels": "rgb8"},
    }
    if name == "a.webp":
        pictures = [Image.fromarray(code) for code in codes(200)]
        pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=40)
    else:
        media.write(path, codes(200), rate=25, **kinds.get(name, {}))
    whole = decode(path, fps=3.0, min_frames=0, crop_bars=False)
    edges = [0.0, 1.7, 4.0, 4.1, 6.5, 100.0]
    parts = [
        decode(path, fps=3.0, min_frames=0, start_s=start, end_s=end, crop_bars=False) for start, end in pairwise(edges)
    ]
    assert [code for part in parts for code in read(part)] == read(whole)
    assert np.concatenate([part.timestamps for part in parts]) == pytest.approx(whole.timestamps, abs=1e-6)


def test_how_far_a_time_lies_from_its_key_frame(tmp_path: Path) -> None:
    pictures = [media.barcode(index) for index in range(500)]
    path = media.write(tmp_path / "a.mp4", pictures, rate=25, options={"g": "100", "bf": "0", "sc_threshold": "0"})
    distances = find_seek_distances(path, [-1.0, 1.5, 4.5, 5.5, 19.0])
    # Key frames lie at 0, 4, 8 ... seconds, and reading begins a second early at least; at the very start, from 0.
    assert distances == pytest.approx([0.0, 1.5, 4.5, 1.5, 3.0], abs=0.05)


def test_a_seek_that_goes_too_far_is_made_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_far(self: Any, zero: int, start_s: float) -> bool:
        self._container.seek(zero + int((start_s + 2) / self._unit), stream=self._stream)
        return True

    path = media.write(tmp_path / "a.mkv", codes(180))
    honest = decode(path, min_frames=0, start_s=3.0, end_s=5.0)
    monkeypatch.setattr(FFmpegSource, "_seek", too_far)
    assert read(decode(path, min_frames=0, start_s=3.0, end_s=5.0)) == read(honest) == [90, 120]


def test_a_part_after_the_end_is_an_error(tmp_path: Path) -> None:
    path = media.write(tmp_path / "a.mp4", codes(30))
    with pytest.raises(NoVideoError, match=r"no frame between 7 s and its end; it ends at 1 s"):
        decode(path, start_s=7.0)


# --- short videos --------------------------------------------------------------------------------------------------


def test_a_short_video_is_sampled_faster(tmp_path: Path) -> None:
    path = media.write(tmp_path / "a.mp4", codes(120))
    frames = decode(path)
    assert len(frames) == 28
    assert frames.fps == pytest.approx(7.0)
    assert len(decode(path, min_frames=5)) == 5
    assert len(decode(path, fps=10.0)) == 40


def test_a_very_short_video_gives_all_its_frames(tmp_path: Path) -> None:
    frames = decode(media.write(tmp_path / "a.mp4", codes(20)))
    assert read(frames) == list(range(20))
    assert frames.fps == pytest.approx(30.0)
    assert not frames.low_information.any()


def test_bunched_frames_give_at_least_eight(tmp_path: Path) -> None:
    times_ms = [*range(0, 400, 10), 20_000]
    frames = decode(media.write(tmp_path / "a.mkv", codes(41), times_ms=times_ms))
    assert 8 <= len(frames) <= 28
    assert frames.timestamps == pytest.approx(np.array(times_ms)[read(frames)] / 1000)


def test_a_false_duration_does_not_decide(tmp_path: Path) -> None:
    path = media.write(tmp_path / "a.mkv", codes(900, (80, 48)), rate=10)
    data = path.read_bytes()
    at = data.index(b"\x44\x89\x88") + 3  # the element Duration, in milliseconds
    for declared_ms in (1_000.0, 1e6):
        path.write_bytes(data[:at] + struct.pack(">d", declared_ms) + data[at + 8 :])
        assert probe(path).duration_s == declared_ms / 1000
        frames = decode(path, short_side=48)
        assert len(frames) == 90
        assert (frames.fps, frames.duration_s) == (1.0, 90.0)
        assert bool(frames.warnings) == (declared_ms == 1e6)


# --- kinds of files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("a.avi", {"codec": "mpeg4"}),
        ("a.webm", {"codec": "libvpx"}),
        ("a.mpg", {"codec": "mpeg2video", "container": "mpeg", "rate": 25}),
        ("a.mkv", {"codec": "ffv1"}),
        ("a.wmv", {"codec": "wmv2", "container": "asf"}),
        ("a.apng", {"codec": "apng", "container": "apng", "pixels": "rgb24"}),
        ("ten_bits.mkv", {"pixels": "yuv420p10le"}),
        ("a.gif", {"codec": "gif", "pixels": "rgb8", "rate": 10}),
    ],
)
def test_reads_many_kinds(tmp_path: Path, name: str, settings: dict[str, Any]) -> None:
    path = media.write(tmp_path / name, codes(40), **settings)
    frames = decode(path, fps=5.0, min_frames=0)
    rate = settings.get("rate", 30)
    assert frames.timestamps == pytest.approx(np.array(read(frames)) / rate, abs=0.04)
    assert np.diff(frames.timestamps) == pytest.approx(0.2, abs=0.04)
    assert frames.warnings == ()


def test_the_name_does_not_say_what_a_file_is(tmp_path: Path) -> None:
    made = media.write(tmp_path / "a.mp4", codes(10))
    for name in ("clip", "http:x", "concat:a|b", "frame%03d.png", "über -i.txt"):
        path = made.rename(tmp_path / name)
        assert read(decode(path)) == list(range(10))
        made = path


@pytest.mark.parametrize("name", ["a.gif", "a.webp"])
def test_animations_keep_their_times(tmp_path: Path, name: str) -> None:
    pictures = [Image.fromarray(code) for code in codes(12)]
    durations = [100, 50, 400, 30, 70, 200] * 2
    pictures[0].save(tmp_path / name, save_all=True, append_images=pictures[1:], duration=durations, loop=0)
    frames = decode(tmp_path / name)
    assert read(frames) == list(range(12))
    assert frames.timestamps == pytest.approx(np.cumsum([0, *durations[:-1]]) / 1000)
    assert frames.duration_s == pytest.approx(sum(durations) / 1000)


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.webp", "a.bmp", "a.gif", "a.tiff"])
def test_a_picture_is_one_frame(tmp_path: Path, name: str) -> None:
    Image.fromarray(media.barcode(345)).save(tmp_path / name)
    frames = decode(tmp_path / name)
    assert read(frames) == [345]
    assert frames.timestamps.tolist() == [0.0]
    assert frames.warnings == ()
    assert frames.duration_s is None or name == "a.gif"


def test_a_video_of_one_frame(tmp_path: Path) -> None:
    frames = decode(media.write(tmp_path / "a.mp4", codes(1)))
    assert (len(frames), frames.warnings) == (1, ())


@pytest.mark.parametrize("size", [(10, 6), (16, 600), (161, 91), (33, 7), (1920, 34)])
def test_odd_sizes(tmp_path: Path, size: tuple[int, int]) -> None:
    path = media.write(tmp_path / "a.mkv", media.moving(3, size), codec="ffv1", pixels="bgr0")
    frames = decode(path, short_side=64)
    assert min(frames.images.shape[1:3]) == 64
    assert max(frames.images.shape[1:3]) <= 8 * 64
    assert frames.source_size == size
    assert bool(frames.warnings) == (max(size) > 8 * min(size))


def test_a_single_pixel(tmp_path: Path) -> None:
    Image.new("RGB", (1, 1), "red").save(tmp_path / "a.png")
    assert (decode(tmp_path / "a.png", short_side=16).images == (255, 0, 0)).all()


def test_pixels_that_are_not_square(tmp_path: Path) -> None:
    path = media.write(tmp_path / "a.mp4", media.moving(5, (72, 96)), options={"x264-params": "sar=2/1"})
    assert probe(path).size == decode(path).source_size == (144, 96)


MATRICES: dict[str, tuple[tuple[int, int, int, int], Any, int | None]] = {
    "upright": ((1, 0, 0, 1), lambda image: image, 0),
    "right": ((0, 1, -1, 0), lambda image: np.rot90(image, -1), 270),
    "over": ((-1, 0, 0, -1), lambda image: np.rot90(image, 2), 180),
    "left": ((0, -1, 1, 0), lambda image: np.rot90(image, 1), 90),
    "mirrored": ((-1, 0, 0, 1), lambda image: image[:, ::-1], None),
    "upside_down": ((1, 0, 0, -1), lambda image: image[::-1], None),
}


@pytest.mark.parametrize("name", MATRICES)
def test_phone_video_is_turned_upright(tmp_path: Path, name: str) -> None:
    matrix, shown, degrees = MATRICES[name]
    pictures = media.moving(3, (96, 64))
    path = media.turn(media.write(tmp_path / "a.mp4", pictures), matrix)
    frames = decode(path, short_side=64)
    expected = shown(pictures[0])
    assert frames.images[0].shape == expected.shape
    assert np.abs(frames.images[0].astype(int) - expected).mean() < 12
    assert frames.source_size == probe(path).size == expected.shape[1::-1]
    assert degrees is None or probe(path).rotation == degrees


def test_a_picture_from_a_phone_is_turned_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be shown a quarter to the right
    for name in ("a.jpg", "a.webp"):
        Image.fromarray(media.moving(1, (96, 64))[0]).save(tmp_path / name, exif=exif)
        frames = decode(tmp_path / name, short_side=64)
        expected = np.rot90(media.moving(1, (96, 64))[0], -1)
        assert frames.images[0].shape == expected.shape
        assert np.abs(frames.images[0].astype(int) - expected).mean() < 15


@pytest.mark.parametrize("short_side", [64, 256])
def test_resizes_like_an_independent_filter(tmp_path: Path, short_side: int) -> None:
    picture = media.moving(1, (320, 180))[0]
    frames = decode(media.write(tmp_path / "a.mkv", [picture], codec="ffv1", pixels="bgr0"), short_side=short_side)
    width = round(320 * short_side / 180)
    expected = np.asarray(Image.fromarray(picture).resize((width, short_side), Image.Resampling.BILINEAR), int)
    assert frames.images.shape == (1, short_side, width, 3)
    assert np.abs(frames.images[0] - expected).mean() < 3


# --- what a file declares ------------------------------------------------------------------------------------------


def test_probe_says_what_the_file_declares(tmp_path: Path) -> None:
    path = media.write(tmp_path / "a.mp4", codes(60), rate=20)
    info = probe(path)
    assert (info.duration_s, info.size, info.fps, info.frame_count) == (3.0, media.SIZE, 20.0, 60)
    assert (info.codec, info.rotation) == ("h264", 0)
    assert "mp4" in info.container


def test_probe_says_what_is_not_declared(tmp_path: Path) -> None:
    path = media.write(tmp_path / "a.h264", codes(60), container="h264")
    assert (probe(path).duration_s, probe(path).frame_count) == (None, None)


def test_sound_alone_is_not_a_video(tmp_path: Path) -> None:
    with pytest.raises(NoVideoError, match=r"no video stream; it holds audio"):
        decode(media.write_sound(tmp_path / "a.m4a"))
    Image.fromarray(media.barcode(1)).save(tmp_path / "cover.png")
    sound = media.write_sound(tmp_path / "a.flac", "flac").read_bytes()
    (tmp_path / "b.flac").write_bytes(media.with_cover(sound, (tmp_path / "cover.png").read_bytes()))
    with pytest.raises(NoVideoError, match="beside a cover picture"):
        decode(tmp_path / "b.flac")


@pytest.mark.parametrize(
    "settings",
    [
        {"fps": 0.0},
        {"fps": float("nan")},
        {"short_side": 8},
        {"min_frames": -1},
        {"start_s": -1.0},
        {"start_s": 2.0, "end_s": 1.0},
        {"crop_bars": (0, 0, 999, 10)},
    ],
)
def test_settings_out_of_range_are_refused(tmp_path: Path, settings: dict[str, Any]) -> None:
    path = media.write(tmp_path / "a.mp4", codes(3))
    with pytest.raises(ConfigError):
        decode(path, **settings)


# --- limits --------------------------------------------------------------------------------------------------------


def test_too_many_pixels_are_refused(tmp_path: Path) -> None:
    path = media.write(tmp_path / "a.mp4", codes(3))
    with pytest.raises(DecodeLimitError, match=r"160x90 = 14,400 pixels, the limit is 10,000"):
        decode(path, limits=DecodeLimits(max_pixels=10_000))
    Image.fromarray(media.barcode(1)).save(tmp_path / "a.webp")
    with pytest.raises(DecodeLimitError):
        decode(tmp_path / "a.webp", limits=DecodeLimits(max_pixels=10_000))


def test_too_many_frames_are_left_out_with_a_warning(tmp_path: Path) -> None:
    path = media.write(tmp_path / "a.mp4", codes(90))
    frames = decode(path, fps=10.0, limits=DecodeLimits(max_frames=12))
    assert len(frames) == 12
    assert frames.duration_s == 3.0
    assert "Stopped at 12 frames" in frames.warnings[0]


@pytest.mark.parametrize("name", ["max_pixels", "max_frames", "max_seconds"])
def test_limits_are_positive(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        DecodeLimits(**{name: 0})


def test_an_error_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(DecodeError, match=r"absent\.mp4' cannot be opened: No such file"):
        decode(tmp_path / "absent.mp4")


# --- hardware decoders ----------------------------------------------------------------------------------------------


def test_what_a_hardware_decoder_cannot_do_is_decoded_as_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = media.write(tmp_path / "a.mp4", codes(30))
    usual = decode(path)
    monkeypatch.setenv("HAPVR_HWACCEL", "mediacodec")  # of telephones alone
    found = decode(path)
    assert (found.images == usual.images).all()
    monkeypatch.setenv("HAPVR_HWACCEL", "cudda")
    with pytest.raises(ConfigError, match="HAPVR_HWACCEL cannot be 'cudda'; did you mean 'cuda'"):
        decode(path)


def test_a_device_that_cannot_be_opened_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = media.write(tmp_path / "a.mp4", codes(30))

    def refuse(*_: Any, **given: Any) -> None:
        assert given["hwaccel"] is not None
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setenv("HAPVR_HWACCEL", "cuda")
    monkeypatch.setattr("hapvr.video.ffmpeg.av.open", refuse)
    with pytest.raises(DecodeError, match="HAPVR_HWACCEL names a device that cannot be used here"):
        decode(path)
