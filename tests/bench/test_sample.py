"""Which parts of a folder are read, and what is said of files that cannot be."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from hapvr.bench.sample import FileFailure, Folder, Part, ProbedFile, choose_parts, name_kind, probe_folder
from hapvr.errors import ConfigError
from hapvr.records import VideoInfo
from hapvr.synthetic.clip_files import write_clip
from hapvr.synthetic.films import draw_scene


def make_video(
    name: str, length: float | None, *, size: tuple[int, int] = (640, 360), codec: str = "h264"
) -> ProbedFile:
    return ProbedFile(name, VideoInfo(length, size, 30.0, None, "mp4", codec, 0))


def test_small_folders_are_read_as_a_whole() -> None:
    videos = [make_video("a", 40.0), make_video("b", 20.0)]
    parts = choose_parts(videos, parts=4, part_s=30.0, seed=1)
    assert sorted(parts, key=lambda part: part.path) == [Part("a", 40.0), Part("b", 20.0)]


def test_parts_of_long_videos_are_their_beginnings() -> None:
    parts = choose_parts([make_video("a", 7200.0)], parts=3, part_s=30.0, seed=0)
    assert parts == [Part("a", 30.0, 30.0)] * 3


def test_short_videos_make_a_part_together() -> None:
    """12 s and the next 12 s; the 6 s that are left would be sampled faster than a video is."""
    videos = [make_video(f"{number:03}", 12.0) for number in range(100)]
    parts = choose_parts(videos, parts=5, part_s=30.0, seed=0)
    assert {(part.video_s, part.end_s) for part in parts} == {(12.0, None)}
    assert len(parts) == 10


def test_each_kind_has_as_many_parts_as_it_has_footage() -> None:
    """A fourth of the footage is 1080p, though most files are small."""
    small = [make_video(f"s{number:03}", 90.0) for number in range(100)]
    large = [make_video(f"l{number}", 1500.0, size=(1920, 1080)) for number in range(2)]
    for seed in range(5):
        parts = choose_parts([*large, *small], parts=20, part_s=30.0, seed=seed)
        assert len(parts) == 20
        assert sum(part.path.startswith("l") for part in parts) == 5


def test_a_seed_decides_the_parts() -> None:
    videos = [make_video(f"{number:03}", 600.0) for number in range(200)]
    first, again, other = (choose_parts(videos, parts=6, part_s=30.0, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert choose_parts([], parts=6, part_s=30.0, seed=0) == []


def test_kinds_by_size_and_codec() -> None:
    assert name_kind(make_video("a", 1.0, size=(720, 1280), codec="hevc").info) == "720p hevc"
    assert name_kind(make_video("a", 1.0, size=(3840, 2160), codec="av1").info) == "larger than 1080p av1"
    folder = Folder(files=3, probed=[make_video("a", 30.0), make_video("b", 10.0, codec="vp9"), make_video("c", None)])
    assert folder.count_kinds() == {"480p or smaller h264": 0.75, "480p or smaller vp9": 0.25}


def test_files_that_were_not_looked_at_are_like_the_others() -> None:
    """4 of 8 were looked at: 40 s of video in them, so 80 s in all."""
    probed = [make_video("a", 30.0), make_video("b", 10.0), make_video("c", None)]
    folder = Folder(files=8, probed=probed, failed=[FileFailure("d", "damaged")])
    assert (folder.complete, folder.scale, folder.video_s, len(folder.videos)) == (False, 2.0, 80.0, 2)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mixed")
    write_clip(draw_scene(1, seconds=3, fps=4, size=(64, 96)), folder / "a.mp4")
    (folder / "below").mkdir()
    write_clip(draw_scene(2, seconds=2, fps=4, size=(64, 96)), folder / "below" / "b.mp4")
    (folder / "broken.mp4").write_bytes(b"no video at all")
    (folder / "empty.mp4").touch()
    (folder / "notes.txt").write_text("no video by its name")
    return folder


def test_a_folder_is_counted_with_what_cannot_be_read(mixed: Path) -> None:
    seen: list[tuple[int, int]] = []
    folder = probe_folder(mixed, seconds=600.0, seed=0, progress=lambda done, total: seen.append((done, total)))
    assert (folder.files, folder.skipped, folder.complete) == (4, 1, True)
    assert sorted(Path(one.path).name for one in folder.failed) == ["broken.mp4", "empty.mp4"]
    assert all(one.error for one in folder.failed)
    assert folder.video_s == pytest.approx(5.0, abs=0.3)
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_probing_ends_when_its_time_is_up(tmp_path: Path) -> None:
    """A clock that runs an hour a look: what was begun is finished, and nothing else is begun."""
    for number in range(3):
        write_clip(draw_scene(number, seconds=2, fps=4, size=(64, 96)), tmp_path / f"{number}.mp4")
    ticks = count()
    folder = probe_folder(tmp_path, seconds=1.0, seed=0, clock=lambda: 3600.0 * next(ticks))
    assert (folder.files, len(folder.probed), folder.complete, folder.scale) == (3, 1, False, 3.0)


def test_folders_without_videos_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not there"):
        probe_folder(tmp_path / "nowhere", seconds=1.0, seed=0)
    with pytest.raises(ConfigError, match="no video in"):
        probe_folder(tmp_path, seconds=1.0, seed=0)
    (tmp_path / "broken.mp4").write_bytes(b"no video")
    with pytest.raises(ConfigError, match=r"None of the 1 files .* such as '.*broken\.mp4'"):
        probe_folder(tmp_path, seconds=1.0, seed=0)
