"""What tests of the server share: asking, uploading, waiting for jobs."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from httpx2 import Response
from pydantic import BaseModel, TypeAdapter
from starlette.routing import Match
from starlette.testclient import TestClient

from hapvr.server.routes import ROUTERS
from hapvr.server.schemas.base import Error
from hapvr.server.schemas.duplicates import ActionResult, DuplicatesResult
from hapvr.server.schemas.library import AddResult, CheckResult, FailedHealth
from hapvr.server.schemas.search import CompareResult, SearchResult, TextSearchResult
from hapvr.server.state import State

API_ROUTES = [route for router in ROUTERS for route in router.routes]
BASE = "http://127.0.0.1:8787"
RESULTS: dict[str, type[BaseModel]] = {
    "search": SearchResult,
    "search_text": TextSearchResult,
    "compare": CompareResult,
    "add": AddResult,
    "check": CheckResult,
    "duplicates": DuplicatesResult,
    "actions": ActionResult,
    "undo": ActionResult,
}


class CheckedClient(TestClient):
    """A client that holds every JSON answer of the API against the model of its route: nothing may lack or be extra."""

    def __init__(self, app: FastAPI, **options: Any) -> None:
        super().__init__(app, **options)
        self.checked: set[tuple[str, str]] = set()  # method and path of routes

    def request(self, method: str, url: Any, **options: Any) -> Response:
        answer = super().request(method, url, **options)
        path = answer.url.path
        if answer.request.method != "HEAD" and path.startswith("/api/") and path != "/api/openapi.json":
            self._check(answer)
        return answer

    def _check(self, answer: Response) -> None:
        scope = {"type": "http", "method": answer.request.method, "path": answer.url.path}
        known = [*API_ROUTES, *self.app.routes]  # type: ignore[attr-defined]
        route = next((one for one in known if isinstance(one, APIRoute) and one.matches(scope)[0] is Match.FULL), None)
        model = None if route is None else route.response_model
        if answer.status_code >= 400:
            health = answer.url.path == "/api/health" and "status" in answer.json()
            model = FailedHealth if health else Error
        elif route is not None and model is not None:
            self.checked.add((answer.request.method, route.path))
        if model is not None:
            TypeAdapter(model).validate_json(answer.content, strict=True)
            body = answer.json()
            job = body.get("job", body) if isinstance(body, dict) else {}
            if job.get("state") == "done" and (result := job["result"]) is not None:
                RESULTS[job["kind"]].model_validate_json(json.dumps(result), strict=True)


@dataclass(frozen=True)
class Place:
    """A server, and the folder it was made of."""

    client: CheckedClient
    folder: Path

    @property
    def state(self) -> State:
        state: State = self.client.app.state.server  # type: ignore[attr-defined]
        return state

    def get(self, path: str, status: int = 200, **options: Any) -> Response:
        answer = self.client.get(path, **options)
        assert answer.status_code == status, answer.text
        return answer

    def ids(self) -> dict[str, str]:
        return {video["name"]: video["id"] for video in self.get("/api/videos").json()["videos"]}

    def upload(self, data: bytes, name: str = "clip.mp4", status: int = 202, **fields: Any) -> dict[str, Any]:
        answer = self.client.post("/api/searches", files={"file": (name, data)}, data=fields)
        assert answer.status_code == status, answer.text
        return dict(answer.json())

    def begin(self, path: str, body: Any, status: int = 202) -> dict[str, Any]:
        answer = self.client.post(path, json=body)
        assert answer.status_code == status, answer.text
        return dict(answer.json())

    def ended(self, begun: dict[str, Any], state: str = "done") -> dict[str, Any]:
        """A job when it is over."""
        job: dict[str, Any] = begun["job"]
        for _ in range(20):
            job = self.get(f"/api/jobs/{job['id']}?wait=10").json()
            if job["state"] not in ("queued", "running"):
                break
        assert job["state"] == state, job
        return job

    def settled(self) -> Response:
        """The health, when nothing is being started any more; its status is for the test to look at."""
        while (answer := self.client.get("/api/health")).json().get("status") == "starting":
            time.sleep(0.05)
        return answer

    def kept(self) -> list[Path]:
        """The uploads on disk."""
        return list((self.state.folder / "uploads").iterdir())


def error_of(answer: Response, kind: str) -> str:
    """The message of an error, whose shape is checked."""
    body = answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"type", "message", "hint"}
    assert body["error"]["type"] == kind
    return str(body["error"]["message"])


def events_of(text: str) -> list[dict[str, Any]]:
    """The jobs in a stream of events."""
    found = []
    for block in text.strip().split("\n\n"):
        if block.startswith(":"):
            continue
        name, data = block.split("\n")
        assert name == "event: job"
        found.append(json.loads(data.removeprefix("data: ")))
    return found
