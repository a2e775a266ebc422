"""The commands, with drawn films, a real decoder and the shipped model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hapvr.library import Library
from hapvr.model import load
from hapvr.synthetic.clip_files import write_clip
from hapvr.synthetic.films import draw_scene
from tests.library.conftest import Run


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("films")
    for seed in range(2):
        write_clip(draw_scene(seed, seconds=3, fps=8, size=(112, 160)), folder / f"{seed}.mp4")
    name = os.path.join(os.fsencode(folder), b"caf\xe9.mp4")
    with open(name, "wb") as file:
        file.write((folder / "0.mp4").read_bytes()[:-2000])
    (folder / "bad.mp4").write_text("no video")
    (folder / "notes.txt").write_text("no video")
    os.mkfifo(folder / "pipe.mp4")
    return folder


@pytest.fixture(scope="module")
def made(films: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    library = tmp_path_factory.mktemp("made") / "library"
    arguments = [sys.executable, "-m", "hapvr.cli", "add", str(library), str(films), "--codec", "float16", "--json"]
    program = "import sys\nfrom hapvr.cli import main\nmain(sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments[3:]], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1, done.stderr
    return library, json.loads(done.stdout)


def test_films_are_described_as_the_model_describes_them(made: tuple[Path, dict[str, Any]]) -> None:
    library, report = made
    names = sorted(Path(one["path"]).name for one in report["failed"])
    assert names == ["bad.mp4", "caf\\xe9.mp4", "pipe.mp4"]
    assert (report["added"], report["skipped"], report["frames"]) == (2, 1, 48)
    with Library.open(library) as opened:
        assert opened.model.name == "lite"
        for record in opened.videos(state="ready"):
            expected = load(int8=True).features(record.path)
            found = opened.features(record.id)
            torch.testing.assert_close(found.regions, expected.regions, atol=2e-3, rtol=1e-2)
            assert found.timestamps is not None
            assert np.array_equal(found.timestamps, expected.timestamps)  # type: ignore[arg-type]
            assert np.array_equal(found.low_information, expected.low_information)  # type: ignore[arg-type]
            assert (record.width, record.height, record.frames) == (160, 112, len(expected))
            assert record.duration == pytest.approx(3, abs=0.2)
            assert record.bitrate == pytest.approx(record.size * 8 / record.duration)


def test_the_commands_tell_what_there_is(
    made: tuple[Path, dict[str, Any]], films: Path, tmp_path: Path, run: Run
) -> None:
    library, _ = made
    code, out, _ = run("info", library)
    assert code == 0
    assert "2 videos (2 different)" in out
    assert "model lite, codec float16, 2 frames a second" in out
    assert json.loads(run("info", library, "--json")[1])["videos"] == 2
    code, out, _ = run("status", library)
    assert code == 0
    assert "caf\\xe9.mp4  failed: " in out
    listed = json.loads(run("status", library, "--state", "ready", "--limit", 1, "--json")[1])["listed"]
    assert [Path(one["path"]).name for one in listed] == ["0.mp4"]
    code, out, _ = run("add", library, films)
    assert (code, out.splitlines()[0]) == (1, "5 unchanged")  # of which some are still not in the library
    assert f"3 failed before and were not tried again: --retry does that, `hapvr status {library}` lists " in out
    code, out, _ = run("add", library, films / "0.mp4", "--json")
    assert (code, json.loads(out)["still_failed"]) == (0, 0)
    code, out, _ = run("compact", library)
    assert (code, " MB now" in out) == (0, True)
    code, out, _ = run("export", library, "-o", tmp_path / "f.h5")
    assert (code, out.split(" written")[0]) == (0, "2 videos")
    code, out, _ = run("import", tmp_path / "other", tmp_path / "f.h5", "--json")
    assert (code, json.loads(out)["added"]) == (0, 2)
    code, out, _ = run("remove", tmp_path / "other", listed[0]["id"])
    assert (code, out) == (0, "1 removed\n")
    with Library.open(tmp_path / "other") as other:
        assert [Path(record.path).name for record in other.videos()] == ["1.mp4"]


def test_wrong_use_is_one_line_and_code_2(
    made: tuple[Path, dict[str, Any]], films: Path, tmp_path: Path, run: Run
) -> None:
    library, _ = made
    for arguments, message in (
        (("info", tmp_path), "is a folder, but no library. A library is made in a folder of its own"),
        (("add", tmp_path / "new"), "Give the videos to add"),
        (("add", library, films, "--rebuild"), "--rebuild reads the videos that the library knows"),
        (("add", library, films, "--codec", "int8"), "made with the codec 'float16', not 'int8'"),
        (("remove", library, "zzz"), "has no video 'zzz'"),
        (("status", library, "--state", "lost"), "no state 'lost'"),
        (("export", library, "-o", tmp_path / "deep" / "f.h5"), "Make it first"),
    ):
        code, _, err = run(*arguments)
        assert (code, message in err) == (2, True), err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_watching_ends_well_when_it_is_told_to(
    made: tuple[Path, dict[str, Any]], films: Path, number: signal.Signals
) -> None:
    library, _ = made
    program = "import sys\nfrom hapvr.cli import main\nmain(sys.argv[1:])"
    arguments = ["watch", str(library), str(films), "--interval", "0.1", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["unchanged"] == 5
    time.sleep(0.2)
    process.send_signal(number)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (0, "")
    with Library.open(library) as opened:
        assert opened.info().writer is None
