from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from torch import Tensor

from hapvr.errors import ConfigError, DataError, ShapeError, StorageError
from hapvr.evaluation import mean_average_precision, micro_average_precision
from hapvr.evaluation.benchmarks import Benchmark, Task
from hapvr.evaluation.chunks import Chunk, plan_chunks, read_chunks
from hapvr.evaluation.extraction import find_video_files
from hapvr.evaluation.protocol import evaluate
from hapvr.evaluation.score_files import Scores
from hapvr.evaluation.scoring import Scoring, WorkFolder, score_benchmark
from hapvr.features import FeatureFile, Features, FeatureWriter
from hapvr.features.feature_writer import convert_features
from hapvr.similarity import VideoSimilarity
from hapvr.video.sandboxed import end_decoders
from tests.similarity import models

LENGTHS = {"q/1": 5, "q/2": 12, "q/3": 30} | {f"v{number:02d}": 3 + 7 * number % 31 for number in range(20)}
QUERIES = ("q/1", "q/2", "q/3")
DATABASE = ("q/1", *(f"v{number:02d}" for number in range(19, -1, -1)))  # in another order than the file
LABELS = {"q/1": {"v01": "1", "v07": "1"}, "q/2": {"v02": "1"}, "q/3": {"v03": "1", "v04": "0"}}
TASKS = (Task("mAP", ("1",), "mAP"), Task("uAP", ("1",), "uAP"))
BENCHMARK = Benchmark("small", QUERIES, DATABASE, LABELS, TASKS)
CHUNK = 60 * 4 * 4 * 16  # bytes: 60 frames of 4 regions x 16 dims, so that the database is many chunks


def videos() -> dict[str, Tensor]:
    return {id: models.video(length, number) for number, (id, length) in enumerate(LENGTHS.items())}


def publish(path: Path, features: dict[str, Tensor]) -> Path:
    """Features as the field publishes them: by h5py, gzip, its own chunks."""
    with h5py.File(path, "w") as file:
        for id, regions in features.items():
            file.create_dataset(id, data=regions.numpy(), compression="gzip")
    return path


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish(tmp_path_factory.mktemp("features") / "features.h5", videos())


@pytest.fixture(scope="module")
def model() -> VideoSimilarity:
    return models.model()


@pytest.fixture(scope="module")
def whole(model: VideoSimilarity, path: Path) -> Scores:
    return scores_of(score_benchmark(model, BENCHMARK, path, chunk_bytes=CHUNK))


def scores_of(scoring: Scoring) -> Scores:
    assert scoring.scores is not None
    return scoring.scores


def same(a: Scores, b: Scores) -> bool:
    """To the last bit."""
    return a.queries == b.queries and a.targets == b.targets and a.values.tobytes() == b.values.tobytes()


# --- what is computed ------------------------------------------------------------------------------------------------


def test_figures_equal_a_loop_over_single_pairs(model: VideoSimilarity, whole: Scores) -> None:
    regions = videos()
    with torch.no_grad():
        loop = {(q, t): model.score(regions[q], regions[t]).item() for q in QUERIES for t in DATABASE}
    assert set(whole.targets) == set(DATABASE)
    for row, query in enumerate(whole.queries):
        for column, target in enumerate(whole.targets):
            assert whole.values[row, column] == pytest.approx(loop[query, target], abs=1e-4)
    evaluation = evaluate(BENCHMARK, whole)
    others = {query: sorted(set(DATABASE) - {query}) for query in QUERIES}
    rows = [[loop[query, target] for target in others[query]] for query in QUERIES]
    relevant = [[LABELS[query].get(target) == "1" for target in others[query]] for query in QUERIES]
    assert evaluation["mAP"].value == pytest.approx(mean_average_precision(rows, relevant))
    assert evaluation["uAP"].value == pytest.approx(micro_average_precision(rows, relevant))
    assert evaluation.coverage.complete


