"""The candidate stage of a million videos on one machine: which videos a search would compare, nothing compared.

    python benchmarks/scale.py candidates --work FOLDER --sizes 100000 --probes 150
    python benchmarks/scale.py candidates --work FOLDER --sizes 1000000 --partitions 1024 --iterations 10 --samples 64 \
        --float32 --probes 27 54 108 --exact 40                                            # takes 26 GB of disk

Videos of 30 s are drawn as in benchmarks/library.py, of the same pool, with the same needles and queries. Of each video
the library stores its record and the vectors of its runs of frames, as `hapvr add` makes them, but no regions: those of
a million such videos take 66 GB, and no candidate needs them. Records, vectors, index and search are the library's own
(`Store.write_rows`, `maintain`, `find_nearest`, `count_votes`). Vectors are written a million at a time, `hapvr add`
writes them in smaller pieces and puts these together later, which takes longer.

A needle is found if it is among the videos that a search gives a rough score, 400. With --exact the nearest vectors are
also computed one by one, so that what the index loses is told from what the votes lose. Each size is built by one
process and asked by another, whose peak memory is that of asking.

The library makes a partition for each 4,096 vectors, and each vector is compared with the centre of each partition: the
work to build the index grows by the square of the videos. --partitions makes fewer, --iterations and --samples (vectors
a partition) train them less, and --float32 stores vectors in float32, of which a CPU without instructions for float16
builds an index several times as fast.

Shards: asking S of them at once takes as long as the slowest. From the times that were measured, as if shards were
independent, `simulate_shards` draws S at a time.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from lancedb.index import IvfRq
from numpy.typing import NDArray

from hapvr.bench.drawn_videos import DIMS, draw_query, draw_regions, draw_signs, find_origin, make_record
from hapvr.features import Features
from hapvr.library import Library, candidate_index, engine
from hapvr.library.candidates import (
    MAX_COMPARED,
    NEIGHBOURS,
    Finds,
    count_rough,
    count_votes,
    find_runs,
    max_candidates,
)
from hapvr.library.store import Store
from hapvr.library.tables import FRAMES, VIDEOS, make_frame_rows, make_video_rows
from measure import machine

VIDEO_FRAMES, POOL, WARM_UP = 30, 400, 3
VIDEOS_AT_ONCE = 20_000  # about half a million vectors
DEFAULT_PROBES = candidate_index.PROBES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 300_000, 1_000_000])
    parser.add_argument("--queries", type=int, default=100, help="needles")
    parser.add_argument("--probes", type=int, nargs="+", default=[DEFAULT_PROBES], help="partitions looked through")
    parser.add_argument("--partitions", type=int, help="of the index; the library's own number if not given")
    parser.add_argument("--iterations", type=int, default=50, help="of training the centres of partitions")
    parser.add_argument("--samples", type=int, default=256, help="vectors a partition that they are trained with")
    parser.add_argument("--float32", action="store_true", help="store float32 instead of float16")
    parser.add_argument("--exact", type=int, default=0, help="needles for which all vectors are compared too")
    parser.add_argument("--work", type=Path, required=True, help="where libraries are built; those that are there stay")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    parser.add_argument("--step", choices=["build", "ask"], help=argparse.SUPPRESS)


def measure(arguments: argparse.Namespace) -> None:
    if arguments.step is not None:
        step = build if arguments.step == "build" else ask
        print(json.dumps(step(arguments, arguments.sizes[0])))
        return
    print(machine(), flush=True)
    rows = []
    for size in arguments.sizes:
        row: dict[str, Any] = {"videos": size}
        for step_name in ("build", "ask"):
            options = ["--step", step_name, "--sizes", str(size), "--work", str(arguments.work)]
            options += ["--queries", str(arguments.queries), "--exact", str(arguments.exact)]
            options += ["--probes", *map(str, arguments.probes)] + (["--float32"] if arguments.float32 else [])
            options += ["--iterations", str(arguments.iterations), "--samples", str(arguments.samples)]
            options += [] if arguments.partitions is None else ["--partitions", str(arguments.partitions)]
            command = [sys.executable, str(Path(__file__).with_name("scale.py")), "candidates", *options]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            row |= json.loads(done.stdout.splitlines()[-1])
            print(f"{size:,} videos, {step_name}: {json.dumps(row)}", flush=True)
        rows.append(row)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"machine": machine(), "sizes": rows}, indent=2) + "\n")


# --- building --------------------------------------------------------------------------------------------------------


def build(arguments: argparse.Namespace, size: int) -> dict[str, float]:
    folder = find_folder(arguments, size)
    if (folder / "built.json").is_file():
        return dict(json.loads((folder / "built.json").read_text()))
    shutil.rmtree(folder, ignore_errors=True)
    pool, needles, _ = draw_material(arguments.queries)
    torch.set_num_threads(1)
    own = {"num_partitions": arguments.partitions, "max_iterations": arguments.iterations}
    setattr(engine, "IvfRq", partial(IvfRq, **own, sample_rate=arguments.samples))  # noqa: B010
    with Library.open(folder, create=True, fps=1.0) as library, library.write_access("benchmark") as tables:
        begun, used = time.perf_counter(), time.process_time()
        for first in range(0, size, VIDEOS_AT_ONCE):
            numbers = range(first, min(size, first + VIDEOS_AT_ONCE))
            rows = make_frame_rows(numbers, list(make_vectors(pool, needles, numbers)))
            tables.write_rows(FRAMES, widen(rows) if arguments.float32 else rows)
        written, written_used = time.perf_counter() - begun, time.process_time() - used
        empty = Features(torch.zeros(VIDEO_FRAMES, 1, 1))
        for first in range(0, size, VIDEOS_AT_ONCE):
            numbers = range(first, min(size, first + VIDEOS_AT_ONCE))
            tables.write_rows(VIDEOS, make_video_rows([(make_record(number, empty), number) for number in numbers]))
        begun, used = time.perf_counter(), time.process_time()
        tables.maintain()
        indexing, indexing_used = time.perf_counter() - begun, time.process_time() - used
        sizes = measure_table(folder, FRAMES)
        built = {
            "vectors": tables.candidates.count(),
            "indexed": tables.candidates.count_indexed(),
            "write s": written,
            "write processor s": written_used,
            "index s": indexing,
            "index processor s": indexing_used,
            "build peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10,
            "vectors MB": sizes["data"] / 1e6,
            "index MB": sizes.get("_indices", 0) / 1e6,
            "records MB": sum(measure_table(folder, VIDEOS).values()) / 1e6,
        }
    (folder / "built.json").write_text(json.dumps(built))
    return built


def make_vectors(
    pool: Sequence[NDArray[np.float32]], needles: Sequence[NDArray[np.float32]], numbers: range
) -> Iterator[NDArray[np.float16]]:
    """The vectors [F, C] of videos: signs that are turned leave the runs of a video as they are."""
    halves = [one.astype(np.float16) for one in pool]
    for number in numbers:
        if number < len(needles):
            yield needles[number].astype(np.float16)
        else:
            runs = halves[find_origin(number, len(pool))]
            turned = draw_signs(number, DIMS)[: runs.shape[1]] < 0
            yield (runs.view(np.uint16) ^ (turned.astype(np.uint16) << 15)).view(np.float16)  # its bit of the sign


def widen(rows: pa.Table) -> pa.Table:
    """The same with vectors in float32."""
    vectors = rows["vector"].combine_chunks()
    flat = vectors.flatten().to_numpy(zero_copy_only=False).astype(np.float32)
    wide = pa.FixedSizeListArray.from_arrays(pa.array(flat), vectors.type.list_size)
    place = rows.schema.get_field_index("vector")
    return rows.set_column(place, pa.field("vector", wide.type, nullable=False), wide)


def draw_material(queries: int) -> tuple[list[NDArray[np.float32]], list[NDArray[np.float32]], list[Features]]:
    """Vectors of the pool and of the needles, and the queries of the needles: those of benchmarks/library.py."""
    draw = torch.Generator().manual_seed(0)
    pool = [draw_regions(VIDEO_FRAMES, draw) for _ in range(POOL)]
    needles = [draw_regions(VIDEO_FRAMES, draw) for _ in range(queries + WARM_UP)]
    asked = [draw_query(one, draw, frames=20, mirror=bool(number % 2)) for number, one in enumerate(needles)]
    return [find_runs(one)[0].numpy() for one in pool], [find_runs(one)[0].numpy() for one in needles], asked


def measure_table(library: Path, name: str) -> dict[str, int]:
    """The bytes of each folder in a table's folder."""
    (folder,) = library.glob(f"versions/*/{name}.lance")
    sizes: dict[str, int] = {}
    for path in folder.rglob("*"):
        if path.is_file():
            part = path.relative_to(folder).parts[0]
            sizes[part] = sizes.get(part, 0) + path.stat().st_size
    return sizes


