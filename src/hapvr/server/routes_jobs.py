"""What can be done: search, compare, add, look for duplicates; and the jobs that do it."""

from __future__ import annotations

import asyncio
import base64
import os
from datetime import datetime
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse

from hapvr.server import models
from hapvr.server.jobs import Job
from hapvr.server.problems import Problem, not_found
from hapvr.server.security import JSON
from hapvr.server.state import Server, errors, picture

router = APIRouter(prefix="/api")
JobId = Annotated[str, Path(description="The id of a job.", examples=[models.JOB_ID], max_length=64)]
Side = Annotated[str, Query(min_length=1, max_length=64, description="The id of a video or an upload.")]
_ASK_S = 120.0
_REF = "#/components/schemas/"
_SEARCH_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {"$ref": f"{_REF}SearchRequest"}},
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {
                        "file": {"type": "string", "format": "binary", "description": "A video or a picture."},
                        "from": {"type": "number", "minimum": 0, "description": "Seconds."},
                        "to": {"type": "number", "minimum": 0, "description": "Seconds."},
                        "k": {"type": "integer", "minimum": 1, "maximum": 200},
                        "min_probability": {"type": "number", "minimum": 0, "maximum": 1},
                        "exact": {"type": "boolean"},
                    },
                }
            },
        },
    }
}


# --- searching -------------------------------------------------------------------------------------------------------


@router.post(
    "/searches",
    status_code=202,
    response_model=models.SearchBegun,
    responses=errors(400, 404, 409, 413, 415, 507),
    openapi_extra=_SEARCH_BODY,
    tags=["search"],
)
async def search(server: Server, request: Request) -> Response:
    """Look for an upload (a form) or a video of the library (JSON): a job is begun, and its result holds the hits."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        return await _search_upload(server, request)
    if kind != "application/json":
        raise Problem(415, "A search is a form with a file (multipart/form-data), or JSON (application/json).")
    try:
        wish = models.SearchRequest.model_validate_json(await request.body())
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from None
    _require_order(wish.start, wish.end)
    side = await server.side(wish.id)
    if wish.id in server.uploads:
        server.uploads.get(wish.id).part = (wish.start, wish.end)
    return _begun_search(server, side, wish)


async def _search_upload(server: Server, request: Request) -> Response:
    given = request.headers.get("content-length")
    before = server.uploads.received
    try:
        query, fields = await server.uploads.receive(
            request.headers["content-type"], None if given is None else int(given), request.stream()
        )
    except ClientDisconnect:
        raise Problem(400, "The upload was cut off before its end.", hint="Try again.") from None
    finally:
        server.metrics.upload(server.uploads.received - before)
    try:
        query.jobs += 1  # nobody may take it away now
        try:
            wish = models.UploadForm.model_validate({name: value for name, value in fields.items() if value != ""})
        except ValidationError as error:
            raise RequestValidationError(error.errors()) from None
        _require_order(wish.start, wish.end)
        query.duration = await server.media.probe(query)
        query.part = (wish.start, wish.end)
        side = await server.side(query.id)
        answer = _begun_search(server, side, wish)
    except BaseException:
        server.uploads.remove(query.id)
        raise
    finally:
        query.jobs -= 1
    return answer


def _begun_search(server: Server, side: dict[str, Any], wish: models.SearchRequest | models.UploadForm) -> Response:
    arguments = {
        "query": side,
        "from": wish.start,
        "to": wish.end,
        "k": wish.k,
        "min_probability": wish.min_probability,
        "exact": wish.exact,
    }
    job = _submit(server, "search", arguments, side)
    return JSON({"job": job.to_json(), "query": side["id"]}, 202)


def _submit(server: Server, kind: str, arguments: dict[str, Any], *sides: dict[str, Any]) -> Job:
    """Begin a job; its uploads are kept as long as it runs."""
    queries = [server.uploads.get(side["id"]) for side in sides if "upload" in side]

    def over(job: Job) -> None:
        for query in queries:
            query.jobs -= 1
            # What cannot be read need not be kept.
            unreadable = job.error is not None and job.error["type"] in ("BadInput", "TooLarge")
            if unreadable and query.id in server.uploads and not query.jobs:
                server.uploads.remove(query.id)

    job = server.jobs.submit(kind, arguments, over=over)
    for query in queries:
        query.jobs += 1
    return job


def _require_order(start: float | None, end: float | None) -> None:
    if end is not None and end <= (start or 0.0):
        raise Problem(400, f"'to' must come after 'from'; got {start or 0.0:g} to {end:g} s.")


# --- comparing -------------------------------------------------------------------------------------------------------


@router.post("/compare", status_code=202, response_model=models.Begun, responses=errors(400, 404, 409), tags=["search"])
async def compare(server: Server, wish: models.CompareRequest) -> Response:
    """Compare two videos in full: the job's result holds where they match, and the similarity of all their frames."""
    a, b = await server.side(wish.a), await server.side(wish.b)
    return JSON({"job": _submit(server, "compare", {"a": a, "b": b}, a, b).to_json()}, 202)


