"""Watching folders for matches: what is new, what is reported once, and the command in a process."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from hapvr.errors import StorageError
from hapvr.library import IndexRules, Library
from hapvr.library.match_watch import RECORD, FileEvent, WatchRecord
from hapvr.synthetic.clip import Clip
from hapvr.synthetic.clip_files import write_clip
from hapvr.synthetic.films import draw_scene
from tests.library.conftest import Run
from tests.test_webhooks import receive

INTERVAL = 0.05
_MOMENTS = count(1_700_000_000)


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two films, a part of the first with bytes of its own, and a stranger."""
    folder = tmp_path_factory.mktemp("films")
    drawn = [draw_scene(seed, seconds=14, fps=4, size=(96, 128)) for seed in (1, 2, 8)]
    for name, film in zip(("a", "b", "stranger"), drawn, strict=True):
        write_clip(film, folder / f"{name}.mp4")
    write_clip(Clip(drawn[0].images[12:48], 4.0), folder / "part.mp4")
    return folder


@pytest.fixture(scope="module")
def made(films: Path) -> Path:
    """A library of both films."""
    with Library.open(films / "library", create=True) as library:
        assert library.add([films / "a.mp4", films / "b.mp4"], workers=1).added == 2
    return films / "library"


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    """The same library, to be changed, and an empty folder."""
    (tmp_path / "new").mkdir()
    shutil.copytree(made, tmp_path / "library")
    return tmp_path


def put(films: Path, name: str, folder: Path, as_name: str = "") -> Path:
    """A copy of a film that comes at once, and is old enough to have settled."""
    path = folder / f"{as_name or name}.mp4"
    path.with_suffix(".part").write_bytes((films / f"{name}.mp4").read_bytes())
    os.utime(path.with_suffix(".part"), (1_700_000_000, 1_700_000_000))
    path.with_suffix(".part").rename(path)
    return path


def look(place: Path, **options: object) -> list[FileEvent]:
    """The events of one look at the folder `new`."""
    events = []
    marker = place / "new" / "zzz.mp4"  # files come in the order of their names, and this one cannot be read
    marker.write_text("nothing")
    moment = next(_MOMENTS)
    os.utime(marker, (moment, moment))
    with Library.open(place / "library") as library:
        for event in library.watch_matches([place / "new"], interval_s=1e-6, **options):  # type: ignore[arg-type]
            if event.path == str(marker):
                break
            events.append(event)
    marker.unlink()
    return events


def shown(events: list[FileEvent]) -> list[tuple[str, str, list[str]]]:
    return [
        (one.kind, Path(one.path).name, [Path(hit.path).name for hit in one.result.matches] if one.result else [])
        for one in events
    ]


def test_new_files_are_reported_once_and_not_added(place: Path, films: Path) -> None:
    put(films, "part", place / "new")
    put(films, "b", place / "new", "copy")
    put(films, "a", place / "new", "it is cut off")
    bad = place / "new" / "it is cut off.mp4"
    bad.write_bytes(bad.read_bytes()[:200])
    os.utime(bad, (1_700_000_000, 1_700_000_000))
    put(films, "stranger", place / "new")
    found = look(place)
    assert shown(found) == [
        ("match", "copy.mp4", ["b.mp4"]),
        ("failed", "it is cut off.mp4", []),
        ("match", "part.mp4", ["a.mp4"]),
        ("no match", "stranger.mp4", []),
    ]
    part = found[2].to_json()["matches"][0]
    assert (part["verdict"], part["match"]) == ("copy", True)
    assert 0.5 < part["probability"] <= 1
    (stretch,) = part["segments"]
    assert stretch["query"] == pytest.approx([0, 9], abs=1.1)
    assert stretch["target"] == pytest.approx([3, 12], abs=1.1)
    assert found[1].text
    assert look(place) == []  # by another watch, after the first has ended
    put(films, "stranger", place / "new", "copy")  # it has changed
    assert shown(look(place)) == [("no match", "copy.mp4", [])]
    with Library.open(place / "library") as library:
        assert library.info().videos == 2
        assert library.folders() == {}


def test_files_of_the_library_are_not_new(place: Path, films: Path) -> None:
    with Library.open(place / "library") as library:
        put(films, "stranger", place / "new")
        library.add([place / "new"], workers=1)
    put(films, "part", place / "new")
    assert [one.path for one in look(place)] == [str(place / "new" / "part.mp4")]


def test_with_add_files_that_come_together_find_each_other(place: Path, films: Path) -> None:
    put(films, "stranger", place / "new", "x")
    put(films, "stranger", place / "new", "y")
    assert shown(look(place, add=True, workers=1)) == [("match", "x.mp4", ["y.mp4"]), ("match", "y.mp4", ["x.mp4"])]
    assert look(place, add=True, workers=1) == []
    with Library.open(place / "library") as library:
        assert library.info().videos == 4


def test_a_file_that_was_added_and_not_reported_is_reported(place: Path, films: Path) -> None:
    """As after a kill between both."""
    path = put(films, "part", place / "new")
    with Library.open(place / "library") as library:
        library.add([place / "new"], workers=1)
    signature = (path.stat().st_size, path.stat().st_mtime_ns)
    WatchRecord(place / "library" / RECORD).begin(os.fsencode(path), signature)
    assert shown(look(place, add=True, workers=1)) == [("match", "part.mp4", ["a.mp4"])]
    assert look(place, add=True, workers=1) == []


