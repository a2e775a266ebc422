"""Every JSON answer of every route has the shape that the OpenAPI document gives it, and nothing extra."""

from __future__ import annotations

import json
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
from hapvr.server.problems import refuse_fields
from hapvr.server.schemas import base, duplicates, library, search
from hapvr.server.schemas.base import Strict
from hapvr.server.schemas.library import Removed
from hapvr.server.security import JSON
from tests.stand_ins import open_clip

from .driving import API_ROUTES, CheckedClient, Place, error_of


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


REQUESTS = [
    one
    for module in (base, duplicates, library, search)
    for one in vars(module).values()
    if isinstance(one, type) and one.__module__ == module.__name__ and one.__name__.endswith(("Request", "Options"))
]
WRONG: dict[str, list[Any]] = {
    "string": [7, "", "x" * 2000], "integer": ["x", 1.5, -1, 10**16, True], "number": ["x", "nan", -1, 1e9],
    "boolean": ["perhaps", 7], "array": [7, [], ["x"] * 1001],
}  # fmt: skip


@pytest.mark.parametrize("model", REQUESTS, ids=lambda model: model.__name__)
def test_a_field_that_is_not_allowed_is_refused_in_our_words(model: type[Strict]) -> None:
    """Whatever is wrong: the field by its name, what is allowed and what was given; no sentence is pydantic's."""
    refused = 0
    for name, field in model.model_json_schema()["properties"].items():
        kinds = {one.get("type") for one in field.get("anyOf", [field])} & set(WRONG)
        for given in [value for kind in sorted(kinds) for value in WRONG[kind]]:
            try:
                model.model_validate({name: given})
            except ValidationError as error:
                errors = [one | {"loc": ("body", *one["loc"])} for one in error.errors() if one["loc"] == (name,)]
            else:
                continue
            if errors:
                said = refuse_fields(errors).message
                assert said.startswith((f"{name} must be ", f"{name} must have ")), said
                assert f"; got {json.dumps(given)[:80]}" in said
                refused += 1
    assert refused


@pytest.mark.parametrize(
    ("model", "given", "said"),
    [
        (search.SearchOptions, {"k": 0}, "k must be at least 1; got 0."),
        (search.SearchOptions, {"k": 201}, "k must be at most 200; got 201."),
        (search.SearchOptions, {"end_s": 0}, "end_s must be more than 0; got 0."),
        (search.SearchOptions, {"end_s": 2e7}, "end_s must be at most 10000000; got 20000000.0."),
        (duplicates.DuplicatesRequest, {"min_probability": 1.5}, "min_probability must be at most 1; got 1.5."),
        (search.SearchRequest, {}, "id is missing."),
        (search.SearchRequest, {"id": "a", "colour": 1}, "colour is no field of this request."),
        (search.SearchRequest, [], "The body must be an object; got []."),
        (
            duplicates.ActionRequest,
            {"action": "trash", "groups": [{"keep": 1, "videos": ["a"]}]},
            "groups.0.keep must be text; got 1.",
        ),
        (library.AddRequest, {"root": "x" * 99}, f'root must have a length of at most 64; got "{"x" * 79}....'),
    ],
)
def test_sentences_about_fields(model: type[Strict], given: Any, said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        model.model_validate(given)
    assert refuse_fields([one | {"loc": ("body", *one["loc"])} for one in refused.value.errors()]).message == said


def test_a_body_that_is_no_json_is_refused_in_our_words(place: Place) -> None:
    for path in ("/api/searches", "/api/compare"):
        answer = place.client.post(path, content=b"{", headers={"Content-Type": "application/json"})
        assert answer.status_code == 422
        assert error_of(answer, "BadInput").startswith("The body must be JSON: ")
