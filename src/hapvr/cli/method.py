"""`hapvr method`: the systems of the paper's Table 1, listed and fitted; `hapvr evaluate --method` measures them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hapvr.cli.options import AsJson
from hapvr.cli.terminal import show

app = typer.Typer(help="Other retrieval methods: list them, fit them on edited copies.", no_args_is_help=True)


@app.command("list")
def list_all(as_json: AsJson = False) -> None:
    """List the methods: hapvr method list."""
    from hapvr.methods import list_methods, read_card

    found = list_methods()
    rows = [
        {"name": name, "title": cls.title, "fitted": cls.learns, "reads": cls.reads, "card": read_card(cls)}
        for name, cls in found.items()
    ]
    lines = [
        f"{name:<14} {cls.title:<30} {'fitted on clips' if cls.learns else 'nothing to fit'}"
        for name, cls in found.items()
    ]
    show(as_json, rows, lines)


@app.command()
def card(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A method's name.")], as_json: AsJson = False
) -> None:
    """Print what a method's original is, what is kept and what is adapted: hapvr method card tmk."""
    from hapvr.methods import find_method, read_card

    text = read_card(find_method(name))
    show(as_json, {"name": name, "card": text}, text)


@app.command()
def fit(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A method's name, see `hapvr method list`.")],
    clips: Annotated[
        Path,
        typer.Argument(metavar="CLIPS", help="A folder of `make-benchmark`, made of training videos."),
    ],
    features: Annotated[Path, typer.Argument(metavar="FEATURES", help="An HDF5 file of its videos' features.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder for the fitted method.")],
    seed: Annotated[int, typer.Option(help="Of weights and batches.")] = 0,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting. Repeatable.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or cuda:1; the GPU if there is one.")] = None,
    as_json: AsJson = False,
) -> None:
    """Fit a method on originals and edited copies: hapvr method fit dml made features.h5 fitted/dml --seed 1."""
    from dataclasses import asdict

    from hapvr.devices import find_device
    from hapvr.methods import fit_method, make_method, parse_settings, read_clips, save_method

    place = find_device(device)
    read = read_clips(clips, features)
    method = make_method(name, read.dims, parse_settings(name, settings or []), device=place, seed=seed)
    record = fit_method(method, read, seed=seed, report=None if as_json else lambda line: typer.echo(line, err=True))
    save_method(method, out, record)
    losses = "" if record.last_loss is None else f", loss {record.first_loss:.4f} to {record.last_loss:.4f}"
    text = f"{method.title}: {record.steps} steps in {record.seconds:.1f} s on {record.videos} videos{losses}. {out}"
    show(as_json, {"folder": str(out), **asdict(record)}, text)
