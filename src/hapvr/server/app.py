"""The application: what a request meets on its way, the page and the login; and `run`, which serves it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
import webbrowser
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import uvicorn
from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles

from hapvr import __version__
from hapvr.errors import HapvrError
from hapvr.library import Library
from hapvr.places import ObjectPath, Place, parse_place, require_local
from hapvr.server.access import translate_library_error
from hapvr.server.connections import Connections, configure, listen
from hapvr.server.metrics import CONTENT_TYPE, Metrics, log_to_stderr, resident_bytes
from hapvr.server.problems import Problem, refuse_fields
from hapvr.server.routes import ROUTERS
from hapvr.server.routes.operations import Server
from hapvr.server.schemas.search import SearchRequest
from hapvr.server.security import COOKIE, SESSION_S, Guard, Sessions, answer
from hapvr.server.settings import ServerSettings, is_everywhere
from hapvr.server.state import State

_STATIC = Path(__file__).parent / "static"
_WRONG_S = 0.5  # a wrong token costs time
_ABOUT = """Find videos by content. Long work is done by jobs: an answer with status 202 holds a job, which is asked for
at `/api/jobs/{id}` or watched at `/api/jobs/{id}/events`. Errors have one shape. Where the server has a token, send
`Authorization: Bearer TOKEN`."""
_LOGIN = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>hapvr: log in</title><link rel="stylesheet" href="/static/login.css">
<main><h1>hapvr</h1><form method="post" action="/login"><p>{message}</p>
<p><label for="token">Token</label> <input id="token" name="token" type="password" autocomplete="current-password"
required autofocus></p><p><button>Log in</button></p></form></main>
</html>
"""
page_router = APIRouter(include_in_schema=False)


def create_app(library: str | os.PathLike[str] | ObjectPath, *, settings: ServerSettings | None = None) -> FastAPI:
    """The application that serves a library; `StorageError` if there is none."""
    chosen = settings or ServerSettings()
    path = parse_place(library)
    if chosen.allow_actions:
        require_local(path, "--allow-actions")
    Library.open(path, device=chosen.device).close()  # says what is wrong before anything is started
    metrics = Metrics()

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        app.state.server = state = State(path, chosen, metrics)
        state.begin()
        try:
            yield
        finally:
            await state.close()

    app = FastAPI(
        title="hapvr",
        version=__version__,
        description=_ABOUT,
        openapi_url="/api/openapi.json",
        docs_url=None,  # they would load scripts from other hosts
        redoc_url=None,
        lifespan=life,
    )
    for router in (*ROUTERS, page_router):
        app.include_router(router)
    app.mount("/static", StaticFiles(directory=_STATIC, check_dir=False), name="static")
    app.state.connections = Connections(chosen)
    _handle_errors(app, path)
    app.add_middleware(Guard, settings=chosen, metrics=metrics)
    _complete_document(app)
    return app


