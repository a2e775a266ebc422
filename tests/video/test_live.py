"""Streams: a file that grows, a playlist, an address; and what is no stream."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hapvr.errors import ConfigError, DecodeError, DecodeTimeoutError
from hapvr.records import Frames
from hapvr.video.live import GrowingFile, StreamConfig, is_address, read_stream, sample_stream
from hapvr.video.sampling import SamplingConfig
from tests.video import media

SIZE = (80, 48)
SAMPLING = SamplingConfig(fps=2.0, short_side=48, crop=48)
OPTIONS = {"preset": "ultrafast", "g": "20"}


def write(path: Path, count: int, *, first: int = 0, **settings: Any) -> Path:
    pictures = (media.barcode(first + index, SIZE) for index in range(count))
    return media.write(path, pictures, rate=10, options=OPTIONS, **settings)


def read(parts: list[Frames]) -> list[int]:
    return [media.read_barcode(image) for part in parts for image in part.images]


def test_a_file_is_read_to_its_end_a_second_at_a_time(tmp_path: Path) -> None:
    path = write(tmp_path / "a.mp4", 100)
    parts = list(read_stream(str(path), SAMPLING, StreamConfig()))
    assert read(parts) == list(range(0, 100, 5))
    assert np.concatenate([part.timestamps for part in parts]) == pytest.approx(np.arange(20) / 2, abs=1e-3)
    assert max(len(part) for part in parts) == 2


def test_a_file_that_grows_is_followed(tmp_path: Path) -> None:
    """The second half is written when frames of the first have come. The last frame is held back until the end."""
    whole = write(tmp_path / "whole.ts", 300, container="mpegts").read_bytes()
    path = tmp_path / "a.ts"
    path.write_bytes(whole[: len(whole) // 2])
    seen: list[Frames] = []
    with closing(read_stream(str(path), SAMPLING, StreamConfig(follow=True, idle_s=60.0))) as parts:
        for part in parts:
            seen.append(part)
            if len(seen) == 2:
                with path.open("ab") as file:
                    file.write(whole[len(whole) // 2 :])
            if sum(map(len, seen)) >= 58:
                break
    assert read(seen) == list(range(0, 300, 5))[: sum(map(len, seen))]


def test_a_growing_file_ends_when_nothing_comes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    file = GrowingFile(str(tmp_path / "a"), idle_s=0.05)
    assert file.read(2) == b"ab"
    assert file.read(10) == b"c"
    assert file.read(10) == b""
    file.close()


def write_playlist(folder: Path) -> Path:
    """Three parts of 4 s in one playlist."""
    lines = ["#EXTM3U", "#EXT-X-VERSION:3", "#EXT-X-TARGETDURATION:4", "#EXT-X-MEDIA-SEQUENCE:0"]
    for number in range(3):
        write(folder / f"{number}.ts", 40, first=40 * number, container="mpegts", offset=40 * number)
        lines += ["#EXTINF:4.0,", f"{number}.ts"]
    path = folder / "live.m3u8"
    path.write_text("\n".join([*lines, "#EXT-X-ENDLIST", ""]))
    return path


def test_a_playlist_is_read_part_by_part(tmp_path: Path) -> None:
    parts = list(read_stream(str(write_playlist(tmp_path)), SAMPLING, StreamConfig()))
    assert read(parts) == list(range(0, 120, 5))


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """Files of a folder by HTTP on this machine."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_an_address_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    write_playlist(tmp_path)
    with serve(tmp_path) as address:
        assert read(list(read_stream(f"{address}/0.ts", SAMPLING, StreamConfig()))) == list(range(0, 40, 5))
        parts = list(read_stream(f"{address}/live.m3u8", SAMPLING, StreamConfig()))
        assert read(parts) == list(range(0, 120, 5))
        with pytest.raises(DecodeError, match="cannot be decoded"):
            list(read_stream(f"{address}/none.ts", SAMPLING, StreamConfig()))


def test_a_playlist_from_an_address_cannot_read_files_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    secret = write(tmp_path / "secret.ts", 40, container="mpegts")
    (tmp_path / "web").mkdir()
    for name, target in (("a", f"file://{secret}"), ("b", str(secret))):
        lines = ["#EXTM3U", "#EXT-X-TARGETDURATION:4", "#EXTINF:4.0,", target, "#EXT-X-ENDLIST", ""]
        (tmp_path / "web" / f"{name}.m3u8").write_text("\n".join(lines))
    with serve(tmp_path / "web") as address:
        for name in ("a", "b"):
            with pytest.raises(DecodeError):
                list(read_stream(f"{address}/{name}.m3u8", SAMPLING, StreamConfig(idle_s=5.0)))


def test_bars_are_cut_when_they_have_been_seen_for_a_while(tmp_path: Path) -> None:
    film = [np.pad(media.barcode(index, (80, 48)), ((16, 16), (0, 0), (0, 0))) for index in range(250)]
    path = media.write(tmp_path / "a.mp4", film, rate=5, options=OPTIONS)
    parts = list(sample_stream(str(path), StreamConfig(), fps=2.0, short_side=48))
    shapes = [part.images.shape[1:3] for part in parts]
    assert shapes[0] == (48, 48)
    assert shapes[-1] == (48, 80) or shapes[-1][1] > 1.5 * shapes[-1][0]  # the picture alone
    times = np.concatenate([part.timestamps for part in parts])
    assert (np.diff(times) > 0).all()
    assert len(times) == 100


def test_what_is_no_stream_is_refused(tmp_path: Path) -> None:
    for name in ("none.mp4", ""):
        with pytest.raises(DecodeError, match="Give a file, or an address"):
            list(read_stream(str(tmp_path / name), SAMPLING, StreamConfig()))
    (tmp_path / "text.ts").write_text("no video")
    with pytest.raises(DecodeError, match="cannot be decoded"):
        list(read_stream(str(tmp_path / "text.ts"), SAMPLING, StreamConfig()))
    with pytest.raises(DecodeError, match=r"Connection refused\. Check the address, and whether"):
        list(read_stream("http://127.0.0.1:1/live.m3u8", SAMPLING, StreamConfig()))
    for idle_s in (0.0, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match="idle_s must be"):
            StreamConfig(idle_s=idle_s)
    assert not is_address("C://films/a.ts")


def test_a_stream_that_stands_still_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that gives no frame is ended."""
    path = write(tmp_path / "a.ts", 40, container="mpegts")
    monkeypatch.setattr("hapvr.video.live._GRACE_S", 0.0)
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    monkeypatch.setattr("hapvr.video.isolated.python_command", lambda *_, **__: command)
    with pytest.raises(DecodeTimeoutError, match=r"no frame has come for 0\.2 s"):
        list(read_stream(str(path), SAMPLING, StreamConfig(idle_s=0.2)))
