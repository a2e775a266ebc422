"""Blocks that worker processes fill, described by threads: batches are made up of whole blocks of any task."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from multiprocessing.connection import Pipe
from threading import Lock
from typing import Generic, TypeVar

from hapvr.errors import HapvrError
from hapvr.workers.pool import Block, TaskResult, WorkerPool

Result = TypeVar("Result")


@dataclass
class _Batch(Generic[Result]):
    blocks: list[Block]
    future: Future[list[Result | HapvrError]]
    ends: list[TaskResult] = field(default_factory=list)  # of tasks whose last block is in this batch or before it


def extract_blocks(
    pool: WorkerPool,
    extract: Callable[[list[Block]], Sequence[Result]],
    executor: Executor,
    *,
    threads: int,
    batch: int,
    count: Callable[[Block], int],
    linger_s: float = 0.0,
) -> Iterator[tuple[Block, Result | HapvrError] | TaskResult]:
    """Each block with what `extract` made of it, in order, and the end of each task after its blocks.

    Args:
        pool: fills the blocks; they are given back here.
        extract: one result a block; called by the executor. What it refuses is tried again block by block, so that an
            error (which then takes the place of a result) costs no other block.
        executor: of `threads` threads.
        threads: batches at work; one more waits.
        batch: pictures that make a batch, where there are as many.
        count: of pictures in a block.
        linger_s: how long a thread stays idle in the hope of a full batch.
    """
    backlog: deque[Block | TaskResult] = deque()
    waiting: deque[_Batch[Result]] = deque()
    woken, wakes = Pipe(duplex=False)
    lock = Lock()
    since = time.monotonic()

    def wake(_: object) -> None:
        with lock:
            wakes.send_bytes(b".")

    def attempt(blocks: list[Block]) -> list[Result | HapvrError]:
        try:
            return list(extract(blocks))
        except HapvrError as error:
            if len(blocks) == 1:
                return [error]
            return [result for block in blocks for result in attempt([block])]

    def begin() -> None:
        """Take a batch of pictures from the backlog, and the ends between them."""
        blocks: list[Block] = []
        ends: list[TaskResult] = []
        while backlog and (isinstance(backlog[0], TaskResult) or sum(map(count, blocks)) < batch):
            item = backlog.popleft()
            blocks.append(item) if isinstance(item, Block) else ends.append(item)
        if blocks:
            future = executor.submit(attempt, blocks)
            waiting.append(_Batch(blocks, future, ends))
            future.add_done_callback(wake)
        else:
            waiting[-1].ends += ends

    try:
        while True:
            while waiting and waiting[0].future.done():
                done = waiting.popleft()
                results = done.future.result()
                for block, result in zip(done.blocks, results, strict=True):
                    yield block, result
                    pool.release(block)
                yield from done.ends
            while backlog and isinstance(backlog[0], TaskResult) and not waiting:
                yield backlog.popleft()  # type: ignore[misc]
            running = sum(not item.future.done() for item in waiting)
            ready = sum(count(item) for item in backlog if isinstance(item, Block))
            lingered = time.monotonic() - since >= linger_s
            if (ready >= batch and running <= threads) or (ready and running < threads and (lingered or not pool.busy)):
                begin()
            elif not ready and backlog:
                begin()  # ends only: they go with the last batch
            elif not (pool.busy or backlog or waiting):
                return
            else:
                patience = linger_s if ready and running < threads else None
                events = pool.wait(patience, also=[woken])
                while woken.poll():
                    woken.recv_bytes()
                if events:
                    since = time.monotonic()
                backlog += events
    finally:
        executor.shutdown(cancel_futures=True)
        woken.close()
        wakes.close()
