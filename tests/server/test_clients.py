"""One client among many: how much it may ask, what is believed of what it says, and what of it reaches the log."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from hapvr.errors import ConfigError
from hapvr.server.access import open_unchanged
from hapvr.server.app import create_app
from hapvr.server.clients import RequestRates, current_client, require_share
from hapvr.server.jobs import Jobs
from hapvr.server.media import Media, Source
from hapvr.server.metrics import Metrics, log_to_stderr
from hapvr.server.problems import Problem
from hapvr.server.settings import LogFormat, ServerSettings
from hapvr.server.uploads import Uploads

from .driving import BASE, CheckedClient, Place, error_of
from .test_uploads import FILE, TYPE, form

TOKEN = "a token of more than 16 letters"
SHOWN = {"Authorization": f"Bearer {TOKEN}"}


# --- requests --------------------------------------------------------------------------------------------------------


def test_requests_are_counted_as_a_slow_loop_counts_them() -> None:
    drawn = random.Random(0)
    rates, left, last = RequestRates(per_s=3.0), 30.0, 0.0
    refused = 0
    for number in range(400):
        pause = 100.0 if number % 50 == 0 else drawn.expovariate(4.0)  # a long one earns no more than a burst
        now, cost = last + pause, drawn.choice([1.0, 1.0, 1.0, 20.0])
        for _ in range(1000):  # what is earned, in small steps
            left = min(30.0, left + 3.0 * (now - last) / 1000)
        wait_s = rates.spend("192.0.2.7", now, cost=cost)
        assert (wait_s > 0) == (left < 1.0)
        if left >= 1.0:
            left = max(-30.0, left - cost)
        else:
            assert wait_s == pytest.approx((1.0 - left) / 3.0, abs=1e-6)
            assert rates.spend("192.0.2.7", now + wait_s * 0.99) > 0  # no sooner than it was told
            refused += 1
            left, now = min(30.0, left + 3.0 * wait_s * 0.99), now + wait_s * 0.99
        last = now
    assert 100 < refused < 400


def test_clients_do_not_spend_what_others_have_and_this_machine_has_no_limit() -> None:
    rates = RequestRates(per_s=0.1)
    assert [rates.spend(client, 0.0) > 0 for client in ("a", "a", "b", None, None)] == [
        False,
        True,
        False,
        False,
        False,
    ]
    for number in range(10_000):  # who was silent for longest is forgotten
        rates.spend(f"client {number}", 0.0)
    assert len(rates._left) == 4096
    assert rates.spend("client 9999", 0.0) > 0


@pytest.fixture(scope="module")
def strict(made: Path) -> Iterator[TestClient]:
    """A server with a token that takes little of one client, which is another machine."""
    settings = ServerSettings(token=TOKEN, eager=False, max_requests_per_s=4.0)
    app = create_app(made / "library", settings=settings)
    with TestClient(app, base_url=BASE, client=("192.0.2.7", 4711), follow_redirects=False) as client:
        yield client


def ask(served: TestClient, address: str, path: str = "/api/openapi.json", **headers: str) -> int:
    """The status of an answer to a client at another address."""
    other = TestClient(served.app, base_url=BASE, client=(address, 1), follow_redirects=False)
    return other.get(path, headers={"Authorization": f"Bearer {TOKEN}"} | headers).status_code


def test_who_asks_too_often_is_told_when_to_come_back_and_others_are_answered(strict: TestClient) -> None:
    statuses = [ask(strict, "192.0.2.1", "/static/login.css") for _ in range(50)]
    assert statuses[:40] == [200] * 40
    assert 429 in statuses
    refused = strict.get("/static/login.css")
    while refused.status_code != 429:  # also without a token
        refused = strict.get("/static/login.css")
    assert error_of(refused, "Busy")
    assert int(refused.headers["retry-after"]) >= 1
    assert [ask(strict, "127.0.0.1", "/static/login.css") for _ in range(50)] == [200] * 50
    assert ask(strict, "192.0.2.2") == 200
    # Headers that a proxy would write make nobody another client, nor this machine.
    while ask(strict, "192.0.2.1") != 429:
        pass
    claims = ("X-Forwarded-For", "X-Real-IP", "Forwarded", "CF-Connecting-IP")
    said = {name: "for=127.0.0.1" if name == "Forwarded" else "127.0.0.1" for name in claims}
    assert 429 in [ask(strict, "192.0.2.1", **said) for _ in range(3)]


def test_guessed_tokens_cost_more(strict: TestClient) -> None:
    wrong = {"Authorization": "Bearer wrong"}
    other = TestClient(strict.app, base_url=BASE, client=("192.0.2.3", 1))
    assert [other.get("/api/health", headers=wrong).status_code for _ in range(4)][-1] == 429
    other = TestClient(strict.app, base_url=BASE, client=("192.0.2.4", 1))
    statuses = [other.post("/login", data={"token": "x"}, headers={"Origin": BASE}).status_code for _ in range(4)]
    assert statuses[0] == 403
    assert 429 in statuses


# --- queues ----------------------------------------------------------------------------------------------------------


def test_a_client_takes_its_share_of_a_queue_and_no_more() -> None:
    holders = ["192.0.2.7", "192.0.2.7", "192.0.2.8", None, None, None]

    def refusal(client: str | None, max_each: int) -> Problem | None:
        current_client.set(client)
        try:
            require_share(holders, max_each, "jobs are waiting")
        except Problem as problem:
            return problem
        return None

    refused = refusal("192.0.2.7", 2)
    assert refused is not None
    assert (refused.status, refused.headers) == (429, {"Retry-After": "2"})
    assert refusal("192.0.2.7", 3) is None
    assert refusal("192.0.2.9", 1) is None
    assert refusal(None, 1) is None
    current_client.set(None)


def test_jobs_pictures_and_uploads_of_one_client_leave_room_for_others(tmp_path: Path, made: Path) -> None:
    settings = ServerSettings(
        eager=False,
        max_queued_jobs_per_client=2,
        max_queued_pictures_per_client=1,
        max_uploads_at_once_per_client=1,
        max_uploads_bytes_per_client=250,
    )
    film = made / "films" / "film 0.mp4"
    source = Source(str(film), film.name, film.stat().st_size, None, 4.0, "tag")

    async def crowd() -> None:
        jobs = Jobs(made / "library", settings, Metrics())
        media = Media(tmp_path, settings)
        for worker in (jobs.searching, media.pictures):
            while not worker.busy:  # everything waits
                await worker._free.acquire()
        uploads = Uploads(tmp_path, settings, forgotten=lambda _: None)

        async def submit() -> None:
            jobs.submit("search", {})

        async def draw(count: int) -> None:
            media_task = asyncio.create_task(media.picture("strip", source, count=count, height=20))
            await asyncio.wait([media_task], timeout=0.3)
            if media_task.done():
                media_task.result()

        async def upload(size: int) -> None:
            async def chunks() -> object:
                yield form((FILE, bytes(size)))

            await uploads.receive(TYPE, size, chunks())  # type: ignore[arg-type]

        for client, status in (("192.0.2.7", 429), ("192.0.2.8", 429), (None, None)):
            current_client.set(client)
            await submit()
            await submit()
            await draw(1 if client is None else int(client[-1]))
            await upload(100)
            await upload(100)
            uploads._placed["x"] = client
            for more in (submit(), draw(30), upload(100)):
                if status is None:
                    await more
                    continue
                with pytest.raises(Problem) as refused:
                    await more
                assert refused.value.status == status
            if client is not None:
                with pytest.raises(Problem, match="1 uploads are being received of yours already"):
                    uploads._take_place("another")
            del uploads._placed["x"]
        current_client.set(None)
        await asyncio.gather(jobs.close(), media.close())

    asyncio.run(crowd())


# --- what is believed, loaded and read -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({}, True),  # a program, or an old browser
        ({"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}, True),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, True),  # a link
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}, False),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}, False),
        (
            {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "video"},
            False,
        ),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, False),
    ],
)
def test_pages_of_other_sites_load_nothing(place: Place, headers: dict[str, str], allowed: bool) -> None:
    for path in ("/", "/api/library", "/metrics", "/static/login.css"):
        assert place.client.get(path, headers=headers).status_code == (200 if allowed else 403)


def test_no_header_makes_a_request_one_for_another_host(place: Place) -> None:
    claims = {"X-Forwarded-Host": "127.0.0.1", "X-Original-Host": "localhost", "Forwarded": "host=localhost"}
    place.get("/api/health", 421, headers=claims | {"Host": "evil.example"})
    foreign = {"X-Forwarded-Host": "evil.example", "Origin": "http://evil.example"}
    assert place.client.delete("/api/videos/0", headers=foreign).status_code == 403
    overridden = place.client.get("/api/videos/0", headers={"X-HTTP-Method-Override": "DELETE"})
    assert overridden.status_code == 404


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="only Linux can tell which file was opened")
def test_a_link_that_is_changed_while_a_file_is_opened_leads_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, secret, film = tmp_path / "films", tmp_path / "secret", tmp_path / "films" / "a.mp4"
    root.mkdir()
    for path in (film, secret):
        path.write_bytes(b"same size")
        os.utime(path, ns=(1, 1))
    open_file = os.open

    def swap_and_open(path: str, flags: int) -> int:
        film.unlink()
        film.symlink_to(secret)
        return open_file(path, flags)

    arguments = {"size": 9, "mtime_ns": 1, "roots": [root]}
    os.close(open_unchanged(str(film), "a.mp4", **arguments))  # type: ignore[arg-type]
    monkeypatch.setattr("hapvr.server.access.os.open", swap_and_open)
    with pytest.raises(Problem, match="leads out"):
        open_unchanged(str(film), "a.mp4", **arguments)  # type: ignore[arg-type]


def test_a_root_that_is_known_by_the_name_of_a_link_is_one(tmp_path: Path) -> None:
    """Films were added as films/a.mp4, where films is a link to the root; then they were replaced by links."""
    root, films, outside = tmp_path / "disk", tmp_path / "films", tmp_path / "outside"
    for folder in (root / "sub", outside):
        folder.mkdir(parents=True)
    films.symlink_to(root)
    for path in (root / "a.mp4", root / "sub" / "a.mp4", outside / "a.mp4"):
        path.write_bytes(b"same size")
        os.utime(path, ns=(1, 1))
    arguments: dict[str, Any] = {"name": "a.mp4", "size": 9, "mtime_ns": 1, "roots": [root]}
    for path in (films / "a.mp4", films / "sub" / "a.mp4", outside / "a.mp4"):
        os.close(open_unchanged(str(path), **arguments))
    (root / "a.mp4").unlink()
    (root / "a.mp4").symlink_to(outside / "a.mp4")
    (root / "sub").rename(tmp_path / "before")
    (root / "sub").symlink_to(outside)
    for path in (films / "a.mp4", films / "sub" / "a.mp4", root / "sub" / "a.mp4"):
        with pytest.raises(Problem, match="leads out"):
            open_unchanged(str(path), **arguments)


def draw_black(side: int) -> bytes:
    """A square PNG of one bit a pixel, made without a picture in memory."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    pack, row = zlib.compressobj(), bytes(1 + (side + 7) // 8)
    rows = b"".join(pack.compress(row) for _ in range(side)) + pack.flush()
    head = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def test_a_small_file_of_a_huge_picture_is_refused_unseen(place: Place) -> None:
    for side, status in ((8_000, 413), (30_000, 415)):
        bomb = draw_black(side)
        assert len(bomb) < 200_000
        answer = place.client.post("/api/searches", files={"file": ("bomb.png", bomb)})
        assert answer.status_code == status
    assert place.kept() == []
    # A body is never unpacked, whatever it says it is.
    packed = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    assert place.client.post("/api/compare", content=bytes(1000), headers=packed).status_code == 422


