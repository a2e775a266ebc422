"""`hapvr check` and `hapvr backup`: whether a library is as it was written, repairing it, and copies of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hapvr.cli.options import AsJson, Device, LibraryFolder, Wait, Workers
from hapvr.cli.terminal import escape, progress_bar, raise_on_sigterm, show

if TYPE_CHECKING:
    from hapvr.library import CheckReport

_MAX_LISTED = 30  # problems in text; JSON has all
_REPAIRS = {
    "exact": "can be put back as it was",
    "again": "can be made again",
    "lost": "is lost; the rest can be used",
    "none": "cannot be repaired",
}


def check(
    library: LibraryFolder,
    quick: Annotated[
        bool, typer.Option("--quick", help="Leave out the content of large files: seconds for a large library.")
    ] = False,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Repair what is wrong; lost videos are read again from their files."),
    ] = False,
    device: Device = "auto",
    workers: Workers = None,
    wait: Wait = 10.0,
    as_json: AsJson = False,
) -> None:
    """Check that a library is as it was written, and repair it: hapvr check library.

    Exit codes: 0 if nothing is wrong (any more), 1 if it is damaged, 2 if it is no library. Without --repair nothing is
    changed.
    """
    from hapvr.errors import ConfigError
    from hapvr.library import check_library, repair_library

    if quick and repair:
        raise ConfigError("--repair needs the whole check: leave --quick out.")
    with raise_on_sigterm(), progress_bar("videos", quiet=as_json) as update:
        if repair:
            report = repair_library(
                library,
                workers=workers,
                device=device,
                progress=lambda now: update(now.done, now.total),
                wait_s=wait,
            )
        else:
            report = check_library(library, quick=quick, progress=update, wait_s=wait)
    show(as_json, report.to_json(), _format_report(report))
    raise typer.Exit(0 if report.intact else 1)


def _format_report(report: CheckReport) -> Iterator[str]:
    for text in report.done:
        yield escape(f"repaired: {text}")
    for text in report.lost:
        yield escape(f"lost: {text}")
    for problem in report.problems[:_MAX_LISTED]:
        yield escape(f"{problem.place}: {problem.what} It {_REPAIRS[problem.repair]}. {problem.remedy}")
    if (more := len(report.problems) - _MAX_LISTED) > 0:
        yield f"... and {more:,} more; --json lists all"
    for note in report.notes:
        yield escape(f"note: {note}")
    looked = "sizes, documents, records and keys" if report.quick else "everything"
    size = f"{report.videos:,} videos, {report.files:,} files, {report.bytes / 1e6:.1f} MB, {report.seconds:.1f} s"
    if report.intact:
        yield f"intact: {looked} checked ({size})"
    else:
        repairable = sum(problem.repair != "none" for problem in report.problems)
        yield f"damaged: {len(report.problems):,} problems, {repairable:,} of them for --repair ({size})"


def backup(
    library: LibraryFolder,
    target: Annotated[Path, typer.Argument(metavar="TO", help="A folder that does not exist yet, or is empty.")],
    wait: Wait = 10.0,
    as_json: AsJson = False,
) -> None:
    """Copy a library as it is at one moment, also while it is written: hapvr backup library /backups/monday.

    The copy is a library itself: search it, or copy it back with `hapvr backup /backups/monday library`.
    """
    from hapvr.library import Library

    with Library.open(library, wait_s=wait) as opened, progress_bar("bytes", quiet=as_json) as update:
        report = opened.back_up(target, progress=update)
    text = (
        f"{report.videos:,} videos, {report.files:,} files, {report.bytes / 1e6:.1f} MB copied to {escape(report.path)}"
    )
    show(as_json, dataclasses.asdict(report), text)