@pytest.mark.parametrize("add", [False, True])
def test_rules_leave_files_out(place: Path, films: Path, add: bool) -> None:
    put(films, "part", place / "new")  # 9 s
    put(films, "a", place / "new", "long")
    put(films, "a", place / "new", "left out")
    rules = IndexRules(exclude=("left*",), min_seconds=12)
    found = look(place, rules=rules, add=add, workers=1)
    assert shown(found) == [("match", "long.mp4", ["a.mp4"])]


def test_the_record_survives_a_line_that_is_cut_off_and_names_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "seen.jsonl"
    record = WatchRecord(path)
    record.finish(b"/caf\xe9.mp4", (1, 2))
    record.begin(b"/b.mp4", (3, 4))
    whole = path.read_bytes()
    for end in range(whole.index(b"\n") + 1, len(whole)):
        path.write_bytes(whole[:end])
        cut = WatchRecord(path)
        cut.finish(b"/c.mp4", (5, 6))
        again = WatchRecord(path)
        assert again.done[b"/c.mp4"] == (5, 6)
        assert set(again.done) <= {b"/caf\xe9.mp4", b"/c.mp4"}
    path.write_bytes(whole)
    assert WatchRecord(path).done == {b"/caf\xe9.mp4": (1, 2)}
    assert WatchRecord(path).begun == {b"/b.mp4": (3, 4)}


def test_another_file_is_not_taken_for_a_record(place: Path, run: Run) -> None:
    other = place / "notes.txt"
    other.write_text("mine\n")
    with pytest.raises(StorageError, match="is no record"):
        WatchRecord(other)
    code, _, err = run("watch", "--against", place / "library", place / "new", "--record", other)
    assert (code, "is no record" in err) == (2, True)
    assert other.read_text() == "mine\n"


def test_options_that_are_for_the_other_watch_are_refused(place: Path, run: Run) -> None:
    code, _, err = run("watch", place / "library", place / "new", "--all")
    assert (code, "--all is an option of `hapvr watch --against`" in err) == (2, True)
    code, _, err = run("watch", "--against", place / "library", place / "new", "--prune")
    assert (code, "--prune is not for --against" in err) == (2, True)
    code, _, err = run("watch", "--against", place / "nothing", place / "new")
    assert code == 2
    assert not (place / "nothing").exists()


# --- as a user does it -----------------------------------------------------------------------------------------------


class Watch:
    """The command in a process, and the lines that it prints."""

    def __init__(self, *arguments: object, env: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hapvr", "watch", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"} | (env or {}),
        )

    def read_line(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().rstrip("\n")

    def stop(self) -> tuple[str, str]:
        self.process.send_signal(signal.SIGTERM)
        return self.process.communicate(timeout=120)


@contextmanager
def start(*arguments: object, env: dict[str, str] | None = None) -> Iterator[Watch]:
    watch = Watch(*arguments, env=env)
    limit = threading.Timer(180, watch.process.kill)  # a line that never comes is an end of the output then
    limit.start()
    try:
        yield watch
    finally:
        limit.cancel()
        if watch.process.poll() is None:
            watch.process.kill()
        watch.process.communicate()


def test_the_command_reports_what_comes_and_goes_on_after_a_restart(place: Path, films: Path) -> None:
    put(films, "part", place / "new")
    arguments = ("--against", place / "library", place / "new", "--interval", INTERVAL, "--json")
    hook = {"HAPVR_WEBHOOK_SECRET": "secret", "NO_PROXY": "127.0.0.1"}
    with receive() as server, start(*arguments, "--webhook", server.address, env=hook) as watch:
        first = json.loads(watch.read_line())
        assert (first["event"], first["path"]) == ("match", str(place / "new" / "part.mp4"))
        assert [Path(one["path"]).name for one in first["matches"]] == ["a.mp4"]
        (place / "new" / "bad.mp4").write_text("nothing")
        bad = json.loads(watch.read_line())
        assert (bad["event"], bad["path"]) == ("failed", str(place / "new" / "bad.mp4"))
        assert server.arrived.wait(60)
        ((_, headers, body),) = server.got  # of the match, and not of the file that cannot be read
        assert json.loads(body)["event"] == first
        assert headers["X-Hapvr-Signature"].startswith("sha256=")
        watch.process.kill()  # and not asked to stop: what was reported is kept all the same
    # The last file may be reported again: it was printed, but its line in the record may not have been written.
    put(films, "b", place / "new", "later")
    with start("--against", place / "library", place / "new", "--interval", INTERVAL) as watch:
        line = watch.read_line()
        assert line.startswith(f"{place / 'new' / 'later.mp4'}: copy (probability ")
        assert f" {films / 'b.mp4'}" in line
        assert " s is " in watch.read_line()
        out, err = watch.stop()
        assert watch.process.returncode == 0
    assert out == ""
    assert "1 with a match" in err
    assert err.count("bad.mp4") <= 1
