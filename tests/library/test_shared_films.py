"""Shared footage on the command line: drawn films that end with one card."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hapvr.library import Library
from hapvr.synthetic.cards import add_card, draw_cards
from hapvr.synthetic.clip_files import write_clip
from hapvr.synthetic.films import draw_scene
from tests.library.conftest import Run

FILMS = 5


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five films with one end card, and one without."""
    folder = tmp_path_factory.mktemp("channel")
    (folder / "films").mkdir()
    card = draw_cards(3, 1)[0]
    for seed in range(FILMS + 1):
        scene = draw_scene(seed, seconds=5, fps=8, size=(96, 128))
        clip = scene if seed == FILMS else add_card(scene, card)[0]
        write_clip(clip, folder / "films" / f"film{seed}.mp4")
    with Library.open(folder / "library", create=True) as opened:
        opened.add([folder / "films"], workers=1)
    return folder / "library"


def test_status_lists_the_card_with_thumbnails(run: Run, library: Path, tmp_path: Path) -> None:
    code, out, _ = run("status", library, "--html", tmp_path / "page.html")
    assert code == 0
    (line,) = [line for line in out.splitlines() if line.startswith("shared footage")]
    assert f"in {FILMS} videos" in line
    content = json.loads(run("status", library, "--json")[1])
    (clip,) = content["shared"]
    assert clip["videos"] == FILMS
    assert all(4.5 <= place["start_s"] <= 6 for place in clip["occurrences"])
    page = (tmp_path / "page.html").read_text()
    assert page.count("data:image/jpeg") == 3 * 5
    assert "film0.mp4" in page


def test_films_with_one_card_are_no_copies(run: Run, library: Path) -> None:
    with Library.open(library) as opened:
        ids = {Path(video.path).stem: video.id for video in opened.videos()}
        links = opened.find_duplicates(second_look=False).links
    # Drawn films may look alike; the card alone links none.
    assert not [link for link in links if all(segment.shared for segment in link.segments)]
    options = (ids["film2"], ids["film3"], "--library", library, "--no-second-look", "--json")
    found, kept = (json.loads(run("compare", *options, *more)[1]) for more in ((), ("--keep-shared",)))
    assert not found["match"]
    assert all(one["shared"] for one in found["segments"])
    assert found["score"] == kept["score"]
