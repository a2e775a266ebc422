"""How much of the processor a worker takes."""

from __future__ import annotations

import os
import sys
from contextlib import suppress


def be_nice(by: int) -> None:
    """Leave the processor to others, where the system can."""
    if sys.platform != "win32":
        with suppress(OSError):
            os.nice(by)
        # Linux may share the processor out among sessions first, and workers have sessions of their own.
        with suppress(OSError), open("/proc/self/autogroup", "w") as group:
            group.write(str(by))
