"""A simulation of the candidate stage of a million videos: are needles among the videos that a search compares?

    python benchmarks/scale.py million --sizes 100000 300000 1000000 --probes       # nothing but exact comparisons
    python benchmarks/scale.py million --sizes 100000 --probes 13 134
    python benchmarks/scale.py million --reach 574 5740 --probes 150 600 --needles 103    # the library's partitions

Videos of 30 s are drawn as in benchmarks/library.py, with its statistics, pool, needles and queries, but other signs; a
part at a time, so that no more than 2 GB of memory is used. A needle is found if the votes put it among the 400
videos that a search gives a rough score.

`exact` compares all vectors. `index` is the library's method in torch: only the partitions whose centres are nearest
are looked through, and similarities are estimated from the signs of turned residuals, a bit a dimension (RaBitQ). The
centres are trained on a small sample, and there are fewer than the library has (a partition for each 4,096 vectors);
`scanned` says how many vectors are looked through, which the library does with 614,400. It says what is found, not how
long the library takes to find it: `candidates` measures that.

`--reach` is quicker: it makes centres alone, as many as are given, and looks for the needles' own vectors. Of those
that a query's vectors would find, it says how many lie in one of the partitions that are looked through.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from hapvr.bench.drawn_videos import draw_query, draw_regions
from hapvr.library.candidates import NEIGHBOURS, count_votes, find_runs

FRAMES, POOL, RELATIVES, TURNED = 30, 400, 10, 0.15  # as in benchmarks/library.py
CANDIDATES = 400  # videos that a search gives a rough score
BLOCK = POOL * RELATIVES  # videos drawn at a time: a family of each origin
FIRST_KEY = 1_000_000_000  # of a video that is no needle


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 300_000, 1_000_000], help="ascending")
    parser.add_argument("--needles", type=int, default=40)
    parser.add_argument("--partitions", type=int, default=512)
    parser.add_argument("--probes", type=int, nargs="*", default=[13, 134], help="none: no index is simulated")
    parser.add_argument("--reach", type=int, nargs="+", help="numbers of partitions; see above")
    parser.add_argument("--json", type=Path, help="write the figures here too")


def measure(arguments: argparse.Namespace) -> None:
    pool, needles, queries = draw_material(arguments.needles)
    draw = torch.Generator().manual_seed(1)
    if arguments.reach is not None:
        for partitions in arguments.reach:
            centres = train_centres(draw_sample(pool, 16 * partitions, draw), partitions, iterations=5)
            for probes in arguments.probes:
                print(json.dumps(measure_reach(centres, needles, queries, probes=probes)), flush=True)
        return
    centres = train_centres(draw_sample(pool, 64 * arguments.partitions, draw), arguments.partitions)
    index = SimulatedIndex(centres, torch.cat([vectors for vectors, _ in queries]), arguments.probes, draw)
    for needle, vectors in enumerate(needles):
        index.add(vectors, torch.full((len(vectors),), needle))
    rows, videos, begun = [], 0, time.process_time()
    while videos < arguments.sizes[-1]:
        vectors = draw_block(pool, draw)
        counts = torch.tensor([len(runs) for runs in pool]).repeat_interleave(RELATIVES)
        index.add(vectors, torch.arange(FIRST_KEY + videos, FIRST_KEY + videos + BLOCK).repeat_interleave(counts))
        videos += BLOCK
        if any(videos - BLOCK < size <= videos for size in arguments.sizes):
            row: dict[str, object] = {
                "videos": videos,
                "vectors": index.count,
                "processor s": round(time.process_time() - begun),
            }
            for name, nearest in index.nearest.items():
                ranks = np.array(rank_needles(*nearest.merge(), [weights for _, weights in queries]))
                row[name] = {
                    "scanned": index.count_scanned(name),
                    "first": float((ranks == 0).mean()),
                    f"among {CANDIDATES}": float(((ranks >= 0) & (ranks < CANDIDATES)).mean()),
                }
            print(json.dumps(row), flush=True)
            rows.append(row)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")


def draw_material(needles: int) -> tuple[list[Tensor], list[Tensor], list[tuple[Tensor, Tensor]]]:
    """Vectors of the pool and of the needles, and those of the queries with their weights."""
    draw = torch.Generator().manual_seed(0)
    pool = [find_runs(draw_regions(FRAMES, draw))[0] for _ in range(POOL)]
    whole = [draw_regions(FRAMES, draw) for _ in range(needles)]
    asked = [draw_query(one, draw, frames=20, mirror=bool(number % 2)) for number, one in enumerate(whole)]
    runs = [find_runs(one.regions, one.low_information) for one in asked]
    return pool, [find_runs(one)[0] for one in whole], runs


def draw_sample(pool: Sequence[Tensor], count: int, draw: torch.Generator) -> Tensor:
    """Vectors [N, C] of as many videos as it takes, in random order."""
    blocks, drawn = [], 0
    while drawn < count:
        blocks.append(draw_block(pool, draw))
        drawn += len(blocks[-1])
    return torch.cat(blocks)[torch.randperm(drawn, generator=draw)[:count]]


def measure_reach(
    centres: Tensor, needles: Sequence[Tensor], queries: Sequence[tuple[Tensor, Tensor]], *, probes: int
) -> dict[str, float]:
    """How much of the needles lies in partitions that are looked through for their queries."""
    vectors, some, most = [], [], []
    for needle, (asked, weights) in zip(needles, queries, strict=True):
        nearest = (asked @ needle.T).argmax(1)  # the needle's vector that each of the query's should find
        partition = (needle @ centres.T).argmax(1)[nearest]
        probed = (asked @ centres.T).topk(min(probes, len(centres)), dim=1).indices
        found = (probed == partition[:, None]).any(1).float()
        vectors.append(float((found * weights).sum() / weights.sum()))
        some.append(bool(found.any()))
        most.append(vectors[-1] > 0.5)
    return {
        "partitions": len(centres),
        "probes": probes,
        "share of frames whose vector is reached": float(np.mean(vectors)),
        "needles of which some are": float(np.mean(some)),
        "needles of which most are": float(np.mean(most)),
    }


def draw_block(pool: Sequence[Tensor], draw: torch.Generator) -> Tensor:
    """Vectors [N, C] of a family of ten relatives of each video of the pool."""
    dims = pool[0].shape[1]
    shared = torch.rand(len(pool), 1, dims, generator=draw) < 0.5
    signs = 1.0 - 2.0 * (shared ^ (torch.rand(len(pool), RELATIVES, dims, generator=draw) < TURNED)).float()
    return torch.cat([(own[:, None] * runs).flatten(0, 1) for own, runs in zip(signs, pool, strict=True)])


def rank_needles(similarities: Tensor, keys: Tensor, weights: Sequence[Tensor]) -> list[int]:
    """The rank of each query's needle by votes, 0 the best; -1 if it is not there."""
    ranks, first = [], 0
    for needle, own in enumerate(weights):
        part = slice(first, first + len(own))
        first += len(own)
        real = (similarities[part] > -2).numpy()  # fewer than asked for were found otherwise
        finds = keys[part].numpy()[real], similarities[part].numpy()[real]
        found, _ = count_votes(np.nonzero(real)[0], *finds, own.numpy())
        places: NDArray[np.intp] = np.flatnonzero(found == needle)
        ranks.append(int(places[0]) if len(places) else -1)
    return ranks


