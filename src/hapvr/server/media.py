"""Files, thumbnails, strips and previews: which may be served, from where, and in which ranges."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from hapvr.library.results import VideoRecord
from hapvr.server.access import open_unchanged
from hapvr.server.clients import current_client, require_share
from hapvr.server.problems import Problem, busy
from hapvr.server.settings import ServerSettings
from hapvr.server.uploads import Query
from hapvr.server.worker_process import PRIORITY_FILE
from hapvr.server.workers import Worker, WorkerDied
from hapvr.workers.sandbox import Sandbox

_PIECE = 256 * 2**10
_RANGE = re.compile(r"bytes=(\d{0,20})-(\d{0,20})")
_TYPES = {
    ".mp4": "video/mp4", ".m4v": "video/mp4", ".mov": "video/quicktime", ".webm": "video/webm",
    ".mkv": "video/x-matroska", ".avi": "video/x-msvideo", ".mpg": "video/mpeg", ".mpeg": "video/mpeg",
    ".ts": "video/mp2t", ".ogv": "video/ogg", ".3gp": "video/3gpp", ".flv": "video/x-flv", ".wmv": "video/x-ms-wmv",
    ".gif": "image/gif", ".webp": "image/webp", ".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg",
    ".avif": "image/avif", ".bmp": "image/bmp",
}  # fmt: skip
_MODULE = "hapvr.server.picture_tasks"
_MAX_PREVIEW_BYTES = 2**30


@dataclass(frozen=True)
class Source:
    """A file that may be read: an indexed one, or an upload."""

    path: str
    name: str
    size: int
    mtime_ns: int | None  # None for an upload, which nobody else can change
    duration: float
    tag: str  # names this content

    @classmethod
    def of_video(cls, record: VideoRecord) -> Source:
        """The file of a video."""
        tag = hashlib.blake2b(f"{record.content_hash} {record.mtime_ns}".encode(), digest_size=12).hexdigest()
        mtime_ns = None if record.mtime_ns == -1 else record.mtime_ns
        return cls(record.path, os.path.basename(record.path), record.size, mtime_ns, record.duration, tag)

    @classmethod
    def of_query(cls, query: Query) -> Source:
        """The file of an upload."""
        return cls(str(query.path), query.name, query.size, None, query.duration, query.id)


class Media:
    """Pictures made on demand and kept, and files that are served."""

    def __init__(self, folder: Path, settings: ServerSettings) -> None:
        self._folder, self._settings = folder, settings
        names = (
            "max_decode_pixels",
            "max_picture_s",
            "max_preview_s",
            "max_preview_length_s",
            "max_stop_s",
        )
        values = {name: getattr(settings, name) for name in names}
        # They read whichever file they are asked for, and write what they make of it.
        sandbox = Sandbox(("/",), (str(folder), PRIORITY_FILE), max_memory_bytes=settings.max_decode_bytes,
                          max_file_bytes=_MAX_PREVIEW_BYTES)  # fmt: skip
        self.pictures = Worker("pictures", _MODULE, values, keep_running=settings.eager, sandbox=sandbox)
        self.previews = Worker("previews", _MODULE, values, keep_running=settings.eager, sandbox=sandbox)
        self._making: dict[str, asyncio.Task[None]] = {}
        self._making_for: dict[str, str | None] = {}  # the client that asked first
        self._roots = [root.path for root in settings.named_roots.values()]

    # --- files -------------------------------------------------------------------------------------------------------

    async def _open(self, source: Source) -> int:
        """A descriptor of the file, if it is still the one that was indexed."""
        return await asyncio.get_running_loop().run_in_executor(
            None,
            lambda: open_unchanged(
                source.path, source.name, size=source.size, mtime_ns=source.mtime_ns, roots=self._roots
            ),
        )

    async def file(self, source: Source, request: Request) -> Response:
        """The file, or the part of it that was asked for; to a HEAD request, only what would be said about it."""
        kind = _TYPES.get(os.path.splitext(source.name)[1].lower(), "application/octet-stream")
        return _answer_range(await self._open(source), source.size, kind, source.tag, request)

    async def probe(self, query: Query) -> float:
        """The duration of an upload in seconds; `Problem` if it is nothing that can be seen."""
        return float(await self._ask(self.pictures, "probe", Source.of_query(query), {}, self._settings.max_picture_s))

    async def _ask(self, worker: Worker, task: str, source: Source, arguments: dict[str, Any], timeout_s: float) -> Any:
        arguments |= {"path": source.path, "name": source.name}
        try:
            return await worker.run(task, arguments, timeout_s=timeout_s)
        except WorkerDied as error:  # because of this file
            raise Problem(415, f"'{source.name}' cannot be read: {error.cause}.") from None

    # --- pictures ----------------------------------------------------------------------------------------------------

    async def picture(self, kind: str, source: Source, **options: Any) -> Path:
        """A thumbnail or strip, made if need be."""
        key = _key(source, kind, options)
        out = self._folder / f"{key}.jpg"
        if not _touch(out):
            arguments = options | {"out": str(out), "duration": source.duration}
            await self._make(key, self.pictures, kind, arguments, source, self._settings.max_picture_s)
        return out

    async def preview(self, source: Source, request: Request) -> Response:
        """A preview that every browser plays; `Problem` with the advice to come back while it is being made."""
        key = _key(source, "preview", {})
        out = self._folder / f"{key}.mp4"
        if not _touch(out):
            making = self._make(key, self.previews, "preview", {"out": str(out)}, source, self._settings.max_preview_s)
            try:
                await asyncio.wait_for(making, self._settings.max_preview_wait_s)
            except asyncio.TimeoutError:
                raise busy("The preview is being made.", after_s=10) from None
        try:
            descriptor = os.open(out, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        except OSError:
            raise busy("The preview was removed to make room for others.") from None
        return _answer_range(descriptor, os.fstat(descriptor).st_size, "video/mp4", key, request)

    async def _make(
        self, key: str, worker: Worker, task: str, arguments: dict[str, Any], source: Source, seconds: float
    ) -> None:
        """Have a file made, once for all who ask for it at the same time; it goes on if they leave."""
        os.close(await self._open(source))
        if key not in self._making:
            max_each = self._settings.max_queued_pictures_per_client
            require_share(self._making_for.values(), max_each, "pictures are being made")
            if len(self._making) >= self._settings.max_queued_pictures:
                raise busy("Too many pictures are being made at the moment.")

            async def make() -> None:
                try:
                    await self._ask(worker, task, source, arguments, seconds + 5)
                finally:
                    self._making.pop(key, None)
                    self._making_for.pop(key, None)
                await asyncio.get_running_loop().run_in_executor(None, self._make_room)

            making = self._making[key] = asyncio.create_task(make())
            self._making_for[key] = current_client.get()
            making.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(self._making[key])

    def _make_room(self) -> None:
        """Remove the least recently used files until the rest fits."""
        found = []
        for entry in os.scandir(self._folder):
            with suppress(FileNotFoundError):
                about = entry.stat()
                found.append((about.st_mtime, about.st_size, entry.path))
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= self._settings.max_cache_bytes:
                return
            with suppress(FileNotFoundError):
                os.unlink(path)
            total -= size

    async def close(self) -> None:
        """End the workers."""
        for task in list(self._making.values()):
            task.cancel()
        await asyncio.gather(*(worker.stop(2.0) for worker in (self.pictures, self.previews)))


def _key(source: Source, kind: str, options: Mapping[str, Any]) -> str:
    text = f"{source.tag} {kind} {sorted(options.items())}"
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _touch(path: Path) -> bool:
    """Whether a file exists; it then counts as just used."""
    try:
        os.utime(path)
    except OSError:
        return False
    return True


def _answer_range(descriptor: int, size: int, kind: str, tag: str, request: Request) -> Response:
    """An open file, or the part of it that was asked for, or the headers of that alone; it is closed at the end."""
    headers = request.headers
    etag = f'"{tag}"'
    common = {"Accept-Ranges": "bytes", "ETag": etag, "Cache-Control": "private, no-cache"}
    if headers.get("if-none-match") == etag:
        os.close(descriptor)
        return Response(status_code=304, headers=common)
    status, first, end = 200, 0, size
    asked = headers.get("range")
    if asked is not None and headers.get("if-range", etag) == etag:
        try:
            part = parse_range(asked, size)
        except ValueError:
            os.close(descriptor)
            message = f"There are no bytes '{asked[:60]}' in a file of {size}."
            raise Problem(416, message, headers={"Content-Range": f"bytes */{size}"}) from None
        if part is not None:
            status, first, end = 206, part[0], part[1] + 1
            common["Content-Range"] = f"bytes {first}-{end - 1}/{size}"
    common["Content-Length"] = str(end - first)
    if request.method == "HEAD":
        os.close(descriptor)
        return Response(None, status, headers=common, media_type=kind)
    return StreamingResponse(_Pieces(descriptor, first, end), status, headers=common, media_type=kind)


def parse_range(asked: str, size: int) -> tuple[int, int] | None:
    """The first and last byte of a Range header; None if all is to be sent, `ValueError` if there is no such part.

    >>> [parse_range(asked, 10) for asked in ("bytes=2-", "bytes=-3", "bytes=0-99", "bytes=0-1,4-5")]
    [(2, 9), (7, 9), (0, 9), None]
    """
    found = _RANGE.fullmatch(asked.strip())
    first, last = (None, None) if found is None else (int(one) if one else None for one in found.groups())
    if first is None and last is None:
        return None
    if first is None:
        first, last = max(0, size - (last or 0)), size - 1  # a count from the end
    elif last is not None and last < first:
        return None
    if first >= size:
        raise ValueError
    return first, size - 1 if last is None else min(last, size - 1)


class _Pieces:
    """The bytes of an open file from one place to another, read in threads; closes the file, also if nobody asks."""

    def __init__(self, descriptor: int, first: int, end: int) -> None:
        self._descriptor: int | None = descriptor
        self._at, self._end = first, end

    def __aiter__(self) -> _Pieces:
        return self

    async def __anext__(self) -> bytes:
        data = await asyncio.get_running_loop().run_in_executor(None, self._read)
        if not data:  # the end; or cut off meanwhile: the connection is closed then, for the length was promised
            self._close()
            raise StopAsyncIteration
        return data

    def _read(self) -> bytes:
        if self._descriptor is None or self._at >= self._end:
            return b""
        os.lseek(self._descriptor, self._at, os.SEEK_SET)
        data = os.read(self._descriptor, min(_PIECE, self._end - self._at))
        self._at += len(data)
        return data

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __del__(self) -> None:
        self._close()
