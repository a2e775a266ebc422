"""Frames in tar shards: packed ones and those of webdataset, whole and damaged."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from hapvr.errors import StorageError
from hapvr.features import PackedFrames, PackedWriter
from hapvr.video.shard_frames import ShardSet, cut_window, decode_window, open_shards


def picture(shade: int, *, size: tuple[int, int] = (24, 16), kind: str = "JPEG", mode: str = "RGB") -> bytes:
    buffer = io.BytesIO()
    Image.new(mode, size, shade if mode == "L" else (shade, shade, shade)).save(buffer, kind)
    return buffer.getvalue()


def write_tar(path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w") as tar:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


def read(
    found: ShardSet, id: str, start: int = 0, count: int | None = None, side: int | None = None
) -> NDArray[np.uint8]:
    (video,) = (video for video in found.videos if video.id == id)
    task = cut_window(video, start, len(video) - start if count is None else count, side)
    images = np.empty(task.shape, np.uint8)
    decode_window(task, images)
    return images


def shades(images: NDArray[np.uint8]) -> list[int]:
    return [round(float(frame.mean())) for frame in images]


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """Four videos in shards of a few frames, so that some lie in two."""
    with PackedWriter(tmp_path / "packed", shard_mib=0.02, attributes={"fps": 1.0, "min_frames": 0}) as writer:
        for number, frames in enumerate((5, 12, 1, 9)):
            values = (10 * number + np.arange(frames)).astype(np.uint8)
            images = np.broadcast_to(values[:, None, None, None], (frames, 32, 48, 3)).copy()
            writer.add(f"video {number}", images, np.arange(frames, dtype=np.float64))
    return tmp_path / "packed"


def test_packed_frames_are_found_as_they_are(packed: Path) -> None:
    found, expected = open_shards(packed), PackedFrames.open(packed)
    assert [video.id for video in found.videos] == expected.ids
    assert found.shards > 2
    assert any(len(video.runs) > 1 for video in found.videos)
    assert found.skipped == ()
    assert found.attributes == {"fps": 1.0, "min_frames": 0}
    for id in expected:
        for side in (None, 16):
            images, times = expected.frames(id, size=side)
            assert np.array_equal(read(found, id, side=side), images)
        assert np.array_equal(next(video for video in found.videos if video.id == id).timestamps, times)
    assert np.array_equal(read(found, "video 1", 4, 6), expected.frames("video 1")[0][4:10])


def test_the_samples_of_webdataset(tmp_path: Path) -> None:
    members: dict[str, bytes] = {f"a.{number:04d}.jpg": picture(10 + number) for number in range(3)}
    members["a.json"] = b'{"fps": 2.0}'
    members |= {f"films/b/{number}.png": picture(40 + number, kind="PNG") for number in (8, 9, 10, 11)}
    members |= {"./photo.jpeg": picture(90, size=(40, 20)), "grey.webp": picture(77, kind="WEBP"), "grey.json": b"{}"}
    members |= {"c.000.jpg": picture(5, mode="L"), "c.001.jpg": picture(6, mode="L")}
    members["c.json"] = b'{"timestamps": [0.5, 0.75]}'
    write_tar(tmp_path / "set-000.tar", members)
    found = open_shards(tmp_path)
    assert found.skipped == ()
    lengths = {video.id: len(video) for video in found.videos}
    assert lengths == {"a": 3, "films/b": 4, "photo": 1, "grey": 1, "c": 2}
    assert shades(read(found, "a")) == [10, 11, 12]
    assert shades(read(found, "films/b", 1, 2)) == [41 + 8, 42 + 8]
    assert read(found, "photo").shape == (1, 20, 40, 3)
    assert read(found, "photo", side=10).shape == (1, 10, 10, 3)
    assert shades(read(found, "c")) == [5, 6]
    times = {video.id: video.timestamps.tolist() for video in found.videos}
    assert (times["a"], times["films/b"], times["c"]) == ([0.0, 0.5, 1.0], [0.0, 1.0, 2.0, 3.0], [0.5, 0.75])
    assert found.attributes == {}  # no rate that all have


def test_one_rate_of_all_is_known(tmp_path: Path) -> None:
    write_tar(
        tmp_path / "a.tar", {"a.0.jpg": picture(1), "a.1.jpg": picture(2), "b.0.jpg": picture(1), "b.1.jpg": picture(2)}
    )
    assert open_shards(tmp_path).attributes == {"fps": 1.0, "min_frames": 0}


def test_what_cannot_be_used_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    good = {"good.0.jpg": picture(1), "good.1.jpg": picture(2)}
    bad = {"film.mp4": b"x", "film.json": b"{}", "text.0.jpg": b"no picture"}
    bad |= {"rate.0.jpg": picture(3), "rate.json": b'{"fps": 0}', "list.0.jpg": picture(3), "list.json": b"[1]"}
    bad |= {"few.0.jpg": picture(3), "few.json": b'{"timestamps": [0, 1]}'}
    bad |= {"back.1.jpg": picture(3), "back.0.jpg": picture(3)}
    write_tar(tmp_path / "one.tar", good | bad)
    write_tar(tmp_path / "two.tar", good)
    found = open_shards(tmp_path)
    assert [video.id for video in found.videos] == ["good"]
    reasons = dict(found.skipped)
    assert "1 members are of no kind that is read here: film.mp4" in reasons["one.tar"]
    assert set(reasons) == {"one.tar", "film", "text", "rate", "list", "few", "back", "good"}
    assert "no picture" in reasons["film"]
    assert "0.0 frames a second" in reasons["rate"]
    assert "no table" in reasons["list"]
    assert "1 rising timestamps" in reasons["few"]
    assert "order of their numbers" in reasons["back"]
    assert "'two.tar' again" in reasons["good"]


@pytest.mark.parametrize("keep", [0.2, 0.5, 0.8, 0.97])
def test_a_tar_cut_short_gives_what_is_whole_before_the_cut(tmp_path: Path, keep: float) -> None:
    members = {f"v{video}.{frame}.jpg": picture(10 * video + frame) for video in range(5) for frame in range(3)}
    write_tar(tmp_path / "a.tar", members)
    path = tmp_path / "a.tar"
    whole = path.read_bytes()
    used = 15 * (512 + 1024)  # header and picture of each, rounded up to blocks
    path.write_bytes(whole[: int(keep * used)])
    write_tar(tmp_path / "b.tar", {"v5.0.jpg": picture(50), "v5.1.jpg": picture(51), "v5.2.jpg": picture(52)})
    found = open_shards(tmp_path)
    assert "a.tar" in dict(found.skipped)
    # The video that the cut is in, or the one before it, is not used: nobody knows how many frames it had.
    assert [video.id for video in found.videos] == [*(f"v{number}" for number in range(int(5 * keep - 0.01))), "v5"]
    for video in found.videos:
        number = int(video.id[1:])
        assert shades(read(found, video.id)) == [10 * number + frame for frame in range(3)]


def test_a_damaged_header_ends_a_tar_and_is_named(tmp_path: Path) -> None:
    members = {f"v{video}.{frame}.jpg": picture(10 * video + frame) for video in range(4) for frame in range(2)}
    write_tar(tmp_path / "a.tar", members)
    data = bytearray((tmp_path / "a.tar").read_bytes())
    start = data.index(b"v2.0.jpg")
    data[start : start + 400] = b"\xff" * 400
    (tmp_path / "a.tar").write_bytes(data)
    write_tar(tmp_path / "b.tar", {"other.0.jpg": picture(1)})
    (tmp_path / "c.tar").write_bytes(b"no tar at all" * 100)
    (tmp_path / "d.tar").write_bytes(b"")
    found = open_shards(tmp_path)
    assert [video.id for video in found.videos] == ["v0", "other"]  # v1 ends where the damage begins
    assert {"a.tar", "c.tar", "d.tar", "v1"} == set(dict(found.skipped))


def test_a_damaged_frame_is_an_error_that_names_it(tmp_path: Path, packed: Path) -> None:
    write_tar(
        tmp_path / "a.tar", {"a.0.jpg": picture(1), "a.1.jpg": b"\xff\xd8 broken", "a.2.jpg": picture(1, size=(30, 30))}
    )
    found = open_shards(tmp_path)
    with pytest.raises(StorageError, match=r"frame 1 of 'a' is damaged"):
        read(found, "a")
    with pytest.raises(StorageError, match=r"frame 2 of 'a' is damaged: it is 30 x 30, the first one 24 x 16"):
        read(found, "a", 2)
    shard = packed / "frames-00000.tar"
    data = bytearray(shard.read_bytes())
    data[700] ^= 1
    shard.write_bytes(data)
    with pytest.raises(StorageError, match=r"frame 0 of 'video 0' is damaged: its bytes are not those"):
        read(open_shards(packed), "video 0")


def test_lost_and_cut_packed_shards_cost_their_videos_only(packed: Path) -> None:
    whole = open_shards(packed)
    in_first = {video.id for video in whole.videos if any(run.path.name.endswith("00001.tar") for run in video.runs)}
    (packed / "frames-00001.tar").write_bytes((packed / "frames-00001.tar").read_bytes()[:600])
    found = open_shards(packed)
    assert {video.id for video in whole.videos} - {video.id for video in found.videos} == in_first
    assert in_first | {"frames-00001.tar"} == set(dict(found.skipped))
    (packed / "frames-00001.tar").unlink()
    assert in_first < set(dict(open_shards(packed).skipped))
    (packed / "frames-00001.json").write_text("{}")
    found = open_shards(packed)
    assert {video.id for video in whole.videos} - {video.id for video in found.videos} == in_first
    (packed / "frames-00001.json").unlink()
    assert "is missing, though there are later ones" in dict(open_shards(packed).skipped)["frames-00001.json"]
    last = max(packed.glob("frames-*.json"))
    last.unlink()
    assert "is missing: the folder had" in dict(open_shards(packed).skipped)[last.name]


def test_folders_without_shards_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="is not a folder"):
        open_shards(tmp_path / "none")
    with pytest.raises(StorageError, match="holds no shard"):
        open_shards(tmp_path)
    write_tar(tmp_path / "a.tar", {"readme.txt": json.dumps({}).encode()})
    with pytest.raises(StorageError, match=r"no video that can be used: a.tar: 1 members"):
        open_shards(tmp_path)


def test_a_process_that_decodes_imports_neither_torch_nor_a_decoder() -> None:
    program = "import sys, hapvr.video.shard_frames; print(sorted({'torch', 'av', 'h5py', 'typer'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.strip() == "[]"
