"""What goes wrong, as clients see it: an HTTP status and one shape of JSON.

Other errors are translated in two places, both by `translate_error`: at the edge of a worker process (`workers.serve`)
and at the edge of the server (its exception handler, and the end of a job; see `access.translate_library_error`).
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterable, Mapping
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

# What is allowed, by pydantic's name of what is wrong; names in braces are of its context.
_RULES = {
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be more than {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt}",
    "finite_number": "must be a finite number",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a smaller whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "string_type": "must be text",
    "string_too_short": "must have a length of at least {min_length}",
    "string_too_long": "must have a length of at most {max_length}",
    "string_pattern_mismatch": "must match the pattern {pattern}",
    "list_type": "must be a list",
    "too_short": "must have a length of at least {min_length}",
    "too_long": "must have a length of at most {max_length}",
    "literal_error": "must be {expected}",
    "datetime_type": "must be a time in ISO 8601, such as 2026-03-01T12:00:00+00:00",
    "datetime_parsing": "must be a time in ISO 8601, such as 2026-03-01T12:00:00+00:00",
    "datetime_from_date_parsing": "must be a time in ISO 8601, such as 2026-03-01T12:00:00+00:00",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
}
_MAX_GIVEN = 80  # characters of what was given that are repeated
_MAX_NAMED = 5  # fields


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


def refuse_fields(errors: Iterable[Mapping[str, Any]]) -> Problem:
    """The answer to a request with fields that are not allowed.

    `errors` are pydantic's; their "loc" begins with the part of the request: body, query or path.

    >>> wrong = {"type": "greater_than_equal", "loc": ("body", "k"), "input": 0, "ctx": {"ge": 1}, "msg": ""}
    >>> refuse_fields([wrong]).message
    'k must be at least 1; got 0.'
    """
    found = [_describe_field(error) for error in errors]
    return Problem(422, " ".join(found[:_MAX_NAMED])[:1000] or "The request is not valid.")


def _describe_field(error: Mapping[str, Any]) -> str:
    """What is wrong with a field, in a sentence: its name, what is allowed, what was given."""
    name = ".".join(str(part) for part in error["loc"][1:]) or "The body"
    kind, context = error["type"], error.get("ctx", {})
    if kind == "missing":
        return f"{name} is missing."
    if kind == "extra_forbidden":
        return f"{name} is no field of this request."
    if kind == "json_invalid":
        return f"The body must be JSON: {context.get('error', error['msg'])}."
    if kind not in _RULES:
        return f"{name}: {error['msg']}."
    allowed = _RULES[kind].format(**{key: _format_number(value) for key, value in context.items()})
    given = json.dumps(error["input"], default=str)
    return f"{name} {allowed}; got {given if len(given) <= _MAX_GIVEN else given[:_MAX_GIVEN] + '...'}."


def _format_number(value: Any) -> Any:
    """A limit without an exponent and without a fraction that is zero: 10000000 of 1e7."""
    return f"{value:.16g}" if isinstance(value, float) else value
