from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from hapvr.cli import main
from hapvr.evaluation.score_files import read_scores
from hapvr.features import FeatureFile
from hapvr.similarity import VideoSimilarity
from hapvr.synthetic.clip_files import write_clip
from hapvr.synthetic.films import draw_scene
from tests.similarity import models

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


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as left:
        main(["evaluate", *map(str, arguments)])
    printed = capsys.readouterr()
    return left.value.code, printed.out, printed.err


def on_features(folder: Path) -> list[object]:
    features, model = folder / "features.h5", folder / "model"
    return [folder / "pairs.csv", "--features", features, "--model", model, "--device", "cpu"]


def figures(record: dict[str, Any]) -> dict[str, float]:
    return {result["task"]["name"]: result["overall"]["value"] for result in record["results"]}


def test_a_table_json_csv_and_scores_that_give_the_same_again(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outs = ["--json", tmp_path / "e.json", "--csv", tmp_path / "e.csv", "--save-scores", tmp_path / "s.npz"]
    code, text, _ = run(capsys, *on_features(folder), *outs)
    assert code == 0
    record = json.loads((tmp_path / "e.json").read_text())
    value = figures(record)
    assert f"{100 * value['mAP']:.2f}" in text
    assert "2 of 2 queries and 3 of 3 targets have scores, 1 further targets; what has none is left out" in text
    rows = list(csv.DictReader((tmp_path / "e.csv").read_text().splitlines()))
    assert [float(row["value"]) for row in rows] == [value["mAP"], value["uAP"]]
    assert record["scoring"]["pairs"] == 2 * 4
    assert read_scores(tmp_path / "s.npz").targets == ("a", "b", "c", "d")
    code, text, words = run(capsys, folder / "pairs.csv", "--scores", tmp_path / "s.npz", "--json", "-")
    assert (code, words) == (0, "")
    assert figures(json.loads(text)) == value


def test_shards_meet_in_the_work_folder(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    work = ["--work", tmp_path / "work"]
    code, text, _ = run(capsys, *on_features(folder), *work, "--shard", "0/2")
    assert code == 0
    assert "0 of 1 chunks are finished" in text  # the only chunk is the second shard's
    code, text, _ = run(capsys, *on_features(folder), *work, "--shard", "1/2", "--json", "-")
    shared = figures(json.loads(text))
    _, text, _ = run(capsys, *on_features(folder), *work, "--json", "-")
    assert json.loads(text)["scoring"]["pairs"] == 0
    _, alone, _ = run(capsys, *on_features(folder), "--json", "-")
    assert figures(json.loads(text)) == shared == figures(json.loads(alone))
    models.model(seed=1).save_pretrained(tmp_path / "other")
    code, _, words = run(capsys, *on_features(folder), *work, "--model", tmp_path / "other")
    assert code == 2
    assert "holds another evaluation: its model is" in words


def test_missing_videos_follow_the_policy(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(folder / "features.h5", tmp_path / "few.h5")
    with h5py.File(tmp_path / "few.h5", "r+") as file:
        del file["c"]
    given = [*on_features(folder), "--features", tmp_path / "few.h5"]
    code, text, _ = run(capsys, *given, "--json", "-")
    record = json.loads(text)
    assert code == 0
    assert record["coverage"]["missing_targets"] == ["c"]
    dropped = figures(record)["mAP"]
    _, text, _ = run(capsys, *given, "--missing", "miss", "--json", "-")
    assert figures(json.loads(text))["mAP"] == dropped / 2  # of two queries one has lost its only positive
    code, text, words = run(capsys, *given, "--missing", "error", "--json", "-")
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
    code, text, told = run(capsys, *on_features(folder), "--features", bad, "--json", tmp_path / "e.json")
    assert (code, text) == (2, "")
    assert bad.name in told
    assert words in told
    assert not (tmp_path / "e.json").exists()


def test_bad_scores_are_an_error(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for content, words in (
        ('{"q1": {"a": NaN}}', "'q1' and target 'a' is nan"),
        ('{"q1": {"a": 1, "a": 2}}', "two scores for target 'a'"),
        ('{"q1": {"a": 1', "cut short"),
    ):
        (tmp_path / "s.json").write_text(content)
        code, text, told = run(capsys, folder / "pairs.csv", "--scores", tmp_path / "s.json")
        assert (code, text) == (2, "")
        assert words in told


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "give --features, --videos or --scores"),
        (["--videos", "."], "say where to keep their features"),
        (["--features", "f.h5", "--scores", "s.npz"], "--scores and --features do not go together"),
        (["--features", "f.h5", "--shard", "1-2"], "must be like 0/4"),
        (["--features", "f.h5", "--missing", "mis"], "did you mean 'miss'?"),
        (["--features", "f.h5", "--precision", "half"], "no precision 'half'"),
        (["--features", "f.h5", "--device", "gpu9"], "no device 'gpu9'"),
        (["--features", "f.h5", "--device", "cuda:99"], "no 'cuda:99' here"),
        (["--features", "f.h5", "--save-scores", "s.txt"], "saved as .json or .npz"),
        (["--features", "f.h5", "--csv", "nowhere/e.csv"], "'nowhere' is no folder"),
        (["--features", "nowhere.h5"], "'nowhere.h5' does not exist"),
        (["--annotations", "x"], "belong to a published benchmark"),
    ],
)
def test_what_cannot_be_done_is_said_at_once(
    options: list[str], words: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text, told = run(capsys, folder / "pairs.csv", *options)
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
    code, text, words = run(capsys, made, "--device", "cpu", "--json", "-")
    record = json.loads(text)
    assert code == 0
    assert figures(record) == {"mAP": 1.0, "uAP": 1.0, "recall@1": 1.0}
    assert record["results"][0]["by_group"].keys() == {"crop", "flip"}
    assert record["coverage"]["missing_targets"] == ["bad"]
    assert [failure["id"] for failure in record["failed"]] == ["bad"]
    assert "bad.mp4" in words
    with FeatureFile.open(made / ".features" / "lite.h5") as file:
        assert file["0"].timestamps is not None
    before = (made / ".features" / "lite.h5").read_bytes()
    (made / "bad.mp4").unlink()
    code, text, words = run(capsys, made, "--device", "cpu")
    assert code == 0
    assert "2 of 3 targets have scores" in text
    assert "flip" in text
    assert "the file is not there" in words
    assert (made / ".features" / "lite.h5").read_bytes() == before
    shutil.copy(made / "0.mp4", made / "1.mp4")  # features of a file that has changed are not passed off as its own
    code, text, words = run(capsys, made, "--device", "cpu")
    assert (code, text) == (2, "")
    assert "is not the file they were made from" in words
