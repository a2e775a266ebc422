"""Searching and comparing."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

from fastapi import Query, Request
from pydantic import ValidationError
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from hapvr.server.jobs import Job
from hapvr.server.problems import Problem, refuse_fields
from hapvr.server.routes.operations import ASK_S, HOUR, Server, declare_errors, declare_file, find_limits, make_router
from hapvr.server.schemas.base import FilterOptions
from hapvr.server.schemas.jobs import Begun, SearchBegun
from hapvr.server.schemas.search import CompareRequest, SearchOptions, SearchRequest, TextSearchRequest
from hapvr.server.security import JSON
from hapvr.server.state import State

router = make_router()
Side = Annotated[str, Query(min_length=1, max_length=64, description="The id of a video or an upload.")]
Options = TypeVar("Options", bound=SearchOptions)


def _make_search_schema() -> dict[str, Any]:
    """The body of a search in the OpenAPI document: JSON, or a form with a file."""
    fields = SearchOptions.model_json_schema()["properties"]
    file = {"type": "string", "format": "binary", "description": "A video or a picture."}
    form = {"type": "object", "required": ["file"], "properties": {"file": file, **fields}}
    content = {
        "application/json": {"schema": {"$ref": "#/components/schemas/SearchRequest"}},
        "multipart/form-data": {"schema": form},
    }
    return {"requestBody": {"required": True, "content": content}}


@router.post(
    "/searches",
    status_code=202,
    response_model=SearchBegun,
    responses=declare_errors(400, 404, 409, 415, 507),
    openapi_extra=_make_search_schema(),
    tags=["search"],
)
async def search(server: Server, request: Request) -> Response:
    """Look for an upload (a form) or a video of the library (JSON): a job is begun, and its result holds the hits."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        return await _search_upload(server, request)
    if kind != "application/json":
        raise Problem(415, "A search is a form with a file (multipart/form-data), or JSON (application/json).")
    body = await request.body()
    options = _check(lambda: SearchRequest.model_validate_json(body))
    side = await server.side(options.id)
    if options.id in server.uploads:
        server.uploads.get(options.id).part = (options.start_s, options.end_s)
    return await _begin_search(server, side, options)


async def _search_upload(server: State, request: Request) -> Response:
    length = request.headers.get("content-length")
    before = server.uploads.received
    try:
        query, fields = await server.uploads.receive(
            request.headers["content-type"], None if length is None else int(length), request.stream()
        )
    except ClientDisconnect:
        raise Problem(400, "The upload was cut off before its end.", hint="Try again.") from None
    finally:
        server.metrics.upload(server.uploads.received - before)
    try:
        query.jobs += 1  # it must not be removed now
        given = {name: value for name, value in fields.items() if value != ""}
        options = _check(lambda: SearchOptions.model_validate(given))
        query.duration = await server.media.probe(query)
        query.part = (options.start_s, options.end_s)
        return await _begin_search(server, await server.side(query.id), options)
    except BaseException:
        server.uploads.remove(query.id)
        raise
    finally:
        query.jobs -= 1


def _check(parse: Callable[[], Options]) -> Options:
    try:
        options = parse()
    except ValidationError as error:
        raise refuse_fields([{**one, "loc": ("body", *one["loc"])} for one in error.errors()]) from None
    start_s, end_s = options.start_s or 0.0, options.end_s
    if end_s is not None and end_s <= start_s:
        raise Problem(400, f"end_s must come after start_s; got {start_s:g} to {end_s:g} s.")
    return options


async def _begin_search(server: State, side: dict[str, Any], options: SearchOptions) -> Response:
    others = options.model_dump(exclude={"id", *FilterOptions.model_fields})
    arguments = {"query": side, **others, **await find_limits(server, options)}
    job = _submit(server, "search", arguments, side)
    return JSON({"job": job.to_json(), "query": side["id"]}, 202)


@router.post(
    "/searches/text",
    status_code=202,
    response_model=Begun,
    responses=declare_errors(400, 404, 409),
    tags=["search"],
)
async def search_text(server: Server, request: TextSearchRequest) -> Response:
    """Look for a description: the job's result holds the videos with frames that fit it best, and when."""
    if not await server.library.has_text_model():
        message = "This library cannot be searched by text: no text model has described its videos."
        raise Problem(409, message, hint="Give it one: hapvr add LIBRARY --text-model FOLDER")
    arguments = {"text": request.text, "k": request.k, **await find_limits(server, request)}
    return JSON({"job": server.jobs.submit("search_text", arguments).to_json()}, 202)


def _submit(server: State, kind: str, arguments: dict[str, Any], *sides: dict[str, Any]) -> Job:
    """Begin a job; its uploads are kept as long as it runs."""
    queries = [server.uploads.get(side["id"]) for side in sides if "upload" in side]

    def over(job: Job) -> None:
        unreadable = job.error is not None and job.error["type"] in ("BadInput", "TooLarge")
        for query in queries:
            query.jobs -= 1
            if unreadable and query.id in server.uploads and not query.jobs:
                server.uploads.remove(query.id)

    job = server.jobs.submit(kind, arguments, over=over)
    for query in queries:
        query.jobs += 1
    return job


@router.post(
    "/compare", status_code=202, response_model=Begun, responses=declare_errors(400, 404, 409), tags=["search"]
)
async def compare(server: Server, pair: CompareRequest) -> Response:
    """Compare two videos in full: the job's result holds where they match, and the similarity of all their frames."""
    a, b = await server.side(pair.a), await server.side(pair.b)
    arguments = {"a": a, "b": b, "ignore_shared": pair.ignore_shared}
    return JSON({"job": _submit(server, "compare", arguments, a, b).to_json()}, 202)


@router.get(
    "/matrix.png",
    response_class=Response,
    responses=declare_file("image/png", description="Rows: frames of a; columns: of b.")
    | declare_errors(400, 404, 409),
    tags=["search"],
)
async def matrix(
    server: Server,
    a: Side,
    b: Side,
    stage: Annotated[Literal["before", "after"], Query(description="Before or after the network.")] = "after",
) -> Response:
    """The similarity of all frames of two videos as a picture."""
    arguments = {"a": await server.side(a), "b": await server.side(b), "stage": stage}
    data = base64.b64decode(await server.jobs.ask("matrix", arguments, timeout_s=ASK_S))
    return Response(data, media_type="image/png", headers=HOUR)
