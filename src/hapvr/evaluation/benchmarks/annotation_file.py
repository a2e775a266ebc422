"""What the readers share: text lists, and checks of an annotation file that say what to do."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from hapvr.errors import DataError

_MOST_BYTES = 256 * 2**20  # of a text file


def read_lines(path: str | os.PathLike[str]) -> Iterator[tuple[int, str]]:
    """The lines of a UTF-8 text file that are not empty, with their numbers from 1."""
    path = Path(path)
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise DataError(f"'{path}' is larger than {_MOST_BYTES >> 20} MiB, which no published list is.")
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DataError(f"'{path}' cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise DataError(f"'{path}' is no UTF-8 text: {error}.") from error
    for number, line in enumerate(text.split("\n"), start=1):
        if line := line.strip():
            yield number, line


def read_ids(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """A list of ids, one a line; each once."""
    ids: dict[str, int] = {}
    for number, line in read_lines(path):
        if len(line.split()) > 1 or "\0" in line:
            raise DataError(f"'{path}' line {number}: one id a line was expected, got {line[:80]!r}.")
        if line in ids:
            raise DataError(f"'{path}' line {number}: '{line}' stands on line {ids[line]} already.")
        ids[line] = number
    if not ids:
        raise DataError(f"'{path}' holds no id.")
    return tuple(ids)


class AnnotationFile:
    """Checks of one annotation file: every error says which file, what it should be, and what was found."""

    def __init__(self, path: str | os.PathLike[str], expected: str) -> None:
        self.path, self.expected = path, expected

    def error(self, found: str) -> DataError:
        """The error to raise where something else is found."""
        return DataError(f"'{self.path}' is not {self.expected}: {found}. Give the file as its authors publish it.")

    def table(self, value: Any, name: str, keys: Iterable[str] = ()) -> dict[Any, Any]:
        """A dict that holds at least these keys."""
        if not isinstance(value, dict):
            raise self.error(f"{name} is a {type(value).__name__}, not a table")
        for key in keys:
            if key not in value:
                raise self.error(f"{name} has no '{key}'")
        return value

    def ids(self, value: Any, name: str) -> tuple[str, ...]:
        """Ids, each once: a list in its order, a set sorted."""
        if not isinstance(value, (list, tuple, set, frozenset)):
            raise self.error(f"{name} is a {type(value).__name__}, not a list of ids")
        if not all(isinstance(id, str) and id for id in value):
            raise self.error(f"{name} holds an id that is no string")
        if len(set(value)) != len(value):
            seen: set[str] = set()
            twice = next(id for id in value if id in seen or seen.add(id))  # type: ignore[func-returns-value]
            raise self.error(f"{name} holds '{twice}' twice")
        return tuple(sorted(value)) if isinstance(value, (set, frozenset)) else tuple(value)
