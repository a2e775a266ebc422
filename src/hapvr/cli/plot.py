"""`hapvr plot`: figures for print. Each is written as the suffix of its file says: PNG, SVG or PDF."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hapvr.cli.table import labelled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hapvr.evaluation.benchmarks import Benchmark, Task
    from hapvr.evaluation.scores import Scores


def _checked(files: list[Path]) -> list[Path]:
    """Refuse what cannot be written before anything is computed."""
    from hapvr.plotting import require_pictures

    require_pictures(files)
    return files


app = typer.Typer(help="Draw figures for print, as PNG, SVG or PDF.", no_args_is_help=True)

Against = Annotated[str, typer.Argument(metavar="BENCHMARK", help="A benchmark's name, file or folder.")]
Scored = Annotated[
    list[str], typer.Argument(metavar="[NAME=]SCORES", help="Score files (.json or .npz), one for each model.")
]
Annotations = Annotated[Path | None, typer.Option(help="Annotation file, or folder of them, of a published benchmark.")]
Named = Annotated[str | None, typer.Option(help="Which task of the benchmark; a fitting one if not given.")]
Missing = Annotated[str, typer.Option(help="What becomes of videos without scores: drop, miss or error.")]
Out = Annotated[
    list[Path], typer.Option("--out", "-o", callback=_checked, help="File to write: PNG, SVG or PDF; repeatable.")
]
Title = Annotated[str | None, typer.Option(help="Above the figure; benchmark and task if not given.")]


@app.command()
def distributions(
    benchmark: Against,
    scores: Scored,
    out: Out,
    annotations: Annotations = None,
    task: Named = None,
    missing: Missing = "drop",
    bins: Annotated[
        int | None, typer.Option(help="Of equal width; as many as the pairs can fill if not given.")
    ] = None,
    scale: Annotated[str, typer.Option(help="How scores become [0, 1]: range, half (s/2 + 1/2) or none.")] = "range",
    title: Title = None,
) -> None:
    """Similarities of relevant and irrelevant pairs: hapvr plot distributions made scores.npz -o spread.png."""
    from hapvr.evaluation.curves import fitting_bins, pooled_pairs, similarity_distribution
    from hapvr.plotting import plot_distributions

    known, chosen, models = _opened(benchmark, scores, annotations, task, figures=("uAP", "mAP"))
    pools = {name: pooled_pairs(known, read, chosen, missing=missing) for name, read in models.items()}  # type: ignore[arg-type]
    if bins is None:
        bins = min(fitting_bins(int(pool.relevant.sum())) for pool in pools.values())
    spreads = {
        name: similarity_distribution(pool.scores, pool.relevant, bins=bins, scale=scale)  # type: ignore[arg-type]
        for name, pool in pools.items()
    }
    for name, spread in spreads.items():
        typer.echo(f"{name}: {spread.overlap:.1%} of the two distributions overlap")
    _write(plot_distributions(spreads, title=_title(title, known, chosen)), out)


@app.command("precision-recall")
def precision_recall(
    benchmark: Against,
    scores: Scored,
    out: Out,
    annotations: Annotations = None,
    task: Named = None,
    missing: Missing = "drop",
    title: Title = None,
) -> None:
    """Precision over recall of all pairs pooled: hapvr plot precision-recall made a=a.npz b=b.npz -o curves.svg."""
    from hapvr.evaluation.curves import pooled_pairs
    from hapvr.evaluation.curves import precision_recall as curve
    from hapvr.plotting import plot_precision_recall

    known, chosen, models = _opened(benchmark, scores, annotations, task, figures=("uAP", "mAP"))
    curves = {}
    for name, read in models.items():
        pool = pooled_pairs(known, read, chosen, missing=missing)  # type: ignore[arg-type]
        curves[name] = curve(pool.scores, pool.relevant, positives=pool.positives, ties=chosen.ties)
        typer.echo(f"{name}: uAP {curves[name].area:.2%}")
    _write(plot_precision_recall(curves, title=_title(title, known, chosen)), out)


@app.command()
def queries(
    benchmark: Against,
    scores: Scored,
    out: Out,
    annotations: Annotations = None,
    task: Named = None,
    missing: Missing = "drop",
    title: Title = None,
) -> None:
    """The average precision of every query, by group: hapvr plot queries made a=a.npz b=b.npz -o queries.png."""
    from hapvr.evaluation.protocol import evaluate
    from hapvr.plotting import plot_queries

    known, chosen, models = _opened(benchmark, scores, annotations, task, figures=("mAP", "EVVE mAP", "uAP"))
    precisions = {}
    for name, read in models.items():
        evaluation = evaluate(known, read, missing=missing)  # type: ignore[arg-type]
        precisions[name] = dict(evaluation[chosen.name].by_query)
        typer.echo(f"{name}: {chosen.figure} {evaluation[chosen.name].value:.2%}; {evaluation.coverage}")
    _write(plot_queries(precisions, groups=known.groups, title=_title(title, known, chosen)), out)


@app.command()
def matrices(
    query: Annotated[Path, typer.Argument(metavar="A", help="A video, GIF or picture.")],
    target: Annotated[Path, typer.Argument(metavar="B", help="What it is compared with.")],
    out: Out,
    model: Annotated[
        list[str] | None, typer.Option(metavar="[NAME=]MODEL", help="A model's name or folder; repeatable.")
    ] = None,
) -> None:
    """Frame matrices of two videos under several models: hapvr plot matrices a.mp4 b.mp4 --model lite -o matrix.png."""
    from hapvr.comparing import compare
    from hapvr.model import DEFAULT
    from hapvr.plotting import plot_matrices
    from hapvr.storage import require_outputs

    require_outputs(out, inputs=(query, target))
    matches = {}
    for name, source in _named(model or [DEFAULT]).items():
        matches[name] = compare(query, target, model=source)
        typer.echo(f"{name}: score {matches[name].score:.3f}")
    _write(plot_matrices(matches), out)


@app.command()
def surrogates(
    out: Out,
    delta: Annotated[float | None, typer.Option(help="Of QuadLinear-AP; its default if not given.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Of Smooth-AP; its default if not given.")] = None,
    reach: Annotated[float, typer.Option(help="x runs from -reach to reach.")] = 0.2,
) -> None:
    """The step of AP, its surrogates and their slopes: hapvr plot surrogates -o surrogates.png."""
    from hapvr.evaluation.curves import surrogate_curves
    from hapvr.plotting import plot_surrogates

    _write(plot_surrogates(surrogate_curves(delta=delta, temperature=temperature, reach=reach)), out)


def _opened(
    benchmark: str, scores: Sequence[str], annotations: Path | None, task: str | None, *, figures: Sequence[str]
) -> tuple[Benchmark, Task, dict[str, Scores]]:
    """The benchmark, the task asked for or the first that measures one of `figures`, and the scores of each model."""
    from hapvr.config import suggest
    from hapvr.errors import ConfigError
    from hapvr.evaluation.benchmarks import open_benchmark
    from hapvr.evaluation.scores import read_scores

    known = open_benchmark(benchmark, annotations=annotations)
    names = [one.name for one in known.tasks]
    if task is not None and task not in names:
        raise ConfigError(f"{known.name} has no task '{task}'; {suggest(task, names)}")
    fitting = [one for figure in figures for one in known.tasks if one.figure == figure] or list(known.tasks)
    chosen = next(one for one in known.tasks if one.name == task) if task is not None else fitting[0]
    return known, chosen, {name: read_scores(file) for name, file in _named(scores).items()}


def _named(words: Sequence[str]) -> dict[str, str]:
    """What each `[NAME=]PLACE` is called, and its place. A name is the last part of the place if none is given."""
    from hapvr.errors import ConfigError

    pairs = [(label or Path(place).stem or place, place) for label, place in map(labelled, words)]
    for name, count in Counter(name for name, _ in pairs).items():
        if count > 1:
            raise ConfigError(f"{count} models are called '{name}': give names, as in mine={dict(pairs)[name]}.")
    return dict(pairs)


def _title(given: str | None, benchmark: Benchmark, task: Task) -> str:
    return f"{benchmark.name}, {task.name}" if given is None else given


def _write(figure: Figure, out: Sequence[Path]) -> None:
    from hapvr.plotting import save_figure

    for file in save_figure(figure, *out):
        typer.echo(f"wrote {file}")
