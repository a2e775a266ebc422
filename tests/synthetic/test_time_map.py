from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hapvr.errors import DataError
from hapvr.synthetic.time_map import Segment, TimeMap

times = st.integers(0, 40).map(lambda quarter: quarter / 4)


@st.composite
def maps(draw: st.DrawFn) -> TimeMap:
    """Up to three segments, forwards or backwards, at any speed, with gaps."""
    marks = sorted(draw(st.sets(times, min_size=2, max_size=6)))
    pairs = list(zip(marks[::2], marks[1::2], strict=False))
    return TimeMap.of(*(Segment(start, end, draw(times), draw(times)) for start, end in pairs))


@given(maps(), maps(), st.floats(0, 10))
def test_composing_maps_is_composing_functions(later: TimeMap, earlier: TimeMap, q: float) -> None:
    edges = [q for segment in (*later.segments, *earlier.segments) for q in (segment.q_start, segment.q_end)]
    moment = later(q)
    # At the very edge of a segment rounding decides on which side a moment lies.
    near_edge = any(abs(q - edge) < 1e-4 for edge in edges)
    if near_edge or (moment is not None and any(abs(moment - edge) < 1e-4 for edge in edges)):
        return
    expected = None if moment is None else earlier(moment)
    composed = later.after(earlier)(q)
    assert composed == (None if expected is None else pytest.approx(expected, abs=1e-6))


def test_trim_after_speed_after_insert() -> None:
    inserted = TimeMap.of(Segment(10, 20, 0, 10))  # 10 s of the original, after 10 s of something else
    faster = TimeMap.of(Segment(0, 15, 0, 30))  # all of it, twice as fast
    trimmed = TimeMap.of(Segment(0, 6, 6, 12))  # 6 s of that, from second 6
    composed = trimmed.after(faster).after(inserted)
    assert composed.segments == (Segment(0, 4, 2, 10),)
    assert composed(5.0) is None


def test_playing_backwards_twice_is_playing_forwards() -> None:
    backwards = TimeMap.of(Segment(0, 8, 8, 0))
    assert backwards.after(backwards) == TimeMap.identity(8)


def test_pieces_that_continue_each_other_become_one() -> None:
    halves = TimeMap.of(Segment(0, 4, 0, 4), Segment(4, 8, 4, 8))
    assert TimeMap.identity(8).after(halves) == TimeMap.identity(8)
    swapped = TimeMap.of(Segment(0, 4, 4, 8), Segment(4, 8, 0, 4))
    assert TimeMap.identity(8).after(swapped) == swapped


def test_a_frozen_picture_stays_one_moment() -> None:
    frozen = TimeMap.of(Segment(0, 3, 2, 2))
    assert frozen.after(TimeMap.of(Segment(0, 4, 10, 18))).segments == (Segment(0, 3, 14, 14),)


def test_an_interval_runs_forwards_on_both_sides() -> None:
    assert Segment(1, 3, 9, 5).interval() == (1, 3, 5, 9)
    assert Segment(1, 3, 9, 5).speed == -2


@pytest.mark.parametrize("ends", [(2, 2, 0, 1), (3, 2, 0, 1), (0, math.nan, 0, 1), (0, 1, 0, math.inf)])
def test_a_segment_that_runs_nowhere_is_refused(ends: tuple[float, float, float, float]) -> None:
    with pytest.raises(DataError, match="segment"):
        Segment(*ends)


def test_overlapping_segments_are_refused() -> None:
    with pytest.raises(DataError, match="overlap"):
        TimeMap.of(Segment(0, 5, 0, 5), Segment(4, 6, 7, 9))
