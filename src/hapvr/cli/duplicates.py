"""`hapvr duplicates` and `hapvr calibrate`: copies in a library, and what its scores mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hapvr.cli.filters import DATES, After, Before, Folders, MaxLength, MaxSize, MinLength, MinSize, make_filter
from hapvr.cli.options import AsJson, Cluster, Device, HtmlPage, IgnoreShared, LibraryFolder, Reports, SecondLook, Wait
from hapvr.cli.terminal import describe_problem, escape, progress_bar, show, warn
from hapvr.errors import ConfigError

if TYPE_CHECKING:
    from hapvr.actions import Plan
    from hapvr.library import Library
    from hapvr.library.duplicate_report import DuplicateReport
    from hapvr.library.judge_calibration import JudgeCalibrationReport
    from hapvr.library.library_calibration import CalibrationReport

MIN_PROBABILITY = 0.5  # `hapvr.library.duplicates` has the same, and a test compares them


def duplicates(
    library: LibraryFolder,
    min_probability: Annotated[
        float, typer.Option(help="Report links with at least this probability of being a copy, 0 to 1.")
    ] = MIN_PROBABILITY,
    device: Device = "auto",
    second_look: SecondLook = True,
    ignore_shared: IgnoreShared = True,
    since: Annotated[
        datetime | None,
        typer.Option(
            formats=DATES,
            metavar="DATE",
            help="Only pairs with a video that was added since this date, as 2024-05-31 or 2024-05-31T18:00.",
        ),
    ] = None,
    sound: Annotated[
        bool,
        typer.Option(help="In a library with sound: compare it too, and list videos with the same sound only."),
    ] = True,
    as_json: AsJson = False,
    output: Reports = None,
    page: HtmlPage = None,
    plan: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv",
            help="Write a plan: a row for each file, with what to do with it. Review it; `hapvr apply` does it.",
        ),
    ] = None,
    action: Annotated[
        str, typer.Option(help="The action of a plan for copies that are not kept: move, trash, hardlink or symlink.")
    ] = "move",
    kinds: Annotated[
        str | None,
        typer.Option(
            help="Only these kinds, such as identical,copy,edited,unsure,clip,shared; of a plan, the kinds that get an "
            "action. If not given, all are listed, and identical files and plain copies get an action."
        ),
    ] = None,
    folders: Folders = None,
    min_size: MinSize = None,
    max_size: MaxSize = None,
    min_length: MinLength = None,
    max_length: MaxLength = None,
    after: After = None,
    before: Before = None,
    distinct: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="A B", help="Mark two videos, by id, as no duplicates; nothing else is done."),
    ] = None,
    undo_distinct: Annotated[
        tuple[str, str] | None, typer.Option(metavar="A B", help="Remove the mark that --distinct made.")
    ] = None,
    distinct_plan: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv",
            help="Mark the rows of a plan whose action is 'distinct' as no duplicates of the others of their groups; "
            "nothing else is done.",
        ),
    ] = None,
    undo_distinct_plan: Annotated[
        Path | None, typer.Option(metavar="FILE.csv", help="Remove the marks that --distinct-plan made.")
    ] = None,
    distinct_groups: Annotated[
        list[str] | None,
        typer.Option(
            "--group", metavar="NUMBER", help="With --distinct-plan: all files of this group of the plan. Repeatable."
        ),
    ] = None,
    ray: Cluster = None,
    wait: Wait = 10.0,
) -> None:
    """Find copies, and clips that are part of longer videos, in a library: hapvr duplicates library --html d.html.

    Nothing is deleted: `--plan` writes what could be done, and `hapvr apply` does it. With limits on folder, size,
    length or time, groups with such a file are listed, and only such files get an action.
    """
    from hapvr.library import Library
    from hapvr.library.cluster_work import use_cluster
    from hapvr.library.duplicate_plan import PlanOptions, filter_report, make_plan
    from hapvr.library.duplicate_report import require_report_files, write_report
    from hapvr.library.filters import VideoFilter
    from hapvr.storage import require_outputs

    require_report_files(output or ())
    chosen = make_filter(
        folders=folders,
        min_size=min_size,
        max_size=max_size,
        min_length=min_length,
        max_length=max_length,
        after=after,
        before=before,
    )
    options = PlanOptions(action, _split_kinds(kinds), chosen)  # type: ignore[arg-type]
    if distinct_groups and distinct_plan is None and undo_distinct_plan is None:
        raise ConfigError("--group names groups of a plan: give --distinct-plan FILE.csv as well.")
    with Library.open(library, wait_s=wait, device=device) as opened:
        for file, is_distinct in ((distinct_plan, True), (undo_distinct_plan, False)):
            if file is not None:
                _mark_plan(opened, file, distinct_groups or (), is_distinct, as_json)
        if distinct_plan is not None or undo_distinct_plan is not None:
            return
        for pair, change, done, otherwise in (
            (distinct, opened.mark_distinct, "are marked as distinct", "were marked already"),
            (undo_distinct, opened.unmark_distinct, "are no longer marked", "were not marked"),
        ):
            if pair is not None:
                changed = change(*pair)
                show(as_json, {"changed": changed}, f"they {done if changed else otherwise}")
        if distinct is not None or undo_distinct is not None:
            return
        files = [*(output or ()), *(file for file in (page, plan) if file is not None)]
        require_outputs(files, inputs=[path for file in files for path in opened.find_files_named(file)])
        with progress_bar("comparing", quiet=as_json) as update, use_cluster(opened, ray) as cluster:
            report = opened.find_duplicates(
                min_probability=min_probability,
                second_look=second_look,
                ignore_shared=ignore_shared,
                since=since,
                progress=lambda now: update(now.done, now.total),
                sound=sound,
                cluster=cluster,
            )
    made = None if plan is None else make_plan(report, options)
    if options.kinds is not None or chosen != VideoFilter():
        report = filter_report(report, chosen, options.kinds)
    # The answer comes first, so that a file that cannot be written does not lose it.
    show(as_json, report.to_json(), _format_duplicates(report))
    if not as_json:
        _print_notes(report)
    for path in output or ():
        write_report(report, path)
    if page is not None:
        from hapvr.reports.duplicates_page import save_page

        save_page(report, page, str(library))
    if made is not None and plan is not None:
        from hapvr.actions import write_plan

        write_plan(made, plan)
        if not as_json:
            warn(_describe_plan(made, plan))


def _split_kinds(kinds: str | None) -> tuple[str, ...] | None:
    return None if kinds is None else tuple(kind.strip() for kind in kinds.split(",") if kind.strip())


def _mark_plan(library: Library, file: Path, groups: Sequence[str], distinct: bool, as_json: bool) -> None:
    from hapvr.actions import read_plan
    from hapvr.actions.plan import make_pairs

    plan = read_plan(file)
    if unknown := set(groups) - set(plan.groups):
        raise ConfigError(f"'{file}' has no group {', '.join(sorted(unknown))}: give numbers of its column group.")
    pairs = len(make_pairs(plan.rows, groups))
    if not pairs:
        raise ConfigError(f"'{file}' calls nothing distinct: write 'distinct' into the column action, or give --group.")
    changed = library.mark_plan(plan, groups=groups, distinct=distinct)
    done = "marked as distinct" if distinct else "no longer marked"
    rest = f", {pairs - changed:,} were so before" if pairs > changed else ""
    show(as_json, {"changed": changed, "pairs": pairs}, f"{changed:,} pairs are {done}{rest}")


def _describe_plan(plan: Plan, path: Path) -> Iterator[str]:
    from hapvr.cli.actions import format_size

    groups, count = len(plan.groups), len(plan.acting)
    yield (
        f"{path}: {groups:,} {'group' if groups == 1 else 'groups'}, {count:,} {'file' if count == 1 else 'files'} "
        f"with an action, {format_size(plan.saves)} to save"
    )
    if others := sum(row.action == "none" for row in plan.rows):
        yield f"{others:,} are listed without an action: edits, clips and doubtful ones; the column why says more"
    if count:
        yield f"review it, then: hapvr apply {path} --trash --dry-run (or --to FOLDER, --hardlink, --symlink)"


def calibrate(
    library: LibraryFolder,
    copies: Annotated[int, typer.Option(help="Number of edited copies to make of the library's own videos.")] = 100,
    pairs: Annotated[int, typer.Option(help="Number of pairs of different videos to compare.")] = 10_000,
    seed: Annotated[int, typer.Option(help="The same seed chooses the same videos and edits.")] = 0,
    second_look: SecondLook = True,
    wait: Wait = 10.0,
    as_json: AsJson = False,
) -> None:
    """Fit the probabilities that searches of a library report to its own videos: hapvr calibrate library.

    Edited copies of its videos are compared with these and with the videos that look most like them. Pairs that
    `hapvr duplicates` links are left out: mark those that are no copies first (`hapvr duplicates --distinct`).
    """
    from hapvr.library import Library

    with Library.open(library, wait_s=wait) as opened, progress_bar("calibrating", quiet=as_json) as update:
        report = opened.calibrate(
            copies=copies,
            pairs=pairs,
            seed=seed,
            second_look=second_look,
            progress=lambda now: update(now.done, now.total),
        )
    show(as_json, report.to_json(), _format_calibration(report))
    if not as_json:
        warn(report.warnings, before="warning: ")
        warn(describe_problem(path, reason) for path, reason in report.failed)
    raise typer.Exit(1 if report.failed else 0)


# --- printing --------------------------------------------------------------------------------------------------------


def _format_duplicates(report: DuplicateReport) -> Iterator[str]:
    from hapvr.audio.matching import describe_stretch
    from hapvr.reports.html_page import format_time

    for number, group in enumerate(report.groups, 1):
        strongest = {id: link for link in reversed(group.links) for id in (link.a, link.b)}
        yield f"group {number}: {len(group.videos)} copies"
        for video in group.videos:
            link = strongest[video.id]
            size = f"{format_time(video.duration)} {video.width}x{video.height} {video.bitrate / 1000:,.0f} kbit/s"
            edits = group.find_edits(video)
            edit = f", an edit ({', '.join(edits)})" if edits else ""
            what = "keep" if video is group.keep else f"{link.kind}, {link.reason}{edit}"
            gone = "" if video.state == "ready" else f" ({video.state})"
            yield f"  {video.id:14} {size:32} {escape(video.path)}{gone}  {what}"
        yield f"  keep {group.keep.id}: {group.reason}"
    beside = report.beside
    if beside:
        yield "parts of others" if report.groups else "parts"
    for link in beside:
        a, b = (escape(report.records[id].path) for id in (link.a, link.b))
        own, other = (f"{format_time(start)}-{format_time(end)}" for start, end in link.intervals)
        if link.kind == "contained":
            yield f"  {a} is {other} of {b}  {link.reason}"
        elif link.kind == "shared":
            yield f"  {own} of {a} is {other} of {b}  {link.reason}"
        else:
            yield f"  {a} is a copy of {b}  {link.reason}"
    if report.sound_pairs:
        yield "same sound, other pictures"
    for pair in report.sound_pairs:
        a, b = (escape(report.records[id].path) for id in (pair.a, pair.b))
        yield f"  {', '.join(describe_stretch(one, a, b) for one in pair.stretches)}"
    count = len(report.groups)
    groups = "group" if count == 1 else "groups"
    yield f"{count:,} {groups} of copies, {len(beside):,} other links among {report.videos:,} videos"
    if report.marked:
        yield f"{report.marked:,} left out that were marked as distinct"


def _print_notes(report: DuplicateReport) -> None:
    for video in (video for group in report.groups for video in group.videos):
        warn(video.warnings, before=f"  {video.id}: ")
    warn(
        [
            f"{report.scored:,} of {report.pairs:,} pairs compared, "
            f"links with a probability of at least {report.min_probability:g}, {report.seconds:.1f} s"
        ]
    )


def _format_calibration(report: CalibrationReport | JudgeCalibrationReport) -> Iterator[str]:
    from hapvr.library.judge_calibration import JudgeCalibrationReport

    if isinstance(report, JudgeCalibrationReport):
        yield from _format_judge_calibration(report)
    else:
        yield from _format_score_calibration(report)
    yield "kept with the library; its searches use it from now on"


def _format_judge_calibration(report: JudgeCalibrationReport) -> Iterator[str]:
    fitted = report.calibration
    yield f"fitted on {fitted.copies:,} edited copies and {fitted.strangers:,} pairs of videos that look alike"
    if report.linked:
        yield f"{report.linked:,} pairs left out that `hapvr duplicates` links"
    yield "        copies found  false  promised false per million  measured"
    for name, counts in (("before", report.before), ("after", report.after)):
        share = counts.found / fitted.copies
        yield f"{name:6}  {share:12.1%}  {counts.false:5,}  {counts.promised:26,.1f}  {counts.measured:8,.1f}"
    if missed := _list_missed(report.kinds):
        yield f"not all copies are found of: {missed}"


def _list_missed(kinds: Mapping[str, tuple[int, int]]) -> str:
    return ", ".join(f"{kind} ({found} of {of})" for kind, (found, of) in kinds.items() if found < of)


def _format_score_calibration(report: CalibrationReport) -> Iterator[str]:
    calibration = report.calibration
    yield f"fitted on {calibration.positives:,} edited copies and {calibration.negatives:,} pairs without a match"
    yield "threshold  false per million  copies found  precision of a search"
    for one in report.expected:
        yield f"{one.threshold:9.3f}  {one.false_per_million:17,.1f}  {one.recall:12.1%}  {one.precision:10.1%}"
    if missed := _list_missed(report.kinds):
        yield f"at 100 false matches per million not all copies are found of: {missed}"
