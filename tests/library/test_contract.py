"""What holds for every library: in a folder, in an object store, and with its frame vectors in Milvus.

Both servers are real ones, which the tests start and stop: moto, and the package `milvus`.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch

import hapvr
from hapvr.errors import BusyError, ConfigError, DataError, ShapeError, StorageError
from hapvr.library import Library, engine, milvus_index, opening, store, versions
from hapvr.library.candidate_index import parse_index
from hapvr.library.marks import read_marks
from hapvr.library.store import Store
from hapvr.library.writer_lock import find_writer, open_lock
from hapvr.places import ObjectPath, Place
from tests.library import toy
from tests.library.damage import model
from tests.library.test_candidate_index import require_agreement
from tests.library.test_duplicates import drawn, fill, noisy
from tests.library.toy import toys  # noqa: F401
from tests.milvus_server import RunningServer

pytestmark = pytest.mark.usefixtures("toys", "quick_cleanup")


@dataclass(frozen=True)
class Home:
    """Where a library can be made, and where its frame vectors are to lie."""

    place: Place
    candidates: str

    def open(self, **options: Any) -> Library:
        """Make the library, or open it."""
        settings: dict[str, Any] = {"model": "toy", "codec": "float16"} | options
        return Library.open(self.place, create=True, candidates=self.candidates, **settings)


@pytest.fixture(params=["folder", "bucket", "milvus"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    """Each kind of library, one that does not exist yet."""
    if request.param == "bucket":
        return Home(request.getfixturevalue("bucket") / "deep" / "library", "embedded")
    if request.param == "folder":
        return Home(tmp_path / "deep" / "library", "embedded")
    server: RunningServer = request.getfixturevalue("milvus")
    return Home(tmp_path / "library", server.address(f"films_{secrets.token_hex(4)}"))


@pytest.fixture
def quick_cleanup(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compaction need not wait a second before it removes old versions."""
    monkeypatch.setattr(engine, "_KEEP_LITTLE", timedelta(milliseconds=50))


@pytest.fixture
def library(home: Home, folder: Path) -> Library:
    made = home.open()
    made.add([folder])
    return made


def snapshot(place: Place) -> dict[str, Any]:
    """What changes when anything is written."""
    if isinstance(place, ObjectPath):
        return {name: (place / name).head() for name in place.sizes()}
    files = [Path(here) / name for here, _, names in os.walk(place) for name in names]
    return {str(file): (file.stat().st_size, file.stat().st_mtime_ns) for file in files}


# --- opening ---------------------------------------------------------------------------------------------------------