# --- the log ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["json", "text"])
def test_what_clients_send_stays_on_its_line_and_no_secret_is_logged(
    strict: TestClient, form: LogFormat, capsys: pytest.CaptureFixture[str]
) -> None:
    loggers = {name: logging.getLogger(name) for name in ("hapvr.server", "uvicorn")}
    before = {name: (one.handlers, one.propagate, one.level) for name, one in loggers.items()}
    try:
        log_to_stderr(form)
        local = TestClient(strict.app, base_url=BASE, client=("127.0.0.1", 1), follow_redirects=False)
        local.get("/a%0A%7B%22event%22:%22forged%22%7D%1B[2J%E2%80%AE", headers=SHOWN)
        local.get(f"/api/health?token={TOKEN}", headers={"Cookie": "hapvr_session=secret-cookie"})
        local.get("/api/health", headers=SHOWN)
        local.post("/login", data={"token": TOKEN}, headers={"Origin": BASE})
        local.request("GE\x1b", "/", headers=SHOWN)
    finally:
        for name, one in loggers.items():
            one.handlers, one.propagate, one.level = before[name]
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 5
    text = "\n".join(lines)
    assert all(line.isascii() and line.isprintable() for line in lines)
    assert not any(secret in text for secret in (TOKEN, "secret-cookie", Path(TOKEN).name))
    if form == "json":
        assert [json.loads(line)["event"] for line in lines] == ["request"] * 5
        assert json.loads(lines[0])["path"] == '/a\n{"event":"forged"}\x1b[2J\u202e'
    else:
        assert all(" info request request=" in line for line in lines)
        assert 'path="/a\\n{\\"event\\":\\"forged\\"}\\u001b[2J\\u202e" status=404' in lines[0]


