"""The page in a real browser, at the widths of a desktop and of a phone, against a server of its own.

Any error on the browser's console, any script that fails and any request to another host fails the test.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from hapvr.library import Library
from hapvr.library.duplicate_report import CSV_FIELDS
from hapvr.synthetic.clip import Clip
from hapvr.synthetic.clip_files import write_clip
from hapvr.synthetic.films import draw_scene
from hapvr.synthetic.sounds import RATE, add_sound, draw_sound
from tests.stand_ins import open_clip
from tests.video.media import write

playwright = pytest.importorskip(
    "playwright.sync_api", reason="the page is not tested: playwright is missing (pip install -e '.[dev]')"
)
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="the page is not tested: there is no Chromium here (apt-get install chromium)"
)

FPS, SECONDS = 10.0, 10.0
CLIP = (2.0, 8.0)  # what the query shows of the film "harbour"
HOSTILE = "copy <img src=x onerror=alert(1)> & 'more'.mp4"
SIZES = {"desktop": {"width": 1280, "height": 860}, "phone": {"width": 390, "height": 844}}
WAIT_MS = 60_000
Page = Any


# --- the server ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder "films" that is indexed, one "new" that is not yet, and a clip to search for; empty until `draw`."""
    root = tmp_path_factory.mktemp("videos")
    for name in ("films", "new"):
        (root / name).mkdir()
    return root


def draw(root: Path) -> None:
    harbour = draw_scene(10, seconds=SECONDS, fps=FPS, size=(144, 256))
    market = draw_scene(11, seconds=SECONDS, fps=FPS, size=(144, 256))
    song = draw_sound(1, SECONDS)
    write_clip(harbour, root / "picture.mp4")
    add_sound(root / "picture.mp4", song, root / "films" / "harbour.mp4")
    part = np.ascontiguousarray(harbour.images[10:90, :, ::-1])
    write_clip(Clip(part, FPS), root / "picture.mp4", crf=30)
    add_sound(root / "picture.mp4", song[1 * RATE : 9 * RATE], root / "films" / HOSTILE, bit_rate=64_000)
    write(root / "films" / "old codec.mp4", list(market.images), rate=int(FPS), codec="mpeg4")
    tall = draw_scene(13, seconds=6, fps=FPS, size=(256, 144))
    write_clip(tall, root / "picture.mp4")
    add_sound(root / "picture.mp4", song[2 * RATE : 8 * RATE], root / "films" / "tall.mp4")
    write_clip(Clip(np.ascontiguousarray(tall.images[10:50]), FPS), root / "tall clip.mp4")
    write_clip(draw_scene(12, seconds=3, fps=FPS, size=(144, 256)), root / "new" / "regatta.mp4")
    (root / "new" / "cut off.mp4").write_bytes((root / "films" / "harbour.mp4").read_bytes()[:20_000])
    first, last = (round(at * FPS) for at in CLIP)
    write_clip(Clip(np.ascontiguousarray(harbour.images[first:last]), FPS), root / "clip.mp4")


@pytest.fixture(scope="module")
def address(films: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with these films in its library, with sound and a text model, which may act on duplicates.

    It starts while they are drawn.
    """
    library = tmp_path_factory.mktemp("library") / "library"
    with Library.open(library, create=True) as made, pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "open_clip", open_clip)
        made.add([], sound=True, text_model=open_clip.write_model(films / "clip"))
    log = library.parent / "log"
    options = ["--root", str(films / "new"), "--root", str(films / "films"), "--allow-actions"]
    program = "import sys; from hapvr.cli import main; sys.exit(main())"
    with log.open("wb") as out:
        arguments = [sys.executable, "-c", program, "serve", str(library), "--port", "0", *options]
        variables = {**os.environ, "PYTHONPATH": open_clip.make_python_path()}
        variables["XDG_DATA_HOME"] = str(films / "home")  # where its trash is
        serving = subprocess.Popen(arguments, stderr=out, stdout=out, env=variables)
    try:
        draw(films)
        end = time.monotonic() + 60
        while not (found := re.search(r"http://\S+/", log.read_text())):
            assert serving.poll() is None, log.read_text()
            assert time.monotonic() < end, "the server does not say where it is"
            time.sleep(0.05)
        index(found[0])
        yield found[0]
    finally:
        serving.terminate()
        try:
            serving.wait(20)
        except subprocess.TimeoutExpired:
            serving.kill()
            serving.wait()


def index(address: str, *, added: int = 4) -> None:
    """Have the server add the folder "films"."""
    root = next(one["id"] for one in asked(f"{address}api/library")["roots"] if one["name"] == "films")
    job = asked(f"{address}api/jobs/add", {"root": root})["job"]
    for _ in range(8):  # adding has a low priority: it takes long on a busy machine
        if job["state"] in ("queued", "running"):
            job = asked(f"{address}api/jobs/{job['id']}?wait=60")
    assert job["state"] == "done", job
    assert job["result"]["added"] == added


def asked(url: str, body: Any = None) -> Any:
    """What the server answers to a program."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    for _ in range(200):  # the address is said a moment before it is listened to
        try:
            with urllib.request.urlopen(request, timeout=90) as answer:
                return json.load(answer)
        except urllib.error.HTTPError:
            raise
        except urllib.error.URLError:
            time.sleep(0.1)
    raise AssertionError(f"no answer from {url}")


# --- the browser -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    options = ["--disable-dev-shm-usage", "--disable-gpu", "--mute-audio"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        options.append("--no-sandbox")  # Chromium has none for root
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=options)
        yield chromium
        chromium.close()


@contextmanager
def opened(browser: Any, address: str, size: str = "desktop", *, expected: str = "", **options: Any) -> Iterator[Page]:
    """A page that may not complain; `expected` is a pattern of the one complaint that the test brings about."""
    phone = {"is_mobile": True, "has_touch": True} if size == "phone" else {}
    still = {"reduced_motion": "reduce"}  # nothing plays by itself
    context = browser.new_context(viewport=SIZES[size], **(still | phone | options))
    context.set_default_timeout(WAIT_MS)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = context.new_page()
    complaints: list[str] = []

    def heard(message: Any) -> None:
        if message.type in ("error", "warning") and not (expected and re.search(expected, message.text)):
            complaints.append(f"{message.type}: {message.text} at {message.location.get('url')}")

    def requested(request: Any) -> None:
        if not request.url.startswith((address, "blob:", "data:")):
            complaints.append(f"a request to {request.url}")

    page.on("console", heard)
    page.on("pageerror", lambda error: complaints.append(f"script: {error}"))
    page.on("request", requested)
    page.goto(address)
    try:
        yield page
        assert complaints == []
    finally:
        context.close()


@pytest.fixture(scope="module")
def bare(browser: Any, address: str) -> Iterator[Page]:
    """A page whose modules are called one by one."""
    with opened(browser, address) as page:
        yield page


def module(page: Page, name: str, body: str, *arguments: Any) -> Any:
    """What JavaScript gives in which `m` is one of the page's modules and `a` are the arguments."""
    program = f"async ([name, a]) => {{ const m = await import(`./static/js/${{name}}`); {body} }}"
    return page.evaluate(program, [name, list(arguments)])


def fits(page: Page) -> None:
    """Nothing is wider than the window."""
    widths = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert widths[0] <= widths[1], f"{page.url} is {widths[0]} wide in a window of {widths[1]}"


