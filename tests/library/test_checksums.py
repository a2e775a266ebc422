"""Checksums of a library's files: what is listed, who checks it, and what happens to libraries that have none."""

from __future__ import annotations

import json
import os
import shutil
import time
import zlib
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hapvr import storage
from hapvr.errors import StorageError
from hapvr.library import Library, checksums, engine, store, versions
from hapvr.library.checksums import FileSum, Guard, find_damage, list_table, sum_file
from hapvr.library.engine import newest_manifest
from hapvr.library.marks import MARKS, read_marks
from hapvr.library.tables import FRAMES, REGIONS, VIDEOS
from hapvr.places import Place
from tests.library import toy
from tests.library.conftest import Run
from tests.library.damage import model
from tests.library.test_duplicates import drawn, fill, noisy
from tests.library.toy import local, toys  # noqa: F401

OLD = Path(__file__).parent / "fixtures" / "library-91f820c.zip"
"""A library of the commit before there were checksums: "film", "copy" and "other", marks and a calibration."""


@pytest.fixture
def library(tmp_path: Path) -> Library:
    made = toy.make(tmp_path / "library")
    film = drawn(1, 6)
    fill(made, {"film": film, "copy": noisy(film, 0.4), "other": drawn(2, 6)})
    return made


@pytest.fixture
def old(tmp_path: Path) -> Path:
    shutil.unpack_archive(OLD, tmp_path / "old")
    return tmp_path / "old"


def reopened(library: Library | Path) -> Library:
    found = Library.open(library if isinstance(library, Path) else library.path)
    found._model = model()
    return found


def flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def data_file(library: Library, table: str, holding: bytes = b"") -> Path:
    """A file of a table in which there is something."""
    files = (local(library.store.folder) / f"{table}.lance" / "data").iterdir()
    return next(path for path in sorted(files) if holding in path.read_bytes())


def find_all_damage(folder: Place) -> list[str]:
    """Every listed file of a version that is not what was written, large ones too."""
    guard = Guard(folder, listed=False)
    tables = guard.listing.tables
    return [f"{name}.lance/{file}" for name in tables for file in guard.find_damage(name, version=None, whole=True)]


# --- sums ------------------------------------------------------------------------------------------------------------


def slow_crc32(data: bytes) -> int:
    """CRC-32 bit by bit, as its polynomial says."""
    total = 0xFFFFFFFF
    for byte in data:
        total ^= byte
        for _ in range(8):
            total = total >> 1 ^ (0xEDB88320 if total & 1 else 0)
    return total ^ 0xFFFFFFFF


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 35])
def test_the_sum_of_a_file_is_that_of_a_slow_loop_over_its_blocks(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checksums, "_BLOCK", 10)
    monkeypatch.setattr(checksums, "_CHUNK", 4)
    data = bytes(np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8))
    (tmp_path / "file").write_bytes(data)
    blocks = "".join(f"{slow_crc32(data[start : start + 10]):08x}" for start in range(0, size, 10))
    assert sum_file(tmp_path / "file") == FileSum(size, blocks)


def test_every_flipped_bit_of_a_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksums, "_BLOCK", 10)
    path = tmp_path / "file"
    path.write_bytes(bytes(range(35)))
    files = {"file": sum_file(path)}
    assert find_damage(tmp_path, files) == {}
    for bit in range(8 * 35):
        flip(path, bit)
        (found,) = find_damage(tmp_path, files).values()
        assert "checksum" in found
        flip(path, bit)
    path.write_bytes(bytes(range(34)))
    assert "34 bytes instead of 35" in find_damage(tmp_path, files)[path.name]
    path.unlink()
    assert "is missing" in find_damage(tmp_path, files)[path.name]


@pytest.mark.parametrize("content", [{"format": 1, "distinct": [["a", "b"]]}, {"format": 1, "distinct": []}])
def test_every_flipped_bit_of_a_document_is_an_error_or_changes_nothing(content: Any, tmp_path: Path) -> None:
    path = tmp_path / "marks.json"
    storage.write_document(path, content)
    assert storage.read_document(path, content) == content
    told = 0
    for bit in range(8 * path.stat().st_size):
        flip(path, bit)
        try:
            assert storage.read_document(path, content) == content
        except ValueError:
            told += 1
        flip(path, bit)
    assert told > 7 * path.stat().st_size


