"""The commands, with toys in place of videos: what they print, leave behind, and do when they are stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hapvr.actions import Plan, PlanRow, write_plan
from hapvr.actions.plan import Action
from hapvr.cli.terminal import escape, show
from hapvr.library import Library, opening
from tests.library import toy
from tests.library.conftest import Run
from tests.library.toy import toys  # noqa: F401

pytestmark = pytest.mark.usefixtures("toys")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "videos").mkdir()
    return tmp_path / "videos"


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "win32", reason="such names cannot be there")
def test_names_stay_on_their_line_and_json_is_exact(run: Run, folder: Path, tmp_path: Path) -> None:
    nasty = "two\nlines\x1b[2J\x07\u202e.mp4"
    (folder / nasty).write_text("nothing")
    (folder / "fine 👨\u200d👩 café.mp4").write_text("nothing")
    library = toy.make(tmp_path / "library")
    code, out, err = run("add", library.path, folder)
    assert code == 1
    shown = "two\\nlines\\x1b[2J\\x07\\u202e.mp4"
    (line,) = [line for line in err.splitlines() if "lines" in line]
    assert line == f"  '{folder}/{shown}' is no video."
    assert "fine 👨\u200d👩 café.mp4' is no video." in err  # what can be shown is
    assert not any(mark in out + err for mark in "\x1b\x07\u202e")
    code, out, _ = run("status", library.path)
    assert len(out.splitlines()) == 3
    assert f"{folder}/{shown}  failed: " in out
    listed = json.loads(run("status", library.path, "--json")[1])["listed"]
    assert str(folder / nasty) in [one["path"] for one in listed]
    code, _, err = run("remove", library.path, "no\nsuch\x1bid")
    assert (code, err.count("\n")) == (2, 1)
    assert "no\\nsuch\\x1bid" in err


@pytest.mark.skipif(sys.platform == "win32", reason="such names cannot be there")
def test_no_name_steers_the_terminal(run: Run, folder: Path, tmp_path: Path) -> None:
    nasty = ["=1+1\x1b]0;title\x07.mp4", "\u202e\x9b2J\n<b>.mp4"]
    for name in nasty:
        toy.write(folder, name, 1)
    library = toy.make(tmp_path / "library").path
    said = "".join(
        "".join(map(str, run(*words)[1:]))
        for words in (
            ("add", library, folder),
            ("status", library),
            ("remove", library, folder / nasty[0]),
            ("compare", folder / nasty[0], tmp_path / nasty[1]),
            ("import", tmp_path / "other", folder / nasty[0]),
            ("serve", library, "--root", tmp_path / nasty[1]),
        )
    )
    assert "x1b]0;title" in said
    assert "u202e" in said
    assert all(line.isprintable() for line in said.split("\n"))


def test_a_line_that_a_command_prints_does_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    show(False, None, "two\nlines\x1b[2J")
    show(False, None, ["a\u202e"])
    assert capsys.readouterr().out == "two\nlines\\x1b[2J\na\\u202e\n"


def test_what_steers_a_terminal_is_escaped() -> None:
    marks = [*range(32), *range(127, 160), 0x2028, 0x2029, 0x202E, 0x2066, 0xDC80, 0xDCFF, 0xD800]
    for mark in map(chr, marks):
        text = escape(f"a{mark}b")
        assert text.isprintable()
        assert (text[:2], text[-1]) == ("a\\", "b")
        text.encode()
    assert escape(Path("a b/ü.mp4")) == str(Path("a b/ü.mp4"))


# --- what is left behind ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["add", "watch", "import"])
def test_what_is_not_there_leaves_no_library_behind(run: Run, tmp_path: Path, command: str) -> None:
    code, _, err = run(command, tmp_path / "library", tmp_path / "nowhere")
    assert code == 2
    assert "nowhere" in err
    assert not (tmp_path / "library").exists()


def test_features_of_another_model_leave_no_library_behind(run: Run, tmp_path: Path, folder: Path) -> None:
    toy.write(folder, "a.mp4", 1)
    with toy.make(tmp_path / "library") as library:
        library.add([folder])
        library.export(tmp_path / "f.h5")
    code, _, err = run("import", tmp_path / "other", tmp_path / "f.h5", "--model", "other")
    assert (code, "holds features of another model" in err) == (2, True)
    assert not (tmp_path / "other").exists()
    (tmp_path / "text.h5").write_text("no features")
    assert run("import", tmp_path / "other", tmp_path / "text.h5", "--model", "toy")[0] == 2
    assert not (tmp_path / "other").exists()
    assert run("import", tmp_path / "other", tmp_path / "f.h5", "--model", "toy")[0] == 0
    with Library.open(tmp_path / "other") as other:
        assert other.info().videos == 1


def test_a_library_that_is_there_may_know_what_is_gone(run: Run, tmp_path: Path, folder: Path) -> None:
    path = toy.write(folder, "a.mp4", 1)
    library = toy.make(tmp_path / "library")
    library.add([folder])
    path.unlink()
    code, out, _ = run("add", library.path, path, "--json")
    assert (code, json.loads(out)["missing"]) == (0, 1)
    assert run("add", library.path, tmp_path / "nowhere")[0] == 2


def test_links_to_folders_are_told(run: Run, tmp_path: Path, folder: Path) -> None:
    toy.write(folder, "a.mp4", 1)
    (folder / "round").symlink_to(folder)
    code, out, _ = run("add", toy.make(tmp_path / "library").path, folder)
    assert code == 0
    assert "1 link to a folder was not followed: name what is to be added" in out


def test_the_usual_codec_has_one_home() -> None:
    from hapvr.library import codecs

    assert opening.choose_settings(opening.WantedSettings("toy"))[0].codec == codecs.DEFAULT


# --- stopping --------------------------------------------------------------------------------------------------------

PROGRAM = """
import sys, time
from tests.library import toy
toy.install(toy.Forever)
from hapvr.cli import main
from hapvr.library import adding, store
from hapvr.library.store import Store

