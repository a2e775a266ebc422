from __future__ import annotations

import json
from pathlib import Path

import pytest

from hapvr.cli import main
from hapvr.features import FeatureFile, PackedFrames
from hapvr.video.files import write_clip
from hapvr.video.synth import draw_scene


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("videos")
    for number in range(2):
        write_clip(draw_scene(number, seconds=3, fps=4, size=(128, 160)), folder / f"{number}.mp4")
    return folder


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as left:
        main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return left.value.code, printed.out, printed.err


def test_extract_goes_on_where_it_stopped_and_reports_failures(
    videos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "features.h5"
    code, text, _ = run(capsys, "extract", videos, "-o", out)
    assert code == 0
    assert text.startswith("2 done (")
    (tmp_path / "bad.mp4").write_text("no video")
    code, text, _ = run(capsys, "extract", videos, tmp_path / "bad.mp4", "-o", out, "--json")
    report = json.loads(text)
    assert code == 1
    assert (report["done"], sorted(report["skipped"])) == ([], ["0.mp4", "1.mp4"])
    assert report["failed"][0]["id"] == "bad.mp4"
    with FeatureFile.open(out) as file:
        assert sorted(file.ids) == ["0.mp4", "1.mp4"]
        assert file["0.mp4"].regions.shape[1:] == (9, 512)
        assert file.attributes["model"] == "lite"


def test_frames_are_packed(videos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, _ = run(capsys, "frames", videos, "-o", tmp_path / "packed", "--short-side", 64)
    assert code == 0
    assert sorted(PackedFrames.open(tmp_path / "packed").ids) == ["0.mp4", "1.mp4"]


def test_a_benchmark_is_made(videos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text, _ = run(capsys, "make-benchmark", videos, tmp_path / "made", "--queries", 1, "--json")
    assert code == 0
    assert json.loads(text)["queries"] == 2
    assert json.loads((tmp_path / "made" / "ground_truth.json").read_text())["database"]


def test_a_missing_folder_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, words = run(capsys, "extract", tmp_path / "nowhere", "-o", tmp_path / "f.h5")
    assert code == 2
    assert "is not there" in words
