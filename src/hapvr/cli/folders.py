"""Commands on folders of videos, and on features: extract, convert-features, frames, make-benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from hapvr.cli.options import AsJson, Cluster, Device, Model, Rate, VideoPaths, Workers, parse_rate
from hapvr.cli.terminal import describe_problem, progress_bar, show, warn

if TYPE_CHECKING:
    from hapvr.features.video_extraction import ExtractionReport


def extract(
    videos: VideoPaths,
    output: Annotated[Path, typer.Option("--output", "-o", help="The HDF5 file to write, or to continue.")],
    model: Model = None,
    half: Annotated[bool, typer.Option(help="Store float16 instead of float32.")] = False,
    rate: Rate = None,
    device: Device = "auto",
    workers: Workers = None,
    ray: Cluster = None,
    as_json: AsJson = False,
) -> None:
    """Write the feature vectors of videos into one HDF5 file: hapvr extract ~/Videos -o features.h5."""
    from hapvr.batch import extract as run

    with progress_bar(quiet=as_json) as progress:
        options = {"model": model, "half": half, "workers": workers, "device": device, "cluster": ray}
        report = run(videos, output, **options, **parse_rate(rate), progress=progress)  # type: ignore[arg-type]
    _print(report, as_json)


def convert_features(
    features: Annotated[Path, typer.Argument(metavar="FEATURES", help="An HDF5 file of features.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The HDF5 file to write, or to continue.")],
    dtype: Annotated[str, typer.Option(help="int8 (a scale a vector), float16 or float32.")] = "int8",
    gzip: Annotated[bool, typer.Option(help="Compress: smaller, and slower to read.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write features in a compact form, which evaluation reads faster: hapvr convert-features f.h5 -o compact.h5."""
    from hapvr.batch import convert_features as run

    with progress_bar(quiet=as_json) as progress:
        count = run(features, output, dtype=cast("Any", dtype), gzip=gzip, progress=progress)
    show(as_json, {"videos": count, "output": str(output)}, f"{count} videos in {output}")


def frames(
    videos: VideoPaths,
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder of tar files to write, or to continue.")],
    fps: Annotated[float | None, typer.Option(help="Frames per second; what models use if not given.")] = None,
    short_side: Annotated[
        int | None, typer.Option(help="Pixels of the shorter side; what models use if not given.")
    ] = None,
    min_frames: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Frames that a short video gives at least, at more frames per second; what models use if not given. "
            "0: every video at --fps.",
        ),
    ] = None,
    workers: Workers = None,
    ray: Cluster = None,
    as_json: AsJson = False,
) -> None:
    """Pack sampled frames as JPEG into tar files, for machines without a decoder: hapvr frames ~/Videos -o packed."""
    from hapvr.batch import pack_frames

    with progress_bar(quiet=as_json) as progress:
        options = {"fps": fps, "short_side": short_side, "min_frames": min_frames, "workers": workers}
        report = pack_frames(videos, output, **options, cluster=ray, progress=progress)  # type: ignore[arg-type]
    _print(report, as_json)


def make_benchmark(
    videos: Annotated[Path, typer.Argument(metavar="VIDEOS", help="A folder of source videos.")],
    output: Annotated[Path, typer.Argument(metavar="OUTPUT", help="The benchmark folder to write, or to continue.")],
    distractors: Annotated[
        list[Path] | None,
        typer.Option(metavar="PATH", help="Further videos for the database, of which no copies are made. Repeatable."),
    ] = None,
    hosts: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="PATH",
            help="Videos that copies are inserted into, or shown in a corner of; they are not in the database. "
            "Drawn films if not given.",
        ),
    ] = None,
    duplicates: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="JSON: a list of groups of files in VIDEOS that show the same footage."),
    ] = None,
    lookalikes: Annotated[
        bool,
        typer.Option(
            "--lookalikes",
            help="Cut half of the longer videos in two: copies are made of one part, the other is in the database and "
            "no match. Videos of one folder are labelled as of one source.",
        ),
    ] = False,
    origins: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="CSV with the columns `file` and `source`: videos of one source look alike."),
    ] = None,
    shared_cards: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            help="The share (0 to 1) of database videos, and of queries, that get one of three title or end cards. "
            "A card in common is no match.",
        ),
    ] = 0.0,
    long_films: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Make N long films of the videos as the database, and clips of 10 s as queries.",
        ),
    ] = 0,
    film_minutes: Annotated[float, typer.Option(help="The length of each long film.")] = 120.0,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND",
            help="A kind of edit to use, several joined by `+`, or a list of kinds: `default` (if not given) or `all`. "
            "Repeatable.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed makes the same benchmark.")] = 0,
    queries: Annotated[
        int,
        typer.Option(
            help="Number of edited copies of each video, or of each long film; videos chosen for the kind `same-event` "
            "give one."
        ),
    ] = 4,
    workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """Make edited copies with known ground truth: hapvr make-benchmark ~/Videos benchmark."""
    from hapvr.batch import make_benchmark as run

    with progress_bar("queries", quiet=as_json) as progress:
        summary = run(
            videos,
            output,
            distractors=distractors or (),
            hosts=hosts or (),
            duplicates=duplicates,
            lookalikes=lookalikes,
            origins=origins,
            shared_cards=shared_cards,
            long_films=long_films,
            film_minutes=film_minutes,
            kinds=kind or (),
            seed=seed,
            queries=queries,
            workers=workers,
            progress=progress,
        )
    show(as_json, summary.to_json(), [str(summary), *_format_other_files(summary.other_files)])
    raise typer.Exit(1 if summary.failed else 0)


def _print(report: ExtractionReport, as_json: bool) -> None:
    """What became of every file; exit code 1 if some failed."""
    rate = report.frames / report.wall_s if report.wall_s else 0.0
    text = (
        f"{len(report.done)} done ({report.frames:,} frames, {rate:.0f} a second), "
        f"{len(report.skipped)} were there already, {len(report.failed)} failed"
    )
    show(as_json, report.to_json(), [text, *_format_other_files(len(report.other_files))])
    if not as_json:
        warn(describe_problem(failure.path, failure.error) for failure in report.failed)
        for id, warnings in report.warnings.items():
            warn(warnings, before=f"  {id}: ")
    raise typer.Exit(1 if report.failed else 0)


def _format_other_files(count: int) -> list[str]:
    if not count:
        return []
    return ["1 file that is no video was skipped" if count == 1 else f"{count} files that are no videos were skipped"]
