"""What goes wrong, as a client is told: one shape of JSON, a type, a sentence, and what to do."""

from __future__ import annotations

from typing import Any, Literal

from hapvr.errors import (
    ConfigError,
    DataError,
    DecodeError,
    DecodeLimitError,
    DecodeTimeoutError,
    HapvrError,
    ShapeError,
)

Kind = Literal["NotFound", "BadInput", "TooLarge", "Busy", "Forbidden", "Conflict", "Internal"]
_KINDS: dict[int, Kind] = {
    401: "Forbidden", 403: "Forbidden", 404: "NotFound", 405: "BadInput", 408: "BadInput", 409: "Conflict",
    411: "BadInput", 413: "TooLarge", 414: "TooLarge", 415: "BadInput", 416: "BadInput", 421: "Forbidden",
    422: "BadInput", 429: "Busy", 431: "TooLarge", 503: "Busy", 507: "Busy",
}  # fmt: skip


class Problem(Exception):  # noqa: N818 - what a client is told
    """Something that a client is told: an HTTP status, a sentence, and what to do."""

    def __init__(
        self, status: int, message: str, *, hint: str | None = None, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.hint = status, message, hint
        self.headers = headers or {}

    @property
    def kind(self) -> Kind:
        """The type of the error."""
        return kind_of(self.status)

    def to_json(self) -> dict[str, Any]:
        """The error itself; the body of an answer is `{"error": ...}`."""
        return {"type": self.kind, "message": self.message, "hint": self.hint}


def kind_of(status: int) -> Kind:
    """The type of error that a status stands for."""
    return _KINDS.get(status, "BadInput" if 400 <= status < 500 else "Internal")


def status_of(error: HapvrError) -> int:
    """The status of an error of the library: what the client gave is wrong, or it is not its fault."""
    if isinstance(error, DecodeLimitError):
        return 413
    if isinstance(error, DecodeError | DecodeTimeoutError):
        return 415
    if isinstance(error, DataError | ConfigError | ShapeError):
        return 400
    return 409 if type(error).__name__ == "BusyError" else 500


def not_found(what: str, id: str) -> Problem:
    """There is no such thing."""
    return Problem(404, f"There is no {what} '{id[:80]}'.")


def library_gone() -> Problem:
    """The library is not where it was when the server was started."""
    return Problem(
        503,
        "The library is not there: its folder was removed or moved, or is not mounted.",
        hint="Put it back where it was; the server need not be started anew.",
        headers={"Retry-After": "10"},
    )


def busy(message: str, *, after_s: int = 2) -> Problem:
    """Try again later."""
    return Problem(503, message, hint="Try again in a moment.", headers={"Retry-After": str(after_s)})
