from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from hapvr.errors import ConfigError, DataError
from hapvr.evaluation import Benchmark, Scores, Task, TrueSegment, open_benchmark
from hapvr.evaluation.benchmarks.pair_files import read_boxes, read_candidates, read_matches
from hapvr.evaluation.descriptor_track import VideoDescriptors
from hapvr.evaluation.pair_records import Candidate, SegmentMatch
from hapvr.evaluation.tracks import find_matches, measure_boxes, measure_candidates, measure_matches, select_candidates
from hapvr.features import Features, FeatureWriter
from hapvr.model_evaluation import evaluate, evaluate_predictions
from hapvr.similarity import SegmentConfig
from tests.commands import run
from tests.evaluation.test_pair_files import write_descriptors
from tests.similarity import models

TRUTH = "query_id,ref_id,query_start,query_end,ref_start,ref_end\nQ000001,R000001,0,6,4,10\n"


def film(seed: int, frames: int = 30) -> torch.Tensor:
    random = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(frames, 9, 16, generator=random), dim=-1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, features, the ground truth of VSC2022 and that of VCSL: Q000001 is the middle of R000001."""
    folder = tmp_path_factory.mktemp("tracks")
    videos = {"Q000001": film(1)[8:20], "Q000002": film(3, 12), "R000001": film(1), "R000002": film(2)}
    with FeatureWriter(folder / "features.h5") as writer:
        for id, regions in videos.items():
            writer.add(id, Features(regions, np.arange(len(regions), dtype=np.float64) * 0.5 + 0.25))
    models.model(dims=16, weighting="none", comparator=False, min_frames=1).save_pretrained(folder / "model")
    (folder / "ground_truth.csv").write_text(TRUTH)
    (folder / "queries.txt").write_text("Q000001\nQ000002\n")
    (folder / "references.txt").write_text("R000001\nR000002\n")
    (folder / "label_file_uuid_total.json").write_text('{"Q000001-R000001": [[0, 4, 6, 10]]}')
    (folder / "pair_file_test.csv").write_text("query_id,reference_id\nQ000001,R000001\nQ000002,R000002\n")
    return folder


def test_a_model_writes_vsc2022_files_that_are_read_back_to_the_same_figures(folder: Path, tmp_path: Path) -> None:
    truth = open_benchmark("vsc2022", annotations=folder, query_list=folder / "queries.txt",
                           database_list=folder / "references.txt")  # fmt: skip
    report = evaluate(truth, model=folder / "model", features=folder / "features.h5", missing="miss",
                      save_candidates=tmp_path / "c.csv", save_matches=tmp_path / "m.csv",
                      output=[tmp_path / "r.csv", tmp_path / "r.json"])  # fmt: skip
    assert [track.name for track in report.tracks] == ["descriptor track", "matching track"]
    # The copy has the best score of the four pairs, and is found where it is.
    assert report.tracks[0].figures["uAP"] == 1.0
    assert report.tracks[1].figures["segment uAP"] == pytest.approx(1)
    assert report.evaluation is not None
    assert report.evaluation["uAP"].value == 1.0
    assert len(read_candidates(tmp_path / "c.csv")) == 4
    again = evaluate_predictions(truth, candidates=tmp_path / "c.csv", matches=tmp_path / "m.csv")
    assert [track.to_json() for track in again.tracks] == [track.to_json() for track in report.tracks]
    rows = list(csv.DictReader((tmp_path / "r.csv").read_text().splitlines()))
    assert [(row["task"], row["figure"], row["value"]) for row in rows][-1] == ("matching track", "pair uAP", "1.0")
    assert json.loads((tmp_path / "r.json").read_text())["tracks"][0]["counts"]["true pairs"] == 1


def test_a_model_writes_vcsl_boxes_that_are_read_back_to_the_same_figures(folder: Path, tmp_path: Path) -> None:
    truth = open_benchmark("vcsl", annotations=folder)
    report = evaluate(truth, model=folder / "model", features=folder / "features.h5", save_matches=tmp_path / "p.json")
    assert report.tracks[-1].name == "VCSL"
    assert report.tracks[-1].figures["recall"] == pytest.approx(1)
    assert (report.tracks[-1].counts["pairs"], report.tracks[-1].counts["matching pairs"]) == (2, 1)
    assert set(read_boxes(tmp_path / "p.json")) == {"Q000001-R000001", "Q000002-R000002"}
    again = evaluate_predictions(truth, matches=tmp_path / "p.json")
    assert again.tracks[-1].to_json() == report.tracks[-1].to_json()


def test_segments_have_the_score_of_their_pair_and_missing_videos_are_left_out(folder: Path) -> None:
    model = models.model(dims=16, weighting="none", comparator=False, min_frames=1)
    asked = [
        Candidate("Q000001", "R000001", 0.7),
        Candidate("gone", "R000001", 0.9),
        Candidate("Q000002", "R000002", 0.1),
    ]
    found = find_matches(model, asked, folder / "features.h5", config=SegmentConfig(threshold=0.6))
    assert found == {
        ("Q000001", "R000001"): [SegmentMatch("Q000001", "R000001", ((0.0, 6.0), (4.0, 10.0)), 0.7)],
        ("Q000002", "R000002"): [],
    }


def test_candidates_are_the_best_of_all_queries_together() -> None:
    values = np.array([[0.9, 0.8, 0.7], [0.1, 0.8, -np.inf]], dtype=np.float32)
    found = select_candidates(Scores(("q", "p"), ("a", "b", "c"), values), per_query=1)
    assert [one.pair for one in found] == [("q", "a"), ("p", "b")]  # equal scores: by id
    assert len(select_candidates(Scores(("q", "p"), ("a", "b", "c"), values), per_query=9)) == 5
    assert select_candidates(Scores(("q",), ("a",), np.full((1, 1), -np.inf))) == []


def test_pairs_of_unknown_videos_count_as_false_and_are_counted() -> None:
    truth = Benchmark("mine", ("q",), ("a",), {"q": {"a": "1"}}, (Task("uAP", ("1",), "uAP"),))
    result = measure_candidates(truth, [Candidate("z", "a", 2.0), Candidate("q", "a", 1.0)])
    assert result.figures["uAP"] == 0.5
    assert result.counts["pairs of videos that the benchmark does not name"] == 1
    with pytest.raises(DataError, match="does not say where"):
        measure_matches(truth, [])


def test_pairs_that_a_file_lacks_or_has_too_many_of_are_counted() -> None:
    labels = {"q": {"a": "1", "b": "1"}}
    segments = {"q": (TrueSegment(0, 5, "a", 0, 5), TrueSegment(0, 5, "b", 0, 5))}
    truth = Benchmark("mine", ("q",), ("a", "b"), labels, (Task("uAP", ("1",), "uAP"),), segments=segments)
    result = measure_boxes(truth, {"q-a": [((0.0, 5.0), (0.0, 5.0))], "x-y": []})
    assert (result.figures["precision"], result.figures["recall"]) == (1.0, 0.5)
    assert (result.counts["pairs not in the file"], result.counts["other pairs"]) == (1, 1)


def test_the_command_measures_files_of_other_systems(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    matches = tmp_path / "m.csv"
    matches.write_text(
        "query_id,ref_id,query_start,query_end,ref_start,ref_end,score\n1,1,0,3,4,7,0.9\n9,9,0,3,4,7,0.95\n"
    )
    code, out, _ = run(capsys, "evaluate", "vsc2022", "--annotations", folder, "--matches", matches)
    assert code == 0
    # 3 of 6 true seconds; a false segment of the same length comes first: sqrt(.5 * .5) * sqrt(.5 * .5).
    assert "segment uAP" in out
    assert "25.00" in out
    assert "1 pairs of videos that the benchmark does not name" in out
    code, out, _ = run(capsys, "evaluate", "vsc2022", "--annotations", folder, "--matches", matches, "--json")
    assert json.loads(out)["tracks"][0]["figures"]["pair uAP"] == 0.5
    code, _, err = run(capsys, "evaluate", "vsc2022", "--annotations", folder, "--matches", matches, "--model", "lite")
    assert code != 0
    assert "--model does not go with files of predictions" in err
    matches.write_text("query_id,ref_id\n1,1\n")
    code, _, err = run(capsys, "evaluate", "vsc2022", "--annotations", folder, "--matches", matches)
    assert code != 0
    assert "the header must name" in err
    assert read_matches(folder / "ground_truth.csv", ground_truth=True)[0].box == ((0.0, 6.0), (4.0, 10.0))


def test_descriptors_are_searched_and_what_the_challenge_refuses_is_said(folder: Path, tmp_path: Path) -> None:
    eye = np.eye(4, dtype=np.float32)
    write_descriptors(VideoDescriptors(np.array(["Q000001", "Q000002"]), np.zeros(2), eye[:2]), tmp_path / "q.npz")
    write_descriptors(VideoDescriptors(np.array(["R000001", "R000002"]), np.zeros(2), eye[[0, 2]]), tmp_path / "r.npz")
    (tmp_path / "meta.csv").write_text("video_id,duration_sec\nQ000001,0.5\nQ000002,0\n")
    truth = open_benchmark("vsc2022", annotations=folder, query_list=tmp_path / "meta.csv")
    report = evaluate_predictions(truth, query_descriptors=tmp_path / "q.npz", descriptors=tmp_path / "r.npz",
                                  query_list=tmp_path / "meta.csv", save_candidates=tmp_path / "c.csv")  # fmt: skip
    assert report.tracks[0].figures["uAP"] == 1.0
    assert "2 descriptors for 1 s of video" in report.warnings[str(tmp_path / "q.npz")][0]
    assert read_candidates(tmp_path / "c.csv")[0] == Candidate("Q000001", "R000001", 1.0)


def test_contradictions_are_refused(folder: Path, tmp_path: Path) -> None:
    truth = open_benchmark("vcsl", annotations=folder)
    with pytest.raises(ConfigError, match="go together"):
        evaluate_predictions(truth, descriptors=tmp_path / "r.npz")
    with pytest.raises(ConfigError, match="nothing to measure"):
        evaluate_predictions(truth)
    with pytest.raises(ConfigError, match="give descriptors"):
        evaluate_predictions(truth, matches=tmp_path / "m.csv", save_candidates=tmp_path / "c.csv")
    with pytest.raises(ConfigError, match=r"written as .csv \(VSC2022\) or .json"):
        evaluate(truth, features=folder / "features.h5", save_matches=tmp_path / "m.txt")
    with pytest.raises(ConfigError, match=r"written as .csv"):
        evaluate(truth, features=folder / "features.h5", save_candidates=tmp_path / "m.json")


def test_features_without_times_give_pairs_alone(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with FeatureWriter(tmp_path / "f.h5") as writer:
        for id, regions in {"Q000001": film(1)[8:20], "R000001": film(1)}.items():
            writer.add(id, Features(regions))
    words = ["vsc2022", "--annotations", folder, "--features", tmp_path / "f.h5", "--model", folder / "model"]
    code, out, err = run(capsys, "evaluate", *words)
    assert code == 0
    assert "descriptor track" in out
    assert "matching track" not in out
    assert "come without times" in err
    code, _, err = run(capsys, "evaluate", *words, "--save-matches", tmp_path / "m.csv")
    assert code != 0
    assert "--save-matches needs times" in err
