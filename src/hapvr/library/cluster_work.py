"""Work on a library by the nodes of a Ray cluster, each of which opens the library itself: at the same path, or s3://.

Work is a function of the tables, the model and a task. `run_here` does it in this process, `use_cluster` on nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol, TypeVar

from hapvr.features import Features
from hapvr.library.opening import OpenLibrary
from hapvr.library.store import Store
from hapvr.library.stored_scores import score_contents
from hapvr.model import Model
from hapvr.places import Place
from hapvr.workers.cluster import ClusterWorkers, connect
from hapvr.workers.pool import Task
from hapvr.workers.threads import one_torch_thread

Given = TypeVar("Given")
Result = TypeVar("Result")

_SHARD = 1_024  # contents that are scored at a time: some 50 MB of stored regions
_AHEAD = 2  # tasks of a node: the one it works on and the next


class Run(Protocol):
    """Gives what the work makes of each task, in any order; the work is a function of a module."""

    def __call__(
        self, work: Callable[[Store, Callable[[], Model], Given], Result], tasks: Iterable[Given]
    ) -> Iterator[Result]:
        """Do it."""


def run_here(store: Store, load_model: Callable[[], Model]) -> Run:
    """One task after the other, in this process."""

    def run(work: Callable[[Store, Callable[[], Model], Given], Result], tasks: Iterable[Given]) -> Iterator[Result]:
        return (work(store, load_model, task) for task in tasks)

    return run


@contextmanager
def use_cluster(library: OpenLibrary, address: str | None) -> Iterator[Run | None]:
    """The nodes of a Ray cluster until the block ends; None for no address. See `hapvr.workers.cluster.connect`."""
    if address is None:
        yield None
        return
    gpus = library.model.extractor.device.type == "cuda"
    make = partial(_open_on_node, library.path, "cuda" if gpus else "cpu")
    with connect(address) as ray, ClusterWorkers[Any](ray, make, gpus=gpus) as workers:

        def run(
            work: Callable[[Store, Callable[[], Model], Given], Result], tasks: Iterable[Given]
        ) -> Iterator[Result]:
            return workers.run(((number, (work, task)) for number, task in enumerate(tasks)), ahead=_AHEAD)

        yield run


def _open_on_node(place: Place, device: str) -> Callable[[Iterator[Task]], Iterator[tuple[Hashable, Any]]]:
    library = OpenLibrary.open(place, device=device)
    _ = library.model  # which must be there, and the same

    def serve(tasks: Iterator[Task]) -> Iterator[tuple[Hashable, Any]]:
        for number, (work, task) in tasks:
            yield number, work(library.store, lambda: library.model, task)

    return serve


# --- exact scores ----------------------------------------------------------------------------------------------------


def score_shards(
    run: Run, query: Features, keys: Sequence[int], *, count: int, shard: int | None = None
) -> tuple[dict[int, float], int]:
    """The best `count` of `score_contents` and what ties with the last, by shards; and how many contents there were."""
    shard = shard or _SHARD
    shards = ((query, keys[start : start + shard], count) for start in range(0, len(keys), shard))
    best: dict[int, float] = {}
    compared = 0
    for found, number in run(_score_shard, shards):
        best, compared = keep_best(best | found, count), compared + number
    return best, compared


def _score_shard(
    store: Store, load_model: Callable[[], Model], task: tuple[Features, Sequence[int], int]
) -> tuple[dict[int, float], int]:
    query, keys, count = task
    with one_torch_thread() as threads:
        scores = score_contents(store, load_model(), query, keys, threads=threads)
    return keep_best(scores, count), len(scores)


def keep_best(scores: Mapping[int, float], count: int) -> dict[int, float]:
    """The `count` greatest scores by key, and all that are as great as the last of them.

    So the best of the best of shards are the best of all: what is dropped of a shard has `count` above it there.

    >>> keep_best({1: .5, 2: .9, 3: .5, 4: .1}, 2)
    {1: 0.5, 2: 0.9, 3: 0.5}
    """
    if len(scores) <= count:
        return dict(scores)
    last = sorted(scores.values(), reverse=True)[count - 1]
    return {key: score for key, score in scores.items() if score >= last}
