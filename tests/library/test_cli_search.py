"""`hapvr search` with drawn films, a real decoder and the shipped model."""

from __future__ import annotations

import dataclasses
import inspect
import json
from pathlib import Path

import pytest
from PIL import Image

from hapvr.cli.search import search
from hapvr.library import Library
from hapvr.model import load
from hapvr.server.schemas import SearchOptions
from hapvr.synthetic.clip import Clip
from hapvr.synthetic.clip_files import write_clip
from hapvr.synthetic.films import draw_scene
from tests.library.conftest import Run

VERDICT = {"match", "probability", "prior", "false_per_million", "words"}
HIT = {"id", "path", "score", "segments", "best", "warnings"} | VERDICT


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two films in a folder and in a library, and beside them the mirrored middle of the first, and a picture of it."""
    folder = tmp_path_factory.mktemp("search")
    (folder / "films").mkdir()
    one, other = (draw_scene(seed, seconds=8, fps=4, size=(112, 144)) for seed in (1, 2))
    write_clip(one, folder / "films" / "one.mp4")
    write_clip(other, folder / "films" / "<other>.mp4")
    write_clip(Clip(one.images[8:24, :, ::-1].copy(), one.fps), folder / "middle.mp4")
    Image.fromarray(other.images[16]).save(folder / "still.png")
    with Library.open(folder / "library", create=True) as library:
        assert library.add([folder / "films"], workers=1).added == 2
    return folder


def test_the_options_of_command_and_rest_have_the_defaults_of_the_method() -> None:
    options, arguments = (inspect.signature(function).parameters for function in (search, Library.search))
    for name in options.keys() & arguments.keys() - {"library", "query"}:
        assert options[name].default == arguments[name].default, name
    assert options.keys() - arguments.keys() == {"as_json", "page"}
    for name, field in SearchOptions.model_fields.items():
        assert name not in arguments or field.default == arguments[name].default, name


def test_finds_a_mirrored_part_and_where_it_is_from(films: Path, run: Run) -> None:
    code, out, err = run("search", films / "library", films / "middle.mp4")
    assert code == 0
    assert "one.mp4" in out.splitlines()[0]
    assert " s of the query is " in out.splitlines()[1]
    assert "2 of 2 videos compared exactly" in err

    page = films / "page.html"
    part = ("--from", 1, "--to", 3, "--json", "--html", page, "--exact", "-k", 2)
    code, out, err = run("search", films / "library", films / "middle.mp4", *part)
    answer = json.loads(out)
    assert (code, err) == (0, "")
    assert set(answer) == {"hits", "database", "scored", "seconds", "note", "prior", "warnings"}
    best = answer["hits"][0]
    assert set(best) == HIT
    assert best["path"].endswith("one.mp4")
    assert best["segments"][0]["query"] == pytest.approx([1, 3], abs=0.4)
    assert best["segments"][0]["target"] == pytest.approx([3, 5], abs=0.4)
    text = page.read_text()
    assert text.count("<section") == 2
    assert "from 1 s to 3 s" in text
    assert "&lt;other&gt;.mp4" in text
    assert "<other>" not in text
    assert "http" not in text


def test_a_black_picture_finds_nothing_and_says_why(films: Path, run: Run) -> None:
    Image.new("RGB", (160, 120)).save(films / "black.png")
    code, out, _ = run("search", films / "library", films / "black.png")
    assert (code, len(out.splitlines())) == (0, 1)
    assert "no informative frames" in out
    code, out, _ = run("search", films / "library", films / "black.png", "--json", "--exact")
    answer = json.loads(out)
    assert (code, answer["hits"], "no informative frames" in answer["note"]) == (0, [], True)


def test_a_picture_and_an_id_are_queries(films: Path, run: Run) -> None:
    _, out, _ = run("search", films / "library", films / "still.png", "--json", "-k", 1)
    found = json.loads(out)["hits"][0]
    assert found["path"].endswith("<other>.mp4")
    code, out, _ = run("search", films / "library", found["id"], "--json", "--html", films / "id.html")
    answer = json.loads(out)
    assert (code, answer["database"]) == (0, 1)
    assert [hit["path"].endswith("one.mp4") for hit in answer["hits"]] == [True]
    assert (films / "id.html").is_file()


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
    model = dataclasses.replace(load(), calibration=None)
    monkeypatch.setattr(Library, "model", property(lambda _: model))
    code, out, err = run("search", films / "library", films / "middle.mp4", "--min-probability", 0.5)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"hapvr calibrate {films / 'library'}" in err
