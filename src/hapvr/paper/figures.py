"""The paper's figures: distributions, precision and recall, queries, frame matrices, surrogates; reliability diagrams.

`draw_*` read a benchmark and score files and write a figure of `hapvr.paper.plots`, as `hapvr plot` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hapvr.config import suggest
from hapvr.errors import ConfigError, DataError
from hapvr.evaluation.benchmarks import Benchmark, Task, open_benchmark
from hapvr.evaluation.benchmarks.annotation_file import read_json
from hapvr.evaluation.protocol import Missing, evaluate
from hapvr.evaluation.score_files import Scores, read_scores
from hapvr.matching import compare
from hapvr.paper import curves
from hapvr.paper.curves import Scale
from hapvr.paper.plots import (
    plot_calibration,
    plot_distributions,
    plot_matrices,
    plot_precision_recall,
    plot_queries,
    plot_surrogates,
)
from hapvr.reports.plotting import require_pictures, save_figure
from hapvr.storage import StrPath, require_outputs


@dataclass(frozen=True)
class Drawing:
    """A figure that was written."""

    files: tuple[Path, ...]
    values: Mapping[str, Mapping[str, float]]  # what it shows of each model, by name
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """What `hapvr plot --json` prints."""
        models = {name: dict(values) for name, values in self.values.items()}
        return {"files": [str(file) for file in self.files], "models": models, "notes": list(self.notes)}


@dataclass(frozen=True)
class ScoreFiles:
    """Scores of several models on one benchmark, as the figures of `hapvr plot` take them.

    Attributes:
        benchmark: a published name, a made folder, or a file; see `open_benchmark`.
        scores: the score file of each model, by the model's name.
        annotations: the annotation file of a published benchmark, or its folder.
        task: which task of the benchmark; one that fits the figure if None.
        missing: what becomes of videos without scores: "drop", "miss" or "error".
    """

    benchmark: StrPath
    scores: Mapping[str, StrPath]
    annotations: StrPath | None = None
    task: str | None = None
    missing: Missing = "drop"

    def read(self, *figures: str) -> tuple[Benchmark, Task, dict[str, Scores]]:
        """The benchmark, the task asked for or the first that measures one of `figures`, and each model's scores."""
        known = open_benchmark(self.benchmark, annotations=self.annotations)
        names = [one.name for one in known.tasks]
        if self.task is not None and self.task not in names:
            raise ConfigError(f"{known.name} has no task '{self.task}'; {suggest(self.task, names)}")
        fitting = [one for figure in figures for one in known.tasks if one.figure == figure] or list(known.tasks)
        chosen = fitting[0] if self.task is None else known.tasks[names.index(self.task)]
        return known, chosen, {name: read_scores(file) for name, file in self.scores.items()}


def draw_distributions(
    source: ScoreFiles, *outputs: StrPath, bins: int | None = None, scale: Scale = "range", title: str | None = None
) -> Drawing:
    """Draw how the similarities of relevant and of irrelevant pairs spread, and by how much they overlap.

    `outputs` are PNG, SVG or PDF files. By default there are as many `bins` as the pairs can fill, and the `title` is
    benchmark and task; for `scale` see `similarity_distribution`.
    """
    files = require_pictures(outputs)
    known, task, models = source.read("uAP", "mAP")
    pools = {name: curves.pool_pairs(known, scores, task, missing=source.missing) for name, scores in models.items()}
    if bins is None:
        bins = min(curves.choose_bins(int(pool.relevant.sum())) for pool in pools.values())
    spreads = {
        name: curves.similarity_distribution(pool.scores, pool.relevant, bins=bins, scale=scale)
        for name, pool in pools.items()
    }
    save_figure(plot_distributions(spreads, title=_choose_title(title, known, task)), *files)
    return Drawing(tuple(files), {name: {"overlap": spread.overlap} for name, spread in spreads.items()})


