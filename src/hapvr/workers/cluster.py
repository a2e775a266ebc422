"""A Ray cluster as another executor: tasks go to an actor on each node, results come back as they are done.

A node that is lost, or a process on it, costs what it had not finished: those tasks are given to others, one at a time,
so that a task that brings its process down three times is given up without taking others with it.

Ray is imported here alone, when it is asked for: the extra `ray`.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from hapvr.errors import ClusterError, ConfigError, HapvrError
from hapvr.workers.pool import Task, TaskQueue

Answer = TypeVar("Answer")
Serve = Callable[[Iterator[Task]], Iterable[tuple[Hashable, Answer]]]
"""What runs on a node: tasks to their keys and answers, as they are done. The tasks may end and go on later."""

LOCAL, AUTO = "local", "auto"  # a cluster that is started here, on this machine alone; the one this machine belongs to
_MAX_TRIES = 3
_LOOK_S = 1.0  # how often `stop` is asked
_START_S = 300.0  # that an actor may take to start, with its model
_NO_NODE_S = 30.0  # how long to wait for a node when all are lost
_CONNECT_S = 5.0


@contextmanager
def connect(address: str | None) -> Iterator[Any]:
    """Ray, connected to a cluster until the block ends; a connection that the program has already is used and kept.

    None for no address. `ClusterError` if the cluster does not answer, or has other versions of Ray, Python or hapvr.
    """
    if address is None:
        yield None
        return
    try:
        import ray
    except ModuleNotFoundError as error:
        raise ConfigError("A cluster needs the package ray: pip install 'hapvr[ray]'") from error
    if ray.is_initialized():
        yield ray
        return
    _require_answer(address)
    options: dict[str, Any] = {"address": address, "logging_level": "ERROR", "log_to_driver": False}
    if address == LOCAL:
        options |= {"include_dashboard": False}
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would report its use over the network
    try:
        with _keep_signals(), _elsewhere(), warnings.catch_warnings():
            # Of LanceDB, about the forks by which Ray starts its programs: these never use it.
            warnings.filterwarnings("ignore", message="lancedb fork support")
            ray.init(**options)
    except (ConnectionError, RuntimeError, ValueError, OSError, TimeoutError) as error:
        text = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise ClusterError(f"The Ray cluster '{address}' cannot be used: {text}.") from error
    try:
        if address != LOCAL:
            _require_version(ray)
        yield ray
    finally:
        ray.shutdown()


def _require_version(ray: Any) -> None:
    """Raise `ClusterError` unless all nodes have this version of hapvr."""
    on_node = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    nodes = [one["NodeID"] for one in ray.nodes() if one["Alive"]]
    ask = ray.remote(_get_version)
    strategies = [on_node(node, soft=False) for node in nodes]
    asked = [ask.options(num_cpus=0, scheduling_strategy=strategy).remote() for strategy in strategies]
    here = _get_version()
    try:
        others = sorted(set(ray.get(asked, timeout=_START_S)) - {here})
    except ray.exceptions.RayError as error:
        raise ClusterError(
            f"hapvr cannot be started on a node of the Ray cluster: {_first_line(error)} Is it installed there?"
        ) from error
    if others:
        raise ClusterError(f"A node of the Ray cluster has hapvr {others[0]}, this machine {here}.")


def _get_version() -> str:
    from hapvr import __version__

    return __version__


def _require_answer(address: str) -> None:
    """Raise an error at once for an address that is none, or that nobody listens at; Ray would try for long."""
    if address in (LOCAL, AUTO):
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in address:
        raise ConfigError(f"'{address}' is no Ray cluster: give 'local', 'auto', or HOST:PORT of its head node.")
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise ClusterError(f"The Ray cluster '{address}' cannot be reached: {error}. Is its head node up?") from error


@contextmanager
def _keep_signals() -> Iterator[None]:
    """Within, Ray sets a handler of SIGTERM; the one that was there is set again."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _elsewhere() -> Iterator[None]:
    """Within, the current folder is another: Ray's processes look for modules in it (see `hapvr.workers.processes`)."""
    here = os.getcwd()
    os.chdir(os.path.abspath(os.sep))
    try:
        yield
    finally:
        os.chdir(here)


