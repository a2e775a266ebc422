"""All scores of a benchmark from stored features: queries are described once, the database is read once, in chunks.

Chunks are cut by the database alone and each is scored by one call of `pairwise`. So a score does not depend on who
computed it: one process, several that share the work, or a run that was interrupted and continued. A work folder keeps
finished chunks; several processes, on several machines, may fill one folder at the same time:

    WORK/work.json        what is being evaluated: benchmark, model, features, precision, chunks
    WORK/chunk-00007.npz  the scores [Q, videos of the chunk] of a finished chunk
"""

from __future__ import annotations

import contextlib
import io
import json
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
import torch
from numpy.typing import NDArray

from hapvr.errors import ConfigError, DataError, ShapeError, StorageError
from hapvr.evaluation.benchmarks.benchmark import Benchmark
from hapvr.evaluation.chunks import Chunk, make_query_descriptors, plan_chunks, read_chunks
from hapvr.evaluation.cluster_scoring import ScoredChunk, score_on_cluster
from hapvr.evaluation.score_files import NPZ_ERRORS, Scores
from hapvr.features import FeatureFile
from hapvr.similarity import VideoSimilarity, pairwise
from hapvr.storage import (
    StrPath,
    remove_unfinished_files,
    replace_file,
    sample_file,
    sha256_names,
    sha256_tensors,
    write_json,
)

# Bytes of region vectors scored at a time. On a GPU enough for full blocks; a CPU, which is slower, finishes a chunk
# in a minute, which is what an interruption can cost.
_CPU_BYTES, _GPU_BYTES = 64 << 20, 1 << 30
_RECORD = "work.json"


@dataclass(frozen=True)
class Scoring:
    """What `score_benchmark` did."""

    scores: Scores | None  # None while chunks of other shards are missing
    chunks: int  # of the whole database
    finished: int  # of them, by now
    pairs: int  # scored by this call
    bytes_read: int  # region vectors of the database in float32, by this call
    waited_s: float  # for the disk and for unpacking, with nothing else to do
    scored_s: float


