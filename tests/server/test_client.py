"""`hapvr.Client` against `hapvr serve` in a process."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

import hapvr
from hapvr.client import (
    BadInputError,
    Client,
    ConflictError,
    ConnectError,
    ForbiddenError,
    NotFoundError,
    TooLargeError,
)
from hapvr.errors import ConfigError, HapvrError
from hapvr.library import Library
from hapvr.library.indexed_folders import TextModelSource, write_text_model
from hapvr.library.text_model import load_text_model
from hapvr.synthetic.sounds import RATE, add_sound, draw_sound
from tests.stand_ins import open_clip
from tests.stand_ins.open_clip import write_colours, write_model

from .test_running import Running

TOKEN = "a long enough token"
PAGE = Path(__file__).parents[2] / "docs" / "server.md"


@pytest.fixture(scope="module")
def place(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of a server of a copy of the library, and its folder."""
    folder = tmp_path_factory.mktemp("client")
    shutil.copytree(made / "library", folder / "library")
    shutil.copy(made / "clip.mp4", folder / "clip.mp4")
    (folder / "serve").mkdir()
    (folder / "more").mkdir()
    options = ("--max-upload", "1", "--token", TOKEN, "--root", str(folder / "more"), "--allow-host", "127.0.0.1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", open_clip.make_python_path())
        server = Running(folder / "library", folder / "serve", *options)
    address = f"http://127.0.0.1:{server.port}"
    while True:
        try:
            Client(address, token=TOKEN).health()
            break
        except HapvrError:
            assert server.process.poll() is None, server.log.read_text()
            time.sleep(0.05)
    yield address, folder
    if server.process.poll() is None:
        server.process.kill()
    server.process.wait()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("HAPVR_TOKEN", raising=False)


