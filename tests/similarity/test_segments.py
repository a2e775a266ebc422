from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hapvr.errors import ConfigError, DataError, HapvrError, ShapeError
from hapvr.similarity import Segment, SegmentConfig, find_segments
from hapvr.similarity.segments import _STEPS, _find_best_paths, compute_max_gain


def drawn(height: int, width: int, cells: list[tuple[int, int]], seed: int = 0) -> NDArray[np.float64]:
    """A frame matrix: noise around .2, and about .8 along the cells."""
    rng = np.random.default_rng(seed)
    matrix = rng.normal(0.2, 0.05, (height, width))
    for i, j in cells:
        matrix[i, j] = rng.normal(0.8, 0.05)
    return matrix


def found(matrix: NDArray[np.float64], **settings: Any) -> list[Segment]:
    height, width = matrix.shape
    config = SegmentConfig(**{"threshold": 0.45, **settings})
    return find_segments(matrix, np.arange(height) * 1.0, np.arange(width) * 1.0, config=config)


def spans(segments: list[Segment]) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    return sorted((segment.query, segment.target) for segment in segments)


def slow_best(gains: NDArray[np.float64], skip_cost: float) -> float:
    """The largest sum over all paths, by trying every one of them."""

    def onwards(i: int, j: int) -> float:
        best = 0.0
        for di, dj, skipped in _STEPS:
            if i + di < gains.shape[0] and j + dj < gains.shape[1]:
                best = max(best, onwards(i + di, j + dj) - skip_cost * skipped)
        return float(gains[i, j]) + best

    return max(onwards(i, j) for i, j in product(range(gains.shape[0]), range(gains.shape[1])))


@given(st.integers(1, 5), st.integers(1, 5), st.floats(0, 0.3), st.integers(0, 999))
def test_the_best_path_agrees_with_trying_them_all(height: int, width: int, skip_cost: float, seed: int) -> None:
    gains = np.random.default_rng(seed).normal(0, 0.5, (height, width))
    ((gain, path),) = _find_best_paths(gains[:, None], skip_cost, np.inf)
    assert gain == pytest.approx(slow_best(gains, skip_cost))
    steps = {(di, dj): skipped for di, dj, skipped in _STEPS}
    paid = sum(steps[b[0] - a[0], b[1] - a[1]] for a, b in pairwise(path))
    assert sum(gains[cell] for cell in path) - skip_cost * paid == pytest.approx(gain)


def slow_path(gains: NDArray[np.float64], skip_cost: float, max_drop: float) -> tuple[float, list[tuple[int, int]]]:
    """The path cell by cell: each takes the best of the cells before it, the first of equals, or begins a path."""
    totals: dict[tuple[int, int], tuple[float, float, list[tuple[int, int]]]] = {}  # sum, largest sum, path
    for i, j in product(range(gains.shape[0]), range(gains.shape[1])):
        best: tuple[float, tuple[int, int]] | None = None
        for di, dj, skipped in _STEPS:
            if (i - di, j - dj) in totals:
                before = totals[i - di, j - dj][0] - skip_cost * skipped
                if best is None or before > best[0]:
                    best = before, (i - di, j - dj)
        gain = float(gains[i, j])
        totals[i, j] = gain, gain, [(i, j)]
        if best is not None and best[0] > 0 and best[0] + gain >= totals[best[1]][1] - max_drop:
            total, (_, peak, path) = best[0] + gain, totals[best[1]]
            totals[i, j] = total, max(total, peak), [*path, (i, j)]
    total, _, path = max(totals.values(), key=lambda value: value[0])
    return total, path


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("max_drop", [0.1, 0.4, np.inf])
def test_the_paths_agree_with_a_loop_over_cells(max_drop: float, tied: bool) -> None:
    """Both of two matrices at once; with many equal sums too."""
    draw = np.random.default_rng(0)
    for height, width in ((1, 1), (1, 9), (9, 1), (2, 3), (9, 7), (7, 9), (12, 12), (12, 12), (15, 11)):
        gains = draw.normal(0, 0.5, (height, 2, width))
        gains = gains.round() / 2 if tied else gains
        found = _find_best_paths(gains, 0.125, max_drop)
        assert found == [slow_path(gains[:, number], 0.125, max_drop) for number in range(2)]


def test_a_path_that_begins_after_a_drop_owes_nothing_to_the_one_before() -> None:
    """.5 + .5 + .5 = 1.5, then -.3 twice: 0.9 is more than .4 below that. The rest is a path for itself: 4 * .5 = 2."""
    gains = np.full((9, 9), -1.0)
    np.fill_diagonal(gains, [0.5, 0.5, 0.5, -0.3, -0.3, 0.5, 0.5, 0.5, 0.5])
    assert _find_best_paths(gains[:, None], 0.1, 0.4) == [(2.0, [(place, place) for place in range(5, 9)])]


def test_a_trimmed_copy_is_found_to_the_frame() -> None:
    (segment,) = found(drawn(10, 30, [(i, 12 + i) for i in range(10)]))
    assert (segment.query, segment.target) == ((0.0, 9.5), (11.5, 21.5))
    assert segment.score == pytest.approx(0.8, abs=0.05)
    assert not segment.backwards
    assert segment.path == tuple((i, 12 + i) for i in range(10))


def test_several_matches_are_all_found() -> None:
    cells = [(i, 5 + i) for i in range(6)] + [(10 + i, 25 + i) for i in range(8)]
    assert spans(found(drawn(20, 40, cells))) == [((0.0, 5.5), (4.5, 10.5)), ((9.5, 17.5), (24.5, 32.5))]


