"""Adding: what is new, changed, moved, copied, gone or broken, and what it costs."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from hapvr.errors import ConfigError, DataError, DecodeError, StorageError
from hapvr.features.files import Features
from hapvr.library import AddProgress, Library, adding, store
from hapvr.video import crew_files
from hapvr.video.crew_work import VideoEnd, VideoTask
from tests.library import toy
from tests.library.toy import toys  # noqa: F401

pytestmark = pytest.mark.usefixtures("toys")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "videos").mkdir()
    return tmp_path / "videos"


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return toy.make(tmp_path / "library")


def ids(library: Library) -> dict[str, str]:
    return {Path(record.path).name: record.id for record in library.videos()}


def test_files_are_described_once_and_then_left_alone(library: Library, folder: Path) -> None:
    files = [toy.write(folder, name, seed) for seed, name in enumerate(("a.mp4", "b.mp4", "deep/c.mp4"))]
    (folder / "notes.txt").write_text("no video")
    seen: list[AddProgress] = []
    report = library.add([folder], progress=seen.append)
    assert (report.added, report.frames, report.passed_over, report.failed) == (3, 9, 1, ())
    assert [(one.done, one.total) for one in seen] == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert seen[-1].current == str(folder / "deep" / "c.mp4")
    toy.check(library, files)
    before = library.store._tables["videos"].version
    again = library.add([folder])
    assert (again.added, again.unchanged) == (0, 3)
    assert library.store._tables["videos"].version == before  # nothing was written
    record = library.videos()[0]
    assert (record.width, record.height, record.duration, record.state) == (64, 48, 3.0, "ready")
    assert record.bitrate == pytest.approx(record.size * 8 / 3)


def test_a_touched_file_is_recognised_by_its_content(library: Library, folder: Path) -> None:
    path = toy.write(folder, "a.mp4", 1)
    library.add([folder])
    before = library.videos()[0]
    os.utime(path, ns=(5, 5))
    report = library.add([folder])
    assert (report.unchanged, report.added, report.updated, report.frames) == (1, 0, 0, 0)
    after = library.get(before.id)
    assert (after.mtime_ns, after.added) == (5, before.added)
    assert library.add([folder]).unchanged == 1


def test_a_changed_file_takes_the_place_of_the_old(library: Library, folder: Path) -> None:
    path = toy.write(folder, "a.mp4", 1)
    toy.write(folder, "b.mp4", 2)
    library.add([folder])
    old = ids(library)
    path.write_text("video 77 5")
    report = library.add([folder])
    assert (report.updated, report.unchanged, report.added) == (1, 1, 0)
    assert ids(library)["a.mp4"] != old["a.mp4"]
    with pytest.raises(DataError, match="has no video"):
        library.get(old["a.mp4"])
    toy.check(library, [path, folder / "b.mp4"])
    assert len(library.store._keys("regions")) == 2  # nothing is left of the old content
    assert len(library.store._keys("frames")) == 3 + 5


def test_a_moved_file_keeps_its_id(library: Library, folder: Path) -> None:
    path = toy.write(folder, "a.mp4", 1)
    library.add([folder])
    (id,) = ids(library).values()
    (folder / "new").mkdir()
    path.rename(folder / "new" / "b.mp4")
    report = library.add([folder])
    assert (report.moved, report.added, report.missing, report.frames) == (1, 0, 0, 0)
    assert library.get(id).path == str(folder / "new" / "b.mp4")
    toy.check(library, [folder / "new" / "b.mp4"])


def test_files_that_move_up_one_place_keep_their_ids(library: Library, folder: Path) -> None:
    a, b = toy.write(folder, "a.mp4", 1), toy.write(folder, "b.mp4", 2)
    library.add([folder])
    old = ids(library)
    b.rename(folder / "c.mp4")
    a.rename(folder / "b.mp4")
    report = library.add([folder])
    assert report.added == 0
    assert ids(library)["c.mp4"] == old["b.mp4"]
    toy.check(library, [folder / "b.mp4", folder / "c.mp4"])


@pytest.mark.parametrize("batch", [1, 100])
def test_two_files_that_change_names_lose_nothing(
    library: Library, folder: Path, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr(adding, "_BATCH", batch)
    a, b = toy.write(folder, "a.mp4", 1, 3), toy.write(folder, "b.mp4", 2, 4)
    library.add([folder])
    a.rename(folder / "c")
    b.rename(a)
    (folder / "c").rename(b)
    os.utime(a, ns=(1, 1))
    os.utime(b, ns=(2, 2))
    library.add([folder])
    toy.check(library, [a, b])


def test_copies_share_their_content_and_each_can_be_removed(library: Library, folder: Path) -> None:
    for name in ("a.mp4", "b.mp4", "c.mp4"):
        toy.write(folder, name, 1)
    assert library.add([folder]).added == 3
    found = ids(library)
    assert sorted(found.values()) == [found["a.mp4"], found["a.mp4"] + "-2", found["a.mp4"] + "-3"]
    assert len(library.store._keys("regions")) == 1
    assert library.info().contents == 1
    toy.write(folder, "d.mp4", 1)
    assert library.add([folder]).frames == 0  # it was not read
    assert library.remove([found["a.mp4"], found["b.mp4"]]) == 2
    toy.check(library, [folder / "c.mp4", folder / "d.mp4"])
    library.remove(list(ids(library).values()))
    assert len(library.store._keys("regions")) == 0
    with pytest.raises(DataError, match="it is empty"):
        library.remove(["nonsense"])


def test_failures_are_kept_and_tried_again_only_on_request(library: Library, folder: Path) -> None:
    bad = folder / "bad.mp4"
    bad.write_text("nothing")
    (folder / "nowhere.mp4").symlink_to(folder / "gone")
    toy.write(folder, "good.mp4", 1)
    report = library.add([folder])
    assert sorted(Path(path).name for path, _ in report.failed) == ["bad.mp4", "nowhere.mp4"]
    assert [Path(record.path).name for record in library.videos(state="failed")] == ["bad.mp4", "nowhere.mp4"]
    assert "is no video" in (library.videos(state="failed")[0].error or "")
    again = library.add([folder])
    assert (again.unchanged, again.still_failed, again.failed) == (3, 2, ())
    assert len(library.add([folder], retry=True).failed) == 2
    bad.write_text("video 5 5")
    assert library.add([folder]).updated == 1
    with pytest.raises(StorageError, match="not there"):
        library.features(library.videos(state="failed")[0].id)


def test_what_is_gone_is_missing_until_it_is_pruned(library: Library, folder: Path, tmp_path: Path) -> None:
    toy.write(folder, "a.mp4", 1)
    path = toy.write(folder, "b.mp4", 2)
    elsewhere = toy.write(tmp_path / "other", "c.mp4", 3)
    library.add([folder, tmp_path / "other"])
    text = path.read_text()
    path.unlink()
    elsewhere.unlink()
    report = library.add([folder])
    assert (report.missing, report.forgotten) == (1, 0)  # the other folder was not looked at
    (record,) = library.videos(state="missing")
    assert library.features(record.id).regions.shape == (3, 2, 32)
    path.write_text(text)
    os.utime(path, ns=(record.mtime_ns, record.mtime_ns))
    assert library.add([folder]).missing == 0
    assert library.get(record.id).state == "ready"
    path.unlink()
    assert library.add([folder], prune=True).forgotten == 1
    assert [Path(one.path).name for one in library.videos()] == ["c.mp4", "a.mp4"]
    assert library.add([elsewhere], prune=True).forgotten == 1  # by its own name, though it is gone


def test_an_empty_folder_forgets_nothing(library: Library, folder: Path) -> None:
    """A disk that is not mounted looks like a folder from which everything was removed."""
    toy.write(folder, "a.mp4", 1)
    library.add([folder])
    (folder / "a.mp4").unlink()
    report = library.add([folder], prune=True)
    assert (report.missing, report.forgotten) == (1, 0)
    shutil.rmtree(folder)
    report = library.add([folder], prune=True)
    assert (report.missing, report.forgotten) == (1, 0)
    toy.write(folder.parent / "others", "b.mp4", 2)
    assert library.add([folder.parent], prune=True).forgotten == 1


@pytest.mark.parametrize("moment", ["hashing", "decoding"])
def test_a_file_that_changes_while_it_is_read_is_read_again(
    library: Library, folder: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    path = toy.write(folder, "a.mp4", 1, 4)
    honest_hash, honest_read = crew_files.content_hash, toy.read_toy

    def shrinking(name: str) -> str:
        digest = honest_hash(name)
        if moment == "hashing":
            path.write_text("video 1")
        return digest

    def changing(desk: object, task: VideoTask) -> VideoEnd:
        if moment == "hashing":
            raise DecodeError("cut off")
        end = honest_read(desk, task)
        path.write_text("video 1 40")
        return end

    with monkeypatch.context() as patch:
        patch.setattr(crew_files, "content_hash", shrinking)
        patch.setattr(crew_files, "read_video", changing)
        report = library.add([folder])
    assert [reason for _, reason in report.failed] == [
        "it was changed while it was being read. It is read again next time."
    ]
    path.write_text("video 1 6")
    report = library.add([folder])  # without `retry`
    assert (report.updated, report.failed) == (1, ())
    toy.check(library, [path])


@pytest.mark.skipif(sys.platform == "win32", reason="names are text there")
def test_names_in_any_encoding_come_back_as_they_were(library: Library, folder: Path) -> None:
    names = [b"caf\xe9.mp4", "caf\u00e9.mp4".encode(), b"\xff\xfe \n'\".mp4", "日本.mp4".encode(), b"bad\xe9.mp4"]
    for seed, name in enumerate(names):
        with open(os.path.join(os.fsencode(folder), name), "wb") as file:
            file.write(b"nothing" if name.startswith(b"bad") else b"video %d 3" % seed)
    report = library.add([folder])
    assert (report.added, len(report.failed)) == (4, 1)
    assert library.store.catalogue().paths == sorted(os.path.join(os.fsencode(folder), name) for name in names)
    assert library.add([folder]).unchanged == 5
    for record in library.videos():
        assert os.path.lexists(record.path)
        str(record.to_json()).encode()
        (record.error or "").encode()
    for path, reason in report.failed:
        assert "bad\\xe9.mp4" in report.to_json()["failed"][0]["path"]
        assert path.endswith("bad\udce9.mp4")
        reason.encode()


def test_ten_thousand_tiny_files_take_little(library: Library, folder: Path) -> None:
    for number in range(10_000):
        (folder / f"{number:05}.mp4").write_text(f"video {number % 100} 2" if number % 2 else f"broken {number}")
    report = library.add([folder])
    assert (report.added, len(report.failed)) == (5000, 5000)
    assert library.info().contents == 50
    assert library.store._tables["videos"].version <= 10_000 // adding._BATCH + 2  # commits, not files
    assert library.add([folder]).unchanged == 10_000


def test_many_commits_are_put_together(library: Library, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adding, "_BATCH", 1)
    monkeypatch.setattr(adding, "_MAINTAIN_EVERY", 8)
    monkeypatch.setattr(store, "_FRAGMENTS", 8)
    for number in range(40):
        toy.write(folder, f"{number}.mp4", number, 1)
    library.add([folder])
    assert library.store._tables["regions"].stats()["fragment_stats"]["num_fragments"] < 20
    size = library.info().bytes
    time.sleep(1.1)
    library.compact()
    assert library.info().bytes < size / 2
    toy.check(library)


def test_a_video_in_which_no_frame_may_vote_is_kept_all_the_same(
    library: Library, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toy, "features_of", lambda _: Features(torch.zeros(2, 2, 32)))
    toy.write(folder, "a.mp4", 1)
    toy.write(folder, "b.mp4", 2)
    assert library.add([folder]).added == 2
    assert library.store.count_vectors() == 0
    assert len(library.features(library.videos()[0].id)) == 2
    assert library.store.vectors()[0].shape == (0,)


def test_it_stops_when_asked_and_keeps_what_is_done(library: Library, folder: Path) -> None:
    for number in range(6):
        toy.write(folder, f"{number}.mp4", number)
    gone = toy.write(folder, "gone.mp4", 50)
    library.add([gone])
    gone.unlink()
    asked = iter([False] * 5 + [True] * 100)
    report = library.add([folder], stop=lambda: next(asked), prune=True)
    assert report.stopped
    assert 0 < report.added < 6
    assert report.forgotten == 0  # what moved may not have been seen yet
    report = library.add([folder], prune=True)
    assert (report.stopped, report.forgotten) == (False, 1)
    toy.check(library, [folder / f"{number}.mp4" for number in range(6)])


def test_an_interrupt_keeps_what_is_described(library: Library, folder: Path) -> None:
    for number in range(4):
        toy.write(folder, f"{number}.mp4", number)

    def interrupt(now: AddProgress) -> None:
        if now.done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        library.add([folder], progress=interrupt)
    assert library.info().videos == 3
    assert library.add([folder]).added == 1
    toy.check(library)


def test_the_library_and_others_below_a_folder_are_not_searched_for_videos(folder: Path) -> None:
    library = toy.make(folder / "inside")
    toy.write(folder, "a.mp4", 1)
    library.add([folder])
    assert [Path(record.path).name for record in library.videos()] == ["a.mp4"]
    assert library.add([folder]).unchanged == 1
    with pytest.raises(ConfigError, match="is a library, not a folder of videos"):
        library.add([folder / "inside"])
    with pytest.raises(ConfigError, match="is not there"):
        library.add([folder / "nothing"])
    with pytest.raises(ConfigError, match="workers must be at least 1"):
        library.add([folder], workers=0)


def test_a_file_that_cannot_be_looked_at_just_now_is_not_forgotten(
    library: Library, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = toy.write(folder, "deep/a.mp4", 1)
    toy.write(folder, "b.mp4", 2)
    library.add([folder])
    honest = os.lstat

    def refused(name: Any, **options: Any) -> os.stat_result:
        if os.fsencode(name) == os.fsencode(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
        return honest(name, **options)

    (folder / "deep").rename(folder / ".hidden")  # out of sight of the walk
    monkeypatch.setattr(os, "lstat", refused)
    report = library.add([folder], prune=True)
    assert report.forgotten == report.missing == 0
    assert library.info().videos == 2
