"""A call in a process of its own, for files from strangers: a decoder that hangs or crashes takes nobody with it.

The process is in a sandbox (`hapvr.workers.sandbox`), and its environment holds nothing that looks like a secret. It
answers on its standard output, value by value: a line of JSON with sizes, then the value as `hapvr.workers.answers` has
it; at the end a line that says so, or an error. Nothing that could run code is read back.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import IO, Any, TypeVar

import numpy as np

from hapvr.errors import DecodeError, HapvrError
from hapvr.records import Box, Frames
from hapvr.storage import StrPath
from hapvr.video.decode import decode_chunks
from hapvr.video.limits import GRACE_S, NO_SENSE, Deadline, DecodeLimits, make_error, memory_error
from hapvr.video.sampling import SamplingConfig
from hapvr.workers.answers import NONSENSE, Bytes, dump_answer, load_answer
from hapvr.workers.processes import ChildProcess, python_command
from hapvr.workers.sandbox import Sandbox, limit_processor_time

Value = TypeVar("Value")

_MAX_HEADER_BYTES = 1 << 20
_MAX_VALUE_BYTES = 1 << 33


def decode_isolated(
    path: StrPath,
    sampling: SamplingConfig,
    *,
    chunk: int = 128,
    start_s: float | None = None,
    end_s: float | None = None,
    crop: Box | None = None,
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
        crop: the part of each frame to read; None: all of it but black bars.
        limits: what it may cost; `max_seconds` for each part.
        memory_bytes: that the process may take; then `DecodeLimitError`.
        check: called before each part; may raise.
    """
    name = os.fspath(path)
    sampled: dict[str, Any] = {"fps": sampling.fps, "short_side": sampling.short_side, "min_frames": sampling.at_least}
    sampled["crop_bars"] = crop or True
    call = partial(decode_chunks, name, chunk=chunk, start_s=start_s, end_s=end_s, limits=limits, **sampled)
    sandbox = Sandbox(readable=(os.path.abspath(path),), max_memory_bytes=memory_bytes)
    count = 0
    for frames in iterate_isolated(call, Frames, name=name, limits=limits, sandbox=sandbox, check=check):
        count += len(frames)
        if count > limits.max_frames:
            raise DecodeError(f"'{name}': the decoding process gave more than {limits.max_frames} frames.")
        yield frames
        del frames  # it would stay while the next part is read


def iterate_isolated(
    call: Callable[[], Iterable[Any]],
    kind: type[Value],
    *,
    name: str,
    limits: DecodeLimits,
    sandbox: Sandbox,
    check: Callable[[], None] = lambda: None,
) -> Iterator[Value]:
    """The values that a call gives, one by one, made in a process of its own.

    Args:
        call: a function of a module and its arguments, as `partial` joins them.
        kind: what the values are; a process that gives another is not believed.
        name: of the file, in errors.
        limits: `max_seconds` is the time for each value.
        sandbox: what the process may do.
        check: called before each value; may raise.
    """
    request = pickle.dumps((call, name, limits.max_seconds + GRACE_S)).hex()
    return read_answers(python_command(__name__, request, sandbox=sandbox), kind, name, limits, check=check)


def read_answers(
    command: list[str], kind: type[Value], name: str, limits: DecodeLimits, *, check: Callable[[], None] = lambda: None
) -> Iterator[Value]:
    """The values that a process answers with; its error, or a `DecodeError` if it crashes or makes no sense."""
    with ChildProcess(command) as child:
        while True:
            check()
            try:
                with child.limit_time(limits.max_seconds + GRACE_S):
                    found = _read_value(child.answer, kind, name)
            except EOFError:
                break
            if not found:
                return
            yield found.pop()  # which is not kept here while the next one is made
        how, said = child.wait(GRACE_S)
        if child.late:
            raise Deadline(limits, name).error()
        raise DecodeError(
            f"'{name}': the decoding process {how} without an answer{': ' + said if said else ''}. The file makes the "
            "decoder crash; leave it out."
        )


# --- what goes between the two ---------------------------------------------------------------------------------------


def _read_value(stream: IO[bytes], kind: type[Value], name: str) -> list[Value]:
    """The next value; nothing if the process says that there are no more, `EOFError` if it ended without.

    Raises the error that the process reports; or a `DecodeError`, for an answer that makes no sense.
    """
    line = stream.readline(_MAX_HEADER_BYTES)
    if not line.endswith(b"\n"):
        raise EOFError
    reported: HapvrError | None = None
    try:
        header: dict[str, Any] = json.loads(line)
        if "error" in header:
            reported = make_error(header["error"], header["message"])
        elif "end" in header:
            return []
        elif sum(header["sizes"]) > _MAX_VALUE_BYTES:
            raise ValueError("more bytes than a value can have")
        else:
            text, *arrays = (_read_bytes(stream, size) for size in header["sizes"])
            value = load_answer(text.tobytes(), arrays)
            if isinstance(value, kind):
                return [value]
    except NONSENSE as error:
        raise DecodeError(f"'{name}': {NO_SENSE}") from error
    raise reported or DecodeError(f"'{name}': {NO_SENSE}")


def _read_bytes(stream: IO[bytes], size: int) -> Bytes:
    data = np.empty(size, np.uint8)  # which takes memory as it is filled
    view = data.data
    while len(view):
        count = stream.readinto(view)  # type: ignore[attr-defined]
        if not count:
            raise EOFError
        view = view[count:]
    return data


def _answer(call: Callable[[], Iterable[Any]], name: str, max_seconds: float) -> None:
    """What the process does: write the values, and at the end that it is one, or what went wrong.

    It ends itself when it has computed for `max_seconds` on all cores without an answer: nobody else may be left.
    """

    def write(header: dict[str, Any], *data: Any) -> None:
        for one in (json.dumps(header).encode() + b"\n", *data):
            sys.stdout.buffer.write(one)
        sys.stdout.buffer.flush()
        limit_processor_time(max_seconds)

    limit_processor_time(max_seconds)
    try:
        for value in call():
            text, arrays = dump_answer(value)
            write({"sizes": [len(text), *map(len, arrays)]}, text, *arrays)
        write({"end": True})
    except (HapvrError, MemoryError) as raised:
        error = memory_error(name) if isinstance(raised, MemoryError) else raised
        write({"error": type(error).__name__, "message": str(error)})


if __name__ == "__main__":
    _answer(*pickle.loads(bytes.fromhex(sys.argv[1])))  # noqa: S301 - of the process that starts it
