"""What the operations of the REST interface share: the server, declared answers, limits of requests, writing."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request

from hapvr.server.filters import describe_filter, make_filter, write_filter
from hapvr.server.problems import Problem
from hapvr.server.schemas.base import Error, FilterOptions
from hapvr.server.state import State

ASK_S = 120.0  # that a task which is no job may take
HOUR = {"Cache-Control": "private, max-age=3600"}
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


def declare_errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Errors that an operation declares."""
    return {code: {"model": Error, "description": _REASONS[code]} for code in statuses}


def declare_file(*kinds: str, description: str) -> dict[int | str, dict[str, Any]]:
    """The answer of an operation that gives a file."""
    content = {kind: {"schema": {"type": "string", "format": "binary"}} for kind in kinds}
    return {200: {"description": description, "content": content}}


def make_router() -> APIRouter:
    """A router of operations below /api, with the errors that all of them declare."""
    return APIRouter(prefix="/api", responses=declare_errors(401, 403, 408, 413, 421, 422, 429, 500, 503))


async def find_state(request: Request) -> State:
    """What the server shares among requests."""
    state: State = request.app.state.server
    return state


Server = Annotated[State, Depends(find_state)]


async def find_limits(server: State, options: FilterOptions) -> dict[str, Any]:
    """Which videos a request means, as arguments of a task."""
    roots = server.settings.named_roots
    chosen = await asyncio.get_running_loop().run_in_executor(None, make_filter, options, roots)
    return {"limits": write_filter(chosen), "filter": describe_filter(options)}


async def write_library(server: State, task: str, arguments: dict[str, Any]) -> Any:
    """What a short task that writes the library answers; 409 while a job writes it."""
    if server.jobs.adding.busy:
        raise Problem(409, "The library is being written by a job.", hint="Wait until it is over, or cancel it.")
    return await server.jobs.ask(task, arguments, timeout_s=ASK_S)
