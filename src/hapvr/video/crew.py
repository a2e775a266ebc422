"""Processes that fill blocks of memory they share with this one: a process that dies or hangs loses only its task.

Each process has a pipe and blocks of its own, and no lock is shared: killed at any moment, it leaves nothing behind
that another could wait for. It takes up one task at a time and has the next at hand, so that it need not wait for this
process, which may be busy. A block goes back to its process when it has been used; who has none left, waits.

This module and `crew_work` import neither torch nor a decoder at the top: a process loads what it uses, and no more.
"""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hapvr.errors import HapvrError
from hapvr.processes import how_ended, spawn_context

Bytes = NDArray[np.uint8]
_AT_HAND = 2  # tasks of a process: the one it is at and the next
_LOOK_S = 1.0  # how often to look for processes that hang
_GONE = (EOFError, OSError)  # what a pipe raises whose other end is dead


class _Alone(BaseException):
    """Whoever would want the answer is gone."""


class Desk:
    """What a process works at: blocks to fill, and the way back. `work(desk, task)` is called with it."""

    def __init__(self, pipe: Connection, memory: Any, blocks: int) -> None:
        self._pipe = pipe
        self._blocks: Bytes = np.frombuffer(memory, np.uint8).reshape(blocks, -1)
        self._free = deque(range(blocks))
        self._tasks: deque[tuple[Hashable, Any] | None] = deque()

    def block(self) -> Bytes:
        """A block to fill, uint8 [bytes]; the same again until it is sent. Waits until there is one."""
        while not self._free:
            self._listen()
        block: Bytes = self._blocks[self._free[0]]
        return block

    def send(self, note: Any) -> None:
        """Hand over the block, with a note that says what is in it."""
        self._answer(self._free.popleft(), note, None)

    def _answer(self, *message: Any) -> None:
        try:
            self._pipe.send(message)
        except _GONE as error:
            raise _Alone from error

    def _listen(self) -> None:
        try:
            message = self._pipe.recv()
        except _GONE as error:
            raise _Alone from error
        if isinstance(message, int):
            self._free.append(message)
        else:
            self._tasks.append(message)

    def task(self) -> tuple[Hashable, Any] | None:
        """The next task and its key; None if there will be no more."""
        while not self._tasks:
            self._listen()
        return self._tasks.popleft()

    def end(self, note: Any, error: str | None) -> None:
        """Say that a task is over."""
        self._answer(None, note, error)


