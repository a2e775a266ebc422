"""Pickles of plain data, read without running anything that they name.

The pickle module is not asked to load them: the instructions are decoded one by one and carried out here, and those
that call, import or build objects are refused. What can come out is None, bool, int (64 bits), float, str, bytes, list,
tuple, dict, set and frozenset. The one exception are calls of `set`, `frozenset` and, for bytes, `bytes()` and
`_codecs.encode`, by which older pickles write such values; they too are carried out here.

A `pickle.Unpickler` whose `find_class` knows a few names only would not be enough: nine bytes make its table of
remembered values gigabytes large, and a key that is a tuple of shared tuples, 300 bytes, takes for ever to hash.

How far a hostile file gets: it may be 64 MiB, hold 5 million instructions, a million containers and 10 million entries
(counting what is shared as often as it is met), nested 32 deep. It is refused where it goes beyond. So reading takes at
most about 1 GiB, and half a minute; a published file of 3 MB takes a second.
"""

from __future__ import annotations

import os
import pickletools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hapvr.errors import DataError

MOST_BYTES = 64 * 2**20
MOST_INSTRUCTIONS = 5_000_000
MOST_CONTAINERS = 1_000_000
MOST_ENTRIES = 10_000_000
MOST_NESTED = 32

_SCALARS = (type(None), bool, int, float, str, bytes)
_CONTAINERS = (list, tuple, dict, set, frozenset)


def load_plain(path: str | os.PathLike[str]) -> Any:
    """The plain data of a pickle file. `DataError`, naming the file and what was refused, for anything else."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise DataError(f"'{path}' cannot be read: {error.strerror or error}.") from error
    if len(data) > MOST_BYTES:
        raise DataError(f"'{path}' is larger than {MOST_BYTES >> 20} MiB, which no published annotation is.")
    try:
        value = _Machine().run(data)
        _require_bounded(value)
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


class _Mark:
    """Where on the stack a run of items begins."""


class _Call:
    """A function that a pickle names and that may be carried out here."""

    def __init__(self, name: str) -> None:
        self.name = name


_MARK = _Mark()
_CALLS = {
    f"{module} {name}": _Call(name) for module in ("builtins", "__builtin__") for name in ("set", "frozenset", "bytes")
} | {"_codecs encode": _Call("encode")}


class _Machine:
    """Carries out pickle instructions on a stack, those for plain data only."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.containers = self.entries = 0

    def run(self, data: bytes) -> Any:
        for number, (code, argument, _) in enumerate(pickletools.genops(data)):
            if number >= MOST_INSTRUCTIONS:
                raise _RefusedError(f"it holds more than {MOST_INSTRUCTIONS:,} instructions")
            if code.name == "STOP":
                break
            if code.name in _PUSHES:
                self.push(_scalar(argument))
            elif (step := _STEPS.get(code.name)) is not None:
                step(self, argument)
            elif code.name not in _NOTHING:
                raise _RefusedError(
                    f"it uses {code.name}, which builds objects" + (f" ({argument})" if argument else "")
                )
        if len(self.stack) != 1:
            raise ValueError(f"it ends with {len(self.stack)} values instead of one")
        return _plain(self.stack[0])

    def push(self, value: Any) -> None:
        if isinstance(value, _CONTAINERS):
            self.containers += 1
            if self.containers > MOST_CONTAINERS:
                raise _RefusedError(f"it holds more than {MOST_CONTAINERS:,} containers")
        self.stack.append(value)

    def pop(self) -> Any:
        return _plain(self.stack.pop())

    def items(self) -> list[Any]:
        """What stands above the last mark; both leave the stack."""
        at = len(self.stack) - 1
        while self.stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise ValueError("a mark is missing")
        found = [_plain(value) for value in self.stack[at + 1 :]]
        del self.stack[at:]
        return found

    def tuple_of(self, count: int) -> None:
        if len(self.stack) < count:
            raise ValueError("the stack is empty")
        self.push(tuple(self.pop() for _ in range(count))[::-1])

    def top(self, kind: type) -> Any:
        if not self.stack or type(self.stack[-1]) is not kind:
            raise ValueError(f"a {kind.__name__} was expected")
        return self.stack[-1]

    def append(self, items: list[Any]) -> None:
        self.top(list).extend(items)

    def set_items(self, items: list[Any]) -> None:
        if len(items) % 2:
            raise ValueError("a key has no value")
        table = self.top(dict)
        for key, value in zip(items[::2], items[1::2], strict=True):
            table[_key(key)] = value

    def add_items(self, items: list[Any]) -> None:
        self.top(set).update(map(_key, items))

    def name(self, name: str) -> None:
        if name not in _CALLS:
            raise _RefusedError(f"it names {name.replace(' ', '.')[:80]}")
        self.stack.append(_CALLS[name])

    def name_on_stack(self) -> None:
        name, module = self.pop(), self.pop()
        self.name(f"{module} {name}")

    def call(self) -> None:
        arguments = self.pop()
        function = self.stack.pop()
        if not isinstance(function, _Call) or not isinstance(arguments, tuple):
            raise _RefusedError("it calls something that is no function of plain data")
        self.push(self._result(function.name, arguments))

    def _result(self, name: str, arguments: tuple[Any, ...]) -> Any:
        if name == "encode":
            if len(arguments) != 2 or not isinstance(arguments[0], str) or arguments[1] not in ("latin1", "latin-1"):
                raise _RefusedError("it calls _codecs.encode with something else than a text and latin1")
            self._count(len(arguments[0]))
            return arguments[0].encode("latin-1")
        if name == "bytes" and arguments:
            raise _RefusedError("it calls bytes")
        items = arguments[0] if arguments else []
        if len(arguments) > 1 or not isinstance(items, _CONTAINERS):
            raise _RefusedError(f"it calls {name} with something that is no list")
        self._count(len(items))
        return {"set": set, "frozenset": frozenset, "bytes": bytes}[name](map(_key, items))

    def _count(self, entries: int) -> None:
        # A short instruction copies what is on the stack: many of them would fill the memory.
        self.entries += entries
        if self.entries > MOST_ENTRIES:
            raise _RefusedError(f"it holds more than {MOST_ENTRIES:,} entries")

    def put(self, place: int) -> None:
        self.memo[place] = self.stack[-1]

    def get(self, place: int) -> None:
        if place not in self.memo:
            raise ValueError(f"it recalls value {place}, which it has not stored")
        self.stack.append(self.memo[place])


