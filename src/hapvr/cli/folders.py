"""`hapvr extract`, `hapvr frames`, `hapvr make-benchmark`: work on folders of videos, with progress and a report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hapvr.cli.options import AsJson, Model
from hapvr.cli.printing import printed

if TYPE_CHECKING:
    from hapvr.features.video_extraction import ExtractionReport

Videos = Annotated[list[Path], typer.Argument(metavar="VIDEOS...", help="Video files, and folders of them.")]


def extract(
    videos: Videos,
    output: Annotated[Path, typer.Option("--output", "-o", help="The HDF5 file to write, or to go on with.")],
    model: Model = None,
    half: Annotated[bool, typer.Option(help="Store float16 instead of float32.")] = False,
    workers: Annotated[int | None, typer.Option(help="Decoding processes.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write the region vectors of videos into one HDF5 file, resumably: hapvr extract ~/Videos -o features.h5."""
    from hapvr.batch import extract as run
    from hapvr.cli.progress import progress_bar

    with progress_bar(quiet=as_json) as progress:
        report = run(videos, output, model=model, half=half, workers=workers, progress=progress)
    _print(report, as_json)


def frames(
    videos: Videos,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The folder of tar shards to write, or to go on with.")
    ],
    fps: Annotated[float | None, typer.Option(help="Frames a second; as models sample if not given.")] = None,
    short_side: Annotated[
        int | None, typer.Option(help="Pixels of the shorter side; as models sample if not given.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Pack sampled frames as JPEG in tar shards, for machines without a decoder: hapvr frames ~/Videos -o packed."""
    from hapvr.batch import pack_frames
    from hapvr.cli.progress import progress_bar

    with progress_bar(quiet=as_json) as progress:
        report = pack_frames(videos, output, fps=fps, short_side=short_side, progress=progress)
    _print(report, as_json)


def make_benchmark(
    videos: Annotated[Path, typer.Argument(metavar="VIDEOS", help="A folder of source videos.")],
    output: Annotated[Path, typer.Argument(metavar="OUT", help="The benchmark folder to write, or to go on with.")],
    distractors: Annotated[list[Path] | None, typer.Option(help="More videos for the database.")] = None,
    hosts: Annotated[
        list[Path] | None, typer.Option(help="Videos to mix others into, outside the database; else drawn films.")
    ] = None,
    duplicates: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="JSON: a list of groups of files in VIDEOS that show the same."),
    ] = None,
    kind: Annotated[list[str] | None, typer.Option(help="A kind of edited copy; again for more. All if none.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed makes the same benchmark.")] = 0,
    queries: Annotated[
        int, typer.Option(help="Edited copies of each video; one chosen for `same-event` gives only that one.")
    ] = 4,
    workers: Annotated[int | None, typer.Option(help="Processes; one a core if not given, four at most.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make edited copies with known ground truth: hapvr make-benchmark ~/Videos benchmark."""
    from hapvr.batch import make_benchmark as run
    from hapvr.cli.progress import progress_bar

    with progress_bar("queries", quiet=as_json) as progress:
        summary = run(
            videos,
            output,
            distractors=distractors or (),
            hosts=hosts or (),
            duplicates=duplicates,
            kinds=kind or (),
            seed=seed,
            queries=queries,
            workers=workers,
            progress=progress,
        )
    typer.echo(json.dumps(summary.to_json()) if as_json else str(summary))
    if not as_json:
        _print_passed_over(summary.skipped)
    raise typer.Exit(1 if summary.failed else 0)


def _print(report: ExtractionReport, as_json: bool) -> None:
    """What became of every file; exit code 1 if some failed."""
    if as_json:
        typer.echo(json.dumps(report.to_json()))
    else:
        rate = report.frames / report.wall_s if report.wall_s else 0.0
        typer.echo(
            f"{len(report.done)} done ({report.frames:,} frames, {rate:.0f} a second), "
            f"{len(report.skipped)} were there already, {len(report.failed)} failed"
        )
        _print_passed_over(len(report.passed_over))
        for failure in report.failed:
            typer.echo(printed(f"  {failure.path}: {failure.error}"), err=True)
        for id, warnings in report.warnings.items():
            for warning in warnings:
                typer.echo(printed(f"  {id}: {warning}"), err=True)
    raise typer.Exit(1 if report.failed else 0)


def _print_passed_over(count: int) -> None:
    if count:
        files = "1 file that is no video was" if count == 1 else f"{count} files that are no videos were"
        typer.echo(f"{files} passed over")
