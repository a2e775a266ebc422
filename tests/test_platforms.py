"""Windows and macOS, as far as they can be tried on another system: names, line ends, encodings, starting processes."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pytest

from hapvr.actions.plan import Plan, PlanRow, read_plan, write_plan
from hapvr.evaluation.benchmarks.pair_files import read_pairs
from hapvr.library.indexed_folders import IndexRules
from hapvr.storage import HASH_BYTES
from hapvr.workers.pool import Block, WorkerPool
from hapvr.workers.processes import spawn_context
from hapvr.workers.shared_memory import SharedMemory, open_shared
from tests.library import toy
from tests.workers import pool_probe

SOURCE = Path(__file__).parents[1] / "src" / "hapvr"
POSIX = {"fcntl", "grp", "pwd", "resource", "termios"}
NAMES = [
    "caf\u00e9.mp4", "cafe\u0301.mp4",  # NFC and NFD: two files here, one on macOS
    "C:\\films\\a.mp4", "C:.mp4", "\\\\server\\share.mp4", "a.MP4", "A.mp4", "con.mp4", " spaced .mp4", "\r\n.mp4",
]  # fmt: skip


# --- names -----------------------------------------------------------------------------------------------------------


def test_names_of_other_systems_are_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file has its own record, is found by its path, and is unchanged the next time."""
    toy.install(monkeypatch)
    names = [*map(os.fsencode, NAMES), b"\xff\xfe.mp4"]
    for number, name in enumerate(names):
        (tmp_path / "films").mkdir(exist_ok=True)
        with open(os.path.join(os.fsencode(tmp_path / "films"), name), "wb") as file:
            file.write(f"video {number} 3".encode())
    with toy.make(tmp_path / "library") as library:
        assert library.add(tmp_path / "films").added == len(names)
        toy.check_whole(library)
        report = library.add(tmp_path / "films")
        assert (report.unchanged, report.added) == (len(names), 0)
        assert {os.path.basename(os.fsencode(record.path)) for record in library.videos()} == set(names)


def test_the_command_line_prints_any_name(tmp_path: Path) -> None:
    """As a user: a file that is no video fails by its name, whatever that is, and in an encoding that lacks it."""
    for name in NAMES:
        (tmp_path / name).write_text("no video")
    environment = os.environ | {"PYTHONIOENCODING": "cp1252", "PYTHONPATH": str(SOURCE.parent)}
    command = [sys.executable, "-m", "hapvr", "add", str(tmp_path / "library"), str(tmp_path)]
    run = subprocess.run(command, env=environment, capture_output=True, timeout=120)
    assert run.returncode == 1, run.stderr
    assert f"{len(NAMES)} failed".encode() in run.stdout
    assert b"Traceback" not in run.stderr
    assert rb"C:\films\a.mp4" in run.stderr.replace(b"\\\\", b"\\")


def test_rules_match_names_that_macos_takes_apart() -> None:
    root, forms = Path("/films"), [unicodedata.normalize(form, "caf\u00e9") for form in ("NFC", "NFD")]
    for typed in forms:
        rules = IndexRules(exclude=(typed,))
        assert [rules.allows(root / name / "a.mp4", root) for name in (*forms, "cafe")] == [False, False, True]


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_plan_of_any_names_comes_back_from_a_spreadsheet(ends: str, separator: str, tmp_path: Path) -> None:
    rows = tuple(
        PlanRow("1", "keep" if number == 0 else "move", f"/films/{name}", 5, f"{number:0{2 * HASH_BYTES}x}")
        for number, name in enumerate(NAMES)
        if "\n" not in name  # a line break within a cell is not a line end; below
    )
    file = tmp_path / "plan.csv"
    write_plan(Plan(rows), file)
    text = file.read_bytes().decode("utf-8-sig")
    assert not any(mark in text for mark in (";", "\t", '"'))
    file.write_bytes(text.replace(",", separator).replace("\n", ends).encode("utf-8-sig"))
    assert read_plan(file).rows == rows


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_tables_of_pairs_have_any_line_ends(ends: str, tmp_path: Path) -> None:
    file = tmp_path / "pairs.csv"
    file.write_bytes(ends.join(["query_id,reference_id", "Q1,R1", "Q2,R2", ""]).encode())
    assert [(pair[0], pair[1]) for pair in read_pairs(file)] == [("Q1", "R1"), ("Q2", "R2")]


# --- processes and their memory --------------------------------------------------------------------------------------


def test_processes_are_spawned() -> None:
    """As on Windows and macOS: what runs in them is imported, never forked."""
    assert spawn_context().get_start_method() == "spawn"


def test_memory_is_shared_by_a_file_where_linux_calls_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    with WorkerPool(pool_probe.loaded, [("probe", "")], workers=1, block_bytes=8) as made:
        answers = []
        while made.busy:
            for event in made.wait():
                if isinstance(event, Block):
                    made.release(event)
                else:
                    answers.append((event.error, event.value))
    assert answers == [(None, [])]


def test_a_file_that_cannot_be_removed_yet_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows removes no file that somebody has open."""
    monkeypatch.delattr(os, "memfd_create", raising=False)
    memory = SharedMemory(16)
    open_shared(memory.path, 16)[:] = np.arange(16, dtype=np.uint8)
    assert memory.data.tolist() == list(range(16))

    def refuse(path: str) -> None:
        raise PermissionError(13, "in use", path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        memory.close()
    os.unlink(memory.path)


# --- the source ------------------------------------------------------------------------------------------------------


def test_text_files_are_read_in_a_named_encoding() -> None:
    """The default is not UTF-8 on Windows."""
    unnamed = []
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            text, name = ast.unparse(node), ast.unparse(node.func).rpartition(".")[2]
            options = {option.arg for option in node.keywords}
            if name == "read_text" and isinstance(node.func, ast.Attribute):
                named = bool(node.args) or "encoding" in options
            elif name == "write_text" and isinstance(node.func, ast.Attribute):
                named = len(node.args) > 1 or "encoding" in options
            elif ast.unparse(node.func) == "open":
                modes = [*node.args[1:2], *(option.value for option in node.keywords if option.arg == "mode")]
                named = any("b" in ast.unparse(mode) for mode in modes) or "encoding" in options
            else:
                named = True
            if not named:
                unnamed.append(f"{path.relative_to(SOURCE)}:{node.lineno} {text}")
    assert not unnamed


def test_every_module_imports_where_posix_has_no_modules() -> None:
    """As on Windows: the libraries are imported first, then the name of the system changes, then the package comes."""
    modules = sorted(
        ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")
        for path in SOURCE.rglob("*.py")
        if path.name != "__main__.py" and path.name != "mteb_model.py" and "kernels" not in path.parts
    )
    program = f"""
import sys, types
import av, fastapi, h5py, lancedb, multiprocessing.connection, multiprocessing.spawn, numpy, pyarrow, rich.console
import asyncio, torch, torch.distributed, typer, uvicorn, PIL.Image, prometheus_client, multipart, subprocess, tempfile
import fastapi.staticfiles, multiprocessing.resource_tracker, typer.main, webbrowser, importlib.resources
import torch.nn.functional, starlette.responses, platform, shutil, socket, getpass, concurrent.futures
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name in {POSIX!r}:
            raise ModuleNotFoundError(name)
for name in {POSIX!r}:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Refuse())
sys.modules["msvcrt"] = types.ModuleType("msvcrt")
sys.platform = "win32"
import importlib
for name in {modules!r}:
    importlib.import_module(name)
"""
    run = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": str(SOURCE.parent)}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-2000:]
