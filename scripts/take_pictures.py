"""Take the pictures of the page that docs/img keeps: drawn films in a library, a server, and Chromium.

    python scripts/take_pictures.py [--out docs/img]

Needs the extra `dev` and a Chromium, as the browser tests do.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image
from playwright.sync_api import Page, ViewportSize, sync_playwright

from hapvr.library import Library
from hapvr.synthetic.cards import add_card, draw_cards
from hapvr.synthetic.clip import Clip
from hapvr.synthetic.clip_files import write_clip
from hapvr.synthetic.footage import draw_footage

STAND_INS = Path(__file__).resolve().parents[1] / "tests" / "stand_ins"
FPS, SIZE = 10.0, (216, 384)
SIZES: dict[str, ViewportSize] = {"desktop": {"width": 1120, "height": 760}, "phone": {"width": 390, "height": 844}}
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
HARBOUR = 14  # the seed of a film that begins at the sea
OTHERS = {"cup final": 1, "desert train": 3, "concert": 4, "aquarium": 5, "city at night": 11, "interview": 12}  # seeds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/img"))
    parser.add_argument("--only", choices=["actions", "text"], help="only those of actions on duplicates, or of text")
    arguments = parser.parse_args()
    out = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    for name, take_some in (("actions", take_actions), ("text", take_text)):
        if arguments.only in (None, name):
            with tempfile.TemporaryDirectory() as folder:
                take_some(Path(folder), out)
    if arguments.only is not None:
        return
    with tempfile.TemporaryDirectory() as folder:
        films = Path(folder) / "films"
        films.mkdir()
        clip = draw(films)
        with Library.open(Path(folder) / "library", create=True) as library:
            library.add([films])
        with serving(Path(folder) / "library", films) as address:
            for scheme in SCHEMES:
                for size in SIZES:
                    take(address, clip, out, size, scheme)


def draw(films: Path) -> Path:
    """Films, all with one end card, copies of one, a file that is no video; the clip to search for is beside them."""
    card = draw_cards(3, 1)[0]
    harbour = add_card(draw_footage(HARBOUR, seconds=24, fps=FPS, size=SIZE), card)[0]
    write_clip(harbour, films / "harbour at dusk.mp4")
    write_clip(Clip(np.ascontiguousarray(harbour.images[:, :, ::-1]), FPS), films / "harbour (re-upload, mirrored).mp4")
    write_clip(Clip(np.ascontiguousarray(harbour.images[30:210:2]), FPS), films / "harbour twice as fast.mp4", crf=30)
    for name, seed in OTHERS.items():
        scene = draw_footage(seed, seconds=9 + seed % 5, fps=FPS, size=SIZE)
        write_clip(add_card(scene, card)[0], films / f"{name}.mp4")
    (films / "cut off.mp4").write_bytes((films / "cup final.mp4").read_bytes()[:20_000])
    clip = films.parent / "clip_from_phone.mp4"
    write_clip(Clip(np.ascontiguousarray(harbour.images[130:]), FPS), clip, crf=32)
    return clip


def take_actions(folder: Path, out: Path) -> None:
    """Pictures of a server that may act on duplicates: a wide and a tall film, each with a copy."""
    films = folder / "films"
    films.mkdir()
    for name, seed, shape in (("harbour", HARBOUR, SIZE), ("concert", OTHERS["concert"], SIZE[::-1])):
        write_clip(draw_footage(seed, seconds=8, fps=FPS, size=shape), films / f"{name}.mp4")
        shutil.copy(films / f"{name}.mp4", films / f"{name} (copy).mp4")
    with Library.open(folder / "library", create=True) as library:
        library.add([films])
    with serving(folder / "library", films, "--allow-actions") as address:
        for scheme in SCHEMES:
            for size in SIZES:
                with browsing(size, scheme) as page:
                    find_duplicates(page, address)
                    keep(page, out / f"page-actions-{size}-{scheme}.png")
                    page.get_by_role("button", name="Move to the trash").click()
                    page.get_by_role("dialog").wait_for()
                    if (size, scheme) == ("desktop", "light"):
                        keep(page, out / "page-actions-preview.png")


def take_text(folder: Path, out: Path) -> None:
    """Pictures of a search by text, by the tests' stand-in for a text model: it knows the names of colours."""
    sys.path.insert(0, str(STAND_INS))
    stand_in = importlib.import_module("open_clip")
    films = folder / "films"
    films.mkdir()
    for name, seed in (("desert train", 3), ("aquarium", 5)):
        write_clip(draw_footage(seed, seconds=12, fps=FPS, size=SIZE), films / f"{name}.mp4")
    write_clip(draw_footage(OTHERS["concert"], seconds=8, fps=FPS, size=SIZE[::-1]), films / "concert.mp4")
    with Library.open(folder / "library", create=True) as library:
        library.add([films], text_model=stand_in.write_model(folder / "model"))
    with serving(folder / "library", films) as address:
        for scheme in SCHEMES:
            for size in SIZES:
                with browsing(size, scheme) as page:
                    page.goto(address)
                    page.get_by_label("Describe what is to be seen").fill("red")
                    page.get_by_role("button", name="Search by text").click()
                    page.wait_for_selector(".hit")
                    page.wait_for_timeout(6000)  # thumbnails
                    keep(page, out / f"page-text-{size}-{scheme}.png")