moment, honest_read, honest_write = sys.argv[1], toy.toy_extracted, Store.write

def slow_read(*given, **options):
    for number, video in enumerate(honest_read(*given, **options)):
        if number == 3 and moment == "reading":
            print("now", flush=True)
            time.sleep(60)
        yield video

def slow_write(self, videos, **options):
    if moment == "writing":
        print("now", flush=True)
        time.sleep(0.5)
    return honest_write(self, videos, **options)

adding.extract_stream, Store.write = slow_read, slow_write
store.BATCH = 3 if moment == "writing" else 256
main(["add", *sys.argv[2:]])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGTERM to be handled")
@pytest.mark.parametrize(
    ("number", "code", "moment"),
    [(signal.SIGTERM, 143, "reading"), (signal.SIGTERM, 143, "writing"), (signal.SIGINT, 130, "writing")],
)
def test_adding_keeps_what_is_done_when_it_is_stopped(
    tmp_path: Path, folder: Path, number: signal.Signals, code: int, moment: str
) -> None:
    for seed in range(9):
        toy.write(folder, f"{seed}.mp4", seed)
    library = toy.make(tmp_path / "library")
    arguments = [sys.executable, "-c", PROGRAM, moment, str(library.path), str(folder), "--json"]
    child = subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "now\n"
        os.kill(child.pid, number)
        _, err = child.communicate(timeout=20)
    finally:
        child.kill()
    assert (child.returncode, err) == (code, "interrupted; run the same command again to go on\n")
    library.refresh()
    assert library.info().videos == 3
    assert library.info().writer is None
    assert library.add([folder]).added == 6
    toy.check(library)


# --- actions on duplicates -------------------------------------------------------------------------------------------


def test_a_library_follows_what_is_done_with_its_files(run: Run, folder: Path, tmp_path: Path) -> None:
    names = ("film.mp4", "same.mp4", "other.mp4")
    for name, seed in zip(names, (1, 1, 2), strict=True):
        toy.write(folder, name, seed)
    library = toy.make(tmp_path / "library")
    library.add([folder])
    records = {Path(record.path).name: record for record in library.videos()}
    actions: tuple[Action, ...] = ("keep", "move", "move")
    rows = [
        PlanRow("1", action, records[name].path, records[name].size, records[name].content_hash)
        for name, action in zip(names, actions, strict=True)
    ]
    write_plan(Plan(tuple(rows)), tmp_path / "plan.csv")

    def listed() -> list[str]:
        return [Path(record.path).name for record in Library.open(library.path).videos(state="ready")]

    to = ("--to", tmp_path / "moved", "--yes")
    assert run("apply", tmp_path / "plan.csv", *to)[0] == 0  # which was killed before it came to the library
    code, out, _ = run("apply", tmp_path / "plan.csv", *to, "--library", library.path)
    assert code == 0
    assert "LIBRARY" not in out
    assert listed() == ["film.mp4"]
    assert run("undo", tmp_path / "plan.csv.journal")[0] == 0
    code, out, _ = run("undo", tmp_path / "plan.csv.journal", "--library", library.path)
    assert code == 0
    assert "LIBRARY" not in out
    assert sorted(listed()) == sorted(names)
    toy.check(Library.open(library.path), [folder / name for name in names])
    # Links are files to a library: it knows them without being told.
    assert run("apply", tmp_path / "plan.csv", "--symlink", "--yes", "--library", library.path)[0] == 0
    assert sorted(listed()) == sorted(names)
