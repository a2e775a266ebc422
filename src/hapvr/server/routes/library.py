"""Health, the library and its videos."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Path, Query
from starlette.responses import Response

from hapvr import __version__
from hapvr.server.access import file_name, hide_path
from hapvr.server.problems import Problem
from hapvr.server.routes.operations import ASK_S, Server, declare_errors, make_router, write_library
from hapvr.server.schemas.base import VIDEO_ID, Error
from hapvr.server.schemas.library import (
    FailedHealth,
    Failure,
    Health,
    LibraryDescription,
    Readiness,
    Removed,
    SharedFootage,
    Video,
    VideoPage,
    video_json,
)
from hapvr.server.security import JSON
from hapvr.server.state import check_health

router = make_router()
VideoId = Annotated[str, Path(description="The id of a video.", examples=[VIDEO_ID], max_length=64)]


@router.get(
    "/health",
    response_model=Health,
    responses={503: {"model": FailedHealth | Error, "description": "It cannot search."}},
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


@router.get("/ready", response_model=Readiness, tags=["library"])
async def readiness(server: Server) -> Response:
    """Whether a search can begin now: 503 while the server starts or stops, cannot search, or has a full queue."""
    await server.require_ready()
    return JSON({"ready": True})


@router.get("/library", response_model=LibraryDescription, tags=["library"])
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


@router.get("/videos", response_model=VideoPage, tags=["library"])
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
    shown = [video_json(record, server.settings.root_paths) for record in records]
    return JSON({"total": total, "videos": shown})


@router.get("/videos/{id}", response_model=Video, responses=declare_errors(404), tags=["library"])
async def video(server: Server, id: VideoId) -> Response:
    """One video."""
    return JSON(video_json(await server.library.get(id), server.settings.root_paths))


@router.delete("/videos/{id}", response_model=Removed, responses=declare_errors(404, 409), tags=["library"])
async def remove(server: Server, id: VideoId) -> Response:
    """Remove a video. Its file stays."""
    await server.library.get(id)
    count = await write_library(server, "remove", {"ids": [id]})
    await server.library.refresh()
    return JSON({"removed": count})


@router.get("/failures", response_model=list[Failure], tags=["library"])
async def failures(server: Server) -> Response:
    """Videos that could not be indexed, and why; a thousand at most."""
    _, records = await server.library.page(state="failed", limit=1000)
    return JSON(
        [{"id": one.id, "name": file_name(one.path), "error": hide_path(one.error or "", one.path)} for one in records]
    )


@router.get("/shared", response_model=SharedFootage, tags=["library"])
async def shared(server: Server) -> Response:
    """Footage that many videos share, such as title screens and end cards, as `hapvr status` lists it."""
    return JSON(await server.jobs.ask("shared", {}, timeout_s=ASK_S))
