"""What a file of features and a folder of packed frames have in common: a collection of ids, and shared attributes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from hapvr.errors import ConfigError, StorageError

Item = TypeVar("Item")
Setting = str | int | float | bool
"""A value of an attribute that features or frames in one place share, such as a model's name or a rate."""
VERSION_KEY = "hapvr_version"  # no attribute's name: the version of a file's layout


class StoredVideos(Generic[Item]):
    """What a file or folder holds of each video, by id: a collection of ids, in their order there."""

    def __init__(self, place: Path, videos: Mapping[str, Item]) -> None:
        self._place, self._videos = place, videos

    @property
    def ids(self) -> list[str]:
        """The ids of all videos, in the order in which they are stored."""
        return list(self._videos)

    def __len__(self) -> int:
        return len(self._videos)

    def __iter__(self) -> Iterator[str]:
        return iter(self._videos)

    def __contains__(self, id: object) -> bool:
        return id in self._videos

    def entry(self, id: str) -> Item:
        """What is stored of one video; `StorageError` if there is none of this id."""
        if id not in self._videos:
            known = ", ".join(f"'{known}'" for known in itertools.islice(self._videos, 3)) or "none"
            raise StorageError(f"'{self._place}' has no video '{id}' among its {len(self)} (such as {known}).")
        return self._videos[id]


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
    """Raise `StorageError` unless the attributes found at `path` have the values that are wanted.

    An attribute that is missing counts as 0: older files do not name what could not be chosen then.
    """
    for name, value in wanted.items():
        if found.get(name, 0) != value:
            has = f"{name} {found[name]!r}" if name in found else f"no {name}"
            raise StorageError(
                f"'{path}' was made with {has}, not with {name} {value!r}: these do not mix. Use another place, or the "
                "same settings."
            )
