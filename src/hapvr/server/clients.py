"""Who asks, as far as an address tells; how many requests a client may send, and how much of a queue it may take.

This machine is no client of its own: it may be a proxy that speaks for many, and its owner needs no limit. Its requests
are limited by what all clients share alone.
"""

from __future__ import annotations

import ipaddress
import math
from collections import OrderedDict
from collections.abc import Iterable
from contextvars import ContextVar

from hapvr.server.problems import Problem

_BURST_S = 10.0  # a client that was silent for so long may send at once what it could have sent meanwhile
_MAX_CLIENTS = 4096  # that are remembered

current_client: ContextVar[str | None] = ContextVar("current_client", default=None)
"""The client whose request is being answered; None for this machine, and outside of requests."""


def find_client(address: str | None) -> str | None:
    """Who connects, as far as an address tells; None for this machine, which may speak for many as a proxy.

    A client with one IPv6 address has 2^64 of them: their network counts.

    >>> [find_client(one) for one in ("192.0.2.7", "2001:db8:1:2:3:4:5:6", "::ffff:192.0.2.7", "127.0.0.1")]
    ['192.0.2.7', '2001:db8:1:2::/64', '192.0.2.7', None]
    """
    try:
        found = ipaddress.ip_address((address or "").partition("%")[0])
    except ValueError:  # a local socket
        return None
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is None:
            return None if found.is_loopback else str(ipaddress.ip_network((found, 64), strict=False))
        found = found.ipv4_mapped
    return None if found.is_loopback else str(found)


class RequestRates:
    """How many requests each client may still send: `per_s` a second, and ten seconds' worth of them at once.

    >>> rates = RequestRates(per_s=0.2)
    >>> [rates.spend("192.0.2.7", now) for now in (0.0, 0.0, 1.0, 1.0, 6.0)]
    [0.0, 0.0, 4.0, 4.0, 0.0]
    """

    def __init__(self, *, per_s: float) -> None:
        self._per_s, self._burst = per_s, max(1.0, per_s * _BURST_S)
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # requests, and when that was counted

    def spend(self, client: str | None, now: float, *, cost: float = 1.0) -> float:
        """Count a request at a time in seconds; how long to wait if it is one too many, else 0.

        A refused request costs nothing. A cost above 1 may lead to a debt, which is no larger than a burst.
        """
        if client is None:
            return 0.0
        left, counted = self._left.pop(client, (self._burst, now))
        left = min(self._burst, left + (now - counted) * self._per_s)
        wait_s = max(0.0, (1.0 - left) / self._per_s)
        self._left[client] = (left if wait_s else max(-self._burst, left - cost)), now
        while len(self._left) > _MAX_CLIENTS:
            self._left.popitem(last=False)  # who has been silent for longest
        return wait_s


def require_share(holders: Iterable[str | None], max_each: int, what: str) -> None:
    """Raise `Problem` if the current client holds as many places of a queue as one client may have."""
    client = current_client.get()
    count = 0 if client is None else sum(holder == client for holder in holders)
    if count >= max_each:
        raise too_many(f"{count} {what} of yours already, the most that one client may have.")


def too_many(message: str, *, after_s: float = 2.0) -> Problem:
    """This client asks for too much; others are still answered."""
    headers = {"Retry-After": str(math.ceil(after_s))}
    return Problem(429, message, hint=f"Try again in {math.ceil(after_s)} s.", headers=headers)
