"""The commands, run in a folder whose files must not be: as a user who has gone into a folder of downloads."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hapvr
from hapvr.synthetic.clip import Clip
from hapvr.synthetic.clip_files import write_clip
from hapvr.synthetic.films import draw_scene

from .traps import set_traps, sprung

# As the installed script: its own folder is on the path, the current one is not.
SCRIPT = "from hapvr.cli import main\nmain()\n"
# The same for several commands, which load everything once.
SEVERAL = """
import json, sys
from hapvr.cli import main

for words in json.loads(sys.argv[1]):
    try:
        main(words)
        code = 0
    except SystemExit as left:
        code = left.code or 0
    if code:
        sys.exit(f"{words[0]} ended with code {code}")
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Films, a clip of one, and the scripts."""
    folder = tmp_path_factory.mktemp("place")
    for name in ("films", "bin", "traps"):
        (folder / name).mkdir()
    scenes = [draw_scene(seed, seconds=4, fps=8, size=(96, 128)) for seed in range(2)]
    for seed, scene in enumerate(scenes):
        write_clip(scene, folder / "films" / f"film-{seed}.mp4")
    write_clip(Clip(np.ascontiguousarray(scenes[1].images[8:28]), scenes[1].fps), folder / "clip.mp4")
    (folder / "bin" / "hapvr").write_text(SCRIPT)
    (folder / "bin" / "several").write_text(SEVERAL)
    set_traps(folder / "traps")
    (folder / "traps" / "matplotlibrc").write_text("text.usetex: True\n")  # matplotlib would start LaTeX
    return folder


@contextmanager
def started(place: Path, script: str, *words: object) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, str(place / "bin" / script), *map(str, words)]
    environment = os.environ | {"PYTHONPATH": str(Path(hapvr.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    with (place / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=place / "traps", env=environment, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def library(place: Path) -> Path:
    """A library, made and used by all the commands of every day."""
    films, clip, made = place / "films", place / "clip.mp4", place / "made"
    made.mkdir()
    commands: list[list[object]] = [
        ["add", made / "library", films, "--workers", 2],
        ["status", made / "library"],
        ["info", made / "library"],
        ["search", made / "library", clip, "--html", made / "hits.html"],
        ["duplicates", made / "library", "-o", made / "duplicates.csv"],
        ["compare", films / "film-1.mp4", clip, "--plot", made / "match.png", "--html", made / "match.html"],
        ["frames", films, "-o", made / "frames"],
        ["extract", films, "-o", made / "features.h5", "--workers", 2],
        ["make-benchmark", films, made / "benchmark", "--kind", "flip", "--queries", 1, "--workers", 2],
        ["evaluate", made / "benchmark", "--reader-processes", 1, "-o", made / "figures.json"],
        ["model", "list"],
    ]
    with started(place, "several", json.dumps([[str(word) for word in words] for words in commands])) as process:
        assert process.wait() == 0, (place / "log").read_text()
    return made / "library"


def test_no_command_runs_code_from_the_current_folder(place: Path, library: Path) -> None:
    said = (place / "log").read_text()
    assert sprung(place / "traps") == []
    assert "2 added" in said, said
    assert json.loads((library.parent / "figures.json").read_text())["results"]
    assert (library.parent / "match.png").stat().st_size > 1000
    assert sorted(path.name for path in (library.parent / "benchmark" / "queries").iterdir())


def test_the_server_runs_no_code_from_the_current_folder(place: Path, library: Path) -> None:
    with started(place, "hapvr", "serve", library, "--port", 0, "--folder", place / "made") as process:
        address = waited_for(place / "log", process)
        id = ask(f"{address}api/videos")["videos"][0]["id"]
        by_id = ask(f"{address}api/searches", json.dumps({"id": id}).encode(), "application/json")
        upload = b'--b\r\nContent-Disposition: form-data; name="file"; filename="clip.mp4"\r\n\r\n'
        upload += (place / "clip.mp4").read_bytes() + b"\r\n--b--\r\n"
        by_file = ask(f"{address}api/searches", upload, "multipart/form-data; boundary=b")
        for begun in (by_id, by_file):
            job = begun["job"]
            while job["state"] in ("queued", "running"):
                job = ask(f"{address}api/jobs/{job['id']}?wait=30")
            assert (job["state"], len(job["result"]["hits"]) > 0) == ("done", True), job
        with urllib.request.urlopen(f"{address}api/videos/{id}/thumbnail?t=1", timeout=60) as answer:
            assert answer.read()[:2] == b"\xff\xd8"
        health = ask(f"{address}api/health")
        assert (health["status"], health["cause"]) == ("ok", None)
    assert sprung(place / "traps") == []


def waited_for(log: Path, process: subprocess.Popen[bytes]) -> str:
    while not (found := re.search(r"serving at (\S+)", log.read_text())):
        assert process.poll() is None, log.read_text()
        time.sleep(0.05)
    return found[1]


def ask(address: str, data: bytes | None = None, kind: str = "") -> Any:
    request = urllib.request.Request(address, data, {"Content-Type": kind} if kind else {})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.loads(answer.read())
