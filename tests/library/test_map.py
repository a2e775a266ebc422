"""`hapvr map`: the layout, groups and neighbours, and what the command writes."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from hapvr.errors import ConfigError
from hapvr.library import Library
from hapvr.library import library_map as maps
from tests.library.conftest import Run
from tests.library.toy import make, toys, write  # noqa: F401 - a fixture

pytestmark = pytest.mark.usefixtures("toys")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NASTY = "<img src=x onerror=alert(1)>&amp.mp4" if sys.platform != "win32" else "&amp.mp4"


def draw_groups(*sizes: int) -> NDArray[np.float32]:
    """Unit vectors in tight groups of these sizes."""
    rng = np.random.default_rng(0)
    centres = np.linalg.qr(rng.normal(size=(16, 16)))[0][: len(sizes)]
    drawn = np.concatenate([
        centre + 0.02 * rng.normal(size=(size, 16)) for centre, size in zip(centres, sizes, strict=True)
    ])  # fmt: skip
    unit: NDArray[np.float32] = (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)
    return unit


@pytest.fixture
def library(tmp_path: Path) -> Library:
    opened = make(tmp_path / "library")
    for seed in range(6):
        write(tmp_path / "films", f"{seed}.mp4", seed)
    write(tmp_path / "films", "copy.mp4", 0)
    write(tmp_path / "films", NASTY, 7)
    opened.add([tmp_path / "films"])
    return opened


# --- numbers ---------------------------------------------------------------------------------------------------------


def test_groups_lie_together_and_are_found_the_largest_first() -> None:
    sizes = (4, 9, 6)
    vectors = draw_groups(*sizes)
    true = np.repeat([2, 0, 1], sizes)
    assert maps.find_groups(vectors).tolist() == true.tolist()
    places = maps.lay_out(vectors)
    assert places.shape == (19, 2)
    assert places.min() >= 0
    assert places.max() <= 1
    distances = np.linalg.norm(places[:, None] - places[None], axis=2)
    same = true[:, None] == true
    assert distances[same].max() < distances[~same].min()
    np.testing.assert_array_equal(places, maps.lay_out(vectors))


def test_a_turn_of_all_vectors_changes_no_group_and_no_neighbour() -> None:
    vectors = draw_groups(4, 9, 6)
    turned = (vectors @ np.linalg.qr(np.random.default_rng(1).normal(size=(16, 16)))[0]).astype(np.float32)
    assert maps.find_groups(turned).tolist() == maps.find_groups(vectors).tolist()
    for ours, theirs in zip(maps.find_neighbours(turned, 3), maps.find_neighbours(vectors, 3), strict=True):
        np.testing.assert_allclose([value for _, value in ours], [value for _, value in theirs], atol=1e-5)


def test_few_vectors_lie_as_their_main_axes_say() -> None:
    # On a line, 0, 1 and 4 apart: the middle of the range is the middle of the square.
    line = np.array([[0.0, 0.0], [0.0, 1.0], [0.0, 4.0]], np.float32)
    places = maps.lay_out(line)
    np.testing.assert_allclose(places, [[0, 0.5], [0.25, 0.5], [1, 0.5]], atol=1e-6)
    np.testing.assert_array_equal(maps.lay_out(np.ones((5, 3), np.float32)), np.full((5, 2), 0.5))  # all alike
    np.testing.assert_array_equal(maps.lay_out(np.ones((1, 3), np.float32)), [[0.5, 0.5]])
    assert maps.find_groups(np.ones((2, 3), np.float32)).tolist() == [-1, -1]


def test_neighbours_are_those_of_a_slow_loop() -> None:
    vectors = draw_groups(3, 3, 5)
    for row, found in enumerate(maps.find_neighbours(vectors, 4)):
        others = [(float(np.dot(vectors[row], vectors[other])), other) for other in range(11) if other != row]
        best = sorted(others, reverse=True)[:4]
        assert [other for other, _ in found] == [other for _, other in best]
        np.testing.assert_allclose([value for _, value in found], [value for value, _ in best], rtol=1e-5)


# --- a library -------------------------------------------------------------------------------------------------------


def test_a_map_shows_each_content_once(library: Library) -> None:
    found = maps.make_map(library)
    names = [Path(point.video.path).name for point in found.points]
    assert len(names) == 7  # the copy and the file that it is of are one
    assert names == sorted(names)
    assert found.left_out == 0
    for number, point in enumerate(found.points):
        assert len(point.neighbours) == 6
        assert number not in [other for other, _ in point.neighbours]
    part = maps.make_map(library, max_videos=3, seed=1)
    assert (len(part.points), part.left_out) == (3, 4)
    assert part.to_json() == maps.make_map(library, max_videos=3, seed=1).to_json()
    with pytest.raises(ConfigError, match="max_videos must be at least 1, got 0"):
        maps.make_map(library, max_videos=0)


def test_an_empty_library_has_an_empty_map(run: Run, tmp_path: Path) -> None:
    library = make(tmp_path / "library")
    code, out, _ = run("map", library.path, "-o", tmp_path / "map.html", "-o", tmp_path / "map.png")
    assert (code, out.splitlines()[0]) == (0, "0 videos, 0 groups.")


def test_the_command_writes_a_page_a_picture_and_json(run: Run, library: Library, tmp_path: Path) -> None:
    code, out, _ = run("map", library.path, "-o", tmp_path / "map.png", "--json")
    assert code == 0
    record = json.loads(out)
    assert record["written"] == [str(tmp_path / "map.png")]
    assert len(record["points"]) == 7
    with Image.open(tmp_path / "map.png") as image:
        assert image.size == (1200, 1200)
    code, out, _ = run("map", library.path, "-o", tmp_path / "map.html", "--max-videos", 2)
    assert out.splitlines() == [
        "2 videos, 0 groups. 5 more are not shown: --max-videos says how many are.",
        f"wrote {tmp_path / 'map.html'}",
    ]
    code, _, err = run("map", library.path)
    assert (code, "Say where the map goes" in err) == (2, True)
    code, _, err = run("map", library.path, "-o", tmp_path / "map.gif")
    assert (code, "must end in .html, .png, .svg or .pdf" in err) == (2, True)


def test_without_its_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.manifold", None)
    with pytest.raises(ConfigError, match=r"pip install 'hapvr\[map\]'"):
        maps.lay_out(draw_groups(3, 3))


@pytest.mark.skipif(CHROMIUM is None, reason="the page is not tested: there is no Chromium here")
def test_a_click_shows_a_video_and_those_most_like_it(run: Run, library: Library, tmp_path: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    page_file = tmp_path / "map.html"
    assert run("map", library.path, "-o", page_file)[0] == 0
    options = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    complaints: list[str] = []
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=[*options, "--disable-dev-shm-usage"])
        page = browser.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        page.goto(page_file.as_uri())
        assert page.locator("circle").count() == 7
        page.locator("circle", has=page.get_by_text(NASTY)).dispatch_event("click")
        assert page.locator("aside h2").inner_text() == NASTY  # a name is text, whatever it says
        assert page.locator("aside li").count() == 6
        first = page.locator("aside li button").first
        name = first.inner_text().rpartition(" (")[0]
        first.click()
        assert page.locator("aside h2").inner_text() == name
        page.locator("svg").focus()
        for key in ("ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"):
            page.keyboard.press(key)
        assert page.locator("circle.chosen").count() == 1
        browser.close()
    assert complaints == []
