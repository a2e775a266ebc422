"""Jobs; those that add videos and check the library, and the folders that may be added."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import Path, Query
from starlette.responses import Response, StreamingResponse

from hapvr.server.access import list_folders, resolve_below
from hapvr.server.problems import not_found
from hapvr.server.routes.operations import Server, declare_errors, make_router
from hapvr.server.schemas.base import JOB_ID
from hapvr.server.schemas.jobs import Begun, Job
from hapvr.server.schemas.library import AddRequest, CheckRequest, Folders
from hapvr.server.security import JSON
from hapvr.server.settings import Root
from hapvr.server.state import State

router = make_router()
JobId = Annotated[str, Path(description="The id of a job.", examples=[JOB_ID], max_length=64)]


@router.get("/jobs", response_model=list[Job], tags=["jobs"])
async def jobs(server: Server) -> Response:
    """All jobs that are remembered, the newest first, without their results."""
    return JSON([job.to_json(result=False) for job in server.jobs.all()])


@router.get("/jobs/{id}", response_model=Job, responses=declare_errors(404), tags=["jobs"])
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


@router.delete("/jobs/{id}", response_model=Job, responses=declare_errors(404), tags=["jobs"])
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
        **declare_errors(404),
    },
    tags=["jobs"],
)
async def events(server: Server, id: JobId) -> Response:
    """Watch a job: server-sent events named "job", until it is over."""
    found = server.jobs.get(id)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(server.jobs.watch(found), media_type="text/event-stream", headers=headers)


@router.post("/jobs/add", status_code=202, response_model=Begun, responses=declare_errors(400, 404), tags=["jobs"])
async def add(server: Server, request: AddRequest) -> Response:
    """Add the videos of a configured folder, or of one below it."""
    root = _find_root(server, request.root)
    place = await asyncio.get_running_loop().run_in_executor(None, resolve_below, root.path, request.path)
    arguments = {"paths": [str(place)], "prune": request.prune, "retry": request.retry}
    job = server.jobs.submit("add", arguments, over=lambda _: server.follow(server.library.refresh()))
    return JSON({"job": job.to_json()}, 202)


@router.post("/jobs/check", status_code=202, response_model=Begun, tags=["jobs"])
async def check(server: Server, request: CheckRequest) -> Response:
    """Check that the library is as it was written; `hapvr check LIBRARY --repair` repairs it."""
    return JSON({"job": server.jobs.submit("check", request.model_dump()).to_json()}, 202)


@router.get("/roots/{id}/folders", response_model=Folders, responses=declare_errors(400, 404, 409), tags=["library"])
async def folders(
    server: Server,
    id: Annotated[str, Path(description="The id of a root, see /api/library.", max_length=64)],
    path: Annotated[str, Query(max_length=1000, description="A folder in it; empty for the root itself.")] = "",
) -> Response:
    """The folders in a root, or in a folder of it: what may be added."""
    root = _find_root(server, id)
    names, more = await asyncio.get_running_loop().run_in_executor(None, list_folders, root.path, path)
    return JSON({"path": path, "folders": names, "more": more})


def _find_root(server: State, id: str) -> Root:
    root = server.settings.named_roots.get(id)
    if root is None:
        raise not_found("root", id)
    return root
