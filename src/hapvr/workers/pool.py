"""Worker processes that fill blocks of shared memory: one that dies or hangs loses only its task.

Each worker has its own pipe and blocks, and no lock is shared: killed at any moment, it leaves nothing behind that
another could wait for. It works on one task and has the next one already, so that it need not wait for this process,
which may be busy. A block goes back to its worker when it has been used; a worker without a free block waits.

In a sandbox a worker opens no file by its name: this process opens what a task names and hands it over. Its answers are
not trusted: see `hapvr.workers.answers`.

Neither torch nor a decoder is imported here: a worker loads what it uses, and no more.
"""

from __future__ import annotations

import os
import pickle
import signal
import struct
import sys
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import ForkingPickler
from typing import Any

from hapvr.errors import HapvrError
from hapvr.workers.answers import NONSENSE, Bytes, join_answer, split_answer
from hapvr.workers.processes import format_exit, spawn_context
from hapvr.workers.sandbox import (
    Sandbox,
    find_protections,
    hold_file,
    is_in_sandbox,
    limit_processor_time,
    open_given,
    run_in_sandbox,
)  # fmt: skip
from hapvr.workers.shared_memory import SharedMemory, open_shared

Task = tuple[Hashable, Any]  # its key, and what `work` takes


class TaskQueue(Iterator[Task]):
    """Tasks that come while others are worked on. It ends when there is none, and goes on when there are more.

    >>> waiting = deque([("a", 1)])
    >>> queue = TaskQueue(waiting)
    >>> list(queue), waiting.append(("b", 2)), list(queue)
    ([('a', 1)], None, [('b', 2)])
    """

    def __init__(self, tasks: deque[Task]) -> None:
        self._tasks = tasks

    def __next__(self) -> Task:
        try:
            return self._tasks.popleft()
        except IndexError:
            raise StopIteration from None


_TASKS_EACH = 2  # of a worker: the one it works on and the next
_CHECK_S = 1.0  # how often to look for workers that hang
_GONE = (EOFError, OSError)  # what a pipe raises whose other end is dead
_MAX_ANSWER_BYTES = 2**28
_READ_BYTES = 2**20  # of answers at a time


class _ParentGoneError(BaseException):
    """Nobody is left who would want the answer."""


class TaskContext:
    """What `work(context, task)` is given in a worker: blocks to fill, and the way back."""

    def __init__(self, pipe: Connection, memory: Bytes, blocks: int, timeout_s: float) -> None:
        self._pipe, self._timeout_s = pipe, timeout_s
        self._blocks = memory.reshape(blocks, -1)
        self._free = deque(range(blocks))
        self._tasks: deque[tuple[Any, AbstractContextManager[None]]] = deque()

    def block(self) -> Bytes:
        """A block to fill, uint8 [bytes]; the same again until it is sent. Waits until there is one."""
        while not self._free:
            self._receive()
        block: Bytes = self._blocks[self._free[0]]
        return block

    def send(self, note: Any) -> None:
        """Hand over the block, with a note that says what is in it."""
        self._answer(self._free.popleft(), note, None)

    def next_task(self) -> tuple[Any, AbstractContextManager[None]]:
        """The next task, and a context in which its file is open. Waits until there is one."""
        while not self._tasks:
            self._receive()
        limit_processor_time(self._timeout_s)
        return self._tasks.popleft()

    def finish(self, value: Any, error: str | None) -> None:
        """Say that a task is over."""
        self._answer(None, value, error)

    def _answer(self, *message: Any) -> None:
        try:
            if is_in_sandbox():
                self._pipe.send_bytes(join_answer(message))
            else:
                self._pipe.send(message)
        except _GONE as error:
            raise _ParentGoneError from error
        limit_processor_time(self._timeout_s)

    def _receive(self) -> None:
        try:
            message = self._pipe.recv()
            if isinstance(message, int):
                self._free.append(message)
                return
            task, path = message
            given: AbstractContextManager[None] = nullcontext()
            if path is not None:
                from multiprocessing.reduction import recv_handle

                given = hold_file(path, recv_handle(self._pipe))
            self._tasks.append((task, given))
        except _GONE as error:
            raise _ParentGoneError from error


