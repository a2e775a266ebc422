"""The harness: trials, studies, the commands, the table, and the example of a new method."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from hapvr.cli.app import app
from hapvr.errors import ConfigError, DataError
from hapvr.evaluation.benchmarks.benchmark import write_benchmark
from hapvr.features import FeatureFile
from hapvr.methods import make_method, parse_settings
from hapvr.methods.__main__ import main
from hapvr.methods.trials import read_trials
from hapvr.paper.method_tables import group_lines, read_method_results, render
from tests.methods.toy import write_benchmark_files

EXAMPLE = Path(__file__).parents[2] / "examples" / "new_method.py"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A benchmark file, and the features of its videos."""
    folder = tmp_path_factory.mktemp("methods")
    benchmark, features = write_benchmark_files(folder)
    write_benchmark(benchmark, folder / "toy.json")
    return folder / "toy.json", features


@pytest.fixture(scope="module")
def results(made: tuple[Path, Path]) -> Path:
    """What a study of two methods leaves."""
    truth, features = map(str, made)
    out = made[0].parent / "study"
    words = ["study", "tmk,tca", "--clips", truth, features, "--tune", truth, features, "--on", truth, features]
    assert main(["--device", "cpu", *words, "--out", str(out), "--seeds", "2", "--set", "steps=2", "--scores"]) == 0
    return out


