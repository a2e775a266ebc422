"""Limits that a process sets upon itself before it touches a file of a stranger."""

from __future__ import annotations

import os
import sys
from contextlib import suppress


def limit_memory(count: int) -> None:
    """Give this process no more address space than so many bytes, where the system can: then it is a `MemoryError`."""
    if sys.platform != "win32":
        import resource

        with suppress(ValueError, OSError):  # already lower
            resource.setrlimit(resource.RLIMIT_AS, (count, count))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def be_nice(by: int) -> None:
    """Leave the processor to others, where the system can."""
    if sys.platform != "win32":
        with suppress(OSError):
            os.nice(by)
        # Linux may share the processor out among sessions first, and workers have sessions of their own.
        with suppress(OSError), open("/proc/self/autogroup", "w") as group:
            group.write(str(by))