def test_a_score_known_by_hand(tmp_path: Path) -> None:
    """Two orthogonal frames against the first of them: (1 + 0) / 2."""
    both = torch.eye(16)[:2, None]
    file = publish(tmp_path / "f.h5", {"q": both, "a": both, "b": both[:1]})
    plain = models.model(weighting="none", comparator=False, min_frames=1)
    benchmark = Benchmark("two", ("q",), ("a", "b"), {"q": {"a": "1"}}, TASKS)
    assert scores_of(score_benchmark(plain, benchmark, file)).values.tolist() == [[1.0, 0.5]]


def test_chunks_are_consecutive_and_hold_every_video_once() -> None:
    chunks = plan_chunks(LENGTHS, frames=40)
    assert [id for chunk in chunks for id in chunk.ids] == list(LENGTHS)
    assert all(chunk.frames <= 40 or len(chunk.ids) == 1 for chunk in chunks)
    assert [(chunk.first, chunk.last) for chunk in chunks] == list(
        zip([0, *(chunk.last for chunk in chunks[:-1])], [chunk.last for chunk in chunks], strict=True)
    )
    assert len(chunks) > 5
    with pytest.raises(ConfigError, match="at least"):
        plan_chunks(LENGTHS, frames=0)


def test_queries_may_lie_in_a_file_of_their_own(model: VideoSimilarity, whole: Scores, tmp_path: Path) -> None:
    regions = videos()
    targets = publish(tmp_path / "t.h5", {id: regions[id] for id in DATABASE if id != "q/1"})
    queries = publish(tmp_path / "q.h5", {id: regions[id] for id in QUERIES})
    scores = scores_of(score_benchmark(model, BENCHMARK, targets, query_features=queries, chunk_bytes=CHUNK))
    columns = [whole.targets.index(id) for id in scores.targets]
    np.testing.assert_allclose(scores.values, whole.values[:, columns], atol=1e-5)
    assert evaluate(BENCHMARK, scores).coverage.missing_targets == ("q/1",)


def test_an_open_database_takes_what_the_file_has(model: VideoSimilarity, path: Path) -> None:
    benchmark = Benchmark("open", ("q/1",), ("v01",), {"q/1": {"v01": "1"}}, TASKS, open_database=True)
    scores = scores_of(score_benchmark(model, benchmark, path))
    assert set(scores.targets) == set(LENGTHS) - {"q/1"}


def test_stored_halves_are_read_as_they_are(model: VideoSimilarity, tmp_path: Path) -> None:
    half = {id: regions.half() for id, regions in videos().items()}
    file = publish(tmp_path / "half.h5", half)
    wide = publish(tmp_path / "wide.h5", {id: regions.float() for id, regions in half.items()})
    assert same(scores_of(score_benchmark(model, BENCHMARK, file)), scores_of(score_benchmark(model, BENCHMARK, wide)))


# --- shared and interrupted work -------------------------------------------------------------------------------------


def test_shards_give_the_same_bits_as_one_process(
    model: VideoSimilarity, path: Path, whole: Scores, tmp_path: Path
) -> None:
    def run(shard: tuple[int, int] = (0, 1)) -> Scoring:
        return score_benchmark(model, BENCHMARK, path, work_folder=tmp_path, shard=shard, chunk_bytes=CHUNK)

    parts = [run((index, 3)) for index in (2, 0, 1)]
    assert [part.scores is None for part in parts] == [True, True, False]  # the last one finds all chunks there
    assert sum(part.pairs for part in parts) == len(QUERIES) * len(DATABASE)
    assert parts[-1].finished == parts[-1].chunks > 5
    last = run()
    assert last.pairs == 0
    assert same(scores_of(last), whole)


