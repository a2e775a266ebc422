"""Processes that are started look for modules where this one does, but never in the current folder."""

from __future__ import annotations

import ast
import json
import multiprocessing.spawn
import multiprocessing.util
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import hapvr
from hapvr.cli import main
from hapvr.workers import processes
from hapvr.workers.processes import child_environment, find_program, import_path, python_command, spawn_context
from tests.traps import set_traps, sprung
from tests.workers import process_probe

SOURCE = Path(hapvr.__file__).parent
ROOT = Path(__file__).parents[2]
OTHERS = [str(SOURCE.parent), str(ROOT)]  # what has to be on the path for these tests
STARTING = {"sys.executable", "shutil.which", "os.system", "os.popen", "os.fork", "os.posix_spawn", "os.startfile",
            "multiprocessing.get_context", "multiprocessing.Process", "multiprocessing.Pool",
            "asyncio.create_subprocess_shell"}  # fmt: skip


@pytest.fixture
def traps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, full of traps, and on this process's path in every way there is."""
    folder = set_traps(tmp_path)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", ["", ".", str(folder), os.path.join(folder, "."), "deeper", *sys.path])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", OTHERS[0], ".", OTHERS[1], "deeper"]))
    return folder


def expect_no_trace(told: dict[str, Any], folder: Path) -> None:
    assert sprung(folder) == []
    assert told["folder"] == str(folder)
    assert all(os.path.isabs(entry) and not entry.startswith(str(folder)) for entry in told["path"])
    assert [file for file in told["files"] if file.startswith(str(folder))] == []


def test_the_traps_work(tmp_path: Path) -> None:
    folder = set_traps(tmp_path)
    subprocess.run([sys.executable, "-c", "import tokenize, hapvr"], cwd=folder, check=True)
    assert {"tokenize.py.ran", str(Path("hapvr", "__init__.py.ran"))} <= set(sprung(folder))


