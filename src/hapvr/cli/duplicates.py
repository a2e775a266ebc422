"""`hapvr duplicates` and `hapvr calibrate`: what a library holds twice, and what its scores mean."""

from __future__ import annotations

import csv
import io
import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hapvr.cli.library import Place, Wait
from hapvr.cli.printing import printed
from hapvr.storage import write_text

if TYPE_CHECKING:
    from hapvr.library.calibrating import CalibrationReport
    from hapvr.library.duplicates import DuplicateReport

_DATES = ["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"]


def duplicates(
    library: Place,
    threshold: Annotated[
        float | None, typer.Option(help="How strong a link must be, from 0 to 1; higher is stricter.")
    ] = None,
    since: Annotated[
        datetime | None, typer.Option(formats=_DATES, help="Only what was added since, against everything.")
    ] = None,
    as_json: Annotated[
        Path | None, typer.Option("--json", metavar="OUT", help="Write JSON here; - prints it instead of text.")
    ] = None,
    table: Annotated[
        Path | None, typer.Option("--csv", metavar="OUT", help="Write a row for each link here; - prints them.")
    ] = None,
    page: Annotated[
        Path | None, typer.Option("--html", metavar="OUT", help="Show it on this self-contained page.")
    ] = None,
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
    from hapvr.cli.folders import progress_bar
    from hapvr.errors import ConfigError
    from hapvr.library import Library
    from hapvr.storage import require_outputs

    printed = [name for name, out in (("--json", as_json), ("--csv", table)) if out is not None and str(out) == "-"]
    if len(printed) > 1:
        raise ConfigError("Only one of --json and --csv can be printed: give the other a file.")
    with Library.open(library, wait_s=wait) as opened:
        if distinct is not None or not_distinct is not None:
            if distinct is not None:
                _say(opened.mark_distinct(*distinct), "marked as distinct", "were marked already", as_json)
            if not_distinct is not None:
                _say(opened.forget_mark(*not_distinct), "no longer marked", "were not marked", as_json)
            return
        files = [out for out in (as_json, table, page) if out is not None and str(out) != "-"]
        require_outputs(files, inputs=[path for file in files for path in opened.files_named(file)])
        with progress_bar(0, quiet=bool(printed), unit="comparing") as (_, reach):
            report = opened.duplicates(
                threshold=threshold, since=since, progress=lambda now: reach(now.done, now.total)
            )
    # The answer comes first, so that a file that cannot be written does not lose it.
    if printed == ["--json"]:
        typer.echo(json.dumps(report.to_json()))
    elif printed == ["--csv"]:
        typer.echo(_csv(report), nl=False)
    else:
        _print(report)
    if as_json is not None and printed != ["--json"]:
        write_text(as_json, json.dumps(report.to_json(), indent=2) + "\n")
    if table is not None and printed != ["--csv"]:
        write_text(table, _csv(report))
    if page is not None:
        from hapvr.reports.duplicates_page import save_page

        save_page(report, page, library)


def calibrate(
    library: Place,
    copies: Annotated[int, typer.Option(help="Edited copies to make of the library's own videos.")] = 100,
    pairs: Annotated[int, typer.Option(help="Pairs of different videos to compare.")] = 10_000,
    seed: Annotated[int, typer.Option(help="The same seed draws the same videos and edits.")] = 0,
    wait: Wait = 10.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Fit what scores mean on a library's own videos, for its searches: hapvr calibrate library."""
    from hapvr.cli.folders import progress_bar
    from hapvr.library import Library

    with (
        Library.open(library, wait_s=wait) as opened,
        progress_bar(0, quiet=as_json, unit="calibrating") as (_, reach),
    ):
        report = opened.calibrate(
            copies=copies, pairs=pairs, seed=seed, progress=lambda now: reach(now.done, now.total)
        )
    if as_json:
        typer.echo(json.dumps(report.to_json()))
    else:
        _print_calibration(report)
    raise typer.Exit(1 if report.failed else 0)


# --- printing --------------------------------------------------------------------------------------------------------


def _say(changed: bool, done: str, otherwise: str, as_json: Path | None) -> None:
    if as_json is not None:
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


def _csv(report: DuplicateReport) -> str:
    from hapvr.library.duplicates import CSV_FIELDS, rows

    text = io.StringIO()
    writer = csv.DictWriter(text, CSV_FIELDS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows(report))
    return text.getvalue()