def assert_whole(page: Page, selector: str, minimum: int) -> None:
    """Every picture and video is loaded, shown whole and hardly stretched."""
    loaded = """([selector, minimum]) => {
      const found = [...document.querySelectorAll(selector)];
      return found.length >= minimum && found.every((one) => (one.naturalWidth || one.videoWidth) > 0);
    }"""
    until(page, loaded, [selector, minimum])
    cut = """(selector) => [...document.querySelectorAll(selector)].flatMap((one) => {
      const [box, style] = [one.getBoundingClientRect(), getComputedStyle(one)];
      const shape = (one.naturalWidth || one.videoWidth) / (one.naturalHeight || one.videoHeight);
      const fits = ['contain', 'scale-down'].includes(style.objectFit)
        || (style.objectFit === 'fill' && Math.abs(box.width / box.height / shape - 1) < 0.25);
      const within = (outer) => box.left >= outer.left - 1 && box.right <= outer.right + 1
        && box.top >= outer.top - 1 && box.bottom <= outer.bottom + 1;
      let inside = box.width > 0 && box.left >= 0 && box.right <= innerWidth;
      for (let outer = one.parentElement; outer; outer = outer.parentElement) {
        if (getComputedStyle(outer).overflow !== 'visible') inside &&= within(outer.getBoundingClientRect());
      }
      const said = `${one.className || one.tagName}: ${style.objectFit}, ${shape} in ${box.width} x ${box.height}`;
      return fits && inside ? [] : [said];
    })"""
    assert page.evaluate(cut, selector) == []


def search(page: Page, file: Path) -> None:
    page.set_input_files("input[type=file]", str(file))
    page.get_by_role("button", name="Search", exact=True).click()
    page.wait_for_selector(".hit, .state")


def until(page: Page, condition: str, argument: Any = None) -> None:
    """Wait until JavaScript says so. (playwright's own way needs eval, which the page's policy forbids.)"""
    end = time.monotonic() + WAIT_MS / 1000
    while not page.evaluate(condition, argument):
        assert time.monotonic() < end, f"this did not come about: {condition}"
        page.wait_for_timeout(40)


def times(page: Page) -> list[float]:
    """Where both players are, in seconds."""
    found: list[float] = page.evaluate("[...document.querySelectorAll('video')].map((video) => video.currentTime)")
    return found


def wait_for_times(page: Page, query: float, target: float, within: float = 0.3) -> None:
    program = """([query, target, within]) => {
      const videos = [...document.querySelectorAll('video')];
      return videos.length === 2 && videos.every((video) => !video.seeking)
        && Math.abs(videos[0].currentTime - query) <= within && Math.abs(videos[1].currentTime - target) <= within;
    }"""
    until(page, program, [query, target, within])


def pixel(page: Page, row: float, column: float) -> dict[str, float]:
    """Where on the page the heat map shows a share of its rows and columns."""
    box = page.locator(".matrix").bounding_box()
    left, top, right, bottom = 46, 6, 8, 22  # what its axes take
    return {
        "x": box["x"] + left + column * (box["width"] - left - right),
        "y": box["y"] + top + row * (box["height"] - top - bottom),
    }


# --- the walk --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_from_an_upload_to_two_players_in_step(browser: Any, address: str, films: Path, size: str) -> None:
    with opened(browser, address, size, reduced_motion="no-preference") as page:
        fits(page)
        search(page, films / "clip.mp4")
        assert "/results/" in page.url
        best = page.locator(".hit").first
        assert "harbour.mp4" in best.inner_text()
        assert re.fullmatch(r"1 match|\d+ matches", page.locator("h1").inner_text())
        assert "Copy" in best.locator(".sure-words").inner_text()
        assert best.locator(".verdict-reason").inner_text()
        hostile = page.locator(".hit", has_text=HOSTILE)
        assert hostile.count() == 1  # as text, not as markup
        assert hostile.is_visible()  # it is a copy too
        other = page.locator(".others .hit").first
        assert not other.is_visible()
        page.get_by_text("Show the nearest others").click()
        assert other.locator(".sure-words").inner_text().startswith(("No match", "Same scene"))
        assert best.locator("svg path").count() >= 1
        assert re.search(r"of the query is \d:\d\d–\d:\d\d of this video", best.inner_text())
        assert best.locator(".sure-number").inner_text()
        fits(page)

        best.click()  # anywhere on it
        page.wait_for_selector(".play[data-playing=true]")
        assert page.evaluate("document.activeElement.tagName") == "H1"  # a screen reader goes on from there
        until(page, "[...document.querySelectorAll('video')].every((video) => video.currentTime > 1)")
        page.locator(".play").click()
        query, target = times(page)
        assert target - query == pytest.approx(CLIP[0], abs=0.35)
        fits(page)

        # Any cell moves both players, whether it is part of the match or not.
        if size == "phone":
            page.locator(".matrix").scroll_into_view_if_needed()
            spot = pixel(page, 0.76, 0.13)
            page.touchscreen.tap(spot["x"], spot["y"])
        else:
            page.locator(".matrix").scroll_into_view_if_needed()
            spot = pixel(page, 0.76, 0.13)
            page.mouse.click(spot["x"], spot["y"])
        wait_for_times(page, 0.76 * (CLIP[1] - CLIP[0]), 0.13 * SECONDS, within=0.6)
        said = page.locator(".matrix-readout").inner_text()
        assert re.fullmatch(r"Query 0:0\d\.\d · video 0:0\d\.\d · similarity −?\d\.\d\d", said)
        before = times(page)
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        until(page, "was => document.querySelectorAll('video')[1].currentTime > was + 0.5", before[1])
        assert times(page)[0] == pytest.approx(before[0], abs=0.1)
        page.keyboard.press("Home")
        until(page, "document.querySelectorAll('video')[1].currentTime < 0.6")

        # A seek bar moves both to what matches; so does a stretch.
        page.locator(".chip").first.click()
        strip = page.get_by_role("slider", name="Position in the query")
        strip.fill("3")
        wait_for_times(page, 3.0, 3.0 + CLIP[0])
        page.get_by_label("Frames as they are").check(force=True)
        page.go_back()
        page.wait_for_selector(".hit")


@pytest.mark.parametrize("size", SIZES)
def test_a_portrait_video_is_shown_whole(browser: Any, address: str, films: Path, size: str) -> None:
    with opened(browser, address, size) as page:
        search(page, films / "tall clip.mp4")
        page.locator(".hit", has_text="tall.mp4").click()
        until(page, "[...document.querySelectorAll('.screen-frame video')].length === 2")
        shapes = page.evaluate(
            """[...document.querySelectorAll('.screen-frame')].map((frame) => {
                const [outer, inner] = [frame, frame.firstChild].map((one) => one.getBoundingClientRect());
                const fit = getComputedStyle(frame.firstChild).objectFit;
                return { fit, outer: [outer.width, outer.height], inner: [inner.width, inner.height],
                         room: window.innerHeight };
            })"""
        )
        for shape in shapes:
            assert shape["fit"] == "contain"
            assert shape["inner"] == pytest.approx(shape["outer"], abs=1)  # nothing of it lies outside of its box
            assert shape["outer"][1] > 0.3 * shape["room"]  # a tall video gets a tall box
            assert shape["outer"][1] < 0.75 * shape["room"]
        fits(page)


def brightness(page: Page) -> float:
    """The mean of what is drawn of two frames, 0 to 255."""
    found: float = page.evaluate(
        """() => {
          const canvas = document.querySelector('.closer canvas');
          const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
          let sum = 0;
          for (let at = 0; at < data.length; at += 4) sum += data[at] + data[at + 1] + data[at + 2];
          return sum / data.length / 0.75;
        }"""
    )
    return found