def test_a_document_of_an_older_release_has_no_checksum_and_is_read(tmp_path: Path) -> None:
    path = tmp_path / "marks.json"
    path.write_text('{"format": 1}')
    assert storage.lacks_checksum(path)
    assert storage.read_document(path, ["format"]) == {"format": 1}
    path.write_text('{"format": 1, "crc33": 5}')
    with pytest.raises(ValueError, match="it holds 'crc33', which is unknown here, and no checksum"):
        storage.read_document(path, ["format"])
    written = zlib.crc32(b'{"format": 2, "more": 3}')  # of a later release: it is whole, whatever it means
    path.write_text(json.dumps({"more": 3, "format": 2, "crc32": written}))
    assert storage.read_document(path, ["format"]) == {"format": 2, "more": 3}


# --- lists -----------------------------------------------------------------------------------------------------------


def test_the_list_names_the_files_that_the_newest_manifest_names_and_no_others(library: Library) -> None:
    library.remove(["other"])
    folder = local(library.store.folder) / "regions.lance"
    before = list_table(folder, {})
    assert before is not None
    assert len([name for name in before.files if name.startswith("data/")]) == 2  # that of "other" has no row left
    assert len(list((folder / "data").iterdir())) == 3
    library.compact()
    fill(library, {"new": drawn(5, 3)})
    library.remove(["copy"])
    after = list_table(folder, {})
    assert after is not None
    assert newest_manifest(folder) == (after.version, min(name for name in after.files if name.startswith("_versions")))
    kinds = sorted(name.partition("/")[0] for name in after.files)
    assert kinds == ["_deletions", "_versions", "data", "data"]
    assert reopened(library).store.table_set.guard.listing.tables[REGIONS] == after


def test_files_that_are_removed_without_a_commit_are_not_missed(library: Library) -> None:
    with library.write_access("a test") as tables:
        for name in (VIDEOS, REGIONS, FRAMES):
            table = tables.table_set.open(name)
            tables.table_set.write(name, partial(table.optimize, cleanup_older_than=timedelta(days=1)))
            assert len(list((local(tables.folder) / f"{name}.lance" / "data").iterdir())) == 4  # three are one by now
        sealed = reopened(library).store.table_set.guard.listing
        time.sleep(0.1)
        for name in (VIDEOS, REGIONS, FRAMES):
            table = tables.table_set.open(name)
            before = table.version
            table.optimize(cleanup_older_than=timedelta(milliseconds=20), delete_unverified=True)
            assert table.version == before
            assert len(list((local(tables.folder) / f"{name}.lance" / "data").iterdir())) == 1
    opened = reopened(library)
    assert opened.store.table_set.guard.listing == sealed
    assert find_all_damage(local(opened.store.folder)) == []
    assert len(opened.store.candidates.read_all()[0]) == 18
    opened.remove([record.id for record in opened.videos()])
    assert [len(table.files) for table in opened.store.table_set.guard.listing.tables.values()] == [1, 1, 1]
    opened.compact()
    assert reopened(library).videos() == []


def test_what_is_not_listed_may_be_damaged_and_what_is_listed_may_not(library: Library) -> None:
    library.remove(["other"])
    folder = local(library.store.folder)
    expected = reopened(library).search("film", exact=True).hits
    tables = library.store.table_set.guard.listing.tables
    listed = {f"{name}.lance/{file}" for name, table in tables.items() for file in table.files}
    files = [path for path in folder.glob("*.lance/**/*") if path.is_file()]
    others = [path for path in files if str(path.relative_to(folder)) not in listed]
    assert len(others) > 10  # manifests, transactions and data of before
    for path in others:
        path.unlink()
    again = reopened(library)
    assert again.search("film", exact=True).hits == expected
    assert find_all_damage(folder) == []
    for name in sorted(listed):
        (folder / name).rename(folder / "away")
        assert find_all_damage(folder) == [name]
        (folder / "away").rename(folder / name)


