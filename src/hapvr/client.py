"""A client of `hapvr serve`: search, compare, add, duplicates and pictures of a library on another machine.

    RequestError         what the server answered: `status`, `type`, `message`, `hint`
    ├── BadInputError        it cannot be done as asked
    ├── ForbiddenError       a token is needed, or it is not allowed
    ├── NotFoundError        there is no such thing
    ├── ConflictError        a file has changed, or a job is writing
    ├── TooLargeError        it is larger than the server takes
    ├── BusyServerError      try again after `retry_after_s`
    └── ServerFaultError     a fault of the server
    ConnectError         no answer came
    JobCancelledError    somebody cancelled the job

It needs nothing but the standard library.
"""

from __future__ import annotations

import http.client
import json
import os
import secrets
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, urlencode, urlsplit

from hapvr.errors import ConfigError, HapvrError
from hapvr.storage import StrPath

_BLOCK = 1 << 20  # bytes of a file that are sent at a time
_WAIT_S = 30.0  # that a server is asked to wait for a job at a time
_PAGE = 200  # videos


class RequestError(HapvrError):
    """The server refused a request, or a job failed; `status` is None for a job."""

    def __init__(
        self, type: str, message: str, hint: str | None, *, status: int | None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(f"{message} {hint}" if hint else message)
        self.type, self.message, self.hint = type, message, hint
        self.status, self.retry_after_s = status, retry_after_s


class BadInputError(RequestError):
    """It cannot be done as asked."""


class ForbiddenError(RequestError):
    """A token is needed, or it is not allowed."""


class NotFoundError(RequestError):
    """There is no such thing."""


class ConflictError(RequestError):
    """A file has changed since it was indexed, or a job is writing."""


class TooLargeError(RequestError):
    """It is larger than the server takes."""


class BusyServerError(RequestError):
    """The server has too much to do, or is stopping: try again after `retry_after_s`."""


class ServerFaultError(RequestError):
    """A fault of the server; its log says more."""


class ConnectError(HapvrError):
    """No answer came: the server is not there, or took too long."""


class JobCancelledError(HapvrError):
    """A job was cancelled before it was done."""


_ERRORS: dict[str, type[RequestError]] = {
    "BadInput": BadInputError, "Forbidden": ForbiddenError, "NotFound": NotFoundError, "Conflict": ConflictError,
    "TooLarge": TooLargeError, "Busy": BusyServerError, "Internal": ServerFaultError,
}  # fmt: skip


@dataclass(frozen=True)
class RemoteJob:
    """Long work of a server."""

    id: str
    kind: str
    state: Literal["queued", "running", "done", "failed", "cancelled"]
    progress: dict[str, Any]
    result: dict[str, Any] | None = None  # when it is done
    error: dict[str, Any] | None = None  # when it failed

    @property
    def over(self) -> bool:
        """Whether it is done, failed or cancelled."""
        return self.state not in ("queued", "running")

    def require_result(self) -> dict[str, Any]:
        """Its result; `RequestError` if it failed, `JobCancelledError` if it was cancelled."""
        if self.error is not None:
            raise _make_error(self.error, status=None)
        if self.state == "cancelled":
            raise JobCancelledError(f"The job {self.id} was cancelled.")
        if self.result is None:
            raise ConfigError(f"The job {self.id} is not over: wait for it.")
        return self.result


@dataclass(frozen=True)
class RemoteSearch:
    """What a search has found."""

    query: str  # the id of the upload, or of the video: another search or a comparison can name it
    result: dict[str, Any]  # as REST gives it: hits, match, warnings, ...

    @property
    def matches(self) -> list[dict[str, Any]]:
        """The hits that share footage with the query."""
        return [hit for hit in self.result["hits"] if hit["match"]]


class Client:
    """A server of a library. Methods raise `RequestError` if the server refuses, `ConnectError` if no answer comes.

    Args:
        address: of the server, such as http://127.0.0.1:8787.
        token: that of the server, if it has one; the environment variable HAPVR_TOKEN if None.
        timeout_s: seconds without any answer after which a request fails.
    """

    def __init__(self, address: str, *, token: str | None = None, timeout_s: float = 60.0) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ConfigError(f"The address of a server is such as http://127.0.0.1:8787; got '{address}'.")
        if not timeout_s > 0:
            raise ConfigError(f"timeout_s must be above 0, got {timeout_s!r}.")
        self.address, self._timeout_s = address.rstrip("/"), timeout_s
        self._token = os.environ.get("HAPVR_TOKEN", "") if token is None else token
        self._opener = urllib.request.build_opener(_NoRedirect)

    # --- searching ---------------------------------------------------------------------------------------------------

    def search_file(self, path: StrPath, *, wait_s: float | None = None, **options: Any) -> RemoteSearch:
        """Send a video or a picture and search for it; options are those of REST: `k`, `start_s`, `end_s`, ..."""
        fields = {name: value for name, value in options.items() if value is not None}
        boundary = secrets.token_hex(16)
        head = b"".join(_format_field(boundary, name, value) for name, value in fields.items())
        name = quote(Path(path).name.encode(errors="replace"), safe=" !#$&'()+,-.;=@[]^_`{}~")
        head += (
            f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n"
        ).encode()
        tail = f"\r\n--{boundary}--\r\n".encode()
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            headers = {
                "Content-Type": f"multipart/form-data; boundary={boundary}",
                "Content-Length": str(len(head) + size + len(tail)),
            }
            begun = self._ask_json("POST", "/api/searches", data=_chain(head, file, tail), headers=headers)
        return RemoteSearch(begun["query"], self._finish(begun, wait_s))

    def search(self, id: str, *, wait_s: float | None = None, **options: Any) -> RemoteSearch:
        """Search by a video of the library, or by an upload that is still kept, by its id."""
        fields = {name: value for name, value in options.items() if value is not None}
        begun = self._ask_json("POST", "/api/searches", {"id": id, **fields})
        return RemoteSearch(begun["query"], self._finish(begun, wait_s))

    def search_text(self, text: str, *, wait_s: float | None = None, **options: Any) -> dict[str, Any]:
        """Search by a description: hits with the instants that fit it best. The library needs a text model."""
        fields = {name: value for name, value in options.items() if value is not None}
        return self._finish(self._ask_json("POST", "/api/searches/text", {"text": text, **fields}), wait_s)

    def compare(self, a: str, b: str, *, ignore_shared: bool = True, wait_s: float | None = None) -> dict[str, Any]:
        """Compare two videos or uploads by their ids: how much of `a` is found in `b`, and where."""
        pair = {"a": a, "b": b, "ignore_shared": ignore_shared}
        return self._finish(self._ask_json("POST", "/api/compare", pair), wait_s)

    # --- the library -------------------------------------------------------------------------------------------------

    def health(self) -> dict[str, Any]:
        """Whether the server works."""
        return self._ask_json("GET", "/api/health")

    def library(self) -> dict[str, Any]:
        """What the library holds, and the folders (`roots`) that may be added."""
        return self._ask_json("GET", "/api/library")

    def videos(self, *, q: str = "", state: str | None = None, warned: bool = False) -> Iterator[dict[str, Any]]:
        """All videos, or those with `q` in their names or in a state, sorted by path; asked for in pages."""
        offset = 0
        while True:
            asked = {"q": q, "state": state, "warned": warned or None, "offset": offset, "limit": _PAGE}
            page = self._ask_json("GET", "/api/videos", query=asked)
            yield from page["videos"]
            offset += len(page["videos"])
            if not page["videos"] or offset >= page["total"]:
                return

    def video(self, id: str) -> dict[str, Any]:
        """One video."""
        return self._ask_json("GET", f"/api/videos/{quote(id, safe='')}")

    def remove(self, id: str) -> int:
        """Remove a video from the library, or an upload (`q...`); the file of a video stays. How many were removed."""
        try:
            return int(self._ask_json("DELETE", f"/api/videos/{quote(id, safe='')}")["removed"])
        except NotFoundError:
            return int(self._ask_json("DELETE", f"/api/queries/{quote(id, safe='')}")["removed"])

    def add(
        self, root: str, path: str = "", *, prune: bool = False, retry: bool = False, wait_s: float | None = None
    ) -> dict[str, Any]:
        """Add the videos of a root (see `library`), or of a folder in it: the report."""
        asked = {"root": root, "path": path, "prune": prune, "retry": retry}
        return self._finish(self._ask_json("POST", "/api/jobs/add", asked), wait_s)

    def duplicates(
        self, *, min_probability: float = 0.5, wait_s: float | None = None, **options: Any
    ) -> dict[str, Any]:
        """Find copies, and clips that are part of longer videos: groups and links; options are those of REST."""
        asked = {"min_probability": min_probability, **options}
        return self._finish(self._ask_json("POST", "/api/duplicates", asked), wait_s)

    # --- pictures ----------------------------------------------------------------------------------------------------

    def thumbnail(self, id: str, *, t: float = 0.0, width: int = 320, upload: bool = False) -> bytes:
        """One frame as JPEG, of a video or, with `upload`, of an upload."""
        return self._ask("GET", _media(id, "thumbnail", upload), query={"t": t, "width": width})

    def strip(self, id: str, *, count: int = 10, height: int = 90, upload: bool = False) -> bytes:
        """Frames of the whole length side by side, as JPEG."""
        return self._ask("GET", _media(id, "strip", upload), query={"count": count, "height": height})

    def matrix(self, a: str, b: str, *, stage: Literal["before", "after"] = "after") -> bytes:
        """The similarity of all frames of two videos, before or after the network, as PNG."""
        return self._ask("GET", "/api/matrix.png", query={"a": a, "b": b, "stage": stage})

    # --- jobs --------------------------------------------------------------------------------------------------------

    def job(self, id: str, *, wait_s: float = 0.0) -> RemoteJob:
        """A job as it is now, or when it is over if that is within `wait_s` seconds (60 at most)."""
        found = self._ask_json("GET", f"/api/jobs/{quote(id, safe='')}", query={"wait": wait_s}, longer_s=wait_s)
        return _parse_job(found)

    def wait(self, id: str, *, wait_s: float | None = None) -> RemoteJob:
        """A job when it is over; `ConnectError` if it is not within `wait_s` seconds. None waits without limit."""
        end = None if wait_s is None else time.monotonic() + wait_s
        while True:
            left = _WAIT_S if end is None else min(_WAIT_S, max(0.0, end - time.monotonic()))
            found = self.job(id, wait_s=left)
            if found.over:
                return found
            if end is not None and time.monotonic() >= end:
                raise ConnectError(f"The job {id} was not over after {wait_s:g} s. It goes on: wait for it again.")

    def cancel(self, id: str) -> RemoteJob:
        """Cancel a job; what it has done is kept."""
        return _parse_job(self._ask_json("DELETE", f"/api/jobs/{quote(id, safe='')}"))

    def _finish(self, begun: Mapping[str, Any], wait_s: float | None) -> dict[str, Any]:
        return self.wait(begun["job"]["id"], wait_s=wait_s).require_result()

    # --- requests ----------------------------------------------------------------------------------------------------

    def _ask_json(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, Any] | None = None,
        data: Iterator[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        longer_s: float = 0.0,
    ) -> dict[str, Any]:
        if body is not None:
            sent: Any = json.dumps(body).encode()
            answer = self._ask(method, path, data=sent, headers={"Content-Type": "application/json"})
        else:
            answer = self._ask(method, path, query=query, data=data, headers=headers, longer_s=longer_s)
        try:
            found = json.loads(answer)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ConnectError(f"'{self.address}{path}' gave no JSON: is it a server of hapvr?")
        return found

    def _ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        data: Any = None,
        headers: Mapping[str, str] | None = None,
        longer_s: float = 0.0,
    ) -> bytes:
        given = {name: value for name, value in (query or {}).items() if value is not None}
        words = {name: str(value).lower() if isinstance(value, bool) else value for name, value in given.items()}
        place = self.address + path + (f"?{urlencode(words)}" if words else "")
        sent = dict(headers or {}) | ({"Authorization": f"Bearer {self._token}"} if self._token else {})
        request = urllib.request.Request(place, data, sent, method=method)  # noqa: S310 - the scheme was checked
        try:
            with self._opener.open(request, timeout=self._timeout_s + longer_s) as answer:
                content: bytes = answer.read()
                return content
        except urllib.error.HTTPError as answer:
            with answer:
                raise _read_error(answer.code, answer.headers, answer.read()) from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise ConnectError(f"'{self.address}' does not answer: {reason}. Is the server running?") from error


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A server redirects nothing below /api: a token must not be sent elsewhere."""

    def redirect_request(self, *_: Any) -> None:
        """None: do not follow."""
        return


def _parse_job(plain: Mapping[str, Any]) -> RemoteJob:
    return RemoteJob(*(plain[name] for name in ("id", "kind", "state", "progress", "result", "error")))


def _media(id: str, what: str, upload: bool) -> str:
    return f"/api/{'queries' if upload else 'videos'}/{quote(id, safe='')}/{what}"


def _format_field(boundary: str, name: str, value: Any) -> bytes:
    """A field of a form.

    >>> _format_field("x", "exact", True)
    b'--x\\r\\nContent-Disposition: form-data; name="exact"\\r\\n\\r\\ntrue\\r\\n'
    """
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{text}\r\n'.encode()


def _chain(head: bytes, file: Any, tail: bytes) -> Iterator[bytes]:
    yield head
    while block := file.read(_BLOCK):
        yield block
    yield tail


def _read_error(status: int, headers: Message, body: bytes) -> RequestError:
    """The error of an answer; of a proxy's, which has another shape, what its status says."""
    try:
        problem = json.loads(body)["error"]
        problem = problem if isinstance(problem, dict) else {}
    except (ValueError, KeyError, TypeError):
        problem = {}
    after = headers.get("Retry-After", "")
    if "type" not in problem:
        problem = {"type": "Internal" if status >= 500 else "BadInput", "message": f"The answer was status {status}."}
    return _make_error(problem, status=status, retry_after_s=float(after) if after.isdecimal() else None)


def _make_error(problem: Mapping[str, Any], *, status: int | None, retry_after_s: float | None = None) -> RequestError:
    kind = str(problem["type"])
    return _ERRORS.get(kind, RequestError)(
        kind, str(problem.get("message", "")), problem.get("hint"), status=status, retry_after_s=retry_after_s
    )
