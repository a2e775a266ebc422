"""Options and arguments that several commands share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from hapvr.errors import ConfigError

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Model = Annotated[str | None, typer.Option(help="A model's name or folder; the shipped one if not given.")]


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
