"""Slow clients, and too many of them: they are cut off, and others are answered meanwhile.

Limits are short here, and what counts is what happens, not when: a client that is waited for is waited for long.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from hapvr.server.app import create_app
from hapvr.server.clients import find_client
from hapvr.server.connections import Connections, Pace, configure
from hapvr.server.settings import ServerSettings

from .test_uploads import FILE, TYPE, form

LONG_S = 60.0  # nothing here takes so long, on a busy machine either
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
UPLOAD = f"POST /api/searches HTTP/1.1\r\nHost: localhost\r\nContent-Type: {TYPE}\r\n"
JSON = "HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


class Served:
    """An application that is served in a thread."""

    def __init__(self, app: Any, connections: Connections) -> None:
        self.connections = connections
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._server = uvicorn.Server(configure(app, connections))
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._listening]})
        self._thread.start()
        until(lambda: self._server.started)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(LONG_S)
        assert not self._thread.is_alive()

    def connect(self, **options: Any) -> Client:
        return Client(self.port, **options)

    def status(self, request: bytes = GET) -> int:
        """What somebody else is answered."""
        with self.connect() as other:
            other.send(request)
            return other.status()

    def closed(self, reason: str) -> int:
        return self.connections.closed[reason]


class Client:
    """The other end of a connection."""

    def __init__(self, port: int, *, buffer: int | None = None) -> None:
        self.socket = socket.socket()
        if buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.socket.settimeout(LONG_S)
        self.socket.connect(("127.0.0.1", port))
        self.received = b""

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def trickle(self, data: bytes, every_s: float = 0.05) -> int:
        """Send byte by byte until the other end has had enough: how many were sent."""
        for count, byte in enumerate(data):
            if self.is_closed():
                return count
            try:
                self.send(bytes([byte]))
            except OSError:
                return count
            time.sleep(every_s)
        return len(data)

    def is_closed(self) -> bool:
        """Whether the other end has closed it; what has come is kept."""
        self.socket.settimeout(0.0)
        try:
            while piece := self.socket.recv(65536):
                self.received += piece
            return True
        except BlockingIOError:
            return False
        except OSError:
            return True
        finally:
            self.socket.settimeout(LONG_S)

    def read(self, count: int) -> None:
        """Wait until so much has come."""
        while len(self.received) < count:
            piece = self.socket.recv(65536)
            assert piece, f"closed after {len(self.received)} bytes: {self.received[-300:]!r}"
            self.received += piece

    def to_end(self) -> bytes:
        """All that comes until it is closed."""
        try:
            while piece := self.socket.recv(65536):
                self.received += piece
        except ConnectionError:
            pass
        return self.received

    def status(self) -> int:
        """Of one answer, which is read to its end."""
        while b"\r\n\r\n" not in self.received:
            self.read(len(self.received) + 1)
        head, _, _ = self.received.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        self.read(len(head) + 4 + (0 if length is None else int(length[1])))
        return int(head.split()[1])

    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = json.loads(self.received.partition(b"\r\n\r\n")[2])["error"]
        return error


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < end, "this did not come about"
        time.sleep(0.01)


# --- the connection alone --------------------------------------------------------------------------------------------

PIECE, PIECES = bytes(4 * 10**6), 4  # more than the system's buffers hold


async def plain(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers without reading a body: with a word, with much, or with a word now and then."""
    if scope["type"] == "lifespan":
        for said in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{said}.complete"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if scope["path"] == "/much":
        for _ in range(PIECES):
            await send({"type": "http.response.body", "body": PIECE, "more_body": True})
    if scope["path"] == "/events":
        for _ in range(8):
            await asyncio.sleep(0.25)
            await send({"type": "http.response.body", "body": b"event\n", "more_body": True})
    await send({"type": "http.response.body", "body": b"all of it"})


@contextmanager
def serving(**settings: Any) -> Iterator[Served]:
    server = Served(plain, Connections(ServerSettings(**settings)))
    try:
        yield server
    finally:
        server.stop()


def test_a_head_that_does_not_end_is_answered_and_others_meanwhile() -> None:
    with serving(max_head_s=1.0) as server, ExitStack() as stack:
        slow = [stack.enter_context(server.connect()) for _ in range(50)]
        for one in slow:
            one.send(b"GET / HTTP/1.1\r\nHost: local")
        assert server.status() == 200
        assert len(server.connections) >= 50
        sent = slow[0].trickle(b"h" * 1200)  # each byte comes in time, the head does not
        assert sent < 1200
        assert slow[0].status() == 408
        assert slow[0].error()["type"] == "BadInput"
        for one in slow[1:]:
            assert one.to_end().startswith(b"HTTP/1.1 408 ")
        until(lambda: len(server.connections) == 0)
        assert server.closed("head too slow") == 50