def _serve(work: Callable[[Desk, Any], Any], pipe: Connection, memory: Any, blocks: int) -> None:
    """The life of a process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the one who has begun it all decides
    desk = Desk(pipe, memory, blocks)
    with suppress(_Alone):
        while (item := desk.task()) is not None:
            try:
                desk.end(work(desk, item[1]), None)
            except HapvrError as error:
                desk.end(None, str(error))
            except Exception as error:  # of a library, on input that nobody thought of: this task's, not the crew's
                desk.end(None, f"{type(error).__name__}: {error}")


@dataclass
class _Member:
    process: Any
    pipe: Connection
    memory: Any
    tasks: deque[tuple[Hashable, Any]] = field(default_factory=deque)
    out: int = 0  # blocks that are here
    since: float = field(default_factory=time.monotonic)  # when it was last heard of, or given something


@dataclass(frozen=True, eq=False)
class Block:
    """A block that was filled. `data` is valid until it is given back with `Crew.release`."""

    key: Hashable
    data: Bytes
    note: Any
    slot: int
    member: _Member


@dataclass(frozen=True)
class Ended:
    """The end of a task, after all its blocks: what `work` returned, or what was wrong."""

    key: Hashable
    note: Any
    error: str | None


class Crew:
    """Runs `work(desk, task)` in processes; use it in a `with` block.

    Args:
        work: a function at the top of a module.
        tasks: keys and tasks, taken as they are needed.
        workers: processes.
        block_bytes: size of a block.
        blocks: of each process.
        patience_s: a process that has a block to fill and is silent for so long is killed.
        adopt: called with each process's memory, and what it returns when the crew goes home.
    """

    def __init__(
        self,
        work: Callable[[Desk, Any], Any],
        tasks: Iterable[tuple[Hashable, Any]],
        *,
        workers: int,
        block_bytes: int,
        blocks: int = 2,
        patience_s: float = 960.0,
        adopt: Callable[[Bytes], Callable[[], None]] | None = None,
    ) -> None:
        self._work, self._blocks, self._block_bytes = work, blocks, block_bytes
        self._patience_s = patience_s
        self._adopt = adopt
        self._letting_go: list[Callable[[], None]] = []
        self._context = spawn_context()
        self._tasks: Iterator[tuple[Hashable, Any]] = iter(tasks)
        self._again: deque[tuple[Hashable, Any]] = deque()  # what a dead process had at hand
        self._members: list[_Member] = []
        for _ in range(workers):
            if (task := self._next()) is None:
                break
            self._hire(task)

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self._members:
            member.process.kill()
            member.pipe.close()
        for member in self._members:
            member.process.join()
        self._members.clear()
        for let_go in self._letting_go:
            let_go()

    @property
    def busy(self) -> bool:
        """Whether there is anything to wait for."""
        return any(member.tasks for member in self._members)

    def wait(self, timeout_s: float | None = None, *, also: Iterable[Any] = ()) -> list[Block | Ended]:
        """What has come in; waits for it, or for one of `also` (things with a descriptor), or until time is up."""
        events: list[Block | Ended] = []
        pipes = {member.pipe: member for member in self._members}
        self._give_tasks()
        patience = _LOOK_S if timeout_s is None else min(timeout_s, _LOOK_S)
        for ready in wait([*pipes, *also], patience):
            member = pipes.get(ready)  # type: ignore[call-overload]
            if member is not None:
                events += self._heard(member)
        now = time.monotonic()
        for member in self._members:
            if member.tasks and member.out < self._blocks and now - member.since > self._patience_s:
                member.process.kill()  # what it was at is told when its pipe ends
                member.since = now
        self._give_tasks()
        return events

    def release(self, block: Block) -> None:
        """Give a block back to the process that filled it."""
        block.member.out -= 1
        block.member.since = time.monotonic()
        with suppress(*_GONE):
            block.member.pipe.send(block.slot)

    def _next(self) -> tuple[Hashable, Any] | None:
        return self._again.popleft() if self._again else next(self._tasks, None)

    def _hire(self, task: tuple[Hashable, Any]) -> None:
        memory = self._context.RawArray("B", self._blocks * self._block_bytes)
        if self._adopt is not None:
            self._letting_go.append(self._adopt(np.frombuffer(memory, np.uint8)))
        here, there = self._context.Pipe()
        arguments = (self._work, there, memory, self._blocks)
        process = self._context.Process(target=_serve, args=arguments, daemon=True)
        process.start()
        there.close()
        member = _Member(process, here, memory)
        self._members.append(member)
        self._give(member, task)

    def _give(self, member: _Member, task: tuple[Hashable, Any]) -> None:
        if not member.tasks:
            member.since = time.monotonic()
        member.tasks.append(task)
        with suppress(*_GONE):
            member.pipe.send(task)

    def _give_tasks(self) -> None:
        for count in range(_AT_HAND):  # to each its first before anyone has a second
            for member in self._members:
                if len(member.tasks) == count and (task := self._next()) is not None:
                    self._give(member, task)

    def _heard(self, member: _Member) -> list[Block | Ended]:
        events: list[Block | Ended] = []
        try:
            while member.pipe.poll():
                slot, note, error = member.pipe.recv()
                member.since = time.monotonic()
                if slot is None:
                    events.append(Ended(member.tasks.popleft()[0], note, error))
                else:
                    member.out += 1
                    data = np.frombuffer(member.memory, np.uint8).reshape(self._blocks, -1)[slot]
                    events.append(Block(member.tasks[0][0], data, note, slot, member))
        except _GONE:
            events += self._buried(member)
        return events

    def _buried(self, member: _Member) -> list[Block | Ended]:
        """The end of a process: its task is lost, what it had at hand is done by others."""
        member.process.join(5.0)
        member.process.kill()
        member.process.join()
        member.pipe.close()
        self._members.remove(member)
        lost: list[Block | Ended] = []
        if member.tasks:
            how = how_ended(member.process.exitcode)
            lost = [Ended(member.tasks.popleft()[0], None, f"the process that read it {how}")]
        self._again.extend(member.tasks)
        member.tasks.clear()
        if (task := self._next()) is not None:
            self._hire(task)
        return lost
