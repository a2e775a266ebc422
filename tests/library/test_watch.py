"""Watching: what appears is added when it has settled, what goes is noticed, and it ends when it is told to."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hapvr.errors import ConfigError
from hapvr.library import AddReport, Library
from hapvr.library.writer_lock import WriterLock
from tests.library import toy
from tests.library.toy import local, toys  # noqa: F401

pytestmark = pytest.mark.usefixtures("toys")
INTERVAL = 0.05


@contextmanager
def watching(path: Path, folder: Path, *, prune: bool = False) -> Iterator[tuple[list[AddReport], list[str]]]:
    reports: list[AddReport] = []
    said: list[str] = []
    over = threading.Event()
    wrong: list[BaseException] = []

    def run() -> None:
        try:
            with Library.open(path, wait_s=0) as library:
                library.watch(
                    [folder], interval_s=INTERVAL, prune=prune, report=reports.append, say=said.append, stop=over.is_set
                )
        except BaseException as error:
            wrong.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield reports, said
    finally:
        over.set()
        thread.join(10)
    assert not thread.is_alive()
    assert not wrong


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def test_a_folder_is_kept_in_step(tmp_path: Path) -> None:
    folder = tmp_path / "videos"
    toy.write(folder, "a.mp4", 1)
    library = toy.make(tmp_path / "library")
    with watching(local(library.path), folder, prune=True) as (reports, said):
        wait_for(lambda: sum(report.added for report in reports) == 1)
        toy.write(folder, "b.mp4", 2)
        wait_for(lambda: sum(report.added for report in reports) == 2)
        (folder / "b.mp4").rename(folder / "c.mp4")
        wait_for(lambda: sum(report.moved for report in reports) == 1)
        (folder / "c.mp4").unlink()
        wait_for(lambda: sum(report.removed for report in reports) == 1)
        (folder / "bad.mp4").write_text("nothing")
        wait_for(lambda: sum(len(report.failed) for report in reports) == 1)
        quiet = len(reports)
        time.sleep(6 * INTERVAL)
        assert len(reports) == quiet  # nothing happens where nothing happens
        assert said == []
    library.refresh()
    toy.check(library, [folder / "a.mp4", folder / "bad.mp4"])


def test_a_file_that_grows_is_taken_when_it_has_settled(tmp_path: Path) -> None:
    folder = tmp_path / "videos"
    toy.write(folder, "a.mp4", 1)
    library = toy.make(tmp_path / "library")
    with watching(local(library.path), folder) as (reports, _):
        wait_for(lambda: sum(report.added for report in reports) == 1)
        for number in range(40):
            (folder / "b.mp4").write_text("video 2 3" + " " * number)
            time.sleep(INTERVAL / 5)
        wait_for(lambda: sum(report.added for report in reports) == 2)
        assert sum(report.updated for report in reports) <= 1
        wait_for(lambda: Library.open(library.path).videos()[1].size == (folder / "b.mp4").stat().st_size)


def test_another_writer_is_told_and_waited_for(tmp_path: Path) -> None:
    folder = tmp_path / "videos"
    toy.write(folder, "a.mp4", 1)
    library = toy.make(tmp_path / "library")
    lock = WriterLock(local(library.path))
    lock.acquire("somebody else", wait_s=0)
    with watching(local(library.path), folder) as (reports, said):
        wait_for(lambda: len(said) == 1)
        assert f"`somebody else` (process {os.getpid()}" in said[0]
        assert not reports
        lock.release(clean=True)
        wait_for(lambda: sum(report.added for report in reports) == 1)


def test_a_folder_that_goes_away_for_a_while_loses_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "disk" / "videos"
    toy.write(folder, "a.mp4", 1)
    library = toy.make(tmp_path / "library")
    with watching(local(library.path), folder, prune=True) as (reports, said):
        wait_for(lambda: sum(report.added for report in reports) == 1)
        folder.parent.rename(tmp_path / "away")
        wait_for(lambda: len(said) == 1)
        assert "is not there" in said[0]
        (tmp_path / "away").rename(folder.parent)
        toy.write(folder, "b.mp4", 2)
        wait_for(lambda: sum(report.added for report in reports) == 2)
    library.refresh()
    assert library.info().videos == 2


def test_what_cannot_be_watched_is_refused(tmp_path: Path) -> None:
    library = toy.make(tmp_path / "library")
    with pytest.raises(ConfigError, match="is not there"):
        library.watch([tmp_path / "nothing"])
    with pytest.raises(ConfigError, match="interval_s must be above 0"):
        library.watch([tmp_path], interval_s=0)