def test_the_example_of_the_page_runs(
    place: tuple[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    address, folder = place
    monkeypatch.chdir(folder)
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert "http://127.0.0.1:8787" in program
    monkeypatch.setenv("HAPVR_TOKEN", TOKEN)
    exec(compile(program.replace("http://127.0.0.1:8787", address), str(PAGE), "exec"), {})
    out = capsys.readouterr().out
    assert "film 1.mp4" in out
    assert (folder / "match.jpg").read_bytes()[:2] == b"\xff\xd8"


def test_what_the_library_offers(place: tuple[str, Path]) -> None:
    address, folder = place
    client = Client(address + "/", token=TOKEN)
    names = [video["name"] for video in client.videos()]
    assert {"film 0.mp4", "film 1.mp4", "film 2.mp4"} <= set(names)
    (film,) = client.videos(q="film 1")
    assert client.video(film["id"])["id"] == film["id"]
    found = client.search_file(folder / "clip.mp4", k=2, start_s=0.5, exact=True)
    assert [hit["id"] for hit in found.matches] == [film["id"]]
    again = client.search(found.query, k=1)
    assert [hit["id"] for hit in again.matches] == [film["id"]]
    pair = client.compare(found.query, film["id"])
    assert pair["match"]
    assert client.matrix(found.query, film["id"])[:4] == b"\x89PNG"
    assert client.thumbnail(film["id"], t=1, width=64)[:2] == b"\xff\xd8"
    assert client.strip(found.query, count=3, upload=True)[:2] == b"\xff\xd8"
    assert client.remove(found.query) == 1
    assert "groups" in client.duplicates(min_probability=0.9)


def test_a_folder_is_added(place: tuple[str, Path]) -> None:
    address, folder = place
    client = Client(address, token=TOKEN)
    shutil.copy(folder / "clip.mp4", folder / "more" / "one more.mp4")
    (root,) = client.library()["roots"]
    assert client.add(root["id"])["added"] == 1
    (video,) = client.videos(q="one more")
    assert client.remove(video["id"]) == 1


def test_a_description_is_looked_for_once_the_library_has_a_text_model(
    place: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, folder = place
    client = Client(address, token=TOKEN)
    assert client.library()["text_search"] is False
    with pytest.raises(ConflictError, match=r"no text model .* Give it one: hapvr add"):
        client.search_text("red")
    model, clip = write_model(folder / "clip"), write_colours(folder / "red then green.mp4", "red", "green")
    monkeypatch.setitem(sys.modules, "open_clip", open_clip)
    with Library.open(folder / "library") as library:
        library.add([clip], text_model=load_text_model(model), workers=1)
    assert client.library()["text_search"] is True
    found = client.search_text("green", k=2)
    (best, other) = found["hits"]
    assert (found["text"], found["database"], found["note"], best["name"]) == ("green", 4, None, "red then green.mp4")
    assert best["duration"] == pytest.approx(20, abs=0.2)
    assert best["path"] is None  # it lies in no root
    assert best["instants"][0]["time_s"] >= 10
    assert best["instants"][0]["similarity"] > 0.95 > other["instants"][0]["similarity"]
    short = client.search_text("green", max_seconds=10)
    assert (len(short["hits"]), short["filter"]) == (3, {"max_seconds": 10.0})
    for text in ("", "  ", "x" * 501):
        with pytest.raises(BadInputError) as refused:
            client.search_text(text)
        assert refused.value.status == 422
    with pytest.raises(BadInputError, match="k"):
        client.search_text("green", k=201)

    shutil.move(model, folder / "moved")
    assert client.search_text("green", k=2)["hits"] == found["hits"]  # it was loaded once
    with Library.open(folder / "library") as library:
        library.forget_text_model()
        library.add([], text_model=load_text_model(write_model(model, dims=5, seed=1)), workers=1)
    assert client.search_text("green", k=1)["hits"][0]["id"] == best["id"]  # by the other model
    with Library.open(folder / "library") as library, library.write_access("tests"):
        write_text_model(library.path, TextModelSource(str(folder / "gone"), "another"))
    with pytest.raises(BadInputError, match="'gone' is no folder of a text model") as missing:
        client.search_text("green")
    assert str(folder) not in str(missing.value)
    with Library.open(folder / "library") as library:
        library.forget_text_model()
        library.remove([best["id"]])


def test_an_upload_is_searched_by_its_sound_once_the_library_has_sound(place: tuple[str, Path], made: Path) -> None:
    address, folder = place
    client, song = Client(address, token=TOKEN), draw_sound(1, 8.0)
    add_sound(made / "films" / "film 2.mp4", song, folder / "dubbed.mp4")
    add_sound(folder / "clip.mp4", song[1 * RATE : 7 * RATE], folder / "query.mp4")
    found = client.search_file(folder / "query.mp4")
    assert (found.result["sound_hits"], [hit["sound"] for hit in found.matches]) == ([], [None])
    with Library.open(folder / "library") as library:
        library.add([folder / "dubbed.mp4"], sound=True, workers=1)
        (dubbed,) = [record.id for record in library.videos() if record.path.endswith("dubbed.mp4")]
    for _ in range(100):  # what the server knows may be a second old
        again = client.search(found.query, start_s=1.0)
        if again.result["sound_hits"]:
            break
        time.sleep(0.05)
    (hit,) = again.result["sound_hits"]
    assert (hit["id"], hit["name"]) == (dubbed, "dubbed.mp4")
    ((first, last), (begin, end)) = (hit["stretches"][0][side] for side in ("query", "target"))
    assert first >= 1.0
    assert (begin - first, end - last) == (pytest.approx(1, abs=0.1), pytest.approx(1, abs=0.1))
    assert [one["sound"]["kind"] for one in again.matches] == ["silent"]  # the film whose pictures it shows
    assert client.search_file(folder / "query.mp4").result["sound_hits"][0]["id"] == dubbed
    assert client.compare(found.query, dubbed)["sound"]["kind"] == "same"
    with Library.open(folder / "library") as library:
        library.remove([dubbed])


def test_errors_have_types_and_the_body_of_the_problem(place: tuple[str, Path], tmp_path: Path) -> None:
    address, _ = place
    client = Client(address, token=TOKEN)
    with pytest.raises(NotFoundError) as missing:
        client.video("nothing")
    assert (missing.value.status, missing.value.type) == (404, "NotFound")
    assert "nothing" in missing.value.message
    with pytest.raises(ForbiddenError):
        Client(address, token="another token").library()
    with pytest.raises(ForbiddenError):
        Client(address).library()
    (tmp_path / 'no "video".mp4').write_text("nothing")
    with pytest.raises(BadInputError) as unreadable:
        client.search_file(tmp_path / 'no "video".mp4')
    assert unreadable.value.message
    with pytest.raises(BadInputError, match="k"):
        client.search("a", k=100_000)
    (tmp_path / "large.mp4").write_bytes(bytes(3 * 2**20))
    with pytest.raises((TooLargeError, ConnectError)):  # the server may close the connection before all is sent
        client.search_file(tmp_path / "large.mp4")
    with pytest.raises(FileNotFoundError):
        client.search_file(tmp_path / "none.mp4")


class _Elsewhere(BaseHTTPRequestHandler):
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(302 if self.path == "/api/health" else 200)
        self.send_header("Location", "/other")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        pass


def test_a_token_follows_no_redirect_and_an_answer_of_another_shape_is_an_error() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Elsewhere) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        client = Client(f"http://127.0.0.1:{server.server_address[1]}", token=TOKEN)
        try:
            with pytest.raises(BadInputError, match="status 302"):
                client.health()
        finally:
            server.shutdown()
            thread.join()
    assert _Elsewhere.asked == ["/api/health"]


def test_no_server_and_no_address() -> None:
    with pytest.raises(ConnectError, match="does not answer"):
        Client("http://127.0.0.1:1", token="").health()
    for address in ("127.0.0.1:8787", "ftp://host", "http://", "http://host?a=1"):
        with pytest.raises(ConfigError):
            Client(address)


def test_the_client_is_there_without_loading_torch() -> None:
    program = "import hapvr, sys; hapvr.Client('http://127.0.0.1:1'); assert 'torch' not in sys.modules"
    assert hapvr.Client is Client
    subprocess.run([sys.executable, "-c", program], check=True)
