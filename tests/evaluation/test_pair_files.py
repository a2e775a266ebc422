from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hapvr.errors import ConfigError, DataError, ShapeError
from hapvr.evaluation import open_benchmark, read_benchmark, write_benchmark
from hapvr.evaluation.benchmarks.pair_files import (
    read_boxes,
    read_candidates,
    read_durations,
    read_matches,
    read_pairs,
    read_video_list,
    write_boxes,
    write_candidates,
    write_matches,
)
from hapvr.evaluation.descriptor_track import (
    VideoDescriptors,
    find_limit_breaches,
    read_descriptors,
    search_descriptors,
)
from hapvr.evaluation.pair_records import Candidate, SegmentMatch

TRUTH = """query_id,ref_id,query_start,query_end,ref_start,ref_end
Q000001,R000007,1.5,6.5,20,25
Q000001,R000007,8,10,30,32
Q000002,R000009,0,4,0,4
"""


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


# --- CSV -----------------------------------------------------------------------------------------------------------


def test_candidates_come_back_as_they_were_written(tmp_path: Path) -> None:
    found = [Candidate("q,1", "r", 0.1), Candidate("q2", "r", 1 / 3), Candidate("q2", "s", 1 / 3)]
    write_candidates(found, tmp_path / "c.csv")
    assert read_candidates(tmp_path / "c.csv") == [found[1], found[2], found[0]]  # the best first
    assert (tmp_path / "c.csv").read_text().splitlines()[0] == "query_id,ref_id,score"


def test_matches_come_back_as_they_were_written(tmp_path: Path) -> None:
    found = [
        SegmentMatch("q", "r", ((0.5, 2.25), (1 / 3, 7.0)), 0.25),
        SegmentMatch("q", "r", ((1.0, 2.0), (3.0, 4.0)), 0.5),
    ]
    write_matches(found, tmp_path / "m.csv")
    assert read_matches(tmp_path / "m.csv") == found[::-1]
    header = (tmp_path / "m.csv").read_text().splitlines()[0]
    assert header == "query_id,ref_id,query_start,query_end,ref_start,ref_end,score"


def test_columns_in_any_order_further_ones_and_numbers_as_ids(tmp_path: Path) -> None:
    path = write(
        tmp_path / "m.csv", "score,model,query_start,query_end,ref_start,ref_end,query_id,ref_id\n2,x,4,14,10,18,1,2\n"
    )
    assert read_matches(path) == [SegmentMatch("1", "2", ((4.0, 14.0), (10.0, 18.0)), 2.0)]
    assert read_matches(path, complete_numbers=True)[0].pair == ("Q000001", "R000002")


@pytest.mark.parametrize(("text", "message"), [
    ("", "is empty"),
    ("query_id,score\nq,1\n", "line 1.*ref_id is not among"),
    ("query_id,ref_id,score\nq,r\n", "line 2: 3 cells were expected"),
    ("query_id,ref_id,score\nq,r,high\n", "line 2: score must be a finite number, got 'high'"),
    ("query_id,ref_id,score\nq,r,nan\n", "line 2: score must be a finite number"),
    ("query_id,ref_id,score\nq,,1\n", "line 2: ref_id is empty"),
    ("query_id,ref_id,score\nq,r,1\nq,r,2\n", "line 3.*stand on line 2 already"),
    ('query_id,ref_id,score\n"q,r,1\n', "is no CSV"),
])  # fmt: skip
def test_bad_candidates_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_candidates(write(tmp_path / "c.csv", text))


def test_bad_matches_are_refused(tmp_path: Path) -> None:
    header = "query_id,ref_id,query_start,query_end,ref_start,ref_end,score\n"
    with pytest.raises(DataError, match=r"line 2: a segment runs from 5.0 s to 4.0 s"):
        read_matches(write(tmp_path / "m.csv", f"{header}q,r,5,4,0,1,1\n"))
    with pytest.raises(DataError, match=r"runs from 5.0 s to 5.0 s"):
        read_matches(write(tmp_path / "m.csv", f"{header}q,r,5,5,0,1,1\n"), ground_truth=True)
    with pytest.raises(DataError, match="cannot be read"):
        read_matches(tmp_path / "none.csv")
    (tmp_path / "m.csv").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="no UTF-8"):
        read_matches(tmp_path / "m.csv")