def test_records_are_checked_on_opening_and_vectors_when_they_are_asked_for(library: Library) -> None:
    path = data_file(library, FRAMES)
    flip(path, 77)
    opened = reopened(library)
    assert opened.info().vectors == 18
    assert len(opened.search("film", exact=True).hits) == 2
    with pytest.raises(StorageError, match=rf"{path.name}' is damaged: its checksum.*hapvr check LIBRARY --repair"):
        opened.store.candidates.read_all()
    with pytest.raises(StorageError, match=path.name):
        opened.find_duplicates()
    flip(path, 77)
    assert len(opened.store.candidates.read_all()[0]) == 18
    path = data_file(library, VIDEOS)
    flip(path, 1000)
    with pytest.raises(StorageError, match=path.name):
        reopened(library)


def test_vectors_that_are_damaged_do_not_get_new_checksums_when_files_are_put_together(library: Library) -> None:
    path = data_file(library, FRAMES)
    flip(path, 77)
    with pytest.raises(StorageError, match=path.name):
        reopened(library).compact()
    assert path.exists()
    flip(path, 77)
    reopened(library).compact()
    assert not path.exists()


def test_a_table_is_not_read_at_an_older_version_than_was_written(library: Library) -> None:
    newest = newest_manifest(library.store.folder / "videos.lance")
    assert newest is not None
    os.remove(local(library.store.folder) / "videos.lance" / newest[1])
    with pytest.raises(StorageError, match=rf"{os.path.basename(newest[1])}' is missing"):
        reopened(library)
    shutil.rmtree(local(library.store.folder) / "videos.lance")
    with pytest.raises(StorageError, match="is missing"):
        reopened(library)


def test_the_list_itself_is_checked_and_must_be_there(library: Library) -> None:
    path = local(library.store.folder) / checksums.CHECKSUMS
    text = path.read_text()
    path.write_text(text.replace('"version": 3', '"version": 2', 1))
    with pytest.raises(StorageError, match=r"checksums\.json' cannot be read: its checksum is not that of its content"):
        reopened(library)
    path.unlink()
    with pytest.raises(StorageError, match=r"checksums\.json' is missing\..*hapvr check LIBRARY --repair"):
        reopened(library)
    path.write_text(text)
    assert reopened(library).info().unchecked == 0
    path.write_text('{"format": 1, "kept": [], "tables": {}}')  # then what there is counts unchecked
    assert reopened(library).info().unchecked == 12
    fill(library, {"new": drawn(8, 3)})
    assert reopened(library).info().unchecked == 0


# --- contents --------------------------------------------------------------------------------------------------------


def test_a_content_that_is_damaged_names_its_video_and_the_remedy_is_true(library: Library) -> None:
    stored = next(library.store.read_contents([int(library.store.catalog().keys[1])]))
    path = data_file(library, REGIONS, stored.data[100:200])
    flip(path, 8 * path.read_bytes().find(stored.data[100:200]))
    opened = reopened(library)
    with pytest.raises(
        StorageError, match=r"features of '/films/film.mp4' are damaged.*hapvr remove .* film; hapvr add"
    ):
        opened.search("other", exact=True)
    assert opened.features("copy").regions.shape == (6, 2, 32)
    assert opened.remove(["film"]) == 1
    fill(opened, {"film": drawn(1, 6)})
    assert [hit.id for hit in opened.search("film", exact=True).hits] == ["copy", "other"]
    opened.compact()
    assert find_all_damage(local(opened.store.folder)) == []


def test_a_content_that_went_without_its_record_is_told(library: Library) -> None:
    key = int(library.store.catalog().keys[1])
    with library.write_access("a test") as tables:
        tables.table_set.write(REGIONS, lambda: tables.table_set.open(REGIONS).delete(f"key = {key}"))
    for opened in (library, reopened(library)):
        with pytest.raises(StorageError, match=r"features of '/films/film.mp4' are not there, though nobody removed"):
            opened.search("other", exact=True)
    library.remove(["film"])
    assert [hit.id for hit in library.search("other", exact=True).hits] == ["copy"]