def draw_precision_recall(source: ScoreFiles, *outputs: StrPath, title: str | None = None) -> Drawing:
    """Draw precision over recall of all pairs pooled, with the area of each curve, the uAP."""
    files = require_pictures(outputs)
    known, task, models = source.read("uAP", "mAP")
    drawn = {}
    for name, scores in models.items():
        pool = curves.pool_pairs(known, scores, task, missing=source.missing)
        drawn[name] = curves.precision_recall(pool.scores, pool.relevant, positives=pool.positives, ties=task.ties)
    save_figure(plot_precision_recall(drawn, title=_choose_title(title, known, task)), *files)
    return Drawing(tuple(files), {name: {"uAP": curve.area} for name, curve in drawn.items()})


def draw_queries(source: ScoreFiles, *outputs: StrPath, title: str | None = None) -> Drawing:
    """Draw the average precision of every query by group, and the figure of the task."""
    files = require_pictures(outputs)
    known, task, models = source.read("mAP", "EVVE mAP", "uAP")
    measured = {name: evaluate(known, scores, missing=source.missing) for name, scores in models.items()}
    precisions = {name: evaluation[task.name].by_query for name, evaluation in measured.items()}
    save_figure(plot_queries(precisions, groups=known.groups, title=_choose_title(title, known, task)), *files)
    values = {name: {str(task.figure): evaluation[task.name].value} for name, evaluation in measured.items()}
    return Drawing(tuple(files), values, tuple(f"{name}: {each.coverage}" for name, each in measured.items()))


def draw_calibration(reports: Mapping[str, StrPath], *outputs: StrPath, title: str | None = None) -> Drawing:
    """Draw predicted probabilities of a copy against the share of copies, from reports of `hapvr evaluate --verdicts`.

    `reports` has the JSON file of each model, by the model's name. By default the `title` is the benchmark.
    """
    files = require_pictures(outputs)
    require_outputs(files, inputs=reports.values())
    read = {name: _read_verdicts(path) for name, path in reports.items()}
    found = next(iter(read.values()), {})
    words = f"{found.get('benchmark', '')}, prior {found.get('prior') or 0:g}" if title is None else title
    bins = {name: one["reliability"] for name, one in read.items()}
    save_figure(plot_calibration(bins, title=words), *files)
    copy = {name: one["copy"] for name, one in read.items()}
    values = {name: {key: float(one[key]) for key in ("precision", "recall") if one[key] is not None}
              for name, one in copy.items()}  # fmt: skip
    return Drawing(tuple(files), values)


def _read_verdicts(path: StrPath) -> dict[str, Any]:
    content = read_json(path)
    verdicts = content.get("verdicts") if isinstance(content, dict) else None
    if not isinstance(verdicts, dict) or not verdicts.get("reliability") or "copy" not in verdicts:
        raise DataError(
            f"'{path}' has no reliability of verdicts. Write it with `hapvr evaluate BENCHMARK --verdicts -o "
            "REPORT.json` and a model that gives probabilities."
        )
    return verdicts


def draw_matrices(query: StrPath, target: StrPath, *outputs: StrPath, models: Mapping[str, str]) -> Drawing:
    """Draw the frame matrices of two videos under several models, given by name or folder."""
    files = require_pictures(outputs)
    require_outputs(files, inputs=(query, target))
    matches = {name: compare(query, target, model=model) for name, model in models.items()}
    save_figure(plot_matrices(matches), *files)
    return Drawing(tuple(files), {name: {"score": match.score} for name, match in matches.items()})


def draw_surrogates(
    *outputs: StrPath, delta: float | None = None, temperature: float | None = None, reach: float = 0.2
) -> Drawing:
    """Draw the step of AP, its surrogates and their slopes; see `surrogate_curves`."""
    files = require_pictures(outputs)
    save_figure(plot_surrogates(curves.surrogate_curves(delta=delta, temperature=temperature, reach=reach)), *files)
    return Drawing(tuple(files), {})


def _choose_title(given: str | None, benchmark: Benchmark, task: Task) -> str:
    return f"{benchmark.name}, {task.name}" if given is None else given
