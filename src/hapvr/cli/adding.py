"""`hapvr add`, `watch` and `import`: put videos into a library, and keep it up to date."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hapvr.cli.match_watch import report_matches
from hapvr.cli.options import AsJson, Cluster, Device, LibraryFolder, Rate, Wait, WebhookAddresses, Workers, parse_rate
from hapvr.cli.terminal import (
    catch_signals,
    count_things,
    describe_problem,
    escape,
    progress_bar,
    raise_on_sigterm,
    show,
    warn,
)

if TYPE_CHECKING:
    from hapvr.library import AddReport
    from hapvr.library.indexed_folders import IndexRules
    from hapvr.places import Place


Model = Annotated[
    str | None,
    typer.Option(help="A model's name or folder; the library's own if not given, the default model for a new library."),
]
Codec = Annotated[
    str | None,
    typer.Option(
        help="How vectors are stored: float16, int8, int4, int3, int2 or binary; the library's own if not given, int3 "
        "for a new library."
    ),
]
Include = Annotated[
    list[str] | None,
    typer.Option(metavar="PATTERN", help="Index only files below a folder that match, such as '*.mp4'. Repeatable."),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option(metavar="PATTERN", help="Leave out files and folders that match, such as 'cache'. Repeatable."),
]
SmallestFile = Annotated[
    str | None, typer.Option("--min-size", metavar="SIZE", help="Leave out smaller files of a folder, such as 1MB.")
]
ShortestVideo = Annotated[
    float | None,
    typer.Option("--min-length", metavar="SECONDS", help="Leave out shorter videos of a folder."),
]
Candidates = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Where the vectors by which candidates are found lie: `embedded`, in the library, or "
        "milvus://host:port/collection; it remembers that. With --rebuild they move.",
        show_default="embedded for a new library",
    ),
]
_NO_MODEL = "none"  # in place of a text model
Prune = Annotated[bool, typer.Option("--prune", help="Remove videos whose files are gone; else they stay, as missing.")]


def add(
    library: LibraryFolder,
    videos: Annotated[
        list[Path] | None, typer.Argument(metavar="VIDEOS", help="Video files, and folders of them.")
    ] = None,
    model: Model = None,
    codec: Codec = None,
    rate: Rate = None,
    include: Include = None,
    exclude: Exclude = None,
    min_size: SmallestFile = None,
    min_length: ShortestVideo = None,
    candidates: Candidates = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Index all videos again with another model, codec, rate or candidates.")
    ] = False,
    prune: Prune = False,
    retry: Annotated[bool, typer.Option("--retry", help="Try again the videos that failed before.")] = False,
    device: Device = "auto",
    audio: Annotated[
        bool | None,
        typer.Option(
            "--audio/--no-audio",
            help="Read the sound of all videos of the library too, also of those added before; it remembers that.",
            show_default="as the library remembers",
        ),
    ] = None,
    text_model: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="Describe frames of all videos of the library by this model of open_clip, for `hapvr search --text`; "
            "it remembers that. `none` removes what a model said.",
        ),
    ] = None,
    workers: Workers = None,
    ray: Cluster = None,
    wait: Wait = 10.0,
    as_json: AsJson = False,
) -> None:
    """Index videos into a library, which is made if there is none: hapvr add library ~/Videos.

    Run it again to continue, or to update the library. It remembers its folders, and which of their files are left out:
    `hapvr add library` alone updates them all. The exit code is 1 if some videos failed, now or before. Ctrl-C
    and SIGTERM keep what is done.
    """
    from hapvr.errors import ConfigError
    from hapvr.library import Library
    from hapvr.library.text_model import find_weights
    from hapvr.library.versions import is_library

    rules = _make_rules(include, exclude, min_size, min_length)
    if rebuild and audio is not None:
        raise ConfigError("--rebuild takes the sound over as it is: run `hapvr add LIBRARY --audio` when it is done.")
    if rebuild and text_model is not None:
        raise ConfigError("--rebuild takes over what a text model said: give --text-model when it is done.")
    if rebuild and ray is not None:
        raise ConfigError("--rebuild reads the videos on this machine: leave --ray out.")
    if rebuild and (videos or rules is not None):
        raise ConfigError(
            "--rebuild reads the videos that the library knows: give no others, and add them when it is done."
        )
    if not rebuild and not videos and not is_library(library):
        raise ConfigError("Give the videos to add: files, and folders of them.")
    if text_model not in (None, _NO_MODEL):
        find_weights(Path(text_model or ""))  # before a library is made
    with raise_on_sigterm():
        if rebuild:
            with Library.open(library, wait_s=wait, device=device) as opened, progress_bar(quiet=as_json) as update:
                report = opened.rebuild(
                    model=model,
                    codec=codec,
                    **parse_rate(rate),
                    candidates=candidates,
                    prune=prune,
                    workers=workers,
                    progress=lambda now: update(now.done, now.total),
                )
        else:
            _require_files(library, videos or [])
            _require_videos(library, videos or [], rules)
            with (
                Library.open(
                    library,
                    create=True,
                    model=model,
                    codec=codec,
                    candidates=candidates,
                    wait_s=wait,
                    device=device,
                    **parse_rate(rate),
                ) as opened,
                progress_bar(quiet=as_json) as update,
            ):
                if text_model == _NO_MODEL:
                    opened.forget_text_model()
                report = opened.add(
                    videos or None,
                    rules=rules,
                    prune=prune,
                    retry=retry,
                    workers=workers,
                    progress=lambda now: update(now.done, now.total),
                    sound=audio,
                    text_model=None if text_model == _NO_MODEL else text_model,
                    cluster=ray,
                )
    _print_report(report, library, as_json)
    raise typer.Exit(1 if report.failed or report.still_failed else 0)


def watch(
    library: LibraryFolder,
    videos: Annotated[
        list[Path] | None,
        typer.Argument(metavar="VIDEOS", help="Video files, and folders of them; those it remembers if not given."),
    ] = None,
    model: Model = None,
    codec: Codec = None,
    rate: Rate = None,
    include: Include = None,
    exclude: Exclude = None,
    min_size: SmallestFile = None,
    min_length: ShortestVideo = None,
    interval: Annotated[float, typer.Option(help="Seconds between two scans of the folders.")] = 5.0,
    prune: Prune = False,
    device: Device = "auto",
    workers: Workers = None,
    against: Annotated[
        bool,
        typer.Option("--against", help="Search each new file in the library and report matches; add nothing."),
    ] = False,
    add_too: Annotated[
        bool, typer.Option("--add", help="With --against: add new files to the library as well.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="With --against: report files without a match too.")
    ] = False,
    min_probability: Annotated[
        float | None,
        typer.Option(help="With --against: report no matches that are less probable, from 0 to 1."),
    ] = None,
    webhook: WebhookAddresses = None,
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="With --against: where it is kept which files were reported; `watched.jsonl` in the library if not "
            "given.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print each report as one line of JSON.")] = False,
) -> None:
    """Keep a library up to date with folders until Ctrl-C or SIGTERM: hapvr watch library ~/Videos.

    `hapvr watch --against library ~/Incoming` instead reports each new file that matches a video of the library, once:
    after a restart only those that were not reported before.
    """
    from hapvr.errors import ConfigError
    from hapvr.library import Library
    from hapvr.library.versions import is_library

    def print_changes(report: AddReport) -> None:
        if as_json or any((report.added, report.updated, report.moved, report.removed, report.failed)):
            _print_report(report, library, as_json)

    rules = _make_rules(include, exclude, min_size, min_length)
    if against:
        if prune:
            raise ConfigError("--prune is not for --against, which removes nothing.")
        options = {"add": add_too, "record": record, "min_probability": min_probability, "workers": workers}
        with Library.open(library, model=model, codec=codec, device=device, **parse_rate(rate)) as opened:
            report_matches(opened, videos, rules, interval, options, webhook, everything=everything, as_json=as_json)
        return
    for name, given in (
        ("--add", add_too), ("--all", everything), ("--min-probability", min_probability is not None),
        ("--record", record is not None), ("--webhook", bool(webhook)),
    ):  # fmt: skip
        if given:
            raise ConfigError(f"{name} is an option of `hapvr watch --against`, which reports matches of new files.")
    if not videos and not is_library(library):
        raise ConfigError("Give the videos to watch: files, and folders of them.")
    _require_files(library, videos or [])
    with catch_signals() as stop:
        with Library.open(library, create=True, model=model, codec=codec, device=device, **parse_rate(rate)) as opened:
            if not as_json:
                typer.echo("watching; Ctrl-C ends it", err=True)
            opened.watch(
                videos or None,
                rules=rules,
                interval_s=interval,
                prune=prune,
                workers=workers,
                report=print_changes,
                say=lambda text: warn([text]),
                stop=stop,
            )
        if not as_json:
            typer.echo("stopped", err=True)


def _make_rules(
    include: list[str] | None, exclude: list[str] | None, min_size: str | None, min_length: float | None
) -> IndexRules | None:
    """The rules that were given; None if none were."""
    from hapvr.library.filters import parse_size
    from hapvr.library.indexed_folders import IndexRules

    if include is None and exclude is None and min_size is None and min_length is None:
        return None
    size = 0 if min_size is None else parse_size(min_size, "min_size")
    return IndexRules(tuple(include or ()), tuple(exclude or ()), size, min_length or 0.0)


def import_features(
    library: LibraryFolder,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An HDF5 file of `hapvr export` or `hapvr extract`.")],
    model: Model = None,
    codec: Codec = None,
    rate: Rate = None,
    wait: Wait = 10.0,
    as_json: AsJson = False,
) -> None:
    """Add the videos of an HDF5 file to a library, which is made if there is none: hapvr import library features.h5."""
    from hapvr.library import Library
    from hapvr.library.opening import WantedSettings, choose_settings
    from hapvr.library.transfer import require_importable
    from hapvr.library.versions import is_library

    if not is_library(library):  # a file that is refused leaves no empty library behind
        require_importable(library, choose_settings(WantedSettings(model, codec, **parse_rate(rate)))[0], file)
    with (
        raise_on_sigterm(),
        Library.open(library, create=True, model=model, codec=codec, wait_s=wait, **parse_rate(rate)) as opened,
        progress_bar(quiet=as_json) as update,
    ):
        report = opened.import_features(file, progress=update)
    _print_report(report, library, as_json)
    raise typer.Exit(1 if report.failed else 0)


def _require_files(library: Place, videos: Sequence[Path]) -> None:
    """Refuse files that do not exist before a library is made; an existing library may know them from before."""
    from hapvr.library.found_files import require_files
    from hapvr.library.versions import is_library

    if not is_library(library):
        require_files(videos)


def _require_videos(library: Place, videos: Sequence[Path], rules: IndexRules | None) -> None:
    """Refuse to make a library of nothing."""
    from hapvr.errors import ConfigError
    from hapvr.library.found_files import find_files
    from hapvr.library.indexed_folders import IndexRules
    from hapvr.library.versions import is_library

    if is_library(library):
        return
    found = find_files(videos, folders={os.path.abspath(path): rules or IndexRules() for path in videos})
    if not found.files:
        counts = {"are no videos by their names": found.skipped, "are left out by the options": found.excluded}
        why = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
        places = ", ".join(f"'{path}'" for path in videos)
        raise ConfigError(f"No video was found in {places}{why and f' ({why})'}: no library was made.")


def _print_report(report: AddReport, library: Place, as_json: bool) -> None:
    show(as_json, report.to_json(), _format_report(report, library))
    if not as_json:
        warn(describe_problem(path, reason) for path, reason in (*report.failed, *report.warnings))


def _format_report(report: AddReport, library: Place) -> Iterator[str]:
    names = ("added", "updated", "moved", "unchanged", "removed", "missing")
    counts = {name: getattr(report, name) for name in names} | {"failed": len(report.failed)}
    rate = f" ({report.frames:,} frames, {report.frames / report.seconds:.0f} a second)" if report.frames else ""
    yield ", ".join(f"{count:,} {name}" for name, count in counts.items() if count) + rate or "no video was found"
    if report.sounds or report.silent or report.sound_failed:
        failed = f", {report.sound_failed:,} cannot be read" if report.sound_failed else ""
        yield f"sound of {count_things(report.sounds, 'video')} read, {report.silent:,} silent{failed}"
    if report.text_described:
        yield f"{count_things(report.text_described, 'video')} described for search by text"
    if count := report.still_failed:
        yield (
            f"{count:,} failed before and {'was' if count == 1 else 'were'} not tried again: --retry does that, "
            f"`hapvr status {escape(str(library))}` lists what failed"
        )
    if count := report.skipped:
        one, many = "file that is no video by its name was", "files that are no videos by their names were"
        yield f"{count:,} {one if count == 1 else many} skipped"
    if count := report.excluded:
        yield f"{count:,} {'video was' if count == 1 else 'videos were'} left out by the rules of their folders"
    if count := report.linked:
        links = "link to a folder was" if count == 1 else "links to folders were"
        yield f"{count:,} {links} not followed: name what is to be added"
