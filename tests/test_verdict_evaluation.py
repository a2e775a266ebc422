from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from hapvr.cli import main
from hapvr.errors import ConfigError, DataError
from hapvr.evaluation import open_benchmark
from hapvr.evaluation.verdict_figures import PairVerdict, Truth
from hapvr.library.benchmark_videos import choose_library, read_benchmark_videos, read_groups
from hapvr.model import load
from hapvr.synthetic.benchmark import make_benchmark
from hapvr.synthetic.clip_files import write_clip
from hapvr.synthetic.films import draw_scene
from hapvr.verdict_evaluation import VerdictEvaluationConfig, choose_pairs, compare_pairs, evaluate_verdicts

CONFIG = VerdictEvaluationConfig(neighbours=2, others=1, second_look=False)
NUMBERS = ("probability", "false_per_million", "score")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four films, two of them cut in two parts; a copy of each."""
    place = tmp_path_factory.mktemp("verdicts")
    paths = [place / f"film{seed}.mp4" for seed in range(4)]
    for seed, path in enumerate(paths):
        write_clip(draw_scene(seed, seconds=13, fps=5, size=(96, 128)), path)
    origins = {paths[0]: "tv", paths[1]: "tv"}
    make_benchmark(paths, place / "made", kinds=["recompress"], queries_per_video=1, lookalikes=True, origins=origins)
    return place / "made"


def test_a_made_benchmark_is_measured_and_drawn(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = evaluate_verdicts(folder, config=CONFIG, output=tmp_path / "verdicts.json")
    figures, written = report.figures, json.loads((tmp_path / "verdicts.json").read_text())["verdicts"]
    assert (report.queries, report.database, report.failed) == (4, 6, {})
    assert (figures.overall.copies, figures.overall.found) == (4, 4)
    assert figures.segments[""].pairs == 4
    assert figures.second_looks == 0
    # Of six database videos each query has one copy; two queries have another part of their video in it.
    counts = {truth: rate.rate.pairs for truth, rate in figures.false.items()}
    assert sum(counts.values()) == 20
    assert counts["same video"] == 2
    assert figures.false["same video"].compared == 2
    assert written["copy"]["found"] == 4
    assert sum(one["copies"] for one in written["reliability"]) == 4
    assert len(written["wrong"]) == figures.overall.false

    with pytest.raises(SystemExit) as left:
        main(["plot", "calibration", f"{tmp_path / 'verdicts.json'}", "-o", str(tmp_path / "reliability.png")])
    assert left.value.code == 0
    assert "recall 100.00%" in capsys.readouterr().out
    assert (tmp_path / "reliability.png").read_bytes().startswith(b"\x89PNG")


def assert_same_pairs(some: Sequence[PairVerdict], others: Sequence[PairVerdict]) -> None:
    """Numbers may differ in their last digits: how threads share a sum depends on what else they do."""
    first, second = ({(pair.query, pair.target): asdict(pair) for pair in pairs} for pairs in (some, others))
    assert first.keys() == second.keys()
    for key, values in first.items():
        numbers = [{name: one.pop(name) for name in NUMBERS} for one in (values, second[key])]
        assert values == second[key]
        assert numbers[0] == pytest.approx(numbers[1], rel=1e-6)


def test_a_permutation_of_queries_and_database_changes_nothing(folder: Path) -> None:
    truth, model = open_benchmark(folder), load()
    videos = read_benchmark_videos(truth, model, "lite").videos
    turned = replace(truth, queries=truth.queries[::-1], database=truth.database[::-1])
    found = [compare_pairs(one, videos, model, groups={}, config=CONFIG) for one in (truth, turned)]
    assert found[0][1] == found[1][1]
    assert len(found[0][0]) > 8
    assert_same_pairs(found[0][0], found[1][0])
    first = truth.queries[0]
    origins = {id: origin for id, origin in (truth.origins or {}).items() if id == first or id in truth.database}
    alone = replace(
        truth, queries=(first,), labels={first: truth.labels[first]}, groups={}, segments={}, origins=origins
    )
    pairs, _ = compare_pairs(alone, videos, model, groups={}, config=CONFIG)
    assert_same_pairs(pairs, [pair for pair in found[0][0] if pair.query == first])


def test_evaluate_prints_and_writes_verdicts(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scores = {query: {"film0": 0.5} for query in open_benchmark(folder).queries}
    (tmp_path / "scores.json").write_text(json.dumps(scores))
    arguments = ["evaluate", str(folder), "--scores", str(tmp_path / "scores.json"), "--verdicts", "--no-second-look",
                 "--neighbours", "6", "-o", str(tmp_path / "report.json")]  # fmt: skip
    with pytest.raises(SystemExit) as left:
        main(arguments)
    printed = capsys.readouterr().out
    assert left.value.code == 0, printed
    assert "4 of 4" in printed
    assert "24 pairs of 4 queries and 6 videos were compared, with 0 second looks" in " ".join(printed.split())
    assert "were not compared" not in printed  # since all were
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["verdicts"]["compared"] == 24
    assert report["scores"] == str(tmp_path / "scores.json")  # what was there is there too


def test_options_of_verdicts_need_verdicts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["evaluate", str(folder), "--neighbours", "5"])
    assert left.value.code != 0
    assert "--neighbours is for verdicts" in " ".join(capsys.readouterr().err.split())


def test_a_benchmark_without_videos_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("query,target,label\nq,a,1\n")
    with pytest.raises(ConfigError, match="comes without videos"):
        evaluate_verdicts(tmp_path / "pairs.csv")


# --- which pairs -----------------------------------------------------------------------------------------------------

TRUTHS: dict[str, Truth] = {
    "a": "copy", "b": "unrelated", "c": "shared footage", "d": "same video", "e": "unrelated", "f": "same source",
    "g": "unrelated",
}  # fmt: skip


def test_copies_near_strangers_and_parts_of_the_same_video_are_compared() -> None:
    order = ["b", "f", "e", "g", "a", "c", "d"]
    chosen = choose_pairs("q", order, TRUTHS, VerdictEvaluationConfig(neighbours=2, others=0))
    assert chosen == {
        "b": (True, False), "f": (True, False), "a": (True, False), "c": (False, False), "d": (False, False),
    }  # fmt: skip


def test_strangers_are_drawn_from_all_of_them() -> None:
    order = ["b", "f", "e", "g", "a", "c", "d"]
    drawn = set()
    for seed in range(40):
        config = VerdictEvaluationConfig(neighbours=1, others=2, seed=seed)
        now = {target for target, (_, by_chance) in choose_pairs("q", order, TRUTHS, config).items() if by_chance}
        assert len(now) == 2
        assert choose_pairs("q", order[::-1], TRUTHS, config).keys() >= now  # whatever their likeness
        drawn |= now
    assert drawn == {"b", "f", "e", "g", "d"}


def test_groups_are_read_and_checked(tmp_path: Path) -> None:
    (tmp_path / "groups.json").write_text('[["a", "b"], ["b", "c"]]')
    groups = read_groups(tmp_path / "groups.json")
    assert groups == {"a": frozenset({0}), "b": frozenset({0, 1}), "c": frozenset({1})}
    assert read_groups(None) == {}
    for text in ('{"a": 1}', '["ab"]', "[["):
        (tmp_path / "groups.json").write_text(text)
        with pytest.raises(DataError, match="no list of groups"):
            read_groups(tmp_path / "groups.json")


def test_another_model_gets_another_library(folder: Path) -> None:
    model = load()
    read_benchmark_videos(open_benchmark(folder), model, "lite")
    assert choose_library(folder, model) == folder / ".library"
    other = load("lite-untrained")
    assert choose_library(folder, other).name.startswith(".library-lite-untrained-")
