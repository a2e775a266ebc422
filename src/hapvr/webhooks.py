"""Webhooks: new matches are posted as JSON to addresses, without holding up what finds them.

Each address has a thread and a queue of limited length. What cannot be delivered is tried again after longer and longer
pauses; what is given up, or finds the queue full, is counted and reported.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import os
import queue
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any
from urllib.parse import SplitResult, urljoin, urlsplit, urlunsplit

from hapvr import __version__
from hapvr.errors import ConfigError

SECRET = "HAPVR_WEBHOOK_SECRET"  # noqa: S105 - the name of a variable
FORMAT = 1  # of a body
_MAX_REDIRECTS = 3
_TRY_AGAIN = {408, 425, 429, 500, 502, 503, 504}
_STEP_S = 0.1  # between questions whether to stop


@dataclass(frozen=True)
class WebhookConfig:
    """How long a receiver is waited for.

    Attributes:
        timeout_s: seconds for one attempt to connect, and for each part of the answer.
        retries: attempts after the first one.
        pause_s: seconds before the second attempt; twice as long before each further one.
        max_pause_s: the longest pause.
        max_waiting: messages that wait for one receiver; further ones are dropped.
        finish_s: seconds that what still waits at the end is given.
    """

    timeout_s: float = 10.0
    retries: int = 6
    pause_s: float = 1.0
    max_pause_s: float = 30.0
    max_waiting: int = 1000
    finish_s: float = 10.0

    def __post_init__(self) -> None:
        if not (self.timeout_s > 0 and self.pause_s > 0 and self.max_pause_s > 0 and self.finish_s >= 0):
            raise ConfigError(f"The seconds of a webhook must be above 0; got {self}.")
        if self.retries < 0 or self.max_waiting < 1:
            raise ConfigError(f"A webhook needs retries >= 0 and max_waiting >= 1; got {self}.")


@dataclass(frozen=True)
class WebhookCounts:
    """What became of the messages for one address."""

    address: str  # without what may be secret: its query
    delivered: int = 0
    failed: int = 0  # given up
    dropped: int = 0  # the queue was full
    undelivered: int = 0  # still waiting at the end

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


class Webhooks:
    """Posts messages to addresses. Use it in a `with` block: at its end what waits is delivered, within limits.

    Args:
        addresses: http or https.
        source: what the messages are from, such as `watch`.
        library: the folder of the library that they are about.
        config: limits.
        secret: signs each message if it is not empty; that of the environment variable if None.
        say: called with what went wrong, in a sentence, from a thread.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        source: str,
        library: str = "",
        config: WebhookConfig | None = None,
        secret: str | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self._source, self._library = source, library
        self._config = config or WebhookConfig()
        key = (os.environ.get(SECRET, "") if secret is None else secret).encode()
        for address in addresses:
            parse_address(address)
        self._receivers = [
            _Receiver(address, self._config, key, say or (lambda _: None)) for address in dict.fromkeys(addresses)
        ]

    def send(self, event: Mapping[str, Any]) -> None:
        """Queue a message; never waits."""
        id = uuid.uuid4().hex
        message = {
            "format": FORMAT,
            "id": id,
            "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "source": self._source,
            "library": self._library,
            "event": dict(event),
        }
        body = json.dumps(message).encode()
        for receiver in self._receivers:
            receiver.put(id, body)

    def close(self) -> list[WebhookCounts]:
        """Deliver what waits, for `finish_s` seconds at most in all; what became of the messages of each address."""
        end = time.monotonic() + self._config.finish_s
        for receiver in self._receivers:
            receiver.finish()
        return [receiver.join(end) for receiver in self._receivers]

    def __enter__(self) -> Webhooks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Receiver:
    """The thread and the queue of one address."""

    def __init__(self, address: str, config: WebhookConfig, key: bytes, say: Callable[[str], None]) -> None:
        self._address, self._config, self._key, self._say = address, config, key, say
        self._name = hide_query(address)
        self._queue: queue.Queue[tuple[str, bytes] | None] = queue.Queue()
        self._lock = threading.Lock()
        self._waiting = self._delivered = self._failed = self._dropped = 0
        self._stopped = threading.Event()  # at once
        self._opener = urllib.request.build_opener(_NoRedirect)
        self._thread = threading.Thread(target=self._run, daemon=True, name="hapvr webhook")
        self._thread.start()

    def put(self, id: str, body: bytes) -> None:
        """Queue a message, or drop it."""
        with self._lock:
            full = self._waiting >= self._config.max_waiting
            self._dropped += full
            first = full and self._dropped == 1
            self._waiting += not full
        if not full:
            self._queue.put((id, body))
        elif first:
            self._say(f"Webhook {self._name}: {self._config.max_waiting:,} messages wait; further ones are dropped.")

    def finish(self) -> None:
        """No more will come."""
        self._queue.put(None)

    def join(self, end: float) -> WebhookCounts:
        """Wait until a moment of the monotonic clock for the rest to be delivered."""
        self._thread.join(max(0.0, end - time.monotonic()))
        self._stopped.set()
        with self._lock:
            return WebhookCounts(self._name, self._delivered, self._failed, self._dropped, self._waiting)

    def _run(self) -> None:
        while not self._stopped.is_set() and (message := self._queue.get()) is not None:
            error = self._deliver(*message)
            if self._stopped.is_set():
                return  # it counts as undelivered
            with self._lock:
                self._waiting -= 1
                self._delivered += error is None
                self._failed += error is not None
            if error is not None:
                self._say(f"Webhook {self._name}: a message was given up: {error}.")

    def _deliver(self, id: str, body: bytes) -> str | None:
        """Try until it is taken, refused, or has failed too often: why it was not taken."""
        pause_s, said = self._config.pause_s, False
        for left in range(self._config.retries, -1, -1):
            error, again = self._post(id, body)
            if error is None or not again or left == 0:
                return error
            if not said:
                self._say(f"Webhook {self._name}: {error}. It is tried again.")
                said = True
            if self._stopped.wait(min(pause_s, self._config.max_pause_s)):
                return error
            pause_s *= 2
        return None

    def _post(self, id: str, body: bytes) -> tuple[str | None, bool]:
        """One attempt: what went wrong, if anything, and whether it may go better next time."""
        address = self._address
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"hapvr/{__version__}",
            "X-Hapvr-Delivery": id,
        } | (sign(self._key, body, int(time.time())) if self._key else {})
        try:
            for _ in range(_MAX_REDIRECTS + 1):
                request = urllib.request.Request(address, body, headers, method="POST")  # noqa: S310 - checked before
                try:
                    with self._opener.open(request, timeout=self._config.timeout_s) as answer:
                        answer.read(1)
                        return None, False
                except urllib.error.HTTPError as answer:
                    with answer:
                        place = answer.headers.get("Location") if answer.code in (307, 308) else None
                        if place is None:
                            return f"status {answer.code}", answer.code in _TRY_AGAIN
                    following = urljoin(address, place)
                    if not is_same_origin(address, following):
                        return f"it redirects to another host, '{hide_query(following)}': not followed", False
                    address = following
            return f"more than {_MAX_REDIRECTS} redirects", False
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            return str(getattr(reason, "strerror", None) or reason) or type(error).__name__, True


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is an error, with the place to go to in its headers."""

    def redirect_request(self, *_: Any) -> None:
        """None: do not follow."""
        return


def sign(key: bytes, body: bytes, timestamp: int) -> dict[str, str]:
    """The headers that prove who sent a body, and when: HMAC-SHA256 of the time, a dot and the body.

    >>> sign(b"key", b"{}", 1700000000)["X-Hapvr-Signature"]
    'sha256=9d713ed406bb7076d4123f0dc2c39d2df5c654ed4b0cd56b52c8b4c940bd63ae'
    """
    digest = hmac.new(key, f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()
    return {"X-Hapvr-Timestamp": str(timestamp), "X-Hapvr-Signature": f"sha256={digest}"}


def parse_address(address: str) -> SplitResult:
    """The parts of an address; `ConfigError` unless it is http or https with a host and without a password."""
    try:
        parts = urlsplit(address)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or any(ord(letter) <= 32 or ord(letter) > 126 for letter in address):
        raise ConfigError(f"A webhook is an address such as https://host/path; got '{address}'.")
    if parts.username is not None:
        raise ConfigError(f"A webhook's address holds no user or password: sign messages instead, by {SECRET}.")
    return parts


def hide_query(address: str) -> str:
    """An address as it is printed: a query may hold a token.

    >>> hide_query("https://host/in?token=1")
    'https://host/in?...'
    """
    parts = urlsplit(address)
    return urlunsplit((parts.scheme, parts.netloc, parts.path, "...", "")) if parts.query else address


def is_same_origin(a: str, b: str) -> bool:
    """Whether two addresses have the scheme, host and port in common.

    >>> is_same_origin("http://host/a", "http://HOST:80/b"), is_same_origin("https://host/a", "http://host/a")
    (True, False)
    """
    ports = {"http": 80, "https": 443}
    one, other = (urlsplit(address) for address in (a, b))
    try:
        return (one.scheme, one.hostname, one.port or ports.get(one.scheme)) == (
            other.scheme, other.hostname, other.port or ports.get(other.scheme),
        )  # fmt: skip
    except ValueError:
        return False
