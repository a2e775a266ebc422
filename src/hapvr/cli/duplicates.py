"""`hapvr duplicates` and `hapvr calibrate`: what a library holds twice, and what its scores mean."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hapvr.cli.library import Place, Wait
from hapvr.cli.options import AsJson
from hapvr.cli.printing import printed

if TYPE_CHECKING:
    from hapvr.library.duplicate_report import DuplicateReport
    from hapvr.library.library_calibration import CalibrationReport

_DATES = ["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"]


def duplicates(
    library: Place,
    threshold: Annotated[
        float | None, typer.Option(help="How strong a link must be, from 0 to 1; higher is stricter.")
    ] = None,
    since: Annotated[
        datetime | None, typer.Option(formats=_DATES, help="Only what was added since, against everything.")
    ] = None,
    as_json: AsJson = False,
    output: Annotated[
        list[Path] | None,
        typer.Option("--output", "-o", help="Write everything as .json, or a row for each link as .csv; repeatable."),
    ] = None,
    page: Annotated[Path | None, typer.Option("--html", help="Show it on this self-contained page.")] = None,
    distinct: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="A B", help="Remember that these two, by id, are no duplicates; nothing else is done."),
    ] = None,
    not_distinct: Annotated[
        tuple[str, str] | None, typer.Option(metavar="A B", help="Take back what --distinct said.")
    ] = None,
    wait: Wait = 10.0,
) -> None:
    """Find what a library holds twice; nothing is deleted: hapvr duplicates library --html duplicates.html."""
    from hapvr.cli.progress import progress_bar
    from hapvr.library import Library
    from hapvr.library.duplicate_report import require_report_files, write_report
    from hapvr.storage import require_outputs

    require_report_files(output or ())
    with Library.open(library, wait_s=wait) as opened:
        if distinct is not None or not_distinct is not None:
            if distinct is not None:
                _say(opened.mark_distinct(*distinct), "marked as distinct", "were marked already", as_json)
            if not_distinct is not None:
                _say(opened.forget_mark(*not_distinct), "no longer marked", "were not marked", as_json)
            return
        files = [*(output or ()), *([] if page is None else [page])]
        require_outputs(files, inputs=[path for file in files for path in opened.files_named(file)])
        with progress_bar("comparing", quiet=as_json) as reach:
            report = opened.duplicates(
                threshold=threshold, since=since, progress=lambda now: reach(now.done, now.total)
            )
    # The answer comes first, so that a file that cannot be written does not lose it.
    if as_json:
        typer.echo(json.dumps(report.to_json()))
    else:
        _print(report)
    for path in output or ():
        write_report(report, path)
    if page is not None:
        from hapvr.reports.duplicates_page import save_page

        save_page(report, page, library)


def calibrate(
    library: Place,
    copies: Annotated[int, typer.Option(help="Edited copies to make of the library's own videos.")] = 100,
    pairs: Annotated[int, typer.Option(help="Pairs of different videos to compare.")] = 10_000,
    seed: Annotated[int, typer.Option(help="The same seed draws the same videos and edits.")] = 0,
    wait: Wait = 10.0,
    as_json: AsJson = False,
) -> None:
    """Fit what scores mean on a library's own videos, for its searches: hapvr calibrate library."""
    from hapvr.cli.progress import progress_bar
    from hapvr.library import Library

    with Library.open(library, wait_s=wait) as opened, progress_bar("calibrating", quiet=as_json) as reach:
        report = opened.calibrate(
            copies=copies, pairs=pairs, seed=seed, progress=lambda now: reach(now.done, now.total)
        )
    if as_json:
        typer.echo(json.dumps(report.to_json()))
    else:
        _print_calibration(report)
    raise typer.Exit(1 if report.failed else 0)


# --- printing --------------------------------------------------------------------------------------------------------


def _say(changed: bool, done: str, otherwise: str, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"changed": changed}))
    else:
        typer.echo(f"they are {done}" if changed else f"they {otherwise}")


def _print(report: DuplicateReport) -> None:
    from hapvr.reports.html_page import format_time

    for number, group in enumerate(report.groups, 1):
        strongest = {id: link for link in reversed(group.links) for id in (link.a, link.b)}
        typer.echo(f"group {number}: {len(group.videos)} copies")
        for video in group.videos:
            link = strongest[video.id]
            size = f"{format_time(video.duration)} {video.width}x{video.height} {video.bitrate / 1000:,.0f} kbit/s"
            what = "keep" if video is group.keep else f"{link.kind}, {link.reason}"
            gone = "" if video.state == "ready" else f" ({video.state})"
            typer.echo(f"  {video.id:14} {size:32} {printed(video.path)}{gone}  {what}")
            for warning in video.warnings:
                typer.echo(printed(f"  {video.id}: {warning}"), err=True)
        typer.echo(f"  keep {group.keep.id}: {group.reason}")
    beside = report.beside
    if beside:
        typer.echo("parts of others" if report.groups else "parts")
    for link in beside:
        a, b = report.records[link.a], report.records[link.b]
        (a_from, a_to), (b_from, b_to) = link.intervals
        where = f"{format_time(b_from)}-{format_time(b_to)}"
        if link.kind == "contained":
            typer.echo(f"  {printed(a.path)} is {where} of {printed(b.path)}  {link.reason}")
        elif link.kind == "shared":
            own = f"{format_time(a_from)}-{format_time(a_to)}"
            typer.echo(f"  {own} of {printed(a.path)} is {where} of {printed(b.path)}  {link.reason}")
        else:
            typer.echo(f"  {printed(a.path)} is a copy of {printed(b.path)}  {link.reason}")
    count = len(report.groups)
    typer.echo(
        f"{count:,} {'group' if count == 1 else 'groups'} of copies, {len(beside):,} other links among "
        f"{report.videos:,} videos"
    )
    if report.marked:
        typer.echo(f"{report.marked:,} left out that were marked as distinct")
    typer.echo(
        f"{report.scored:,} of {report.pairs:,} pairs compared at a threshold of {report.threshold:g}, "
        f"{report.seconds:.1f} s",
        err=True,
    )


def _print_calibration(report: CalibrationReport) -> None:
    calibration = report.calibration
    typer.echo(f"fitted on {calibration.positives:,} edited copies and {calibration.negatives:,} pairs without a match")
    typer.echo("threshold  false per million  copies found  precision of a search")
    for one in report.expected:
        typer.echo(f"{one.threshold:9.3f}  {one.false_per_million:17,.1f}  {one.recall:12.1%}  {one.precision:10.1%}")
    missed = {kind: counts for kind, counts in report.kinds.items() if counts[0] < counts[1]}
    if missed:
        listed = ", ".join(f"{kind} ({found} of {of})" for kind, (found, of) in missed.items())
        typer.echo(f"at 100 false matches per million not all copies are found of: {listed}")
    typer.echo("kept with the library; its searches use it from now on")
    for warning in report.warnings:
        typer.echo(f"warning: {warning}", err=True)
    for path, reason in report.failed:
        typer.echo(printed(f"  {path}: {reason}"), err=True)
