"""Ctrl-C and SIGTERM while something is written that should be whole."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_SIGNALS: tuple[signal.Signals, ...] = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C and SIGTERM back until the block is over; whatever they were to do, they do then.

    A library stays whole without it, but hours may have gone into what is being written; an exception that is raised
    where HDF5 calls back is dropped, and with it what was to be written. In other threads than the main one there is
    nothing to hold back.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before: dict[signal.Signals, Any] = {number: signal.getsignal(number) for number in _SIGNALS}
    # Left alone: signals that are ignored, and handlers that Python did not set and could not set again.
    held = {number: handler for number, handler in before.items() if handler not in (None, signal.SIG_IGN)}
    for number in held:
        signal.signal(number, lambda which, _: came.append(which))
    try:
        yield
    finally:
        for number, handler in held.items():
            signal.signal(number, handler)
        for which in dict.fromkeys(came):
            signal.raise_signal(which)