# --- other files -----------------------------------------------------------------------------------------------------


def test_marks_that_are_gone_or_damaged_are_told_and_the_remedy_is_true(library: Library) -> None:
    assert read_marks(library.path) == frozenset()
    library.mark_distinct("film", "other")
    path = local(library.path) / MARKS
    text = path.read_text()
    path.write_text(text.replace("[[", "[ ["))
    assert len(read_marks(library.path)) == 1
    digit = text.index('"distinct"') + 30
    path.write_text(text[:digit] + ("1" if text[digit] == "0" else "0") + text[digit + 1 :])
    with pytest.raises(StorageError, match=r"marks\.json' cannot be read.*Restore it from a copy, or write"):
        library.find_duplicates()
    path.unlink()
    with pytest.raises(StorageError, match=r"marks\.json' is missing, though pairs were marked") as told:
        library.find_duplicates()
    path.write_text(str(told.value).partition("or write ")[2].partition(" into it")[0])
    assert read_marks(library.path) == frozenset()
    assert library.mark_distinct("film", "other")


def test_a_manifest_that_is_gone_is_no_empty_folder(library: Library) -> None:
    path = local(library.path) / versions.MANIFEST
    for spoil in (lambda: path.write_text("{}}"), path.unlink):
        spoil()
        with pytest.raises(StorageError, match=r"hapvr-library\.json' (is missing|cannot be read)") as told:
            Library.open(library.path)
        with pytest.raises(StorageError, match="Restore it from a copy, or write it again"):
            Library.open(library.path, create=True, model="toy")
        assert (library.path / "versions" / "0001" / "videos.lance").is_dir()
    path.write_text(str(told.value).partition("write it again: ")[2].rstrip("."))
    assert reopened(library).info().videos == 3


def test_settings_are_checked(library: Library) -> None:
    path = local(library.store.folder) / versions.SETTINGS
    path.write_text(path.read_text().replace('"rate": 1.0', '"rate": 3.0'))
    with pytest.raises(StorageError, match=r"settings\.json' cannot be read: its checksum is not that of its content"):
        Library.open(library.path)


# --- writers that are killed, and readers meanwhile ------------------------------------------------------------------


