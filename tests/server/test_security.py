"""Who may ask, and what every answer says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from hapvr.errors import ConfigError, StorageError
from hapvr.server.app import create_app
from hapvr.server.security import COOKIE, Sessions
from hapvr.server.settings import ServerSettings

from .driving import BASE, Place, error_of

TOKEN = "a token of more than 16 letters"


@pytest.fixture(scope="module")
def locked(made: Path) -> Iterator[TestClient]:
    settings = ServerSettings(token=TOKEN, eager=False, allowed_hosts=("videos.example",))
    with TestClient(create_app(made / "library", settings=settings), base_url=BASE, follow_redirects=False) as client:
        yield client


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:8787", "localhost:99", "LOCALHOST", "[::1]:8787"])
def test_answers_to_its_own_names(place: Place, host: str) -> None:
    place.get("/api/health", headers={"Host": host})


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "localhost@evil.example", "", "a b", "10.0.0.1", "[::1", "1.2.3.4:x"],
)
def test_refuses_other_names(place: Place, host: str) -> None:
    answer = place.get("/api/health", 421, headers={"Host": host})
    error_of(answer, "Forbidden")
    assert place.client.get("/", headers={"Host": host}).status_code == 421


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({}, True),
        ({"Origin": BASE}, True),
        ({"Origin": "http://evil.example"}, False),
        ({"Origin": "http://127.0.0.1:9999"}, False),
        ({"Origin": "null"}, False),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "same-origin"}, True),
    ],
)
def test_what_changes_something_comes_from_its_own_page(place: Place, headers: dict[str, str], allowed: bool) -> None:
    for method, path in (("POST", "/api/searches"), ("DELETE", "/api/jobs/j0"), ("DELETE", "/api/videos/0")):
        answer = place.client.request(method, path, headers=headers)
        assert (answer.status_code != 403) is allowed
    # Answers to other sites' requests that change nothing cannot be read by them; see also test_clients.
    assert (place.client.get("/api/health", headers=headers).status_code == 200) is ("cross-site" not in str(headers))


def test_every_answer_has_the_headers_and_errors_have_one_shape(place: Place) -> None:
    answers = [
        place.get("/api/health"),
        place.get("/nowhere", 404),
        place.get("/static/../app.py", 404),
        place.get("/static/%2e%2e/app.py", 404),
        place.get("/static/", 404),
        place.get("/api/health", 421, headers={"Host": "x"}),
        place.client.put("/api/health"),
        place.client.post("/api/compare", json={"a": 1}),
        place.client.post("/api/compare", content=b"{", headers={"Content-Type": "application/json"}),
        place.client.post("/api/compare", content=b" " * 100_000, headers={"Content-Type": "application/json"}),
    ]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert len(answer.headers["x-request-id"]) == 16
        if answer.status_code >= 400:
            assert set(answer.json()["error"]) == {"type", "message", "hint"}
    assert [answer.status_code for answer in answers[6:]] == [405, 422, 422, 413]


def test_asks_for_a_token(locked: TestClient) -> None:
    for path in ("/api/health", "/api/videos", "/metrics", "/api/openapi.json", "/nowhere", "/api/jobs/j0/events"):
        answer = locked.get(path)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        error_of(answer, "Forbidden")
    assert locked.get("/").headers["location"] == "/login"
    for wrong in ("", TOKEN[:-1], TOKEN + "x", "Bearer"):
        assert locked.get("/api/health", headers={"Authorization": f"Bearer {wrong}"}).status_code == 401
    assert locked.get("/api/health", headers={"Authorization": f"Basic {TOKEN}"}).status_code == 401
    shown = {"Authorization": f"Bearer {TOKEN}"}
    assert locked.get("/api/health", headers=shown).status_code == 200
    assert locked.delete("/api/jobs/j0", headers=shown).status_code == 404  # a program: it needs no origin
    assert locked.get("/api/health", headers=shown | {"Host": "videos.example"}).status_code == 200
    assert locked.get(f"/api/health?token={TOKEN}").status_code == 401


def test_a_login_gives_a_cookie_for_the_page(locked: TestClient) -> None:
    assert "<form" in locked.get("/login").text
    origin = {"Origin": BASE}
    assert locked.post("/login", data={"token": TOKEN}, headers={"Origin": "http://evil.example"}).status_code == 403
    wrong = locked.post("/login", data={"token": "wrong"}, headers=origin)
    assert wrong.status_code == 403
    assert COOKIE not in wrong.headers.get("set-cookie", "")
    answer = locked.post("/login", data={"token": TOKEN}, headers=origin)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert TOKEN not in cookie
    assert locked.get("/api/health").status_code == 200  # the client keeps it
    assert locked.delete("/api/jobs/j0").status_code == 403  # a cookie alone does not change anything
    assert locked.delete("/api/jobs/j0", headers=origin).status_code == 404
    locked.post("/logout", headers=origin)
    locked.cookies.clear()
    for made_up in ("", "x", "99999999999.0", f"99999999999.{'0' * 64}", "1." + Sessions(TOKEN)._sign("1"), "é.é"):
        headers = {"Cookie": f"{COOKIE}={made_up}".encode()}
        assert locked.get("/api/health", headers=headers).status_code == 401  # type: ignore[arg-type]
    assert Sessions(TOKEN).is_valid(Sessions(TOKEN).new())
    assert not Sessions(TOKEN + "2").is_valid(Sessions(TOKEN).new())


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"host": "0.0.0.0"}, "give a token"),
        ({"host": "192.168.1.5"}, "give a token"),
        ({"host": "127.evil.example"}, "give a token"),
        ({"folder": Path("/does/not/exist")}, "no folder to keep uploads"),
        ({"token": "short"}, "at least 16"),
        ({"max_upload_bytes": 0}, "max_upload_bytes must be a positive"),
        ({"port": 70000}, "port"),
        ({"roots": (Path("/does/not/exist"),)}, "not a folder"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        ServerSettings(**settings)


def test_does_not_start_without_a_library(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="does not exist"):
        create_app(tmp_path / "nothing")
