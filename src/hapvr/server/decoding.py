"""Uploads become frames in a process of their own, with limits on memory, time and pixels.

The child answers as `hapvr.video.isolated` says, chunk by chunk. The frames are those that `hapvr search` takes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import IO

from hapvr.errors import DecodeError, DecodeLimitError, DecodeTimeoutError, HapvrError
from hapvr.processes import child_environment, how_ended, python_command
from hapvr.records import Frames
from hapvr.server.limiting import limit_memory
from hapvr.video.isolated import CutShort, read_frames, write_end, write_error, write_frames
from hapvr.video.limits import DecodeLimits

_CHUNK = 128
_MARGIN_S = 5.0


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
    command = python_command("hapvr.server.decoding", json.dumps(asdict(wish)))
    with tempfile.TemporaryFile() as complaints:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=complaints, env=child_environment()
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
                    frames = read_frames(child.stdout, wish.path, wish.limits)
                finally:
                    late = not killer.is_alive()
                    killer.cancel()
                if frames is None:
                    return
                yield frames
        except CutShort:
            with suppress(subprocess.TimeoutExpired):  # what it says of itself is worth a moment
                child.wait(_MARGIN_S)
        finally:
            child.kill()
            child.wait()
            child.stdout.close()
        raise _why(child.returncode, complaints, wish, late=late)


def _why(code: int, complaints: IO[bytes], wish: Sampled, *, late: bool) -> DecodeError:
    """Why there was no answer."""
    if late:
        return DecodeTimeoutError(f"'{wish.path}': gave up after {wish.limits.seconds:g} s of decoding.")
    complaints.seek(0)
    said = complaints.read()[-4000:].decode(errors="replace").strip().splitlines()
    if said and said[-1].startswith("MemoryError"):
        return DecodeLimitError(f"'{wish.path}': decoding it takes more than {wish.bytes / 2**20:,.0f} MB of memory.")
    return DecodeError(
        f"'{wish.path}': the decoding process {how_ended(code)} without an answer. The file makes the decoder crash."
    )


# --- the child -------------------------------------------------------------------------------------------------------


def _frames(wish: Sampled) -> Iterator[Frames]:
    from hapvr.video.decode import decode_chunks

    return decode_chunks(
        wish.path,
        chunk=_CHUNK,
        fps=wish.fps,
        short_side=wish.short_side,
        at_least=wish.at_least,
        start_s=wish.start,
        end_s=wish.end,
        limits=wish.limits,
    )


def _main(text: str, stream: IO[bytes]) -> None:
    settings = json.loads(text)
    wish = Sampled(**settings | {"limits": DecodeLimits(**settings["limits"])})
    limit_memory(wish.bytes)
    try:
        for frames in _frames(wish):
            write_frames(stream, frames)
    except HapvrError as error:
        write_error(stream, error)
    else:
        write_end(stream)


if __name__ == "__main__":
    _main(sys.argv[1], sys.stdout.buffer)