# --- VCSL's JSON ---------------------------------------------------------------------------------------------------


def test_boxes_come_back_as_they_were_written(tmp_path: Path) -> None:
    boxes = {("a", "b"): [((2.0, 12.0), (102.0, 112.0))], ("a", "c"): []}
    write_boxes(boxes, tmp_path / "p.json")
    assert json.loads((tmp_path / "p.json").read_text()) == {"a-b": [[2.0, 102.0, 12.0, 112.0]], "a-c": []}
    assert read_boxes(tmp_path / "p.json") == {"a-b": boxes["a", "b"], "a-c": []}
    write(tmp_path / "s.json", '{"a-b": [[2, 102, 12, 112, 0.83]]}')
    assert read_boxes(tmp_path / "s.json") == {"a-b": boxes["a", "b"]}


@pytest.mark.parametrize(("text", "message"), [
    ("[]", "holds a list"),
    ('{"a-b": 3}', "'a-b' has '3'"),
    ('{"a-b": [[1, 2, 3]]}', "four numbers were expected"),
    ('{"a-b": [[1, 2, NaN, 4]]}', "four numbers were expected"),
    ('{"a-b": [[5, 2, 3, 4]]}', "ends before it starts"),
    ('{"a-b": [], "a-b": []}', "stands twice"),
    ("{", "no JSON"),
])  # fmt: skip
def test_bad_boxes_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_boxes(write(tmp_path / "p.json", text))


# --- lists ---------------------------------------------------------------------------------------------------------


def test_lists_of_videos(tmp_path: Path) -> None:
    metadata = write(tmp_path / "m.csv", "video_id,duration_sec,frames_per_sec\nQ000001,9.5,30\n2,3.0,25\n")
    assert read_video_list(metadata, prefix="Q") == ("Q000001", "Q000002")
    assert read_durations(metadata, prefix="Q") == {"Q000001": 9.5, "Q000002": 3.0}
    plain = write(tmp_path / "ids.txt", "Q000001\nother\n")
    assert read_video_list(plain, prefix="Q") == ("Q000001", "other")
    assert read_durations(plain, prefix="Q") is None
    with pytest.raises(DataError, match="'a' is entry 1 already"):
        read_video_list(write(tmp_path / "ids.txt", "a\na\n"), prefix="Q")
    with pytest.raises(DataError, match="holds no id"):
        read_video_list(write(tmp_path / "ids.txt", "\n"), prefix="Q")
    with pytest.raises(DataError, match="one id a line"):
        read_video_list(write(tmp_path / "ids.txt", "a,b\n"), prefix="Q")
    with pytest.raises(DataError, match="stands on line 2 too"):
        read_pairs(write(tmp_path / "p.csv", "query_id,reference_id\na,b\na,b\n"))
    with pytest.raises(DataError, match="holds no pair"):
        read_pairs(write(tmp_path / "p.csv", "query_id,reference_id\n"))


# --- benchmarks ----------------------------------------------------------------------------------------------------


