"""Processes that die, hang, fail or lie idle: the others go on, and nothing is lost but the task at hand."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from hapvr.errors import DataError
from hapvr.workers.pool import Block, TaskContext, TaskResult, WorkerPool
from hapvr.workers.shared_memory import SharedMemory, open_shared
from tests.workers import pool_probe


def work(context: TaskContext, task: str) -> str:
    """Sends each letter of a word in a block of its own; some words are bad."""
    if task == "refused":
        raise DataError("not this one.")
    if task == "broken":
        raise OSError("no such luck")
    for place, letter in enumerate(task):
        if task == "deadly" and place == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        if task == "endless" and place == 2:
            time.sleep(60)
        context.block()[:] = ord(letter)
        context.send(place)
    return task.upper()


def collect(pool: WorkerPool) -> Iterator[tuple[str, str, str | None]]:
    """Key, letters and error of each task."""
    letters: dict[str, str] = {}
    while pool.busy:
        for event in pool.wait():
            key = str(event.key)
            if isinstance(event, Block):
                assert event.note == len(letters.get(key, ""))
                letters[key] = letters.get(key, "") + chr(event.data[0])
                assert (event.data == event.data[0]).all()
                pool.release(event)
            else:
                yield key, letters.pop(key, ""), event.error
                assert event.error or event.value == key.partition(" ")[0].upper()


def test_every_task_ends_whatever_happens_to_the_processes() -> None:
    words = ["one", "deadly", "refused", "eleven", "broken", "deadly", "seventeen", "endless", "x", "", "last"]
    tasks = ((f"{word} {place}", word) for place, word in enumerate(words))  # of two at once, each has its own key
    ended: Counter[str] = Counter()
    with WorkerPool(work, tasks, workers=2, block_bytes=10, timeout_s=6.0) as pool:  # it includes the start
        for name, letters, error in collect(pool):
            key = name.partition(" ")[0]
            ended[key] += 1
            bad = {
                "deadly": "the process that read it was ended by SIGKILL",
                "endless": "the process that read it was ended by SIGKILL",
                "refused": "not this one.",
                "broken": "OSError: no such luck",
            }
            assert error == bad.get(key)
            assert letters == ({"deadly": "de", "endless": "en"}.get(key, "") if error else key)
    assert ended == Counter(words)


def test_a_process_without_a_block_left_waits_and_is_not_taken_for_hung() -> None:
    with WorkerPool(work, [("abcdef", "abcdef")], workers=3, block_bytes=4, blocks=2, timeout_s=3.0) as pool:
        held: list[Block] = []
        while len(held) < 2:
            assert pool.busy  # else the process was too slow for timeout_s, and nothing more would come
            held += [event for event in pool.wait() if isinstance(event, Block)]
        end = time.monotonic() + 4.0  # longer than timeout_s
        while time.monotonic() < end:
            assert pool.wait(0.1) == []
        assert [bytes(block.data) for block in held] == [b"aaaa", b"bbbb"]
        for block in held:
            pool.release(block)
        assert [(letters, error) for _, letters, error in _rest(pool)] == [("cdef", None)]


def _rest(pool: WorkerPool) -> Iterator[tuple[str, str, str | None]]:
    letters = ""
    while pool.busy:
        for event in pool.wait():
            if isinstance(event, TaskResult):
                yield str(event.key), letters, event.error
            else:
                letters += chr(event.data[0])
                pool.release(event)


def test_leaving_early_ends_the_processes_and_gives_memory_back() -> None:
    started = time.monotonic()
    with WorkerPool(work, [("endless", "endless")], workers=1, block_bytes=8) as pool:
        pool.wait()
        (worker,) = pool._workers
        path = worker.memory.path
        assert len(open_shared(path, 16)) == 16
    assert not worker.process.is_alive()
    assert not os.path.exists(path)
    assert time.monotonic() - started < 20


def test_shared_memory_is_seen_by_whoever_opens_it() -> None:
    memory = SharedMemory(10)
    other = open_shared(memory.path, 10)
    memory.data[3] = 7
    other[4] = 8
    assert other.tolist() == memory.data.tolist() == [0, 0, 0, 7, 8, 0, 0, 0, 0, 0]
    memory.close()
    assert other[3] == 7  # as long as anybody looks at it
    with pytest.raises(OSError, match="No such file"):
        open_shared(memory.path, 10)
    assert SharedMemory(0).data.shape == (0,)


def test_a_process_does_not_run_the_main_script_again_nor_load_what_it_does_not_use() -> None:
    name, file = sys.modules["__main__"].__spec__, getattr(sys.modules["__main__"], "__file__", None)
    with WorkerPool(pool_probe.loaded, [("probe", "")], workers=1, block_bytes=8) as pool:
        (event,) = [event for _ in range(30) if pool.busy for event in pool.wait() if isinstance(event, TaskResult)]
    assert event == TaskResult("probe", [], None)
    assert (sys.modules["__main__"].__spec__, getattr(sys.modules["__main__"], "__file__", None)) == (name, file)


def test_no_tasks_no_processes() -> None:
    with WorkerPool(work, [], workers=2, block_bytes=8) as pool:
        assert not pool.busy
        assert pool.wait(0.0) == []
