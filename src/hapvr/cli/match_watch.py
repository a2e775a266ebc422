"""What `hapvr watch --against` prints."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from hapvr.cli.terminal import catch_signals, escape, open_webhooks

if TYPE_CHECKING:
    from hapvr.library import IndexRules, Library
    from hapvr.library.match_watch import FileEvent


def report_matches(
    library: Library,
    videos: Sequence[Path] | None,
    rules: IndexRules | None,
    interval_s: float,
    options: dict[str, Any],
    webhooks: Sequence[str] | None,
    *,
    everything: bool,
    as_json: bool,
) -> None:
    """Print events until Ctrl-C or SIGTERM; options are those of `Library.watch_matches`."""
    from hapvr.library.match_watch import EventCounter

    counter = EventCounter()
    with (
        catch_signals() as stop,
        open_webhooks(webhooks, source="watch", library=str(library.path)) as (hooks, delivered),
    ):
        if not as_json:
            typer.echo("watching; Ctrl-C ends it", err=True)
        for event in library.watch_matches(videos or None, rules=rules, interval_s=interval_s, stop=stop, **options):
            counter.add(event)
            if event.kind == "match":
                hooks.send(event.to_json())
            if event.kind != "no match" or everything:
                _print(event, as_json=as_json)
    counts = counter.to_json()
    if as_json:
        typer.echo(json.dumps({"event": "stopped", **counts, "webhooks": [one.to_json() for one in delivered]}))
    else:
        files = f"{counts['files']:,} new file{'' if counts['files'] == 1 else 's'}"
        typer.echo(f"stopped; {files}: {counts['matched']:,} with a match, {counts['failed']:,} unreadable", err=True)


def _print(event: FileEvent, *, as_json: bool) -> None:
    """A line of JSON; or lines, on stderr where something went wrong."""
    if as_json:
        typer.echo(json.dumps(event.to_json()))
        return
    for line in _format(event):
        typer.echo(line, err=event.kind in ("failed", "warning"))


def _format(event: FileEvent) -> Iterator[str]:
    from hapvr.audio.matching import describe_stretch
    from hapvr.decision import describe_verdict

    name = escape(event.path)
    if event.result is None:
        text = escape(event.text)
        yield text if name in text else f"{name}: {text}"  # a warning has no name; most reasons say it themselves
        return
    if event.kind == "no match":
        yield f"{name}: no match"
    for hit in event.result.matches:
        yield f"{name}: {describe_verdict(hit.verdict)}, score {hit.score:.3f}, {hit.id} {escape(hit.path)}"
        for segment in hit.segments:
            (a, b), (c, d) = segment.query, segment.target
            way = ", backwards" if segment.backwards else ""
            yield f"  {a:.1f}-{b:.1f} s is {c:.1f}-{d:.1f} s{way}"
        if hit.sound is not None:
            yield f"  sound: {hit.sound.describe(query='the new file')}"
    for heard in event.result.sound_hits:
        yield f"{name}: {heard.verdict}, {heard.id} {escape(heard.path)}"
        yield from (f"  {describe_stretch(one, query='the new file')}" for one in heard.stretches)
