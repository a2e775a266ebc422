"""The REST interface: every route below /api, in the order of the OpenAPI document."""

from __future__ import annotations

from hapvr.server.routes import duplicates, jobs, library, media, search

ROUTERS = (search.router, jobs.router, duplicates.router, library.router, media.router)
