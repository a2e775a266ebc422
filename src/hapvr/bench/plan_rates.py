"""What plans are computed from: rates of one machine from a file of `hapvr bench --json`, and prices."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from hapvr.bench.estimate import ScoreRate, SearchRate
from hapvr.config import CheckedConfig, Within, from_mapping, parse_toml
from hapvr.errors import ConfigError

REFERENCE = Path(__file__).with_name("reference.json")
"""A run of `hapvr bench --json` of the default model, for those who have none of their own."""
SAMPLE = "sample"
"""Stands for the user's own videos, where a run of `hapvr bench` was given `--sample`."""


@dataclass(frozen=True)
class Prices(CheckedConfig):
    """What the user pays; what is 0 is left out of a plan."""

    currency: str = ""
    machine_hour: Annotated[float, Within(0)] = 0.0
    gpu_hour: Annotated[float, Within(0)] = 0.0
    storage_gb_month: Annotated[float, Within(0)] = 0.0


@dataclass(frozen=True)
class Rates:
    """What one machine did, for one model and one kind of video."""

    machine: str  # in words
    model: str
    film: str  # such as 1080p30
    cores: int
    memory_gib: float | None
    megabits_per_s: float  # of the video files; 0 if it is not known
    frames_per_video_s: float
    decode_video_per_s: float | None  # None if decoding was not measured apart
    index_video_per_s: float  # decode and describe
    write_frames_per_s: float
    bytes_per_frame: float
    search: SearchRate
    scores: tuple[ScoreRate, ...]


def read_rates(path: Path, *, film: str, keyframes: bool = False) -> Rates:
    """The rates in a file of `hapvr bench --json`, of a kind of film that it has, or of `SAMPLE`."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"'{path}' cannot be read: {error.strerror or error}.") from error
    except ValueError as error:
        raise ConfigError(f"'{path}' is not JSON: {error}. It is written by: hapvr bench --json > {path}") from error
    if not isinstance(content, dict) or content.get("format") != 1 or "measured" not in content:
        raise ConfigError(f"'{path}' is not what `hapvr bench --json` of this version prints. Run it again.")
    try:
        return _parse_rates(content, film, keyframes)
    except ConfigError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"'{path}' lacks figures of `hapvr bench --json`: {error}. Run it again.") from error


def _parse_rates(content: Mapping[str, Any], film: str, keyframes: bool) -> Rates:
    machine, measured = content["machine"], content["measured"]
    films = {(one["name"], one["keyframes"]): one for one in measured["films"]}
    if film == SAMPLE:
        sample = (content.get("sample") or {}).get("keyframes" if keyframes else "usual")
        if sample is None:
            raise ConfigError("The run of `hapvr bench` has no sample of your videos: give it --sample FOLDER.")
        index, decode, megabits = sample, None, 0.0
    else:
        if (film, keyframes) not in films:
            known = ", ".join(dict.fromkeys(name for name, _ in films))
            raise ConfigError(f"film must be one of {known}, or '{SAMPLE}', of which there are rates; got '{film}'.")
        found = films[film, keyframes]
        index, decode, megabits = found["index"], found["decode"]["video_per_s"], found["megabits_per_s"]
    load = machine["load"]
    busy = "" if load is None else f", load {load:.1f} before the run"
    able = f" ({', '.join(machine['features'])})" if machine["features"] else ""
    rates = Rates(
        machine=f"{machine['cpu']}, {machine['cores']} cores{able}{busy}",
        model=content["model"]["name"],
        film=f"{film}, key frames" if keyframes else film,
        cores=int(machine["cores"]),
        memory_gib=machine["memory_gib"],
        megabits_per_s=float(megabits),
        frames_per_video_s=float(index["frames_per_video_s"]),
        decode_video_per_s=None if decode is None else float(decode),
        index_video_per_s=float(index["video_per_s"]),
        write_frames_per_s=float(measured["library"]["write_frames_per_s"]),
        bytes_per_frame=float(measured["library"]["bytes_per_frame"]),
        search=SearchRate(**measured["search"]),
        scores=tuple(ScoreRate(one["frames"], one["pairs_per_s"], one["segments_s"]) for one in measured["score"]),
    )
    for one in fields(rates):
        value = getattr(rates, one.name)
        if isinstance(value, float | int) and one.name != "megabits_per_s" and not 0 < value < math.inf:
            raise ValueError(f"{one.name} is {value}")
    return rates


def read_prices(path: Path) -> Prices:
    """Prices from a TOML file: `machine_hour`, `gpu_hour`, `storage_gb_month`, `currency`."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"'{path}' cannot be read: {error}.") from error
    return from_mapping(Prices, parse_toml(text, f"'{path}'"))