def test_fields_that_a_library_gives_every_record_are_not_logged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = logging.getLogRecordFactory()

    def make(*args: Any, **fields: Any) -> logging.LogRecord:
        record = plain(*args, **fields)
        record.of_a_library = 7
        return record

    log = logging.getLogger("hapvr.server")
    for name in ("handlers", "propagate", "level"):
        monkeypatch.setattr(log, name, getattr(log, name))
    try:
        logging.setLogRecordFactory(make)
        log_to_stderr("json")
        log.info("job", extra={"state": "done"})
    finally:
        logging.setLogRecordFactory(plain)
    line = json.loads(capsys.readouterr().err)
    assert line.keys() == {"time", "level", "event", "state"}


def test_a_log_has_one_of_two_forms() -> None:
    with pytest.raises(ConfigError, match="log_format is json or text, got 'xml'"):
        ServerSettings(log_format="xml")  # type: ignore[arg-type]


# --- readiness -------------------------------------------------------------------------------------------------------


def test_a_server_that_starts_is_healthy_and_not_ready(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hapvr.server.jobs.MODULE", "tests.server.slow_worker")  # without a model to load
    settings = ServerSettings(max_queued_jobs=1, max_searches_at_once=1)
    with CheckedClient(create_app(made / "library", settings=settings), base_url=BASE) as client:
        place = Place(client, made)
        place.settled()
        (worker,) = place.state.jobs.searching.workers
        ready, worker._ready = worker._ready, None
        assert place.get("/api/health").json()["status"] == "starting"
        answer = place.get("/api/ready", 503)
        assert error_of(answer, "Busy") == "The search worker is being started."
        assert answer.headers["retry-after"] == "2"
        worker._ready = ready
        assert place.get("/api/ready").json() == {"ready": True}
        id = place.ids()["film 0.mp4"]
        client.portal.call(worker._free.acquire)  # type: ignore[union-attr]
        waiting = place.begin("/api/searches", {"id": id})
        assert "1 jobs are waiting" in error_of(place.get("/api/ready", 503), "Busy")
        assert place.get("/api/health").json()["status"] == "ok"
        client.portal.call(worker._free.release)  # type: ignore[union-attr]
        place.ended(waiting, "failed")  # it knows no searches
        place.state.jobs.stopping.set()
        assert "stopping" in error_of(place.get("/api/ready", 503), "Busy")
