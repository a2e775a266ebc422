"""The clock of the system goes back or far ahead between two changes: nothing is lost, mixed up or kept for ever."""

from __future__ import annotations

import os
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hapvr.errors import BusyError
from hapvr.library import Library
from hapvr.library.indexed_folders import IndexRules
from hapvr.library.watch import FolderScan
from hapvr.server.jobs import Job, Jobs
from hapvr.server.security import SESSION_S, Sessions
from hapvr.server.settings import ServerSettings
from hapvr.server.uploads import Query, Uploads
from tests.library import toy
from tests.library.toy import toys  # noqa: F401

YEAR_S = 366 * 24 * 3600.0


class Clock:
    """Replaces the clock of the system in this process; `time.monotonic` goes on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead_s = 0.0
        plain = time.time

        class Jumping(datetime):
            @classmethod
            def now(cls, tz: timezone | None = None) -> datetime:  # type: ignore[override]
                return datetime.fromtimestamp(time.time(), tz)

        monkeypatch.setattr("time.time", lambda: plain() + self.ahead_s)
        monkeypatch.setattr("time.time_ns", lambda: int((plain() + self.ahead_s) * 1e9))
        for module in ("hapvr.library.results", "hapvr.library.writer_lock", "hapvr.server.jobs"):
            monkeypatch.setattr(f"{module}.datetime", Jumping)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.mark.usefixtures("toys")
def test_a_library_holds_what_it_was_given_whatever_the_clock_says(tmp_path: Path, clock: Clock) -> None:
    library = toy.make(tmp_path / "library")
    keys: list[int] = []
    files: list[Path] = []
    for number, ahead_s in enumerate((0.0, -3600.0, 200 * YEAR_S, -30 * YEAR_S, 0.0, 1.0)):
        clock.ahead_s = ahead_s
        files += [toy.write(tmp_path / "videos", f"{number}-{seed}.mp4", 10 * number + seed) for seed in range(3)]
        with Library.open(tmp_path / "library") as writer:
            assert writer.add([tmp_path / "videos"]).added == 3
            assert writer.add([tmp_path / "videos"]).unchanged == len(files)
        library.refresh()
        toy.check(library, files)
        catalog = library.store.catalog()
        new = sorted(set(catalog.keys.tolist()) - set(keys))
        assert len(new) == 3  # no key of a content that was there before, and perhaps was removed since
        keys += new
        last = catalog.records([int(catalog.keys.argmax())])[0]  # the next writer does not know that this key was used
        library.remove([last.id])
        gone = next(path for path in files if str(path) == last.path)
        gone.unlink()
        files.remove(gone)
    library.compact()
    toy.check(library, files)


def test_a_key_is_not_used_again_after_many_were_given_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More contents than milliseconds: keys are ahead of the clock, as after the clock went back."""
    store = toy.make(tmp_path / "library").store
    monkeypatch.setattr(store.table_set, "list_keys", lambda _: np.array([2**60]))
    given = set()
    for _ in range(50):
        store.begin(recover=False)
        given.add(store.new_key())
    assert len(given) == 50
    assert min(given) > 2**60


@pytest.mark.usefixtures("toys")
@pytest.mark.parametrize("ahead_s", [-YEAR_S, YEAR_S])
def test_a_lock_lasts_as_long_as_its_holder(tmp_path: Path, clock: Clock, ahead_s: float) -> None:
    library = toy.make(tmp_path / "library")
    with library.write_access("hapvr add"):
        clock.ahead_s = ahead_s
        started = time.monotonic()
        other = Library.open(tmp_path / "library", wait_s=0.2)
        with pytest.raises(BusyError, match=r"stayed so for 0\.2 s"), other.write_access("hapvr remove"):
            pass
        assert time.monotonic() - started < 30
    with other.write_access("hapvr remove"):
        pass


@pytest.mark.usefixtures("toys")
def test_a_file_from_the_future_is_settled_when_it_stays_as_it_is(tmp_path: Path) -> None:
    library = toy.make(tmp_path / "library")
    path = toy.write(tmp_path / "videos", "a.mp4", 1)
    os.utime(path, (time.time() + YEAR_S,) * 2)
    scan = FolderScan(library, {str(tmp_path / "videos"): IndexRules()}, interval_s=1.0)
    assert not scan.find_settled()[1]
    assert list(scan.find_settled()[1]) == [os.fsencode(path)]


def test_a_session_never_lasts_longer_than_it_may(clock: Clock) -> None:
    sessions = Sessions("a token of more than 16 letters")
    clock.ahead_s = YEAR_S
    from_the_future = sessions.new()
    assert sessions.is_valid(from_the_future)
    clock.ahead_s = 0.0
    assert not sessions.is_valid(from_the_future)
    now = sessions.new()
    clock.ahead_s = SESSION_S - 60
    assert sessions.is_valid(now)
    clock.ahead_s = SESSION_S + 60
    assert not sessions.is_valid(now)


def test_what_is_kept_for_a_link_does_not_stay_for_ever(tmp_path: Path, clock: Clock) -> None:
    settings = ServerSettings()
    uploads = Uploads(tmp_path, settings, linked=tmp_path / "linked", forgotten=lambda _: None)
    (tmp_path / "clip").write_bytes(b"video")
    query = Query("q1", "clip", tmp_path / "clip", 5, (None, None), 0.0, until=time.time() + 100 * YEAR_S)
    uploads._queries["q1"] = query
    uploads.expire()
    assert "q1" in uploads
    assert query.until == pytest.approx(time.time() + settings.keep_linked_uploads_s, abs=60)
    clock.ahead_s = settings.keep_linked_uploads_s + 60
    uploads.expire()
    assert "q1" not in uploads


def test_the_time_that_a_job_took_is_not_negative(clock: Clock) -> None:
    took: list[float] = []
    metrics = SimpleNamespace(job=lambda _kind, _state, seconds: took.append(seconds))
    job = Job("search")
    clock.ahead_s = -YEAR_S
    jobs = Jobs.__new__(Jobs)
    vars(jobs).update(_metrics=metrics, _jobs={}, _settings=ServerSettings())
    jobs._end(job, state="done")
    assert job.finished is not None
    assert job.finished < job.created - timedelta(days=300)
    assert 0 <= took[0] < 60
