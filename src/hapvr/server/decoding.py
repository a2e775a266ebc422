"""Uploads become frames in a process of their own, with limits on memory, time and pixels.

The child answers as `hapvr.video.isolated` does, chunk by chunk: a line of JSON, then the arrays as they lie in memory.
The frames are those that `hapvr search` takes of a file.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from hapvr import errors
from hapvr.errors import DecodeError, DecodeLimitError, DecodeTimeoutError, HapvrError
from hapvr.records import Frames
from hapvr.server.limiting import limit_memory
from hapvr.video.isolated import _ARRAYS, _answer
from hapvr.video.limits import DecodeLimits

_CHUNK = 128
_PART = 2_048  # frames of a part that is read as one
_MARGIN_S = 5.0
_END = b'{"end": true}\n'


@dataclass(frozen=True)
class Sampled:
    """Which frames to take of which file, and what that may cost."""

    path: str
    fps: float
    short_side: int
    at_least: int
    start: float | None
    end: float | None
    limits: DecodeLimits
    bytes: int  # of memory


def decoded(wish: Sampled, *, check: Callable[[], None]) -> Iterator[Frames]:
    """The frames of a file, some at a time; `check` is called before each and may raise."""
    environment = dict(os.environ)
    package = str(Path(errors.__file__).parents[1])
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [package, environment.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "hapvr.server.decoding", json.dumps(asdict(wish))]
    with tempfile.TemporaryFile() as complaints:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=complaints, env=environment
        )
        assert child.stdout is not None
        late = False
        try:
            while True:
                check()
                killer = threading.Timer(wish.limits.seconds + _MARGIN_S, child.kill)
                killer.daemon = True
                killer.start()
                try:
                    frames = _next(child.stdout, wish)
                finally:
                    late = not killer.is_alive()
                    killer.cancel()
                if frames is None:
                    break
                yield frames
            if frames is None and child.stdout.closed:
                return
        except _Ended:
            return
        finally:
            child.kill()
            child.wait()
            child.stdout.close()
        raise _how(child.returncode, complaints, wish, late=late)


class _Ended(Exception):  # noqa: N818 - no error
    """The child has said that this was all."""


def _next(stream: IO[bytes], wish: Sampled) -> Frames | None:
    line = stream.readline(len(_END))
    if line == _END:
        raise _Ended
    try:
        return _answer(_Rest(line, stream), wish.path, wish.limits)  # type: ignore[arg-type]
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, HapvrError):
            raise
        raise DecodeError(f"'{wish.path}': the decoding process gave an answer that makes no sense.") from error


class _Rest:
    """A stream of which the beginning has been read."""

    def __init__(self, begun: bytes, stream: IO[bytes]) -> None:
        self._begun, self._stream = begun, stream

    def readline(self, most: int) -> bytes:
        begun, self._begun = self._begun, b""
        return begun if begun.endswith(b"\n") else begun + self._stream.readline(most)

    def readinto(self, view: memoryview) -> int:
        count: int = self._stream.readinto(view)  # type: ignore[attr-defined]
        return count


def _how(code: int | None, complaints: IO[bytes], wish: Sampled, *, late: bool) -> DecodeError:
    """Why there was no answer."""
    if late:
        return DecodeTimeoutError(f"'{wish.path}': gave up after {wish.limits.seconds:g} s of decoding.")
    complaints.seek(0)
    said = complaints.read()[-4000:].decode(errors="replace").strip().splitlines()
    if said and said[-1].startswith("MemoryError"):
        return DecodeLimitError(f"'{wish.path}': decoding it takes more than {wish.bytes / 2**20:,.0f} MB of memory.")
    how = f"was ended by {signal.Signals(-code).name}" if code is not None and code < 0 else f"ended with code {code}"
    return DecodeError(
        f"'{wish.path}': the decoding process {how} without an answer. The file makes the decoder crash."
    )


# --- the child -------------------------------------------------------------------------------------------------------


def _frames(wish: Sampled) -> Iterator[Frames]:
    from hapvr.video.decode import decode, decode_chunks

    options: dict[str, Any] = {"fps": wish.fps, "short_side": wish.short_side, "at_least": wish.at_least}
    if wish.start is None and wish.end is None:
        yield from decode_chunks(wish.path, chunk=_CHUNK, limits=wish.limits, **options)
        return
    limits = dataclasses.replace(wish.limits, frames=min(wish.limits.frames, _PART))
    if wish.end is not None and (wish.end - (wish.start or 0.0)) * wish.fps <= limits.frames:
        yield decode(wish.path, start_s=wish.start, end_s=wish.end, limits=limits, **options)
        return
    # A long part: read from the beginning, for what is held at a time stays small.
    start, end = wish.start or 0.0, wish.end
    for frames in decode_chunks(wish.path, chunk=_CHUNK, limits=wish.limits, **options):
        kept = (frames.timestamps >= start) & (frames.timestamps < (float("inf") if end is None else end))
        if kept.any():
            yield dataclasses.replace(
                frames,
                images=frames.images[kept],
                timestamps=frames.timestamps[kept],
                low_information=frames.low_information[kept],
            )
        if end is not None and frames.timestamps[-1] >= end:
            return


def _main(text: str, stream: IO[bytes]) -> None:
    settings = json.loads(text)
    wish = Sampled(**settings | {"limits": DecodeLimits(**settings["limits"])})
    limit_memory(wish.bytes)
    names = ("duration_s", "fps", "source_size", "crop", "warnings")
    try:
        for frames in _frames(wish):
            header = {"shape": frames.images.shape, "fields": {name: getattr(frames, name) for name in names}}
            stream.write(json.dumps(header).encode() + b"\n")
            for name in _ARRAYS:
                stream.write(getattr(frames, name).data.cast("B"))
            stream.flush()
    except HapvrError as error:
        stream.write(json.dumps({"error": type(error).__name__, "message": str(error)}).encode() + b"\n")
    else:
        stream.write(_END)
    stream.flush()


if __name__ == "__main__":
    _main(sys.argv[1], sys.stdout.buffer)