_PUSHES = frozenset([
    "NONE", "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT",
    "BINFLOAT", "STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8",
    "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"
])  # fmt: skip
_NOTHING = frozenset(["PROTO", "FRAME"])
_STEPS: dict[str, Callable[[_Machine, Any], None]] = {
    "NEWTRUE": lambda machine, _: machine.push(True),
    "NEWFALSE": lambda machine, _: machine.push(False),
    "MARK": lambda machine, _: machine.stack.append(_MARK),
    "POP": lambda machine, _: machine.stack.__delitem__(-1),
    "POP_MARK": lambda machine, _: machine.items().clear(),
    "DUP": lambda machine, _: machine.stack.append(machine.stack[-1]),
    "EMPTY_LIST": lambda machine, _: machine.push([]),
    "EMPTY_TUPLE": lambda machine, _: machine.push(()),
    "EMPTY_DICT": lambda machine, _: machine.push({}),
    "EMPTY_SET": lambda machine, _: machine.push(set()),
    "LIST": lambda machine, _: machine.push(machine.items()),
    "TUPLE": lambda machine, _: machine.push(tuple(machine.items())),
    "TUPLE1": lambda machine, _: machine.tuple_of(1),
    "TUPLE2": lambda machine, _: machine.tuple_of(2),
    "TUPLE3": lambda machine, _: machine.tuple_of(3),
    "DICT": lambda machine, _: _dict(machine, machine.items()),
    "FROZENSET": lambda machine, _: machine.push(frozenset(map(_key, machine.items()))),
    "APPEND": lambda machine, _: machine.append([machine.pop()]),
    "APPENDS": lambda machine, _: machine.append(machine.items()),
    "SETITEM": lambda machine, _: machine.set_items([machine.pop(), machine.pop()][::-1]),
    "SETITEMS": lambda machine, _: machine.set_items(machine.items()),
    "ADDITEMS": lambda machine, _: machine.add_items(machine.items()),
    "PUT": lambda machine, place: machine.put(place),
    "BINPUT": lambda machine, place: machine.put(place),
    "LONG_BINPUT": lambda machine, place: machine.put(place),
    "MEMOIZE": lambda machine, _: machine.put(len(machine.memo)),
    "GET": lambda machine, place: machine.get(place),
    "BINGET": lambda machine, place: machine.get(place),
    "LONG_BINGET": lambda machine, place: machine.get(place),
    "GLOBAL": lambda machine, name: machine.name(name),
    "STACK_GLOBAL": lambda machine, _: machine.name_on_stack(),
    "REDUCE": lambda machine, _: machine.call(),
}


def _dict(machine: _Machine, items: list[Any]) -> None:
    machine.push({})
    machine.set_items(items)


def _scalar(value: Any) -> Any:
    """An argument as the value it stands for: long numbers have no use here but to make tables slow."""
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise _RefusedError("it holds a whole number of more than 64 bits")
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, (_Mark, _Call)):
        raise ValueError("a mark or a function stands where a value was expected")
    return value


def _key(value: Any) -> Any:
    """A value that can be a key or in a set: a scalar, or a tuple of scalars."""
    if isinstance(value, tuple) and all(isinstance(part, _SCALARS) for part in value):
        return value
    if not isinstance(value, _SCALARS):
        raise _RefusedError(f"a {type(value).__name__} is a key or in a set")
    return value


def _require_bounded(value: Any) -> None:
    """Refuse what is endless, nested too deep, or too large once shared parts are counted wherever they are met."""
    sizes: dict[int, int] = {}  # entries within each container that was finished, by identity
    open_now: set[int] = set()
    stack: list[tuple[Any, Iterator[Any]]] = []

    def enter(container: Any) -> None:
        if id(container) in open_now:
            raise _RefusedError("a container holds itself")
        if len(stack) >= MOST_NESTED:
            raise _RefusedError(f"it is nested more than {MOST_NESTED} deep")
        open_now.add(id(container))
        sizes[id(container)] = len(container)
        parts = container.values() if isinstance(container, dict) else container
        stack.append((container, iter(parts)))

    if isinstance(value, _CONTAINERS):
        enter(value)
    while stack:
        container, parts = stack[-1]
        for part in parts:
            if isinstance(part, _CONTAINERS):
                if id(part) not in sizes or id(part) in open_now:
                    enter(part)
                    break
                sizes[id(container)] += sizes[id(part)]
        else:
            stack.pop()
            open_now.remove(id(container))
            if stack:
                sizes[id(stack[-1][0])] += sizes[id(container)]
        if sizes[id(container)] > MOST_ENTRIES:
            raise _RefusedError(f"it holds more than {MOST_ENTRIES:,} entries")
