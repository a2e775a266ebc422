"""The settings that features or frames in one place share, such as model and rate: which may be, and which mix."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hapvr.errors import ConfigError, StorageError

Setting = str | int | float | bool
"""A value of an attribute."""
VERSION_KEY = "hapvr_version"  # taken: the version of a file's layout


def check_attributes(attributes: Mapping[str, Setting]) -> None:
    """Raise `ConfigError` unless every attribute can be stored and read back as it is."""
    for name, value in attributes.items():
        if not isinstance(value, str | int | float | bool):
            raise ConfigError(f"The attribute '{name}' must be text, a number or a bool, got a {type(value).__name__}.")
        text = value.encode("utf-8", "replace") if isinstance(value, str) else b""
        if len(text) > 32_000 or text.endswith(b"\0") or (isinstance(value, str) and text.decode() != value):
            raise ConfigError(f"The attribute '{name}' must be valid Unicode, of 32,000 bytes at most, without NUL.")
        if not name or "\0" in name or name == VERSION_KEY:
            raise ConfigError(f"An attribute cannot be called {name!r}.")


def require_same(path: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Raise `StorageError` unless the attributes found at `path` have the values that are wanted."""
    for name, value in wanted.items():
        if name not in found or found[name] != value:
            has = f"{name} {found[name]!r}" if name in found else f"no {name}"
            raise StorageError(
                f"'{path}' was made with {has}, not with {name} {value!r}: these do not mix. Use another place, or the "
                "same settings."
            )


def sentence(error: BaseException) -> str:
    """The message of an error as a sentence, to be put into another.

    >>> sentence(OSError("no room")), sentence(MemoryError())
    ('no room.', 'MemoryError.')
    """
    text = str(error.args[0] if isinstance(error, KeyError) and error.args else error) or type(error).__name__
    return text if text.endswith(".") else text + "."
