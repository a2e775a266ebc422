"""Tasks on a cluster: all are answered once, whatever is lost; by a stand-in for Ray that loses what it is told to."""

from __future__ import annotations

import socket
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import hapvr
from hapvr.cli import main
from hapvr.errors import ClusterError, ConfigError, DataError
from hapvr.workers import cluster
from hapvr.workers.cluster import ClusterWorkers, connect, run_on_cluster

DEADLY = 700  # a task that ends its process


class RayError(Exception):
    pass


class RayTaskError(RayError):
    def __init__(self, cause: Exception) -> None:
        self.cause = cause


class Actor:
    """An actor in this process. It is lost when Ray says so, when its node is gone, or by a task that ends it."""

    def __init__(self, ray: FakeRay, service: Any, node: str) -> None:
        self.ray, self.service, self.node, self.answers = ray, service, node, 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.service, name)
        remote = SimpleNamespace(remote=lambda *args: self.call(name, method, *args))
        return SimpleNamespace(options=lambda **_: remote, remote=remote.remote)

    def call(self, name: str, method: Callable[..., Any], *args: Any) -> Any:
        if name in ("serve", "give"):
            self.ray.given[self.node] += len(args[0])
        if name == "serve":
            return self.stream(method(*args))
        return method(*args)

    def stream(self, answers: Iterator[Any]) -> Iterator[Any]:
        while True:
            self.answers += 1
            if self.ray.dies(self) or self.node not in self.ray.alive:
                self.ray.lost += 1
                raise RayError("The actor died.\nA long trace.")
            try:
                yield next(answers)
            except StopIteration:
                return
            except MemoryError:
                self.ray.lost += 1
                raise RayError("The actor died.") from None
            except Exception as error:
                raise RayTaskError(error) from error


