"""Uploads that are kept; files and pictures of videos and uploads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timezone
from typing import Annotated, Any

from fastapi import Depends, Path, Query, Request
from starlette.responses import FileResponse, Response

from hapvr.server.media import Source
from hapvr.server.problems import Problem
from hapvr.server.routes.operations import HOUR, Server, declare_errors, declare_file, make_router
from hapvr.server.schemas.base import QUERY_ID
from hapvr.server.schemas.library import Removed, Upload
from hapvr.server.security import JSON
from hapvr.server.uploads import Query as StoredUpload

router = make_router()
QueryId = Annotated[str, Path(description="The id of an upload.", examples=[QUERY_ID], max_length=64)]
MediaId = Annotated[str, Path(description="The id of a video, or of an upload.", max_length=64)]
Time = Annotated[float, Query(ge=0, le=1e7, allow_inf_nan=False, description="Seconds.")]
Width = Annotated[int, Query(ge=16, le=1280, description="Pixels.")]
Count = Annotated[int, Query(ge=1, le=40, description="Number of frames.")]
Height = Annotated[int, Query(ge=16, le=360, description="Pixels.")]


@router.get("/queries/{id}", response_model=Upload, responses=declare_errors(404), tags=["search"])
async def upload(server: Server, id: QueryId) -> Response:
    """An upload, if it is still kept."""
    return JSON(_show_upload(server.uploads.get(id)))


@router.post("/queries/{id}/keep", response_model=Upload, responses=declare_errors(404, 507), tags=["search"])
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


@router.delete("/queries/{id}", response_model=Removed, responses=declare_errors(404, 409), tags=["search"])
async def remove_query(server: Server, id: QueryId) -> Response:
    """Remove an upload."""
    query = server.uploads.get(id)
    if query.jobs:
        raise Problem(409, "A job needs this upload.", hint="Wait until it is over, or cancel it.")
    server.uploads.remove(id)
    return JSON({"removed": 1})


async def find_source(server: Server, request: Request, id: MediaId) -> Source:
    """The file that an address below /api/videos or /api/queries names."""
    if request.url.path.startswith("/api/queries/"):
        return Source.of_query(server.uploads.get(id))
    return await server.video_source(id)


Found = Annotated[Source, Depends(find_source)]
Endpoint = Callable[..., Awaitable[Response]]
_JPEG = declare_file("image/jpeg", description="A JPEG picture.")


def _ranges(*kinds: str, description: str) -> dict[int | str, dict[str, Any]]:
    """The answer of an operation that gives a file or a part of it."""
    return declare_file(*kinds, description=description) | {
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
    _ranges("application/octet-stream", "video/mp4", description="The whole file.") | declare_errors(404, 409, 416),
)
async def media_file(server: Server, source: Found, request: Request) -> Response:
    """The file, or a range of its bytes; that of a video only if it is still the file that was indexed."""
    return await server.media.file(source, request)


@_media_route("thumbnail", _JPEG | declare_errors(404, 409, 415, 507))
async def thumbnail(server: Server, source: Found, t: Time = 0.0, width: Width = 320) -> Response:
    """One frame."""
    return FileResponse(await server.media.picture("thumbnail", source, t=t, width=width), headers=HOUR)


@_media_route("strip", _JPEG | declare_errors(404, 409, 415, 507))
async def strip(server: Server, source: Found, count: Count = 10, height: Height = 90) -> Response:
    """Frames spread over the whole length, side by side."""
    return FileResponse(await server.media.picture("strip", source, count=count, height=height), headers=HOUR)


@_media_route(
    "preview", _ranges("video/mp4", description="H.264 without sound.") | declare_errors(404, 409, 415, 416, 507)
)
async def preview(server: Server, source: Found, request: Request) -> Response:
    """A small copy that every browser plays; while it is being made, 503 after a while: ask again."""
    return await server.media.preview(source, request)
