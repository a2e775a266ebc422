"""`hapvr add`, `watch`, `status`, `info`, `remove`, `compact`, `export`, `import`: a library on disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hapvr.cli.interrupts import stopped_by_signals, termination_interrupts
from hapvr.cli.options import AsJson
from hapvr.cli.printing import printed
from hapvr.cli.progress import progress_bar

if TYPE_CHECKING:
    from hapvr.library import AddProgress, AddReport, LibraryInfo, VideoRecord

Place = Annotated[Path, typer.Argument(metavar="LIBRARY", help="The folder of the library.")]
Videos = Annotated[list[Path], typer.Argument(metavar="VIDEOS...", help="Video files, and folders of them.")]
Model = Annotated[str | None, typer.Option(help="A model's name or folder; the library's own if not given.")]
Codec = Annotated[str | None, typer.Option(help="How region vectors are stored; the library's own if not given.")]
Rate = Annotated[float | None, typer.Option(help="Frames a second; the library's own if not given.")]
Prune = Annotated[bool, typer.Option("--prune", help="Forget videos whose files are gone; else they are kept.")]
Workers = Annotated[int | None, typer.Option(help="Decoding processes.")]
Wait = Annotated[float, typer.Option(help="Seconds to wait for another writer.")]


def add(
    library: Place,
    videos: Annotated[
        list[Path] | None, typer.Argument(metavar="VIDEOS...", help="Video files, and folders of them.")
    ] = None,
    model: Model = None,
    codec: Codec = None,
    rate: Rate = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Read all videos again with another model, codec or rate.")
    ] = False,
    prune: Prune = False,
    retry: Annotated[bool, typer.Option("--retry", help="Try those again that failed before.")] = False,
    workers: Workers = None,
    wait: Wait = 10.0,
    as_json: AsJson = False,
) -> None:
    """Index videos into a library, made if need be, resumably: hapvr add library ~/Videos.

    Exit code 1 if some of them failed, now or before; Ctrl-C and SIGTERM keep what is done.
    """
    from hapvr.errors import ConfigError
    from hapvr.library import Library

    if bool(videos) == rebuild:
        raise ConfigError(
            "--rebuild reads the videos that the library knows: give no others, and add them when it is done."
            if rebuild
            else "Give the videos to add: files, and folders of them."
        )
    with termination_interrupts():
        if rebuild:
            with Library.open(library, wait_s=wait) as opened, _bar(quiet=as_json) as progress:
                report = opened.rebuild(
                    model=model, codec=codec, rate=rate, prune=prune, workers=workers, progress=progress
                )
        else:
            _require_files(library, videos or [])
            with (
                Library.open(library, create=True, model=model, codec=codec, rate=rate, wait_s=wait) as opened,
                _bar(quiet=as_json) as progress,
            ):
                report = opened.add(videos or [], prune=prune, retry=retry, workers=workers, progress=progress)
    if as_json:
        typer.echo(json.dumps(report.to_json()))
    else:
        _print(report, library)
    raise typer.Exit(1 if report.failed or report.still_failed else 0)


def watch(
    library: Place,
    videos: Videos,
    model: Model = None,
    codec: Codec = None,
    rate: Rate = None,
    interval: Annotated[float, typer.Option(help="Seconds between two looks.")] = 5.0,
    prune: Prune = False,
    workers: Workers = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print each report as one line of JSON.")] = False,
) -> None:
    """Keep a library in step with folders until stopped by Ctrl-C or SIGTERM: hapvr watch library ~/Videos."""
    from hapvr.library import Library

    def tell(report: AddReport) -> None:
        if as_json:
            typer.echo(json.dumps(report.to_json()))
        elif _changes(report):
            _print(report, library)

    _require_files(library, videos)
    with stopped_by_signals() as stop:
        with Library.open(library, create=True, model=model, codec=codec, rate=rate) as opened:
            if not as_json:
                typer.echo("watching; Ctrl-C ends it", err=True)
            opened.watch(
                videos,
                interval_s=interval,
                prune=prune,
                workers=workers,
                report=tell,
                say=lambda text: typer.echo(printed(text), err=True),
                stop=stop,
            )
        if not as_json:
            typer.echo("stopped", err=True)


def status(
    library: Place,
    state: Annotated[
        str | None, typer.Option(help="List videos in this state: ready, failed or missing; else what is wrong.")
    ] = None,
    offset: Annotated[int, typer.Option(min=0, help="Leave out so many.")] = 0,
    limit: Annotated[int | None, typer.Option(min=0, help="List so many at most.")] = None,
    as_json: AsJson = False,
) -> None:
    """List what failed, what is missing, and what was added with warnings: hapvr status library."""
    from hapvr.library import Library

    with Library.open(library) as opened:
        info = opened.info()
        records = opened.videos_with_problems() if state is None else opened.videos(state=state)
    records = records[offset:] if limit is None else records[offset : offset + limit]
    if as_json:
        counted = ("videos", "failed", "missing", "warned", "writer", "unchecked")
        counts = {name: getattr(info, name) for name in counted}
        typer.echo(json.dumps(counts | {"listed": [record.to_json() for record in records]}))
        return
    typer.echo(f"{info.videos:,} videos, {info.missing:,} of them missing, {_warned(info)}; {info.failed:,} failed")
    if info.writer is not None:
        typer.echo(f"being written by {printed(info.writer)}")
    if info.unchecked and info.writer is None:
        typer.echo(
            f"{info.unchecked:,} files have no checksum: an older release wrote them, or a writer that was killed. "
            f"They are read unchecked until the next change, such as: hapvr compact {printed(str(library))}"
        )
    if info.building is not None:
        typer.echo(f"a rebuild with the model '{printed(info.building)}' has begun; run it again to go on")
    for record in records:
        typer.echo(_line(record))


def info(library: Place, as_json: AsJson = False) -> None:
    """Show what a library holds and takes: hapvr info library."""
    from hapvr.library import Library

    with Library.open(library) as opened:
        found = opened.info()
    if as_json:
        typer.echo(json.dumps(found.to_json()))
        return
    index = f"{found.indexed:,} of them indexed" if found.indexed else "searched one by one"
    hours = found.duration / 3600
    typer.echo(f"{found.videos:,} videos ({found.contents:,} different), {hours:.2f} hours, {found.frames:,} frames")
    typer.echo(f"{found.missing:,} missing, {found.failed:,} failed, {_warned(found)}")
    typer.echo(f"model {printed(found.model)}, codec {found.codec}, {found.rate:g} frames a second")
    typer.echo(f"{found.bytes / 1e6:.1f} MB on disk, {found.bytes_per_minute / 1e6:.3f} MB a minute of video")
    typer.echo(f"{found.vectors:,} frame vectors, {index}")
    if found.building is not None:
        typer.echo(f"a rebuild with the model '{printed(found.building)}' has begun")
    if found.writer is not None:
        typer.echo(f"being written by {printed(found.writer)}")


def remove(
    library: Place,
    ids: Annotated[
        list[str], typer.Argument(metavar="IDS...", help="The ids of videos, as `hapvr status` lists them.")
    ],
    wait: Wait = 10.0,
    as_json: AsJson = False,
) -> None:
    """Forget videos; their files stay: hapvr remove library 3f2a91c07be4."""
    from hapvr.library import Library

    with Library.open(library, wait_s=wait) as opened:
        count = opened.remove(ids)
    typer.echo(json.dumps({"removed": count}) if as_json else f"{count} forgotten")


def compact(library: Place, wait: Wait = 10.0, as_json: AsJson = False) -> None:
    """Put small files together and free what is no longer used: hapvr compact library."""
    from hapvr.library import Library

    with Library.open(library, wait_s=wait) as opened:
        before = opened.info().bytes
        opened.compact()
        after = opened.info().bytes
    typer.echo(
        json.dumps({"bytes_before": before, "bytes": after})
        if as_json
        else f"{before / 1e6:.1f} MB before, {after / 1e6:.1f} MB now"
    )


def export(
    library: Place,
    output: Annotated[Path, typer.Option("--output", "-o", help="The HDF5 file to write.")],
    as_json: AsJson = False,
) -> None:
    """Write all features and records into one new HDF5 file: hapvr export library -o features.h5."""
    from hapvr.library import Library

    with Library.open(library) as opened, progress_bar(quiet=as_json) as reach:
        count = opened.export(output, progress=reach)
    typer.echo(json.dumps({"videos": count}) if as_json else f"{count} videos written to {printed(output)}")


def import_features(
    library: Place,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Features that `hapvr export` or `extract` wrote.")],
    model: Model = None,
    codec: Codec = None,
    rate: Rate = None,
    wait: Wait = 10.0,
    as_json: AsJson = False,
) -> None:
    """Take features of an HDF5 file into a library, made if need be: hapvr import library features.h5."""
    from hapvr.library import Library
    from hapvr.library.opening import choose_settings
    from hapvr.library.transfer import require_importable
    from hapvr.library.versions import is_library

    if not is_library(library):  # a file that is refused leaves no empty library behind
        require_importable(library, choose_settings(model=model, codec=codec, rate=rate)[0], file)
    with (
        termination_interrupts(),
        Library.open(library, create=True, model=model, codec=codec, rate=rate, wait_s=wait) as opened,
        progress_bar(quiet=as_json) as reach,
    ):
        report = opened.import_features(file, progress=reach)
    if as_json:
        typer.echo(json.dumps(report.to_json()))
    else:
        _print(report, library)
    raise typer.Exit(1 if report.failed else 0)


def _require_files(library: Path, videos: Sequence[Path]) -> None:
    """Refuse files that are not there before a library is made; one that is there may know them from before."""
    from hapvr.library.adding import require_files
    from hapvr.library.versions import is_library

    if not is_library(library):
        require_files(videos)


# --- printing --------------------------------------------------------------------------------------------------------


def _changes(report: AddReport) -> bool:
    return any((report.added, report.updated, report.moved, report.forgotten, report.failed))


def _print(report: AddReport, library: Path) -> None:
    counts = {
        "added": report.added,
        "updated": report.updated,
        "moved": report.moved,
        "unchanged": report.unchanged,
        "forgotten": report.forgotten,
        "missing": report.missing,
        "failed": len(report.failed),
    }
    rate = f" ({report.frames:,} frames, {report.frames / report.seconds:.0f} a second)" if report.frames else ""
    typer.echo(", ".join(f"{count:,} {name}" for name, count in counts.items() if count) + rate or "nothing to do")
    if count := report.still_failed:
        typer.echo(
            f"{count:,} failed before and {'was' if count == 1 else 'were'} not tried again: --retry does that, "
            f"`hapvr status {printed(library)}` lists what failed"
        )
    if count := report.skipped:
        files = (
            "file that is no video by its name was" if count == 1 else "files that are no videos by their names were"
        )
        typer.echo(f"{count:,} {files} skipped")
    if count := report.linked:
        links = "link to a folder was" if count == 1 else "links to folders were"
        typer.echo(f"{count:,} {links} not followed: name what is to be added")
    for path, reason in (*report.failed, *report.warnings):
        typer.echo(printed(f"  {path}: {reason}"), err=True)


def _warned(info: LibraryInfo) -> str:
    return f"{info.warned:,} added with warnings"


def _line(record: VideoRecord) -> str:
    reasons = [*([] if record.error is None else [record.error]), *record.warnings]
    what = f"{record.state}: {' '.join(reasons)}" if reasons else record.state
    return printed(f"{record.id:16} {record.path}  {what}")


@contextmanager
def _bar(*, quiet: bool) -> Iterator[Callable[[AddProgress], None]]:
    """A bar on stderr with the time that is left, by files."""
    with progress_bar(quiet=quiet) as reach:
        yield lambda now: reach(now.done, now.total)
