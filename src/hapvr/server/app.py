"""The application: what a request meets on its way."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from hapvr import __version__
from hapvr.errors import HapvrError
from hapvr.library import Library
from hapvr.server import models, routes_jobs, routes_library, routes_page
from hapvr.server.connections import Connections
from hapvr.server.metrics import Metrics
from hapvr.server.problems import Problem, status_of
from hapvr.server.security import Guard, answer
from hapvr.server.settings import ServerSettings
from hapvr.server.state import State
from hapvr.server.wording import problem_of

_ABOUT = """Find videos by content. Long work is done by jobs: an answer with status 202 holds a job, which is asked for
at `/api/jobs/{id}` or watched at `/api/jobs/{id}/events`. Errors have one shape. Where the server has a token, send
`Authorization: Bearer TOKEN`."""


def create_app(library: str | os.PathLike[str], *, settings: ServerSettings | None = None) -> FastAPI:
    """The application that serves a library; `StorageError` if there is none."""
    chosen = settings or ServerSettings()
    path = Path(os.path.abspath(library))
    Library.open(path).close()  # says what is wrong before anything is started
    metrics = Metrics()

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        state = State(path, chosen, metrics)
        app.state.server = state
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
        docs_url=None,  # they would load scripts from elsewhere
        redoc_url=None,
        lifespan=life,
    )
    app.include_router(routes_library.router)
    app.include_router(routes_jobs.router)
    app.include_router(routes_page.router)
    app.mount("/static", StaticFiles(directory=routes_page.STATIC, check_dir=False), name="static")
    app.state.connections = Connections(chosen)
    _handle_errors(app, path)
    app.add_middleware(Guard, settings=chosen, metrics=metrics)
    _describe(app)
    return app


def _handle_errors(app: FastAPI, library: Path) -> None:
    async def problem(_: Request, error: Exception) -> Response:
        assert isinstance(error, Problem)
        return answer(error)

    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, HapvrError)
        return answer(problem_of(error, library) or Problem(status_of(error), str(error)))

    async def invalid(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        found = [f"{'.'.join(str(part) for part in one['loc']) or 'body'}: {one['msg']}" for one in error.errors()[:5]]
        return answer(Problem(422, "; ".join(found)[:1000] or "The request is not valid."))

    async def http(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        texts = {404: "There is nothing at this address.", 405: "This address does not take that method."}
        text = texts.get(error.status_code, str(error.detail))
        return answer(Problem(error.status_code, text, headers=dict(error.headers or {})))

    async def fault(_: Request, error: Exception) -> Response:
        return answer(Problem(500, f"A fault of the server: {type(error).__name__}.", hint="The log says more."))

    app.add_exception_handler(Problem, problem)
    app.add_exception_handler(HapvrError, refused)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(Exception, fault)


def _describe(app: FastAPI) -> None:
    """Add to the OpenAPI document what is not the body of a plain request."""
    plain = app.openapi

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = plain()
            schemas = found["components"]["schemas"]
            schema = models.SearchRequest.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas["SearchRequest"] = schema
            for unused in ("HTTPValidationError", "ValidationError"):
                schemas.pop(unused, None)
            found["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            app.openapi_schema = found
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]
