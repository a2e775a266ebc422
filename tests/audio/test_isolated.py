"""Sound from another process: the same as in this one, and no answer of it does harm."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hapvr.audio import isolated
from hapvr.audio.description import describe_sound
from hapvr.audio.isolated import describe_sound_isolated, read_answer
from hapvr.synthetic.sounds import RATE, add_sound, draw_sound, write_sound
from hapvr.video.limits import DecodeLimits
from tests.video import media

QUICK = DecodeLimits(max_seconds=0.2)
WHOLE = {"state": "ready", "seconds": 2.0, "warning": None, "frames": [-1, 3, 3], "bins": [255, 0, 9]}


@pytest.mark.parametrize("kind", ["song", "silence", "no track"])
def test_gives_what_the_function_gives(tmp_path: Path, kind: str) -> None:
    path = media.write(tmp_path / "a.mp4", media.moving(60), rate=10)
    if kind != "no track":
        sound = draw_sound(1, 6.0) if kind == "song" else np.zeros(6 * RATE, np.float32)
        add_sound(path, sound, tmp_path / "b.mp4")
        path = tmp_path / "b.mp4"
    here, there = (read(path, start_s=1.0, end_s=5.0) for read in (describe_sound, describe_sound_isolated))
    assert here.state == {"song": "ready", "silence": "silent", "no track": "none"}[kind]
    assert (len(here.peaks) > 0) == (kind == "song")
    assert (there.state, there.seconds, there.warning) == (here.state, here.seconds, here.warning)
    np.testing.assert_array_equal(there.peaks.frames, here.peaks.frames)
    np.testing.assert_array_equal(there.peaks.bins, here.peaks.bins)


def test_what_cannot_be_read_is_failed_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "bad.mp4").write_bytes(b"nothing")
    found = describe_sound_isolated(tmp_path / "bad.mp4")
    assert (found.state, len(found.peaks)) == ("failed", 0)
    assert "cannot be decoded" in str(found.warning)
    write_sound(draw_sound(1, 2.0), tmp_path / "a.wav")
    found = describe_sound_isolated(tmp_path / "a.wav", limits=DecodeLimits(max_seconds=1e-9))
    assert (found.state, "1e-09 s" in str(found.warning)) == ("failed", True)


def run(program: str) -> Any:
    return read_answer([sys.executable, "-c", program], QUICK)


def test_a_process_that_ends_without_an_answer_is_named() -> None:
    assert "ended with code 3 without an answer" in str(run("raise SystemExit(3)").warning)
    assert "ended with code 0 without an answer" in str(run("print('{', end='')").warning)


def test_a_process_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated, "_START_S", 0.0)
    found = run("import time; time.sleep(600)")
    assert (found.state, found.warning) == ("failed", "it took longer than 0.2 s.")


@pytest.mark.parametrize(
    "change",
    [
        lambda _: [],
        lambda answer: answer | {"state": "loud"},
        lambda answer: answer | {"seconds": "2"},
        lambda answer: answer | {"warning": 3},
        lambda answer: answer | {"frames": [3, 1, 2]},
        lambda answer: answer | {"frames": [1, 2]},
        lambda answer: answer | {"frames": [1, 2, 2**40]},
        lambda answer: answer | {"frames": [1, 2, 10**30]},
        lambda answer: answer | {"frames": [[1], [2], [3]], "bins": [[1], [2], [3]]},
        lambda answer: answer | {"bins": [1, 2, 256]},
        lambda answer: answer | {"bins": [1, 2, -1]},
        lambda answer: answer | {"bins": ["1", "2", "a"]},
        lambda answer: {name: answer[name] for name in answer if name != "bins"},
    ],
)
def test_an_answer_that_makes_no_sense_is_refused(change: Callable[[dict[str, Any]], Any]) -> None:
    good = run(f"print({json.dumps(WHOLE)!r})")
    assert (good.state, good.peaks.frames.tolist(), good.peaks.bins.tolist()) == ("ready", [-1, 3, 3], [255, 0, 9])
    bad = run(f"print({json.dumps(change(WHOLE))!r})")
    assert (bad.state, bad.warning) == ("failed", "the decoding process gave an answer that makes no sense.")
    assert len(bad.peaks) == 0
