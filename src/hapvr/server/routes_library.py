"""What there is: the library, its videos, and what they look like."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import FileResponse, Response

from hapvr import __version__
from hapvr.server import models
from hapvr.server.health import check_health
from hapvr.server.media import Source, source_of_query
from hapvr.server.problems import Problem
from hapvr.server.security import JSON
from hapvr.server.state import Server, errors, picture
from hapvr.server.wording import name_of, video_json, without_place

router = APIRouter(prefix="/api")
VideoId = Annotated[str, Path(description="The id of a video.", examples=[models.VIDEO_ID], max_length=64)]
QueryId = Annotated[str, Path(description="The id of an upload.", examples=[models.QUERY_ID], max_length=64)]
Time = Annotated[float, Query(ge=0, le=1e7, allow_inf_nan=False, description="Seconds.")]
Width = Annotated[int, Query(ge=16, le=1280, description="Pixels.")]
Count = Annotated[int, Query(ge=1, le=40, description="Frames.")]
Height = Annotated[int, Query(ge=16, le=360, description="Pixels.")]
_REMOVE_S = 60.0
_JPEG = picture("image/jpeg", description="A JPEG picture.")
_FILE = {**picture("application/octet-stream", "video/mp4", description="The whole file."),
         206: {"description": "A part of it.", "content": {"application/octet-stream": {}, "video/mp4": {}}},
         304: {"description": "What the client has is still right."}}  # fmt: skip
_PREVIEW = {**picture("video/mp4", description="H.264 without sound."),
            206: {"description": "A part of it.", "content": {"video/mp4": {}}},
            304: {"description": "What the client has is still right."}}  # fmt: skip


@router.get("/health", response_model=models.Health, responses=errors(), tags=["library"])
async def health(server: Server) -> Response:
    """Say whether the server can do what it is for: 503 if it cannot search."""
    info = await server.shelf.info()
    found = check_health(server.workers, library=server.shelf.path)
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


@router.get("/library", response_model=models.LibraryDescription, responses=errors(), tags=["library"])
async def library(server: Server) -> Response:
    """What the library is made of, and which folders may be added."""
    info, calibration = await server.shelf.info(), await server.shelf.calibration()
    return JSON(
        {
            "path": server.shelf.path.name,
            "videos": info.videos,
            "failed": info.failed,
            "missing": info.missing,
            "warned": info.warned,
            "duration_s": info.duration,
            "bytes": info.bytes,
            "model": _model_name(info.model),
            "codec": info.codec,
            "rate": info.rate,
            "calibration": calibration,
            "roots": [{"id": root.id, "name": root.name} for root in server.settings.named_roots.values()],
            "max_upload": server.settings.max_upload,
        }
    )


def _model_name(model: str) -> str:
    return model.replace("\\", "/").rstrip("/").rpartition("/")[2]


@router.get("/videos", response_model=models.VideoPage, responses=errors(), tags=["library"])
async def videos(
    server: Server,
    state: Annotated[Literal["ready", "failed", "missing"] | None, Query(description="Only those.")] = None,
    warned: Annotated[bool, Query(description="Only those that something was wrong with.")] = False,
    offset: Annotated[int, Query(ge=0, le=10**9)] = 0,
    limit: Annotated[int, Query(ge=0, le=500)] = 50,
    q: Annotated[str, Query(max_length=200, description="A part of the file's name.")] = "",
) -> Response:
    """List videos, sorted by where their files lie."""
    total, records = await server.shelf.page(state=state, warned=warned, text=q, offset=offset, limit=limit)
    return JSON({"total": total, "videos": [video_json(record, server.settings.root_paths) for record in records]})


@router.get("/videos/{id}", response_model=models.Video, responses=errors(404), tags=["library"])
async def video(server: Server, id: VideoId) -> Response:
    """One video."""
    return JSON(video_json(await server.shelf.get(id), server.settings.root_paths))


@router.delete("/videos/{id}", response_model=models.Removed, responses=errors(404, 409), tags=["library"])
async def remove(server: Server, id: VideoId) -> Response:
    """Forget a video. Its file stays."""
    await server.shelf.get(id)
    if server.jobs.adding.busy:
        raise Problem(409, "The library is being written by a job.", hint="Wait until it is over, or cancel it.")
    count = await server.jobs.ask("remove", {"ids": [id]}, timeout_s=_REMOVE_S)
    await server.shelf.refresh()
    return JSON({"removed": count})


@router.get("/failures", response_model=list[models.Failure], responses=errors(), tags=["library"])
async def failures(server: Server) -> Response:
    """Videos that could not be described, and why; a thousand at most."""
    _, records = await server.shelf.page(state="failed", text="", offset=0, limit=1000)
    found: list[dict[str, Any]] = []
    for record in records:
        error = without_place(record.error or "", record.path)
        found.append({"id": record.id, "name": name_of(record.path), "error": error})
    return JSON(found)


# --- what they look like ---------------------------------------------------------------------------------------------


async def _picture(server: Server, kind: str, source: Source, **options: Any) -> Response:
    path = await server.media.picture(kind, source, **options)
    return FileResponse(path, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=3600"})


@router.head("/videos/{id}/file", include_in_schema=False)
@router.get("/videos/{id}/file", response_class=Response, responses=_FILE | errors(404, 409, 416), tags=["media"])
async def video_file(server: Server, id: VideoId, request: Request) -> Response:
    """The file of a video, or a range of its bytes; only if it is still the file that was indexed."""
    return await server.media.file(await server.video_source(id), request.headers, head=request.method == "HEAD")


@router.head("/videos/{id}/thumbnail", include_in_schema=False)
@router.get(
    "/videos/{id}/thumbnail", response_class=Response, responses={**_JPEG, **errors(404, 409, 415)}, tags=["media"]
)
async def video_thumbnail(server: Server, id: VideoId, t: Time = 0.0, width: Width = 320) -> Response:
    """A frame of a video."""
    return await _picture(server, "thumbnail", await server.video_source(id), t=t, width=width)


@router.head("/videos/{id}/strip", include_in_schema=False)
@router.get("/videos/{id}/strip", response_class=Response, responses={**_JPEG, **errors(404, 409, 415)}, tags=["media"])
async def video_strip(server: Server, id: VideoId, count: Count = 10, height: Height = 90) -> Response:
    """Frames spread over a video, side by side."""
    return await _picture(server, "strip", await server.video_source(id), count=count, height=height)


@router.head("/videos/{id}/preview", include_in_schema=False)
@router.get(
    "/videos/{id}/preview", response_class=Response, responses=_PREVIEW | errors(404, 409, 415, 416), tags=["media"]
)
async def video_preview(server: Server, id: VideoId, request: Request) -> Response:
    """A small copy that every browser plays; while it is being made, 503 after a while: ask again."""
    return await server.media.preview(await server.video_source(id), request.headers, head=request.method == "HEAD")


@router.head("/queries/{id}/file", include_in_schema=False)
@router.get("/queries/{id}/file", response_class=Response, responses=_FILE | errors(404, 409, 416), tags=["media"])
async def query_file(server: Server, id: QueryId, request: Request) -> Response:
    """The file of an upload, or a range of its bytes."""
    return await server.media.file(
        source_of_query(server.uploads.get(id)), request.headers, head=request.method == "HEAD"
    )


@router.head("/queries/{id}/thumbnail", include_in_schema=False)
@router.get(
    "/queries/{id}/thumbnail", response_class=Response, responses={**_JPEG, **errors(404, 409, 415)}, tags=["media"]
)
async def query_thumbnail(server: Server, id: QueryId, t: Time = 0.0, width: Width = 320) -> Response:
    """A frame of an upload."""
    return await _picture(server, "thumbnail", source_of_query(server.uploads.get(id)), t=t, width=width)


@router.head("/queries/{id}/strip", include_in_schema=False)
@router.get(
    "/queries/{id}/strip", response_class=Response, responses={**_JPEG, **errors(404, 409, 415)}, tags=["media"]
)
async def query_strip(server: Server, id: QueryId, count: Count = 10, height: Height = 90) -> Response:
    """Frames spread over an upload, side by side."""
    return await _picture(server, "strip", source_of_query(server.uploads.get(id)), count=count, height=height)


@router.head("/queries/{id}/preview", include_in_schema=False)
@router.get(
    "/queries/{id}/preview", response_class=Response, responses=_PREVIEW | errors(404, 409, 415, 416), tags=["media"]
)
async def query_preview(server: Server, id: QueryId, request: Request) -> Response:
    """A small copy of an upload that every browser plays."""
    return await server.media.preview(
        source_of_query(server.uploads.get(id)), request.headers, head=request.method == "HEAD"
    )


@router.delete("/queries/{id}", response_model=models.Removed, responses=errors(404, 409), tags=["search"])
async def remove_query(server: Server, id: QueryId) -> Response:
    """Remove an upload."""
    query = server.uploads.get(id)
    if query.jobs:
        raise Problem(409, "A job needs this upload.", hint="Wait until it is over, or cancel it.")
    server.uploads.remove(id)
    return JSON({"removed": 1})
