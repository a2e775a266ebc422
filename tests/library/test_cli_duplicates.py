"""`hapvr duplicates` and `hapvr calibrate`, with drawn films, a real decoder and the shipped model."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from hapvr.actions import read_plan
from hapvr.judge.judge import Judge
from hapvr.judge.recalibration import JudgeCalibration
from hapvr.library import CalibrationReport, JudgeCalibrationReport, Library
from hapvr.library.duplicates import MIN_PROBABILITY
from hapvr.library.judge_calibration import VerdictCounts
from hapvr.similarity.calibration import fit_calibration
from hapvr.synthetic.clip import Clip
from hapvr.synthetic.clip_files import write_clip
from hapvr.synthetic.films import draw_scene
from tests.judge.toy_judge import make_judge
from tests.library.conftest import Run


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A film, a darker copy, the same file again, a clip of it, and another film."""
    folder = tmp_path_factory.mktemp("films")
    film = draw_scene(3, seconds=6, fps=3, size=(112, 160))
    write_clip(film, folder / "film.mp4")
    write_clip(Clip((film.images * 0.7).astype("uint8"), film.fps), folder / "<dark>\x1b copy.mp4", crf=32)
    write_clip(Clip(film.images[5:15], film.fps), folder / "clip.mp4")
    write_clip(draw_scene(4, seconds=6, fps=3, size=(112, 160)), folder / "other.mp4")
    shutil.copy(folder / "film.mp4", folder / "same.mp4")
    path = folder / "library"
    with Library.open(path, create=True, codec="float16") as opened:
        assert opened.add([folder]).added == 5
    return path


