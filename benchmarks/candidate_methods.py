"""Candidates of a search at equal bytes: a library's votes beside fitted methods, such as DnS's coarse student.

    python benchmarks/candidate_methods.py BENCHMARK FEATURES FITTED... [--kept 15] [--joined 10]

BENCHMARK is a folder of `hapvr make-benchmark` (or its ground_truth.json), FEATURES the HDF5 file of its videos, FITTED
folders of `hapvr method fit`. A method's candidates are the videos with its best scores, those of a DnS's selector the
pairs that it would score again. A library's are counted for several lengths of its vectors, in float16 as the methods'
are: compare lines of about as many bytes.

Two recalls are printed: the share of positives among the candidates, and among as many as a library gives a rough
score before it chooses (four times as many). The mean of a video's frames, nothing learnt, is the floor for
methods with one vector a video. With a fitted `dns`, its fine student compares the candidates of every stage: mAP and
uAP of a search in which all other videos are not scored. DnS as published leaves them the score of the coarse student:
the lines "rest by coarse".

With `--joined N` the database is of films, each of N videos one after another: a query is then a small part of its
film, as a clip of a programme is.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from hapvr.evaluation.benchmarks import Benchmark, open_benchmark
from hapvr.evaluation.protocol import evaluate
from hapvr.evaluation.score_files import Scores
from hapvr.features import FeatureFile, Features
from hapvr.library.candidates import (
    NEIGHBOURS,
    count_rough,
    count_votes,
    find_nearest_vectors,
    find_runs,
    max_candidates,
)
from hapvr.methods import load_method
from hapvr.methods.base import Description
from hapvr.methods.dns import DnS
from measure import machine

DIMS = (16, 32, 64, 128, 256)


@dataclass(frozen=True, eq=False)
class Stage:
    """What chooses candidates."""

    name: str
    bytes: float  # a video
    ranks: NDArray[np.int64]  # [Q, N] places in the database, best first; -1 behind the last that has a vote
    rest: NDArray[np.float32] | None = None  # [Q, N] scores of videos that are no candidates; None: they have none


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark", type=Path)
    parser.add_argument("features", type=Path)
    parser.add_argument("fitted", type=Path, nargs="*")
    parser.add_argument("--kept", type=int, help="candidates of a query; those of a library if not given")
    parser.add_argument("--joined", type=int, default=1, help="videos of the database that are one film")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    print(machine())
    truth = open_benchmark(arguments.benchmark)
    with FeatureFile.open(arguments.features) as file:
        videos = {id: file[id].drop_flat() for id in (*truth.queries, *truth.database)}
    if arguments.joined > 1:
        truth, videos = join_videos(truth, videos, arguments.joined)
    kept = arguments.kept or max_candidates(len(truth.database), k=1, max_compared=200)
    print(f"{len(truth.queries)} queries, {len(truth.database)} videos, {kept} candidates of each query")
    library = [*(rank_by_votes(truth, videos, dims) for dims in DIMS), rank_by_means(truth, videos)]
    if not arguments.fitted:
        print_stages(truth, library, kept)
    for folder in arguments.fitted:
        method: Any = load_method(folder, device=arguments.device)[0]
        sides = [[method.describe(videos[id]) for id in ids] for ids in (truth.queries, truth.database)]
        print(folder)
        if isinstance(method, DnS):
            print_stages(truth, [*library, *rank_by_dns(method, *sides)], kept, compare_exactly(method, *sides))
        else:
            size = float(np.mean([one.bytes for one in sides[1]]))
            print_stages(truth, [*library, Stage(method.title, size, sort_scores(method.score(*sides)))], kept)


def join_videos(truth: Benchmark, videos: dict[str, Features], count: int) -> tuple[Benchmark, dict[str, Features]]:
    """A database of films, each of `count` videos of the database, one after another in the order of their ids."""
    ids = sorted(truth.database)
    film_of = {id: f"film {place // count}" for place, id in enumerate(ids)}
    films = dict.fromkeys(film_of.values())
    joined = {film: Features(torch.cat([videos[id].regions for id in ids if film_of[id] == film])) for film in films}
    labels = {
        query: {film_of[id]: label for id, label in found.items() if id in film_of}
        for query, found in truth.labels.items()
    }
    films_truth = Benchmark(truth.name, truth.queries, tuple(films), labels, truth.tasks)
    return films_truth, {**{id: videos[id] for id in truth.queries}, **joined}


def print_stages(truth: Benchmark, stages: list[Stage], kept: int, exact: NDArray[np.float32] | None = None) -> None:
    """A line for each stage; with exact scores [Q, N], mAP and uAP of a search too, and of comparing everything."""
    for stage in stages:
        recalls = [f"{measure(truth, stage.ranks, count):6.2f}" for count in (kept, count_rough(kept))]
        line = f"  {stage.name:<30} {stage.bytes:7,.0f} bytes a video, recall {' and '.join(recalls)} %"
        if exact is not None:
            line += ", " + format_figures(truth, search(stage, exact, kept))
        print(line, flush=True)
    if exact is not None:
        print(f"  {'all compared exactly':<80} {format_figures(truth, exact)}")


def measure(truth: Benchmark, ranks: NDArray[np.int64], kept: int) -> float:
    """The percentage of positives among the first `kept` places of each query's ranking [Q, N], mean over queries."""
    found = []
    for row, query in enumerate(truth.queries):
        positives = set(truth.labels.get(query, {}))
        if positives:
            first = {truth.database[place] for place in ranks[row, :kept] if place >= 0}
            found.append(len(positives & first) / len(positives))
    return 100 * float(np.mean(found))


