"""The candidate stage with frame vectors in the library and in Milvus: latency, recall, time to build, memory.

    python benchmarks/scale.py milvus --vectors 1000000 [--kinds embedded milvus] [--work DIR]

Vectors are those of drawn videos, as in benchmarks/library.py: 30 frames each, ten relatives at a time, and 100
needles, of which edited parts are the queries. They are put into the index as `hapvr add` does it, without regions and
records. The Milvus server is the one of the package `milvus`, on this machine, with its usual settings. Queries are
asked twice: when it says that all vectors are indexed ("at once"), and when it has come to rest after that, because
until then some segments may be searched without their index, and others be joined and indexed again. Recall is the
share of the 300 nearest vectors of each frame that are found, by the contents they belong to; "needle first" is the
share of queries whose needle has the most votes. Times of a query are of all its frames in one call. Processor time
counts the client and the server. Each kind runs in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from candidate_index import WARM_UP, draw_material, make_vectors
from hapvr.library import Library
from hapvr.library.candidate_index import CandidateIndex
from hapvr.library.candidates import NEIGHBOURS, count_votes, find_runs
from hapvr.library.milvus_index import MilvusIndex
from measure import held_bytes, machine

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `tests`

from tests.milvus_server import serve_milvus

NEEDLES = 100
KINDS = ("embedded", "milvus")
_BATCH = 256  # videos that are added at once
_AT_ONCE = ("p50 ms", "p95 ms", "processor ms")
_REST_S, _MAX_REST = 10.0, 0.1  # a server is at rest that takes less than this share of a core for so long


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--vectors", type=int, default=100_000)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--work", type=Path, help="where vectors and indexes lie; a temporary folder if not given")
    parser.add_argument("--kind", choices=KINDS, help=argparse.SUPPRESS)


def measure(options: argparse.Namespace) -> None:
    if options.kind is not None:
        print(json.dumps(measure_kind(options.kind, options.work)))
        return
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        work = options.work or Path(folder)
        draw(options.vectors, work)
        for kind in options.kinds:
            command = [sys.executable, str(Path(__file__).with_name("scale.py")), "milvus", "--kind", kind]
            done = subprocess.run([*command, "--work", str(work)], stdout=subprocess.PIPE, text=True, check=True)
            row = json.loads(done.stdout.splitlines()[-1])
            print(kind, "  ".join(f"{name} {value:,.4g}" for name, value in row.items()), flush=True)


# --- vectors ---------------------------------------------------------------------------------------------------------


def draw(count: int, work: Path) -> None:
    """Vectors of at least `count` frames, those of queries, and what an exact search says of them."""
    torch.set_num_threads(1)
    pool, needles, asked = draw_material(NEEDLES)
    parts: list[NDArray[np.float16]] = []
    total = 0
    for part in make_vectors(pool, needles, range(count)):
        parts.append(part)
        total += len(part)
        if total >= count:
            break
    np.save(work / "vectors.npy", np.concatenate(parts))
    np.save(work / "sizes.npy", [len(part) for part in parts])
    runs = [find_runs(one.regions, one.low_information) for one in asked]
    np.save(work / "queries.npy", torch.cat([vectors for vectors, _ in runs]).numpy())
    np.save(work / "weights.npy", torch.cat([weights for _, weights in runs]).numpy())
    np.save(work / "query_sizes.npy", [len(vectors) for vectors, _ in runs])
    np.save(work / "nearest.npy", find_exactly(np.concatenate(parts), np.load(work / "queries.npy")))


def find_exactly(vectors: NDArray[np.float16], queries: NDArray[np.float32]) -> NDArray[np.int64]:
    """The numbers of the vectors nearest to each query, [Q, 300]."""
    best, places = torch.zeros(len(queries), 0), torch.zeros(len(queries), 0, dtype=torch.int64)
    for first in range(0, len(vectors), 50_000):
        block = torch.from_numpy(vectors[first : first + 50_000].astype(np.float32))
        scores = torch.cat([best, torch.from_numpy(queries) @ block.T], 1)
        numbers = torch.cat([places, torch.arange(first, first + len(block)).expand(len(queries), -1)], 1)
        best, order = scores.topk(min(NEIGHBOURS, scores.shape[1]))
        places = numbers.gather(1, order)
    return places.numpy()


# --- one kind --------------------------------------------------------------------------------------------------------


def measure_kind(kind: str, work: Path) -> dict[str, float]:
    """Build an index of one kind and ask it."""
    with make_library(kind, work) as (library, server), library.write_access("benchmark") as store:
        index = store.candidates
        start, used = time.perf_counter(), read_processor_s(server)
        vectors, sizes = np.load(work / "vectors.npy", mmap_mode="r"), np.load(work / "sizes.npy")
        ends = np.cumsum(sizes)
        for first in range(0, len(sizes), _BATCH):
            own = [vectors[ends[key] - sizes[key] : ends[key]] for key in range(first, min(first + _BATCH, len(sizes)))]
            index.add(list(range(first, first + len(own))), own)
        written = time.perf_counter() - start
        index.maintain(thoroughly=True)
        wait_until_indexed(index, len(vectors))
        built = {
            "vectors": len(vectors),
            "write s": written,
            "build s": time.perf_counter() - start,
            "build processor s": read_processor_s(server) - used,
        }
        at_once = {f"{name} at once": value for name, value in ask(index, work, server).items() if name in _AT_ONCE}
        start, used = time.perf_counter(), read_processor_s(server)
        wait_until_quiet(server)
        rest = {"rest s": time.perf_counter() - start, "rest processor s": read_processor_s(server) - used}
        return built | at_once | rest | ask(index, work, server)


@contextmanager
def make_library(kind: str, work: Path) -> Iterator[tuple[Library, int | None]]:
    """An empty library, and the process of its server."""
    with tempfile.TemporaryDirectory(dir=work) as folder:
        if kind == "embedded":
            with Library.open(Path(folder) / "library", create=True) as library:
                yield library, None
            return
        with serve_milvus(Path(folder)) as server:
            address = server.address("films")
            with Library.open(Path(folder) / "library", create=True, candidates=address) as library:
                yield library, server.process


def wait_until_indexed(index: CandidateIndex, count: int) -> None:
    while isinstance(index, MilvusIndex) and index.count_indexed() < count:
        time.sleep(0.5)


def wait_until_quiet(server: int | None) -> None:
    """Wait until a server does nothing any more but wait for requests, which takes some 3% of a core."""
    while server is not None:
        used = read_processor_s(server)
        time.sleep(_REST_S)
        if read_processor_s(server) - used < _MAX_REST * _REST_S:
            return


def ask(index: CandidateIndex, work: Path, server: int | None) -> dict[str, float]:
    queries, weights = np.load(work / "queries.npy"), np.load(work / "weights.npy")
    ends, sizes = np.cumsum(np.load(work / "query_sizes.npy")), np.load(work / "query_sizes.npy")
    owners = np.repeat(np.arange(len(np.load(work / "sizes.npy"))), np.load(work / "sizes.npy"))
    nearest = owners[np.load(work / "nearest.npy")]  # [Q, 300], contents
    times, recalls, first = [], [], []
    used = 0.0
    for number, (end, size) in enumerate(zip(ends, sizes, strict=True)):
        used = read_processor_s(server) if number == WARM_UP else used
        vectors, start = torch.from_numpy(queries[end - size : end]), time.perf_counter()
        which, keys, similar = index.find_nearest(vectors, k=NEIGHBOURS, exact=False)
        times.append(1e3 * (time.perf_counter() - start))
        for frame in range(size):
            both = Counter(keys[which == frame].tolist()) & Counter(nearest[end - size + frame].tolist())
            recalls.append(both.total() / nearest.shape[1])
        first.append(count_votes(which, keys, similar, weights[end - size : end])[0][:1].tolist() == [number])
    counted = len(sizes) - WARM_UP
    return {
        "p50 ms": float(np.percentile(times[WARM_UP:], 50)),
        "p95 ms": float(np.percentile(times[WARM_UP:], 95)),
        "processor ms": 1e3 * (read_processor_s(server) - used) / counted,
        "frames a query": float(sizes.mean()),
        "recall": float(np.mean(recalls)),
        "needle first": float(np.mean(first)),
        "client MB": held_bytes(os.getpid()) / 1e6 - (0.0 if server is None else held_bytes(server) / 1e6),
        "server MB": 0.0 if server is None else held_bytes(server) / 1e6,
    }


def read_processor_s(server: int | None) -> float:
    """Processor seconds of this process and of the server."""
    spent = time.process_time()
    if server is not None:
        fields = Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()
        spent += (int(fields[11]) + int(fields[12])) / 100  # in ticks, of which Linux has 100 a second
    return spent
