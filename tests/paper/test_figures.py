from __future__ import annotations

import json
import re
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.collections import PathCollection
from PIL import Image

from hapvr.decision import NO_STRETCH
from hapvr.errors import ConfigError, DataError, StorageError
from hapvr.evaluation import Benchmark, Scores, Task, evaluate, write_benchmark, write_scores
from hapvr.features import Features
from hapvr.judge.judge import Verdict
from hapvr.matching import Match, VideoDescription
from hapvr.paper import plots
from hapvr.paper.curves import precision_recall, similarity_distribution, surrogate_curves
from hapvr.reports import plotting
from hapvr.similarity.network import Descriptors
from tests.commands import run

Folder = tuple[Path, Benchmark, dict[str, Scores]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A benchmark of 12 queries in two groups, and the scores of two models."""
    place = tmp_path_factory.mktemp("plots")
    random = np.random.default_rng(0)
    queries, database = tuple(f"q{n}" for n in range(12)), tuple(f"t{n}" for n in range(20))
    labels = {query: {database[n]: "1", database[n + 1]: "1"} for n, query in enumerate(queries)}
    groups = {query: "crop" if n % 3 else "speed" for n, query in enumerate(queries)}
    tasks = (Task("mAP", ("1",), "mAP"), Task("uAP", ("1",), "uAP"))
    benchmark = Benchmark("small", queries, database, labels, tasks, groups=groups)
    write_benchmark(benchmark, place / "benchmark.json")
    models = {}
    truth = np.array([[target in labels[query] for target in database] for query in queries])
    for name, strength in (("good", 2.0), ("bad", 0.7)):
        values = np.tanh(strength * truth + random.normal(size=truth.shape)) * 0.9
        models[name] = Scores(queries, database, values.astype(np.float32))
        write_scores(models[name], place / f"{name}.npz")
    return place, benchmark, models


def ink(path: Path) -> float:
    """The share of pixels that are not white."""
    with Image.open(path) as image:
        return float((np.asarray(image.convert("L")) < 250).mean())


@pytest.mark.parametrize("plot", ["distributions", "precision-recall", "queries"])
def test_a_plot_of_several_models_is_written_as_png_and_svg(
    folder: Folder, tmp_path: Path, capsys: pytest.CaptureFixture[str], plot: str
) -> None:
    place, benchmark, models = folder
    out = [tmp_path / "plot.png", tmp_path / "plot.svg"]
    files = [place / "benchmark.json", f"first={place / 'good.npz'}", place / "bad.npz"]
    code, text, _ = run(capsys, "plot", plot, *files, "-o", out[0], "-o", out[1])
    assert code == 0
    assert 0.01 < ink(out[0]) < 0.9
    assert out[1].read_text().startswith("<?xml")
    for name, model in (("first", "good"), ("bad", "bad")):
        measured = evaluate(benchmark, models[model]).figures()
        expected = {"precision-recall": f"uAP {measured['uAP']:.2%}", "queries": f"mAP {measured['mAP']:.2%}"}
        assert f"{name}: {expected.get(plot, '')}" in text


@pytest.mark.parametrize(
    ("plot", "measure"), [("distributions", "overlap"), ("precision-recall", "uAP"), ("queries", "mAP")]
)
def test_json_says_what_is_drawn_and_where(
    folder: Folder, tmp_path: Path, capsys: pytest.CaptureFixture[str], plot: str, measure: str
) -> None:
    place, benchmark, models = folder
    code, text, _ = run(
        capsys, "plot", plot, place / "benchmark.json", place / "bad.npz", "-o", tmp_path / "a.png", "--json"
    )
    record = json.loads(text)
    assert (code, record["files"]) == (0, [str(tmp_path / "a.png")])
    assert list(record["models"]["bad"]) == [measure]
    if measure != "overlap":
        assert record["models"]["bad"][measure] == pytest.approx(evaluate(benchmark, models["bad"])[measure].value)


def test_matrices_of_two_videos_are_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def compare(query: Path, target: Path, *, model: str) -> Match:
        asked.append((query.name, target.name, model))
        return match(psi=model == "lite")

    monkeypatch.setattr("hapvr.paper.figures.compare", compare)
    code, text, _ = run(
        capsys, "plot", "matrices", "a.mp4", "b.mp4", "--model", "lite", "--model", "x=other/", "-o", tmp_path / "m.png"
    )
    assert code == 0
    assert asked == [("a.mp4", "b.mp4", "lite"), ("a.mp4", "b.mp4", "other/")]
    assert "x: score 0.250" in text
    assert ink(tmp_path / "m.png") > 0.2


def test_surrogates_are_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, _ = run(capsys, "plot", "surrogates", "--delta", "0.1", "-o", tmp_path / "s.png", "-o", tmp_path / "s.pdf")
    assert code == 0
    assert ink(tmp_path / "s.png") > 0.05
    assert (tmp_path / "s.pdf").read_bytes().startswith(b"%PDF")


def test_what_cannot_be_drawn_is_refused_before_anything_is_computed(
    folder: Folder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = folder[0]
    known, good = place / "benchmark.json", place / "good.npz"
    out = ["-o", tmp_path / "x.png"]
    there = tmp_path / "folder.png"
    there.mkdir()
    for arguments, words in (
        (["queries", known, "absent.npz", "-o", "x.gif"], "its suffix must be one of .png, .svg, .pdf"),
        (["queries", known, "absent.npz", "-o", tmp_path / "new" / "x.png"], "new' is no folder"),
        (["queries", known, "absent.npz", "-o", known / "x.png"], "benchmark.json' is no folder"),
        (["queries", known, "absent.npz", "-o", there], "it is a folder"),
        (["queries", known, "absent.npz", *out, "-o", tmp_path / "." / "x.png"], "which is written as well"),
        (["queries", known, "absent.npz", *out], "cannot be read"),
        (["queries", known, good, good, *out], "2 models are called 'good': give names, as in mine="),
        (["queries", known, good, "--task", "mAPs", *out], "did you mean 'mAP'"),
        (["distributions", known, good, "--scale", "halv", *out], "did you mean 'half'"),
        (["precision-recall", known, good, "--missing", "no", *out], "missing has no value"),
        (["precision-recall", "fivr-5k", good, *out], "needs its annotation file"),
        (["surrogates", "--delta", "-1", *out], "delta"),
    ):
        code, _, error = run(capsys, "plot", *arguments)
        assert code == 2
        assert words in error
    assert list(tmp_path.iterdir()) == [there]


def test_a_disk_that_refuses_a_figure_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be written: File name too long"):
        plotting.save_figure(plots.plot_surrogates(surrogate_curves(points=11)), tmp_path / f"{'x' * 300}.png")


# --- figures ---------------------------------------------------------------------------------------------------------


def match(*, psi: bool = True, frames: tuple[int, int] = (9, 13)) -> Match:
    def side(name: str, count: int) -> VideoDescription:
        regions = torch.zeros(count, 9, 4)
        return VideoDescription(name, Features(regions, np.arange(count) / 2), Descriptors.of(regions), (), count / 2)

    verdict = Verdict("no match", None, None, None, None, NO_STRETCH)
    matrix = np.linspace(-0.1, 1, frames[0] * frames[1], dtype=np.float32).reshape(frames)
    compared = np.zeros((frames[0] // 4, frames[1] // 4), dtype=np.float32) if psi else None
    return Match(side("a", frames[0]), side("b", frames[1]), 0.25, verdict, (), matrix, compared)


def test_the_cells_of_a_matrix_stand_at_their_seconds() -> None:
    figure = plots.plot_matrices({"one": match(), "two": match(psi=False)})
    before, without, after, none = figure.axes[:4]
    (mesh,) = before.collections
    assert mesh.get_array().shape == (9, 13)  # type: ignore[union-attr]
    # Frames every half second: borders lie halfway between them, those of psi at every fourth.
    corners = np.asarray(mesh.get_coordinates())  # type: ignore[attr-defined]  # [10, 14, (target, query)]
    assert corners[0, 1:-1, 0] == pytest.approx(np.arange(12) / 2 + 0.25)
    assert corners[1:-1, 0, 1] == pytest.approx(np.arange(8) / 2 + 0.25)
    pooled = np.asarray(after.collections[0].get_coordinates())  # type: ignore[attr-defined]
    assert pooled[0, :, 0].tolist() == corners[0, ::4, 0].tolist()
    assert pooled[:, 0, 1].tolist() == corners[:9:4, 0, 1].tolist()
    assert after.get_xlim() == before.get_xlim()
    assert before.get_ylim()[0] > before.get_ylim()[1]  # the query runs downwards
    assert after.collections[0].get_array().shape == (2, 3)  # type: ignore[union-attr]
    assert not none.collections
    assert [text.get_text() for text in none.texts] == ["no psi"]
    assert without.get_title() == "two\nscore 0.250"


def test_without_psi_there_is_one_row() -> None:
    figure = plots.plot_matrices({"one": match(psi=False)})
    assert len(figure.axes) == 2  # the matrix and its colour bar


def test_the_area_under_the_drawn_steps_is_the_figure_in_the_legend() -> None:
    random = np.random.default_rng(0)
    relevant = random.random(400) < 0.2
    curve = precision_recall(relevant + random.normal(size=400), relevant, positives=int(relevant.sum()) + 5)
    (axes,) = plots.plot_precision_recall({"m": curve}).axes
    recall, precision = (np.asarray(values) for values in axes.lines[0].get_data())
    assert axes.lines[0].get_drawstyle() == "steps-pre"
    assert (np.diff(recall) * precision[1:]).sum() == pytest.approx(curve.area)
    legend = axes.get_legend()
    assert legend is not None
    assert legend.get_texts()[0].get_text() == f"m, uAP {100 * curve.area:.2f}%"


def test_a_long_curve_is_drawn_with_fewer_points() -> None:
    scores = np.arange(50_000, dtype=float)
    curve = precision_recall(scores, np.ones(50_000, dtype=bool))
    (axes,) = plots.plot_precision_recall({"m": curve}).axes
    recall = np.asarray(axes.lines[0].get_xdata())
    assert len(recall) <= 2001
    assert (recall[0], recall[-1]) == (0, 1)


def test_models_differ_in_more_than_colour() -> None:
    random = np.random.default_rng(0)
    relevant = random.random(100) < 0.3
    models = {str(n): random.normal(size=100) for n in range(5)}
    curves = {name: precision_recall(scores, relevant) for name, scores in models.items()}
    lines = plots.plot_precision_recall(curves).axes[0].lines
    assert len({str(line.get_linestyle()) + str(line._dash_pattern) for line in lines}) == 5  # type: ignore[attr-defined]
    spreads = {name: similarity_distribution(scores, relevant) for name, scores in models.items()}
    left, right = plots.plot_distributions(spreads).axes
    assert left.get_title() == f"relevant, {relevant.sum()} pairs"
    assert right.get_title() == f"irrelevant, {100 - relevant.sum()} pairs"


def test_queries_stand_in_groups_from_best_to_worst() -> None:
    models = {
        "one": {"a": 0.5, "b": 1.0, "c": 0.2, "d": 0.9, "e": float("nan")},
        "two": {"a": 0.7, "b": 0.8, "c": 0.4, "d": 0.1, "e": float("nan")},
    }
    groups = {"a": "crop", "b": "crop", "c": "speed", "d": "speed", "e": "speed"}
    figure = plots.plot_queries(models, groups=groups)
    (axes,) = figure.axes
    drawn = [part for part in axes.collections if isinstance(part, PathCollection)]
    heights = [np.asarray(part.get_offsets())[:, 1].tolist() for part in drawn]
    assert heights == [[1.0, 0.5, 0.9, 0.2], [0.8, 0.7, 0.1, 0.4]]  # b a | d c; e has no positive
    places = np.asarray(drawn[0].get_offsets())[:, 0]
    assert np.diff(places)[1] > np.diff(places)[0]  # a gap between groups
    assert [label.get_text() for label in axes.get_xticklabels()] == ["crop (2)", "speed (2)"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["one, mean 65.00%", "two, mean 50.00%"]


def test_queries_without_groups_are_named_while_there_is_room() -> None:
    few = plots.plot_queries({"m": {f"q{n}": n / 10 for n in range(10)}}).axes[0]
    assert [label.get_text() for label in few.get_xticklabels()][:2] == ["q9", "q8"]
    many = plots.plot_queries({"m": {f"q{n}": n / 100 for n in range(100)}}).axes[0]
    assert "100 queries" in many.get_xlabel()
    crowd = plots.plot_queries({"m": {f"q{n}": n / 500 for n in range(500)} | {"none": float("nan")}}).axes[0]
    assert crowd.get_xlabel() == (
        "500 queries, from best to worst, each model in its own order, 1 without a positive left out"
    )
    assert np.asarray(crowd.lines[0].get_ydata()).tolist() == [n / 500 for n in reversed(range(500))]


def test_the_same_figure_is_the_same_file_whatever_matplotlib_was_told(tmp_path: Path) -> None:
    """It reads settings from a file in the current folder."""
    for name, settings in (("a.svg", {}), ("b.svg", {"text.usetex": True, "lines.linewidth": 9, "font.size": 40})):
        with matplotlib.rc_context(settings):  # type: ignore[arg-type]
            plotting.save_figure(plots.plot_surrogates(surrogate_curves(points=51)), tmp_path / name)
            assert matplotlib.rcParams["font.size"] == settings.get("font.size", 10)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert not re.search(r"<dc:date>", (tmp_path / "a.svg").read_text())


def test_figures_of_nothing_are_refused() -> None:
    for draw in (plots.plot_distributions, plots.plot_precision_recall, plots.plot_queries,
                 plots.plot_matrices):  # fmt: skip
        with pytest.raises(ConfigError, match="no model to draw"):
            draw({})
    with pytest.raises(ConfigError, match="the step and its surrogates"):
        plots.plot_surrogates([])
    with pytest.raises(ConfigError, match="needs a file"):
        plotting.save_figure(plots.plot_surrogates(surrogate_curves(points=11)))
    with pytest.raises(DataError, match="different queries"):
        plots.plot_queries({"a": {"q": 1.0}, "b": {"r": 1.0}})
    with pytest.raises(DataError, match="none of the 1 queries"):
        plots.plot_queries({"a": {"q": float("nan")}})
