"""What people install: the wheel, from a file into a fresh environment; completion in bash; the man page; the image."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from hapvr import __version__

ROOT = Path(__file__).parents[1]
MAX_BYTES = 32 * 2**20  # of the wheel; the models take 27 MB of it


def run(*command: str | Path, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command as a user runs it in a folder, without anything of this checkout in its environment."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST", "_HAPVR"))}
    return subprocess.run(
        [str(word) for word in command],
        cwd=folder, env=plain | environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of what a checkout holds: nothing is written into the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / name)
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    (folder / "docs").mkdir()
    shutil.copy(ROOT / "docs" / "hapvr.1", folder / "docs")
    built = run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder / "dist", folder=folder)
    assert built.returncode == 0, built.stderr
    (found,) = (folder / "dist").iterdir()
    return found


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        compiled = {name for name in packed.namelist() if name.endswith(".so")}
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_") if compiled else "any"
    assert wheel.name == f"hapvr-{__version__}-py3-none-{platform}.whl"
    assert wheel.stat().st_size < MAX_BYTES
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
        info = f"hapvr-{__version__}.dist-info"
        about = Parser().parsestr(packed.read(f"{info}/METADATA").decode())
        scripts = packed.read(f"{info}/entry_points.txt").decode()
    assert {name.split("/")[0] for name in names} == {"hapvr", info, f"hapvr-{__version__}.data"}
    source = ROOT / "src"
    files = {path.relative_to(source).as_posix() for path in (source / "hapvr").rglob("*") if path.is_file()}
    expected = {name for name in files if "__pycache__" not in name and not name.endswith(".so")} | compiled
    assert {name for name in names if name.startswith("hapvr/")} == expected
    assert {"hapvr/py.typed", "hapvr/models/lite/model.safetensors", "hapvr/server/static/index.html"} <= names
    assert f"hapvr-{__version__}.data/data/share/man/man1/hapvr.1" in names
    assert not [name for name in names if "test" in Path(name).name.split("_")[0]]
    assert "hapvr = hapvr.cli:main" in scripts
    assert about["Requires-Python"] == ">=3.10"
    assert any(line.startswith("torch>=") for line in about.get_all("Requires-Dist", []))


def test_the_wheel_works_in_a_fresh_environment(wheel: Path, tmp_path: Path) -> None:
    """As `pip install FILE`; what it depends on comes from this environment, so that nothing is downloaded."""
    made = run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv", folder=tmp_path)
    assert made.returncode == 0, made.stderr
    folder, python = tmp_path / "elsewhere", tmp_path / "venv" / "bin" / "python"
    folder.mkdir()
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
    installed = run(*pip, "install", "--no-deps", "--no-index", wheel, folder=folder)
    assert installed.returncode == 0, installed.stderr
    # A path file, after the installed package: the editable install of this checkout must not come first.
    here = tmp_path / "dependencies"
    here.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if "hapvr" not in path.name:
            (here / path.name).symlink_to(path)
    packages = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", folder=folder).stdout.strip()
    Path(packages, "zz-dependencies.pth").write_text(f"{here}\n")
    command = tmp_path / "venv" / "bin" / "hapvr"
    version = run(command, "--version", folder=folder)
    assert (version.returncode, version.stdout) == (0, f"hapvr {__version__}\n"), version.stderr
    models = run(command, "model", "list", folder=folder)
    assert models.returncode == 0, models.stderr
    assert "lite" in models.stdout
    program = "import hapvr, sys; sys.path[0] = ''; print(hapvr.__file__); print(hapvr.load().name)"
    loaded = run(python, "-c", program, folder=folder)
    assert loaded.returncode == 0, loaded.stderr
    where, name = loaded.stdout.split()
    assert Path(where).is_relative_to(packages)
    assert name == "lite"
    assert (tmp_path / "venv" / "share" / "man" / "man1" / "hapvr.1").is_file()


@pytest.mark.parametrize(
    ("typed", "expected"),
    [(["du"], "duplicates"), (["model", "g"], "get"), (["search", "--second"], "--second-look"), (["zzz"], "")],
)
def test_bash_completes_commands_and_options(typed: list[str], expected: str, tmp_path: Path) -> None:
    """By the script that `hapvr --show-completion` prints, in bash itself."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    source = str(ROOT / "src")
    hapvr = tmp_path / "hapvr"
    hapvr.write_text(f'#!/bin/sh\nPYTHONPATH="{source}" exec "{sys.executable}" -m hapvr "$@"\n')
    hapvr.chmod(0o755)
    script = tmp_path / "completion.sh"
    words = " ".join(["hapvr", *typed])
    search = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    shown = run(hapvr, folder=tmp_path, _HAPVR_COMPLETE="source_bash", **search)
    assert "complete -o" in shown.stdout, shown.stderr
    script.write_text(shown.stdout)
    function = re.search(r"-F (\w+) hapvr", shown.stdout)
    assert function is not None
    ask = f'. "{script}"; COMP_WORDS=({words}); COMP_CWORD={len(typed)}; {function[1]} hapvr; echo "${{COMPREPLY[@]}}"'
    found = run(bash, "--norc", "-c", ask, folder=tmp_path, **search)
    assert expected in found.stdout.split() if expected else not found.stdout.strip(), found.stderr


