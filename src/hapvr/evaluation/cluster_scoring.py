"""The chunks of an evaluation scored by the nodes of a Ray cluster: each reads the files of features itself."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from hapvr.evaluation.chunks import Chunk, make_query_descriptors, read_chunks
from hapvr.features import FeatureFile
from hapvr.similarity import VideoSimilarity, pairwise
from hapvr.workers.cluster import connect, run_on_cluster
from hapvr.workers.pool import Task

Values = NDArray[np.float32]
ScoredChunk = tuple[Chunk, float, Values]
"""A chunk, when scoring it began, and its scores [Q, videos]."""
_AHEAD = 2  # chunks of a node: the one it scores and the next


def score_on_cluster(
    address: str,
    model: VideoSimilarity,
    chunks: Sequence[Chunk],
    *,
    features: Path,
    query_features: Path,
    queries: Sequence[str],
    dtype: torch.dtype | None,
    progress: Callable[[int], None],
) -> Generator[ScoredChunk, None, None]:
    """The chunks in any order, with the scores that this machine would compute.

    Args:
        address: see `hapvr.workers.cluster.connect`.
        model: its copy on each node computes there, on a GPU if it is on one here.
        chunks: of the database.
        features: the file of the database, at the same path on every node; also the next.
        query_features: the file of the queries.
        queries: their names in it.
        dtype: of the region products, see `pairwise`.
        progress: called with the number of videos of each chunk.
    """
    if not chunks:
        return
    device = model.device.type
    paths = (features.absolute(), query_features.absolute())
    make = partial(_make_service, copy.deepcopy(model).cpu(), device, paths, tuple(queries), dtype)
    with connect(address) as ray:
        tasks = ((chunk.number, chunk) for chunk in chunks)
        for chunk, values in run_on_cluster(ray, make, tasks, gpus=device == "cuda", ahead=_AHEAD):
            progress(len(chunk.ids))
            yield chunk, time.perf_counter(), values


def _make_service(
    model: VideoSimilarity, device: str, paths: tuple[Path, Path], queries: tuple[str, ...], dtype: torch.dtype | None
) -> Callable[[Iterator[Task]], Iterator[tuple[Hashable, tuple[Chunk, Values]]]]:
    model, file = model.to(device).eval(), FeatureFile.open(paths[0])
    with FeatureFile.open(paths[1]) as query_file, torch.no_grad():
        described = make_query_descriptors(model, query_file, queries)

    def serve(tasks: Iterator[Task]) -> Iterator[tuple[Hashable, tuple[Chunk, Values]]]:
        for number, chunk in tasks:
            with torch.no_grad():
                ((_, videos),) = read_chunks(file, [chunk], device=model.device, reader_processes=0)
                yield number, (chunk, pairwise(model, described, videos, dtype=dtype).numpy())

    return serve
