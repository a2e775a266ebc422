"""The one door to the storage engine: whatever it raises, a panic of its Rust code too, comes out as one exception."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

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