@router.get(
    "/matrix.png",
    response_class=Response,
    responses={**picture("image/png", description="Rows: frames of a; columns: of b."), **errors(400, 404, 409)},
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
    data = base64.b64decode(await server.jobs.ask("matrix", arguments, timeout_s=_ASK_S))
    return Response(data, media_type="image/png", headers={"Cache-Control": "private, max-age=3600"})


# --- jobs ------------------------------------------------------------------------------------------------------------


@router.get("/jobs", response_model=list[models.Job], responses=errors(), tags=["jobs"])
async def jobs(server: Server) -> Response:
    """All jobs that are remembered, newest first, without their results."""
    return JSON([job.to_json(result=False) for job in server.jobs.all()])


@router.get("/jobs/{id}", response_model=models.Job, responses=errors(404), tags=["jobs"])
async def job(
    server: Server,
    id: JobId,
    wait: Annotated[float, Query(ge=0, le=60, allow_inf_nan=False, description="Seconds to wait for its end.")] = 0.0,
) -> Response:
    """One job, with its result when it is done."""
    found = server.jobs.get(id)
    if wait > 0:
        await server.jobs.wait(found, wait)
    return JSON(found.to_json())


@router.delete("/jobs/{id}", response_model=models.Job, responses=errors(404), tags=["jobs"])
async def cancel(server: Server, id: JobId) -> Response:
    """Cancel a job; what it has done is kept. One that is over stays as it is."""
    found = server.jobs.get(id)
    await server.jobs.cancel(found)
    return JSON(found.to_json())


@router.get(
    "/jobs/{id}/events",
    response_class=Response,
    responses={
        200: {"description": "The job as JSON, now and after each change.", "content": {"text/event-stream": {}}},
        **errors(404),
    },
    tags=["jobs"],
)
async def events(server: Server, id: JobId) -> Response:
    """Watch a job: server-sent events named "job", until it is over."""
    found = server.jobs.get(id)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(server.jobs.watch(found), media_type="text/event-stream", headers=headers)


# --- adding ----------------------------------------------------------------------------------------------------------


@router.post("/jobs/add", status_code=202, response_model=models.Begun, responses=errors(400, 403, 404), tags=["jobs"])
async def add(server: Server, wish: models.AddRequest) -> Response:
    """Add the videos of a configured folder, or of one below it."""
    root = server.settings.named_roots.get(wish.root)
    if root is None:
        raise not_found("root", wish.root)
    place = await asyncio.get_running_loop().run_in_executor(None, _below, root.path, wish.path)
    job = server.jobs.submit(
        "add",
        {"paths": [str(place)], "prune": wish.prune, "retry": wish.retry},
        over=lambda _: server.follow(server.shelf.refresh()),
    )
    return JSON({"job": job.to_json()}, 202)


def _below(root: FilePath, given: str) -> FilePath:
    """A folder or file below a root; `Problem` if it leads out of it, by dots or by links."""
    parts = given.replace("\\", "/").split("/")
    absolute = given.startswith(("/", "\\")) or os.path.isabs(given) or ":" in parts[0]
    if absolute or ".." in parts or "\0" in given:
        raise Problem(403, "A path is relative to its root, and does not lead out of it.")
    try:
        place = (root / given).resolve(strict=True)
    except (OSError, ValueError, RuntimeError):
        raise Problem(404, f"There is nothing at '{given[:80]}' in '{root.name}'.") from None
    if place != root and root not in place.parents:
        raise Problem(403, "The path is a link that leads out of its root.")
    return place


# --- duplicates ------------------------------------------------------------------------------------------------------


@router.post("/duplicates", status_code=202, response_model=models.Begun, responses=errors(400), tags=["duplicates"])
async def duplicates(server: Server, wish: models.DuplicatesRequest) -> Response:
    """Look for videos that show the same: the job's result holds them in groups."""
    if wish.since is not None:
        try:
            datetime.fromisoformat(wish.since.replace("Z", "+00:00"))
        except ValueError:
            raise Problem(400, "'since' is a time in ISO 8601, such as 2026-03-01T12:00:00+00:00.") from None
    since = None if wish.since is None else wish.since.replace("Z", "+00:00")
    job = server.jobs.submit("duplicates", {"threshold": wish.threshold, "since": since})
    return JSON({"job": job.to_json()}, 202)


@router.get(
    "/duplicates.csv",
    response_class=Response,
    responses={200: {"description": "One line a link.", "content": {"text/csv": {}}}, **errors(404)},
    tags=["duplicates"],
)
async def duplicates_csv(server: Server) -> Response:
    """The links that were found last, as `hapvr duplicates -o FILE.csv` writes them."""
    return _download(server, "csv", "text/csv; charset=utf-8")


@router.get(
    "/duplicates.json",
    response_class=Response,
    responses={200: {"description": "The whole report.", "content": {"application/json": {}}}, **errors(404)},
    tags=["duplicates"],
)
async def duplicates_json(server: Server) -> Response:
    """What was found last, as `hapvr duplicates -o FILE.json` writes it."""
    return _download(server, "json", "application/json")


def _download(server: Server, form: str, kind: str) -> Response:
    found = server.jobs.last_duplicates
    if found is None:
        raise Problem(404, "No search for duplicates has been done yet.", hint="Begin one: POST /api/duplicates.")
    headers = {"Content-Disposition": f'attachment; filename="duplicates.{form}"'}
    return Response(found[form].encode(errors="replace"), media_type=kind, headers=headers)


@router.post("/duplicates/distinct", response_model=models.Marked, responses=errors(400, 404, 409), tags=["duplicates"])
async def distinct(server: Server, pair: models.Pair) -> Response:
    """Mark two videos as no duplicates of each other: they are not reported again."""
    return await _mark(server, pair, distinct=True)


@router.delete(
    "/duplicates/distinct", response_model=models.Marked, responses=errors(400, 404, 409), tags=["duplicates"]
)
async def not_distinct(server: Server, pair: models.Pair) -> Response:
    """Take that back."""
    return await _mark(server, pair, distinct=False)


async def _mark(server: Server, pair: models.Pair, *, distinct: bool) -> Response:
    if pair.a == pair.b:
        raise Problem(400, "A video is not distinct from itself: give two ids.")
    for id in (pair.a, pair.b):
        await server.shelf.get(id)
    if server.jobs.adding.busy:
        raise Problem(409, "The library is being written by a job.", hint="Wait until it is over, or cancel it.")
    kind = "distinct" if distinct else "not_distinct"
    await server.jobs.ask(kind, {"a": pair.a, "b": pair.b}, timeout_s=_ASK_S)
    return JSON({"distinct": distinct})
