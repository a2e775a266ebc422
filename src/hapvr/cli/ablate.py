"""`hapvr ablate`: the paper's ablations, at one's own scale, beside the paper's figures."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from hapvr.cli.options import AsJson
from hapvr.cli.train import Settings, Words


def ablate(
    study: Annotated[str, typer.Argument(metavar="STUDY", help="table2, table3, table4, delta, rho, lambda or rates.")],
    settings: Settings,
    words: Words = None,
    benchmark: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FEATURES[,TRUTH]", help="What to measure on; by default that of [validation]."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each line.")] = 3,
    lines: Annotated[str, typer.Option(help="Numbers of the lines to run, such as 1,3; by default all.")] = "",
    long: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Measure on compilations of so many frames too; 0 makes none. By default 400 for table4, else none.",
        ),
    ] = None,
    share_training: Annotated[
        bool,
        typer.Option(
            "--share-training", help="Train lines once that differ in k_t alone and keep as many in training."
        ),
    ] = False,
    format: Annotated[str, typer.Option(help="text or markdown.")] = "text",
    as_json: AsJson = False,
) -> None:
    """Repeat an ablation of the paper: hapvr ablate table3 small data.frames=packed --benchmark a=a.h5,truth.json.

    All runs learn from one feature bank. What is finished is kept in RUN/ablations, and taken from there.
    """
    from hapvr.paper.ablation_tables import FORMATS, render
    from hapvr.paper.ablations import parse_line_numbers, run_study
    from hapvr.paper.tables import require_format
    from hapvr.training.config import load_config

    require_format(format, FORMATS)  # before the runs, not after them
    tables = run_study(
        study,
        load_config(settings, words or []),
        benchmarks=benchmark or [],
        seeds=seeds,
        lines=parse_line_numbers(lines),
        long=long,
        share_training=share_training,
        report=lambda line: typer.echo(line, err=True),
    )
    if as_json:
        typer.echo(json.dumps([table.to_json() for table in tables]))
    else:
        typer.echo("\n\n".join(render(table, format=format) for table in tables))