def _run_worker(
    work: Callable[[TaskContext, Any], Any],
    pipe: Connection,
    shared: int | str,
    size: int,
    blocks: int,
    timeout_s: float,
) -> None:
    """All that a worker does, from its start to its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the process that started them decides
    with suppress(_ParentGoneError):
        context = TaskContext(pipe, open_shared(shared, size), blocks, timeout_s)
        while True:
            task, given = context.next_task()
            try:
                with given:
                    value = work(context, task)
                context.finish(value, None)
            except HapvrError as error:
                context.finish(None, str(error))
            except Exception as error:  # of a library, on unforeseen input: this fails the task, not the worker
                context.finish(None, f"{type(error).__name__}: {error}")


class _Inbox:
    """The messages of a worker. The rest of one is not waited for: a worker may send half of it and stop."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._data = pipe, bytearray()

    def read(self) -> list[bytes]:
        """Those that are whole, if the pipe has something to say; one of `_GONE` when it has ended."""
        if sys.platform == "win32":
            return [self._pipe.recv_bytes(_MAX_ANSWER_BYTES)]
        data = os.read(self._pipe.fileno(), _READ_BYTES)
        if not data:
            raise EOFError
        self._data += data
        found, start = [], 0
        while len(self._data) - start >= 4:  # a message of `Connection` begins with its length
            (size,) = struct.unpack_from("!i", self._data, start)
            if not 0 <= size <= _MAX_ANSWER_BYTES:
                raise EOFError
            if len(self._data) - start - 4 < size:
                break
            found.append(bytes(self._data[start + 4 : start + 4 + size]))
            start += 4 + size
        del self._data[:start]
        return found


@dataclass(eq=False)
class _Worker:
    process: Any
    pipe: Connection
    inbox: _Inbox
    memory: SharedMemory
    tasks: deque[Task] = field(default_factory=deque)
    blocks_out: int = 0  # filled, and not given back yet
    active_s: float = field(default_factory=time.monotonic)  # when it last sent something, or was given something


@dataclass(frozen=True, eq=False)
class Block:
    """A block that was filled. `data` is valid until it is given back with `WorkerPool.release`."""

    key: Hashable
    data: Bytes
    note: Any
    slot: int
    worker: _Worker


@dataclass(frozen=True)
class TaskResult:
    """The end of a task, after all its blocks: what `work` returned, or what was wrong."""

    key: Hashable
    value: Any
    error: str | None


