"""`hapvr apply` and `hapvr undo` as a user runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hapvr.actions import write_plan
from tests.actions.files import make_plan, read_tree
from tests.library.conftest import Run


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    write_plan(make_plan(tmp_path / "videos"), tmp_path / "plan.csv")
    return tmp_path / "plan.csv"


def test_a_dry_run_shows_what_and_how_much(plan: Path, run: Run) -> None:
    before = read_tree(plan.parent)
    code, out, _ = run("apply", plan, "--trash", "--dry-run")
    assert code == 0
    assert "to be moved to the trash: 4 files (1.2 kB)" in out
    assert "2 copies of them will be kept" in out
    assert "this was a dry run" in out
    value = json.loads(run("apply", plan, "--hardlink", "--dry-run", "--json")[1])
    assert value["bytes"] == 4 * 300
    assert [file["action"] for file in value["files"]] == ["hardlink"] * 4
    assert read_tree(plan.parent) == before


def test_nobody_who_cannot_be_asked_is_taken_to_agree(plan: Path, run: Run) -> None:
    before = read_tree(plan.parent)
    code, out, err = run("apply", plan, "--trash")
    assert code == 2
    assert "to be moved to the trash: 4 files" in out
    assert "Give --yes" in err
    assert run("apply", plan, "--trash", "--json")[0] == 2
    assert read_tree(plan.parent) == before


@pytest.mark.parametrize(
    ("answer", "code", "said"), [("n", 1, "nothing was done"), ("y", 0, "4 files moved to the trash")]
)
def test_it_asks_at_a_terminal(
    plan: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    code: int,
    said: str,
) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr("typer.confirm", lambda _: answer == "y")
    found, out, _ = run("apply", plan, "--trash")
    assert found == code
    assert said in out


def test_apply_and_undo_say_what_they_did(plan: Path, run: Run) -> None:
    before = read_tree(plan.parent / "videos")
    code, out, err = run("apply", plan, "--to", plan.parent / "moved", "--yes")
    assert code == 0
    assert not err
    assert f"4 files moved to {plan.parent}/moved" in out
    assert f"to take it back: hapvr undo {plan}.journal" in out
    assert "hapvr add LIBRARY --prune" in out
    code, out, _ = run("apply", plan, "--to", plan.parent / "moved", "--yes")
    assert code == 0
    assert "there is nothing to do" in out
    assert "4 are done already" in out
    code, out, _ = run("undo", f"{plan}.journal")
    assert code == 0
    assert "4 files (1.2 kB) taken back" in out
    assert read_tree(plan.parent / "videos") == before


def test_the_exit_code_says_that_files_were_left_alone(plan: Path, run: Run) -> None:
    (plan.parent / "videos" / "copies 1" / "1.mp4").write_bytes(b"new")
    journal = plan.parent / "journal"
    code, out, err = run("apply", plan, "--symlink", "--yes", "--journal", journal, "--json")
    assert code == 1
    report = json.loads(out)
    assert report["files"] == {"symlink": 3}
    assert [one["kind"] for one in report["left"]] == ["changed"]
    assert not err
    code, _, err = run("apply", plan, "--symlink", "--yes", "--journal", journal)
    assert code == 1
    assert "left alone: 1 changed" in err
    assert "3 bytes instead of 300" in err
    (plan.parent / "videos" / "copies 2" / "2.mp4").unlink()
    (plan.parent / "videos" / "copies 2" / "2.mp4").mkdir()
    code, out, err = run("undo", journal)
    assert code == 1
    assert "2 files" in out
    assert "left alone: 1 occupied" in err


def test_one_thing_is_to_be_done(plan: Path, run: Run) -> None:
    for options in ((), ("--trash", "--hardlink"), ("--to", "x", "--symlink"), ("--as-planned", "--trash")):
        code, _, err = run("apply", plan, *options, "--yes")
        assert code == 2
        assert "one of --to FOLDER, --trash" in err
    assert "say where to by --to" in run("apply", plan, "--as-planned", "--yes")[2]
    assert run("apply", plan, "--as-planned", "--to", plan.parent / "moved", "--yes")[0] == 0
    assert "is the plan" in run("apply", plan, "--trash", "--journal", plan)[2]


def test_neither_command_loads_what_a_search_needs(plan: Path) -> None:
    """They begin within a moment, also on a machine without a decoder."""
    program = (
        "import sys\n"
        "from hapvr.cli import main\n"
        "for words in (['apply', sys.argv[1], '--trash', '--yes'], ['undo', sys.argv[1] + '.journal']):\n"
        "    try:\n"
        "        main(words)\n"
        "    except SystemExit as end:\n"
        "        assert not end.code, end.code\n"
        "large = {'torch', 'av', 'numpy', 'lancedb', 'pyarrow', 'PIL'} & set(sys.modules)\n"
        "assert not large, large\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(plan)], capture_output=True, text=True, env={**os.environ}, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "4 files moved to the trash" in done.stdout
    assert "4 files (1.2 kB) taken back" in done.stdout


def test_undo_of_a_plan_names_its_journal(plan: Path, run: Run) -> None:
    code, _, err = run("undo", plan)
    assert code == 2
    assert "is no journal of `hapvr apply`" in err
    assert "Its journal is" not in err
    assert run("apply", plan, "--trash", "--yes")[0] == 0
    code, _, err = run("undo", plan)
    assert code == 2
    assert f"Its journal is '{plan}.journal': give that." in err
    assert run("undo", f"{plan}.journal", "--yes")[0] == 0
