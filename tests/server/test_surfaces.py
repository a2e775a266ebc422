"""One pair, one answer: the command line, Python, REST and pages say the same of the same two videos."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hapvr.cli import main
from hapvr.library import Library
from hapvr.reports.match_page import save_matches
from hapvr.synthetic.films import draw_scene
from tests.video import media

from .driving import Place

Json = Callable[..., Any]


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Json:
    """What a command prints as JSON."""

    def run(*arguments: object) -> Any:
        with pytest.raises(SystemExit) as end:
            main([*map(str, arguments), "--json"])
        assert end.value.code in (0, 1)  # 1: a search without a match
        return json.loads(capsys.readouterr().out)

    return run


def hit_of(answer: dict[str, Any], id: str) -> dict[str, Any]:
    (hit,) = [hit for hit in answer["hits"] if hit["id"] == id]
    return dict(hit)


def same(answers: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The verdict that all surfaces agree on.

    A second look is bounded in time: on a busy machine one may see fewer instants; then only scores can be compared.
    """
    first = next(iter(answers.values()))
    looks = {answer["evidence"].get("second_look_instants") for answer in answers.values()}
    names = (
        ("score", "probability", "scene_probability", "prior", "false_per_million") if len(looks) == 1 else ("score",)
    )
    for surface, answer in answers.items():
        for name in names:
            assert answer[name] == pytest.approx(first[name], abs=1e-6), (surface, name)
        for name in ("verdict", "match", "reason", "second_look") if len(looks) == 1 else ():
            assert answer[name] == first[name], (surface, name)
        assert [one["query"] for one in answer["segments"]] == [one["query"] for one in first["segments"]], surface
        assert [one["target"] for one in answer["segments"]] == [one["target"] for one in first["segments"]], surface
        assert answer["best"] == pytest.approx(first["best"], abs=1e-5), surface
    return first


def test_every_surface_says_the_same_of_a_file_and_an_indexed_video(own: Place, printed: Json) -> None:
    clip, place, ids = own.folder / "clip.mp4", own.folder / "library", own.ids()
    film = ids["film 1.mp4"]
    with Library.open(place) as library:
        result = library.search(clip)
        matches, missing = library.explain_hits(str(clip), result)
        assert missing == []
        found = [one for one in matches if one.target.path.endswith("film 1.mp4")]
        answers = {
            "Library.search": hit_of(result.to_json(), film),
            "Library.compare": library.compare(clip, film).to_json(),
            "Library.compare by path": library.compare(clip, own.folder / "films" / "film 1.mp4").to_json(),
            "search --html": found[0].to_json(),
        }
        page = save_matches(matches, own.folder / "hits.html", title="hits", summary="").read_text()
        assert f"<strong>{result.hits[0].score:.3f}</strong>" in page
    answers["hapvr compare"] = printed("compare", clip, film, "--library", place)
    answers["hapvr search"] = hit_of(printed("search", place, clip), film)
    begun = own.upload(clip.read_bytes())
    searched = own.ended(begun)["result"]
    answers["REST search"] = hit_of(searched, film)
    answers["REST compare"] = own.ended(own.begin("/api/compare", {"a": begun["query"], "b": film}))["result"]
    told = same(answers)
    assert 0.5 <= told["probability"] < 1
    assert (told["match"], told["prior"], searched["prior"]) == (True, 0.3, 0.3)
    assert (searched["match"], searched["hits"][0]["id"]) == (True, film)


def test_every_surface_says_the_same_of_two_indexed_videos(own: Place, printed: Json) -> None:
    place = own.folder / "library"
    clip = Path(shutil.copy(own.folder / "clip.mp4", own.folder / "films" / "clip.mp4"))
    with Library.open(place) as library:
        library.add(clip, workers=1)
    with Library.open(place) as library:  # not the server: what it knows may be a second old
        ids = {Path(record.path).name: record.id for record in library.videos()}
        a, b = ids["clip.mp4"], ids["film 1.mp4"]
        (link,) = [one for one in library.find_duplicates().links if {one.a, one.b} == {a, b}]
        assert (link.a, link.b) == (a, b)
        answers = {
            "Library.search by id": hit_of(library.search(a).to_json(), b),
            "Library.search by path": hit_of(library.search(clip).to_json(), b),
            "Library.compare": library.compare(a, b).to_json(),
        }
    answers["hapvr compare"] = printed("compare", clip, own.folder / "films" / "film 1.mp4", "--library", place)
    answers["hapvr search"] = hit_of(printed("search", place, a), b)
    answers["REST search"] = hit_of(own.ended(own.begin("/api/searches", {"id": a}))["result"], b)
    answers["REST compare"] = own.ended(own.begin("/api/compare", {"a": a, "b": b}))["result"]
    told = same(answers)
    assert 0.5 <= told["probability"] < 1
    assert link.score == pytest.approx(told["score"], abs=1e-6)
    assert link.verdict is not None
    same({"compare": told, "duplicates": told | link.verdict.to_json()})
    duplicates = own.ended(own.begin("/api/duplicates", {}))["result"]
    links = duplicates["links"] + [one for group in duplicates["groups"] for one in group["links"]]
    (found,) = [one for one in links if {one["a"], one["b"]} == {a, b}]
    assert (found["verdict"], found["reason"]) == (link.verdict.kind, link.verdict.reason)
    assert duplicates["prior"] == 0.3


