"""`hapvr table`: the paper's tables, and one's own figures beside them."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from hapvr.cli.options import AsJson, split_label


def table(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A table's name or number; they are listed if not given.")
    ] = None,
    results: Annotated[
        list[str] | None,
        typer.Option(metavar="[LABEL=]FILE", help="What `hapvr evaluate -o` wrote; equal labels are one line."),
    ] = None,
    format: Annotated[str, typer.Option(help="text, markdown or latex.")] = "text",
    against: Annotated[
        str | None,
        typer.Option(help="The line to compare with, by its first key or as 'line 3'; else the paper's own."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print a result table of the paper, your figures below: hapvr table methods --results mine=eval.json."""
    from hapvr.errors import ConfigError
    from hapvr.paper import tables

    if name is not None:
        chosen = tables.paper_table(name)
        read = [tables.read_result(file, label=label) for label, file in map(split_label, results or [])]
        ours = tables.join_results(read)
        if as_json:
            typer.echo(json.dumps(tables.to_json(chosen, ours, against=against)))
        else:
            typer.echo(tables.render(chosen, ours, format=format, against=against))  # type: ignore[arg-type]
    elif results or against:
        raise ConfigError(f"Say which table: {', '.join(tables.paper_tables())}.")
    else:
        listed = tables.paper_tables().values()
        lines = [f"{one.number:>2}  {one.name:<9} {one.caption}" for one in listed]
        typer.echo(json.dumps([one.to_json() for one in listed]) if as_json else "\n".join(lines))
