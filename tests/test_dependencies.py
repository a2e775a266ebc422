"""The lock file and the bill of materials list what hapvr needs to run, and nothing else."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("list_dependencies", ROOT / "scripts" / "list_dependencies.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_runs_hapvr_is_found_and_no_tools(script: ModuleType) -> None:
    found = script.find_runtime("hapvr")
    assert {"hapvr", "torch", "fastapi", "starlette", "lancedb", "typing-extensions"} <= found
    assert not {"pytest", "ruff", "playwright", "matplotlib", "scikit-learn"} & found


def test_a_lock_has_hashes_and_leaves_out_what_the_machine_decides(script: ModuleType) -> None:
    def entry(name: str, version: str, digest: str) -> dict[str, Any]:
        about = {"name": name, "version": version}
        return {
            "metadata": about,
            "download_info": {"url": "https://x", "archive_info": {"hashes": {"sha256": digest}}},
        }

    names = ["Zebra_Lib", "torch", "nvidia-cublas-cu12", "triton", "hapvr", "av"]
    report = {
        "install": [entry(name, "1.0+cpu" if name == "torch" else "1.0", f"{n}a") for n, name in enumerate(names)],
        "environment": {"python_version": "3.11", "sys_platform": "linux", "platform_machine": "x86_64"},
    }
    text = script.format_lock(report)
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert lines == ["av==1.0 --hash=sha256:5a", "zebra-lib==1.0 --hash=sha256:0a"]
    assert "pip install --no-deps torch==1.0 " in text


def test_a_bill_of_materials_is_cut_to_what_runs(script: ModuleType) -> None:
    components = [{"name": name, "bom-ref": name} for name in ("fastapi", "Starlette", "pytest", "hapvr")]
    links = [
        {"ref": "root", "dependsOn": ["fastapi", "pytest"]},
        {"ref": "fastapi", "dependsOn": ["Starlette", "pytest"]},
        {"ref": "pytest"},
    ]
    sbom = {"metadata": {"component": {"bom-ref": "root"}}, "components": components, "dependencies": links}
    found = script.keep_runtime(sbom, {"hapvr", "fastapi", "starlette"})
    assert [one["name"] for one in found["components"]] == ["fastapi", "Starlette"]
    assert found["dependencies"] == [
        {"ref": "root", "dependsOn": ["fastapi"]},
        {"ref": "fastapi", "dependsOn": ["Starlette"]},
    ]


def test_the_lock_file_pins_what_is_asked_for(script: ModuleType) -> None:
    lines = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if not line.startswith("#")]
    found = {}
    for line in lines:
        match = re.fullmatch(r"([a-z0-9-]+)==(\S+) --hash=sha256:[0-9a-f]{64}", line)
        assert match is not None, line
        found[match[1]] = match[2]
    project = (ROOT / "pyproject.toml").read_text()
    asked = re.search(r"^dependencies = \[\n(.*?)^\]", project, re.MULTILINE | re.DOTALL)
    assert asked is not None
    for line in re.findall(r'^    "([\w-]+)[^;"]*"', asked[1], re.MULTILINE):
        assert line == "torch" or script.normalise(line) in found
    for line in re.findall(r"^([\w-]+==\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE):
        name, _, version = line.partition("==")
        assert found.get(script.normalise(name), version) == version, line