@torch.no_grad()
def score_benchmark(
    model: VideoSimilarity,
    benchmark: Benchmark,
    features: StrPath,
    *,
    query_features: StrPath | None = None,
    work_folder: StrPath | None = None,
    shard: tuple[int, int] = (0, 1),
    dtype: torch.dtype | None = None,
    chunk_bytes: int | None = None,
    reader_processes: int | None = None,
    cluster: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Scoring:
    """Score every query that has features against every target that has, in memory bounded by a few chunks.

    Frames that the file flags as flat or repeated are left out, as `hapvr compare` does; published files flag none.
    Videos of the file that the benchmark has no use for are skipped; those that it names and the file lacks get no
    score, which `evaluate` counts.

    Args:
        model: computes on its device.
        benchmark: says which videos are queries and which are targets.
        features: the HDF5 file of the database's features.
        query_features: the file of the queries' features, if they are not in the same one.
        work_folder: a folder that keeps finished chunks; with it, a call continues where an earlier one stopped.
        shard: (i, n), i from 0: only the i-th of n parts of the database, into the work folder.
        dtype: of the region products, see `pairwise`.
        chunk_bytes: region vectors scored at a time; the default suits the device.
        reader_processes: processes that read, 0 for threads; the default suits the device and the size.
        cluster: a Ray cluster whose nodes score the chunks, see `hapvr.workers.cluster.connect`: the files must be at
            the same paths there.
        progress: called with the number of database videos finished so far, and of all in this shard.

    Raises:
        StorageError: a file is missing, damaged, or holds values that are not finite; or the work folder is of another
            evaluation.
        ShapeError: the features are not of the dims that the model takes.
        DataError: the files have no query, or no target, of this benchmark; or a score is not finite.
    """
    index, count = shard
    if not 0 <= index < count:
        raise ConfigError(f"shard {index}/{count} does not exist: of n shards the numbers are 0 to n - 1.")
    if count > 1 and work_folder is None:
        raise ConfigError("A shard needs a work folder, the same for all shards: that is where their scores meet.")
    with contextlib.ExitStack() as opened:
        file = query_file = opened.enter_context(FeatureFile.open(features))
        if query_features is not None and Path(query_features).resolve() != file.path.resolve():
            query_file = opened.enter_context(FeatureFile.open(query_features))
        for each in (file, query_file):
            _require_dims(each, model)
        query_names, target_names = match_names(benchmark.queries, query_file), match_names(benchmark.database, file)
        queries = [id for id in benchmark.queries if id in query_names]
        _require_some(queries, benchmark.queries, query_file, "queries")
        targets = [target_names[id] for id in benchmark.targets_among(target_names)]
        _require_some(targets, benchmark.database, file, "database videos")
        wanted = set(targets)
        # In the order of the file, which is read fastest.
        lengths = {name: length for name, length in file.lengths.items() if name in wanted}
        size = chunk_bytes or (_GPU_BYTES if model.device.type == "cuda" else _CPU_BYTES)
        regions, dims = file.dims or (1, 1)
        chunks = plan_chunks(lengths, frames=max(1, size // (4 * regions * dims)))
        folder = None
        blocks: dict[int, NDArray[np.float32]] = {}
        if work_folder is not None:
            folder = WorkFolder(work_folder, _identify(model, benchmark, queries, chunks, file, query_file, dtype))
            blocks = folder.load_finished(chunks, len(queries))
        mine = chunks[index * len(chunks) // count : (index + 1) * len(chunks) // count]
        todo = [chunk for chunk in mine if chunk.number not in blocks]
        advance = _count_videos(progress, mine, todo)
        waited_s = scored_s = 0.0
        mark = time.perf_counter()
        named = [query_names[query] for query in queries]
        if cluster is None:
            scored = _score_here(model, todo, file, query_file, named, dtype, reader_processes, advance)
        else:
            files = {"features": file.path, "query_features": query_file.path}
            scored = score_on_cluster(cluster, model, todo, **files, queries=named, dtype=dtype, progress=advance)
        opened.callback(scored.close)
        for chunk, began, values in scored:
            _require_finite(values, queries, chunk)
            blocks[chunk.number] = values
            if folder is not None:
                folder.store(chunk, values)
            waited_s, mark = waited_s + began - mark, time.perf_counter()
            scored_s += mark - began
    scores = None
    if len(blocks) == len(chunks):
        known = {name: id for id, name in target_names.items()}
        values = np.concatenate([blocks[chunk.number] for chunk in chunks], axis=1)
        scores = Scores(tuple(queries), tuple(known[id] for chunk in chunks for id in chunk.ids), values)
    return Scoring(
        scores=scores,
        chunks=len(chunks),
        finished=len(blocks),
        pairs=len(queries) * sum(len(chunk.ids) for chunk in todo),
        bytes_read=4 * regions * dims * sum(chunk.frames for chunk in todo),
        waited_s=waited_s,
        scored_s=scored_s,
    )


def take_best_scores(whole: Scores, insets: Scores | None) -> Scores:
    """The scores of queries, or of what some of them show in windows, where those are higher.

    >>> def make(queries, *rows):
    ...     return Scores(queries, ("x", "y"), np.array(rows, np.float32))
    >>> take_best_scores(make(("a", "b"), [0.5, 0], [0.25, 0.5]), make(("b",), [1, 0])).values.tolist()
    [[0.5, 0.0], [1.0, 0.5]]
    """
    if insets is None:
        return whole
    if insets.targets != whole.targets:
        raise DataError("The scores of windows are of other targets than those of whole videos.")
    values, rows = whole.values.copy(), {query: row for row, query in enumerate(whole.queries)}
    for query, own in zip(insets.queries, insets.values, strict=True):
        values[rows[query]] = np.maximum(values[rows[query]], own)
    return Scores(whole.queries, whole.targets, values)


def _score_here(
    model: VideoSimilarity,
    chunks: Sequence[Chunk],
    file: FeatureFile,
    query_file: FeatureFile,
    queries: Sequence[str],
    dtype: torch.dtype | None,
    reader_processes: int | None,
    advance: Callable[[int], None],
) -> Generator[ScoredChunk, None, None]:
    described = make_query_descriptors(model, query_file, queries) if chunks else []
    with contextlib.closing(
        read_chunks(file, chunks, device=model.device, reader_processes=reader_processes)
    ) as reading:
        for chunk, videos in reading:
            began = time.perf_counter()
            yield chunk, began, pairwise(model, described, videos, dtype=dtype, progress=advance).numpy()


def match_names(ids: Iterable[str], file: FeatureFile) -> dict[str, str]:
    """The name of each video of a file in a benchmark with these ids -> its name in the file.

    `hapvr extract` calls a video by its path, "clips/a.mp4"; where no other file could be meant, that is also the
    benchmark's "clips/a" or "a".
    """
    wanted = {id for id in ids if id not in file}
    claims: dict[str, list[str]] = {}
    for name in file.ids if wanted else ():
        path = PurePosixPath(name)
        short = next((one for one in (str(path.with_suffix("")), path.name, path.stem) if one in wanted), None)
        if short is not None:
            claims.setdefault(short, []).append(name)
    known = {short: names[0] for short, names in claims.items() if len(names) == 1}
    taken = set(known.values())
    return {name: name for name in file.ids if name not in taken} | known


def _require_finite(values: NDArray[np.float32], queries: Sequence[str], chunk: Chunk) -> None:
    if not np.isfinite(values).all():
        row, column = np.argwhere(~np.isfinite(values))[0]
        raise DataError(
            f"The score of query '{queries[row]}' and '{chunk.ids[column]}' is {values[row, column]}: the features are "
            "finite, so the model's weights or its precision are at fault. Try float32."
        )


def _require_dims(file: FeatureFile, model: VideoSimilarity) -> None:
    if file.dims is not None and file.dims[1] != model.config.dims:
        raise ShapeError(
            f"'{file.path}' holds features of {file.dims[1]} dims, the model takes {model.config.dims}. Give the "
            "features that go with this model, or the model that goes with these features."
        )


def _require_some(found: Sequence[str], wanted: Sequence[str], file: FeatureFile, what: str) -> None:
    """That some are missing is normal; that all are is a mistake."""
    if not found:
        some = ", ".join(f"'{id}'" for id in wanted[:3])
        theirs = ", ".join(f"'{id}'" for id in file.ids[:3])
        raise DataError(
            f"'{file.path}' has none of the {len(wanted)} {what} (such as {some or 'none'}); it has "
            f"{theirs or 'no video'}. Is it the file of another benchmark?"
        )


def _count_videos(
    progress: Callable[[int, int], None] | None, mine: Sequence[Chunk], todo: Sequence[Chunk]
) -> Callable[[int], None]:
    total = sum(len(chunk.ids) for chunk in mine)
    done = total - sum(len(chunk.ids) for chunk in todo)

    def count(finished: int) -> None:
        nonlocal done
        done += finished
        if progress is not None:
            progress(done, total)

    count(0)
    return count


# --- work folders ------------------------------------------------------------------------------------------------


def _identify(
    model: VideoSimilarity,
    benchmark: Benchmark,
    queries: list[str],
    chunks: list[Chunk],
    file: FeatureFile,
    query_file: FeatureFile,
    dtype: torch.dtype | None,
) -> dict[str, str | int]:
    """All that scores depend on, as the work folder records it."""
    precision = dtype or (torch.bfloat16 if model.device.type == "cuda" else torch.float32)
    return {
        "version": 3,
        "benchmark": benchmark.name,
        "model": sha256_names([repr(model.config), sha256_tensors(model.state_dict())]),
        "precision": f"{str(precision).removeprefix('torch.')} on {model.device.type}",
        "features": sample_file(file.path),
        "query_features": sample_file(query_file.path),
        "queries": sha256_names(queries),
        "database": sha256_names(
            f"{chunk.number} {id} {length}"
            for chunk in chunks
            for id, length in zip(chunk.ids, chunk.lengths, strict=True)
        ),
    }


class WorkFolder:
    """Scores of finished chunks. `StorageError` if the folder belongs to another evaluation.

    Args:
        folder: made if it does not exist.
        identity: everything the scores depend on, as text and numbers by name.
    """

    def __init__(self, folder: StrPath, identity: Mapping[str, str | int]) -> None:
        self.folder = Path(folder)
        self._checksum = sha256_names(f"{name} {value}" for name, value in sorted(identity.items()))
        path = self.folder / _RECORD
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            remove_unfinished_files(self.folder)
            if not path.exists():
                write_json(path, dict(identity), only_new=True)
            found = json.loads(path.read_text("utf-8"))
        except OSError as error:
            raise StorageError(f"'{self.folder}' cannot be used as a work folder: {error.strerror}.") from error
        except ValueError as error:
            raise StorageError(f"'{path}' is damaged: {error}. Give another work folder, or empty this one.") from error
        theirs = found if isinstance(found, dict) else {}
        for name in dict.fromkeys([*identity, *theirs]):
            if theirs.get(name) != identity.get(name):
                raise StorageError(
                    f"'{self.folder}' holds another evaluation: its {name.replace('_', ' ')} is {theirs.get(name)!r}, "
                    f"here it is {identity.get(name)!r}. Scores of the two do not mix: give another work folder, or "
                    f"delete {_RECORD} and chunk-*.npz in this one."
                )

    def load_finished(self, chunks: Iterable[Chunk], queries: int) -> dict[int, NDArray[np.float32]]:
        """The scores of those chunks that are finished, by number."""
        loaded = ((chunk.number, self.load(chunk, queries)) for chunk in chunks)
        return {number: values for number, values in loaded if values is not None}

    def load(self, chunk: Chunk, queries: int) -> NDArray[np.float32] | None:
        """The scores [Q, videos] of a chunk; None if it is not finished, or no longer readable."""
        try:
            content = io.BytesIO(self._path(chunk).read_bytes())  # numpy leaves a damaged file open
            with np.load(content, allow_pickle=False) as file:
                values, of = file["values"], str(file["evaluation"])
        except (OSError, *NPZ_ERRORS):
            return None
        if of != self._checksum or values.dtype != np.float32 or values.shape != (queries, len(chunk.ids)):
            return None
        return values if np.isfinite(values).all() else None

    def store(self, chunk: Chunk, values: NDArray[np.float32]) -> None:
        """Keep the scores of a finished chunk."""
        hint = "Make room, then run it again."
        with replace_file(self._path(chunk), hint=hint) as temporary, temporary.open("wb") as file:
            np.savez(file, values=values, evaluation=np.array(self._checksum))

    def _path(self, chunk: Chunk) -> Path:
        return self.folder / f"chunk-{chunk.number:05d}.npz"
