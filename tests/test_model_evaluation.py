from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

import hapvr
from hapvr.errors import ConfigError, DataError, StorageError
from hapvr.evaluation.protocol import format_rows
from hapvr.evaluation.score_files import Scores, read_scores
from hapvr.features import FeatureFile
from hapvr.model import load
from hapvr.model_evaluation import _dtype
from hapvr.similarity import VideoSimilarity
from hapvr.synthetic.clip_files import write_clip
from hapvr.synthetic.films import draw_scene
from tests.commands import run
from tests.similarity import models
from tests.video import media

PAIRS = {("q1", "a"): "1", ("q1", "b"): "0", ("q2", "c"): "1"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """pairs.csv, features.h5 and a model: one of each that `hapvr evaluate` takes."""
    folder = tmp_path_factory.mktemp("evaluate")
    lines = [f"{query},{target},{label}" for (query, target), label in PAIRS.items()]
    (folder / "pairs.csv").write_text("\n".join(["query,target,label", *lines]) + "\n")
    with h5py.File(folder / "features.h5", "w") as file:
        for number, id in enumerate(["q1", "q2", "a", "b", "c", "d"]):
            regions = models.video(9 + number, seed={"a": 0, "c": 1}.get(id, number))
            file.create_dataset(id, data=regions.numpy(), compression="gzip")
    plain().save_pretrained(folder / "model")
    return folder


def plain() -> VideoSimilarity:
    return models.model(weighting="none", comparator=False, min_frames=1)


def on_features(folder: Path) -> list[object]:
    features, model = folder / "features.h5", folder / "model"
    return [folder / "pairs.csv", "--features", features, "--model", model, "--device", "cpu"]


def figures(record: dict[str, Any]) -> dict[str, float]:
    return {result["task"]["name"]: result["overall"]["value"] for result in record["results"]}


def test_a_table_json_csv_and_scores_that_give_the_same_again(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outs = ["-o", tmp_path / "e.json", "--output", tmp_path / "e.csv", "--save-scores", tmp_path / "s.npz"]
    code, text, _ = run(capsys, "evaluate", *on_features(folder), *outs)
    assert code == 0
    record = json.loads((tmp_path / "e.json").read_text())
    value = figures(record)
    assert f"{100 * value['mAP']:.2f}" in text
    assert "2 of 2 queries and 3 of 3 targets have scores, 1 further targets; what has none is left out" in text
    rows = list(csv.DictReader((tmp_path / "e.csv").read_text().splitlines()))
    assert [float(row["value"]) for row in rows] == [value["mAP"], value["uAP"]]
    assert record["scoring"]["pairs"] == 2 * 4
    assert read_scores(tmp_path / "s.npz").targets == ("a", "b", "c", "d")
    code, text, words = run(capsys, "evaluate", folder / "pairs.csv", "--scores", tmp_path / "s.npz", "--json")
    assert (code, words) == (0, "")
    assert figures(json.loads(text)) == value


def test_scores_in_int8_are_those_of_float32_to_two_thousandths(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {}
    for precision in ("float32", "int8"):
        path = tmp_path / f"{precision}.npz"
        assert run(capsys, "evaluate", *on_features(folder), "--precision", precision, "--save-scores", path)[0] == 0
        values[precision] = read_scores(path).values
    assert not np.array_equal(values["int8"], values["float32"])  # else the option had no effect
    np.testing.assert_allclose(values["int8"], values["float32"], atol=2e-3)


def test_int8_is_refused_on_a_gpu() -> None:
    with pytest.raises(ConfigError, match="computed on a CPU, not on 'cuda:1'"):
        _dtype("int8", torch.device("cuda:1"))


def test_shards_meet_in_the_work_folder(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    work = ["--work-folder", tmp_path / "work"]
    code, text, _ = run(capsys, "evaluate", *on_features(folder), *work, "--shard", "0/2")
    assert code == 0
    assert "0 of 1 chunks are finished" in text  # the only chunk is the second shard's
    code, text, _ = run(capsys, "evaluate", *on_features(folder), *work, "--shard", "1/2", "--json")
    shared = figures(json.loads(text))
    _, text, _ = run(capsys, "evaluate", *on_features(folder), *work, "--json")
    assert json.loads(text)["scoring"]["pairs"] == 0
    _, alone, _ = run(capsys, "evaluate", *on_features(folder), "--json")
    assert figures(json.loads(text)) == shared == figures(json.loads(alone))
    models.model(seed=1).save_pretrained(tmp_path / "other")
    code, _, words = run(capsys, "evaluate", *on_features(folder), *work, "--model", tmp_path / "other")
    assert code == 2
    assert "holds another evaluation: its model is" in words


def test_missing_videos_follow_the_policy(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(folder / "features.h5", tmp_path / "few.h5")
    with h5py.File(tmp_path / "few.h5", "r+") as file:
        del file["c"]
    given = [*on_features(folder), "--features", tmp_path / "few.h5"]
    code, text, _ = run(capsys, "evaluate", *given, "--json")
    record = json.loads(text)
    assert code == 0
    assert record["coverage"]["missing_targets"] == ["c"]
    dropped = figures(record)["mAP"]
    _, text, _ = run(capsys, "evaluate", *given, "--missing", "miss", "--json")
    assert figures(json.loads(text))["mAP"] == dropped / 2  # of two queries one has lost its only positive
    code, text, words = run(capsys, "evaluate", *given, "--missing", "error", "--json")
    assert (code, text) == (2, "")
    assert "no scores for 1 targets (c)" in words


def damaged(folder: Path, out: Path, what: str) -> Path:
    path = out / f"{what}.h5"
    if what == "cut":
        path.write_bytes((folder / "features.h5").read_bytes()[:-4000])
        return path
    shutil.copy(folder / "features.h5", path)
    with h5py.File(path, "r+") as file:
        if what == "nan":
            file["b"][0, 0, 0] = np.nan
        else:
            for id in list(file):
                length = len(file[id])
                del file[id]
                file.create_dataset(id, data=np.ones((length, 4, 8), np.float32))
    return path


@pytest.mark.parametrize(("what", "words"), [("cut", "cut.h5"), ("nan", "'b'"), ("dims", "8 dims, the model takes 16")])
def test_bad_features_are_an_error_and_never_a_figure(
    what: str, words: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = damaged(folder, tmp_path, what)
    code, text, told = run(capsys, "evaluate", *on_features(folder), "--features", bad, "-o", tmp_path / "e.json")
    assert (code, text) == (2, "")
    assert bad.name in told
    assert words in told
    assert not (tmp_path / "e.json").exists()


def test_bad_scores_are_an_error(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for content, words in (
        ('{"q1": {"a": NaN}}', "'q1' and target 'a' is nan"),
        ('{"q1": {"a": 1, "a": 2}}', "target 'a' is given twice"),
        ('{"q1": {"a": 1', "cut short"),
    ):
        (tmp_path / "s.json").write_text(content)
        code, text, told = run(capsys, "evaluate", folder / "pairs.csv", "--scores", tmp_path / "s.json")
        assert (code, text) == (2, "")
        assert words in told


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "give features, videos or scores"),
        (["--videos", "."], "say where to keep their features"),
        (["--features", "f.h5", "--scores", "s.npz"], "--scores and --features do not go together"),
        (["--features", "f.h5", "--shard", "1-2"], "must be like 0/4"),
        (["--features", "f.h5", "--missing", "mis"], "did you mean 'miss'?"),
        (["--features", "f.h5", "--precision", "half"], "no precision 'half'"),
        (["--features", "f.h5", "--device", "gpu9"], "no device 'gpu9'"),
        (["--features", "f.h5", "--device", "cuda:99"], "no device 'cuda:99' here"),
        (["--features", "f.h5", "--save-scores", "s.txt"], "scores are kept as .json or .npz"),
        (["--features", "f.h5", "-o", "nowhere/e.csv"], "'nowhere' is no folder"),
        (["--features", "f.h5", "-o", "e.txt"], "written as .json, or its figures as .csv"),
        (["--features", "f.json", "-o", "f.json"], "would overwrite 'f.json', which is read"),
        (["--features", "f.h5", "-o", "s.json", "--save-scores", "s.json"], "which is written as well"),
        (["--features", "f.h5", "--videos", "."], "--features and --videos do not go together"),
        (["--features", "f.h5", "--feature-cache", "g.h5"], "--features and --feature-cache do not go together"),
        (["--videos", ".", "--feature-cache", "g.h5", "--shard", "0/2"], "First `hapvr extract` the videos"),
        (["--features", "nowhere.h5"], "'nowhere.h5' does not exist"),
        (["--annotations", "x"], "belong to a published benchmark"),
    ],
)
def test_what_cannot_be_done_is_said_at_once(
    options: list[str], words: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text, told = run(capsys, "evaluate", folder / "pairs.csv", *options)
    assert (code, text) == (2, "")
    assert told.startswith("error: ")
    assert words in told


def test_a_made_folder_is_extracted_once_and_bad_files_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "made"
    (made / "queries").mkdir(parents=True)
    for number in range(2):
        write_clip(draw_scene(number, seconds=2, fps=4, size=(96, 128)), made / f"{number}.mp4")
        shutil.copy(made / f"{number}.mp4", made / "queries")
    (made / "bad.mp4").write_text("no video")
    queries = {
        f"{number}--copy": {"file": f"queries/{number}.mp4", "kind": kind, "positives": [str(number)], "segments": []}
        for number, kind in enumerate(["crop", "flip"])
    }
    database = {"0": "0.mp4", "1": "1.mp4", "bad": "bad.mp4"}
    (made / "ground_truth.json").write_text(json.dumps({"queries": queries, "database": database}))
    code, text, words = run(capsys, "evaluate", made, "--device", "cpu", "--json")
    record = json.loads(text)
    assert code == 0
    assert figures(record) == {"mAP": 1.0, "uAP": 1.0, "recall@1": 1.0}
    assert record["results"][0]["by_group"].keys() == {"crop", "flip"}
    assert record["coverage"]["missing_targets"] == ["bad"]
    assert [failure["id"] for failure in record["failed"]] == ["bad"]
    assert "bad.mp4" in words
    (kept,) = (made / ".features").glob("*.h5")
    assert kept.name == f"lite-{load().extractor.digest()[:8]}.h5"
    assert record["features"] == str(kept)
    with FeatureFile.open(kept) as file:
        assert file["0"].timestamps is not None
        assert file["0"].low_information is not None  # flagged, as `hapvr extract` does
    before = kept.read_bytes()
    (made / "bad.mp4").unlink()
    code, text, words = run(capsys, "evaluate", made, "--device", "cpu")
    assert code == 0
    assert "2 of 3 targets have scores" in text
    assert "flip" in text
    assert "the file is not there" in words
    assert kept.read_bytes() == before
    shutil.copy(made / "0.mp4", made / "1.mp4")  # features of a file that has changed are not passed off as its own
    code, text, words = run(capsys, "evaluate", made, "--device", "cpu")
    assert (code, text) == (2, "")
    assert "is not the file they were made from" in words


# --- the same in Python -----------------------------------------------------------------------------------------------


def test_the_python_call_gives_what_the_command_prints(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[tuple[str, int, int]] = []
    report = hapvr.evaluate(
        folder / "pairs.csv",
        features=folder / "features.h5",
        model=folder / "model",
        device="cpu",
        output=[tmp_path / "e.csv"],
        save_scores=tmp_path / "s.json",
        progress=lambda *step: told.append(step),
    )
    code, text, _ = run(capsys, "evaluate", *on_features(folder), "--json")
    printed = json.loads(text)
    assert code == 0
    assert report.evaluation is not None
    assert figures(printed) == report.evaluation.figures()
    assert printed.keys() == report.to_json().keys()
    assert (tmp_path / "e.csv").read_text() == format_rows(report.evaluation.rows())
    assert told[-1] == ("scoring", 4, 4)
    again = hapvr.evaluate(folder / "pairs.csv", scores=tmp_path / "s.json")
    assert again.evaluation is not None
    assert again.evaluation.figures() == report.evaluation.figures()
    assert again.to_json()["scores"] == str(tmp_path / "s.json")


def test_scores_are_saved_even_if_measuring_them_fails(folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "features.h5", tmp_path / "few.h5")
    with h5py.File(tmp_path / "few.h5", "r+") as file:
        del file["c"]
    features, model, scores = tmp_path / "few.h5", folder / "model", tmp_path / "s.npz"
    with pytest.raises(DataError, match="no scores for 1 targets"):
        hapvr.evaluate(folder / "pairs.csv", features=features, model=model, missing="error", save_scores=scores)
    assert read_scores(scores).targets == ("a", "b", "d")


def by_pair(scores: Scores) -> dict[tuple[str, str], float]:
    """Files hold videos in the order in which they were done."""
    pairs = [(query, target) for query in scores.queries for target in scores.targets]
    return dict(zip(pairs, scores.values.ravel().tolist(), strict=True))


def test_extracted_features_go_where_they_are_asked_to(tmp_path: Path) -> None:
    videos = tmp_path / "videos"
    videos.mkdir()
    for number, name in enumerate(["q", "a", "b"]):
        write_clip(draw_scene(number, seconds=2, fps=4, size=(96, 128)), videos / f"{name}.mp4")
    (tmp_path / "pairs.csv").write_text("query,target,label\nq,a,1\nq,b,0\n")
    with pytest.raises(ConfigError, match="say where to keep their features, by feature_cache or work_folder"):
        hapvr.evaluate(tmp_path / "pairs.csv", videos=videos)
    report = hapvr.evaluate(tmp_path / "pairs.csv", videos=videos, feature_cache=tmp_path / "mine.h5", device="cpu")
    assert report.source == tmp_path / "mine.h5"
    assert report.scores is not None
    read = hapvr.evaluate(tmp_path / "pairs.csv", features=tmp_path / "mine.h5", device="cpu")
    assert read.scores is not None
    assert by_pair(read.scores) == by_pair(report.scores)
    worked = hapvr.evaluate(tmp_path / "pairs.csv", videos=videos, work_folder=tmp_path / "work", device="cpu")
    assert worked.source.parent == tmp_path / "work"
    assert worked.scores is not None
    assert by_pair(worked.scores) == by_pair(report.scores)


def test_a_damaged_video_is_measured_with_its_warnings_counted_and_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    videos = tmp_path / "videos"
    videos.mkdir()
    for number, name in enumerate(["q", "a", "b"]):
        film = draw_scene(number, seconds=4, fps=8, size=(96, 128))
        media.write(videos / f"{name}.mkv", film.images, rate=8, options={"g": "8"})
    data = (videos / "a.mkv").read_bytes()
    (videos / "a.mkv").write_bytes(data[: len(data) // 2])
    (tmp_path / "pairs.csv").write_text("query,target,label\nq,a,1\nq,b,0\n")
    given = {"videos": videos, "feature_cache": tmp_path / "f.h5", "device": "cpu"}
    report = hapvr.evaluate(tmp_path / "pairs.csv", **given)  # type: ignore[arg-type]
    assert list(report.warnings) == ["a"]
    assert "missing at the end" in report.warnings["a"][-1]
    again = hapvr.evaluate(tmp_path / "pairs.csv", **given)  # type: ignore[arg-type]  # nothing is decoded this time
    assert again.warnings == report.warnings == again.to_json()["warnings"]
    options = ["--videos", videos, "--feature-cache", tmp_path / "f.h5", "--device", "cpu"]
    code, out, err = run(capsys, "evaluate", tmp_path / "pairs.csv", *options)
    assert code in (0, None)
    assert f"  a: {report.warnings['a'][-1]}" in err
    assert "1 video was read with warnings." in out
    (videos / "a.mkv").write_bytes(data)  # a whole copy in its place, and its features extracted again
    for name in ("f.h5", "f.h5.sources.json"):
        (tmp_path / name).unlink()
    for _ in range(2):
        assert hapvr.evaluate(tmp_path / "pairs.csv", **given).warnings == {}  # type: ignore[arg-type]
    (tmp_path / "f.h5.warnings.json").write_text("[]")
    with pytest.raises(StorageError, match=r"f\.h5\.warnings\.json' cannot be read"):
        hapvr.evaluate(tmp_path / "pairs.csv", **given)  # type: ignore[arg-type]
