from __future__ import annotations

import wave
from collections.abc import Iterator
from fractions import Fraction
from itertools import islice
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from hapvr.errors import DecodeError, NoVideoError, StorageError
from hapvr.synthetic import clip_files as files
from hapvr.synthetic.clip import Clip
from hapvr.synthetic.clip_files import read_clip, recompress, write_clip
from hapvr.synthetic.films import draw_scene
from hapvr.video.decode import decode
from tests.synthetic.barcodes import barcodes, read
from tests.video import media


@pytest.mark.parametrize("fps", [5, 12.5, 6.85, 29.97])
def test_a_clip_comes_back_from_its_file(fps: float, tmp_path: Path) -> None:
    clip = draw_scene(3, seconds=2, fps=fps, size=(72, 96))
    write_clip(clip, tmp_path / "clip.mp4")
    back = read_clip(tmp_path / "clip.mp4")
    assert back.images.shape == clip.images.shape
    assert back.fps == pytest.approx(fps, rel=1e-4)
    assert back.seconds == pytest.approx(clip.seconds, abs=1e-3)
    assert np.abs(back.images.astype(int) - clip.images).mean() < 6


def test_every_frame_comes_back_at_its_place(tmp_path: Path) -> None:
    write_clip(barcodes(200, fps=12.5), tmp_path / "clip.mp4")
    assert [read(image) for image in read_clip(tmp_path / "clip.mp4").images] == list(range(200))
    assert [read(image) for image in recompress(barcodes(60, fps=5), crf=40).images] == list(range(60))


def test_the_same_clip_gives_the_same_bytes(tmp_path: Path) -> None:
    clip, rng = draw_scene(5, seconds=4, size=(224, 398)), np.random.default_rng(0)
    litter = []  # an encoder that reads beyond its buffers finds something else each time
    for name in "abcd":
        litter.append(rng.bytes(int(rng.integers(1, 3_000_000))))
        write_clip(clip, tmp_path / name)
    assert len({(tmp_path / name).read_bytes() for name in "abcd"}) == 1


def test_key_frames_are_as_frequent_as_asked_for_and_every_frame_stays_in_its_place(tmp_path: Path) -> None:
    write_clip(barcodes(40, fps=8), tmp_path / "clip.mp4", key_s=1.5)
    with av.open(str(tmp_path / "clip.mp4")) as container:
        keys = [place for place, frame in enumerate(container.decode(video=0)) if frame.key_frame]
    assert max(np.diff([*keys, 40])) <= 12
    assert [read(image) for image in read_clip(tmp_path / "clip.mp4").images] == list(range(40))


def test_odd_sides_gain_a_pixel_in_the_file_and_none_in_memory(tmp_path: Path) -> None:
    clip = draw_scene(0, seconds=1, fps=5, size=(31, 45))
    write_clip(clip, tmp_path / "clip.mp4")
    assert read_clip(tmp_path / "clip.mp4").size == (32, 46)
    assert recompress(clip, crf=30).size == (31, 45)


def test_higher_crf_is_a_worse_picture() -> None:
    clip = draw_scene(5, seconds=1, fps=5, size=(72, 96))
    good, bad = (np.abs(recompress(clip, crf=crf).images.astype(int) - clip.images).mean() for crf in (20, 44))
    assert bad > 2 * good


def test_limits_thin_shrink_and_cut(tmp_path: Path) -> None:
    write_clip(barcodes(80, fps=20, height=60), tmp_path / "clip.mp4")
    clip = read_clip(tmp_path / "clip.mp4", max_fps=5, max_short_side=30, max_seconds=2)
    assert (clip.images.shape, clip.fps) == ((10, 30, 60, 3), 5)
    # The frame on show in the middle of each fifth of a second.
    assert [read(image) for image in clip.images] == [2, 6, 10, 14, 18, 22, 26, 30, 34, 38]


def test_a_varying_rate_is_brought_to_its_mean(tmp_path: Path) -> None:
    source, ticks = barcodes(6, fps=10), [0, 1, 2, 6, 7, 9]
    with av.open(str(tmp_path / "clip.mkv"), "w") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt, stream.bit_rate = 120, 48, "yuv420p", 10**7
        stream.codec_context.time_base = Fraction(1, 10)
        for tick, image in zip(ticks, source.images, strict=True):
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts, frame.time_base = tick, Fraction(1, 10)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    clip = read_clip(tmp_path / "clip.mkv")
    middles = (np.arange(len(clip)) + 0.5) / clip.fps * 10
    on_show = [int(np.searchsorted(ticks, middle, side="right")) - 1 for middle in middles]
    assert [read(image) for image in clip.images] == on_show
    assert clip.seconds == pytest.approx(1.0, abs=0.6 / clip.fps)


