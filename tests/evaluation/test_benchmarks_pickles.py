"""Pickles: every plain value comes back, nothing else does, and nothing runs."""

from __future__ import annotations

import collections
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hapvr.errors import DataError
from hapvr.evaluation import load_plain, safe_pickle

FILES = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.binary(max_size=5)
)
KEYS = SCALARS | st.tuples(SCALARS, SCALARS)
PLAIN = st.recursive(
    SCALARS | st.sets(KEYS, max_size=3) | st.frozensets(KEYS, max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=4)
        | inner.map(lambda value: [value, value])  # shared
    ),
    max_leaves=12,
)


def same(first: Any, second: Any) -> bool:
    """Equal, and of the same types all the way down (True is no 1)."""
    if type(first) is not type(second) or first != second:
        return False
    if isinstance(first, dict):
        return all(same(value, second[key]) for key, value in first.items())
    return not isinstance(first, (list, tuple)) or all(map(same, first, second))


def load(folder: Path, data: bytes) -> Any:
    path = folder / "file.pickle"
    path.write_bytes(data)
    return load_plain(path)


@FILES
@given(value=PLAIN, protocol=st.integers(0, 5))
def test_plain_values_come_back(tmp_path: Path, value: Any, protocol: int) -> None:
    assert same(load(tmp_path, pickle.dumps(value, protocol=protocol)), value)


def test_many_entries_come_back(tmp_path: Path) -> None:
    value = {
        "ids": {f"video {number}" for number in range(3000)},
        "rows": [{"a": [number / 7]} for number in range(700)],
    }
    for protocol in range(6):
        assert load(tmp_path, pickle.dumps(value, protocol=protocol)) == value


