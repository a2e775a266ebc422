"""Memory that this process shares with those that it starts."""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
from contextlib import suppress
from typing import Any

import numpy as np

from hapvr.workers.answers import Bytes
from hapvr.workers.processes import InheritedFile


class SharedMemory:
    """Bytes that other processes open by `path` (see `open_shared`); `close` gives them back.

    Not multiprocessing.shared_memory: its /dev/shm is often too small in containers, and overrunning it kills.
    """

    def __init__(self, size: int, *, pin: bool = False) -> None:
        if hasattr(os, "memfd_create"):
            self._descriptor = os.memfd_create("hapvr", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            self.path = f"/proc/{os.getpid()}/fd/{self._descriptor}"
        else:
            self._descriptor, self.path = tempfile.mkstemp(prefix="hapvr-")
        os.truncate(self._descriptor, max(1, size))
        self._seal()
        self.data = _map(self._descriptor, size)
        self._pinned = False
        if pin:
            self._pin()

    def _seal(self) -> None:
        """Let nobody cut the memory, where the system can: a process that then reads it would be killed."""
        if sys.platform == "linux" and self.path.startswith("/proc/"):
            import fcntl

            fcntl.fcntl(self._descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)

    def share(self) -> InheritedFile | str:
        """What a process that is being spawned opens with `open_shared`; in a sandbox it could not use the path."""
        return self.path if sys.platform == "win32" else InheritedFile(self._descriptor)

    def _pin(self) -> None:
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
            with suppress(PermissionError):  # Windows removes no file that is still mapped: it stays until cleaned up
                os.unlink(self.path)


def open_shared(shared: int | str, size: int) -> Bytes:
    """The bytes of another process's `SharedMemory`, by its path or a descriptor, which is closed."""
    with open(shared, "r+b") as file:
        return _map(file.fileno(), size)


def _map(descriptor: int, size: int) -> Bytes:
    return np.frombuffer(mmap.mmap(descriptor, max(1, size)), np.uint8)[:size]