def test_a_module_runs_without_the_current_folder(traps: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAPVR_TOKEN", "secret")
    command = python_command("tests.workers.process_probe", "one", "zwei é")
    done = subprocess.run(command, env=child_environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    expect_no_trace(told, traps)
    assert told["words"] == ["one", "zwei é"]
    assert told["main"] == process_probe.__file__
    assert told["token"] is None


def test_a_spawned_process_runs_without_the_current_folder_and_the_main_script(traps: Path) -> None:
    context = spawn_context()
    here, there = context.Pipe()
    process = context.Process(target=process_probe.tell, args=(there,))
    process.start()
    there.close()
    told = here.recv()
    process.join()
    expect_no_trace(told, traps)
    assert told["main"] is None


def test_the_process_that_tracks_resources_is_isolated_too(tmp_path: Path) -> None:
    """It is multiprocessing's own, and would else be started with the first lock."""
    (tmp_path / "traps").mkdir()
    folder = set_traps(tmp_path / "traps")
    script = tmp_path / "script.py"
    script.write_text("from hapvr.workers.processes import spawn_context\nspawn_context().Lock()\n")
    environment = os.environ | {"PYTHONPATH": OTHERS[0]}
    # It holds the standard error open for as long as it runs.
    done = subprocess.run([sys.executable, script], cwd=folder, env=environment, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr, sprung(folder)) == (0, b"", [])


def plainly_started() -> tuple[list[str], dict[str, Any]]:
    """What multiprocessing would start a process with."""
    flags: list[str] = multiprocessing.util._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return flags, multiprocessing.spawn.get_preparation_data("name")


def test_processes_of_others_are_left_alone(traps: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = plainly_started()
    with processes._isolated_spawning():
        flags, data = plainly_started()
        seen: list[Any] = []
        other = threading.Thread(target=lambda: seen.append(plainly_started()))
        other.start()
        other.join()
    assert ("-I" in flags, str(traps) in data["sys_path"]) == (True, False)
    assert seen == [before]
    assert ("-I" in before[0], str(traps) in before[1]["sys_path"]) == (False, True)
    monkeypatch.setattr("multiprocessing.context.SpawnProcess._Popen", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        spawn_context().Process(target=print).start()
    assert plainly_started() == before


def test_the_current_folder_counts_where_it_is_meant(traps: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(OTHERS) <= set(import_path())
    assert str(traps) not in import_path()
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", str(traps))
        assert str(traps) in import_path()
    with monkeypatch.context() as patch:
        patch.setattr(processes, "_HOME", str(traps))  # the package lies in it
        assert str(traps) in import_path()
        patch.setattr(processes, "_HOME", "/not/on/the/path")
        assert import_path()[0] == "/not/on/the/path"
    inside = traps / "gone"
    inside.mkdir()
    os.chdir(inside)
    inside.rmdir()
    assert set(OTHERS) <= set(import_path())


def test_the_environment_names_no_relative_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", "/a", ".", "b", "/c", ""]))
    monkeypatch.setenv("HAPVR_TOKEN", "secret")
    monkeypatch.setenv("OTHER", "value")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of the library's object store")
    environment = child_environment()
    assert environment["PYTHONPATH"] == os.pathsep.join(["/a", "/c"])
    assert environment["PYTHONSAFEPATH"] == "1"
    assert (environment["OTHER"], environment.get("HAPVR_TOKEN")) == ("value", None)
    assert set(environment) - set(child_environment(sandboxed=True)) >= {"AWS_SECRET_ACCESS_KEY"}
    assert child_environment(sandboxed=True)["OTHER"] == "value"
    for nothing in ("", "relative"):
        monkeypatch.setenv("PYTHONPATH", nothing)
        assert "PYTHONPATH" not in child_environment()


def test_programs_are_not_looked_for_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("here", "there", "last"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "tool").touch(0o755)
    (tmp_path / "tool").touch(0o755)
    (tmp_path / "there" / "tool").chmod(0o644)
    path = ["", ".", "here", str(tmp_path / "there"), str(tmp_path / "last")]
    monkeypatch.setenv("PATH", os.pathsep.join(path))
    assert find_program("tool") == str(tmp_path / "last" / "tool")
    monkeypatch.setenv("PATH", os.pathsep.join(path[:-1]))
    assert find_program("tool") is None


def test_the_command_line_imports_nothing_more_from_the_current_folder(
    traps: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])  # called within a program, whose path it is
    assert sys.path[:2] == ["", "."]
    monkeypatch.setattr(sys, "argv", ["hapvr", "--version"])
    with pytest.raises(SystemExit):
        main()
    assert all(os.path.isabs(entry) and not entry.startswith(str(traps)) for entry in sys.path)
    assert sprung(traps) == []


@pytest.mark.parametrize(
    "options",
    [
        ["-m", "hapvr.workers.processes", "an argument"],
        ["-Bm", "hapvr.workers.processes", "an argument"],
        ["-mhapvr.workers.processes", "an argument"],
        ["-m", "hapvr", "model", "list"],
    ],
)
def test_a_module_of_the_package_that_is_run_by_name_leaves_the_current_folder_out(
    tmp_path: Path, options: list[str]
) -> None:
    folder = set_traps(tmp_path, but=("runpy", "pkgutil", "hapvr"))  # these Python itself needs before
    environment = os.environ | {"PYTHONPATH": OTHERS[0]}
    subprocess.run([sys.executable, *options], cwd=folder, env=environment, check=True)
    assert sprung(folder) == []


def test_a_program_of_somebody_else_keeps_its_path(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "__init__.py").write_text("import hapvr.errors\n")
    (tmp_path / "theirs" / "__main__.py").write_text("import helper\n")
    (tmp_path / "helper.py").touch()
    environment = os.environ | {"PYTHONPATH": OTHERS[0]}
    subprocess.run([sys.executable, "-m", "theirs", "hapvr.training"], cwd=tmp_path, env=environment, check=True)


def test_every_process_is_started_by_the_one_module() -> None:
    """Commands, environments and contexts come from `hapvr.workers.processes`; a program is named by where it lies."""
    found = []
    # build.py calls a compiler when the package is built, before anything of it can be imported; hapvr never does.
    exempt = {SOURCE / "workers" / "processes.py", SOURCE / "similarity" / "native" / "build.py"}
    for path in sorted(SOURCE.rglob("*.py")):
        if path in exempt:
            continue
        text = path.read_text()
        for node in ast.walk(ast.parse(text)):
            name = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
            if name in STARTING or name.startswith(("os.exec", "os.spawn")):
                found.append(f"{path.relative_to(SOURCE)}:{getattr(node, 'lineno', 0)}: {name}")
            if isinstance(node, ast.Call) and ast.unparse(node.func) in (
                "subprocess.run", "subprocess.Popen", "subprocess.check_output", "asyncio.create_subprocess_exec"
            ):  # fmt: skip
                given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
                if not given.get("env", "").startswith("child_environment("):
                    found.append(f"{path.relative_to(SOURCE)}:{node.lineno}: without the environment of a child")
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("ProcessPoolExecutor"):
                given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
                if given.get("mp_context") != "spawn_context()":
                    found.append(f"{path.relative_to(SOURCE)}:{node.lineno}: another context")
    assert found == []
