"""Uploads: streamed to a private folder under new names, within limits, and removed in every case."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import secrets
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header

from hapvr.server.clients import current_client, require_share, too_many
from hapvr.server.problems import Problem, busy
from hapvr.server.settings import ServerSettings

log = logging.getLogger("hapvr.server.uploads")
_AT_ONCE = 256 * 2**10  # bytes that are written at a time
_FIELD = 256  # bytes of a field of the form
_LONG_FIELDS = {"folder": 4000}  # bytes of those that may be longer
_FIELDS = 20
_OVERHEAD = 64 * 2**10  # bytes of a form beside its file
_HEADER = 4096
_NAME = 200


@dataclass(eq=False)
class Query:
    """An upload that is kept."""

    id: str
    name: str  # as the client calls it: only ever shown
    path: Path
    size: int
    part: tuple[float | None, float | None] = (None, None)  # seconds that were last searched
    duration: float = 0.0
    used: float = field(default_factory=time.monotonic)
    jobs: int = 0  # that need it
    client: str | None = None  # who sent it
    until: float | None = None  # kept for a link until then, in seconds since 1970, even if the server stops


class Uploads:
    """The uploads that are kept, and those that come in."""

    def __init__(
        self, folder: Path, settings: ServerSettings, *, linked: Path | None = None, forgotten: Callable[[str], None]
    ) -> None:
        """`linked` is the folder of uploads that links lead to; it outlives the server."""
        self._folder, self._settings, self._forgotten = folder, settings, forgotten
        self._linked = linked
        self._queries: dict[str, Query] = {}
        for path in () if linked is None else linked.glob("q*.json"):
            self._load(path.stem)
        self._receiving: dict[str, int] = {}  # bytes so far
        self._placed: dict[str, str | None] = {}  # of those, which are stored at a time, and their clients
        self.received = 0  # bytes in all

    def get(self, id: str) -> Query:
        """An upload by its id."""
        if id not in self:
            raise self._gone(id)
        query = self._queries[id]
        query.used = time.monotonic()
        return query

    def __contains__(self, id: object) -> bool:
        return id in self._queries or (isinstance(id, str) and self._load(id))

    def _gone(self, id: str) -> Problem:
        minutes, days = self._settings.keep_uploads_s / 60, self._settings.keep_linked_uploads_s / 86400
        hint = (
            f"An upload is kept for {minutes:.0f} minutes after it was last used, and for {days:.0f} days after a link "
            "to it was copied. Search for the video again."
        )
        return Problem(404, f"The uploaded video '{id[:80]}' is not kept any more.", hint=hint)

    def keep(self, id: str) -> Query:
        """Keep an upload for a link, for as long as the settings say; `Problem` if there is no room for it."""
        query = self.get(id)
        if self._linked is None:
            raise Problem(503, "This server does not keep uploads for links.")
        others = sum(one.size for one in self._queries.values() if one.until is not None and one is not query)
        if others + query.size > self._settings.max_linked_bytes:
            raise Problem(507, "There is no room to keep another upload for a link.", hint="Remove one that was kept.")
        self._linked.mkdir(exist_ok=True, mode=0o700)
        place, about = self._linked / id, self._linked / f"{id}.json"
        if query.path != place:
            _copy(query.path, place)
        until = time.time() + self._settings.keep_linked_uploads_s
        plain = {"name": query.name, "size": query.size, "part": query.part, "duration": query.duration, "until": until}
        new = about.with_suffix(".new")
        new.write_text(json.dumps(plain), "utf-8")
        os.replace(new, about)
        query.until = until
        return query

    def _load(self, id: str) -> bool:
        """Take up an upload that is kept for a link; False if there is none."""
        if self._linked is None or not re.fullmatch("q[0-9a-f]{24}", id):
            return False
        path = self._linked / id
        try:
            plain = json.loads((self._linked / f"{id}.json").read_text("utf-8"))
            start_s, end_s = plain["part"]
            query = Query(
                id,
                str(plain["name"]),
                path,
                int(plain["size"]),
                (start_s, end_s),
                plain["duration"],
                until=plain["until"],
            )
            whole = path.stat().st_size == query.size and time.time() < float(plain["until"])
        except (OSError, ValueError, KeyError, TypeError):
            return False
        self._queries[id] = query
        if not whole:
            self.remove(id)
        return whole

    @property
    def stored(self) -> int:
        """Bytes that they take, without those that are kept for links."""
        kept = sum(query.size for query in self._queries.values() if query.until is None)
        return kept + sum(self._receiving.values())

    def __len__(self) -> int:
        return len(self._queries)

    def remove(self, id: str) -> None:
        """Remove an upload."""
        query = self._queries.pop(id)
        places = [query.path]
        if query.until is not None and self._linked is not None:
            places += [self._linked / f"{id}.json", self._linked / id]
        for path in places:
            with suppress(FileNotFoundError):
                path.unlink()
        self._forgotten(id)

    def expire(self) -> None:
        """Remove those that were not used for long."""
        now = time.monotonic()
        for query in list(self._queries.values()):
            unused = now - query.used > self._settings.keep_uploads_s
            if query.until is not None:  # no later than that, if the clock was ahead when it was set
                query.until = min(query.until, time.time() + self._settings.keep_linked_uploads_s)
            if not query.jobs and (unused if query.until is None else time.time() > query.until):
                self.remove(query.id)

    def _make_room(self, count: int) -> None:
        """Remove the oldest that nobody needs until `count` more bytes fit; `Problem` if they do not."""
        client = current_client.get()
        if client is not None:
            own = sum(one.size for one in self._queries.values() if one.client == client and one.until is None)
            if own + count > self._settings.max_uploads_bytes_per_client:
                raise too_many("There is no room for another upload of yours: remove one.", after_s=60)
        for query in sorted(self._queries.values(), key=lambda one: one.used):
            if self.stored + count <= self._settings.max_uploads_bytes:
                return
            if not query.jobs and query.until is None and time.monotonic() - query.used > 60:
                self.remove(query.id)
        if self.stored + count > self._settings.max_uploads_bytes:
            raise busy("There is no room for another upload at the moment.", after_s=60)

    async def receive(
        self, content_type: str, length: int | None, chunks: AsyncIterator[bytes]
    ) -> tuple[Query, dict[str, str]]:
        """Receive a form with a file: the upload, and the other fields. Nothing is left of one that fails."""
        max_upload_bytes = self._settings.max_upload_bytes
        if length is not None and length > max_upload_bytes + _OVERHEAD:
            raise self._too_large()
        self.expire()
        self._make_room(min(length or 0, max_upload_bytes))
        id = f"q{secrets.token_hex(12)}"
        path = self._folder / id
        form = _Form(content_type)
        self._receiving[id] = 0
        kept = False
        try:
            with path.open("xb", buffering=0) as file:
                await self._stream(id, form, file, chunks)
            form.require_whole()
            size = self._receiving[id]
            if size == 0:
                raise Problem(400, f"'{form.name}' is empty.", hint="Choose a video or a picture.")
            query = Query(id, form.name, path, size, client=current_client.get())
            self._queries[id] = query
            kept = True
            return query, form.fields
        except OSError as error:
            log.error("upload", extra={"error": str(error)})
            raise Problem(507, "The upload could not be stored: the server has no room.") from None
        finally:
            del self._receiving[id]
            self._placed.pop(id, None)
            if not kept:
                with suppress(FileNotFoundError):
                    path.unlink()

    async def _stream(self, id: str, form: _Form, file: Any, chunks: AsyncIterator[bytes]) -> None:
        total = 0
        loop = asyncio.get_running_loop()

        async def write() -> None:
            data = form.take_data()
            self._receiving[id] += len(data)
            if self._receiving[id] > self._settings.max_upload_bytes:
                raise self._too_large()
            if data:
                await loop.run_in_executor(None, _write_all, file, data)

        async for chunk in chunks:
            total += len(chunk)
            self.received += len(chunk)
            if total > self._settings.max_upload_bytes + _OVERHEAD:
                raise self._too_large()
            form.feed(chunk)
            if form.waiting >= _AT_ONCE:
                self._take_place(id)
                await write()
                self._make_room(0)
        await write()

    def _take_place(self, id: str) -> None:
        """Raise `Problem` if too many others are being stored."""
        if id in self._placed:
            return
        max_each = self._settings.max_uploads_at_once_per_client
        require_share(self._placed.values(), max_each, "uploads are being received")
        if len(self._placed) >= self._settings.max_uploads_at_once:
            raise busy(f"{len(self._placed)} uploads are being received already.")
        self._placed[id] = current_client.get()

    def _too_large(self) -> Problem:
        max_mb = self._settings.max_upload_bytes / 2**20
        return Problem(
            413,
            f"The upload is larger than {max_mb:,.0f} MB, the most that this server takes.",
            hint="Upload a shorter part of the video, or a copy of a lower resolution.",
            headers={"Connection": "close"},
        )


class _Form:
    """A multipart form as it comes in: one file, and a few short fields."""

    def __init__(self, content_type: str) -> None:
        kind, options = parse_options_header(content_type)
        boundary = options.get(b"boundary", b"")
        if kind != b"multipart/form-data" or not 1 <= len(boundary) <= 200:
            raise Problem(415, "An upload is a form of type multipart/form-data, with a boundary.")
        self.fields: dict[str, str] = {}
        self.name = ""
        self._has_file = self._ended = False
        self._data: list[bytes] = []
        self.waiting = 0
        self._header = [b"", b""]
        self._headers: dict[bytes, bytes] = {}
        self._part: str | None = None  # the name of the field that is being read; None for the file
        self._value = b""
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin,
                "on_header_field": lambda data, start, end: self._head(0, data[start:end]),
                "on_header_value": lambda data, start, end: self._head(1, data[start:end]),
                "on_header_end": self._head_end,
                "on_headers_finished": self._open,
                "on_part_data": lambda data, start, end: self._take(data[start:end]),
                "on_part_end": self._close,
                "on_end": self._end,
            },
        )

    def feed(self, chunk: bytes) -> None:
        """The next bytes of the body."""
        try:
            self._parser.write(chunk)
        except MultipartParseError as error:
            raise Problem(400, f"The form cannot be read: {error}.") from None

    def take_data(self) -> bytes:
        """The bytes of the file that have come since the last call."""
        data = b"".join(self._data)
        self._data, self.waiting = [], 0
        return data

    def require_whole(self) -> None:
        """Raise `Problem` unless the form has ended and held a file."""
        if not self._ended:
            raise Problem(400, "The upload was cut off before its end.", hint="Try again.")
        if not self._has_file:
            raise Problem(400, "The form holds no file.", hint="Send the video as the field 'file'.")

    def _begin(self) -> None:
        self._headers, self._header = {}, [b"", b""]

    def _head(self, which: int, data: bytes) -> None:
        self._header[which] += data
        if len(self._header[which]) > _HEADER or len(self._headers) > _FIELDS:
            raise Problem(400, "The form has headers that are too long.")

    def _head_end(self) -> None:
        self._headers[self._header[0].lower()] = self._header[1]
        self._header = [b"", b""]

    def _open(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        name = options.get(b"name", b"").decode(errors="replace")
        if name == "file" and b"filename" in options:
            if self._has_file:
                raise Problem(400, "One file at a time.")
            self._has_file = True
            self.name = printable_name(options[b"filename"].decode(errors="replace"))
            self._part = None
        else:
            if len(self.fields) >= _FIELDS:
                raise Problem(400, "The form has too many fields.")
            self._part, self._value = name, b""

    def _take(self, data: bytes) -> None:
        if self._part is None:
            self._data.append(data)
            self.waiting += len(data)
            return
        self._value += data
        if len(self._value) > _LONG_FIELDS.get(self._part, _FIELD):
            raise Problem(400, f"The field '{self._part[:50]}' is too long.")

    def _close(self) -> None:
        if self._part is not None:
            self.fields[self._part] = self._value.decode(errors="replace")

    def _end(self) -> None:
        self._ended = True


def printable_name(given: str) -> str:
    r"""A name that a client gave, fit to be shown: no folders, nothing that does not print, not too long.

    >>> printable_name("C:\\films\\a\nb.mp4"), printable_name("../../etc/passwd"), printable_name("")
    ('ab.mp4', 'passwd', 'upload')
    """
    name = os.path.basename(given.replace("\\", "/"))
    name = "".join(letter for letter in name if letter.isprintable()).strip()[:_NAME]
    return name if name.strip(".") else "upload"


def _copy(source: Path, target: Path) -> None:
    """The same file under another name; it is whole, or not there."""
    with suppress(FileExistsError):
        try:
            os.link(source, target)
        except FileExistsError:
            raise
        except OSError:  # another file system, or one without links
            new = target.with_suffix(".new")
            shutil.copyfile(source, new)
            os.replace(new, target)


def _write_all(file: Any, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]
