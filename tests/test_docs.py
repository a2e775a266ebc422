"""The documentation is true: its code runs, it names everything, and what is generated is current."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from hapvr.synthetic.benchmark_plan import DEFAULT_KINDS, KINDS
from hapvr.synthetic.clip_files import write_clip
from hapvr.synthetic.edits import EDITS
from hapvr.synthetic.films import draw_scene

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", "docs/method.md"]


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs(
    page: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All Python blocks of a page run in order, where there are videos, and a `print(x)  # y` prints y."""
    film = draw_scene(3, seconds=3, fps=8, size=(64, 96))
    (tmp_path / "Videos").mkdir()
    write_clip(film, tmp_path / "Videos" / "film.mp4")
    write_clip(film, tmp_path / "clip.mp4")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert blocks
    program = "\n".join(blocks)
    exec(compile(program, page, "exec"), {"__name__": "page"})
    promised = re.findall(r"^print\(.*\)\s+# (.*)$", program, re.MULTILINE)
    assert capsys.readouterr().out.splitlines() == promised


def test_the_generated_pages_are_current() -> None:
    for file, content in generator().pages().items():
        assert file.read_text() == content, f"{file.name} is stale: run `make docs`"


def test_links_between_pages_lead_somewhere() -> None:
    for page in ROOT.glob("**/*.md"):
        if ".venv" in page.parts:
            continue
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if not link.startswith("http"):
                assert (page.parent / link).exists(), f"{page.relative_to(ROOT)} links to {link}"


@pytest.mark.parametrize("page", ["SECURITY.md", "docs/reliability.md"])
def test_a_test_that_a_page_names_is_there(page: str) -> None:
    text = (ROOT / page).read_text()
    files = re.findall(r"`((?:tests|benchmarks|src)/[\w/]+\.\w+)", text)
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)
    assert named
    assert [file for file in files if not (ROOT / file).exists()] == []
    for file, test in named:
        assert re.search(rf"^(async )?def {test}\(", (ROOT / file).read_text(), re.MULTILINE), f"{file}::{test}"


def test_the_page_on_benchmarks_has_a_row_for_every_kind() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    rows = re.findall(r"^\| `([\w-]+)` \| (.*) \| (yes)? ?\|$", page, re.MULTILINE)
    assert [name for name, _, _ in rows] == list(KINDS)
    assert tuple(name for name, _, default in rows if default) == DEFAULT_KINDS
    assert {name: summary for name, summary, _ in rows if name in EDITS} == {
        name: edit.summary for name, edit in EDITS.items()
    }


def test_every_make_target_of_the_readme_is_there() -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"^make (\w+)", (ROOT / "README.md").read_text(), re.MULTILINE)) <= targets


def test_modules_functions_and_methods_that_the_architecture_names_are_there() -> None:
    page, package = (ROOT / "docs" / "architecture.md").read_text(), ROOT / "src" / "hapvr"
    functions, methods = re.findall(r"`([\w/]+\.py)::(\w+)`", page), re.findall(r"`([A-Z_]\w+)\.(\w+)`", page)
    assert functions
    assert methods
    for file in re.findall(r"`([a-z_]+/[\w/]+\.py)`", page):
        assert any((folder / file).is_file() for folder in (package, ROOT)), f"there is no {file}"
    for file, name in functions:
        source = (package / file).read_text()
        assert re.search(rf"^(def|class) {name}\b", source, re.MULTILINE), f"{file} has no {name}"
    sources = [file.read_text() for file in package.rglob("*.py")]
    for owner, name in methods:
        homes = "\n".join(source for source in sources if re.search(rf"^class {owner}\b", source, re.MULTILINE))
        assert re.search(rf"^    (def {name}\b|{name} = )", homes, re.MULTILINE), f"{owner} has no {name}"


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["generate"] = module
    spec.loader.exec_module(module)
    return module