def test_a_study_tries_fits_and_measures(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trials = read_trials(results / "trials-tca.jsonl")
    assert [trial.settings for trial in trials] == [
        {"steps": 2}, {"steps": 2, "level": "video"}, {"steps": 2, "rate": 3e-5}, {"steps": 2, "temperature": 0.03}
    ]  # fmt: skip
    best = max(trials, key=lambda trial: trial.quality)
    names = sorted(path.name for path in results.iterdir())
    assert names == [
        "tca-0", "tca-0-toy.json", "tca-0-toy.npz", "tca-1", "tca-1-toy.json", "tmk-0", "tmk-0-toy.json",
        "tmk-0-toy.npz", "trials-tca.jsonl", "trials-tmk.jsonl",
    ]  # fmt: skip
    record = json.loads((results / "tca-1-toy.json").read_text())
    assert record["method"]["fit"]["seed"] == 1
    assert record["method"]["settings"]["level"] == best.settings.get("level", "frame")
    capsys.readouterr()


def test_methods_are_timed_again_and_keep_their_figures(
    made: tuple[Path, Path], results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "study"
    shutil.copytree(results, out)
    path = out / "tmk-0-toy.json"
    before = json.loads(path.read_text())
    path.write_text(json.dumps({**before, "method": {**before["method"], "describe_s": -1.0, "speeds": []}}))
    assert main(["--device", "cpu", "time", str(out), *map(str, made)]) == 0
    after = json.loads(path.read_text())
    (speed,) = after["method"]["speeds"]
    assert speed["kind"] == "cpu"
    assert speed["pairs"] == before["method"]["speeds"][0]["pairs"]
    assert speed["pairs_per_s"] > 0
    assert after["method"]["describe_s"] > 0
    for record in (before, after):
        del record["method"]["speeds"], record["method"]["describe_s"]
    assert after == before
    assert "tca-1-toy: cpu" in capsys.readouterr().out


def test_the_table_has_mean_and_range_of_seeds(results: Path) -> None:
    lines = read_method_results([results])
    (group,) = group_lines(lines)
    assert [line.title for line in group] == ["TMK", "TCA"]  # the paper's order
    own = group[1]
    values = [
        100 * json.loads((results / f"tca-{seed}-toy.json").read_text())["results"][1]["overall"]["value"]
        for seed in range(2)
    ]
    assert own.figures["uAP"] == tuple(values)
    text = render(group, format="markdown")
    cell = f"{np.mean(values):.1f} ± {abs(values[0] - values[1]) / 2:.1f}"
    (row,) = [line for line in text.splitlines() if line.startswith("| TCA")]
    cells = [one.strip() for one in row.strip("|").split("|")]
    assert cells[3] == cell
    assert cells[-2:] == ["86.8", "69.1"]  # the paper's
    assert "segment F1" in render(group)
    printed = CliRunner().invoke(app, ["table", "methods", "--results", str(results), "--format", "markdown"])
    assert printed.exit_code == 0, printed.output
    assert text in printed.output


def test_a_table_has_variants_after_their_method_and_others_first(results: Path, tmp_path: Path) -> None:
    record = json.loads((results / "tmk-0-toy.json").read_text())
    for name in (
        "hapvr-binary",
        "hapvr",
        "visil-sym",
        "visil",
        "visil-f",
        "hash",
        "dns-coarse",
        "dns-b",
        "dns-a",
        "dml",
    ):
        changed = record | {"method": record["method"] | {"name": name, "settings": {}}}
        (tmp_path / f"{name}.json").write_text(json.dumps(changed))
    order = ["hash", "dml", "visil", "dns-a", "dns-b", "dns-coarse", "visil-f", "visil-sym", "hapvr", "hapvr-binary"]
    assert [line.name for line in read_method_results([tmp_path])] == order


def test_results_that_contradict_each_other_are_refused(results: Path, tmp_path: Path) -> None:
    record = json.loads((results / "tca-0-toy.json").read_text())
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(json.dumps(record))
    with pytest.raises(DataError, match="two results of one seed"):
        read_method_results([tmp_path])
    record["method"]["fit"]["seed"], record["method"]["settings"]["bank"] = 1, 7
    (tmp_path / "b.json").write_text(json.dumps(record))
    with pytest.raises(DataError, match="different settings"):
        read_method_results([tmp_path])
    with pytest.raises(DataError, match="no result of a method"):
        read_method_results([results / "tca-0"])


def test_commands_fit_and_measure(made: tuple[Path, Path], tmp_path: Path) -> None:
    truth, features = map(str, made)
    run = CliRunner().invoke
    listed = run(app, ["method", "list", "--json"])
    assert {one["name"] for one in json.loads(listed.output)} >= {"tmk", "dns", "hash"}
    assert "Poullot" in run(app, ["method", "card", "tmk"]).output
    folder = str(tmp_path / "fitted")
    fitted = run(
        app, ["method", "fit", "vrl", truth, features, folder, "--set", "steps=2", "--device", "cpu", "--json"]
    )
    assert fitted.exit_code == 0, fitted.output
    assert json.loads(fitted.stdout)["steps"] == 2
    report, scores = tmp_path / "r.json", tmp_path / "s.npz"
    words = ["evaluate", truth, "--method", folder, "--features", features, "--device", "cpu"]
    measured = run(app, [*words, "-o", str(report), "--save-scores", str(scores)])
    assert measured.exit_code == 0, measured.output
    assert "pairs a second" in measured.output
    assert json.loads(report.read_text())["method"]["name"] == "vrl"
    again = run(app, ["evaluate", truth, "--scores", str(scores), "--json"])
    assert json.loads(again.output)["results"] == json.loads(report.read_text())["results"]
    refused = run(app, [*words, "--shard", "0/2"])
    assert isinstance(refused.exception, ConfigError)
    assert main(["evaluate", "tca", truth, features, str(tmp_path / "no.json")]) == 2  # it learns


def test_settings_are_words() -> None:
    assert parse_settings("tca", ["level=video", "rate=1e-3", "bank=0"]) == {"level": "video", "rate": 1e-3, "bank": 0}
    with pytest.raises(ConfigError, match="did you mean 'rate'"):
        parse_settings("tca", ["rat=1"])
    with pytest.raises(ConfigError, match="steps must be a whole number"):
        make_method("tca", (4, 16), {"steps": 0})


def test_the_example_of_a_new_method_runs(made: tuple[Path, Path]) -> None:
    run = subprocess.run(
        [sys.executable, str(EXAMPLE), *map(str, made)], capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("centred mean {'mAP': ")


def test_hashing_reads_the_videos_of_a_made_benchmark(tmp_path: Path) -> None:
    from hapvr.synthetic.benchmark import make_benchmark
    from tests.video.media import moving, write

    paths = [write(tmp_path / f"{place}.mp4", moving(40 + 10 * place)) for place in range(2)]
    make_benchmark(paths, tmp_path / "made", kinds=["recompress"], queries_per_video=1)
    run = CliRunner().invoke(app, ["evaluate", str(tmp_path / "made"), "--method", "hash", "--device", "cpu", "--json"])
    assert run.exit_code == 0, run.output
    (path,) = (tmp_path / "made" / ".features").glob("pictures-*.h5")
    with FeatureFile.open(path) as file:
        assert file.dims == (64, 64)
    both = ["compare", *map(str, paths), "--method", "hash", "--json"]
    same, other = (
        json.loads(CliRunner().invoke(app, [both[0], str(paths[0]), str(path), *both[3:]]).output) for path in paths
    )
    assert same["score"] == pytest.approx(1.001)  # all frames match; and the thousandth that orders equal shares
    assert other["score"] < same["score"]
    assert isinstance(CliRunner().invoke(app, [*both, "--html", str(tmp_path / "x.html")]).exception, ConfigError)