class FakeRay:
    """What `run_on_cluster` uses of Ray."""

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)
    util = SimpleNamespace(
        scheduling_strategies=SimpleNamespace(NodeAffinitySchedulingStrategy=lambda node, soft: (node, soft))
    )

    def __init__(self, nodes: int = 2, dies: Callable[[Actor], bool] = lambda _: False) -> None:
        self.alive = [f"node {number}" for number in range(nodes)]
        self.dies, self.lost, self.started, self.killed = dies, 0, 0, 0
        self.given: Counter[str] = Counter()  # tasks that each node was given

    def nodes(self) -> list[dict[str, Any]]:
        return [{"NodeID": name, "Alive": True, "Resources": {"CPU": 2.0}} for name in self.alive]

    def put(self, value: Any) -> Any:
        return value

    def get(self, value: Any, timeout: float = 0) -> Any:  # noqa: ARG002
        return value

    def wait(self, streams: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:  # noqa: ARG002
        return streams, []

    def kill(self, _: Actor) -> None:
        self.killed += 1

    def remote(self, kind: type) -> Any:
        def start(options: dict[str, Any]) -> Any:
            def make(*args: Any) -> Actor:
                self.started += 1
                assert options["num_cpus"] == 2
                return Actor(self, kind(*args), options["scheduling_strategy"][0])

            return SimpleNamespace(remote=make)

        return SimpleNamespace(options=lambda **options: start(options))


def double() -> Callable[[Iterable[Any]], Iterator[tuple[Hashable, int]]]:
    """What a node does in these tests."""

    def serve(tasks: Iterable[Any]) -> Iterator[tuple[Hashable, int]]:
        for key, number in tasks:
            if number < 0:
                raise DataError("it is negative.")
            if number == DEADLY:
                raise MemoryError
            yield key, 2 * number

    return serve


def run(ray: FakeRay, numbers: Iterable[int], **options: Any) -> list[Any]:
    tasks = ((f"task {number}", number) for number in numbers)
    give_up = options.pop("give_up", lambda key, why: (key, why))
    return list(run_on_cluster(ray, double, tasks, give_up=give_up, ahead=3, **options))


def test_every_task_is_answered_once_by_all_nodes() -> None:
    ray = FakeRay()
    assert sorted(run(ray, range(20))) == [2 * number for number in range(20)]
    assert (ray.started, ray.killed, ray.lost) == (2, 2, 0)
    assert run(ray, []) == []


def test_a_short_list_is_shared_by_all_nodes() -> None:
    ray = FakeRay(nodes=3)
    assert sorted(run(ray, range(5))) == [0, 2, 4, 6, 8]  # the first has room for three
    assert ray.given == {"node 0": 2, "node 1": 2, "node 2": 1}


def test_an_actor_that_is_lost_costs_what_it_had_not_finished() -> None:
    ray = FakeRay(dies=lambda actor: actor.node == "node 1" and actor.answers == 3 and ray.lost == 0)
    assert sorted(run(ray, range(20))) == [2 * number for number in range(20)]
    assert (ray.lost, ray.started) == (1, 3)  # another was started on that node


def test_a_node_that_is_lost_is_done_without() -> None:
    ray = FakeRay()

    def numbers() -> Iterator[int]:
        for number in range(20):
            if number == 10:
                ray.alive.remove("node 0")
            yield number

    assert sorted(run(ray, numbers())) == [2 * number for number in range(20)]
    assert (ray.lost, ray.started) == (1, 2)


def test_a_task_that_kills_its_actor_three_times_is_given_up_and_no_other() -> None:
    ray = FakeRay()
    answers = run(ray, [*range(7), DEADLY, *range(7, 20)])
    assert sorted(one for one in answers if isinstance(one, int)) == [2 * number for number in range(20)]
    [(key, why)] = [one for one in answers if isinstance(one, tuple)]
    assert (key, "was lost 3 times" in why, ray.lost) == (f"task {DEADLY}", True, 3)


def test_an_error_of_the_work_is_raised_as_it_is() -> None:
    with pytest.raises(DataError, match="it is negative"):
        run(FakeRay(), [1, -1])


def test_it_ends_when_it_is_told_to() -> None:
    taken: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(1000):
            taken.append(number)
            yield number

    ray = FakeRay()
    assert len(run(ray, numbers(), stop=lambda: len(taken) > 5)) < 10
    assert len(taken) < 10  # tasks are taken as they are needed
    assert ray.killed == ray.started


def test_a_cluster_that_is_lost_or_of_no_use_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_NO_NODE_S", 0.0)
    monkeypatch.setattr(cluster, "_LOOK_S", 0.0)
    ray = FakeRay(nodes=1)

    def numbers() -> Iterator[int]:
        yield from range(5)
        ray.alive.clear()
        yield from range(5, 10)

    with pytest.raises(
        ClusterError, match=r"All nodes of the Ray cluster were lost, the last one so: The actor died\.$"
    ):
        run(ray, numbers())
    with pytest.raises(ClusterError, match="None of the 0 nodes of the Ray cluster has a CPU"):
        run(FakeRay(nodes=0), range(3))
    with pytest.raises(ClusterError, match="has a GPU: compute on CPUs by --device cpu"):
        run(FakeRay(), range(3), gpus=True)


def test_addresses_that_nobody_answers_are_refused_at_once() -> None:
    pytest.importorskip("ray")
    for address in ("ray://localhost:1", "somewhere", "host:port"):
        with pytest.raises(ConfigError, match="is no Ray cluster"), connect(address):
            pass
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(ClusterError, match="cannot be reached"), connect(f"127.0.0.1:{taken.getsockname()[1]}"):
            pass


def test_a_node_that_cannot_do_it_is_named_at_the_start() -> None:
    def fail() -> Any:
        raise DataError("its disk is not mounted.")

    ray = FakeRay()
    with pytest.raises(ClusterError, match="A node of the Ray cluster cannot do this: its disk is not mounted"):
        list(run_on_cluster(ray, fail, [("task", 1)]))
    assert ray.killed == ray.started == 2


def test_workers_are_kept_from_one_run_to_the_next_unless_it_was_left() -> None:
    ray = FakeRay()
    with ClusterWorkers[Any](ray, double) as workers:
        assert sorted(workers.run([(1, 1), (2, 2)])) == [2, 4]
        assert sorted(workers.run([(1, 3)])) == [6]
        assert (ray.started, ray.killed) == (2, 0)
        left = workers.run([(number, number) for number in range(50)])
        next(left)
        left.close()
        assert ray.killed == 2
        assert sorted(workers.run([(1, 1)])) == [2]
    assert ray.started == ray.killed == 4
    with pytest.raises(ClusterError, match=r"Part 5 of the work could not be done: .* was lost 3 times"):
        list(run_on_cluster(ray, double, [(5, DEADLY)]))


def stub_ray(monkeypatch: pytest.MonkeyPatch, *, versions: list[str], refuse: str = "") -> list[str]:
    """A module `ray` whose nodes have these versions of hapvr; what is called of it is listed."""
    called: list[str] = []

    def init(**_: Any) -> None:
        called.append("init")
        if refuse:
            raise RuntimeError(refuse)

    left = iter(versions)
    asked = SimpleNamespace(remote=lambda: next(left))
    stub = SimpleNamespace(
        is_initialized=lambda: False,
        init=init,
        shutdown=lambda: called.append("shutdown"),
        nodes=lambda: [{"NodeID": str(number), "Alive": True} for number in range(len(versions))],
        remote=lambda _: SimpleNamespace(options=lambda **_: asked),
        get=lambda values, timeout: list(values),  # noqa: ARG005
        util=FakeRay.util,
        exceptions=FakeRay.exceptions,
    )
    monkeypatch.setitem(sys.modules, "ray", stub)
    return called


def test_other_versions_are_refused_when_it_connects(monkeypatch: pytest.MonkeyPatch) -> None:
    called = stub_ray(monkeypatch, versions=[hapvr.__version__, hapvr.__version__])
    with connect("auto"):
        assert called == ["init"]
    called = stub_ray(monkeypatch, versions=[hapvr.__version__, "0.0.1"])
    with pytest.raises(ClusterError, match=f"has hapvr 0.0.1, this machine {hapvr.__version__}"), connect("auto"):
        pass
    assert called == ["init", "shutdown"]
    stub_ray(monkeypatch, versions=[], refuse="Version mismatch: The cluster was started with:\n  Ray: 2.1.0\n")
    with pytest.raises(ClusterError, match="'auto' cannot be used: Version mismatch"), connect("auto"):
        pass


@pytest.mark.parametrize(
    "command",
    [
        "add {new} {videos}", "extract {videos} -o {new}", "frames {videos} -o {new}", "search {there} q.mp4 --exact",
        "duplicates {there} -o {new}", "evaluate {there} --work-folder {new}",
    ],
)  # fmt: skip
def test_commands_say_so_before_they_make_anything(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ray")
    (tmp_path / "videos").mkdir()
    names = {"new": tmp_path / "new", "videos": tmp_path / "videos", "there": tmp_path / "there"}
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(SystemExit) as end:
            main([*command.format(**names).split(), "--ray", address])
    assert end.value.code == 2
    assert "cannot be reached" in " ".join(capsys.readouterr().err.split())
    assert [path.name for path in tmp_path.iterdir()] == ["videos"]
