"""Who may ask: the Host and Origin of requests, the token, the size and pace of bodies; the headers of every answer.

It also numbers, counts and logs requests, since it sees each of them, refused ones too.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import logging
import re
import secrets
import socket
import time
from contextlib import suppress
from http.cookies import CookieError, SimpleCookie
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hapvr.server.clients import RequestRates, current_client, find_client, too_many
from hapvr.server.connections import Pace
from hapvr.server.metrics import Metrics
from hapvr.server.problems import Problem
from hapvr.server.settings import ServerSettings, is_everywhere

log = logging.getLogger("hapvr.server.requests")
COOKIE = "hapvr_session"
SESSION_S = 7 * 24 * 3600
_BODY = 64 * 2**10
_WRONG_TOKEN = 20.0  # requests that one with a wrong token counts for
_SAFE = ("GET", "HEAD", "OPTIONS")
_METHODS = (*_SAFE, "POST", "PUT", "DELETE", "PATCH")
_PUBLIC = ("/login", "/static/")  # without a token
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::\d{1,5})?")
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data: blob:; media-src 'self' blob:; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


class JSON(Response):
    """JSON in ASCII, so that there is no text that cannot be sent."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The body."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


def answer(problem: Problem) -> JSON:
    """A problem as an answer."""
    return JSON({"error": problem.to_json()}, problem.status, headers=problem.headers)


