"""Batches across tasks: order, ends, errors, and blocks that are given back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from hapvr.errors import DataError, HapvrError
from hapvr.features.batching import extract_blocks
from hapvr.workers.pool import Block, TaskResult


class Script:
    """A pool whose events are written down: one list for each time it is asked."""

    def __init__(self, *turns: list[Block | TaskResult]) -> None:
        self._turns = list(turns)
        self.released: list[Block] = []

    @property
    def busy(self) -> bool:
        return bool(self._turns)

    def wait(self, timeout_s: float | None = None, *, also: Any = ()) -> list[Block | TaskResult]:
        if self._turns:
            return self._turns.pop(0)
        from multiprocessing.connection import wait

        wait(also, timeout_s)
        return []

    def release(self, block: Block) -> None:
        self.released.append(block)


def block(key: str, value: int, count: int = 1) -> Block:
    return Block(key, np.full(count, value, np.uint8), count, 0, None)  # type: ignore[arg-type]


def run(workers: Any, *, batch: int, threads: int = 2) -> tuple[list[Any], list[list[int]]]:
    """What came out, and of which blocks each batch was."""
    batches: list[list[int]] = []

    def extract(blocks: list[Block]) -> list[int]:
        values = [int(one.data[0]) for one in blocks]
        batches.append(values)
        if 99 in values:
            raise DataError("99 is not wanted.")
        return [10 * value for value in values]

    with ThreadPoolExecutor(threads) as pool:
        stream = extract_blocks(workers, extract, pool, threads=threads, batch=batch, count=lambda one: int(one.note))
        came = [
            (item.key, item.error) if isinstance(item, TaskResult) else (item[0].key, item[0].data[0], item[1])
            for item in stream
        ]
    return came, batches


def test_batches_run_across_tasks_and_ends_follow_their_blocks() -> None:
    a, b = TaskResult("a", None, None), TaskResult("b", None, "broken")
    workers = Script([block("a", 1), block("b", 2), block("a", 3, 2), a, block("b", 4), b])
    came, batches = run(workers, batch=2, threads=1)
    assert batches == [[1, 2], [3], [4]]
    assert came == [
        ("a", 1, 10), ("b", 2, 20), ("a", 3, 30), ("a", None), ("b", 4, 40), ("b", "broken"),
    ]  # fmt: skip
    assert [int(one.data[0]) for one in workers.released] == [1, 2, 3, 4]


def test_a_task_without_blocks_ends_too() -> None:
    workers = Script(
        [TaskResult("a", None, None)], [], [block("b", 1)], [TaskResult("b", None, None), TaskResult("c", None, "x")]
    )
    came, _ = run(workers, batch=8)
    assert came == [("a", None), ("b", 1, 10), ("b", None), ("c", "x")]


def test_what_is_refused_costs_no_other_block() -> None:
    workers = Script([block("a", 1), block("b", 99), block("c", 3), TaskResult("a", None, None)])
    came, batches = run(workers, batch=3, threads=1)
    assert batches == [[1, 99, 3], [1], [99], [3]]
    assert [(key, value) for key, value, *_ in came[:3]] == [("a", 1), ("b", 99), ("c", 3)]
    assert (came[0][2], came[2][2]) == (10, 30)
    assert isinstance(came[1][2], HapvrError)
    assert came[3] == ("a", None)


def test_a_mistake_in_the_code_is_not_hidden() -> None:
    def extract(blocks: list[Block]) -> list[int]:
        raise ZeroDivisionError(len(blocks))

    workers: Any = Script([block("a", 1)])
    with ThreadPoolExecutor(1) as pool, pytest.raises(ZeroDivisionError):
        list(extract_blocks(workers, extract, pool, threads=1, batch=1, count=lambda _: 1))
