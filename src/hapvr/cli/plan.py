"""`hapvr plan`: what a collection of any size needs, by arithmetic on measured rates."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hapvr.bench.plan import Collection, MachineKind, format_plan, make_plan
from hapvr.bench.plan_rates import REFERENCE, Prices, read_prices, read_rates
from hapvr.cli.options import AsJson
from hapvr.cli.terminal import escape, show
from hapvr.errors import ConfigError


def plan(
    videos: Annotated[int, typer.Option(help="Videos in the collection.")],
    minutes: Annotated[float, typer.Option(help="Length of an average video.")] = Collection.minutes,
    queries_per_s: Annotated[float, typer.Option(help="Searches a second.")] = Collection.queries_per_s,
    film: Annotated[
        str, typer.Option(help="Codec and resolution: a kind of film of the run of `hapvr bench`, or `sample`.")
    ] = "1080p30",
    keyframes: Annotated[bool, typer.Option("--keyframes", help="Index key frames alone.")] = False,
    model: Annotated[str | None, typer.Option(help="Refuse rates of another model.")] = None,
    bench: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="What `hapvr bench --json` printed on your machine; a run of the project's if not given.",
        ),
    ] = None,
    gpu_pictures_per_s: Annotated[
        float | None, typer.Option(help="Describe frames on GPUs of this rate; the cores decode.")
    ] = None,
    days: Annotated[float, typer.Option(help="Time within which all videos are indexed.")] = Collection.days,
    cores: Annotated[
        int | None, typer.Option(help="Cores of a machine; as many as the one that was measured if not given.")
    ] = None,
    memory_gb: Annotated[float | None, typer.Option(help="Memory of a machine; the same.")] = None,
    disk_gb: Annotated[float, typer.Option(help="Disk of a machine; 0: large enough.")] = MachineKind.disk_gb,
    max_shard_videos: Annotated[
        int, typer.Option(help="Divide the collection into libraries of this many videos at most; 0: as many as fit.")
    ] = MachineKind.max_shard_videos,
    prices: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="TOML with machine_hour, gpu_hour, storage_gb_month, currency."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what a collection needs, with the arithmetic shown: hapvr plan --videos 1000000 --minutes 5.

    Storage, memory, core-hours, machines, money in your own prices, and which stage saturates first.
    """
    rates = read_rates(bench or REFERENCE, film=film, keyframes=keyframes)
    if model is not None and model != rates.model:
        raise ConfigError(
            f"The rates are of the model '{rates.model}'. Measure yours: hapvr bench --model {model} --json > "
            "bench.json; hapvr plan --bench bench.json"
        )
    if memory_gb is None and rates.memory_gib is None:
        raise ConfigError("The run of `hapvr bench` does not know its machine's memory: give --memory-gb.")
    machine = MachineKind(
        cores=cores or rates.cores,
        memory_gb=memory_gb if memory_gb is not None else (rates.memory_gib or 0.0) * 2**30 / 1e9,
        disk_gb=disk_gb,
        max_shard_videos=max_shard_videos,
    )
    found = make_plan(
        Collection(videos=videos, minutes=minutes, queries_per_s=queries_per_s, days=days),
        rates,
        machine=machine,
        prices=Prices() if prices is None else read_prices(prices),
        gpu_pictures_per_s=gpu_pictures_per_s,
    )
    show(as_json, found.to_json(), map(escape, format_plan(found)))
