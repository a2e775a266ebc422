"""A library of key frames, made, searched and rebuilt by commands, with a real decoder and the shipped model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hapvr.features import FeatureFile
from hapvr.library import Library
from hapvr.synthetic.clip import Clip
from hapvr.synthetic.clip_files import write_clip
from hapvr.synthetic.films import draw_scene
from tests.library.conftest import Run
from tests.video import media

KEY_FRAMES = {"preset": "ultrafast", "g": "16", "keyint_min": "16", "sc_threshold": "0"}


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two films of 18 s with a key frame every 2 s, one without any but the first, and the middle of the first film."""
    folder = tmp_path_factory.mktemp("keyframes")
    (folder / "films").mkdir()
    for seed in (1, 2):
        film = draw_scene(seed, seconds=18, fps=8, size=(112, 144))
        media.write(folder / "films" / f"{seed}.mp4", film.images, rate=8, options=KEY_FRAMES)
        if seed == 1:
            write_clip(Clip(film.images[48:104].copy(), film.fps), folder / "middle.mp4")
    write_clip(draw_scene(3, seconds=4, fps=8, size=(112, 144)), folder / "films" / "3.mp4")
    return folder


def test_a_library_of_key_frames(films: Path, run: Run) -> None:
    place = films / "library"
    code, out, _ = run("add", place, films / "films", "--rate", "keyframes", "--workers", "1", "--json")
    assert (code, json.loads(out)["added"]) == (0, 3)
    _, out, _ = run("info", place, "--json")
    assert json.loads(out)["keyframes"] is True
    with Library.open(place) as library:
        frames = {Path(record.path).stem: record for record in library.videos()}
        assert library.features(frames["1"].id).times.tolist() == list(range(0, 18, 2))
        assert frames["1"].duration == pytest.approx(18.0, abs=0.01)
        assert len(library.features(frames["3"].id)) >= 28  # too few key frames: read as ever

    code, out, _ = run("search", place, films / "middle.mp4", "--no-second-look", "--all", "--json")
    best = json.loads(out)["hits"][0]
    assert Path(best["path"]).stem == "1"
    assert best["match"]
    (stretch,) = best["segments"]  # nine key frames are stored, the part around three of them is read again
    assert stretch["target"] == pytest.approx([6, 13], abs=0.6)

    code, _, err = run("add", place, films / "films", "--rate", "2")
    assert code != 0
    assert "was made with the rate 'keyframes', not '2'" in err
    assert "--rate 2 --rebuild" in err
    assert run("add", place, films / "films", "--json")[0] == 0  # as it was made

    code, out, _ = run("add", place, "--rebuild", "--rate", "2", "--workers", "1", "--json")
    assert (code, json.loads(out)["added"]) == (0, 3)
    with Library.open(place) as library:
        assert not library.info().keyframes
        assert len(library.features(frames["1"].id)) == 36


@pytest.mark.parametrize("rate", ["often", "0", "-1", "nan", "1001"])
def test_a_rate_is_a_number_or_keyframes(tmp_path: Path, films: Path, run: Run, rate: str) -> None:
    code, _, err = run("add", tmp_path / "library", films / "films", f"--rate={rate}")
    assert code != 0
    assert "or `keyframes`; got" in err
    assert not (tmp_path / "library").exists()


def test_features_of_key_frames(tmp_path: Path, films: Path, run: Run) -> None:
    arguments = ("extract", films / "films" / "1.mp4", "-o", tmp_path / "a.h5", "--workers", "1", "--rate")
    assert run(*arguments, "keyframes")[0] == 0
    with FeatureFile.open(tmp_path / "a.h5") as file:
        assert file["1.mp4"].times.tolist() == list(range(0, 18, 2))
    code, _, err = run(*arguments, "2")
    assert code != 0
    assert "keyframes" in err
