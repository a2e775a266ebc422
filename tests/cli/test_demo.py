from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from hapvr import demo
from hapvr.cli import demo as command
from hapvr.cli import main


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """A small demo: two films, a copy of each (one inserted into another video), one video that is a copy of none."""
    copies = ((1, "flip"), (2, "insert"), (None, "crop"))
    folder = tmp_path_factory.mktemp("demo")
    said: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "FILMS", 2)
        patch.setattr(demo, "SECONDS", 8.0)
        patch.setattr(demo, "COPIES", copies)
        patch.setattr("typer.echo", said.append)
        with pytest.raises(SystemExit) as left:
            main(["demo", "--output", str(folder), "--json"])
    assert left.value.code == 0
    read: dict[str, object] = json.loads("".join(said))
    return read


def rows(result: dict[str, object]) -> list[dict[str, object]]:
    copies = result["copies"]
    assert isinstance(copies, list)
    return copies


def test_the_demo_finds_the_originals(result: dict[str, object]) -> None:
    assert [row["film"] for row in rows(result)] == ["film-01", "film-02", None]
    for row in rows(result)[:2]:
        assert row["best"] == row["film"]
        assert row["right"] is True
        assert isinstance(row["agreement"], float)
        assert row["agreement"] > 0.6
    assert result["right"] == sum(bool(row["right"]) for row in rows(result))
    assert result["mAP"] == 1


def test_an_inserted_clip_leads_to_its_film_and_an_unrelated_video_to_none(result: dict[str, object]) -> None:
    _, inserted, unrelated = rows(result)
    assert (inserted["film"], inserted["best"], inserted["match"]) == ("film-02", "film-02", True)
    assert (unrelated["film"], unrelated["match"], unrelated["right"]) == (None, False, True)


def test_films_and_copies_are_files(result: dict[str, object]) -> None:
    folder = Path(str(result["folder"]))
    assert sorted(path.name for path in (folder / "films").iterdir()) == [f"film-0{n}.mp4" for n in (1, 2)]
    assert sorted(path.stem for path in (folder / "copies").iterdir()) == [row["copy"] for row in rows(result)]


def test_the_report_stands_on_its_own(result: dict[str, object]) -> None:
    page = Path(str(result["report"])).read_text()
    parser = HTMLParser()
    parser.feed(page)
    parser.close()
    assert "http" not in page
    assert page.count('class="entry"') == len(rows(result))
    assert page.count("data:image/png") == len(rows(result))
    for row in rows(result):
        assert str(row["copy"]) in page
    assert "stroke-dasharray" in page  # the truth


def test_the_table_and_the_words(result: dict[str, object], capsys: pytest.CaptureFixture[str]) -> None:
    command._print(result)
    out = capsys.readouterr().out
    assert "01-flip" in out
    assert "2 of 2 copies led to their film, 2 also to the place" in out
    assert "0 of 1 unrelated videos matched a film by mistake" in " ".join(out.split())
    assert "report.html" in out


def test_the_table_fits_80_columns(result: dict[str, object], capsys: pytest.CaptureFixture[str]) -> None:
    longest = max((f"{number:02}-{edit.replace('+', '-')}" for number, (_, edit) in enumerate(demo.COPIES, 1)), key=len)
    segment = {"query": [10.0, 12.0], "target": [10.0, 12.0], "backwards": False}
    wide = {
        "copy": longest,
        "best": "film-10",
        "score": 0.5,
        "film": None,
        "match": True,
        "segments": [segment],
        "right": False,
    }
    command._print({**result, "copies": [wide]})
    out = capsys.readouterr().out
    assert longest in out
    assert "10.0-12.0 = 10.0-12.0  false match" in out
    assert max(map(len, out.splitlines()[:5])) <= 80


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"film": "a", "best": "a", "match": True, "agreement": 0.5}, ("right", "good")),
        ({"film": "a", "best": "a", "match": True, "agreement": 0.4}, ("film only", "fair")),
        ({"film": "a", "best": "a", "match": True, "agreement": 0.0}, ("film only", "fair")),
        ({"film": "a", "best": "a", "match": False, "agreement": None}, ("no match", "bad")),
        ({"film": "a", "best": "b", "match": True}, ("wrong", "bad")),
        ({"film": None, "best": "b", "match": False}, ("right, none", "good")),
        ({"film": None, "best": "b", "match": True}, ("false match", "bad")),
    ],
)
def test_verdicts(row: dict[str, object], expected: tuple[str, str]) -> None:
    assert demo.judge(row) == expected


def test_a_film_played_backwards_is_named_from_its_end() -> None:
    segment = {"query": [0.0, 2.0], "target": [3.0, 5.04], "backwards": False}
    assert command._where(segment) == "0.0-2.0 = 3.0-5.0"
    assert command._where(segment | {"backwards": True}) == "0.0-2.0 = 5.0-3.0"


def test_agreement_counts_overlaps_once() -> None:
    assert demo._agreement([(0, 10)], [(5, 10)]) == 0.5
    assert demo._agreement([(0, 4), (2, 6), (3, 5)], [(0, 6)]) == 1.0
    assert demo._agreement([], [(0, 6)]) == 0.0
    assert demo._agreement([], []) == 0.0
    assert demo._agreement([(0, 1)], [(2, 3)]) == 0.0


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit) as left:
        main(["demo", "--output", str(tmp_path / "file")])
    assert left.value.code == 2
    assert "file' cannot be written" in capsys.readouterr().err
