"""Decoding in another process, for files from strangers: a decoder that hangs or crashes takes nobody with it.

The process is in a sandbox (`hapvr.workers.sandbox`): it reads that file alone, and writes nothing.

The process answers on its standard output, part by part: one line of JSON, then the arrays as they lie in memory; at
the end a line that says so, or an error. Nothing that could run code is read back.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import IO, Any

import numpy as np

from hapvr import errors
from hapvr.errors import DecodeError
from hapvr.records import Frames
from hapvr.storage import StrPath
from hapvr.video.decode import decode_chunks
from hapvr.video.limits import Deadline, DecodeLimits, memory_error
from hapvr.video.sampling import SamplingConfig
from hapvr.workers.processes import ChildProcess, python_command
from hapvr.workers.sandbox import Sandbox, limit_processor_time

_GRACE_S = 1.0  # for the process to give up by itself, which it says better than its death does
_MAX_HEADER_BYTES = 1 << 20
_MAX_FRAME_BYTES = 1 << 30
_MAX_PART_BYTES = 1 << 33
_ERRORS = {kind.__name__: kind for kind in vars(errors).values() if isinstance(kind, type)}
_ARRAYS = {"images": np.uint8, "timestamps": np.float64, "low_information": np.bool_}
_FIELDS = ("duration_s", "fps", "source_size", "crop", "warnings")


def decode_isolated(
    path: StrPath,
    sampling: SamplingConfig,
    *,
    chunk: int = 128,
    start_s: float | None = None,
    end_s: float | None = None,
    limits: DecodeLimits = DecodeLimits(),  # noqa: B008 - frozen
    memory_bytes: int | None = Sandbox.max_memory_bytes,
    check: Callable[[], None] = lambda: None,
) -> Iterator[Frames]:
    """The frames of `decode_sampled`, some at a time, decoded in another process, which is killed if it hangs.

    A crash of the decoder is a `DecodeError`; the other errors are those of `decode_chunks`. Starting the process takes
    about a quarter of a second.

    Args:
        path: a file.
        sampling: which frames to take.
        chunk: how many of them are a part.
        start_s, end_s: the part of the video to read.
        limits: what it may cost; `seconds` for each part.
        memory_bytes: that the process may take; then `DecodeLimitError`.
        check: called before each part; may raise.
    """
    sampled = {"fps": sampling.fps, "short_side": sampling.short_side, "min_frames": sampling.at_least}
    span = {"start_s": start_s, "end_s": end_s}
    request = {"path": os.fspath(path), "chunk": chunk, "limits": asdict(limits)}
    sandbox = Sandbox(readable=(os.path.abspath(path),), max_memory_bytes=memory_bytes)
    command = python_command(__name__, json.dumps({**sampled, **span, **request}), sandbox=sandbox)
    return read_answers(command, os.fspath(path), limits, check=check, max_frames=limits.max_frames)


def read_answers(
    command: list[str],
    path: str,
    limits: DecodeLimits,
    *,
    check: Callable[[], None] = lambda: None,
    max_frames: int | None = None,
) -> Iterator[Frames]:
    """The parts that a process answers with; of a stream, which goes on, there may be any number of frames."""
    count = 0
    with ChildProcess(command) as child:
        while True:
            check()
            try:
                with child.limit_time(limits.max_seconds + _GRACE_S):
                    frames = _read_frames(child.answer, path, limits)
            except EOFError:
                break
            if frames is None:
                return
            count += len(frames)
            if max_frames is not None and count > max_frames:
                raise DecodeError(f"'{path}': the decoding process gave more than {max_frames} frames.")
            yield frames
            del frames  # it would stay while the next part is read
        how, said = child.wait(_GRACE_S)
        if child.late:
            raise Deadline(limits, path).error()
        raise DecodeError(
            f"'{path}': the decoding process {how} without an answer{': ' + said if said else ''}. The file makes the "
            "decoder crash; leave it out."
        )


# --- what goes between the two ---------------------------------------------------------------------------------------


def _read_frames(stream: IO[bytes], path: str, limits: DecodeLimits) -> Frames | None:
    """The next part of an answer; None if the process says that there are no more, `EOFError` if it ended without.

    Raises the error that the process reports; or a `DecodeError`, for an answer that makes no sense.
    """
    line = stream.readline(_MAX_HEADER_BYTES)
    if not line.endswith(b"\n"):
        raise EOFError
    try:
        header: dict[str, Any] = json.loads(line)
        if "error" in header:
            raise _ERRORS.get(header["error"], DecodeError)(header["message"])
        if "end" in header:
            return None
        shape = tuple(header["shape"])
        possible = len(shape) == 4 and min(shape) > 0 and shape[0] <= limits.max_frames
        if not possible or math.prod(shape[1:]) > _MAX_FRAME_BYTES or math.prod(shape) > _MAX_PART_BYTES:
            raise DecodeError(f"'{path}': the decoding process gave frames of an impossible shape {shape}.")
        arrays: dict[str, Any] = {}
        for name, dtype in _ARRAYS.items():
            arrays[name] = np.empty(shape if name == "images" else shape[:1], dtype)
            view = arrays[name].data.cast("B")
            while len(view):
                count = stream.readinto(view)  # type: ignore[attr-defined]
                if not count:
                    raise EOFError
                view = view[count:]
        fields = {name: header["fields"][name] for name in _FIELDS}  # JSON knows no tuples
        fields |= {name: tuple(value) for name, value in fields.items() if isinstance(value, list)}
        return Frames(**arrays, **fields)
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, errors.HapvrError):
            raise
        raise DecodeError(f"'{path}': the decoding process gave an answer that makes no sense.") from error


def _write_line(stream: IO[bytes], line: dict[str, Any]) -> None:
    stream.write(json.dumps(line).encode() + b"\n")
    stream.flush()


def write_answers(parts: Iterable[Frames], path: str, stream: IO[bytes], max_seconds: float) -> None:
    """What the process does: write the frames, and at the end that it is one, or what went wrong.

    It ends itself when it has computed for `max_seconds` on all cores without an answer: nobody else may be left.
    """
    limit_processor_time(max_seconds)
    try:
        for frames in parts:
            limit_processor_time(max_seconds)
            fields = {name: getattr(frames, name) for name in _FIELDS}
            _write_line(stream, {"shape": frames.images.shape, "fields": fields})
            for name in _ARRAYS:
                stream.write(getattr(frames, name).data.cast("B"))
            stream.flush()
        _write_line(stream, {"end": True})
    except errors.HapvrError as error:
        _write_error(stream, error)
    except MemoryError:
        _write_error(stream, memory_error(path))


def _write_error(stream: IO[bytes], error: errors.HapvrError) -> None:
    _write_line(stream, {"error": type(error).__name__, "message": str(error)})


def _main(request: dict[str, Any]) -> None:
    path = request.pop("path")
    limits = request["limits"] = DecodeLimits(**request["limits"])
    write_answers(decode_chunks(path, **request), path, sys.stdout.buffer, limits.max_seconds + _GRACE_S)


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
