"""Ctrl-C and SIGTERM: as a wish that is asked for, or as an interrupt."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Terminated(KeyboardInterrupt):
    """SIGTERM came: a command ends as it does at Ctrl-C, with another exit code."""


def code_of(interrupt: KeyboardInterrupt) -> int:
    """What a shell would say: 128 and the signal's number.

    >>> code_of(KeyboardInterrupt()), code_of(Terminated())
    (130, 143)
    """
    return 128 + (signal.SIGTERM if isinstance(interrupt, Terminated) else signal.SIGINT)


@contextmanager
def termination_interrupts() -> Iterator[None]:
    """Within, SIGTERM raises `Terminated` where Ctrl-C would raise KeyboardInterrupt; a second one ends it as usual."""

    def stop(number: int, _: Any) -> None:
        signal.signal(number, before)
        raise Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def stopped_by_signals() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C or SIGTERM has come; a second one ends the program as usual."""
    stopped = threading.Event()

    def stop(number: int, _: Any) -> None:
        stopped.set()
        signal.signal(number, before[number])

    numbers: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield stopped.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