class Evil:
    """Runs a command when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.folder / 'ran'}",)


@pytest.mark.parametrize("protocol", range(6))
def test_a_malicious_pickle_does_not_run(tmp_path: Path, protocol: int) -> None:
    data = pickle.dumps({"queries": [Evil(tmp_path)]}, protocol=protocol)
    with pytest.raises(DataError, match=r"file\.pickle' is refused: it names (posix|nt)\.system.*nothing of this file"):
        load(tmp_path, data)
    assert not (tmp_path / "ran").exists()
    pickle.loads(data)  # the same file does run where nobody looks
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("data", "refused"),
    [
        (b"cbuiltins\neval\n(V1\ntR.", r"names builtins\.eval"),
        (b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93\x8c\x011\x85R.", r"names builtins\.eval"),
        (b"(ios\nsystem\n.", "uses INST"),
        (b"(V1\nos\nsystem\no.", "no pickle|refused"),
        (b"cbuiltins\nset\n(V1\nV2\ntR.", "calls set with something that is no list"),
        (b"c_codecs\nencode\n(V1\nVrot13\ntR.", r"calls _codecs\.encode with something else"),
        (b"(V1\ntV1\nR.", "refused"),
        (b"Pname\n.", "uses PERSID"),
        (b"\x80\x02\x82\x01.", "uses EXT1"),
        (b"\x80\x02]}b.", "uses BUILD"),
        (b"\x80\x02cbuiltins\nset\n)\x81.", "uses NEWOBJ"),
        (b"cbuiltins\nset\n.", "no pickle"),
        (b"(.", "no pickle"),
        (b"]]a.", None),
        (b"]0.", "ends with 0 values"),
        (b"]].", "ends with 2 values"),
        (b"}]]s.", "a list is a key"),
        (b"h\x05.", "recalls value 5"),
        (b"e.", "no pickle"),
        (b"a.", "no pickle"),
        (b"]V1\nV2\ns.", "no pickle"),
        (b"q\x00.", "no pickle"),
        (b"", "no pickle"),
        (b"not a pickle", "no pickle"),
    ],
)
def test_what_is_not_plain_is_refused(tmp_path: Path, data: bytes, refused: str | None) -> None:
    if refused is None:
        assert load(tmp_path, data) == [[]]
        return
    with pytest.raises(DataError, match=refused):
        load(tmp_path, data)


OTHERS = [np.zeros(2), np.float32(1), collections.OrderedDict(a=1), collections.Counter("a"), 1 + 2j, bytearray(b"a"),
          range(3), Path("a"), {"a": print}, 2**70]  # fmt: skip


@pytest.mark.parametrize("value", OTHERS)
def test_other_values_are_refused(tmp_path: Path, value: Any) -> None:
    for protocol in (2, 4, 5):
        with pytest.raises(DataError, match=r"file\.pickle' is refused"):
            load(tmp_path, pickle.dumps(value, protocol=protocol))


def test_a_pickle_cut_short_anywhere_is_refused(tmp_path: Path) -> None:
    value = {"queries": ["a", "b"], "database": {"c"}, "rows": ({1: 2.5}, None, b"x")}
    for protocol in (0, 2, 4):
        data = pickle.dumps(value, protocol=protocol)
        for length in range(len(data)):
            with pytest.raises(DataError, match=r"no pickle|refused"):
                load(tmp_path, data[:length])


@FILES
@given(value=PLAIN, protocol=st.integers(0, 5), place=st.integers(0, 10**6), byte=st.integers(0, 255))
def test_a_damaged_byte_never_gives_another_error(
    tmp_path: Path, value: Any, protocol: int, place: int, byte: int
) -> None:
    data = bytearray(pickle.dumps(value, protocol=protocol))
    data[place % len(data)] = byte
    try:
        load(tmp_path, bytes(data))
    except DataError:
        return


def laughs(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value, value, value, value]
    return value


def endless() -> Any:
    value: list[Any] = []
    value.append({"a": (value,)})
    return value


SET_COPIES = b"\x80\x02c__builtin__\nset\nq\x00](" + b"".join(b"K" + bytes([n]) for n in range(100)) + b"eq\x01"


@pytest.mark.parametrize(
    ("data", "refused"),
    [
        (pickle.dumps(laughs(30)), "entries"),  # 300 bytes that stand for 10^18 lists
        (pickle.dumps(endless()), "holds itself"),
        (b"\x80\x02)" + b"\x85" * 50 + b".", "nested more than 32"),
        (SET_COPIES + b"h\x00h\x01\x85R" * 20 + b".", "entries"),
        (b"\x80\x04(" + b"\x8f" * 600 + b"l.", "containers"),
        (b"\x80\x04]" + b"\x94" * 3000 + b".", "instructions"),
        (b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40) + b".", "no pickle"),
        (b"N" * 10_001, r"larger than 0 MiB"),
    ],
)
def test_a_file_that_would_fill_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, refused: str
) -> None:
    for name, limit in (("BYTES", 10_000), ("INSTRUCTIONS", 2000), ("CONTAINERS", 500), ("ENTRIES", 1500)):
        monkeypatch.setattr(safe_pickle, f"MAX_{name}", limit)
    with pytest.raises(DataError, match=refused):
        load(tmp_path, data)


def test_a_far_place_in_the_memo_takes_no_memory(tmp_path: Path) -> None:
    assert load(tmp_path, b"\x80\x02]r\xff\xff\xff\x7f.") == []


def test_a_file_that_is_not_there_is_a_data_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read: No such file"):
        load_plain(tmp_path / "none")
    with pytest.raises(DataError, match="cannot be read"):
        load_plain(tmp_path)


def test_a_function_whose_name_is_a_nest_of_lists_is_refused_at_once(tmp_path: Path) -> None:
    nest = pickle.dumps(laughs(30), protocol=4)[:-1]  # as text it would be as long as 10^18 lists
    for names in (nest + b"\x8c\x01a", b"\x80\x04\x8c\x01a" + nest[2:]):
        with pytest.raises(DataError, match="no text"):
            load(tmp_path, names + b"\x93.")
