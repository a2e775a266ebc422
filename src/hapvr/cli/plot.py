"""`hapvr plot`: figures for print. Each is written as the suffix of its file says: PNG, SVG or PDF."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hapvr.cli.options import AsJson, name_places

if TYPE_CHECKING:
    from hapvr.paper.figures import Drawing, ScoreFiles

app = typer.Typer(help="Draw figures for print, as PNG, SVG or PDF.", no_args_is_help=True)

Against = Annotated[str, typer.Argument(metavar="BENCHMARK", help="A benchmark's name, file or folder.")]
Scored = Annotated[
    list[str], typer.Argument(metavar="[NAME=]SCORES", help="Score files (.json or .npz), one for each model.")
]
Annotations = Annotated[Path | None, typer.Option(help="Annotation file, or folder of them, of a published benchmark.")]
Named = Annotated[str | None, typer.Option(help="Which task of the benchmark; a fitting one if not given.")]
Missing = Annotated[str, typer.Option(help="What becomes of videos without scores: drop, miss or error.")]
Output = Annotated[list[Path], typer.Option("--output", "-o", help="File to write: PNG, SVG or PDF; repeatable.")]
Title = Annotated[str | None, typer.Option(help="Above the figure; benchmark and task if not given.")]


@app.command()
def distributions(
    benchmark: Against,
    scores: Scored,
    output: Output,
    annotations: Annotations = None,
    task: Named = None,
    missing: Missing = "drop",
    bins: Annotated[
        int | None, typer.Option(help="Of equal width; as many as the pairs can fill if not given.")
    ] = None,
    scale: Annotated[str, typer.Option(help="How scores become [0, 1]: range, half (s/2 + 1/2) or none.")] = "range",
    title: Title = None,
    as_json: AsJson = False,
) -> None:
    """Similarities of relevant and irrelevant pairs: hapvr plot distributions made scores.npz -o spread.png."""
    from hapvr.paper.figures import draw_distributions

    source = _source(benchmark, scores, annotations, task, missing)
    _print(draw_distributions(source, *output, bins=bins, scale=scale, title=title), as_json)  # type: ignore[arg-type]


@app.command("precision-recall")
def precision_recall(
    benchmark: Against,
    scores: Scored,
    output: Output,
    annotations: Annotations = None,
    task: Named = None,
    missing: Missing = "drop",
    title: Title = None,
    as_json: AsJson = False,
) -> None:
    """Precision over recall of all pairs pooled: hapvr plot precision-recall made a=a.npz b=b.npz -o curves.svg."""
    from hapvr.paper.figures import draw_precision_recall

    source = _source(benchmark, scores, annotations, task, missing)
    _print(draw_precision_recall(source, *output, title=title), as_json)


@app.command()
def queries(
    benchmark: Against,
    scores: Scored,
    output: Output,
    annotations: Annotations = None,
    task: Named = None,
    missing: Missing = "drop",
    title: Title = None,
    as_json: AsJson = False,
) -> None:
    """The average precision of every query, by group: hapvr plot queries made a=a.npz b=b.npz -o queries.png."""
    from hapvr.paper.figures import draw_queries

    source = _source(benchmark, scores, annotations, task, missing)
    _print(draw_queries(source, *output, title=title), as_json)


@app.command()
def matrices(
    query: Annotated[Path, typer.Argument(metavar="A", help="A video, GIF or picture.")],
    target: Annotated[Path, typer.Argument(metavar="B", help="What it is compared with.")],
    output: Output,
    model: Annotated[
        list[str] | None, typer.Option(metavar="[NAME=]MODEL", help="A model's name or folder; repeatable.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Frame matrices of two videos under several models: hapvr plot matrices a.mp4 b.mp4 --model lite -o matrix.png."""
    from hapvr.model import DEFAULT
    from hapvr.paper.figures import draw_matrices

    _print(draw_matrices(query, target, *output, models=name_places(model or [DEFAULT])), as_json)


@app.command()
def surrogates(
    output: Output,
    delta: Annotated[float | None, typer.Option(help="Of QuadLinear-AP; its default if not given.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Of Smooth-AP; its default if not given.")] = None,
    reach: Annotated[float, typer.Option(help="x runs from -reach to reach.")] = 0.2,
    as_json: AsJson = False,
) -> None:
    """The step of AP, its surrogates and their slopes: hapvr plot surrogates -o surrogates.png."""
    from hapvr.paper.figures import draw_surrogates

    _print(draw_surrogates(*output, delta=delta, temperature=temperature, reach=reach), as_json)


def _source(benchmark: str, scores: list[str], annotations: Path | None, task: str | None, missing: str) -> ScoreFiles:
    from hapvr.paper.figures import ScoreFiles

    return ScoreFiles(benchmark, name_places(scores), annotations, task, missing)  # type: ignore[arg-type]


def _print(drawing: Drawing, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(drawing.to_json()))
        return
    for name, values in drawing.values.items():
        for measure, value in values.items():
            typer.echo(f"{name}: {measure} {value:.3f}" if measure == "score" else f"{name}: {measure} {value:.2%}")
    for note in drawing.notes:
        typer.echo(note)
    for file in drawing.files:
        typer.echo(f"wrote {file}")