def _handle_errors(app: FastAPI, library: Place) -> None:
    async def refuse(_: Request, error: Exception) -> Response:
        return answer(translate_library_error(error, library))

    async def refuse_input(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return answer(refuse_fields(error.errors()))

    async def refuse_address(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        texts = {404: "There is nothing at this address.", 405: "This address does not take that method."}
        text = texts.get(error.status_code, str(error.detail))
        return answer(Problem(error.status_code, text, headers=dict(error.headers or {})))

    async def apologise(_: Request, error: Exception) -> Response:
        return answer(Problem(500, f"A fault of the server: {type(error).__name__}.", hint="The log says more."))

    app.add_exception_handler(Problem, refuse)
    app.add_exception_handler(HapvrError, refuse)
    app.add_exception_handler(RequestValidationError, refuse_input)
    app.add_exception_handler(HTTPException, refuse_address)
    app.add_exception_handler(Exception, apologise)


def _complete_document(app: FastAPI) -> None:
    """Add to the OpenAPI document what FastAPI does not know: the body of a search, and the token."""
    make = app.openapi

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = make()
            parts = found["components"]["schemas"]
            parts["SearchRequest"] = SearchRequest.model_json_schema(ref_template="#/components/schemas/{model}")
            for unused in ("HTTPValidationError", "ValidationError"):
                parts.pop(unused, None)
            found["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            app.openapi_schema = found
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


# --- the page, the login, the counters -------------------------------------------------------------------------------


@page_router.get("/")
async def page() -> Response:
    """The page."""
    index = _STATIC / "index.html"
    if not index.is_file():
        raise Problem(404, "This installation has no page.", hint="The API is described at /api/openapi.json.")
    return FileResponse(index, media_type="text/html; charset=utf-8", headers={"Cache-Control": "no-cache"})


@page_router.get("/login")
async def login_form(server: Server) -> Response:
    """The form to log in."""
    if server.settings.token is None:
        return RedirectResponse("/", 303)
    return HTMLResponse(_LOGIN.format(message="This server asks for a token."))


@page_router.post("/login")
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
    secure = server.settings.secure_cookie
    answer.set_cookie(COOKIE, sessions.new(), SESSION_S, httponly=True, samesite="strict", secure=secure)
    return answer


@page_router.post("/logout")
async def logout() -> Response:
    """Take the cookie back."""
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(COOKIE)
    return answer


@page_router.get("/metrics")
async def metrics(server: Server, request: Request) -> Response:
    """Counters in Prometheus' text format."""
    info = await server.library.info()
    jobs, uploads = server.jobs, server.uploads
    connections: Connections = request.app.state.connections
    gauges: list[tuple[str, str, float]] = [
        ("hapvr_connections", "Connections that are open.", len(connections)),
        ("hapvr_videos", "Videos that a search looks through.", info.videos),
        ("hapvr_videos_failed", "Videos that could not be indexed.", info.failed),
        ("hapvr_library_bytes", "Bytes of the library on disk.", info.bytes),
        ("hapvr_jobs_waiting", "Jobs that have not begun.", jobs.waiting()),
        ("hapvr_uploads", "Uploads that are kept.", len(uploads)),
        ("hapvr_uploads_bytes", "Bytes of uploads that are kept.", uploads.stored),
        ("hapvr_search_worker_starts", "How often a search worker was started.", jobs.searching.started),
        ("hapvr_add_worker_starts", "How often the add worker was started.", jobs.adding.started),
    ]
    for kind, pids in (("search", jobs.searching.pids), ("add", [jobs.adding.pid])):
        resident = [found for pid in pids if (found := resident_bytes(pid)) is not None]
        if resident:
            gauges.append((f"hapvr_{kind}_worker_resident_bytes", f"Memory of the {kind} worker.", sum(resident)))
    return Response(server.metrics.text(gauges, connections.closed), media_type=CONTENT_TYPE)


# --- running ---------------------------------------------------------------------------------------------------------


class _Server(uvicorn.Server):
    """Ends the streams of those who watch a job at once: it would wait for them."""

    def __init__(self, config: uvicorn.Config, app: FastAPI) -> None:
        super().__init__(config)
        self._app = app

    def handle_exit(self, sig: int, frame: Any) -> None:
        state: State | None = getattr(self._app.state, "server", None)
        if state is not None:
            state.jobs.announce_stop()
        if self.should_exit and sig == signal.SIGINT:  # the second ends it at once: what is cut off would complain
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        super().handle_exit(sig, frame)


def run(
    library: str | os.PathLike[str] | ObjectPath,
    settings: ServerSettings,
    *,
    open_page: bool = False,
    announce: Callable[[str], None] = print,
) -> None:
    """Serve a library until SIGINT or SIGTERM; running jobs are then cancelled, and uploads removed.

    `announce` is called with the address; with `open_page` a browser is opened once the server answers.
    """
    app = create_app(library, settings=settings)
    socket = listen(settings)
    host, port = socket.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{'127.0.0.1' if is_everywhere(host) else shown}:{port}/"
    log_to_stderr(settings.log_format)
    server = _Server(configure(app, app.state.connections), app)
    announce(address)

    def open_when_started() -> None:
        while not server.started:
            time.sleep(0.1)
        webbrowser.open(address)

    if open_page:
        threading.Thread(target=open_when_started, daemon=True).start()
    server.run(sockets=[socket])
