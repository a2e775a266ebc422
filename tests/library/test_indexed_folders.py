"""Which files of folders are indexed, and that a library remembers its folders."""

from __future__ import annotations

import json
import shutil
from fnmatch import fnmatch
from itertools import product
from pathlib import Path

import pytest

from hapvr.errors import ConfigError, StorageError
from hapvr.library import IndexRules, Library
from hapvr.library.indexed_folders import FOLDERS, read_folders
from hapvr.video.frame_tasks import FileTask, VideoTask, read_file
from hapvr.video.sampling import SamplingConfig
from tests.library import toy
from tests.library.conftest import Run
from tests.library.toy import local
from tests.video import media


@pytest.fixture(autouse=True)
def _toys(monkeypatch: pytest.MonkeyPatch) -> None:
    toy.install(monkeypatch)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four toy videos in three folders."""
    for seed, name in enumerate(("a.mp4", "b.MKV", "cache/c.mp4", "deep/raw/d.mp4")):
        toy.write(tmp_path / "films", name, seed)
    return tmp_path / "films"


def names(library: Library) -> list[str]:
    return sorted(Path(record.path).name for record in library.videos())


@pytest.mark.parametrize(
    ("rules", "kept"),
    [
        ({}, ["a.mp4", "b.MKV", "c.mp4", "d.mp4"]),
        ({"include": ("*.mp4",)}, ["a.mp4", "c.mp4", "d.mp4"]),
        ({"include": ("*.mkv", "cache")}, ["b.MKV", "c.mp4"]),
        ({"exclude": ("CACHE", "deep/raw/*")}, ["a.mp4", "b.MKV"]),
        ({"exclude": ("raw/*",)}, ["a.mp4", "b.MKV", "c.mp4", "d.mp4"]),  # from the folder that was given
        ({"include": ("*.mp4",), "exclude": ("a.*",)}, ["c.mp4", "d.mp4"]),
        ({"min_size": 10**6}, []),
    ],
)
def test_rules(tmp_path: Path, folder: Path, rules: dict[str, tuple[str, ...]], kept: list[str]) -> None:
    library = toy.make(tmp_path / "library")
    report = library.add([folder], rules=IndexRules(**rules))  # type: ignore[arg-type]
    assert names(library) == kept
    assert (report.added, report.excluded) == (len(kept), 4 - len(kept))


def test_patterns_by_an_independent_loop() -> None:
    paths = ["a.mp4", "x/a.mp4", "x/y/b.mkv", "y/b.mkv", "X/c.MP4"]
    patterns = ["*.mp4", "x", "y/*", "x/*/b.mkv", "/x/*", "b.*", "*", "z"]
    for include, exclude, path in product(patterns, patterns, paths):
        below = path.lower()

        def matches(pattern: str, below: str = below) -> bool:
            parts = [below] if "/" in pattern else below.split("/")
            return any(fnmatch(part, pattern.lstrip("/")) for part in parts)

        found = IndexRules((include,), (exclude,)).allows(Path("/r") / path, Path("/r"))
        assert found == (matches(include) and not matches(exclude)), (include, exclude, path)


def test_a_file_that_is_named_is_indexed_whatever_the_rules(tmp_path: Path, folder: Path) -> None:
    library = toy.make(tmp_path / "library")
    library.add([folder / "a.mp4", folder / "cache"], rules=IndexRules(exclude=("*",)))
    assert names(library) == ["a.mp4"]


def test_a_library_remembers_its_folders_and_their_rules(tmp_path: Path, folder: Path) -> None:
    library = toy.make(tmp_path / "library")
    with pytest.raises(ConfigError, match="remembers no folders"):
        library.add()
    library.add([folder], rules=IndexRules(exclude=("cache",)))
    library.add([folder / "cache"])
    assert library.folders() == {str(folder): IndexRules(exclude=("cache",)), str(folder / "cache"): IndexRules()}
    toy.write(folder, "new.mp4", 9)
    toy.write(folder, "deep/cache/no.mp4", 10)
    report = library.add()
    assert (report.added, report.unchanged) == (1, 4)
    assert "new.mp4" in names(library)
    assert library.add([folder]).excluded == 2  # the rules of the last time; c.mp4 is in the library by its own folder
    library.add([folder], rules=IndexRules())
    assert "no.mp4" in names(library)
    assert library.forget_folder(folder / "cache")
    assert not library.forget_folder(folder / "cache")
    assert list(library.folders()) == [str(folder)]
    assert len(names(library)) == 6  # videos stay


def test_what_is_in_the_library_stays_when_it_is_left_out_later(tmp_path: Path, folder: Path) -> None:
    library = toy.make(tmp_path / "library")
    library.add([folder])
    report = library.add([folder], rules=IndexRules(exclude=("*",)), prune=True)
    assert (report.removed, report.missing, len(names(library))) == (0, 0, 4)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path, folder: Path) -> None:
    library = toy.make(tmp_path / "library")
    library.add([folder])
    other = toy.write(tmp_path / "other", "x.mp4", 20).parent
    library.add([other])
    shutil.rmtree(other)
    report = library.add()
    assert (str(other), "The folder is not there.") in report.warnings
    assert report.unchanged == 4
    assert report.missing == 1
    library.remove([record.id for record in library.videos()])
    shutil.rmtree(folder)
    with pytest.raises(ConfigError, match="None of the folders of the library is there"):
        library.add()


def test_damage_to_what_is_remembered_is_an_error(tmp_path: Path, folder: Path) -> None:
    library = toy.make(tmp_path / "library")
    library.add([folder])
    path = local(library.path) / FOLDERS
    text = path.read_text()
    path.write_text(text.replace("films", "filmz"))
    with pytest.raises(StorageError, match="its checksum is not that of its content"):
        library.add()
    path.unlink()
    with pytest.raises(StorageError, match="is missing"):
        read_folders(library.path)


@pytest.mark.parametrize("rules", [{"include": ("",)}, {"exclude": ("/",)}, {"min_size": -1}, {"min_seconds": -0.5}])
def test_rules_that_make_no_sense(rules: dict[str, tuple[str, ...]]) -> None:
    with pytest.raises(ConfigError):
        IndexRules(**rules)  # type: ignore[arg-type]


def test_a_video_that_is_too_short_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # a real decoder
    path = media.write(tmp_path / "a.mp4", [media.barcode(index) for index in range(30)], rate=10)

    def read(min_seconds: float) -> bool:
        return read_file(None, FileTask(VideoTask(str(path), SamplingConfig()), min_seconds=min_seconds)).too_short  # type: ignore[arg-type]

    assert read(3.5)
    with pytest.raises(AttributeError):  # it is read, into a block that is not there
        read(2.5)


def test_from_the_command_line(tmp_path: Path, folder: Path, run: Run) -> None:
    library = toy.make(tmp_path / "library")
    code, out, _ = run("add", library.path, folder, "--exclude", "cache", "--include", "*.mp4")
    assert code == 0
    assert "2 videos were left out by the rules of their folders" in out
    code, out, _ = run("add", library.path, "--json")
    assert (code, json.loads(out)["unchanged"]) == (0, 2)
    code, out, _ = run("folders", library.path)
    assert out == f"{folder}  (only *.mp4; without cache)\n"
    code, out, _ = run("folders", library.path, "--forget", folder, "--json")
    assert json.loads(out) == []
    code, _, err = run("add", library.path)
    assert code == 2
    assert "remembers no folders" in err
    code, _, err = run("add", library.path, folder, "--min-size", "much")
    assert code == 2
    assert "such as 500MB" in err


def test_no_library_is_made_of_a_folder_without_videos(tmp_path: Path, folder: Path, run: Run) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("text")
    code, _, err = run("add", tmp_path / "new", tmp_path / "notes")
    assert code == 2
    assert f"No video was found in '{tmp_path / 'notes'}' (1 are no videos by their names): no library was made." in err
    code, _, err = run("add", tmp_path / "new", folder, "--include", "*.nothing")
    assert code == 2
    assert "are left out by the options" in err
    assert not (tmp_path / "new").exists()
    assert run("add", toy.make(tmp_path / "library").path, tmp_path / "notes")[0] == 0  # one that is there is kept up
