"""`hapvr monitor`: a stream is searched in a library while it runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from hapvr.cli.options import Device, LibraryFolder, WebhookAddresses
from hapvr.cli.terminal import catch_signals, escape, open_webhooks

if TYPE_CHECKING:
    from hapvr.library.monitoring import StreamEvent


def monitor(
    library: LibraryFolder,
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="An address (HLS, RTSP, ...), an HLS playlist, or a video file.")
    ],
    follow: Annotated[
        bool, typer.Option("--follow", help="The file is still being written: wait for more at its end.")
    ] = False,
    idle: Annotated[float, typer.Option(help="Seconds without a new frame after which the stream has ended.")] = 30.0,
    window: Annotated[float, typer.Option(help="Seconds of the stream that are searched at a time.")] = 14.0,
    step: Annotated[float, typer.Option(help="Seconds of the stream from one search to the next.")] = 2.0,
    min_probability: Annotated[
        float, typer.Option(help="Do not report matches that are less probable, between 0 and 1.")
    ] = 0.8,
    device: Device = "auto",
    webhook: WebhookAddresses = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print each event as one line of JSON.")] = False,
) -> None:
    """Report what a running stream shows of a library's videos: hapvr monitor library rtsp://camera/1.

    A match is reported when it is first seen, and again with its whole length when it is over. A stream that cannot be
    read any more is an error. Ctrl-C and SIGTERM end it.
    """
    from hapvr.library import Library
    from hapvr.library.monitoring import MonitorConfig
    from hapvr.video.live import StreamConfig, require_source

    require_source(source)  # before it is said that it is monitored
    config = MonitorConfig(window_s=window, step_s=step, min_probability=min_probability)
    reading = StreamConfig(follow=follow, idle_s=idle)
    with (
        catch_signals() as stop,
        Library.open(library, device=device) as opened,
        open_webhooks(webhook, source="monitor", library=str(opened.path)) as (hooks, _),
    ):
        if not as_json:
            typer.echo("monitoring; Ctrl-C ends it", err=True)
        for event in opened.monitor(source, config=config, stream=reading, stop=stop):
            typer.echo(json.dumps(event.to_json()) if as_json else _format(event))
            if event.kind == "match":
                hooks.send(event.to_json())


def _format(event: StreamEvent) -> str:
    match = event.match
    if match is None:
        return f"{_clock(event.time_s)}  {escape(event.text)}"
    sure = "" if match.probability is None else f", probability {match.probability:.2f}"
    what = "is" if event.kind == "match" else "was"
    video = f"{_clock(match.video[0])} to {_clock(match.video[1])} of {escape(match.path)}"
    return f"{_clock(match.stream[0])} to {_clock(match.stream[1])} {what} {video}{sure}"


def _clock(seconds: float) -> str:
    """Hours, minutes and seconds.

    >>> _clock(3725.25), _clock(59.96)
    ('1:02:05.2', '0:01:00.0')
    """
    tenths = round(seconds * 10)
    return f"{tenths // 36000}:{tenths // 600 % 60:02}:{tenths % 600 / 10:04.1f}"