def find_folder(arguments: argparse.Namespace, size: int) -> Path:
    return Path(arguments.work) / f"candidates-{size}"


# --- asking ----------------------------------------------------------------------------------------------------------


def ask(arguments: argparse.Namespace, size: int) -> dict[str, Any]:
    _, _, queries = draw_material(arguments.queries)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    with Library.open(find_folder(arguments, size)) as library:
        tables = library.store
        begun = time.perf_counter()
        catalog = tables.catalog()
        videos, *_ = len(catalog.contents), catalog.paths, catalog.ids, catalog.with_key(0)  # what a search asks for
        answer: dict[str, Any] = {"catalog s": time.perf_counter() - begun}
        answer["catalog peak MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
        count = count_rough(max_candidates(videos, k=10, max_compared=MAX_COMPARED))
        for probes in arguments.probes:
            candidate_index.PROBES = probes
            ranks, times, work = [], [], []
            for needle, query in enumerate(queries):
                begun, used = time.perf_counter(), time.process_time()
                vectors, weights = find_runs(query.regions, query.low_information)
                found, _ = count_votes(*tables.find_nearest(vectors), weights.numpy())
                times.append(1e3 * (time.perf_counter() - begun))
                work.append(1e3 * (time.process_time() - used))
                ranks.append(find_rank(found, needle))
            kept, kept_work = times[WARM_UP:], work[WARM_UP:]
            answer[f"{probes} probes"] = {
                **summarise(ranks, count),
                "first search ms": times[0],
                "p50 ms": float(np.percentile(kept, 50)),
                "p95 ms": float(np.percentile(kept, 95)),
                "processor ms": float(np.median(kept_work)),
                "shards": {shards: simulate_shards(kept, shards) for shards in (10, 100, 1000)},
                "peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10,
            }
        answer["before MB"] = before
        if arguments.exact:
            answer["exact"] = summarise(rank_exactly(tables, queries[: arguments.exact]), count)
    return answer


def find_rank(found: NDArray[np.int64], needle: int) -> int:
    """The place of a needle among the videos that were found, 0 the best; -1 if it is not there."""
    places = np.flatnonzero(found == needle)
    return int(places[0]) if len(places) else -1


def summarise(ranks: Sequence[int], count: int) -> dict[str, float]:
    places = np.array(ranks)
    return {
        "needles": len(ranks),
        "first": float((places == 0).mean()),
        f"among {count}": float(((places >= 0) & (places < count)).mean()),
    }


def simulate_shards(times: Sequence[float], shards: int, *, draws: int = 10_000) -> dict[str, float]:
    """Milliseconds until the slowest of independent shards has answered, by drawing from the times of one."""
    drawn = np.random.default_rng(0).choice(np.array(times), (draws, shards)).max(1)
    return {"p50 ms": float(np.percentile(drawn, 50)), "p95 ms": float(np.percentile(drawn, 95))}


def rank_exactly(tables: Store, queries: Sequence[Features], *, rows: int = 65_536) -> list[int]:
    """The ranks of needles by the votes of the truly nearest vectors: all are compared, `rows` at a time."""
    runs = [find_runs(query.regions, query.low_information) for query in queries]
    asked = torch.cat([vectors for vectors, _ in runs])  # [Q, C]
    best = torch.full((len(asked), NEIGHBOURS), -2.0)
    keys = torch.full((len(asked), NEIGHBOURS), -1, dtype=torch.int64)
    for batch in tables.table_set.open(FRAMES).search().select(["key", "vector"]).to_batches(rows):
        stored = np.asarray(batch["vector"].flatten()).astype(np.float32).reshape(len(batch), -1)
        similar = asked @ torch.from_numpy(stored).T  # [Q, rows]
        own = torch.from_numpy(np.asarray(batch["key"]).copy())
        near = similar.topk(min(NEIGHBOURS, len(batch)), dim=1)
        both, both_keys = torch.cat([best, near.values], 1), torch.cat([keys, own[near.indices]], 1)
        top = both.topk(NEIGHBOURS, dim=1)
        best, keys = top.values, both_keys.gather(1, top.indices)
    ranks, first = [], 0
    for needle, (vectors, weights) in enumerate(runs):
        part = slice(first, first + len(vectors))
        first += len(vectors)
        which = np.repeat(np.arange(len(vectors)), NEIGHBOURS)
        finds: Finds = which, keys[part].numpy().ravel(), best[part].numpy().ravel()
        ranks.append(find_rank(count_votes(*finds, weights.numpy())[0], needle))
    return ranks
