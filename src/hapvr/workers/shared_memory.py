"""Memory that several processes see. Neither torch nor a decoder is imported at the top."""

from __future__ import annotations

import mmap
import os
import tempfile
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]


class SharedMemory:
    """Bytes that other processes open by `path` (see `open_shared`); `close` gives them back.

    Not multiprocessing.shared_memory: its /dev/shm is often too small in containers, and overrunning it kills.
    """

    def __init__(self, size: int) -> None:
        if hasattr(os, "memfd_create"):
            self._descriptor = os.memfd_create("hapvr")
            self.path = f"/proc/{os.getpid()}/fd/{self._descriptor}"
        else:
            self._descriptor, self.path = tempfile.mkstemp(prefix="hapvr-")
        os.truncate(self._descriptor, max(1, size))
        self.data = _map(self._descriptor, size)
        self._pinned = False

    def pin(self) -> None:
        """Let the GPU read this memory itself; where CUDA will not, copies are slower, not wrong."""
        import torch

        runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        self._pinned = int(runtime.cudaHostRegister(self.data.ctypes.data, self.data.nbytes, 0)) == 0
        if not self._pinned:
            with suppress(RuntimeError):  # the next launch would report that refusal as its own failure
                torch.zeros(1, device="cuda")

    def close(self) -> None:
        """Give the memory back as soon as nobody looks at it any more."""
        if self._pinned:
            import torch

            torch.cuda.cudart().cudaHostUnregister(self.data.ctypes.data)  # type: ignore[no-untyped-call]
        os.close(self._descriptor)
        if not self.path.startswith("/proc/"):
            os.unlink(self.path)


def open_shared(path: str, size: int) -> Bytes:
    """The bytes of another process's `SharedMemory`."""
    with open(path, "r+b") as file:
        return _map(file.fileno(), size)


def _map(descriptor: int, size: int) -> Bytes:
    return np.frombuffer(mmap.mmap(descriptor, max(1, size)), np.uint8)[:size]
