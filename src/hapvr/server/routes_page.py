"""The page, its parts, the form to log in, and the counters."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response

from hapvr.server.connections import Connections
from hapvr.server.metrics import CONTENT_TYPE, resident_bytes
from hapvr.server.problems import Problem
from hapvr.server.security import COOKIE, SESSION_S, Sessions
from hapvr.server.state import Server

STATIC = Path(__file__).parent / "static"
router = APIRouter(include_in_schema=False)
_WRONG_S = 0.5  # a wrong token costs time
_LOGIN = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>hapvr: log in</title><link rel="stylesheet" href="/static/login.css">
<main><h1>hapvr</h1><form method="post" action="/login"><p>{message}</p>
<p><label for="token">Token</label> <input id="token" name="token" type="password" autocomplete="current-password"
required autofocus></p><p><button>Log in</button></p></form></main>
</html>
"""


@router.get("/")
async def page() -> Response:
    """The page."""
    index = STATIC / "index.html"
    if not index.is_file():
        raise Problem(404, "This installation has no page.", hint="The API is described at /api/openapi.json.")
    return FileResponse(index, media_type="text/html; charset=utf-8", headers={"Cache-Control": "no-cache"})


@router.get("/login")
async def login_form(server: Server) -> Response:
    """The form to log in."""
    if server.settings.token is None:
        return RedirectResponse("/", 303)
    return HTMLResponse(_LOGIN.format(message="This server asks for a token."))


@router.post("/login")
async def login(server: Server, request: Request) -> Response:
    """Take a token and give a cookie."""
    token = server.settings.token
    if token is None:
        return RedirectResponse("/", 303)
    fields = parse_qs((await request.body()).decode(errors="replace"), max_num_fields=5)
    sessions = Sessions(token)
    if not sessions.is_token(fields.get("token", [""])[0].strip()):
        await asyncio.sleep(_WRONG_S)
        return HTMLResponse(_LOGIN.format(message="That was not the token."), 403)
    answer = RedirectResponse("/", 303)
    answer.set_cookie(
        COOKIE,
        sessions.new(),
        max_age=SESSION_S,
        httponly=True,
        samesite="strict",
        secure=server.settings.secure_cookie,
    )
    return answer


@router.post("/logout")
async def logout() -> Response:
    """Take the cookie back."""
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(COOKIE)
    return answer


@router.get("/metrics")
async def metrics(server: Server, request: Request) -> Response:
    """Counters in Prometheus' text format."""
    info = await server.shelf.info()
    jobs = server.jobs
    connections: Connections = request.app.state.connections
    gauges = [
        ("hapvr_connections", "Connections that are open.", float(len(connections))),
        ("hapvr_videos", "Videos that a search looks through.", float(info.videos)),
        ("hapvr_videos_failed", "Videos that could not be described.", float(info.failed)),
        ("hapvr_library_bytes", "Bytes of the library on disk.", float(info.bytes)),
        ("hapvr_jobs_waiting", "Jobs that have not begun.", float(jobs.waiting())),
        ("hapvr_uploads", "Uploads that are kept.", float(len(server.uploads))),
        ("hapvr_uploads_bytes", "Bytes of uploads that are kept.", float(server.uploads.stored)),
        ("hapvr_search_worker_starts", "How often the searching worker was started.", float(jobs.searching.started)),
        ("hapvr_add_worker_starts", "How often the adding worker was started.", float(jobs.adding.started)),
    ]
    for name, pid in (("search", jobs.searching.pid), ("add", jobs.adding.pid)):
        resident = resident_bytes(pid)
        if resident is not None:
            gauges.append((f"hapvr_{name}_worker_resident_bytes", f"Memory of the {name} worker.", resident))
    return Response(server.metrics.text(gauges, connections.closed), media_type=CONTENT_TYPE)
