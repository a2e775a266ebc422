"""The REST interface: every route below /api."""

from __future__ import annotations

import asyncio
import base64
import secrets
from collections.abc import Awaitable, Callable
from datetime import datetime, timezone
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import ValidationError
from starlette.requests import ClientDisconnect
from starlette.responses import FileResponse, Response, StreamingResponse

from hapvr import __version__
from hapvr.server import schemas
from hapvr.server.access import file_name, hide_path, list_folders, resolve_below
from hapvr.server.filters import describe_filter, make_filter, write_filter
from hapvr.server.jobs import Job
from hapvr.server.media import Source
from hapvr.server.problems import Problem, not_found, refuse_fields
from hapvr.server.security import JSON
from hapvr.server.state import State, check_health
from hapvr.server.uploads import Query as StoredUpload

Options = TypeVar("Options", bound=schemas.SearchOptions)
_ASK_S = 120.0
_HOUR = {"Cache-Control": "private, max-age=3600"}
_REASONS = {
    400: "It cannot be done as asked.",
    401: "A token is needed.",
    403: "It is not allowed.",
    404: "There is no such thing.",
    408: "It took too long to send.",
    409: "It conflicts with the present state.",
    413: "It is too large.",
    415: "It is not of a kind that can be read.",
    416: "There is no such part.",
    421: "This server does not answer to that name.",
    422: "A value is missing, or out of range.",
    429: "This client asks for too much at a time.",
    500: "A fault of the server.",
    503: "The server is busy, or stopping.",
    507: "The server has no room.",
}


def _errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Errors that an operation declares."""
    return {code: {"model": schemas.Error, "description": _REASONS[code]} for code in statuses}


router = APIRouter(prefix="/api", responses=_errors(401, 403, 408, 413, 421, 422, 429, 500, 503))


async def find_state(request: Request) -> State:
    """What the server shares among requests."""
    state: State = request.app.state.server
    return state


Server = Annotated[State, Depends(find_state)]
VideoId = Annotated[str, Path(description="The id of a video.", examples=[schemas.VIDEO_ID], max_length=64)]
QueryId = Annotated[str, Path(description="The id of an upload.", examples=[schemas.QUERY_ID], max_length=64)]
MediaId = Annotated[str, Path(description="The id of a video, or of an upload.", max_length=64)]
JobId = Annotated[str, Path(description="The id of a job.", examples=[schemas.JOB_ID], max_length=64)]
ActionId = Annotated[str, Path(description="The id of an action.", pattern="^a[0-9a-f]{16}$")]
Side = Annotated[str, Query(min_length=1, max_length=64, description="The id of a video or an upload.")]
Time = Annotated[float, Query(ge=0, le=1e7, allow_inf_nan=False, description="Seconds.")]
Width = Annotated[int, Query(ge=16, le=1280, description="Pixels.")]
Count = Annotated[int, Query(ge=1, le=40, description="Number of frames.")]
Height = Annotated[int, Query(ge=16, le=360, description="Pixels.")]


def _file(*kinds: str, description: str) -> dict[int | str, dict[str, Any]]:
    """The answer of an operation that gives a file."""
    content = {kind: {"schema": {"type": "string", "format": "binary"}} for kind in kinds}
    return {200: {"description": description, "content": content}}


# --- searching -------------------------------------------------------------------------------------------------------


def _make_search_schema() -> dict[str, Any]:
    """The body of a search in the OpenAPI document: JSON, or a form with a file."""
    fields = schemas.SearchOptions.model_json_schema()["properties"]
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
    response_model=schemas.SearchBegun,
    responses=_errors(400, 404, 409, 415, 507),
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
    options = _check(lambda: schemas.SearchRequest.model_validate_json(body))
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
        options = _check(lambda: schemas.SearchOptions.model_validate(given))
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


async def _begin_search(server: State, side: dict[str, Any], options: schemas.SearchOptions) -> Response:
    others = options.model_dump(exclude={"id", *schemas.FilterOptions.model_fields})
    arguments = {"query": side, **others, **await _find_limits(server, options)}
    job = _submit(server, "search", arguments, side)
    return JSON({"job": job.to_json(), "query": side["id"]}, 202)


@router.post(
    "/searches/text",
    status_code=202,
    response_model=schemas.Begun,
    responses=_errors(400, 404, 409),
    tags=["search"],
)
async def search_text(server: Server, request: schemas.TextSearchRequest) -> Response:
    """Look for a description: the job's result holds the videos with frames that fit it best, and when."""
    if not await server.library.has_text_model():
        message = "This library cannot be searched by text: no text model has described its videos."
        raise Problem(409, message, hint="Give it one: hapvr add LIBRARY --text-model FOLDER")
    arguments = {"text": request.text, "k": request.k, **await _find_limits(server, request)}
    return JSON({"job": server.jobs.submit("search_text", arguments).to_json()}, 202)