def test_a_writer_that_is_killed_before_it_lists_leaves_a_library_that_is_read_and_the_next_lists_it(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = data_file(library, VIDEOS)
    with monkeypatch.context() as patch:
        patch.setattr(checksums.Guard, "seal", lambda *_, **__: None)
        fill(library, {"new": drawn(7, 3)})
        library.remove(["copy"])
    opened = reopened(library)
    assert [record.id for record in opened.videos()] == ["film", "new", "other"]
    assert len(opened.search("film", exact=True).hits) == 2
    assert len(opened.store.candidates.read_all()[0]) == 15
    assert opened.info().unchecked > 3
    flip(path, 1000)  # what was listed before is checked as ever
    with pytest.raises(StorageError, match=path.name):
        reopened(library)
    flip(path, 1000)
    with reopened(library).write_access("a test"):
        pass
    assert reopened(library).info().unchecked == 0
    assert find_all_damage(local(library.store.folder)) == []


def test_a_reader_does_not_take_files_that_a_writer_has_replaced_for_damage(library: Library) -> None:
    readers = [reopened(library) for _ in range(2)]
    expected = readers[0].search("film", exact=True).hits
    library.compact()
    for reader in readers:
        reader._refreshed = float("inf")  # it does not look for newer versions by itself
    assert len(readers[0].store.candidates.read_all()[0]) == 18
    assert readers[1].search("film", exact=True).hits == expected


def test_a_version_that_was_replaced_is_not_called_damaged(library: Library) -> None:
    tables = reopened(library).store
    versions.write_settings(versions.version_folder(library.path, "0002"), toy.SETTINGS)
    versions.switch_version(library.path, "0002")
    shutil.rmtree(local(tables.folder) / "frames.lance")
    with pytest.raises(StorageError, match="was replaced by another version meanwhile"):
        tables.refresh()


# --- panics ----------------------------------------------------------------------------------------------------------


class PanicException(BaseException):
    """As the one of Rust's bindings, which cannot be imported."""


@pytest.mark.parametrize("error", [PanicException("index out of range"), KeyError("_distance"), ValueError("bad page")])
def test_whatever_the_storage_engine_raises_is_a_storage_error(
    error: BaseException, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise error

    opened = reopened(library)
    monkeypatch.setattr(opened.store.table_set.open(VIDEOS), "search", broken, raising=False)
    with pytest.raises(StorageError, match=r"The table 'videos' of .* cannot be read: .*(range|_distance|bad page)"):
        opened.videos()


def test_an_interrupt_is_no_answer_of_the_storage_engine() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.call(interrupted)


# --- older releases --------------------------------------------------------------------------------------------------


def test_a_library_from_before_there_were_checksums_is_read_as_it_is(old: Path, run: Run) -> None:
    files = {path: path.read_bytes() for path in old.rglob("*") if path.is_file()}
    with reopened(old) as library:
        assert [record.id for record in library.videos()] == ["copy", "film", "other"]
        film = library.features("film")
        torch.testing.assert_close(film.regions, drawn(1, 6).half().float(), rtol=0, atol=0)
        assert film.timestamps is not None
        assert film.low_information is not None
        assert film.miniatures is not None
        assert film.timestamps.tolist() == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]
        assert film.low_information.tolist() == [False, True, False, False, False, False]
        assert np.array_equal(film.miniatures, np.random.default_rng(0).integers(0, 256, (6, 16, 16), dtype=np.uint8))
        assert [hit.id for hit in library.search("film", exact=True).hits] == ["copy", "other"]
        assert library.info().unchecked == 6
        assert len(read_marks(old)) == 1
    code, out, _ = run("status", old)
    assert code == 0
    assert "6 files have no checksum" in out
    assert {path: path.read_bytes() for path in files} == files  # reading changes nothing


def test_a_table_without_checksums_that_lacks_a_column_is_refused(old: Path) -> None:
    path = next((old / "versions/0001/videos.lance/_versions").glob("*.manifest"))
    data = path.read_bytes()
    path.write_bytes(data.replace(b"content_hash", b"content_hush"))
    with pytest.raises(StorageError, match=r"The table 'videos' of .* has no column 'content_hash'"):
        reopened(old)


def test_the_next_change_of_an_older_library_adds_checksums(old: Path, run: Run) -> None:
    with reopened(old) as library:
        fill(library, {"new": drawn(9, 4)})
        assert library.info().unchecked == 0
    assert "no checksum" not in run("status", old)[1]
    with reopened(old) as library:
        assert [hit.id for hit in library.search("film", exact=True).hits] == ["copy", "new", "other"]
        before = library.features("film")
        stored = next(library.store.read_contents([int(library.store.catalog().keys[1])]))
        path = data_file(library, REGIONS, stored.data[:64])
    assert stored.timestamps is not None
    place = path.read_bytes().find(stored.timestamps.tobytes())
    for bit in (8 * place + 50, 8 * path.read_bytes().find(before.miniatures.tobytes()[:99])):  # type: ignore[union-attr]
        assert bit >= 50
        flip(path, bit)
        with pytest.raises(StorageError, match=path.name):  # its rows have no checksums of these: its file has
            reopened(old).features("film")
        flip(path, bit)
    for name in ("marks.json", "versions/0001/settings.json", "hapvr-library.json", "versions/0001/checksums.json"):
        content = (old / name).read_bytes()
        (old / name).unlink()
        with pytest.raises(StorageError, match=Path(name).name):
            reopened(old).find_duplicates()
        (old / name).write_bytes(content)
    assert store.Store(old / "versions" / "0001").table_set.must_have("calibration.json")
    reopened(old).find_duplicates()
