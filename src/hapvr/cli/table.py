"""`hapvr table`: the paper's tables, with your own figures below them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hapvr.cli.options import AsJson, split_label
from hapvr.cli.terminal import show


def table(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A table's name or number; all are listed if not given.")
    ] = None,
    results: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[LABEL=]FILE",
            help="A JSON file of `hapvr evaluate -o`; files with the same label become one line. Repeatable. "
            "Or a folder of results of `evaluate --method -o`: methods are compared with each other, with their costs.",
        ),
    ] = None,
    format: Annotated[str, typer.Option(help="text, markdown or latex.")] = "text",
    against: Annotated[
        str | None,
        typer.Option(
            help="The line to compare with: its first column, or 'line 3'; the paper's own method if not given."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print a result table of the paper with your own results below: hapvr table methods --results mine=eval.json."""
    from hapvr.errors import ConfigError
    from hapvr.paper import tables
    from hapvr.paper.table_text import render

    folders = [word for word in results or [] if Path(word).is_dir()]
    if folders:
        _print_methods(name, folders, results or [], format, as_json)
    elif name is not None:
        chosen = tables.find_paper_table(name)
        read = [tables.read_result(file, label=label) for label, file in map(split_label, results or [])]
        ours = tables.join_results(read)
        text = render(chosen, ours, format=format, against=against)  # type: ignore[arg-type]
        show(as_json, tables.to_json(chosen, ours, against=against), text)
    elif results or against:
        raise ConfigError(f"Say which table: {', '.join(tables.read_paper_tables())}.")
    else:
        listed = tables.read_paper_tables().values()
        lines = [f"{one.number:>2}  {one.name:<9} {one.caption}" for one in listed]
        show(as_json, [one.to_json() for one in listed], lines)


def _print_methods(name: str | None, folders: list[str], results: list[str], format: str, as_json: bool) -> None:
    from hapvr.errors import ConfigError
    from hapvr.paper import method_tables, tables
    from hapvr.paper.table_text import require_format

    if tables.find_paper_table(name or "").name != "methods" or len(folders) != len(results):
        raise ConfigError("Folders of results go with the table 'methods' alone, and not with files.")
    require_format(format, method_tables.FORMATS)
    lines = method_tables.read_method_results(folders)
    text = "\n\n".join(method_tables.render(group, format=format) for group in method_tables.group_lines(lines))
    show(as_json, [line.to_json() for line in lines], text)
