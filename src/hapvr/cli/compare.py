"""`hapvr compare`: two videos, one answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def compare(
    query: Annotated[Path, typer.Argument(metavar="A", help="A video, GIF or picture.")],
    target: Annotated[Path, typer.Argument(metavar="B", help="What it is looked for in.")],
    model: Annotated[str | None, typer.Option(help="A model's name or folder; the shipped one if not given.")] = None,
    prior: Annotated[
        float | None, typer.Option(help="How likely a match is before looking, above 0 and below 1; 0.5 if not given.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the match into this PNG, SVG or PDF.")] = None,
    page: Annotated[Path | None, typer.Option("--html", help="Explain the match on this self-contained page.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Tell whether and where two videos match: hapvr compare clip.mp4 film.mp4 --html match.html."""
    from hapvr.comparing import compare as compare_files
    from hapvr.pictures import save_html, save_plot

    match = compare_files(query, target, model=model, prior=prior)
    if plot is not None:
        save_plot(match, plot)
    if page is not None:
        save_html(match, page)
    if as_json:
        typer.echo(json.dumps(match.as_json()))
        return
    typer.echo(f"score {match.score:.3f}" + (f": {match.meaning}" if match.meaning else ""))
    for segment in match.segments:
        (a, b), (c, d) = segment.query, segment.target
        way = ", backwards" if segment.backwards else ""
        typer.echo(f"  {a:.1f}-{b:.1f} s of A is {c:.1f}-{d:.1f} s of B (similarity {segment.score:.2f}{way})")
    if not match.segments:
        typer.echo("  no stretch of the two matches")
    for name, side in (("A", match.query), ("B", match.target)):
        for warning in side.warnings:
            typer.echo(f"  {name}: {warning}", err=True)