@pytest.mark.parametrize("size", SIZES)
def test_two_frames_are_laid_over_each_other_by_keys(browser: Any, address: str, size: str) -> None:
    ids = {video["name"]: video["id"] for video in asked(f"{address}api/videos")["videos"]}
    film, mirrored = ids["harbour.mp4"], ids[HOSTILE]
    with opened(browser, address, size, expected="willReadFrequently") as page:  # the test reads what is drawn
        page.goto(f"{address}#/match/v:{film}/{film}")
        page.wait_for_selector(".play")
        canvas = page.locator(".closer canvas")
        assert not canvas.is_visible()
        page.keyboard.press("d")
        assert page.get_by_role("radio", name="Difference").is_checked()
        until(page, "document.querySelectorAll('video').length === 2")
        page.get_by_role("slider", name="Position in the query").fill("3")
        wait_for_times(page, 3.0, 3.0, within=0.01)
        page.keyboard.press("o")
        page.get_by_role("slider", name="How much of the match is seen").wait_for()
        assert brightness(page) > 20
        page.keyboard.press("d")
        assert brightness(page) < 1  # a frame does not differ from itself
        fits(page)
        page.goto(f"{address}#/match/v:{film}/{mirrored}")
        page.wait_for_selector(".play")
        page.keyboard.press("d")
        until(page, "[...document.querySelectorAll('video')].every((video) => !video.seeking)")
        assert brightness(page) > 5
        page.keyboard.press("b")
        assert canvas.get_attribute("data-shown") == "query"  # nothing moves by itself
        page.keyboard.press("b")
        assert canvas.get_attribute("data-shown") == "target"
        page.keyboard.press("s")
        canvas.wait_for(state="hidden")


def test_the_question_mark_lists_all_keys_and_gives_the_focus_back(browser: Any, address: str) -> None:
    with opened(browser, address) as page:
        page.get_by_role("link", name="Library").click()
        name = page.get_by_label("Search by name")
        name.press("?")
        assert name.input_value() == "?"  # it is a letter there
        assert not page.get_by_role("dialog").count()
        page.get_by_role("link", name="Settings").focus()
        page.keyboard.press("?")
        dialog = page.get_by_role("dialog", name="Keys")
        said = dialog.inner_text()
        for words in ("Play and pause", "Overlay", "Difference", "frame matrix"):
            assert words in said
        page.keyboard.press("Escape")
        dialog.wait_for(state="detached")
        assert page.evaluate("document.activeElement.textContent") == "Settings"
        page.get_by_role("button", name="Show all keys").click()
        dialog.get_by_role("button", name="Close").click()
        dialog.wait_for(state="detached")


@pytest.mark.parametrize("size", SIZES)
def test_pictures_are_whole_and_not_stretched_whatever_their_shape(
    browser: Any, address: str, films: Path, size: str
) -> None:
    with opened(browser, address, size) as page:
        search(page, films / "clip.mp4")
        assert_whole(page, ".query-strip", 1)
        page.get_by_role("link", name="New search").click()
        page.set_input_files("input[type=file]", str(films / "tall clip.mp4"))
        assert_whole(page, ".picker-screen video", 1)
        page.get_by_role("button", name="Search", exact=True).click()
        page.wait_for_selector(".hit")
        assert_whole(page, ".query-strip", 1)
        page.locator(".hit").first.scroll_into_view_if_needed()
        assert_whole(page, ":not(details) > .hits > .hit:first-child .thumb", 1)
        fits(page)

        videos = page.evaluate("fetch('api/videos').then((answer) => answer.json())")["videos"]
        ids = {video["name"]: video["id"] for video in videos}
        for a, b in (("tall.mp4", "tall.mp4"), ("harbour.mp4", "tall.mp4"), ("tall.mp4", "harbour.mp4")):
            page.goto(f"{address}#/match/v:{ids[a]}/{ids[b]}")
            page.wait_for_selector(".play")
            assert_whole(page, ".screen-frame video", 2)
            assert_whole(page, ".strip-image", 2)
            fits(page)
        page.goto(f"{address}#/library")
        page.wait_for_selector(".row-item")
        assert_whole(page, "img.row-thumb", 4)


@pytest.mark.parametrize("size", SIZES)
def test_a_folder_is_added_and_what_failed_is_shown(browser: Any, address: str, films: Path, size: str) -> None:
    regatta = films / "new" / "regatta.mp4"
    os.utime(regatta, ns=(time.time_ns(), time.time_ns()))
    with opened(browser, address, size) as page:
        page.get_by_role("link", name="Library").click()
        page.wait_for_selector(".row-item")
        assert page.title() == "Library – hapvr"
        page.get_by_label("Root").select_option(label="new")
        page.get_by_role("button", name="Add", exact=True).click()
        page.wait_for_selector("#add progress")
        page.wait_for_selector(".outcome-done")
        failures = page.locator("#failures")
        failures.wait_for()
        assert "cut off.mp4" in failures.inner_text()
        assert "cannot be decoded" in failures.inner_text()
        assert str(films) not in failures.inner_text()  # a name, never a place
        page.get_by_label("Search by name").fill("regat")
        until(page, "document.querySelectorAll('.row-item').length === 1")
        assert "regatta.mp4" in page.locator(".row-item").inner_text()
        assert page.locator(".row-item .path-text").inner_text() == str(regatta)  # it lies in a root
        assert "q=regat" in page.url
        page.get_by_label("Search by name").fill("")
        page.get_by_label("Failed", exact=True).check(force=True)
        until(page, "document.querySelectorAll('.row-item').length === 1")
        fits(page)
        page.get_by_role("button", name="Try these again").click()
        until(page, "document.querySelectorAll('.outcome-done').length === 3")  # one for each root
        assert any("1 failed" in text for text in page.locator(".outcome-done").all_inner_texts()[:2])


def test_a_folder_outside_the_root_is_refused_in_words(browser: Any, address: str) -> None:
    with opened(browser, f"{address}", expected="status of 403") as page:
        page.goto(f"{address}#/library")
        page.get_by_label("Folder within it").fill("../..")
        page.get_by_role("button", name="Add", exact=True).click()
        page.wait_for_selector(".add-form .field-problem:not(:empty)")
        assert "root" in page.locator(".add-form .field-problem").inner_text()


@pytest.mark.parametrize(("status", "code"), [("degraded", 200), ("failed", 503)])
def test_the_page_says_why_the_server_is_not_well(browser: Any, address: str, status: str, code: int) -> None:
    cause = "The add worker could not be started: <b>no room</b>."
    health = asked(f"{address}api/health") | {"status": status, "cause": cause}
    if code == 503:
        health["error"] = {"type": "Busy", "message": cause, "hint": None}
    with opened(browser, address, expected="status of 503") as page:
        page.route("**/api/health", lambda route: route.fulfill(status=code, json=health))
        page.reload()
        page.locator("#foot [role=status]").wait_for()
        assert page.locator("#foot [role=status]").inner_text() == cause
        fits(page)


# --- shared footage --------------------------------------------------------------------------------------------------


def is_dashed(page: Page, selector: str) -> bool:
    found: bool = page.evaluate(
        "(selector) => getComputedStyle(document.querySelector(selector)).strokeDasharray !== 'none'", selector
    )
    return found


