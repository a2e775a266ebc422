"""Which instants, which rate, and a clock for files whose times are wrong."""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hapvr.video.sampling import Clock, Instants, compute_rate


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=40), st.sampled_from([0.3, 1.0, 2.5, 8.0]))
def test_agrees_with_the_loop(gaps_ms: list[int], rate: float) -> None:
    times = np.cumsum([0, *gaps_ms]) / 1000
    length = 0.04
    wanted: list[int] = []
    for step in range(int((times[-1] + length) * rate) + 1):
        instant = step / rate
        if instant >= times[-1] + length - 1e-9:
            break
        distance = np.round(np.abs(times - instant), 9)
        best = int(np.flatnonzero(distance == distance.min())[-1])
        if best not in wanted:
            wanted.append(best)
    shown = [(float(time), length, index) for index, time in enumerate(times)]
    assert [index for _, index in Instants(rate).nearest(shown)] == wanted


def test_an_infinite_rate_takes_every_frame_on_display() -> None:
    shown = [(0.1 * index, 0.1, index) for index in range(10)]
    assert [index for _, index in Instants(math.inf, 0.25, 0.5).nearest(shown)] == [2, 3, 4]


def test_a_gap_of_a_thousand_years_takes_no_time() -> None:
    shown = [(0.0, 0.1, "a"), (3e10, 0.1, "b"), (3e10 + 0.1, 0.1, "c")]
    assert [name for _, name in Instants(1.0).nearest(shown)] == ["a", "b"]


def test_holds_no_more_than_the_frame_at_hand_and_the_one_before() -> None:
    class Frame:
        pass

    alive: weakref.WeakSet[Frame] = weakref.WeakSet()

    def frames() -> Iterator[tuple[float, float, Frame]]:
        for index in range(100):
            frame = Frame()
            alive.add(frame)
            yield 0.1 * index, 0.1, frame
            del frame
            assert len(alive) <= 2

    assert sum(1 for _ in Instants(1.0).nearest(frames())) == 10


@pytest.mark.parametrize("count", [29, 50, 500])
def test_a_regular_short_video_gives_about_as_many_as_asked_for(count: int) -> None:
    times = np.arange(count) / 25
    rate = compute_rate(times, duration_s=count / 25, fps=1.0, min_frames=28)
    assert 26 <= Instants(rate).count(times) <= 28


def test_a_long_video_keeps_its_rate() -> None:
    assert compute_rate(np.arange(2000) / 25, duration_s=80.0, fps=1.0, min_frames=28) == 1.0


def test_a_clock_that_is_set_back_goes_on() -> None:
    clock = Clock(0.1, None)
    times = [clock.read(0.1 * index) for index in range(20)] + [clock.read(0.1 * index) for index in range(15)]
    real = [time for time in times if time is not None]
    assert len(real) == 20 + 15 - 7
    assert np.diff(real).min() > 0.09
    assert (clock.refused, clock.set_back) == (7, 1)


def test_a_time_far_beyond_the_declared_end_is_refused() -> None:
    clock = Clock(0.1, 10.0)
    assert [clock.read(time) for time in (0.0, 1e6, 0.1, 0.2)] == [0.0, None, 0.1, 0.2]


def test_a_false_declaration_is_overruled() -> None:
    clock = Clock(1.0, 10.0)
    assert [clock.read(float(time)) for time in range(200)] == list(range(200))
    assert [clock.read(1e6 + time) for time in range(9)] == [None] * 7 + [1e6 + 7, 1e6 + 8]


def test_times_are_never_negative() -> None:
    assert Clock(0.1, None).read(-3.0) == 0.0
