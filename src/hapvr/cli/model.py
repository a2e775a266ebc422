"""`hapvr model`: weight files in and out. The library is imported inside the commands, so that --help stays quick."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Convert and inspect model weights.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


@app.command()
def convert(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="A weight file as its project publishes it.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The model folder to write.")],
    kind: Annotated[str | None, typer.Option(help="What the file is; by default its contents decide.")] = None,
    as_json: Json = False,
) -> None:
    """Turn another project's weight file into a model folder: hapvr model convert resnet50.pth models/resnet50."""
    from hapvr.conversion import convert as convert_file

    done = convert_file(source, out, kind=kind)
    if as_json:
        record = {"kind": done.kind, "parts": done.parts, "tensors": done.tensors, "destination": str(done.destination)}
        typer.echo(json.dumps(record))
    else:
        typer.echo(f"{done.kind}: {done.tensors} tensors of {', '.join(done.parts)} written to {done.destination}")


@app.command()
def info(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A model folder.")], as_json: Json = False
) -> None:
    """Show what a model folder holds, its checksum verified: hapvr model info models/resnet50."""
    from hapvr.weights import load_parts

    parts = {
        name: {
            "config": dict(part.config),
            "tensors": len(part.tensors),
            "values": sum(tensor.numel() for tensor in part.tensors.values()),
        }
        for name, part in load_parts(folder).items()
    }
    if as_json:
        typer.echo(json.dumps({"folder": str(folder), "parts": parts}))
        return
    for name, part in parts.items():
        typer.echo(f"{name}: {part['tensors']} tensors, {part['values']:,} values; {json.dumps(part['config'])}")
