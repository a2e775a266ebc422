"""Frozen dataclasses as settings: read from JSON or TOML mappings, and checked by the types of their fields."""

from __future__ import annotations

import dataclasses
import difflib
import math
import sys
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

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


class Within(NamedTuple):
    """The lowest and the highest value of a setting, both allowed, and what an error adds."""

    low: float = -math.inf
    high: float = math.inf
    hint: str = ""


Share = Annotated[float, Within(0, 1)]
Range = tuple[float, float]  # lowest and highest


class CheckedConfig:
    """The base of frozen dataclasses whose fields are checked against their types.

    Checked are int, float, str, bool, `Literal`, tuples of str and ranges (pairs of int or of float), within the bounds
    that `Annotated[TYPE, Within(...)]` gives. A list stands for a tuple, as in JSON. Other types are left to the class.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Clip(CheckedConfig):
    ...     frames: Annotated[int, Within(1)] = 8
    ...     zoom: Annotated[Range, Within(0, 1)] = (0.5, 1.0)
    >>> Clip(frames=0)
    Traceback (most recent call last):
    hapvr.errors.ConfigError: Clip.frames must be a whole number of at least 1, got 0.
    """

    def __post_init__(self) -> None:
        for name, hint in _type_hints(type(self)).items():  # type: ignore[arg-type]
            value = getattr(self, name)
            kind, within = get_args(hint)[:2] if get_origin(hint) is Annotated else (hint, Within())
            if isinstance(value, list) and get_origin(kind) is tuple:
                object.__setattr__(self, name, value := tuple(value))
            if wrong := _find_fault(value, kind, within):
                raise ConfigError(f"{type(self).__name__}.{name} {wrong}{' ' + within.hint if within.hint else ''}")


@cache
def _type_hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls, include_extras=True)


def _find_fault(value: Any, kind: Any, within: Within) -> str | None:
    """The rest of a sentence that begins with the setting's name; None for a value that may stay."""
    low, high = within.low, within.high
    if get_origin(kind) is Literal:
        known = list(get_args(kind))
        return None if value in known else f"cannot be {value!r}; {suggest(str(value), known)}"
    if kind in (bool, str):
        words = "true or false" if kind is bool else "a text"
        return None if isinstance(value, kind) else f"must be {words}, got {value!r}."
    if kind in (int, float):
        number = "a whole number" if kind is int else "a number"
        limits = (
            "" if low == -math.inf else f" of at least {low:g}" if high == math.inf else f" from {low:g} to {high:g}"
        )
        fits = _is_number(value, kind) and low <= value <= high
        return None if fits else f"must be {number}{limits}, got {value!r}."
    if kind == tuple[str, ...]:
        fits = isinstance(value, tuple) and all(isinstance(name, str) for name in value)
        return None if fits else f"must be a list of texts, got {value!r}."
    if get_origin(kind) is tuple and len(get_args(kind)) == 2:
        each = get_args(kind)[0]
        fits = isinstance(value, tuple) and len(value) == 2 and all(_is_number(end, each) for end in value)
        numbers = " of whole numbers" if each is int else ""
        wrong = f"must be a range{numbers} (lowest, highest) within {low:g} to {high:g}, got {value!r}."
        return None if fits and low <= value[0] <= value[1] <= high else wrong
    return None


def _is_number(value: Any, kind: type) -> bool:
    known = int if kind is int else (int, float)
    return isinstance(value, known) and not isinstance(value, bool) and math.isfinite(value)


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
