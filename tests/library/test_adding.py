"""Adding: what is new, changed, moved, copied, gone or broken, and what it costs."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from hapvr.errors import ConfigError, DataError, DecodeError, StorageError
from hapvr.features import Features
from hapvr.features.video_extraction import ExtractedVideo
from hapvr.library import AddProgress, Library, adding, candidate_index, candidates, engine, shared_file, store
from hapvr.library.store import NewVideo, Store
from hapvr.storage import blake2b_file, hold_interrupts
from hapvr.video import frame_tasks
from hapvr.video.frame_tasks import VideoEnd, VideoTask
from hapvr.workers.sandbox import open_given
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
    assert (report.added, report.frames, report.skipped, report.failed) == (3, 9, 1, ())
    assert [(one.done, one.total) for one in seen] == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert seen[-1].current == str(folder / "deep" / "c.mp4")
    toy.check(library, files)
    before = library.store.table_set.open("videos").version
    again = library.add([folder])
    assert (again.added, again.unchanged) == (0, 3)
    assert library.store.table_set.open("videos").version == before  # nothing was written
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
    assert len(library.store.table_set.list_keys("regions")) == 2  # nothing is left of the old content
    assert len(library.store.table_set.list_keys("frames")) == 3 + 5


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
    monkeypatch.setattr(store, "BATCH", batch)
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
    assert len(library.store.table_set.list_keys("regions")) == 1
    assert library.info().contents == 1
    toy.write(folder, "d.mp4", 1)
    assert library.add([folder]).frames == 0  # it was not read
    assert library.remove([found["a.mp4"], found["b.mp4"]]) == 2
    toy.check(library, [folder / "c.mp4", folder / "d.mp4"])
    library.remove(list(ids(library).values()))
    assert len(library.store.table_set.list_keys("regions")) == 0
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


def test_a_file_that_could_not_be_opened_is_tried_again_every_time(
    library: Library, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change of permissions changes neither size nor time."""
    path, bad = toy.write(folder, "a.mp4", 1), folder / "bad.mp4"
    bad.write_text("nothing")
    before = path.stat()

    def refused(name: str) -> int:
        if name == str(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
        return honest(name)

    honest = open_given
    with monkeypatch.context() as patch:
        patch.setattr(frame_tasks, "open_given", refused)
        assert len(library.add([folder]).failed) == 2
        again = library.add([folder])
        assert [Path(name).name for name, _ in again.failed] == ["a.mp4"]
        assert "Permission denied" in again.failed[0][1]
        assert again.still_failed == 1
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    report = library.add([folder])
    assert (report.updated, report.still_failed, report.failed) == (1, 1, ())
    assert library.add([folder]).unchanged == 2
    assert library.info().failed == 1


def test_a_file_that_kills_its_reader_is_not_tried_again_unasked(
    library: Library, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no hash either, but it could be opened; to try it may take minutes."""
    toy.write(folder, "a.mp4", 1)

    def died(_: Any, tasks: Any, **__: Any) -> Any:
        for id, _task in tasks:
            yield ExtractedVideo(id, None, None, "the process that read it died.")

    monkeypatch.setattr(adding, "extract_stream", died)
    assert len(library.add([folder]).failed) == 1
    assert library.add([folder]).still_failed == 1


def test_a_failure_of_what_is_a_folder_by_now_is_removed(library: Library, folder: Path) -> None:
    toy.write(folder, "good.mp4", 1)
    for name in ("a.mp4", "b.mp4", "c.mp4"):
        (folder / name).write_text("nothing")
    assert len(library.add([folder]).failed) == 3
    for name in ("a.mp4", "b.mp4", "c.mp4"):
        (folder / name).unlink()
        (folder / name).mkdir()
    assert library.add([folder / "a.mp4"]).removed == 1  # the place itself
    assert library.add([folder / "b.mp4"], prune=True).removed == 1
    assert library.add([folder]).removed == 1  # the folder above
    assert library.info().failed == 0
    assert library.add([folder]).removed == 0


def test_a_folder_that_could_not_be_entered_fails_until_it_can(
    library: Library, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy.write(folder, "deep/a.mp4", 1)
    toy.write(folder, "b.mp4", 2)
    honest = os.scandir

    def refused(path: Any = ".") -> Any:
        if os.fspath(path) == str(folder / "deep"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return honest(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", refused)
        report = library.add([folder])
        assert [name for name, _ in report.failed] == [str(folder / "deep")]
        report = library.add([folder])
        assert report.still_failed + len(report.failed) == 1
        assert report.removed == 0
    report = library.add([folder])
    assert (report.added, report.removed, library.info().failed) == (1, 1, 0)


def test_a_video_in_whose_place_a_folder_is_has_gone(library: Library, folder: Path) -> None:
    path = toy.write(folder, "a.mp4", 1)
    toy.write(folder, "b.mp4", 2)
    library.add([folder])
    path.unlink()
    path.mkdir()
    assert library.add([folder]).missing == 1
    assert library.add([folder], prune=True).removed == 1
    toy.check(library, [folder / "b.mp4"])


def test_links_to_folders_are_followed_only_where_they_are_named(
    library: Library, folder: Path, tmp_path: Path
) -> None:
    elsewhere = toy.write(tmp_path / "elsewhere", "a.mp4", 1).parent
    toy.write(folder, "deep/b.mp4", 2)
    (folder / "out").symlink_to(elsewhere)
    (folder / "deep" / "round").symlink_to(folder)
    (folder / "file.mp4").symlink_to(elsewhere / "a.mp4")
    report = library.add([folder])
    assert (report.added, report.linked, report.failed) == (2, 2, ())
    assert report.to_json()["linked"] == 2
    assert [Path(record.path).name for record in library.videos()] == ["b.mp4", "file.mp4"]
    report = library.add([folder / "out"])
    assert (report.added, report.linked) == (1, 0)
    assert str(folder / "out" / "a.mp4") in [record.path for record in library.videos()]
    (elsewhere / "round").symlink_to(folder / "out")  # a circle below what is named
    assert library.add([folder / "out", folder]).unchanged == 3


def test_a_link_to_a_folder_that_was_taken_for_a_failure_is_removed(library: Library, folder: Path) -> None:
    toy.write(folder, "a.mp4", 1)
    path = folder / "link.mp4"
    path.symlink_to(folder / "nowhere")
    assert len(library.add([folder]).failed) == 1
    (folder / "nowhere").mkdir()
    report = library.add([folder])
    assert (report.removed, report.linked, library.info().failed) == (1, 1, 0)


def test_what_is_gone_is_missing_until_it_is_pruned(library: Library, folder: Path, tmp_path: Path) -> None:
    toy.write(folder, "a.mp4", 1)
    path = toy.write(folder, "b.mp4", 2)
    elsewhere = toy.write(tmp_path / "other", "c.mp4", 3)
    library.add([folder, tmp_path / "other"])
    text = path.read_text()
    path.unlink()
    elsewhere.unlink()
    report = library.add([folder])
    assert (report.missing, report.removed) == (1, 0)  # the other folder was not looked at
    (record,) = library.videos(state="missing")
    assert library.features(record.id).regions.shape == (3, 2, 32)
    path.write_text(text)
    os.utime(path, ns=(record.mtime_ns, record.mtime_ns))
    assert library.add([folder]).missing == 0
    assert library.get(record.id).state == "ready"
    path.unlink()
    assert library.add([folder], prune=True).removed == 1
    assert [Path(one.path).name for one in library.videos()] == ["c.mp4", "a.mp4"]
    assert library.add([elsewhere], prune=True).removed == 1  # by its own name, though it is gone


def test_an_empty_folder_removes_nothing(library: Library, folder: Path) -> None:
    """A disk that is not mounted looks like a folder from which everything was removed."""
    toy.write(folder, "a.mp4", 1)
    library.add([folder])
    (folder / "a.mp4").unlink()
    report = library.add([folder], prune=True)
    assert (report.missing, report.removed) == (1, 0)
    shutil.rmtree(folder)
    report = library.add([folder], prune=True)
    assert (report.missing, report.removed) == (1, 0)
    toy.write(folder.parent / "others", "b.mp4", 2)
    assert library.add([folder.parent], prune=True).removed == 1


@pytest.mark.parametrize("moment", ["hashing", "decoding"])
def test_a_file_that_changes_while_it_is_read_is_read_again(
    library: Library, folder: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    path = toy.write(folder, "a.mp4", 1, 4)
    honest_hash, honest_read = blake2b_file, toy.read_toy

    def shrinking(name: str) -> str:
        digest = honest_hash(name)
        if moment == "hashing":
            path.write_text("video 1")
        return digest

    def changing(context: object, task: VideoTask) -> VideoEnd:
        if moment == "hashing":
            raise DecodeError("cut off")
        end = honest_read(context, task)
        path.write_text("video 1 40")
        return end

    with monkeypatch.context() as patch:
        patch.setattr(frame_tasks, "blake2b_file", shrinking)
        patch.setattr(frame_tasks, "read_video", changing)
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
    assert library.store.catalog().paths == sorted(os.path.join(os.fsencode(folder), name) for name in names)
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
    assert library.store.table_set.open("videos").version <= 10_000 // store.BATCH + 2  # commits, not files
    assert library.add([folder]).unchanged == 10_000


def test_many_commits_are_put_together(library: Library, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "BATCH", 1)
    monkeypatch.setattr(adding, "_MAINTAIN_EVERY", 8)
    monkeypatch.setattr(engine, "_FRAGMENTS", 8)
    for number in range(40):
        toy.write(folder, f"{number}.mp4", number, 1)
    library.add([folder])
    assert library.store.table_set.open("regions").stats()["fragment_stats"]["num_fragments"] < 20
    size = library.info().bytes
    time.sleep(1.1)
    library.compact()
    assert library.info().bytes < size / 2
    toy.check(library)


def test_shared_footage_is_kept_while_a_library_grows(
    library: Library, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each process that searches meanwhile would look for it after each batch."""
    counts: list[int] = []

    def update(opened: store.Store) -> None:
        shared_file.update_shared_footage(opened)
        counts.append(opened.catalog().contents.size)

    monkeypatch.setattr(store, "BATCH", 1)
    monkeypatch.setattr(adding, "update_shared_footage", update)
    for number in range(20):
        toy.write(folder, f"{number}.mp4", number, 1)
    library.add([folder])
    assert counts == [1, 2, 4, 8, 16, 20]  # twice as many each time, and at the end
    toy.write(folder, "20.mp4", 20, 1)
    library.add([folder])
    assert counts[6:] == [21]


def test_compacting_does_not_double_what_is_compact(library: Library, folder: Path) -> None:
    """What was put together leaves the version before it, which is taken away as well."""
    for number in range(2):
        toy.write(folder, f"{number}.mp4", number, 1500)
        library.add([folder])
    before = library.info().bytes
    assert before > 2 * 1500 * 2 * 32 * 2  # most of it are the features
    library.compact()
    assert library.info().bytes < 1.1 * before
    toy.check(library)


def test_a_video_in_which_no_frame_may_vote_is_kept_all_the_same(
    library: Library, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toy, "features_of", lambda _: Features(torch.zeros(2, 2, 32)))
    toy.write(folder, "a.mp4", 1)
    toy.write(folder, "b.mp4", 2)
    assert library.add([folder]).added == 2
    assert library.store.candidates.count() == 0
    assert len(library.features(library.videos()[0].id)) == 2
    assert library.store.candidates.read_all()[0].shape == (0,)


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
    assert report.removed == 0  # what moved may not have been seen yet
    report = library.add([folder], prune=True)
    assert (report.stopped, report.removed) == (False, 1)
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_comes_while_a_batch_is_written_waits_until_it_is(
    library: Library, folder: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    toy.write(folder, "a.mp4", 1)
    honest, order = Store.write, []

    def interrupted(self: Store, videos: Any, **options: Any) -> list[int]:
        signal.raise_signal(number)
        order.append("written")
        return honest(self, videos, **options)

    def handler(_: int, __: Any) -> None:
        order.append("heard")
        raise KeyboardInterrupt

    monkeypatch.setattr(Store, "write", interrupted)
    before = signal.signal(number, handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            library.add([folder])
        assert signal.getsignal(number) is handler
    finally:
        signal.signal(number, before)
    assert order == ["written", "heard"]
    assert library.info().videos == 1


def test_signals_that_are_ignored_stay_so_and_other_threads_hold_nothing_back() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with hold_interrupts():
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)
    handlers: list[object] = []

    def elsewhere() -> None:
        with hold_interrupts():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert handlers == [signal.getsignal(signal.SIGINT)]


def test_torch_keeps_to_one_thread_while_it_writes(
    library: Library, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy.write(folder, "a.mp4", 1)
    seen: list[int] = []
    honest = candidates.find_runs

    def counted(*given: Any) -> tuple[torch.Tensor, torch.Tensor]:
        seen.append(torch.get_num_threads())
        return honest(*given)

    monkeypatch.setattr(candidate_index, "find_runs", counted)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        library.add([folder])
        assert (seen, torch.get_num_threads()) == ([1], 2)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("most", "bytes", "calls"), [(2, 10**9, [2, 2, 1]), (100, 2 * 3 * 2 * 32 * 4, [2, 2, 1])])
def test_any_number_of_videos_is_written_in_batches(
    library: Library, folder: Path, monkeypatch: pytest.MonkeyPatch, most: int, bytes: int, calls: list[int]
) -> None:
    monkeypatch.setattr(store, "BATCH", most)
    monkeypatch.setattr(store, "BATCH_BYTES", bytes)
    for number in range(5):
        toy.write(folder, f"{number}.mp4", number)
    library.add([folder])
    records = library.videos()
    library.remove([record.id for record in records])
    sizes: list[int] = []
    honest = Store.write

    def counted(self: Store, videos: Any, **options: Any) -> list[int]:
        sizes.append(len(videos))
        return honest(self, videos, **options)

    monkeypatch.setattr(Store, "write", counted)
    with library.write_access("a test") as opened:
        texts = [Path(record.path).read_text() for record in records]
        new = [NewVideo(one, opened.new_key(), toy.features_of(text)) for one, text in zip(records, texts, strict=True)]
        opened.write_all(iter(new))
    assert sizes == calls
    toy.check(library, [Path(record.path) for record in records])


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


def test_a_file_that_cannot_be_looked_at_just_now_is_not_removed(
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
    assert report.removed == report.missing == 0
    assert library.info().videos == 2
