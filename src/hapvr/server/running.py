"""Running a server until it is told to stop: its socket, its log, its end."""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
import threading
import time
import webbrowser
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from hapvr.errors import ConfigError
from hapvr.server.app import create_app
from hapvr.server.connections import Connections
from hapvr.server.settings import ServerSettings

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


class JsonLines(logging.Formatter):
    """A log as lines of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        when = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {"time": when, "level": record.levelname.lower(), "event": record.getMessage()}
        line |= {name: value for name, value in vars(record).items() if name not in _PLAIN}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class _Server(uvicorn.Server):
    """Tells the jobs at once that it is to stop: who watches one would else be waited for."""

    def handle_exit(self, sig: int, frame: Any) -> None:
        """A signal has come."""
        state = getattr(self.config.loaded_app_state, "server", None)  # type: ignore[attr-defined]
        if state is not None:
            state.jobs.announce_stop()
        super().handle_exit(sig, frame)


def run(
    library: str | os.PathLike[str],
    settings: ServerSettings,
    *,
    open_page: bool = False,
    announce: Callable[[str], None] = print,
) -> None:
    """Serve a library until SIGINT or SIGTERM; running jobs are then ended, and uploads removed.

    Args:
        library: its folder.
        settings: of the server.
        open_page: open the page in a browser once it is there.
        announce: called with the address.
    """
    app = create_app(library, settings=settings)
    listening = _listen(settings)
    host, port = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{'127.0.0.1' if host in ('0.0.0.0', '::') else shown}:{port}/"
    _log_lines()
    config = configure(app, app.state.connections)
    config.loaded_app_state = app.state  # type: ignore[attr-defined]
    server = _Server(config)
    announce(address)
    if open_page:
        threading.Thread(target=_open_when_up, args=(server, address), daemon=True).start()
    server.run(sockets=[listening])


def configure(app: ASGIApp, connections: Connections) -> uvicorn.Config:
    """How uvicorn is to serve an application, within the limits of its connections."""
    return uvicorn.Config(
        app,
        http=connections.protocol(),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=5,
        timeout_keep_alive=connections.settings.keep_alive_s,  # type: ignore[arg-type]  # it takes any number
        h11_max_incomplete_event_size=64 * 2**10,
        lifespan="on",
    )


def _listen(settings: ServerSettings) -> socket.socket:
    try:
        found = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listening = socket.socket(family, kind, protocol)
        if os.name == "posix":
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(1024)  # who comes before it is ready waits
    except OSError as error:
        raise ConfigError(
            f"Cannot listen on {settings.host}:{settings.port}: {error.strerror or error}. Choose another --port, or "
            "--port 0 for a free one."
        ) from error
    return listening


def _log_lines() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name, level in (("hapvr.server", logging.INFO), ("uvicorn", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)


def _open_when_up(server: uvicorn.Server, address: str) -> None:
    while not server.started:
        time.sleep(0.1)
    webbrowser.open(address)