def test_an_interrupted_run_goes_on_and_gives_the_same_bits(
    model: VideoSimilarity, path: Path, whole: Scores, tmp_path: Path
) -> None:
    def stop(done: int, _: int) -> None:
        if done > 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        score_benchmark(model, BENCHMARK, path, work_folder=tmp_path, chunk_bytes=CHUNK, progress=stop)
    kept = sorted(tmp_path.glob("chunk-*.npz"))
    assert 0 < len(kept) < 8
    kept[0].write_bytes(kept[0].read_bytes()[:100])  # a damaged chunk is computed again
    seen: list[tuple[int, int]] = []
    scoring = score_benchmark(
        model, BENCHMARK, path, work_folder=tmp_path, chunk_bytes=CHUNK, progress=lambda *now: seen.append(now)
    )
    assert 0 < scoring.pairs < whole.values.size
    assert same(scores_of(scoring), whole)
    assert seen[0][0] > 0
    assert seen[-1] == (len(DATABASE), len(DATABASE))
    assert not list(tmp_path.glob(".*.part"))


@pytest.mark.parametrize("dtype", ["float16", "int8", "mixed"])
def test_processes_hand_over_what_is_stored_and_it_means_the_same(tmp_path: Path, dtype: str) -> None:
    kinds = ["float32", "float16"] if dtype == "mixed" else [dtype]
    for number, (id, regions) in enumerate(videos().items()):
        part = tmp_path / f"{kinds[number % len(kinds)]}.h5"
        with FeatureWriter(part, dtype=part.stem, compression=None, sync=False) as writer:  # type: ignore[arg-type]
            writer.add(id, Features(regions, None, np.arange(len(regions)) % 5 == 2))
    compact = tmp_path / f"{kinds[0]}.h5"
    if dtype == "mixed":
        with h5py.File(compact, "r+") as file, h5py.File(tmp_path / "float16.h5") as half:
            for id in videos():
                if id in half:
                    half.copy(id, file, name=id)
    with FeatureFile.open(compact) as file:
        chunks = plan_chunks(file.lengths, frames=30)
        found: dict[str, Tensor] = {}
        for chunk, tensors in read_chunks(file, chunks, device=torch.device("cpu"), reader_processes=2):
            found |= dict(zip(chunk.ids, tensors, strict=True))
        assert set(found) == set(LENGTHS)
        assert all(torch.equal(found[id], file[id].drop_flat().regions) for id in LENGTHS)


def test_compact_features_score_nearly_the_same(
    model: VideoSimilarity, path: Path, whole: Scores, tmp_path: Path
) -> None:
    for dtype, largest in (("float16", 1e-3), ("int8", 1e-2)):
        convert_features(path, tmp_path / f"{dtype}.h5", dtype=dtype)  # type: ignore[arg-type]
        scores = scores_of(score_benchmark(model, BENCHMARK, tmp_path / f"{dtype}.h5", chunk_bytes=CHUNK))
        assert scores.targets == whole.targets
        assert 0 < np.abs(scores.values - whole.values).max() < largest


@pytest.mark.parametrize("reader_processes", [2, 5])  # with 5 the longest videos take more than one block
def test_processes_read_the_same_as_threads(path: Path, reader_processes: int) -> None:
    end_decoders()  # of tests before
    regions = videos()
    with FeatureFile.open(path) as file:
        chunks = plan_chunks(file.lengths, frames=30)
        assert len(chunks) > 8
        found: dict[str, Tensor] = {}
        for chunk, tensors in read_chunks(file, chunks, device=torch.device("cpu"), reader_processes=reader_processes):
            found |= dict(zip(chunk.ids, tensors, strict=True))
    assert list(found) == list(LENGTHS)
    assert all(torch.equal(found[id], regions[id]) for id in LENGTHS)  # also those whose block was filled again since
    assert not multiprocessing.active_children()