def test_a_probability_does_not_depend_on_how_many_videos_there_are(own: Place) -> None:
    with Library.open(own.folder / "library") as library:
        film = own.ids()["film 1.mp4"]
        before = hit_of(library.search(own.folder / "clip.mp4", second_look=False).to_json(), film)
        library.remove([own.ids()["film 0.mp4"], own.ids()["film 2.mp4"]])
        after = hit_of(library.search(own.folder / "clip.mp4", second_look=False).to_json(), film)
        same({"before": before, "after": after})
        rare = library.search(own.folder / "clip.mp4", prior=1e-4, second_look=False)
        assert rare.prior == 1e-4
        # The same evidence at another prior: odds change as those of the priors do.
        odds = [chance / (1 - chance) for chance in (rare.hits[0].probability or 0.0, after["probability"])]
        assert odds[0] / odds[1] == pytest.approx((1e-4 / (1 - 1e-4)) / (0.3 / 0.7), rel=1e-6)


def test_a_damaged_query_and_a_damaged_video_are_said_on_every_surface(
    own: Place, tmp_path: Path, printed: Json, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = draw_scene(1, seconds=8, fps=8, size=(96, 128))
    cut = media.write(tmp_path / "cut.mp4", list(scene.images), rate=8, mux={"movflags": "faststart"})
    os.truncate(cut, cut.stat().st_size // 4)
    place, film = own.folder / "library", own.ids()["film 1.mp4"]

    def damage(warnings: Any) -> bool:
        return any("missing at the end" in text for text in warnings)

    with Library.open(place) as library:
        assert damage(library.search(cut).warnings)
        assert damage(library.search(cut, start_s=0.0, end_s=1.0).warnings) is False  # that part is whole
        assert damage(library.compare(cut, film).query.warnings)
    assert damage(printed("search", place, cut)["warnings"])
    assert damage(printed("compare", cut, film, "--library", place)["warnings"]["query"])
    for command in (("search", place, cut), ("compare", cut, film, "--library", place)):
        with pytest.raises(SystemExit):
            main([str(one) for one in command])
        assert "missing at the end" in capsys.readouterr().err
    begun = own.upload(cut.read_bytes(), name="cut.mp4")
    result = own.ended(begun)["result"]
    assert damage(result["warnings"])
    assert damage(own.ended(own.begin("/api/searches", {"id": begun["query"]}))["result"]["warnings"])  # remembered
    compared = own.ended(own.begin("/api/compare", {"a": begun["query"], "b": film}))["result"]
    assert damage(compared["warnings"]["query"])
    assert not damage(compared["warnings"]["target"])
    # And of a video that was added all the same, as long as it is there.
    shutil.copy(cut, own.folder / "films" / "cut.mp4")
    root = own.get("/api/library").json()["roots"][0]["id"]
    assert damage(one["warning"] for one in own.ended(own.begin("/api/jobs/add", {"root": root}))["result"]["warnings"])
    id = own.ids()["cut.mp4"]
    assert own.get("/api/library").json()["warned"] == 1
    (listed,) = own.get("/api/videos?warned=true").json()["videos"]
    assert (listed["id"], damage(listed["warnings"])) == (id, True)
    found = own.ended(own.begin("/api/searches", {"id": film}))["result"]
    assert damage(hit_of(found, id)["warnings"])
    assert not damage(found["warnings"])
    assert damage(own.ended(own.begin("/api/searches", {"id": id}))["result"]["warnings"])
    with Library.open(place) as library:
        assert damage(library.search(id).warnings)
        assert damage(hit_of(library.search(film).to_json(), id)["warnings"])
        assert library.info().warned == 1
    # A copy of it is no better, which `add` and `duplicates` say too.
    copy = shutil.copy(cut, own.folder / "films" / "cut again.mp4")
    with Library.open(place) as library:
        told = library.add(copy, workers=1).warnings
        assert {path for path, _ in told} == {str(copy)}
        assert damage(text for _, text in told)
        (again,) = [record.id for record in library.videos() if record.path == str(copy)]  # the server may lag a second
    with pytest.raises(SystemExit):
        main(["duplicates", str(place)])
    assert capsys.readouterr().err.count("missing at the end") == 2
    assert printed("remove", place, again) == {"removed": 1}
    status = printed("status", place)
    assert status["warned"] == 1
    assert [damage(one["warnings"]) for one in status["listed"] if one["id"] == id] == [True]
    with pytest.raises(SystemExit):
        main(["status", str(place)])
    lines = capsys.readouterr().out.splitlines()
    assert "1 added with warnings" in lines[0]
    assert any(line.startswith(id) and "missing at the end" in line for line in lines)
    with pytest.raises(SystemExit):
        main(["info", str(place)])
    assert "1 added with warnings" in capsys.readouterr().out
