"""Webhooks against a real server: what it gets, and what happens when it is down, slow, or sends elsewhere."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from hapvr.errors import ConfigError
from hapvr.webhooks import WebhookConfig, Webhooks, parse_address

QUICK = WebhookConfig(pause_s=0.01, max_pause_s=0.05, retries=2000, finish_s=60)


class Receiver(ThreadingHTTPServer):
    """Answers with the statuses that it is given, then with 204, and keeps what it got."""

    daemon_threads = True

    def __init__(self, statuses: tuple[int, ...] = (), location: str = "") -> None:
        super().__init__(("127.0.0.1", 0), _Handler, bind_and_activate=False)
        self.server_bind()  # it has a port; who connects is refused until it listens
        self.statuses, self.location = list(statuses), location
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        self.arrived, self.may_answer = threading.Event(), threading.Event()
        self.may_answer.set()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/in"


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server = self.server
        status = server.statuses.pop(0) if server.statuses else 204
        server.got.append((self.path, dict(self.headers), body))
        server.arrived.set()
        server.may_answer.wait(60)
        self.send_response(status)
        if status in (302, 307, 308):
            self.send_header("Location", server.location)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def receive(**options: object) -> Iterator[Receiver]:
    with Receiver(**options) as server, listen(server):  # type: ignore[arg-type]
        yield server


@contextmanager
def listen(server: Receiver) -> Iterator[None]:
    server.server_activate()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield
    finally:
        server.may_answer.set()
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("HAPVR_WEBHOOK_SECRET", raising=False)


def test_a_message_and_its_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAPVR_WEBHOOK_SECRET", "secret")
    with receive() as server:
        hooks = Webhooks([server.address], source="watch", library="/films", config=QUICK)
        hooks.send({"event": "match", "path": "a.mp4"})
        (counts,) = hooks.close()
    assert (counts.delivered, counts.failed, counts.dropped, counts.undelivered) == (1, 0, 0, 0)
    ((path, headers, body),) = server.got
    message = json.loads(body)
    assert path == "/in"
    assert message["event"] == {"event": "match", "path": "a.mp4"}
    assert (message["format"], message["source"], message["library"]) == (1, "watch", "/films")
    assert headers["X-Hapvr-Delivery"] == message["id"]
    text = headers["X-Hapvr-Timestamp"].encode() + b"." + body
    assert headers["X-Hapvr-Signature"] == "sha256=" + hmac.new(b"secret", text, hashlib.sha256).hexdigest()


def test_without_a_secret_nothing_is_signed_and_an_answer_of_the_kind_busy_is_tried_again() -> None:
    said: list[str] = []
    with receive(statuses=(503, 429)) as server:
        hooks = Webhooks([server.address], source="watch", config=QUICK, say=said.append)
        hooks.send({"n": 1})
        (counts,) = hooks.close()
    assert counts.delivered == 1
    assert len({headers["X-Hapvr-Delivery"] for _, headers, _ in server.got}) == 1
    assert len({body for *_, body in server.got}) == 1
    assert len(server.got) == 3
    assert "X-Hapvr-Signature" not in server.got[0][1]
    (line,) = said
    assert "status 503. It is tried again" in line


def test_a_receiver_that_is_down_and_comes_back() -> None:
    failed = threading.Event()
    with Receiver() as server:
        hooks = Webhooks([server.address], source="watch", config=QUICK, say=lambda _: failed.set())
        for number in range(3):
            hooks.send({"n": number})
        assert failed.wait(60)  # it was tried while nobody listened
        with listen(server):
            (counts,) = hooks.close()
    assert counts.delivered == 3
    assert [json.loads(body)["event"]["n"] for *_, body in server.got] == [0, 1, 2]


def test_what_is_refused_or_fails_too_often_is_counted_and_said() -> None:
    said: list[str] = []
    config = WebhookConfig(pause_s=0.001, retries=2, finish_s=60)
    with receive(statuses=(400, 500, 500, 500)) as server:
        hooks = Webhooks([f"{server.address}?token=hidden"], source="watch", config=config, say=said.append)
        hooks.send({})
        hooks.send({})
        hooks.send({})
        (counts,) = hooks.close()
    assert (counts.delivered, counts.failed) == (1, 2)
    assert len(server.got) == 1 + 3 + 1
    assert sum("given up: status" in line for line in said) == 2
    assert "hidden" not in "".join(said) + counts.address


def test_a_slow_receiver_never_stops_the_sender() -> None:
    said: list[str] = []
    with receive() as server:
        server.may_answer.clear()
        config = WebhookConfig(max_waiting=3, finish_s=0, timeout_s=60)
        hooks = Webhooks([server.address], source="watch", config=config, say=said.append)
        for number in range(10):  # returns though nothing is answered
            hooks.send({"n": number})
        assert server.arrived.wait(60)
        (counts,) = hooks.close()
    assert (counts.delivered, counts.dropped, counts.undelivered) == (0, 7, 3)
    (line,) = said
    assert "further ones are dropped" in line


def test_redirects_lead_to_no_other_host() -> None:
    with receive() as other, receive(statuses=(307, 302), location=other.address) as server:
        said: list[str] = []
        hooks = Webhooks([server.address], source="watch", config=QUICK, say=said.append)
        hooks.send({"n": 1})
        hooks.send({"n": 2})
        (counts,) = hooks.close()
    assert other.got == []
    assert counts.failed == 2
    assert "redirects to another host" in said[0]
    with receive(statuses=(308,), location="/moved") as server:
        hooks = Webhooks([server.address], source="watch", config=QUICK)
        hooks.send({"n": 1})
        (counts,) = hooks.close()
    assert counts.delivered == 1
    assert [path for path, *_ in server.got] == ["/in", "/moved"]


@pytest.mark.parametrize(
    "address",
    ["ftp://host/a", "file:///etc/passwd", "http://", "host/a", "http://a b/", "http://u:p@host/", "http://h:x/"],
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigError):
        parse_address(address)
