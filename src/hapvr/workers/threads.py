"""Threads in each of which torch computes on one core."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from typing import TypeVar

import torch

Given = TypeVar("Given")
Result = TypeVar("Result")


@contextmanager
def torch_thread_pool(count: int) -> Iterator[ThreadPoolExecutor]:
    """A pool of threads that torch does not divide any further; its own number of threads is restored at the end."""
    before = torch.get_num_threads()
    pool = ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(before)


@contextmanager
def one_torch_thread() -> Iterator[int]:
    """Within, torch computes on one core in this thread; gives the number of threads it used before, for a pool.

    Where work is little, or a pool does it, torch's own threads only wait: for each other on busy cores, and without
    sleeping, so that they take those cores from the pool.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield before
    finally:
        torch.set_num_threads(before)


def map_threads(function: Callable[[Given], Result], items: Sequence[Given], threads: int) -> list[Result]:
    """`function` of each item, `threads` at a time, in order."""
    if threads == 1 or len(items) == 1:
        return [function(item) for item in items]
    with torch_thread_pool(min(threads, len(items))) as pool:
        return list(pool.map(function, items))


def share_work(workers: Sequence[Callable[[Given], Result]], items: Sequence[Given]) -> list[Result]:
    """What the workers make of the items, in order; each has its own thread, and takes the next item when it is free.

    >>> share_work([abs, abs], [-1, 2, -3])
    [1, 2, 3]
    """
    if len(workers) == 1 or len(items) == 1:
        return [workers[0](item) for item in items]
    free: SimpleQueue[Callable[[Given], Result]] = SimpleQueue()
    for worker in workers:
        free.put(worker)

    def work(item: Given) -> Result:
        worker = free.get()
        try:
            return worker(item)
        finally:
            free.put(worker)

    with torch_thread_pool(min(len(workers), len(items))) as pool:
        return list(pool.map(work, items))