class WorkerPool(AbstractContextManager["WorkerPool"]):
    """Runs `work(context, task)` in processes; use it in a `with` block.

    Args:
        work: a function at the top of a module.
        tasks: keys and tasks, taken as they are needed.
        workers: processes.
        block_bytes: size of a block.
        blocks: of each worker.
        timeout_s: a worker that has a block to fill and is silent for this long is killed.
        pin: let the GPU read the blocks itself.
        sandbox: what the processes may do; None for all that this one may.
        file_of: the path of the file that a task is about, which a process in a sandbox is handed open.
    """

    def __init__(
        self,
        work: Callable[[TaskContext, Any], Any],
        tasks: Iterable[Task],
        *,
        workers: int,
        block_bytes: int,
        blocks: int = 2,
        timeout_s: float = 960.0,
        pin: bool = False,
        sandbox: Sandbox | None = None,
        file_of: Callable[[Any], str] | None = None,
    ) -> None:
        self._work, self._blocks, self._block_bytes = work, blocks, block_bytes
        self._timeout_s, self._pin = timeout_s, pin
        self._sandbox = sandbox
        self._file_of = file_of if sandbox is not None and find_protections().files else None
        self._tasks: Iterator[Task] = iter(tasks)
        self._again: deque[Task] = deque()  # tasks that a dead worker had not begun
        self._workers: list[_Worker] = []
        self._memories: list[SharedMemory] = []
        try:
            for _ in range(workers):
                if (task := self._next()) is None:
                    break
                self._start(task)
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers, whatever they are doing, and give the memory back."""
        for worker in self._workers:
            worker.process.kill()
            worker.pipe.close()
        for worker in self._workers:
            worker.process.join()
        self._workers.clear()
        for memory in self._memories:
            memory.close()
        self._memories.clear()

    @property
    def busy(self) -> bool:
        """Whether there is anything to wait for."""
        return any(worker.tasks for worker in self._workers)

    def wait(self, timeout_s: float | None = None, *, also: Iterable[Any] = ()) -> list[Block | TaskResult]:
        """What has come in; waits for it, or for one of `also` (things with a descriptor), or until time is up."""
        events: list[Block | TaskResult] = []
        pipes = {worker.pipe: worker for worker in self._workers}
        self._give_tasks()
        for ready in wait([*pipes, *also], _CHECK_S if timeout_s is None else min(timeout_s, _CHECK_S)):
            if (worker := pipes.get(ready)) is not None:  # type: ignore[call-overload]
                events += self._receive(worker)
        now = time.monotonic()
        for worker in self._workers:
            if worker.tasks and worker.blocks_out < self._blocks and now - worker.active_s > self._timeout_s:
                worker.process.kill()  # what it worked on is reported when its pipe ends
                worker.active_s = now
        self._give_tasks()
        return events

    def release(self, block: Block) -> None:
        """Give a block back to the worker that filled it."""
        block.worker.blocks_out -= 1
        block.worker.active_s = time.monotonic()
        with suppress(*_GONE):
            block.worker.pipe.send(block.slot)

    def _next(self) -> Task | None:
        return self._again.popleft() if self._again else next(self._tasks, None)

    def _start(self, task: Task) -> None:
        """Start a worker with its first task."""
        size = self._blocks * self._block_bytes
        memory = SharedMemory(size, pin=self._pin)
        self._memories.append(memory)
        context = spawn_context()
        here, there = context.Pipe()
        run = bytes(ForkingPickler.dumps(partial(_run_worker, self._work)))
        arguments = (self._sandbox, run, there, memory.share(), size, self._blocks, self._timeout_s)
        process = context.Process(target=run_in_sandbox, args=arguments, daemon=True)
        process.start()
        there.close()
        worker = _Worker(process, here, _Inbox(here), memory)
        self._workers.append(worker)
        self._give(worker, task)

    def _give(self, worker: _Worker, task: Task) -> None:
        if not worker.tasks:
            worker.active_s = time.monotonic()
        worker.tasks.append(task)
        path = None if self._file_of is None else self._file_of(task[1])
        descriptor = None
        with suppress(OSError, ValueError):  # it fails in the worker as it does here
            descriptor = None if path is None else open_given(path)
        try:
            with suppress(*_GONE):
                worker.pipe.send((task[1], path if descriptor is not None else None))
                if descriptor is not None:
                    from multiprocessing.reduction import send_handle

                    send_handle(worker.pipe, descriptor, worker.process.pid)
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def _give_tasks(self) -> None:
        for count in range(_TASKS_EACH):  # to each its first before any has a second
            for worker in self._workers:
                if len(worker.tasks) == count and (task := self._next()) is not None:
                    self._give(worker, task)

    def _receive(self, worker: _Worker) -> list[Block | TaskResult]:
        events: list[Block | TaskResult] = []
        try:
            for answer in worker.inbox.read():
                events.append(self._read(worker, answer))
                worker.active_s = time.monotonic()
        except _GONE:
            events += self._replace(worker)
        except (*NONSENSE, pickle.UnpicklingError):
            worker.process.kill()
            events += self._replace(worker)
        return events

    def _read(self, worker: _Worker, answer: bytes) -> Block | TaskResult:
        """What a worker says; one of `NONSENSE` if it makes none."""
        slot, note, error = ForkingPickler.loads(answer) if self._sandbox is None else split_answer(answer)
        if slot is None and isinstance(error, str | None):
            return TaskResult(worker.tasks.popleft()[0], note, error)
        if type(slot) is not int or not 0 <= slot < self._blocks or worker.blocks_out >= self._blocks:
            raise ValueError("a block that a worker does not have")
        worker.blocks_out += 1
        data = worker.memory.data.reshape(self._blocks, -1)[slot]
        return Block(worker.tasks[0][0], data, note, slot, worker)

    def _replace(self, worker: _Worker) -> list[Block | TaskResult]:
        """A worker has ended: its task is lost, the one that waited is done by another."""
        worker.process.join(5.0)
        worker.process.kill()
        worker.process.join()
        worker.pipe.close()
        self._workers.remove(worker)
        lost: list[Block | TaskResult] = []
        if worker.tasks:
            how = format_exit(worker.process.exitcode)
            lost = [TaskResult(worker.tasks.popleft()[0], None, f"the process that read it {how}")]
        self._again.extend(worker.tasks)
        worker.tasks.clear()
        if (task := self._next()) is not None:
            self._start(task)
        return lost


def run_tasks(
    work: Callable[[TaskContext, Any], Any],
    tasks: Iterable[Task],
    *,
    workers: int,
    sandbox: Sandbox | None = None,
    file_of: Callable[[Any], str] | None = None,
) -> Iterator[TaskResult]:
    """The results of tasks whose answers are small, without blocks, as they come. See `WorkerPool`."""
    with WorkerPool(work, tasks, workers=workers, block_bytes=1, sandbox=sandbox, file_of=file_of) as pool:
        while pool.busy:
            yield from (event for event in pool.wait() if isinstance(event, TaskResult))
