"""`hapvr plot`: figures for print, as PNG, SVG or PDF by the suffix of the file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hapvr.cli.options import Annotations, AsJson, Missing, name_places
from hapvr.cli.terminal import show

if TYPE_CHECKING:
    from hapvr.paper.figures import Drawing, ScoreFiles

app = typer.Typer(help="Draw figures for print, as PNG, SVG or PDF.", no_args_is_help=True)

Against = Annotated[str, typer.Argument(metavar="BENCHMARK", help="A benchmark's name, file or folder.")]
Scored = Annotated[
    list[str], typer.Argument(metavar="[NAME=]SCORES", help="Score files (.json or .npz), one for each model.")
]
Task = Annotated[str | None, typer.Option(help="Which task of the benchmark; one that fits if not given.")]
Output = Annotated[
    list[Path], typer.Option("--output", "-o", metavar="FILE", help="File to write: PNG, SVG or PDF. Repeatable.")
]
Title = Annotated[str | None, typer.Option(help="The title of the figure; benchmark and task if not given.")]


@app.command()
def distributions(
    benchmark: Against,
    scores: Scored,
    output: Output,
    annotations: Annotations = None,
    task: Task = None,
    missing: Missing = "drop",
    bins: Annotated[
        int | None, typer.Option(help="Number of bins of equal width; chosen by the number of pairs if not given.")
    ] = None,
    scale: Annotated[str, typer.Option(help="How scores become [0, 1]: range, half (s/2 + 1/2) or none.")] = "range",
    title: Title = None,
    as_json: AsJson = False,
) -> None:
    """Histograms of the scores of matching and other pairs: hapvr plot distributions made scores.npz -o spread.png."""
    from hapvr.paper.figures import draw_distributions

    source = _source(benchmark, scores, annotations, task, missing)
    _print(draw_distributions(source, *output, bins=bins, scale=scale, title=title), as_json)  # type: ignore[arg-type]


def _add_figure(name: str, draw: str, help: str) -> None:
    """A command that draws score files by a function of `hapvr.paper.figures`."""

    def command(
        benchmark: Against,
        scores: Scored,
        output: Output,
        annotations: Annotations = None,
        task: Task = None,
        missing: Missing = "drop",
        title: Title = None,
        as_json: AsJson = False,
    ) -> None:
        from hapvr.paper import figures

        source = _source(benchmark, scores, annotations, task, missing)
        _print(getattr(figures, draw)(source, *output, title=title), as_json)

    app.command(name, help=help)(command)


_add_figure(
    "precision-recall",
    "draw_precision_recall",
    "Precision over recall of all pairs pooled: hapvr plot precision-recall made a=a.npz b=b.npz -o curves.svg.",
)
_add_figure(
    "queries",
    "draw_queries",
    "The average precision of every query, by group: hapvr plot queries made a=a.npz b=b.npz -o queries.png.",
)


@app.command()
def matrices(
    query: Annotated[Path, typer.Argument(metavar="A", help="A video, GIF or picture.")],
    target: Annotated[Path, typer.Argument(metavar="B", help="What it is compared with.")],
    output: Output,
    model: Annotated[
        list[str] | None, typer.Option(metavar="[NAME=]MODEL", help="A model's name or folder. Repeatable.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Frame matrices of two videos under several models: hapvr plot matrices a.mp4 b.mp4 --model lite -o matrix.png."""
    from hapvr.model import DEFAULT
    from hapvr.paper.figures import draw_matrices

    _print(draw_matrices(query, target, *output, models=name_places(model or [DEFAULT])), as_json)


@app.command()
def calibration(
    reports: Annotated[
        list[str], typer.Argument(metavar="[NAME=]REPORT", help="Reports of `evaluate --verdicts -o REPORT.json`.")
    ],
    output: Output,
    title: Annotated[str | None, typer.Option(help="The title of the figure; the benchmark if not given.")] = None,
    as_json: AsJson = False,
) -> None:
    """How often pairs of each probability are copies: hapvr plot calibration report.json -o reliability.png."""
    from hapvr.paper.figures import draw_calibration

    _print(draw_calibration(name_places(reports), *output, title=title), as_json)


@app.command()
def surrogates(
    output: Output,
    delta: Annotated[
        float | None, typer.Option(help="The width delta of QuadLinear-AP; its default if not given.")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(help="The temperature of Smooth-AP; its default if not given.")
    ] = None,
    reach: Annotated[float, typer.Option(help="The x axis runs from -REACH to REACH.")] = 0.2,
    as_json: AsJson = False,
) -> None:
    """The step function in average precision, its smooth surrogates, their slopes: hapvr plot surrogates -o s.png."""
    from hapvr.paper.figures import draw_surrogates

    _print(draw_surrogates(*output, delta=delta, temperature=temperature, reach=reach), as_json)


def _source(benchmark: str, scores: list[str], annotations: Path | None, task: str | None, missing: str) -> ScoreFiles:
    from hapvr.paper.figures import ScoreFiles

    return ScoreFiles(benchmark, name_places(scores), annotations, task, missing)  # type: ignore[arg-type]


def _print(drawing: Drawing, as_json: bool) -> None:
    figures = [
        f"{name}: {measure} {value:.3f}" if measure == "score" else f"{name}: {measure} {value:.2%}"
        for name, values in drawing.values.items()
        for measure, value in values.items()
    ]
    show(as_json, drawing.to_json(), [*figures, *drawing.notes, *(f"wrote {file}" for file in drawing.files)])
