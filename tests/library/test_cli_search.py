"""`hapvr search` with drawn films, a real decoder and the shipped model."""

from __future__ import annotations

import csv
import dataclasses
import inspect
import io
import json
import re
import shutil
from pathlib import Path

import pytest
from PIL import Image

from hapvr.cli.search import search
from hapvr.judge.judge import Judge
from hapvr.library import Library
from hapvr.model import load
from hapvr.server.schemas.search import SearchOptions
from hapvr.synthetic.clip import Clip
from hapvr.synthetic.clip_files import write_clip
from hapvr.synthetic.films import draw_scene
from tests.judge.toy_judge import make_judge
from tests.library.conftest import Run

VERDICT = {
    "verdict", "match", "probability", "scene_probability", "prior", "false_per_million", "reason", "second_look",
    "evidence",
}  # fmt: skip
HIT = {"id", "path", "score", "segments", "best", "insets", "warnings", "sound"} | VERDICT


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two films in a folder and in a library, and beside them the mirrored middle of the first, and a picture of it."""
    folder = tmp_path_factory.mktemp("search")
    (folder / "films").mkdir()
    one, other = (draw_scene(seed, seconds=8, fps=4, size=(112, 144)) for seed in (1, 2))
    write_clip(one, folder / "films" / "one.mp4")
    write_clip(other, folder / "films" / "<other>\x1b.mp4")
    write_clip(Clip(one.images[8:24, :, ::-1].copy(), one.fps), folder / "middle.mp4")
    Image.fromarray(other.images[16]).save(folder / "still.png")
    with Library.open(folder / "library", create=True) as library:
        assert library.add([folder / "films"], workers=1).added == 2
    return folder


@pytest.fixture(autouse=True)
def _judge(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model has a judge of plain numbers here: what it calls a copy does not change with the next fit."""
    monkeypatch.setattr(Judge, "from_part", lambda _: make_judge())


def test_the_options_of_command_and_rest_have_the_defaults_of_the_method() -> None:
    options, arguments = (inspect.signature(function).parameters for function in (search, Library.search))
    for name in options.keys() & arguments.keys() - {"library", "query"}:
        assert options[name].default == arguments[name].default, name
    limits = {"folders", "min_size", "max_size", "min_length", "max_length", "after", "before"}
    assert (
        options.keys() - arguments.keys()
        == {"queries", "everything", "as_json", "output", "page", "sound", "text", "device", "ray"} | limits
    )
    for name, field in SearchOptions.model_fields.items():
        assert name not in arguments or field.default == arguments[name].default, name


def test_finds_a_mirrored_part_and_where_it_is_from(films: Path, run: Run) -> None:
    code, out, err = run("search", films / "library", films / "middle.mp4")
    assert code == 0
    first, where, why = out.splitlines()  # the other film is no match, and is not shown
    assert first.startswith("  1. copy (probability ")
    assert first.endswith("one.mp4")
    assert " s of the query is " in where
    assert re.search(r"Along \d+ frames .* Score 0\.\d+\.$", why)
    assert "2 of 2 videos compared exactly" in err

    page = films / "page.html"
    part = ("--from", 1, "--to", 3, "--json", "--html", page, "--exact", "-k", 2, "--all")
    code, out, err = run("search", films / "library", films / "middle.mp4", *part)
    answer = json.loads(out)
    assert (code, err) == (0, "")
    assert set(answer) == {
        *("query", "match", "hits", "database", "scored", "seconds", "note", "prior", "warnings", "sound_hits")
    }
    best = answer["hits"][0]
    assert set(best) == HIT
    assert best["path"].endswith("one.mp4")
    assert best["segments"][0]["query"] == pytest.approx([1, 3], abs=0.4)
    assert best["segments"][0]["target"] == pytest.approx([3, 5], abs=0.4)
    text = page.read_text()
    assert text.count("<section") == 2
    assert "from 1 s to 3 s" in text
    assert "&lt;other&gt;\x1b.mp4" in text
    assert "<other>" not in text
    assert "http" not in text