def test_a_library_is_made_once_and_opened_again(home: Home, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert hapvr.Library is Library
    with pytest.raises(StorageError, match="does not exist"):
        Library.open(home.place)
    with home.open(fps=2.0) as made:
        assert made.info().videos == 0
        assert made.add(folder).added == 4
        assert made.model.sampling.fps == 2.0
    with Library.open(home.place, create=True) as again:
        info = again.info()
        assert (info.videos, info.model, info.codec, info.fps, info.frames) == (4, "toy", "float16", 2.0, 14)
        assert info.candidates == parse_index(home.candidates)
        assert info.bytes_per_minute == pytest.approx(info.bytes / (14 / 60))
        json.dumps(info.to_json())
    with pytest.raises(StorageError, match="has been closed"):
        again.videos()
    home.open(fps=2.0)
    for options, message in (
        ({"model": "other"}, r"made with the model 'toy', not 'other': they do not mix.*--model other --re"),
        ({"codec": "int8"}, r"made with the codec 'float16', not 'int8'"),
        ({"fps": 3.0}, r"made with the rate '2', not '3'"),
        ({"candidates": "milvus://127.0.0.1:1/elsewhere"}, r"made with the candidates '.*--candidates milvus.* --re"),
    ):
        with pytest.raises(StorageError, match=message):
            Library.open(home.place, **options)
    with pytest.raises(ConfigError, match="no codec 'int9'"):
        home.open(codec="int9")
    monkeypatch.setattr(opening, "model_digest", lambda _: "another")
    toy.write(folder, "new.mp4", 9)
    with Library.open(home.place) as changed:
        with pytest.raises(StorageError, match="it has changed since"):
            changed.add([folder])
        assert changed.info().videos == 4
    assert find_writer(home.place) is None


# --- one writer ------------------------------------------------------------------------------------------------------


def test_what_is_added_changed_and_removed_is_found_as_it_is(home: Home, folder: Path) -> None:
    library = home.open()
    assert library.store.candidates.count() == 0
    assert library.store.find_nearest(torch.eye(toy.DIMS)[:1])[1].tolist() == []
    reader = Library.open(home.place)
    (folder / "bad.mp4").write_text("nothing")
    report = library.add([folder])
    assert (report.added, len(report.failed)) == (4, 1)
    require_agreement(library)
    copy = toy.write(folder, "copy.mp4", 1, 3)  # the content of another
    toy.write(folder, "2.mp4", 50, 7)  # another content
    (folder / "3.mp4").unlink()
    report = library.add([folder], prune=True)
    assert (report.added, report.updated, report.unchanged, report.removed) == (1, 1, 3, 1)
    require_agreement(library)
    toy.check(library, [*(folder / f"{number}.mp4" for number in range(3)), copy, folder / "bad.mp4"])
    gone = next(record.id for record in library.videos() if record.path.endswith("0.mp4"))
    assert library.remove([gone]) == 1
    library.compact()
    require_agreement(library)
    reader.refresh()
    require_agreement(reader)
    assert reader.videos() == library.videos()
    assert len({record.content_hash for record in library.videos(state="ready")}) == 2
    for ask in (library.get, library.features, lambda id: library.remove([id])):
        with pytest.raises(DataError, match=f"has no video '{gone}'"):
            ask(gone)
    with pytest.raises(DataError, match="no state 'reddy'; did you mean 'ready'"):
        library.videos(state="reddy")
    assert library.videos(offset=1, limit=2) == library.videos()[1:3]
    with pytest.raises((ShapeError, RuntimeError)):
        library.store.find_nearest(torch.eye(7)[:1])


def test_what_a_writer_left_behind_is_removed_by_the_next(
    library: Library, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regions and vectors without a record; a record without regions."""

    def killed(*_: Any, **__: Any) -> None:
        raise RuntimeError("killed")

    toy.write(folder, "late.mp4", 33)
    with monkeypatch.context() as patch:
        patch.setattr(Store, "put_records", killed)
        with pytest.raises(RuntimeError, match="killed"):
            library.add([folder])
    (folder / "late.mp4").unlink()
    library.refresh()
    assert len(library.store.table_set.list_keys("regions")) == 5
    assert len(library.store.candidates.list_contents().whole) == 5
    lost = int(library.store.catalog().keys[0])
    library.store.table_set.open("regions").delete(f"key = {lost}")
    assert len(library.store.table_set.list_keys("regions")) == 4
    assert library.info().videos == 4
    report = library.add([folder])
    assert (report.updated, report.unchanged) == (1, 3)
    toy.check(library, sorted(folder.iterdir()))
    require_agreement(library)
    assert sorted(library.store.table_set.list_keys("regions")) == sorted(library.store.catalog().keys)


# --- many readers ----------------------------------------------------------------------------------------------------


def test_readers_write_nothing_and_go_on_while_somebody_writes(
    home: Home, library: Library, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with library.write_access("a test") as tables:
        opening.save_calibration(tables, toy.calibration(1))
    before = snapshot(home.place)
    with Library.open(home.place, wait_s=0) as reader:
        reader.info()
        toy.check(reader)
        reader.store.candidates.read_all()
        assert reader.check().intact
        assert snapshot(home.place) == before
        lock = open_lock(home.place)
        lock.acquire("another command", wait_s=0)
        for write in (lambda: reader.add([folder]), lambda: reader.remove([reader.videos()[0].id]), reader.compact):
            with pytest.raises(BusyError, match=r"is being written by `another command` \(process"):
                write()
        assert "`another command`" in (reader.info().writer or "")
        toy.check(reader)
        lock.release(clean=True)
        assert reader.info().writer is None
    monkeypatch.setattr(milvus_index, "connect_server", lambda _: pytest.fail("the server was asked"))
    with Library.open(home.place) as reader:  # a backup needs no Milvus
        reader.back_up(tmp_path / "copy")
        with Library.open(tmp_path / "copy") as copy:
            assert copy.info().candidates == "embedded"
            assert copy.videos() == reader.videos()
            assert opening.read_calibration(copy.store) is not None
            files = [one.store.folder / versions.CALIBRATION for one in (copy, reader)]
            assert files[0].read_bytes() == files[1].read_bytes()
            require_agreement(copy)
            copy.remove([copy.videos()[0].id])
            assert copy.check().intact


@pytest.mark.parametrize("home", ["folder", "bucket"], indirect=True)  # it asks for nothing that lies in Milvus
def test_readers_see_a_whole_library_while_it_is_written(
    library: Library, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hapvr.library.opening._MAX_AGE_S", math.inf)  # else a slow machine lets the reader follow
    reader, tables = Library.open(library.path), Store(library.store.folder)
    assert reader.info().videos == 4
    keys = tables.catalog().contents.tolist()
    contents = {one.key: one.data for one in tables.read_contents(keys)}
    toy.write(folder, "new.mp4", 40)
    old, gone = library.videos()[0], int(library.store.catalog().keys[0])
    library.add([folder])
    [new] = set(library.store.catalog().contents.tolist()) - set(keys)
    assert [one.key for one in tables.read_contents([new])] == [new]  # though it was added meanwhile
    library.remove([old.id])
    torch.testing.assert_close(  # the reader's moment still holds
        reader.features(old.id).regions, toy.features_of(Path(old.path).read_text()).regions
    )
    reader.refresh()
    assert old.id not in [record.id for record in reader.videos()]
    assert reader.info().videos == 4
    time.sleep(0.1)
    library.compact()  # takes away the files that readers know, and gives rows other numbers
    toy.check(reader)
    del contents[gone]
    for _ in range(2):
        assert {one.key: one.data for one in tables.read_contents([*keys, 50])} == contents
        tables.refresh()  # rows are then asked for by numbers of the newest version


# --- answers ---------------------------------------------------------------------------------------------------------


def test_a_search_and_duplicates_find_the_copy(home: Home) -> None:
    library, film = home.open(), drawn(1, 12)
    fill(library, {"film": film, "copy": noisy(film, 0.4), "same": film, "other": drawn(2, 12)})
    reader = Library.open(home.place)
    for opened in (library, reader):
        opened._model = model()
        for exact in (True, False):
            hits = opened.search("film", exact=exact).hits
            assert [hit.id for hit in hits] == ["same", "copy", "other"]
            assert hits[0].score == pytest.approx(1, abs=1e-3)
            assert hits[1].score > 0.8 > hits[2].score
    report = library.find_duplicates()
    assert {frozenset((link.a, link.b)): link.kind for link in report.links}[frozenset(("film", "same"))] == "identical"
    assert [sorted(video.id for video in group.videos) for group in report.groups] == [["copy", "film", "same"]]
    assert library.mark_distinct("film", "copy")
    assert not reader.mark_distinct("copy", "film")
    assert [sorted(video.id for video in group.videos) for group in reader.find_duplicates().groups] == [
        ["film", "same"]
    ]
    assert reader.unmark_distinct("film", "copy")
    assert read_marks(library.path) == frozenset()


# --- other settings --------------------------------------------------------------------------------------------------


def test_another_model_builds_another_version_that_then_takes_over(
    library: Library, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "copy.mp4").write_bytes((folder / "0.mp4").read_bytes())
    (folder / "bad.mp4").write_text("nothing")
    library.add([folder])
    ids = {record.path: record.id for record in library.videos()}
    monkeypatch.setattr(store, "BATCH", 1)
    reader = Library.open(library.path)
    asked = iter([False] * 4 + [True] * 100)
    report = library.rebuild(model="other", stop=lambda: next(asked))
    assert report.stopped
    assert (reader.info().model, reader.info().building, reader.info().videos) == ("toy", "other", 5)
    toy.write(folder, "new.mp4", 70)
    library.add([folder])  # meanwhile, the old version goes on
    report = library.rebuild(model="other")
    assert not report.stopped
    assert 0 < report.added < 6  # the rest was done before
    info = library.info()
    assert (info.model, info.videos, info.failed, info.building) == ("other", 6, 1, None)
    assert ids.items() <= {record.path: record.id for record in library.videos()}.items()
    toy.check(library)
    require_agreement(library)
    torch.testing.assert_close(  # the old version is still there for whoever has it open
        reader._store.features(int(reader._store.catalog().keys[0])).regions,  # type: ignore[union-attr]
        toy.features_of("video 0 2").regions,
    )
    reader.refresh()
    assert (reader.info().model, reader.model.name) == ("other", "other")
    library.add([folder])
    assert versions.other_versions(library.path) == []
    with pytest.raises(ConfigError, match="nothing to rebuild"):
        library.rebuild(model="other")
