"""A whole benchmark from features at rest: pairs a second, GiB read a second, memory, and what waits for what.

    python benchmarks/evaluate.py                    # the shape of FIVR-5K on a GPU, and FIVR-200K by extrapolation
    python benchmarks/evaluate.py --full             # FIVR-200K itself too, by links
    python benchmarks/evaluate.py --compact int8     # the same features in a compact form, see `hapvr convert-features`
    python benchmarks/evaluate.py --videos 50 --cpu  # a dry run

Features are drawn and written as they are published: HDF5, one gzip dataset a video in h5py's own chunks, float32
[T, 9, 512], lengths lognormal with mean 106. They are unit vectors of normal numbers: as little compressible as
whitened features, whose digits are noise (the ratio is printed). Some 9 GiB for 5,000 videos, into --folder.

A larger database is made by giving every video several names (HDF5 links): each is read, unpacked and scored, but from
the system's cache; a disk must deliver the bytes that the figure `GiB/s from disk` says. The extrapolation to FIVR-200K
compares two such runs, the second of them with --links videos: what a further video takes, and what a run takes besides
(starting the readers, opening the file). `--full` runs all 225,960, of the last form of features that is measured.

`--compact` converts the published file into float16 or int8 without gzip and measures it in the same way, with the
largest difference of a score from that of published features; `--no-published` leaves out the other runs on the
published file. `--precision` is that of the region products, see `pairwise`.

Baselines in the same run, over the same files: `one video at a time` reads a video with h5py, then scores it against
all queries, then reads the next; `one pair at a time` calls VideoSimilarity.score for each pair. GiB count vectors in
float32.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import resource
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
import torch.nn.functional as F

from hapvr.evaluation.benchmarks.benchmark import Benchmark, Task
from hapvr.evaluation.scoring import Scoring, score_benchmark
from hapvr.features import FeatureFile
from hapvr.features.feature_writer import convert_features
from hapvr.similarity import VideoSimilarity, pairwise
from measure import forget_peak, lengths, machine, peak_gib, video
from pairwise import responsive

FIVR_200K, FIVR_QUERIES, AUTHORS_PAIRS_A_SECOND = 225_960, 100, 800
GIB = 2**30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpu", action="store_true", help="score on the CPU")
    parser.add_argument("--videos", type=int, help="in the database; 5,000 on a GPU")
    parser.add_argument("--queries", type=int, help="50 on a GPU")
    parser.add_argument("--float16", type=int, help="videos of a second file, in float16; 1,000 on a GPU")
    parser.add_argument("--links", type=int, help="videos of the larger database; six times --videos")
    parser.add_argument("--full", action="store_true", help="also FIVR-200K, by links to the same videos")
    parser.add_argument(
        "--compact", nargs="*", default=[], choices=["float16", "int8"], help="compact forms to measure"
    )
    parser.add_argument("--no-published", action="store_true", help="leave out runs on the published file")
    parser.add_argument("--precision", choices=["bfloat16", "int8", "float32"])
    parser.add_argument("--no-baselines", action="store_true", help="leave out the slow ways")
    parser.add_argument("--reader-processes", type=int, help="reading processes; by default one a core, but one")
    parser.add_argument("--folder", help="where the files are written, and deleted again")
    parser.add_argument("--json", help="write the figures here too")
    arguments = parser.parse_args()
    gpu = torch.cuda.is_available() and not arguments.cpu
    device = torch.device("cuda" if gpu else "cpu")
    arguments.videos = arguments.videos or (5000 if gpu else 50)
    arguments.queries = min(arguments.queries or (50 if gpu else 4), arguments.videos // 2)
    arguments.float16 = min((1000 if gpu else 8) if arguments.float16 is None else arguments.float16, arguments.videos)
    arguments.reader_processes = arguments.reader_processes or max(1, (os.cpu_count() or 1) - 1)
    torch.manual_seed(0)
    print(f"{machine()}; {os.cpu_count()} cores, {arguments.reader_processes} readers", flush=True)
    figures: dict[str, float] = {}

    def report(name: str, value: float) -> None:
        figures[name] = value
        print(f"  {name:<62} {value:14,.0f}" if value >= 1000 else f"  {name:<62} {value:14.4g}", flush=True)

    if arguments.folder:
        Path(arguments.folder).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        measure(Path(folder), arguments, responsive(device), report)
    if arguments.json:
        with open(arguments.json, "w") as out:
            json.dump({"machine": machine(), **figures}, out, indent=2)


def measure(
    folder: Path, arguments: argparse.Namespace, model: VideoSimilarity, report: Callable[[str, float], None]
) -> None:
    dtype = None if arguments.precision is None else getattr(torch, arguments.precision)
    frames = lengths(arguments.videos, torch.Generator().manual_seed(0))
    ids = [name_of(number) for number in range(len(frames))]
    path = folder / "published.h5"
    start = time.perf_counter()
    write(path, frames, queries=arguments.queries, dtype="float32")
    report("writing: s", time.perf_counter() - start)
    report("writing: size, of float32 uncompressed", path.stat().st_size / (sum(frames) * 9 * 512 * 4))
    with FeatureFile.open(path) as file:
        some = [file[id].regions for id in ids[:8]]
    start = time.perf_counter()
    pairwise(model, some[:2], some, dtype=dtype)
    report("first call (kernels are compiled): s", time.perf_counter() - start)

    queries, few = ids[: arguments.queries], ids[: min(len(ids), 1000)]
    readers = arguments.reader_processes
    forget_peak()
    whole = run(f"{len(queries)} x {len(ids):,}", model, queries, ids, path, readers, report, dtype=dtype, memory=True)
    if not arguments.no_published:
        run(f"{len(queries)} x {len(few):,}, read by threads", model, queries, few, path, 0, report, dtype=dtype)
    if arguments.float16:
        half = folder / "half.h5"
        write(half, frames[: arguments.float16], queries=arguments.queries, dtype="float16")
        known = ids[: arguments.float16]
        run(
            f"{len(queries)} x {len(known):,}, stored in float16",
            model,
            queries,
            known,
            half,
            readers,
            report,
            dtype=dtype,
        )
    if not arguments.no_baselines:
        one_video_at_a_time(model, queries, few[: max(2, len(few) // 5)], path, report)
        exact = one_pair_at_a_time(model, queries, ids[: len(queries) + 4 : max(1, len(queries) // 4)], path, report)
        report("largest distance from one pair at a time", distance(whole, exact))
    last = path
    if not arguments.no_published:
        extrapolate("published", model, ids, path, arguments, report)
    for form in arguments.compact:
        last = folder / f"{form}.h5"
        start = time.perf_counter()
        convert_features(path, last, dtype=form)
        report(f"{form}: converting, s", time.perf_counter() - start)
        report(f"{form}: size, of float32 uncompressed", last.stat().st_size / (sum(frames) * 9 * 512 * 4))
        scoring = run(f"{form}: {len(queries)} x {len(ids):,}", model, queries, ids, last, readers, report, dtype=dtype)
        assert scoring.scores is not None
        assert whole.scores is not None
        apart = float(abs(scoring.scores.values - whole.scores.values).max())
        report(f"{form}: largest difference of a score", apart)
        extrapolate(form, model, ids, last, arguments, report)
    report("FIVR-200K at the authors' 800 pairs/s: minutes", FIVR_QUERIES * FIVR_200K / AUTHORS_PAIRS_A_SECOND / 60)
    if arguments.full:
        wall = linked(f"{last.stem}, full", model, ids, last, FIVR_200K, arguments, report)
        report(f"{last.stem}: FIVR-200K: minutes", wall / 60)


def extrapolate(
    form: str,
    model: VideoSimilarity,
    ids: list[str],
    path: Path,
    arguments: argparse.Namespace,
    report: Callable[[str, float], None],
) -> None:
    """FIVR-200K from two runs of unequal size."""
    sizes = [2 * len(ids), arguments.links or 6 * len(ids)]
    walls = [linked(form, model, ids, path, size, arguments, report) for size in sizes]
    further = (walls[1] - walls[0]) / (sizes[1] - sizes[0])
    report(f"{form}: a further video: ms", 1000 * further)
    report(f"{form}: a run besides: s", walls[0] - sizes[0] * further)
    minutes = (walls[0] + (FIVR_200K - sizes[0]) * further) / 60
    report(f"{form}: FIVR-200K, extrapolated from the two: minutes", minutes)


def run(
    title: str,
    model: VideoSimilarity,
    queries: list[str],
    database: list[str],
    path: Path,
    readers: int,
    report: Callable[[str, float], None],
    *,
    dtype: torch.dtype | None,
    memory: bool = False,
) -> Scoring:
    """One evaluation, from opening the file to the joined scores."""
    begun: list[float] = []
    benchmark = Benchmark(title, tuple(queries), tuple(database), {}, (Task("mAP", ("copy",)),))
    before = os.times()
    start = time.perf_counter()
    scoring = score_benchmark(
        model,
        benchmark,
        path,
        dtype=dtype,
        reader_processes=readers,
        progress=lambda *_: begun.append(time.perf_counter()),
    )
    wall = time.perf_counter() - start
    after = os.times()
    assert scoring.scores is not None
    report(f"{title}: wall s", wall)
    report(f"{title}: of it opening, s", begun[0] - start)
    report(f"{title}: of it waiting for data (starting readers included), s", scoring.waited_s)
    report(f"{title}: of it scoring, s", scoring.scored_s)
    report(f"{title}: pairs/s, wall", scoring.pairs / wall)
    report(f"{title}: pairs/s, while scoring", scoring.pairs / scoring.scored_s)
    report(f"{title}: GiB/s, wall", scoring.bytes_read / GIB / wall)
    busy = sum(after[:4]) - sum(before[:4])  # of the readers too: they have ended
    report(f"{title}: cores busy", busy / wall)
    if memory:
        self, child = (
            resource.getrusage(who).ru_maxrss / 2**20 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        )
        report(f"{title}: peak GiB of this process", self)
        report(f"{title}: peak GiB of the largest child (shared memory included)", child)
        if model.device.type == "cuda":
            report(f"{title}: peak GiB on the GPU", peak_gib())
    return scoring


def linked(
    form: str,
    model: VideoSimilarity,
    ids: list[str],
    path: Path,
    size: int,
    arguments: argparse.Namespace,
    report: Callable[[str, float], None],
) -> float:
    """FIVR's queries against `size` videos, most of them links to others; seconds."""
    database = list(ids[:size])
    with h5py.File(path, "r+") as h5:
        for copy in range(1, -(-size // len(ids))):
            names = ids[: size - copy * len(ids)]
            group = h5.require_group(str(copy))
            for id in names:
                if id not in group:
                    group.id.links.create_hard(id.encode(), h5.id, id.encode())
            database += [f"{copy}/{id}" for id in names]
    title = f"{form}: {min(FIVR_QUERIES, len(ids))} x {len(database):,}"
    dtype = None if arguments.precision is None else getattr(torch, arguments.precision)
    forget_peak()
    start = time.perf_counter()
    readers = arguments.reader_processes
    run(title, model, ids[:FIVR_QUERIES], database, path, readers, report, dtype=dtype, memory=True)
    wall = time.perf_counter() - start
    report(f"{title}: GiB/s from disk", path.stat().st_size / GIB * len(database) / len(ids) / wall)
    return wall


# --- baselines -------------------------------------------------------------------------------------------------------


@torch.no_grad()
def one_video_at_a_time(
    model: VideoSimilarity, queries: list[str], database: list[str], path: Path, report: Callable[[str, float], None]
) -> None:
    start = time.perf_counter()
    with h5py.File(path, "r") as h5:
        described = [model.make_descriptors(torch.from_numpy(h5[id][:]).to(model.device)) for id in queries]
        for id in database:
            pairwise(model, described, [torch.from_numpy(h5[id][:]).to(model.device)])
        size = sum(h5[id].nbytes for id in database)
    wall = time.perf_counter() - start
    report("one video at a time: pairs/s", len(queries) * len(database) / wall)
    report("one video at a time: GiB/s", size / GIB / wall)


@torch.no_grad()
def one_pair_at_a_time(
    model: VideoSimilarity, queries: list[str], database: list[str], path: Path, report: Callable[[str, float], None]
) -> dict[tuple[str, str], float]:
    scores: dict[tuple[str, str], float] = {}
    start = time.perf_counter()
    with h5py.File(path, "r") as h5, torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        described = [model.make_descriptors(torch.from_numpy(h5[id][:]).to(model.device)) for id in queries]
        for id in database:
            target = model.make_descriptors(torch.from_numpy(h5[id][:]).to(model.device))
            for query, regions in zip(queries, described, strict=True):
                scores[query, id] = model.score(regions, target).item()
    report("one pair at a time: pairs/s", len(scores) / (time.perf_counter() - start))
    return scores


def distance(scoring: Scoring, exact: dict[tuple[str, str], float]) -> float:
    scores = scoring.scores
    assert scores is not None
    rows, columns = ({id: place for place, id in enumerate(ids)} for ids in (scores.queries, scores.targets))
    return max(
        abs(float(scores.values[rows[query], columns[target]]) - score) for (query, target), score in exact.items()
    )


# --- files as they are published -------------------------------------------------------------------------------------


def name_of(number: int) -> str:
    return f"{number:06d}"


def write(path: Path, frames: list[int], *, queries: int, dtype: str) -> None:
    """Drawn and packed by as many processes as there are cores; HDF5 takes the packed chunks one after another."""
    jobs = ((number, length, frames[number - queries], queries, dtype) for number, length in enumerate(frames))
    workers = max(1, min(os.cpu_count() or 1, len(frames) // 16))
    with h5py.File(path, "w") as h5, multiprocessing.get_context("spawn").Pool(workers) as pool:
        for number, length, chunks, pieces in pool.imap_unordered(packed, jobs, chunksize=2):
            dataset = h5.create_dataset(
                name_of(number), (length, 9, 512), dtype, chunks=chunks, compression="gzip", compression_opts=4
            )
            for offset, data in pieces:
                dataset.id.write_direct_chunk(offset, data)


def packed(
    job: tuple[int, int, int, int, str],
) -> tuple[int, int, tuple[int, ...], list[tuple[tuple[int, ...], bytes]]]:
    """One video as h5py would store it: h5py's own choice of chunks, each padded and deflated at its usual level."""
    number, length, query_length, queries, dtype = job
    torch.set_num_threads(1)
    torch.manual_seed(number)
    values = video(length, "cpu")
    if queries <= number < 2 * queries:  # a noisy copy of a query
        torch.manual_seed(number - queries)
        query = video(query_length, "cpu")[:length]
        values[: len(query)] = F.normalize(query + 0.02 * torch.randn_like(query), dim=-1)
    array = values.numpy().astype(dtype)
    chunks: tuple[int, ...] = h5py._hl.filters.guess_chunk(array.shape, None, array.itemsize)
    return number, length, chunks, list(deflated(array, chunks))


def deflated(array: np.ndarray[Any, Any], chunks: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], bytes]]:
    for offset in itertools.product(*(range(0, size, step) for size, step in zip(array.shape, chunks, strict=True))):
        part = array[tuple(slice(at, at + step) for at, step in zip(offset, chunks, strict=True))]
        whole = np.zeros(chunks, array.dtype)
        whole[tuple(map(slice, part.shape))] = part
        yield offset, zlib.compress(whole.tobytes(), 4)


if __name__ == "__main__":
    main()