def search(stage: Stage, exact: NDArray[np.float32], kept: int) -> NDArray[np.float32]:
    """Exact scores of the candidates, those of the stage (or minus infinity, "not scored") for the rest: [Q, N].

    >>> stage = Stage("two of three", 0, np.array([[2, 0, 1]]))
    >>> search(stage, np.array([[0.1, 0.2, 0.3]], np.float32), 2).tolist()
    [[0.10000000149011612, -inf, 0.30000001192092896]]
    """
    scores = np.full_like(exact, -np.inf) if stage.rest is None else stage.rest.copy()
    for row, places in enumerate(stage.ranks[:, :kept]):
        chosen = places[places >= 0]
        scores[row, chosen] = exact[row, chosen]
    return scores


def format_figures(truth: Benchmark, scores: NDArray[np.float32]) -> str:
    """mAP and uAP in percent."""
    found = evaluate(truth, Scores(tuple(truth.queries), tuple(truth.database), scores), missing="miss")
    values = {one.task.figure: one.overall.value for one in found.results}
    return f"mAP {100 * values['mAP']:6.2f}, uAP {100 * values['uAP']:6.2f}"


def rank_by_votes(truth: Benchmark, videos: dict[str, Features], dims: int) -> Stage:
    """A library's candidates by vectors of `dims` numbers."""
    runs = {id: find_runs(video.regions, dims=dims) for id, video in videos.items()}
    stored = [runs[id][0] for id in truth.database]
    keys = np.repeat(np.arange(len(stored)), [len(one) for one in stored])
    vectors = torch.cat(stored).numpy()
    ranks = np.full((len(truth.queries), len(truth.database)), -1)
    for row, query in enumerate(truth.queries):
        own, weights = runs[query]
        found, _ = count_votes(*find_nearest_vectors(keys, vectors, own, k=NEIGHBOURS), weights.numpy())
        ranks[row, : len(found)] = found
    return Stage(f"library, {dims} dims", 2 * vectors.size / len(stored), ranks)


def rank_by_means(truth: Benchmark, videos: dict[str, Features]) -> Stage:
    """Candidates by the cosines of the mean vectors of videos."""
    means = {id: F.normalize(F.normalize(video.regions.float().mean(1), dim=-1).mean(0), dim=0)
             for id, video in videos.items()}  # fmt: skip
    queries, targets = (torch.stack([means[id] for id in ids]) for ids in (truth.queries, truth.database))
    return Stage("mean of frames", 2.0 * targets.shape[1], sort_scores(queries @ targets.T))


@torch.no_grad()
def rank_by_dns(method: DnS, queries: list[Description], targets: list[Description]) -> list[Stage]:
    """The coarse student's candidates, and the selector's, whose other videos have no score or a coarse one."""
    coarse = method.coarse.score(queries, targets)
    numbers = (torch.cat([one.more["measure"] for one in side]) for side in (queries, targets))
    selected = sort_scores(method.selector(coarse.to(method.device), *numbers))
    size, rest = 2.0 * method.dims[1], coarse.numpy()
    return [
        Stage("DnS, coarse", size, sort_scores(coarse)),
        Stage("DnS, coarse, rest by coarse", size, sort_scores(coarse), rest),
        Stage("DnS, selector", size + 2, selected),
        Stage("DnS, selector, rest by coarse", size + 2, selected, rest),
    ]


def compare_exactly(method: DnS, queries: list[Description], targets: list[Description]) -> NDArray[np.float32]:
    """The fine student's scores of all pairs [Q, N]."""
    fine = [[Description(one.more["fine"], one.times, 0) for one in side] for side in (queries, targets)]
    return np.asarray(method.fine.score(*fine).cpu().numpy(), np.float32)


def sort_scores(scores: torch.Tensor) -> NDArray[np.int64]:
    """Places by scores [Q, N], best first."""
    return np.argsort(-scores.float().cpu().numpy(), axis=1, kind="stable")


if __name__ == "__main__":
    main()
