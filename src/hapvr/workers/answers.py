"""Answers of processes in a sandbox, which may not be trusted: plain values, arrays and records, as JSON and bytes.

Pickle is not used for them, even if it may name only a few classes. A pickle of ten bytes lets the reader take
gigabytes, and numpy believes what the pickle of an array or of its type says: memory at an address of somebody's choice
is then taken for an object. Here a few values are built one by one, and each is checked.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hapvr.errors import HapvrError

Bytes = NDArray[np.uint8]
NONSENSE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, HapvrError)
"""What reading a made-up answer may raise."""

_PLAIN = (type(None), bool, int, float, str)
_KINDS = "biufcSU"  # of numpy's types: numbers and text; none of them holds objects
_RECORDS = ("hapvr.records", "hapvr.video.", "hapvr.audio.")  # modules of records that an answer may name
_LENGTH_BYTES = 8


def dump_answer(value: Any) -> tuple[bytes, list[Bytes]]:
    """A value as text and the bytes of its arrays; `TypeError` if there is something else in it.

    >>> text, arrays = dump_answer({"a": (1, None), "b": np.zeros(3, np.uint16)})
    >>> text.decode(), [len(array) for array in arrays]
    ('["dict", ["a", ["tuple", 1, null]], ["b", ["array", "<u2", [3], 0]]]', [6])
    >>> load_answer(text, arrays)
    {'a': (1, None), 'b': array([0, 0, 0], dtype=uint16)}
    """
    arrays: list[Bytes] = []
    return json.dumps(_encode(value, arrays)).encode(), arrays


def load_answer(text: bytes, arrays: Sequence[Any]) -> Any:
    """The value; one of `NONSENSE` if it is none. Arrays are not copied: `arrays` are writable buffers."""
    return _decode(json.loads(text), arrays)


def join_answer(value: Any) -> bytes:
    """A value with its arrays in one piece; for small ones."""
    text, arrays = dump_answer(value)
    head = json.dumps([len(text), *map(len, arrays)]).encode()
    return b"".join([len(head).to_bytes(_LENGTH_BYTES, "big"), head, text, *(array.tobytes() for array in arrays)])


def split_answer(answer: bytes) -> Any:
    """The value that was joined; one of `NONSENSE` if it is none."""
    view = memoryview(answer)
    start = _LENGTH_BYTES + int.from_bytes(view[:_LENGTH_BYTES], "big")
    pieces = []
    for size in json.loads(bytes(view[_LENGTH_BYTES:start])):
        if not 0 <= size <= len(view) - start:
            raise ValueError("an answer is shorter than it says")
        pieces.append(bytearray(view[start : start + size]))
        start += size
    return load_answer(bytes(pieces[0]), pieces[1:])


def _encode(value: Any, arrays: list[Bytes]) -> Any:
    """A value as JSON: what JSON does not know is a list, of its kind and what it holds."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind in (tuple, list):
        return [kind.__name__, *(_encode(one, arrays) for one in value)]
    if kind is dict:
        return ["dict", *([_encode(key, arrays), _encode(one, arrays)] for key, one in value.items())]
    if kind is bytes:
        arrays.append(np.frombuffer(value, np.uint8))
        return ["bytes", len(arrays) - 1]
    if isinstance(value, np.generic) and value.dtype.kind in _KINDS:
        return ["scalar", _encode(np.asarray(value), arrays)]
    if kind is np.ndarray and value.dtype.kind in _KINDS:
        arrays.append(np.frombuffer(np.ascontiguousarray(value).data.cast("B") if value.size else b"", np.uint8))
        return ["array", value.dtype.str, list(value.shape), len(arrays) - 1]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [[field.name, _encode(getattr(value, field.name), arrays)] for field in dataclasses.fields(value)]
        return ["record", kind.__module__, kind.__qualname__, *fields]
    raise TypeError(f"an answer cannot hold a {kind.__name__}")


def _decode(found: Any, arrays: Sequence[Any]) -> Any:
    if not isinstance(found, list):
        if isinstance(found, dict):
            raise ValueError("an answer holds no objects of JSON")
        return found
    kind, *rest = found
    if kind in ("tuple", "list"):
        values = [_decode(one, arrays) for one in rest]
        return values if kind == "list" else tuple(values)
    if kind == "dict":
        return {_decode(key, arrays): _decode(one, arrays) for key, one in rest}
    if kind == "bytes":
        return bytes(arrays[rest[0]])
    if kind == "scalar":
        return _decode(rest[0], arrays)[()]
    if kind == "array":
        name, shape, number = rest
        dtype = np.dtype(str(name))
        if dtype.kind not in _KINDS:
            raise ValueError(f"an answer holds an array of '{name}'")
        return np.ndarray(tuple(shape), dtype, arrays[number])
    if kind == "record":
        module, name, *fields = rest
        return _find_record(module, name)(**{str(field): _decode(one, arrays) for field, one in fields})
    raise ValueError(f"an answer holds a '{kind}'")


def _find_record(module: str, name: str) -> Any:
    """A dataclass of frames, videos or sounds, which this process has loaded."""
    found = getattr(sys.modules.get(module), name, None)
    if isinstance(found, type) and dataclasses.is_dataclass(found) and module.startswith(_RECORDS):
        return found
    raise ValueError(f"an answer names {module}.{name}")
