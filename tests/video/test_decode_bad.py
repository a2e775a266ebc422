"""Files that are damaged, hostile, no files at all, or make the decoder hang."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from av.video.reformatter import VideoReformatter

from hapvr.errors import DecodeError, DecodeLimitError, DecodeTimeoutError, NoVideoError
from hapvr.records import Frames
from hapvr.video import ffmpeg, isolated, limits
from hapvr.video.decode import decode, decode_chunks, probe
from hapvr.video.ffmpeg import FFmpegSource
from hapvr.video.isolated import decode_isolated
from hapvr.video.limits import DecodeLimits
from hapvr.video.quality import luma_of
from hapvr.video.sampling import SamplingConfig
from tests.video import bad_files, media

QUICK = DecodeLimits(max_seconds=20)


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    paths = bad_files.make(tmp_path_factory.mktemp("bad"))
    yield paths
    paths["forbidden.mp4"].chmod(0o600)


def test_every_bad_file_is_accounted_for(bad: dict[str, Path]) -> None:
    assert len(bad) >= 40
    read, failed = {}, {}
    for name, path in bad.items():
        started = time.monotonic()
        try:
            read[name] = decode(path, short_side=32, limits=QUICK)
        except DecodeError as error:
            failed[name] = error
        assert time.monotonic() - started < 5, name
    assert read.keys() | failed.keys() == bad.keys()
    assert all(str(bad[name]) in str(error) for name, error in failed.items())
    # Each kind of file loses something when it is cut, and says so; an index at the end is lost at once.
    assert all(f"cut_{percent}_slow.mp4" in failed for percent in (30, 60))
    assert all("missing at the end" in read[f"cut_{percent}_fast.mp4"].warnings[-1] for percent in (50, 60, 70, 80))
    assert any("missing at the end" in warning for warning in read["cut_60_a.mkv"].warnings)
    for name in ("cut_60_a.gif", "cut_60_a.jpg", "cut_60_a.webm", "hole.ts"):
        assert read[name].warnings, name
    hopeless = {
        "empty.mp4", "text.mp4", "noise.mp4", "playlist.m3u8", "reaching_out.m3u8", "list.ffconcat", "folder.mp4",
        "pipe.mp4", "socket.mp4", "device", "broken_link.mp4", "loop.mp4", "absent.mp4", "long_name",
    }  # fmt: skip
    assert hopeless <= failed.keys()
    assert all(type(failed[name]) is NoVideoError for name in ("sound.m4a", "sound.wav", "sound_with_cover.flac"))
    assert all(type(failed[name]) is DecodeLimitError for name in ("huge_12000.png", "huge.webp"))
    assert read["zero_duration.mp4"].duration_s == pytest.approx(3.0)


def test_probe_takes_every_bad_file(bad: dict[str, Path]) -> None:
    for path in bad.values():
        try:
            info = probe(path, limits=QUICK)
        except DecodeError:
            continue
        assert min(info.size) >= 1


@pytest.mark.parametrize("name", ["cut_50_fast.mp4", "pipe.mp4", "sound.m4a", "noise.mp4", "huge_12000.png"])
def test_a_bad_file_is_the_same_in_a_process_of_its_own(bad: dict[str, Path], name: str) -> None:
    def outcome(function: Any, *settings: Any, **more: Any) -> Any:
        try:
            (frames,) = function(bad[name], *settings, limits=QUICK, **more)
        except DecodeError as error:
            return type(error), str(error)
        return frames.timestamps.tolist(), frames.warnings, frames.images.tobytes()

    sampling = SamplingConfig(fps=1.0, short_side=32, crop=32)
    assert outcome(decode_isolated, sampling) == outcome(decode_chunks, fps=1.0, short_side=32)


@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file(bad: dict[str, Path]) -> None:
    with pytest.raises(DecodeError, match="Permission denied"):
        decode(bad["forbidden.mp4"])


def test_a_warning_says_how_much_is_missing(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (100, 48, 64, 3), dtype=np.uint8)
    path = media.write(tmp_path / "a.mp4", list(noise), rate=10, mux={"movflags": "faststart"})
    os.truncate(path, path.stat().st_size * 2 // 5)
    frames = decode(path, min_frames=0)
    assert frames.duration_s == pytest.approx(4.0, abs=0.5)
    told = frames.warnings[-1]
    assert f"holds {frames.duration_s:.2f} s of the 10.00 s it declares" in told
    assert f"{10 - (frames.duration_s or 0):.2f} s ({1 - (frames.duration_s or 0) / 10:.0%}) are missing" in told


def test_packets_that_cannot_be_decoded_are_counted(tmp_path: Path) -> None:
    path = media.write(tmp_path / "a.mkv", [media.barcode(i) for i in range(40)], codec="ffv1")
    data = bytearray(path.read_bytes())
    for at in range(len(data) // 2, len(data) // 2 + 4000, 7):
        data[at] ^= 0x5A
    path.write_bytes(data)
    frames = decode(path)
    assert frames.warnings
    assert 0 < len(frames) <= 28


def test_a_file_deleted_while_it_is_read_is_read_to_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = media.write(tmp_path / "a.mp4", [media.barcode(index) for index in range(30)])

    def vanish(image: media.Picture) -> Any:
        path.unlink(missing_ok=True)
        return luma_of(image)

    monkeypatch.setattr("hapvr.video.reading.luma_of", vanish)
    frames = decode(path)
    assert not path.exists()
    assert (len(frames), frames.warnings) == (28, ())


def test_a_file_cut_while_it_is_read_gives_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (60, 120, 160, 3), dtype=np.uint8)
    path = media.write(tmp_path / "a.mp4", list(noise), rate=10, mux={"movflags": "faststart"})

    def cut(image: media.Picture) -> Any:
        os.truncate(path, 200_000)
        return luma_of(image)

    monkeypatch.setattr("hapvr.video.reading.luma_of", cut)
    assert "missing at the end" in decode(path, min_frames=0).warnings[-1]


# --- time ----------------------------------------------------------------------------------------------------------


def test_a_slow_decoder_is_given_up_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = media.write(tmp_path / "a.mp4", [media.barcode(index) for index in range(30)])
    honest = FFmpegSource._demux

    def slow(self: FFmpegSource, start_s: float) -> Iterator[Any]:
        for packet in honest(self, start_s):
            time.sleep(0.05)
            yield packet

    monkeypatch.setattr(FFmpegSource, "_demux", slow)
    started = time.monotonic()
    with pytest.raises(DecodeTimeoutError, match=r"gave up after 0\.2 s"):
        decode(path, limits=DecodeLimits(max_seconds=0.2))
    assert time.monotonic() - started < 1


def test_a_pipe_nobody_writes_to_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.mp4")
    with pytest.raises(DecodeError, match="is a pipe, not a file"):
        decode(tmp_path / "pipe.mp4")


@pytest.mark.parametrize(
    "program",
    [
        "import time; time.sleep(60)",
        "import time; print('{', end='', flush=True); time.sleep(60)",
        "import time; print('{\"sizes\": [4, 9]}', flush=True); time.sleep(60)",
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)",
    ],
)
def test_a_process_that_hangs_is_killed(program: str) -> None:
    started = time.monotonic()
    with pytest.raises(DecodeTimeoutError, match=r"'a\.mp4': gave up after 0\.4 s"):
        list(isolated.read_answers([sys.executable, "-c", program], Frames, "a.mp4", DecodeLimits(max_seconds=0.4)))
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "was ended by SIGSEGV without an answer"),
        ("raise RuntimeError('no luck')", "ended with code 1 without an answer: RuntimeError: no luck"),
        ("print('{\"sizes\": [9, 99999999999]}')", "an answer that makes no sense"),
        ("print('{\"sizes\": 7}')", "an answer that makes no sense"),
        ("print('{\"sizes\": [1]}\\n7', end='')", "an answer that makes no sense"),
        ("print('hello')", "an answer that makes no sense"),
        ('print(\'{"error": "SystemExit", "message": "m"}\')', "m"),
    ],
)
def test_a_process_that_crashes_or_lies_is_a_decode_error(program: str, told: str) -> None:
    with pytest.raises(DecodeError, match=told):
        list(isolated.read_answers([sys.executable, "-c", program], Frames, "a.mp4", QUICK))


def test_a_process_of_its_own_gives_the_same_frames(tmp_path: Path) -> None:
    pictures = [np.pad(picture, ((40, 40), (0, 0), (0, 0))) for picture in media.moving(40)]
    path = media.write(tmp_path / "a \udcff.mp4", pictures)
    settings: dict[str, Any] = {"fps": 2.0, "short_side": 60}
    here = decode(path, **settings, min_frames=12, start_s=0.1, end_s=1.0)
    (there,) = decode_isolated(path, SamplingConfig(**settings, at_least=12, crop=48), start_s=0.1, end_s=1.0)
    assert here.crop is not None
    for name in ("duration_s", "fps", "source_size", "crop", "warnings"):
        assert getattr(here, name) == getattr(there, name)
    for name in ("images", "timestamps", "low_information"):
        assert (getattr(here, name) == getattr(there, name)).all()


def test_parts_come_one_by_one_from_a_process_of_its_own(tmp_path: Path) -> None:
    path = media.write(tmp_path / "a.mp4", [media.barcode(index) for index in range(400)], rate=25)
    sampling = SamplingConfig(fps=20.0, at_least=0, short_side=48, crop=48)
    asked: list[int] = []
    parts = decode_isolated(path, sampling, start_s=2.0, end_s=15.0, check=lambda: asked.append(1))
    found = list(parts)
    assert [len(part) for part in found] == [128, 128, 4]
    assert len(asked) == 4  # before each part, and before the end
    whole = decode(path, fps=20.0, min_frames=0, short_side=48, start_s=2.0, end_s=15.0)
    assert np.array_equal(np.concatenate([part.images for part in found]), whole.images)
    assert np.array_equal(np.concatenate([part.timestamps for part in found]), whole.timestamps)


def test_a_process_that_takes_too_much_memory_is_refused(tmp_path: Path) -> None:
    path = media.write(tmp_path / "a.mp4", media.moving(30, (640, 480)))
    sampling = SamplingConfig(fps=30.0, at_least=0, short_side=2000, crop=48)
    with pytest.raises(DecodeLimitError, match="takes more memory than 700 MB"):
        list(decode_isolated(path, sampling, memory_bytes=700 * 2**20))


class _WithoutMemory:
    """A container, packet or scaler of PyAV in which one method does not get the memory it needs."""

    def __init__(self, real: Any, method: str) -> None:
        self._real, self._method = real, method

    def __getattr__(self, name: str) -> Any:
        return self._refuse if name == self._method else getattr(self._real, name)

    def _refuse(self, *_: Any, **__: Any) -> Any:
        if self._method == "reformat":  # a thread cannot start
            raise av.error.BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        raise av.error.MemoryError(errno.ENOMEM, "Cannot allocate memory")

    def demux(self, stream: Any) -> Iterator[Any]:
        for packet in self._real.demux(stream):
            if self._method == "demux":
                self._refuse()
            yield _WithoutMemory(packet, self._method)


@pytest.mark.parametrize("method", ["open", "demux", "decode", "reformat"])
def test_a_lack_of_memory_inside_ffmpeg_is_no_damage(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = media.write(tmp_path / "a.mp4", media.moving(30))
    opened = _WithoutMemory(av, "open").open if method == "open" else av.open
    monkeypatch.setattr(av, "open", lambda *a, **k: _WithoutMemory(opened(*a, **k), method))
    monkeypatch.setattr(ffmpeg, "VideoReformatter", lambda: _WithoutMemory(VideoReformatter(), method))
    with pytest.raises(DecodeError) as refusal:
        decode(path)
    assert "more memory" not in str(refusal.value)  # without a limit, FFmpeg says so of damaged packets
    monkeypatch.setattr(limits, "find_memory_limit", lambda: 700 * 2**20)
    with pytest.raises(DecodeLimitError, match="takes more memory than 700 MB"):
        decode(path)


def test_metadata_that_is_no_utf8_costs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "latin.mp4"
    with av.open(str(path), "w") as container:
        container.metadata["title"] = "A" * 8
        stream = container.add_stream("libx264", rate=5, width=64, height=64, pix_fmt="yuv420p")
        frames = [av.VideoFrame.from_ndarray(np.full((64, 64, 3), 20 * step, np.uint8)) for step in range(10)]
        container.mux([packet for frame in [*frames, None] for packet in stream.encode(frame)])
    data = path.read_bytes()
    assert b"A" * 8 in data
    path.write_bytes(data.replace(b"A" * 8, b"\xe4\xf6\xfc\xff\xfe\xe4\xf6\xfc"))
    assert len(decode(path, fps=5, short_side=32).images) == 10