class Sessions:
    """Login cookies: a time of expiry, signed with the token; nothing is kept, and a new token ends them all."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    def is_token(self, given: str) -> bool:
        """Whether this is the token; takes the same time for any other."""
        return hmac.compare_digest(given.encode(errors="replace"), self._token)

    def _sign(self, expiry: str) -> str:
        return hmac.new(self._token, b"hapvr session " + expiry.encode(), "sha256").hexdigest()

    def new(self) -> str:
        """The value of a cookie."""
        expiry = str(int(time.time()) + SESSION_S)
        return f"{expiry}.{self._sign(expiry)}"

    def is_valid(self, value: str) -> bool:
        """Whether a cookie was given by this server, and not too long ago."""
        expiry, _, signature = value.partition(".")
        if not re.fullmatch(r"\d{1,12}", expiry, re.ASCII) or not signature.isascii():
            return False
        left_s = int(expiry) - time.time()  # more than there can be if the clock was ahead when it was given
        return hmac.compare_digest(signature, self._sign(expiry)) and 0 < left_s <= SESSION_S


class Guard:
    """ASGI middleware: checks requests before anything else sees them."""

    def __init__(self, app: ASGIApp, *, settings: ServerSettings, metrics: Metrics) -> None:
        self._app, self._settings, self._metrics = app, settings, metrics
        self._sessions = None if settings.token is None else Sessions(settings.token)
        names = {"localhost", "127.0.0.1", "[::1]", *(name.lower() for name in settings.allowed_hosts)}
        if not is_everywhere(settings.host):
            names.add(f"[{settings.host}]" if ":" in settings.host else settings.host.lower())
        if not settings.is_local:
            names.add(socket.gethostname().lower())
        self._hosts = names
        self._rates = RequestRates(per_s=settings.max_requests_per_s)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        number = secrets.token_hex(8)
        scope.setdefault("state", {})["request_id"] = number
        status = 0
        sent = 0

        async def send_on(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
                headers["X-Request-Id"] = number
            else:
                sent += len(message.get("body", b""))
            await send(message)

        headers = Headers(scope=scope)
        address = (scope.get("client") or ("?", 0))[0]
        current_client.set(find_client(address))
        try:
            refusal = self._refusal(scope, headers)
            if refusal is not None:
                await refusal(scope, receive, send_on)
            else:
                body = _Body(receive, self._max_body(scope), self._settings)
                with suppress(ClientDisconnect):
                    await self._app(scope, body.receive, body.unless_refused(send_on))
                if body.refusal is not None and status == 0:
                    await answer(body.refusal)(scope, receive, send_on)
        finally:
            if status == 403 and scope["path"] == "/login":
                self._count_wrong_token()
            seconds = time.perf_counter() - began
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._metrics.request(method, getattr(scope.get("route"), "path", "other"), status, seconds)
            about = {"request": number, "method": scope["method"][:20], "path": scope["path"][:300], "status": status}
            log.info("request", extra=about | {"bytes": sent, "seconds": round(seconds, 4), "client": address})

    def _max_body(self, scope: Scope) -> int:
        return _BODY + (self._settings.max_upload_bytes + _BODY if scope["path"] == "/api/searches" else 0)

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        host = headers.get("host", "")
        if not self.is_allowed_host(host):
            message = f"This server does not answer to the name '{host[:80]}'."
            return answer(Problem(421, message, hint="Use its address, or start it with --allow-host NAME."))
        wait_s = self._rates.spend(current_client.get(), time.monotonic())
        if wait_s:
            return answer(too_many("These are more requests than this server takes of one client.", after_s=wait_s))
        refused = self._token_refusal(scope, headers)
        if refused is not None:
            return refused
        if scope["method"] not in _SAFE and not self._same_origin(scope, headers):
            message = "Requests that change something must come from this server's own page."
            return answer(Problem(403, message))
        if _is_embedded(headers):
            return answer(Problem(403, "Pages of other sites may link to this server, but not load anything from it."))
        length, most = headers.get("content-length"), self._max_body(scope)
        if length is not None and (not re.fullmatch(r"\d{1,18}", length, re.ASCII) or int(length) > most):
            message = "The body of the request is larger than this server takes."
            hint = f"Here it may have {most:,} bytes. Videos are sent to POST /api/searches."
            return answer(Problem(413, message, hint=hint, headers={"Connection": "close"}))
        return None

    def is_allowed_host(self, given: str) -> bool:
        """Whether a Host header names this server: a page of another name that resolves to it must not reach it."""
        found = _HOST.fullmatch(given)
        if found is None:
            return False
        name = found[1].lower()
        if name in self._hosts:
            return True
        if self._settings.is_local:
            return False
        try:  # an address cannot be made to resolve to another
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return True

    def _token_refusal(self, scope: Scope, headers: Headers) -> Response | None:
        sessions, path = self._sessions, scope["path"]
        if sessions is None or path == _PUBLIC[0] or path.startswith(_PUBLIC[1]):
            return None
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and sessions.is_token(given.strip()):
            scope["state"]["bearer"] = True
            return None
        if given:
            self._count_wrong_token()
        if sessions.is_valid(_cookie(headers)):
            return None
        if path == "/" and scope["method"] == "GET":
            return RedirectResponse("/login", 303)
        problem = Problem(
            401,
            "This server asks for a token.",
            hint="Log in at /login, or send 'Authorization: Bearer TOKEN'.",
            headers={"WWW-Authenticate": "Bearer"},
        )
        return answer(problem)

    def _count_wrong_token(self) -> None:
        """A client that guesses tokens may soon ask nothing more for a while."""
        self._rates.spend(current_client.get(), time.monotonic(), cost=_WRONG_TOKEN)

    def _same_origin(self, scope: Scope, headers: Headers) -> bool:
        if scope["state"].get("bearer"):
            return True
        origin = headers.get("origin")
        if origin is not None:
            scheme, _, host = origin.partition("://")
            return scheme in ("http", "https") and host.lower() == headers.get("host", "").lower()
        # Browsers send the origin with requests that change something, and most send Sec-Fetch-Site: a request without
        # either comes from a program. A server with a token demands it of a program.
        return self._sessions is None and headers.get("sec-fetch-site", "none") in ("none", "same-origin")


def _is_embedded(headers: Headers) -> bool:
    """Whether a browser asks for a page of another site, for something else than to open an address."""
    foreign = headers.get("sec-fetch-site", "none") in ("cross-site", "same-site")
    opened = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest", "document") == "document"
    return foreign and not opened


def _cookie(headers: Headers) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return "" if found is None else found.value


class _Body:
    """The body of a request, as long as it is neither too large nor too slow; else `refusal` is the answer.

    To the application it then looks as if the client had gone, so that it ends; whatever it still sends is dropped.
    """

    def __init__(self, receive: Receive, max_bytes: int, settings: ServerSettings) -> None:
        self._receive, self._max_bytes = receive, max_bytes
        self._pace = Pace(max_stall_s=settings.max_stall_s, rate=settings.min_bytes_per_s)
        self._left_s = settings.body_s(max_bytes)
        self._total, self._whole = 0, False
        self.refusal: Problem | None = None

    async def receive(self) -> Message:
        """The next part of it."""
        if self._whole:  # what is waited for is the end of the connection: as long as it takes
            return await self._receive()
        if self.refusal is None:
            began = time.monotonic()
            try:
                message = await asyncio.wait_for(self._receive(), min(self._pace.left_s, self._left_s))
            except asyncio.TimeoutError:
                self._refuse(408, "The body of the request came too slowly.", hint="Try again, or a smaller file.")
            else:
                self._count(message, time.monotonic() - began)
                if self._total <= self._max_bytes:
                    return message
                self._refuse(413, "The body of the request is larger than this server takes.")
        return {"type": "http.disconnect"}

    def _count(self, message: Message, seconds: float) -> None:
        count = len(message.get("body", b""))
        self._pace.spend(seconds, count)
        self._left_s -= seconds
        self._total += count
        self._whole = not message.get("more_body", False)

    def _refuse(self, status: int, message: str, *, hint: str | None = None) -> None:
        self.refusal = Problem(status, message, hint=hint, headers={"Connection": "close"})

    def unless_refused(self, send: Send) -> Send:
        """Send what the application says until the body is refused; an answer that was begun ends then."""
        begun = False

        async def send_on(message: Message) -> None:
            nonlocal begun
            if self.refusal is None or begun:
                begun = True
                await send(message)

        return send_on
