"""Decoding in a process in a sandbox (`hapvr.workers.sandbox`), call by call: for `compare`, `search` and reports.

A process with a decoder takes about a third of a second to start. So one that has answered is kept for the next call,
until this process ends. A call that is late, or whose decoder crashes, costs that process and no more.

Within a sandbox, and in a worker process, which can start no other, the functions are called as they are.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from hapvr.errors import DecodeError, HapvrError
from hapvr.storage import StrPath
from hapvr.video.limits import GRACE_S, NO_SENSE, Deadline, DecodeLimits, make_error, memory_error
from hapvr.workers.answers import NONSENSE, Bytes, dump_answer, load_answer
from hapvr.workers.pool import Block, Task, TaskContext, TaskQueue, TaskResult, WorkerPool
from hapvr.workers.sandbox import Sandbox, find_protections, is_in_sandbox

T = TypeVar("T")

_MAX_IDLE = 2  # processes that are kept
_BLOCK_BYTES = 2**23
_MAX_ANSWER_BYTES = Sandbox.max_memory_bytes or 2**33  # a process cannot have more to say
_START_S = 30.0  # for a process to start, on a machine that is busy


def call_sandboxed(function: Callable[..., T], path: StrPath, *arguments: Any, **options: Any) -> T:
    """What `function(path, ...)` gives or raises, called in a process in a sandbox that can open this file alone.

    It is a function of a module that answers with plain values, arrays and dataclasses. If it has `limits`
    (`DecodeLimits`) among its options, the process is ended when it is late; else after the default of those.
    """
    if _must_call_here():
        return function(path, *arguments, **options)
    (answer,) = _ask(_Request(function, _find_path(path), arguments, options, several=False))
    return answer  # type: ignore[no-any-return]


def iterate_sandboxed(
    function: Callable[..., Iterator[T]], path: StrPath, *arguments: Any, **options: Any
) -> Iterator[T]:
    """As `call_sandboxed`, of a function that gives its answer in parts: the next is made while one is looked at."""
    if _must_call_here():
        return function(path, *arguments, **options)
    return _ask(_Request(function, _find_path(path), arguments, options, several=True))


def start_decoder() -> None:
    """Start a process for the next call, if there is none: it loads while this one does something else."""
    with _lock:
        if not _idle and not _must_call_here():
            _idle.append(_Decoder())


def end_decoders() -> None:
    """End the processes that are kept for the next call; they end with this process anyway."""
    with _lock:
        ended, _idle[:] = list(_idle), []
    for decoder in ended:
        decoder.close()


def _must_call_here() -> bool:
    return is_in_sandbox() or multiprocessing.current_process().daemon


def _find_path(path: StrPath) -> str:
    """The path; absolute where the process opens it itself, whose current folder may be another by now."""
    return os.fspath(path) if find_protections().files else os.path.abspath(path)


# --- in the process --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Request:
    function: Callable[..., Any]
    path: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    several: bool  # whether the function gives an iterator

    @property
    def limits(self) -> DecodeLimits:
        limits: DecodeLimits = self.options.get("limits", DecodeLimits())
        return limits


def _answer(context: TaskContext, request: _Request | None) -> tuple[str, str] | None:
    """Do what is asked for; the name and the text of the error, if there was one."""
    if request is None:  # only to be ready
        import hapvr.video.decode  # noqa: F401

        return None
    try:
        found = request.function(request.path, *request.arguments, **request.options)
        for value in found if request.several else (found,):
            _send(context, value)
    except (HapvrError, MemoryError) as raised:
        error = memory_error(request.path) if isinstance(raised, MemoryError) else raised
        return type(error).__name__, str(error)
    return None


def _send(context: TaskContext, value: Any) -> None:
    """Hand over a value: all but its arrays, and then their bytes in blocks."""
    rest, arrays = dump_answer(value)
    context.block()
    context.send((rest, tuple(map(len, arrays))))
    for array in arrays:
        for start in range(0, len(array), _BLOCK_BYTES):
            piece = array[start : start + _BLOCK_BYTES]
            context.block()[: len(piece)] = piece
            context.send(len(piece))


# --- in the process that asks ----------------------------------------------------------------------------------------


class _Decoder:
    """A process in a sandbox that answers one request at a time."""

    def __init__(self) -> None:
        self.is_idle = True
        self._count = 0
        self._tasks: deque[Task] = deque([(0, None)])
        self._started_s = time.monotonic()
        self._pool = WorkerPool(
            _answer,
            TaskQueue(self._tasks),
            workers=1,
            block_bytes=_BLOCK_BYTES,
            sandbox=Sandbox(),
            file_of=lambda request: "" if request is None else request.path,
        )

    def close(self) -> None:
        """End the process, whatever it does."""
        self._pool.close()

    def ask(self, request: _Request) -> Iterator[Any]:
        """The values that the process answers with, or its error. If it is not idle then, it is of no more use."""
        self._count += 1
        self.is_idle = False
        self._tasks.append((self._count, request))
        limit_s = request.limits.max_seconds + GRACE_S
        end_s = max(time.monotonic(), self._started_s + _START_S) + limit_s
        coming: _Coming | None = None
        while True:
            events = self._pool.wait(max(0.0, end_s - time.monotonic()))
            for event in events:
                if event.key != self._count:
                    continue  # it is ready
                if isinstance(event, TaskResult):
                    self.is_idle = event.error is None
                    _raise_error(event, request.path)
                    return
                try:
                    coming = _Coming(event.note) if coming is None else coming.add(event)
                    found = [coming.load()] if coming.is_whole() else []
                except NONSENSE as error:
                    raise DecodeError(f"'{request.path}': {NO_SENSE}") from error
                self._pool.release(event)
                if found:
                    coming = None
                    yield found.pop()  # which is not kept here while the next one is made
            if events:
                end_s = time.monotonic() + limit_s
            elif time.monotonic() >= end_s:
                raise Deadline(request.limits, request.path).error()


class _Coming:
    """A value of which not all has come yet. What makes no sense is one of `NONSENSE`."""

    def __init__(self, note: Any) -> None:
        self._rest, sizes = note
        if not all(type(size) is int and size >= 0 for size in sizes) or sum(sizes) > _MAX_ANSWER_BYTES:
            raise ValueError("arrays of impossible sizes")
        self._arrays = [np.empty(size, np.uint8) for size in sizes]  # which takes memory as it is filled
        self._gaps: deque[Bytes] = deque(array for array in self._arrays if len(array))

    def add(self, block: Block) -> _Coming:
        """Fill in the next bytes."""
        size = block.note
        if type(size) is not int or not 0 < size <= min(len(self._gaps[0]), len(block.data)):
            raise ValueError("a block of an impossible size")
        self._gaps[0][:size] = block.data[:size]
        self._gaps[0] = self._gaps[0][size:]
        if not len(self._gaps[0]):
            self._gaps.popleft()
        return self

    def is_whole(self) -> bool:
        """Whether all has come."""
        return not self._gaps

    def load(self) -> Any:
        """The value."""
        return load_answer(self._rest, self._arrays)


def _raise_error(end: TaskResult, path: str) -> None:
    if end.error is not None:
        raise DecodeError(f"'{path}': {end.error}. The file makes the decoder crash; leave it out.")
    if end.value is not None:
        name, text = map(str, end.value) if isinstance(end.value, tuple) and len(end.value) == 2 else ("", "")
        raise make_error(name, text or f"'{path}': {NO_SENSE}")


_idle: list[_Decoder] = []
_lock = threading.Lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)  # they answer the process that started them


def _ask(request: _Request) -> Iterator[Any]:
    """The answer of a process that is idle, or else of a new one."""
    with _lock:
        decoder = _idle.pop() if _idle else None
    decoder = decoder or _Decoder()
    try:
        yield from decoder.ask(request)
    finally:
        with _lock:
            kept = decoder.is_idle and len(_idle) < _MAX_IDLE
            if kept:
                _idle.append(decoder)
        if not kept:
            decoder.close()
