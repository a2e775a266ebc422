"""What /api/health says when workers die or cannot be started."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hapvr.server.app import create_app
from hapvr.server.settings import ServerSettings

from .driving import BASE, CheckedClient, Place

BROKEN = "tests.server.no_such_worker"


@pytest.fixture
def broken(made: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """A server whose workers cannot be started."""
    monkeypatch.setattr("hapvr.server.jobs.MODULE", BROKEN)
    with CheckedClient(create_app(made / "library", settings=ServerSettings()), base_url=BASE) as client:
        yield Place(client, made)


def test_a_server_whose_search_worker_cannot_be_started_is_not_healthy(broken: Place) -> None:
    answer = broken.settled()
    assert answer.status_code == 503
    assert answer.headers["retry-after"]
    health = answer.json()
    assert health["status"] == "failed"
    assert health["workers"]["search"]["state"] == "failed"
    assert "No module named tests.server.no_such_worker" in health["workers"]["search"]["cause"]
    assert health["cause"].startswith("The search worker could not be started: the process ended with code 1")
    assert health["error"] == {"type": "Busy", "message": health["cause"], "hint": "The log of the server says more."}
    assert health["library"] == {"videos": 3, "failed": 1}
    assert str(broken.folder) not in answer.text


def test_a_worker_that_died_is_told_and_started_again(place: Place) -> None:
    assert place.settled().json()["status"] == "ok"
    worker = place.state.jobs.searching
    before = worker.started
    (pid,) = worker.pids
    os.kill(pid, signal.SIGKILL)
    while (health := place.get("/api/health").json())["status"] == "ok":
        time.sleep(0.001)
    assert health["status"] in ("starting", "degraded")
    assert health["workers"]["search"]["cause"] == "the process was ended by SIGKILL"
    assert "the process was ended by SIGKILL" in health["cause"]
    health = place.settled().json()
    assert (health["status"], health["cause"], worker.started) == ("ok", None, before + 1)


def test_a_job_worker_that_cannot_be_started_degrades_and_searching_goes_on(
    own: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own.state.jobs.adding, "module", BROKEN)
    own.ended(own.begin("/api/duplicates", {}), "failed")
    health = own.get("/api/health").json()
    assert (health["status"], health["workers"]["add"]["state"]) == ("degraded", "failed")
    assert "The add worker could not be started" in health["cause"]
    id = own.ids()["film 0.mp4"]
    assert own.ended(own.begin("/api/searches", {"id": id}))["result"]["hits"]
    assert own.get("/api/health").json()["status"] == "degraded"
