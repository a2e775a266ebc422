"""The storage engine, LanceDB: what it raises comes out as one exception; few files, few old versions, an index."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from lancedb.index import IvfRq

from hapvr.errors import HapvrError

Result = TypeVar("Result")

_PANICS = ("PanicException", "RustPanic")  # classes that cannot be imported; the first is a BaseException


class EngineError(RuntimeError):
    """LanceDB could not do what it was asked: a file is damaged or gone, the disk is full, ..."""


def call(action: Callable[[], Result]) -> Result:
    """Do something with LanceDB; `EngineError` if it cannot.

    >>> call(lambda: {}["rows"])
    Traceback (most recent call last):
    hapvr.library.engine.EngineError: KeyError: 'rows'
    """
    try:
        return action()
    except (HapvrError, MemoryError):
        raise
    except Exception as error:
        raise EngineError(_text(error)) from error
    except BaseException as error:
        if type(error).__name__ not in _PANICS:  # an interrupt is no answer of the engine
            raise
        raise EngineError(_text(error)) from error


def _text(error: BaseException) -> str:
    """What it says, on one line; with its kind where that says more."""
    lines = str(error).splitlines()
    if isinstance(error, (OSError, RuntimeError, ValueError)) and lines:
        return lines[0]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


_FRAGMENTS = 64  # of a table, before they are put together
_MOST_FRAGMENTS = 512
_KEEP_VERSIONS = timedelta(minutes=10)  # for readers that have not looked for newer ones
_KEEP_LITTLE = timedelta(seconds=1)


def compact_table(table: Any, check: Callable[[], None], *, thoroughly: bool) -> None:
    """Make few files of many, if there are too many or all is to be done `thoroughly`; free what is no longer used.

    `check` is called before: what is damaged would get new checksums.
    """
    if not thoroughly and not _is_scattered(table):
        return
    check()
    keep = _KEEP_LITTLE if thoroughly else _KEEP_VERSIONS
    table.optimize(cleanup_older_than=keep, delete_unverified=True)
    if thoroughly:  # what was just put together has a version before it, which is of no use now
        time.sleep(1.1 * _KEEP_LITTLE.total_seconds())
        table.optimize(cleanup_older_than=keep, delete_unverified=True)


def _is_scattered(table: Any) -> bool:
    fragments = table.stats()["fragment_stats"]
    small = fragments["num_small_fragments"]
    # Putting together writes everything anew: only when there is as much new as old, or too many files.
    largest = fragments["lengths"]["max"]
    return bool(small > _MOST_FRAGMENTS or (small > _FRAGMENTS and table.count_rows() >= 2 * largest))


def update_index(table: Any, check: Callable[[], None], *, indexed: int, thoroughly: bool) -> None:
    """Index the vectors of a table of which so many are indexed: all at first, then the new ones when they are many.

    `check` is called before anything is written.
    """
    count = table.count_rows()
    if indexed == 0:
        check()
        _build_index(table)
    elif count - indexed > (0 if thoroughly else max(20_000, count // 5)):
        check()
        table.optimize(cleanup_older_than=_KEEP_VERSIONS, delete_unverified=True)


def _build_index(table: Any) -> None:
    """In fewer partitions where so many vectors are alike that the usual number cannot be filled."""
    try:
        table.create_index("vector", config=IvfRq(distance_type="dot"))
    except RuntimeError as error:
        formed = re.search(r"could only form (\d+) non-empty clusters", str(error))
        if formed is None:
            raise
        table.create_index("vector", config=IvfRq(distance_type="dot", num_partitions=max(1, int(formed[1]) // 2)))
