"""`hapvr check`, `--repair` and `hapvr backup`: what is wrong is named, and repaired from what is left."""

from __future__ import annotations

import json
import os
import random
import shutil
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from hapvr.audio.fingerprints import Fingerprint
from hapvr.audio.sound_index import build_index, write_index
from hapvr.errors import FormatError, StorageError
from hapvr.library import Library, check_library, repair_library, sound_lookup, tables
from hapvr.library.bit_correction import correct_document, find_file_correction, find_flipped_bit
from hapvr.library.checksums import sum_file
from hapvr.library.indexed_folders import FOLDERS, TextModelSource, write_text_model
from hapvr.library.marks import MARKS, read_marks
from hapvr.library.row_checks import find_whole_contents, find_whole_embeddings
from hapvr.library.tables import FrameEmbeddings
from hapvr.library.versions import CALIBRATION, MANIFEST, SETTINGS
from hapvr.storage import write_document
from tests.library import toy
from tests.library.conftest import Run
from tests.library.damage import few_vectors_are_indexed, make_toy_library, toy_answers
from tests.library.toy import toys  # noqa: F401

pytestmark = pytest.mark.usefixtures("toys")
VERSION = Path("versions/0001")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with toy videos and a library of them in which there is everything."""
    folder = tmp_path_factory.mktemp("checked")
    with pytest.MonkeyPatch.context() as patch:
        toy.install(patch)
        make_toy_library(folder)
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    """A copy of the library; the videos are the same files."""
    shutil.copytree(made / "library", tmp_path / "library")
    return tmp_path / "library"


def find(place: Path, pattern: str) -> Path:
    """A file of the version in use, one that is listed."""
    listed = json.loads((place / VERSION / "checksums.json").read_text())["tables"]
    files: list[Path] = [
        place / VERSION / f"{name}.lance" / file for name, one in listed.items() for file in one["files"]
    ]
    return next(path for path in sorted(files) if path.match(pattern))


def destroy(path: Path) -> None:
    """Overwrite the middle of a file, as a lost sector does."""
    data = bytearray(path.read_bytes())
    third = len(data) // 3
    data[third : 2 * third] = bytes(third)
    path.write_bytes(data)


def flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


# --- flipped bits ----------------------------------------------------------------------------------------------------


def test_the_place_of_a_flipped_bit_follows_from_two_sums() -> None:
    for size in (1, 2, 13):
        data = bytes(range(size))
        for bit in range(8 * size):
            other = bytearray(data)
            other[bit // 8] ^= 1 << bit % 8
            assert find_flipped_bit(zlib.crc32(data), zlib.crc32(other), size) == bit
            if bit:
                other[0] ^= 1  # a second one
                assert find_flipped_bit(zlib.crc32(data), zlib.crc32(other), size) is None


def test_a_bit_far_from_the_end_of_a_large_block_is_found() -> None:
    data = bytearray(random.Random(1).randbytes(2**20))
    before = zlib.crc32(data)
    data[3] ^= 64
    assert find_flipped_bit(before, zlib.crc32(data), len(data)) == 8 * 3 + 6


def test_a_file_is_corrected_only_where_one_bit_of_a_block_differs(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"written")
    written = sum_file(path)
    assert find_file_correction(path, written) == {}
    path.write_bytes(b"wbitten")  # r and b differ by one bit
    assert find_file_correction(path, written) == {1: ord("r")}
    assert find_file_correction(path, written, max_bytes=6) is None
    path.write_bytes(b"wb1tten")
    assert find_file_correction(path, written) is None
    path.write_bytes(b"writte")
    assert find_file_correction(path, written) is None


def test_a_document_is_corrected_by_its_checksum(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    write_document(path, {"format": 1, "distinct": [["a", "b"]]})
    before = json.loads(path.read_bytes())
    for bit in range(0, 8 * len(path.read_bytes()), 7):
        flip(path, bit)
        corrected = correct_document(path, ("format", "distinct"))
        assert corrected is None or json.loads(corrected) == before  # None: only a space differs, or two are possible
        flip(path, bit)
    path.write_text('{"format": 1, "distinct": []}')
    assert correct_document(path, ("format", "distinct")) is None


# --- checking --------------------------------------------------------------------------------------------------------


def test_a_sound_library_has_no_problems_and_is_not_changed(place: Path, run: Run) -> None:
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    with Library.open(place) as library:
        whole, quick = library.check(), library.check(quick=True)
    assert whole.problems == quick.problems == ()
    assert whole.notes == quick.notes == ()
    assert whole.videos == quick.videos == 13
    code, out, _ = run("check", place, "--json")
    assert code == 0
    assert json.loads(out)["intact"] is True
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == before


def test_exit_codes_tell_damage_from_no_library(place: Path, tmp_path: Path, run: Run) -> None:
    assert run("check", tmp_path)[0] == 2
    assert run("check", place, "--quick", "--repair")[0] == 2
    destroy(find(place, "frames.lance/data/*"))
    code, out, _ = run("check", place)
    assert code == 1
    assert "can be made again" in out
    assert "damaged: 1 problems, 1 of them for --repair" in out
    assert run("check", place, "--quick")[0] == 0  # the content of large files is left out
    code, out, _ = run("check", place, "--repair")
    assert code == 0
    assert "repaired: " in out
    assert run("check", place)[0] == 0


def test_a_quick_check_sees_files_that_are_gone_or_cut(place: Path) -> None:
    find(place, "regions.lance/data/*").unlink()
    path = find(place, "frames.lance/_indices/*/*")
    path.write_bytes(path.read_bytes()[:-1])
    found = {Path(problem.place).name for problem in check_library(place, quick=True).problems}
    assert {path.name, find(place, "regions.lance/data/*").name} <= found


def test_places_of_vectors_have_no_gaps() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        keys, frames = rng.integers(0, 4, 8), rng.integers(0, 3, 8)
        slow = {
            int(key)
            for key in set(keys)
            if sorted(frames[keys == key].tolist()) == list(range(int((keys == key).sum())))
        }
        assert find_whole_contents(keys, frames) == slow


# --- repairing -------------------------------------------------------------------------------------------------------

ONE_BIT = ["videos.lance/data/*", "videos.lance/_deletions/*", "videos.lance/_versions/*", "regions.lance/data/*",
           "frames.lance/_indices/*/*", "sounds.lance/data/*"]  # fmt: skip


@pytest.mark.parametrize("pattern", [*ONE_BIT, MANIFEST, SETTINGS, MARKS, FOLDERS])
def test_a_flipped_bit_is_put_back(place: Path, pattern: str) -> None:
    documents = {MANIFEST: place, MARKS: place, FOLDERS: place, SETTINGS: place / VERSION}
    path = documents[pattern] / pattern if pattern in documents else find(place, pattern)
    before = path.read_bytes()
    flip(path, 8 * (len(before) // 2) + 1)
    (problem,) = check_library(place).problems
    assert problem.repair == "exact"
    assert problem.place == str(path.relative_to(place))
    report = repair_library(place)
    assert report.intact
    assert report.lost == ()
    assert len(report.done) == 1
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "harm",
    [
        lambda place: destroy(find(place, "regions.lance/data/*")),
        lambda place: find(place, "regions.lance/_deletions/*").unlink(),
        lambda place: shutil.rmtree(place / VERSION / "regions.lance"),
        lambda place: shutil.rmtree(place / VERSION / "frames.lance"),
        lambda place: find(place, "videos.lance/data/*").unlink(),
        lambda place: shutil.rmtree(place / VERSION / "videos.lance"),
        lambda place: (place / VERSION / "checksums.json").unlink(),
        lambda place: (place / VERSION / SETTINGS).unlink(),
        lambda place: (place / MANIFEST).write_bytes(b"\0" * 100),
    ],
)  # fmt: skip
def test_what_is_lost_is_made_again_from_what_is_left(place: Path, made: Path, harm: Callable[[Path], object]) -> None:
    harm(place)
    found = check_library(place)
    assert not found.intact
    assert all(problem.repair != "none" for problem in found.problems)
    with few_vectors_are_indexed():
        report = repair_library(place)
    assert report.intact, report.problems
    assert toy_answers(place) == toy_answers(made / "library")


def test_a_video_whose_file_is_gone_too_is_lost_and_said_to_be(tmp_path: Path) -> None:
    path = toy.write(tmp_path / "videos", "a.mp4", 1)
    kept = toy.write(tmp_path / "videos", "b.mp4", 2)
    with toy.make(tmp_path / "library") as library:
        library.add([path])
        library.add([kept])
    path.unlink()
    files = sorted((tmp_path / "library").glob("versions/0001/regions.lance/data/*"), key=os.path.getmtime)
    files[0].unlink()
    assert {one.repair for one in check_library(tmp_path / "library").problems if one.place == str(path)} == {"lost"}
    report = repair_library(tmp_path / "library")
    assert report.intact
    assert any(str(path) in text for text in report.lost)
    with Library.open(tmp_path / "library") as library:
        assert {Path(one.path).name: one.state for one in library.videos()} == {"a.mp4": "failed", "b.mp4": "ready"}


def test_what_cannot_be_had_again_is_said_to_be_lost(place: Path) -> None:
    (place / MARKS).write_bytes(b"{")
    (place / FOLDERS).unlink()
    (place / VERSION / CALIBRATION).unlink()
    assert {problem.repair for problem in check_library(place).problems} == {"lost"}
    report = repair_library(place)
    assert report.intact
    assert len(report.lost) == 3
    assert read_marks(place) == frozenset()


def test_settings_that_are_lost_with_their_copy_are_not_guessed(place: Path) -> None:
    (place / VERSION / SETTINGS).unlink()
    (place / MANIFEST).unlink()
    assert "none" in {problem.repair for problem in check_library(place).problems}
    with pytest.raises(StorageError, match="backup"):
        repair_library(place)


def test_a_repair_that_was_killed_is_done_again(place: Path, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    destroy(find(place, "frames.lance/data/*"))

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("hapvr.library.repair.update_shared_footage", killed)
        with pytest.raises(KeyboardInterrupt):
            repair_library(place)
    with few_vectors_are_indexed():
        assert repair_library(place).intact
    assert toy_answers(place) == toy_answers(made / "library")


def test_a_damaged_sound_is_dropped_and_said_to_be_lost(place: Path) -> None:
    destroy(find(place, "sounds.lance/data/*"))
    assert not check_library(place).intact
    report = repair_library(place)
    assert report.intact
    assert any("--audio" in text for text in report.lost)


# --- what a text model said, and index files of sounds ---------------------------------------------------------------


def describe(place: Path) -> dict[int, FrameEmbeddings]:
    """Give a library vectors as of a text model, of three frames each, in two commits."""
    rng = np.random.default_rng(0)
    drawn: dict[int, FrameEmbeddings] = {}
    with Library.open(place) as library, library.write_access("a test") as store:
        write_text_model(place, TextModelSource("gone", "1"))
        for keys in np.array_split(store.catalog().contents, 2):
            part = {}
            for key in keys.tolist():
                vectors = rng.normal(size=(3, 4))
                vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
                part[key] = FrameEmbeddings(np.arange(3.0), vectors.astype(np.float16))
            store.embeddings.put(part)
            drawn |= part
    return drawn


def read_described(place: Path) -> dict[int, bytes]:
    with Library.open(place) as library:
        found = dict(library.store.embeddings.read())
    return {key: one.vectors.tobytes() for key, one in found.items()}


def test_vectors_of_a_text_model_outlive_damage_elsewhere(place: Path) -> None:
    drawn = {key: one.vectors.tobytes() for key, one in describe(place).items()}
    found = check_library(place)
    assert (found.problems, found.notes) == ((), ())
    destroy(find(place, "frames.lance/data/*"))
    report = repair_library(place)
    assert (report.intact, report.lost) == (True, ())
    assert read_described(place) == drawn


def test_vectors_of_a_text_model_that_is_forgotten_are_removed_and_said_to_be(place: Path) -> None:
    describe(place)
    (place / FOLDERS).write_bytes(b"{")
    report = repair_library(place)
    assert report.intact, report.problems
    assert any("--text-model" in text for text in report.lost)
    assert read_described(place) == {}  # else a second model would be mixed with the first


def test_wrong_rows_of_a_text_model_are_found_and_the_others_kept(place: Path) -> None:
    drawn = describe(place)
    keys = sorted(drawn)
    with Library.open(place) as library, library.write_access("a test") as store:
        store.embeddings.put(
            {
                keys[0]: FrameEmbeddings(np.array([9.0]), np.full((1, 4), 1.0, np.float16)),
                keys[1]: FrameEmbeddings(np.array([-1.0]), drawn[keys[1]].vectors[:1]),
                12345: FrameEmbeddings(np.array([0.0]), drawn[keys[1]].vectors[:1]),
            }
        )
    found = check_library(place)
    assert len(found.problems) == 2
    assert all("text model" in problem.what for problem in found.problems)
    assert any("1 contents have no record" in note for note in found.notes)
    report = repair_library(place)
    assert report.intact
    assert any("of 2 videos" in text for text in report.lost)
    assert read_described(place) == {key: drawn[key].vectors.tobytes() for key in keys[2:]}


def test_a_content_that_may_be_cut_counts_as_damaged() -> None:
    def make(keys: list[int]) -> pa.Table:
        vectors = np.tile(np.array([1, 0], np.float16), (1, 1))
        parts = {key: FrameEmbeddings(np.zeros(1), vectors) for key in keys}
        return tables.make_embedding_rows(parts)

    def read(*, batch: int, without: Any) -> Any:
        del batch, without
        yield make([1, 2])
        reader.lost += 5
        yield make([3, 4])
        yield make([5])
        reader.lost += 1

    for is_cut, rows, damaged in ((False, 10, set()), (True, 10, {2, 3, 5}), (False, 2**20, {2, 3, 5})):
        reader: Any = SimpleNamespace(read=read, lost=0, is_cut=is_cut, fragments=[SimpleNamespace(rows=rows)])
        assert find_whole_embeddings(reader) == ({1, 2, 3, 4, 5} - damaged, damaged)


def test_index_files_of_sounds_are_harmless_and_backed_up(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = build_index({7: (0, Fingerprint(np.array([0, 10]), np.array([7, 12])))})
    write_index(index, place / VERSION / "sound-index-000001.npz")
    (place / VERSION / "sound-index-mine.npz").write_bytes(b"stray")
    assert check_library(place).notes == ()
    (place / VERSION / "sound-index-000002.npz").write_bytes(b"damaged")
    found = check_library(place)
    assert found.intact
    assert ["1 index files of sounds" in note for note in found.notes] == [True]
    with Library.open(place) as library:
        library.back_up(tmp_path / "copy")
        with library.write_access("a test") as store:
            monkeypatch.setattr(sound_lookup, "_MIN_SECONDS", 0.0)
            sound_lookup.update_sound_index(store)
    assert (tmp_path / "copy" / VERSION / "sound-index-000001.npz").is_file()
    assert not (place / VERSION / "sound-index-000002.npz").exists()
    assert (place / VERSION / "sound-index-mine.npz").exists()
    assert check_library(place).notes == ()


# --- formats ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "change"),
    [
        (MANIFEST, {"format": 2}),
        (f"{VERSION}/{SETTINGS}", {"candidates": 2}),
        (f"{VERSION}/{SETTINGS}", {"colour": True}),
        (f"{VERSION}/checksums.json", {"format": 2}),
        (FOLDERS, {"format": 2}),
        (MARKS, {"format": 2}),
    ],
)
def test_a_library_of_a_newer_release_is_refused_and_not_touched(
    place: Path, name: str, change: dict[str, Any]
) -> None:
    content = json.loads((place / name).read_bytes()) | change
    del content["crc32"]
    write_document(place / name, content)
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    for use in (check_library, repair_library):
        with pytest.raises(FormatError, match=r"newer release.*pip install --upgrade"):
            use(place)
    assert {p: d for p, d in before.items() if p.name != "writer.lock"} == {
        path: path.read_bytes() for path in place.rglob("*") if path.is_file() and path.name != "writer.lock"
    }


# --- backup ----------------------------------------------------------------------------------------------------------


def test_a_backup_is_the_library_of_a_moment_while_a_writer_is_at_work(tmp_path: Path) -> None:
    folder, path = tmp_path / "videos", tmp_path / "library"
    toy.write(folder, "first.mp4", 0)
    library = toy.make(path)
    library.add([folder])
    stop, errors = threading.Event(), []

    def work() -> None:
        try:
            with Library.open(path) as writer:
                for seed in range(1, 1000):
                    if stop.is_set():
                        return
                    toy.write(folder, f"{seed}.mp4", seed, 1 + seed % 4)
                    writer.add([folder])
                    if seed % 3 == 0:
                        writer.remove([writer.videos()[0].id])
                    if seed % 4 == 0:
                        writer.compact()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        counts = []
        for number in range(3):
            with Library.open(path) as reader:
                counts.append(reader.back_up(tmp_path / f"backup{number}").videos)
    finally:
        stop.set()
        thread.join()
    assert not errors
    for number, count in enumerate(counts):
        assert check_library(tmp_path / f"backup{number}").intact
        with Library.open(tmp_path / f"backup{number}") as copied:
            toy.check_whole(copied)
            assert len(copied.videos()) == count


def test_a_backup_answers_as_the_library_and_can_be_copied_back(place: Path, tmp_path: Path, run: Run) -> None:
    code, out, _ = run("backup", place, tmp_path / "copy", "--json")
    assert code == 0
    assert json.loads(out)["videos"] == 12
    assert run("backup", place, tmp_path / "copy")[0] == 2  # it is not replaced
    assert run("backup", place, place / "inside")[0] == 2
    assert "lies in the library itself" in run("backup", place, place)[2]
    said = toy_answers(place)
    shutil.rmtree(place)
    assert run("backup", tmp_path / "copy", place)[0] == 0
    assert toy_answers(place) == said
    assert check_library(place).intact


def test_what_is_damaged_is_not_backed_up(place: Path, tmp_path: Path) -> None:
    destroy(find(place, "frames.lance/data/*"))
    with Library.open(place) as library, pytest.raises(StorageError, match=r"checksum.*hapvr check"):
        library.back_up(tmp_path / "copy")
    assert not (tmp_path / "copy" / MANIFEST).exists()
