"""A library as a whole: making and opening it, who may write, readers meanwhile, a full disk, rebuilding."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from hapvr.errors import BusyError, ConfigError, StorageError
from hapvr.features import Features
from hapvr.library import Library, adding, store, table_set, versions
from hapvr.library.results import display_path, escape_text
from hapvr.library.table_set import TableSet
from hapvr.library.tables import encode_content, is_intact
from hapvr.library.writer_lock import WriterLock
from tests.library import toy
from tests.library.toy import local, toys  # noqa: F401

pytestmark = pytest.mark.usefixtures("toys")


@pytest.fixture
def library(tmp_path: Path, folder: Path) -> Library:
    made = toy.make(tmp_path / "library")
    made.add([folder])
    return made


def snapshot(path: Path) -> dict[str, tuple[int, int]]:
    files = [Path(here) / name for here, _, names in os.walk(path) for name in names]
    return {str(file): (file.stat().st_size, file.stat().st_mtime_ns) for file in files}


def test_a_folder_that_may_not_be_looked_into_is_no_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "is_file", refused)
    assert not versions.is_library(tmp_path)


@pytest.mark.parametrize("seconds", [-1.0, float("nan")])
def test_waiting_takes_a_time(library: Library, seconds: float) -> None:
    with pytest.raises(ConfigError, match="must be 0 or more"):
        Library.open(library.path, wait_s=seconds).compact()


# --- opening ---------------------------------------------------------------------------------------------------------


def test_what_is_no_library_is_refused(tmp_path: Path, folder: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for path, what in ((tmp_path / "none", "does not exist"), (file, "is a file"), (folder, "is a folder, but no")):
        with pytest.raises(StorageError, match=what):
            Library.open(path)
    with pytest.raises(StorageError, match="holds other things"):
        Library.open(folder, create=True)
    with pytest.raises(StorageError, match="is a file"):
        Library.open(file, create=True)
    with pytest.raises(ConfigError, match="fps must be above 0"):
        Library.open(tmp_path / "new", create=True, fps=-1)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read"),
        ("[]", "cannot be read"),
        ('{"version": "0001"}', "was not written by hapvr"),
        ('{"kind": "hapvr library", "format": 9, "version": "0001"}', "format 9, and this hapvr reads up to 1"),
        ('{"kind": "hapvr library", "format": 1, "version": "0007"}', "cannot be read"),
    ],
)
def test_a_damaged_manifest_is_a_clear_error(library: Library, content: str, message: str) -> None:
    (local(library.path) / versions.MANIFEST).write_text(content)
    with pytest.raises(StorageError, match=message):
        Library.open(library.path)


def test_a_folder_left_half_made_becomes_a_library(tmp_path: Path) -> None:
    versions.write_settings(versions.version_folder(tmp_path / "half", "0001"), toy.SETTINGS)
    with Library.open(tmp_path / "half", create=True, model="toy") as made:
        assert made.info().videos == 0


def test_a_damaged_table_is_a_clear_error(library: Library) -> None:
    for file in (local(library.store.folder) / "regions.lance" / "data").iterdir():
        file.write_bytes(b"nonsense")
    opened = Library.open(library.path)
    with pytest.raises(StorageError, match=r"regions\.lance/data/\w+\.lance' is damaged: it has 8 bytes instead of"):
        opened.features(opened.videos()[0].id)


def test_a_damaged_content_is_found_by_its_checksum(library: Library) -> None:
    stored = next(library.store.read_contents(library.store.catalog().keys.tolist()))
    row = encode_content(stored.key, stored.features(library.store.codec), library.store.codec)
    assert is_intact(row)
    changes = {"key": 1, "frames": 4, "regions": 3, "dims": 16, "times": None, "low": b"\x01", "data": b"", "crc32": 5}
    for name, value in changes.items():
        assert not is_intact(row | {name: value}), name
    smaller = {name: value for name, value in row.items() if name != "data"}
    assert is_intact(smaller)
    assert not is_intact(smaller | {"crc32": 5})
    known = library.videos()[0]
    with pytest.raises(StorageError, match=rf"features of '{known.path}' are damaged.*hapvr remove .* {known.id};"):
        library.store._parse_content(row | {"frames": 4})


def test_paths_are_shown_without_what_cannot_be_printed() -> None:
    assert display_path("caf\udce9\n") == "caf\\xe9\n"
    assert escape_text("a\udce9b") == "a\\xe9b"
    assert escape_text("café") == "café"


# --- one writer, many readers ----------------------------------------------------------------------------------------


@pytest.fixture
def holder(library: Library) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the lock until it is told to go."""
    program = (
        "import sys\nfrom pathlib import Path\nfrom hapvr.library.writer_lock import WriterLock\n"
        "lock = WriterLock(Path(sys.argv[1]))\nlock.acquire('another command', wait_s=0)\nprint('held', flush=True)\n"
        "sys.stdin.readline()\nlock.release(clean=True)\n"
    )
    arguments = [sys.executable, "-c", program, str(library.path)]
    process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_second_writer_waits_or_is_told_who_holds_the_lock(
    library: Library, holder: subprocess.Popen[str], folder: Path
) -> None:
    library.wait_s = 0.2
    start = time.monotonic()
    with pytest.raises(BusyError, match=rf"written by `another command` \(process {holder.pid} on .*\), .* for 0.2 s"):
        library.add([folder])
    assert time.monotonic() - start < 5
    assert f"process {holder.pid}" in (library.info().writer or "")
    assert library.info().videos == 4  # reading goes on
    toy.check(library)
    library.wait_s = 30
    timer = threading.Timer(0.3, lambda: print("go", file=holder.stdin, flush=True))
    timer.start()
    assert library.add([folder]).unchanged == 4
    timer.join()
    assert library.info().writer is None


