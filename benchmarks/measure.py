"""What every benchmark shares: the machine in words, timing, peak memory, and data drawn alike."""

from __future__ import annotations

import os
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from hapvr.bench.machine import read_machine


def machine() -> str:
    found = read_machine()
    return f"{found.describe()}, {torch.get_num_threads()} threads, torch {found.versions['torch']}"


def seconds(function: Callable[[], object], *, repeats: int = 5, warm_up: int = 1) -> float:
    """The median wall time of `function`, with the GPU waited for."""
    for _ in range(warm_up):
        function()
    times = []
    for _ in range(repeats):
        _wait()
        start = time.perf_counter()
        function()
        _wait()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def forget_peak() -> None:
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def peak_gib() -> float:
    """Peak memory: of the tensors on a GPU since `forget_peak`, of the whole process on a CPU."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def held_bytes(root: int) -> int:
    """Bytes that a process and all below it hold (RSS)."""
    total, found = 0, [root]
    while found:
        one = Path(f"/proc/{found.pop()}")
        try:
            total += int((one / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            found += [
                int(word) for task in (one / "task").iterdir() for word in (task / "children").read_text().split()
            ]
        except OSError:  # it has ended meanwhile
            continue
    return total


def lengths(count: int, generator: torch.Generator, *, mean: float = 106.0, spread: float = 0.8) -> list[int]:
    """Video lengths in frames, lognormal, at least 4."""
    normal = torch.randn(count, generator=generator)
    drawn = mean * torch.exp(spread * normal - spread * spread / 2)
    return [max(4, int(length)) for length in drawn.tolist()]


def video(frames: int, device: torch.device | str, *, regions: int = 9, dims: int = 512) -> Tensor:
    """Unit region vectors [T, R, D] of a video whose frames change slowly, as real ones do."""
    step = torch.randn(frames, regions, dims, device=device)
    walk = torch.cumsum(step, 0) / torch.arange(1, frames + 1, device=device).sqrt()[:, None, None]
    return F.normalize(walk + 0.5 * torch.randn_like(walk), dim=-1)


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