async def _find_limits(server: State, options: schemas.FilterOptions) -> dict[str, Any]:
    """Which videos a request means, as arguments of a task."""
    roots = server.settings.named_roots
    chosen = await asyncio.get_running_loop().run_in_executor(None, make_filter, options, roots)
    return {"limits": write_filter(chosen), "filter": describe_filter(options)}


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
    "/compare", status_code=202, response_model=schemas.Begun, responses=_errors(400, 404, 409), tags=["search"]
)
async def compare(server: Server, pair: schemas.CompareRequest) -> Response:
    """Compare two videos in full: the job's result holds where they match, and the similarity of all their frames."""
    a, b = await server.side(pair.a), await server.side(pair.b)
    arguments = {"a": a, "b": b, "ignore_shared": pair.ignore_shared}
    return JSON({"job": _submit(server, "compare", arguments, a, b).to_json()}, 202)


@router.get(
    "/matrix.png",
    response_class=Response,
    responses=_file("image/png", description="Rows: frames of a; columns: of b.") | _errors(400, 404, 409),
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
    return Response(data, media_type="image/png", headers=_HOUR)


# --- jobs ------------------------------------------------------------------------------------------------------------


@router.get("/jobs", response_model=list[schemas.Job], tags=["jobs"])
async def jobs(server: Server) -> Response:
    """All jobs that are remembered, the newest first, without their results."""
    return JSON([job.to_json(result=False) for job in server.jobs.all()])


@router.get("/jobs/{id}", response_model=schemas.Job, responses=_errors(404), tags=["jobs"])
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


@router.delete("/jobs/{id}", response_model=schemas.Job, responses=_errors(404), tags=["jobs"])
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
        **_errors(404),
    },
    tags=["jobs"],
)
async def events(server: Server, id: JobId) -> Response:
    """Watch a job: server-sent events named "job", until it is over."""
    found = server.jobs.get(id)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(server.jobs.watch(found), media_type="text/event-stream", headers=headers)


@router.post("/jobs/add", status_code=202, response_model=schemas.Begun, responses=_errors(400, 404), tags=["jobs"])
async def add(server: Server, request: schemas.AddRequest) -> Response:
    """Add the videos of a configured folder, or of one below it."""
    root = server.settings.named_roots.get(request.root)
    if root is None:
        raise not_found("root", request.root)
    place = await asyncio.get_running_loop().run_in_executor(None, resolve_below, root.path, request.path)
    arguments = {"paths": [str(place)], "prune": request.prune, "retry": request.retry}
    job = server.jobs.submit("add", arguments, over=lambda _: server.follow(server.library.refresh()))
    return JSON({"job": job.to_json()}, 202)


@router.post("/jobs/check", status_code=202, response_model=schemas.Begun, tags=["jobs"])
async def check(server: Server, request: schemas.CheckRequest) -> Response:
    """Check that the library is as it was written; `hapvr check LIBRARY --repair` repairs it."""
    return JSON({"job": server.jobs.submit("check", request.model_dump()).to_json()}, 202)


@router.get("/roots/{id}/folders", response_model=schemas.Folders, responses=_errors(400, 404, 409), tags=["library"])
async def folders(
    server: Server,
    id: Annotated[str, Path(description="The id of a root, see /api/library.", max_length=64)],
    path: Annotated[str, Query(max_length=1000, description="A folder in it; empty for the root itself.")] = "",
) -> Response:
    """The folders in a root, or in a folder of it: what may be added."""
    root = server.settings.named_roots.get(id)
    if root is None:
        raise not_found("root", id)
    names, more = await asyncio.get_running_loop().run_in_executor(None, list_folders, root.path, path)
    return JSON({"path": path, "folders": names, "more": more})


# --- duplicates ------------------------------------------------------------------------------------------------------


