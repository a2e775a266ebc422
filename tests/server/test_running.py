"""`hapvr serve` as a process: it starts, survives broken connections and killed workers, and stops when told."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI

from hapvr.cli import main
from hapvr.server import app
from hapvr.server.state import PrivateFolder

from .conftest import copy_made
from .driving import events_of
from .test_uploads import FILE, TYPE, form

PROGRAM = "from hapvr.cli import main; main()"


class Running:
    def __init__(self, library: Path, folder: Path, *options: str) -> None:
        self.library, self.folder, self.log = library, folder, folder / "log"
        command = [
            sys.executable,
            "-c",
            PROGRAM,
            "serve",
            str(library),
            "--port",
            "0",
            "--folder",
            str(folder),
            *options,
        ]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stderr=log)
        self.port = int(self.said(r"serving at http://127\.0\.0\.1:(\d+)/"))

    def said(self, pattern: str) -> str:
        """Wait until the log says something."""
        end = time.monotonic() + 120
        while time.monotonic() < end:
            if found := re.search(pattern, self.log.read_text()):
                return found[1]
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.05)
        raise AssertionError(self.log.read_text())

    def ask(self, path: str, body: Any = None, *, method: str | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {} if data is None else {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.loads(answer.read())

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def kept(self) -> list[Path]:
        return list(self.folder.glob("hapvr-serve-*/uploads/*"))


@pytest.fixture(scope="module")
def running(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder, place = tmp_path_factory.mktemp("running"), tmp_path_factory.mktemp("own")
    copy_made(made, place)
    options = ("--max-upload", "1", "--max-searches-at-once", "1", "--root", str(place / "films"))
    server = Running(place / "library", folder, *options)
    while True:
        try:
            server.ask("/api/health")
            break
        except urllib.error.URLError:
            time.sleep(0.05)
    yield server
    if server.process.poll() is None:
        server.process.kill()
        server.process.wait()


HEAD = f"POST /api/searches HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {TYPE}\r\n"


def test_an_upload_that_breaks_off_leaves_nothing(running: Running) -> None:
    body = form((FILE, bytes(200_000)))
    with running.connect() as connection:
        connection.sendall(f"{HEAD}Content-Length: {len(body)}\r\n\r\n".encode() + body[:150_000])
        while not running.kept():
            time.sleep(0.01)
    end = time.monotonic() + 10
    while running.kept() and time.monotonic() < end:
        time.sleep(0.01)
    assert running.kept() == []


def test_an_endless_upload_is_ended_and_leaves_nothing(running: Running) -> None:
    with running.connect() as connection:
        connection.sendall(f"{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode())
        piece = form((FILE, b""), end=False)[:-2]
        sent = 0
        try:
            while sent < 50_000_000:
                connection.sendall(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                sent += len(piece)
                piece = bytes(60_000)
        except OSError:
            pass  # the server has had enough
        assert sent < 20_000_000
    assert running.ask("/api/health")["status"] in ("ok", "starting")
    assert running.kept() == []


def test_a_killed_worker_is_replaced(running: Running) -> None:
    video = next(one for one in running.ask("/api/videos")["videos"] if one["state"] == "ready")
    found = re.findall(r'"worker started", "worker": "search", "pid": (\d+)', running.log.read_text())
    os.kill(int(found[-1]), signal.SIGKILL)
    running.said(r"(worker ended)")
    job = running.ask("/api/searches", {"id": video["id"]})["job"]
    while job["state"] in ("queued", "running"):
        job = running.ask(f"/api/jobs/{job['id']}?wait=30")
    assert job["state"] == "done"
    with urllib.request.urlopen(f"http://127.0.0.1:{running.port}/api/jobs/{job['id']}/events") as answer:
        assert events_of(answer.read().decode())[-1]["state"] == "done"


@pytest.mark.skipif(sys.platform != "linux", reason="what a process holds is counted in /proc")
def test_a_mixed_load_is_answered_right_and_leaves_nothing_behind(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Searches, uploads, event streams, adds and removals beside slow clients, as `benchmarks/soak.py` for an hour."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    import soak

    films = running.library.parent / "films"
    ids = {one["name"]: one["id"] for one in running.ask("/api/videos")["videos"]}
    running.ask(f"/api/videos/{ids['film 0.mp4']}", method="DELETE")  # so that it is added in the warm-up, too
    load = soak.Load(
        running.port,
        soak.expect_matches(running.library, [ids["film 1.mp4"], ids["film 2.mp4"]]),
        {name: (films / name).read_bytes() for name in ("film 0.mp4", "film 1.mp4")},
        {"": ["film 0.mp4"]},
        present={"film 1.mp4", "film 2.mp4"},
        keep_rate=0.0,
    )
    work = soak.soak(load, running.process.pid, running.folder, warm_up_s=2.0, seconds=5.0)
    result = asyncio.run(work)
    # Seconds say little about memory: what is cached for the first time is most of what comes.
    assert soak.is_flat(result, max_growth=0.5), json.dumps(result)
    assert {"searches", "uploads", "event streams", "adds", "removals", "slow connections"} <= set(result["counts"])


def test_what_a_killed_server_left_is_removed_by_the_next(tmp_path: Path) -> None:
    hold = "import sys, time; from pathlib import Path; from hapvr.server.state import PrivateFolder\n"
    hold += "place = PrivateFolder(Path(sys.argv[1])); (place.make_part('uploads') / 'film').touch()\n"
    hold += "print(place.path, flush=True); time.sleep(60)"
    servers = [subprocess.Popen([sys.executable, "-c", hold, str(tmp_path)], stdout=subprocess.PIPE) for _ in range(2)]
    folders = []
    for server in servers:
        assert server.stdout is not None
        folders.append(Path(server.stdout.readline().decode().strip()))
    (tmp_path / "hapvr-serve-of-somebody").mkdir()  # without a lock: whose it is cannot be told
    (tmp_path / "hapvr-serve-link").symlink_to(folders[0])
    servers[0].kill()
    servers[0].wait()
    try:
        place = PrivateFolder(tmp_path)
        assert not folders[0].exists()
        assert (folders[1] / "uploads" / "film").exists()  # its server runs
        assert {path.name for path in tmp_path.iterdir()} == {
            folders[1].name, place.path.name, "hapvr-serve-of-somebody", "hapvr-serve-link"
        }  # fmt: skip
        assert place.path.stat().st_mode & 0o777 == 0o700
        place.close()
        assert not place.path.exists()
    finally:
        for server in servers:
            server.kill()
            server.communicate()


@pytest.mark.parametrize("given", ["nan", "inf", "0", "-1", "1e300"])
def test_an_upload_limit_that_is_no_number_of_megabytes_is_refused(
    given: str, made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["serve", str(made / "library"), f"--max-upload={given}", "--port", "0"])
    assert ended.value.code == 2
    assert "--max-upload must be a number of MiB above 0" in capsys.readouterr().err


def test_stops_when_told_and_leaves_nothing(running: Running, made: Path) -> None:
    body = form((FILE, (made / "clip.mp4").read_bytes()))
    with running.connect() as connection:
        connection.sendall(f"{HEAD}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 202 ")
    job = re.search(rb'"id":"(j\w+)"', answer)
    assert job is not None
    assert len(running.kept()) == 1
    with running.connect() as watching:  # somebody still watches a job
        watching.sendall(f"GET /api/jobs/{job[1].decode()}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert watching.recv(20).startswith(b"HTTP/1.1 200")
        began = time.monotonic()
        running.process.send_signal(signal.SIGTERM)
        running.process.wait(60)
    assert time.monotonic() - began < 20
    assert list(running.folder.glob("hapvr-serve-*")) == []
    lines = [json.loads(line) for line in running.log.read_text().splitlines() if line.startswith("{")]
    requests = [line for line in lines if line["event"] == "request"]
    assert {"time", "level", "request", "method", "path", "status", "seconds", "client"} <= set(requests[0])
    pids = {line["pid"] for line in lines if line["event"] == "worker started"}
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_second_interrupt_ends_it_without_complaints() -> None:
    log = logging.getLogger("uvicorn.error")
    before = log.level
    log.setLevel(logging.WARNING)
    try:
        server = app._Server(uvicorn.Config(FastAPI()), FastAPI())
        server.handle_exit(signal.SIGINT, None)
        assert (server.should_exit, server.force_exit) == (True, False)
        assert log.isEnabledFor(logging.ERROR)
        server.handle_exit(signal.SIGINT, None)
        assert server.force_exit
        assert not log.isEnabledFor(logging.ERROR)
    finally:
        log.setLevel(before)
