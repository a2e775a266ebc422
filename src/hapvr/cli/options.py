"""Options and arguments that several commands share, with their help texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from hapvr.errors import ConfigError
from hapvr.places import Place, parse_place


class RateOptions(TypedDict):
    """How often frames are taken of a video."""

    fps: float | None
    keyframes: bool | None


def folder_or_address(text: str) -> Place:
    """The place of a library, as it is given; help texts show the name of this function."""
    return parse_place(text) if str(text).startswith("s3:") else Path(text)


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Model = Annotated[str | None, typer.Option(help="A model's name or folder; the default model if not given.")]
if TYPE_CHECKING:  # typer knows no unions
    LibraryFolder = Place
else:
    LibraryFolder = Annotated[
        Path,
        typer.Argument(
            metavar="LIBRARY",
            help="The folder of the library, or its address in an object store: s3://bucket/folder, az:// or gs://.",
            parser=folder_or_address,
        ),
    ]


def _connect(context: typer.Context, address: str | None) -> str | None:
    """Connect to a Ray cluster until the command ends: what is wrong with it is said before anything is made."""
    if address is not None and not context.resilient_parsing:
        from hapvr.workers.cluster import connect

        context.with_resource(connect(address))
    return address


Cluster = Annotated[
    str | None,
    typer.Option(
        "--ray",
        callback=_connect,
        metavar="ADDRESS|local",
        help="Let a Ray cluster do the work: HOST:PORT of its head node, `auto` on one of its nodes, or `local`. Files "
        "and libraries must be at the same paths on all its machines; --workers counts for each.",
    ),
]
VideoPaths = Annotated[list[Path], typer.Argument(metavar="VIDEOS", help="Video files, and folders of them.")]
Workers = Annotated[int | None, typer.Option(help="Number of processes; one per core, sixteen at most, if not given.")]
Rate = Annotated[
    str | None,
    typer.Option(
        "--rate",
        "--fps",
        metavar="FPS|keyframes",
        help="Frames per second, or `keyframes`: the key frames of each video, many times as fast for long videos, and "
        "coarse in time. If not given, the rate that the output was begun with, else the model's.",
    ),
]
Wait = Annotated[float, typer.Option(help="Seconds to wait while another process writes into the library.")]
Device = Annotated[
    str,
    typer.Option(
        metavar="DEVICE",
        help="Where to compute: cpu, cuda (all GPUs share the work), cuda:1, cuda:0,cuda:2 or mps. `auto`: the GPUs "
        "that are there, else the CPU.",
    ),
]
Prior = Annotated[
    float | None,
    typer.Option(
        help="Probability of a copy before the videos are compared, between 0 and 1; if not given, that of the "
        "model's judge (0.3 in the included models)."
    ),
]
SecondLook = Annotated[
    bool,
    typer.Option(
        "--second-look/--no-second-look",
        help="Compare a few instants of the files at full size where the verdict is undecided: about a second a pair.",
    ),
]
IgnoreShared = Annotated[
    bool,
    typer.Option(
        "--ignore-shared/--keep-shared",
        help="Whether footage that many videos of the library share, such as a title or an end card, makes no match.",
    ),
]
WebhookAddresses = Annotated[
    list[str] | None,
    typer.Option(
        "--webhook",
        metavar="URL",
        help="Post each new match to this address as JSON, signed if HAPVR_WEBHOOK_SECRET is set. Repeatable.",
    ),
]
HtmlPage = Annotated[
    Path | None, typer.Option("--html", help="Write a self-contained HTML page that shows the result.")
]
Reports = Annotated[
    list[Path] | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write a report: .json holds everything, .csv one row per result. Repeatable.",
    ),
]
Annotations = Annotated[
    Path | None, typer.Option(help="The annotation file of a published benchmark, or the folder that holds it.")
]
Missing = Annotated[
    str, typer.Option(help="Videos without a score: drop (leave them out), miss (count as not found) or error (stop).")
]


def parse_rate(rate: str | None) -> RateOptions:
    """What `--rate` means, as options of the functions behind the commands.

    >>> parse_rate("keyframes"), parse_rate("2"), parse_rate(None)
    ({'fps': None, 'keyframes': True}, {'fps': 2.0, 'keyframes': False}, {'fps': None, 'keyframes': None})
    """
    from hapvr.video.sampling import KEYFRAMES, MAX_FPS

    if rate is None or rate == KEYFRAMES:
        return {"fps": None, "keyframes": None if rate is None else True}
    try:
        fps = float(rate)
    except ValueError:
        fps = 0.0
    if not 0 < fps <= MAX_FPS:
        raise ConfigError(
            f"--rate must be a number of frames per second, above 0 and at most {MAX_FPS:,}, or `{KEYFRAMES}`; got "
            f"{rate!r}."
        )
    return {"fps": fps, "keyframes": False}


def split_label(word: str) -> tuple[str | None, str]:
    """A label and a place from `LABEL=PLACE`, or None and the place."""
    label, sign, place = word.partition("=")
    return (label, place) if sign and label else (None, word)


def name_places(words: Sequence[str]) -> dict[str, str]:
    """The place of each `[NAME=]PLACE` by its name, which is the last part of the place if none is given."""
    pairs = [(label or Path(place).stem or place, place) for label, place in map(split_label, words)]
    for name, count in Counter(name for name, _ in pairs).items():
        if count > 1:
            raise ConfigError(f"{count} models are called '{name}': give names, as in mine={dict(pairs)[name]}.")
    return dict(pairs)
