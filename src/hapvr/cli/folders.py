"""`hapvr extract`, `hapvr frames`, `hapvr make-benchmark`: work on folders of videos, with progress and a report."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hapvr.cli.printing import printed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hapvr.features.folders import ExtractionReport

Json = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]
Videos = Annotated[list[Path], typer.Argument(metavar="VIDEOS...", help="Video files, and folders of them.")]

_ONE_PASSED_OVER = "1 file that is no video was passed over"


def extract(
    videos: Videos,
    out: Annotated[Path, typer.Option("--out", "-o", help="The HDF5 file to write, or to go on with.")],
    model: Annotated[str | None, typer.Option(help="A model's name or folder; the shipped one if not given.")] = None,
    half: Annotated[bool, typer.Option(help="Store float16 instead of float32.")] = False,
    workers: Annotated[int | None, typer.Option(help="Decoding processes.")] = None,
    as_json: Json = False,
) -> None:
    """Write the region vectors of videos into one HDF5 file, resumably: hapvr extract ~/Videos -o features.h5."""
    from hapvr.features import FeatureWriter
    from hapvr.features.folders import extract_files, find_videos
    from hapvr.model import load
    from hapvr.storage import require_outputs

    others: list[Path] = []
    files = find_videos(videos, passed_over=others)
    require_outputs([out], inputs=files.values())
    chosen = load() if model is None else load(model)
    settings: dict[str, str | float] = {"model": chosen.name, "fps": chosen.sampling.fps}
    with (
        FeatureWriter(out, dtype="float16" if half else "float32", attributes=settings) as writer,
        progress_bar(len(files), quiet=as_json) as (advance, _),
    ):
        report = extract_files(
            chosen.extractor, files, writer.add, done=writer.done_ids(), workers=workers, progress=advance
        )
    _print(report, as_json, passed_over=len(others))


def frames(
    videos: Videos,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder of tar shards to write, or to go on with.")],
    fps: Annotated[float | None, typer.Option(help="Frames a second; as models sample if not given.")] = None,
    short_side: Annotated[int | None, typer.Option(help="Pixels of the shorter side, likewise.")] = None,
    as_json: Json = False,
) -> None:
    """Pack sampled frames as JPEG in tar shards, for machines without a decoder: hapvr frames ~/Videos -o packed."""
    from hapvr.features import PackedWriter
    from hapvr.features.extractor import SamplingConfig
    from hapvr.features.folders import find_videos, pack_files

    others: list[Path] = []
    usual, files = SamplingConfig(), find_videos(videos, passed_over=others)
    side = short_side or usual.short_side
    sampling = SamplingConfig(fps=fps or usual.fps, short_side=side, crop=min(side, usual.crop))
    with (
        PackedWriter(out, attributes={"fps": sampling.fps}) as writer,
        progress_bar(len(files), quiet=as_json) as (advance, _),
    ):
        report = pack_files(writer, files, sampling, progress=advance)
    _print(report, as_json, passed_over=len(others))


def make_benchmark(
    videos: Annotated[Path, typer.Argument(metavar="VIDEOS", help="A folder of source videos.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The benchmark folder to write, or to go on with.")],
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
    as_json: Json = False,
) -> None:
    """Make edited copies with known ground truth: hapvr make-benchmark ~/Videos benchmark."""
    from hapvr.features.folders import find_videos
    from hapvr.synthetic.benchmark import make_benchmark as make
    from hapvr.synthetic.benchmark import require_apart

    require_apart(out, folders=[path for path in (videos, *(distractors or ()), *(hosts or ())) if path.is_dir()])
    left: list[Path] = []
    sources = find_videos([videos], passed_over=left)
    others, mixed = (list(find_videos(paths or [], passed_over=left).values()) for paths in (distractors, hosts))
    passed_over = len(set(left))
    groups = [] if duplicates is None else _groups(duplicates, sources)
    with progress_bar(0, quiet=as_json, unit="queries") as (_, reach):
        summary = make(
            list(sources.values()),
            out,
            seed=seed,
            kinds=kind or None,
            queries_per_video=queries,
            distractors=others,
            hosts=mixed,
            duplicates=groups,
            workers=min(4, os.cpu_count() or 1) if workers is None else workers,
            progress=reach,
        )
    failed = [{"path": str(failure.file), "error": failure.reason} for failure in summary.failed]
    record = {"folder": str(summary.folder), "queries": summary.queries, "database": summary.database, "failed": failed}
    typer.echo(json.dumps({**record, "passed_over": passed_over}) if as_json else str(summary))
    if not as_json:
        _print_passed_over(passed_over)
    raise typer.Exit(1 if failed else 0)


def _groups(file: Path, sources: Mapping[str, Path]) -> list[list[Path]]:
    """Groups of duplicates as a JSON file names them, relative to the folder of sources."""
    from hapvr.config import suggest
    from hapvr.errors import ConfigError

    try:
        groups = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"'{file}' cannot be read as JSON: {error}.") from error
    if not isinstance(groups, list) or not all(
        isinstance(group, list) and all(isinstance(name, str) for name in group) for group in groups
    ):
        raise ConfigError(f"'{file}' must hold a list of lists of file names.")
    for name in (name for group in groups for name in group):
        if name not in sources:
            raise ConfigError(f"'{file}' names '{name}', which is not in the folder; {suggest(name, list(sources))}")
    return [[sources[name] for name in group] for group in groups]


@contextmanager
def progress_bar(
    total: int, *, quiet: bool, unit: str = "videos"
) -> Iterator[tuple[Callable[[int], None], Callable[[int, int], None]]]:
    """A bar on stderr: what advances it by a number, and what sets it to so many of so many."""
    from rich import progress as rich
    from rich.console import Console

    counted = (rich.TextColumn(unit), rich.BarColumn(), rich.MofNCompleteColumn())
    timed = (rich.TimeElapsedColumn(), rich.TimeRemainingColumn())
    with rich.Progress(*counted, *timed, console=Console(stderr=True), disable=quiet, transient=True) as progress:
        task = progress.add_task(unit, total=total or None)
        yield (
            lambda count: progress.advance(task, count),
            lambda done, of: progress.update(task, completed=done, total=of),
        )


def _print_passed_over(count: int) -> None:
    if count:
        typer.echo(f"{count} files that are no videos were passed over" if count > 1 else _ONE_PASSED_OVER)


def _print(report: ExtractionReport, as_json: bool, *, passed_over: int) -> None:
    """What became of every file; exit code 1 if some failed."""
    if as_json:
        failed = [{"id": one.id, "path": one.path, "error": one.error} for one in report.failed]
        record: dict[str, object] = {"done": report.done, "skipped": report.skipped, "failed": failed}
        record["warnings"] = report.warnings
        record |= {"passed_over": passed_over, "frames": report.frames, "wall_s": report.wall_s}
        typer.echo(json.dumps(record))
    else:
        rate = report.frames / report.wall_s if report.wall_s else 0.0
        typer.echo(
            f"{len(report.done)} done ({report.frames:,} frames, {rate:.0f} a second), "
            f"{len(report.skipped)} were there already, {len(report.failed)} failed"
        )
        _print_passed_over(passed_over)
        for failure in report.failed:
            typer.echo(printed(f"  {failure.path}: {failure.error}"), err=True)
        for id, warnings in report.warnings.items():
            for warning in warnings:
                typer.echo(printed(f"  {id}: {warning}"), err=True)
    raise typer.Exit(1 if report.failed else 0)
