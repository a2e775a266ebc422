"""Reading frozen dataclasses from JSON or TOML mappings: unknown keys are refused with a suggestion."""

from __future__ import annotations

import dataclasses
import difflib
import sys
from collections.abc import Mapping
from typing import Any, TypeVar

from hapvr.errors import ConfigError

Config = TypeVar("Config")


_NAMED, _LOOKED_AT = 40, 20_000  # known words that a message names, and among which it looks for a near one


def suggest(word: str, known: list[str]) -> str:
    """The end of an error message: the nearest known word, or all of them.

    >>> suggest("keep_rates", ["keep_rate", "kind"])
    "did you mean 'keep_rate'?"
    >>> suggest("zzz", ["keep_rate", "kind"])
    'known: keep_rate, kind.'
    """
    near = difflib.get_close_matches(word, known[:_LOOKED_AT], n=1)
    if near:
        return f"did you mean '{near[0]}'?"
    more = f" and {len(known) - _NAMED:,} more" if len(known) > _NAMED else ""
    return f"known: {', '.join(known[:_NAMED])}{more}."


def from_mapping(cls: type[Config], mapping: Mapping[str, Any]) -> Config:
    """Build the dataclass `cls` from a mapping: absent keys take their defaults, unknown keys are refused."""
    if not isinstance(mapping, Mapping):
        raise ConfigError(f"{cls.__name__} is read from a table of settings, got a {type(mapping).__name__}.")
    known = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    for key in mapping:
        if key not in known:
            raise ConfigError(f"{cls.__name__} has no field '{key}'; {suggest(str(key), known)}")
    return cls(**mapping)


def parse_toml(text: str, source: str) -> dict[str, Any]:
    """The tables of a TOML text; `source` names it in errors."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        try:
            import tomli as tomllib
        except ModuleNotFoundError:
            raise ConfigError("Python 3.10 reads TOML with the package tomli. Install it: pip install tomli") from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source} is not TOML: {error}.") from None
