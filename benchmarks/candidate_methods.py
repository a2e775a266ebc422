"""How many positives are among the candidates of a search: a library's votes and fitted methods, at equal bytes.

    python benchmarks/candidate_methods.py BENCHMARK FEATURES FITTED... [--kept 15]

BENCHMARK is a folder of `hapvr make-benchmark` (or its ground_truth.json), FEATURES the HDF5 file of its videos, FITTED
folders of `hapvr method fit`, such as of dns-coarse and dns. A method's candidates are the videos with its best scores;
those of dns also the pairs that its selector would score again. A library's are counted for several lengths of its
vectors, in float16 as the methods' are: compare lines of about as many bytes.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hapvr.evaluation.benchmarks import Benchmark, open_benchmark
from hapvr.features import FeatureFile, Features
from hapvr.library.candidates import NEIGHBOURS, count_votes, find_nearest_vectors, find_runs, max_candidates
from hapvr.methods import load_method
from hapvr.methods.dns import DnS
from measure import machine

DIMS = (16, 32, 64, 128, 256)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark", type=Path)
    parser.add_argument("features", type=Path)
    parser.add_argument("fitted", type=Path, nargs="*")
    parser.add_argument("--kept", type=int, help="candidates of a query; those of a library if not given")
    arguments = parser.parse_args()
    print(machine())
    truth = open_benchmark(arguments.benchmark)
    with FeatureFile.open(arguments.features) as file:
        videos = {id: file[id].drop_flat() for id in (*truth.queries, *truth.database)}
    kept = arguments.kept or max_candidates(len(truth.database), k=1, max_compared=200)
    print(f"{len(truth.queries)} queries, {len(truth.database)} videos, {kept} candidates of each query")
    for dims in DIMS:
        ranks, size = rank_by_votes(truth, videos, dims)
        print(f"library, {dims:3} dims: {size:8,.0f} bytes a video, recall {measure(truth, ranks, kept):6.2f} %")
    for folder in arguments.fitted:
        for name, scores, size in rank_by_method(truth, videos, folder):
            recall = measure(truth, np.argsort(-scores, axis=1, kind="stable"), kept)
            print(f"{name}: {size:8,.0f} bytes a video, recall {recall:6.2f} %")


def measure(truth: Benchmark, ranks: NDArray[np.int64], kept: int) -> float:
    """The percentage of positives among the first `kept` places of each query's ranking [Q, N], mean over queries."""
    found = []
    for row, query in enumerate(truth.queries):
        positives = set(truth.labels.get(query, {}))
        if positives:
            first = {truth.database[place] for place in ranks[row, :kept] if place >= 0}
            found.append(len(positives & first) / len(positives))
    return 100 * float(np.mean(found))


def rank_by_votes(truth: Benchmark, videos: dict[str, Features], dims: int) -> tuple[NDArray[np.int64], float]:
    """Places of the database by votes [Q, N], -1 behind the last that has one; and mean bytes a video."""
    runs = {id: find_runs(video.regions, dims=dims) for id, video in videos.items()}
    stored = [runs[id][0] for id in truth.database]
    keys = np.repeat(np.arange(len(stored)), [len(one) for one in stored])
    vectors = torch.cat(stored).numpy()
    ranks = np.full((len(truth.queries), len(truth.database)), -1)
    for row, query in enumerate(truth.queries):
        own, weights = runs[query]
        found, _ = count_votes(*find_nearest_vectors(keys, vectors, own, k=NEIGHBOURS), weights.numpy())
        ranks[row, : len(found)] = found
    return ranks, 2 * vectors.size / len(stored)


@torch.no_grad()
def rank_by_method(
    truth: Benchmark, videos: dict[str, Features], folder: Path
) -> list[tuple[str, NDArray[np.float32], float]]:
    """Scores [Q, N] by which a method ranks, and bytes a video; of dns by the coarse student and by the selector."""
    method: Any = load_method(folder)[0]
    if not isinstance(method, DnS):
        sides = [[method.describe(videos[id]) for id in ids] for ids in (truth.queries, truth.database)]
        size = float(np.mean([one.bytes for one in sides[1]]))
        return [(method.title, method.score(*sides).numpy(), size)]
    sides = [[method.describe(videos[id]) for id in ids] for ids in (truth.queries, truth.database)]
    coarse = method.coarse.score(*sides)
    logits = method.selector(coarse, *(torch.cat([one.more["measure"] for one in side]) for side in sides))
    size = 2.0 * method.dims[1]
    return [("DnS, coarse", coarse.numpy(), size), ("DnS, selector", logits.numpy(), size + 2)]


if __name__ == "__main__":
    main()
