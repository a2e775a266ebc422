"""What a reader of published figures must know: which of FIVR's files was read, and what CC_WEB_VIDEO divides by."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from hapvr.cli import main
from hapvr.errors import DataError
from hapvr.evaluation import Benchmark, Scores, Task, evaluate, open_benchmark, read_benchmark, write_benchmark

FIVR = {
    "5k": {"queries": ["q"], "database": {"a", "b"}},
    "200k": {"queries": ["q"], "database": {"a", "b"}},
    "annotation": {"q": {"ND": ["a"]}},
}
# One query with the positives 1 and 2 and a video 3 that is none.
CC_WEB = {
    "index": {"one": 1, "two": 2, "three": 3},
    "queries": ["one"],
    "ground_truth": [{1: "E", 2: "S", 3: "X"}],
    "excluded": [set()],
}


def write(path: Path, content: object) -> Path:
    path.write_bytes(pickle.dumps(content))
    return path


def test_either_file_of_fivr_is_found_in_a_folder_and_named(tmp_path: Path) -> None:
    write(tmp_path / "fivr_audio.pickle", FIVR)
    assert open_benchmark("fivr-5k", annotations=tmp_path).notes[0].startswith("Labels are those of fivr_audio.pickle.")
    write(tmp_path / "fivr.pickle", FIVR)
    (note,) = open_benchmark("fivr-5k", annotations=tmp_path).notes
    assert note.startswith("Labels are those of fivr.pickle. Published figures")
    (note,) = open_benchmark("fivr-200k", annotations=tmp_path / "fivr_audio.pickle").notes
    assert note.startswith("Labels are those of fivr_audio.pickle.")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"without fivr\.pickle and fivr_audio\.pickle"):
        open_benchmark("fivr-5k", annotations=tmp_path / "empty")


def test_cc_web_video_divides_by_all_labelled_positives_where_missing_ones_are_misses(tmp_path: Path) -> None:
    benchmark = open_benchmark("cc_web_video", annotations=write(tmp_path / "cc_web_video.pickle", CC_WEB))
    scores = Scores(("one",), ("one", "three"), np.array([[1.0, 0.5]]))  # the positive "two" has no score
    assert evaluate(benchmark, scores, missing="miss")["CC_WEB*"].value == 0.5  # 1 / 1 over 2 positives
    assert evaluate(benchmark, scores, missing="drop")["CC_WEB*"].value == 1.0
    assert "divide by all labelled positives" in evaluate(benchmark, scores).notes[0]


@pytest.mark.parametrize("seed", range(5))
def test_cc_web_video_agrees_with_a_loop_over_its_published_rule(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = [f"v{number}" for number in range(1, 31)]
    truth = [{int(n): str(rng.choice(list("ESVMLX"))) for n in rng.permutation(30)[:12] + 1} for _ in range(2)]
    out = [{int(n) for n in rng.permutation(30)[:4] + 1} for _ in range(2)]
    content = {
        "index": {name: number for number, name in enumerate(names, 1)},
        "queries": ["v1", "v2"],
        "ground_truth": truth,
        "excluded": out,
    }
    benchmark = open_benchmark("cc_web_video", annotations=write(tmp_path / "cc_web_video.pickle", content))
    scored = sorted(rng.permutation(30)[:20] + 1)  # a third of the videos has no score
    values = rng.random((2, 20)).astype(np.float32)
    result = evaluate(benchmark, Scores(("v1", "v2"), tuple(names[n - 1] for n in scored), values), missing="miss")
    for clean in (False, True):
        for every in (False, True):
            precisions = []
            for query in range(2):
                found = place = total = 0.0
                for n in sorted(scored, key=lambda n: -values[query, scored.index(n)]):
                    if (every or n in truth[query]) and not (clean and n in out[query]):
                        place += 1
                        if truth[query].get(n, "X") != "X":
                            found += 1
                            total += found / place
                positives = [n for n, label in truth[query].items() if label != "X" and not (clean and n in out[query])]
                precisions.append(total / len(positives))
            name = f"CC_WEB{'*' if every else ''}{'c' if clean else ''}"
            assert result[name].value == pytest.approx(sum(precisions) / 2, abs=1e-6)


def test_the_notes_are_in_the_report_on_the_screen_and_in_stored_benchmarks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "fivr.pickle", FIVR)
    (tmp_path / "scores.json").write_text(json.dumps({"q": {"a": 0.9, "b": 0.1}}))
    words = ["evaluate", "fivr-5k", "--annotations", str(tmp_path), "--scores", str(tmp_path / "scores.json")]
    for more in ([], ["--json"]):
        with pytest.raises(SystemExit) as left:
            main([*words, *more])
        assert not left.value.code
        out = capsys.readouterr().out
        assert "Labels are those of fivr.pickle." in out
    assert len(json.loads(out)["notes"]) == 1
    benchmark = open_benchmark("fivr-5k", annotations=tmp_path)
    write_benchmark(benchmark, tmp_path / "stored.json")
    assert read_benchmark(tmp_path / "stored.json").notes == benchmark.notes


def test_a_benchmark_without_notes_is_stored_and_reported_as_before(tmp_path: Path) -> None:
    benchmark = Benchmark("mine", ("q",), ("a",), {"q": {"a": "1"}}, (Task("mAP", ("1",)),))
    write_benchmark(benchmark, tmp_path / "stored.json")
    assert "notes" not in json.loads((tmp_path / "stored.json").read_text())
    assert "notes" not in evaluate(benchmark, Scores(("q",), ("a",), np.array([[1.0]]))).to_json()
    with pytest.raises(DataError, match="notes are a list of sentences"):
        Benchmark("mine", ("q",), ("a",), {}, (Task("mAP", ("1",)),), notes="one")  # type: ignore[arg-type]
