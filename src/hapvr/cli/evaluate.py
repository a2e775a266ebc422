"""`hapvr evaluate`: the figures of a benchmark, from features, from videos, or from scores that were saved."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated

import typer

from hapvr.cli.options import AsJson, Model
from hapvr.cli.printing import printed

Name = Annotated[
    str, typer.Argument(metavar="BENCHMARK", help="A published name (fivr-200k), a made folder, a CSV or JSON file.")
]
Annotations = Annotated[Path | None, typer.Option(help="A published benchmark's annotation file, or its folder.")]
Features = Annotated[Path | None, typer.Option(help="An HDF5 file of features to measure.")]
QueryFeatures = Annotated[Path | None, typer.Option(help="The queries' features, if they are in another file.")]
Videos = Annotated[Path | None, typer.Option(help="A folder of the benchmark's videos, named by their ids.")]
KeepFeatures = Annotated[
    Path | None, typer.Option(help="The HDF5 file that keeps the features of videos; in --work or a made folder else.")
]
SavedScores = Annotated[Path | None, typer.Option(help="Saved scores to measure again, .json or .npz; needs no model.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda or cuda:1; the GPU if there is one.")]
Precision = Annotated[str | None, typer.Option(help="float32, bfloat16 or float16; bfloat16 on a GPU, else float32.")]
Work = Annotated[Path | None, typer.Option(help="A folder that keeps finished work: run it again to go on.")]
Shard = Annotated[str | None, typer.Option(help="0/4: score only the first of four parts, into --work.")]
Readers = Annotated[int | None, typer.Option(help="Processes that read features, 0 for threads.")]
MissingPolicy = Annotated[str, typer.Option(help="What has no score: drop it, count it as a miss, or error.")]
SaveScores = Annotated[Path | None, typer.Option(help="Keep the scores in this .json or .npz file.")]
Output = Annotated[
    list[Path] | None,
    typer.Option("--output", "-o", help="Write everything as .json, or the figures as .csv; repeatable."),
]
EasyDuplicates = Annotated[Path | None, typer.Option(help="FIVR: its list of easy duplicates.")]
Unlabelled = Annotated[Path | None, typer.Option(help="SVD: its list of unlabelled videos.")]
Distractors = Annotated[bool | None, typer.Option(help="VCDB: whether the database holds them.")]
Positives = Annotated[list[str] | None, typer.Option(help="CSV: the labels that are positives.")]


def evaluate(
    benchmark: Name,
    annotations: Annotations = None,
    features: Features = None,
    query_features: QueryFeatures = None,
    videos: Videos = None,
    keep_features: KeepFeatures = None,
    scores: SavedScores = None,
    model: Model = None,
    device: Device = None,
    precision: Precision = None,
    work: Work = None,
    shard: Shard = None,
    readers: Readers = None,
    missing: MissingPolicy = "drop",
    save_scores: SaveScores = None,
    output: Output = None,
    as_json: AsJson = False,
    easy_duplicates: EasyDuplicates = None,
    unlabelled: Unlabelled = None,
    distractors: Distractors = None,
    positives: Positives = None,
) -> None:
    """Measure a model by a benchmark's protocol: hapvr evaluate fivr-5k --annotations fivr.pickle --features f.h5."""
    from hapvr.cli.evaluation_tables import print_report
    from hapvr.cli.progress import progress_bars
    from hapvr.evaluating import evaluate as run
    from hapvr.evaluation import open_benchmark

    special = {"easy_duplicates": easy_duplicates, "unlabelled": unlabelled, "distractors": distractors}
    truth = open_benchmark(benchmark, annotations=annotations, positives=positives, **special)  # type: ignore[arg-type]
    with progress_bars(quiet=as_json) as progress:
        report = run(
            truth,
            model=model,
            features=features,
            query_features=query_features,
            videos=videos,
            keep_features=keep_features,
            scores=scores,
            missing=missing,  # type: ignore[arg-type]
            device=device,
            precision=precision,
            work=work,
            shard=_parse_shard(shard),
            readers=readers,
            save_scores=save_scores,
            output=output or (),
            progress=progress,
        )
    for failure in report.failed:
        typer.echo(printed(f"  {failure.path}: {failure.error}"), err=True)
    for id, warnings in report.warnings.items():
        for warning in warnings:
            typer.echo(printed(f"  {id}: {warning}"), err=True)
    if as_json:
        typer.echo(json.dumps(report.to_json()))
    else:
        print_report(report)


def _parse_shard(text: str | None) -> tuple[int, int]:
    from hapvr.errors import ConfigError

    numbers = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text or "0/1")
    if numbers is None:
        raise ConfigError(f"--shard must be like 0/4, the first of four; got '{text}'.")
    return int(numbers[1]), int(numbers[2])
