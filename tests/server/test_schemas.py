"""Every JSON answer of every route has the shape that the OpenAPI document gives it, and nothing extra."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import ValidationError
from starlette.responses import Response

from hapvr.library import Library
from hapvr.library.indexed_folders import TextModelSource, write_text_model
from hapvr.library.text_model import load_text_model
from hapvr.server.schemas.library import Removed
from hapvr.server.security import JSON
from tests.stand_ins import open_clip

from .driving import API_ROUTES, CheckedClient, Place


def test_the_answers_of_all_routes_have_the_shape_of_their_models(own: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    client, ids = own.client, own.ids()
    monkeypatch.syspath_prepend(Path(open_clip.__file__).parent)  # where workers look too
    monkeypatch.setitem(sys.modules, "open_clip", open_clip)
    model = load_text_model(open_clip.write_model(own.folder / "clip"))
    with Library.open(own.folder / "library") as library, library.write_access("tests"):
        write_text_model(library.path, TextModelSource(model.name, model.digest))
    (own.folder / "films" / "copy.mp4").write_bytes((own.folder / "films" / "film 0.mp4").read_bytes())
    root = own.get("/api/library").json()["roots"][0]["id"]
    assert own.ended(own.begin("/api/jobs/add", {"root": root}))["result"]["text_described"] == 3
    assert len(own.ended(own.begin("/api/searches/text", {"text": "red"}))["result"]["hits"]) == 4
    own.ended(own.begin("/api/jobs/check", {"quick": True}))
    begun = own.upload((own.folder / "clip.mp4").read_bytes())
    assert own.ended(begun)["result"]["hits"][0]["segments"]
    for b in (ids["film 1.mp4"], begun["query"]):
        assert own.ended(own.begin("/api/compare", {"a": begun["query"], "b": b}))["result"]["matrix"]["rows"]
    found = own.ended(own.begin("/api/duplicates", {}))["result"]["groups"]
    keep, other = (video["id"] for video in found[0]["videos"])
    request = {"action": "hardlink", "groups": [{"keep": keep, "videos": [other]}]}
    assert own.begin("/api/actions/preview", request, 200)["files"] == 1
    done = own.ended(own.begin("/api/actions", request))["result"]
    assert own.ended(own.begin(f"/api/actions/{done['id']}/undo", {}))["result"]["files"] == 1
    known = (f"videos/{ids['film 1.mp4']}", f"queries/{begun['query']}", f"roots/{root}/folders")
    for path in ("health", "ready", "failures", "shared", "jobs", "videos", *known):
        own.get(f"/api/{path}")
    own.begin(f"/api/queries/{begun['query']}/keep", None, 200)
    pair = {"a": ids["film 1.mp4"], "b": ids["film 2.mp4"]}
    own.begin("/api/duplicates/distinct", pair, 200)
    client.request("DELETE", "/api/duplicates/distinct", json=pair)
    for path in (f"videos/{ids['film 2.mp4']}", f"queries/{begun['query']}", f"jobs/{begun['job']['id']}"):
        assert client.delete(f"/api/{path}").status_code == 200
    modelled = {
        (method, route.path)
        for route in API_ROUTES
        if isinstance(route, APIRoute) and route.response_model is not None
        for method in route.methods or ()
    }
    assert client.checked == modelled


@pytest.mark.parametrize("answer", [{"removed": 1, "more": 2}, {}, {"removed": "1"}])
def test_an_answer_of_another_shape_would_be_noticed(answer: dict[str, Any]) -> None:
    app = FastAPI()

    @app.get("/api/wrong", response_model=Removed)
    def wrong() -> Response:
        return JSON(answer)

    with pytest.raises(ValidationError):
        CheckedClient(app).get("/api/wrong")


def test_a_form_takes_what_a_request_takes_beside_the_id(place: Place) -> None:
    document = place.get("/api/openapi.json").json()
    content = document["paths"]["/api/searches"]["post"]["requestBody"]["content"]
    form = content["multipart/form-data"]["schema"]["properties"]
    request = document["components"]["schemas"]["SearchRequest"]["properties"]
    assert form.keys() - {"file"} == request.keys() - {"id"}
    for name in form.keys() - {"file"}:
        assert form[name] == {key: value for key, value in request[name].items() if value is not None}