@router.post(
    "/duplicates", status_code=202, response_model=schemas.Begun, responses=_errors(400, 404), tags=["duplicates"]
)
async def duplicates(server: Server, request: schemas.DuplicatesRequest) -> Response:
    """Find copies, and clips that are part of longer videos: the job's result holds them in groups."""
    since = None if request.since is None else request.since.replace("Z", "+00:00")
    try:
        datetime.fromisoformat(since or "2026-01-01")
    except ValueError:
        raise Problem(400, "'since' is a time in ISO 8601, such as 2026-03-01T12:00:00+00:00.") from None
    others = request.model_dump(exclude=set(schemas.FilterOptions.model_fields)) | {"since": since}
    job = server.jobs.submit("duplicates", others | await _find_limits(server, request))
    return JSON({"job": job.to_json()}, 202)


@router.get(
    "/duplicates.csv",
    response_class=Response,
    responses={200: {"description": "One line a link.", "content": {"text/csv": {}}}, **_errors(404)},
    tags=["duplicates"],
)
@router.get(
    "/duplicates.json",
    response_class=Response,
    responses={200: {"description": "The whole report.", "content": {"application/json": {}}}, **_errors(404)},
    tags=["duplicates"],
)
async def duplicates_file(server: Server, request: Request) -> Response:
    """What was found last, as `hapvr duplicates -o FILE.csv` or `FILE.json` writes it."""
    form = request.url.path.rpartition(".")[2]
    found = server.jobs.last_duplicates
    if found is None:
        raise Problem(404, "No search for duplicates has been done yet.", hint="Begin one: POST /api/duplicates.")
    kind = {"csv": "text/csv; charset=utf-8", "json": "application/json"}[form]
    headers = {"Content-Disposition": f'attachment; filename="duplicates.{form}"'}
    return Response(found[form].encode(errors="replace"), media_type=kind, headers=headers)


@router.post(
    "/duplicates/distinct", response_model=schemas.Marked, responses=_errors(400, 404, 409), tags=["duplicates"]
)
async def distinct(server: Server, pair: schemas.Pair) -> Response:
    """Mark two videos as no duplicates of each other: they are not reported again."""
    return await _mark(server, pair, "distinct")


@router.delete(
    "/duplicates/distinct", response_model=schemas.Marked, responses=_errors(400, 404, 409), tags=["duplicates"]
)
async def undo_distinct(server: Server, pair: schemas.Pair) -> Response:
    """Remove that mark."""
    return await _mark(server, pair, "undo_distinct")


async def _mark(server: State, pair: schemas.Pair, task: str) -> Response:
    if pair.a == pair.b:
        raise Problem(400, "A video is not distinct from itself: give two ids.")
    for id in (pair.a, pair.b):
        await server.library.get(id)
    await _write(server, task, pair.model_dump())
    return JSON({"distinct": task == "distinct"})


@router.post(
    "/actions/preview",
    response_model=schemas.ActionPreview,
    responses=_errors(400, 404, 409),
    tags=["duplicates"],
)
async def preview_actions(server: Server, request: schemas.ActionRequest) -> Response:
    """Say what an action on files of duplicates would do; nothing is done."""
    await _require_action(server, request)
    return JSON(await _write(server, "preview_actions", request.model_dump()))


@router.post(
    "/actions", status_code=202, response_model=schemas.Begun, responses=_errors(400, 404), tags=["duplicates"]
)
async def act(server: Server, request: schemas.ActionRequest) -> Response:
    """Move files of duplicates or replace them by links. The last copy of a group and files that changed stay."""
    await _require_action(server, request)
    arguments = request.model_dump() | {"id": f"a{secrets.token_hex(8)}"}
    job = server.jobs.submit("actions", arguments, over=lambda _: _follow_action(server))
    return JSON({"job": job.to_json()}, 202)


@router.post(
    "/actions/{id}/undo", status_code=202, response_model=schemas.Begun, responses=_errors(404), tags=["duplicates"]
)
async def undo(server: Server, id: ActionId) -> Response:
    """Take an action back. Files that have changed since, or whose old place is taken, stay where they are."""
    if not server.settings.allow_actions:
        raise _forbid_action()
    if not (server.library.path / "actions" / f"{id}.journal").is_file():
        raise not_found("action", id)
    job = server.jobs.submit("undo", {"id": id}, over=lambda _: _follow_action(server))
    return JSON({"job": job.to_json()}, 202)


async def _require_action(server: State, request: schemas.ActionRequest) -> None:
    if request.action not in server.settings.actions:
        raise _forbid_action()
    for group in request.groups:
        for id in (group.keep, *group.videos):
            await server.library.get(id)