@pytest.mark.parametrize("size", SIZES)
def test_shared_footage_is_shown_on_hits_and_side_by_side(browser: Any, address: str, size: str) -> None:
    """The hit is given here, with a stretch of its own and a longer one that many videos share."""
    own = {"query": [3.0, 5.0], "target": [3.0, 5.0], "score": 0.8, "backwards": False}
    shared = {"query": [6.0, 10.0], "target": [6.0, 10.0], "score": 0.9, "backwards": False, "shared": True}
    with opened(browser, address, size) as page:
        videos = page.evaluate("fetch('api/videos').then((answer) => answer.json())")["videos"]
        ids = {video["name"]: video["id"] for video in videos}
        film, other = ids["harbour.mp4"], ids["old codec.mp4"]
        compared = asked(f"{address}api/compare", {"a": film, "b": other})["job"]
        compared = asked(f"{address}api/jobs/{compared['id']}?wait=60")
        searched = asked(f"{address}api/searches", {"id": film})["job"]
        searched = asked(f"{address}api/jobs/{searched['id']}?wait=60")
        hit = searched["result"]["hits"][0] | {"id": other, "verdict": "copy", "match": True, "segments": [own, shared]}
        bodies = {
            "js": searched | {"id": "js", "result": searched["result"] | {"hits": [hit]}},
            "jc": compared | {"id": "jc", "result": compared["result"] | {"segments": [own, shared]}},
        }

        def tell(route: Any) -> None:
            job = bodies[route.request.url.split("/")[-2]]
            route.fulfill(body=f"event: job\ndata: {json.dumps(job)}\n\n", content_type="text/event-stream")

        sent: list[Any] = []

        def compare(route: Any) -> None:
            sent.append(route.request.post_data_json)
            route.fulfill(status=202, json={"job": bodies["jc"] | {"state": "running", "result": None}})

        page.route(re.compile("/api/jobs/j[sc]/events$"), tell)
        page.route("**/api/compare", compare)
        page.goto(f"{address}#/results/js")
        card = page.locator(".hit").first
        card.wait_for()
        note = "Dashed: shared footage, which many videos of the library show."
        assert note in card.inner_text()
        assert "0:03–0:05 of the query is 0:03–0:05 of this video · and 1 more stretch" in card.inner_text()
        assert "0:06–0:10 of the query is 0:06–0:10 of this video, shared footage" in card.text_content()
        assert is_dashed(page, ".timeline-shared")
        assert not is_dashed(page, ".tone-0")
        assert page.locator(".timeline-match").count() == 2
        fits(page)

        card.get_by_role("link").click()
        page.wait_for_selector(".play")
        assert sent[0]["ignore_shared"] is True
        assert page.locator(".chip").all_inner_texts() == [
            "0:03–0:05 → 0:03–0:05",
            "0:06–0:10 → 0:06–0:10, shared footage",
        ]
        assert page.locator(".places").get_by_text(note).is_visible()
        assert page.locator(".strip-mark").count() == 4
        assert page.locator(".strip-mark-shared").count() == 2
        fits(page)


@pytest.mark.parametrize("size", SIZES)
def test_sound_is_compared_and_found_with_other_pictures(browser: Any, address: str, films: Path, size: str) -> None:
    with opened(browser, address, size) as page:
        if size == "desktop":
            page.goto(f"{address}#/library")
            page.get_by_role("button", name="Find similar to harbour.mp4").click()
            page.wait_for_selector(".hit")
        else:
            page.goto(f"{address}#/")
            search(page, films / "films" / "harbour.mp4")  # an upload, though the library has it too
        copy = page.locator(".hit").filter(has_text=HOSTILE).inner_text()
        dubbed = page.locator(".hit").last.inner_text()
        assert re.search(r"Sound: the same, 0:01–0:0[89] of the query is 0:00–0:0[78] of this video\.", copy)
        assert page.get_by_role("heading", name="The same sound with other pictures").is_visible()
        assert "tall.mp4" in dubbed
        assert re.search(r"Sound: the same, 0:02–0:0[78] of the query is 0:00–0:0[56] of this video\.", dubbed)
        page.locator(".hit").last.scroll_into_view_if_needed()
        assert_whole(page, "h2 + .hits .thumb", 2 if size == "desktop" else 3)
        fits(page)


@pytest.mark.parametrize("size", SIZES)
def test_a_description_is_looked_for_and_played_where_it_fits(browser: Any, address: str, size: str) -> None:
    """By a stand-in for a text model that knows three words, of colours."""
    with opened(browser, address, size) as page:
        words = page.get_by_label("Describe what is to be seen")
        words.fill("red")
        page.get_by_role("button", name="Search by text").click()
        page.wait_for_selector(".hit")
        assert page.locator("h1").inner_text() == "Fits “red”"
        assert page.url.endswith("#/text?q=red")
        names = page.locator("button.hit-link").all_inner_texts()
        assert set(names) >= {"harbour.mp4", HOSTILE, "old codec.mp4", "tall.mp4"}
        wanted = asked(f"{address}api/searches/text", {"text": "red"})["job"]
        wanted = asked(f"{address}api/jobs/{wanted['id']}?wait=60")["result"]["hits"]
        assert names == [hit["name"] for hit in wanted]
        times_s = [one["time_s"] for one in wanted[names.index("harbour.mp4")]["instants"]]
        card = page.locator(".hit", has_text="harbour.mp4")
        assert_whole(page, ".hit .thumb", 4)
        fits(page)
        moments = card.locator(".chip")
        assert moments.count() == len(times_s)
        moments.last.click()
        until(page, f"Math.abs((document.querySelector('video')?.currentTime ?? -1) - {times_s[-1]}) < 2")
        assert card.locator("video").get_attribute("controls") is not None
        assert_whole(page, "video", 1)
        fits(page)

        page.get_by_label("Describe what is to be seen").fill("blue")
        page.get_by_text("Only some videos").click()
        page.get_by_label("Length from").fill("0:05")
        page.get_by_label("Length to").fill("0:07")
        page.keyboard.press("Enter")
        until(page, "document.querySelectorAll('.hit').length === 1")
        assert page.locator("button.hit-link").all_inner_texts() == ["tall.mp4"]
        assert page.url.endswith("min_seconds=5&max_seconds=7")
        page.reload()  # the address says all of it
        page.wait_for_selector(".hit")
        assert page.locator(".hit").count() == 1
        page.get_by_role("button", name="Find similar to tall.mp4").click()
        page.wait_for_url("**/#/results/*")
        page.get_by_role("link", name="Search", exact=True).click()
        page.get_by_text("Only some videos").wait_for()


def test_a_library_without_a_text_model_has_no_field_for_words(browser: Any, address: str) -> None:
    with opened(browser, address) as page:
        about = asked(f"{address}api/library") | {"text_search": False}
        page.route("**/api/library", lambda route: route.fulfill(json=about))
        page.reload()
        page.wait_for_selector(".search-about p")
        assert page.locator(".dropzone").is_visible()
        assert page.locator(".text-form").count() == 0


