"""Several processes of one kind: tasks are begun in order, and a process that dies takes its own task with it only."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hapvr.server.worker_group import WorkerGroup
from hapvr.server.workers import WorkerDied

SLOW = "tests.server.slow_worker"


def with_group(use: Callable[[WorkerGroup], Awaitable[None]], *, count: int = 2, **options: Any) -> None:
    async def run() -> None:
        group = WorkerGroup("slow", SLOW, options.pop("settings", {}), count=count, **options)
        try:
            await asyncio.wait_for(use(group), 60)
        finally:
            await group.stop(5.0)
        assert group.pids == []

    asyncio.run(run())


async def use_both(group: WorkerGroup) -> list[int]:
    """The two processes, when both are used."""
    while len(group.workers) < 2:
        await asyncio.gather(*(group.run("wait", {"seconds": 0.1}) for _ in range(2)))
    found = await asyncio.gather(*(group.run("find", {"seconds": 0.5}) for _ in range(2)))
    assert sorted(found) == sorted(group.pids)
    return found


def test_a_second_process_is_started_when_a_task_waits_and_no_sooner() -> None:
    async def use(group: WorkerGroup) -> None:
        assert (group.state, group.busy) == ("idle", False)
        for _ in range(3):
            await group.run("echo", {"text": ""})
        assert (group.state, group.started, len(group.pids)) == ("ready", 1, 1)
        first = group.pids[0]
        assert len(set(await use_both(group))) == 2
        await asyncio.gather(*(group.run("wait", {"seconds": 0.01}) for _ in range(20)))
        assert group.started == 2
        assert await group.run("find", {"seconds": 0}) == first  # a single user stays with one process

    with_group(use)


def test_tasks_are_begun_in_the_order_in_which_they_came() -> None:
    async def use(group: WorkerGroup) -> None:
        await use_both(group)
        begun: list[int] = []
        waiting = [
            asyncio.create_task(
                group.run("wait", {"seconds": 0.03 * (number % 3)}, started=partial(begun.append, number))
            )
            for number in range(16)
        ]
        await asyncio.sleep(0.1)
        assert group.busy
        assert 2 <= len(begun) < 16
        waiting[12].cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert begun == [number for number in range(16) if number != 12]
        assert not group.busy

    with_group(use)


def test_a_task_goes_where_the_last_one_like_it_was_done_if_that_process_is_free() -> None:
    async def use(group: WorkerGroup) -> None:
        await use_both(group)
        other, place = await asyncio.gather(
            group.run("find", {"seconds": 0.2}), group.run("find", {"seconds": 0.2}, near="upload")
        )
        assert other != place
        for _ in range(3):
            assert await group.run("find", {"seconds": 0}, near="upload") == place
        busy = asyncio.create_task(group.run("find", {"seconds": 0.5}, near="upload"))
        await asyncio.sleep(0.1)
        assert await group.run("find", {"seconds": 0}, near="upload") == other  # nobody waits for that
        assert await busy == place

    with_group(use)


def test_a_process_that_dies_is_replaced_and_the_other_goes_on() -> None:
    async def use(group: WorkerGroup) -> None:
        pids = await use_both(group)
        tasks = [asyncio.create_task(group.run("find", {"seconds": 0.5})) for _ in range(2)]
        await asyncio.sleep(0.1)
        os.kill(pids[0], signal.SIGKILL)
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(one) for one in ended if not isinstance(one, int)] == [WorkerDied]
        assert [one for one in ended if isinstance(one, int)] == [pids[1]]
        while group.state != "ready":
            assert group.state == "ended"  # it works, and something is being put right
            await asyncio.sleep(0.001)
        assert group.last_error is None
        assert len(set(await use_both(group))) == 2
        assert group.started == 3

    with_group(use, keep_running=True)


def test_a_second_process_that_cannot_be_started_holds_nobody_up(tmp_path: Path) -> None:
    async def use(group: WorkerGroup) -> None:
        await group.start()
        (tmp_path / "die").touch()
        for _ in range(3):
            await asyncio.gather(*(group.run("wait", {"seconds": 0.3}) for _ in range(3)))
        assert (group.state, len(group.workers)) == ("ready", 1)
        assert group.started == 2  # and it is not tried again for each task

    with_group(use, settings={"die_by": str(tmp_path / "die")})


def test_all_processes_are_told() -> None:
    async def use(group: WorkerGroup) -> None:
        await use_both(group)
        group.tell("crash", {})
        while len(group.pids):
            await asyncio.sleep(0.01)
        assert await group.run("echo", {"text": "again"}) == "again"

    with_group(use)


def test_cancelled_tasks_leave_no_place_taken() -> None:
    async def use(group: WorkerGroup) -> None:
        await use_both(group)
        tasks = [asyncio.create_task(group.run("wait", {"seconds": 60})) for _ in range(5)]
        await asyncio.sleep(0.1)
        for task in reversed(tasks):
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in ended)
        assert len(set(await use_both(group))) == 2
        assert group.started == 2

    with_group(use)


@pytest.mark.parametrize("count", [1, 2])
def test_it_ends_while_processes_are_being_started(count: int) -> None:
    async def use(group: WorkerGroup) -> None:
        await group.start()
        tasks = [asyncio.create_task(group.run("wait", {"seconds": 60})) for _ in range(2)]
        await asyncio.sleep(0.05)
        await group.stop(5.0)
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(one, Exception) for one in ended)

    with_group(use, count=count)