def test_a_connection_on_which_nothing_is_asked_is_closed_without_a_word() -> None:
    with serving(max_head_s=0.3) as server, server.connect() as client:
        assert client.to_end() == b""
        assert server.closed("head too slow") == 1


def test_a_connection_is_kept_for_another_request_but_not_for_long() -> None:
    with serving(max_keep_alive_s=0.5, max_head_s=LONG_S) as server, server.connect() as client:
        for _ in range(2):
            client.received = b""
            client.send(GET)
            client.read(1)
            until(lambda: b"all of it" in client.received or client.is_closed())
        before = len(client.received)
        assert len(client.to_end()) - before <= len(b"0\r\n\r\n")
        until(lambda: len(server.connections) == 0)


def test_the_head_of_a_second_request_has_its_own_time() -> None:
    with serving(max_head_s=0.6, max_keep_alive_s=LONG_S) as server, server.connect() as client:
        client.send(GET)
        until(lambda: client.is_closed() or b"all of it" in client.received)
        time.sleep(1.0)  # longer than a head may take, but none has begun
        assert not client.is_closed()
        client.received = b""
        client.send(GET[:10])
        assert client.to_end().startswith(b"HTTP/1.1 408 ")


def test_a_body_that_nobody_waits_for_is_cut_off() -> None:
    with serving(max_linger_s=0.5) as server, server.connect() as client:
        client.send(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n")
        until(lambda: client.is_closed() or b"all of it" in client.received)
        assert client.trickle(b"b" * 1200) < 1200
        until(lambda: server.closed("body after the answer") == 1)


def test_after_a_body_that_nobody_read_the_connection_is_idle() -> None:
    with serving(max_linger_s=LONG_S, max_head_s=0.5) as server, server.connect() as client:
        client.send(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\n")
        until(lambda: client.is_closed() or client.received.endswith(b"0\r\n\r\n"))
        client.received = b""
        client.send(b"body")
        assert client.to_end() == b""  # no 408: nothing was asked
        assert server.closed("head too slow") == 1


def test_an_answer_that_is_not_read_is_given_up_and_one_that_is_read_slowly_is_not() -> None:
    """The slow reader takes far longer than a stall may last, but never stops."""
    with serving(max_stall_s=2.0, min_bytes_per_s=100_000) as server, server.connect(buffer=65536) as slow:
        slow.send(GET.replace(b"/ ", b"/much "))
        with server.connect(buffer=65536) as stuck:
            stuck.send(GET.replace(b"/ ", b"/much "))
            began = time.monotonic()
            while not server.closed("answer not read") or time.monotonic() - began < 4:
                slow.read(len(slow.received) + 20_000)
                time.sleep(0.02)
                assert time.monotonic() - began < LONG_S
        while b"all of it" not in slow.received[-100:]:
            slow.read(len(slow.received) + 1)
        assert len(slow.received) > PIECES * len(PIECE)
        assert server.closed("answer not read") == 1


def test_the_end_of_an_answer_that_is_not_read_is_given_up_too() -> None:
    with serving(max_stall_s=0.5, max_keep_alive_s=0.2) as server, server.connect(buffer=4096) as stuck:
        stuck.send(GET.replace(b"/ HTTP/1.1", b"/much HTTP/1.0"))
        until(lambda: server.closed("answer not read") == 1)
        until(lambda: len(server.connections) == 0)


def test_events_that_come_now_and_then_are_not_cut_off() -> None:
    limits = {"max_head_s": 0.1, "max_stall_s": 0.1, "max_linger_s": 0.1, "max_keep_alive_s": 0.1}
    with serving(**limits) as server, server.connect() as client:
        client.send(GET.replace(b"/ ", b"/events "))
        assert client.to_end().count(b"event\n") == 8
        assert client.received.endswith(b"all of it\r\n0\r\n\r\n")


def test_beyond_the_bound_idle_connections_make_way_and_then_heads_that_take_longest() -> None:
    with serving(max_connections=3, max_head_s=LONG_S, max_keep_alive_s=LONG_S) as server, ExitStack() as stack:
        slow, idle, second = (stack.enter_context(server.connect()) for _ in range(3))
        slow.send(GET[:10])
        until(lambda: len(server.connections) == 3)
        second.send(GET[:10])
        idle.send(GET)
        until(lambda: b"all of it" in idle.received or idle.is_closed())
        newest = stack.enter_context(server.connect())
        idle.to_end()  # it had nothing to lose
        newest.send(GET[:10])
        assert server.status() == 200
        assert slow.to_end().startswith(b"HTTP/1.1 503 ")
        assert not second.is_closed()
        assert server.closed("made way") == 2
        assert server.closed("refused") == 0


def test_beyond_the_bound_nobody_who_is_being_answered_makes_way() -> None:
    with serving(max_connections=2) as server, ExitStack() as stack:
        busy = [stack.enter_context(server.connect(buffer=65536)) for _ in range(2)]
        for one in busy:
            one.send(GET.replace(b"/ ", b"/much "))
            one.read(100_000)
        with server.connect() as late:
            answer = late.to_end()
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 2\r\n" in answer.lower()
        assert late.error()["type"] == "Busy"
        assert server.closed("refused") == 1
        for one in busy:
            while b"all of it" not in one.received[-100:]:
                one.read(len(one.received) + 1)
        assert server.status() == 200  # idle ones make way again


def test_one_client_does_not_take_the_places_of_others() -> None:
    class Open:
        """A connection that is being answered."""

        waiting_since = None

    everyone = Connections(ServerSettings(max_connections=5, max_connections_per_client=2))

    def admit(address: str) -> bool:
        return everyone.admit(Open(), address)  # type: ignore[arg-type]

    assert [admit("192.0.2.1") for _ in range(3)] == [True, True, False]
    assert [admit(f"2001:db8::{host}") for host in range(3)] == [True, True, False]  # one network
    assert [admit("127.0.0.1"), admit("192.0.2.2")] == [True, False]  # now it is full
    assert len(everyone) == 5
    assert everyone.closed["refused"] == 3


def test_this_machine_is_bounded_by_the_total_alone() -> None:
    with serving(max_connections=8, max_connections_per_client=1, max_head_s=LONG_S) as server, ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(server.connect()).send(GET[:10])
        until(lambda: len(server.connections) == 8)
        assert server.closed("made way") == 0


def test_connections_leave_file_descriptors_for_the_server_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (128, 128))

    class Open:
        waiting_since = None

    everyone = Connections(ServerSettings())
    assert [everyone.admit(Open(), "127.0.0.1") for _ in range(40)].count(True) == 32  # type: ignore[arg-type]
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert all(Connections(ServerSettings()).admit(Open(), f"192.0.2.{n}") for n in range(200))  # type: ignore[arg-type]


@pytest.mark.parametrize("address", [None, "", "/run/socket", "127.0.0.9", "::1", "::ffff:127.0.0.1"])
def test_this_machine_is_told_by_its_address(address: str | None) -> None:
    assert find_client(address) is None


def test_a_link_local_address_is_a_client() -> None:
    assert find_client("fe80::1%eth0") == "fe80::/64"


# --- pace ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rate", "late"), [(0.0, True), (0.9, True), (1.0, False), (5.0, False)])
def test_who_keeps_the_rate_goes_on_for_ever_and_who_does_not_is_late(rate: float, late: bool) -> None:
    pace = Pace(max_stall_s=10, rate=1000)
    pace.spend(1, 10**9)
    lived = 0
    while not pace.is_late and lived < 10_000:
        pace.spend(1, round(1000 * rate))
        lived += 1
    assert pace.is_late is late
    if late:
        assert lived == pytest.approx(10 / (1 - rate), abs=1)  # what is left runs out at the rate that is missing


def test_pace_does_not_depend_on_how_the_time_is_cut() -> None:
    whole, cut = Pace(max_stall_s=10, rate=100), Pace(max_stall_s=10, rate=100)
    whole.spend(6, 200)
    for _ in range(6):
        cut.spend(1, 0)
    cut.spend(0, 200)
    assert cut.left_s == pytest.approx(whole.left_s)
    whole.renew()
    assert whole.left_s == 10


# --- the whole server ------------------------------------------------------------------------------------------------


@contextmanager
def whole_server(library: Path, **settings: Any) -> Iterator[Served]:
    app = create_app(library, settings=ServerSettings(eager=False, **settings))
    server = Served(app, app.state.connections)
    try:
        yield server
    finally:
        server.stop()


def asked(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def uploads(length: int) -> bytes:
    return f"{UPLOAD}Content-Length: {length}\r\n\r\n".encode()


def test_slow_bodies_are_answered_and_others_meanwhile(made: Path) -> None:
    """Uploads and JSON, of a length that is told and of one that is not."""
    clip = form((FILE, (made / "clip.mp4").read_bytes()))
    heads = [
        uploads(10**6) + form((FILE, b"abc"), end=False),
        f"POST /api/compare {JSON}Content-Length: 999\r\n\r\n{{".encode(),
        f"POST /api/searches {JSON}Content-Length: 9\r\n\r\n{{".encode(),
        f"{UPLOAD}Transfer-Encoding: chunked\r\n\r\n5".encode(),
    ]
    with whole_server(made / "library", max_stall_s=1.5, max_uploads_at_once=2) as server, ExitStack() as stack:
        slow = [stack.enter_context(server.connect()) for _ in range(48)]
        for count, one in enumerate(slow):
            one.send(heads[count % len(heads)])
        assert server.status(asked("/api/videos")) == 200
        assert server.status(uploads(len(clip)) + clip) == 202  # those that sent little take nobody's place
        assert slow[0].trickle(b"x" * 1200) < 1200  # each byte comes in time, but they are too few
        for one in slow:
            answer = one.to_end()
            assert answer.startswith(b"HTTP/1.1 408 "), answer
            assert one.error()["type"] == "BadInput"
        metrics = stack.enter_context(server.connect())
        metrics.send(asked("/metrics"))
        assert metrics.status() == 200
        assert re.search(rb'route="/api/searches",status="408"} 36\.0\n', metrics.received)
        assert re.search(rb"hapvr_connections \d", metrics.received)


def test_an_upload_on_a_slow_line_arrives(made: Path) -> None:
    """It takes several times as long as a stall may last; every part of it comes in time."""
    clip = form((FILE, (made / "clip.mp4").read_bytes()))
    size = -(-len(clip) // 12)
    with whole_server(made / "library", max_stall_s=3.0, min_bytes_per_s=100) as server, server.connect() as client:
        client.send(uploads(len(clip)))
        for at in range(0, len(clip), size):
            time.sleep(0.4)
            client.send(clip[at : at + size])
        assert client.status() == 202


def test_a_body_has_a_time_in_all(made: Path) -> None:
    limits = {"max_stall_s": 1.0, "min_bytes_per_s": 1, "min_body_bytes_per_s": 10**9}
    with whole_server(made / "library", **limits) as server, server.connect() as client:
        client.send(uploads(10**6) + form((FILE, b"abc"), end=False))
        assert client.trickle(b"x" * 1200) < 1200  # fast enough at any moment
        assert client.to_end().startswith(b"HTTP/1.1 408 ")


def test_a_body_of_unknown_length_that_is_too_large_is_refused_as_one_that_says_so(made: Path) -> None:
    head = f"POST /api/compare {JSON}".encode()
    with whole_server(made / "library") as server:
        for length, body in (
            (b"Content-Length: 100000", b""),
            (b"Transfer-Encoding: chunked", b"186a0\r\n" + b" " * 10**5),
        ):
            with server.connect() as client:
                client.send(head + length + b"\r\n\r\n" + body)
                assert client.status() == 413
                assert client.error()["type"] == "TooLarge"


def test_a_long_download_and_a_watched_job_outlive_the_limits(made: Path) -> None:
    """A range of a large file is read slowly, and a job is watched whose worker has to start first."""
    padding = 12 * 10**6  # more than the system's buffers hold
    large = (made / "clip.mp4").read_bytes() + struct.pack(">I4s", padding, b"free") + bytes(padding - 8)
    limits = {
        "max_head_s": 1.0,
        "max_stall_s": 1.0,
        "max_linger_s": 1.0,
        "max_keep_alive_s": 1.0,
        "min_bytes_per_s": 10_000,
    }
    with whole_server(made / "library", **limits) as server, ExitStack() as stack:
        body = form((FILE, large))
        with server.connect() as begun:
            begun.send(uploads(len(body)) + body)
            assert begun.status() == 202
            answer = json.loads(begun.received.partition(b"\r\n\r\n")[2])
        watching = stack.enter_context(server.connect())
        watching.send(asked(f"/api/jobs/{answer['job']['id']}/events"))
        reading = stack.enter_context(server.connect(buffer=65536))
        path = f"/api/queries/{answer['query']}/file"
        reading.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nRange: bytes=9-\r\n\r\n".encode())
        began = time.monotonic()
        while time.monotonic() - began < 3:
            reading.read(len(reading.received) + 1)
            time.sleep(0.1)
        assert reading.status() == 206  # to its end
        assert reading.received.endswith(large[-100_000:])
        assert b'"state": "done"' in watching.to_end()
        assert server.connections.closed.keys() <= {"head too slow"}  # what was left idle, after its answer
