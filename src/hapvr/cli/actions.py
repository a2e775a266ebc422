"""`hapvr apply` and `hapvr undo`: do what a reviewed plan of duplicates says, and take it back."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hapvr.cli.options import AsJson, Wait
from hapvr.cli.terminal import escape, progress_bar, raise_on_sigterm, show, warn
from hapvr.errors import ConfigError

if TYPE_CHECKING:
    from hapvr.actions import ApplyOptions, ApplyReport, Left, Plan, Preview

_LISTED = 20  # files that are left alone and named
_SHOWN = 10  # files of a preview that are named, of each action
_DONE = {
    "move": "moved to {folder}",
    "trash": "moved to the trash",
    "hardlink": "replaced by hard links",
    "symlink": "replaced by symbolic links",
}
OfLibrary = Annotated[
    Path | None,
    typer.Option("--library", metavar="LIBRARY", help="Update this library as well, so that it knows what was done."),
]


def apply(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="The CSV file of `hapvr duplicates --plan`.")],
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FOLDER", help="Move the files there, in folders as they are now.")
    ] = None,
    trash: Annotated[bool, typer.Option("--trash", help="Move the files to the trash of the desktop.")] = False,
    hardlink: Annotated[
        bool, typer.Option("--hardlink", help="Replace files of the same bytes by hard links to the kept copy.")
    ] = False,
    symlink: Annotated[
        bool, typer.Option("--symlink", help="Replace files of the same bytes by symbolic links to the kept copy.")
    ] = False,
    as_planned: Annotated[
        bool, typer.Option("--as-planned", help="Do what the plan says of each file; --to says where files are moved.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    journal: Annotated[
        Path | None, typer.Option(help="Where to write the journal; beside the plan, as PLAN.journal, if not given.")
    ] = None,
    library: OfLibrary = None,
    wait: Wait = 10.0,
    as_json: AsJson = False,
) -> None:
    """Move or link the duplicates of a reviewed plan: hapvr apply plan.csv --trash.

    Each file is read first: only what still has the content that was compared is touched, and never the last copy of a
    group. `hapvr undo` takes it back. The exit code is 1 if files were left alone that should not have been.
    """
    from hapvr.actions import ApplyOptions, apply_plan, preview_plan, read_plan
    from hapvr.actions.apply import require_journal_place
    from hapvr.actions.journal import JOURNAL_ENDING

    ways = [name for name, wanted in (("trash", trash), ("hardlink", hardlink), ("symlink", symlink)) if wanted]
    if to is not None and not as_planned:
        ways.append("move")
    if len(ways) + as_planned != 1:
        raise ConfigError("Say what to do: one of --to FOLDER, --trash, --hardlink, --symlink and --as-planned.")
    options = ApplyOptions(None if as_planned else ways[0], None if to is None else str(to))  # type: ignore[arg-type]
    place = journal or plan.with_name(f"{plan.name}{JOURNAL_ENDING}")
    read = read_plan(plan)
    require_journal_place(place, plan)
    preview = preview_plan(read, options, place)
    if not as_json:
        _print_preview(preview, options, read, with_left=dry_run or not yes)
    if dry_run:
        show(
            as_json,
            preview.to_json(),
            "nothing was done: this was a dry run; contents are read before a file is touched",
        )
        raise typer.Exit(1 if _find_problems(preview.left) else 0)
    if preview.chosen and not yes:
        _ask(as_json)
    with raise_on_sigterm(), progress_bar("bytes", quiet=as_json) as update:
        report = apply_plan(read, options, place, progress=update)
    show(as_json, report.to_json(), _format_report(report, options, place))
    if not as_json:
        _print_left([one for one in report.left if yes or one not in preview.left])
    if library is not None:
        _remove_from_library(library, place, wait=wait)
    elif report.files["move"] + report.files["trash"] and not as_json:
        typer.echo("the library still lists them: hapvr add LIBRARY --prune, or --library next time")
    raise typer.Exit(1 if report.problems else 0)


def undo(
    journal: Annotated[Path, typer.Argument(metavar="JOURNAL", help="The journal that `hapvr apply` wrote.")],
    yes: Annotated[  # noqa: ARG001 - scripts pass the same options to `apply` and `undo`
        bool, typer.Option("--yes", "-y", help="Accepted as by `hapvr apply`; this command never asks.")
    ] = False,
    library: OfLibrary = None,
    wait: Wait = 10.0,
    as_json: AsJson = False,
) -> None:
    """Take back what `hapvr apply` did: hapvr undo plan.csv.journal.

    A file that has changed since, or whose old place is taken, stays where it is; the exit code is then 1.
    """
    from hapvr.actions import undo_journal

    with raise_on_sigterm(), progress_bar("bytes", quiet=as_json) as update:
        report = undo_journal(journal, progress=update)
    before = (
        f", {report.done_before:,} {'was' if report.done_before == 1 else 'were'} taken back before"
        if report.done_before
        else ""
    )
    text = f"{_count(report.files['undone'], report.bytes)} taken back{before}"
    show(as_json, report.to_json(), text)
    if not as_json:
        _print_left(report.left)
    if library is not None:
        _add_to_library(library, journal, wait=wait)
    elif report.paths and not as_json:
        typer.echo("if the library no longer lists them: hapvr add LIBRARY")
    raise typer.Exit(1 if report.problems else 0)


def _ask(as_json: bool) -> None:
    if as_json or not sys.stdin.isatty():
        raise ConfigError(
            "Nothing was done: nobody can be asked here. Give --yes, or --dry-run to see what it would do."
        )
    if not typer.confirm("Go on?"):
        typer.echo("nothing was done")
        raise typer.Exit(1)


def _remove_from_library(library: Path, journal: Path, *, wait: float) -> None:
    """Remove what the journal has moved, in this run or before, and is no longer where the library knows it."""
    from hapvr.actions.journal_steps import read_steps
    from hapvr.library import Library

    gone = {step.source for step, state in read_steps(journal) if state == "done" and not os.path.lexists(step.source)}
    with Library.open(library, wait_s=wait) as opened:
        ids = [record.id for record in opened.videos() if record.path in gone]
        if ids:
            opened.remove(ids)


def _add_to_library(library: Path, journal: Path, *, wait: float) -> None:
    """Add what was taken back, in this run or before."""
    from hapvr.actions.journal_steps import read_steps
    from hapvr.library import Library

    back = [step.source for step, state in read_steps(journal) if state == "undone" and os.path.isfile(step.source)]
    if back:
        with raise_on_sigterm(), Library.open(library, wait_s=wait) as opened:
            opened.add(list(dict.fromkeys(back)))


# --- printing --------------------------------------------------------------------------------------------------------


def _count(files: int, size: int) -> str:
    return f"{files:,} {'file' if files == 1 else 'files'} ({format_size(size)})"


def format_size(size: float) -> str:
    """Bytes in a unit that people read.

    >>> format_size(999), format_size(12_345), format_size(2.5e9)
    ('999 bytes', '12.3 kB', '2.5 GB')
    """
    if size < 1000:
        return f"{size:.0f} bytes"
    for unit in ("kB", "MB", "GB"):
        size /= 1000
        if size < 1000:
            return f"{size:.1f} {unit}"
    return f"{size / 1000:,.1f} TB"


def _print_preview(preview: Preview, options: ApplyOptions, plan: Plan, *, with_left: bool) -> None:
    folder = escape(options.folder or "")
    for way, (files, size) in preview.count().items():
        typer.echo(f"to be {_DONE[way].format(folder=folder)}: {_count(files, size)}")
        rows = [one.row for one in preview.chosen if one.way == way]
        for row in rows[:_SHOWN]:
            typer.echo(f"  {format_size(row.size):>10}  {escape(row.path)}")
        if len(rows) > _SHOWN:
            typer.echo(f"  and {len(rows) - _SHOWN:,} more, which the plan lists")
    kept = {row.path for one in preview.chosen for row in one.kept}
    if preview.chosen:
        typer.echo(f"{len(kept):,} {'copy' if len(kept) == 1 else 'copies'} of them will be kept")
    else:
        typer.echo("there is nothing to do")
    if preview.done_before:
        typer.echo(f"{preview.done_before:,} are done already, by the journal")
    distinct = sum(row.action == "distinct" for row in plan.rows)
    if distinct:
        typer.echo(f"{distinct:,} are called distinct: hapvr duplicates LIBRARY --distinct-plan PLAN remembers that")
    if options.folder is not None:
        _warn_of_folder(options.folder, plan)
    if with_left:
        _print_left(preview.left)


def _warn_of_folder(folder: str, plan: Plan) -> None:
    """A folder among the videos would be found by the next `hapvr add`."""
    from hapvr.actions.preview import find_common_folder

    common = find_common_folder(plan)
    if common and os.path.abspath(folder).startswith(common.rstrip(os.sep) + os.sep):
        warn(
            [f"note: {folder} is below {common}: if that is in the library, the next `hapvr add` finds the files there"]
        )


def _format_report(report: ApplyReport, options: ApplyOptions, journal: Path) -> Iterator[str]:
    for way, files in report.files.items():
        yield f"{files:,} {'file' if files == 1 else 'files'} {_DONE[way].format(folder=escape(options.folder or ''))}"
    if report.files:
        yield f"{format_size(report.bytes)} in all"
        yield f"to take it back: hapvr undo {escape(journal)}"


def _find_problems(left: Iterable[Left]) -> list[Left]:
    return [one for one in left if one.kind != "skipped"]


def _print_left(left: Sequence[Left]) -> None:
    """How many files are left alone, and why."""
    if not left:
        return
    kinds = Counter(one.kind for one in left)
    warn([f"left alone: {', '.join(f'{count:,} {kind}' for kind, count in kinds.items())}"])
    warn(f"  {one.path}: {one.reason}" for one in left[:_LISTED])
    if len(left) > _LISTED:
        warn([f"  and {len(left) - _LISTED:,} more: --json lists all"])
