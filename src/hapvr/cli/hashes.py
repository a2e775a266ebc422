"""`hapvr hashes`: vPDQ hashes for exchange with other platforms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hapvr.cli.options import AsJson, Reports, Workers
from hapvr.cli.terminal import escape, progress_bar, raise_on_sigterm, show, warn

if TYPE_CHECKING:
    from hapvr.library.hash_exchange import MatchReport

app = typer.Typer(help="Exchange vPDQ hashes with others, as Meta's ThreatExchange does.", no_args_is_help=True)

Every = Annotated[float, typer.Option("--every", metavar="SECONDS", help="Seconds between the hashes of a video.")]


@app.command()
def export(
    videos: Annotated[
        list[Path], typer.Argument(metavar="VIDEOS", help="Libraries, video files, and folders of them.")
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="A folder, for a .json file of each video; or a .txt file, with a line for each."
        ),
    ],
    every: Every = 1.0,
    workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """Write the vPDQ hashes of videos as python-threatexchange reads them: hapvr hashes export library -o hashes.

    The exit code is 1 if some videos could not be read.
    """
    from hapvr.library.hash_exchange import export_hashes

    with raise_on_sigterm(), progress_bar(quiet=as_json) as update:
        report = export_hashes(videos, output, every_s=every, workers=workers, progress=update)
    show(as_json, report.to_json(), f"{report.frames:,} hashes of {report.videos:,} videos in {escape(output)}")
    if not as_json:
        warn(f"  {path}: {reason}" for path, reason in report.failed)
    raise typer.Exit(1 if report.failed else 0)


@app.command()
def match(
    videos: Annotated[
        list[Path],
        typer.Argument(
            metavar="VIDEOS",
            help="Libraries, video files, folders of them; or what `hapvr hashes export` wrote, which need not be read "
            "again.",
        ),
    ],
    known: Annotated[
        list[Path],
        typer.Option("--known", metavar="HASHES", help="A file of hashes, or a folder of them. Repeatable."),
    ],
    max_distance: Annotated[int, typer.Option(help="Bits in which two frames that match may differ.")] = 31,
    min_quality: Annotated[int, typer.Option(help="Leave out frames of a lower quality, from 0 to 100.")] = 50,
    min_query: Annotated[
        float, typer.Option(metavar="PERCENT", help="Of the hashes of one of VIDEOS that the known video has.")
    ] = 80.0,
    min_known: Annotated[
        float, typer.Option(metavar="PERCENT", help="Of the hashes of the known video that one of VIDEOS has.")
    ] = 0.0,
    every: Every = 1.0,
    workers: Workers = None,
    as_json: AsJson = False,
    output: Reports = None,
) -> None:
    """Find the videos that match hashes of others: hapvr hashes match library --known theirs.txt.

    The rule is vPDQ's: the share of frames with a hash close to one of the other video, in any order. The exit code is
    0 if there is a match, 1 if there is none, and 2 after an error, also if a video could not be read.
    """
    from hapvr.errors import ConfigError
    from hapvr.library.hash_exchange import HashMatch, match_known, read_known
    from hapvr.storage import format_csv_rows, require_outputs, write_json, write_text
    from hapvr.video.vpdq import MatchRule

    rule = MatchRule(max_distance, min_quality, min_query, min_known)
    for file in output or ():
        if file.suffix.lower() not in (".json", ".csv"):
            raise ConfigError(f"Matches are written as .json or .csv; got '{file.name}'.")
    require_outputs(output or [], inputs=[*videos, *known])
    theirs = read_known(known)
    with raise_on_sigterm(), progress_bar(quiet=as_json) as update:
        report = match_known(videos, theirs, rule=rule, every_s=every, workers=workers, progress=update)
    show(as_json, report.to_json(), _format_matches(report))
    if not as_json:
        warn(f"  {path}: {reason}" for path, reason in report.failed)
    for file in output or ():
        if file.suffix.lower() == ".json":
            write_json(file, report.to_json())
        else:
            write_text(file, format_csv_rows(list(HashMatch.__annotations__), map(asdict, report.matches)))
    raise typer.Exit(2 if report.failed else 0 if report.matches else 1)


def _format_matches(report: MatchReport) -> Iterator[str]:
    if not report.matches:
        yield f"no match among {report.videos:,} videos and the hashes of {report.known:,}"
    for one in report.matches:
        yield f"{escape(one.query)} matches {escape(one.known)}"
        yield f"  it has {one.known_percent:.0f}% of the known hashes; {one.query_percent:.0f}% of its own are known"
