"""Which videos a request means: what a client may name (a root and a folder in it) becomes a `VideoFilter`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from hapvr.library.filters import VideoFilter
from hapvr.server.access import resolve_below
from hapvr.server.problems import Problem, not_found
from hapvr.server.schemas.base import FilterOptions
from hapvr.server.settings import Root


def make_filter(options: FilterOptions, roots: Mapping[str, Root]) -> VideoFilter:
    """The filter of a request; `Problem` or `ConfigError` if no video can be meant."""
    return VideoFilter(
        folders=_find_folders(options, roots),
        min_size=options.min_size,
        max_size=options.max_size,
        min_seconds=options.min_seconds,
        max_seconds=options.max_seconds,
        after=_add_zone("after", options.after),
        before=_add_zone("before", options.before),
    )


def _find_folders(options: FilterOptions, roots: Mapping[str, Root]) -> tuple[str, ...]:
    """A folder in all forms that a library may know it by: videos may have been added through a link."""
    if options.root is None:
        if options.folder:
            raise Problem(400, "A folder needs its root: give 'root' too, see /api/library.")
        return ()
    if options.root not in roots:
        raise not_found("root", options.root)
    root = roots[options.root]
    place = resolve_below(root.path, options.folder)
    below = [os.path.normpath(os.path.join(form, options.folder)) for form in root.forms]
    return tuple(dict.fromkeys((*below, str(place))))


def _add_zone(name: str, time: datetime | None) -> datetime | None:
    """A time without a zone is one of this machine."""
    if time is None or time.tzinfo is not None:
        return time
    try:
        return time.astimezone()
    except (OverflowError, OSError, ValueError):
        raise Problem(400, f"'{name}' is too far from today: {time.isoformat()}.") from None


def describe_filter(options: FilterOptions) -> dict[str, Any]:
    """The limits that a request gave, as its result repeats them."""
    fields = set(FilterOptions.model_fields)
    return options.model_dump(include=fields, exclude_none=True, exclude_defaults=True, mode="json")


def write_filter(chosen: VideoFilter) -> dict[str, Any]:
    """A filter as an argument of a task."""
    plain = {name: getattr(chosen, name) for name in ("min_size", "max_size", "min_seconds", "max_seconds")}
    times = {name: getattr(chosen, name) for name in ("after", "before")}
    return plain | {
        "folders": list(chosen.folders),
        **{name: None if time is None else time.isoformat() for name, time in times.items()},
    }


def read_filter(plain: Mapping[str, Any]) -> VideoFilter:
    """A filter that `write_filter` wrote.

    >>> chosen = VideoFilter(("/films",), min_seconds=2.5, after=datetime(2026, 3, 1))
    >>> read_filter(write_filter(chosen)) == chosen
    True
    """
    times = {name: None if plain[name] is None else datetime.fromisoformat(plain[name]) for name in ("after", "before")}
    return VideoFilter(**{**plain, "folders": tuple(plain["folders"]), **times})