# --- the index -------------------------------------------------------------------------------------------------------


class SimulatedIndex:
    """The nearest vectors to some that are asked for [Q, C], while vectors are added; none of them is kept."""

    def __init__(self, centres: Tensor, asked: Tensor, probes: Sequence[int], draw: torch.Generator) -> None:
        self.centres, self.asked = centres, asked
        self.rotation, _ = torch.linalg.qr(torch.randn(asked.shape[1], asked.shape[1], generator=draw))
        self.to_centres = asked @ centres.T  # [Q, P]
        order = self.to_centres.argsort(dim=1, descending=True).argsort(dim=1)  # the rank of each partition
        self.probed = {f"index, {count} probes": order < count for count in probes}
        self.nearest = {name: Nearest(len(asked)) for name in ["exact", *self.probed]}
        self.sizes = torch.zeros(len(centres), dtype=torch.int64)
        self.count = 0

    def add(self, vectors: Tensor, keys: Tensor) -> None:
        """Vectors [N, C] of videos [N]."""
        self.count += len(vectors)
        self.nearest["exact"].add(self.asked @ vectors.T, keys)
        if not self.probed:
            return
        partition = (vectors @ self.centres.T).argmax(1)
        self.sizes += torch.bincount(partition, minlength=len(self.centres))
        codes = encode((vectors - self.centres[partition]) @ self.rotation.T)
        estimated = (self.asked @ self.rotation.T) @ codes.T
        estimated += self.to_centres[:, partition]
        for name, probed in self.probed.items():
            self.nearest[name].add(estimated.masked_fill(~probed[:, partition], -2.0), keys)

    def count_scanned(self, name: str) -> int:
        """Vectors that a look-up looks through, in the mean."""
        return self.count if name == "exact" else int((self.probed[name].long() @ self.sizes).float().mean())