@pytest.mark.parametrize("size", SIZES)
def test_the_library_shows_its_shared_footage_with_pictures(browser: Any, address: str, size: str) -> None:
    with opened(browser, address, size) as page:
        page.get_by_role("link", name="Library").click()
        page.wait_for_selector(".row-item")
        assert page.locator("#shared").count() == 0  # nothing is said where there is none
        videos = page.evaluate("fetch('api/videos?state=ready').then((answer) => answer.json())")["videos"]
        places = [{"id": one["id"], "name": one["name"], "start_s": 1.0, "end_s": 3.5} for one in videos[:4]]
        clips = [{"id": f"c{n}", "seconds": 2.5 + n, "videos": 12 - n, "occurrences": places} for n in range(5)]
        page.route("**/api/shared", lambda route: route.fulfill(json={"complete": True, "clips": clips}))
        page.reload()
        page.wait_for_selector("#shared")
        first = page.locator(".shared-clip").first
        assert "2.5 s in 12 videos" in first.inner_text()
        assert first.locator(".shared-place").count() == 3
        assert "0:01–0:04" in first.inner_text()
        assert HOSTILE in page.locator("#shared").text_content()
        first.scroll_into_view_if_needed()
        assert_whole(page, ".shared-clip:first-child .thumb", 3)
        fits(page)
        assert page.locator(".shared-clip").count() == 4
        page.get_by_role("button", name="Show 1 more").click()
        assert page.locator(".shared-clip").count() == 5
        page.unroute("**/api/shared")
        page.route("**/api/shared", lambda route: route.fulfill(json={"complete": False, "clips": []}))
        page.reload()
        page.get_by_text("was not looked for: the library is too large").wait_for()


# --- duplicates ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_duplicates_are_shown_marked_and_unmarked(browser: Any, address: str, size: str) -> None:
    """The groups are given here, so that each part of them is known; their videos are the library's."""
    with opened(browser, address, size) as page:
        videos = page.evaluate("fetch('api/videos').then((answer) => answer.json())")["videos"]
        by_name = {video["name"]: video for video in videos}
        a, b = by_name["harbour.mp4"], by_name[HOSTILE]
        segment = {"query": [1.0, 9.0], "target": [0.0, 8.0], "score": 0.8, "backwards": False}
        link = {
            "a": a["id"],
            "b": b["id"],
            "kind": "duplicate",
            "score": 0.8,
            "verdict": "copy",
            "probability": 0.97,
            "reason": "Along 8 frames they are closely alike; at full size what moves agrees.",
            "second_look": True,
            "segments": [segment],
        }
        group = {
            "videos": [b | {"keep": False, "why": "2.0 s shorter"}, a | {"keep": True, "why": "the longest"}],
            "links": [link],
        }
        old = by_name["old codec.mp4"]
        beside = {"a": old["id"], "b": a["id"], "kind": "shared", "score": 0.4, "probability": None, "segments": []}
        beside |= {"verdict": "copy", "reason": "The score speaks for it.", "second_look": False}
        beside |= {"intervals": [[0.0, 2.0], [5.0, 7.0]], "speed": -1.0}
        result = {"groups": [group], "links": [beside], "videos": {one["id"]: one for one in (a, old)}}
        job: dict[str, Any] = {"id": "jd", "kind": "duplicates", "state": "done", "error": None, "result": result}
        job |= {"progress": {"done": 3, "total": 3, "message": "", "rate": None, "eta_s": None}}
        job |= {"created": "2026-01-01", "started": "2026-01-01", "finished": "2026-01-01"}
        marks: list[tuple[str, Any]] = []

        def marked(route: Any) -> None:
            marks.append((route.request.method, route.request.post_data_json))
            route.fulfill(json={"distinct": route.request.method == "POST"})

        page.route("**/api/jobs", lambda route: route.fulfill(json=[]))
        page.route(
            "**/api/duplicates", lambda route: route.fulfill(status=202, json={"job": job | {"state": "running"}})
        )
        events = f"event: job\ndata: {json.dumps(job)}\n\n"
        page.route("**/api/jobs/jd/events", lambda route: route.fulfill(body=events, content_type="text/event-stream"))
        page.route("**/api/duplicates/distinct", marked)

        page.get_by_role("link", name="Duplicates").click()
        page.get_by_role("button", name="Look for duplicates").click()
        page.wait_for_selector(".group")
        assert "1 video to spare" in page.locator(".summary").inner_text()
        tiles = page.locator(".tile")
        assert "Keep" in tiles.nth(0).inner_text()
        assert "the longest" in tiles.nth(0).inner_text()
        assert "2.0 s shorter" in tiles.nth(1).inner_text()
        assert "is the same as" in page.locator(".link").nth(0).inner_text()
        assert "Copy" in page.locator(".link").nth(0).inner_text()
        said = page.locator(".link").nth(0).locator(".verdict-reason").inner_text()
        assert said == "Along 8 frames they are closely alike; at full size what moves agrees."  # and that is all
        assert "97.0%" in page.locator(".link").nth(0).inner_text()
        part = page.locator(".parts .link")
        assert "old codec.mp4 shares a stretch with harbour.mp4" in part.inner_text()
        assert "0:00–0:02 of the query is 0:05–0:07 of this video, backwards" in part.text_content()
        fits(page)

        page.get_by_role("button", name="Not a duplicate").first.click()
        page.get_by_text("Marked as not a duplicate", exact=True).wait_for()
        page.get_by_role("button", name="Undo").click()
        page.get_by_role("button", name=f"Not a duplicate: {a['name']}").wait_for()
        pair = {"a": a["id"], "b": b["id"]}
        assert marks == [("POST", pair), ("DELETE", pair)]
        assert page.get_by_role("link", name="CSV").get_attribute("href") == "api/duplicates.csv"
        assert page.get_by_role("link", name="JSON").get_attribute("href") == "api/duplicates.json"
        page.get_by_role("button", name="Copy path of harbour.mp4").first.click()
        page.get_by_text("Path copied.").wait_for()
        assert page.evaluate("navigator.clipboard.readText()") == a["path"]

        page.get_by_role("link", name="Compare").first.click()
        page.wait_for_selector(".play")


def test_a_file_that_is_there_twice_is_trashed_after_a_preview_and_taken_back(
    browser: Any, address: str, films: Path
) -> None:
    copy = films / "films" / "tall copy.mp4"
    copy.write_bytes((films / "films" / "tall.mp4").read_bytes())
    try:
        index(address, added=1)
        with opened(browser, address, "phone") as page:
            page.get_by_role("link", name="Duplicates").click()
            page.get_by_role("button", name=re.compile("Look (for duplicates|again)")).click()
            box = page.get_by_role("checkbox", name="Choose tall copy.mp4")
            assert box.is_checked()  # a whole copy
            assert not page.get_by_role("checkbox", name="Choose tall.mp4").count()  # it is kept
            assert "never touched" not in page.locator(".lead").inner_text()
            fits(page)
            for other in page.locator(".choice input:checked").all():
                other.uncheck()
            page.get_by_text("Nothing chosen").wait_for()
            assert page.get_by_role("button", name="Move to the trash").is_disabled()
            box.check()
            page.get_by_text("1 file chosen").wait_for()
            page.get_by_role("button", name="Move to the trash").click()
            dialog = page.get_by_role("dialog")
            assert "1 copy of them will be kept" in dialog.inner_text()
            dialog.get_by_role("button", name="Cancel").click()
            assert copy.exists()
            page.get_by_role("button", name="Move to the trash").click()
            dialog.get_by_role("button", name="Move to the trash").click()
            page.locator(".note", has_text="1 file moved to the trash").wait_for()
            assert not copy.exists()
            assert (films / "home" / "Trash" / "files" / "tall copy.mp4").exists()
            page.get_by_role("button", name="Look for duplicates").wait_for()  # what was found is no longer so
            page.reload()  # what was done can still be taken back
            page.get_by_role("button", name="Undo what was done with files").click()
            page.locator(".toast", has_text="1 file taken back.").wait_for()
            assert copy.exists()
            fits(page)
    finally:
        for video in asked(f"{address}api/videos")["videos"]:
            if video["name"] == copy.name:
                urllib.request.urlopen(
                    urllib.request.Request(f"{address}api/videos/{video['id']}", method="DELETE"), timeout=90
                ).close()
        copy.unlink(missing_ok=True)


