"""What hapvr needs to run, as a lock file with hashes or as a bill of materials; `make lock` and `make sbom` call it.

    python scripts/list_dependencies.py lock requirements.lock   # asks pip what it would install
    python scripts/list_dependencies.py sbom cyclonedx-py sbom.json   # lists what is installed

torch and what it brings for GPUs alone are not in the lock file: which build of them is right depends on the machine
(its GPU, or none) and not on hapvr, and each build has another hash. They are in the bill of materials, which lists
what is there.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
_OF_MACHINE = re.compile(r"torch|triton|(nvidia|cuda)-.*")
_HEAD = """\
# What hapvr needs to run, with hashes: CPython {version} on {platform}. Made by `make lock`; do not edit.
# torch is not in it, since its build depends on the machine. To install with nothing else unchecked:
#   pip install --require-hashes -r requirements.lock
#   pip install --no-deps {torch}      # or the build for your GPU, with what it needs
#   pip install --no-deps .
"""


def normalise(name: str) -> str:
    """The name of a package as indexes write it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def find_runtime(name: str) -> set[str]:
    """The installed packages that a package needs to run here, and itself; without what only its extras need."""
    found: set[str] = set()
    waiting = [normalise(name)]
    while waiting:
        one = waiting.pop()
        if one in found:
            continue
        found.add(one)
        for line in metadata.requires(one) or ():
            needed = Requirement(line)
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                waiting.append(normalise(needed.name))
    return found


def format_lock(report: dict[str, Any]) -> str:
    """The lock file of what pip would install, by its report."""
    lines = {}
    torch = ""
    for one in report["install"]:
        name, version = normalise(one["metadata"]["name"]), one["metadata"]["version"]
        if name == "torch":
            torch = f"torch=={version.partition('+')[0]}"
        if name == "hapvr" or _OF_MACHINE.fullmatch(name):
            continue
        digest = one["download_info"]["archive_info"]["hashes"]["sha256"]
        lines[name] = f"{name}=={version} --hash=sha256:{digest}\n"
    about = report["environment"]
    platform = f"{about['sys_platform']} {about['platform_machine']}"
    head = _HEAD.format(version=about["python_version"], platform=platform, torch=torch)
    return head + "".join(lines[name] for name in sorted(lines))


def keep_runtime(sbom: dict[str, Any], runtime: set[str]) -> dict[str, Any]:
    """A CycloneDX document of an environment without what hapvr does not need to run."""
    kept = [one for one in sbom["components"] if normalise(one["name"]) in runtime - {"hapvr"}]
    refs = {one["bom-ref"] for one in kept} | {sbom["metadata"]["component"]["bom-ref"]}
    links = [
        one | {"dependsOn": [ref for ref in one.get("dependsOn", ()) if ref in refs]}
        for one in sbom["dependencies"]
        if one["ref"] in refs
    ]
    return sbom | {"components": kept, "dependencies": links}


def write_lock(out: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-"]
    command += ["-c", str(ROOT / "constraints.txt"), str(ROOT)]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    out.write_text(format_lock(json.loads(said)), "utf-8")


def write_sbom(program: str, out: Path) -> None:
    command = [program, "environment", "--output-format", "JSON", "--output-reproducible"]
    command += ["--pyproject", str(ROOT / "pyproject.toml"), sys.executable]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    found = keep_runtime(json.loads(said), find_runtime("hapvr"))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    print(f"{out}: {len(found['components'])} components")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="kind", required=True)
    kinds.add_parser("lock").add_argument("out", type=Path)
    sbom = kinds.add_parser("sbom")
    sbom.add_argument("program", help="cyclonedx-py, of the package cyclonedx-bom")
    sbom.add_argument("out", type=Path)
    arguments = parser.parse_args()
    if arguments.kind == "lock":
        write_lock(arguments.out)
    else:
        write_sbom(arguments.program, arguments.out)


if __name__ == "__main__":
    main()
