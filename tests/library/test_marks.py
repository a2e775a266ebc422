"""Marks: what a person said about two videos stays said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hapvr.actions.plan import Action, Plan, PlanRow
from hapvr.errors import BusyError, DataError, StorageError
from hapvr.library import Library
from hapvr.library.marks import MARKS, make_pair, read_marks
from hapvr.library.writer_lock import WriterLock
from tests.library.toy import local, make, toys, write  # noqa: F401 - a fixture

pytestmark = pytest.mark.usefixtures("toys")


@pytest.fixture
def library(tmp_path: Path) -> Library:
    opened = make(tmp_path / "library")
    for seed in range(3):
        write(tmp_path / "films", f"{seed}.mp4", seed)
    write(tmp_path / "films", "copy.mp4", 0)
    opened.add([tmp_path / "films"])
    return opened


def ids(library: Library) -> dict[str, str]:
    return {Path(record.path).stem: record.id for record in library.videos()}


def test_a_mark_is_remembered_and_taken_back(library: Library) -> None:
    named = ids(library)
    assert library.mark_distinct(named["1"], named["2"]) is True
    assert library.mark_distinct(named["2"], named["1"]) is False  # in whatever order
    hashes = [library.get(named[name]).content_hash for name in "12"]
    with Library.open(library.path) as other:
        assert read_marks(other.path) == {make_pair(*hashes)}
        assert other.unmark_distinct(named["2"], named["1"]) is True
        assert other.unmark_distinct(named["2"], named["1"]) is False
    assert read_marks(library.path) == frozenset()


def test_marks_are_of_contents_and_outlive_a_move_a_removal_and_a_rebuild(library: Library, tmp_path: Path) -> None:
    named = ids(library)
    library.mark_distinct(named["0"], named["1"])
    marked = read_marks(library.path)
    (tmp_path / "films" / "1.mp4").rename(tmp_path / "films" / "elsewhere.mp4")
    library.add([tmp_path / "films"], prune=True)
    library.remove([named["2"]])
    library.rebuild(codec="int8")
    assert library.settings.codec == "int8"
    assert read_marks(library.path) == marked
    assert library.mark_distinct(ids(library)["elsewhere"], ids(library)["copy"]) is False  # the same two contents


def test_what_is_one_video_cannot_be_two(library: Library) -> None:
    named = ids(library)
    with pytest.raises(DataError, match="give two"):
        library.mark_distinct(named["0"], named["0"])
    with pytest.raises(DataError, match="byte for byte"):
        library.mark_distinct(named["0"], named["copy"])
    with pytest.raises(DataError, match="no video 'nobody'"):
        library.mark_distinct(named["0"], "nobody")
    assert not (library.path / MARKS).exists()


def test_a_mark_waits_for_the_writer_and_leaves_no_half_file(library: Library) -> None:
    named = ids(library)
    lock = WriterLock(local(library.path))
    lock.acquire("a test", wait_s=0)
    library.wait_s = 0.1
    with pytest.raises(BusyError, match="a test"):
        library.mark_distinct(named["0"], named["1"])
    lock.release(clean=True)
    assert library.mark_distinct(named["0"], named["1"]) is True
    left = local(library.path) / f".{MARKS}.1-ab.part"
    left.write_text('{"form')  # by a writer that was killed
    assert library.mark_distinct(named["0"], named["2"]) is True
    assert not left.exists()
    assert len(read_marks(library.path)) == 2


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 9, "distinct": []}', '{"format": 1, "distinct": [["a"]]}'])
def test_a_damaged_file_is_named(library: Library, text: str) -> None:
    (local(library.path) / MARKS).write_text(text)
    with pytest.raises(StorageError, match=r"marks\.json.*(Restore|newer release)"):
        read_marks(library.path)


def test_the_file_is_plain(library: Library) -> None:
    named = ids(library)
    library.mark_distinct(named["0"], named["1"])
    pairs = json.loads((local(library.path) / MARKS).read_text())["distinct"]
    assert pairs == [sorted(library.get(named[name]).content_hash for name in "01")]


def test_a_reviewed_plan_marks_many_at_once(library: Library) -> None:
    records = {Path(record.path).stem: record for record in library.videos()}

    def row(name: str, action: Action) -> PlanRow:
        return PlanRow("1", action, records[name].path, records[name].size, records[name].content_hash)

    plan = Plan((row("0", "keep"), row("copy", "none"), row("1", "distinct"), row("2", "move")))
    hashes = {name: records[name].content_hash for name in "012"}
    assert library.mark_plan(plan) == 2
    assert read_marks(library.path) == {make_pair(hashes["1"], hashes[other]) for other in "02"}
    assert library.mark_plan(plan, groups=["1"]) == 1  # 0 and 2; copies of the same bytes cannot be distinct
    assert len(read_marks(library.path)) == 3
    assert library.mark_plan(plan, groups=["1"]) == 0
    assert library.mark_plan(plan, distinct=False) == 2
    assert read_marks(library.path) == {make_pair(hashes["0"], hashes["2"])}