# --- on a node -------------------------------------------------------------------------------------------------------


class _NodeService:
    """An actor: answers tasks for as long as it has any. `give` is called while `serve` runs."""

    def __init__(self, make: Callable[[], Serve[Any]]) -> None:
        self._tasks: deque[Task] = deque()
        self._problem: str | None = None
        try:
            self._serve = make()
        except HapvrError as error:
            self._problem = str(error)

    def get_problem(self) -> str | None:
        """Why this node cannot be used, if it cannot."""
        return self._problem

    def give(self, tasks: list[Task]) -> None:
        self._tasks.extend(tasks)

    def serve(self, tasks: list[Task]) -> Iterator[tuple[Hashable, Any]]:
        self._tasks.extend(tasks)
        yield from self._serve(TaskQueue(self._tasks))


# --- here ------------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Actor:
    handle: Any
    node: str
    left: dict[Hashable, Any] = field(default_factory=dict)  # tasks that it has, by key
    stream: Any = None  # its answers, while it works


def run_on_cluster(
    ray: Any, make: Callable[[], Serve[Answer]], tasks: Iterable[Task], *, gpus: bool = False, **options: Any
) -> Iterator[Answer]:
    """The answers to tasks, in any order, by workers that end with it; `options` are those of `ClusterWorkers.run`."""
    with ClusterWorkers(ray, make, gpus=gpus) as workers:
        yield from workers.run(tasks, **options)