def _forbid_action() -> Problem:
    hint = "It is started with --allow-actions for that, and with --move-to FOLDER to move them there."
    return Problem(403, "This server does not touch files in this way.", hint=hint)


def _follow_action(server: State) -> None:
    server.jobs.forget_duplicates()
    server.follow(server.library.refresh())


async def _write(server: State, task: str, arguments: dict[str, Any]) -> Any:
    if server.jobs.adding.busy:
        raise Problem(409, "The library is being written by a job.", hint="Wait until it is over, or cancel it.")
    return await server.jobs.ask(task, arguments, timeout_s=_ASK_S)


# --- the library -----------------------------------------------------------------------------------------------------


@router.get(
    "/health",
    response_model=schemas.Health,
    responses={503: {"model": schemas.FailedHealth | schemas.Error, "description": "It cannot search."}},
    tags=["library"],
)
async def health(server: Server) -> Response:
    """Whether the server works: 503 if it cannot search."""
    info = await server.library.info()
    found = check_health(server.workers, library=server.library.path)
    about: dict[str, Any] = {
        "status": found.status,
        "cause": found.cause,
        "version": __version__,
        "library": {"videos": info.videos, "failed": info.failed},
        "model": _model_name(info.model),
        "workers": found.workers,
    }
    if found.status != "failed":
        return JSON(about)
    problem = Problem(503, found.cause or "", hint="The log of the server says more.", headers={"Retry-After": "10"})
    return JSON(about | {"error": problem.to_json()}, problem.status, headers=problem.headers)


@router.get("/ready", response_model=schemas.Readiness, tags=["library"])
async def readiness(server: Server) -> Response:
    """Whether a search can begin now: 503 while the server starts or stops, cannot search, or has a full queue."""
    await server.require_ready()
    return JSON({"ready": True})


@router.get("/library", response_model=schemas.LibraryDescription, tags=["library"])
async def library(server: Server) -> Response:
    """What the library holds, and which folders may be added."""
    info, calibration = await server.library.info(), await server.library.calibration()
    plain = {name: getattr(info, name) for name in ("videos", "failed", "missing", "warned", "bytes", "codec", "fps")}
    return JSON(
        plain
        | {
            "path": server.library.path.name,
            "duration_s": info.duration,
            "model": _model_name(info.model),
            "calibration": calibration,
            "roots": [{"id": root.id, "name": root.name} for root in server.settings.named_roots.values()],
            "max_upload_bytes": server.settings.max_upload_bytes,
            "text_search": await server.library.has_text_model(),
            "actions": list(server.settings.actions),
        }
    )


def _model_name(model: str) -> str:
    return model.replace("\\", "/").rstrip("/").rpartition("/")[2]


@router.get("/videos", response_model=schemas.VideoPage, tags=["library"])
async def videos(
    server: Server,
    state: Annotated[Literal["ready", "failed", "missing"] | None, Query(description="Only those.")] = None,
    warned: Annotated[bool, Query(description="Only those with warnings.")] = False,
    offset: Annotated[int, Query(ge=0, le=10**9)] = 0,
    limit: Annotated[int, Query(ge=0, le=500)] = 50,
    q: Annotated[str, Query(max_length=200, description="A part of the file's name.")] = "",
) -> Response:
    """List videos, sorted by the paths of their files."""
    total, records = await server.library.page(state=state, warned=warned, text=q, offset=offset, limit=limit)
    shown = [schemas.video_json(record, server.settings.root_paths) for record in records]
    return JSON({"total": total, "videos": shown})


@router.get("/videos/{id}", response_model=schemas.Video, responses=_errors(404), tags=["library"])
async def video(server: Server, id: VideoId) -> Response:
    """One video."""
    return JSON(schemas.video_json(await server.library.get(id), server.settings.root_paths))


@router.delete("/videos/{id}", response_model=schemas.Removed, responses=_errors(404, 409), tags=["library"])
async def remove(server: Server, id: VideoId) -> Response:
    """Remove a video. Its file stays."""
    await server.library.get(id)
    count = await _write(server, "remove", {"ids": [id]})
    await server.library.refresh()
    return JSON({"removed": count})


@router.get("/failures", response_model=list[schemas.Failure], tags=["library"])
async def failures(server: Server) -> Response:
    """Videos that could not be indexed, and why; a thousand at most."""
    _, records = await server.library.page(state="failed", limit=1000)
    return JSON(
        [{"id": one.id, "name": file_name(one.path), "error": hide_path(one.error or "", one.path)} for one in records]
    )


