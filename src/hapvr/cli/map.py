"""`hapvr map`: what a library holds, at a glance."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hapvr.cli.options import AsJson, LibraryFolder
from hapvr.cli.terminal import progress_bars, show


def draw_map(
    library: LibraryFolder,
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="File to write: an HTML page, or a picture (PNG, SVG, PDF). Repeatable.",
        ),
    ] = None,
    max_videos: Annotated[
        int | None, typer.Option(min=1, help="Show at most this many videos, chosen at random; 3,000 if not given.")
    ] = None,
    max_pictures: Annotated[
        int | None, typer.Option(min=0, help="Read frames of at most this many videos; 300 if not given.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed draws the same map.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Draw a map on which videos that look alike lie close together: hapvr map library -o map.html."""
    from hapvr.errors import ConfigError
    from hapvr.library import Library
    from hapvr.library.library_map import MAX_VIDEOS, make_map
    from hapvr.reports import map_figure, map_page
    from hapvr.reports.plotting import SUFFIXES
    from hapvr.storage import require_outputs

    files = output or []
    if not files and not as_json:
        raise ConfigError("Say where the map goes: -o map.html, -o map.png, or --json.")
    pages = [file for file in files if file.suffix.lower() in (".html", ".htm")]
    pictures = [file for file in files if file not in pages]
    for file in pictures:
        if file.suffix.lower() not in SUFFIXES:
            raise ConfigError(f"'{file}' must end in .html, .png, .svg or .pdf.")
    with Library.open(library) as opened, progress_bars(quiet=as_json) as progress:
        for file in files:
            require_outputs([file], inputs=opened.find_files_named(file))
        found = make_map(
            opened,
            max_videos=MAX_VIDEOS if max_videos is None else max_videos,
            seed=seed,
            progress=lambda done, total: progress("videos", done, total),
        )
        count = map_page.MAX_PICTURES if max_pictures is None else max_pictures

        def report(done: int, total: int) -> None:
            progress("pictures", done, total)

        for file in pages:
            map_page.save_page(found, file, str(library), max_pictures=count, progress=report)
        if pictures:
            map_figure.save_picture(found, *pictures, library=str(library), max_pictures=count, progress=report)
    wrote = [f"wrote {file}" for file in files]
    show(as_json, found.to_json() | {"written": list(map(str, files))}, [map_page.summarise(found), *wrote])
