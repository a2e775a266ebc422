"""Pickles of plain data, read without running anything that they name.

The instructions of a pickle are decoded by `pickletools` and carried out here; those that call, import or build objects
are refused. What can come out is None, bool, int (64 bits), float, str, bytes, list, tuple, dict, set and frozenset.
Older pickles write sets and bytes by calling `set`, `frozenset`, `bytes()` or `_codecs.encode`: these calls are carried
out here too.

A `pickle.Unpickler` whose `find_class` allows a few names is not enough: nine bytes make its memo gigabytes large, and
a key that is a tuple of shared tuples (300 bytes) takes years to hash.

A file may have 64 MiB, 5 million instructions, a million containers and 10 million entries (shared parts are counted
wherever they occur), nested 32 deep; beyond that it is refused. So reading takes at most about 1 GiB and half a minute;
a published file of 3 MB takes a second.
"""

from __future__ import annotations

import codecs
import pickletools
from pathlib import Path
from typing import Any

from hapvr.errors import DataError
from hapvr.storage import StrPath

MAX_BYTES = 64 * 2**20
MAX_INSTRUCTIONS = 5_000_000
MAX_CONTAINERS = 1_000_000
MAX_ENTRIES = 10_000_000
MAX_NESTED = 32

_SCALARS = (type(None), bool, int, float, str, bytes)
_CONTAINERS = (list, tuple, dict, set, frozenset)
_PUSH_ARGUMENT = frozenset([
    "NONE", "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT",
    "BINFLOAT", "STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8",
    "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"
])  # fmt: skip
_EMPTY = {"EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "EMPTY_DICT": dict, "EMPTY_SET": set}
_FUNCTIONS: dict[tuple[str, str], Any] = {
    (module, function.__name__): function
    for module in ("builtins", "__builtin__")
    for function in (set, frozenset, bytes)
} | {("_codecs", "encode"): codecs.encode}


def load_plain(path: StrPath) -> Any:
    """The plain data of a pickle file. `DataError`, naming the file and what was refused, for anything else."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise DataError(f"'{path}' cannot be read: {error.strerror or error}.") from error
    if len(data) > MAX_BYTES:
        raise DataError(f"'{path}' is larger than {MAX_BYTES >> 20} MiB, which no published annotation is.")
    try:
        value = _Machine().run(data)
        _count_entries([value], {})
    except _RefusedError as error:
        raise DataError(
            f"'{path}' is refused: {error}. Only pickles of plain lists, tables, sets, strings and numbers are read; "
            "nothing of this file was run."
        ) from error
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise DataError(
            f"'{path}' is no pickle, or is damaged or cut short: {error}. Get it again from where it is published."
        ) from error
    return value


class _RefusedError(Exception):
    """Something that plain data does not hold."""


class _Machine:
    """Carries out the pickle instructions for plain data on a stack."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.outer: list[list[Any]] = []  # the stack below each open mark
        self.memo: dict[int, Any] = {}
        self.containers = self.entries = 0

    def run(self, data: bytes) -> Any:
        for number, (code, argument, _) in enumerate(pickletools.genops(data)):
            if number >= MAX_INSTRUCTIONS:
                raise _RefusedError(f"it holds more than {MAX_INSTRUCTIONS:,} instructions")
            if code.name not in _PUSH_ARGUMENT:
                self.step(code.name, argument)
            elif isinstance(argument, int) and not -(2**63) <= argument < 2**64:  # long ones make tables slow
                raise _RefusedError("it holds a whole number of more than 64 bits")
            else:
                self.stack.append(argument)
        if len(self.stack) != 1 or self.outer:
            raise ValueError(f"it ends with {len(self.stack)} values instead of one")
        return self.stack[0]

    def step(self, name: str, argument: Any) -> None:
        match name:
            case "PROTO" | "FRAME" | "STOP":
                pass
            case "MEMOIZE":
                self.memo[len(self.memo)] = self.stack[-1]
            case "PUT" | "BINPUT" | "LONG_BINPUT":
                self.memo[argument] = self.stack[-1]
            case "GET" | "BINGET" | "LONG_BINGET":
                if argument not in self.memo:
                    raise ValueError(f"it recalls value {argument}, which it has not stored")
                self.stack.append(self.memo[argument])
            case "NEWTRUE" | "NEWFALSE":
                self.stack.append(name == "NEWTRUE")
            case "MARK":
                self.outer.append(self.stack)
                self.stack = []
            case "POP" if self.stack:
                self.stack.pop()
            case "POP" | "POP_MARK":
                self.pop_to_mark()
            case "DUP":
                self.stack.append(self.stack[-1])
            case "EMPTY_LIST" | "EMPTY_TUPLE" | "EMPTY_DICT" | "EMPTY_SET":
                self.push(_EMPTY[name]())
            case "LIST":
                self.push(self.pop_to_mark())
            case "TUPLE":
                self.push(tuple(self.pop_to_mark()))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                self.push(tuple(self.pop(int(name[-1]))))
            case "FROZENSET":
                self.push(frozenset(map(_check_key, self.pop_to_mark())))
            case "APPEND" | "APPENDS":
                items = self.pop(1) if name == "APPEND" else self.pop_to_mark()
                self.top(list).extend(items)
            case "DICT" | "SETITEM" | "SETITEMS":
                items = self.pop(2) if name == "SETITEM" else self.pop_to_mark()
                if name == "DICT":
                    self.push({})
                self.top(dict).update(zip(map(_check_key, items[::2]), items[1::2], strict=True))
            case "ADDITEMS":
                items = self.pop_to_mark()
                self.top(set).update(map(_check_key, items))
            case "GLOBAL":
                self.push_function(*argument.split(" ", 1))
            case "STACK_GLOBAL":
                self.push_function(*self.pop(2))
            case "REDUCE":
                self.push(self.call(*self.pop(2)))
            case _:
                raise _RefusedError(f"it uses {name}, which builds objects" + (f" ({argument})" if argument else ""))

    def push(self, container: Any) -> None:
        self.containers += 1
        if self.containers > MAX_CONTAINERS:
            raise _RefusedError(f"it holds more than {MAX_CONTAINERS:,} containers")
        self.stack.append(container)

    def pop(self, count: int) -> list[Any]:
        if len(self.stack) < count:
            raise ValueError("the stack is empty")
        items = self.stack[-count:]
        del self.stack[-count:]
        return items

    def pop_to_mark(self) -> list[Any]:
        items, self.stack = self.stack, self.outer.pop()
        return items

    def top(self, kind: type) -> Any:
        if type(self.stack[-1]) is not kind:
            raise ValueError(f"a {kind.__name__} was expected")
        return self.stack[-1]

    def push_function(self, module: Any, name: Any) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise ValueError("the name of a function is no text")
        if (module, name) not in _FUNCTIONS:
            raise _RefusedError(f"it names {module[:80]}.{name[:80]}")
        self.stack.append(_FUNCTIONS[module, name])

    def call(self, function: Any, arguments: Any) -> Any:
        if not callable(function) or not isinstance(arguments, tuple):  # only those of _FUNCTIONS are
            raise _RefusedError("it calls something that is no function of plain data")
        items = arguments[0] if arguments else ()
        if function is codecs.encode:
            if len(arguments) != 2 or not isinstance(items, str) or arguments[1] not in ("latin1", "latin-1"):
                raise _RefusedError("it calls _codecs.encode with something else than a text and latin1")
        elif len(arguments) > 1 or not isinstance(items, _CONTAINERS) or (function is bytes and arguments):
            raise _RefusedError(f"it calls {function.__name__} with something that is no list")
        # A short instruction copies what is on the stack: many of them would fill the memory.
        self.entries += len(items)
        if self.entries > MAX_ENTRIES:
            raise _RefusedError(f"it holds more than {MAX_ENTRIES:,} entries")
        return items.encode("latin-1") if isinstance(items, str) else function(map(_check_key, items))


def _check_key(value: Any) -> Any:
    """The value if it can be a key or in a set: a scalar, or a tuple of scalars."""
    if isinstance(value, tuple) and all(isinstance(part, _SCALARS) for part in value):
        return value
    if not isinstance(value, _SCALARS):
        raise _RefusedError(f"a {type(value).__name__} is a key or in a set")
    return value


def _count_entries(container: Any, known: dict[int, int], inside: tuple[int, ...] = ()) -> int:
    """The entries of a container, shared parts counted wherever they occur; refuses what is endless, deep or large.

    `known` holds the counts of the containers that are finished, by identity; `inside` those that are not.
    """
    if id(container) in inside:
        raise _RefusedError("a container holds itself")
    if len(inside) > MAX_NESTED:  # the outermost list is not the file's
        raise _RefusedError(f"it is nested more than {MAX_NESTED} deep")
    if id(container) not in known:
        total = len(container)
        for part in container.values() if isinstance(container, dict) else container:
            if isinstance(part, _CONTAINERS):
                total += _count_entries(part, known, (*inside, id(container)))
            elif not isinstance(part, _SCALARS):
                raise ValueError("a function stands where a value was expected")
            if total > MAX_ENTRIES:
                raise _RefusedError(f"it holds more than {MAX_ENTRIES:,} entries")
        known[id(container)] = total
    return known[id(container)]