def test_no_file_is_decoded_in_the_process_that_asks(
    films: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queries, second looks, sounds and pictures of reports are decoded in a sandbox."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr("av.open", refuse)
    library, middle = films / "library", films / "middle.mp4"
    assert run("search", library, middle, "--html", tmp_path / "search.html")[0] == 0
    sides = ("compare", middle, films / "films" / "one.mp4")
    assert run(*sides, "--sound", "--html", tmp_path / "match.html", "--plot", tmp_path / "match.png")[0] == 0
    assert run("map", library, "-o", tmp_path / "map.html")[0] == 0
    for page in ("search", "match", "map"):
        assert "data:image/jpeg" in (tmp_path / f"{page}.html").read_text()


def test_a_black_picture_finds_nothing_and_says_why(films: Path, run: Run) -> None:
    Image.new("RGB", (160, 120)).save(films / "black.png")
    code, out, _ = run("search", films / "library", films / "black.png")
    assert (code, len(out.splitlines())) == (1, 1)
    assert "no informative frames" in out
    code, out, _ = run("search", films / "library", films / "black.png", "--json", "--exact")
    answer = json.loads(out)
    assert (code, answer["hits"], "no informative frames" in answer["note"]) == (1, [], True)


def test_a_picture_and_an_id_are_queries(films: Path, run: Run) -> None:
    _, out, _ = run("search", films / "library", films / "still.png", "--json", "-k", 1)
    found = json.loads(out)["hits"][0]
    assert found["path"].endswith("<other>\x1b.mp4")
    code, out, _ = run("search", films / "library", found["id"], "--json", "--html", films / "id.html")
    answer = json.loads(out)
    assert (code, answer["database"], answer["match"]) == (1, 1, False)
    assert [hit["path"].endswith("one.mp4") for hit in answer["hits"]] == [True]
    assert (films / "id.html").is_file()


def test_a_picture_is_told_its_instant(films: Path, run: Run) -> None:
    code, out, _ = run("search", films / "library", films / "still.png")
    first, where, _ = out.splitlines()
    assert (code, first.startswith("  1. copy (probability "), first.endswith("<other>\\x1b.mp4")) == (0, True, True)
    assert re.fullmatch(r"       most alike at (3\.9|4\.[0-2]) s \(similarity (0\.9\d|1\.00)\)", where)


def test_without_a_match_the_nearest_are_named_and_the_exit_code_is_1(films: Path, run: Run) -> None:
    write_clip(draw_scene(7, seconds=5, fps=4, size=(112, 144)), films / "stranger.mp4")
    code, out, _ = run("search", films / "library", films / "stranger.mp4")
    first, *rest = out.splitlines()
    assert (code, first) == (1, "no match; the nearest are")
    assert len([line for line in rest if re.match(r"  \d\. ", line)]) == 2  # there are no more
    assert "probability of a copy" in rest[0]
    assert not any(" s of the query is " in line for line in rest)
    everything = run("search", films / "library", films / "middle.mp4", "--all")
    assert everything[0] == 0
    assert everything[1].startswith("  1. copy ")
    assert sum(line[2:3].isdigit() for line in everything[1].splitlines()) == 2
    sure = run("search", films / "library", films / "stranger.mp4", "--min-probability", 0.9)
    assert sure[:2] == (1, "no match\n")


def test_a_folder_of_queries_is_searched_in_one_run(films: Path, run: Run, tmp_path: Path) -> None:
    (films / "queries" / "more").mkdir(parents=True)
    for name in ("middle.mp4", "still.png"):
        shutil.copy(films / name, films / "queries" / name)
    write_clip(draw_scene(7, seconds=5, fps=4, size=(112, 144)), films / "queries" / "more" / "=stranger.mp4")
    lines, table = tmp_path / "found.jsonl", tmp_path / "found.csv"
    outputs = ("-o", lines, "-o", table)
    code, out, err = run("search", films / "library", films / "queries", *outputs)
    assert code == 0
    heads = [line for line in out.splitlines() if line.startswith("/")]
    folder = films / "queries"
    assert heads == [
        f"{folder}/middle.mp4: 1 match",
        f"{folder}/more/=stranger.mp4: no match; the nearest are",
        f"{folder}/still.png: 1 match",
    ]
    assert err.splitlines()[-1] == "3 queries: 2 with a match, 1 without"
    answers = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [(Path(one["query"]).name, one["match"]) for one in answers] == [
        ("middle.mp4", True), ("=stranger.mp4", False), ("still.png", True),
    ]  # fmt: skip
    assert [len(one["hits"]) for one in answers] == [2, 2, 2]  # all of them; `match` tells which are matches
    rows = list(csv.DictReader(io.StringIO(table.read_text())))
    assert [(Path(row["query"]).name, row["verdict"], Path(row["path"]).name) for row in rows] == [
        ("middle.mp4", "copy", "one.mp4"), ("=stranger.mp4", "no match", ""), ("still.png", "copy", "<other>\x1b.mp4"),
    ]  # fmt: skip
    hit = answers[0]["hits"][0]
    assert float(rows[0]["probability"]) == pytest.approx(hit["probability"], rel=1e-5)
    assert float(rows[0]["target_from"]) == pytest.approx(hit["segments"][0]["target"][0], abs=0.01)
    assert rows[2]["target_from"] == rows[2]["target_to"]  # an instant

    # One query alone says the same.
    alone = json.loads(run("search", films / "library", films / "queries" / "middle.mp4", "--json")[1])
    assert {**alone, "seconds": 0} == {**answers[0], "seconds": 0}


def test_a_query_that_cannot_be_read_is_counted_and_stops_nothing(films: Path, run: Run, tmp_path: Path) -> None:
    (tmp_path / "text.mp4").write_text("no video")
    table = tmp_path / "found.csv"
    queries = (tmp_path / "text.mp4", films / "middle.mp4", "nobody")
    code, out, err = run("search", films / "library", *queries, "-o", table)
    assert code == 2
    assert out.startswith(f"{films}/middle.mp4: 1 match\n")
    assert "text.mp4: " in err
    assert "neither a file nor the id" in err
    assert err.splitlines()[-1] == "3 queries: 1 with a match, 0 without, 2 could not be read"
    rows = list(csv.DictReader(io.StringIO(table.read_text())))
    assert [bool(row["error"]) for row in rows] == [True, False, True]
    code, out, err = run("search", films / "library", *queries, "--json")
    answers = [json.loads(line) for line in out.splitlines()]
    assert [("error" in one, one["match"]) for one in answers] == [(True, False), (False, True), (True, False)]
    (tmp_path / "empty").mkdir()
    for arguments, said in (
        ((tmp_path / "empty",), "no video in the folder"),
        ((*queries, "--html", tmp_path / "page.html"), "hits of one query"),
        ((*queries, "-o", tmp_path / "found.txt"), ".jsonl or .csv"),
        ((*queries, "-o", films / "middle.mp4"), ".jsonl or .csv"),
        ((*queries, "-k", 0), "k must be"),
    ):
        code, out, err = run("search", films / "library", *arguments)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert said in err


def test_a_hit_whose_file_is_gone_is_named_on_the_page(films: Path, run: Run) -> None:
    gone = (films / "films" / "one.mp4").rename(films / "away.mp4")
    try:
        code, out, _ = run("search", films / "library", films / "middle.mp4", "--html", films / "gone.html")
    finally:
        gone.rename(films / "films" / "one.mp4")
    assert code == 0
    assert "one.mp4" in out.splitlines()[0]
    assert "cannot be shown" in (films / "gone.html").read_text()


def test_what_is_refused_is_one_line(films: Path, run: Run) -> None:
    clip, library = films / "middle.mp4", films / "library"
    (films / "text.mp4").write_text("no video")
    for arguments, said in (
        ((library, films / "none.mp4"), "There is no such file"),
        ((library, "none.mp4"), "There is no such file: 'none.mp4'."),
        ((library, "000000000000"), "neither a file nor the id of a video in the library: it has 2,"),
        ((library, clip, "--prior", 1), "prior must be"),
        ((library, films / "text.mp4"), "text.mp4"),
        ((library, clip, "--from", 90), "no frame"),
        ((library, clip, "-k", 0), "k must be"),
        ((films / "films", clip), "no library"),
        ((library, clip, "--html", clip), "middle.mp4"),
        ((library, clip, "--html", films / "films" / "one.mp4"), "would overwrite"),  # it is in the library
    ):
        code, out, err = run("search", *arguments)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert said in err


def test_without_a_calibration_the_way_to_one_is_named(films: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    model = dataclasses.replace(load(), calibration=None, judge=None)
    monkeypatch.setattr(Library, "model", property(lambda _: model))
    code, out, err = run("search", films / "library", films / "middle.mp4", "--min-probability", 0.5)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"hapvr calibrate {films / 'library'}" in err
