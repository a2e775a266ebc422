"""`hapvr hashes`: hashes are exported from a library and from files, and found again among others'."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hapvr.library.hash_exchange import export_hashes, match_known, read_known
from hapvr.synthetic.clip import Clip
from hapvr.synthetic.clip_files import write_clip
from hapvr.synthetic.films import draw_scene
from tests.library import toy
from tests.library.conftest import Run

toys = toy.toys


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two films, a faded copy of the first, and a file that is none."""
    folder = tmp_path_factory.mktemp("hashes") / "films"
    (folder / "more").mkdir(parents=True)
    first, other = (draw_scene(seed, seconds=4, fps=8, size=(180, 240)) for seed in (1, 2))
    faded = Clip((first.images * 0.8 + 20).astype("uint8"), first.fps)
    for name, clip in (("a.mp4", first), ("more/b.mp4", other), ("copy.mp4", faded)):
        write_clip(clip, folder / name)
    (folder / "broken.mp4").write_bytes(b"nothing")
    return folder


def test_hashes_go_out_and_are_found_again(films: Path, tmp_path: Path, run: Run) -> None:
    code, out, err = run("hashes", "export", films, "-o", tmp_path / "ours", "--workers", "1")
    assert (code, out) == (1, f"12 hashes of 3 videos in {tmp_path / 'ours'}\n")
    assert "broken.mp4: " in err
    written = sorted(path.relative_to(tmp_path / "ours").as_posix() for path in (tmp_path / "ours").rglob("*.json"))
    assert written == ["a.mp4.json", "copy.mp4.json", "more/b.mp4.json"]
    signal = json.loads((tmp_path / "ours" / "a.mp4.json").read_text())
    assert [one.count(",") for one in signal] == [2] * 4

    theirs = tmp_path / "theirs.txt"
    code, out, _ = run("hashes", "export", films / "more", films / "a.mp4", "-o", theirs, "--workers", "1", "--json")
    assert (code, json.loads(out)) == (0, {"videos": 2, "frames": 8, "failed": []})
    assert [line[:6] for line in theirs.read_text().splitlines()] == ["vpdq ["] * 2

    found = tmp_path / "found.csv"
    arguments = ("hashes", "match", tmp_path / "ours", "--known", theirs, "-o", found)
    code, out, _ = run(*arguments, "--json")
    report = json.loads(out)
    assert (code, report["videos"], report["known"]) == (0, 3, 2)
    pairs = {(Path(one["query"]).name, one["known"]) for one in report["matches"]}
    assert pairs == {("a.mp4.json", f"{theirs}:2"), ("copy.mp4.json", f"{theirs}:2"), ("b.mp4.json", f"{theirs}:1")}
    assert found.read_text().splitlines()[0] == "query,known,query_percent,known_percent"
    assert len(found.read_text().splitlines()) == 4

    code, out, _ = run("hashes", "match", films / "copy.mp4", "--known", theirs, "--workers", "1")
    assert code == 0
    assert f"{films / 'copy.mp4'} matches {theirs}:2\n" in out
    other = tmp_path / "other.json"
    other.write_text(json.dumps(["0" * 64 + ",100,0.000"]))
    assert run("hashes", "match", tmp_path / "ours", "--known", other)[:2] == (
        1,
        "no match among 3 videos and the hashes of 1\n",
    )
    code, _, err = run("hashes", "match", films / "broken.mp4", "--known", other, "--workers", "1")
    assert code == 2
    assert "broken.mp4: " in err


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("export", "nothing.mp4", "-o", "out"), "'nothing.mp4' is not there"),
        (("export", "films", "-o", "out/hashes.txt"), "is no folder"),
        (("export", "films", "-o", "out", "--every", "0"), "--every must be 0.01 to 3,600 seconds, got 0"),
        (("export", "bad.json", "-o", "out"), "holds no vPDQ hashes"),
        (("match", "films", "--known", "nothing.json"), "'nothing.json' is not there"),
        (("match", "films", "--known", "films"), "There are no hashes in"),
        (("match", "films", "--known", "bad.json"), "is no frame: expected a hash of 64"),
        (("match", "films", "--known", "bad.json", "--min-quality", "200"), "must lie from 0 to 100, got 200"),
        (("match", "films", "--known", "bad.json", "-o", "x.html"), "written as .json or .csv"),
    ],
)
def test_what_cannot_be_done_is_said_before_any_work(
    films: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], what: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "films").symlink_to(films)
    (tmp_path / "bad.json").write_text('["abc,100,0.0"]')
    code, out, err = run("hashes", *arguments)
    assert (code, out) == (2, "")
    assert what in err


@pytest.mark.usefixtures("toys")
def test_the_files_of_a_library_are_hashed(films: Path, tmp_path: Path) -> None:
    with toy.make(tmp_path / "library") as library:
        library.add([toy.write(tmp_path / "toys", name, 1) for name in ("a.mp4", "b.mp4")], workers=1)
        id = library.videos()[0].id
    for name in ("a.mp4", "b.mp4"):
        (tmp_path / "toys" / name).write_bytes((films / "a.mp4").read_bytes())
    report = export_hashes([tmp_path / "library"], tmp_path / "out", workers=1)
    assert (report.videos, report.failed) == (2, ())
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [f"a.mp4.{id}.json", f"b.mp4.{id}-2.json"]
    found = match_known([tmp_path / "library"], read_known([tmp_path / "out"]), workers=1)
    assert [Path(one.query).name for one in found.matches] == ["a.mp4", "a.mp4", "b.mp4", "b.mp4"]