@router.get("/shared", response_model=schemas.SharedFootage, tags=["library"])
async def shared(server: Server) -> Response:
    """Footage that many videos share, such as title screens and end cards, as `hapvr status` lists it."""
    return JSON(await server.jobs.ask("shared", {}, timeout_s=_ASK_S))


@router.get("/queries/{id}", response_model=schemas.Upload, responses=_errors(404), tags=["search"])
async def upload(server: Server, id: QueryId) -> Response:
    """An upload, if it is still kept."""
    return JSON(_show_upload(server.uploads.get(id)))


@router.post("/queries/{id}/keep", response_model=schemas.Upload, responses=_errors(404, 507), tags=["search"])
async def keep_upload(server: Server, id: QueryId) -> Response:
    """Keep an upload for a link that somebody opens later, even if the server is started again."""
    query = server.uploads.get(id)
    query.jobs += 1  # it must not be removed now
    try:
        await asyncio.get_running_loop().run_in_executor(None, server.uploads.keep, id)
    finally:
        query.jobs -= 1
    return JSON(_show_upload(query))


def _show_upload(query: StoredUpload) -> dict[str, Any]:
    until = None if query.until is None else datetime.fromtimestamp(query.until, timezone.utc).isoformat()
    return {"id": query.id, "name": query.name, "duration": query.duration, "until": until}


@router.delete("/queries/{id}", response_model=schemas.Removed, responses=_errors(404, 409), tags=["search"])
async def remove_query(server: Server, id: QueryId) -> Response:
    """Remove an upload."""
    query = server.uploads.get(id)
    if query.jobs:
        raise Problem(409, "A job needs this upload.", hint="Wait until it is over, or cancel it.")
    server.uploads.remove(id)
    return JSON({"removed": 1})


# --- media of videos and uploads -------------------------------------------------------------------------------------


async def find_source(server: Server, request: Request, id: MediaId) -> Source:
    """The file that an address below /api/videos or /api/queries names."""
    if request.url.path.startswith("/api/queries/"):
        return Source.of_query(server.uploads.get(id))
    return await server.video_source(id)


Found = Annotated[Source, Depends(find_source)]
Endpoint = Callable[..., Awaitable[Response]]
_JPEG = _file("image/jpeg", description="A JPEG picture.")


def _ranges(*kinds: str, description: str) -> dict[int | str, dict[str, Any]]:
    """The answer of an operation that gives a file or a part of it."""
    return _file(*kinds, description=description) | {
        206: {"description": "A part of it.", "content": {kind: {} for kind in kinds}},
        304: {"description": "What the client has is still right."},
    }


def _media_route(name: str, responses: dict[int | str, dict[str, Any]]) -> Callable[[Endpoint], Endpoint]:
    """Serve something of videos and of uploads, to GET and to HEAD."""

    def register(endpoint: Endpoint) -> Endpoint:
        for prefix in ("videos", "queries"):
            path = f"/{prefix}/{{id}}/{name}"
            router.add_api_route(path, endpoint, methods=["HEAD"], include_in_schema=False)
            router.add_api_route(path, endpoint, response_class=Response, responses=responses, tags=["media"])
        return endpoint

    return register


@_media_route(
    "file",
    _ranges("application/octet-stream", "video/mp4", description="The whole file.") | _errors(404, 409, 416),
)
async def media_file(server: Server, source: Found, request: Request) -> Response:
    """The file, or a range of its bytes; that of a video only if it is still the file that was indexed."""
    return await server.media.file(source, request)


@_media_route("thumbnail", _JPEG | _errors(404, 409, 415, 507))
async def thumbnail(server: Server, source: Found, t: Time = 0.0, width: Width = 320) -> Response:
    """One frame."""
    return FileResponse(await server.media.picture("thumbnail", source, t=t, width=width), headers=_HOUR)


@_media_route("strip", _JPEG | _errors(404, 409, 415, 507))
async def strip(server: Server, source: Found, count: Count = 10, height: Height = 90) -> Response:
    """Frames spread over the whole length, side by side."""
    return FileResponse(await server.media.picture("strip", source, count=count, height=height), headers=_HOUR)


@_media_route("preview", _ranges("video/mp4", description="H.264 without sound.") | _errors(404, 409, 415, 416, 507))
async def preview(server: Server, source: Found, request: Request) -> Response:
    """A small copy that every browser plays; while it is being made, 503 after a while: ask again."""
    return await server.media.preview(source, request)