def test_a_killed_reading_process_is_an_error(tmp_path: Path) -> None:
    end_decoders()  # of tests before
    regions = {f"v{number}": models.video(40, number) for number in range(9)}
    with FeatureFile.open(publish(tmp_path / "f.h5", regions)) as file:
        chunks = plan_chunks(file.lengths, frames=40)  # one video each, of four blocks: two more than a reader has
        reading = read_chunks(file, chunks, device=torch.device("cpu"), reader_processes=4)
        next(reading)
        for process in multiprocessing.active_children():
            process.kill()
            process.join()
        with pytest.raises(StorageError, match=r"f\.h5.*was ended by SIGKILL.*fewer reader processes"):
            list(reading)
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("reader_processes", [0, 2])
def test_flat_frames_are_left_out_whoever_reads_and_wherever_flags_begin(tmp_path: Path, reader_processes: int) -> None:
    regions = {id: models.video(length, length) for id, length in (("plain", 5), ("some", 6), ("all", 3), ("none", 4))}
    flags = {"some": np.array([1, 0, 1, 0, 0, 1], bool), "all": np.ones(3, bool), "none": np.zeros(4, bool)}
    with FeatureWriter(tmp_path / "f.h5") as writer:
        for id, values in regions.items():  # as where our videos were added to a published file: the first has no flags
            writer.add(id, Features(values, None, flags.get(id)))
    expected = {id: values[torch.from_numpy(~flags[id])] if id == "some" else values for id, values in regions.items()}
    with FeatureFile.open(tmp_path / "f.h5") as file:
        chunks = plan_chunks(file.lengths, frames=12)
        read = read_chunks(file, chunks, device=torch.device("cpu"), reader_processes=reader_processes)
        found = {id: tensor.clone() for chunk, tensors in read for id, tensor in zip(chunk.ids, tensors, strict=True)}
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[id], expected[id]) for id in expected)


def test_what_a_reading_process_cannot_use_is_an_error_when_it_is_its_turn(tmp_path: Path) -> None:
    regions = {"a": models.video(3), "b": models.video(4)}
    regions["b"][0, 0, 0] = torch.nan
    with FeatureFile.open(publish(tmp_path / "bad.h5", regions)) as file:
        chunks = plan_chunks(file.lengths, frames=4)
        reading = read_chunks(file, chunks, device=torch.device("cpu"), reader_processes=2)
        chunk, tensors = next(reading)
        assert chunk.ids == ("a",)
        assert torch.equal(tensors[0], regions["a"])
        with pytest.raises(StorageError, match=r"bad\.h5.*'b'.*NaN.*Copy it again"):
            next(reading)


def test_a_work_folder_does_not_mix_evaluations(
    model: VideoSimilarity, path: Path, whole: Scores, tmp_path: Path
) -> None:
    work = tmp_path / "work"

    def run(model: VideoSimilarity, features: Path, benchmark: Benchmark = BENCHMARK, **settings: object) -> Scoring:
        return score_benchmark(model, benchmark, features, work_folder=work, chunk_bytes=CHUNK, **settings)  # type: ignore[arg-type]

    run(model, path)
    regions = videos()
    regions["v05"] = -regions["v05"]
    other = publish(tmp_path / "other.h5", regions)
    cases: dict[str, Callable[[], Scoring]] = {
        "model": lambda: run(models.model(seed=1), path),
        "features": lambda: run(model, other),
        "queries": lambda: run(model, path, replace(BENCHMARK, queries=QUERIES[:2], labels={})),
        "database": lambda: run(model, path, replace(BENCHMARK, database=DATABASE[:-1], labels={})),
        "precision": lambda: run(model, path, dtype=torch.bfloat16),
        "benchmark": lambda: run(model, path, replace(BENCHMARK, name="large")),
    }
    for name, case in cases.items():
        with pytest.raises(StorageError, match=f"another evaluation: its {name} is"):
            case()
    # Who deletes the record alone does not get the old chunks.
    (work / "work.json").unlink()
    changed = run(model, other)
    assert changed.pairs == whole.values.size
    assert not same(scores_of(changed), whole)
    (work / "work.json").write_text("{")
    with pytest.raises(StorageError, match="damaged"):
        run(model, path)


def test_a_stored_chunk_of_another_shape_or_with_nan_counts_as_unfinished(tmp_path: Path) -> None:
    folder, chunk = WorkFolder(tmp_path, {"a": 1}), Chunk(0, 0, ("x", "y"), (1, 1))
    values = np.zeros((3, 2), np.float32)
    folder.store(chunk, values)
    assert folder.load(chunk, 3) is not None
    assert folder.load(chunk, 4) is None
    folder.store(chunk, np.full((3, 2), np.nan, np.float32))
    assert folder.load(chunk, 3) is None
    assert json.loads((tmp_path / "work.json").read_text()) == {"a": 1}


