"""The sound of files from strangers, read in another process: a decoder that hangs or crashes takes nobody with it.

The process is in a sandbox (`hapvr.workers.sandbox`): it reads that file alone, and writes nothing. It answers with one
line of JSON on its standard output.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from typing import Any, get_args

import numpy as np

from hapvr.audio.description import SoundDescription, SoundState, describe_sound
from hapvr.audio.fingerprints import BINS, Fingerprint
from hapvr.errors import DecodeError
from hapvr.storage import StrPath
from hapvr.video.limits import DecodeLimits, memory_error
from hapvr.workers.processes import ChildProcess, python_command
from hapvr.workers.sandbox import Sandbox, limit_processor_time

_GRACE_S = 1.0  # for the process to give up by itself, which it says better than its death does
_START_S = 10.0  # for the process to start
_MAX_ANSWER_BYTES = 1 << 27  # a day of sound is a quarter of this
_MAX_FRAMES = 2**31  # of a fingerprint, in time


def describe_sound_isolated(
    path: StrPath,
    *,
    start_s: float | None = None,
    end_s: float | None = None,
    limits: DecodeLimits = DecodeLimits(),  # noqa: B008 - frozen
    memory_bytes: int | None = Sandbox.max_memory_bytes,
) -> SoundDescription:
    """What `describe_sound` gives, from another process, which is killed if it is late; what goes wrong is "failed".

    Args:
        path: a file.
        start_s, end_s: the part of it to read.
        limits: what it may cost; `max_seconds` in all.
        memory_bytes: that the process may take.
    """
    request = {"path": os.fspath(path), "start_s": start_s, "end_s": end_s, "limits": asdict(limits)}
    sandbox = Sandbox(readable=(os.path.abspath(path),), max_memory_bytes=memory_bytes)
    return read_answer(python_command(__name__, json.dumps(request), sandbox=sandbox), limits)


def read_answer(command: list[str], limits: DecodeLimits) -> SoundDescription:
    """The answer of a process that reads a sound."""
    with ChildProcess(command) as child:
        with child.limit_time(limits.max_seconds + _START_S):
            line = child.answer.readline(_MAX_ANSWER_BYTES)
        if not line.endswith(b"\n"):
            if child.late:
                return _fail(f"it took longer than {limits.max_seconds:g} s.")
            how, _ = child.wait(_GRACE_S)
            return _fail(f"the decoding process {how} without an answer.")
    try:
        return _parse(json.loads(line))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return _fail("the decoding process gave an answer that makes no sense.")


def _fail(why: str) -> SoundDescription:
    return SoundDescription("failed", warning=why)


def _parse(answer: dict[str, Any]) -> SoundDescription:
    """A sound from an answer; an error of `read_answer` if it makes no sense."""
    frames, bins = (np.array(answer[name], np.int64) for name in ("frames", "bins"))
    state, seconds, warning = answer["state"], answer["seconds"], answer["warning"]
    possible = (
        state in get_args(SoundState)
        and isinstance(seconds, int | float)
        and isinstance(warning, str | None)
        and frames.ndim == 1
        and frames.shape == bins.shape
        and bool((np.abs(frames) < _MAX_FRAMES).all() and (np.diff(frames) >= 0).all())
        and bool(((bins >= 0) & (bins < BINS)).all())
    )
    if not possible:
        raise ValueError("no sound has such a description")
    return SoundDescription(state, Fingerprint(frames, bins), float(seconds), warning)


def _main(request: dict[str, Any]) -> None:
    path = request.pop("path")
    limits = request["limits"] = DecodeLimits(**request["limits"])
    limit_processor_time(limits.max_seconds + _START_S)
    try:
        found = describe_sound(path, **request)
    except DecodeError as error:
        found = _fail(str(error))
    except MemoryError:
        found = _fail(str(memory_error(path)))
    answer = {"frames": found.peaks.frames.tolist(), "bins": found.peaks.bins.tolist()}
    print(json.dumps(answer | {"state": found.state, "seconds": found.seconds, "warning": found.warning}), flush=True)


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
