"""Decoding call by call in a sandbox: the answers and errors of the functions themselves, and nothing else gets out."""

from __future__ import annotations

import dataclasses
import os
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hapvr.audio.description import describe_sound
from hapvr.errors import DecodeError, DecodeTimeoutError
from hapvr.records import Frames
from hapvr.video import sandboxed
from hapvr.video.decode import decode, decode_at, decode_chunks, find_seek_distances, probe
from hapvr.video.limits import DecodeLimits
from hapvr.video.sampling import SamplingConfig
from hapvr.video.sandboxed import call_sandboxed, iterate_sandboxed, start_decoder
from hapvr.workers.sandbox import Protections, find_protections
from tests.video import media
from tests.workers import sandbox_probe


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return media.write(tmp_path_factory.mktemp("sandboxed") / "a.mp4", media.moving(40), rate=10)


def assert_equal(one: Any, other: Any) -> None:
    """Bit by bit, within dataclasses and lists too."""
    assert type(one) is type(other)
    if dataclasses.is_dataclass(one):
        for field in dataclasses.fields(one):
            assert_equal(getattr(one, field.name), getattr(other, field.name))
    elif isinstance(one, np.ndarray):
        assert (one.dtype, one.shape, one.flags.writeable) == (other.dtype, other.shape, other.flags.writeable)
        assert one.tobytes() == other.tobytes()
    elif isinstance(one, list):
        assert len(one) == len(other)
        for pair in zip(one, other, strict=True):
            assert_equal(*pair)
    else:
        assert one == other


@pytest.mark.parametrize(
    ("function", "arguments", "options"),
    [
        (decode, (), {"fps": 10.0, "short_side": 320}),  # 16 MB: more than a block
        (decode, (), {"start_s": 1.0, "end_s": 2.0, "threads": 1}),
        (decode_at, ([0.5, 0.1], SamplingConfig(fps=10.0, short_side=64, crop=64)), {}),
        (probe, (), {}),
        (find_seek_distances, ([0.0, 1.5],), {}),
        (describe_sound, (), {}),
    ],
)
def test_an_answer_is_that_of_the_function(
    film: Path, function: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]
) -> None:
    assert_equal(call_sandboxed(function, film, *arguments, **options), function(film, *arguments, **options))


def test_sound_comes_through(tmp_path: Path) -> None:
    path = media.write_wave(tmp_path / "a.wav")
    assert_equal(call_sandboxed(describe_sound, path, end_s=1.0), describe_sound(path, end_s=1.0))


def test_an_answer_comes_in_parts_of_which_none_is_kept(film: Path) -> None:
    start_decoder()
    kept: list[weakref.ref[Frames]] = []
    times = []
    for part in iterate_sandboxed(decode_chunks, film, chunk=9, fps=10.0):
        assert not any(one() for one in kept)
        kept.append(weakref.ref(part))
        times += part.timestamps.tolist()
        del part
    assert len(kept) == 5
    assert times == decode(film, fps=10.0).timestamps.tolist()


def test_errors_are_those_of_the_function(tmp_path: Path) -> None:
    (tmp_path / "text.mp4").write_text("this is no video" * 100)
    (tmp_path / "empty.mp4").write_bytes(b"")
    for path in (tmp_path / "text.mp4", tmp_path / "empty.mp4", tmp_path / "absent.mp4", tmp_path):
        with pytest.raises(DecodeError) as expected:
            decode(path)
        with pytest.raises(DecodeError) as found:
            call_sandboxed(decode, path)
        assert (found.type, str(found.value)) == (expected.type, str(expected.value))


def test_a_process_is_kept_unless_it_is_left_at_work(film: Path) -> None:
    call_sandboxed(probe, film)
    (one, *_) = reversed(sandboxed._idle)
    with pytest.raises(DecodeError):
        call_sandboxed(probe, film.parent)
    assert one in sandboxed._idle
    parts = iterate_sandboxed(decode_chunks, film, chunk=9)
    next(parts)
    assert one not in sandboxed._idle
    call_sandboxed(probe, film)  # by another one meanwhile
    parts.close()  # type: ignore[attr-defined]
    assert one not in sandboxed._idle
    assert len(sandboxed._idle) <= sandboxed._MAX_IDLE


def crash(_path: str) -> None:
    os._exit(7)


def hang(_path: str, *, limits: DecodeLimits) -> None:
    time.sleep(1000 * limits.max_seconds)


def lie(path: str) -> None:
    made = f'["record", "os", "mkdir", ["path", "{path}/made"]]'
    vars(sandboxed).update(dump_answer=lambda _: (made.encode(), []))


def lie_in_parts(_path: str) -> Iterator[int]:
    yield 1
    raise ZeroDivisionError("never mind")


def test_what_goes_wrong_costs_that_call_alone(film: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandboxed, "_START_S", 0.0)
    call_sandboxed(probe, film)
    with pytest.raises(DecodeError, match=r"a\.mp4': the process that read it ended with code 7\. The file makes"):
        call_sandboxed(crash, film)
    with pytest.raises(DecodeTimeoutError, match=r"gave up after 0\.2 s"):
        call_sandboxed(hang, film, limits=DecodeLimits(max_seconds=0.2))
    with pytest.raises(DecodeError, match="an answer that makes no sense"):
        call_sandboxed(lie, film.parent)
    assert not (film.parent / "made").exists()
    with pytest.raises(DecodeError, match="ZeroDivisionError: never mind"):
        list(iterate_sandboxed(lie_in_parts, film))
    assert call_sandboxed(probe, film).fps == 10


def try_more(path: str, folder: str) -> dict[str, str]:
    return sandbox_probe.try_everything(folder, path)


@pytest.mark.skipif(
    find_protections() != Protections(True, True, True), reason="this system has no Landlock or no seccomp"
)
def test_the_process_can_do_nothing_else(film: Path, tmp_path: Path) -> None:
    tried = call_sandboxed(try_more, film, str(tmp_path))
    assert "done" not in tried.values(), tried
    assert not list(tmp_path.iterdir())