def test_a_short_gap_is_bridged_and_a_long_one_is_not() -> None:
    """Two unlike frames cost about .5, less than `max_drop`; five cost more."""
    for gap, count in ((2, 1), (5, 2)):
        cells = [(i, i) for i in range(8)] + [(8 + gap + i, 8 + gap + i) for i in range(8)]
        assert len(found(drawn(30, 30, cells))) == count


def test_a_query_repeated_in_the_target_is_found_twice() -> None:
    cells = [(i, 2 + i) for i in range(8)] + [(i, 20 + i) for i in range(8)]
    assert [target for _, target in spans(found(drawn(8, 40, cells)))] == [(1.5, 9.5), (19.5, 27.5)]


@pytest.mark.parametrize("speed", [0.5, 0.75, 1.5, 2.0, 3.0])
def test_a_copy_at_another_speed_is_followed(speed: float) -> None:
    """`speed` target frames pass for each query frame."""
    frames = 12 if speed > 1 else 24
    cells = [(i, 3 + int(i * speed)) for i in range(frames)]
    (segment,) = found(drawn(frames, 60, cells))
    assert segment.query == pytest.approx((0, frames - 0.5), abs=1.01)
    assert segment.target == pytest.approx((2.5, 3.5 + int((frames - 1) * speed)), abs=1.01)


def test_a_reversed_copy_is_found_and_said_to_be_reversed() -> None:
    (segment,) = found(drawn(10, 30, [(i, 20 - i) for i in range(10)]))
    assert segment.backwards
    assert segment.query == (0.0, 9.5)
    assert segment.target == (10.5, 20.5)


def test_a_still_scene_like_many_frames_is_no_match() -> None:
    """Twenty query frames that all look like three target frames would be a copy at seven times the speed."""
    still = [(i, j) for i in range(20) for j in (10, 11, 12)]
    assert found(drawn(20, 30, still)) == []
    assert len(found(drawn(20, 30, still), max_speed=10.0)) == 1


def test_nothing_is_found_in_noise() -> None:
    assert found(drawn(40, 60, [])) == []
    assert found(drawn(40, 60, [(3, 3), (20, 40)])) == []  # two alike frames are no match


def test_matches_are_reported_best_first_and_no_more_than_asked() -> None:
    cells = [(i, 5 + i) for i in range(4)] + [(10 + i, 25 + i) for i in range(9)]
    matrix = drawn(20, 40, cells)
    assert [segment.target[0] for segment in found(matrix)] == [24.5, 4.5]
    assert len(found(matrix, max_segments=1)) == 1


def test_seconds_follow_the_timestamps() -> None:
    matrix = drawn(6, 8, [(i, i) for i in range(6)])
    times = np.array([0, 1, 3, 5, 6, 8, 20, 30]) * 1.0
    (segment,) = find_segments(matrix, np.arange(6) / 4 + 10, times, config=SegmentConfig(max_speed=20))
    assert segment.query == (10 - 0.125, 10 + 5.5 / 4)
    assert segment.target == (0.0, 14.0)


@given(st.integers(0, 50))
def test_swapping_the_videos_swaps_a_plain_diagonal(seed: int) -> None:
    matrix = drawn(15, 25, [(2 + i, 7 + i) for i in range(9)], seed)
    one, other = found(matrix), found(matrix.T)
    assert spans(one) == sorted((segment.target, segment.query) for segment in other)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"matrix": np.zeros(3)}, ShapeError, r"\[Tq, Tt\]"),
        ({"matrix": np.zeros((0, 3))}, ShapeError, "at least one frame"),
        ({"query_times": np.arange(3.0)}, ShapeError, "one entry per row"),
        ({"matrix": np.full((2, 2), np.nan)}, DataError, "matrix holds NaN"),
        ({"target_times": np.array([1.0, 1.0])}, DataError, "target_times must ascend"),
    ],
)
def test_bad_input_is_refused(change: dict[str, Any], error: type[HapvrError], words: str) -> None:
    good = {"matrix": np.zeros((2, 2)), "query_times": np.arange(2.0), "target_times": np.arange(2.0)}
    with pytest.raises(error, match=words):
        find_segments(**{**good, **change})


@pytest.mark.parametrize(
    "settings",
    [{"skip_cost": -1}, {"min_frames": 0}, {"max_segments": 1.5}, {"threshold": float("nan")}, {"max_speed": 0.5}],
)
def test_bad_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        SegmentConfig(**settings)


def test_in_footage_that_hardly_changes_a_stretch_matches_itself_alone() -> None:
    rng = np.random.default_rng(0)
    matrix = rng.normal(0.8, 0.02, (12, 40))  # every stretch is like every other
    for i in range(12):
        matrix[i, 20 + i] = rng.normal(0.97, 0.01)
    (segment,) = found(matrix)
    assert segment.target == (19.5, 31.5)
    assert len(found(matrix, max_rival_gap=0.5)) > 1


def test_a_weaker_match_of_other_frames_is_not_held_against_them() -> None:
    matrix = drawn(20, 60, [(i, 5 + i) for i in range(8)])
    for i in range(8):
        matrix[10 + i, 40 + i] = 0.6
    assert [segment.target for segment in found(matrix)] == [(4.5, 12.5), (39.5, 47.5)]


def test_no_path_gains_more_than_the_bound() -> None:
    draw = np.random.default_rng(0)
    for _ in range(20):
        matrix = draw.uniform(0, 0.7, (6, 7))
        segments = found(matrix, threshold=0.3, min_gain=0.0, min_frames=1)
        gains = [sum(matrix[cell] - 0.3 for cell in segment.path) for segment in segments]
        assert max(gains, default=0.0) <= compute_max_gain(matrix - 0.3) + 1e-9
        assert found(matrix, threshold=0.3, min_gain=compute_max_gain(matrix - 0.3) + 1e-6, min_frames=1) == []
