"""Readers of annotation files: what they make of the published layouts, and that they refuse everything else."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hapvr.errors import ConfigError, DataError, HapvrError
from hapvr.evaluation import (
    BENCHMARKS,
    Benchmark,
    LeftOut,
    Task,
    TrueSegment,
    open_benchmark,
    read_benchmark,
    write_benchmark,
)
from tests.evaluation import test_protocol as drawn

TASK = Task("mAP", ("1",))


def write_all(folder: Path) -> dict[str, Any]:
    """Every published file, drawn, under its published name; returns what they hold."""
    rng = np.random.default_rng(0)
    content: dict[str, Any] = {
        "fivr.pickle": drawn.draw_fivr(rng)[0],
        "evve.pickle": drawn.draw_evve(rng),
        "vcdb.pickle": drawn.draw_vcdb(rng),
        "cc_web_video.pickle": drawn.draw_cc_web_video(rng),
    }
    for name, value in content.items():
        (folder / name).write_bytes(pickle.dumps(value))
    lines, _ = drawn.draw_svd(rng)
    (folder / "svd_test_groundtruth").write_text("".join(" ".join(line) + "\n" for line in lines))
    segments = "query_id,ref_id,query_start,query_end,ref_start,ref_end\nQ1,R1,0,4.5,10,14.5\nQ1,R2,5,6,0,1\n"
    (folder / "ground_truth.csv").write_text(segments)
    (folder / "label_file_uuid_total.json").write_text('{"a-b": [[0, 10, 5, 15]], "a-a": [[0, 0, 9, 9]]}')
    return content


def pickled(folder: Path, content: Any) -> Path:
    path = folder / "changed.pickle"
    path.write_bytes(pickle.dumps(content))
    return path


# --- what is read ----------------------------------------------------------------------------------------------------


def test_fivr_keeps_the_stronger_label_and_what_the_database_holds(tmp_path: Path) -> None:
    annotation = {"q": {"CS": ["a", "b", "gone"], "DS": ["b"], "DA": ["c"], "IS": ["q"]}}
    content = {
        "5k": {"queries": ["q"], "database": {"a", "b"}},
        "200k": {"queries": ["q"], "database": {"c", "b", "a", "q"}},
        "annotation": annotation,
    }
    small = open_benchmark("fivr-5k", annotations=pickled(tmp_path, content))
    large = open_benchmark("FIVR_200K", annotations=pickled(tmp_path, content))
    assert small.labels == {"q": {"a": "CS", "b": "DS"}}
    assert large.labels == {"q": {"a": "CS", "b": "DS", "c": "DA", "q": "IS"}}
    assert large.database == ("a", "b", "c", "q")
    assert [(task.name, task.figure) for task in large.tasks] == [
        ("DSVR", "mAP"), ("CSVR", "mAP"), ("ISVR", "mAP"), ("DSVD", "uAP"), ("CSVD", "uAP"), ("ISVD", "uAP")
    ]  # fmt: skip
    (tmp_path / "easy.txt").write_text("b\nelsewhere\n")
    hard = open_benchmark("fivr-5k", annotations=tmp_path / "changed.pickle", easy_duplicates=tmp_path / "easy.txt")
    assert [task.name for task in hard.tasks if task.without] == [f"{task.name} hard" for task in small.tasks]
    assert list(hard.left_out.values()) == [LeftOut(("b",))]


def test_cc_web_video_names_the_videos_it_has_no_id_for(tmp_path: Path) -> None:
    content = write_all(tmp_path)["cc_web_video.pickle"]
    benchmark = open_benchmark("cc_web_video", annotations=tmp_path)
    assert len(benchmark.database) == 30
    assert {"#9", "#17", "#22"} < set(benchmark.database)
    assert sum(map(len, benchmark.labels.values())) == sum(map(len, content["ground_truth"]))


def test_vcdb_text_files_give_segments_both_ways(tmp_path: Path) -> None:
    (tmp_path / "first_class.txt").write_text(
        "a.flv,b.x.mp4,00:00:10,00:00:20,00:01:00,01:01:10.5\n\na.flv,a.flv,0:01,0:02,0:05,0:06\r\n"
    )
    (tmp_path / "second.txt").write_text("c,d.mp4,00:00:00,00:00:01,00:00:02,00:00:03\n")
    benchmark = open_benchmark("vcdb", annotations=tmp_path)
    assert benchmark.queries == benchmark.database == ("a", "b.x", "c", "d")
    assert benchmark.labels == {"a": {"b.x": "copy"}, "b.x": {"a": "copy"}, "c": {"d": "copy"}, "d": {"c": "copy"}}
    assert benchmark.groups == {"a": "first_class", "b.x": "first_class", "c": "second", "d": "second"}
    assert benchmark.segments is not None
    assert benchmark.segments["a"] == (TrueSegment(10, 20, "b.x", 60, 3670.5), TrueSegment(1, 2, "a", 5, 6))
    assert benchmark.segments["b.x"] == (TrueSegment(60, 3670.5, "a", 10, 20),)


def test_made_folders_have_files_kinds_and_segments(tmp_path: Path) -> None:
    content = drawn.draw_made(np.random.default_rng(0))
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "ground_truth.json").write_text(json.dumps(content))
    benchmark = open_benchmark(folder)
    assert benchmark == open_benchmark(str(folder / "ground_truth.json"))
    assert benchmark.name == "mine"
    assert benchmark.files is not None
    assert benchmark.files["q0"] == str(folder / "queries/q0.mp4")
    assert set(benchmark.files) == {*benchmark.queries, *benchmark.database}
    assert benchmark.groups is not None
    assert benchmark.groups["q1"] == "crop+blur"
    assert benchmark.segments is not None
    assert benchmark.segments["q0"] == (TrueSegment(*content["queries"]["q0"]["segments"][0]),)
    assert benchmark.segments["q3"] == ()


def test_made_folders_may_have_origins_and_shared_footage(tmp_path: Path) -> None:
    content = drawn.draw_made(np.random.default_rng(0))
    (tmp_path / "ground_truth.json").write_text(json.dumps(content))
    before = open_benchmark(tmp_path)
    assert before.origins is None
    assert before.shared is None
    positive = next(iter(before.labels["q0"]))
    assert before.relate("q0", positive) == "match"
    near, far, unknown = [id for id in before.database if id not in before.labels["q0"]][:3]
    assert before.relate("q0", near) == "unrelated"
    content["origins"] = {
        "q0": {"videos": ["a", "b"], "sources": ["tv"]},
        near: {"videos": ["b"], "sources": []},
        far: {"videos": ["c"], "sources": ["radio", "tv"]},
    }
    content["shared"] = {"card": {"q0": [0, 2.5], near: [7, 9.5]}}
    (tmp_path / "ground_truth.json").write_text(json.dumps(content))
    benchmark = open_benchmark(tmp_path)
    assert [benchmark.relate("q0", id) for id in (positive, near, far, unknown)] == [
        "match", "same video", "same source", "unrelated",
    ]  # fmt: skip
    assert benchmark.shared == {"card": {"q0": (0.0, 2.5), near: (7.0, 9.5)}}
    write_benchmark(benchmark, tmp_path / "stored.json")
    assert read_benchmark(tmp_path / "stored.json") == benchmark
    write_benchmark(before, tmp_path / "stored.json")
    assert not {"origins", "shared"} & json.loads((tmp_path / "stored.json").read_text()).keys()


def test_csv_columns_stand_in_any_order_and_labels_are_chosen(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_bytes('\ufeffLabel,Query,Target\r\n1,q,"a,b"\r\n\r\n0,q,c\r\nmaybe,r,c\r\n'.encode())
    benchmark = open_benchmark(path)
    assert benchmark.labels == {"q": {"a,b": "1", "c": "0"}, "r": {"c": "maybe"}}
    assert benchmark.tasks[0].labels == ("1", "maybe")
    assert benchmark.open_database
    assert open_benchmark(path, positives=["maybe"]).tasks[0].labels == ("maybe",)
    with pytest.raises(ConfigError, match="has no label 'mayb'; did you mean 'maybe'"):
        open_benchmark(path, positives=["mayb"])


# --- stored as JSON --------------------------------------------------------------------------------------------------


def test_a_stored_benchmark_is_read_back_equal(tmp_path: Path) -> None:
    write_all(tmp_path)
    (tmp_path / "fivr_easy_duplicates.txt").write_text(
        "\n".join(open_benchmark("fivr-5k", annotations=tmp_path).database[:3])
    )
    (tmp_path / "ground_truth.json").write_text(json.dumps(drawn.draw_made(np.random.default_rng(1))))
    (tmp_path / "classes").mkdir()
    (tmp_path / "classes" / "one.txt").write_text("ä.flv,b.flv,0:01,0:02,0:05,0:06.25\n")
    every = [open_benchmark(name, annotations=tmp_path) for name in BENCHMARKS]
    every += [open_benchmark(tmp_path), open_benchmark("vcdb", annotations=tmp_path / "classes")]
    for benchmark in every:
        write_benchmark(benchmark, tmp_path / "stored.json")
        assert read_benchmark(tmp_path / "stored.json") == benchmark
        assert open_benchmark(tmp_path / "stored.json") == benchmark
    assert any(benchmark.left_out for benchmark in every[:2])


def test_a_stored_benchmark_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "stored.json"
    write_benchmark(Benchmark("b", ("q",), ("a",), {"q": {"a": "1"}}, (TASK,)), path)
    whole = json.loads(path.read_text())
    for change, message in [
        ({"format": "another"}, "is not the ground_truth.json"),
        ({"queries": ["q", "q"]}, "'q' stands there more than once"),
        ({"queries": 3}, "no stored benchmark"),
        ({"labels": {"q": {"z": "1"}}}, "'z' has label '1' for query 'q', but is not in the database"),
        ({"labels": {"z": {}}}, "labels names 'z', which is not a query"),
        ({"labels": [1]}, "no stored benchmark"),
        ({"tasks": []}, "has no task"),
        ({"tasks": [{"name": "mAP", "label": ["1"]}]}, "has no field 'label'"),
        ({"tasks": [{"name": "mAP", "labels": ["1"], "figure": "map"}]}, "figure has no value 'map'"),
        ({"tasks": [{"name": "mAP", "labels": ["1"], "without": ["x"]}]}, "without 'x'"),
        ({"dataset": []}, "has no field 'dataset'"),
        ({"segments": {"q": [[3, 1, "a", 0, 1]]}}, "each end is after its start"),
        ({"segments": {"q": [[1, 3, "a"]]}}, "is no segment"),
    ]:
        path.write_text(json.dumps(whole | change))
        with pytest.raises(DataError, match=message) as caught:
            open_benchmark(path)
        assert str(path) in str(caught.value)
    path.write_text('{"format": "hapvr benchmark 1", "queries": [], "queries": []}')
    with pytest.raises(DataError, match="'queries' stands twice"):
        read_benchmark(path)
    path.write_text("[" * 100_000)
    with pytest.raises(DataError, match="no JSON"):
        read_benchmark(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"queries": ("q", "q")}, "queries of benchmark 'b': 'q' stands there more than once"),
        ({"database": ("a", "b", "b")}, "database of benchmark 'b': 'b' stands there more than once"),
        ({"queries": ()}, "names 'q', which is not a query|0 queries"),
        ({"groups": {"z": "kind"}}, "groups names 'z'"),
        ({"candidates": {"q": ("z",)}}, "candidate 'z' is not in the database"),
        ({"candidates": {"q": ("b",), "r": ("a",)}, "queries": ("q", "r")}, "a candidate of other queries alone"),
        ({"tasks": (TASK, TASK)}, "2 tasks of the name 'mAP'"),
    ],
)
def test_a_benchmark_that_contradicts_itself_is_refused(change: dict[str, Any], message: str) -> None:
    benchmark = Benchmark("b", ("q",), ("a", "b"), {"q": {"a": "1"}}, (TASK,))
    with pytest.raises(HapvrError, match=message):
        replace(benchmark, **change)


def test_a_task_that_cannot_be_measured_is_refused() -> None:
    with pytest.raises(ConfigError, match="names no label"):
        Task("mAP", ())
    with pytest.raises(ConfigError, match="did you mean 'mAP'"):
        Task("mAP", ("1",), "mAPs")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="orders equal scores by id"):
        Task("mAP", ("1",), "EVVE mAP", ties="group")


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BENCHMARKS)
def test_the_file_of_another_benchmark_is_refused(tmp_path: Path, name: str) -> None:
    write_all(tmp_path)
    for file in set(BENCHMARKS.values()) - {BENCHMARKS[name]}:
        with pytest.raises(DataError) as caught:
            open_benchmark(name, annotations=tmp_path / file)
        assert file in str(caught.value)
    with pytest.raises(DataError, match="cannot be read"):
        open_benchmark(name, annotations=tmp_path / "none")


def test_a_list_of_another_benchmark_is_refused(tmp_path: Path) -> None:
    write_all(tmp_path)
    (tmp_path / "others.txt").write_text("x\ny\n")
    with pytest.raises(DataError, match=r"others\.txt.*none of its ids is in the database of FIVR-5K"):
        open_benchmark("fivr-5k", annotations=tmp_path, easy_duplicates=tmp_path / "others.txt")
    for text, message in [("x\ny\nx\n", "line 3: 'x' stands on line 1"), ("x 1\n", "one id a line"), ("", "no id")]:
        (tmp_path / "others.txt").write_text(text)
        with pytest.raises(DataError, match=message):
            open_benchmark("svd", annotations=tmp_path, unlabelled=tmp_path / "others.txt")


def change_fivr(content: Any) -> None:
    content["5k"]["queries"].append(content["5k"]["queries"][0])


def change_label(content: Any) -> None:
    content["annotation"][content["5k"]["queries"][0]]["XX"] = []


def change_event(content: Any) -> None:
    first, second = list(content["annotation"].values())[:2]
    second[0].update(first[0])


def change_lonely(content: Any) -> None:
    del content["annotation"]["lonely"]


def change_database(content: Any) -> None:
    content["database"].append(content["database"][0])


def change_pair(content: Any) -> None:
    content["video_pairs"].append({"videos": content["video_pairs"][0]["videos"][::-1]})


def change_self(content: Any) -> None:
    content["video_pairs"][0]["videos"] = ["same", "same"]


def change_number(content: Any) -> None:
    content["index"]["new"] = 1


def change_sets(content: Any) -> None:
    content["excluded"].pop()


def change_truth(content: Any) -> None:
    content["ground_truth"][0][31] = "E"


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("fivr-5k", change_fivr, "the queries of '5k' holds '.*' twice"),
        ("fivr-5k", change_label, "has the label 'XX'"),
        ("evve", change_event, "is of two events"),
        ("evve", change_lonely, "is of no event"),
        ("evve", change_database, "'database' holds '.*' twice"),
        ("vcdb", change_pair, "stands there before"),
        ("vcdb", change_self, "pair 0 holds 'same' twice"),
        ("cc_web_video", change_number, "gives 'new' the number 1"),
        ("cc_web_video", change_sets, "'excluded' must have one entry for each of the 3 queries"),
        ("cc_web_video", change_truth, "names the video 31, which 'index' does not number"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(
    tmp_path: Path, name: str, change: Callable[[Any], None], message: str
) -> None:
    content = write_all(tmp_path)[BENCHMARKS[name]]
    change(content)
    with pytest.raises(DataError, match=message) as caught:
        open_benchmark(name, annotations=pickled(tmp_path, content))
    assert "changed.pickle" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("q a 1\nq a 0\n", "line 2 labels 'a' for query 'q' a second time"),
        ("q a 2\n", "line 1 is 'q a 2'"),
        ("q a\n", "line 1 is 'q a'"),
        ("\n", "it is empty"),
    ],
)
def test_malformed_svd_lines_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "svd_test_groundtruth").write_text(text)
    with pytest.raises(DataError, match=message):
        open_benchmark("svd", annotations=tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        "a,b,0:01,0:02,0:05",
        "a,b,0:01,0:02,0:05,0:06,0:07",
        "a,b,0:01,0:02,0:05,6",
        "a,b,0:01,0:02,0:05,-0:06",
        "a,b,0:02,0:01,0:05,0:06",
        ",b,0:01,0:02,0:05,0:06",
        "a,b,0:01,0:02,0:05,nan",
    ],
)
def test_malformed_vcdb_lines_are_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "one.txt").write_text("a,b,0:01,0:02,0:05,0:06\n" + line + "\n")
    with pytest.raises(DataError, match=r"one\.txt' line 2"):
        open_benchmark("vcdb", annotations=tmp_path)


def test_other_vcdb_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no \.txt file"):
        open_benchmark("vcdb", annotations=tmp_path)
    for name in ("one", "two"):
        (tmp_path / f"{name}.txt").write_text("a,b,0:01,0:02,0:05,0:06\n")
    with pytest.raises(DataError, match="'a' is of class 'one' too"):
        open_benchmark("vcdb", annotations=tmp_path)
    with pytest.raises(DataError, match="lists no distractors"):
        open_benchmark("vcdb", annotations=tmp_path, distractors=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no pair"),
        ("query,target,label\n", "holds no pair"),
        ("query,target\nq,a\n", "header must be query,target,label, got 'query,target'"),
        ("q,a,1\nq,b,0\n", "header must be"),
        ("query,target,label,score\nq,a,1,2\n", "header must be"),
        ("query,target,label\nq,a,1\nq,a,1\n", "line 3: query 'q' and target 'a' have the label '1' already"),
        ("query,target,label\nq,a\n", "line 2: a query, a target and a label"),
        ("query,target,label\nq,a,1,1\n", "line 2: a query, a target and a label"),
        ("query,target,label\nq,,1\n", "line 2: a query, a target and a label"),
        ('query,target,label\nq,"a,1\n', "no CSV"),
        ("query,target,label\nq,a,0\n", "no positive"),
    ],
)
def test_malformed_csv_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        open_benchmark(path)
    assert str(path) in str(caught.value)


def test_a_csv_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_bytes("query,target,label\né,a,1\n".encode("latin-1"))
    with pytest.raises(DataError, match="no UTF-8"):
        open_benchmark(path)
    path.write_bytes(b"query,target,label\nq\0,a,1\n")
    with pytest.raises(DataError, match="entry 0 is"):
        open_benchmark(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"queries": []}, "'queries' is a list"),
        ({"database": {}}, "not in the database|0 database"),
        ({"queries": {"q": {"kind": "crop"}}}, "query 'q' has no 'file'"),
        ({"queries": {"q": 3}}, "query 'q' is a int"),
        ({"queries": {"q": {"file": "f", "kind": "", "positives": [], "segments": []}}}, "has no kind"),
        ({"queries": {"q": {"file": "f", "kind": "k", "positives": ["z"], "segments": []}}}, "not in the database"),
        ({"queries": {"q": {"file": "f", "kind": "k", "positives": [], "segments": [[1]]}}}, "not lists of five"),
        ({"database": {"q0": "database/q0.mp4"}}, "'q0' is a query and a database video"),
        ({"origins": [1]}, "'origins' is a list"),
        ({"origins": {"q0": {"video": ["a"]}}}, "the origin of 'q0': Origin has no field 'video'"),
        ({"origins": {"q0": {"videos": "a"}}}, "a list of names, got 'a'"),
        ({"origins": {"z": {}}}, "origins names 'z', which is no query and no target"),
        ({"shared": {"card": {"z": [0, 1]}}}, "shared names 'z'"),
        ({"shared": {"card": {"q0": [0]}}}, "'card' is no table of id"),
        ({"shared": {"card": {"q0": [2, 1]}}}, "is no stretch of time"),
    ],
)
def test_a_damaged_made_folder_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    content = drawn.draw_made(np.random.default_rng(0))
    (tmp_path / "ground_truth.json").write_text(json.dumps(content | change))
    with pytest.raises(DataError, match=message):
        open_benchmark(tmp_path)


def test_names_paths_and_options_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    write_all(tmp_path)
    cases: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
        ("fivr-50k", {}, DataError, "did you mean 'fivr-5k'"),
        (tmp_path / "none", {}, DataError, "there is no benchmark"),
        (tmp_path, {}, DataError, "there is no benchmark"),
        ("evve", {}, ConfigError, r"evve needs its annotation file.*evve\.pickle"),
        (tmp_path / "x.csv", {"annotations": tmp_path}, ConfigError, "belong to a published"),
        ("evve", {"annotations": tmp_path, "distractors": True}, ConfigError, "an option of vcdb"),
        ("svd", {"annotations": tmp_path, "positives": ["1"]}, ConfigError, "an option of a CSV file"),
        ("evve", {"annotations": tmp_path.parent}, DataError, r"a folder without evve\.pickle"),
    ]
    for name, options, error, message in cases:
        with pytest.raises(error, match=message):
            open_benchmark(name, **options)


def test_a_file_beside_does_not_hide_a_published_name(tmp_path: Path, monkeypatch: Any) -> None:
    write_all(tmp_path)
    monkeypatch.chdir(tmp_path)
    os.mkdir("evve")
    assert open_benchmark("evve", annotations=tmp_path).name == "EVVE"
