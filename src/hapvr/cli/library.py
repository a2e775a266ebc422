"""`hapvr status`, `folders`, `info`, `remove`, `compact`, `export`: what a library holds. `hapvr.cli.adding` adds."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hapvr.cli.options import AsJson, LibraryFolder, Wait
from hapvr.cli.terminal import escape, progress_bar, show, warn

if TYPE_CHECKING:
    from hapvr.library import LibraryInfo, VideoRecord
    from hapvr.library.indexed_folders import IndexRules
    from hapvr.library.shared_footage import SharedFootage
    from hapvr.places import Place

_PLACES = 3  # occurrences of shared footage that are listed


def status(
    library: LibraryFolder,
    state: Annotated[
        str | None,
        typer.Option(
            help="List videos in this state: ready, failed or missing; if not given, failed and missing videos and "
            "those with warnings."
        ),
    ] = None,
    offset: Annotated[int, typer.Option(min=0, help="Skip this many videos of the list.")] = 0,
    limit: Annotated[int | None, typer.Option(min=0, help="List at most this many videos.")] = None,
    page: Annotated[
        Path | None, typer.Option("--html", help="Write a self-contained HTML page that shows the shared footage.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List what failed, is missing or has warnings, and footage that many videos share: hapvr status library."""
    from hapvr.library import Library
    from hapvr.storage import require_outputs

    with Library.open(library) as opened:
        if page is not None:
            require_outputs([page], inputs=opened.find_files_named(page))
        info = opened.info()
        records = opened.list_problem_videos() if state is None else opened.videos(state=state)
        footage = opened.find_shared_footage()
        shown = {one.video: opened.get(one.video) for clip in footage.clips for one in clip.occurrences}
    records = records[offset:] if limit is None else records[offset : offset + limit]
    counted = ("videos", "failed", "missing", "warned", "writer", "unchecked")
    value = {name: getattr(info, name) for name in counted} | {"listed": [record.to_json() for record in records]}
    value |= {"shared": [clip.to_json() for clip in footage.clips]}
    show(as_json, value, _format_status(info, records, footage, library))
    if page is not None:
        from hapvr.reports.shared_page import save_page

        save_page(footage, shown, page, str(library))


def _format_status(
    info: LibraryInfo, records: Sequence[VideoRecord], footage: SharedFootage, library: Place
) -> Iterator[str]:
    yield (
        f"{info.videos:,} videos, {info.missing:,} of them missing, {info.warned:,} added with warnings; "
        f"{info.failed:,} failed"
    )
    if info.writer is not None:
        yield f"being written by {escape(info.writer)}"
    if info.unchecked and info.writer is None:
        yield (
            f"{info.unchecked:,} files have no checksum: an older release wrote them, or a writer that was killed. "
            f"They are read unchecked until the next change, such as: hapvr compact {escape(str(library))}"
        )
    if info.building is not None:
        yield f"a rebuild with the model '{escape(info.building)}' has begun; run it again to go on"
    if not footage.complete:
        yield "footage that many videos share was not looked for: the library is too large"
    for clip in footage.clips:
        places = [f"{one.video} at {one.start_s:.1f}-{one.end_s:.1f} s" for one in clip.occurrences[:_PLACES]]
        more = ", ..." if clip.videos > len(places) else ""
        yield f"shared footage {clip.id}: {clip.seconds:.1f} s in {clip.videos:,} videos ({', '.join(places)}{more})"
    for record in records:
        reasons = [*([] if record.error is None else [record.error]), *record.warnings]
        what = f"{record.state}: {' '.join(reasons)}" if reasons else record.state
        yield escape(f"{record.id:16} {record.path}  {what}")


