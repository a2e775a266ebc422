"""Workers that are killed, hang, crash or are given up: whoever waits is told, and the next task is done."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from hapvr.library.versions import MANIFEST
from hapvr.server import library_tasks
from hapvr.server.jobs import Jobs
from hapvr.server.library_tasks import LibraryTasks
from hapvr.server.metrics import Metrics
from hapvr.server.problems import Problem
from hapvr.server.settings import ServerSettings
from hapvr.server.state import check_health
from hapvr.server.worker_process import Call
from hapvr.server.workers import Worker, WorkerDied

SLOW = "tests.server.slow_worker"


def with_worker(use: Callable[[Worker], Awaitable[None]], **options: Any) -> None:
    async def run() -> None:
        settings = options.pop("settings", {})
        worker = Worker("slow", SLOW, settings, **options)
        try:
            await asyncio.wait_for(use(worker), 60)
        finally:
            await worker.stop(5.0)
        assert worker.pid is None

    asyncio.run(run())


def test_answers_problems_and_progress_come_back() -> None:
    async def use(worker: Worker) -> None:
        assert await worker.run("echo", {"text": "ü\ud800 \n"}) == "ü\ud800 \n"
        seen: list[Any] = []
        assert await worker.run("steps", {}, progress=seen.append) == "done"
        assert [(one["done"], one["total"], one["message"]) for one in seen] == [
            (step, 3, f"step {step}") for step in range(3)
        ]
        for task, status, text in (
            ("refuse", 409, "Not now."),
            ("fail", 500, "ZeroDivisionError: oh a.mp4"),
            ("limit", 413, "pixels"),
        ):
            with pytest.raises(Problem, match=text) as refused:
                await worker.run(task, {})
            assert refused.value.status == status
        with pytest.raises(Problem, match="KeyError"):
            await worker.run("unheard of", {})
        assert worker.started == 1

    with_worker(use)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_threads_of_a_worker_share_few_heaps_unless_the_user_says_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    async def read(worker: Worker) -> None:
        await worker.start()
        variables = Path(f"/proc/{worker.pid}/environ").read_bytes().split(b"\0")
        found.extend(one for one in variables if one.startswith(b"MALLOC_ARENA_MAX="))

    found: list[bytes] = []
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    with_worker(read)
    monkeypatch.setenv("MALLOC_ARENA_MAX", "7")
    with_worker(read)
    assert found == [b"MALLOC_ARENA_MAX=2", b"MALLOC_ARENA_MAX=7"]


def test_the_adding_worker_gives_memory_back_after_each_task(monkeypatch: pytest.MonkeyPatch) -> None:
    released: list[str] = []
    monkeypatch.setattr(library_tasks, "release_memory", lambda: released.append("released"))

    class Tasks(LibraryTasks):
        def __init__(self, kind: str) -> None:
            self._kind, self._settings = kind, {"allow_actions": False}

        def remove(self, arguments: dict[str, Any], _: Call) -> int:
            released.append("removed")
            return len(arguments["ids"])

        def forget(self, arguments: dict[str, Any], _: Call) -> None:
            released.append(f"forgot {arguments['id']}")

    call = Call(1, lambda _: None)
    assert Tasks("add").tasks()["remove"]({"ids": ["a"]}, call) == 1
    with pytest.raises(KeyError):
        Tasks("add").tasks()["remove"]({}, call)
    Tasks("search").tasks()["forget"]({"id": "a"}, call)  # searches come one after another
    assert released == ["removed", "released", "removed", "released", "forgot a"]


def test_a_worker_that_dies_fails_its_task_and_is_started_again() -> None:
    async def use(worker: Worker) -> None:
        with pytest.raises(WorkerDied, match="ended with code 3"):
            await worker.run("crash", {})
        waiting = asyncio.create_task(worker.run("hang", {}))
        while worker.pid is None or not worker._assignments:
            await asyncio.sleep(0.01)
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(WorkerDied, match="ended by SIGKILL"):
            await waiting
        assert await worker.run("echo", {"text": "again"}) == "again"
        assert worker.started == 3

    with_worker(use)


def test_a_worker_that_cannot_start_says_why() -> None:
    async def use(worker: Worker) -> None:
        for _ in range(2):
            with pytest.raises(Problem, match=r"could not be started.*nothing to work with"):
                await worker.run("echo", {"text": ""})
        assert not worker.busy

    with_worker(use, settings={"die": True})


def test_what_is_cancelled_ends_at_once_and_its_place_is_free() -> None:
    async def use(worker: Worker) -> None:
        await worker.start()
        first = asyncio.create_task(worker.run("wait", {"seconds": 60}))
        second = asyncio.create_task(worker.run("wait", {"seconds": 60}))
        await asyncio.sleep(0.2)
        began = time.monotonic()
        for task in (second, first):  # one that waits, then one that runs
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert await worker.run("echo", {"text": "next"}) == "next"
        assert time.monotonic() - began < 3
        assert worker.started == 1

    with_worker(use)


def test_what_does_not_give_up_is_killed_and_the_next_task_is_done() -> None:
    async def use(worker: Worker) -> None:
        await worker.start()
        hanging = asyncio.create_task(worker.run("hang", {}))
        waiting = asyncio.create_task(worker.run("wait", {"seconds": 0.1}))
        await asyncio.sleep(0.1)
        hanging.cancel()
        assert await waiting == "waited"
        assert (worker.started, worker.last_error) == (2, None)  # it did nothing wrong itself

    with_worker(use, cancel_s=0.1)


def test_what_takes_too_long_is_ended() -> None:
    async def use(worker: Worker) -> None:
        await worker.start()
        with pytest.raises(Problem, match="given up after") as refused:
            await worker.run("hang", {}, timeout_s=0.2)
        assert refused.value.status == 503
        assert await worker.run("echo", {"text": "next"}) == "next"

    with_worker(use)


def test_a_worker_that_is_kept_is_started_again_by_itself_and_says_how_it_is() -> None:
    async def use(worker: Worker) -> None:
        assert (worker.state, worker.last_error) == ("idle", None)
        starting = asyncio.create_task(worker.start())
        while worker.pid is None:
            await asyncio.sleep(0)
        assert (worker.state, worker.last_error) == ("starting", None)
        await starting
        assert (worker.state, worker.last_error) == ("ready", None)
        os.kill(worker.pid, signal.SIGKILL)
        while worker.last_error is None:
            await asyncio.sleep(0.001)
        assert worker.last_error == "the process was ended by SIGKILL"
        seen = {worker.state}
        while worker.state != "ready":
            seen.add(worker.state)
            await asyncio.sleep(0.001)
        assert seen <= {"ended", "starting"}
        assert worker.last_error is None
        assert worker.started == 2

    with_worker(use, keep_running=True)


def test_a_worker_that_is_not_kept_is_started_again_for_the_next_task() -> None:
    async def use(worker: Worker) -> None:
        with pytest.raises(WorkerDied):
            await worker.run("crash", {})
        assert (worker.state, worker.last_error) == ("ended", "the process ended with code 3")
        assert await worker.run("echo", {"text": "again"}) == "again"
        assert (worker.state, worker.last_error, worker.started) == ("ready", None, 2)

    with_worker(use)


def test_a_worker_that_cannot_start_stays_failed_while_it_is_tried_again(tmp_path: Path) -> None:
    async def use(worker: Worker) -> None:
        with pytest.raises(Problem, match="nothing to work with"):
            await worker.start()
        seen = {worker.state}
        while worker.started < 2 or worker.pid is None:
            await asyncio.sleep(0.001)
            seen.add(worker.state)
        assert seen == {"failed"}
        assert "nothing to work with" in (worker.last_error or "")
        (tmp_path / "die").unlink()  # what was wrong is put right
        while worker.state != "ready":
            await asyncio.sleep(0.01)
        assert worker.last_error is None

    (tmp_path / "die").touch()
    with_worker(use, settings={"die_by": str(tmp_path / "die")}, keep_running=True)


def test_a_worker_that_is_kept_ends_when_it_is_told_to_also_between_two_attempts() -> None:
    async def use(worker: Worker) -> None:
        for _ in range(2):  # the second end is followed by a pause
            with pytest.raises(Problem):
                await worker.start()
        await worker.stop(5.0)
        assert worker.pid is None
        with pytest.raises(Problem, match="stopping"):
            await worker.start()

    with_worker(use, settings={"die": True}, keep_running=True)


def test_a_system_without_room_for_processes_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    async def use(worker: Worker) -> None:
        with pytest.raises(Problem, match="could not be started: Resource temporarily unavailable"):
            await worker.run("echo", {"text": ""})
        assert (worker.state, worker.last_error, worker.busy) == ("failed", "Resource temporarily unavailable", False)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", refuse)
    with_worker(use)


# --- health ----------------------------------------------------------------------------------------------------------


class Stub(Worker):
    """A worker in a state that the test chooses."""

    def __init__(self, kind: str, state: str, last_error: str | None = None, *, keep_running: bool = True) -> None:
        self.kind, self.keep_running, self.last_error, self._chosen = kind, keep_running, last_error, state

    @property
    def state(self) -> Any:
        return self._chosen


@pytest.mark.parametrize(
    ("search", "add", "status", "cause"),
    [
        (Stub("search", "ready"), Stub("add", "idle"), "ok", None),
        (Stub("search", "idle", keep_running=False), Stub("add", "idle"), "ok", None),
        (Stub("search", "idle"), Stub("add", "idle"), "starting", "The search worker is being started."),
        (Stub("search", "starting"), Stub("add", "idle"), "starting", "The search worker is being started."),
        (
            Stub("search", "starting", "the process was ended by SIGKILL"),
            Stub("add", "idle"),
            "starting",
            "The search worker has ended and is started again: the process was ended by SIGKILL.",
        ),
        (Stub("search", "ended", "oh."), Stub("add", "idle"), "degraded",
         "The search worker has ended and is started again: oh."),
        (Stub("search", "ready"), Stub("add", "failed", "no room"), "degraded",
         "The add worker could not be started: no room."),
        (Stub("search", "failed", "'/home/ann/library' is gone"), Stub("add", "failed", "no room"), "failed",
         "The search worker could not be started: 'library' is gone. The add worker could not be started: no room."),
    ],
)  # fmt: skip
def test_health_is_told_from_the_workers(search: Worker, add: Worker, status: str, cause: str | None) -> None:
    found = check_health([search, add], library=Path("/home/ann/library"))
    assert (found.status, found.cause) == (status, cause)
    assert {name: worker["state"] for name, worker in found.workers.items()} == {
        "search": search.state, "add": add.state
    }  # fmt: skip


# --- jobs ------------------------------------------------------------------------------------------------------------


def with_jobs(use: Callable[[Jobs], Awaitable[None]], **settings: Any) -> None:
    async def run(library: Path) -> None:
        jobs = Jobs(library, ServerSettings(**settings), Metrics())
        jobs.adding = Worker("slow", SLOW, {})  # which does what is no search
        try:
            await asyncio.wait_for(use(jobs), 60)
        finally:
            await jobs.close()

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / MANIFEST).touch()
        asyncio.run(run(Path(folder)))


def test_jobs_are_watched_cancelled_and_counted() -> None:
    async def use(jobs: Jobs) -> None:
        ended: list[str] = []
        running = jobs.submit("wait", {"seconds": 60}, over=lambda job: ended.append(job.id))
        waiting = jobs.submit("echo", {"text": "later"}, over=lambda job: ended.append(job.id))
        with pytest.raises(Problem, match="2 jobs are waiting") as refused:
            jobs.submit("echo", {"text": ""})
        assert refused.value.status == 503
        seen = [event async for event in _until_running(jobs, running)]
        assert '"state": "queued"' in seen[0]
        assert '"state": "running"' in seen[-1]
        never = jobs.get(waiting.id)
        await jobs.cancel(never)
        assert never.state == "cancelled"
        await jobs.cancel(running)
        assert running.state == "cancelled"
        assert running.finished is not None
        assert ended == [waiting.id, running.id]
        killed = jobs.submit("hang", {})
        while killed.state != "running":
            await asyncio.sleep(0.01)
        assert jobs.adding.pid is not None
        os.kill(jobs.adding.pid, signal.SIGKILL)
        await jobs.wait(killed, 10)
        assert killed.to_json()["state"] == "failed"
        assert killed.error is not None
        assert "ended by SIGKILL" in killed.error["message"]
        again = jobs.submit("echo", {"text": "fine"})
        await jobs.wait(again, 30)
        assert again.result == "fine"
        left = jobs.submit("hang", {})
        await asyncio.sleep(0.05)
        watcher = asyncio.create_task(_all(jobs, left))
        await asyncio.sleep(0.05)
        jobs.announce_stop()
        await asyncio.wait_for(watcher, 5)  # who watches is let go
        with pytest.raises(Problem, match="stopping"):
            jobs.submit("echo", {"text": ""})

    with_jobs(use, max_queued_jobs=2)


async def _until_running(jobs: Jobs, job: Any) -> Any:
    async for event in jobs.watch(job):
        yield event
        if job.state == "running":
            return


async def _all(jobs: Jobs, job: Any) -> list[str]:
    return [event async for event in jobs.watch(job)]


def test_only_so_many_jobs_and_so_much_of_their_results_is_remembered() -> None:
    async def use(jobs: Jobs) -> None:
        ids = []
        for size in (10, 10, 10, 900):
            job = jobs.submit("echo", {"text": "x" * size})
            await jobs.wait(job, 30)
            ids.append(job.id)
            assert job.id in [one.id for one in jobs.all()]
        assert [job.id for job in jobs.all()] == ids[3:]  # the last one is heavy, and is kept all the same
        for _ in range(4):
            await jobs.wait(jobs.submit("echo", {"text": ""}), 30)
        assert len(jobs.all()) == 3

    with_jobs(use, max_kept_jobs=3, max_result_chars=500)
