"""`hapvr ablate`: the paper's ablations at your own scale, beside the paper's figures."""

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
            help="A benchmark to measure on: a name for it, an HDF5 file of features, and its ground_truth.json; "
            "if not given, the one of [validation] in the settings. Repeatable.",
        ),
    ] = None,
    seeds: Annotated[
        int,
        typer.Option(min=1, help="Number of training runs for each line of the table, with different random seeds."),
    ] = 3,
    lines: Annotated[
        str, typer.Option(help="Numbers of the table's lines to run, such as 1,3; all if not given.")
    ] = "",
    compilation_frames: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Also measure on long videos of at least this many frames, made by joining videos of the benchmark; "
            "0 for none. If not given: 400 for table4, else 0.",
        ),
    ] = None,
    share_training: Annotated[
        bool,
        typer.Option(
            "--share-training",
            help="Train once for lines whose settings differ only on videos longer than the training clips (k_t).",
        ),
    ] = False,
    format: Annotated[str, typer.Option(help="Format of the table: text or markdown.")] = "text",
    as_json: AsJson = False,
) -> None:
    """Repeat a study of the paper: hapvr ablate table3 small data.frames=packed --benchmark a=a.h5,truth.json.

    All runs learn from the same stored features. Finished runs are kept in RUN/ablations, and not repeated.
    """
    from hapvr.paper.ablation_tables import FORMATS, render
    from hapvr.paper.ablations import parse_line_numbers, run_study
    from hapvr.paper.table_text import require_format
    from hapvr.training.recipe_files import load_config

    require_format(format, FORMATS)  # before the runs, not after them
    tables = run_study(
        study,
        load_config(settings, words or []),
        benchmarks=benchmark or [],
        seeds=seeds,
        lines=parse_line_numbers(lines),
        compilation_frames=compilation_frames,
        share_training=share_training,
        report=lambda line: typer.echo(line, err=True),
    )
    text = "\n\n".join(render(table, format=format) for table in tables)
    show(as_json, [table.to_json() for table in tables], text)
