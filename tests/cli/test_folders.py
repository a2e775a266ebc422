from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hapvr.features import FeatureFile, PackedFrames
from hapvr.model import load, save_model
from hapvr.synthetic.clip_files import write_clip
from hapvr.synthetic.films import draw_scene
from hapvr.video import video_files
from hapvr.video.sampling import SamplingConfig
from tests.commands import run
from tests.video import bad_files


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("videos")
    for number in range(2):
        write_clip(draw_scene(number, seconds=3, fps=4, size=(128, 160)), folder / f"{number}.mp4")
    return folder


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped model with fewer and smaller pictures."""
    model = load()
    assert model.extractor.whitening is not None
    return save_model(
        tmp_path_factory.mktemp("models") / "quick",
        backbone=model.extractor.backbone,
        whitening=model.extractor.whitening,
        similarity=model.similarity,
        sampling=SamplingConfig(fps=0.5, at_least=1, short_side=112, crop=112),
        segments=model.segments,
    )


def test_extract_goes_on_where_it_stopped_and_reports_failures(
    videos: Path, quick: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "features.h5"
    code, text, _ = run(capsys, "extract", videos, "-o", out, "--model", quick)
    assert code == 0
    assert text.startswith("2 done (")
    (tmp_path / "bad.mp4").write_text("no video")
    code, text, _ = run(capsys, "extract", videos, tmp_path / "bad.mp4", "-o", out, "--model", quick, "--json")
    report = json.loads(text)
    assert code == 1
    assert (report["done"], sorted(report["skipped"])) == ([], ["0.mp4", "1.mp4"])
    assert report["failed"][0]["id"] == "bad.mp4"
    with FeatureFile.open(out) as file:
        assert sorted(file.ids) == ["0.mp4", "1.mp4"]
        assert file["0.mp4"].regions.shape[1:] == (9, 512)
        assert file["0.mp4"].low_information is not None
        assert file.attributes["model"] == "quick"
    compact = tmp_path / "compact.h5"
    assert run(capsys, "convert-features", out, "-o", compact)[:2] == (0, f"2 videos in {compact}\n")
    code, text, _ = run(capsys, "convert-features", out, "-o", compact, "--json")
    assert (code, json.loads(text)) == (0, {"videos": 2, "output": str(compact)})
    code, _, error = run(capsys, "convert-features", out, "-o", tmp_path / "x.h5", "--dtype", "int4")
    assert code == 2
    assert "dtype must be 'float32', 'float16' or 'int8', got 'int4'" in error
    assert run(capsys, "convert-features", out, "-o", out)[0] == 2
    with FeatureFile.open(compact) as file:
        assert {file.entry(id).dtype.name for id in file} == {"int8"}


def test_a_folder_of_bad_files_is_gone_through_to_the_end(
    quick: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = tmp_path / "bad", tmp_path / "features.h5"
    made = bad_files.make(folder)
    honest = video_files.find_videos

    def find_and_lose(paths: Any, **options: Any) -> dict[str, Path]:
        """One file vanishes after it has been found, and comes back before it is looked for again."""
        (folder / "vanishing.mp4").write_bytes((folder / "good" / "fast.mp4").read_bytes())
        found = honest(paths, **options)
        (folder / "vanishing.mp4").unlink()
        return found

    monkeypatch.setattr("hapvr.batch.find_videos", find_and_lose)
    everything = set(find_and_lose([folder]))
    assert (
        len(everything & {str(path.relative_to(folder)) for path in made.values() if path.is_relative_to(folder)}) > 100
    )
    assert {"pipe.mp4", "socket.mp4", "broken_link.mp4", "loop.mp4", "vanishing.mp4"} <= everything
    started = time.monotonic()
    code, text, _ = run(capsys, "extract", folder, "-o", out, "--model", quick, "--json")
    assert time.monotonic() - started < 90
    report = json.loads(text)
    assert code == 1
    failed = {failure["id"]: failure["error"] for failure in report["failed"]}
    assert sorted([*report["done"], *failed]) == sorted(everything)  # each once
    assert report["skipped"] == []
    assert all(failed.values())
    assert len(failed) > 40
    assert {"good/a.mkv", "good/slow.mp4", "zero_duration.mp4", "cut_60_fast.mp4"} <= set(report["done"])
    assert "No such file" in failed["vanishing.mp4"]
    assert "is a pipe" in failed["pipe.mp4"]
    assert "missing at the end" in report["warnings"]["cut_60_fast.mp4"][-1]
    assert report["frames"] > 0

    size = out.stat().st_size
    code, text, _ = run(capsys, "extract", folder, "-o", out, "--model", quick, "--json")
    again = json.loads(text)
    assert (code, again["done"], sorted(again["skipped"])) == (1, [], sorted(report["done"]))
    assert {failure["id"] for failure in again["failed"]} == set(failed)
    assert out.stat().st_size == size
    with FeatureFile.open(out) as file:
        assert sorted(file.ids) == sorted(report["done"])
        file.verify()
    (folder / "forbidden.mp4").chmod(0o600)


def test_ctrl_c_leaves_a_file_to_go_on_with(
    videos: Path, quick: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = tmp_path / "many", tmp_path / "features.h5"
    folder.mkdir()
    for number in range(1500):  # more than can be done before the interrupt comes
        (folder / f"{number:04}.mp4").hardlink_to(videos / "0.mp4")
    program = "import sys; from hapvr.cli import main; main(sys.argv[1:])"
    arguments = ["extract", str(folder), "-o", str(out), "--model", str(quick), "--json"]
    child = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        end = time.monotonic() + 60
        while not (out.exists() and out.stat().st_size > 50_000):  # a video is in it
            assert time.monotonic() < end
            assert child.poll() is None
            time.sleep(0.02)
        os.killpg(child.pid, signal.SIGINT)  # as a terminal does: to all processes of the command
        assert child.wait(30) == 130
    finally:
        child.kill()
        _, expected = child.communicate()
    assert expected.decode() == "interrupted; run the same command again to go on\n"
    with FeatureFile.open(out) as file:
        file.verify()
        done = set(file.ids)
    assert 0 < len(done) < 1500
    for number in range(20, 1500):
        (folder / f"{number:04}.mp4").unlink()
    code, text, _ = run(capsys, "extract", folder, "-o", out, "--model", quick, "--json")
    report = json.loads(text)
    assert code == 0
    assert len(report["done"]) + len(report["skipped"]) == 20
    assert set(report["skipped"]) <= done


@pytest.mark.parametrize(("command", "again"), [("frames", True), ("make-benchmark", True), ("demo", False)])
def test_an_interrupt_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    again: bool,
) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hapvr.batch.find_videos", interrupt)
    monkeypatch.setattr("hapvr.demo.run_demo", interrupt)
    arguments: dict[str, list[object]] = {
        "frames": [tmp_path, "-o", tmp_path / "x"],
        "make-benchmark": [tmp_path, tmp_path.parent / "x"],
    }
    code, text, words = run(capsys, command, *arguments.get(command, ["--output", tmp_path, "--json"]))
    assert (code, text) == (130, "")
    assert words == ("interrupted; run the same command again to go on\n" if again else "interrupted\n")


def test_what_lies_among_videos_and_is_none_is_left_out_and_counted(
    videos: Path, quick: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "real"
    (folder / "deep").mkdir(parents=True)
    (folder / "0.mp4").hardlink_to(videos / "0.mp4")
    (folder / "deep" / "unnamed").hardlink_to(videos / "1.mp4")
    for name in ("readme.TXT", "Thumbs.db", "deep/0.srt"):
        (folder / name).write_text("no video")
    code, text, _ = run(capsys, "frames", folder, "-o", tmp_path / "packed", "--short-side", 64)
    assert code == 0
    assert text.startswith("2 done (")
    assert text.endswith("\n3 files that are no videos were skipped\n")
    code, text, _ = run(capsys, "extract", folder, "-o", tmp_path / "f.h5", "--model", quick, "--json")
    report = json.loads(text)
    assert (code, sorted(report["done"]), report["other_files"]) == (0, ["0.mp4", "deep/unnamed"], 3)
    command = ["make-benchmark", folder, tmp_path / "made", "--queries", 1, "--kind", "flip", "--workers", 1]
    code, text, _ = run(capsys, *command, "--json")
    assert (code, json.loads(text)["database"], json.loads(text)["other_files"]) == (0, 2, 3)
    code, text, _ = run(capsys, *command)
    assert text.endswith("\n3 files that are no videos were skipped\n")
    named = folder / "readme.TXT"
    code, text, _ = run(capsys, "frames", folder, named, "-o", tmp_path / "packed", "--short-side", 64, "--json")
    report = json.loads(text)
    assert (code, [failure["id"] for failure in report["failed"]], report["other_files"]) == (1, ["readme.TXT"], 2)


@pytest.mark.parametrize("place", ["source", "source/made", ".", "other", "other/deep", "link/made"])
@pytest.mark.parametrize("option", ["--distractors", "--hosts"])
def test_a_benchmark_never_lies_among_its_sources(
    videos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str, option: str
) -> None:
    for name, file in (("source", "0.mp4"), ("other", "1.mp4")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).hardlink_to(videos / file)
    (tmp_path / "link").symlink_to(tmp_path / "source")
    before = sorted(tmp_path.rglob("*"))
    code, _, words = run(
        capsys, "make-benchmark", tmp_path / "source", tmp_path / place, option, tmp_path / "other", "--kind", "flip"
    )
    assert code == 2
    assert "overlap: copies would lie among the originals" in words
    assert sorted(tmp_path.rglob("*")) == before


def test_frames_are_packed(videos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, _ = run(capsys, "frames", videos, "-o", tmp_path / "packed", "--short-side", 64)
    assert code == 0
    assert sorted(PackedFrames.open(tmp_path / "packed").ids) == ["0.mp4", "1.mp4"]


def test_frames_are_packed_at_a_true_rate_however_short_a_video_is(
    videos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = {}
    for name, words in (("usual", []), ("true", ["--min-frames", 0]), ("few", ["--min-frames", 6])):
        run(capsys, "frames", videos, "-o", tmp_path / name, "--short-side", 64, "--fps", 1, *words)
        packed = PackedFrames.open(tmp_path / name)
        counts[name] = (packed.lengths["0.mp4"], packed.attributes)
    seconds = round(float(PackedFrames.open(tmp_path / "usual").entry("0.mp4").timestamps[-1])) or 1
    assert counts["true"] == (seconds, {"fps": 1.0, "min_frames": 0})
    assert counts["few"] == (6, {"fps": 1.0, "min_frames": 6})
    assert counts["usual"][0] > 6
    assert counts["usual"][1] == {"fps": 1.0}  # as it was: older folders can be continued


def test_a_benchmark_is_made(videos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_clip(draw_scene(7, seconds=3, fps=4, size=(128, 160)), tmp_path / "host.mp4")
    (tmp_path / "same.json").write_text(json.dumps([["0.mp4", "1.mp4"]]))
    code, text, _ = run(
        capsys, "make-benchmark", videos, tmp_path / "made", "--queries", 2, "--json", "--workers", 1,
        "--hosts", tmp_path / "host.mp4", "--duplicates", tmp_path / "same.json", "--kind", "flip", "--kind", "insert",
    )  # fmt: skip
    assert code == 0
    assert json.loads(text)["queries"] == 4
    truth = json.loads((tmp_path / "made" / "ground_truth.json").read_text())
    assert {query["kind"] for query in truth["queries"].values()} == {"flip", "insert"}
    assert all(query["positives"] == ["0", "1"] for query in truth["queries"].values())
    assert truth["database"].keys() == {"0", "1"}


def test_a_benchmark_with_lookalikes_sources_and_cards_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "videos").mkdir()
    for seed in range(3):
        write_clip(draw_scene(seed, seconds=13, fps=3, size=(48, 64)), tmp_path / "videos" / f"{seed}.mp4")
    (tmp_path / "sources.csv").write_text("file,source\n0.mp4,tv\n1.mp4,tv\n")
    code, text, _ = run(
        capsys, "make-benchmark", tmp_path / "videos", tmp_path / "made", "--queries", 1, "--json", "--workers", 1,
        "--kind", "trim", "--lookalikes", "--origins", tmp_path / "sources.csv", "--shared-cards", 1,
    )  # fmt: skip
    assert code == 0
    assert json.loads(text)["database"] == 5  # two of three are cut
    truth = json.loads((tmp_path / "made" / "ground_truth.json").read_text())
    assert truth["origins"]["1--trim"] == {"videos": ["1"], "sources": ["tv"]}
    assert {id for ids in truth["shared"].values() for id in ids} == {"0", "1", "2", "0--trim", "1--trim", "2--trim"}


def test_long_films_are_made_from_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "videos").mkdir()
    for seed in range(2):
        write_clip(draw_scene(seed, seconds=15, fps=4, size=(48, 64)), tmp_path / "videos" / f"{seed}.mp4")
    command = ["make-benchmark", tmp_path / "videos", tmp_path / "made", "--long-films", 1, "--film-minutes", 0.5]
    command += ["--queries", 1, "--kind", "flip", "--workers", 1, "--json"]
    code, text, _ = run(capsys, *command)
    assert (code, json.loads(text)["queries"], json.loads(text)["database"]) == (0, 1, 1)
    code, _, words = run(capsys, *command, "--shared-cards", 0.2)
    assert code == 2
    assert "long films have no look-alikes, origins or shared cards" in words


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('[["0.mp4", "2.mp4"]]', r"names '2\.mp4', which is not in the folder; did you mean"),
        ('{"0.mp4": 1}', "must hold a list of lists"),
        ("[[", "cannot be read as JSON"),
    ],
)
def test_bad_groups_of_duplicates_are_a_usage_error(
    videos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, expected: str
) -> None:
    (tmp_path / "same.json").write_text(content)
    code, _, words = run(capsys, "make-benchmark", videos, tmp_path / "made", "--duplicates", tmp_path / "same.json")
    assert code == 2
    assert re.search(expected, words)


def test_a_missing_folder_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, words = run(capsys, "extract", tmp_path / "nowhere", "-o", tmp_path / "f.h5")
    assert code == 2
    assert "is not there" in words


def test_features_go_into_a_folder_that_is_there_and_over_no_video(
    videos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (videos / "0.mp4").read_bytes()
    for out, expected in ((tmp_path / "deep" / "f.h5", "Make it first"), (videos / "0.mp4", "would overwrite")):
        code, _, words = run(capsys, "extract", videos, "-o", out)
        assert (code, expected in words) == (2, True)
    assert not (tmp_path / "deep").exists()
    assert (videos / "0.mp4").read_bytes() == before
