"""Files, thumbnails, strips and previews: which may be served, from where, and in which ranges."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.responses import Response, StreamingResponse

from hapvr.library.results import VideoRecord
from hapvr.server.problems import Problem, busy
from hapvr.server.settings import ServerSettings
from hapvr.server.uploads import Query
from hapvr.server.workers import Worker, WorkerDied

_PIECE = 256 * 2**10
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")
_TYPES = {
    ".mp4": "video/mp4", ".m4v": "video/mp4", ".mov": "video/quicktime", ".webm": "video/webm",
    ".mkv": "video/x-matroska", ".avi": "video/x-msvideo", ".mpg": "video/mpeg", ".mpeg": "video/mpeg",
    ".ts": "video/mp2t", ".ogv": "video/ogg", ".3gp": "video/3gpp", ".flv": "video/x-flv", ".wmv": "video/x-ms-wmv",
    ".gif": "image/gif", ".webp": "image/webp", ".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg",
    ".avif": "image/avif", ".bmp": "image/bmp",
}  # fmt: skip
_STALE = "Add it again, so that what is shown is what was described."


@dataclass(frozen=True)
class Source:
    """A file that may be read: an indexed one, or an upload."""

    path: str
    name: str
    size: int
    mtime_ns: int
    duration: float
    tag: str  # names this content


def source_of_video(record: VideoRecord) -> Source:
    """Where a video lies."""
    tag = hashlib.blake2b(f"{record.content_hash} {record.mtime_ns}".encode(), digest_size=12).hexdigest()
    return Source(record.path, os.path.basename(record.path), record.size, record.mtime_ns, record.duration, tag)


def source_of_query(query: Query) -> Source:
    """Where an upload lies."""
    return Source(str(query.path), query.name, query.size, -1, query.duration, query.id)


class Media:
    """Pictures made on demand and kept, and files that are served."""

    def __init__(self, folder: Path, settings: ServerSettings) -> None:
        self._folder, self._settings = folder, settings
        names = ("decode_pixels", "decode_bytes", "picture_s", "preview_s", "preview_length_s", "stop_s")
        values = {name: getattr(settings, name) for name in names}
        self.pictures = Worker("pictures", values, keep=settings.eager)
        self.previews = Worker("previews", values, keep=settings.eager)
        self._making: dict[str, asyncio.Task[None]] = {}
        self._roots = [root.path for root in settings.named_roots.values()]

    # --- files -------------------------------------------------------------------------------------------------------

    def _open(self, source: Source) -> int:
        """A descriptor of the file, if it is still the one that was indexed."""
        if any(_is_below(source.path, root) for root in self._roots):
            real = os.path.realpath(source.path)
            if not any(_is_below(real, root) for root in self._roots):
                raise Problem(403, f"'{source.name}' is a link that leads out of the folders this server may read.")
        try:
            descriptor = os.open(source.path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        except OSError:
            raise Problem(409, f"The file '{source.name}' is not there any more, or cannot be read.") from None
        found = os.fstat(descriptor)
        changed = source.mtime_ns != -1 and source.mtime_ns != found.st_mtime_ns
        if not stat.S_ISREG(found.st_mode) or found.st_size != source.size or changed:
            os.close(descriptor)
            raise Problem(409, f"The file '{source.name}' has changed since it was indexed.", hint=_STALE)
        return descriptor

    async def require_same(self, source: Source) -> None:
        """Raise `Problem` unless the file is still the one that was indexed."""
        os.close(await asyncio.get_running_loop().run_in_executor(None, self._open, source))

    async def file(self, source: Source, headers: Mapping[str, str], *, head: bool = False) -> Response:
        """The file, or the part of it that was asked for; with `head`, only what would be said about it."""
        descriptor = await asyncio.get_running_loop().run_in_executor(None, self._open, source)
        kind = _TYPES.get(os.path.splitext(source.name)[1].lower(), "application/octet-stream")
        return _ranged(descriptor, source.size, kind, source.tag, headers, head=head)

    async def probe(self, query: Query) -> float:
        """How long an upload is, in seconds; `Problem` if it is nothing that can be seen."""
        source = source_of_query(query)
        try:
            found = await self.pictures.run("probe", {"path": source.path}, timeout_s=self._settings.picture_s)
        except WorkerDied as error:
            raise Problem(415, f"'{source.name}' cannot be read: {error}.") from None
        except Problem as problem:
            message = problem.message.replace(source.path, source.name)
            raise Problem(problem.status, message, hint=problem.hint) from None
        return float(found["duration"])

    # --- pictures ----------------------------------------------------------------------------------------------------

    async def picture(self, kind: str, source: Source, **options: Any) -> Path:
        """A thumbnail or strip, made if need be."""
        key = _key(source, kind, options)
        out = self._folder / f"{key}.jpg"
        if not _touched(out):
            await self.require_same(source)
            arguments = options | {"path": source.path, "out": str(out), "duration": source.duration}
            await self._make(key, self.pictures, kind, arguments, source, self._settings.picture_s)
        return out

    async def preview(self, source: Source, headers: Mapping[str, str], *, head: bool = False) -> Response:
        """A preview that every browser plays; `Problem` with the advice to come back while it is being made."""
        key = _key(source, "preview", {})
        out = self._folder / f"{key}.mp4"
        if not _touched(out):
            await self.require_same(source)
            making = self._make(
                key, self.previews, "preview", {"path": source.path, "out": str(out)}, source, self._settings.preview_s
            )
            try:
                await asyncio.wait_for(making, self._settings.preview_wait_s)
            except asyncio.TimeoutError:
                raise busy("The preview is being made.", after_s=10) from None
        try:
            descriptor = os.open(out, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        except OSError:
            raise busy("The preview had to make room for others.") from None
        return _ranged(descriptor, os.fstat(descriptor).st_size, "video/mp4", key, headers, head=head)

    async def _make(
        self, key: str, worker: Worker, task: str, arguments: dict[str, Any], source: Source, seconds: float
    ) -> None:
        """Have a file made, once for all who ask for it at the same time; it goes on if they leave."""
        if key not in self._making:
            if len(self._making) > self._settings.queue * 4:
                raise busy("Too many pictures are being made at the moment.")

            async def make() -> None:
                try:
                    await worker.run(task, arguments, timeout_s=seconds + 5)
                except WorkerDied as error:
                    raise Problem(415, f"'{source.name}' cannot be shown: {error}.") from None
                except Problem as problem:
                    message = problem.message.replace(source.path, source.name)
                    raise Problem(problem.status, message, hint=problem.hint) from None
                finally:
                    self._making.pop(key, None)
                await asyncio.get_running_loop().run_in_executor(None, self._sweep)

            task_ = asyncio.create_task(make())
            task_.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._making[key] = task_
        await asyncio.shield(self._making[key])

    def _sweep(self) -> None:
        """Remove what was not used for longest until the rest fits."""
        found = []
        for entry in os.scandir(self._folder):
            with suppress(FileNotFoundError):
                about = entry.stat()
                found.append((about.st_mtime, about.st_size, entry.path))
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= self._settings.cache_bytes:
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


def _touched(path: Path) -> bool:
    """Whether a file is there; it then counts as just used."""
    try:
        os.utime(path, (time.time(), time.time()))
    except OSError:
        return False
    return True


def _is_below(path: str, root: Path) -> bool:
    return os.path.abspath(path).startswith(str(root).rstrip(os.sep) + os.sep)


def _ranged(
    descriptor: int, size: int, kind: str, tag: str, headers: Mapping[str, str], *, head: bool = False
) -> Response:
    """A file that is open, or a part of it, or the headers of that alone; it is closed at the end."""
    etag = f'"{tag}"'
    common = {"Accept-Ranges": "bytes", "ETag": etag, "Cache-Control": "private, no-cache"}
    if headers.get("if-none-match") == etag:
        os.close(descriptor)
        return Response(status_code=304, headers=common)
    status, first, end = 200, 0, size
    asked = headers.get("range")
    if asked is not None and headers.get("if-range", etag) == etag:
        try:
            part = part_of(asked, size)
        except ValueError:
            os.close(descriptor)
            message = f"There are no bytes '{asked[:60]}' in a file of {size}."
            raise Problem(416, message, headers={"Content-Range": f"bytes */{size}"}) from None
        if part is not None:
            status, first, end = 206, part[0], part[1] + 1
            common["Content-Range"] = f"bytes {first}-{end - 1}/{size}"
    common["Content-Length"] = str(end - first)
    if head:
        os.close(descriptor)
        return Response(None, status, headers=common, media_type=kind)
    return StreamingResponse(_Pieces(descriptor, first, end), status, headers=common, media_type=kind)


def part_of(asked: str, size: int) -> tuple[int, int] | None:
    """The first and last byte of a Range header; None if all is to be sent, `ValueError` if there is no such part.

    >>> part_of("bytes=2-", 10), part_of("bytes=-3", 10), part_of("bytes=0-99", 10), part_of("bytes=0-1,4-5", 10)
    ((2, 9), (7, 9), (0, 9), None)
    """
    found = _RANGE.fullmatch(asked.strip())
    if found is None or len(asked) > 60:
        return None
    first, last = found.groups()
    if not first and not last:
        return None
    if not first:
        if int(last) == 0 or size == 0:
            raise ValueError
        return max(0, size - int(last)), size - 1
    if last and int(last) < int(first):
        return None
    if int(first) >= size:
        raise ValueError
    return int(first), min(int(last), size - 1) if last else size - 1


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