# --- what is refused -------------------------------------------------------------------------------------------------


def test_features_of_other_dims_are_refused(model: VideoSimilarity, tmp_path: Path) -> None:
    file = publish(tmp_path / "wide.h5", {id: models.video(4, dims=24) for id in LENGTHS})
    with pytest.raises(ShapeError, match=r"wide\.h5.*24 dims.*takes 16"):
        score_benchmark(model, BENCHMARK, file)


def test_features_and_scores_that_are_not_finite_are_refused(
    model: VideoSimilarity, path: Path, tmp_path: Path
) -> None:
    regions = videos()
    regions["q/2"][1] = torch.inf
    file = publish(tmp_path / "bad.h5", regions)
    with pytest.raises(StorageError, match=r"bad\.h5.*'q/2'.*infinite"):
        score_benchmark(model, BENCHMARK, file)
    broken = models.model()
    assert broken.comparator is not None
    assert broken.attention is not None
    with torch.no_grad():
        broken.comparator.final.weight.fill_(torch.nan)
    with pytest.raises(DataError, match=r"score of query 'q/1' and '.*' is nan.*weights"):
        score_benchmark(broken, BENCHMARK, path)
    with torch.no_grad():
        broken.attention.transform.weight.fill_(torch.nan)
    with pytest.raises(DataError, match="what the model makes of query 'q/1'"):
        score_benchmark(broken, BENCHMARK, path)


def test_a_file_cut_short_is_refused(model: VideoSimilarity, path: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.h5"
    cut.write_bytes(path.read_bytes()[:-3000])
    with pytest.raises(StorageError, match=r"cut\.h5"):
        score_benchmark(model, BENCHMARK, cut)
    with pytest.raises(StorageError, match="does not exist"):
        score_benchmark(model, BENCHMARK, tmp_path / "none.h5")


def test_a_file_of_other_videos_is_refused(model: VideoSimilarity, path: Path) -> None:
    for benchmark, what in (
        (Benchmark("x", ("a",), DATABASE, {}, TASKS), "queries"),
        (Benchmark("x", QUERIES, ("a",), {}, TASKS), "database videos"),
    ):
        with pytest.raises(DataError, match=f"has none of the . {what} .*another benchmark"):
            score_benchmark(model, benchmark, path)


def test_a_shard_that_does_not_exist_or_has_no_folder_is_refused(model: VideoSimilarity, path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        score_benchmark(model, BENCHMARK, path, shard=(2, 2))
    with pytest.raises(ConfigError, match="work folder"):
        score_benchmark(model, BENCHMARK, path, shard=(0, 2))


# --- files of videos -------------------------------------------------------------------------------------------------


def test_files_are_found_by_path_or_name_with_or_without_suffix(tmp_path: Path) -> None:
    for name in ("q/1.mp4", "deep/v01.webm", "v02.mp4", "else.mp4", "q2"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    benchmark = Benchmark("x", ("q/1", "q2"), ("v01", "v02.mp4", "v03"), {}, TASKS)
    found = {id: path.relative_to(tmp_path).as_posix() for id, path in find_video_files(benchmark, tmp_path).items()}
    assert found == {"q/1": "q/1.mp4", "q2": "q2", "v01": "deep/v01.webm", "v02.mp4": "v02.mp4"}
    opened = find_video_files(replace(benchmark, open_database=True), tmp_path)
    assert opened.keys() - found.keys() == {"else.mp4"}
    (tmp_path / "q" / "v01.mp4").touch()
    with pytest.raises(ConfigError, match="could both be 'v01'"):
        find_video_files(benchmark, tmp_path)
    with pytest.raises(DataError, match="no video of y"):
        find_video_files(Benchmark("y", ("a",), ("b",), {}, TASKS), tmp_path)
    with pytest.raises(ConfigError, match="no folder"):
        find_video_files(benchmark, tmp_path / "nowhere")