def folders(
    library: LibraryFolder,
    forget: Annotated[
        list[Path] | None,
        typer.Option(metavar="FOLDER", help="Do not update this folder any more; its videos stay. Repeatable."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the folders that a library remembers, and which of their files are left out: hapvr folders library."""
    from hapvr.library import Library

    with Library.open(library) as opened:
        for folder in forget or ():
            if not opened.forget_folder(folder):
                warn([f"'{folder}' is none of its folders."])
        known = opened.folders()
    plain = [{"folder": folder, **dataclasses.asdict(rules)} for folder, rules in known.items()]
    show(as_json, plain, (_format_folder(folder, rules) for folder, rules in known.items()))


def _format_folder(folder: str, rules: IndexRules) -> str:
    limits = [f"only {', '.join(rules.include)}"] if rules.include else []
    limits += [f"without {', '.join(rules.exclude)}"] if rules.exclude else []
    limits += [f"files of {rules.min_size:,} bytes or more"] if rules.min_size else []
    limits += [f"videos of {rules.min_seconds:g} s or more"] if rules.min_seconds else []
    return escape(folder) + (f"  ({escape('; '.join(limits))})" if limits else "")


def info(library: LibraryFolder, as_json: AsJson = False) -> None:
    """Show what a library holds and its size: hapvr info library."""
    from hapvr.library import Library

    with Library.open(library) as opened:
        found = opened.info()
    show(as_json, found.to_json(), _format_info(found))


def _format_info(info: LibraryInfo) -> Iterator[str]:
    hours = info.duration / 3600
    yield f"{info.videos:,} videos ({info.contents:,} different), {hours:.2f} hours, {info.frames:,} frames"
    yield f"{info.missing:,} missing, {info.failed:,} failed, {info.warned:,} added with warnings"
    rate = "key frames" if info.keyframes else f"{info.fps:g} frames a second"
    yield f"model {escape(info.model)}, codec {info.codec}, {rate}"
    yield f"{info.bytes / 1e6:.1f} MB on disk, {info.bytes_per_minute / 1e6:.3f} MB a minute of video"
    index = f"{info.indexed:,} of them indexed" if info.indexed else "searched one by one"
    place = "" if info.candidates == "embedded" else f" in {escape(info.candidates)}"
    yield f"{info.vectors:,} frame vectors{place}, {index}"
    if info.text_model is not None:
        yield f"text model {escape(info.text_model)}"
    if info.building is not None:
        yield f"a rebuild with the model '{escape(info.building)}' has begun"
    if info.writer is not None:
        yield f"being written by {escape(info.writer)}"


def remove(
    library: LibraryFolder,
    ids: Annotated[list[str], typer.Argument(metavar="IDS", help="The ids of videos, as `hapvr status` lists them.")],
    wait: Wait = 10.0,
    as_json: AsJson = False,
) -> None:
    """Remove videos from a library; their files stay: hapvr remove library 3f2a91c07be4."""
    from hapvr.library import Library

    with Library.open(library, wait_s=wait) as opened:
        count = opened.remove(ids)
    show(as_json, {"removed": count}, f"{count} removed")


def compact(library: LibraryFolder, wait: Wait = 10.0, as_json: AsJson = False) -> None:
    """Join small files and free space that is no longer used: hapvr compact library."""
    from hapvr.library import Library

    with Library.open(library, wait_s=wait) as opened:
        before = opened.info().bytes
        opened.compact()
        after = opened.info().bytes
    text = f"{before / 1e6:.1f} MB before, {after / 1e6:.1f} MB now"
    show(as_json, {"bytes_before": before, "bytes": after}, text)


def export(
    library: LibraryFolder,
    output: Annotated[Path, typer.Option("--output", "-o", help="The HDF5 file to write.")],
    as_json: AsJson = False,
) -> None:
    """Write all vectors and records of a library into one new HDF5 file: hapvr export library -o features.h5."""
    from hapvr.library import Library

    with Library.open(library) as opened, progress_bar(quiet=as_json) as update:
        count = opened.export(output, progress=update)
    show(as_json, {"videos": count}, f"{count} videos written to {escape(output)}")