def test_what_the_library_holds_twice_is_found_marked_and_unmarked(browser: Any, address: str) -> None:
    with opened(browser, address) as page:
        page.get_by_role("link", name="Duplicates").click()
        page.get_by_role("button", name="Look for duplicates").click()
        page.wait_for_selector(".link")
        link = page.locator(".link", has_text="harbour.mp4").filter(has_text=HOSTILE)
        assert re.search("is the same as|is part of", link.inner_text())
        link.get_by_role("button", name="Not a duplicate").click()
        link.get_by_role("button", name="Undo").click()
        link.get_by_role("button", name="Not a duplicate").wait_for()
        with page.expect_download() as download:
            page.get_by_role("link", name="CSV").click()
        assert Path(download.value.path()).read_text().splitlines()[0] == ",".join(CSV_FIELDS)

        def forbid(route: Any) -> None:
            answer = route.fetch()
            route.fulfill(response=answer, json=answer.json() | {"actions": []})

        page.route("**/api/library", forbid)  # as of a server without --allow-actions
        page.reload()  # what was found last is still there
        page.wait_for_selector(".link")
        page.get_by_text("Files are never touched from here.").wait_for()
        assert not page.locator(".choice, .actions").count()


@pytest.mark.parametrize("size", SIZES)
def test_the_path_on_a_card_can_be_copied_though_the_whole_card_is_a_link(
    browser: Any, address: str, films: Path, size: str
) -> None:
    with opened(browser, address, size) as page:
        search(page, films / "clip.mp4")
        place = page.url
        page.locator(".hit").get_by_role("button", name="Copy path of harbour.mp4").click(timeout=5_000)
        page.get_by_text("Path copied.").wait_for()
        assert page.evaluate("navigator.clipboard.readText()") == str(films / "films" / "harbour.mp4")
        assert page.url == place


@pytest.mark.parametrize("size", SIZES)
def test_only_videos_within_limits_are_searched_and_listed(browser: Any, address: str, films: Path, size: str) -> None:
    with opened(browser, address, size) as page:
        page.set_input_files("input[type=file]", str(films / "clip.mp4"))
        page.get_by_text("Only some videos").click()
        page.get_by_label("Folder", exact=True).select_option(label="films")
        page.get_by_label("Length from").fill("0:09")
        page.get_by_label("Length to").fill("0:08")
        page.get_by_label("Changed from").fill("2020-02-29")
        page.get_by_role("button", name="Search", exact=True).click()
        page.get_by_text("The shortest length is above the longest.").wait_for()
        page.get_by_label("Length to").fill("1:00")
        fits(page)
        page.get_by_role("button", name="Search", exact=True).click()
        page.wait_for_selector(".hit")
        names = page.locator(".hit-link").all_text_contents()
        assert "harbour.mp4" in names
        assert HOSTILE not in names  # it is 8 s long
        said = page.locator(".filter-line").inner_text()
        assert said.startswith("Only videos: in films, 0:09 or longer, 1:00 or shorter, changed from ")
        page.get_by_role("link", name="Duplicates").click()
        page.get_by_text("in films, 0:09 or longer").wait_for()  # as it was left
        with page.expect_request("**/api/duplicates") as sent:
            page.get_by_role("button", name=re.compile("Look (for duplicates|again)")).click()
        assert sent.value.post_data_json.items() >= {"min_seconds": 9, "max_seconds": 60}.items()
        page.locator(".filter-line").wait_for()
        fits(page)
        page.get_by_role("button", name="All videos").click()
        page.get_by_text("all videos", exact=True).wait_for()
        with page.expect_request("**/api/duplicates") as sent:  # what later tests find is not limited
            page.get_by_role("button", name="Look again").click()
        assert "min_seconds" not in sent.value.post_data_json
        page.wait_for_selector(".summary")
        until(page, "!document.querySelector('.filter-line')")


@pytest.mark.parametrize("size", SIZES)
def test_a_link_to_a_hit_opens_in_another_browser_and_says_when_it_is_gone(
    browser: Any, address: str, films: Path, size: str
) -> None:
    with opened(browser, address, size) as page:
        search(page, films / "clip.mp4")
        page.locator(".hit", has_text="harbour.mp4").first.click()
        page.get_by_role("button", name="Copy link").click()
        page.get_by_text("The uploaded video is kept for it until").first.wait_for()
        link = page.evaluate("navigator.clipboard.readText()")
        fits(page)
    with opened(browser, address, size, expected="status of 404") as page:
        page.goto(link)
        page.wait_for_selector(".play")
        assert page.title() == "clip.mp4 and harbour.mp4 – hapvr"
        query = re.search(r"q:(q\w+)|q%3A(q\w+)", link)
        assert query is not None
        id = query[1] or query[2]
        assert asked(f"{address}api/queries/{id}")["until"]
        remove = urllib.request.Request(f"{address}api/queries/{id}", method="DELETE")
        until(page, "document.querySelectorAll('video').length === 2")
        urllib.request.urlopen(remove, timeout=90).close()
        page.evaluate("sessionStorage.clear()")
        page.reload()
        page.locator(".state-error", has_text="is not kept any more").wait_for()
        assert "Search for the video again" in page.locator(".state-error").inner_text()
        fits(page)


@pytest.mark.parametrize("size", SIZES)
def test_a_folder_within_a_root_is_chosen_from_a_list(browser: Any, address: str, films: Path, size: str) -> None:
    (films / "new" / "2026" / "march").mkdir(parents=True, exist_ok=True)
    with opened(browser, address, size) as page:
        page.goto(f"{address}#/library")
        page.get_by_label("Root").select_option(label="new")
        choose = page.get_by_role("button", name="Choose…")
        choose.focus()
        page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog", name="Choose a folder in new")
        dialog.get_by_role("button", name="2026").click()
        dialog.get_by_role("button", name="march").click()
        dialog.get_by_text("No folders in it").wait_for()
        dialog.get_by_role("button", name="One level up").click()
        dialog.get_by_role("button", name="march").wait_for()
        fits(page)
        dialog.get_by_role("button", name="Use this folder").click()
        until(page, "document.querySelector('.add-form input[name=path]').value === '2026'")
        assert page.evaluate("document.activeElement.textContent") == "Choose…"
        choose.click()
        dialog.get_by_role("button", name="march").wait_for()  # it opens where one was
        page.keyboard.press("Escape")
        dialog.wait_for(state="detached")


# --- what the server or the browser cannot do ------------------------------------------------------------------------


def test_a_codec_the_browser_does_not_know_is_shown_as_a_preview(browser: Any, address: str) -> None:
    with opened(browser, address) as page:
        videos = page.evaluate("fetch('api/videos').then((answer) => answer.json())")["videos"]
        ids = {video["name"]: video["id"] for video in videos}
        page.goto(f"{address}#/match/v:{ids['harbour.mp4']}/{ids['old codec.mp4']}")
        page.get_by_text("a smaller preview is shown").wait_for()
        until(page, "document.querySelectorAll('video').length === 2")
        assert page.locator("video").nth(1).get_attribute("src").endswith("/preview")


