"""Decoding in a process of its own, for files from strangers: a decoder that hangs or crashes takes nobody with it.

The child answers on its standard output, with `write_frames` and the like: one line of JSON, then the arrays as they
lie in memory. Nothing that could run code is read back by `read_frames`. An answer may have several parts, and an end.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import threading
from dataclasses import asdict
from typing import IO, Any

import numpy as np

from hapvr import errors
from hapvr.errors import DecodeError
from hapvr.processes import child_environment, how_ended, python_command
from hapvr.records import Box, Frames
from hapvr.video.decode import decode
from hapvr.video.limits import Deadline, DecodeLimits

_MOST_HEADER = 1 << 20
_MOST_BYTES = 1 << 30  # of one frame
_ERRORS = {kind.__name__: kind for kind in vars(errors).values() if isinstance(kind, type)}
_ARRAYS = {"images": np.uint8, "timestamps": np.float64, "low_information": np.bool_}
_FIELDS = ("duration_s", "fps", "source_size", "crop", "warnings")


def decode_isolated(
    path: str | os.PathLike[str],
    *,
    fps: float = 1.0,
    short_side: int = 256,
    at_least: int = 28,
    crop_bars: bool | Box = True,
    start_s: float | None = None,
    end_s: float | None = None,
    threads: int = 0,
    limits: DecodeLimits = DecodeLimits(),  # noqa: B008 - frozen
) -> Frames:
    """`decode` in a process of its own, which is killed when `limits.seconds` have passed.

    Arguments, result and errors are those of `decode`; a crash of the decoder is a `DecodeError` as well. Starting the
    process takes about a quarter of a second.
    """
    settings = {
        "path": os.fspath(path), "fps": fps, "short_side": short_side, "at_least": at_least, "crop_bars": crop_bars,
        "start_s": start_s, "end_s": end_s, "threads": threads, "limits": asdict(limits),
    }  # fmt: skip
    return _run(python_command("hapvr.video.isolated", json.dumps(settings)), os.fspath(path), limits)


def _run(command: list[str], path: str, limits: DecodeLimits) -> Frames:
    """The answer of a child process, which is killed when time is up."""
    deadline = Deadline(limits, path)
    with tempfile.TemporaryFile() as complaints:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=complaints, env=child_environment()
        )
        assert child.stdout is not None
        killer = threading.Timer(limits.seconds, child.kill)
        killer.daemon = True
        killer.start()
        try:
            frames = read_frames(child.stdout, path, limits)
            if frames is not None:
                return frames
            code = child.wait()
        except CutShort:
            code = child.wait()
        finally:
            killer.cancel()
            child.kill()
            child.wait()
            child.stdout.close()
        deadline.check()
        complaints.seek(0)
        said = complaints.read()[-500:].decode(errors="replace").strip().splitlines()
        raise DecodeError(
            f"'{path}': the decoding process {how_ended(code)} without an answer{': ' + said[-1] if said else ''}. The "
            "file makes the decoder crash; leave it out."
        )


# --- what goes between the two ---------------------------------------------------------------------------------------


class CutShort(Exception):  # noqa: N818 - how it ended is for the caller to say
    """The child ended before its answer did."""


def read_frames(stream: IO[bytes], path: str, limits: DecodeLimits) -> Frames | None:
    """The next part of an answer; None if the child has said that there are no more.

    Raises:
        CutShort: the child ended without saying so.
        HapvrError: the error that the child reports; or a `DecodeError`, for an answer that makes no sense.
    """
    try:
        return _read(stream, path, limits)
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, errors.HapvrError):
            raise
        raise DecodeError(f"'{path}': the decoding process gave an answer that makes no sense.") from error


def _read(stream: IO[bytes], path: str, limits: DecodeLimits) -> Frames | None:
    line = stream.readline(_MOST_HEADER)
    if not line.endswith(b"\n"):
        raise CutShort
    header: dict[str, Any] = json.loads(line)
    if "error" in header:
        raise _ERRORS.get(header["error"], DecodeError)(header["message"])
    if "end" in header:
        return None
    shape = tuple(header["shape"])
    if len(shape) != 4 or not 0 < shape[0] <= limits.frames or not 0 < math.prod(shape[1:]) <= _MOST_BYTES:
        raise DecodeError(f"'{path}': the decoding process gave frames of an impossible shape {shape}.")
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for name, dtype in _ARRAYS.items():
        arrays[name] = np.empty(shape if name == "images" else shape[:1], dtype)
        view = arrays[name].data.cast("B")
        while len(view):
            count = stream.readinto(view)  # type: ignore[attr-defined]
            if not count:
                raise CutShort
            view = view[count:]
    fields = header["fields"]
    return Frames(
        **arrays,
        duration_s=fields["duration_s"],
        fps=fields["fps"],
        source_size=tuple(fields["source_size"]),
        crop=None if fields["crop"] is None else tuple(fields["crop"]),
        warnings=tuple(fields["warnings"]),
    )


def write_frames(stream: IO[bytes], frames: Frames) -> None:
    """A part of an answer."""
    header = {"shape": frames.images.shape, "fields": {name: getattr(frames, name) for name in _FIELDS}}
    stream.write(json.dumps(header).encode() + b"\n")
    for name in _ARRAYS:
        stream.write(getattr(frames, name).data.cast("B"))
    stream.flush()


def write_error(stream: IO[bytes], error: errors.HapvrError) -> None:
    """An answer that ends with an error."""
    stream.write(json.dumps({"error": type(error).__name__, "message": str(error)}).encode() + b"\n")
    stream.flush()


def write_end(stream: IO[bytes]) -> None:
    """Say that there are no more parts."""
    stream.write(json.dumps({"end": True}).encode() + b"\n")
    stream.flush()


def _main(settings: dict[str, Any], stream: IO[bytes]) -> None:
    """The child: decode, and write the answer."""
    settings["limits"] = DecodeLimits(**settings["limits"])
    if not isinstance(settings["crop_bars"], bool):
        settings["crop_bars"] = tuple(settings["crop_bars"])
    try:
        write_frames(stream, decode(settings.pop("path"), **settings))
    except errors.HapvrError as error:
        write_error(stream, error)


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]), sys.stdout.buffer)