def test_a_video_filmed_sideways_comes_upright(tmp_path: Path) -> None:
    images = np.zeros((4, 32, 64, 3), np.uint8)
    images[:, :12, :12] = 255
    write_clip(Clip(images, 5), tmp_path / "clip.mp4")
    media.turn(tmp_path / "clip.mp4", (0, 1, -1, 0))  # shown a quarter turn clockwise
    upright = read_clip(tmp_path / "clip.mp4", max_short_side=16)
    assert upright.size == (32, 16)
    assert upright.images[0, :4, -4:].min() > 200
    assert upright.images[0, :, :8].max() < 50


def test_gifs_and_still_pictures_are_clips(tmp_path: Path) -> None:
    pages = [Image.fromarray(image) for image in barcodes(7, fps=5).images]
    pages[0].save(tmp_path / "a.gif", save_all=True, append_images=pages[1:], duration=200)
    assert [read(image) for image in read_clip(tmp_path / "a.gif").images] == list(range(7))
    pages[3].save(tmp_path / "a.png")
    still = read_clip(tmp_path / "a.png", max_fps=5)
    assert [read(image) for image in still.images] == [3]


def test_what_is_no_video_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.mp4").write_text("not a video")
    (tmp_path / "empty.mp4").touch()
    for name in ("text.mp4", "empty.mp4", "missing.mp4"):
        with pytest.raises(DecodeError, match=name):
            read_clip(tmp_path / name)
    with wave.open(str(tmp_path / "sound.wav"), "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(bytes(16000))
    with pytest.raises(NoVideoError, match="no video stream"):
        read_clip(tmp_path / "sound.wav")


def test_a_damaged_file_gives_what_can_be_read(tmp_path: Path) -> None:
    with av.open(str(tmp_path / "whole.ts"), "w") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt, stream.bit_rate = 120, 48, "yuv420p", 10**6
        for image in barcodes(60, fps=10).images:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())
    content = (tmp_path / "whole.ts").read_bytes()
    (tmp_path / "half.ts").write_bytes(content[: len(content) // 2])
    assert 10 < len(read_clip(tmp_path / "half.ts")) < 60


def test_an_error_on_the_way_keeps_the_frames_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_off(*arguments: object) -> Iterator[tuple[av.VideoFrame, float]]:
        return shown(FailsAfter(arguments[0], frames), *arguments[1:])  # type: ignore[arg-type]

    write_clip(barcodes(20, fps=5), tmp_path / "clip.mp4")
    shown, frames = files._time_frames, 8
    monkeypatch.setattr(files, "_time_frames", break_off)
    assert [read(image) for image in read_clip(tmp_path / "clip.mp4").images] == list(range(8))
    frames = 0
    with pytest.raises(DecodeError, match="cannot read"):
        read_clip(tmp_path / "clip.mp4")


class FailsAfter:
    """A container whose decoder gives up after some frames."""

    def __init__(self, container: object, frames: int) -> None:
        self.container, self.frames = container, frames

    def decode(self, stream: object) -> Iterator[av.VideoFrame]:
        yield from islice(self.container.decode(stream), self.frames)  # type: ignore[attr-defined]
        raise av.InvalidDataError(1, "worn out")


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("hapvr.synthetic.clip_files._write", fail)
    with pytest.raises(StorageError, match="disk full"):
        write_clip(barcodes(2, fps=5), tmp_path / "clip.mp4")
    assert list(tmp_path.iterdir()) == []


def test_a_title_that_is_no_text_does_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "titled.mp4"
    with av.open(str(path), "w") as container:
        container.metadata["title"] = "cartwheel"
        stream = container.add_stream("libx264", rate=5)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for _ in range(3):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(np.zeros((48, 64, 3), np.uint8))))
        container.mux(stream.encode())
    data = path.read_bytes()
    assert data.count(b"cartwheel") == 1
    path.write_bytes(data.replace(b"cartwheel", b"cartwhe?\xd3"))  # a character of more bytes, cut off
    assert len(read_clip(path)) == 3


def test_pixels_that_are_not_square_are_made_square_as_the_decoder_does(tmp_path: Path) -> None:
    path = tmp_path / "narrow.mp4"
    images = draw_scene(3, seconds=1, fps=8).images
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=8)
        stream.width, stream.height, stream.pix_fmt = images.shape[2], images.shape[1], "yuv420p"
        stream.codec_context.sample_aspect_ratio = Fraction(1, 2)
        for image in images:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, "rgb24")))
        container.mux(stream.encode())
    height, width = images.shape[1:3]
    assert read_clip(path).size == (height, width // 2)
    short = read_clip(path, max_short_side=40).size
    assert min(short) == 40
    assert short[1] / short[0] == pytest.approx(width / 2 / height, rel=0.03)
    decoded = decode(path, fps=1.0).images.shape
    assert short[1] / short[0] == pytest.approx(decoded[2] / decoded[1], rel=0.03)
