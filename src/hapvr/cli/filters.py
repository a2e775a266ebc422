"""Options that say which videos are meant, for every command that lists some; see `hapvr.library.filters`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from hapvr.library.filters import VideoFilter, parse_size

DATES = ["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"]

Folders = Annotated[
    list[Path] | None,
    typer.Option("--folder", metavar="FOLDER", help="Only files at or below this folder. Repeatable."),
]
MinSize = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Only files of at least this size: bytes, or as 500MB, 2GiB.")
]
MaxSize = Annotated[str | None, typer.Option(metavar="SIZE", help="Only files of at most this size.")]
MinLength = Annotated[float | None, typer.Option(metavar="SECONDS", help="Only videos of at least this length.")]
MaxLength = Annotated[float | None, typer.Option(metavar="SECONDS", help="Only videos of at most this length.")]
After = Annotated[
    datetime | None,
    typer.Option(
        formats=DATES,
        metavar="DATE",
        help="Only files that were last changed at this time or later: 2024-05-31, or 2024-05-31T18:00.",
    ),
]
Before = Annotated[
    datetime | None, typer.Option(formats=DATES, metavar="DATE", help="Only files that were last changed before.")
]


def make_filter(
    *,
    folders: Sequence[Path] | None,
    min_size: str | None,
    max_size: str | None,
    min_length: float | None,
    max_length: float | None,
    after: datetime | None,
    before: datetime | None,
) -> VideoFilter:
    """The filter that the options describe."""
    return VideoFilter(
        folders=tuple(str(folder.expanduser().absolute()) for folder in folders or ()),
        min_size=None if min_size is None else parse_size(min_size, "min_size"),
        max_size=None if max_size is None else parse_size(max_size, "max_size"),
        min_seconds=min_length,
        max_seconds=max_length,
        after=after,
        before=before,
    )