def test_progress_is_asked_for_where_events_do_not_come(browser: Any, address: str, films: Path) -> None:
    with opened(browser, address, expected="ERR_FAILED") as page:
        page.route("**/events", lambda route: route.abort())
        search(page, films / "clip.mp4")
        assert page.locator(".hit").count() >= 2


def test_a_file_that_is_no_video_is_refused_in_words(browser: Any, address: str, tmp_path: Path) -> None:
    (tmp_path / "notes.mp4").write_text("not a video at all " * 100)
    with opened(browser, address, expected="status of 4|ERR_|DEMUXER") as page:
        search(page, tmp_path / "notes.mp4")
        assert "notes.mp4" in page.locator(".state-error").inner_text()


def test_a_picture_that_shows_nothing_is_said_to(browser: Any, address: str, tmp_path: Path) -> None:
    Image.new("RGB", (160, 120)).save(tmp_path / "black.png")
    with opened(browser, address) as page:
        search(page, tmp_path / "black.png")
        assert page.locator("h1").inner_text() == "No match"
        text = page.locator(".state").inner_text()
        assert "Nothing to look for" in text
        assert "no informative frames" in text


def test_a_part_that_makes_no_sense_is_not_sent(browser: Any, address: str, films: Path) -> None:
    with opened(browser, address) as page:
        page.set_input_files("input[type=file]", str(films / "clip.mp4"))
        page.get_by_label("From", exact=True).fill("4")
        page.get_by_label("To", exact=True).fill("2")
        page.get_by_role("button", name="Search", exact=True).click()
        assert page.get_by_text("The part must end after it starts.").is_visible()
        page.get_by_label("To", exact=True).fill("0:05.5")
        page.evaluate(  # a browser does not show the body of an upload
            """() => {
              window.sent = {};
              const append = FormData.prototype.append;
              FormData.prototype.append = function (name, value, ...rest) {
                window.sent[name] = String(value);
                append.call(this, name, value, ...rest);
              };
            }"""
        )
        page.get_by_role("button", name="Search", exact=True).click()
        page.wait_for_selector(".hit, .state")
        sent = page.evaluate("window.sent")
        fields = {"k": "10", "exact": "false", "ignore_shared": "true", "start_s": "4", "end_s": "5.5"}
        assert sent == fields | {"file": "[object File]"}


def test_a_token_is_asked_for_and_the_view_goes_on(browser: Any, address: str) -> None:
    inside = False

    def login(route: Any) -> None:
        nonlocal inside
        inside = "token=right" in (route.request.post_data or "")
        route.fulfill(status=200 if inside else 403, body="")

    def api(route: Any) -> None:
        error = {"error": {"type": "Forbidden", "message": "This server asks for a token.", "hint": None}}
        route.continue_() if inside else route.fulfill(status=401, json=error)

    with opened(browser, address, expected="status of 40[13]") as page:
        page.route("**/login", login)
        page.route("**/api/**", api)
        page.goto(f"{address}#/library")
        page.get_by_label("Token").fill("wrong")
        page.get_by_role("button", name="Continue").click()
        page.get_by_text("That is not the token").wait_for()
        page.get_by_label("Token").fill("right")
        page.get_by_role("button", name="Continue").click()
        page.wait_for_selector(".row-item")


def test_a_server_that_is_gone_is_said(browser: Any, address: str) -> None:
    with opened(browser, address, expected="ERR_") as page:
        page.route("**/api/**", lambda route: route.abort())
        page.get_by_role("link", name="Library").click()
        page.get_by_text("The server does not answer.").wait_for()
        page.unroute("**/api/**")
        page.get_by_role("button", name="Try again").click()
        page.wait_for_selector(".row-item")


# --- looks and settings ----------------------------------------------------------------------------------------------


def test_colours_follow_the_system_until_they_are_chosen(browser: Any, address: str) -> None:
    def ground(page: Page) -> str:
        colour: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return colour

    with opened(browser, address, color_scheme="dark") as page:
        dark = ground(page)
        page.get_by_role("button", name="Use light colours").click()
        assert ground(page) != dark
        page.reload()
        assert ground(page) != dark
        page.emulate_media(color_scheme="light")
        page.get_by_role("button", name="Use dark colours").click()
        assert ground(page) == dark


def test_settings_are_kept_and_sent(browser: Any, address: str) -> None:
    with opened(browser, address) as page:
        page.get_by_role("link", name="Settings").click()
        page.get_by_label("Matches shown at most").fill("1")
        page.get_by_label("Exact search").check()
        page.get_by_label("Ignore shared footage").uncheck()
        page.get_by_label("Matches shown at most").blur()
        page.reload()
        assert page.get_by_label("Matches shown at most").input_value() == "1"
        page.get_by_role("link", name="Library").click()
        with page.expect_request(lambda request: request.method == "POST") as sent:
            page.get_by_role("button", name="Find similar to old codec.mp4").click()
        assert sent.value.post_data_json.items() >= {"k": 1, "exact": True, "ignore_shared": False}.items()
        page.wait_for_selector(".hit")
        assert page.locator(".hit").count() == 1


@pytest.mark.parametrize("size", SIZES)
def test_the_page_speaks_german_to_a_german_browser_and_what_is_chosen_after(
    browser: Any, address: str, films: Path, size: str
) -> None:
    english = "Object.values(m.STRINGS).filter((row) => row[0] !== row[1]).flatMap((row) => row[0])"
    texts = """() => {
      const found = [];
      const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
      while (walker.nextNode()) found.push(walker.currentNode.data.trim());
      for (const one of document.querySelectorAll('[aria-label], [title], [placeholder]'))
        found.push(one.ariaLabel, one.title, one.placeholder);
      return found.filter(Boolean);
    }"""
    with opened(browser, address, size, expected="status of 404", locale="de-AT") as page:
        table = set(module(page, "strings.js", f"return {english}"))
        for view, complete in VIEWS.items():
            page.goto(f"{address}#/{view}")
            page.wait_for_selector(complete)
            assert set(page.evaluate(texts)) & {one.strip() for one in table} == set(), view
            fits(page)
        assert page.evaluate("document.documentElement.lang") == "de"
        page.set_input_files("input[type=file]", str(films / "clip.mp4"))
        page.get_by_role("button", name="Suche", exact=True).click()
        page.wait_for_selector(".hit")
        assert re.search(r"\d+,\d\s%|über 99,9\s%", page.locator(".sure-number").first.inner_text())
        page.locator(".hit-link").first.click()
        page.get_by_role("button", name="Abspielen").wait_for()
        assert set(page.evaluate(texts)) & {one.strip() for one in table} == set()
        fits(page)
        page.get_by_label("Sprache").select_option("es")
        page.get_by_role("button", name="Reproducir").wait_for()
        page.reload()
        page.get_by_role("button", name="Reproducir").wait_for()  # it is remembered
        assert page.evaluate("document.documentElement.lang") == "es"
        fits(page)


# Each view, and what shows that it is complete.
VIEWS = {"duplicates": ".state, .summary", "library": ".row-item", "settings": ".setting", "nowhere": ".state",
         "results/none": ".state-error", "match/v:none/none": ".state-error", "text?q=green": ".hit",
         "": ".text-form"}  # fmt: skip