@contextmanager
def serving(library: Path, films: Path, *options: str) -> Iterator[str]:
    """The address of a server of this library."""
    program = "import sys; from hapvr.cli import main; sys.exit(main())"
    arguments = [sys.executable, "-c", program, "serve", str(library), "--port", "0", "--root", str(films), *options]
    log = library.parent / "log"
    with log.open("wb") as file:
        variables = {**os.environ, "PYTHONPATH": str(STAND_INS)}
        server = subprocess.Popen(arguments, stdout=file, stderr=file, env=variables)
    try:
        while not (found := re.search(r"http://\S+/", log.read_text())):
            if server.poll() is not None:
                raise SystemExit(log.read_text())
            time.sleep(0.1)
        time.sleep(1)
        yield found[0]
    finally:
        server.terminate()
        server.wait(30)


@contextmanager
def browsing(size: str, scheme: Literal["light", "dark"]) -> Iterator[Page]:
    """A page in a browser."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    options = ["--disable-gpu", "--mute-audio", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=options)
        context = browser.new_context(
            viewport=SIZES[size], color_scheme=scheme, reduced_motion="reduce", is_mobile=size == "phone"
        )
        # Drawn films are more alike than real ones: the three best hits are shown.
        context.add_init_script("localStorage.setItem('hapvr.settings', JSON.stringify({ k: 3 }))")
        page = context.new_page()
        page.set_default_timeout(120_000)
        yield page
        browser.close()


def find_duplicates(page: Page, address: str) -> None:
    """Show duplicates; what was found before stays with the server."""
    page.goto(f"{address}#/duplicates")
    page.wait_for_timeout(1500)
    if not page.locator(".group").count():
        page.get_by_role("button", name="Look for duplicates").click()
    page.wait_for_selector(".group")
    page.wait_for_timeout(3000)


def take(address: str, clip: Path, out: Path, size: str, scheme: Literal["light", "dark"]) -> None:
    """All pictures of one size and colour scheme."""
    with browsing(size, scheme) as page:
        page.goto(address)
        page.wait_for_selector("input[type=file]", state="attached")
        if (size, scheme) == ("desktop", "light"):
            keep(page, out / "page-search.png")
        page.set_input_files("input[type=file]", str(clip))
        if (size, scheme) == ("desktop", "light"):
            page.locator(".filter summary").click()
            page.wait_for_timeout(1000)
            keep(page, out / f"page-filter-{size}-{scheme}.png")
        page.get_by_role("button", name="Search", exact=True).click()
        page.wait_for_selector(".hit")
        page.wait_for_timeout(4000)  # thumbnails
        keep(page, out / f"page-hits-{size}-{scheme}.png")
        page.locator(".hit a").first.click()
        page.wait_for_selector(".matrix")
        page.wait_for_timeout(3000)
        keep(page, out / f"page-match-{size}-{scheme}.png", whole=size == "desktop")
        take_closer(page, out, size, scheme)
        find_duplicates(page, address)
        keep(page, out / f"page-duplicates-{size}-{scheme}.png")
        page.goto(f"{address}#/library")
        page.wait_for_selector(".row-item")
        page.wait_for_selector("#shared img")
        page.locator(".row-item").last.scroll_into_view_if_needed()  # thumbnails are loaded when they are seen
        page.wait_for_timeout(3000)
        page.evaluate("window.scrollTo(0, 0)")
        keep(page, out / f"page-library-{size}-{scheme}.png", whole=size == "desktop")
        if (size, scheme) == ("phone", "light"):
            page.locator("#add .choose-folder").click()
            page.get_by_role("dialog").get_by_role("listitem").first.wait_for()
            keep(page, out / f"page-folders-{size}-{scheme}.png")


def take_closer(page: Page, out: Path, size: str, scheme: str) -> None:
    """The two frames as one picture, and the list of keys: a few of them are enough."""
    for key, name, shown in (
        ("o", "overlay", ("desktop", "light")),
        ("d", "difference", ("phone", "dark")),
        ("?", "keys", ("desktop", "dark")),
    ):
        page.keyboard.press(key)
        if (size, scheme) == shown:
            page.locator(".closer").scroll_into_view_if_needed()
            page.wait_for_timeout(300)
            keep(page, out / f"page-{name}-{size}-{scheme}.png")
    page.keyboard.press("Escape")


def keep(page: Page, path: Path, *, whole: bool = False) -> None:
    """A picture of the page, in few colours."""
    picture = Image.open(io.BytesIO(page.screenshot(full_page=whole)))
    picture.convert("RGB").quantize(192, dither=Image.Dither.NONE).save(path, optimize=True)
    print(path)


if __name__ == "__main__":
    main()
