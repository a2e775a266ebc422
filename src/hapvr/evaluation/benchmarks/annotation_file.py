"""Reading annotation files: text, lists of ids, JSON, and checks whose errors say what to do."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from hapvr.errors import DataError
from hapvr.storage import StrPath

_MAX_BYTES = 256 * 2**20  # of a list
Item = TypeVar("Item")


def read_text(path: StrPath) -> str:
    """A UTF-8 text file, without a byte order mark."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DataError(f"'{path}' cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise DataError(f"'{path}' is no UTF-8 text: {error}.") from error


def read_lines(path: StrPath) -> Iterator[tuple[int, str]]:
    """The lines of a UTF-8 text file that are not empty, with their numbers from 1."""
    if Path(path).is_file() and Path(path).stat().st_size > _MAX_BYTES:
        raise DataError(f"'{path}' is larger than {_MAX_BYTES >> 20} MiB, which no published list is.")
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line := line.strip():
            yield number, line


def read_ids(path: StrPath) -> tuple[str, ...]:
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


def read_json(path: StrPath) -> Any:
    """A JSON file; `DataError` also if a table has one key twice."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"), object_pairs_hook=_make_table)
    except OSError as error:
        raise DataError(f"'{path}' cannot be read: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"'{path}' is no JSON that can be used: {error}.") from error


def _make_table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if (twice := find_repeated(key for key, _ in pairs)) is not None:
        raise ValueError(f"the key '{twice}' stands twice in one table")
    return dict(pairs)


def find_repeated(items: Iterable[Item]) -> Item | None:
    """The first item that occurs more than once; None if all are different.

    >>> find_repeated("abcb")
    'b'
    """
    return next((item for item, count in Counter(items).items() if count > 1), None)


def require_ids(ids: Iterable[Any], name: str) -> set[str]:
    """The ids as a set; `DataError` if one is no string, is empty, holds a NUL, or stands twice."""
    known: set[str] = set()
    for place, id in enumerate(ids):
        if not isinstance(id, str) or not id or "\0" in id:
            raise DataError(f"{name}: entry {place} is {id!r}, but an id is a string with at least one character.")
        if id in known:
            raise DataError(f"{name}: '{id}' stands there more than once. Give each id once.")
        known.add(id)
    return known


class AnnotationFile:
    """Checks of one annotation file: every error says which file, what it should be, and what was found."""

    def __init__(self, path: StrPath, expected: str) -> None:
        self.path, self.expected = path, expected

    def error(self, found: str) -> DataError:
        """The error to raise where something else is found."""
        return DataError(f"'{self.path}' is not {self.expected}: {found}. Give the file as its authors publish it.")

    def check_table(self, value: Any, name: str, keys: Iterable[str] = ()) -> dict[Any, Any]:
        """The value, if it is a dict that holds at least these keys."""
        if not isinstance(value, dict):
            raise self.error(f"{name} is a {type(value).__name__}, not a table")
        for key in keys:
            if key not in value:
                raise self.error(f"{name} has no '{key}'")
        return value

    def check_ids(self, value: Any, name: str) -> tuple[str, ...]:
        """The value, if it holds ids, each once: a list in its order, a set sorted."""
        if not isinstance(value, (list, tuple, set, frozenset)):
            raise self.error(f"{name} is a {type(value).__name__}, not a list of ids")
        if not all(isinstance(id, str) and id for id in value):
            raise self.error(f"{name} holds an id that is no string")
        if (twice := find_repeated(value)) is not None:
            raise self.error(f"{name} holds '{twice}' twice")
        return tuple(sorted(value)) if isinstance(value, (set, frozenset)) else tuple(value)