def encode(turned: Tensor) -> Tensor:
    """Signs of turned residuals [N, C], scaled so that products with turned vectors estimate those with residuals.

    The scale, |r|^2 / <r, signs>, makes it exact for the residual itself.
    """
    signs = 1 - 2 * (turned < 0).float()
    return signs * (turned.square().sum(1) / (turned * signs).sum(1).clamp(min=1e-9))[:, None]


class Nearest:
    """The largest similarities [Q, K] so far, and whose they are."""

    def __init__(self, count: int) -> None:
        self.values = torch.full((count, NEIGHBOURS), -2.0)
        self.keys = torch.full((count, NEIGHBOURS), -1)
        self.waiting: list[tuple[Tensor, Tensor, Tensor]] = []

    def add(self, similarities: Tensor, keys: Tensor) -> None:
        """Similarities [Q, N] to vectors of videos [N]."""
        full = bool((self.values[:, -1] > -2).all())
        if full:
            rows, columns = (similarities > self.values[:, -1:]).nonzero(as_tuple=True)
        else:
            columns = similarities.topk(min(NEIGHBOURS, len(keys)), dim=1).indices.flatten()
            rows = torch.arange(len(similarities)).repeat_interleave(len(columns) // len(similarities))
        self.waiting.append((rows, similarities[rows, columns], keys[columns]))
        if not full or sum(len(one) for one, _, _ in self.waiting) > 500_000:
            self.merge()

    def merge(self) -> tuple[Tensor, Tensor]:
        """All that was added, best first: similarities and keys [Q, K]."""
        own = torch.arange(len(self.values)).repeat_interleave(NEIGHBOURS)
        parts = [*self.waiting, (own, self.values.flatten(), self.keys.flatten())]
        rows, values, keys = (torch.cat(one) for one in zip(*parts, strict=True))
        order = values.argsort(descending=True)
        order = order[rows[order].argsort(stable=True)]  # by row, then the best first
        counts = torch.bincount(rows, minlength=len(self.values))
        first = (counts.cumsum(0) - counts)[:, None] + torch.arange(NEIGHBOURS)
        self.values, self.keys, self.waiting = values[order[first]], keys[order[first]], []
        return self.values, self.keys


def train_centres(sample: Tensor, count: int, *, iterations: int = 10) -> Tensor:
    """Unit centres [P, C] by k-means on a sample [N, C] in random order."""
    centres = sample[:count].clone()
    for _ in range(iterations):
        nearest = (sample @ centres.T).argmax(1)
        sums = torch.zeros_like(centres).index_add_(0, nearest, sample)
        filled = torch.bincount(nearest, minlength=count) > 0
        centres[filled] = F.normalize(sums[filled], dim=1)
    return centres
