"""Where the time of a step goes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Clock:
    """Adds up seconds by name. While it is `exact` it waits for the GPU, so that work counts where it was asked for.

    >>> clock = Clock(torch.device("cpu"))
    >>> with clock("load"):
    ...     pass
    >>> list(clock.take())
    ['load']
    """

    def __init__(self, device: torch.device) -> None:
        self.exact = True
        self._gpu = device.type == "cuda"
        self._seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Count the time of a block under `name`."""
        self._wait()
        start = time.perf_counter()
        try:
            yield
        finally:
            self._wait()
            self._seconds[name] = self._seconds.get(name, 0.0) + time.perf_counter() - start

    def take(self) -> dict[str, float]:
        """The seconds by name since the last call."""
        seconds, self._seconds = self._seconds, {}
        return seconds

    def _wait(self) -> None:
        if self.exact and self._gpu:
            torch.cuda.synchronize()