def test_a_lock_ends_with_its_holder(library: Library, holder: subprocess.Popen[str]) -> None:
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert library.info().writer is None
    lock = WriterLock(local(library.path))
    lock.acquire("mine", wait_s=5)
    assert lock.left_behind
    lock.release(clean=True)
    lock.acquire("mine", wait_s=0)
    assert not lock.left_behind
    lock.release(clean=True)


def test_reading_from_several_threads_while_another_writes(library: Library, folder: Path) -> None:
    reader = Library.open(library.path)
    wrong: list[BaseException] = []
    over = threading.Event()

    def read() -> None:
        try:
            while not over.is_set():
                reader.refresh()
                for record in reader.videos():
                    assert len(reader.features(record.id)) == record.frames
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(100, 115):
        toy.write(folder, f"{number}.mp4", number)
        library.add([folder])
    over.set()
    for thread in threads:
        thread.join()
    assert not wrong


def test_stored_codes_are_not_compressed_again(library: Library) -> None:
    field = library.store.table_set.open("regions").schema.field("data")
    assert field.metadata == {b"lance-encoding:compression": b"none"}


def test_a_disk_that_is_read_only_can_be_read(library: Library, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    honest = os.open

    def refused(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        if flags & (os.O_RDWR | os.O_WRONLY | os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return honest(path, flags, *rest, **named)

    monkeypatch.setattr(os, "open", refused)
    with Library.open(library.path) as reader:
        assert reader.info().writer is None
        toy.check(reader)
        with pytest.raises(StorageError, match="cannot be written: Read-only file system"):
            reader.add([folder])


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("reason", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_where_nothing_can_be_written_no_library_can_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool, reason: int
) -> None:
    """Whether the folder is to be made or is there, empty: what is not there cannot be searched either."""
    place = tmp_path / "disk" / "library"
    (place if there else place.parent).mkdir(parents=True)

    def refused(path: Any, *_: Any, **__: Any) -> Any:
        raise OSError(reason, os.strerror(reason), os.fspath(path))

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refused)
        patch.setattr(os, "mkdir", refused)
        with pytest.raises(StorageError, match=f"A new library cannot be made at '{place}': ") as no:
            Library.open(place, create=True)
    assert os.strerror(reason) in str(no.value)
    assert "searched" not in str(no.value)
    assert "Give a folder that can be written to" in str(no.value)
    with Library.open(place, create=True) as made:  # when it can be
        assert made.info().videos == 0


def test_another_maker_of_a_library_is_waited_for(tmp_path: Path) -> None:
    place = tmp_path / "library"
    place.mkdir()
    lock = WriterLock(place)
    lock.acquire("a test", wait_s=0)
    with pytest.raises(StorageError, match="is being written by `a test`"):
        Library.open(place, create=True, wait_s=0)
    lock.release(clean=True)


# --- a full disk -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", ["regions", "frames", "videos"])
def test_a_full_disk_is_a_clear_error_and_loses_nothing(
    library: Library, folder: Path, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    toy.write(folder, "new.mp4", 50)
    honest = TableSet.add

    def full(self: TableSet, name: str, rows: Any) -> None:
        if name == table:
            with versions.translate_write_errors(self.folder):
                raise RuntimeError("lance error: LanceError(IO): No space left on device (os error 28), file.rs:1")
        honest(self, name, rows)

    with monkeypatch.context() as patch:
        patch.setattr(TableSet, "add", full)
        with pytest.raises(StorageError, match=r"The disk of .* is full.*Make room, and run the same again"):
            library.add([folder])
    with Library.open(library.path) as reader:
        assert reader.info().videos == 4
        toy.check(reader)
    assert library.add([folder]).added == 1
    assert len(library.store.table_set.list_keys("regions")) == 5
    toy.check(library)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs limits of a process")
def test_a_real_limit_on_files_is_a_clear_error_and_loses_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "videos"
    for number in range(12):
        toy.write(folder, f"{number}.mp4", number, 20 if number < 6 else 3000)
    library = toy.make(tmp_path / "library")
    program = (
        "import resource, sys\nfrom tests.library import toy\ntoy.install(toy.Forever)\n"
        "from hapvr.errors import StorageError\nfrom hapvr.library import Library, store\nstore.BATCH = 2\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "try:\n    Library.open(sys.argv[1]).add([sys.argv[2]])\nexcept StorageError as error:\n    print(error)\n"
    )
    arguments = [sys.executable, "-c", program, str(library.path), str(folder)]
    run = subprocess.run(arguments, capture_output=True, text=True, timeout=300, cwd=Path(__file__).parents[2])
    assert "is used up. What was acknowledged before is kept" in run.stdout, run.stderr
    library.refresh()
    toy.check(library)
    assert 0 < (before := library.info().videos) < 12
    assert library.add([folder]).added == 12 - before
    toy.check(library)


# --- another model ---------------------------------------------------------------------------------------------------


def test_a_rebuild_loses_no_video_that_cannot_be_read_again(library: Library, folder: Path) -> None:
    (folder / "0.mp4").unlink()
    (folder / "1.mp4").write_text("nothing")
    with pytest.raises(StorageError, match=r"1 videos of .* are not there to be read again, such as '.*0\.mp4'"):
        library.rebuild(fps=2.0)
    toy.write(folder, "0.mp4", 0, 2)
    with pytest.raises(StorageError, match=r"1 videos of .* could not be read again, such as '.*1\.mp4'"):
        library.rebuild(fps=2.0)
    assert (library.info().fps, library.info().videos) == (1.0, 4)
    (folder / "0.mp4").unlink()
    library.rebuild(fps=2.0, prune=True)
    assert (library.info().fps, library.info().videos, library.info().failed) == (2.0, 3, 1)


def test_another_codec_is_made_from_exact_features_without_reading(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {record.id: library.features(record.id).regions for record in library.videos()}
    with monkeypatch.context() as patch:
        patch.setattr(adding, "extract_stream", lambda *_, **__: pytest.fail("a video was read"))
        patch.setattr(store, "BATCH", 2)
        report = library.rebuild(codec="int8")
    assert (report.unchanged, library.info().codec) == (4, "int8")
    for id, regions in before.items():
        torch.testing.assert_close(library.features(id).regions, regions, atol=0.03, rtol=0.02)
    assert library.rebuild(codec="float16").added == 4  # from coarser ones, they are read again
    toy.check(library)


def test_a_rebuild_with_other_settings_drops_the_one_that_was_begun(library: Library) -> None:
    assert library.rebuild(model="other", stop=lambda: True).stopped
    library.rebuild(model="third")
    assert library.info().model == "third"
    library.compact()
    assert versions.other_versions(library.path) == []


# --- frame vectors ---------------------------------------------------------------------------------------------------


def test_frame_vectors_are_those_of_the_regions_read_once_until_there_are_others(
    library: Library, folder: Path
) -> None:
    from hapvr.library.candidates import find_runs

    opened = library.store
    keys, vectors = opened.candidates.read_all()
    assert len(keys) == len(vectors) == opened.candidates.count()
    for row, features in toy.contents(library).items():
        expected = find_runs(features.regions, features.low_information)[0]
        chosen = torch.from_numpy(vectors[keys == opened.catalog().keys[row]]).float()
        torch.testing.assert_close(chosen, expected, atol=2e-3, rtol=0)
    assert opened.candidates.read_all()[1] is vectors
    toy.write(folder, "more.mp4", 77)
    library.add([folder])
    assert len(library.store.candidates.read_all()[1]) == library.store.candidates.count() > len(vectors)


def test_frames_that_are_nearly_all_alike_can_be_indexed(
    library: Library, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setattr(table_set, "INDEX_FROM", 1000)
    regions = torch.randn(4, 2, 32).repeat(500, 1, 1)
    monkeypatch.setattr(toy, "features_of", lambda _: Features(regions))
    for number in range(3):
        toy.write(folder, f"alike{number}.mp4", 60 + number)
    library.add([folder])
    opened = library.store
    assert opened.candidates.count_indexed() == opened.candidates.count() > 6000
    _, keys, similar = opened.find_nearest(torch.from_numpy(opened.candidates.read_all()[1][-1:]), k=2, exact=True)
    assert len(keys) == 2
    assert similar[0] == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("indexed", [False, True])
def test_the_nearest_frames_are_found_with_and_without_an_index(
    library: Library, folder: Path, monkeypatch: pytest.MonkeyPatch, indexed: bool
) -> None:
    toy.write(folder, "long.mp4", 90, 1500)
    if indexed:
        monkeypatch.setattr(table_set, "INDEX_FROM", 1000)
    library.add([folder])
    opened = library.store
    keys, vectors = opened.candidates.read_all()
    assert opened.candidates.count_indexed() == (len(vectors) if indexed else 0)
    queries = vectors[:5]
    which, found, similar = opened.find_nearest(torch.from_numpy(queries), k=3, exact=True)
    assert which.tolist() == sorted([0, 1, 2, 3, 4] * 3)
    exact = queries @ vectors.T
    right = 0
    for query in range(5):
        best = sorted(exact[query].tolist(), reverse=True)[: 1 if indexed else 3]
        near = similar[which == query].tolist()[: len(best)] == pytest.approx(best, abs=2e-3)
        right += near and found[which == query][0] == keys[query]
    assert right >= (4 if indexed else 5)  # an index is trained from a random start, and may miss one
    if indexed:
        estimated = opened.find_nearest(torch.from_numpy(queries), k=3)  # with similarities that are estimates
        assert sum(keys[query] in estimated[1][estimated[0] == query] for query in range(5)) >= 3
        assert max(abs(estimated[2] - similar)) > 1e-4
        toy.write(folder, "more.mp4", 91, 40)
        library.add([folder])
        assert 0 < opened.candidates.count_indexed() < opened.candidates.count()  # few: they are searched one by one
        library.compact()
        assert opened.candidates.count_indexed() == opened.candidates.count()