def test_vsc2022(tmp_path: Path) -> None:
    write(tmp_path / "ground_truth.csv", TRUTH)
    benchmark = open_benchmark("VSC2022", annotations=tmp_path)
    assert benchmark.queries == ("Q000001", "Q000002")
    assert benchmark.labels["Q000001"] == {"R000007": "copy"}
    assert benchmark.segments is not None
    assert benchmark.segments["Q000001"][0] == (1.5, 6.5, "R000007", 20.0, 25.0)
    assert len(benchmark.notes) == 3  # no lists were given
    queries = write(tmp_path / "q.csv", "video_id\nQ000001\nQ000002\nQ000003\n")
    references = write(tmp_path / "r.txt", "R000007\nR000008\nR000009\n")
    benchmark = open_benchmark("vsc2022", annotations=tmp_path, query_list=queries, database_list=references)
    assert (len(benchmark.queries), len(benchmark.database), len(benchmark.notes)) == (3, 3, 1)
    write_benchmark(benchmark, tmp_path / "stored.json")
    assert read_benchmark(tmp_path / "stored.json") == benchmark
    with pytest.raises(DataError, match="1 references of the ground truth are not in it, such as 'R000009'"):
        open_benchmark("vsc2022", annotations=tmp_path, database_list=write(tmp_path / "r.txt", "R000007\n"))
    with pytest.raises(DataError, match="names no segment"):
        open_benchmark("vsc2022", annotations=write(tmp_path / "g.csv", TRUTH.splitlines()[0]))
    with pytest.raises(ConfigError, match="query_list is an option of vsc2022"):
        open_benchmark("evve", annotations=tmp_path, query_list=queries)


def make_vcsl(folder: Path) -> Path:
    folder.mkdir()
    labels = {"a-b": [[0, 10, 5, 15], [7, 1, 7, 2]], "a-c": [[1, 1, 3, 3]], "x-y": [[0, 0, 1, 1]]}
    write(folder / "label_file_uuid_total.json", json.dumps(labels))
    write(folder / "pair_file_test.csv", "query_id,reference_id\na,b\na,d\nb,c\n")
    write(folder / "split_meta_pairs.json", json.dumps({"test": {"film": ["a-b", "a-c"]}, "val": {"other": ["x-y"]}}))
    return folder


def test_vcsl(tmp_path: Path) -> None:
    folder = make_vcsl(tmp_path / "data")
    benchmark = open_benchmark("vcsl", annotations=folder)
    assert benchmark.labels == {"a": {"b": "copy", "d": "no copy"}, "b": {"c": "no copy"}}
    assert benchmark.segments == {"a": ((0.0, 5.0, "b", 10.0, 15.0),), "b": ()}
    assert benchmark.notes == ("1 true segments without a duration are left out.",)
    assert benchmark.pair_sets == {"film": (("a", "b"),)}
    write_benchmark(benchmark, tmp_path / "stored.json")
    assert read_benchmark(tmp_path / "stored.json") == benchmark
    every = open_benchmark("vcsl", annotations=folder, split="all")
    assert every.labels == {"a": {"b": "copy", "c": "copy"}, "x": {"y": "copy"}}
    assert every.pair_sets == {"film": (("a", "b"), ("a", "c")), "other": (("x", "y"),)}
    with pytest.raises(DataError, match=r"no pair_file_val.csv"):
        open_benchmark("vcsl", annotations=folder, split="val")
    with pytest.raises(ConfigError, match=r"no split 'tset'.*test"):
        open_benchmark("vcsl", annotations=folder, split="tset")
    (folder / "pair_file_test.csv").unlink()
    assert "labelled pairs" in open_benchmark("vcsl", annotations=folder).notes[0]
    write(folder / "label_file_uuid_total.json", '{"a-b-c": [[0, 0, 1, 1]]}')
    with pytest.raises(DataError, match="'a-b-c' is no QUERY-REFERENCE"):
        open_benchmark("vcsl", annotations=folder)


# --- descriptors ---------------------------------------------------------------------------------------------------


def make_descriptors(lengths: dict[str, int], *, dims: int = 4, seed: int = 0) -> VideoDescriptors:
    random = np.random.default_rng(seed)
    ids = np.concatenate([np.full(length, id) for id, length in lengths.items()])
    times = np.concatenate([np.arange(length, dtype=np.float64) for length in lengths.values()])
    # Few distinct values, so that there are equal products.
    return VideoDescriptors(ids, times, random.integers(-2, 3, (len(ids), dims)).astype(np.float32))


def write_descriptors(descriptors: VideoDescriptors, path: Path) -> None:
    """A .npz file as VSC2022 takes it: ids ascending."""
    order = np.argsort(descriptors.ids, kind="stable")
    ids, times, features = (part[order] for part in (descriptors.ids, descriptors.timestamps, descriptors.features))
    np.savez(path, video_ids=ids, timestamps=times, features=features)


