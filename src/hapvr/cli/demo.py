"""`hapvr demo`: films and edited copies of them as real files, and which is a copy of which. No network, no GPU."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from hapvr.cli.options import AsJson
from hapvr.cli.terminal import progress_bars, show


def demo(
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The folder for films, copies and report; a new one if not given."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Draw films, edit copies of them, find the original of each copy, and write a report: hapvr demo -o demo."""
    from hapvr.demo import run_demo

    folder = Path(tempfile.mkdtemp(prefix="hapvr-demo-")) if output is None else output
    with progress_bars(quiet=as_json) as progress:
        result = run_demo(folder, progress=progress)
    show(as_json, result, lambda: _print(result))


def _print(result: dict[str, Any]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from hapvr.demo import judge, summarise

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title="Who is it a copy of?")
    for heading in ("edited copy", "best", "score", "copy = film, s", ""):
        table.add_column(heading, no_wrap=True)
    colours = {"good": "green", "fair": "yellow", "bad": "red"}
    for row in result["copies"]:
        verdict, mark = judge(row)
        where = _where(row["segments"][0]) if row["match"] and row["segments"] else "no match"
        table.add_row(row["copy"], row["best"], f"{row['score']:.3f}", where, f"[{colours[mark]}]{verdict}[/]")
    console = Console()
    console.print(table)
    console.print(
        f"{summarise(result['copies'])} mAP {result['mAP']:.3f}, uAP {result['uAP']:.3f}; {result['wall_s']:.0f} s "
        f"with the model '{result['model']}'."
    )
    console.print(f"Report: {result['report']}", soft_wrap=True)
    console.print("On files of your own: hapvr compare A B --html match.html")


def _where(segment: dict[str, Any]) -> str:
    """Both stretches in seconds; the film's is named from its end where the copy plays it backwards."""
    (a, b), (c, d) = segment["query"], segment["target"]
    c, d = (d, c) if segment["backwards"] else (c, d)
    return f"{a:.1f}-{b:.1f} = {c:.1f}-{d:.1f}"