@pytest.fixture(autouse=True)
def _judge(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model has a judge of plain numbers here: what it calls a copy does not change with the next fit."""
    monkeypatch.setattr(Judge, "from_part", lambda _: make_judge())


def test_what_is_added_keeps_its_pixels(library: Path) -> None:
    with Library.open(library) as opened:
        kept = {record.path.rsplit("/", 1)[-1]: opened.features(record.id).miniatures for record in opened.videos()}
    film, dark, other = (kept[name] for name in ("film.mp4", "<dark>\x1b copy.mp4", "other.mp4"))
    assert film is not None
    assert dark is not None
    assert other is not None
    # The darker copy shows what the film does, times 0.7.
    assert abs(dark.astype(float) - 0.7 * film).mean() < 5 < abs(other.astype(float)[: len(film)] - film).mean()


def test_the_text_names_groups_parts_and_what_to_keep(library: Path, run: Run) -> None:
    code, out, err = run("duplicates", library)
    assert code == 0
    assert "group 1: 3 copies" in out
    assert "<dark>\\x1b copy.mp4" in out
    assert re.search(r"film\.mp4  keep", out)
    assert "the same bytes" in out
    assert "they are equally good" in out or "highest bitrate" in out
    assert re.search(r"clip\.mp4 is 0:0[12]\.\d-0:0[45]\.\d of .*\.mp4  probability \d", out)
    assert "other.mp4" not in out
    assert re.search(rf"\d of 6 pairs compared, links with a probability of at least {MIN_PROBABILITY}", err)


def test_json_csv_and_page_say_the_same(library: Path, run: Run, tmp_path: Path) -> None:
    table, page = tmp_path / "links.csv", tmp_path / "page.html"
    code, out, _ = run("duplicates", library, "--json", "-o", table, "-o", tmp_path / "all.json", "--html", page)
    assert code == 0
    content = json.loads(out)
    (group,) = content["groups"]
    assert len(group["videos"]) == 3
    kinds = sorted(link["kind"] for link in group["links"] + content["links"])
    listed = list(csv.DictReader(io.StringIO(table.read_text())))
    assert sorted(row["kind"] for row in listed) == kinds
    assert {"identical", "duplicate", "contained"} <= set(kinds)
    text = page.read_text()
    assert "Group 1: 3 copies" in text
    assert text.count("the same bytes") == 1
    assert re.search(r"copy, probability \d+\.\d%, score 0\.\d+.*\. Along \d+ frames ", text)
    assert "&lt;dark&gt;\x1b copy.mp4" in text
    assert "<dark>" not in text
    assert text.count("data:image/jpeg;base64,") >= 5 * 6  # three copies, a clip and its whole
    assert not re.search(r"(src|href)=['\"](?!data:)", text)  # on its own
    written = json.loads((tmp_path / "all.json").read_text())
    assert {**written, "seconds": 0} == {**content, "seconds": 0}


def test_what_is_marked_is_left_out(library: Path, run: Run) -> None:
    ids = {Path(record.path).stem: record.id for record in Library.open(library).videos()}
    assert run("duplicates", library, "--distinct", ids["clip"], ids["film"])[1] == "they are marked as distinct\n"
    again = run("duplicates", library, "--distinct", ids["film"], ids["clip"], "--json")
    assert json.loads(again[1]) == {"changed": False}
    try:
        code, out, _ = run("duplicates", library)
        assert code == 0
        assert "1 left out that were marked as distinct" in out
    finally:
        assert run("duplicates", library, "--undo-distinct", ids["film"], ids["clip"])[0] == 0
    assert run("duplicates", library, "--distinct", ids["film"], "nobody")[0] == 2


def test_a_plan_is_written_reviewed_and_remembers_what_is_distinct(library: Path, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "plan.csv"
    code, out, err = run("duplicates", library, "--plan", file, "--action", "trash")
    assert code == 0
    assert "group 1: 3 copies" in out
    plan = read_plan(file)
    found = {(row.group, Path(row.path).stem): (row.action, row.kind) for row in plan.rows}
    assert found["1", "film"] == ("keep", "")
    assert found["1", "same"] == ("trash", "identical")
    assert found["1", "<dark>\x1b copy"] == ("none", "unsure")  # its colours differ, and either may be the edit
    clips = [place for place in found if place[1] == "clip"]
    assert all(found[place] == ("none", "clip") for place in clips)
    assert clips
    size = next(row.size for row in plan.rows if "same" in row.path)
    assert f"{len(plan.groups)} groups, 1 file with an action, {size / 1000:.1f} kB to save" in err
    assert f"hapvr apply {file} --trash --dry-run" in err
    code, out, _ = run("apply", file, "--hardlink", "--dry-run", "--json")
    assert code == 0
    (chosen,) = json.loads(out)["files"]
    assert Path(chosen["path"]).name == "same.mp4"
    code, out, _ = run("duplicates", library, "--kinds", "clip", "--plan", file, "--folder", library.parent)
    assert code == 0
    assert "0 groups of copies" in out
    assert {row.action for row in read_plan(file).rows} == {"keep", "move"}
    group = read_plan(file).rows[0].group
    assert "hapvr duplicates" not in run("duplicates", library, "--max-size", "1kB", "--plan", file)[2]
    assert not read_plan(file).rows
    run("duplicates", library, "--kinds", "clip", "--plan", file)
    assert run("duplicates", library, "--distinct-plan", file)[0] == 2  # nothing in it is called distinct
    marked = run("duplicates", library, "--distinct-plan", file, "--group", group, "--json")
    try:
        pairs = json.loads(marked[1])["pairs"]
        assert json.loads(marked[1]) == {"changed": pairs, "pairs": pairs}
        assert f"{pairs} left out that were marked as distinct" in run("duplicates", library)[1]
    finally:
        code, out, _ = run("duplicates", library, "--undo-distinct-plan", file, "--group", group)
    assert out == f"{pairs} pairs are no longer marked\n"
    assert "no group 77" in run("duplicates", library, "--distinct-plan", file, "--group", "77")[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--kinds", "all"], "--kinds must be among identical"),
        (["--action", "delete"], "must be one of move, trash"),
        (["--min-size", "big"], "500MB"),
        (["--min-length", "5", "--max-length", "4"], "--min-length must not be above --max-length; got 5 and 4."),
        (["--group", "1"], "give --distinct-plan"),
        (["--plan", "nowhere/plan.csv"], "Make it first"),
        (["--min-probability", "7"], "--min-probability must be"),
        (["-o", "links.txt"], "written as .json, or its links as .csv"),
        (["-o", "a.json", "--html", "a.json"], "which is written as well"),
        (["--html", "nowhere/page.html"], "Make it first"),
        (["--since", "tuesday"], "Invalid value"),
    ],
)
def test_what_makes_no_sense_is_one_line(library: Path, run: Run, arguments: list[str], message: str) -> None:
    code, out, err = run("duplicates", library, *arguments)
    assert code == 2
    assert message in err
    assert out == ""


def test_since_and_no_library(library: Path, run: Run, tmp_path: Path) -> None:
    code, out, _ = run("duplicates", library, "--since", "2999-01-01")
    assert code == 0
    assert "0 groups of copies, 0 other links among 5 videos" in out
    code, _, err = run("duplicates", tmp_path / "nothing")
    assert code == 2
    assert "does not exist" in err


def test_calibrate_refuses_a_library_that_is_too_small(library: Path, run: Run) -> None:
    code, _, err = run("calibrate", library)
    assert code == 2
    assert "at least 16 different videos" in err


def test_calibrate_prints_what_it_is_too_weak_for(library: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    fitted = fit_calibration(rng.uniform(0.6, 1, 40), rng.uniform(0, 0.4, 300))
    report = CalibrationReport(fitted, (), {}, (), 1000, 1.0, ("among 1,000 videos it is weak.",))
    monkeypatch.setattr(Library, "calibrate", lambda *_, **__: report)
    code, out, err = run("calibrate", library)
    assert code == 0
    assert out.startswith("fitted on 40 edited copies and 300 pairs without a match\n")
    assert "warning: among 1,000 videos it is weak." in err
    assert json.loads(run("calibrate", library, "--json")[1])["warnings"] == ["among 1,000 videos it is weak."]


def test_calibrate_prints_verdicts_before_and_after(library: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = JudgeCalibration("digest", -0.5, 0.9, ((0.0, 10.0),), 40, 1200, 60)
    before, after = VerdictCounts(39, 3, 1.5, 250.0), VerdictCounts(38, 1, 251.0, 83.0)
    kinds = {"crop": (18, 20), "none": (20, 20)}
    warnings = ("1 of the edited copies are no longer called copies.",)
    report = JudgeCalibrationReport(fitted, before, after, kinds, 2, (), 60, 1.0, warnings)
    monkeypatch.setattr(Library, "calibrate", lambda *_, **__: report)
    code, out, err = run("calibrate", library)
    assert code == 0
    assert "fitted on 40 edited copies and 1,200 pairs" in out
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.startswith(("before", "after"))}
    assert rows == {"before": ["97.5%", "3", "1.5", "250.0"], "after": ["95.0%", "1", "251.0", "83.0"]}
    assert "not all copies are found of: crop (18 of 20)" in out
    assert "2 pairs left out" in out
    assert "no longer called copies" in err
    content = json.loads(run("calibrate", library, "--json")[1])
    assert content["before"] == {"found": 39, "false": 3, "promised": 1.5, "measured": 250.0}
    assert content["kinds"]["crop"] == {"found": 18, "of": 20}
