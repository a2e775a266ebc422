"""What goes wrong, as clients see it: an HTTP status and one shape of JSON.

Other errors are translated in two places, both by `translate_error`: at the edge of a worker process (`workers.serve`)
and at the edge of the server (its exception handler, and the end of a job; see `access.translate_library_error`).
"""

from __future__ import annotations

import errno
from typing import Any, Literal

from hapvr.errors import BusyError, ConfigError, DataError, DecodeError, DecodeLimitError, HapvrError, ShapeError

Kind = Literal["NotFound", "BadInput", "TooLarge", "Busy", "Forbidden", "Conflict", "Internal"]
_KINDS: dict[int, Kind] = {
    401: "Forbidden", 403: "Forbidden", 404: "NotFound", 409: "Conflict", 413: "TooLarge", 414: "TooLarge",
    421: "Forbidden", 429: "Busy", 431: "TooLarge", 503: "Busy", 507: "Busy",
}  # fmt: skip
_STATUSES: tuple[tuple[type[HapvrError], int], ...] = (
    (DecodeLimitError, 413), (DecodeError, 415), (DataError, 400), (ConfigError, 400), (ShapeError, 400),
    (BusyError, 409), (HapvrError, 500),
)  # fmt: skip


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class Problem(Exception):  # noqa: N818 - an answer, not always an error of the server
    """The answer to a request that fails: an HTTP status, a sentence, and what to do."""

    def __init__(
        self, status: int, message: str, *, hint: str | None = None, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.hint, self.headers = status, message, hint, headers or {}

    def to_json(self) -> dict[str, Any]:
        """The error itself; the body of an answer is `{"error": ...}`."""
        kind = _KINDS.get(self.status, "BadInput" if self.status < 500 else "Internal")
        return {"type": kind, "message": self.message, "hint": self.hint}


def translate_error(error: BaseException) -> Problem:
    """The answer to a client after an error: its input is wrong (4xx), or something is wrong here (500).

    >>> translate_error(DecodeError("'a.mp4' holds no video.")).status
    415
    """
    if isinstance(error, Problem):
        return error
    if getattr(error, "errno", None) in _NO_ROOM or getattr(error.__cause__, "errno", None) in _NO_ROOM:
        return Problem(507, "The server has no room left on its disk.", headers={"Retry-After": "60"})
    if isinstance(error, HapvrError):
        return Problem(next(status for kind, status in _STATUSES if isinstance(error, kind)), str(error))
    if isinstance(error, MemoryError):
        return Problem(413, "It takes more memory than is allowed.")
    return Problem(500, f"{type(error).__name__}: {error}"[:1000])


def not_found(what: str, id: str) -> Problem:
    """There is no such thing."""
    return Problem(404, f"There is no {what} '{id[:80]}'.")


def busy(message: str, *, after_s: int = 2, hint: str = "Try again in a moment.") -> Problem:
    """The client may try again later."""
    return Problem(503, message, hint=hint, headers={"Retry-After": str(after_s)})
