"""`hapvr bench`: what this machine does, and what that means for a collection."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hapvr.bench.config import BenchConfig
from hapvr.cli.options import AsJson, Model
from hapvr.cli.terminal import escape, progress_bars, raise_on_sigterm, show

_DEFAULTS = BenchConfig()


def bench(
    model: Model = None,
    sample: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Your own videos: all headers are read and parts of some videos decoded, so that the answer is about "
            "them.",
        ),
    ] = None,
    hours: Annotated[
        list[float] | None,
        typer.Option(
            metavar="HOURS", help="Hours of video to answer for; 100, 1,000 and 10,000 if not given. Repeatable."
        ),
    ] = None,
    minutes: Annotated[float, typer.Option(help="Length of an average video of these hours.")] = _DEFAULTS.minutes,
    videos: Annotated[int, typer.Option(help="Videos in the drawn library that is searched.")] = _DEFAULTS.videos,
    seconds: Annotated[
        float,
        typer.Option(help="Time that it takes, about, on quiet cores, 20 at least; --sample takes half as long again."),
    ] = _DEFAULTS.seconds,
    seed: Annotated[int, typer.Option(help="The same seed takes the same parts of --sample.")] = _DEFAULTS.seed,
    as_json: AsJson = False,
) -> None:
    """Measure this machine, and say how long a collection takes: hapvr bench --sample ~/Videos.

    Films are drawn in a temporary folder, decoded, indexed and searched with what `add` and `search` use.
    """
    from hapvr.bench.report import format_report, to_json
    from hapvr.bench.run import run_bench

    config = BenchConfig(
        model=model,
        seconds=seconds,
        videos=videos,
        hours=tuple(hours or _DEFAULTS.hours),
        minutes=minutes,
        sample=sample,
        seed=seed,
    )
    with raise_on_sigterm(), progress_bars(quiet=as_json) as progress:
        result = run_bench(config, progress=progress)
    show(as_json, to_json(result), map(escape, format_report(result)))


def doctor(
    library: Annotated[
        Path | None, typer.Argument(metavar="[LIBRARY]", help="The folder of a library, to describe it too.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print what a bug report needs: versions, processor, GPU, codecs, paths, free space, models: hapvr doctor.

    No secrets are printed: of variables such as HAPVR_TOKEN only that they are set; the home folder is written as ~.
    """
    from hapvr.bench.doctor import describe_installation, format_installation

    found = describe_installation(library)
    show(as_json, found, (escape(line) for line in format_installation(found)))