def test_descriptors_of_a_file_are_those_that_were_written(tmp_path: Path) -> None:
    written = make_descriptors({"b": 2, "a": 3})
    write_descriptors(written, tmp_path / "d.npz")
    found = read_descriptors(tmp_path / "d.npz")
    assert found.videos == ("a", "b")
    assert [(id, rows.start, rows.stop) for id, rows in found] == [("a", 0, 3), ("b", 3, 5)]
    assert np.array_equal(found.features, np.concatenate([written.features[2:], written.features[:2]]))
    np.savez(tmp_path / "n.npz", video_ids=np.array([7, 7]), timestamps=np.zeros((2, 2)), features=np.zeros((2, 3)))
    assert read_descriptors(tmp_path / "n.npz", prefix="Q").videos == ("Q000007",)


def test_bad_descriptors_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    with pytest.raises(DataError, match="cannot be read"):
        read_descriptors(path)
    path.write_bytes(b"PK no archive")
    with pytest.raises(DataError, match="holds no descriptors, or is damaged"):
        read_descriptors(path)
    np.savez(path, video_ids=np.array(["a"]), timestamps=np.zeros(1))
    with pytest.raises(DataError, match="features was expected"):
        read_descriptors(path)
    np.savez(path, video_ids=np.array(["a"]), timestamps=np.zeros(2), features=np.zeros((2, 3)))
    with pytest.raises(DataError, match="got 2 features, 1 video_ids and 2 timestamps"):
        read_descriptors(path)
    np.savez(path, video_ids=np.array(["a"]), timestamps=np.zeros((1, 3)), features=np.zeros((1, 3)))
    with pytest.raises(DataError, match="timestamps must be"):
        read_descriptors(path)
    np.savez(path, video_ids=np.array(["a"]), timestamps=np.zeros(1), features=np.full((1, 3), np.nan))
    with pytest.raises(DataError, match="'a' in row 0 is not finite"):
        read_descriptors(path)
    np.savez(path, video_ids=np.array(["a"]), timestamps=np.zeros(1), features=np.zeros((1, 3), int))
    with pytest.raises(DataError, match="features must be floating point"):
        read_descriptors(path)
    with pytest.raises(ShapeError, match="of 4 dims and references of 5"):
        search_descriptors(make_descriptors({"a": 1}), make_descriptors({"b": 1}, dims=5))


def test_the_limits_of_the_challenge() -> None:
    fine = make_descriptors({"a": 2, "b": 2}, dims=512)
    assert find_limit_breaches(fine, {"a": 1.2, "b": 1.9}) == []  # rounded up: 2 s each
    assert "at most one a second" in find_limit_breaches(fine, {"a": 1.2, "b": 0.9})[0]
    assert "not of the set, such as 'b'" in find_limit_breaches(fine, {"a": 9.0})[0]
    assert "513 dims, at most 512" in find_limit_breaches(make_descriptors({"a": 1}, dims=513))[0]
    assert "row 1 is 'a', after 'b'" in find_limit_breaches(make_descriptors({"b": 1, "a": 1}))[0]


@pytest.mark.parametrize("per_query", [1, 3, 7, 1000])
def test_the_search_agrees_with_a_loop(per_query: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hapvr.evaluation.descriptor_track._BLOCK", 3)
    queries, references = make_descriptors({"q": 3, "p": 2}), make_descriptors({"x": 4, "y": 1, "z": 5}, seed=1)
    products = [
        (-float(sum(a * b for a, b in zip(one, other, strict=True))), row, column)
        for row, one in enumerate(queries.features.tolist())
        for column, other in enumerate(references.features.tolist())
    ]
    expected: dict[tuple[str, str], float] = {}
    for value, row, column in sorted(products)[: per_query * 2]:
        expected.setdefault((str(queries.ids[row]), str(references.ids[column])), -value)
    found = search_descriptors(queries, references, per_query=per_query, candidates_per_query=2)
    assert found == [Candidate(*pair, score) for pair, score in expected.items()][:4]