class ClusterWorkers(Generic[Answer]):
    """An actor on each node, with what `make` gave there, until the block ends.

    Args:
        ray: of `connect`.
        make: called on each node; what it gives answers tasks.
        gpus: an actor for each GPU, instead of one for each node.
    """

    def __init__(self, ray: Any, make: Callable[[], Serve[Answer]], *, gpus: bool = False) -> None:
        self._ray, self._make, self._gpus = ray, ray.put(make), gpus
        self._actors: list[_Actor] = []
        self._again: deque[Task] = deque()  # lost with an actor
        self._tries: Counter[Hashable] = Counter()

    def __enter__(self) -> ClusterWorkers[Answer]:
        return self

    def __exit__(self, *_: object) -> None:
        self._end_actors()

    def run(
        self,
        tasks: Iterable[Task],
        *,
        give_up: Callable[[Hashable, str], Answer] | None = None,
        ahead: int = 10,
        stop: Callable[[], bool] | None = None,
    ) -> Generator[Answer, None, None]:
        """The answers to tasks, in any order; one run at a time.

        Args:
            tasks: taken as they are needed.
            give_up: the answer to a task, by its key and why, that was lost with its process again and again; if None,
                that is a `ClusterError`.
            ahead: tasks that an actor has at a time; answers that nobody has taken yet make it wait.
            stop: asked all the time; True ends it.
        """
        waiting, errors = iter(tasks), self._ray.exceptions
        is_done = False
        try:
            if not self._actors:
                self._start_actors()
            while stop is None or not stop():
                self._feed(waiting, ahead)
                at_work = {id(actor.stream): actor for actor in self._actors if actor.stream is not None}
                if not at_work:
                    is_done = True
                    return
                streams = [actor.stream for actor in at_work.values()]
                for stream in self._ray.wait(streams, timeout=_LOOK_S)[0]:
                    actor = at_work[id(stream)]
                    try:
                        key, answer = self._ray.get(next(stream))
                    except StopIteration:
                        actor.stream = None
                    except errors.RayTaskError as error:
                        raise error.cause from error
                    except errors.RayError as error:
                        yield from self._lose(actor, error, give_up or _refuse)
                    else:
                        actor.left.pop(key, None)
                        self._tries.pop(key, None)
                        yield answer
        finally:
            if not is_done:  # they may have tasks that nobody waits for
                self._end_actors()

    def _end_actors(self) -> None:
        for actor in self._actors:
            self._ray.kill(actor.handle)
        self._actors, self._again, self._tries = [], deque(), Counter()

    def _feed(self, tasks: Iterator[Task], ahead: int) -> None:
        """Give actors what they have room for; a task that was lost before has an actor to itself."""
        new: dict[_Actor, list[Task]] = {actor: [] for actor in self._actors}
        open_to_all = []
        for actor in self._actors:
            if self._again and not actor.left:
                new[actor].append(self._again.popleft())
            elif not any(key in self._tries for key in actor.left):
                open_to_all.append(actor)

        def count(actor: _Actor) -> int:
            return len(actor.left) + len(new[actor])

        # To the one that has fewest: a short list would else be the first actor's alone.
        while open_to_all and count(actor := min(open_to_all, key=count)) < ahead:
            if (task := next(tasks, None)) is None:
                break
            new[actor].append(task)
        for actor in self._actors:
            self._send(actor, new[actor], ahead)

    def _send(self, actor: _Actor, tasks: list[Task], ahead: int) -> None:
        actor.left |= dict(tasks)
        if actor.stream is not None:
            if tasks:
                actor.handle.give.remote(tasks)
        elif actor.left:  # also what was given to it when it had just ended
            serve = actor.handle.serve.options(num_returns="streaming", _generator_backpressure_num_objects=ahead)
            actor.stream = serve.remote(tasks)

    def _lose(self, actor: _Actor, error: Exception, give_up: Callable[[Hashable, str], Answer]) -> Iterator[Answer]:
        """An actor is gone: its tasks are for others."""
        self._actors.remove(actor)
        with suppress(self._ray.exceptions.RayError):
            self._ray.kill(actor.handle)
        for key, task in actor.left.items():
            self._tries[key] += 1
            if self._tries[key] < _MAX_TRIES:
                self._again.append((key, task))
            else:
                yield give_up(key, f"the process of the cluster that had it was lost {_MAX_TRIES} times")
        end = time.monotonic() + _NO_NODE_S
        while True:
            with suppress(ClusterError):  # a node may be going down
                self._start_actors()
            if self._actors:
                return
            if time.monotonic() > end:
                raise ClusterError(f"All nodes of the Ray cluster were lost, the last one so: {_first_line(error)}")
            time.sleep(_LOOK_S)

    def _start_actors(self) -> None:
        """Start an actor on each node, or for each GPU, that has none; `ClusterError` if one cannot be started."""
        from_ray, nodes = self._ray.util.scheduling_strategies, [one for one in self._ray.nodes() if one["Alive"]]
        new: list[_Actor] = []
        for node in nodes:
            cpus, gpus = int(node["Resources"].get("CPU", 0)), int(node["Resources"].get("GPU", 0))
            count = gpus if self._gpus else min(1, cpus)
            taken = sum(actor.node == node["NodeID"] for actor in self._actors)
            for _ in range(count - taken):
                options = {
                    "num_cpus": cpus // count,
                    "num_gpus": int(self._gpus),
                    "max_concurrency": 2,
                    "scheduling_strategy": from_ray.NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
                }
                handle = self._ray.remote(_NodeService).options(**options).remote(self._make)
                new.append(_Actor(handle, node["NodeID"]))
        if not new and not self._actors:
            what = "GPU: compute on CPUs by --device cpu" if self._gpus else "CPU to give"
            raise ClusterError(f"None of the {len(nodes)} nodes of the Ray cluster has a {what}.")
        try:
            found = self._ray.get([actor.handle.get_problem.remote() for actor in new], timeout=_START_S)
        except self._ray.exceptions.RayError as error:
            for actor in new:
                self._ray.kill(actor.handle)
            raise ClusterError(
                f"hapvr cannot be started on a node of the Ray cluster: {_first_line(error)} Is it installed there, "
                "and are the processors of the nodes free?"
            ) from error
        self._actors += new
        for problem in (one for one in found if one is not None):
            raise ClusterError(f"A node of the Ray cluster cannot do this: {problem}")


def _refuse(key: Hashable, why: str) -> Any:
    raise ClusterError(f"Part {key} of the work could not be done: {why}. Have its nodes enough memory?")


def _first_line(error: Exception) -> str:
    """What Ray says, without the traces of its processes."""
    cause = getattr(error, "cause", None)
    lines = [line.strip() for line in str(cause or error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300].rstrip(".") + "."
