"""Connections: how many there may be, and how slow a client may be, so that slow ones do not keep others out.

uvicorn reads and answers requests, and closes connections that are idle after an answer. What it has no limits for is
added here: the head of a request that does not come to its end, a body that comes though the request has been answered,
an answer that is not read, and the number of connections. Other bodies are limited where they are read, in
`hapvr.server.security`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import sys
import time
from collections import Counter
from contextlib import suppress
from typing import Any, ClassVar

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from hapvr.errors import ConfigError
from hapvr.server.clients import find_client
from hapvr.server.problems import Problem, busy
from hapvr.server.settings import ServerSettings

log = logging.getLogger("hapvr.server.connections")
_CHECK_S = 1.0  # how often a connection is looked at; more often where limits are short
_LOG_S = 10.0  # refusals are logged no more often than that
_OWN_FILES = 64  # file descriptors that the server needs for itself
_QUEUED = 128 * 2**10  # bytes that the system may hold unsent


def listen(settings: ServerSettings) -> socket.socket:
    """The socket of a server."""
    try:
        found = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listening = socket.socket(family, kind, protocol)
        if os.name == "posix":
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(1024)  # clients that come before the server is ready wait
    except OSError as error:
        raise ConfigError(
            f"Cannot listen on {settings.host}:{settings.port}: {error.strerror or error}. Choose another --port, or "
            "--port 0 for a free one."
        ) from error
    return listening


def count_connections() -> int:
    """For how many connections there are file descriptors, with one for a file that each may be sent.

    Without them the server could open neither its library nor a worker's pipes, whatever else it was asked.
    """
    if sys.platform == "win32":
        return 2**31
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 if soft == resource.RLIM_INFINITY else max(4, (soft - _OWN_FILES) // 2)


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
        timeout_keep_alive=connections.settings.max_keep_alive_s,  # type: ignore[arg-type]  # it takes any number
        h11_max_incomplete_event_size=64 * 2**10,
        lifespan="on",
    )


class Pace:
    """How long a client may still take: time runs out, and bytes earn it back.

    A client that sends or reads `rate` bytes a second can go on for ever; one that stops is late after `max_stall_s`
    seconds, and a fast start does not earn a longer stop.

    >>> pace = Pace(max_stall_s=30, rate=1000)
    >>> pace.spend(20, 5000); pace.left_s
    15.0
    >>> pace.spend(1, 10**9); pace.left_s
    30.0
    """

    def __init__(self, *, max_stall_s: float, rate: float) -> None:
        self._stall_s, self._rate = float(max_stall_s), rate
        self.left_s = self._stall_s

    def spend(self, seconds: float, count: int) -> None:
        """`count` bytes have moved within `seconds`."""
        self.left_s = min(self._stall_s, self.left_s - seconds + count / self._rate)

    @property
    def is_late(self) -> bool:
        """Whether the time is over."""
        return self.left_s <= 0

    def renew(self) -> None:
        """Begin again: there is nothing to wait for at the moment."""
        self.left_s = self._stall_s


class Connections:
    """The connections of a server that are open."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.closed: Counter[str] = Counter()  # by the server, for what reason
        self._open: dict[_Connection, str | None] = {}  # and the client of each; None for this machine
        self._logged = float("-inf")
        self._max_open = min(settings.max_connections, count_connections())

    def __len__(self) -> int:
        return len(self._open)

    @property
    def check_s(self) -> float:
        """How often a connection is looked at."""
        chosen = self.settings
        return min(_CHECK_S, chosen.max_head_s / 4, chosen.max_stall_s / 4, chosen.max_linger_s / 4)

    def admit(self, connection: _Connection, address: str | None) -> bool:
        """Count a connection in; where there are too many, one that waits for nothing is closed to make room."""
        client = find_client(address)
        own = [one for one, other in self._open.items() if client is not None and other == client]
        room = len(own) < self.settings.max_connections_per_client or self._make_room(own)
        room = room and (len(self._open) < self._max_open or self._make_room(list(self._open)))
        if room:
            self._open[connection] = client
        else:
            self.count("refused", address)
        return room

    def release(self, connection: _Connection) -> None:
        """Count it no longer."""
        self._open.pop(connection, None)

    def count(self, reason: str, address: str | None) -> None:
        """Count a connection that was closed; refusals are not logged one by one."""
        self.closed[reason] += 1
        if reason != "refused" or time.monotonic() - self._logged > _LOG_S:
            self._logged = time.monotonic() if reason == "refused" else self._logged
            log.info("connection closed", extra={"reason": reason, "client": address, "open": len(self)})

    def _make_room(self, among: list[_Connection]) -> bool:
        """Close an idle connection, or else the one that has been sending the head of a request for longest."""
        waiting = [one for one in among if one.waiting_since is not None]
        if not waiting:
            return False
        min(waiting, key=lambda one: (one.has_begun, one.waiting_since)).make_way()
        return True

    def protocol(self) -> type[_Connection]:
        """The class of connections that are counted here, for uvicorn to make."""
        return type("CountedConnection", (_Connection,), {"everyone": self})


