"""`apply` and `undo` that are killed at any moment: no file is lost, and each is where the journal says."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from hapvr.actions import Plan, write_plan
from hapvr.actions.plan import PlanRow
from tests.actions.files import hash_bytes, make_plan, read_contents, read_tree

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
KILLS = int(os.environ.get("HAPVR_TEST_KILLS", "30"))
CASES = [
    ("move", ""),
    ("move", "across"),
    ("move", "without"),
    ("trash", ""),
    ("trash", "across"),
    ("hardlink", ""),
    ("symlink", ""),
]


class Killer:
    """Runs `apply` and `undo` in processes that can be killed; see `tests.actions.killing`."""

    def __init__(self, home: Path) -> None:
        self._process: subprocess.Popen[str] = subprocess.Popen(
            [sys.executable, "-m", "tests.actions.killing"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
            env={**os.environ, "XDG_DATA_HOME": str(home)},
        )

    def run(self, **request: Any) -> dict[str, Any]:
        stdin: IO[str] | None = self._process.stdin
        stdout: IO[str] | None = self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(request) + "\n")
        stdin.flush()
        answer: dict[str, Any] = json.loads(stdout.readline())
        return answer

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A folder in memory, if the system has one: thousands of lines reach the disk there in no time."""
    memory = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def home(place: Path) -> Path:
    folder = place / "home"
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def killer(home: Path) -> Iterator[Killer]:
    started = Killer(home)
    yield started
    started.close()


class Case:
    """A plan in a new folder, and what must hold at any moment."""

    def __init__(self, folder: Path, killer: Killer, home: Path, way: str, system: str, *, groups: int) -> None:
        for old in (folder, home / "Trash"):
            shutil.rmtree(old, ignore_errors=True)
        self.folder, self.home, self.way = folder, home, way
        # Links need the same bytes; else each content is there once, so that a loss shows.
        same = way in ("hardlink", "symlink")
        self.plan: Plan = make_plan(folder / "videos", groups=groups, copies=1, same=same)
        self.before = read_tree(folder / "videos")
        self.contents = read_contents(folder / "videos")
        write_plan(self.plan, folder / "plan.csv")
        names = {name: str(folder / name) for name in ("plan.csv", "journal", "moved")}
        self._request = {
            "plan": names["plan.csv"], "journal": names["journal"], "folder": names["moved"], "way": way,
            "system": system,
        }  # fmt: skip
        self._killer = killer

    def run(self, do: str, **when: Any) -> bool:
        """Whether it was killed."""
        answer = self._killer.run(do=do, **when, **self._request)
        self.calls = answer["calls"]
        assert not answer["left"], answer
        return bool(answer["killed"])

    def check(self) -> None:
        """Nothing is lost, and every file is where the journal says."""
        found = read_contents(self.folder / "videos") | read_contents(self.folder / "moved")
        assert self.contents <= found | read_contents(self.home / "Trash" / "files")
        states = self._read_journal()
        for row in self.plan.acting:
            state, step = states.get(row.path, ("untouched", {}))
            places = {
                "untouched": [row.path], "failed": [row.path], "undone": [row.path],
                "done": [step.get("target", row.path)], "begun": [row.path, step.get("target", row.path)],
            }  # fmt: skip
            assert any(_holds(place, row) for place in places[state]), (state, step)
            if state == "done" and self.way in ("hardlink", "symlink"):
                assert os.path.samefile(row.path, step["kept"])
        for row in self.plan.rows:
            assert row.action != "keep" or _holds(row.path, row)

    def _read_journal(self) -> dict[str, tuple[str, dict[str, Any]]]:
        """The state of each path, read in the simplest way; a step on the way may be at either place."""
        journal = self.folder / "journal"
        text = journal.read_text() if journal.exists() else ""
        steps: dict[int, dict[str, Any]] = {}
        states: dict[str, tuple[str, dict[str, Any]]] = {}
        for line in text.split("\n")[:-1]:
            record = json.loads(line)
            number = record.get("step")
            if record["event"] == "begin":
                steps[number] = record
            if number is not None:
                names = {"begin": "begun", "undo": "begun", "kept": "done"}
                state = names.get(record["event"], record["event"])
                states[steps[number]["source"]] = (state, steps[number])
        return states

    def check_undone(self) -> None:
        self.check()
        assert read_tree(self.folder / "videos") == self.before
        assert not (self.folder / "moved").exists()
        assert not read_tree(self.home)

    def check_done(self) -> None:
        self.check()
        assert not list(self.folder.rglob(".hapvr-*"))
        for row in self.plan.acting:
            if self.way == "hardlink":
                assert os.stat(row.path).st_nlink == 2  # the kept one and this
            elif self.way == "symlink":
                assert os.path.islink(row.path)
            else:
                assert not os.path.lexists(row.path)
        notes = list((self.home / "Trash").glob("info/*"))
        assert len(notes) == len(list((self.home / "Trash").glob("files/*")))


def _holds(path: str, row: PlanRow) -> bool:
    return os.path.isfile(path) and hash_bytes(Path(path).read_bytes()) == row.content_hash


@pytest.mark.parametrize(("way", "system"), CASES)
def test_a_kill_before_any_call_to_the_system_loses_nothing(
    killer: Killer, home: Path, place: Path, way: str, system: str
) -> None:
    """After each of them the command goes on, and so does the other one."""
    groups = 2 if (way, system) == ("move", "") else 1
    case = Case(place / "case", killer, home, way, system, groups=groups)
    assert not case.run("apply")
    case.check_done()
    applying = case.calls
    assert not case.run("undo")
    case.check_undone()
    undoing = case.calls
    assert min(applying, undoing) > 8
    for do, calls in (("apply", applying), ("undo", undoing)):
        for call in range(1, calls + 1):
            for then in ("apply", "undo"):
                case = Case(place / "case", killer, home, way, system, groups=groups)
                if do == "undo":
                    assert not case.run("apply")
                assert case.run(do, call=call), f"{do} makes fewer than {call} calls"
                case.check()
                assert not case.run(then)
                case.check_done() if then == "apply" else case.check_undone()


@pytest.mark.parametrize(("way", "system"), [("move", "across"), ("hardlink", "")])
def test_what_is_killed_again_and_again_ends_well(
    killer: Killer, home: Path, place: Path, way: str, system: str
) -> None:
    draw = random.Random(11)
    case = Case(place / "case", killer, home, way, system, groups=12)
    killed = 0
    for _ in range(KILLS // 2):
        do = draw.choice(("apply", "undo"))
        killed += case.run(do, call=draw.randrange(1, 120))
        case.check()
        case.run(draw.choice(("apply", "undo")), seconds=draw.uniform(0, 0.02))
        case.check()
    assert killed > KILLS / 5
    assert not case.run("apply")
    case.check_done()
    assert not case.run("undo")
    case.check_undone()
