"""Answers of processes that are not trusted: all that they may hold comes through, and nothing else does any harm."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hapvr.records import Frames, VideoInfo
from hapvr.video.sandboxed import _Coming
from hapvr.workers.answers import NONSENSE, dump_answer, join_answer, load_answer, split_answer
from hapvr.workers.pool import _Inbox
from tests.video.test_sandboxed import assert_equal

FRAMES = Frames(
    np.arange(48, dtype=np.uint8).reshape(2, 2, 4, 3)[:, :, ::-1],
    np.array([0.0, 0.1]),
    np.array([True, False]),
    duration_s=None,
    fps=1.0,
    source_size=(4, 2),
    warnings=("it \udc80 ends early",),
)


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, -(2**70), 0.1, float("inf"), "a\0\udc80", (), [], {}, b"", b"bytes"),
        ([(1,), [2, (3, None)]], {"a": (1,), 2: [b"x"], None: {}}),
        *(np.float32(0.1), np.int64(-3), np.bool_(True), np.zeros((2, 0, 3), np.float32), np.array(2.5)),
        *(np.arange(12, dtype=">u2").reshape(3, 4).T, np.array(["a", "bcd"])),
        VideoInfo(1.5, (4, 2), None, 3, "mp4", "h264", 0),
        FRAMES,
        [FRAMES, (FRAMES.timestamps,)],
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_answer_comes_through(value: Any) -> None:
    text, arrays = dump_answer(value)
    for found in (load_answer(text, [array.copy() for array in arrays]), split_answer(join_answer(value))):
        if isinstance(value, tuple | list) and not any(isinstance(one, Frames) for one in value):
            assert repr(found) == repr(value)
        elif isinstance(value, list):
            assert_equal(found[0], value[0])
            assert_equal(found[1][0], value[1][0])
        else:
            assert_equal(found, value)


@pytest.mark.parametrize("value", [object(), {1, 2}, np.array([object()]), np.zeros(2, "u1,f4"), SimpleNamespace(), os])
def test_what_else_is_there_is_not_sent(value: Any) -> None:
    with pytest.raises(TypeError, match="an answer cannot hold a"):
        dump_answer([value])


@pytest.mark.parametrize(
    "text",
    [
        "", "[", "{}", "[]", '["tuple", {}]', '["no such kind"]', '["dict", [["list"], 1]]', '["dict", 1]',
        '["array", "O", [1], 0]', '["array", "V8", [1], 0]', '["array", "u1,O", [1], 0]', '["array", "<f8", [2], 0]',
        '["array", "u1", [-2], 0]', '["array", "u1", [9], 0]', '["array", "u1", [1], 1]', '["array", "u1", ["a"], 0]',
        '["array", "u1", [4611686018427387904, 4], 0]', '["array", [], [1], 0]', '["bytes", "a"]', '["scalar", 1]',
        '["record", "os", "mkdir", ["path", "made"]]', '["record", "subprocess", "Popen", ["args", "true"]]',
        '["record", "hapvr.records", "Frames"]', '["record", "hapvr.records", "np"]', '["record", [], "Frames"]',
        '["record", "hapvr.records", "VideoInfo", ["__class__", 1]]',
        '["record", "hapvr.workers.sandbox", "Sandbox"]', "9" * 5000, "[" * 100_000,
    ],
)  # fmt: skip
def test_nonsense_is_an_error_and_nothing_more(text: str) -> None:
    with pytest.raises(NONSENSE):
        load_answer(text.encode(), [bytearray(b"AAAAAAAA")])


def test_an_answer_that_contradicts_itself_is_an_error() -> None:
    whole = join_answer({"a": np.arange(5), "b": b"x"})
    head = json.dumps([2, 2**60]).encode()
    lies = [len(head).to_bytes(8, "big") + head + b"[]", pickle.dumps((None, 1, None)), b"\xff" * 8, b""]
    for answer in (*lies, *(whole[:end] for end in range(len(whole)))):
        with pytest.raises(NONSENSE):
            split_answer(answer)


def test_half_a_message_is_not_waited_for() -> None:
    here, there = multiprocessing.Pipe()
    inbox = _Inbox(here)
    messages = [b"first", b"", b"z" * 70_000]
    for message in messages:
        there.send_bytes(message)
    found: list[bytes] = []
    while len(found) < 3:
        found += inbox.read()
    assert found == messages
    os.write(there.fileno(), b"\0\0\0\x04ab")
    assert inbox.read() == []
    os.write(there.fileno(), b"cd")
    assert inbox.read() == [b"abcd"]
    os.write(there.fileno(), b"\x7f\xff\xff\xff")
    with pytest.raises(EOFError):  # two gigabytes to come
        inbox.read()
    there.close()
    with pytest.raises(EOFError):
        _Inbox(here).read()


def test_a_value_that_comes_in_pieces_is_filled_as_it_was_announced() -> None:
    def block(note: Any) -> Any:
        return SimpleNamespace(note=note, data=np.arange(8, dtype=np.uint8))

    text, _ = dump_answer(np.zeros(10, np.uint8))
    coming = _Coming((text, (10,)))
    for lie in (0, -1, 9, 11, True, 2.0, "4", None):  # a block of nothing could come for ever
        with pytest.raises(NONSENSE):
            coming.add(block(lie))
    coming.add(block(8))
    with pytest.raises(NONSENSE):
        coming.add(block(3))
    assert coming.add(block(2)).is_whole()
    assert coming.load().tolist() == [*range(8), 0, 1]
    for sizes in ((2**40,), (2**40, -(2**40)), (-1,), (1.5,), ("1",), 3):
        with pytest.raises(NONSENSE):
            _Coming((text, sizes))