class _Connection(H11Protocol):
    """The connection of a client, which is closed when the client is too slow."""

    everyone: ClassVar[Connections]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        settings = self.everyone.settings
        self.has_begun = False  # to send the head of a request
        self._head_since: float | None = None
        self._linger_since: float | None = None
        self._sending = Pace(max_stall_s=settings.max_stall_s, rate=settings.min_bytes_per_s)
        self._unsent, self._checked = 0, 0.0
        self._timer: asyncio.TimerHandle | None = None

    # --- what asyncio and uvicorn tell -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head_since = self._checked = self.loop.time()
        _queue_little(transport)
        if not self.everyone.admit(self, self._address):
            self._refuse(busy("There are too many connections to this server."))
        self._check_later()

    def connection_lost(self, exc: Exception | None) -> None:
        self.everyone.release(self)
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._head_since, self.has_begun = None, False
        elif not self.has_begun:
            self.has_begun = bool(self.conn.trailing_data[0])  # else it was the end of a body
            self._head_since = self._head_since or self.loop.time()

    def pause_writing(self) -> None:
        self._account()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._account()
        super().resume_writing()

    # --- its limits --------------------------------------------------------------------------------------------------

    @property
    def waiting_since(self) -> float | None:
        """Since when it has waited for the head of a request; None while one is answered."""
        if self.transport.is_closing() or self.transport.get_write_buffer_size():
            return None
        if self._head_since is not None:
            return self._head_since
        idle = self.timeout_keep_alive_task
        return None if idle is None else idle.when() - self.timeout_keep_alive

    def make_way(self) -> None:
        """Close it, so that another can be served."""
        self.everyone.count("made way", self._address)
        if self.has_begun:
            self._refuse(busy("There are too many connections to this server."))
        else:
            self.transport.close()
        self.everyone.release(self)

    @property
    def _address(self) -> str | None:
        return None if self.client is None else self.client[0]

    def _check_later(self) -> None:
        self._timer = self.loop.call_later(self.everyone.check_s, self._check)

    def _check(self) -> None:
        """Close it if the client is late; else look again later."""
        self._account()
        now, settings = self.loop.time(), self.everyone.settings
        if self._sending.is_late:
            self._end("answer not read")
        elif self.transport.is_closing():
            pass
        elif self._head_since is not None and now - self._head_since > settings.max_head_s:
            self.everyone.count("head too slow", self._address)
            if self.has_begun:
                self._refuse(
                    Problem(408, f"The head of the request took longer than {settings.max_head_s:g} s to arrive.")
                )
            else:
                self.transport.close()
        elif not self._is_unwanted_body:
            self._linger_since = None
        elif self._linger_since is None:
            self._linger_since = now
        elif now - self._linger_since > settings.max_linger_s:
            self._end("body after the answer")
        self._check_later()

    @property
    def _is_unwanted_body(self) -> bool:
        """Whether a body still comes though the request has been answered."""
        return self.conn.their_state is h11.SEND_BODY and self.cycle is not None and self.cycle.response_complete

    def _account(self) -> None:
        """See how much the client has read since this was last looked at."""
        now, unsent = self.loop.time(), self.transport.get_write_buffer_size()
        self._sending.spend(now - self._checked, max(0, self._unsent - unsent))
        if not unsent:
            self._sending.renew()
        self._checked, self._unsent = now, unsent

    def _end(self, reason: str) -> None:
        """Close it at once, whatever is left to send."""
        self.everyone.count(reason, self._address)
        self.transport.abort()

    def _refuse(self, problem: Problem) -> None:
        """Answer before there is a whole request, and close."""
        body = json.dumps({"error": problem.to_json()}).encode()
        headers = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
        headers |= {name.lower(): value for name, value in problem.headers.items()}
        events = (
            h11.Response(status_code=problem.status, headers=list(headers.items())),
            h11.Data(data=body),
            h11.EndOfMessage(),
        )
        for event in events:
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def _queue_little(transport: asyncio.Transport) -> None:
    """Let the system queue little, where it can: else it takes megabytes of an answer that the client does not read."""
    option = getattr(socket, "TCP_NOTSENT_LOWAT", None)
    if option is not None:
        with suppress(OSError):  # no TCP
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, option, _QUEUED)
