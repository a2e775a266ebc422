from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from hapvr import __version__
from tests.commands import run


@pytest.fixture
def source(tmp_path: Path) -> Path:
    torch.save({"proj": torch.eye(512)}, tmp_path / "itq.pth")
    return tmp_path / "itq.pth"


def test_convert_says_what_it_wrote(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "model", "convert", source, tmp_path / "out")
    assert (code, err) == (0, "")
    assert out == f"itq: 1 tensors of similarity written to {tmp_path / 'out'}\n"
    assert (tmp_path / "out" / "model.safetensors").is_file()


def test_convert_prints_only_json_when_asked(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "model", "convert", source, tmp_path / "out", "--kind", "itq", "--json")
    assert code == 0
    assert json.loads(out) == {
        "kind": "itq",
        "parts": ["similarity"],
        "tensors": 1,
        "destination": str(tmp_path / "out"),
    }


def test_info_shows_the_parts_of_a_folder(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "model", "convert", source, tmp_path / "out")
    code, out, _ = run(capsys, "model", "info", tmp_path / "out")
    assert code == 0
    assert out.startswith("similarity: 1 tensors, 262,144 values; {")
    code, out, _ = run(capsys, "model", "info", tmp_path / "out", "--json")
    assert code == 0
    found = json.loads(out)
    assert found["engine"].startswith(("OpenVINO 20", "torch 2"))
    part = found["parts"]["similarity"]
    assert (part["tensors"], part["values"], part["config"]["bits"]) == (1, 512 * 512, 512)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("model", "convert", "nowhere.pth", "out"), "error: 'nowhere.pth' is not there.\n"),
        (("model", "convert", "nowhere.pth", "out", "--json"), "error: 'nowhere.pth' is not there.\n"),
        (("model", "convert", "a", "b", "--kind", "dinoo"), "error: --kind: There is no kind 'dinoo'"),
        (("model", "info", "."), "error: '.' is not a model folder"),
        (("model", "info", ".", "--json"), "error: '.' is not a model folder"),
        (("model", "convert", "a"), "Missing argument"),
        (("model", "shrink"), "No such command"),
    ],
)
def test_refusals_are_plain_words_on_stderr_and_exit_code_2(
    arguments: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


def test_damage_found_by_info_is_an_error_too(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "model", "convert", source, tmp_path / "out")
    with (tmp_path / "out" / "model.safetensors").open("ab") as file:
        file.write(b"x")
    code, out, err = run(capsys, "model", "info", tmp_path / "out")
    assert (code, out) == (2, "")
    assert "damaged or was replaced" in err


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--version") == (0, f"hapvr {__version__}\n", "")
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert "model" in out
    code, out, _ = run(capsys, "model", "--help")
    assert all(command in out for command in ("convert", "info"))


def test_help_does_not_wait_for_torch() -> None:
    program = "import sys, hapvr.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