def test_every_view_can_be_read_aloud_and_fits_a_phone(browser: Any, address: str) -> None:
    with opened(browser, address, "phone", expected="status of 404") as page:
        for view, complete in VIEWS.items():
            page.goto(f"{address}#/{view}")
            page.wait_for_selector(complete)
            assert page.locator("h1").count() == 1
            assert page.evaluate("document.activeElement.tagName") == "H1"
            assert page.locator("main, nav[aria-label=Main], header").count() >= 3
            nameless = page.evaluate(
                """[...document.querySelectorAll('button, a, input, select')].filter((element) => {
                  const labels = [...(element.labels ?? [])].map((label) => label.textContent).join('');
                  return !(element.getAttribute('aria-label') || element.textContent.trim() || labels.trim());
                }).map((element) => element.outerHTML)"""
            )
            assert nameless == [], view
            assert page.locator("img:not([alt])").count() == 0
            fits(page)


@pytest.mark.parametrize(("size", "scheme"), [("desktop", "light"), ("desktop", "dark"), ("phone", "dark")])
def test_axe_finds_nothing_serious_in_any_view(browser: Any, address: str, films: Path, size: str, scheme: str) -> None:
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe is missing (pip install -e '.[dev]')"
    )
    found: list[str] = []

    def check(page: Page, view: str) -> None:
        for one in axe.Axe().run(page).response["violations"]:
            if one["impact"] in ("serious", "critical"):
                places = [node["html"][:160] for node in one["nodes"][:3]]
                found.append(f"{view}: {one['id']} ({one['help']}): {places}")

    with opened(browser, address, size, expected="status of 404", color_scheme=scheme) as page:
        for view, complete in VIEWS.items():
            page.goto(f"{address}#/{view}")
            page.wait_for_selector(complete)
            check(page, view)
        page.set_input_files("input[type=file]", str(films / "clip.mp4"))
        page.get_by_text("Only some videos").click()
        check(page, "chosen")
        page.get_by_role("button", name="Search", exact=True).click()
        page.wait_for_selector(".hit")
        page.get_by_text("Show the nearest others").click()
        check(page, "results")
        page.locator(".hit-link").first.click()
        page.wait_for_selector(".play")
        page.keyboard.press("o")
        check(page, "match")
        page.keyboard.press("?")
        page.get_by_role("dialog").wait_for()
        check(page, "keys")
        assert found == []
        page.evaluate("document.querySelector('dialog').append(document.createElement('input'))")
        check(page, "a field without a label")
        assert [one.split(" ")[5] for one in found] == ["label"]  # axe does look


# --- its modules -----------------------------------------------------------------------------------------------------


def test_times_and_sizes_are_written_as_people_read_them(bare: Page) -> None:
    written = module(bare, "format.js", "return a.map((one) => m.clock(one))", 0, 7.4, 59.6, 3599.6, 3723)
    assert written == ["0:00", "0:07", "1:00", "1:00:00", "1:02:03"]
    assert module(bare, "format.js", "return m.clock(59.96, { tenths: true })") == "1:00.0"
    read = module(bare, "format.js", "return a.map((one) => m.parseClock(one))", "75", "1:15,5", "1:02:03", "")
    assert read == [75, 75.5, 3723, None]
    wrong = module(
        bare, "format.js", "return a.map((one) => Number.isNaN(m.parseClock(one)))", "x", "1:2:3:4", "-1", "1:"
    )
    assert wrong == [True] * 4
    assert module(bare, "format.js", "return a.map(m.bytes)", 0, 999, 1400, 999_600, 12e9) == [
        "0 B", "999 B", "1.4 kB", "1.0 MB", "12 GB"]  # fmt: skip
    assert module(bare, "format.js", "return a.map(m.percent)", 0.98765, 0.99999, 1e-7) == [
        "98.8%", "over 99.9%", "under 0.1%"]  # fmt: skip


def test_a_time_is_read_back_as_it_was_written(bare: Page) -> None:
    program = "return a.map((one) => m.parseClock(m.clock(one, { tenths: true })))"
    seconds = [round(tenth / 10, 1) for tenth in range(0, 90_000, 337)]
    assert module(bare, "format.js", program, *seconds) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("segment", "query", "target"),
    [
        ({"query": [0, 10], "target": [20, 30]}, 4, 24),
        ({"query": [2, 12], "target": [0, 5]}, 4, 1),  # the target runs at half the speed
        ({"query": [0, 10], "target": [20, 30], "backwards": True}, 4, 26),
        ({"query": [3, 3], "target": [7, 7]}, 5, 9),  # an instant: both run on from there
        ({"query": [0, 10], "target": [20, 30], "line": {"query": 5, "target": 26, "speed": 2}}, 6, 28),
    ],
)
def test_a_moment_of_one_video_is_found_in_the_other(bare: Page, segment: Any, query: float, target: float) -> None:
    assert module(bare, "timing.js", "return m.toTarget(a[0], a[1])", segment, query) == pytest.approx(target)
    assert module(bare, "timing.js", "return m.toQuery(a[0], a[1])", segment, target) == pytest.approx(query)
    back = module(bare, "timing.js", "return m.toQuery(a[0], m.toTarget(a[0], a[1]))", segment, 3.21)
    assert back == pytest.approx(3.21)


def test_the_nearest_frame_is_that_of_a_slow_search(bare: Page) -> None:
    rng = np.random.default_rng(0)
    frames = np.cumsum(rng.uniform(0.1, 1, 40)).tolist()
    asked = rng.uniform(-1, 25, 200).tolist()
    found = module(bare, "timing.js", "return a[1].map((time) => m.nearest(a[0], time))", frames, asked)
    assert found == [min(range(len(frames)), key=lambda index: abs(frames[index] - time)) for time in asked]


@pytest.mark.parametrize(("speed", "offset"), [(1.0, 4.8), (0.5, 1.3), (2.0, 3.0), (-1.0, 18.0)])
def test_the_line_through_a_matrix_corrects_ends_that_are_a_frame_off(bare: Page, speed: float, offset: float) -> None:
    """Frames are as alike as their moments are near; the ends are off by a frame on either side."""
    query, target = np.arange(0, 10, 0.5), np.arange(0, 24, 0.5)
    distance = np.abs(target[None] - (offset + speed * query[:, None]))
    values = np.round(255 * np.exp(-(distance**2))).astype(int)
    ends = sorted((offset + speed * query[0] - 0.5, offset + speed * query[-1] + 0.5))
    segment = {"query": [0, 9.5], "target": ends, "backwards": speed < 0}
    matrix = {"rows": len(query), "columns": len(target), "values": values.ravel().tolist()}
    moments = {"query": query.tolist(), "target": target.tolist()}
    program = "const one = m.fitted(...a); return [0, 5, 9.5].map((time) => m.toTarget(one, time))"
    found = module(bare, "timing.js", program, segment, matrix, moments)
    assert found == pytest.approx([offset + speed * time for time in (0, 5, 9.5)], abs=0.2)


def test_a_strip_has_as_many_frames_as_fit(bare: Page) -> None:
    shapes = [[12, 16 / 9], [12, 9 / 16], [12, None], [1, 4], [100, 0.1]]
    found = module(bare, "components/filmstrip.js", "return a.map((one) => m.countFrames(...one))", *shapes)
    assert found == [7, 21, 7, 1, 40]


def test_a_follower_is_nudged_the_right_way_or_moved(bare: Page) -> None:
    program = "return a.map((drift) => m.correction(drift, 2))"
    ahead, behind, near, far = module(bare, "timing.js", program, 0.2, -0.2, 0.01, -0.9)
    assert ahead < 2 < behind
    assert near == 2
    assert far == "seek"
    assert ahead + behind == pytest.approx(4)  # as much either way