def test_completion_is_installed_into_the_home_folder(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path), "PYTHONPATH": str(ROOT / "src"), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    done = run(sys.executable, "-m", "hapvr", "--install-completion", "bash", folder=tmp_path, **home)
    assert done.returncode == 0, done.stderr
    assert "hapvr" in (tmp_path / ".bashrc").read_text()


def test_the_man_page_formats_without_a_warning(tmp_path: Path) -> None:
    man = shutil.which("man")
    if man is None or shutil.which("groff") is None:
        pytest.skip("there is no man and groff")
    page = run(
        man, "--warnings", "-E", "UTF-8", "-l", ROOT / "docs" / "hapvr.1",
        folder=tmp_path, MANWIDTH="100", LC_ALL="C.UTF-8",
    )  # fmt: skip
    assert (page.returncode, page.stderr) == (0, "")
    text = re.sub(".\b", "", page.stdout)
    assert "hapvr - find videos by content" in text
    assert "--device" in text
    assert "hapvr model get" in text


def test_the_image_is_pinned_and_runs_as_a_user() -> None:
    """What can be checked without building it, which was not done."""
    text = (ROOT / "deploy" / "Containerfile").read_text()
    joined = re.sub(r"\\\n\s*", "", text)
    lines = [line for line in joined.splitlines() if line and not line.startswith("#")]
    steps = [(line.split()[0], line.partition(" ")[2]) for line in lines]
    known = {"FROM", "WORKDIR", "COPY", "RUN", "USER", "ENV", "VOLUME", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK"}
    assert {name for name, _ in steps} <= known | {"ARG", "ENTRYPOINT", "CMD"}
    bases = [value.split()[0] for name, value in steps if name == "FROM"]
    assert all(re.fullmatch(r"docker\.io/library/python:3\.\d+-slim", base) for base in bases), bases
    last = max(number for number, (name, _) in enumerate(steps) if name == "FROM")
    names = [name for name, _ in steps[last:]]
    assert steps[last + names.index("USER")][1] not in ("root", "0")
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert "-c constraints.txt torch==" in joined
    assert re.search(r"torch==([\d.]+)", joined)[1] in (ROOT / "constraints.txt").read_text()  # type: ignore[index]
    copied = [word for name, value in steps[:last] if name == "COPY" for word in value.split()[:-1]]
    assert all((ROOT / word).exists() for word in copied)
    # What the build of the wheel reads.
    needed = {"pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "docs/hapvr.1", "src"}
    assert needed <= set(copied)
    assert "HAPVR_TOKEN" in text  # it listens beyond the container, so a token is needed
    assert "-p 127.0.0.1:8787:8787" in (ROOT / "deploy" / "README.md").read_text()
