"""`hapvr ablate`: the paper's ablations, at one's own scale, beside the paper's figures."""

from __future__ import annotations

from typing import Annotated

import typer

from hapvr.cli.options import AsJson
from hapvr.cli.terminal import show
from hapvr.cli.train import Settings, Words


def ablate(
    study: Annotated[
        str, typer.Argument(metavar="STUDY", help="Which study: table2, table3, table4, delta, rho, lambda or rates.")
    ],
    settings: Settings,
    words: Words = None,
    benchmark: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FEATURES[,TRUTH]",
            help="What to measure on; the benchmark of [validation] if not given. Repeatable.",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of runs of each line, with different random seeds.")] = 3,
    lines: Annotated[str, typer.Option(help="Numbers of the lines to run, such as 1,3; all if not given.")] = "",
    long: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Measure also on compilations with this many frames; 0 makes none. 400 for table4 if not given.",
        ),
    ] = None,
    share_training: Annotated[
        bool,
        typer.Option(
            "--share-training", help="Train once for lines that only differ in what is kept of long targets (k_t)."
        ),
    ] = False,
    format: Annotated[str, typer.Option(help="text or markdown.")] = "text",
    as_json: AsJson = False,
) -> None:
    """Repeat a study of the paper: hapvr ablate table3 small data.frames=packed --benchmark a=a.h5,truth.json.

    All runs learn from the same stored features. Finished runs are kept in RUN/ablations, and not repeated.
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
    text = "\n\n".join(render(table, format=format) for table in tables)
    show(as_json, [table.to_json() for table in tables], text)
