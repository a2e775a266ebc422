"""Duplicates, and actions on their files."""

from __future__ import annotations

import secrets
from datetime import datetime
from typing import Annotated

from fastapi import Path, Request
from starlette.responses import Response

from hapvr.server.problems import Problem, not_found
from hapvr.server.routes.operations import Server, declare_errors, find_limits, make_router, write_library
from hapvr.server.schemas.base import FilterOptions, Pair
from hapvr.server.schemas.duplicates import ActionPreview, ActionRequest, DuplicatesRequest, Marked
from hapvr.server.schemas.jobs import Begun
from hapvr.server.security import JSON
from hapvr.server.state import State

router = make_router()
ActionId = Annotated[str, Path(description="The id of an action.", pattern="^a[0-9a-f]{16}$")]


@router.post(
    "/duplicates", status_code=202, response_model=Begun, responses=declare_errors(400, 404), tags=["duplicates"]
)
async def duplicates(server: Server, request: DuplicatesRequest) -> Response:
    """Find copies, and clips that are part of longer videos: the job's result holds them in groups."""
    since = None if request.since is None else request.since.replace("Z", "+00:00")
    try:
        datetime.fromisoformat(since or "2026-01-01")
    except ValueError:
        raise Problem(400, "'since' is a time in ISO 8601, such as 2026-03-01T12:00:00+00:00.") from None
    others = request.model_dump(exclude=set(FilterOptions.model_fields)) | {"since": since}
    job = server.jobs.submit("duplicates", others | await find_limits(server, request))
    return JSON({"job": job.to_json()}, 202)


@router.get(
    "/duplicates.csv",
    response_class=Response,
    responses={200: {"description": "One line a link.", "content": {"text/csv": {}}}, **declare_errors(404)},
    tags=["duplicates"],
)
@router.get(
    "/duplicates.json",
    response_class=Response,
    responses={200: {"description": "The whole report.", "content": {"application/json": {}}}, **declare_errors(404)},
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
    "/duplicates/distinct", response_model=Marked, responses=declare_errors(400, 404, 409), tags=["duplicates"]
)
async def distinct(server: Server, pair: Pair) -> Response:
    """Mark two videos as no duplicates of each other: they are not reported again."""
    return await _mark(server, pair, "distinct")


@router.delete(
    "/duplicates/distinct", response_model=Marked, responses=declare_errors(400, 404, 409), tags=["duplicates"]
)
async def undo_distinct(server: Server, pair: Pair) -> Response:
    """Remove that mark."""
    return await _mark(server, pair, "undo_distinct")


async def _mark(server: State, pair: Pair, task: str) -> Response:
    if pair.a == pair.b:
        raise Problem(400, "A video is not distinct from itself: give two ids.")
    for id in (pair.a, pair.b):
        await server.library.get(id)
    await write_library(server, task, pair.model_dump())
    return JSON({"distinct": task == "distinct"})


@router.post(
    "/actions/preview",
    response_model=ActionPreview,
    responses=declare_errors(400, 404, 409),
    tags=["duplicates"],
)
async def preview_actions(server: Server, request: ActionRequest) -> Response:
    """Say what an action on files of duplicates would do; nothing is done."""
    await _require_action(server, request)
    return JSON(await write_library(server, "preview_actions", request.model_dump()))


@router.post("/actions", status_code=202, response_model=Begun, responses=declare_errors(400, 404), tags=["duplicates"])
async def act(server: Server, request: ActionRequest) -> Response:
    """Move files of duplicates or replace them by links. The last copy of a group and files that changed stay."""
    await _require_action(server, request)
    arguments = request.model_dump() | {"id": f"a{secrets.token_hex(8)}"}
    job = server.jobs.submit("actions", arguments, over=lambda _: _follow_action(server))
    return JSON({"job": job.to_json()}, 202)


@router.post(
    "/actions/{id}/undo", status_code=202, response_model=Begun, responses=declare_errors(404), tags=["duplicates"]
)
async def undo(server: Server, id: ActionId) -> Response:
    """Take an action back. Files that have changed since, or whose old place is taken, stay where they are."""
    if not server.settings.allow_actions:
        raise _forbid_action()
    if not (server.library.path / "actions" / f"{id}.journal").is_file():
        raise not_found("action", id)
    job = server.jobs.submit("undo", {"id": id}, over=lambda _: _follow_action(server))
    return JSON({"job": job.to_json()}, 202)


async def _require_action(server: State, request: ActionRequest) -> None:
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
