"""Processes that die, hang, fail or lie idle: the others go on, and nothing is lost but the task at hand."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator

import numpy as np

from hapvr.errors import DataError
from hapvr.video.crew import Block, Crew, Desk, Ended
from tests.video import crew_probe


def work(desk: Desk, task: str) -> str:
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
        desk.block()[:] = ord(letter)
        desk.send(place)
    return task.upper()


def collected(crew: Crew) -> Iterator[tuple[str, str, str | None]]:
    """Key, letters and error of each task."""
    letters: dict[str, str] = {}
    while crew.busy:
        for event in crew.wait():
            key = str(event.key)
            if isinstance(event, Block):
                assert event.note == len(letters.get(key, ""))
                letters[key] = letters.get(key, "") + chr(event.data[0])
                assert (event.data == event.data[0]).all()
                crew.release(event)
            else:
                yield key, letters.pop(key, ""), event.error
                assert event.error or event.note == key.partition(" ")[0].upper()


def test_every_task_ends_whatever_happens_to_the_processes() -> None:
    words = ["one", "deadly", "refused", "eleven", "broken", "deadly", "seventeen", "endless", "x", "", "last"]
    tasks = ((f"{word} {place}", word) for place, word in enumerate(words))  # of two at once, each has its own key
    ended: Counter[str] = Counter()
    with Crew(work, tasks, workers=2, block_bytes=10, patience_s=6.0) as crew:  # it includes the start
        for name, letters, error in collected(crew):
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
    with Crew(work, [("abcdef", "abcdef")], workers=3, block_bytes=4, blocks=2, patience_s=0.5) as crew:
        held: list[Block] = []
        while len(held) < 2:
            held += [event for event in crew.wait() if isinstance(event, Block)]
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            assert crew.wait(0.1) == []
        assert [bytes(block.data) for block in held] == [b"aaaa", b"bbbb"]
        for block in held:
            crew.release(block)
        assert [(letters, error) for _, letters, error in _rest(crew)] == [("cdef", None)]


def _rest(crew: Crew) -> Iterator[tuple[str, str, str | None]]:
    letters = ""
    while crew.busy:
        for event in crew.wait():
            if isinstance(event, Ended):
                yield str(event.key), letters, event.error
            else:
                letters += chr(event.data[0])
                crew.release(event)


def test_leaving_early_ends_the_processes_and_gives_memory_back() -> None:
    adopted, let_go = [], []

    def adopt(memory: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> object:
        adopted.append(memory.nbytes)
        return lambda: let_go.append(memory.nbytes)

    started = time.monotonic()
    with Crew(work, [("endless", "endless")], workers=1, block_bytes=8, adopt=adopt) as crew:  # type: ignore[arg-type]
        crew.wait()
        (member,) = crew._members
    assert not member.process.is_alive()
    assert adopted == let_go == [16]
    assert time.monotonic() - started < 20


def test_a_process_does_not_run_the_main_script_again_nor_load_what_it_does_not_use() -> None:
    name, file = sys.modules["__main__"].__spec__, getattr(sys.modules["__main__"], "__file__", None)
    with Crew(crew_probe.loaded, [("probe", "")], workers=1, block_bytes=8) as crew:
        (event,) = [event for _ in range(30) if crew.busy for event in crew.wait() if isinstance(event, Ended)]
    assert event == Ended("probe", [], None)
    assert (sys.modules["__main__"].__spec__, getattr(sys.modules["__main__"], "__file__", None)) == (name, file)


def test_no_tasks_no_processes() -> None:
    with Crew(work, [], workers=2, block_bytes=8) as crew:
        assert not crew.busy
        assert crew.wait(0.0) == []
